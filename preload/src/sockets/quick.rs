//! Receiving and sending where that is what it mostly is: one buffer, nothing special asked for, bytes that are there or
//! room that is. It does what `recv` and `send` would have done, and leaves to them whatever needs a second look.
//!
//! Called by the hooks (`hooks::quick`), and by `recv` for what has come meanwhile. Nothing here waits for longer than a
//! look or two, asks the kernel (but for a bell), or has an error to tell.

use super::ending::is_gone;
use super::spin::{self, is_hogged};
use super::{Phase, Socket, large, parked, recv, send};
use flowctl::{Inbox as _, Word};
use std::sync::atomic::Ordering;
use transport::direct::Direct as _;
use transport::direct::policy;
use transport::doorbell;
use transport::provider::{End, Provider as _};
use transport::sdp::{Leg, Tx};
use transport::shm::layout::FIN_NONE;
use transport::shm::segment::Segment;

/// Flags of a receive that say nothing here.
const PLAIN: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_CMSG_CLOEXEC;

/// [`super::recv::recv`], where it is what it mostly is: one buffer, nothing special asked for, and bytes in the ring. `None`, and
/// nothing done, otherwise. Nothing is parked ([`parked::is_idle`]).
///
/// # Safety
/// `to` is writable for `len` bytes.
#[inline(always)]
pub(crate) unsafe fn take(
    s: &'static Socket,
    fd: i32,
    to: *mut u8,
    len: usize,
    flags: i32,
) -> Option<usize> {
    if flags & !PLAIN != 0
        || len >= large::WAKES
        || s.phase() != Phase::Attached
        || s.lowat.load(Ordering::Relaxed) > 1
        || s.starving.load(Ordering::Relaxed) != 0
        || s.pulls.load(Ordering::Relaxed) != 0
    {
        return None;
    }
    let mut rx = s.rx.lock_alone()?;
    if s.phase() != Phase::Attached || !s.is_here(fd) {
        return None; // since the look above
    }
    let p = s.segment()?;
    // SAFETY: the caller's promise.
    let n = unsafe { rx.read_quick(p, to, len, s.record.messages_sent.load(Ordering::Relaxed)) }?;
    s.rx_at.store(rx.fast_bytes(), Ordering::Relaxed);
    let due = rx.take_due();
    drop(rx);
    if due.any() {
        recv::serve(s, p, fd, due);
    }
    recv::count(s, n);
    Some(n)
}

/// [`take`], for a call that would wait: first a few looks, each no more than a load, at whether the peer is about to
/// answer. What such a call does before it looks properly takes as long as an answer.
///
/// # Safety
/// As there.
pub(super) unsafe fn take_soon(
    s: &'static Socket,
    p: Segment,
    fd: i32,
    to: *mut u8,
    len: usize,
    flags: i32,
) -> Option<usize> {
    let alone = s.budget.us() > 0 && !s.company.is_known() && !is_hogged();
    // (a wish for a bell that still stands is for the proper way to take back)
    if !alone || s.rx_leg() != Leg::Fast || p.armed() & doorbell::DATA != 0 || !parked::is_idle() {
        return None;
    }
    // What the quick way leaves to the other is not to be waited for here.
    if flags & !PLAIN != 0
        || len == 0
        || s.lowat.load(Ordering::Relaxed) > 1
        || s.starving.load(Ordering::Relaxed) != 0
        || p.has_adverts()
        || p.finished() != FIN_NONE
        || p.stated(End::Fast).is_some()
    {
        return None;
    }
    let (at, generation) = (
        s.rx_at.load(Ordering::Relaxed),
        s.generation.load(Ordering::Acquire),
    );
    for _ in 0..spin::PAUSES {
        if p.told(Word::Produced).as_hearsay() != at {
            // (it may have been closed meanwhile, and be another connection's)
            if s.generation.load(Ordering::Acquire) != generation {
                return None;
            }
            // SAFETY: the caller's promise.
            return unsafe { take(s, fd, to, len, flags) };
        }
        std::hint::spin_loop();
    }
    None
}

/// [`super::send::send`], where it is what it mostly is: one small buffer, and the ring has room. False,
/// and nothing done, otherwise.
///
/// # Safety
/// `from` is readable for `len` bytes.
#[inline(always)]
pub(crate) unsafe fn give(
    s: &'static Socket,
    fd: i32,
    from: *const u8,
    len: usize,
    flags: i32,
) -> bool {
    if flags & !(send::FLAGS & !libc::MSG_MORE) != 0
        || s.cork.load(Ordering::Relaxed)
        || len == 0
        || len > Tx::QUICK
        || len >= policy::large()
        || s.phase() != Phase::Attached
        || s.tx_shut.load(Ordering::Relaxed)
    {
        return false;
    }
    if s.segment().is_none_or(|p| is_gone(s, p)) {
        return false;
    }
    let Some(mut tx) = s.tx.lock_alone() else {
        return false;
    };
    if s.phase() != Phase::Attached || !s.is_here(fd) {
        return false; // since the look above
    }
    let Some(p) = s.segment() else {
        return false;
    };
    // SAFETY: the caller's promise.
    let sent = unsafe { tx.put_quick(p, fd, from, len) };
    drop(tx);
    if sent {
        send::whole(s, fd, len);
    }
    sent
}
