//! Senders that have found no room for long. What a connection can hold is one buffer each way here and
//! several MiB in the kernel, and there are programs that count on that without knowing it: both ends write
//! first and read then, or one writes much and tells of it on another connection. So a stream whose reader
//! has taken nothing for long goes back to kernel TCP, which holds what it always held, beside what lies in
//! the buffer.
//!
//! Noted by a send that finds no room ([`note`]); looked at whenever a call is about to wait ([`attend`],
//! from `parked`), on whatever socket that is; as long as there is one, sleeps are naps ([`nap`]).
//!
//! No lock of its own, as in `parked`: a call may come from a signal handler. A socket that finds no place
//! here stays as it is.

use super::demote::{Unread, demote_held};
use super::lock::is_single_threaded;
use super::{Phase, Socket, wait};
use crate::table;
use crate::world;
use flowctl::{Inbox as _, Word};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use transport::clock;
use transport::doorbell;
use transport::provider::Provider;
use transport::reason::Reason;
use transport::sdp::{Leg, Tx};

/// How long (µs) a reader may take nothing. One that is stopped, or busy, makes its sender wait as the kernel
/// would; this is beyond what a program that goes on by itself is likely to need.
const ALONE_US: u64 = 3_000_000;
/// The same where both ends wait for room, and what lies here is not read either: they wait for each other,
/// but for another thread that reads, and is late.
const MUTUAL_US: u64 = 1_000_000;
/// How long (ns) a sleep is at most while there is such a sender.
const NAP_NS: u64 = 100_000_000;

/// What counts at most (µs) of the time between two looks: where the whole machine stood still, or both programs were
/// stopped, the reader has not had its chance.
const GAP_US: u64 = 250_000;

/// The same in a set, where there is none yet but other threads may become one.
const AMONG_OTHERS_NS: u64 = 1_000_000_000;

/// Sockets that can be looked after at one time.
const PLACES: usize = 64;

/// What is known of one.
#[derive(Debug)]
struct Place {
    /// Null if it is free, [`TAKING`] while the rest is written.
    socket: AtomicPtr<Socket>,
    fd: AtomicI32,
    generation: AtomicU32,
    /// What the peer had taken, and since when (ticks).
    taken: AtomicU64,
    since: AtomicU64,
    /// What had been read here, and since when neither has moved.
    read: AtomicU64,
    still: AtomicU64,
    /// When it was looked at last.
    looked: AtomicU64,
}

static TAKEN: AtomicU32 = AtomicU32::new(0);
static ALL: [Place; PLACES] = [const {
    Place {
        socket: AtomicPtr::new(ptr::null_mut()),
        fd: AtomicI32::new(-1),
        generation: AtomicU32::new(0),
        taken: AtomicU64::new(0),
        since: AtomicU64::new(0),
        read: AtomicU64::new(0),
        still: AtomicU64::new(0),
        looked: AtomicU64::new(0),
    }
}; PLACES];

/// Stands in a place that is being taken.
const TAKING: *mut Socket = ptr::without_provenance_mut(1);

/// A send on an attached socket has found no room.
#[cold]
pub(super) fn note(s: &'static Socket, fd: i32) {
    let own = ptr::from_ref(s).cast_mut();
    if TAKEN.load(Ordering::Relaxed) > 0
        && let Some(place) = ALL.iter().find(|place| place.is(own))
    {
        place.fd.store(fd, Ordering::Relaxed);
        return;
    }
    let Some(taken) = taken(s) else { return };
    for place in &ALL {
        let (free, done, lost) = (ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed);
        let taken_over = place.socket.compare_exchange(free, TAKING, done, lost);
        if taken_over.is_err() {
            continue;
        }
        TAKEN.fetch_add(1, Ordering::AcqRel);
        let now = clock::ticks();
        let generation = s.generation.load(Ordering::Relaxed);
        let read = s.rx_at.load(Ordering::Relaxed);
        place.fd.store(fd, Ordering::Relaxed);
        place.generation.store(generation, Ordering::Relaxed);
        place.taken.store(taken, Ordering::Relaxed);
        place.read.store(read, Ordering::Relaxed);
        for time in [&place.still, &place.since, &place.looked] {
            time.store(now, Ordering::Relaxed);
        }
        place.socket.store(own, Ordering::Release);
        return;
    }
}

/// How much the peer has taken of what went by the buffer; none if the stream does not go by it.
fn taken(s: &Socket) -> Option<u64> {
    let fast = s.phase() == Phase::Attached && s.tx_leg() == Leg::Fast;
    fast.then(|| s.segment().map(Provider::taken)).flatten()
}

/// How long (ns) a sleep may be. One load if there is none.
#[inline]
pub(crate) fn nap() -> u64 {
    if TAKEN.load(Ordering::Relaxed) > 0 {
        NAP_NS
    } else {
        u64::MAX
    }
}

/// [`nap`] of a thread that waits in a set for what others of the process send: one of them may find no room during the sleep.
#[inline]
pub(crate) fn nap_among_others() -> u64 {
    if is_single_threaded() || wait::shows_who_is_not_woken() {
        nap()
    } else {
        nap().min(AMONG_OTHERS_NS)
    }
}

/// Looks at them. True if a stream has gone back to the kernel. One load if there is none.
#[inline]
pub(super) fn attend() -> bool {
    TAKEN.load(Ordering::Relaxed) > 0 && look()
}

#[cold]
fn look() -> bool {
    // In a child that borrows this memory: the parent's next call will do.
    if world::is_foreign() {
        return false;
    }
    let mut any = false;
    for place in &ALL {
        let at = place.socket.load(Ordering::Acquire);
        if ptr::eq(at, TAKING) {
            continue;
        }
        // SAFETY: null, or a socket, which is never freed.
        let Some(s) = (unsafe { at.as_ref() }) else {
            continue;
        };
        match place.state(s) {
            State::Waits => {}
            State::Moves => drop(place.leave(s)),
            State::Stuck if place.leave(s) => any |= go_back(s, place.fd.load(Ordering::Relaxed)),
            State::Stuck => {}
        }
    }
    any
}

/// How a sender fares.
enum State {
    /// It has room again, or is none any more.
    Moves,
    Waits,
    /// For longer than its reader may take.
    Stuck,
}

impl Place {
    fn is(&self, own: *mut Socket) -> bool {
        self.socket.load(Ordering::Relaxed) == own
    }

    /// Takes it out; false if somebody else has.
    fn leave(&self, s: &'static Socket) -> bool {
        let (own, none) = (ptr::from_ref(s).cast_mut(), ptr::null_mut());
        let left = self
            .socket
            .compare_exchange(own, none, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if left {
            TAKEN.fetch_sub(1, Ordering::AcqRel);
        }
        left
    }

    fn state(&self, s: &'static Socket) -> State {
        // (one that was closed here may be in another process's hands, and be locked by it for good)
        let fd = s.own_fd(self.fd.load(Ordering::Relaxed));
        if fd < 0 {
            return State::Moves;
        }
        self.fd.store(fd, Ordering::Relaxed);
        let (Some(taken), Some(p)) = (taken(s), s.segment()) else {
            return State::Moves;
        };
        let generation = s.generation.load(Ordering::Relaxed);
        if self.generation.load(Ordering::Relaxed) != generation
            || s.tx_shut.load(Ordering::Relaxed)
            || s.is_over()
        {
            return State::Moves;
        }
        let now = clock::ticks();
        let gap = now.saturating_sub(self.looked.swap(now, Ordering::Relaxed));
        let lost = gap.saturating_sub(clock::us(GAP_US));
        self.still.fetch_add(lost, Ordering::Relaxed);
        let since = self.since.fetch_add(lost, Ordering::Relaxed) + lost;
        if self.taken.swap(taken, Ordering::Relaxed) != taken {
            // What waits for a third of the buffer may still wait.
            let roomy =
                s.tx.lock_soon()
                    .is_ok_and(|mut tx| tx.is_writable(p).unwrap_or(true));
            self.still.store(now, Ordering::Relaxed);
            self.since.store(now, Ordering::Relaxed);
            return if roomy { State::Moves } else { State::Waits };
        }
        let read = s.rx_at.load(Ordering::Relaxed);
        let unread = p.told(Word::Produced).as_hearsay().saturating_sub(read);
        let idle = self.read.swap(read, Ordering::Relaxed) == read;
        let wants_room = p.peer_sleeps_for(doorbell::SPACE) || unread > p.region() as u64 / 2;
        if !(idle && unread > 0 && wants_room) {
            self.still.store(now, Ordering::Relaxed);
        }
        let mutual = now.saturating_sub(self.still.load(Ordering::Relaxed));
        let stuck =
            mutual > clock::us(MUTUAL_US) || now.saturating_sub(since) > clock::us(ALONE_US);
        if !stuck {
            return State::Waits;
        }
        // A buffer that was shown to the reader waits for it by the program's own wish.
        // (what goes by adverts is not counted as taken: such a reader may have read everything)
        let moves = |tx: &mut Tx| tx.is_advertised(p) || tx.is_writable(p).unwrap_or(true);
        match s.tx.lock_soon().map(|mut tx| moves(&mut tx)) {
            Ok(true) => State::Moves,
            Ok(false) => State::Stuck,
            Err(_) => State::Waits,
        }
    }
}

/// Whether the number still stands for the socket, or a hidden one does.
fn is_open(s: &Socket, fd: i32) -> bool {
    s.live_fd(fd) != fd || table::socket(fd).is_some_and(|now| ptr::eq(now, s))
}

/// In a child after fork: what its parent's senders wait for is not its business.
pub(crate) fn restart() {
    for place in &ALL {
        place.socket.store(ptr::null_mut(), Ordering::Relaxed);
    }
    TAKEN.store(0, Ordering::Relaxed);
}

fn go_back(s: &'static Socket, fd: i32) -> bool {
    let mut w = world::lock();
    if !is_open(s, fd) || s.phase() != Phase::Attached {
        return false;
    }
    demote_held(&mut w, s, s.live_fd(fd), Reason::Stalled, Unread::Keep);
    s.phase() != Phase::Attached
}
