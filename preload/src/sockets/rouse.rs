//! Wakes this process's own threads that sleep on a stream for room, when the stream changes under them:
//! it went back to the kernel, or the program shut it. Only the peer can make the kernel connection
//! readable, so such a sleep watches an event of ours beside it.
//!
//! Threads that sleep for data need none of this: data, by whatever leg, wakes them by itself. A program
//! of one thread has nobody to wake, and no descriptor for it.
//!
//! Processes that hold a stream together have one event among them, inherited over fork. Another, which is
//! never read, tells epoll sets of one process what another has done: that a stream went back to the
//! kernel, or that bells were taken which some set has not seen.

use super::{Socket, counted, lock};
use crate::epoll::{registered, set};
use crate::world;
use std::sync::atomic::{AtomicI32, Ordering, fence};
use transport::sys::fd::{Fd, as_fd};
use transport::{clock, sys, syscall};

/// The event's descriptor, hidden; -1 before it is needed.
static EVENT: AtomicI32 = AtomicI32::new(-1);

/// The event that epoll sets of the family watch; -1 before the first fork that shares streams.
static SETS: AtomicI32 = AtomicI32::new(-1);

/// An event that is always readable, which wakes who sleeps on a set by being armed there (`epoll::waking`); -1 before it is needed.
static ALWAYS: AtomicI32 = AtomicI32::new(-1);

/// How long (µs) woken threads may take to leave.
const LEAVE_US: u64 = 20_000;
/// After how many turns those that have not left are told again.
const AGAIN: u32 = 32;

/// The descriptor to watch, made when first needed. `None` where there is nobody to wake, or no
/// descriptor to be had. For whoever holds no lock.
pub(crate) fn event() -> Option<i32> {
    if let Some(event) = known() {
        return Some(event);
    }
    if lock::is_single_threaded() {
        return None;
    }
    let _w = world::lock();
    made(&EVENT)
}

/// The same, where somebody has made it: who sleeps has, unless he could not.
pub(crate) fn known() -> Option<i32> {
    Some(EVENT.load(Ordering::Acquire)).filter(|&fd| fd >= 0)
}

/// The event in a place, made if there is none. Under the registry lock.
fn made(place: &AtomicI32) -> Option<i32> {
    let known = place.load(Ordering::Acquire);
    if known >= 0 {
        return Some(known);
    }
    let fd = new(0)?.leak();
    place.store(fd, Ordering::Release);
    Some(fd)
}

/// An event with this count.
fn new(count: u32) -> Option<Fd> {
    let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
    // SAFETY: no pointers.
    let made = unsafe { syscall!(eventfd2, count, flags) }.ok()?;
    Some(Fd::own(as_fd(made)).hide())
}

/// The event that is always readable, made if there is none. Under any lock.
pub(crate) fn always() -> Option<i32> {
    let known = ALWAYS.load(Ordering::Acquire);
    if known >= 0 {
        return Some(known);
    }
    let event = new(1)?;
    let fd = event.raw();
    match ALWAYS.compare_exchange(-1, fd, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(event.leak()),
        Err(other) => Some(other), // (another thread was faster)
    }
}

/// Before a fork that shares streams: both events are there to be inherited. False if they cannot be.
pub(crate) fn prepare() -> bool {
    made(&EVENT).is_some() && made(&SETS).is_some()
}

/// What epoll sets watch on behalf of other processes, if any share streams with this one.
pub(crate) fn for_sets() -> Option<i32> {
    Some(SETS.load(Ordering::Acquire)).filter(|&fd| fd >= 0)
}

fn signal(event: i32) {
    let one = 1u64;
    // SAFETY: eight readable bytes.
    let _ = unsafe { syscall!(write, event, &raw const one, 8) };
}

/// Has the epoll sets of other processes look at a stream that they hold too.
pub(crate) fn sets_of_others(s: &Socket) {
    if s.is_shared()
        && s.is_watched_by_others()
        && let Some(event) = for_sets()
    {
        signal(event);
    }
}

/// The stream has gone back to the kernel, or was shut: whoever sleeps on it for room, here or in another
/// process, and whoever watches it in another, has to look.
pub(crate) fn all(s: &'static Socket) {
    sleepers(s);
    sets_of_others(s);
}

/// Wakes the threads that sleep for room on this socket, and waits until they have left. (This thread's own sleep, which
/// a handler has interrupted to come here, ends by that.)
pub(crate) fn sleepers(s: &Socket) {
    if let Some(p) = s.segment() {
        p.rouse_own();
    }
    // Pairs with the counting of who goes to sleep: either it finds the change that this tells of, or is found here.
    fence(Ordering::SeqCst);
    let event = EVENT.load(Ordering::Acquire);
    if event < 0 || s.roomers() == 0 {
        return;
    }
    let own = counted::own_rooms(s);
    if s.roomers() <= own {
        return;
    }
    signal(event);
    let begun = clock::ticks();
    let mut turn = 0u32;
    while s.roomers() > own && clock::ticks() - begun < clock::us(LEAVE_US) {
        sys::yield_core();
        turn += 1;
        // (there is one event for all: another thread that has woken its own, and takes the event back, may do so before these
        // have seen it)
        if turn.is_multiple_of(AGAIN) {
            signal(event);
        }
    }
    if s.roomers() > own && s.is_shared() {
        let _ = s.has_others(); // who was killed asleep does not leave: its seat is cleared
    }
    let mut taken = 0u64;
    // SAFETY: eight writable bytes.
    let _ = unsafe { syscall!(read, event, &raw mut taken, 8) };
}

/// In a child after fork that shares no stream with its parent: the events are the parent's.
pub(crate) fn restart() {
    for place in [&EVENT, &SETS] {
        let event = place.swap(-1, Ordering::AcqRel);
        if event >= 0 {
            drop(Fd::own(event));
        }
    }
}

/// An epoll set was told by another process that a stream has changed: looks at all in it that are shared.
#[cold]
pub(crate) fn heard(set: &'static set::Set) {
    let mut w = world::lock();
    for (s, fd) in set.shared_sockets() {
        if matches!(s.phase(), super::Phase::Plain | super::Phase::Listening) {
            registered::detached(&mut w, s, fd);
        } else {
            set.heat_socket(s);
        }
    }
}
