//! Wakes this process's own threads that sleep on a stream for room, when the stream changes under them:
//! it went back to the kernel, or the program shut it. Only the peer can make the kernel connection
//! readable, so such a sleep watches an event of ours beside it.
//!
//! Threads that sleep for data need none of this: data, by whatever leg, wakes them by itself. A program
//! of one thread has nobody to wake, and no descriptor for it.

use super::{Socket, lock};
use crate::world;
use std::sync::atomic::{AtomicI32, Ordering};
use transport::sys::fd::{Fd, as_fd};
use transport::{clock, sys, syscall};

/// The event's descriptor, hidden; -1 before it is needed.
static EVENT: AtomicI32 = AtomicI32::new(-1);

/// How long (µs) woken threads may take to leave.
const LEAVE_US: u64 = 20_000;

/// The descriptor to watch, made when first needed. `None` where there is nobody to wake, or no
/// descriptor to be had.
pub(crate) fn event() -> Option<i32> {
    if lock::is_single_threaded() {
        return None;
    }
    let known = EVENT.load(Ordering::Acquire);
    if known >= 0 {
        return Some(known);
    }
    let _w = world::lock();
    let known = EVENT.load(Ordering::Acquire);
    if known >= 0 {
        return Some(known);
    }
    let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
    // SAFETY: no pointers.
    let made = unsafe { syscall!(eventfd2, 0, flags) }.ok()?;
    let fd = Fd::own(as_fd(made)).hide().leak();
    EVENT.store(fd, Ordering::Release);
    Some(fd)
}

/// Wakes the threads that sleep for room on this socket, and waits until they have left.
pub(crate) fn sleepers(s: &Socket) {
    let event = EVENT.load(Ordering::Acquire);
    if event < 0 || s.roomers.load(Ordering::SeqCst) == 0 {
        return;
    }
    let one = 1u64;
    // SAFETY: eight readable bytes.
    let _ = unsafe { syscall!(write, event, &raw const one, 8) };
    let begun = clock::ticks();
    while s.roomers.load(Ordering::SeqCst) > 0 && clock::ticks() - begun < clock::us(LEAVE_US) {
        sys::yield_core();
    }
    let mut taken = 0u64;
    // SAFETY: eight writable bytes.
    let _ = unsafe { syscall!(read, event, &raw mut taken, 8) };
}

/// In a child after fork: the event is the parent's.
pub(crate) fn restart() {
    let event = EVENT.swap(-1, Ordering::AcqRel);
    if event >= 0 {
        drop(Fd::own(event));
    }
}
