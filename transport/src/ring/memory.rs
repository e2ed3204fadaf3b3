//! Where the rings lie in the registered memory of one side, which has made room for two of the same size.
//!
//! | offset | what | written by |
//! |---|---|---|
//! | 0 | the incoming ring; with slots (`slots`) half as much again | the peer's adapter |
//! | that size | the staging ring | this side |
//!
//! Rule: a place in a ring is the same at both sides, so both use as much of it as the smaller of the two has.

use crate::verbs::{RECEIVES, SLOTS};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

const INCOMING: usize = 0;

/// The registered memory of one side.
#[derive(Debug)]
pub(super) struct Area {
    base: NonNull<u8>,
    /// Octets that there are of each ring.
    has: usize,
    /// Octets in front of the staging ring.
    front: usize,
    /// And that are used. Written before anything is put.
    uses: AtomicUsize,
}

impl Area {
    /// Octets of the memory for rings of this size; with slots for what comes in.
    pub(super) const fn octets(ring: usize, slots: bool) -> usize {
        Self::front(ring, slots) + ring
    }

    const fn front(ring: usize, slots: bool) -> usize {
        if slots {
            Self::slot(ring) * RECEIVES
        } else {
            ring
        }
    }

    /// Octets of a slot of a ring of this size.
    pub(super) const fn slot(ring: usize) -> usize {
        ring / SLOTS
    }

    /// Memory of that length.
    pub(super) const fn new(base: NonNull<u8>, ring: usize, slots: bool) -> Self {
        Self {
            base,
            has: ring,
            front: Self::front(ring, slots),
            uses: AtomicUsize::new(ring),
        }
    }

    /// Octets of all of it.
    pub(super) const fn len(&self) -> usize {
        self.front + self.has
    }

    /// What lies at this offset of the incoming ring.
    pub(super) const fn landed(&self, offset: usize) -> *const u8 {
        self.at(INCOMING + offset)
    }

    /// Octets of a ring here.
    pub(super) const fn has(&self) -> usize {
        self.has
    }

    /// Octets of a ring that both sides use.
    #[inline]
    pub(super) fn uses(&self) -> usize {
        self.uses.load(Ordering::Relaxed)
    }

    /// The peer's rings have so many.
    pub(super) fn fit(&self, peer: usize) {
        self.uses.store(self.has.min(peer), Ordering::Relaxed);
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
        let (from, n) = self.run(position, len);
        (self.at(self.front + from), INCOMING + from, n)
    }

    /// A run of the incoming ring, and how many octets in one piece.
    pub(super) fn incoming(&self, position: u64, len: usize) -> (*const u8, usize) {
        let (from, n) = self.run(position, len);
        (self.at(INCOMING + from), n)
    }

    /// Where a position lies in a ring, and how many of `len` octets lie there in one piece.
    fn run(&self, position: u64, len: usize) -> (usize, usize) {
        let ring = self.uses().max(1); // (what was taken down reads as zeros)
        let from = usize::try_from(position % ring as u64).unwrap_or(0);
        (from, len.min(ring - from))
    }
}
