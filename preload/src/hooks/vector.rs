//! readv, writev and their kin: several buffers in one call, and the check of them.
//!
//! The rule, which the calls of `message` rely on too: a buffer that cannot be touched spoils a call just
//! as far as it does in the kernel.

use super::{MOST, receive, receive_bad, transmit, transmit_bad};
use crate::probe::{Access, is_address, is_good, prefix};
use crate::real::{self, set_errno};
use crate::sockets::Socket;
use crate::sockets::demote::{Unread, demote};
use crate::table;
use std::ffi::c_int;
use transport::reason::Reason;
use transport::sdp::Walk;
use transport::sys::Errno;

/// The kernel takes a message in pieces of about this size; a bad buffer spoils the piece that it is in.
pub(super) const FAULTS_BELOW: usize = 16 * 1024;
/// The kernel's UIO_MAXIOV.
const ENTRIES: usize = 1024;

/// Checks an array of buffers as the kernel does and makes a walk of what lies before the first place that cannot
/// be touched; says whether that is all of them.
pub(super) unsafe fn walk(
    iov: *const libc::iovec,
    n: usize,
    access: Access,
    too_many: i32,
) -> Result<(Walk, bool), Errno> {
    if n > ENTRIES {
        return Err(Errno(too_many));
    }
    if n > 0 && !is_good(iov.cast(), n * size_of::<libc::iovec>(), Access::Read) {
        return Err(Errno::FAULT);
    }
    let mut total = 0usize;
    for i in 0..n {
        // SAFETY: probed.
        let v = unsafe { iov.add(i).read_unaligned() };
        if v.iov_len.cast_signed() < 0 {
            return Err(Errno::INVAL);
        }
        // (of a single buffer the kernel looks at no more than one call may move)
        let looked = if n == 1 {
            v.iov_len.min(MOST)
        } else {
            v.iov_len
        };
        if !is_address(v.iov_base.cast(), looked) {
            return Err(Errno::FAULT);
        }
        let len = v.iov_len.min(MOST - total);
        if !is_good(v.iov_base.cast(), len, access) {
            total += prefix(v.iov_base.cast(), len, access);
            // SAFETY: probed for `n` entries; the program keeps it for the call.
            return Ok((unsafe { Walk::many(iov, n, total) }, false));
        }
        total += len;
    }
    // SAFETY: as above.
    Ok((unsafe { Walk::many(iov, n, total) }, true))
}

pub(super) fn fail(e: Errno) -> isize {
    set_errno(e.0);
    -1
}

/// RWF_NOSIGNAL (linux/fs.h).
const RWF_NOSIGNAL: c_int = 0x100;

/// What the flags of preadv2 and pwritev2 (`RWF_`) are on a stream, at "the current position": MSG_DONTWAIT, MSG_NOSIGNAL, or nothing.
/// `None`: the kernel refuses the call, or it is on something else. What flags that are not known here mean the kernel knows, which has to have
/// the stream then.
fn on_stream(fd: c_int, offset: i64, flags: c_int) -> Option<(&'static Socket, c_int)> {
    const NOTHING: c_int =
        libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_APPEND | libc::RWF_NOAPPEND;
    if offset != -1 {
        return None;
    }
    let s = table::called(fd)?;
    if flags & !(NOTHING | libc::RWF_NOWAIT | RWF_NOSIGNAL) != 0 {
        demote(s, fd, Reason::RawSyscall, Unread::GiveBack);
        return None;
    }
    let means = |flag, meant| if flags & flag != 0 { meant } else { 0 };
    let wait = means(libc::RWF_NOWAIT, libc::MSG_DONTWAIT);
    Some((s, wait | means(RWF_NOSIGNAL, libc::MSG_NOSIGNAL)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, iov: *const libc::iovec, n: c_int) -> isize {
    // SAFETY: the program's arguments, passed on.
    let kernel = || unsafe { real::readv(fd, iov, n) };
    match table::called(fd) {
        // SAFETY: as above.
        Some(s) => unsafe { read_by(s, fd, (iov, n), 0, kernel) },
        None => kernel(),
    }
}

/// readv and its kin, by `flags` of recvmsg.
///
/// # Safety
/// The buffers are the program's, probed here; `kernel` is the same call.
unsafe fn read_by(
    s: &'static Socket,
    fd: c_int,
    (iov, n): (*const libc::iovec, c_int),
    flags: c_int,
    kernel: impl FnOnce() -> isize,
) -> isize {
    let Ok(count) = usize::try_from(n) else {
        return fail(Errno::INVAL);
    };
    // SAFETY: the program's array, probed inside.
    match unsafe { walk(iov, count, Access::Write, libc::EINVAL) } {
        Ok((w, true)) if w.left() == 0 => kernel(),
        // SAFETY: probed.
        Ok((mut w, true)) => unsafe { receive(s, fd, &mut w, flags, kernel) },
        // SAFETY: probed as far as it goes.
        Ok((mut w, false)) => unsafe { receive_bad(s, fd, &mut w, flags, kernel) },
        Err(e) => fail(e),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, iov: *const libc::iovec, n: c_int) -> isize {
    // SAFETY: the program's arguments, passed on.
    let kernel = || unsafe { real::writev(fd, iov, n) };
    match table::called(fd) {
        // SAFETY: as above.
        Some(s) => unsafe { write_by(s, fd, (iov, n), 0, kernel) },
        None => kernel(),
    }
}

/// writev and its kin, by `flags` of sendmsg.
///
/// # Safety
/// As [`read_by`].
unsafe fn write_by(
    s: &'static Socket,
    fd: c_int,
    (iov, n): (*const libc::iovec, c_int),
    flags: c_int,
    kernel: impl FnOnce() -> isize,
) -> isize {
    let Ok(count) = usize::try_from(n) else {
        return fail(Errno::INVAL);
    };
    // SAFETY: the program's array, probed inside.
    match unsafe { walk(iov, count, Access::Read, libc::EINVAL) } {
        Ok((w, true)) if w.left() == 0 => kernel(),
        Ok((w, false)) if w.left() < FAULTS_BELOW => transmit_bad(s, fd, flags, kernel),
        // SAFETY: probed.
        Ok((mut w, _)) => unsafe { transmit(s, fd, &mut w, flags, kernel) },
        Err(e) => fail(e),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv2(
    fd: c_int,
    iov: *const libc::iovec,
    n: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: the program's arguments, passed on.
    let kernel = || unsafe { real::preadv2(fd, iov, n, offset, flags) };
    match on_stream(fd, offset, flags) {
        // SAFETY: as above.
        Some((s, flags)) => unsafe { read_by(s, fd, (iov, n), flags, kernel) },
        None => kernel(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv64v2(
    fd: c_int,
    iov: *const libc::iovec,
    n: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: an alias.
    unsafe { preadv2(fd, iov, n, offset, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev2(
    fd: c_int,
    iov: *const libc::iovec,
    n: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: the program's arguments, passed on.
    let kernel = || unsafe { real::pwritev2(fd, iov, n, offset, flags) };
    match on_stream(fd, offset, flags) {
        // SAFETY: as above.
        Some((s, flags)) => unsafe { write_by(s, fd, (iov, n), flags, kernel) },
        None => kernel(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev64v2(
    fd: c_int,
    iov: *const libc::iovec,
    n: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: an alias.
    unsafe { pwritev2(fd, iov, n, offset, flags) }
}
