//! UDP sockets of our own, for the port mapper's questions: one that asks, one that answers.
//!
//! Called by `mapping`. Both are non-blocking and closed by exec; nothing here waits.

use super::fd::Fd;
use super::net::{socket, vec_msg};
use super::{Errno, Result};
use crate::syscall;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Room for a `sockaddr_in6`, which is the longer one.
const ADDRESS: usize = 28;

/// An address as the kernel takes it, and its length.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn encode(address: &SocketAddr) -> ([u8; ADDRESS], usize) {
    let mut out = [0; ADDRESS];
    let (family, len) = match address {
        SocketAddr::V4(a) => {
            out[4..8].copy_from_slice(&a.ip().octets());
            (libc::AF_INET, size_of::<libc::sockaddr_in>())
        }
        SocketAddr::V6(a) => {
            out[8..24].copy_from_slice(&a.ip().octets());
            out[24..28].copy_from_slice(&a.scope_id().to_ne_bytes());
            (libc::AF_INET6, size_of::<libc::sockaddr_in6>())
        }
    };
    out[..2].copy_from_slice(&(family as libc::sa_family_t).to_ne_bytes());
    out[2..4].copy_from_slice(&address.port().to_be_bytes());
    (out, len)
}

fn set(fd: &Fd, level: i32, name: i32, value: i32) -> Result<()> {
    let at = &raw const value;
    // SAFETY: an int, readable for its size.
    unsafe { syscall!(setsockopt, fd.raw(), level, name, at, size_of::<i32>()) }.map(drop)
}

fn bind(fd: &Fd, address: &SocketAddr) -> Result<()> {
    let (bytes, len) = encode(address);
    // SAFETY: the address is readable for its length.
    unsafe { syscall!(bind, fd.raw(), bytes.as_ptr(), len) }.map(drop)
}

/// Room for what the kernel tells about a datagram beside its bytes.
#[repr(C, align(8))]
struct Control([u8; 128]);

/// The header of one such thing: its length, level and type.
const HEADER: usize = size_of::<libc::cmsghdr>();

impl Control {
    /// What is told by this level and type, if it is among the first `len` bytes.
    fn find(&self, len: usize, level: i32, kind: i32) -> Option<&[u8]> {
        let mut rest = self.0.get(..len)?;
        loop {
            let size = usize::from_ne_bytes(*rest.first_chunk()?);
            let at = size_of::<usize>();
            let int = |at: usize| Some(i32::from_ne_bytes(*rest.get(at..)?.first_chunk()?));
            let body = rest.get(HEADER..size)?;
            if (int(at)?, int(at + 4)?) == (level, kind) {
                return Some(body);
            }
            rest = rest.get(size.next_multiple_of(8)..)?;
        }
    }

    /// One such thing, to be told to the kernel; and its length.
    fn of<const N: usize>(level: i32, kind: i32, body: &[u8; N]) -> (Self, usize) {
        const { assert!(HEADER + N <= 128) };
        let mut out = Self([0; 128]);
        let size = HEADER + N;
        let at = size_of::<usize>();
        let (head, rest) = out.0.split_at_mut(HEADER);
        head[..at].copy_from_slice(&size.to_ne_bytes());
        head[at..at + 4].copy_from_slice(&level.to_ne_bytes());
        head[at + 4..].copy_from_slice(&kind.to_ne_bytes());
        rest[..N].copy_from_slice(body);
        (out, size.next_multiple_of(8))
    }
}

/// Receives a datagram with its sender and what is told about it; returns the lengths of both.
fn receive(
    fd: &Fd,
    buf: &mut [u8],
    from: &mut [u8; ADDRESS],
    control: &mut Control,
) -> Result<(usize, usize)> {
    let mut iov = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    };
    let mut msg = vec_msg(&raw mut iov, 1);
    msg.msg_name = from.as_mut_ptr().cast();
    #[allow(clippy::cast_possible_truncation)]
    {
        msg.msg_namelen = ADDRESS as libc::socklen_t;
    }
    msg.msg_control = control.0.as_mut_ptr().cast();
    msg.msg_controllen = control.0.len();
    // (the true length of a datagram that is too long)
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: `msg` describes live buffers of ours.
    let n = unsafe { syscall!(recvmsg, fd.raw(), &raw mut msg, flags) }?;
    Ok((n, msg.msg_controllen))
}

/// A socket that asks one other. It hears nobody else, and is told if nobody is there.
#[derive(Debug)]
pub struct Asking(Fd);

impl Asking {
    /// One for this address; with the address that it asks from.
    ///
    /// # Errors
    /// There is no way there (ENETUNREACH, EINVAL for an address that needs a device), or no descriptor.
    pub fn open(to: &SocketAddr) -> Result<(Self, SocketAddr)> {
        let family = if to.is_ipv4() {
            libc::AF_INET
        } else {
            libc::AF_INET6
        };
        let fd = socket(family, libc::SOCK_DGRAM, 0)?;
        let (bytes, len) = encode(to);
        // SAFETY: the address is readable for its length.
        unsafe { syscall!(connect, fd.raw(), bytes.as_ptr(), len) }?;
        let local = super::net::local(fd.raw()).ok_or(Errno::INVAL)?;
        Ok((Self(fd.hide()), local.std()))
    }

    /// The descriptor, to wait on.
    #[must_use]
    pub const fn raw(&self) -> i32 {
        self.0.raw()
    }

    /// # Errors
    /// As send(2); ECONNREFUSED if an earlier one found nobody.
    pub fn send(&self, bytes: &[u8]) -> Result<()> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: readable for its length.
        unsafe { super::net::send(self.0.raw(), bytes.as_ptr(), bytes.len(), flags) }.map(drop)
    }

    /// A datagram's length, which may be more than there is room for.
    ///
    /// # Errors
    /// EAGAIN if there is none; what ICMP has told.
    pub fn receive(&self, buf: &mut [u8]) -> Result<usize> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: writable for its length.
        unsafe { super::net::recv(self.0.raw(), buf.as_mut_ptr(), buf.len(), flags) }
    }
}

/// A socket that answers at a port, at all addresses of the host.
#[derive(Debug)]
pub struct Answering {
    fd: Fd,
    v6: bool,
}

/// A datagram that came to such a socket.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// Its length, which may be more than there was room for.
    pub len: usize,
    from: [u8; ADDRESS],
    /// Which of the host's addresses it came to.
    pub to: IpAddr,
    device: u32,
}

impl Answering {
    /// # Errors
    /// EADDRINUSE if somebody has the port.
    pub fn open(port: u16) -> Result<Self> {
        match Self::open_v6(port) {
            Err(Errno(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)) => {}
            done => return done,
        }
        Self::open_v4(port)
    }

    /// Where there is no IPv6.
    fn open_v4(port: u16) -> Result<Self> {
        let fd = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        set(&fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
        bind(&fd, &SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))?;
        let fd = fd.hide();
        Ok(Self { fd, v6: false })
    }

    /// IPv4 too.
    fn open_v6(port: u16) -> Result<Self> {
        let fd = socket(libc::AF_INET6, libc::SOCK_DGRAM, 0)?;
        set(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
        set(&fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
        bind(&fd, &SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port))?;
        let fd = fd.hide();
        Ok(Self { fd, v6: true })
    }

    /// The descriptor, to wait on.
    #[must_use]
    pub const fn raw(&self) -> i32 {
        self.fd.raw()
    }

    /// The next datagram, with its bytes in `buf`.
    ///
    /// # Errors
    /// EAGAIN if there is none.
    pub fn receive(&self, buf: &mut [u8]) -> Result<Datagram> {
        let mut from = [0; ADDRESS];
        let mut control = Control([0; 128]);
        let (len, told) = receive(&self.fd, buf, &mut from, &mut control)?;
        let (to, device) = if self.v6 {
            control
                .find(told, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO)
                .and_then(|i| Some((Ipv6Addr::from(*i.first_chunk::<16>()?).into(), i.get(16..)?)))
        } else {
            // in_pktinfo: device, address of this host, address of the header
            control
                .find(told, libc::IPPROTO_IP, libc::IP_PKTINFO)
                .and_then(|i| Some((Ipv4Addr::from(*i.get(8..)?.first_chunk::<4>()?).into(), i)))
        }
        .and_then(|(to, device): (IpAddr, _)| Some((to, *device.first_chunk()?)))
        .ok_or(Errno::INVAL)?;
        Ok(Datagram {
            len,
            from,
            to: to.to_canonical(),
            device: u32::from_ne_bytes(device),
        })
    }

    /// Sends an answer to where a datagram came from, from the address that it came to.
    ///
    /// # Errors
    /// As sendmsg(2).
    pub fn reply(&self, to: &Datagram, bytes: &[u8]) -> Result<()> {
        let (level, kind, info) = if self.v6 {
            let ip = match to.to {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            // (other addresses are reached by whatever device leads there)
            let device = if ip.is_unicast_link_local() {
                to.device
            } else {
                0
            };
            let mut info = [0; 20];
            info[..16].copy_from_slice(&ip.octets());
            info[16..].copy_from_slice(&device.to_ne_bytes());
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info)
        } else {
            let mut info = [0; 20];
            if let IpAddr::V4(ip) = to.to {
                info[4..8].copy_from_slice(&ip.octets());
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO, info)
        };
        let (control, length) = if self.v6 {
            Control::of(level, kind, &info)
        } else {
            let [a @ .., _, _, _, _, _, _, _, _] = info;
            Control::of::<12>(level, kind, &a)
        };
        let mut iov = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let mut msg = vec_msg(&raw mut iov, 1);
        msg.msg_name = to.from.as_ptr().cast_mut().cast();
        let name = if self.v6 {
            size_of::<libc::sockaddr_in6>()
        } else {
            size_of::<libc::sockaddr_in>()
        };
        msg.msg_namelen = libc::socklen_t::try_from(name).map_err(|_| Errno::INVAL)?;
        msg.msg_control = control.0.as_ptr().cast_mut().cast();
        msg.msg_controllen = length;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: `msg` describes live buffers, which the kernel only reads.
        unsafe { syscall!(sendmsg, self.fd.raw(), &raw const msg, flags) }.map(drop)
    }
}

/// A random word of the kernel's.
///
/// # Errors
/// Where it has none yet.
pub fn random() -> Result<u64> {
    let mut word = 0u64;
    // SAFETY: eight writable bytes.
    let n = unsafe { syscall!(getrandom, &raw mut word, 8, libc::GRND_NONBLOCK) }?;
    if n == 8 { Ok(word) } else { Err(Errno::AGAIN) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(fd: i32) {
        let mut p = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd.
        assert_eq!(unsafe { libc::poll(&raw mut p, 1, 5000) }, 1);
    }

    /// A port that nobody has.
    fn free() -> u16 {
        let socket = std::net::UdpSocket::bind("[::]:0").unwrap();
        socket.local_addr().unwrap().port()
    }

    /// Asks and answers once; the answer is longer than there is room for.
    fn exchange(server: &Answering, host: &str, port: u16) {
        let host: IpAddr = host.parse().unwrap();
        let (client, local) = Asking::open(&SocketAddr::new(host, port)).unwrap();
        assert!(local.port() != 0 && !local.ip().is_unspecified());
        let mut buf = [0; 8];
        assert_eq!(client.receive(&mut buf).err(), Some(Errno::AGAIN));
        client.send(b"what").unwrap();
        wait(server.raw());
        let asked = server.receive(&mut buf).unwrap();
        assert_eq!((asked.len, asked.to, &buf[..4]), (4, host, &b"what"[..]));
        server.reply(&asked, b"this is longer").unwrap();
        wait(client.raw());
        assert_eq!(client.receive(&mut buf), Ok(14));
        assert_eq!(&buf, b"this is ");
    }

    // (127.9.9.9 is an address of this host that the kernel would not choose)

    #[test]
    fn questions_are_answered_from_where_they_were_asked() {
        let port = free();
        let server = Answering::open(port).unwrap();
        assert!(Answering::open(port).is_err(), "one at a time");
        for host in ["127.0.0.1", "127.9.9.9", "::1"] {
            exchange(&server, host, port);
        }
    }

    #[test]
    fn without_ipv6_too() {
        let port = free();
        let server = Answering::open_v4(port).unwrap();
        for host in ["127.0.0.1", "127.9.9.9"] {
            exchange(&server, host, port);
        }
    }

    #[test]
    fn nobody_there_is_told() {
        let to = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), free());
        let (client, _) = Asking::open(&to).unwrap();
        client.send(b"?").unwrap();
        wait(client.raw());
        let told = client.receive(&mut [0; 8]).err();
        assert_eq!(told, Some(Errno(libc::ECONNREFUSED)));
    }

    #[test]
    fn random_words_differ() {
        assert_ne!(random().unwrap(), random().unwrap());
    }
}
