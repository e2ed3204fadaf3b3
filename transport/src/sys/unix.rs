//! Our own UNIX sockets, by which processes find each other: abstract names, whose the other end is, and
//! messages that carry descriptors.
//!
//! Called by `rendezvous`. All are non-blocking and closed by exec; nothing here waits.

use super::fd::{Fd, as_fd};
use super::net::{self, ready_now, socket};
use super::{Errno, Result};
use crate::syscall;
use std::ptr;

/// Accepts a connection on one of our own listening sockets, if one waits.
///
/// # Errors
/// EAGAIN if none does.
pub fn accept_now(fd: &Fd) -> Result<Fd> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no address is asked for.
    unsafe { syscall!(accept4, fd.raw(), 0, 0, flags) }.map(|r| Fd::own(as_fd(r)))
}

/// Effective user of the other end of a UNIX socket, as the kernel recorded it.
#[must_use]
pub fn peer_user(fd: &Fd) -> Option<u32> {
    let mut cred = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    // SAFETY: any bytes are a ucred.
    unsafe { net::get(fd.raw(), libc::SOL_SOCKET, libc::SO_PEERCRED, &mut cred) }.ok()?;
    Some(cred.uid)
}

/// An address in the abstract UNIX name space.
fn abstract_address(name: &str) -> Result<(libc::sockaddr_un, usize)> {
    // SAFETY: all-zero is a valid sockaddr_un.
    let mut a: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    #[allow(clippy::cast_possible_truncation)]
    {
        a.sun_family = libc::AF_UNIX as libc::sa_family_t;
    }
    let room = a.sun_path.len() - 1;
    if name.len() > room {
        return Err(Errno::INVAL);
    }
    for (to, from) in a.sun_path.iter_mut().skip(1).zip(name.bytes()) {
        *to = from.cast_signed();
    }
    Ok((a, size_of::<libc::sa_family_t>() + 1 + name.len()))
}

/// Binds to an abstract UNIX name and listens.
///
/// # Errors
/// EADDRINUSE if somebody else has the name.
pub fn listen_abstract(name: &str) -> Result<Fd> {
    let (a, len) = abstract_address(name)?;
    let fd = socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0)?;
    // SAFETY: the address is valid for its length.
    unsafe { syscall!(bind, fd.raw(), &raw const a, len) }?;
    // SAFETY: no pointers.
    unsafe { syscall!(listen, fd.raw(), 4096) }?;
    Ok(fd)
}

/// Connects to an abstract UNIX name.
///
/// # Errors
/// ECONNREFUSED if nobody listens there, EAGAIN if its queue is full.
pub fn connect_abstract(name: &str) -> Result<Fd> {
    let (a, len) = abstract_address(name)?;
    let fd = socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0)?;
    // SAFETY: the address is valid for its length.
    unsafe { syscall!(connect, fd.raw(), &raw const a, len) }?;
    Ok(fd)
}

/// Whether the other end of one of our UNIX sockets is gone.
#[must_use]
pub fn hung_up(fd: &Fd) -> bool {
    ready_now(fd.raw(), 0) & (libc::POLLHUP | libc::POLLERR) != 0
}

const CONTROL: usize = 64;

#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// Sends a message with descriptors (up to two) on one of our UNIX sockets.
///
/// # Errors
/// As sendmsg(2).
pub fn send_fds(fd: &Fd, payload: &[u8], fds: &[i32]) -> Result<()> {
    let mut control = Control([0; CONTROL]);
    let mut iov = libc::iovec {
        iov_base: payload.as_ptr().cast_mut().cast(),
        iov_len: payload.len(),
    };
    let mut msg = net::vec_msg(&raw mut iov, 1);
    let bytes = u32::try_from(size_of_val(fds)).map_err(|_| Errno::INVAL)?;
    msg.msg_control = (&raw mut control).cast();
    // SAFETY: the control buffer is large enough for two descriptors, which is the most callers pass.
    unsafe {
        msg.msg_controllen = (libc::CMSG_SPACE(bytes) as usize).min(CONTROL);
        let c = libc::CMSG_FIRSTHDR(&raw const msg);
        if c.is_null() {
            return Err(Errno::INVAL);
        }
        (*c).cmsg_level = libc::SOL_SOCKET;
        (*c).cmsg_type = libc::SCM_RIGHTS;
        (*c).cmsg_len = libc::CMSG_LEN(bytes) as usize;
        ptr::copy_nonoverlapping(
            fds.as_ptr().cast::<u8>(),
            libc::CMSG_DATA(c),
            bytes as usize,
        );
    }
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: `msg` describes live buffers.
    unsafe { syscall!(sendmsg, fd.raw(), &raw const msg, flags) }.map(drop)
}

/// Receives a message with up to two descriptors; returns the payload's length and the descriptors.
///
/// # Errors
/// EAGAIN if there is none yet; EINVAL if the sender passed more than two.
pub fn recv_fds(fd: &Fd, payload: &mut [u8]) -> Result<(usize, [Option<Fd>; 2])> {
    let mut control = Control([0; CONTROL]);
    let mut iov = libc::iovec {
        iov_base: payload.as_mut_ptr().cast(),
        iov_len: payload.len(),
    };
    let mut msg = net::vec_msg(&raw mut iov, 1);
    msg.msg_control = (&raw mut control).cast();
    // SAFETY: a pure size calculation.
    msg.msg_controllen = unsafe { libc::CMSG_SPACE(8) } as usize;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: `msg` describes live buffers.
    let n = unsafe { syscall!(recvmsg, fd.raw(), &raw mut msg, flags) }?;
    let mut out = [None, None];
    // SAFETY: the kernel filled the control buffer; CMSG_FIRSTHDR stays inside it, and the payload's
    // length is bounded by the room given above (two descriptors).
    unsafe {
        let c = libc::CMSG_FIRSTHDR(&raw const msg);
        if !c.is_null() && (*c).cmsg_level == libc::SOL_SOCKET && (*c).cmsg_type == libc::SCM_RIGHTS
        {
            let bytes = (*c).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
            for (i, slot) in out.iter_mut().enumerate().take(bytes / 4) {
                let raw = ptr::read_unaligned(libc::CMSG_DATA(c).cast::<i32>().add(i));
                *slot = Some(Fd::own(raw));
            }
        }
    }
    if msg.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(Errno::INVAL);
    }
    Ok((n, out))
}
