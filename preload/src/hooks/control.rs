//! Options and modes of a socket: getsockopt, setsockopt, ioctl and fcntl.
//!
//! The descriptor is the kernel's own connection, so each call is made on it as it came; what the answer
//! misses (`sockets::options`), and what the library has to know of, is seen to here. What has the kernel
//! send signals for arrivals sends the stream back to the kernel.

use crate::real::{self, set_errno};
use crate::sockets::demote::{Unread, attend, demote};
use crate::sockets::{Phase, Socket, ending, engage, listener, options, sizes};
use crate::table;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use transport::reason::Reason;

/// Linux's asm-generic/sockios.h: who is sent signals, as by `F_SETOWN`.
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;
/// Linux's asm-generic/fcntl.h: the same for a thread.
const F_SETOWN_EX: c_int = 15;

/// ioctl(2): whether the reader has come to urgent data.
const SIOCATMARK: u64 = 0x8905;

/// The kernel says that there is no connection once both ends of it are, which may have been put off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(
    fd: c_int,
    addr: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
) -> c_int {
    if let Some(s) = table::socket(fd) {
        ending::end_put_off(s, fd);
    }
    // SAFETY: the program's arguments, passed on.
    unsafe { real::getpeername(fd, addr, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut libc::socklen_t,
) -> c_int {
    listener::touched(fd);
    if (level, name) == (libc::IPPROTO_TCP, options::TCP_ZEROCOPY_RECEIVE) {
        options::before_zero_copy(fd);
    }
    // The descriptor is the kernel's own connection: nearly every answer is right as it is.
    // SAFETY: the program's arguments, passed on.
    let r = unsafe { real::getsockopt(fd, level, name, value, len) };
    let ours = matches!(
        (level, name),
        (libc::SOL_SOCKET, libc::SO_ERROR | libc::SO_RCVLOWAT)
            | (libc::IPPROTO_TCP, libc::TCP_NODELAY | libc::TCP_CORK)
    );
    if r == 0
        && (level, name) == (libc::IPPROTO_TCP, libc::TCP_INFO)
        && let Some(s) = table::socket(fd)
        // SAFETY: the kernel has just written both.
        && unsafe { len.read_unaligned() } > 0
    {
        let at: *mut u8 = value.cast(); // its first field
        // SAFETY: as above.
        unsafe { at.write(options::state(s, fd, at.read())) };
    }
    if r == 0
        && ours
        && let Some(s) = table::socket(fd)
        // SAFETY: the kernel has just written both.
        && unsafe { len.read_unaligned() } == 4
    {
        let at: *mut c_int = value.cast();
        // SAFETY: as above.
        unsafe { at.write_unaligned(options::correct(s, fd, level, name, at.read_unaligned())) };
    }
    r
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: libc::socklen_t,
) -> c_int {
    listener::touched(fd);
    if len >= 4
        && !value.is_null()
        && let Some(s) = table::socket(fd)
    {
        options::before_set(s, fd, level, name);
    }
    // SAFETY: the program's arguments, passed on.
    let r = unsafe { real::setsockopt(fd, level, name, value, len) };
    if r == 0
        && let Some(s) = table::socket(fd)
    {
        let value = if options::is_time_out(level, name) {
            // SAFETY: the kernel has just read a time there.
            let time = unsafe { value.cast::<libc::timeval>().read_unaligned() };
            Some(if time.tv_sec < 0 { -1 } else { 0 })
        } else {
            // SAFETY: the kernel has just read that much there.
            (len >= 4).then(|| unsafe { value.cast::<c_int>().read_unaligned() })
        };
        options::was_set(s, fd, level, name, value);
    }
    r
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: usize, arg: usize) -> c_int {
    // SAFETY: the program's arguments, passed on.
    let kernel = || unsafe { real::ioctl(fd, request, arg) };
    let Some(s) = table::socket(fd) else {
        return kernel();
    };
    let at: *mut c_int = std::ptr::with_exposed_provenance_mut(arg);
    let writable = || crate::probe::is_good(at.cast(), 4, crate::probe::Access::Write);
    match request as u64 {
        libc::FIONBIO => {
            let r = kernel();
            if r == 0 {
                // SAFETY: the kernel has just read it.
                s.nonblock
                    .store(unsafe { at.read_unaligned() } != 0, Ordering::Relaxed);
            }
            r
        }
        libc::FIONREAD
            if (matches!(s.phase(), Phase::Announced | Phase::Plain) || s.phase().is_fast())
                && writable() =>
        {
            engage::step(s, fd);
            let n = sizes::countable(s, fd);
            // SAFETY: probed.
            unsafe { at.write_unaligned(c_int::try_from(n).unwrap_or(c_int::MAX)) };
            0
        }
        libc::TIOCOUTQ => match sizes::unsent(s, fd) {
            Some(n) if writable() => {
                // SAFETY: probed.
                unsafe { at.write_unaligned(c_int::try_from(n).unwrap_or(c_int::MAX)) };
                0
            }
            _ => kernel(),
        },
        SIOCATMARK if writable() => {
            attend(s, fd);
            if !sizes::is_before_kernel(s) {
                return kernel();
            }
            // The mark, if there is one, is further on.
            // SAFETY: probed.
            unsafe { at.write_unaligned(0) };
            0
        }
        libc::FIOASYNC | FIOSETOWN | SIOCSPGRP => {
            drive(s, fd);
            kernel()
        }
        _ => kernel(),
    }
}

/// fcntl, with its third argument as a word: right on every Linux this builds for, and never looked at
/// for commands that have none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, cmd: c_int, arg: usize) -> c_int {
    if table::is_hidden(fd) {
        set_errno(libc::EBADF);
        return -1;
    }
    // SAFETY: the program's arguments, passed on.
    let r = unsafe { real::fcntl(fd, cmd, arg) };
    if r < 0 {
        return r;
    }
    match cmd {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            super::fds::duplicated(fd, r);
            super::fds::made_standard(r);
        }
        libc::F_SETFL => {
            if let Some(s) = table::socket(fd) {
                let nonblock = arg & libc::O_NONBLOCK.cast_unsigned() as usize != 0;
                s.nonblock.store(nonblock, Ordering::Relaxed);
                if arg & libc::O_ASYNC.cast_unsigned() as usize != 0 {
                    drive(s, fd);
                }
            }
        }
        libc::F_SETOWN | F_SETOWN_EX if arg != 0 => {
            if let Some(s) = table::socket(fd) {
                drive(s, fd);
            }
        }
        _ => {}
    }
    r
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, cmd: c_int, arg: usize) -> c_int {
    // SAFETY: an alias.
    unsafe { fcntl(fd, cmd, arg) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __fcntl(fd: c_int, cmd: c_int, arg: usize) -> c_int {
    // SAFETY: an alias.
    unsafe { fcntl(fd, cmd, arg) }
}

/// Some socket was made to tell of arrivals by signals (O_ASYNC, or an owner) before it was connected.
static DRIVEN: AtomicBool = AtomicBool::new(false);

/// The kernel sends a signal for what arrives on this socket, so that has to arrive by the kernel. (With an owner alone it is
/// urgent data, which the handler reads: it has to be there, and nothing urgent that is ours.)
fn drive(s: &'static Socket, fd: c_int) {
    if s.phase() == Phase::Idle {
        DRIVEN.store(true, Ordering::Relaxed);
    }
    if s.decline() && s.phase() == Phase::Opening {
        return; // it has waited for a request to decline
    }
    demote(s, fd, Reason::AsyncIo, Unread::GiveBack);
}

/// Whether arrivals on this socket, which is not connected yet, are told by signals.
pub(super) fn is_driven(fd: c_int) -> bool {
    // SAFETY: no pointers.
    let flags = || unsafe { transport::syscall!(fcntl, fd, libc::F_GETFL) };
    // SAFETY: as above.
    let owner = || unsafe { transport::syscall!(fcntl, fd, libc::F_GETOWN) };
    DRIVEN.load(Ordering::Relaxed)
        && (flags().is_ok_and(|f| f & libc::O_ASYNC.cast_unsigned() as usize != 0)
            || !matches!(owner(), Ok(0))) // (a group of processes looks like an error)
}
