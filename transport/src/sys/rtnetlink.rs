//! What the kernel knows of its links (rtnetlink(7)): which interface has an address, what that is called, and the hardware
//! address that it has learnt of a neighbour. Works without privileges.
//!
//! Called for connections that are worth an adapter, on a thread of the library's own.

use super::mem::Mapping;
use super::{Errno, Result, net};
use crate::syscall;
use std::net::IpAddr;

/// Octets that a part of a list may have.
const DUMP: usize = 32_768;

const REQUEST_AND_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const NEW_NEIGHBOUR: u16 = 28;
const GET_NEIGHBOUR: u16 = 30;
/// In front of each message, and of each of its attributes.
const HEADER: usize = 16;
const ATTRIBUTE: usize = 4;
/// Of `ifaddrmsg` and `ndmsg`.
const ADDRESS_BODY: usize = 8;
const NEIGHBOUR_BODY: usize = 12;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// States (NUD) in which a neighbour's hardware address is known: reachable, stale, delay, probe, permanent.
const KNOWN: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x80;

/// Octets of an interface's name, with the byte that ends it.
pub const NAME: usize = libc::IFNAMSIZ;
/// Such a name.
pub type Name = [u8; NAME];

/// Octets of the longest hardware address that the kernel has (`MAX_ADDR_LEN`).
const LONGEST: usize = 32;

/// A hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hardware {
    octets: [u8; LONGEST],
    len: usize,
}

impl Hardware {
    fn of(octets: &[u8]) -> Option<Self> {
        let mut made = Self {
            octets: [0; LONGEST],
            len: octets.len(),
        };
        made.octets.get_mut(..octets.len())?.copy_from_slice(octets);
        Some(made)
    }

    #[must_use]
    pub fn octets(&self) -> &[u8] {
        self.octets.get(..self.len).unwrap_or(&[])
    }
}

fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(b.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(b.get(at..at + 4)?.try_into().ok()?))
}

/// The attribute of this kind behind the first `body` octets of a message's content.
fn attribute(content: &[u8], body: usize, kind: u16) -> Option<&[u8]> {
    let mut rest = content.get(body..)?;
    loop {
        let len = usize::from(u16_at(rest, 0)?);
        if u16_at(rest, 2)? == kind {
            return rest.get(ATTRIBUTE..len);
        }
        if len < ATTRIBUTE {
            return None;
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}

const fn family(ip: &IpAddr) -> u8 {
    #[allow(clippy::cast_possible_truncation)]
    match ip {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn is_address(octets: &[u8], ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => octets == ip.octets(),
        IpAddr::V6(ip) => octets == ip.octets(),
    }
}

/// The index of the interface that has this address: an IPv4 address that several have is nobody's.
///
/// # Errors
/// ENOENT if none has it; as netlink.
pub fn interface_of(ip: &IpAddr) -> Result<u32> {
    let mut found = None;
    let mut many = false;
    list(GET_ADDRESS, family(ip), ADDRESS_BODY, |kind, content| {
        if kind == NEW_ADDRESS
            && let Some(index) = has_address(content, ip)
        {
            many |= found.is_some_and(|other| other != index);
            found = Some(index);
        }
    })?;
    found.filter(|_| !many).ok_or(Errno(libc::ENOENT))
}

/// The interface that a list's entry says has this address, if it is that one.
fn has_address(content: &[u8], ip: &IpAddr) -> Option<u32> {
    // (of a link between two the other attribute is the far end's)
    let own = attribute(content, ADDRESS_BODY, IFA_LOCAL)
        .or_else(|| attribute(content, ADDRESS_BODY, IFA_ADDRESS))?;
    let is_it = content.first() == Some(&family(ip)) && is_address(own, ip);
    is_it.then(|| u32_at(content, 4))?
}

/// The hardware address of a neighbour at this interface.
///
/// # Errors
/// ENOENT if it is not known; as netlink.
pub fn neighbour(ip: &IpAddr, interface: u32) -> Result<Hardware> {
    let mut found = None;
    list(
        GET_NEIGHBOUR,
        family(ip),
        NEIGHBOUR_BODY,
        |kind, content| {
            if kind == NEW_NEIGHBOUR {
                found = found.or_else(|| is_neighbour(content, ip, interface));
            }
        },
    )?;
    found.ok_or(Errno(libc::ENOENT))
}

/// What a list's entry says of this neighbour, if it is that one and known.
fn is_neighbour(content: &[u8], ip: &IpAddr, interface: u32) -> Option<Hardware> {
    let is_it = content.first() == Some(&family(ip))
        && u32_at(content, 4) == Some(interface)
        && u16_at(content, 8)? & KNOWN != 0
        && is_address(attribute(content, NEIGHBOUR_BODY, NDA_DST)?, ip);
    is_it.then(|| Hardware::of(attribute(content, NEIGHBOUR_BODY, NDA_LLADDR)?))?
}

/// What the interface with this index is called.
///
/// # Errors
/// As SIOCGIFNAME.
pub fn name_of(interface: u32) -> Result<Name> {
    const SIOCGIFNAME: u32 = 0x8910;
    // SAFETY: all zero is a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_ifindex = interface.cast_signed();
    let socket = net::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?.hide();
    // SAFETY: the request is writable, and as this call wants it.
    unsafe { syscall!(ioctl, socket.raw(), SIOCGIFNAME, &raw mut request) }?;
    Ok(request.ifr_name.map(i8::cast_unsigned))
}

/// Goes through a list of the kernel's: each entry's kind and content.
fn list(what: u16, family: u8, body: usize, mut each: impl FnMut(u16, &[u8])) -> Result<()> {
    const SEQUENCE: u32 = 1;
    let socket = net::socket(libc::AF_NETLINK, libc::SOCK_DGRAM, libc::NETLINK_ROUTE)?.hide();
    let mut request = [0u8; HEADER + NEIGHBOUR_BODY];
    let len = HEADER + body;
    let octets = u32::try_from(len).unwrap_or(0).to_ne_bytes().into_iter();
    let octets = octets.chain(what.to_ne_bytes());
    let octets = octets.chain(REQUEST_AND_DUMP.to_ne_bytes());
    let octets = octets.chain(SEQUENCE.to_ne_bytes()).chain([0; 4]);
    for (to, from) in request.iter_mut().zip(octets.chain([family])) {
        *to = from;
    }
    // SAFETY: so many octets are readable.
    unsafe { net::send(socket.raw(), request.as_ptr(), len, libc::MSG_NOSIGNAL) }?;
    let room = Mapping::private(DUMP)?;
    loop {
        // SAFETY: fresh memory of that size, which nobody else sees.
        let buf = unsafe { std::slice::from_raw_parts_mut(room.base().as_ptr(), DUMP) };
        // The kernel answers while the request is being sent, or while parts are fetched: nothing here waits.
        // SAFETY: `buf` is writable for its length.
        let n = unsafe { net::recv(socket.raw(), buf.as_mut_ptr(), DUMP, libc::MSG_DONTWAIT) }?;
        let mut rest = buf.get(..n).ok_or(Errno::INVAL)?;
        if rest.is_empty() {
            return Err(Errno(libc::EIO));
        }
        while let (Some(len), Some(kind)) = (u32_at(rest, 0), u16_at(rest, 4)) {
            let len = len as usize;
            if kind == NLMSG_DONE {
                return Ok(());
            }
            if kind == NLMSG_ERROR {
                let code = u32_at(rest, HEADER).unwrap_or(0).cast_signed();
                return Err(Errno(code.wrapping_neg()));
            }
            each(kind, rest.get(HEADER..len).ok_or(Errno::INVAL)?);
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_interface_with_an_address_is_found_and_called_what_it_is() {
        let index = interface_of(&ip("127.0.0.1")).unwrap();
        assert!(name_of(index).unwrap().starts_with(b"lo\0"));
        let none = Err(Errno(libc::ENOENT));
        assert_eq!(interface_of(&ip("192.0.2.77")), none);
        assert_eq!(interface_of(&ip("2001:db8::77")), none);
        assert!(name_of(u32::MAX / 2).is_err());
        assert!(neighbour(&ip("192.0.2.77"), index).is_err());
    }

    fn with_attributes(head: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut content = head.to_vec();
        for (kind, value) in attributes {
            let len = u16::try_from(ATTRIBUTE + value.len()).unwrap();
            content.extend(len.to_ne_bytes());
            content.extend(kind.to_ne_bytes());
            content.extend(*value);
            content.resize(content.len().next_multiple_of(4), 0);
        }
        content
    }

    #[test]
    fn an_address_is_the_near_end_of_its_link() {
        let far: &[u8] = &[10, 0, 0, 2];
        let near: &[u8] = &[10, 0, 0, 1];
        let head = [2, 32, 0, 0, 7, 0, 0, 0];
        let entry = with_attributes(&head, &[(IFA_ADDRESS, far), (IFA_LOCAL, near)]);
        assert_eq!(has_address(&entry, &ip("10.0.0.1")), Some(7));
        assert_eq!(has_address(&entry, &ip("10.0.0.2")), None);
        let entry = with_attributes(&head, &[(3, b"ib0\0x"), (IFA_ADDRESS, far)]);
        assert_eq!(has_address(&entry, &ip("10.0.0.2")), Some(7));
    }

    #[test]
    fn a_neighbour_is_whom_the_kernel_knows() {
        let hardware: [u8; 20] = std::array::from_fn(|i| u8::try_from(i).unwrap() + 1);
        let entry = |interface: u8, state: u8| {
            let head = [2, 0, 0, 0, interface, 0, 0, 0, state, 0, 0, 1];
            let at: &[u8] = &[10, 0, 0, 2];
            with_attributes(&head, &[(NDA_DST, at), (9, b"x"), (NDA_LLADDR, &hardware)])
        };
        let known = |entry: &[u8], at| is_neighbour(entry, &ip(at), 7);
        let found = known(&entry(7, 2), "10.0.0.2").unwrap();
        assert_eq!(found.octets(), hardware);
        assert_eq!(known(&entry(7, 2), "10.0.0.3"), None);
        assert_eq!(known(&entry(8, 2), "10.0.0.2"), None);
        for unknown in [1, 0x20, 0x40] {
            assert_eq!(known(&entry(7, unknown), "10.0.0.2"), None);
        }
        // Cut anywhere, it is none, and nothing else happens.
        let whole = entry(7, 4);
        for len in 0..whole.len() - hardware.len() {
            assert_eq!(known(&whole[..len], "10.0.0.2"), None, "{len}");
        }
    }
}
