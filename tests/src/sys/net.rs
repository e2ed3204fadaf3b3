//! Sockets: making, naming, connecting, options, closing.

use super::{Fd, Ret, call};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Missing from the libc crate.
pub const SIOCATMARK: u64 = 0x8905;

pub const STREAM: i32 = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;

/// A socket address in the kernel's form.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct RawAddr {
    bytes: [u8; 128],
    pub len: libc::socklen_t,
}

impl std::fmt::Debug for RawAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.decode())
    }
}

impl RawAddr {
    pub fn empty() -> Self {
        Self {
            bytes: [0; 128],
            len: 128,
        }
    }

    pub fn new(addr: SocketAddr) -> Self {
        let mut raw = Self::empty();
        raw.bytes[2..4].copy_from_slice(&addr.port().to_be_bytes());
        let family = match addr.ip() {
            IpAddr::V4(ip) => {
                raw.bytes[4..8].copy_from_slice(&ip.octets());
                raw.len = 16;
                libc::AF_INET
            }
            IpAddr::V6(ip) => {
                raw.bytes[8..24].copy_from_slice(&ip.octets());
                raw.len = 28;
                libc::AF_INET6
            }
        };
        raw.bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        raw
    }

    pub fn ptr(&self) -> *const libc::sockaddr {
        self.bytes.as_ptr().cast()
    }

    pub fn ptr_mut(&mut self) -> *mut libc::sockaddr {
        self.bytes.as_mut_ptr().cast()
    }

    pub fn decode(&self) -> SocketAddr {
        let b = &self.bytes;
        let port = u16::from_be_bytes([b[2], b[3]]);
        if i32::from(u16::from_ne_bytes([b[0], b[1]])) == libc::AF_INET6 {
            let mut octets = [0u8; 16];
            octets.copy_from_slice(&b[8..24]);
            SocketAddr::new(Ipv6Addr::from(octets).into(), port)
        } else {
            SocketAddr::new(Ipv4Addr::new(b[4], b[5], b[6], b[7]).into(), port)
        }
    }
}

pub fn socket_for(addr: SocketAddr, flags: i32) -> Fd {
    let family = if addr.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    call!(libc::socket(family, STREAM | flags, 0)).fd()
}

pub fn bind(fd: Fd, addr: SocketAddr) -> Ret {
    let raw = RawAddr::new(addr);
    call!(libc::bind(fd, raw.ptr(), raw.len))
}

pub fn listen(fd: Fd, backlog: i32) -> Ret {
    call!(libc::listen(fd, backlog))
}

pub fn connect(fd: Fd, addr: SocketAddr) -> Ret {
    let raw = RawAddr::new(addr);
    call!(libc::connect(fd, raw.ptr(), raw.len))
}

pub fn accept(fd: Fd) -> Ret {
    call!(libc::accept(fd, std::ptr::null_mut(), std::ptr::null_mut()))
}

pub fn accept4(fd: Fd, flags: i32) -> (Ret, SocketAddr) {
    let mut raw = RawAddr::empty();
    let len = &raw mut raw.len;
    let r = call!(libc::accept4(fd, raw.ptr_mut(), len, flags));
    (r, raw.decode())
}

pub fn getsockname(fd: Fd) -> SocketAddr {
    let mut raw = RawAddr::empty();
    let len = &raw mut raw.len;
    call!(libc::getsockname(fd, raw.ptr_mut(), len)).ok();
    raw.decode()
}

pub fn getpeername(fd: Fd) -> Result<SocketAddr, Ret> {
    let mut raw = RawAddr::empty();
    let len = &raw mut raw.len;
    let r = call!(libc::getpeername(fd, raw.ptr_mut(), len));
    if r.0 == 0 { Ok(raw.decode()) } else { Err(r) }
}

pub fn shutdown(fd: Fd, how: i32) -> Ret {
    call!(libc::shutdown(fd, how))
}

pub fn close(fd: Fd) -> Ret {
    call!(libc::close(fd))
}

pub fn setopt(fd: Fd, level: i32, name: i32, value: i32) -> Ret {
    call!(libc::setsockopt(
        fd,
        level,
        name,
        (&raw const value).cast(),
        4
    ))
}

pub fn getopt(fd: Fd, level: i32, name: i32) -> (Ret, i32) {
    let mut value = 0i32;
    let mut len: libc::socklen_t = 4;
    let r = call!(libc::getsockopt(
        fd,
        level,
        name,
        (&raw mut value).cast(),
        &raw mut len
    ));
    (r, value)
}

/// `SO_ERROR` by name; reading it clears it.
pub fn so_error(fd: Fd) -> String {
    let (r, value) = getopt(fd, libc::SOL_SOCKET, libc::SO_ERROR);
    if r.0 == 0 {
        Ret(-i64::from(value)).to_string()
    } else {
        format!("getsockopt {r}")
    }
}

pub fn linger(fd: Fd, on: bool, seconds: i32) -> Ret {
    let value = libc::linger {
        l_onoff: i32::from(on),
        l_linger: seconds,
    };
    let len = size_of::<libc::linger>() as libc::socklen_t;
    let at = &raw const value;
    call!(libc::setsockopt(
        fd,
        libc::SOL_SOCKET,
        libc::SO_LINGER,
        at.cast(),
        len
    ))
}

/// Sets SO_RCVTIMEO or SO_SNDTIMEO.
pub fn set_timeout(fd: Fd, name: i32, millis: i64) -> Ret {
    let value = libc::timeval {
        tv_sec: millis / 1000,
        tv_usec: millis % 1000 * 1000,
    };
    let len = size_of::<libc::timeval>() as libc::socklen_t;
    call!(libc::setsockopt(
        fd,
        libc::SOL_SOCKET,
        name,
        (&raw const value).cast(),
        len
    ))
}

pub fn get_timeout(fd: Fd, name: i32) -> (i64, i64) {
    let mut value = libc::timeval {
        tv_sec: -1,
        tv_usec: -1,
    };
    let mut len = size_of::<libc::timeval>() as libc::socklen_t;
    let at = &raw mut value;
    call!(libc::getsockopt(
        fd,
        libc::SOL_SOCKET,
        name,
        at.cast(),
        &raw mut len
    ))
    .ok();
    (value.tv_sec, value.tv_usec)
}

pub fn set_nonblocking(fd: Fd, on: bool) -> Ret {
    let flags = call!(libc::fcntl(fd, libc::F_GETFL)).ok() as i32;
    let flags = if on {
        flags | libc::O_NONBLOCK
    } else {
        flags & !libc::O_NONBLOCK
    };
    call!(libc::fcntl(fd, libc::F_SETFL, flags))
}

pub fn is_nonblocking(fd: Fd) -> bool {
    call!(libc::fcntl(fd, libc::F_GETFL)).ok() as i32 & libc::O_NONBLOCK != 0
}

pub fn fionbio(fd: Fd, on: bool) -> Ret {
    let mut value = i32::from(on);
    call!(libc::ioctl(fd, libc::FIONBIO, &raw mut value))
}

/// An ioctl that writes one int: FIONREAD, SIOCOUTQ, SIOCATMARK.
pub fn ioctl_int(fd: Fd, request: u64) -> (Ret, i32) {
    let mut value = -1i32;
    let r = call!(libc::ioctl(fd, request, &raw mut value));
    (r, value)
}

pub fn queued(fd: Fd) -> i32 {
    ioctl_int(fd, libc::FIONREAD).1
}

pub fn dup(fd: Fd) -> Ret {
    call!(libc::dup(fd))
}

pub fn dup2(fd: Fd, to: Fd) -> Ret {
    call!(libc::dup2(fd, to))
}

pub fn dup3(fd: Fd, to: Fd, flags: i32) -> Ret {
    call!(libc::dup3(fd, to, flags))
}

pub fn fcntl(fd: Fd, command: i32, argument: i32) -> Ret {
    call!(libc::fcntl(fd, command, argument))
}

/// A listener on this address (port 0: the kernel chooses); returns where it listens.
pub fn listener(addr: SocketAddr, backlog: i32) -> (Fd, SocketAddr) {
    let fd = socket_for(addr, 0);
    setopt(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).ok();
    bind(fd, addr).ok();
    listen(fd, backlog).ok();
    (fd, getsockname(fd))
}

pub fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A pair of connected descriptors of the local kind, which are never accelerated.
pub fn unix_pair(kind: i32) -> (Fd, Fd) {
    let mut pair = [0; 2];
    let kind = kind | libc::SOCK_CLOEXEC;
    call!(libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr())).ok();
    (pair[0], pair[1])
}

pub fn pipe() -> (Fd, Fd) {
    let mut pair = [0; 2];
    call!(libc::pipe2(pair.as_mut_ptr(), libc::O_CLOEXEC)).ok();
    (pair[0], pair[1])
}
