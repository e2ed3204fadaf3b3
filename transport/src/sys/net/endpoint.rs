//! The addresses of a connection's two ends, in one spelling for IPv4 and IPv6.
//!
//! What rendezvous matches connections by, and what the report prints.

use crate::sys::{self, Sysno};
use std::ptr;

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

/// Whether the other end of a connection, at this address, is on this host.
#[must_use]
pub fn is_here(fd: i32, peer: &Endpoint) -> bool {
    peer.is_loopback() || local(fd).is_some_and(|own| own.ip == peer.ip)
}

fn name(fd: i32, nr: Sysno) -> Option<Endpoint> {
    // SAFETY: all-zero is a valid sockaddr_storage.
    let mut ss: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    #[allow(clippy::cast_possible_truncation)]
    let mut len = size_of_val(&ss) as libc::socklen_t;
    // SAFETY: both out-parameters are valid.
    unsafe { sys::call(nr, crate::words!(fd, &raw mut ss, &raw mut len)) }.ok()?;
    // SAFETY: the storage is larger than any address.
    unsafe { Endpoint::from_raw((&raw const ss).cast(), len as usize) }
}
