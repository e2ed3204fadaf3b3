//! read, recv, write, send and their aliases: one buffer. What is there at once is `quick`'s.

use super::{MOST, quick, receive, receive_bad, transmit, transmit_bad};
use crate::probe::{Access, is_address, is_good, prefix};
use crate::real::{self, set_errno};
use crate::sockets::Socket;
use crate::table;
use std::ffi::{c_int, c_void};
use transport::sdp::Walk;

unsafe extern "C" {
    fn __chk_fail() -> !;
}

/// Receives into the program's buffer, which is probed here.
///
/// # Safety
/// `kernel` is the same call.
#[inline(never)]
unsafe fn take(
    s: &'static Socket,
    fd: c_int,
    buf: *mut c_void,
    n: usize,
    flags: c_int,
    kernel: impl FnOnce() -> isize,
) -> isize {
    let n = n.min(MOST);
    if flags & libc::MSG_TRUNC == 0 && !is_good(buf.cast(), n, Access::Write) {
        let good = prefix(buf.cast(), n, Access::Write);
        // SAFETY: probed as far as it goes.
        return unsafe { receive_bad(s, fd, &mut Walk::one(buf.cast(), good), flags, kernel) };
    }
    // SAFETY: probed.
    unsafe { receive(s, fd, &mut Walk::one(buf.cast(), n), flags, kernel) }
}

/// Sends from the program's buffer, which is probed here.
///
/// # Safety
/// `kernel` is the same call.
#[inline(never)]
unsafe fn give(
    s: &'static Socket,
    fd: c_int,
    buf: *const c_void,
    n: usize,
    flags: c_int,
    kernel: impl FnOnce() -> isize,
) -> isize {
    let n = n.min(MOST);
    if !is_good(buf.cast(), n, Access::Read) {
        return transmit_bad(s, fd, flags, kernel);
    }
    let from = buf.cast::<u8>().cast_mut();
    // SAFETY: probed; the walk of a sender is only read from.
    unsafe { transmit(s, fd, &mut Walk::one(from, n), flags, kernel) }
}

/// read and write refuse a length that reaches beyond all memory (such as -1) before they look at the stream; recv and send take as
/// much of it as one call may move.
#[cold]
fn beyond_memory() -> isize {
    set_errno(libc::EFAULT);
    -1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, buf: *mut c_void, n: usize) -> isize {
    let Some(s) = table::called(fd).filter(|_| n > 0) else {
        // SAFETY: the program's arguments, passed on.
        return unsafe { real::read(fd, buf, n) };
    };
    // SAFETY: the program's buffer.
    if let Some(r) = unsafe { quick::take(s, fd, buf, n, 0) } {
        return r;
    }
    if !is_address(buf.cast(), n) {
        return beyond_memory();
    }
    // SAFETY: as above; `real` is the call.
    unsafe { take(s, fd, buf, n, 0, move || real::read(fd, buf, n)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read(fd: c_int, buf: *mut c_void, n: usize) -> isize {
    // SAFETY: an alias.
    unsafe { read(fd, buf, n) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(fd: c_int, buf: *mut c_void, n: usize, size: usize) -> isize {
    if n > size {
        // SAFETY: ends the program, as fortified programs expect.
        unsafe { __chk_fail() }
    }
    // SAFETY: an alias.
    unsafe { read(fd, buf, n) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(fd: c_int, buf: *mut c_void, n: usize, flags: c_int) -> isize {
    let null = std::ptr::null_mut();
    let Some(s) = table::called(fd) else {
        // SAFETY: recvfrom without an address is recv.
        return unsafe { real::recvfrom(fd, buf, n, flags, null, null.cast()) };
    };
    // SAFETY: the program's buffer.
    if let Some(r) = unsafe { quick::take(s, fd, buf, n, flags) } {
        return r;
    }
    // SAFETY: as above.
    let kernel = move || unsafe { real::recvfrom(fd, buf, n, flags, null, null.cast()) };
    // SAFETY: the program's buffer; `kernel` is the call.
    unsafe { take(s, fd, buf, n, flags, kernel) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recv(fd: c_int, buf: *mut c_void, n: usize, flags: c_int) -> isize {
    // SAFETY: an alias.
    unsafe { recv(fd, buf, n, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recv_chk(
    fd: c_int,
    buf: *mut c_void,
    n: usize,
    size: usize,
    flags: c_int,
) -> isize {
    if n > size {
        // SAFETY: as in `__read_chk`.
        unsafe { __chk_fail() }
    }
    // SAFETY: an alias.
    unsafe { recv(fd, buf, n, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    buf: *mut c_void,
    n: usize,
    flags: c_int,
    addr: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
) -> isize {
    let Some(s) = table::called(fd) else {
        // SAFETY: the program's arguments, passed on.
        return unsafe { real::recvfrom(fd, buf, n, flags, addr, len) };
    };
    // SAFETY: the program's buffer.
    let quick = unsafe { quick::take(s, fd, buf, n, flags) };
    let r = quick.unwrap_or_else(|| {
        // SAFETY: as above.
        let kernel = move || unsafe { real::recvfrom(fd, buf, n, flags, addr, len) };
        // SAFETY: the program's buffer; `kernel` is the call.
        unsafe { take(s, fd, buf, n, flags, kernel) }
    });
    if r < 0 || addr.is_null() {
        return r;
    }
    // As in the kernel, the bytes have been taken by the time that this is found wrong.
    if !is_good(len.cast(), 4, Access::Write) {
        set_errno(libc::EFAULT);
        return -1;
    }
    // SAFETY: probed. A connected stream has no address to give.
    unsafe {
        if len.read_unaligned().cast_signed() < 0 {
            set_errno(libc::EINVAL);
            return -1;
        }
        len.write_unaligned(0);
    }
    r
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buf: *mut c_void,
    n: usize,
    size: usize,
    flags: c_int,
    addr: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
) -> isize {
    if n > size {
        // SAFETY: as in `__read_chk`.
        unsafe { __chk_fail() }
    }
    // SAFETY: an alias.
    unsafe { recvfrom(fd, buf, n, flags, addr, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, buf: *const c_void, n: usize) -> isize {
    let Some(s) = table::called(fd) else {
        // SAFETY: the program's arguments, passed on.
        return unsafe { real::write(fd, buf, n) };
    };
    // SAFETY: the program's buffer.
    if let Some(r) = unsafe { quick::give(s, fd, buf, n, 0) } {
        return r;
    }
    if !is_address(buf.cast(), n) {
        return beyond_memory();
    }
    // SAFETY: as above; `real` is the call.
    unsafe { give(s, fd, buf, n, 0, move || real::write(fd, buf, n)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __write(fd: c_int, buf: *const c_void, n: usize) -> isize {
    // SAFETY: an alias.
    unsafe { write(fd, buf, n) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(fd: c_int, buf: *const c_void, n: usize, flags: c_int) -> isize {
    // SAFETY: sendto without an address is send.
    unsafe { sendto(fd, buf, n, flags, std::ptr::null(), 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __send(fd: c_int, buf: *const c_void, n: usize, flags: c_int) -> isize {
    // SAFETY: an alias.
    unsafe { send(fd, buf, n, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    buf: *const c_void,
    n: usize,
    flags: c_int,
    addr: *const libc::sockaddr,
    len: libc::socklen_t,
) -> isize {
    let Some(s) = table::called(fd) else {
        // SAFETY: the program's arguments, passed on.
        return unsafe { real::sendto(fd, buf, n, flags, addr, len) };
    };
    // SAFETY: as above. (The kernel has a look at the address, and says so.)
    let kernel = move || unsafe { real::sendto(fd, buf, n, flags, addr, len) };
    if !addr.is_null() && !is_an_address(addr, len) {
        return kernel();
    }
    // SAFETY: the program's buffer. An address on a connected stream is ignored, as by the kernel.
    if let Some(r) = unsafe { quick::give(s, fd, buf, n, flags) } {
        return r;
    }
    // SAFETY: the program's buffer; `kernel` is the call.
    unsafe { give(s, fd, buf, n, flags, kernel) }
}

/// Whether the kernel can read it.
#[cold]
fn is_an_address(addr: *const libc::sockaddr, len: libc::socklen_t) -> bool {
    let most = size_of::<libc::sockaddr_storage>();
    len as usize <= most && is_good(addr.cast(), len as usize, Access::Read)
}
