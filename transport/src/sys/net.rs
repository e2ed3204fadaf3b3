//! Sockets: the calls on the program's kernel connection and on our own UNIX sockets.
//!
//! Pointers into the program's memory are passed to the kernel as they came; it answers EFAULT.

use super::fd::{Fd, as_fd};
use super::{Errno, Result};
use crate::syscall;
use std::ptr;

/// Receives into `len` bytes at `buf`.
///
/// # Safety
/// `buf` is the program's pointer, or valid for `len` bytes of writing.
///
/// # Errors
/// As recv(2).
#[inline]
pub unsafe fn recv(fd: i32, buf: *mut u8, len: usize, flags: i32) -> Result<usize> {
    // SAFETY: see the function's contract.
    unsafe { syscall!(recvfrom, fd, buf, len, flags, 0, 0) }
}

/// Sends `len` bytes at `buf`.
///
/// # Safety
/// `buf` is the program's pointer, or valid for `len` bytes of reading.
///
/// # Errors
/// As send(2).
#[inline]
pub unsafe fn send(fd: i32, buf: *const u8, len: usize, flags: i32) -> Result<usize> {
    // SAFETY: see the function's contract.
    unsafe { syscall!(sendto, fd, buf, len, flags, 0, 0) }
}

/// recvmsg(2) on an array of buffers.
///
/// # Safety
/// `iov` has `count` entries; their pointers are the program's.
///
/// # Errors
/// As recvmsg(2).
pub unsafe fn recv_vec(fd: i32, iov: *mut libc::iovec, count: usize, flags: i32) -> Result<usize> {
    let mut msg = vec_msg(iov, count);
    // SAFETY: `msg` describes the caller's array.
    unsafe { syscall!(recvmsg, fd, &raw mut msg, flags) }
}

/// sendmsg(2) on an array of buffers.
///
/// # Safety
/// `iov` has `count` entries; their pointers are the program's.
///
/// # Errors
/// As sendmsg(2).
pub unsafe fn send_vec(fd: i32, iov: *mut libc::iovec, count: usize, flags: i32) -> Result<usize> {
    let msg = vec_msg(iov, count);
    // SAFETY: `msg` describes the caller's array.
    unsafe { syscall!(sendmsg, fd, &raw const msg, flags) }
}

fn vec_msg(iov: *mut libc::iovec, count: usize) -> libc::msghdr {
    // SAFETY: an all-zero msghdr is valid: no name, no control.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = iov;
    msg.msg_iovlen = count;
    msg
}

/// Throws away up to `len` received bytes without copying them.
///
/// # Errors
/// As recv(2).
pub fn discard(fd: i32, len: usize) -> Result<usize> {
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    // SAFETY: with MSG_TRUNC the kernel writes nothing to a TCP reader's buffer.
    unsafe { recv(fd, ptr::null_mut(), len, flags) }
}

/// Bytes that the kernel holds for the reader of this socket.
#[must_use]
pub fn unread(fd: i32) -> usize {
    let mut n: i32 = 0;
    // SAFETY: FIONREAD writes one int.
    let r = unsafe { syscall!(ioctl, fd, libc::FIONREAD, &raw mut n) };
    if r.is_ok() {
        usize::try_from(n).unwrap_or(0)
    } else {
        0
    }
}

/// What a descriptor is ready for now, in poll(2) bits, out of `events` (plus ERR, HUP, NVAL).
#[must_use]
pub fn ready_now(fd: i32, events: i16) -> i16 {
    let mut p = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    let none = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: one pollfd, one timespec, no mask.
    match unsafe { syscall!(ppoll, &raw mut p, 1, &raw const none, 0, 8) } {
        Ok(_) => p.revents,
        Err(_) => 0,
    }
}

/// A socket option that is an int.
///
/// # Errors
/// As getsockopt(2).
pub fn option(fd: i32, level: i32, name: i32) -> Result<i32> {
    let mut v: i32 = 0;
    let mut len: libc::socklen_t = 4;
    // SAFETY: both out-parameters are valid.
    unsafe { syscall!(getsockopt, fd, level, name, &raw mut v, &raw mut len) }?;
    Ok(v)
}

/// Whether calls on the descriptor do not wait.
#[must_use]
pub fn is_nonblocking(fd: i32) -> bool {
    // SAFETY: no pointers.
    unsafe { syscall!(fcntl, fd, libc::F_GETFL) }
        .is_ok_and(|flags| flags & libc::O_NONBLOCK.cast_unsigned() as usize != 0)
}

/// A socket time-out in nanoseconds; 0 for none.
#[must_use]
pub fn timeout(fd: i32, name: i32) -> u64 {
    let mut tv = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    #[allow(clippy::cast_possible_truncation)]
    let mut len = size_of::<libc::timeval>() as libc::socklen_t;
    // SAFETY: both out-parameters are valid.
    let r = unsafe {
        syscall!(
            getsockopt,
            fd,
            libc::SOL_SOCKET,
            name,
            &raw mut tv,
            &raw mut len
        )
    };
    if r.is_err() {
        return 0;
    }
    let secs = u64::try_from(tv.tv_sec).unwrap_or(0);
    let micros = u64::try_from(tv.tv_usec).unwrap_or(0);
    secs.saturating_mul(1_000_000_000)
        .saturating_add(micros * 1000)
}

/// Makes close send a reset.
pub fn reset_on_close(fd: i32) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: the option value is valid for its size.
    let _ = unsafe {
        syscall!(
            setsockopt,
            fd,
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            &raw const linger,
            size_of::<libc::linger>()
        )
    };
}

/// One end of a TCP connection, IPv4 as IPv4-mapped IPv6 so that both spellings compare equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Endpoint {
    pub ip: [u8; 16],
    pub port: u16,
}

impl Endpoint {
    /// Whether the address is of the loopback range.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.std().ip().to_canonical().is_loopback()
    }

    /// Whether it names one host and port: not an address of all zeros, which stands for others.
    #[must_use]
    pub fn is_specified(&self) -> bool {
        self.port != 0 && !self.std().ip().is_unspecified()
    }

    /// The same as the standard library's type, which prints itself.
    #[must_use]
    pub fn std(&self) -> std::net::SocketAddr {
        let ip = std::net::Ipv6Addr::from(self.ip).to_canonical();
        std::net::SocketAddr::new(ip, self.port)
    }

    /// IPv4?
    #[must_use]
    pub fn is_v4(&self) -> bool {
        std::net::Ipv6Addr::from(self.ip).to_ipv4_mapped().is_some()
    }

    /// Reads a socket address; nothing for other families.
    ///
    /// # Safety
    /// `addr` is valid for `len` bytes of reading.
    #[must_use]
    pub unsafe fn from_raw(addr: *const libc::sockaddr, len: usize) -> Option<Self> {
        if addr.is_null() || len < size_of::<libc::sa_family_t>() {
            return None;
        }
        // SAFETY: `len` covers the family.
        let family = i32::from(unsafe { ptr::read_unaligned(addr.cast::<libc::sa_family_t>()) });
        if family == libc::AF_INET && len >= size_of::<libc::sockaddr_in>() {
            // SAFETY: `len` covers the structure.
            let a = unsafe { ptr::read_unaligned(addr.cast::<libc::sockaddr_in>()) };
            let v4 = std::net::Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr));
            Some(Self {
                ip: v4.to_ipv6_mapped().octets(),
                port: u16::from_be(a.sin_port),
            })
        } else if family == libc::AF_INET6 && len >= 24 {
            // SAFETY: the first 24 bytes hold port and address; the scope is not read.
            let a = unsafe { ptr::read_unaligned(addr.cast::<[u8; 24]>()) };
            let mut ip = [0; 16];
            ip.copy_from_slice(&a[8..24]);
            Some(Self {
                ip,
                port: u16::from_be_bytes([a[2], a[3]]),
            })
        } else {
            None
        }
    }
}

/// This end's address.
#[must_use]
pub fn local(fd: i32) -> Option<Endpoint> {
    name(fd, Sysno::getsockname)
}

/// The other end's address.
#[must_use]
pub fn peer(fd: i32) -> Option<Endpoint> {
    name(fd, Sysno::getpeername)
}

use super::Sysno;

fn name(fd: i32, nr: Sysno) -> Option<Endpoint> {
    // SAFETY: all-zero is a valid sockaddr_storage.
    let mut ss: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    #[allow(clippy::cast_possible_truncation)]
    let mut len = size_of_val(&ss) as libc::socklen_t;
    // SAFETY: both out-parameters are valid.
    unsafe { super::call(nr, crate::words!(fd, &raw mut ss, &raw mut len)) }.ok()?;
    // SAFETY: the storage is larger than any address.
    unsafe { Endpoint::from_raw((&raw const ss).cast(), len as usize) }
}

/// Accepts a connection on one of our own listening sockets, if one waits.
///
/// # Errors
/// EAGAIN if none does.
pub fn accept_now(fd: &Fd) -> Result<Fd> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no address is asked for.
    unsafe { syscall!(accept4, fd.raw(), 0, 0, flags) }.map(|r| Fd::own(as_fd(r)))
}

/// Creates a socket of our own: non-blocking, close-on-exec.
///
/// # Errors
/// As socket(2).
pub fn socket(family: i32, kind: i32, protocol: i32) -> Result<Fd> {
    let kind = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    unsafe { syscall!(socket, family, kind, protocol) }.map(|r| Fd::own(as_fd(r)))
}

/// Effective user of the other end of a UNIX socket, as the kernel recorded it.
#[must_use]
pub fn peer_user(fd: &Fd) -> Option<u32> {
    let mut cred = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    #[allow(clippy::cast_possible_truncation)]
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both out-parameters are valid.
    unsafe {
        syscall!(
            getsockopt,
            fd.raw(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            &raw mut cred,
            &raw mut len
        )
    }
    .ok()?;
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
    let mut msg = vec_msg(&raw mut iov, 1);
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
    let mut msg = vec_msg(&raw mut iov, 1);
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

/// Resets a connection.
pub fn disconnect(fd: i32) {
    // SAFETY: all-zero is an address of family AF_UNSPEC.
    let nowhere: libc::sockaddr = unsafe { std::mem::zeroed() };
    // SAFETY: the address is valid for its size.
    let _ = unsafe { syscall!(connect, fd, &raw const nowhere, size_of::<libc::sockaddr>()) };
}

/// Whether close would reset the connection (SO_LINGER with 0 seconds).
#[must_use]
pub fn lingers_zero(fd: i32) -> bool {
    let mut linger = libc::linger {
        l_onoff: 0,
        l_linger: 0,
    };
    #[allow(clippy::cast_possible_truncation)]
    let mut len = size_of::<libc::linger>() as libc::socklen_t;
    // SAFETY: both out-parameters are valid.
    let r = unsafe {
        syscall!(
            getsockopt,
            fd,
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            &raw mut linger,
            &raw mut len
        )
    };
    r.is_ok() && linger.l_onoff != 0 && linger.l_linger == 0
}

/// Makes the kernel wake sleepers for every byte, whatever low-water mark the program has set.
pub fn wake_at_once(fd: i32) {
    set_lowat(fd, 1);
}

/// Sets the kernel's low-water mark.
pub fn set_lowat(fd: i32, bytes: i32) {
    // SAFETY: the option value is valid for its size.
    let _ = unsafe {
        syscall!(
            setsockopt,
            fd,
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            &raw const bytes,
            4
        )
    };
}

/// Sets an int option of TCP.
pub fn set_tcp(fd: i32, name: i32, value: bool) {
    let value = i32::from(value);
    // SAFETY: the option value is valid for its size.
    let _ = unsafe { syscall!(setsockopt, fd, libc::IPPROTO_TCP, name, &raw const value, 4) };
}
