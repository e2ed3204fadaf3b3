//! Memory registered with a device, for this side's work requests and the peer's: an adapter's own, and memory of the
//! program's ([`Guest`]) for the time of one call.
//!
//! A registration that pins pages is not used twice: a page that was unmapped, mapped over,
//! given back (MADV_DONTNEED), copied on a write since or in a fork is another one by then, and it would go on to mean
//! the old one. Nobody tells of most of that: libc's free unmaps by a system call of its own, and a copy on write is no call at all.
//! Where the device registers addresses instead ([`on_demand`](super::on_demand)), those for this side's own Reads are kept. One by which the
//! peer reads is made for its loan in any case: by one that was kept it could go on to read whatever the program puts there.

use super::device::{Device, Port};
use super::ffi;
use super::ffi::types::{Mr, access};
use super::kept::Range;
use super::{Access, Registered, registrar};
use crate::sys::Result;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// A registration, which ends with it. The pages stay where they are as long.
#[derive(Debug)]
pub(super) struct Region {
    device: &'static Device,
    mr: NonNull<Mr>,
}

// SAFETY: libibverbs may be called from any thread (verbs(7)).
unsafe impl Send for Region {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Region {}

impl Region {
    /// Registers memory that the peer may read and write.
    ///
    /// # Errors
    /// ENOMEM beyond what may be locked (RLIMIT_MEMLOCK), EFAULT where nothing is mapped.
    ///
    /// # Safety
    /// The memory stays mapped as long, and is accessed as memory that others write.
    pub(super) unsafe fn register(
        device: &'static Device,
        memory: NonNull<u8>,
        len: usize,
    ) -> Result<Self> {
        let rights = access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_READ;
        // SAFETY: the caller's promise.
        unsafe { Self::with(device, memory, len, rights) }
    }

    /// Registers addresses for this side's own Reads, whatever lies there when one comes.
    ///
    /// # Errors
    /// What the device says.
    ///
    /// # Safety
    /// Who posts work with it vouches for the memory that the work names.
    pub(super) unsafe fn on_demand(
        device: &'static Device,
        memory: NonNull<u8>,
        len: usize,
    ) -> Result<Self> {
        let rights = access::LOCAL_WRITE | access::ON_DEMAND;
        // SAFETY: the caller's promise.
        unsafe { Self::with(device, memory, len, rights) }
    }

    /// # Errors
    /// As [`Self::register`].
    ///
    /// # Safety
    /// As there.
    unsafe fn with(
        device: &'static Device,
        memory: NonNull<u8>,
        len: usize,
        rights: i32,
    ) -> Result<Self> {
        // SAFETY: an open device's domain; the caller's promise.
        let mr = unsafe {
            (device.library.reg_mr)(device.pd.as_ptr(), memory.as_ptr().cast(), len, rights)
        };
        let mr = NonNull::new(mr).ok_or_else(ffi::last)?;
        Ok(Self { device, mr })
    }

    pub(super) const fn lkey(&self) -> u32 {
        // SAFETY: lives until it is deregistered, and is not changed.
        unsafe { self.mr.as_ref() }.lkey
    }

    pub(super) const fn rkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.mr.as_ref() }.rkey
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: a registration that nothing refers to any more.
        unsafe { (self.device.library.dereg_mr)(self.mr.as_ptr()) };
    }
}

/// Memory of the program's: registered for one call.
#[derive(Debug)]
struct Guest(Option<Region>);

/// Memory of the program's within a registration that outlasts the call.
#[derive(Debug)]
struct Within(Option<Arc<Region>>);

/// Registers memory of the program's with this port's device, on any thread. None: there is no room for it.
///
/// # Safety
/// As [`super::Adapter::register`].
pub(super) unsafe fn guest(
    port: Port,
    memory: NonNull<u8>,
    len: usize,
    access: Access,
) -> Option<Box<dyn Registered>> {
    let device = port.device;
    let at = memory.as_ptr().expose_provenance();
    if access == Access::Takes
        && device.on_demand.is_on(port)
        && let Some(region) = within(device, Range::new(at, len)?)
    {
        return Some(Box::new(Within(Some(region))));
    }
    let rights = match access {
        Access::Lends => access::REMOTE_READ,
        Access::Takes => access::LOCAL_WRITE,
    };
    let region = registrar::ask(move || {
        let memory = NonNull::new(ptr::with_exposed_provenance_mut(at))?;
        // SAFETY: the caller's promise; what is unmapped meanwhile stays registered, and nobody's.
        unsafe { Region::with(device, memory, len, rights) }.ok()
    });
    Some(Box::new(Guest(Some(region??))))
}

/// A registration on demand that has this, for this side's own Reads: one that is kept, or a new one.
fn within(device: &'static Device, range: Range) -> Option<Arc<Region>> {
    let found = device.on_demand.find(range);
    found.or_else(|| registrar::ask(move || make(device, range))?)
}

/// On the thread that registers.
fn make(device: &'static Device, range: Range) -> Option<Arc<Region>> {
    let of = |range: Range| {
        let memory = NonNull::new(ptr::with_exposed_provenance_mut(range.from))?;
        // SAFETY: who asks for it posts work with memory that is nobody's but its caller's.
        let region = unsafe { Region::on_demand(device, memory, range.len()) }.ok()?;
        Some((range, Arc::new(region)))
    };
    let (range, region) = range.widened().and_then(of).or_else(|| of(range))?;
    drop(device.on_demand.keep(range, Arc::clone(&region)));
    Some(region)
}

impl Registered for Guest {
    fn lkey(&self) -> u32 {
        self.0.as_ref().map_or(0, Region::lkey)
    }

    fn rkey(&self) -> u32 {
        self.0.as_ref().map_or(0, Region::rkey)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        give_back(self.0.take());
    }
}

impl Registered for Within {
    fn lkey(&self) -> u32 {
        self.0.as_ref().map_or(0, |region| region.lkey())
    }

    /// None: the peer has no right to it.
    fn rkey(&self) -> u32 {
        0
    }

    fn failed(&self) {
        if let Some(region) = &self.0 {
            let gone = region.device.on_demand.failed(region);
            gone.into_iter().for_each(|r| give_back(Arc::into_inner(r)));
        }
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        give_back(self.0.take().and_then(Arc::into_inner));
    }
}

/// Has the thread that registers give it back.
fn give_back(region: Option<Region>) {
    if let Some(region) = region {
        let region = ManuallyDrop::new(region);
        // (in a child of fork, where there is no thread to ask, it is the parent's)
        let _ = registrar::ask(move || drop(ManuallyDrop::into_inner(region)));
    }
}
