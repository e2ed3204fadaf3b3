//! Packetized flow control (the thesis, chapter 4): one contiguous receive ring that the sender runs
//! to the byte.
//!
//! The sender knows how long its messages are, so it owns head and tail of the remote ring and puts
//! each message at the next free byte; the receiver only reports how much it has read. No byte of the
//! buffer is lost to slots.
//!
//! Two refinements that change no rule:
//! - *Warm start*: when the ring is empty and the write position has moved past [`WARM`] bytes, the
//!   sender starts again at offset 0 by moving the origin. Small messages then stay in lines that both
//!   caches know, and a connection that never sends much never touches more pages. It is safe because
//!   an empty ring means that the receiver has read up to the position at which the origin moves.
//! - *Lazy grants*: the receiver reports only once an eighth of the ring was read, or when it is about
//!   to wait, so that small messages do not bounce a cache line each.

use crate::{Piece, Published, Untrusted, Violation};

/// How far (bytes) an empty ring is walked before it starts over at offset 0.
pub const WARM: u64 = 4096;

/// The largest lazy grant in bytes, whatever the size of the ring.
const LAZIEST: u64 = 64 * 1024;

/// Positions are 64-bit byte counts; offsets fit `usize` because the mask does.
#[allow(clippy::cast_possible_truncation)]
const fn offset(position: u64, origin: u64, mask: usize) -> usize {
    (position.wrapping_sub(origin) as usize) & mask
}

#[allow(clippy::cast_possible_truncation)]
const fn count(bytes: u64) -> usize {
    bytes as usize
}

/// The sending half.
#[derive(Clone, Debug)]
pub struct Sender {
    mask: usize,
    limit: u64,
    produced: u64,
    consumed: u64,
    origin: u64,
}

impl Sender {
    /// A sender into a ring of `size` bytes (a power of two) that uses at most `limit` of them.
    #[must_use]
    pub fn new(size: usize, limit: usize) -> Self {
        debug_assert!(size.is_power_of_two());
        Self {
            mask: size - 1,
            limit: limit.clamp(1, size) as u64,
            produced: 0,
            consumed: 0,
            origin: 0,
        }
    }

    /// Bytes put over the life of the direction.
    #[must_use]
    pub const fn produced(&self) -> u64 {
        self.produced
    }

    /// Bytes that the receiver has reported as read.
    #[must_use]
    pub const fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Where bytes that were put before still lie: from position `from` on, up to `end`, contiguous.
    #[must_use]
    pub fn piece_at(&self, from: u64, end: u64) -> Piece {
        let offset = offset(from, self.origin, self.mask);
        let len = count(end.saturating_sub(from)).min(self.mask + 1 - offset);
        Piece { offset, len }
    }

    /// The most that may be on its way, in bytes.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }
}

impl crate::Sender for Sender {
    #[inline]
    fn granted(&mut self, consumed: Untrusted<u64>) -> Result<(), Violation> {
        self.consumed = consumed.within(self.consumed, self.produced)?;
        Ok(())
    }

    #[inline]
    fn room(&self) -> usize {
        count(self.limit.saturating_sub(self.produced - self.consumed))
    }

    #[inline]
    fn place(&mut self, want: usize) -> Piece {
        if self.produced == self.consumed && self.produced - self.origin >= WARM {
            self.origin = self.produced;
        }
        let offset = offset(self.produced, self.origin, self.mask);
        let len = want.min(self.room()).min(self.mask + 1 - offset);
        Piece { offset, len }
    }

    #[inline]
    fn commit(&mut self, len: usize) -> Published {
        debug_assert!(len <= self.room());
        self.produced += len as u64;
        Published {
            produced: self.produced,
            origin: self.origin,
        }
    }
}

/// The receiving half.
#[derive(Clone, Debug)]
pub struct Receiver {
    mask: usize,
    lazy: u64,
    produced: u64,
    consumed: u64,
    granted: u64,
    origin: u64,
}

impl Receiver {
    /// A receiver over a ring of `size` bytes (a power of two) of which the sender uses `limit`.
    #[must_use]
    pub fn new(size: usize, limit: usize) -> Self {
        debug_assert!(size.is_power_of_two());
        Self {
            mask: size - 1,
            lazy: (limit.clamp(1, size) as u64 / 8).clamp(1, LAZIEST),
            produced: 0,
            consumed: 0,
            granted: 0,
            origin: 0,
        }
    }

    /// Bytes read over the life of the direction.
    #[must_use]
    pub const fn consumed(&self) -> u64 {
        self.consumed
    }
}

impl crate::Receiver for Receiver {
    #[inline]
    fn announced(
        &mut self,
        produced: Untrusted<u64>,
        origin: Untrusted<u64>,
    ) -> Result<(), Violation> {
        let full = self.consumed + self.mask as u64 + 1;
        self.produced = produced.within(self.produced, full)?;
        self.origin = origin.as_ring_position();
        Ok(())
    }

    #[inline]
    fn available(&self) -> usize {
        count(self.produced - self.consumed)
    }

    #[inline]
    fn next(&self, skip: usize) -> Piece {
        let left = self.available().saturating_sub(skip);
        let offset = offset(self.consumed + skip as u64, self.origin, self.mask);
        Piece {
            offset,
            len: left.min(self.mask + 1 - offset),
        }
    }

    #[inline]
    fn consume(&mut self, len: usize) {
        debug_assert!(len <= self.available());
        self.consumed += len as u64;
    }

    #[inline]
    fn grant(&mut self, eager: bool) -> Option<u64> {
        let owed = self.consumed - self.granted;
        if owed >= self.lazy || (eager && owed > 0) {
            self.granted = self.consumed;
            Some(self.consumed)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests;
