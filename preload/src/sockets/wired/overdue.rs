//! Connections that were accepted and that the program has not used yet: it may be elsewhere for long, and nobody looks whether
//! their clients have asked. A client that has to go back to the kernel meanwhile waits for the answer (`leaving`), and without one
//! the connection is reset. So the mover looks, once a connection is a second old, and each second after that: sooner would decide
//! for servers that are about to speak first, or to hand the connection to others.
//!
//! Noted under the registry lock where a connection is accepted (`opening`), after which the thread is told outside of it
//! ([`attend`]). Those that other processes hold too are left to these, and a child of fork begins with none.

use super::super::lock::Slow;
use super::super::{Phase, Socket};
use super::{mover, opening, wire};
use crate::table;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use transport::clock;
use transport::sys::net;

/// How old (µs) a connection is when it is looked at, and after how long it is again: less than who waits for the answer does.
const AGE_US: u64 = 1_000_000;
/// How long (ms) the thread sleeps at least between two looks at the list, so that many of all ages are looked at together.
const LEAST_MS: u64 = 100;
/// How many are looked at in one turn.
const SOME: usize = 256;

/// An accepted connection, which of those that had its place, and when it is to be looked at (ticks).
#[derive(Clone, Copy, Debug)]
struct Accepted {
    socket: &'static Socket,
    generation: u32,
    due: u64,
}

/// In the order in which they are due.
static LIST: Slow<VecDeque<Accepted>> =
    Slow::new(crate::sockets::order::Rank::Overdue, VecDeque::new());
static MASK: AtomicU64 = AtomicU64::new(0);
/// The list was empty: the thread does not look at the clock for it.
static IS_NEW: AtomicBool = AtomicBool::new(false);

/// The program has accepted this connection. Under the registry lock.
pub(super) fn note(s: &'static Socket) {
    let mut list = LIST.lock();
    if list.is_empty() {
        IS_NEW.store(true, Ordering::Release);
    }
    list.push_back(Accepted {
        socket: s,
        generation: s.generation.load(Ordering::Acquire),
        due: clock::ticks() + clock::us(AGE_US),
    });
}

/// Has the thread look after what was noted. Not under a lock: it may have to be started.
#[inline]
pub(crate) fn attend() {
    if IS_NEW.load(Ordering::Relaxed) && IS_NEW.swap(false, Ordering::AcqRel) {
        mover::wake();
    }
}

/// How long (ms) the thread may sleep, if there are any.
pub(super) fn patience() -> Option<i32> {
    let due = LIST.lock().front()?.due;
    let left = due.saturating_sub(clock::ticks());
    if left == 0 {
        return Some(1); // (a turn has left some)
    }
    i32::try_from((left / clock::us(1000).max(1) + 1).max(LEAST_MS)).ok()
}

/// A turn of the thread.
pub(super) fn work() {
    let now = clock::ticks();
    for _ in 0..SOME {
        let next = {
            let mut list = LIST.lock();
            let is_due = list.front().is_some_and(|one| one.due <= now);
            is_due.then(|| list.pop_front()).flatten()
        };
        let Some(mut one) = next else { return };
        if is_unused(&one) {
            look(&one);
            one.due = now + clock::us(AGE_US);
            LIST.lock().push_back(one);
        }
    }
}

/// Whether it is still the connection that was accepted, of which nobody knows yet how it goes on.
fn is_unused(one: &Accepted) -> bool {
    let s = one.socket;
    s.generation.load(Ordering::Acquire) == one.generation
        && s.phase() == Phase::Opening
        && wire(s).is_none()
}

/// Answers the request, if one has come and no thread of the program is in a call on the connection, which will.
fn look(one: &Accepted) {
    let s = one.socket;
    let fd = s.own_fd(s.record.fd.load(Ordering::Relaxed).cast_signed());
    if s.is_shared() || fd < 0 || net::unread(fd) == 0 {
        return;
    }
    // Under the registry lock: the number may be another's by now. And a call that begins later, whose first words are not to go
    // beside the answer, is counted before it looks itself, for which it waits for that lock.
    let holds = || {
        is_unused(one)
            && s.waiters.load(Ordering::SeqCst) == 0
            && table::socket(fd).is_some_and(|x| std::ptr::eq(x, s))
    };
    opening::look(s, fd, holds);
}

/// Before fork: nobody is in the list while it is copied.
pub(super) fn before_fork() {
    MASK.store(LIST.hold(), Ordering::Relaxed);
}

/// After it, in the parent; and in the child once [`in_child`] is done.
pub(super) fn let_go() {
    LIST.let_go(MASK.load(Ordering::Relaxed));
}

/// In a child: what was accepted is its parent's too.
pub(super) fn in_child() {
    // SAFETY: held since before the fork, and there is no other thread.
    unsafe { LIST.held() }.clear();
    IS_NEW.store(false, Ordering::Relaxed);
}
