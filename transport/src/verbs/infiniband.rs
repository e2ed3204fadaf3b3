//! Which InfiniBand port a network address is at: that of the IPoIB interface that has the address (RFC 4391).
//!
//! An IPoIB interface's hardware address is 20 octets, the last 16 of which are its port's GID (RFC 4391, 9.1.1); a
//! neighbour's are what the kernel has learnt of it for the very connection that is to be carried. So both ends are found
//! by what the kernel says, and a peer that names a port that is not its own is noticed.
//!
//! Called by `device`, on the thread of the control calls. Rule: what cannot be found is no port: interfaces that are no port's
//! own (bonds, tunnels) and peers behind an IP router stay on software iWARP.

use super::address::FULL_MEMBER;
use crate::sys::rtnetlink::{self, Name};
use crate::sys::{Errno, Result, fd};
use crate::syscall;
use std::ffi::CStr;
use std::net::IpAddr;

/// Of `ARPHRD_INFINIBAND`.
const INFINIBAND: u32 = 32;
/// Octets of an IPoIB hardware address, and of the port's GID at its end.
const HARDWARE: usize = 20;
/// Where interfaces are listed.
pub(super) const INTERFACES: &str = "/sys/class/net";

/// What an IPoIB interface is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    /// Its port's.
    pub(super) gid: [u8; 16],
    /// Its partition's key. The highest bit says nothing: the kernel sets it, whatever the port is there.
    pub(super) pkey: u16,
}

/// The interface that has this address, if it is one of IPoIB.
pub(super) fn interface_of(ip: &IpAddr) -> Option<Interface> {
    let index = rtnetlink::interface_of(ip).ok()?;
    interface(INTERFACES, &rtnetlink::name_of(index).ok()?)
}

/// The GID of the port that a peer's address is at, as the kernel has it for the interface that has this local address.
pub(super) fn port_of(peer: &IpAddr, local: &IpAddr) -> Option<[u8; 16]> {
    if let Some(own) = interface_of(peer) {
        return Some(own.gid); // (this host's)
    }
    let index = rtnetlink::interface_of(local).ok()?;
    let found = rtnetlink::neighbour(peer, index).ok()?;
    gid_in(found.octets())
}

/// The interface of this name in a tree such as [`INTERFACES`], if it is one of IPoIB.
pub(super) fn interface(tree: &str, name: &Name) -> Option<Interface> {
    let mut buf = [0; LINE];
    let kind = number(line(tree, name, "type", &mut buf).ok()?)?;
    let mut hardware = [0; HARDWARE];
    let read = octets(line(tree, name, "address", &mut buf).ok()?, &mut hardware)?;
    let pkey = number(line(tree, name, "pkey", &mut buf).ok()?)?;
    let pkey = u16::try_from(pkey).ok()?;
    let is_one = kind == INFINIBAND && pkey & !FULL_MEMBER != 0;
    let gid = gid_in(hardware.get(..read)?)?;
    is_one.then_some(Interface { gid, pkey })
}

/// The port's GID in an IPoIB hardware address.
fn gid_in(hardware: &[u8]) -> Option<[u8; 16]> {
    let (number, gid) = hardware.split_first_chunk::<{ HARDWARE - 16 }>()?;
    let _ = number; // (flags and the number of the queue pair for datagrams)
    gid.try_into().ok()
}

/// Where a port's table of partitions has this key; a full membership is taken before a limited one.
pub(super) fn partition(table: impl Iterator<Item = u16>, pkey: u16) -> Option<(u16, u16)> {
    let of = |(_, key): &(usize, u16)| (key ^ pkey) & !FULL_MEMBER == 0;
    let found = table.enumerate().filter(of);
    let (at, key) = found.max_by_key(|&(at, key)| (key & FULL_MEMBER, std::cmp::Reverse(at)))?;
    Some((u16::try_from(at).ok()?, key))
}

/// Octets of a line that is read.
const LINE: usize = 128;
/// And of a path.
const PATH: usize = 256;

/// The line that a file of an interface has, without its end.
fn line<'a>(tree: &str, name: &Name, file: &str, buf: &'a mut [u8; LINE]) -> Result<&'a str> {
    let name = CStr::from_bytes_until_nul(name).map_err(|_| Errno::INVAL)?;
    let name = name.to_str().map_err(|_| Errno::INVAL)?;
    let mut path = [0u8; PATH];
    {
        use std::io::Write;
        let mut rest = path.split_last_mut().ok_or(Errno::INVAL)?.1;
        write!(rest, "{tree}/{name}/{file}").map_err(|_| Errno(libc::ENAMETOOLONG))?;
    }
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::INVAL)?;
    let opened = fd::open(path, 0)?.hide_within();
    // SAFETY: room for as many octets.
    let n = unsafe { syscall!(read, opened.raw(), buf.as_mut_ptr(), LINE) }?;
    let text = buf.get(..n).ok_or(Errno::INVAL)?;
    let text = std::str::from_utf8(text).map_err(|_| Errno::INVAL)?;
    Ok(text.trim_end())
}

/// A number as the kernel writes it there.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Octets in two digits each, with colons between. How many.
fn octets(text: &str, to: &mut [u8]) -> Option<usize> {
    let mut n = 0;
    for pair in text.split(':') {
        *to.get_mut(n)? = u8::from_str_radix(pair, 16).ok()?;
        n += 1;
    }
    Some(n)
}
