//! Devices, each opened once a process, and which of them carries a local address.
//!
//! A connection runs over the device that its kernel connection runs over: the one that has a GID that stands for the
//! connection's local address (RoCE), that of the IPoIB interface that has it (`infiniband`), or the iWARP device that the kernel's
//! connection manager names for it ([`named`]).
//!
//! Called by `endpoint` and `iwarp`. Rules:
//! - A device is never closed: queue pairs may still refer to it. Its descriptors are moved out of the program's range.
//! - A child of fork opens devices anew: what it inherits refers to its parent's memory. No lock here is waited for
//!   that a parent may have held.

use super::address::{Fabric, Kind, LAST_LID, gid_of};
use super::ffi::types::{
    Context, GID_IB, GID_ROCE_V1, GID_ROCE_V2, GidEntry, LINK_ETHERNET, LINK_INFINIBAND,
    LINK_UNSPECIFIED, NEEDS_GRH, PORT_ACTIVE, Pd, PortAttr, TRANSPORT_IB, TRANSPORT_IWARP,
};
use super::ffi::{self, Library};
use super::infiniband::{self, Interface};
use super::lock::Lock;
use super::on_demand::OnDemand;
use super::receives::Shared;
use super::route::Here;
use super::trial;
use crate::clock;
use crate::sys::fd::Fd;
use crate::sys::{self, Result};
use std::net::IpAddr;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering};

/// How long (µs) an address that no device has is not looked for again among devices that may be new.
const LOOK_AGAIN_US: u64 = 1_000_000;
/// Entries of a device's table of GIDs that are looked at. Devices have 256 to 1024, of which few are in use.
const GIDS: usize = 1024;

/// An open device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) library: &'static Library,
    pub(super) context: NonNull<Context>,
    pub(super) pd: NonNull<Pd>,
    name: [i8; 64],
    is_iwarp: bool,
    /// The receives of all of its queue pairs, once there was room for them.
    receives: Lock<Option<&'static Shared>>,
    /// Registrations that it keeps.
    pub(super) on_demand: OnDemand,
}

// SAFETY: libibverbs may be called from any thread with the same device and protection domain (verbs(7)).
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// A device's port by which a local address goes, as it is now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port {
    pub(super) device: &'static Device,
    pub(super) here: Here,
    /// Of the partition in the port's table; 0 for RoCE, which has the default one only.
    pub(super) pkey_index: u16,
    /// `enum ibv_mtu`.
    pub(super) mtu: u8,
    /// Octets of the longest message.
    pub(super) longest: u32,
}

/// The devices that this process has opened.
#[derive(Debug)]
struct Known {
    pid: i32,
    devices: Lock<Devices>,
}

#[derive(Debug)]
struct Devices {
    open: Vec<&'static Device>,
    /// There is one that could not be opened.
    refused: bool,
    /// When (ticks) to look for new ones again.
    again: u64,
}

/// Those of this process, or of the one that it was forked from.
static KNOWN: AtomicPtr<Known> = AtomicPtr::new(ptr::null_mut());

fn known() -> &'static Known {
    let pid = sys::pid();
    let at = KNOWN.load(Ordering::Acquire);
    // SAFETY: null, or what was leaked below.
    if let Some(known) = unsafe { at.as_ref() }
        && known.pid == pid
    {
        return known;
    }
    let fresh: &'static Known = Box::leak(Box::new(Known {
        pid,
        devices: Lock::new(Devices {
            open: Vec::new(),
            refused: false,
            again: 0,
        }),
    }));
    let to = ptr::from_ref(fresh).cast_mut();
    match KNOWN.compare_exchange(at, to, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        // SAFETY: another thread was first, with what it leaked.
        Err(theirs) => unsafe { theirs.as_ref() }.unwrap_or(fresh),
    }
}

/// The port of this process's devices that a connection with this local address goes by, if that port is up.
pub(super) fn for_local(ip: &IpAddr) -> Option<Port> {
    known()
        .devices
        .with(|devices| devices.find_or_look(|devices| devices.find(ip)))
}

/// Fills the queues that receives are drawn from, and tries what is to be tried.
pub(super) fn replenish() {
    // SAFETY: null, or what was leaked below.
    let known = unsafe { KNOWN.load(Ordering::Acquire).as_ref() };
    if let Some(known) = known.filter(|known| known.pid == sys::pid()) {
        let wanted: Vec<Port> = known.devices.with(|devices| {
            for device in &devices.open {
                device.receives.with(|shared| shared.inspect(|s| s.fill()));
            }
            let open = devices.open.iter();
            open.filter_map(|d| d.on_demand.wanted()).collect()
        });
        for port in wanted {
            port.device.on_demand.tried(trial::proves(port));
        }
    }
}

/// Whether a connection with this local address might go by a device, had that the room.
pub(super) fn might_serve(ip: &IpAddr) -> bool {
    let serves = |devices: &mut Devices| devices.refused || devices.open.iter().any(|d| d.is_iwarp);
    for_local(ip).is_some() || known().devices.with(serves)
}

/// Whether there is an iWARP device.
pub(super) fn has_iwarp() -> bool {
    let has = |devices: &mut Devices| devices.open.iter().any(|d| d.is_iwarp).then_some(());
    known()
        .devices
        .with(|devices| devices.find_or_look(has))
        .is_some()
}

/// The iWARP device of this name, and octets of the longest message of this port of it.
pub(super) fn named(name: &[i8; 64], port: u8) -> Option<(&'static Device, u32)> {
    known().devices.with(|devices| {
        devices.find_or_look(|devices| {
            let mut found = None;
            // One that cannot be asked has been removed.
            devices.open.retain(|device| {
                let is_it = device.is_iwarp && device.name == *name;
                let longest = is_it.then(|| device.query(port).map(|attr| attr.max_msg_sz));
                match longest {
                    None => true,
                    Some(Err(_)) => device.is_gone(),
                    Some(Ok(longest)) => {
                        found = Some((*device, longest));
                        true
                    }
                }
            });
            found
        })
    })
}

impl Devices {
    /// Finds something among devices that are open, or then among those that are new; not too often.
    fn find_or_look<T>(&mut self, find: impl Fn(&mut Self) -> Option<T>) -> Option<T> {
        let library = ffi::library()?;
        let found = find(self);
        if found.is_some() || clock::ticks() < self.again {
            return found;
        }
        self.look(library);
        self.again = clock::ticks().saturating_add(clock::us(LOOK_AGAIN_US));
        find(self)
    }

    fn find(&mut self, ip: &IpAddr) -> Option<Port> {
        let gid = gid_of(ip);
        if let Some(found) = self.find_by(|device| device.port(&gid)) {
            return Some(found);
        }
        if self.open.iter().all(|device| device.is_iwarp) {
            return None;
        }
        let interface = infiniband::interface_of(ip)?;
        self.find_by(|device| device.port_of(&interface))
    }

    fn find_by(&mut self, port: impl Fn(&'static Device) -> Result<Option<Port>>) -> Option<Port> {
        let mut found = None;
        // One that cannot be asked has been removed.
        self.open.retain(|device| {
            device.is_iwarp
                || found.is_some()
                || match port(device) {
                    Ok(port) => {
                        found = port;
                        true
                    }
                    Err(_) => device.is_gone(),
                }
        });
        found
    }

    /// Opens devices that are there and not open.
    fn look(&mut self, library: &'static Library) {
        let mut n = 0;
        // SAFETY: `n` is writable.
        let list = unsafe { (library.get_device_list)(&raw mut n) };
        if list.is_null() {
            return;
        }
        self.refused = false;
        // SAFETY: the list has as many entries as it says, until it is given back.
        let entries = unsafe { slice::from_raw_parts(list, usize::try_from(n).unwrap_or(0)) };
        for &entry in entries {
            // SAFETY: a device of the list.
            let (name, transport) = unsafe { ((*entry).name, (*entry).transport_type) };
            let is_new = !self.open.iter().any(|device| device.name == name);
            let is_iwarp = transport == TRANSPORT_IWARP;
            if (transport == TRANSPORT_IB || is_iwarp) && is_new {
                // SAFETY: as above.
                let device = unsafe { Device::open(library, entry, name, is_iwarp) };
                self.refused |= device.is_none();
                self.open.extend(device);
            }
        }
        // SAFETY: the list, and devices that are open stay.
        unsafe { (library.free_device_list)(list) };
    }
}

impl Device {
    /// # Safety
    /// `entry` is a device of a list that has not been given back.
    unsafe fn open(
        library: &'static Library,
        entry: *mut ffi::types::Device,
        name: [i8; 64],
        is_iwarp: bool,
    ) -> Option<&'static Self> {
        // SAFETY: the caller's promise.
        let context = NonNull::new(unsafe { (library.open_device)(entry) })?;
        // SAFETY: an open device.
        let Some(pd) = NonNull::new(unsafe { (library.alloc_pd)(context.as_ptr()) }) else {
            // SAFETY: as above, which nothing refers to.
            unsafe { (library.close_device)(context.as_ptr()) };
            return None;
        };
        // The library takes these numbers from there whenever it needs them, and never closes what is never given back.
        // SAFETY: an open device that nobody else knows of yet.
        unsafe {
            let context = &mut *context.as_ptr();
            context.cmd_fd = Fd::own(context.cmd_fd).hide_within().leak();
            context.async_fd = Fd::own(context.async_fd).hide_within().leak();
        }
        Some(Box::leak(Box::new(Self {
            library,
            context,
            pd,
            name,
            is_iwarp,
            receives: Lock::new(None),
            // SAFETY: just opened.
            on_demand: unsafe { OnDemand::of(context) },
        })))
    }

    /// What its queue pairs over RoCE draw their receives from; none where there is no room for it.
    pub(super) fn receives(&self) -> Option<&'static Shared> {
        self.receives.with(|shared| {
            if shared.is_none() {
                *shared = Shared::new(self);
            }
            *shared
        })
    }

    /// It has been removed: nothing of it is kept, itself neither (false).
    fn is_gone(&self) -> bool {
        drop(self.on_demand.end());
        false
    }

    fn query(&self, port: u8) -> Result<PortAttr> {
        let mut attr = PortAttr::default();
        // SAFETY: an open device; `attr` has at least the size that is filled.
        ffi::check(unsafe {
            (self.library.query_port)(self.context.as_ptr(), port, &raw mut attr)
        })?;
        Ok(attr)
    }

    /// The RoCE port with this GID, if there is one and it is up.
    fn port(&'static self, gid: &[u8; 16]) -> Result<Option<Port>> {
        let Some(chosen) = choose(&self.gids()?, gid) else {
            return Ok(None);
        };
        let port = self.query(chosen.port)?;
        if port.link_layer != LINK_ETHERNET {
            return Ok(None);
        }
        let here = Here {
            kind: chosen.kind,
            gid: *gid,
            port: chosen.port,
            gid_index: chosen.index,
            needs_gid: true,
        };
        Ok(self.at(&port, here, 0))
    }

    /// The InfiniBand port of this interface, if there is one and it is up.
    fn port_of(&'static self, interface: &Interface) -> Result<Option<Port>> {
        let Some((number, index)) = choose_port(&self.gids()?, &interface.gid) else {
            return Ok(None);
        };
        let port = self.query(number)?;
        let keys = (0..port.pkey_tbl_len).map_while(|index| self.partition(number, index));
        let found = infiniband::partition(keys, interface.pkey);
        let Some((here, pkey_index)) = infiniband_port(&port, interface, (number, index), found)
        else {
            return Ok(None);
        };
        Ok(self.at(&port, here, pkey_index))
    }

    /// A key in a port's table of partitions.
    fn partition(&self, port: u8, index: u16) -> Option<u16> {
        let mut key = 0;
        // SAFETY: an open device, and room for the key.
        let r = unsafe {
            let context = self.context.as_ptr();
            (self.library.query_pkey)(context, port, index.into(), &raw mut key)
        };
        (r == 0).then_some(u16::from_be(key))
    }

    /// What a port is, if it is up.
    fn at(&'static self, port: &PortAttr, here: Here, pkey_index: u16) -> Option<Port> {
        let mtu = u8::try_from(port.active_mtu).unwrap_or(0);
        let is_up = port.state == PORT_ACTIVE && (1..=5).contains(&mtu);
        is_up.then_some(Port {
            device: self,
            here,
            pkey_index,
            mtu,
            longest: port.max_msg_sz,
        })
    }

    /// Its table of GIDs.
    fn gids(&self) -> Result<Vec<GidEntry>> {
        let mut entries = vec![GidEntry::default(); GIDS];
        // SAFETY: an open device, and room for as many entries of this size.
        let n = unsafe {
            (self.library.query_gid_table)(
                self.context.as_ptr(),
                entries.as_mut_ptr(),
                entries.len(),
                0,
                size_of::<GidEntry>(),
            )
        };
        // Or minus an error number.
        let n = usize::try_from(n).map_err(|_| ffi::error(n))?;
        entries.truncate(n);
        Ok(entries)
    }
}

/// Where an InfiniBand port is, by what the device says of it, and in which entry of its table of partitions (`found`: index and
/// key) its queue pairs are.
pub(super) fn infiniband_port(
    port: &PortAttr,
    interface: &Interface,
    (number, gid_index): (u8, u8),
    found: Option<(u16, u16)>,
) -> Option<(Here, u16)> {
    let (pkey_index, pkey) = found?;
    let is_one = matches!(port.link_layer, LINK_INFINIBAND | LINK_UNSPECIFIED);
    let lid = port.lid;
    (is_one && lid <= LAST_LID).then_some((
        Here {
            kind: Kind::Infiniband(Fabric { lid, pkey }),
            gid: interface.gid,
            port: number,
            gid_index,
            needs_gid: port.flags & NEEDS_GRH != 0,
        },
        pkey_index,
    ))
}

/// The InfiniBand port with this GID, and which entry of its table that is.
pub(super) fn choose_port(entries: &[GidEntry], gid: &[u8; 16]) -> Option<(u8, u8)> {
    entries.iter().find_map(|entry| {
        let is_it = entry.gid.0 == *gid && entry.gid_type == GID_IB;
        let port = u8::try_from(entry.port_num).ok()?;
        let index = u8::try_from(entry.gid_index).ok()?;
        is_it.then_some((port, index))
    })
}

/// An entry of a table of GIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) port: u8,
    pub(super) index: u8,
    pub(super) kind: Kind,
}

/// The entry for a GID: RoCE version 2, which is routed as IP is, before version 1; the first of several.
pub(super) fn choose(entries: &[GidEntry], gid: &[u8; 16]) -> Option<Chosen> {
    let of = |wanted: u32, kind: Kind| {
        entries.iter().find_map(|entry| {
            if entry.gid.0 != *gid || entry.gid_type != wanted {
                return None;
            }
            Some(Chosen {
                port: u8::try_from(entry.port_num).ok()?,
                index: u8::try_from(entry.gid_index).ok()?,
                kind,
            })
        })
    };
    of(GID_ROCE_V2, Kind::Roce).or_else(|| of(GID_ROCE_V1, Kind::RoceV1))
}
