//! How a queue pair reaches its peer: what the address handle says (InfiniBand Architecture, volume 1, 11.2.2.1). Pure.
//!
//! | ports | packets |
//! |---|---|
//! | RoCE | by the GIDs, which are network addresses |
//! | InfiniBand, one subnet | by the peer's LID; with the GIDs besides where a port has no LID, or wants them |
//! | InfiniBand, two subnets | not at all: the LID would be a router's, which only the subnet's manager knows |
//!
//! Service level and path bits are 0, as no manager is asked.

use super::address::{FULL_MEMBER, Fabric, Kind, Pair};
use super::ffi::types::{AhAttr, Gid, GlobalRoute};
use crate::sys::{Errno, Result};

/// Routers and gateways that a packet may pass.
const HOPS: u8 = 64;

/// Where this end is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Here {
    pub(super) kind: Kind,
    pub(super) gid: [u8; 16],
    pub(super) port: u8,
    /// Of the GID in the port's table.
    pub(super) gid_index: u8,
    /// The port takes no packets without GIDs.
    pub(super) needs_gid: bool,
}

impl Here {
    /// The way to a peer.
    ///
    /// # Errors
    /// EINVAL: there is none.
    pub(super) fn to(&self, peer: &Pair) -> Result<AhAttr> {
        let (dlid, by_gid) = match (self.kind, peer.kind) {
            (Kind::Roce, Kind::Roce) | (Kind::RoceV1, Kind::RoceV1) => (0, true),
            (Kind::Infiniband(own), Kind::Infiniband(far)) => {
                let no_way = !is_same_subnet(&self.gid, &peer.gid) || !may_talk(own, far);
                if no_way {
                    return Err(Errno::INVAL);
                }
                (far.lid, self.needs_gid || own.lid == 0 || far.lid == 0)
            }
            _ => return Err(Errno::INVAL),
        };
        let grh = if by_gid {
            GlobalRoute {
                dgid: Gid(peer.gid),
                sgid_index: self.gid_index,
                hop_limit: HOPS,
                ..GlobalRoute::default()
            }
        } else {
            GlobalRoute::default()
        };
        Ok(AhAttr {
            grh,
            dlid,
            is_global: by_gid.into(),
            port_num: self.port,
            ..AhAttr::default()
        })
    }
}

/// A GID begins with the prefix of its subnet.
fn is_same_subnet(one: &[u8; 16], other: &[u8; 16]) -> bool {
    one.split_at(8).0 == other.split_at(8).0
}

/// Whether they are in the same partition, and one of them a full member (InfiniBand Architecture, volume 1, 10.9.3).
const fn may_talk(one: Fabric, other: Fabric) -> bool {
    let (a, b) = (one.pkey, other.pkey);
    a & !FULL_MEMBER == b & !FULL_MEMBER && (a | b) & FULL_MEMBER != 0
}
