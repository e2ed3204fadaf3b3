//! Where positions of the stream lie in a region of two halves: the receive ring and the sender's own
//! buffer; and what a receiver knows of them. Shared by `packetized` and `nic`.

use crate::queued::Beyond;
use crate::{Inbox, Piece, Violation, Word};

/// How far (bytes) an empty ring is walked before it starts over at offset 0.
pub const WARM: u64 = 4096;

/// The largest lazy grant in bytes, whatever the size of the ring.
const LAZIEST: u64 = 64 * 1024;

/// How many bytes are read before the sender is told, unless it is known to wait.
pub(crate) fn lazy(buffer: u64) -> u64 {
    (buffer / 8).clamp(1, LAZIEST)
}

/// Differences of positions are bounded by the region before they get here.
#[allow(clippy::cast_possible_truncation)]
pub(crate) const fn count(bytes: u64) -> usize {
    bytes as usize
}

/// The two halves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Areas {
    mask: usize,
}

impl Areas {
    /// Halves of a region, whose size is a power of two.
    pub(crate) fn new(region: usize) -> Self {
        debug_assert!(region.is_power_of_two() && region >= 2);
        Self {
            mask: (region / 2).wrapping_sub(1),
        }
    }

    /// Bytes of each half.
    pub(crate) const fn half(self) -> u64 {
        self.mask as u64 + 1
    }

    #[allow(clippy::cast_possible_truncation)]
    const fn run(self, at: u64, len: u64) -> Piece {
        let offset = (at as usize) & self.mask;
        let room = (self.mask + 1 - offset) as u64;
        Piece {
            offset,
            len: count(if len < room { len } else { room }),
        }
    }

    /// Bytes at a position of the receive ring.
    #[inline]
    pub(crate) const fn ring(self, position: u64, origin: u64, len: u64) -> Piece {
        self.run(position.wrapping_sub(origin), len)
    }

    /// Bytes at a position of the own buffer, which begins at the boundary.
    #[inline]
    pub(crate) const fn own(self, position: u64, boundary: u64, len: u64) -> Piece {
        let mut piece = self.run(position.wrapping_sub(boundary), len);
        piece.offset += self.mask + 1;
        piece
    }
}

/// What a receiver knows of the two halves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    areas: Areas,
    pub(crate) boundary: u64,
    pub(crate) end: u64,
    pub(crate) consumed: u64,
    origin: u64,
    pub(crate) beyond: Beyond,
}

impl View {
    pub(crate) fn new(region: usize) -> Self {
        Self {
            areas: Areas::new(region),
            boundary: 0,
            end: 0,
            consumed: 0,
            origin: 0,
            beyond: Beyond::default(),
        }
    }

    /// Takes in the sender's words.
    ///
    /// # Errors
    /// [`Violation`] if they are impossible.
    #[inline]
    pub(crate) fn announced(&mut self, from: &impl Inbox) -> Result<(), Violation> {
        let end = self.beyond.end(from);
        let boundary = from.told(Word::Boundary).as_claim();
        let origin = from.told(Word::Origin).as_ring_position();
        self.update(end, boundary, origin)
    }

    /// Takes in the sender's words once they are known to be possible: neither half holds more than it
    /// can, and nothing runs backwards.
    ///
    /// # Errors
    /// [`Violation`] otherwise.
    #[inline]
    fn update(&mut self, end: u64, boundary: u64, origin: u64) -> Result<(), Violation> {
        let half = self.areas.half();
        let in_ring = boundary.min(end).saturating_sub(self.consumed);
        let in_own = end.saturating_sub(boundary.max(self.consumed));
        if end < self.end || boundary < self.boundary || in_ring > half || in_own > half {
            return Err(Violation);
        }
        (self.end, self.boundary, self.origin) = (end, boundary, origin);
        Ok(())
    }

    #[inline]
    pub(crate) fn available(&self) -> usize {
        count(self.end.saturating_sub(self.consumed))
    }

    /// Whether the next bytes lie in the sender's own buffer.
    #[inline]
    pub(crate) const fn is_in_own(&self) -> bool {
        self.consumed >= self.boundary
    }

    #[inline]
    pub(crate) fn next(&self) -> Piece {
        if self.is_in_own() {
            let len = self.end.saturating_sub(self.consumed);
            return self.areas.own(self.consumed, self.boundary, len);
        }
        let len = self.boundary.min(self.end).saturating_sub(self.consumed);
        self.areas.ring(self.consumed, self.origin, len)
    }
}
