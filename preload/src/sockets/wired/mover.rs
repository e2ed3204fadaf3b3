//! Moves what the kernel did not take at once, or could not be sent before the peer had answered, where the program
//! makes no call that would: as the kernel does for what its own buffers hold. And lets connections that the program
//! has closed send their last octets.
//!
//! A thread of ours, started when there is something to move and not before, asleep as soon as there is nothing. The
//! program's own calls come first: the thread waits a while before it acts. Where no thread can be had, what waits is
//! moved at the program's next call (`parked`).
//!
//! After fork the child has no such thread, and what lingers is its parent's.

use super::super::lock::Slow;
use super::super::parked;
use crate::service;
use crate::world;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use transport::clock;
use transport::sys::fd::Fd;
use transport::sys::time;
use transport::wire::{Heard, Wire};

/// How long (µs) what waits is left to the program's own calls.
const COURTESY_US: u64 = 500;
/// How long (µs) the thread sleeps between two turns, at most.
const PAUSE_US: u64 = 2_000;
/// How long (µs) a closed connection may take to send its last octets: as long as the kernel's own patience with a
/// peer that has gone silent, about.
const LINGER_US: u64 = 60_000_000;
/// How long (µs) the end of the process waits for that.
const EXIT_US: u64 = 5_000_000;

/// A connection that the program has closed.
#[derive(Debug)]
struct Last {
    fd: Fd,
    wire: NonNull<Wire>,
    since: u64,
}

// SAFETY: the state is reached by whoever holds the list, and by nobody else.
unsafe impl Send for Last {}

static LINGERING: Slow<Vec<Last>> = Slow::new(Vec::new());
static MASK: AtomicU64 = AtomicU64::new(0);

/// Counts what has been asked of the thread; it sleeps on this.
static WORK: AtomicU32 = AtomicU32::new(0);
static ASLEEP: AtomicBool = AtomicBool::new(false);
static STARTED: AtomicBool = AtomicBool::new(false);
/// No thread any more: the process limits its system calls, or its first thread has left.
static OVER: AtomicBool = AtomicBool::new(false);

/// There is something to move.
pub(super) fn wake() {
    if OVER.load(Ordering::Relaxed) || world::is_foreign() {
        return;
    }
    WORK.fetch_add(1, Ordering::SeqCst);
    if ASLEEP.load(Ordering::SeqCst) {
        time::futex_wake(&WORK, 1);
    }
    if !STARTED.swap(true, Ordering::AcqRel) && service::start(run, ptr::null_mut()).is_none() {
        OVER.store(true, Ordering::Relaxed);
    }
}

/// The program has closed this connection, of which something has not gone yet.
pub(super) fn take_over(fd: Fd, wire: NonNull<Wire>) {
    LINGERING.lock().push(Last {
        fd,
        wire,
        since: clock::ticks(),
    });
    wake();
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    service::name(c"shunt-mover");
    let mut pause = COURTESY_US;
    loop {
        if OVER.load(Ordering::SeqCst) {
            STARTED.store(false, Ordering::SeqCst);
            return ptr::null_mut();
        }
        let work = WORK.load(Ordering::SeqCst);
        let _ = time::nap(pause);
        let waits = parked::move_wired();
        if waits || linger() {
            pause = (2 * pause).min(PAUSE_US);
            continue;
        }
        pause = COURTESY_US;
        ASLEEP.store(true, Ordering::SeqCst);
        time::futex_wait(&WORK, work);
        ASLEEP.store(false, Ordering::SeqCst);
    }
}

/// Goes on with what lingers. True if anything still does.
fn linger() -> bool {
    let mut all = LINGERING.lock();
    all.retain(|last| {
        let late = clock::ticks() - last.since > clock::us(LINGER_US);
        let done = is_done(last) || late;
        if done {
            // SAFETY: the program's socket has given it up; nobody else has it.
            unsafe { Wire::release(last.wire) };
        }
        !done
    });
    !all.is_empty()
}

fn is_done(last: &Last) -> bool {
    // SAFETY: as in `linger`: whoever holds the list has both halves.
    let (wire, fd) = (unsafe { last.wire.as_ref() }, last.fd.raw());
    // SAFETY: as above.
    unsafe {
        if wire.is_asking() && wire.hear(fd) == Heard::Nothing {
            return false;
        }
        let incoming = wire.incoming();
        // (credits may come; bytes of the stream have nobody to read them)
        let over = incoming.is_readable(&wire.common, fd) && incoming.is_over();
        let out = wire.out();
        out.finish(&wire.common, fd).is_err() || out.pending() == 0 || over
    }
}

/// The process ends: what waits goes now, within reason.
pub(crate) fn at_exit() {
    if WORK.load(Ordering::Relaxed) == 0 || world::is_foreign() {
        return;
    }
    let begun = clock::ticks();
    while (parked::move_wired() || linger()) && clock::ticks() - begun < clock::us(EXIT_US) {
        let _ = time::nap(200);
    }
}

/// No thread any more, from now on.
pub(crate) fn end() {
    OVER.store(true, Ordering::SeqCst);
    WORK.fetch_add(1, Ordering::SeqCst);
    time::futex_wake(&WORK, 1);
    let begun = clock::ticks();
    while STARTED.load(Ordering::SeqCst) && clock::ticks() - begun < clock::us(PAUSE_US * 10) {
        let _ = time::nap(50);
    }
}

pub(crate) fn before_fork() {
    MASK.store(LINGERING.hold(), Ordering::Relaxed);
}

pub(crate) fn in_parent() {
    LINGERING.let_go(MASK.load(Ordering::Relaxed));
}

/// In a child after fork, while held.
pub(crate) fn in_child() {
    // SAFETY: held since before the fork, and there is no other thread.
    unsafe { LINGERING.held() }.clear(); // (what it closes are its own numbers for the parent's connections)
    STARTED.store(false, Ordering::SeqCst);
    ASLEEP.store(false, Ordering::SeqCst);
    in_parent();
}

/// Whether octets that wait can be expected to go without a call of the program's.
pub(super) fn is_there() -> bool {
    STARTED.load(Ordering::Relaxed) && !OVER.load(Ordering::Relaxed)
}
