//! The channel that says when there is something in a completion queue (ibv_get_cq_event(3)). Used by queue pairs of both
//! kinds.
//!
//! Rule: its descriptor is out of the program's range, and never closed or read by an interposed function.

use super::device::Device;
use super::ffi;
use super::ffi::types::CompChannel;
use crate::sys::Result;
use crate::sys::fd::{self, Fd};
use crate::syscall;
use std::ptr::NonNull;

/// Says when there is something in a completion queue.
#[derive(Debug)]
pub(super) struct Channel {
    at: NonNull<CompChannel>,
    device: &'static Device,
}

impl Channel {
    pub(super) fn new(device: &'static Device) -> Result<Self> {
        // SAFETY: an open device.
        let at = unsafe { (device.library.create_comp_channel)(device.context.as_ptr()) };
        let at = NonNull::new(at).ok_or_else(ffi::last)?;
        let made = Self { at, device };
        // As with the device's own: the program is not to meet the descriptor.
        let reserved = fd::in_reserve(made.fd())?;
        fd::close(made.fd());
        // SAFETY: just made, and nobody else knows of it.
        unsafe { (*at.as_ptr()).fd = reserved.leak() };
        // SAFETY: no pointers.
        unsafe { syscall!(fcntl, made.fd(), libc::F_SETFL, libc::O_NONBLOCK) }?;
        Ok(made)
    }

    pub(super) const fn fd(&self) -> i32 {
        // SAFETY: it lives until it is dropped, and the number does not change.
        unsafe { self.at.as_ref() }.fd
    }

    pub(super) const fn as_ptr(&self) -> *mut CompChannel {
        self.at.as_ptr()
    }

    /// Takes the event that it shows, if there is one. It is read as the kernel gives it (`struct
    /// ib_uverbs_comp_event_desc`): the library's own function for it calls an interposed one.
    pub(super) fn take_event(&self) -> bool {
        let mut event = 0u64;
        // SAFETY: eight writable octets.
        let read = unsafe { syscall!(read, self.fd(), &raw mut event, size_of::<u64>()) };
        read.is_ok_and(|n| n == size_of::<u64>())
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // (the library would close it by an interposed function)
        drop(Fd::own(self.fd()));
        // SAFETY: ours; what refers to it has gone.
        unsafe {
            (*self.at.as_ptr()).fd = -1;
            (self.device.library.destroy_comp_channel)(self.at.as_ptr());
        }
    }
}

// SAFETY: libibverbs may be called from any thread (verbs(7)).
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}
