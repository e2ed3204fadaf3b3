//! Asks the kernel whose a TCP socket is (`sock_diag`, netlink(7)). Works without privileges; the
//! answer is the kernel's, never the other end's word.

use super::fd::{Fd, Room};
use super::mem::Mapping;
use super::net::Endpoint;
use super::{Errno, Result, net};
use crate::syscall;
use std::cell::Cell;

/// Octets that a part of a list of sockets may have.
const DUMP: usize = 16_384;

const INET_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const TCP_LISTEN_BIT: u32 = 1 << 10;
const ANY_COOKIE: u32 = u32::MAX;

/// What the kernel says of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Inode number of the socket, its identity; 0 while nobody holds it (not yet accepted).
    pub inode: u32,
    /// The user that created it.
    pub uid: u32,
    /// Whether it listens.
    pub listening: bool,
    /// Whether it has ended its direction, by shutdown or close.
    pub ended: bool,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Request {
    // nlmsghdr
    len: u32,
    kind: u16,
    flags: u16,
    seq: u32,
    pid: u32,
    // inet_diag_req_v2
    family: u8,
    protocol: u8,
    ext: u8,
    pad: u8,
    states: u32,
    // inet_diag_sockid
    sport: [u8; 2],
    dport: [u8; 2],
    src: [u8; 16],
    dst: [u8; 16],
    interface: u32,
    cookie: [u32; 2],
}

fn address(e: &Endpoint) -> [u8; 16] {
    if !e.is_v4() {
        return e.ip;
    }
    let mut out = [0; 16];
    let [.., a, b, c, d] = e.ip;
    out[..4].copy_from_slice(&[a, b, c, d]);
    out
}

fn request(src: &Endpoint, dst: &Endpoint, flags: u16, states: u32) -> Request {
    #[allow(clippy::cast_possible_truncation)]
    Request {
        len: size_of::<Request>() as u32,
        kind: SOCK_DIAG_BY_FAMILY,
        flags: NLM_F_REQUEST | flags,
        seq: 0,
        pid: 0,
        family: if src.is_v4() {
            libc::AF_INET as u8
        } else {
            libc::AF_INET6 as u8
        },
        protocol: libc::IPPROTO_TCP as u8,
        ext: 0,
        pad: 0,
        states,
        sport: src.port.to_be_bytes(),
        dport: dst.port.to_be_bytes(),
        src: address(src),
        dst: address(dst),
        interface: 0,
        cookie: [ANY_COOKIE; 2],
    }
}

fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(b.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(b.get(at..at + 4)?.try_into().ok()?))
}

/// Header 16, then inet_diag_msg: family, state, timer, retrans, id (48), expires, rqueue, wqueue, uid,
/// inode. With the socket's own address.
fn parse(message: &[u8]) -> Option<(Owner, Endpoint)> {
    const ESTABLISHED: u8 = 1;
    const CLOSE_WAIT: u8 = 8;
    const LISTEN: u8 = 10;
    let body = message.get(16..)?;
    let state = *body.get(1)?;
    let owner = Owner {
        uid: u32_at(body, 4 + 48 + 12)?,
        inode: u32_at(body, 4 + 48 + 16)?,
        listening: state == LISTEN,
        ended: !matches!(state, ESTABLISHED | CLOSE_WAIT | LISTEN),
    };
    let port = u16::from_be_bytes(body.get(4..6)?.try_into().ok()?);
    let address: [u8; 16] = body.get(8..24)?.try_into().ok()?;
    let ip = match (i32::from(*body.first()?), address) {
        (libc::AF_INET, [a, b, c, d, ..]) => {
            let ip = std::net::Ipv4Addr::new(a, b, c, d);
            ip.to_ipv6_mapped().octets()
        }
        _ => address,
    };
    Some((owner, Endpoint { ip, port }))
}

/// The kernel's socket table of this network namespace. Used by one thread at a time.
#[derive(Debug)]
pub struct Diag {
    socket: Fd,
    /// The number of the last request, which stands in all of its answer.
    asked: Cell<u32>,
}

impl Diag {
    /// # Errors
    /// Where the kernel has no `sock_diag`.
    pub fn open() -> Result<Self> {
        let make = || net::socket(libc::AF_NETLINK, libc::SOCK_DGRAM, INET_DIAG).map(Fd::hide);
        let socket = match make() {
            // (as ever when a server asks that accepts whenever it has a number left: what it has accepted has taken that)
            Err(Errno(libc::EMFILE)) => {
                let _room = Room::make();
                make()
            }
            made => made,
        }?;
        let asked = Cell::new(0);
        Ok(Self { socket, asked })
    }

    /// The descriptor, to be kept from the program.
    #[must_use]
    pub const fn raw(&self) -> i32 {
        self.socket.raw()
    }

    fn send(&self, mut r: Request) -> Result<()> {
        self.asked.set(self.asked.get().wrapping_add(1));
        r.seq = self.asked.get();
        let bytes = (&raw const r).cast::<u8>();
        // SAFETY: `r` is a plain structure of integers, readable for its size.
        unsafe {
            net::send(
                self.socket.raw(),
                bytes,
                size_of::<Request>(),
                libc::MSG_NOSIGNAL,
            )
        }
        .map(drop)
    }

    /// A part of the answer to the last request. What is left of others, that came to no good end, is passed over.
    fn receive<'a>(&self, buf: &'a mut [u8]) -> Result<&'a [u8]> {
        // The kernel answers while the request is being sent, or, in parts, while they are fetched: nothing here waits.
        let flags = libc::MSG_DONTWAIT;
        loop {
            // SAFETY: `buf` is writable for its length.
            let n = unsafe { net::recv(self.socket.raw(), buf.as_mut_ptr(), buf.len(), flags) }?;
            if buf.get(..n).and_then(|b| u32_at(b, 8)) == Some(self.asked.get()) {
                return buf.get(..n).ok_or(Errno::INVAL);
            }
        }
    }

    /// The socket with this 4-tuple; with a `dst` of zeros, the one that listens for `src`.
    ///
    /// # Errors
    /// ENOENT if there is none.
    pub fn find(&self, src: &Endpoint, dst: &Endpoint) -> Result<Owner> {
        self.find_bound(src, dst).map(|(owner, _)| owner)
    }

    /// [`Self::find`], with the address that the socket is bound to: all zeros for any.
    ///
    /// # Errors
    /// ENOENT if there is none.
    pub fn find_bound(&self, src: &Endpoint, dst: &Endpoint) -> Result<(Owner, Endpoint)> {
        self.send(request(src, dst, 0, u32::MAX))?;
        let mut buf = [0u8; 1024];
        let answer = self.receive(&mut buf)?;
        if u16_at(answer, 4) == Some(NLMSG_ERROR) {
            let code = u32_at(answer, 16).unwrap_or(0).cast_signed();
            return Err(Errno(-code));
        }
        parse(answer).ok_or(Errno::INVAL)
    }

    /// Every socket that listens on `port`, of the family of `like` (a dual-stack listener for IPv4 is
    /// found under IPv6: ask for both).
    ///
    /// # Errors
    /// As netlink.
    pub fn listeners(&self, like: &Endpoint, mut each: impl FnMut(Owner)) -> Result<()> {
        self.listening(like, |owner, at| {
            if at.port == like.port {
                each(owner);
            }
        })
    }

    /// Every socket that listens and is bound to this very address and port: with SO_REUSEPORT there are several.
    ///
    /// # Errors
    /// As netlink.
    pub fn listeners_at(&self, bound: &Endpoint, mut each: impl FnMut(Owner)) -> Result<()> {
        let mut those = |owner, at| {
            if at == *bound {
                each(owner);
            }
        };
        self.listening(bound, &mut those)?;
        if bound.is_v4() {
            // An IPv6 socket may be bound to an IPv4 address.
            let v6 = Endpoint {
                ip: [0; 16],
                port: bound.port,
            };
            self.listening(&v6, those)?;
        }
        Ok(())
    }

    /// Every socket of a family that listens.
    fn listening(&self, like: &Endpoint, mut each: impl FnMut(Owner, Endpoint)) -> Result<()> {
        let zero = Endpoint {
            ip: like.ip,
            port: 0,
        };
        let mut r = request(like, &zero, NLM_F_DUMP, TCP_LISTEN_BIT);
        (r.src, r.dst) = ([0; 16], [0; 16]);
        // (not on the stack: a thread of the program may have 16 KiB in all)
        let room = Mapping::private(DUMP)?;
        self.send(r)?;
        loop {
            // SAFETY: fresh memory of that size, which nobody else sees.
            let buf = unsafe { std::slice::from_raw_parts_mut(room.base().as_ptr(), DUMP) };
            let mut rest = self.receive(buf)?;
            while let (Some(len), Some(kind)) = (u32_at(rest, 0), u16_at(rest, 4)) {
                let len = len as usize;
                if kind == NLMSG_DONE || kind == NLMSG_ERROR || len < 16 {
                    return Ok(());
                }
                if let Some((owner, at)) = rest.get(..len).and_then(parse) {
                    each(owner, at);
                }
                rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
            }
        }
    }
}

/// What the kernel says of a TCP connection that this process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// There is another end, or was: not while connecting, nor after a reset.
    pub connected: bool,
    /// Bytes written to it.
    pub sent: u64,
    /// Bytes that arrived, read or not.
    pub received: u64,
}

/// How fast words go between the two ends of a TCP connection, and since when the other has sent nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// From here to there and back (µs).
    pub round_trip: u32,
    /// ms.
    pub silent: u32,
}

/// That, according to the kernel.
#[must_use]
pub fn pace(fd: i32) -> Option<Pace> {
    let (info, _) = tcp_info(fd)?;
    Some(Pace {
        round_trip: u32_at(&info, 68)?,
        silent: u32_at(&info, 52)?,
    })
}

/// linux/tcp.h, `struct tcp_info`, and how much of it the kernel knows.
fn tcp_info(fd: i32) -> Option<([u8; 256], usize)> {
    let mut info = [0u8; 256];
    let mut len: libc::socklen_t = 256;
    // SAFETY: both out-parameters are valid for what their length says.
    unsafe {
        syscall!(
            getsockopt,
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr(),
            &raw mut len
        )
    }
    .ok()?;
    Some((info, len as usize))
}

/// How many bytes have been taken off a TCP connection here, as far as the kernel can say: not of one that was reset, nor behind an
/// urgent byte, where it counts none of what has come.
#[must_use]
pub fn taken(fd: i32) -> Option<u64> {
    // States that follow the peer's FIN, which counts as a byte.
    const ENDED: [u8; 4] = [6, 8, 9, 11];
    const LOOKS: usize = 8;
    for _ in 0..LOOKS {
        let first = carried(fd)?;
        let here = net::unread(fd) as u64;
        let (info, _) = tcp_info(fd)?;
        let ended = ENDED.contains(info.first()?);
        // (more may have come between the looks, or its end)
        if carried(fd)?.received == first.received {
            if net::urgent(fd).is_some() {
                return None;
            }
            return first.received.checked_sub(here + u64::from(ended));
        }
    }
    None
}

/// How many bytes a TCP connection has carried according to the kernel.
#[must_use]
pub fn carried(fd: i32) -> Option<Carried> {
    const SYN_SENT: u8 = 2;
    const CLOSE: u8 = 7;
    let (info, len) = tcp_info(fd)?;
    if len < 224 {
        return None; // a kernel before 4.19 does not count
    }
    let u64_at = |at: usize| Some(u64::from_ne_bytes(info.get(at..at + 8)?.try_into().ok()?));
    let unsent = u64::from(u32_at(&info, 144)?);
    let sent = u64_at(200)?;
    let resent = u64_at(208)?;
    Some(Carried {
        connected: !matches!(info, [SYN_SENT | CLOSE, ..]),
        sent: sent.saturating_sub(resent) + unsent,
        received: u64_at(128)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_request_left_is_passed_over() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = net::local(std::os::fd::AsRawFd::as_raw_fd(&listener)).unwrap();
        let any = Endpoint {
            ip: std::net::Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().octets(),
            port: 0,
        };
        let nobody = Endpoint { port: 1, ..at };
        let diag = Diag::open().unwrap();
        let expected = diag.find(&at, &any).unwrap();
        assert!(expected.listening);
        // Neither of these is read: one that there is none, and all that listen.
        diag.send(request(&nobody, &any, 0, u32::MAX)).unwrap();
        diag.send(request(&at, &any, NLM_F_DUMP, TCP_LISTEN_BIT))
            .unwrap();
        assert_eq!(diag.find(&at, &any), Ok(expected));
        assert_eq!(diag.find(&nobody, &any), Err(Errno(libc::ENOENT)));
        let mut found = Vec::new();
        diag.listeners(&at, |o| found.push(o)).unwrap();
        assert!(found.contains(&expected));
    }
}
