//! Memory registered with a device, for this side's work requests and the peer's.

use super::device::Device;
use super::ffi;
use super::ffi::types::{Mr, access};
use crate::sys::Result;
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
