//! Where an end is found: what two ends tell each other before they can connect. Pure.
//!
//! | octets | of a queue pair | of an end on an iWARP adapter |
//! |---|---|---|
//! | 0, 1 | the version, what it leads to | the same |
//! | 2, 3 | the port's MTU; 1: its receives take Sends of octets | 0 |
//! | 4 to 7 | the queue pair's number | the port that it listens at, 0 |
//! | 8 to 11 | the number of the first packet | its secret |
//! | 12 to 15 | InfiniBand: the LID, the key of the partition; else 0 | its secret |
//! | 16 to 31 | the GID | its network address |
//!
//! Rule: octets of the peer's become an [`Address`] only by [`Address::from_bytes`], which checks every field.

use std::net::{IpAddr, Ipv6Addr};

/// Octets of an address as it is exchanged.
pub const LEN: usize = 32;
const VERSION: u8 = 1;

/// What a queue pair's address leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A port whose link is Ethernet, by RoCE version 2: found by its GID.
    Roce,
    /// As [`Kind::Roce`], by RoCE version 1.
    RoceV1,
    /// A port of an InfiniBand subnet: found by its LID within that.
    Infiniband(Fabric),
    /// Not an adapter at all, but a process of this host.
    StandIn,
}

/// Where a port is in an InfiniBand subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fabric {
    /// The port's local identifier; 0 where packets are found by their GIDs alone.
    pub lid: u16,
    /// The key of the partition that the queue pair is in, as the port's table has it: the highest bit says that the port is
    /// a full member.
    pub pkey: u16,
}

/// Local identifiers of ports end with this one; those of multicast groups come behind it (InfiniBand Architecture, volume 1,
/// 4.1.3).
pub const LAST_LID: u16 = 0xbfff;
/// Of a partition's key: full member.
pub const FULL_MEMBER: u16 = 0x8000;

impl Kind {
    const fn octet(self) -> u8 {
        match self {
            Self::Roce => 1,
            Self::RoceV1 => 2,
            Self::StandIn => 3,
            Self::Infiniband(_) => 5,
        }
    }

    /// What the octets behind the number of the first packet say.
    fn rest(self) -> u32 {
        match self {
            Self::Infiniband(Fabric { lid, pkey }) => u32::from(lid) << 16 | u32::from(pkey),
            _ => 0,
        }
    }

    fn of(octet: u8, rest: u32) -> Option<Self> {
        let [l0, l1, p0, p1] = rest.to_be_bytes();
        match (octet, rest) {
            (1, 0) => Some(Self::Roce),
            (2, 0) => Some(Self::RoceV1),
            (3, 0) => Some(Self::StandIn),
            (5, _) => Some(Self::Infiniband(Fabric {
                lid: u16::from_be_bytes([l0, l1]),
                pkey: u16::from_be_bytes([p0, p1]),
            })),
            _ => None,
        }
    }
}

impl Fabric {
    fn is_possible(self) -> bool {
        self.lid <= LAST_LID && self.pkey & !FULL_MEMBER != 0
    }
}

/// Beside [`Kind::octet`].
const IWARP: u8 = 4;

/// A queue pair that both ends connect, each to the other's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    pub kind: Kind,
    /// The largest packet that the port carries now, as `enum ibv_mtu`: 1 (256 octets) to 5 (4096).
    pub mtu: u8,
    /// The queue pair's number, 24 bits.
    pub qpn: u32,
    /// The number of the first packet that it sends, 24 bits.
    pub psn: u32,
    pub gid: [u8; 16],
    /// Its receives have memory, into which the peer sends octets.
    pub takes: bool,
}

/// An end on an iWARP adapter, whose connections are made by rdma_cm: one end listens, the other connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iwarp {
    /// Its network address; IPv4 as IPv4-mapped.
    pub ip: [u8; 16],
    /// Where it listens; none: it is the one that connects.
    pub port: Option<u16>,
    /// What a request has to say to be accepted; 0 where it does not listen.
    pub secret: u64,
}

/// Where an end is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    Pair(Pair),
    Iwarp(Iwarp),
}

/// Numbers of queue pairs and packets.
pub const BITS_24: u32 = 0xff_ffff;
/// Queue pairs 0 and 1 are for management (InfiniBand Architecture, volume 1, 3.5.3).
const FIRST_QPN: u32 = 2;

impl Address {
    /// The octets for the peer, numbers in network byte order.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; LEN] {
        let (head, middle, last) = match self {
            Self::Pair(pair) => {
                let [q0, q1, q2, q3] = pair.qpn.to_be_bytes();
                let takes = u8::from(pair.takes);
                let head = [VERSION, pair.kind.octet(), pair.mtu, takes, q0, q1, q2, q3];
                let rest = u64::from(pair.kind.rest());
                (head, u64::from(pair.psn) << 32 | rest, pair.gid)
            }
            Self::Iwarp(end) => {
                let [p0, p1] = end.port.unwrap_or(0).to_be_bytes();
                ([VERSION, IWARP, 0, 0, p0, p1, 0, 0], end.secret, end.ip)
            }
        };
        let mut bytes = [0; LEN];
        let middle = middle.to_be_bytes();
        let octets = head.iter().chain(&middle).chain(&last);
        for (to, from) in bytes.iter_mut().zip(octets) {
            *to = *from;
        }
        bytes
    }

    /// The address in octets of the peer's, if they are one that an end can have.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; LEN]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<8>()?;
        let (middle, last) = rest.split_first_chunk::<8>()?;
        let middle = u64::from_be_bytes(*middle);
        let last = *last.first_chunk::<16>()?;
        match *head {
            [VERSION, IWARP, 0, 0, p0, p1, 0, 0] => {
                let port = u16::from_be_bytes([p0, p1]);
                let end = Iwarp {
                    ip: last,
                    port: (port != 0).then_some(port),
                    secret: middle,
                };
                end.is_possible().then_some(Self::Iwarp(end))
            }
            [VERSION, kind, mtu, takes @ (0 | 1), q0, q1, q2, q3] => {
                let rest = u32::try_from(middle & u64::from(u32::MAX)).ok()?;
                let pair = Pair {
                    kind: Kind::of(kind, rest)?,
                    mtu,
                    qpn: u32::from_be_bytes([q0, q1, q2, q3]),
                    psn: u32::try_from(middle >> 32).ok()?,
                    gid: last,
                    takes: takes == 1,
                };
                pair.is_possible().then_some(Self::Pair(pair))
            }
            _ => None,
        }
    }

    /// Whether Sends of octets find receives there.
    #[must_use]
    pub const fn takes_sends(&self) -> bool {
        matches!(self, Self::Pair(Pair { takes: true, .. }))
    }

    /// A queue pair's GID.
    pub(super) const fn gid(&self) -> Option<[u8; 16]> {
        match self {
            Self::Pair(pair) => Some(pair.gid),
            Self::Iwarp(_) => None,
        }
    }

    /// Whether a peer with this address of its own may be found here: an adapter's stands for one network address,
    /// and nobody is to send us to somebody else's. What the stand-in is found by is no network address; an InfiniBand port's GID
    /// is none either, so `port_of` says which port has the network address.
    #[must_use]
    pub fn is_of(&self, peer: &IpAddr, port_of: impl FnOnce(&IpAddr) -> Option<[u8; 16]>) -> bool {
        match self {
            Self::Pair(pair) => match pair.kind {
                Kind::Roce | Kind::RoceV1 => pair.gid == gid_of(peer),
                Kind::Infiniband(_) => port_of(peer) == Some(pair.gid),
                Kind::StandIn => true,
            },
            Self::Iwarp(end) => end.ip == gid_of(peer),
        }
    }
}

impl Pair {
    fn is_possible(&self) -> bool {
        let numbers = (FIRST_QPN..=BITS_24).contains(&self.qpn) && self.psn <= BITS_24;
        let reachable = match self.kind {
            Kind::Roce | Kind::RoceV1 => is_one(&self.gid),
            Kind::Infiniband(fabric) => fabric.is_possible() && is_port(&self.gid),
            Kind::StandIn => true,
        };
        numbers && (1..=5).contains(&self.mtu) && reachable
    }
}

impl Iwarp {
    fn is_possible(&self) -> bool {
        is_one(&self.ip) && (self.port.is_some() || self.secret == 0)
    }
}

/// Whether it is the address of one host, as far as can be seen.
fn is_one(octets: &[u8; 16]) -> bool {
    let ip = Ipv6Addr::from(*octets);
    let v4 = ip.to_ipv4_mapped();
    let many = ip.is_multicast() || v4.is_some_and(|ip| ip.is_multicast() || ip.is_broadcast());
    let nobody = ip.is_unspecified() || v4.is_some_and(|ip| ip.is_unspecified());
    !many && !nobody
}

/// Whether it can be the GID of an InfiniBand port: a subnet's prefix and a port's number, and no multicast group.
fn is_port(gid: &[u8; 16]) -> bool {
    let (prefix, port) = gid.split_at(8);
    let is_some = |part: &[u8]| part.iter().any(|&octet| octet != 0);
    is_some(prefix) && is_some(port) && !matches!(gid, [0xff, ..])
}

/// The GID that stands for a network address on a RoCE port: itself, IPv4 as IPv4-mapped (InfiniBand Architecture,
/// annex A17).
#[must_use]
pub fn gid_of(ip: &IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}
