//! What a sender knows of the two halves of a region: what lies in the receive ring, what in its own
//! buffer, and where the next bytes go. The counterpart of [`crate::areas::View`].
//!
//! Held by the senders of `packetized` and `nic`, which decide when bytes go to which half. Positions:
//! `consumed <= accepted` and `boundary <= accepted`; bytes before the boundary lie in the ring, later
//! ones in the own buffer, and the ring is not used again before the own buffer has been emptied.

use crate::areas::{Areas, WARM};
use crate::{Back, Counts, Outbox, Piece, Queued, Terms, Violation, Word};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    areas: Areas,
    /// Bytes of the receive buffer.
    pub(crate) buffer: u64,
    own: u64,
    boundary: u64,
    pub(crate) accepted: u64,
    pub(crate) consumed: u64,
    origin: u64,
    /// Where the bytes go that were placed last.
    in_own: bool,
    pub(crate) counts: Counts,
}

impl Outgoing {
    /// Nothing sent yet, by terms that fit the region.
    pub(crate) fn new(region: usize, terms: &Terms) -> Self {
        let areas = Areas::new(region);
        Self {
            areas,
            buffer: terms.buffer.clamp(1, areas.half()),
            own: terms.own.min(areas.half()),
            boundary: 0,
            accepted: 0,
            consumed: 0,
            origin: 0,
            in_own: false,
            counts: Counts::default(),
        }
    }

    /// Whether later bytes have to go behind others in the own buffer.
    #[inline]
    pub(crate) const fn uses_own(&self) -> bool {
        self.accepted > self.boundary
    }

    /// Size of the own buffer.
    #[inline]
    pub(crate) const fn own(&self) -> u64 {
        self.own
    }

    #[inline]
    pub(crate) const fn own_used(&self) -> u64 {
        let from = if self.boundary > self.consumed {
            self.boundary
        } else {
            self.consumed
        };
        self.accepted - from
    }

    #[inline]
    pub(crate) const fn own_room(&self) -> u64 {
        self.own.saturating_sub(self.own_used())
    }

    /// Bytes of the receive buffer that hold nothing, as far as is known.
    #[inline]
    pub(crate) const fn ring_room(&self) -> u64 {
        self.buffer
            .saturating_sub(self.boundary.saturating_sub(self.consumed))
    }

    /// Takes in how much the receiver has read.
    ///
    /// # Errors
    /// [`Violation`] if that runs backwards or past what was sent.
    #[inline]
    pub(crate) fn read_so_far(&mut self, out: &impl Outbox) -> Result<(), Violation> {
        self.consumed = out
            .handed_back(Back::Consumed)
            .within(self.consumed, self.accepted)?;
        Ok(())
    }

    /// Once everything was read the own buffer is empty: on with the ring.
    #[inline]
    pub(crate) const fn leave_empty_own(&mut self) {
        if self.consumed == self.accepted {
            self.boundary = self.accepted;
        }
    }

    /// The third of a room that makes poll(2) call a direction writable: of the own buffer while that is
    /// in use, otherwise of the receive buffer, unless there is an own buffer to fall back on.
    #[inline]
    pub(crate) const fn is_roomy(&self, ring_room: u64) -> bool {
        if self.uses_own() {
            self.own_room() >= self.own / 3
        } else {
            self.own > 0 || ring_room >= self.buffer / 3
        }
    }

    /// The next bytes go to the ring, which has room for them.
    #[inline]
    pub(crate) const fn place_in_ring(&mut self, len: u64) -> Piece {
        self.in_own = false;
        if self.boundary == self.consumed && self.boundary - self.origin >= WARM {
            self.origin = self.boundary;
        }
        self.areas.ring(self.boundary, self.origin, len)
    }

    /// The next bytes go to the own buffer, as many as it has room for.
    #[inline]
    pub(crate) fn place_in_own(&mut self, want: u64) -> Piece {
        self.in_own = true;
        if !self.uses_own() {
            self.counts.starved += 1;
        }
        let len = want.min(self.own_room());
        self.areas.own(self.accepted, self.boundary, len)
    }

    /// Accounts for bytes put at the place last given. True if that was the ring.
    #[inline]
    pub(crate) const fn commit(&mut self, len: u64) -> bool {
        self.accepted += len;
        if !self.in_own {
            self.boundary = self.accepted;
            self.counts.wire += 1;
        }
        !self.in_own
    }

    /// The next bytes go to the ring.
    pub(crate) const fn leave_own(&mut self) {
        self.in_own = false;
    }

    /// So many of the first bytes in the own buffer have been carried to the ring.
    pub(crate) const fn carry(&mut self, len: u64) {
        self.boundary += len;
        self.counts.wire += 1;
    }

    /// Bytes at a position of an own buffer that does not begin at the boundary.
    pub(crate) const fn own_at(&self, position: u64, from: u64, len: u64) -> Piece {
        self.areas.own(position, from, len)
    }

    /// Tells the receiver where bytes lie; to be told before how many there are.
    #[inline]
    pub(crate) fn publish_places(&self, out: &impl Outbox) {
        out.tell(Word::Origin, self.origin);
        out.tell(Word::Boundary, self.boundary);
    }

    /// See [`crate::Sender::withhold`].
    #[inline]
    pub(crate) fn withhold(&self, out: &impl Outbox) -> bool {
        if self.uses_own() {
            return false;
        }
        self.publish_places(out);
        let end = self.accepted;
        let withheld = true;
        Queued { end, withheld }.tell(out);
        true
    }

    /// The most that may be on its way.
    #[inline]
    pub(crate) const fn limit(&self) -> u64 {
        self.buffer + self.own
    }

    /// Where bytes that were put before still lie.
    pub(crate) const fn piece_at(&self, from: u64) -> Piece {
        if from < self.boundary {
            self.areas.ring(from, self.origin, self.boundary - from)
        } else {
            let len = self.accepted.saturating_sub(from);
            self.areas.own(from, self.boundary, len)
        }
    }

    /// Sizes the own buffer anew.
    pub(crate) fn resize(&mut self, own: usize) {
        self.own = (own as u64).min(self.areas.half());
    }

    /// Bytes in the receive buffer once so many of the stream were taken.
    pub(crate) const fn held(&self, taken: u64) -> u64 {
        self.boundary.saturating_sub(taken)
    }
}
