//! recvmsg, sendmsg and their kin that take several messages.
//!
//! A stream has no addresses and no control data of its own: what is asked for comes back empty, and
//! whoever wants to send some is the kernel's. On other descriptors only those that are passed matter.

use super::vector::{FAULTS_BELOW, fail, walk};
use super::waiting::{from_timespec, to_timespec};
use super::{count_sent, is_kernels, receive, receive_bad, transmit, transmit_bad};
use crate::probe::{Access, is_good};
use crate::real;
use crate::sockets::demote::{Unread, demote};
use crate::sockets::{Phase, Socket, options, sizes};
use crate::table;
use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::Ordering;
use transport::reason::Reason;
use transport::sys::Errno;

/// MSG_CMSG_COMPAT: the kernel's own, with which it takes no message from a program.
const REFUSED: c_int = c_int::MIN;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, msg: *mut libc::msghdr, flags: c_int) -> isize {
    let asked = Cell::new(false);
    let kernel = || {
        asked.set(true);
        // SAFETY: the program's arguments, passed on.
        unsafe { real::recvmsg(fd, msg, flags) }
    };
    let Some(s) = table::called(fd) else {
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
    // SAFETY: probed.
    let name = unsafe { ((*msg).msg_name, (*msg).msg_namelen.cast_signed()) };
    let refused = !name.0.is_null() && name.1 < 0;
    if flags & (libc::MSG_ERRQUEUE | REFUSED) != 0 || refused {
        return kernel();
    }
    // SAFETY: probed.
    if unsafe { (*msg).msg_controllen } > 0 {
        options::before_control(s, fd);
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
            // (bytes may be kept here of a stream that is the kernel's by now)
            if r >= 0 && (s.phase() != Phase::Plain || !asked.get()) {
                // SAFETY: probed.
                let m = unsafe { &mut *msg };
                m.msg_namelen = 0;
                m.msg_flags = flags & libc::MSG_CMSG_CLOEXEC;
                // SAFETY: probed inside.
                unsafe { tell_left(s, fd, m, r > 0) };
            }
            r
        }
        Err(e) => fail(e),
    }
}

/// The control data of a message received: none, but how much is left for who has asked for that (TCP_INQ).
///
/// # Safety
/// The message is the program's; its control buffer is probed here.
unsafe fn tell_left(s: &'static Socket, fd: c_int, m: &mut libc::msghdr, came: bool) {
    let room = std::mem::take(&mut m.msg_controllen);
    let tells = s.tells.load(Ordering::Relaxed);
    if tells & options::TELLS_WHEN != 0 && came && room < size_of::<libc::cmsghdr>() {
        m.msg_flags |= libc::MSG_CTRUNC; // (`options::before_control`)
    }
    if tells & options::TELLS_LEFT == 0 {
        return;
    }
    // SAFETY: arithmetic.
    let (len, space) = unsafe { (libc::CMSG_LEN(4) as usize, libc::CMSG_SPACE(4) as usize) };
    if room < len || !is_good(m.msg_control.cast(), len, Access::Write) {
        m.msg_flags |= libc::MSG_CTRUNC;
        return;
    }
    let left = sizes::countable(s, fd);
    // (as the kernel hints: where nothing is left but the end, there is something to read)
    let left = if left == 0 && options::has_ended(s, fd) {
        1
    } else {
        left
    };
    let header: *mut libc::cmsghdr = m.msg_control.cast();
    // SAFETY: probed; the header may stand anywhere.
    unsafe {
        (&raw mut (*header).cmsg_len).write_unaligned(len);
        (&raw mut (*header).cmsg_level).write_unaligned(libc::IPPROTO_TCP);
        (&raw mut (*header).cmsg_type).write_unaligned(options::TCP_INQ);
        let data = header.add(1).cast::<c_int>();
        data.write_unaligned(c_int::try_from(left).unwrap_or(c_int::MAX));
    }
    m.msg_controllen = space.min(room);
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
    let Some(s) = table::called(fd) else {
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
        Ok((w, false)) if w.left() < FAULTS_BELOW => transmit_bad(s, fd, flags, kernel),
        // SAFETY: probed.
        Ok((mut w, _)) => unsafe { transmit(s, fd, &mut w, flags, kernel) },
        Err(e) => fail(e),
    }
}

/// Does `one` with message after message, as long as `on` says so of the length that it moved. Says how
/// many were done: an error shows only where that is none.
///
/// # Safety
/// `msgs` is the program's array of `n`; probed here, message by message.
unsafe fn each(
    msgs: *mut libc::mmsghdr,
    n: u32,
    mut one: impl FnMut(*mut libc::msghdr) -> isize,
    on: impl Fn(u32) -> bool,
) -> c_int {
    let mut done = 0;
    while done < n.min(1024) {
        let at = msgs.wrapping_add(done as usize);
        let r = if is_good(at.cast(), size_of::<libc::mmsghdr>(), Access::Write) {
            // SAFETY: probed.
            one(unsafe { &raw mut (*at).msg_hdr })
        } else {
            fail(Errno::FAULT)
        };
        let Ok(len) = u32::try_from(r) else {
            return if done > 0 { done.cast_signed() } else { -1 };
        };
        // SAFETY: probed.
        unsafe { (*at).msg_len = len };
        done += 1;
        if !on(len) {
            break;
        }
    }
    done.cast_signed()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    msgs: *mut libc::mmsghdr,
    n: u32,
    flags: c_int,
    time: *mut libc::timespec,
) -> c_int {
    let Some(s) = table::called(fd) else {
        // SAFETY: the program's arguments, passed on.
        let r = unsafe { real::recvmmsg(fd, msgs, n, flags, time) };
        for i in 0..usize::try_from(r).unwrap_or(0) {
            // SAFETY: the kernel has just written to it.
            unsafe {
                let msg = &raw const (*msgs.add(i)).msg_hdr;
                if (*msg).msg_controllen > 0 {
                    super::fds::received(msg);
                }
            }
        }
        return r;
    };
    let one_is_enough = flags & libc::MSG_WAITFORONE != 0;
    let mut flags = flags & !libc::MSG_WAITFORONE;
    // SAFETY: probed inside.
    let left = match unsafe { from_timespec(time) } {
        Ok(left) => left,
        Err(e) => return super::waiting::fail(e),
    };
    // (the kernel tells an error that waits before any bytes, which recvmsg does not)
    if flags & libc::MSG_ERRQUEUE == 0
        && (is_kernels(s, fd) || s.phase() != Phase::Attached || options::may_have_error(s, fd))
        && !crate::signals::is_sandboxed()
        && let Some(e) = options::take_error(s, fd)
    {
        return super::waiting::fail(e.0);
    }
    let now = transport::clock::monotonic_ns;
    let deadline = left.map_or(u64::MAX, |left| now().saturating_add(left));
    let one = |msg: *mut libc::msghdr| {
        // SAFETY: probed.
        let r = unsafe { recvmsg(fd, msg, flags) };
        if one_is_enough {
            flags |= libc::MSG_DONTWAIT;
        }
        r
    };
    // (an end is a message too: the kernel looks for the others all the same)
    let on = |_| left.is_none() || now() < deadline;
    // SAFETY: the program's array, probed inside.
    let done = unsafe { each(msgs, n, one, on) };
    if done > 0 && left.is_some() {
        if !is_good(time.cast(), size_of::<libc::timespec>(), Access::Write) {
            return super::waiting::fail(libc::EFAULT);
        }
        // SAFETY: probed.
        unsafe { time.write_unaligned(to_timespec(deadline.saturating_sub(now()))) };
    }
    done
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(
    fd: c_int,
    msgs: *mut libc::mmsghdr,
    n: u32,
    flags: c_int,
) -> c_int {
    if table::socket(fd).is_none() {
        for i in 0..n.min(1024) as usize {
            let at = msgs.wrapping_add(i);
            if is_good(at.cast(), size_of::<libc::mmsghdr>(), Access::Read) {
                // SAFETY: probed.
                unsafe { super::fds::passing(&raw const (*at).msg_hdr) };
            }
        }
        // SAFETY: the program's arguments, passed on.
        return unsafe { real::sendmmsg(fd, msgs, n, flags) };
    }
    // (what comes behind a message that went in part would stand in its place: the kernel ends there too)
    let asked = Cell::new(None);
    let one = |msg: *mut libc::msghdr| {
        // SAFETY: probed.
        let (iov, count) = unsafe { ((*msg).msg_iov, (*msg).msg_iovlen) };
        // SAFETY: the program's array, probed inside.
        let all = unsafe { walk(iov, count, Access::Read, libc::EMSGSIZE) };
        asked.set(all.ok().filter(|(_, whole)| *whole).map(|(w, _)| w.left()));
        // SAFETY: probed.
        unsafe { sendmsg(fd, msg, flags) }
    };
    let on = |sent: u32| asked.get() == Some(sent as usize);
    // SAFETY: the program's array, probed inside.
    unsafe { each(msgs, n, one, on) }
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
