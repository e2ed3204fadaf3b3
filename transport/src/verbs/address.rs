//! Where a queue pair is found: what two ends tell each other before they can connect. Pure.
//!
//! Rule: octets of the peer's become an [`Address`] only by [`Address::from_bytes`], which checks every field.

use std::net::{IpAddr, Ipv6Addr};

/// Octets of an address as it is exchanged.
pub const LEN: usize = 32;
const VERSION: u8 = 1;

/// What an address leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A port whose link is Ethernet, by RoCE version 2: found by its GID.
    Roce,
    /// As [`Kind::Roce`], by RoCE version 1.
    RoceV1,
    /// Not an adapter at all, but a process of this host.
    StandIn,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Roce, Self::RoceV1, Self::StandIn];

    const fn octet(self) -> u8 {
        match self {
            Self::Roce => 1,
            Self::RoceV1 => 2,
            Self::StandIn => 3,
        }
    }
}

/// A queue pair's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub kind: Kind,
    /// The largest packet that the port carries now, as `enum ibv_mtu`: 1 (256 octets) to 5 (4096).
    pub mtu: u8,
    /// The queue pair's number, 24 bits.
    pub qpn: u32,
    /// The number of the first packet that it sends, 24 bits.
    pub psn: u32,
    pub gid: [u8; 16],
}

/// Numbers of queue pairs and packets.
pub const BITS_24: u32 = 0xff_ffff;
/// Queue pairs 0 and 1 are for management (InfiniBand Architecture, volume 1, 3.5.3).
const FIRST_QPN: u32 = 2;

impl Address {
    /// The octets for the peer, numbers in network byte order.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let head = [VERSION, self.kind.octet(), self.mtu, 0];
        let parts: [&[u8]; 4] = [
            &head,
            &self.qpn.to_be_bytes(),
            &self.psn.to_be_bytes(),
            &[0; 4],
        ];
        let octets = parts.into_iter().flatten().chain(&self.gid);
        for (to, from) in bytes.iter_mut().zip(octets) {
            *to = *from;
        }
        bytes
    }

    /// The address in octets of the peer's, if they are one that a queue pair can have.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; LEN]) -> Option<Self> {
        let (head, gid) = bytes.split_first_chunk::<16>()?;
        let [
            version,
            kind,
            mtu,
            0,
            q0,
            q1,
            q2,
            q3,
            p0,
            p1,
            p2,
            p3,
            0,
            0,
            0,
            0,
        ] = *head
        else {
            return None;
        };
        let address = Self {
            kind: Kind::ALL.into_iter().find(|k| k.octet() == kind)?,
            mtu,
            qpn: u32::from_be_bytes([q0, q1, q2, q3]),
            psn: u32::from_be_bytes([p0, p1, p2, p3]),
            gid: gid.try_into().ok()?,
        };
        (version == VERSION && address.is_possible()).then_some(address)
    }

    fn is_possible(&self) -> bool {
        let numbers = (FIRST_QPN..=BITS_24).contains(&self.qpn) && self.psn <= BITS_24;
        let reachable = match self.kind {
            Kind::Roce | Kind::RoceV1 => {
                let gid = Ipv6Addr::from(self.gid);
                let v4 = gid.to_ipv4_mapped();
                let many = gid.is_multicast()
                    || v4.is_some_and(|ip| ip.is_multicast() || ip.is_broadcast());
                let nobody = gid.is_unspecified() || v4.is_some_and(|ip| ip.is_unspecified());
                !many && !nobody
            }
            Kind::StandIn => true,
        };
        numbers && (1..=5).contains(&self.mtu) && reachable
    }

    /// Whether a peer with this address of its own may be found here: a RoCE address stands for one network address,
    /// and nobody is to send us to somebody else's. What the stand-in is found by is no network address.
    #[must_use]
    pub fn is_of(&self, peer: &IpAddr) -> bool {
        match self.kind {
            Kind::Roce | Kind::RoceV1 => self.gid == gid_of(peer),
            Kind::StandIn => true,
        }
    }
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
