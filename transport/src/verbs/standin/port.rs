//! Where the stand-in's queue pairs are: how a process and a place in it are an address, and the InfiniBand port that the stand-in
//! has if [`choice`](super::choice) says so. That port is in a subnet of its own making, in which each process is an
//! adapter with a LID, and takes from what is above what a device and a subnet would: it refuses an address handle that no
//! device takes, and what goes to another LID or by another partition than the peer's is lost.

use super::super::address::{Fabric, Kind, LAST_LID, Pair};
use super::super::device::infiniband_port;
use super::super::ffi::types::{AhAttr, LINK_INFINIBAND, PortAttr};
use super::super::infiniband::{Interface, partition};
use super::super::route::Here;
use super::choice;
use crate::sys::{Errno, Result};

/// The subnet's prefix: the one that subnets have by default.
const PREFIX: [u8; 8] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0];
/// Of a place in a process: what it is a multiple of, and how many bits it has (of 47) beside that.
pub(in super::super) const ALIGN: usize = 64;
const AT_SHIFT: u32 = 6;
const AT_BITS: u32 = 47 - AT_SHIFT;

const PORT: u8 = 1;
const GID_INDEX: u8 = 0;
/// The port's table of partitions, and what the interface says of its own.
const PARTITIONS: [u16; 3] = [0xffff, 0x8006, 0x8005];
const INTERFACE: u16 = 0x8005;

/// Where one is: its kind, its GID, and for InfiniBand the port and the index of its partition.
pub(in super::super) type Place = (Kind, [u8; 16], Option<(Here, u16)>);

/// Where the queue pair is whose door is there.
pub(in super::super) fn place(pid: u32, at: u64) -> Option<Place> {
    let wanted = choice::get().is_some_and(|choice| choice.infiniband); // (unit tests)
    if wanted {
        return infiniband(pid, at);
    }
    let mut gid = [0; 16];
    let octets = pid.to_be_bytes().into_iter().chain(at.to_be_bytes());
    for (to, from) in gid.iter_mut().zip(octets) {
        *to = from;
    }
    Some((Kind::StandIn, gid, None))
}

pub(in super::super) fn infiniband(pid: u32, at: u64) -> Option<Place> {
    let number = u64::from(pid) << AT_BITS | at >> AT_SHIFT;
    let mut gid = [0; 16];
    for (to, from) in gid
        .iter_mut()
        .zip(PREFIX.into_iter().chain(number.to_be_bytes()))
    {
        *to = from;
    }
    let is_exact = at.is_multiple_of(ALIGN as u64) && door(&gid) == Some((pid, at));
    let attr = PortAttr {
        lid: lid(pid),
        link_layer: LINK_INFINIBAND,
        ..PortAttr::default()
    };
    let interface = Interface {
        gid,
        pkey: INTERFACE,
    };
    let found = partition(PARTITIONS.into_iter(), INTERFACE);
    let port = infiniband_port(&attr, &interface, (PORT, GID_INDEX), found)?;
    is_exact.then_some((port.0.kind, gid, Some(port)))
}

/// The process and the place of an InfiniBand port's queue pair.
fn door(gid: &[u8; 16]) -> Option<(u32, u64)> {
    let number = gid.strip_prefix(&PREFIX)?.first_chunk::<8>()?;
    let number = u64::from_be_bytes(*number);
    let at = (number & ((1 << AT_BITS) - 1)) << AT_SHIFT;
    Some((u32::try_from(number >> AT_BITS).ok()?, at))
}

/// The LID of a process.
fn lid(pid: u32) -> u16 {
    u16::try_from(1 + pid % u32::from(LAST_LID)).unwrap_or(1)
}

/// The process and the door of a peer, from where a queue pair is at `own`; no process where nothing would arrive there.
///
/// # Errors
/// EINVAL: it cannot be connected to that.
pub(in super::super) fn reach(own: Option<&(Here, u16)>, peer: &Pair) -> Result<(u32, u64)> {
    let Some((here, pkey_index)) = own else {
        let [p0, p1, p2, p3, a0, a1, a2, a3, a4, a5, a6, a7, 0, 0, 0, 0] = peer.gid else {
            return Err(Errno::INVAL);
        };
        let pid = u32::from_be_bytes([p0, p1, p2, p3]);
        let at = u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7]);
        let is_one = peer.kind == Kind::StandIn && pid != 0;
        return is_one.then_some((pid, at)).ok_or(Errno::INVAL);
    };
    let attr = here.to(peer)?;
    takes(&attr, *pkey_index)?;
    let (pid, at) = door(&peer.gid).ok_or(Errno::INVAL)?;
    let Kind::Infiniband(far) = peer.kind else {
        return Err(Errno::INVAL);
    };
    match arrives(&attr, *pkey_index, pid, far) {
        true => Ok((pid, at)),
        false => Ok((0, at)),
    }
}

/// Whether a device takes an address handle and a partition's index.
///
/// # Errors
/// EINVAL, as from ibv_modify_qp(3).
pub(in super::super) fn takes(attr: &AhAttr, pkey_index: u16) -> Result<()> {
    let by_lid = (1..=LAST_LID).contains(&attr.dlid);
    let by_gid = attr.is_global == 1 && attr.grh.sgid_index == GID_INDEX;
    let is_well = attr.port_num == PORT
        && attr.is_global <= 1
        && (by_gid || attr.is_global == 0 && by_lid)
        && usize::from(pkey_index) < PARTITIONS.len();
    is_well.then_some(()).ok_or(Errno::INVAL)
}

/// Whether what is sent so arrives at the peer's process, whose queue pair is in this partition.
pub(in super::super) fn arrives(attr: &AhAttr, pkey_index: u16, pid: u32, far: Fabric) -> bool {
    let found = PARTITIONS.get(usize::from(pkey_index));
    attr.is_global == 0 && attr.dlid == lid(pid) && found == Some(&far.pkey)
}
