//! Moves what the kernel did not take at once, or could not be sent before the peer had answered, where the program
//! makes no call that would: as the kernel does for what its own buffers hold. And lets connections that the program
//! has closed send their last octets.
//!
//! A thread of ours, started with the first connection in RDMA mode, or that was accepted and may become one, and asleep as long as there is nothing to do. The
//! program's own calls come first: the thread waits a while before it acts. Where no thread can be had, what waits is
//! moved at the program's next call (`parked`).
//!
//! It also answers a peer that wants to go on with plain bytes, which cannot wait for the program: the peer rings by
//! one urgent byte (`bell`). And requests for RDMA mode on connections that the program leaves unused (`overdue`).
//!
//! After fork the child has no such thread, and what lingers is its parent's.

use super::super::lock::{self, Slow};
use super::super::parked::{self, Left};
use super::super::{Phase, Socket};
use super::{bell, ending, leaving, overdue, raising, turns};
use crate::epoll::registered;
use crate::service;
use crate::signals::thread::Section;
use crate::world;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use transport::clock;
use transport::ring::Ring;
use transport::ring::records::KNOCK;
use transport::sys::fd::Fd;
use transport::sys::net;
use transport::sys::time;
use transport::wire::{Heard, Return, Wire};

/// How long (µs) what waits is left to the program's own calls.
const COURTESY_US: u64 = 500;
/// How long (µs) the thread sleeps between two turns, at most.
const PAUSE_US: u64 = 2_000;
/// How long (µs) what a peer has knocked for may take to come behind the knock, before it is looked for later.
const BEHIND_US: u64 = 10_000;
/// How long (µs) a closed connection may take to send its last octets: as long as the kernel's own patience with a
/// peer that has gone silent, about.
const LINGER_US: u64 = 60_000_000;
/// How long (µs) one whose close aborts it may take to get its answer, and to send what was sent before that.
const ABORT_US: u64 = 5_000_000;
/// How long (µs) a peer that has not ended its direction may take to hear that this side has, and what it said before that
/// to come here, and its own end, which finds nobody after that and is answered with a reset. (A busy host may not run it for that long.)
const WORDS_US: u64 = 100_000;
/// While small messages are gathered (`transport::wire`): how long (µs) the thread sleeps between two looks, what it leaves where it
/// is because the sender is likely to see to it (µs old at most), and how many looks in vain end that.
const LOOK_US: u64 = 40;
const YOUNG_US: u64 = 20;
const LOOKS: u32 = 25;
/// Each so many looks it is asked who rings, too.
const ASK_EVERY: u32 = 8;

/// How a connection that the program has closed is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With everything that was sent, and the end of file. `answers`: there may be rings, and this side has accepted, so
    /// the other may end one at will. `is_far`: all is to be acknowledged, too ([`End::Said`]).
    Orderly { answers: bool, is_far: bool },
    /// The kernel has everything, and was told of the end. A word of the peer's that crosses that would be answered with a reset, which
    /// drops what has not been acknowledged. (One on this host sees the end before it says anything else, and takes in what comes before that.)
    Said { is_far: bool },
    /// By a reset, once what was sent early has gone.
    Aborting,
}

/// A connection that the program has closed.
#[derive(Debug)]
struct Last {
    fd: Fd,
    wire: NonNull<Wire>,
    end: End,
    since: u64,
    /// When all had gone, in ticks; 0 before.
    gone: u64,
    /// When the kernel was told that this side has ended, in ticks; 0 before.
    ended: u64,
    /// Octets that the peer's kernel had not acknowledged behind that, and since when it is so, in ticks.
    unsent: (usize, u64),
}

// SAFETY: the state is reached by whoever holds the list, and by nobody else.
unsafe impl Send for Last {}

static LINGERING: Slow<Vec<Last>> = Slow::new(crate::sockets::order::Rank::Lingering, Vec::new());
static MASK: AtomicU64 = AtomicU64::new(0);

static STARTED: AtomicBool = AtomicBool::new(false);
/// The thread is about its work: it looks again before it sleeps.
static AWAKE: AtomicBool = AtomicBool::new(false);
/// No thread any more: the process limits its system calls, or its first thread has left.
static OVER: AtomicBool = AtomicBool::new(false);

/// The thread itself, by its pointer; 0 if there is none.
static THREAD: AtomicU64 = AtomicU64::new(0);

/// Whether it is this thread.
pub(crate) fn is_here() -> bool {
    THREAD.load(Ordering::Relaxed) == lock::thread()
}

/// Whether the thread is there, or could be started. Not under a lock.
fn start() -> bool {
    if OVER.load(Ordering::Relaxed) || world::is_foreign() || !bell::prepare() {
        return false;
    }
    if !STARTED.swap(true, Ordering::AcqRel) {
        transport::verbs::start_threads_by(service::start_alone);
        if service::start(run, ptr::null_mut()).is_none() {
            OVER.store(true, Ordering::Relaxed);
        }
    }
    true
}

/// A connection is in RDMA mode: its peer may ring.
pub(super) fn watch(s: &'static Socket, fd: i32) {
    if start() {
        bell::watch(s, fd);
    }
}

/// The program is about to close a descriptor of the connection, the last one or not ([`bell::unwatch`]).
pub(crate) fn closes(s: &'static Socket, fd: i32, last: bool) {
    if super::wire(s).is_some() && bell::unwatch(fd) && !last {
        let other = s.own_fd(-1);
        if other >= 0 {
            bell::watch(s, other);
        }
    }
}

/// There is something to move.
pub(crate) fn wake() {
    let _both = Section::enter(); // (who is taken for awake and was not rung would sleep for ever)
    if !AWAKE.swap(true, Ordering::SeqCst) && start() {
        bell::ring();
    }
}

/// The program has closed this connection, of which something has not gone yet.
pub(super) fn take_over(fd: Fd, wire: NonNull<Wire>, end: End) {
    LINGERING.lock().push(Last {
        fd,
        wire,
        end,
        since: clock::ticks(),
        gone: 0,
        ended: 0,
        unsent: (0, 0),
    });
    wake();
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    service::name(c"shunt-mover");
    THREAD.store(lock::thread(), Ordering::Relaxed);
    time::be_punctual();
    let mut pause = COURTESY_US;
    let mut waits = false;
    loop {
        if !waits {
            AWAKE.store(false, Ordering::SeqCst);
            // (who has noted something before that was to be seen did not ring)
            waits = parked::has_wired() || !LINGERING.lock().is_empty();
        }
        // (before, too: what rings it awake for that may have been taken by another look)
        let rung = if is_over() {
            [None; bell::RUNG]
        } else {
            bell::sleep(if waits { 0 } else { patience() })
        };
        if OVER.load(Ordering::SeqCst) {
            THREAD.store(0, Ordering::Relaxed);
            STARTED.store(false, Ordering::SeqCst);
            return ptr::null_mut();
        }
        AWAKE.store(true, Ordering::SeqCst);
        turns::turn(is_over, || {
            rung.into_iter().flatten().for_each(answer);
            raising::work(); // (an adapter takes its time anyway)
            overdue::work();
            turns::take_left();
        });
        if parked::is_gathering() {
            look_after_gathered();
            pause = COURTESY_US;
        }
        let _ = time::nap(pause);
        // (both: one that is stuck is not to keep others from their last octets)
        let moved = turns::turn(is_over, || {
            (parked::move_wired(YOUNG_US) != Left::Nothing) | linger(STAY)
        });
        waits = registered::kick_owed() | moved.unwrap_or(true);
        pause = if waits {
            (2 * pause).min(PAUSE_US)
        } else {
            COURTESY_US
        };
    }
}

/// How long (ms) the thread may sleep where nothing waits; -1: for ever.
fn patience() -> i32 {
    let most = match (raising::patience(), overdue::patience()) {
        (riders @ 0.., Some(accepted)) => riders.min(accepted),
        (_, Some(accepted)) => accepted,
        (riders, None) => riders,
    };
    if !turns::may_be_left() {
        return most;
    }
    if most < 0 {
        turns::LEFT_MS
    } else {
        most.min(turns::LEFT_MS)
    }
}

/// Stays awake as long as small messages are gathered, so that none waits for long when their sender turns to something
/// else.
fn look_after_gathered() {
    let (mut quiet, mut turn) = (0, 0u32);
    while quiet < LOOKS && !OVER.load(Ordering::SeqCst) {
        let _ = time::nap(LOOK_US);
        match turns::turn(is_over, || parked::move_wired(YOUNG_US)) {
            Some(Left::Nothing | Left::Parked) => quiet += 1,
            Some(Left::Gathering) => quiet = 0,
            Some(Left::Stuck) | None => return,
        }
        turn = turn.wrapping_add(1);
        if turn.is_multiple_of(ASK_EVERY) {
            let rung = bell::sleep(0);
            turns::turn(is_over, || rung.into_iter().flatten().for_each(answer));
        }
    }
}

/// The peer of this one wants to go on with plain bytes, or urgent data of its program has come: then it already
/// does.
fn answer(s: &'static Socket) {
    let Some(wire) = super::wire(s) else { return };
    let fd = s.own_fd(s.record.fd.load(Ordering::Relaxed).cast_signed());
    if super::is_current(s, wire) && s.phase() == Phase::Wired && fd >= 0 {
        if wire.common.ring.is_wanted() && net::urgent(fd).is_none_or(|byte| byte == KNOCK) {
            // Its ring is over, which it says right behind; or what it rang for was read by now.
            let begun = clock::ticks();
            loop {
                // (who sleeps hears it, unless it is just being woken by the ring: then nobody would)
                if s.sleepers() == 0 {
                    super::io::available(s, fd);
                    registered::kick_others(s, ptr::null());
                }
                let late = clock::ticks() - begun > clock::us(BEHIND_US);
                let over = wire.common.ring.get().is_none_or(Ring::is_over);
                if late || over || !super::is_current(s, wire) {
                    return;
                }
                let _ = time::nap(100);
            }
        }
        if net::urgent(fd) == Some(leaving::BACK) {
            wire.common.note_return(Return::Asked);
        }
        wire.common.to_plain.store(true, Ordering::Release);
        ending::follow_to_plain(s, fd, wire);
        super::waiting::note_pending(s, fd);
    }
}

/// How long (µs) what lingers stays: who may yet say something has `words` to, and what has been said to another host goes while anything of
/// it is acknowledged within `still`.
#[derive(Clone, Copy)]
pub(super) struct Stay {
    pub(super) words: u64,
    pub(super) still: u64,
}

const STAY: Stay = Stay {
    words: WORDS_US,
    still: LINGER_US,
};

/// Goes on with what lingers. True if anything still does.
pub(super) fn linger(stay: Stay) -> bool {
    let mut all = LINGERING.lock();
    all.retain_mut(|last| {
        let patience = match last.end {
            End::Orderly { .. } | End::Said { .. } => LINGER_US,
            End::Aborting => ABORT_US,
        };
        let done = is_done(last, stay);
        let late = !done && clock::ticks() - last.since > clock::us(patience);
        if late {
            give_up_one(last);
        }
        let done = done || late;
        if done {
            // SAFETY: the program's socket has given it up; nobody else has it.
            unsafe {
                raising::drop_of(last.wire.as_ref());
                Wire::release(last.wire);
            }
        }
        !done
    });
    !all.is_empty()
}

/// What has not gone of this one goes no more: the peer is not to take the end of that for the end of the stream.
fn give_up_one(last: &Last) {
    // SAFETY: as in `linger`.
    let (wire, fd) = (unsafe { last.wire.as_ref() }, last.fd.raw());
    // SAFETY: whoever holds the list has both halves.
    let lost = unsafe {
        let out = wire.out();
        wire.is_asking() || out.is_under_way(&wire.common) && !out.is_cut()
    };
    if lost {
        net::reset_on_close(fd);
    }
}

/// The process ends with some that linger.
pub(super) fn give_up() {
    LINGERING.lock().iter().for_each(give_up_one);
}

/// Octets of those that linger that have not reached a peer's kernel, and whether a server has not answered one yet.
pub(super) fn left() -> (usize, bool) {
    let (mut octets, mut unanswered) = (0, false);
    for last in LINGERING.lock().iter() {
        // SAFETY: as in `give_up_one`.
        unsafe {
            let wire = last.wire.as_ref();
            unanswered |= wire.is_asking();
            octets += wire.out().pending() + net::unsent(last.fd.raw());
        }
    }
    (octets, unanswered)
}

/// The rings of those that linger. (Who is on the way to the list is soon there.)
pub(super) fn rings_of_lingering() -> Vec<NonNull<Ring>> {
    let all = LINGERING.lock();
    // SAFETY: as in `linger`.
    let ring = |last: &Last| unsafe { last.wire.as_ref() }.common.ring.get();
    all.iter().filter_map(ring).map(NonNull::from).collect()
}

fn is_done(last: &mut Last, stay: Stay) -> bool {
    // SAFETY: as in `linger`: whoever holds the list has both halves, which no other process has any more.
    let (wire, fd) = (unsafe { last.wire.as_ref() }, last.fd.raw());
    let (answers, is_far) = match last.end {
        End::Orderly { answers, is_far } => (answers, is_far),
        End::Said { is_far } => (false, is_far),
        End::Aborting => (false, false),
    };
    // SAFETY: as above.
    unsafe {
        if wire.is_asking() && matches!(wire.hear(fd, false), Heard::Nothing | Heard::Part) {
            return false;
        }
        let mut incoming = wire.incoming();
        // (credits may come; bytes of the stream have nobody to read them, which the kernel says by a reset)
        let readable = incoming.is_readable(&wire.common, fd);
        leaving::forget_ring(&incoming, fd);
        if last.end == End::Aborting {
            // (what the peer has given back goes once more, too: its kernel is to have it before it hears of the end)
            let waits = wire.common.is_returning(Return::Waits);
            if waits {
                incoming.available(&wire.common, fd);
            }
            let over = incoming.is_over();
            drop(incoming);
            let failed = waits && wire.resume(fd).is_err();
            let mut out = wire.out();
            let gone = out.flush_all(&wire.common, fd).is_err();
            return gone
                || failed
                || over
                || !out.is_under_way(&wire.common) && net::unsent(fd) == 0;
        }
        if readable && incoming.has_bytes(fd) {
            net::reset_on_close(fd);
            return true;
        }
        if matches!(last.end, End::Said { .. }) {
            drop(incoming);
            return is_acknowledged(last, if is_far { stay.still } else { stay.words });
        }
        let over = readable && incoming.is_over();
        // Behind the end of file, too, a peer gives credits, and says that its ring begins, or is over, and what it lacks.
        if incoming.has_end() {
            incoming.look_for_plain(&wire.common, fd);
        }
        incoming.quiet(&wire.common, fd);
        let waits = wire.common.is_returning(Return::Waits);
        if waits {
            incoming.available(&wire.common, fd);
        }
        drop(incoming);
        if waits {
            let _ = wire.resume(fd); // (what fails shows below)
        }
        if wire.common.ring.get().is_some_and(Ring::is_over) {
            wire.end_ring();
        }
        let mut out = wire.out();
        let failed = out.finish(&wire.common, fd).is_err();
        // (a peer that goes on with plain bytes, and has ended its direction, is owed what is plain)
        let owes = wire.common.to_plain.load(Ordering::Acquire) && out.pending() > 0;
        if failed || over && !owes {
            return true;
        }
        // (of a peer on this host its kernel may acknowledge the end late)
        if (is_far || last.ended == 0) && ending::is_lasting(wire, &out, fd) {
            return net::is_dead(fd); // (and what the kernel has will go no more)
        }
    }
    if !answers && !ending::is_to_hear(wire) {
        if is_far {
            end_here(last);
            last.end = End::Said { is_far };
        }
        return !is_far;
    }
    let now = clock::ticks();
    if last.gone == 0 {
        last.gone = now;
    }
    if answers && ending::may_lack(wire) && now - last.gone < clock::us(stay.words) {
        return ending::is_peer_gone(fd);
    }
    // What the peer is just saying would be answered with a reset: it hears of the end first.
    if last.ended == 0 {
        end_here(last);
        last.ended = now;
    }
    let words = if ending::may_speak(wire, is_far) {
        stay.words
    } else {
        0
    };
    ending::is_peer_gone(fd) || now - last.ended > clock::us(words)
}

/// Tells the kernel that this side has ended.
fn end_here(last: &Last) {
    // SAFETY: no pointers.
    let _ = unsafe { transport::syscall!(shutdown, last.fd.raw(), libc::SHUT_WR) };
}

/// Whether the peer's kernel has all of one whose end was said, or nothing is to be hoped for.
fn is_acknowledged(last: &mut Last, still_us: u64) -> bool {
    let (unsent, now) = (net::unsent(last.fd.raw()), clock::ticks());
    let (before, mut since) = last.unsent;
    if unsent != before {
        since = now;
    }
    last.unsent = (unsent, since);
    unsent == 0 || net::is_dead(last.fd.raw()) || now - since > clock::us(still_us)
}

fn is_over() -> bool {
    OVER.load(Ordering::SeqCst)
}

/// No thread any more, from now on.
pub(crate) fn end() {
    OVER.store(true, Ordering::SeqCst);
    bell::ring();
    let begun = clock::ticks();
    while STARTED.load(Ordering::SeqCst) && clock::ticks() - begun < clock::us(PAUSE_US * 10) {
        let _ = time::nap(50);
    }
}

pub(crate) fn before_fork() {
    MASK.store(LINGERING.hold(), Ordering::Relaxed);
    raising::before_fork();
    overdue::before_fork();
}

pub(crate) fn in_parent() {
    overdue::let_go();
    raising::in_parent();
    let_go();
}

/// Streams are shared with a child from now on, which may leave something.
pub(crate) fn has_child() {
    if STARTED.load(Ordering::Relaxed) && turns::are_shared() {
        turns::note_child();
        wake();
    }
}

fn let_go() {
    LINGERING.let_go(MASK.load(Ordering::Relaxed));
}

/// In a child after fork, while held.
pub(crate) fn in_child() {
    // SAFETY: held since before the fork, and there is no other thread.
    unsafe { LINGERING.held() }.clear(); // (what it closes are its own numbers for the parent's connections)
    STARTED.store(false, Ordering::SeqCst);
    THREAD.store(0, Ordering::Relaxed);
    overdue::in_child();
    overdue::let_go();
    raising::in_child();
    turns::in_child();
    AWAKE.store(false, Ordering::SeqCst);
    bell::in_child();
    let_go();
}

/// Whether there was such a thread.
pub(super) fn has_begun() -> bool {
    STARTED.load(Ordering::Relaxed) || OVER.load(Ordering::Relaxed)
}

/// Whether octets that wait can be expected to go without a call of the program's.
pub(crate) fn is_there() -> bool {
    STARTED.load(Ordering::Relaxed) && !OVER.load(Ordering::Relaxed)
}
