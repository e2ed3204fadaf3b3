//! Waiting where large messages come and go (`transport::direct`). A reader looks for a while with its buffer
//! posted, so that what comes goes straight there; a sender that has to wait for the reader anyway waits
//! with its buffer advertised.
//!
//! Called by `recv` and `send`. Rules:
//! - A buffer is posted only under the receiving lock, so that no handler of the program runs and nobody else
//!   reads while the peer may write to it.
//! - A buffer is advertised only while its sender is in its call: a handler that interrupts the sleep, a jump
//!   out of it and the thread's end hide it first.

use super::counted::{Counting, What};
use super::wait::{Wait, Want, may_go};
use super::{Phase, Socket, cancel, spin};
use crate::signals::since::Since;
use crate::signals::thread::{Thread, here};
use std::ptr;
use std::sync::atomic::Ordering;
use transport::clock;
use transport::direct::Direct;
use transport::direct::policy::{self, Mode};
use transport::provider::Provider;
use transport::sdp::Walk;
use transport::sys::{Errno, Result};

/// Looks for something to come. Under the receiving lock.
pub(super) fn linger(s: &'static Socket, p: &impl Provider) {
    let look = |_| p.pending().is_some() || may_go(s, Want::Data);
    spin::spin(s.budget.us(), &s.company, Since::now(), look, || false);
}

/// How long (ms) a sender that could copy waits for the reader all the same (`SHUNT_ZCOPY=sync`).
const SYNC_MS: u64 = 50;

/// Whether messages that could be copied wait for the reader.
pub(super) fn is_sync() -> bool {
    matches!(policy::mode(), Mode::Sync | Mode::Async)
}

/// Both ends wait for the other to read, while they could copy: one has to begin.
pub(super) fn is_crossed(p: &impl Provider) -> bool {
    is_sync() && p.has_adverts() && p.pending().is_some()
}

/// How long (ns) a sleep may be at once.
pub(super) fn nap(want: Want) -> u64 {
    if want == Want::Taken && is_sync() {
        SYNC_MS * 1_000_000
    } else {
        u64::MAX
    }
}

/// Sends the walk's next buffer, if it is large, by waiting until the reader has taken it. False if that
/// cannot be, or did not come to its end: then the rest goes through the ring. `wait` is the whole call's: its
/// time-out counts from the first wait of any kind.
///
/// # Errors
/// As [`Wait::wait`]; what was taken is walked over.
pub(super) fn await_taken(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    wait: &mut Wait,
) -> Result<bool> {
    if walk.left() < policy::large() || s.phase() != Phase::Attached {
        return Ok(false);
    }
    let counting = Counting::more();
    {
        let (Some(p), Ok(mut tx)) = (s.segment(), s.tx.lock()) else {
            return Ok(false);
        };
        if !tx.advertise(p, fd, walk) {
            return Ok(false);
        }
        here()
            .advert
            .store(ptr::from_ref(s).cast_mut(), Ordering::Relaxed);
        counting.add(What::Advertised(s));
    }
    let partial = walk.done() > 0;
    let begun = clock::ticks();
    let since = wait.since();
    let wanted_before = wait.turn_to(Want::Taken);
    let waited = cancel::guarded(|| {
        while !may_go(s, Want::Taken) {
            if is_sync() && clock::ticks() - begun > clock::us(SYNC_MS * 1000) {
                break;
            }
            wait.wait(s, fd, partial)?;
        }
        Ok(())
    });
    wait.turn_to(wanted_before);
    let (_, wanted) = walk.chunk();
    let taken = {
        let Ok(mut tx) = s.tx.lock() else {
            return Err(Errno::AGAIN);
        };
        let p = s.segment().filter(|_| s.phase() == Phase::Attached);
        here().advert.store(ptr::null_mut(), Ordering::Relaxed);
        tx.collect(p, walk)
    };
    drop(counting);
    waited?;
    if taken > 0 && since.any() {
        return Err(Errno::INTR); // a call that has sent something is not restarted
    }
    Ok(taken == wanted)
}

/// Copies a part of what this thread has advertised, if the reader is at it.
pub(super) fn help(s: &Socket) {
    if let Some(p) = s.segment()
        && s.phase() == Phase::Attached
        && let Ok(tx) = s.tx.lock()
    {
        tx.help(p);
    }
}

/// Before a handler runs: what it writes to an advertised buffer must not reach the reader.
#[inline]
pub(crate) fn hide(t: &Thread) {
    let s = t.advert.load(Ordering::Relaxed);
    // SAFETY: null, or a socket, which lives for ever.
    if let Some(s) = unsafe { s.as_ref() }
        && let Some(p) = s.segment()
        && s.phase() == Phase::Attached
    {
        p.hide();
    }
}

/// The thread has left its call without coming back through it.
#[cold]
pub(super) fn abandon(s: &'static Socket) {
    let mine = &here().advert;
    if !ptr::eq(mine.load(Ordering::Relaxed), s) {
        return;
    }
    mine.store(ptr::null_mut(), Ordering::Relaxed);
    if let Ok(mut tx) = s.tx.lock() {
        tx.abandon(s.segment().filter(|_| s.phase() == Phase::Attached));
    }
}
