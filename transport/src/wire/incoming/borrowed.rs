//! Buffers that the peer lends by its ring, as their sink: the next bytes of the stream lie in its program's memory, and are
//! read from there by whoever reads next (`ring::loans`): straight to the program's buffer, or for small reads and those that
//! only look to where bytes are made ready here. Who asks whether there is anything to read is told so only once some of it is here,
//! as the peer may take the rest back at any time.
//!
//! Rule: bytes that were read are the reader's, and count. What the peer sends once more since it did not hear of them is left out.

use super::{Common, In, READY, Stage};
use crate::ring::Borrowed;
use crate::sdp::Walk;
use crate::sdp_wire::Violation;
use crate::sdp_wire::message::Advert;

/// Buffers from which on it is read straight to them, in bytes.
const STRAIGHT: usize = 16 * 1024;
/// Bytes that are made ready at once.
const AHEAD: usize = 16 * 1024;
const _: () = assert!(AHEAD <= READY);

impl In {
    /// The peer lends a buffer.
    pub(super) fn borrow_begins(
        &mut self,
        common: &Common,
        advert: &Advert,
    ) -> Result<(), Violation> {
        if self.borrowed.is_some_and(|b| b.left() > 0) {
            return Err(Violation::AdvertMode); // one at a time
        }
        let ring = common.ring.get().filter(|ring| {
            // (one that was said by a ring that has ended since, and comes by the kernel, is recalled)
            self.link.is_ring() && !ring.is_over() && !self.is_shared_now()
        });
        let place = (advert.address, advert.stag, advert.len);
        self.borrowed = Some(Borrowed::new(ring, place));
        Ok(())
    }

    /// The peer takes it back: it knows of so many bytes that were read.
    pub(super) fn borrow_ends(&mut self, bytes: u32) -> Result<(), Violation> {
        let read = self.borrowed.take().map(|b| b.read());
        let besides = read.and_then(|read| read.checked_sub(bytes));
        self.leaves_out = besides.ok_or(Violation::AdvertMode)? as usize;
        Ok(())
    }

    /// Data may come only where nothing is lent.
    pub(super) fn borrowed_is_read(&self) -> Result<(), Violation> {
        match self.borrowed {
            Some(borrowed) if borrowed.left() > 0 => Err(Violation::AdvertMode),
            _ => Ok(()),
        }
    }

    /// Bytes that can be read of what the peer lends.
    pub(super) fn lent_bytes(&self, common: &Common) -> usize {
        let there =
            |b: &Borrowed| b.is_live() && self.stage == Stage::Header && self.start == self.end;
        let borrowed = self.borrowed.filter(there);
        let ring = common.ring.get().filter(|ring| !ring.is_over());
        borrowed.filter(|_| ring.is_some()).map_or(0, |b| b.left())
    }

    /// Reads from there into the program's buffers, or makes ready what goes there next. How many bytes.
    ///
    /// # Safety
    /// The walk's buffers are writable.
    pub(super) unsafe fn pull(&mut self, common: &Common, walk: &mut Walk, discard: bool) -> usize {
        let left = self.lent_bytes(common);
        let (to, room) = walk.chunk();
        if left == 0 || discard || room < STRAIGHT.min(left) {
            return self.pull_ahead(common);
        }
        // SAFETY: the caller's promise.
        let n = unsafe { self.pull_to(common, to, room) };
        walk.advance(n);
        n
    }

    /// Makes bytes ready of what the peer lends, where none are. How many.
    pub(super) fn pull_ahead(&mut self, common: &Common) -> usize {
        if self.lent_bytes(common) == 0 || self.ready_start < self.ready_end {
            return 0;
        }
        let to = self.ready.as_mut_ptr();
        // SAFETY: our own buffer, which is longer, and of which nothing is needed.
        let n = unsafe { self.pull_to(common, to, AHEAD) };
        (self.ready_start, self.ready_end) = (0, n);
        n
    }

    /// # Safety
    /// The buffer is writable.
    unsafe fn pull_to(&mut self, common: &Common, to: *mut u8, room: usize) -> usize {
        let (Some(ring), Some(borrowed)) = (common.ring.get(), &mut self.borrowed) else {
            return 0;
        };
        if ring.available() > 0 {
            return 0; // what the peer has said since comes first
        }
        // SAFETY: the caller's promise.
        let n = unsafe { borrowed.pull(ring, to, room) };
        self.read_bytes += n as u64;
        n
    }
}
