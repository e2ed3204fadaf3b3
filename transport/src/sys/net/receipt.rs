//! Calls on a connection whose outcome the kernel itself writes down: in memory that several processes have, so that
//! it is known there even if the process that made the call was killed before it could look.
//!
//! sendmmsg(2) and recvmmsg(2) of one message: within the call the kernel stores how many octets it has taken or given
//! to `msg_len`. A process that is killed dies before the call or after it, never in between.
//!
//! A filter of system calls that the program was started under may refuse these two and allow sendmsg(2) and recvmsg(2), which then do
//! the same but for a process that is killed between the call and the note.
//!
//! Called by `transport::wire` on streams that processes share.

use super::vec_msg;
use crate::sys::{Errno, Result};
use crate::syscall;
use std::fmt;
use std::ptr;

/// What filters say of a call that they do not allow; connections know neither.
fn is_refusal(e: Errno) -> bool {
    matches!(e.0, libc::EPERM | libc::ENOSYS)
}

/// The place of one call.
#[repr(transparent)]
pub struct Receipt(libc::mmsghdr);

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receipt").field(&self.octets()).finish()
    }
}

impl Receipt {
    /// No call has been made.
    #[must_use]
    pub fn new() -> Self {
        Self(libc::mmsghdr {
            msg_hdr: vec_msg(ptr::null_mut(), 0),
            msg_len: 0,
        })
    }

    /// No call has been made since.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Octets that the kernel has taken or given by the call that was made here; 0 if it did not come to that.
    #[must_use]
    pub fn octets(&self) -> usize {
        // SAFETY: an integer of ours. (Volatile: it is the kernel that has written it.)
        unsafe { (&raw const self.0.msg_len).read_volatile() as usize }
    }

    /// sendmsg(2) of a list of buffers, once after [`Self::clear`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// The pointers in the list are the program's, or readable.
    pub unsafe fn send(&mut self, fd: i32, list: &mut [libc::iovec], flags: i32) -> Result<usize> {
        self.0.msg_hdr = vec_msg(list.as_mut_ptr(), list.len());
        // SAFETY: one message, which describes the caller's list.
        match unsafe { syscall!(sendmmsg, fd, &raw mut self.0, 1, flags) } {
            Err(e) if is_refusal(e) => {
                // SAFETY: as above.
                let done = unsafe { syscall!(sendmsg, fd, &raw mut self.0.msg_hdr, flags) };
                self.noted(done)
            }
            sent => sent.map(|_| self.octets()),
        }
    }

    /// recvmsg(2) to a list of buffers, once after [`Self::clear`]. Unlike there an error that waits on the socket comes
    /// before octets that do.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// The pointers in the list are the program's, or writable.
    pub unsafe fn recv(&mut self, fd: i32, list: &mut [libc::iovec], flags: i32) -> Result<usize> {
        self.0.msg_hdr = vec_msg(list.as_mut_ptr(), list.len());
        // SAFETY: one message, which describes the caller's list; no time-out.
        match unsafe { syscall!(recvmmsg, fd, &raw mut self.0, 1, flags, 0) } {
            Err(e) if is_refusal(e) => {
                // SAFETY: as above.
                let done = unsafe { syscall!(recvmsg, fd, &raw mut self.0.msg_hdr, flags) };
                self.noted(done)
            }
            came => came.map(|_| self.octets()),
        }
    }

    /// Notes what a call has done that does not do so itself.
    fn noted(&mut self, done: Result<usize>) -> Result<usize> {
        self.0.msg_len = u32::try_from(done?).unwrap_or(u32::MAX);
        Ok(self.octets())
    }
}

impl Default for Receipt {
    fn default() -> Self {
        Self::new()
    }
}
