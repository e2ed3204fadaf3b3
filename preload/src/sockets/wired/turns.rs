//! The mover's turns: what it does between two sleeps, at streams that other processes may hold too.
//!
//! A process that ends, or becomes another program, takes its threads with it wherever they are. One in the middle of a turn at
//! a half leaves that to be put back by those who hold the stream with it (`transport::wire::noted`), which they can do for what goes by the
//! kernel, but not while a ring ends: how far both had come with that only the dead knew, so the stream is reset. For a program that
//! is killed that is how it is; one that ends by itself has its mover finish the turn first, for which it need not be awake.
//!
//! Used by `mover`.

use super::super::Socket;
use crate::world;
use std::sync::atomic::{AtomicBool, Ordering};
use transport::clock;
use transport::sys::{retired, time};

/// The thread is in a turn.
static WORKS: AtomicBool = AtomicBool::new(false);
/// It is to begin no other.
static HALTED: AtomicBool = AtomicBool::new(false);

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
}

/// Whether other processes hold any of these streams.
pub(super) fn are_shared() -> bool {
    let mut shared = false;
    world::lock()
        .pool
        .each(|s: &'static Socket| shared |= super::is_wired(s) && s.is_shared());
    shared
}
