//! A buffer for the pieces of files that pass through this process: one is kept for the next who needs it, since getting
//! new memory for each piece costs about as much as reading it.
//!
//! Called by `source`. Rules: nobody waits for the one that is kept; who finds it taken gets another. It begins with a page, as what
//! the kernel has of a file does: a few bytes further on some processors copy at a tenth of the rate (`transport::sys::copy`).

use std::sync::Mutex;
use transport::sys::Result;
use transport::sys::mem::Mapping;

/// Bytes of a piece: what three FPDUs hold, and still in the cache when it is sent.
pub(super) const PIECE: usize = 128 * 1024;

static KEPT: Mutex<Option<Mapping>> = Mutex::new(None);

pub(super) struct Spare(Option<Mapping>);

impl Spare {
    /// A buffer of [`PIECE`] bytes.
    ///
    /// # Errors
    /// ENOMEM: a program without any memory left is told so, and goes on.
    pub(super) fn take() -> Result<Self> {
        let kept = KEPT.try_lock().ok().and_then(|mut kept| kept.take());
        let memory = kept.map_or_else(|| Mapping::private(PIECE), Ok)?;
        Ok(Self(Some(memory)))
    }

    /// Where it begins.
    pub(super) fn at(&mut self) -> *mut u8 {
        let memory = self.0.as_ref();
        memory.map_or(std::ptr::null_mut(), |m| m.base().as_ptr()) // (it is there until it is dropped)
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        // (two were about: the second is given back to the kernel with nothing held)
        let _second = match KEPT.try_lock() {
            Ok(mut kept) => std::mem::replace(&mut *kept, self.0.take()),
            Err(_) => None,
        };
    }
}
