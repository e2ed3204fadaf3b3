//! One look at a stream: what a receive finds, on whatever leg it is, and what it owes the peer for it. Nothing here waits.
//!
//! Called by the loop of `recv`, and by those beside it that look for themselves.

use crate::epoll::registered;
use crate::sockets::ending::{Ending, ending, is_gone, reset_error};
use crate::sockets::peek::{look_from, offset};
use crate::sockets::{Phase, Socket, demote, engage, held, large, parked, residual, wired};
use std::sync::atomic::Ordering;
use transport::direct::Direct as _;
use transport::provider::{End, Provider};
use transport::sdp::rx::{Due, How};
use transport::sdp::{Ended, Got, Leg, Walk};
use transport::sys::{Errno, Result, net};

/// One look at whatever leg the stream is on.
///
/// # Safety
/// The walk's buffers are writable.
pub(super) unsafe fn look(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    flags: i32,
    how: How,
) -> Result<Got> {
    let offset = offset(s, fd);
    if let Some(offset) = offset.filter(|_| how.peek) {
        // SAFETY: the caller's promise.
        return unsafe { look_from(s, fd, walk, flags, how, offset) };
    }
    if let Some(n) = residual::read(s, walk, how.peek.then_some(0), how.discard) {
        residual::taken(s, fd);
        if let Some(offset) = offset {
            net::set_peek_offset(fd, offset.saturating_sub(n)); // (as the kernel does)
        }
        if how.peek && walk.left() > 0 && s.phase() == Phase::Plain {
            // SAFETY: the caller's promise.
            if let Ok(Got::Bytes(more)) = unsafe { kernel_once(s, fd, walk, flags, how) } {
                return Ok(Got::Bytes(n + more));
            }
        }
        return Ok(Got::Bytes(n));
    }
    engage::step(s, fd);
    if s.broken.load(Ordering::Acquire) {
        return Ok(Got::Reset);
    }
    match s.phase() {
        Phase::Attached => {}
        Phase::Announced if s.segment().is_some() => {
            // The answer may have come since: read with the legs in mind, so that a bell is never data.
            let Some(p) = s.segment() else {
                return Ok(Got::Empty);
            };
            // SAFETY: the caller's promise.
            let got = unsafe { once(s, p, fd, walk, how, Inside::Yes) }?;
            // (what was read may have been rung for: sets are to know bells from data before the next look)
            engage::step(s, fd);
            engage::give_up_if_silent(s, fd, s.record.messages_received.load(Ordering::Relaxed));
            return Ok(got);
        }
        Phase::Opening | Phase::Wired => {
            // SAFETY: the caller's promise.
            return match unsafe { wired::receive(s, fd, walk, how) }? {
                Some(got) => Ok(got),
                // SAFETY: as above.
                None => unsafe { look(s, fd, walk, flags, how) },
            };
        }
        // (another thread, or process, has kept some since the look above, and ended whatever went before)
        // SAFETY: the caller's promise.
        _ if residual::left(s) > 0 => return unsafe { look(s, fd, walk, flags, how) },
        // SAFETY: as above.
        _ => return unsafe { kernel_once(s, fd, walk, flags, how) },
    }
    let Some(p) = s.segment() else {
        return Ok(Got::Empty);
    };
    demote::attend(s, fd);
    if s.phase() != Phase::Attached {
        // SAFETY: the caller's promise.
        return unsafe { look(s, fd, walk, flags, how) };
    }
    // Whether the kernel connection was over before the ring was looked at: then what the ring holds is
    // all there will ever be.
    let over = s.is_over();
    // SAFETY: the caller's promise.
    let mut got = unsafe { once(s, p, fd, walk, how, Inside::Yes) }?;
    if got == Got::Empty && over && s.rx_leg() == Leg::Fast && p.stated(End::Fast).is_some() {
        // Of a connection that was cut the peer may have heard too, and have ended its fast leg since.
        // SAFETY: the caller's promise.
        got = unsafe { once(s, p, fd, walk, how, Inside::Yes) }?;
    }
    match got {
        Got::Empty if over => Ok(match ending(s, p, fd) {
            Ending::Reset if reset_error(s, p) != Errno::PIPE => Got::Reset,
            _ => Got::Eof,
        }),
        got => Ok(got),
    }
}

/// Whether the call is counted as inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inside {
    Yes,
    No,
}

/// One look at the attached stream.
///
/// # Safety
/// As of [`look`].
#[inline]
pub(super) unsafe fn once(
    s: &'static Socket,
    p: &impl Provider,
    fd: i32,
    walk: &mut Walk,
    how: How,
    inside: Inside,
) -> Result<Got> {
    if !how.peek && walk.left() >= large::WAKES {
        large::call_sender(s, p, fd);
    }
    let Ok(mut rx) = s.rx.lock() else {
        return Err(Errno::AGAIN);
    };
    let stays = inside == Inside::Yes || s.is_here(fd);
    let Some(p) = s.segment().filter(|_| stays) else {
        return Err(Errno(libc::EBADF)); // closed since the caller looked, and another's perhaps
    };
    let fd = s.live_fd(fd);
    // (where the other end has not answered yet, it is asked here too)
    if s.phase() == Phase::Plain {
        return Ok(Got::Kernel); // since the caller looked
    }
    if s.is_over() {
        rx.end_kernel(None);
    }
    let how = How {
        far: held::far(s, p),
        ..how
    };
    let (before, bells) = (walk.done(), rx.bells_taken());
    parked::pull(s, p, &mut rx);
    // SAFETY: the caller's promise.
    let mut got = unsafe { rx.read(p, fd, walk, how) };
    if how.lingers && p.is_posted() {
        large::linger(s, p);
        let how = How {
            lingers: false,
            resumes: true,
            ..how
        };
        // SAFETY: as above.
        got = unsafe { rx.read(p, fd, walk, how) };
        p.withdraw(); // (whatever the read came to)
        // The first read may have brought bytes of an earlier leg.
        if walk.done() > before {
            got = Ok(Got::Bytes(walk.done() - before));
        }
    }
    s.mirror_rx(&rx);
    let due = rx.take_due();
    let took_bells = rx.bells_taken() != bells;
    drop(rx);
    if took_bells {
        registered::kick_others(s, std::ptr::null()); // (the fast leg is over)
    }
    if due.any() {
        serve(s, p, fd, due);
    }
    got.map_err(|e| told_by_kernel(s, e))
}

/// An error that the kernel has told to a read on one of its legs: a reset that the segment shows too has been told with that.
pub(in crate::sockets) fn told_by_kernel(s: &Socket, e: Errno) -> Errno {
    if Ended::is_said_by(e) {
        s.reset_told.store(true, Ordering::Release);
    }
    e
}

/// Does on the sending half what a read has asked for.
pub(in crate::sockets) fn serve(s: &'static Socket, p: &impl Provider, fd: i32, due: Due) {
    // (A peer that has closed would answer a bell with a reset.)
    if !is_gone(s, p)
        && let Ok(mut tx) = s.tx.lock()
        // (who is counted as inside keeps it, also while it is being closed)
        && (s.is_here(fd) || s.waiters.load(Ordering::SeqCst) > 0)
        && s.phase() == Phase::Attached
        && let Some(p) = s.segment()
    {
        tx.serve(p, s.live_fd(fd), due);
    }
    if s.is_shared()
        // (whoever holds it may have been stopped)
        && let Ok(mut rx) = s.rx.lock_soon()
    {
        rx.done(due);
    }
}

/// What a side owes its peer before it waits: everything read is handed back, and a peer that is out of
/// credit is told of any there is.
pub(crate) fn upkeep(s: &'static Socket, fd: i32) {
    let (Phase::Attached, Some(p)) = (s.phase(), s.segment()) else {
        return;
    };
    let Ok(mut rx) = s.rx.lock() else { return };
    if rx.leg() != Leg::Fast {
        return;
    }
    rx.hand_back(p);
    let due = rx.take_due();
    drop(rx);
    if due.any() {
        serve(s, p, fd, due);
    }
    if s.is_shared()
        && !is_gone(s, p)
        && let Ok(mut tx) = s.tx.lock_soon()
    {
        tx.ring_for_the_dead(p, fd);
    }
}

/// The kernel connection alone: before there is anybody to agree with, or after the fast leg.
///
/// # Safety
/// The walk's buffers are writable.
pub(in crate::sockets) unsafe fn kernel_once(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    flags: i32,
    how: How,
) -> Result<Got> {
    let Ok(mut rx) = s.rx.lock() else {
        return Err(Errno::AGAIN);
    };
    // Another thread may have offered or agreed since the phase was looked at; it does so under this
    // lock. Then there may be bells among the bytes.
    if let Some(p) = s.segment()
        && rx.leg() != Leg::Last
        && s.phase() != Phase::Plain
    {
        drop(rx);
        // SAFETY: the caller's promise.
        return unsafe { once(s, p, fd, walk, how, Inside::Yes) };
    }
    let fd = s.live_fd(fd);
    if walk.done() > 0 && net::has_only_error(fd) {
        return Ok(Got::Reset); // (what was read is all that this call tells: the error is the next one's)
    }
    if how.whole && walk.done() > 0 && !net::goes_on(fd) {
        return Ok(Got::Empty);
    }
    let flags = flags & (libc::MSG_PEEK | libc::MSG_TRUNC);
    let want = walk.left();
    match rx.read_kernel(fd, walk, flags) {
        Ok(0) if want > 0 => Ok(Got::Eof),
        Ok(n) => {
            walk.skip(n);
            Ok(Got::Bytes(n))
        }
        Err(Errno::AGAIN) => Ok(Got::Empty),
        Err(e) => Err(told_by_kernel(s, e)),
    }
}
