//! The messages: 48 bytes.
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 1 | Ver (2 bits, 0), MT (2 bits), IPV (4 bits: 4 or 6) | |
//! | 1 | 1 | PmTime | in PMAccept: how long it holds |
//! | 2 | 2 | reserved | |
//! | 4 | 2 | ApPort | port of the service; in PMAccept where to connect to |
//! | 6 | 2 | CpPort | port that the client comes from |
//! | 8 | 8 | AssocHandle | chosen by the client |
//! | 16 | 16 | CpIPAddr | IPv4: the first 4 bytes |
//! | 32 | 16 | ApIPAddr | |
//!
//! iwpmd's requests have 64 bytes: the address that the client will really come from is in the reserved bytes (port)
//! and the last 16.
//!
//! Reserved bytes, PmTime elsewhere than in PMAccept, and what is behind an IPv4 address are not looked at.

use crate::sdp_wire::fields::{Reader, Writer};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Bytes of a message.
pub const LENGTH: usize = 48;
/// Bytes of a request of iwpmd.
pub const LONG: usize = 64;

/// How long a PMAccept holds, as it goes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmTime(pub u8);

/// How long a PMAccept holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// For the one connection that was asked for.
    Once,
    For(Duration),
    Forever,
}

impl PmTime {
    /// For the one connection that was asked for.
    pub const ONCE: Self = Self(0);

    /// What it means: 1 to 127 are quarters of a second, 128 to 254 seconds.
    #[must_use]
    pub const fn lifetime(self) -> Lifetime {
        match self.0 {
            0 => Lifetime::Once,
            n @ 1..=127 => Lifetime::For(Duration::from_millis(n as u64 * 250)),
            n @ 128..=254 => Lifetime::For(Duration::from_secs(n as u64)),
            255 => Lifetime::Forever,
        }
    }

    /// The longest one that is no longer than this.
    #[must_use]
    pub fn at_most(time: Duration) -> Self {
        let longest = (0..=254).rev().map(Self);
        let mut fitting = longest.filter(|t| match t.lifetime() {
            Lifetime::For(t) => t <= time,
            _ => true,
        });
        fitting.next().unwrap_or(Self::ONCE)
    }
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Request,
    Accept(PmTime),
    Ack,
    Deny,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: Kind,
    /// The client (connecting peer): where it connects from.
    pub client: SocketAddr,
    /// The service (accepting peer): that is wanted, or where to connect to. Of one family with `client`.
    /// The port means nothing in PMDeny.
    pub service: SocketAddr,
    /// AssocHandle.
    pub handle: u64,
    /// In a long request: where the connection will really come from.
    pub mapped: Option<SocketAddr>,
}

/// Why some bytes are no message of this protocol. They are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Not 48 bytes, nor 64 of a request.
    Length,
    /// Another version than 0.
    Version,
    /// Neither IPv4 nor IPv6.
    IpVersion,
    /// A port is 0 that has to be told.
    Port,
    /// An address is not of one host.
    Address,
}

impl Message {
    /// The bytes; a long request is written as one.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let (kind, time) = match self.kind {
            Kind::Request => (0, 0),
            Kind::Accept(PmTime(time)) => (1, time),
            Kind::Ack => (2, 0),
            Kind::Deny => (3, 0),
        };
        let family = if self.client.is_ipv4() { 4 } else { 6 };
        let mapped = self.mapped.map_or(0, |a| a.port());
        let out = Writer::new()
            .put(&[kind << 4 | family, time])
            .put(&mapped.to_be_bytes())
            .put(&self.service.port().to_be_bytes())
            .put(&self.client.port().to_be_bytes())
            .put(&self.handle.to_be_bytes())
            .put(&address(self.client.ip()))
            .put(&address(self.service.ip()));
        Bytes(match self.mapped {
            Some(a) => out.put(&address(a.ip())),
            None => out,
        })
    }

    /// Reads and checks what somebody sent.
    ///
    /// # Errors
    /// It is no such message.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        let first = from.u8().ok_or(Malformed::Length)?;
        let kind = first >> 4 & 0b11;
        match bytes.len() {
            LENGTH => {}
            LONG if kind == 0 => {}
            _ => return Err(Malformed::Length),
        }
        if first >> 6 != 0 {
            return Err(Malformed::Version);
        }
        let family = match first & 0xf {
            4 => Family::V4,
            6 => Family::V6,
            _ => return Err(Malformed::IpVersion),
        };
        let time = from.u8().ok_or(Malformed::Length)?;
        let kind = match kind {
            0 => Kind::Request,
            1 => Kind::Accept(PmTime(time)),
            2 => Kind::Ack,
            _ => Kind::Deny,
        };
        let mut port = || from.u16().ok_or(Malformed::Length);
        let (mapped_port, service_port, client_port) = (port()?, port()?, port()?);
        let handle = from.u64().ok_or(Malformed::Length)?;
        let client = family.host(&mut from)?;
        let service = family.host(&mut from)?;
        if client_port == 0 || (service_port == 0 && kind != Kind::Deny) {
            return Err(Malformed::Port);
        }
        let mapped = if bytes.len() == LONG {
            if mapped_port == 0 {
                return Err(Malformed::Port);
            }
            Some(SocketAddr::new(family.host(&mut from)?, mapped_port))
        } else {
            None
        };
        Ok(Self {
            kind,
            client: SocketAddr::new(client, client_port),
            service: SocketAddr::new(service, service_port),
            handle,
            mapped,
        })
    }

    /// A message of another kind about the same.
    #[must_use]
    pub const fn with(self, kind: Kind) -> Self {
        Self {
            kind,
            mapped: None,
            ..self
        }
    }
}

/// The bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(Writer<LONG>);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.0.written()
    }
}

fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => Writer::new().put(&ip.octets()).whole(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

#[derive(Clone, Copy)]
enum Family {
    V4,
    V6,
}

impl Family {
    /// The next address, which has to be one that somebody can have.
    fn host(self, from: &mut Reader<'_>) -> Result<IpAddr, Malformed> {
        let field: [u8; 16] = from.take().ok_or(Malformed::Length)?;
        let ip: IpAddr = match (self, field.first_chunk::<4>()) {
            (Self::V4, Some(first)) => Ipv4Addr::from(*first).into(),
            _ => Ipv6Addr::from(field).into(),
        };
        let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
        if ip.is_unspecified() || ip.is_multicast() || broadcast {
            return Err(Malformed::Address);
        }
        Ok(ip)
    }
}
