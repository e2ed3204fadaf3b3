//! Parked bytes (`flowctl::packetized`): taken from the program, and not yet for the peer to take. They
//! move at the program's next call of the library, on whatever socket that is; so before any call here
//! waits, and before any read, everything parked is let go.
//!
//! A program that computes keeps them: that is the scheme. But one that waits outside the library, for
//! something that depends on those bytes, would wait for ever, as it never does on kernel TCP. So a
//! reader that finds nothing else for [`PATIENCE_US`] takes them by itself, then and from then on. Likewise what the program itself
//! withholds (TCP_CORK, MSG_MORE) once the reader has waited for as long as the kernel would have kept it.
//!
//! Octets on software iWARP that the kernel has not taken, or that wait for the peer's answer, are moved in the same
//! way; as long as there are any, sleeps are naps. What is parked there for want of room ([`PATIENCE_US`] holds too) the thread that
//! is there for software iWARP moves, as no reader could; what may end the process releases it. So are small messages that are to go together: they go once they have waited
//! for long enough, and before anything sleeps.
//!
//! No lock: a call may come from a signal handler. A socket that finds no place here does not park.

use super::{Phase, Socket, coarse, demote, idle, operator, stalled, wired};
use crate::guard;
use crate::signals::thread::Section;
use crate::world;
use flowctl::{Queued, Word};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use transport::clock;
use transport::provider::Provider;
use transport::sdp::{Leg, Rx};
use transport::sys::{retired, time};

/// How long (µs) a reader leaves parked bytes with their sender.
const PATIENCE_US: u64 = 20_000;
/// How long (µs) it leaves withheld ones there: tcp(7), TCP_CORK.
const WITHHELD_US: u64 = 200_000;
/// In `pulls`: whatever is parked, from now on; what is withheld now.
const PULLS_ALL: u8 = 1;
const PULLS_ONCE: u8 = 2;
/// How long (ns) a thread sleeps at once while a reader's patience runs.
const NAP_NS: u64 = 5_000_000;

/// Until when, in ticks, some reader's patience runs: no sleep may be longer than a nap.
static NAPS_UNTIL: AtomicU64 = AtomicU64::new(0);

/// Until when, in ticks, sleeps are that short (ns).
static SHORT_NAPS_UNTIL: AtomicU64 = AtomicU64::new(0);
const SHORT_NAP_NS: u64 = 1_000_000;

/// Sockets that can have parked bytes at one time.
const PLACES: usize = 64;

/// How many places are taken.
static TAKEN: AtomicU32 = AtomicU32::new(0);
static PARKED: [AtomicPtr<Socket>; PLACES] = [const { AtomicPtr::new(ptr::null_mut()) }; PLACES];

/// Remembers a socket whose last call has parked bytes.
#[cold]
pub(crate) fn note(s: &'static Socket, fd: i32) {
    if keep(s, fd) {
        return;
    }
    if wired::is_wired(s) {
        keep_awake(); // (its octets go with the next call on it)
        return;
    }
    if s.tx_leg() == Leg::Last {
        return; // (likewise)
    }
    post(s);
}

/// [`note`], as far as there is a place for it.
pub(crate) fn keep(s: &'static Socket, fd: i32) -> bool {
    s.parked_fd.store(fd, Ordering::Relaxed);
    let own = ptr::from_ref(s).cast_mut();
    for place in &PARKED {
        let now = place.load(Ordering::Relaxed);
        if now == own {
            return true;
        }
        let free = ptr::null_mut();
        if now.is_null()
            && place
                .compare_exchange(free, own, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        {
            TAKEN.fetch_add(1, Ordering::AcqRel);
            return true;
        }
    }
    false
}

/// Lets go of everything parked, if there is anything, gives back memory that was held and has been read, and looks
/// whether an operator has asked for something: what every call here begins with. Three loads if there is nothing. True if streams may have
/// gone back to the kernel.
#[inline]
pub(crate) fn let_go() -> bool {
    if TAKEN.load(Ordering::Relaxed) > 0 {
        all();
    }
    guard::reap();
    operator::attend()
}

/// Streams that are to go back to the kernel do: an operator's wish, or a reader that takes nothing. What a wait looks at each
/// time. True if some may have gone. Three loads and the clock if there is nothing.
#[inline]
pub(crate) fn attend() -> bool {
    idle::attend();
    operator::attend() | stalled::attend()
}

/// Whether [`let_go`] has nothing to do. Three loads.
#[inline]
pub(crate) fn is_idle() -> bool {
    TAKEN.load(Ordering::Relaxed) == 0 && !guard::is_live() && !operator::is_wanted()
}

/// Takes each of them that is wanted out of its place.
fn each(is_wanted: impl Fn(&'static Socket) -> bool, mut go: impl FnMut(&'static Socket)) {
    for place in &PARKED {
        // SAFETY: null, or a socket, which is never freed.
        let s = unsafe { place.load(Ordering::Acquire).as_ref() };
        if let Some(s) = s.filter(|&s| is_wanted(s)) {
            let own = ptr::from_ref(s).cast_mut();
            let (none, done) = (ptr::null_mut(), Ordering::Relaxed);
            if place
                .compare_exchange(own, none, Ordering::AcqRel, done)
                .is_ok()
            {
                TAKEN.fetch_sub(1, Ordering::AcqRel);
                go(s);
            }
        }
    }
}

#[cold]
fn all() {
    let stuck = is_due();
    each(
        |s| !wired::is_gathering(s, wired::GATHERING_US) && (stuck || !is_moved(s)),
        post,
    );
}

/// What begins a wait: nothing stays here, however new it is, but for what the mover moves. One load if there is nothing.
#[inline]
pub(crate) fn before_wait() {
    if TAKEN.load(Ordering::Relaxed) > 0 {
        let stuck = is_due();
        each(|s| stuck || !is_moved(s), post);
    }
}

/// Everything that can go does: before a fork, or an end.
pub(crate) fn let_all_go() {
    if TAKEN.load(Ordering::Relaxed) > 0 {
        each(|_| true, post);
    }
}

/// As many sockets on which something waits are looked after by every call, of whatever thread. Where there are more (a server
/// whose many threads begin a connection each) all threads would spend their time, and each other's locks, on each other's.
const FEW: u32 = 4;
/// How often (µs) they are looked after by calls then, beside the thread that is there for them and the calls on themselves.
const DUE_US: u64 = 200;
/// When they are next, in ticks.
static DUE: AtomicU64 = AtomicU64::new(0);

/// Whether this call looks after what is stuck on software iWARP.
fn is_due() -> bool {
    if TAKEN.load(Ordering::Relaxed) <= FEW || !wired::mover::is_there() {
        return true;
    }
    let (now, due) = (clock::ticks(), DUE.load(Ordering::Relaxed));
    now >= due
        && DUE
            .compare_exchange(
                due,
                now + clock::us(DUE_US),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
}

/// Whether what waits there is moved by the thread for software iWARP in a moment, whatever calls do.
fn is_moved(s: &Socket) -> bool {
    wired::is_wired(s) && !wired::is_gathering(s, u64::MAX)
}

/// The same for what may end another process, or, if `own` says so, this one.
pub(crate) fn before_death(own: impl FnOnce() -> bool) {
    let (is_taken, has_mover) = (TAKEN.load(Ordering::Relaxed) > 0, wired::mover::is_there());
    if !(is_taken || has_mover) || world::is_foreign() {
        return;
    }
    let own = own();
    let mut asked = [None; PLACES];
    if is_taken {
        if own {
            release(&mut asked);
        }
        let_all_go();
        settle_owed();
    }
    if own && has_mover {
        wired::parting::await_taken();
        wired::find_asking(&mut asked);
    }
    wired::await_answers(&asked);
}

/// What is parked on software iWARP is to go whether its peer has room or not; whose it was.
fn release(released: &mut [Option<&'static Socket>; PLACES]) {
    for (place, released) in PARKED.iter().zip(released) {
        // SAFETY: null, or a socket, which is never freed.
        let s = unsafe { place.load(Ordering::Acquire).as_ref() };
        *released = s.filter(|&s| wired::release(s));
    }
}

/// [`release`] alone.
pub(crate) fn release_all() {
    release(&mut [None; PLACES]);
}

/// How long (µs) the end of the process may wait for the kernel's room for what is owed.
const OWED_US: u64 = 3_000_000;

/// What is owed by the kernel goes before the process ends: nobody could send it any more.
pub(crate) fn settle_owed() {
    let begun = clock::ticks();
    while note_owing() && clock::ticks() - begun < clock::us(OWED_US) {
        let_all_go();
        let _ = time::nap(500);
    }
}

/// Whether there are any that owe. Each has its place then: another thread may just have it in its hands. (What others hold
/// too they go on with, unless it was this process that began.)
fn note_owing() -> bool {
    let mut owing = false;
    world::lock().pool.each(|s| {
        if s.phase() == Phase::Attached
            && s.tx_leg() == Leg::Last
            && (!s.is_shared() || has_place(s))
            && s.tx.lock_soon().is_ok_and(|tx| tx.owes())
        {
            owing = true;
            let _ = has_place(s) || keep(s, s.record.fd.load(Ordering::Relaxed).cast_signed());
        }
    });
    owing
}

fn has_place(s: &Socket) -> bool {
    PARKED
        .iter()
        .any(|place| ptr::eq(place.load(Ordering::Relaxed), s))
}

/// What is left on software iWARP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// Bytes that are parked, and left to the program's calls yet.
    Parked,
    /// Small messages that are to go together, and have not waited for long.
    Gathering,
    /// Octets that the kernel has not taken, or that wait for the peer.
    Stuck,
}

/// Whether anything is here that the thread for software iWARP is to look at.
pub(crate) fn has_wired() -> bool {
    TAKEN.load(Ordering::SeqCst) > 0
        && PARKED.iter().any(|place| {
            // SAFETY: null, or a socket, which is never freed.
            let s = unsafe { place.load(Ordering::Acquire).as_ref() };
            s.is_some_and(wired::is_wired)
        })
}

/// Whether any sender gathers.
pub(crate) fn is_gathering() -> bool {
    TAKEN.load(Ordering::Relaxed) > 0
        && PARKED.iter().any(|place| {
            // SAFETY: null, or a socket, which is never freed.
            let s = unsafe { place.load(Ordering::Acquire).as_ref() };
            s.is_some_and(|s| wired::is_gathering(s, u64::MAX))
        })
}

/// Moves what waits on software iWARP only, by the thread that is there for it, but for messages that have been gathered
/// for no more than `us` microseconds.
pub(crate) fn move_wired(us: u64) -> Left {
    let (mut gathering, mut stuck) = (false, false);
    // (one that is being sent on is in good hands)
    let in_use = |s: &Socket| us > 0 && !s.is_shared() && s.tx.is_held();
    let is_wanted =
        |s: &'static Socket| wired::is_wired(s) && !wired::is_gathering(s, us) && !in_use(s);
    let mut rests = false;
    let is_wanted =
        |s: &'static Socket| is_wanted(s) && !(us > 0 && wired::is_resting(s, PATIENCE_US));
    each(is_wanted, |s| stuck |= wired::post(s));
    if us > 0 {
        gathering = is_gathering();
        rests = has_wired();
    }
    match (stuck, gathering) {
        (true, _) => Left::Stuck,
        (_, true) => Left::Gathering,
        _ if rests => Left::Parked,
        _ => Left::Nothing,
    }
}

fn post(s: &'static Socket) {
    if wired::is_wired(s) {
        let _whole = Section::enter(); // (it was taken out of its place, and is put back at the end)
        let _looks = retired::look(); // (another thread may close it)
        if wired::post(s) {
            wired::mover::wake(); // (it may have found the place empty meanwhile, and sleep)
            if !wired::mover::is_there() {
                keep_awake();
            }
        }
        return;
    }
    // A socket that was closed meanwhile has let go of its bytes then; what is here now has none parked,
    // or parked them itself.
    if s.tx_leg() == Leg::Last {
        let fd = s.own_fd(s.parked_fd.load(Ordering::Relaxed));
        if fd >= 0 && demote::go_on_settling(s, fd) && keep(s, fd) {
            keep_awake();
        }
        return;
    }
    if s.phase() == Phase::Attached
        && let Some(p) = s.segment()
        && let Ok(mut tx) = s.tx.lock()
    {
        tx.post(p, s.live_fd(s.parked_fd.load(Ordering::Relaxed)));
    }
}

/// Whether the peer has sent what was not read. Lock-free, for looks.
#[inline]
pub(crate) fn has_news(s: &Socket, p: &impl Provider) -> bool {
    let at = s.rx_at.load(Ordering::Relaxed);
    if p.told(Word::Produced).as_hearsay() > at || (p.has_adverts() && p.shows_large(at)) {
        return true;
    }
    let queued = Queued::read(p);
    queued.end > at && ends_patience(s, queued)
}

/// The peer has parked or withheld bytes and nothing else is there: whether that has gone on for long enough.
#[cold]
fn ends_patience(s: &Socket, queued: Queued) -> bool {
    if s.pulls.load(Ordering::Relaxed) != 0 {
        return true;
    }
    let now = clock::ticks();
    let since = s.starving.load(Ordering::Relaxed);
    let patience = clock::us(if queued.withheld {
        WITHHELD_US
    } else {
        PATIENCE_US
    });
    if since == 0 {
        s.starving.store(coarse(now).max(1), Ordering::Relaxed);
        NAPS_UNTIL.fetch_max(now + 2 * patience, Ordering::Relaxed);
        return false;
    }
    let over = coarse(now).wrapping_sub(since) > coarse(patience);
    if over {
        // (who parks for want of room will again; who withholds has to be waited for each time)
        let how = if queued.withheld {
            PULLS_ONCE
        } else {
            PULLS_ALL
        };
        s.pulls.fetch_or(how, Ordering::Relaxed);
    }
    over
}

/// Something has come.
#[cold]
pub(crate) fn was_fed(s: &Socket) {
    s.starving.store(0, Ordering::Relaxed);
    let has_all = |p| Queued::read(p).end <= s.rx_at.load(Ordering::Relaxed);
    if s.segment().is_some_and(has_all) {
        s.pulls.fetch_and(!PULLS_ONCE, Ordering::Relaxed);
    }
}

/// Before a read: takes what was waited for long enough. Two loads if there is nothing.
#[inline]
pub(crate) fn pull(s: &Socket, p: &impl Provider, rx: &mut Rx) {
    if s.starving.load(Ordering::Relaxed) != 0 || s.pulls.load(Ordering::Relaxed) != 0 {
        pull_what_is_due(s, p, rx);
    }
}

#[cold]
fn pull_what_is_due(s: &Socket, p: &impl Provider, rx: &mut Rx) {
    let queued = Queued::read(p);
    if queued.end > rx.fast_bytes() && ends_patience(s, queued) {
        if s.pulls.load(Ordering::Relaxed) & PULLS_ALL != 0 {
            rx.release();
        } else {
            rx.pull(p);
        }
    }
}

/// Something on software iWARP waits to go: no sleep is longer than a short nap for a while.
pub(crate) fn keep_awake() {
    let until = clock::ticks() + clock::us(2 * PATIENCE_US);
    SHORT_NAPS_UNTIL.fetch_max(until, Ordering::Relaxed);
}

/// What a sleep would wait for may not be told of by a bell: look again soon.
pub(crate) fn look_soon() {
    keep_awake();
}

/// How long (ns) a sleep may be that is to last so long.
#[inline]
pub(crate) fn nap(ns: u64) -> u64 {
    let short = SHORT_NAPS_UNTIL.load(Ordering::Relaxed);
    if short != 0 && clock::ticks() <= short {
        return ns.min(SHORT_NAP_NS);
    }
    let until = NAPS_UNTIL.load(Ordering::Relaxed);
    if until == 0 || clock::ticks() > until {
        return ns;
    }
    ns.min(NAP_NS)
}
