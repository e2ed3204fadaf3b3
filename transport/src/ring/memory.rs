//! Where the rings lie in the registered memory of one side.
//!
//! | offset | what | written by |
//! |---|---|---|
//! | 0 | the incoming ring | the peer's adapter |
//! | RING | the staging ring | this side |

use super::RING;
use std::ptr::NonNull;

const INCOMING: usize = 0;
const STAGING: usize = INCOMING + RING;

/// The registered memory of one side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    base: NonNull<u8>,
}

impl Area {
    pub(super) const LEN: usize = STAGING + RING;

    /// Memory of that length.
    pub(super) const fn new(base: NonNull<u8>) -> Self {
        Self { base }
    }

    /// Where it begins, as the peer's adapter has to name it.
    pub(super) fn address(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    const fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: callers name offsets within the memory; whoever has an `Area` has that.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Places of a run of the staging ring: here, in the peer's memory, and how many octets in one piece.
    pub(super) fn staging(&self, position: u64, len: usize) -> (*mut u8, usize, usize) {
        let (from, n) = run(position, len);
        (self.at(STAGING + from), INCOMING + from, n)
    }

    /// A run of the incoming ring, and how many octets in one piece.
    pub(super) fn incoming(&self, position: u64, len: usize) -> (*const u8, usize) {
        let (from, n) = run(position, len);
        (self.at(INCOMING + from), n)
    }
}

/// Where a position lies in a ring, and how many of `len` octets lie there in one piece.
fn run(position: u64, len: usize) -> (usize, usize) {
    let from = usize::try_from(position % RING as u64).unwrap_or(0);
    (from, len.min(RING - from))
}
