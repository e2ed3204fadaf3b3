//! Clients' connections in a set that are to ask for software iWARP at their first use: to wait for what comes by them is one, as
//! poll and a read are (not to wait for room: [`engage::step_for_room`]). A server that goes to the kernel before it says its first words waits for the request (`sockets::wired`), and would
//! stand still for nothing.
//!
//! Called by `registered`, which notes them, and by whoever begins to wait on the set, or polls it. A set without any is asked by
//! one load. They take their step outside the set's lock, as that takes the registry's; what follows for their registrations is
//! as after any first use (`registered::attached`), so an edge that the kernel has told may be told once more.

use super::set::Set;
use crate::sockets::demote::way;
use crate::sockets::{Phase, Socket, Way, engage};
use crate::table;
use crate::world::World;
use std::sync::atomic::Ordering;

/// How many take their step before it is looked whether any is done with it. Where none is, all may be waiting for the kernel's
/// handshake, and a wait is not to ask after thousands of them: the others come next time.
const SOME: usize = 16;

/// Whether a set that waits is this socket's first use.
pub(super) fn is_one(_w: &World, s: &Socket) -> bool {
    s.phase() == Phase::Fresh && matches!(way(s), Way::Caller { .. })
}

/// Notes one of the set's entries. (One that stands there twice is asked after twice.)
pub(super) fn note(set: &'static Set, index: usize) {
    let Some(mut l) = set.lock() else { return };
    l.callers.push_back(index);
    set.callers.store(true, Ordering::Release);
}

/// The set is about to wait: those that are connected ask.
#[inline]
pub(crate) fn attend(set: &'static Set) {
    if set.callers.load(Ordering::Acquire) {
        ask(set);
    }
}

#[cold]
fn ask(set: &'static Set) {
    let mut left = set.lock().map_or(0, |l| l.callers.len());
    loop {
        let (some, taken) = take(set, left);
        for &(s, fd, _, data) in some.iter().flatten() {
            if data {
                engage::step(s, fd);
            }
        }
        let kept = put_back(set, &some);
        left -= taken;
        if left == 0 || kept == taken {
            return;
        }
    }
}

/// A socket, its descriptor, the number of its entry, and whether what comes is waited for: who waits for room alone does not ask
/// ([`engage::step_for_room`]).
type Caller = (&'static Socket, i32, usize, bool);
const DATA: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM | libc::EPOLLRDHUP).cast_unsigned();

/// Takes out the first few, at most so many: those that may still ask, and how many there were.
fn take(set: &'static Set, most: usize) -> ([Option<Caller>; SOME], usize) {
    let mut some = [None; SOME];
    let Some(mut l) = set.lock() else {
        return (some, most);
    };
    let n = most.min(SOME).min(l.callers.len());
    for slot in some.iter_mut().take(n) {
        let index = l.callers.pop_front().unwrap_or(usize::MAX);
        *slot = l
            .entry(index)
            .and_then(|e| Some((e.socket()?, e.fd, index, e.events & DATA != 0)))
            .filter(|&(s, fd, ..)| may_ask(s, fd));
    }
    // (those that are put back are counted again)
    set.callers.store(!l.callers.is_empty(), Ordering::Release);
    (some, if n == 0 { most } else { n })
}

/// Whether its first use may still be this one. One that other processes hold too may not ask for as long as they do; and the number
/// that was registered may be another's by now.
fn may_ask(s: &'static Socket, fd: i32) -> bool {
    s.phase() == Phase::Fresh
        && !s.is_shared()
        && table::socket(fd).is_some_and(|x| std::ptr::eq(x, s))
}

/// Those that are not connected yet are asked after by the next wait. How many.
fn put_back(set: &'static Set, some: &[Option<Caller>]) -> usize {
    let mut kept = 0;
    for &(s, fd, index, _) in some.iter().flatten() {
        if may_ask(s, fd)
            && let Some(mut l) = set.lock()
            && l.entry(index)
                .is_some_and(|e| e.socket().is_some_and(|x| std::ptr::eq(x, s)))
        {
            l.callers.push_back(index);
            set.callers.store(true, Ordering::Release);
            kept += 1;
        }
    }
    kept
}
