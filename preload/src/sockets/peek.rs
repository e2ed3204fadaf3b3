//! Looks that leave the bytes where they are, as far as they go beyond one leg: over the border to the next, and with
//! MSG_WAITALL, which waits for all without taking any. Called by `recv`.

use super::ending::{Ending, ending};
use super::options::PEEKS_FROM;
use super::ready::{self, Ask};
use super::recv::kernel_once;
use super::shows::check_kernel;
use super::{Phase, Socket, residual, wired};
use crate::epoll::registered;
use std::sync::atomic::Ordering;
use transport::clock;
use transport::provider::{End, Provider};
use transport::sdp::rx::How;
use transport::sdp::{Got, Walk};
use transport::sys::{Result, net, time};

/// Whether bytes that follow those just read are there, but come another way: by the kernel, after the
/// fast leg. (The kernel ends a read at urgent data.)
pub(super) fn goes_on_elsewhere(s: &Socket, fd: i32) -> bool {
    let other = s.phase() == Phase::Plain
        || s.phase() == Phase::Attached
            && s.segment().is_some_and(|p| p.stated(End::Fast).is_some());
    other && net::unread(fd) > 0 && net::ready_now(fd, libc::POLLPRI) & libc::POLLPRI == 0
}

/// Looks on at what lies behind the fast leg, unless a bell that would be taken for that may be for
/// another thread.
pub(super) fn peek_on(s: &'static Socket, fd: i32, walk: &mut Walk, discard: bool) {
    let Some(p) = s.segment().filter(|_| s.phase() == Phase::Attached) else {
        return;
    };
    if s.sleepers() > 0 {
        return;
    }
    let Ok(mut rx) = s.rx.lock() else { return };
    let bells = rx.bells_taken();
    let _ = rx.peek_on(p, fd, walk, discard);
    let took_bells = rx.bells_taken() != bells;
    drop(rx);
    if took_bells {
        registered::kick_others(s, std::ptr::null());
    }
}

/// Where the program has looks begin (SO_PEEK_OFF), if bytes are kept before those that the kernel has, which minds it alone else.
pub(super) fn offset(s: &Socket, fd: i32) -> Option<usize> {
    if s.tells.load(Ordering::Relaxed) & PEEKS_FROM == 0 || residual::left(s) == 0 {
        return None;
    }
    let offset = net::option(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF).ok()?;
    usize::try_from(offset).ok() // (below zero: none)
}

/// A look from where the program has it begin (SO_PEEK_OFF), which begins behind what was looked at the next time.
///
/// # Safety
/// The walk's buffers are writable.
pub(super) unsafe fn look_from(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    flags: i32,
    how: How,
    offset: usize,
) -> Result<Got> {
    let (kept, begun) = (residual::left(s), walk.done());
    let _ = residual::read(s, walk, Some(offset), how.discard);
    let mut got = Ok(Got::Empty);
    if walk.left() > 0 && s.phase() == Phase::Plain {
        net::set_peek_offset(fd, offset.saturating_sub(kept)); // (of what the kernel has)
        // SAFETY: the caller's promise.
        got = unsafe { kernel_once(s, fd, walk, flags, how) };
    }
    let n = walk.done() - begun;
    net::set_peek_offset(fd, offset + n);
    if n > 0 { Ok(Got::Bytes(n)) } else { got }
}

/// Waits until more than `had` bytes can be read. False if no more will come, or a signal came.
pub(super) fn grows(s: &'static Socket, fd: i32, had: u64) -> bool {
    let most = net::timeout(fd, libc::SO_RCVTIMEO);
    let begun = clock::monotonic_ns();
    loop {
        let fd = s.live_fd(fd);
        if most > 0 && clock::monotonic_ns() - begun > most {
            return false;
        }
        if ready::is_unsettled(s) {
            ready::settle(s, fd);
            return true;
        }
        let kernel = net::ready_now(fd, libc::POLLPRI | libc::POLLRDHUP);
        if kernel & libc::POLLPRI != 0 {
            return false; // (the kernel ends a read at urgent data)
        }
        check_kernel(s, fd);
        let ends = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
        let over = if s.rx_shut.load(Ordering::Acquire) {
            true // (by this side itself, which the peer has not heard of)
        } else if wired::is_wired(s) {
            ready::bits(s, fd, libc::POLLIN | libc::POLLRDHUP, Ask::Fresh) & ends != 0
        } else if let Some(p) = s.segment() {
            ending(s, p, fd) != Ending::Open
        } else {
            s.is_over() || kernel & ends != 0
        };
        // (what came before the end counts)
        if super::sizes::unread(s, fd) as u64 > had {
            return true;
        }
        if over || time::nap(500).is_err() {
            return false;
        }
    }
}
