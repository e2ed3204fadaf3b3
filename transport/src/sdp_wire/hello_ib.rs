//! Hello and HelloAck as over InfiniBand: 92 and 196 bytes, in the private data of the connection manager's
//! request and reply, which also say how many RDMA Reads may be outstanding.
//!
//! | offset behind the header | Hello (76) | HelloAck (180) |
//! |---|---|---|
//! | 0 | major version (upper 4 bits), minor | the same |
//! | 1 | IP version (upper 4 bits) | 0, 2 bytes |
//! | 2 | 0 | |
//! | 3 | MaxAdverts | MaxAdverts |
//! | 4 | DesRemRcvSz, 4 bytes | ActRcvSz, 4 bytes |
//! | 8 | LocalRcvSz, 4 bytes | 0, 172 bytes |
//! | 12 | own TCP port, 2 bytes; 0, 2 bytes | |
//! | 16 | source, 16 bytes (IPv4: the last 4) | |
//! | 32 | destination, 16 bytes; 0, 28 bytes | |
//!
//! There are implementations of version 1.1 and of 2.2, with the same layout.

use super::fields::{Reader, Writer};
use super::header::HEADER;
use super::hello::{open, opening};
use super::mid::Mid;
use super::{LARGEST_BUFFER, Violation, buffer_size};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of a Hello.
pub const HELLO: usize = HEADER + 76;
/// Bytes of a HelloAck.
pub const HELLO_ACK: usize = HEADER + 180;

/// Major and minor version.
pub type Version = (u8, u8);

/// The first message of the side that connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    pub version: Version,
    pub bufs: u16,
    pub max_adverts: u8,
    /// Bytes that the receive buffers of the other side shall have; a wish.
    pub wanted_size: u32,
    /// Bytes of each receive buffer.
    pub receive_size: u32,
    /// TCP port of the side that connects.
    pub port: u16,
    /// Both of one family.
    pub source: IpAddr,
    pub destination: IpAddr,
}

/// The answer of the side that accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloAck {
    pub version: Version,
    pub bufs: u16,
    pub max_adverts: u8,
    /// Bytes of each receive buffer.
    pub receive_size: u32,
}

impl Hello {
    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO] {
        let ip = if self.source.is_ipv4() { 0x40 } else { 0x60 };
        let out = open(Mid::Hello, self.bufs)
            .put(&[byte(self.version), ip, 0, self.max_adverts])
            .put(&self.wanted_size.to_be_bytes())
            .put(&self.receive_size.to_be_bytes())
            .put(&self.port.to_be_bytes())
            .put(&[0; 2]);
        put_address(put_address(out, self.source), self.destination).whole()
    }

    /// Reads and checks what a peer sent.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn decode(bytes: &[u8]) -> Result<Self, Violation> {
        let (header, mut from) = opening(bytes, Mid::Hello, HELLO)?;
        let [version, ip, _, max_adverts] = take(&mut from)?;
        let version = checked(version, max_adverts)?;
        let wanted_size = u32::from_be_bytes(take(&mut from)?);
        if wanted_size > LARGEST_BUFFER {
            return Err(Violation::BufferSize);
        }
        let receive_size = buffer_size(u32::from_be_bytes(take(&mut from)?))?;
        let port = u16::from_be_bytes(take(&mut from)?);
        let _reserved: [u8; 2] = take(&mut from)?;
        Ok(Self {
            version,
            bufs: header.bufs,
            max_adverts,
            wanted_size,
            receive_size,
            port,
            source: address(ip, take(&mut from)?)?,
            destination: address(ip, take(&mut from)?)?,
        })
    }
}

impl HelloAck {
    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_ACK] {
        open(Mid::HelloAck, self.bufs)
            .put(&[byte(self.version), 0, 0, self.max_adverts])
            .put(&self.receive_size.to_be_bytes())
            .whole()
    }

    /// Reads and checks what a peer sent.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn decode(bytes: &[u8]) -> Result<Self, Violation> {
        let (header, mut from) = opening(bytes, Mid::HelloAck, HELLO_ACK)?;
        let [version, _, _, max_adverts] = take(&mut from)?;
        Ok(Self {
            version: checked(version, max_adverts)?,
            bufs: header.bufs,
            max_adverts,
            receive_size: buffer_size(u32::from_be_bytes(take(&mut from)?))?,
        })
    }
}

fn take<const N: usize>(from: &mut Reader<'_>) -> Result<[u8; N], Violation> {
    from.take().ok_or(Violation::ExtendedHeader)
}

const fn byte((major, minor): Version) -> u8 {
    major << 4 | minor & 0xf
}

fn checked(version: u8, max_adverts: u8) -> Result<Version, Violation> {
    let version = (version >> 4, version & 0xf);
    if !matches!(version.0, 1 | 2) {
        return Err(Violation::Version);
    }
    if max_adverts == 0 {
        return Err(Violation::MaxAdverts);
    }
    Ok(version)
}

fn put_address(out: Writer<HELLO>, address: IpAddr) -> Writer<HELLO> {
    match address {
        IpAddr::V4(ip) => out.put(&[0; 12]).put(&ip.octets()),
        IpAddr::V6(ip) => out.put(&ip.octets()),
    }
}

fn address(ip: u8, field: [u8; 16]) -> Result<IpAddr, Violation> {
    match (ip >> 4, field.last_chunk::<4>()) {
        (4, Some(last)) => Ok(Ipv4Addr::from(*last).into()),
        (6, _) => Ok(Ipv6Addr::from(field).into()),
        _ => Err(Violation::IpVersion),
    }
}
