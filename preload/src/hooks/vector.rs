//! readv, recvmsg, recvmmsg, their sending kin, sendfile, splice and the aio family.

use super::{count_sent, receive, receive_bad, transmit};
use crate::probe::{Access, is_good};
use crate::real::{self, other, ret, set_errno};
use crate::sockets::demote::{Unread, demote};
use crate::sockets::{Phase, Socket, residual, send};
use crate::table;
use std::ffi::{c_int, c_void};
use transport::reason::Reason;
use transport::sdp::Walk;
use transport::sys::Errno;
use transport::syscall;

const MOST: usize = 0x7fff_f000;
/// The kernel takes a message in pieces of about this size; a bad buffer spoils the piece that it is in.
const FAULTS_BELOW: usize = 16 * 1024;
/// The kernel's UIO_MAXIOV.
const ENTRIES: usize = 1024;

/// Checks an array of buffers as the kernel does and makes a walk of those before the first that cannot
/// be touched; says whether that is all of them.
unsafe fn walk(
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
        let len = v.iov_len.min(MOST - total);
        if !is_good(v.iov_base.cast(), len, access) {
            // SAFETY: probed for `n` entries; the program keeps it for the call.
            return Ok((unsafe { Walk::many(iov, n, total) }, false));
        }
        total += len;
    }
    // SAFETY: as above.
    Ok((unsafe { Walk::many(iov, n, total) }, true))
}

fn fail(e: Errno) -> isize {
    set_errno(e.0);
    -1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, iov: *const libc::iovec, n: c_int) -> isize {
    // SAFETY: the program's arguments, passed on.
    let kernel = || unsafe { real::readv(fd, iov, n) };
    let Some(s) = table::socket(fd) else {
        return kernel();
    };
    let Ok(count) = usize::try_from(n) else {
        return fail(Errno::INVAL);
    };
    // SAFETY: the program's array, probed inside.
    match unsafe { walk(iov, count, Access::Write, libc::EINVAL) } {
        Ok((w, true)) if w.left() == 0 => kernel(),
        // SAFETY: probed.
        Ok((mut w, true)) => unsafe { receive(s, fd, &mut w, 0, kernel) },
        // SAFETY: probed as far as it goes.
        Ok((mut w, false)) => unsafe { receive_bad(s, fd, &mut w, 0, kernel) },
        Err(e) => fail(e),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, iov: *const libc::iovec, n: c_int) -> isize {
    // SAFETY: the program's arguments, passed on.
    let kernel = || unsafe { real::writev(fd, iov, n) };
    let Some(s) = table::socket(fd) else {
        return kernel();
    };
    let Ok(count) = usize::try_from(n) else {
        return fail(Errno::INVAL);
    };
    // SAFETY: the program's array, probed inside.
    match unsafe { walk(iov, count, Access::Read, libc::EINVAL) } {
        Ok((w, true)) if w.left() == 0 => kernel(),
        Ok((w, false)) if w.left() < FAULTS_BELOW => fail(Errno::FAULT),
        // SAFETY: probed.
        Ok((mut w, _)) => unsafe { transmit(s, fd, &mut w, 0, kernel) },
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
    if offset == -1 && flags == 0 && table::socket(fd).is_some() {
        // SAFETY: on a stream, at "the current position", it is readv.
        return unsafe { readv(fd, iov, n) };
    }
    // SAFETY: the program's arguments, passed on.
    unsafe { real::preadv2(fd, iov, n, offset, flags) }
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
    if offset == -1 && flags == 0 && table::socket(fd).is_some() {
        // SAFETY: on a stream, at "the current position", it is writev.
        return unsafe { writev(fd, iov, n) };
    }
    // SAFETY: the program's arguments, passed on.
    unsafe { real::pwritev2(fd, iov, n, offset, flags) }
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

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, msg: *mut libc::msghdr, flags: c_int) -> isize {
    // SAFETY: the program's arguments, passed on.
    let kernel = || unsafe { real::recvmsg(fd, msg, flags) };
    let Some(s) = table::socket(fd) else {
        let r = kernel();
        if r >= 0 {
            // SAFETY: the kernel has just written to it.
            unsafe { super::fds::received(msg) };
        }
        return r;
    };
    if !is_good(msg.cast(), size_of::<libc::msghdr>(), Access::Write) {
        return fail(Errno::FAULT);
    }
    if flags & libc::MSG_ERRQUEUE != 0 {
        return kernel();
    }
    // SAFETY: probed.
    let (iov, count) = unsafe { ((*msg).msg_iov, (*msg).msg_iovlen) };
    // SAFETY: the program's array, probed inside.
    match unsafe { walk(iov, count, access(flags), libc::EMSGSIZE) } {
        Ok((mut w, whole)) => {
            // SAFETY: probed, as far as it goes.
            let r = unsafe {
                if whole {
                    receive(s, fd, &mut w, flags, kernel)
                } else {
                    receive_bad(s, fd, &mut w, flags, kernel)
                }
            };
            if r >= 0 && s.phase() != Phase::Plain {
                // SAFETY: probed.
                let m = unsafe { &mut *msg };
                m.msg_namelen = 0;
                m.msg_controllen = 0;
                m.msg_flags = flags & libc::MSG_CMSG_CLOEXEC;
            }
            r
        }
        Err(e) => fail(e),
    }
}

/// With MSG_TRUNC nothing is written.
const fn access(flags: i32) -> Access {
    if flags & libc::MSG_TRUNC != 0 {
        Access::Read
    } else {
        Access::Write
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, msg: *const libc::msghdr, flags: c_int) -> isize {
    // SAFETY: the program's arguments, passed on.
    let kernel = || unsafe { real::sendmsg(fd, msg, flags) };
    let Some(s) = table::socket(fd) else {
        // SAFETY: the program's message; looked at only if it has control data.
        unsafe { super::fds::passing(msg) };
        return kernel();
    };
    if !is_good(msg.cast(), size_of::<libc::msghdr>(), Access::Read) {
        return fail(Errno::FAULT);
    }
    // SAFETY: probed.
    let m = unsafe { &*msg };
    if m.msg_controllen > 0 {
        demote(s, fd, Reason::SocketOption, Unread::Keep);
        return count_sent(s, kernel());
    }
    // SAFETY: the program's array, probed inside.
    match unsafe { walk(m.msg_iov, m.msg_iovlen, Access::Read, libc::EMSGSIZE) } {
        Ok((w, false)) if w.left() < FAULTS_BELOW => fail(Errno::FAULT),
        // SAFETY: probed.
        Ok((mut w, _)) => unsafe { transmit(s, fd, &mut w, flags, kernel) },
        Err(e) => fail(e),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    msgs: *mut libc::mmsghdr,
    n: u32,
    flags: c_int,
    time: *mut libc::timespec,
) -> c_int {
    if table::socket(fd).is_none() {
        // SAFETY: the program's arguments, passed on.
        return unsafe { real::recvmmsg(fd, msgs, n, flags, time) };
    }
    let one_is_enough = flags & libc::MSG_WAITFORONE != 0;
    let mut flags = flags & !libc::MSG_WAITFORONE;
    let deadline = if time.is_null() {
        u64::MAX
    } else {
        // SAFETY: the program's time-out.
        let t = unsafe { time.read_unaligned() };
        let ns = t.tv_sec.cast_unsigned().saturating_mul(1_000_000_000);
        transport::clock::monotonic_ns()
            .saturating_add(ns)
            .saturating_add(t.tv_nsec.cast_unsigned())
    };
    let mut done = 0;
    while done < n.min(1024) {
        if !is_good(
            msgs.wrapping_add(done as usize).cast(),
            size_of::<libc::mmsghdr>(),
            Access::Write,
        ) {
            set_errno(libc::EFAULT);
            return if done > 0 { done.cast_signed() } else { -1 };
        }
        // SAFETY: probed.
        let r = unsafe { recvmsg(fd, &raw mut (*msgs.add(done as usize)).msg_hdr, flags) };
        let Ok(len) = u32::try_from(r) else {
            return if done > 0 { done.cast_signed() } else { -1 };
        };
        // SAFETY: probed.
        unsafe { (*msgs.add(done as usize)).msg_len = len };
        done += 1;
        if one_is_enough {
            flags |= libc::MSG_DONTWAIT;
        }
        if len == 0 || transport::clock::monotonic_ns() >= deadline {
            break;
        }
    }
    done.cast_signed()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(
    fd: c_int,
    msgs: *mut libc::mmsghdr,
    n: u32,
    flags: c_int,
) -> c_int {
    if table::socket(fd).is_none() {
        // SAFETY: the program's arguments, passed on.
        return unsafe { real::sendmmsg(fd, msgs, n, flags) };
    }
    let mut done = 0;
    while done < n.min(1024) {
        if !is_good(
            msgs.wrapping_add(done as usize).cast(),
            size_of::<libc::mmsghdr>(),
            Access::Write,
        ) {
            set_errno(libc::EFAULT);
            return if done > 0 { done.cast_signed() } else { -1 };
        }
        // SAFETY: probed.
        let r = unsafe { sendmsg(fd, &raw const (*msgs.add(done as usize)).msg_hdr, flags) };
        let Ok(len) = u32::try_from(r) else {
            return if done > 0 { done.cast_signed() } else { -1 };
        };
        // SAFETY: probed.
        unsafe { (*msgs.add(done as usize)).msg_len = len };
        done += 1;
    }
    done.cast_signed()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sendmmsg(
    fd: c_int,
    msgs: *mut libc::mmsghdr,
    n: u32,
    flags: c_int,
) -> c_int {
    // SAFETY: an alias.
    unsafe { sendmmsg(fd, msgs, n, flags) }
}

/// Whether the kernel's sendfile would take from this descriptor.
fn is_file(fd: i32) -> bool {
    let mut st = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `st` is writable memory of the size that fstat fills.
    let r = unsafe { syscall!(fstat, fd, st.as_mut_ptr()) };
    // SAFETY: zeroed, then filled by the kernel.
    let mode = unsafe { st.assume_init() }.st_mode & libc::S_IFMT;
    r.is_ok() && (mode == libc::S_IFREG || mode == libc::S_IFBLK)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(out: c_int, from: c_int, offset: *mut i64, n: usize) -> isize {
    // SAFETY: the program's arguments, passed on.
    let kernel = |n: usize| unsafe { real::sendfile(out, from, offset, n) };
    let Some(s) = table::socket(out) else {
        return kernel(n);
    };
    if super::is_kernels(s, out) || !is_file(from) {
        return count_sent(s, kernel(n));
    }
    let fill = |at: *mut u8, len: usize| {
        if offset.is_null() {
            // SAFETY: `at` is memory of ours with `len` bytes.
            return unsafe { syscall!(read, from, at, len) };
        }
        // SAFETY: the program's offset.
        let position = unsafe { offset.read_unaligned() };
        // SAFETY: `at` is memory of ours with `len` bytes.
        let r = unsafe { syscall!(pread64, from, at, len, position) };
        if let Ok(n) = r {
            // SAFETY: the program's offset.
            unsafe { offset.write_unaligned(position + n.cast_signed() as i64) };
        }
        r
    };
    let put_back = |n: usize| {
        let n = n.cast_signed() as i64;
        if offset.is_null() {
            // SAFETY: no pointers.
            let _ = unsafe { syscall!(lseek, from, -n, libc::SEEK_CUR) };
        } else {
            // SAFETY: the program's offset, which `fill` has written.
            unsafe { offset.write_unaligned(offset.read_unaligned() - n) };
        }
    };
    let by_kernel = |_fd: i32, n: usize| real::result(kernel(n));
    ret(send::send_from(
        s,
        out,
        n.min(MOST),
        fill,
        put_back,
        by_kernel,
    ))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(out: c_int, from: c_int, offset: *mut i64, n: usize) -> isize {
    // SAFETY: an alias: off_t has 64 bits.
    unsafe { sendfile(out, from, offset, n) }
}

/// The kernel moves bytes between the descriptor and something else: the stream has to be its own.
fn to_kernel(fd: c_int, why: Reason) {
    if let Some(s) = table::socket(fd) {
        demote(s, fd, why, Unread::GiveBack);
    }
}

/// Bytes that were received before the stream was the kernel's go into the pipe by a copy. `None` if
/// there are none.
fn splice_kept(
    s: &Socket,
    to: c_int,
    n: usize,
    flags: u32,
) -> Option<transport::sys::Result<usize>> {
    let mut buf = [0u8; 4096];
    let n = n.min(buf.len());
    let mut walk = Walk::one(buf.as_mut_ptr(), n);
    let there = residual::read(s, &mut walk, true, false).filter(|&n| n > 0)?;
    if flags & libc::SPLICE_F_NONBLOCK != 0
        && transport::sys::net::ready_now(to, libc::POLLOUT) & libc::POLLOUT == 0
    {
        return Some(Err(transport::sys::Errno::AGAIN));
    }
    // SAFETY: the buffer holds that many bytes.
    let r = unsafe { syscall!(write, to, buf.as_ptr(), there) };
    if let Ok(written) = r {
        let mut walk = Walk::one(buf.as_mut_ptr(), written);
        residual::read(s, &mut walk, false, true);
    }
    Some(r)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn splice(
    from: c_int,
    off_in: *mut i64,
    to: c_int,
    off_out: *mut i64,
    n: usize,
    flags: u32,
) -> isize {
    to_kernel(from, Reason::Splice);
    to_kernel(to, Reason::Splice);
    if let Some(s) = table::socket(from)
        && off_in.is_null()
        && let Some(r) = splice_kept(s, to, n, flags)
    {
        return ret(r);
    }
    // SAFETY: the program's arguments, passed on.
    unsafe { real::splice(from, off_in, to, off_out, n, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn tee(from: c_int, to: c_int, n: usize, flags: u32) -> isize {
    to_kernel(from, Reason::Splice);
    to_kernel(to, Reason::Splice);
    // SAFETY: the program's arguments, passed on.
    unsafe { real::tee(from, to, n, flags) }
}

/// aio_read and aio_write, whose control block begins with the descriptor.
macro_rules! aio {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(block: *mut c_void) -> c_int {
            if is_good(block.cast(), 4, Access::Read) {
                // SAFETY: probed; the first member of `struct aiocb` is the descriptor.
                to_kernel(unsafe { block.cast::<c_int>().read_unaligned() }, Reason::AsyncIo);
            }
            let next = other::$name.get();
            if next.is_null() {
                set_errno(libc::ENOSYS);
                return -1;
            }
            // SAFETY: libc's function of this name and signature.
            unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> c_int>(next)(block) }
        }
    )*};
}

aio! { aio_read aio_write aio_read64 aio_write64 }

/// lio_listio: a list of such blocks.
macro_rules! lio {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(mode: c_int, list: *const *mut c_void, n: c_int, event: *mut c_void) -> c_int {
            let count = usize::try_from(n).unwrap_or(0);
            if is_good(list.cast(), count * size_of::<usize>(), Access::Read) {
                for i in 0..count {
                    // SAFETY: probed.
                    let block = unsafe { *list.add(i) };
                    if is_good(block.cast(), 4, Access::Read) {
                        // SAFETY: probed.
                        to_kernel(unsafe { block.cast::<c_int>().read_unaligned() }, Reason::AsyncIo);
                    }
                }
            }
            let next = other::$name.get();
            if next.is_null() {
                set_errno(libc::ENOSYS);
                return -1;
            }
            // SAFETY: libc's function of this name and signature.
            unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int, *const *mut c_void, c_int, *mut c_void) -> c_int>(next)(mode, list, n, event)
            }
        }
    )*};
}

lio! { lio_listio lio_listio64 }
