//! Memory registered with a device, for this side's work requests and the peer's: an adapter's own, and memory of the
//! program's for the time of one call ([`Guest`]).
//!
//! Nothing of the program's is kept registered beyond that, and no registration is used twice: a page that was unmapped, mapped over,
//! given back (MADV_DONTNEED), copied on a write since or in a fork is another one by then, and a registration would go on to mean
//! the old one. Nobody tells of most of that: libc's free unmaps by a system call of its own, and a copy on write is no call at all.

use super::device::Device;
use super::ffi;
use super::ffi::types::{Mr, access};
use super::{Access, Registered, registrar};
use crate::sys::Result;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

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

    pub(super) const fn device(&self) -> &'static Device {
        self.device
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

/// Memory of the program's.
#[derive(Debug)]
struct Guest(Option<Region>);

/// Registers memory of the program's, on any thread. None: there is no room for it.
///
/// # Safety
/// As [`super::Adapter::register`].
pub(super) unsafe fn guest(
    device: &'static Device,
    memory: NonNull<u8>,
    len: usize,
    access: Access,
) -> Option<Box<dyn Registered>> {
    let rights = match access {
        Access::Lends => access::REMOTE_READ,
        Access::Takes => access::LOCAL_WRITE,
    };
    let at = memory.as_ptr().expose_provenance();
    let region = registrar::ask(move || {
        let memory = NonNull::new(std::ptr::with_exposed_provenance_mut(at))?;
        // SAFETY: the caller's promise; what is unmapped meanwhile stays registered, and nobody's.
        unsafe { Region::with(device, memory, len, rights) }.ok()
    });
    Some(Box::new(Guest(Some(region??))))
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
        let region = ManuallyDrop::new(self.0.take());
        // (in a child of fork, where there is no thread to ask, it is the parent's)
        let _ = registrar::ask(move || drop(ManuallyDrop::into_inner(region)));
    }
}
