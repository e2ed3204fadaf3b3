//! The mover's turns: what it does between two sleeps, at streams that other processes may hold too.
//!
//! A process that ends, or becomes another program, takes its threads with it wherever they are. One in the middle of a turn at
//! a half leaves that to be put back by those who hold the stream with it (`transport::wire::noted`), which they can do for what goes by the
//! kernel, but not while a ring ends: how far both had come with that only the dead knew, so the stream is reset. For a program that
//! is killed that is how it is; one that ends by itself has its mover finish the turn first, for which it need not be awake.
//!
//! A child that ends does not wait for a reader that pauses, which may wait for that very end: its parent's mover looks now and then what
//! it has left.
//!
//! Used by `mover` and `parting`.

use super::super::{Socket, parked};
use crate::world;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use transport::clock;
use transport::sys::{retired, time};

/// The thread is in a turn.
static WORKS: AtomicBool = AtomicBool::new(false);
/// It is to begin no other.
static HALTED: AtomicBool = AtomicBool::new(false);

/// Streams of this process have come to be shared with a child.
static SHARED: AtomicBool = AtomicBool::new(false);
/// This process is such a child: its parent has a mover, which sees to what it leaves.
static CHILD: AtomicBool = AtomicBool::new(false);

/// How often (ms) a parent's mover looks for what a child has left; with very many streams so much less often that looking takes one part
/// in so many of the time. When (ticks) it does next.
pub(super) const LEFT_MS: i32 = 100;
const SHARE: u64 = 200;
static NEXT: AtomicU64 = AtomicU64::new(0);

/// How long (µs) the end of the process waits for the turn. (One is over in microseconds, unless an adapter or another
/// process keeps it; that of a stopped one is no reason not to end.)
const HALT_US: u64 = 20_000;

/// How long (µs) the thread sleeps where it is to begin no turn.
const PAUSE_US: u64 = 1_000;

/// A turn, once one may begin; none if the thread is to end before that.
pub(super) fn turn<R>(ends: impl Fn() -> bool, work: impl FnOnce() -> R) -> Option<R> {
    loop {
        WORKS.store(true, Ordering::SeqCst);
        // (who halts stores and looks in the other order: one of both sees the other)
        if !HALTED.load(Ordering::SeqCst) {
            break;
        }
        WORKS.store(false, Ordering::SeqCst);
        if ends() {
            return None;
        }
        let _ = time::nap(PAUSE_US);
    }
    let looks = retired::look();
    let done = work();
    drop(looks);
    WORKS.store(false, Ordering::SeqCst);
    Some(done)
}

/// No turn begins from now on, and the one that is under way is over, within reason.
pub(super) fn halt() {
    HALTED.store(true, Ordering::SeqCst);
    let begun = clock::ticks();
    while WORKS.load(Ordering::SeqCst) && clock::ticks() - begun < clock::us(HALT_US) {
        let _ = time::nap(20);
    }
}

/// They go on: the process has not become another program.
pub(super) fn go_on() {
    HALTED.store(false, Ordering::SeqCst);
}

/// In a child after fork: the thread is its parent's.
pub(super) fn in_child() {
    WORKS.store(false, Ordering::SeqCst);
    HALTED.store(false, Ordering::SeqCst);
    SHARED.store(false, Ordering::SeqCst);
    CHILD.store(true, Ordering::SeqCst);
}

/// Whether what this process leaves of its parent's streams is seen to there.
pub(super) fn has_parent() -> bool {
    CHILD.load(Ordering::SeqCst)
}

/// In a parent after fork.
pub(super) fn note_child() {
    SHARED.store(true, Ordering::SeqCst);
}

/// Whether children may leave something.
pub(super) fn may_be_left() -> bool {
    SHARED.load(Ordering::SeqCst)
}

/// What children that have ended have left of what they sent is moved from here.
pub(super) fn take_left() {
    let now = clock::ticks();
    // (before the look: a fork may note another meanwhile)
    if now < NEXT.load(Ordering::Relaxed) || !SHARED.swap(false, Ordering::SeqCst) {
        return;
    }
    let Some(w) = world::lock_soon() else {
        return SHARED.store(true, Ordering::SeqCst);
    };
    let mut any = false;
    w.pool.each(|s: &'static Socket| {
        if super::is_wired(s) && s.is_shared() {
            let fd = s.own_fd(-1);
            let waits = fd >= 0 && super::waiting::waits(s, fd);
            if waits {
                let _ = parked::keep(s, fd);
            }
            any = any || waits || s.has_others(); // (asks who lives)
        }
    });
    drop(w);
    SHARED.fetch_or(any, Ordering::SeqCst);
    let pause = SHARE * (clock::ticks() - now);
    let least = clock::us(LEFT_MS.unsigned_abs().into()) * 1000;
    NEXT.store(now + pause.max(least), Ordering::Relaxed);
}

/// Whether other processes hold any of these streams.
pub(super) fn are_shared() -> bool {
    let mut shared = false;
    world::lock()
        .pool
        .each(|s: &'static Socket| shared |= super::is_wired(s) && s.is_shared());
    shared
}
