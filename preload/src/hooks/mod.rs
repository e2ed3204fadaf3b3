//! The C symbols: arguments in, errno out. A descriptor that is not ours goes straight to the next
//! library after one look at the table; nothing on that way allocates, locks or logs.
//!
//! Every function of the families below has one of three answers: served here, passed on with the table
//! kept right, or passed on after the stream has gone back to kernel TCP. `tests` compares the list with
//! what glibc exports.

#![allow(unreachable_pub)] // C symbols: exported by name, used by no path

pub(crate) mod conn;
pub(crate) mod control;
mod deaths;
pub(crate) mod epoll;
pub(crate) mod exec;
pub(crate) mod fds;
mod fetched;
mod forks;
pub(crate) mod io;
mod limits;
mod memory;
pub(crate) mod message;
pub(crate) mod process;
mod quick;
mod raw;
pub(crate) mod shutdown;
pub(crate) mod signals;
mod splice;
pub(crate) mod threads;
pub(crate) mod transfer;
mod users;
pub(crate) mod vector;
pub(crate) mod waiting;

use crate::probe::PREFIX;
use crate::real::{self, ret, set_errno};
use crate::sockets::{Phase, Socket, engage, recv, send, sizes, wired};
use std::sync::atomic::Ordering;
use transport::record;
use transport::sdp::Walk;

/// As many bytes as the kernel moves in one call (its MAX_RW_COUNT).
const MOST: usize = 0x7fff_f000;

/// Whether a call on a socket is the kernel's: it is plain, or not connected. (Not if it has been closed since it was looked up: the
/// number may be another's.)
#[inline]
fn is_kernels(s: &'static Socket, fd: i32) -> bool {
    let phase = match s.phase() {
        Phase::Attached | Phase::Announced | Phase::Wired => return false,
        Phase::Opening | Phase::Fresh => {
            engage::step(s, fd);
            s.phase()
        }
        phase => phase,
    };
    let is_theirs = match phase {
        // (one that could not go back without a gap was ended here, which the kernel tells nobody of)
        Phase::Plain => !s.broken.load(Ordering::Relaxed),
        Phase::Idle | Phase::Listening => true,
        _ => false,
    };
    is_theirs && s.is_own(fd)
}

/// Counts what the kernel carried.
#[inline]
fn count_received(s: &Socket, r: isize, flags: i32) -> isize {
    if r > 0 && flags & libc::MSG_PEEK == 0 {
        record::add(&s.record.bytes_received, r.cast_unsigned() as u64);
        record::add(&s.record.messages_received, 1);
    }
    r
}

#[inline]
fn count_sent(s: &Socket, r: isize) -> isize {
    if r > 0 {
        record::add(&s.record.bytes_sent, r.cast_unsigned() as u64);
        record::add(&s.record.messages_sent, 1);
    }
    r
}

/// Receives on one of our sockets; `kernel` is the call as the program made it.
///
/// # Safety
/// The walk's buffers are the program's and have been probed.
#[inline]
unsafe fn receive(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    flags: i32,
    kernel: impl FnOnce() -> isize,
) -> isize {
    if flags & recv::APART != 0 {
        return kernel();
    }
    let _point = threads::point();
    if is_kernels(s, fd) && s.residual.load(Ordering::Relaxed).is_null() {
        let e = real::errno();
        let r = count_received(s, kernel(), flags);
        if r < 0 && real::errno() == libc::EAGAIN && s.eof_told.load(Ordering::Acquire) {
            // The peer's end was told before, and the kernel hears of it only as the peer follows.
            set_errno(e);
            return 0;
        }
        return r;
    }
    // SAFETY: the caller's promise.
    ret(unsafe { recv::recv(s, fd, walk, flags) })
}

/// Receives where some buffer cannot be written, after `good` bytes that can: as in the kernel, that
/// shows only once there is something to put there, and then nothing is taken.
unsafe fn receive_bad(
    s: &'static Socket,
    fd: i32,
    good: &mut Walk,
    flags: i32,
    kernel: impl FnOnce() -> isize,
) -> isize {
    if is_kernels(s, fd) && s.residual.load(Ordering::Relaxed).is_null() {
        return count_received(s, kernel(), flags);
    }
    let mut nothing = Walk::one(std::ptr::null_mut(), 0);
    // SAFETY: nothing is written.
    if let Err(e) = unsafe { recv::recv(s, fd, &mut nothing, flags & libc::MSG_DONTWAIT) } {
        return ret(Err(e));
    }
    match sizes::unread(s, fd) {
        // SAFETY: the caller's promise.
        0 if good.left() > 0 => ret(unsafe { recv::recv(s, fd, good, flags) }),
        0 => 0,
        n if n <= good.left() || good.left() >= PREFIX => {
            // SAFETY: the caller's promise.
            ret(unsafe { recv::recv(s, fd, good, flags & !libc::MSG_WAITALL) })
        }
        _ => {
            // (what can be written is, as by the kernel, and stays unread)
            let peek = flags & libc::MSG_TRUNC | libc::MSG_PEEK | libc::MSG_DONTWAIT;
            // SAFETY: the caller's promise.
            let _ = unsafe { recv::recv(s, fd, good, peek) };
            ret(Err(transport::sys::Errno::FAULT))
        }
    }
}

/// Sends where the first octets cannot be read, which the kernel says only of a stream that can send: what it says of an
/// empty send goes before.
#[cold]
fn transmit_bad(s: &'static Socket, fd: i32, flags: i32, kernel: impl FnOnce() -> isize) -> isize {
    if is_kernels(s, fd) {
        return count_sent(s, kernel());
    }
    if s.phase() == Phase::Attached {
        // SAFETY: no octets.
        let r = unsafe { send::send(s, fd, &mut Walk::one(std::ptr::null_mut(), 0), flags) };
        return ret(r.and(Err(transport::sys::Errno::FAULT)));
    }
    if wired::is_wired(s) {
        return ret(Err(
            wired::error_of_nothing(s, fd, flags).unwrap_or(transport::sys::Errno::FAULT)
        ));
    }
    // SAFETY: no octets, and no address.
    match unsafe { crate::real::sendto(fd, std::ptr::null(), 0, flags, std::ptr::null(), 0) } {
        0.. => ret(Err(transport::sys::Errno::FAULT)),
        r => {
            if crate::real::errno() == libc::ECONNRESET {
                s.reset_told.store(true, Ordering::Release);
            }
            r
        }
    }
}

/// Sends on one of our sockets; `kernel` is the call as the program made it.
///
/// # Safety
/// The walk's buffers are the program's and have been probed.
#[inline]
unsafe fn transmit(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    flags: i32,
    kernel: impl FnOnce() -> isize,
) -> isize {
    if flags & !send::FLAGS != 0 && !s.tx_shut.load(Ordering::Acquire) {
        use crate::sockets::demote::{Unread, demote};
        demote(s, fd, transport::reason::Reason::UrgentData, Unread::Keep);
        if wired::is_wired(s) {
            return count_sent(s, kernel()); // what goes from here is plain by now
        }
    }
    let _point = threads::point();
    if is_kernels(s, fd) {
        return count_sent(s, kernel());
    }
    // SAFETY: the caller's promise.
    ret(unsafe { send::send(s, fd, walk, flags) })
}
