//! A buffer for the pieces of files that pass through this process: one is kept for the next who needs it, since getting
//! (and clearing) new memory for each piece costs about as much as reading it.
//!
//! Called by `source`. Rule: nobody waits for the one that is kept; who finds it taken gets another.

use std::sync::Mutex;
use transport::sys::{Errno, Result};

/// Bytes of a piece: what three FPDUs hold, and still in the cache when it is sent.
pub(super) const PIECE: usize = 128 * 1024;

static KEPT: Mutex<Option<Vec<u8>>> = Mutex::new(None);

pub(super) struct Spare(Vec<u8>);

impl Spare {
    /// A buffer of [`PIECE`] bytes.
    ///
    /// # Errors
    /// ENOMEM: a program without any memory left is told so, and goes on.
    pub(super) fn take() -> Result<Self> {
        let kept = KEPT.try_lock().ok().and_then(|mut kept| kept.take());
        kept.map_or_else(|| memory(PIECE), Ok).map(Self)
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if let Ok(mut kept) = KEPT.try_lock() {
            let last = kept.replace(std::mem::take(&mut self.0));
            drop(kept);
            drop(last); // (two were about: the allocator is called with nothing held)
        }
    }
}

/// Memory for a piece.
///
/// # Errors
/// As [`Spare::take`].
pub(super) fn memory(len: usize) -> Result<Vec<u8>> {
    let mut buf = Vec::new();
    buf.try_reserve_exact(len).map_err(|_| Errno::NOMEM)?;
    buf.resize(len, 0);
    Ok(buf)
}
