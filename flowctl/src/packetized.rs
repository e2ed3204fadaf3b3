//! Packetized flow control (the thesis, section 4.1.3): one contiguous receive ring that the sender
//! runs to the byte.
//!
//! The sender knows how long its messages are, so it owns head and tail of the remote ring and puts
//! each message at the next free byte; the receiver only reports how much it has read. No byte of the
//! buffer is lost to slots. Out of room, bytes are *parked* in the sender's own buffer, where small
//! messages coalesce, and `send` returns; they move at the program's next call of the library and not
//! before (section 4.1.4 names that weakness).
//!
//! What the provider makes of it: on shared memory the own buffer lies in the region too, so parked
//! bytes need not be copied into the ring: to move them is to let the receiver take them where they are
//! ([`Word::Produced`]), never more than it has free. Until they are all taken, later bytes are parked
//! behind them.
//!
//! Two refinements that change no rule:
//! - *Warm start*: when the ring is empty and the write position has moved past [`WARM`] bytes, the
//!   sender starts again at offset 0 by moving the origin. Small messages then stay in lines that both
//!   caches know, and a connection that never sends much never touches more pages. It is safe because
//!   an empty ring means that the receiver has read up to the position at which the origin moves.
//! - *Lazy grants*: the receiver reports only once an eighth of the ring was read, or when it is about
//!   to wait, so that small messages do not bounce a cache line each.

pub use crate::areas::WARM;
use crate::areas::{Areas, View, count, lazy};
use crate::{Back, Counts, Granted, Inbox, Outbox, Piece, Terms, Violation, Word};

/// The sending half. Positions: `consumed <= shown <= accepted`, `boundary <= accepted`.
#[derive(Clone, Debug)]
pub struct Sender {
    areas: Areas,
    buffer: u64,
    own: u64,
    boundary: u64,
    shown: u64,
    accepted: u64,
    consumed: u64,
    origin: u64,
    in_own: bool,
    counts: Counts,
}

impl Sender {
    /// A sender into a region of two halves, by terms that fit it.
    #[must_use]
    pub fn new(region: usize, terms: &Terms) -> Self {
        let areas = Areas::new(region);
        Self {
            areas,
            buffer: terms.buffer.clamp(1, areas.half()),
            own: terms.own.min(areas.half()),
            boundary: 0,
            shown: 0,
            accepted: 0,
            consumed: 0,
            origin: 0,
            in_own: false,
            counts: Counts::default(),
        }
    }

    #[inline]
    const fn uses_own(&self) -> bool {
        self.accepted > self.boundary
    }

    fn own_room(&self) -> u64 {
        let used = self.accepted - self.boundary.max(self.consumed);
        self.own.saturating_sub(used)
    }

    #[inline]
    const fn ring_room(&self) -> u64 {
        self.buffer
            .saturating_sub(self.boundary.saturating_sub(self.consumed))
    }
}

impl crate::Sender for Sender {
    #[inline]
    fn granted(&mut self, out: &impl Outbox) -> Result<(), Violation> {
        // A receiver that has waited for long may take parked bytes by itself.
        self.consumed = out
            .handed_back(Back::Consumed)
            .within(self.consumed, self.accepted)?;
        self.shown = self.shown.max(self.consumed);
        if self.consumed == self.accepted {
            self.boundary = self.accepted; // the own buffer is empty: on with the ring
        }
        Ok(())
    }

    #[inline]
    fn room(&self) -> usize {
        count(if self.uses_own() {
            self.own_room()
        } else {
            self.ring_room() + self.own
        })
    }

    fn is_roomy(&self) -> bool {
        if self.uses_own() {
            self.own_room() >= self.own / 3
        } else {
            self.own > 0 || self.ring_room() >= self.buffer / 3
        }
    }

    #[inline]
    fn is_short(&self, want: usize) -> bool {
        self.uses_own() || self.ring_room() < want as u64
    }

    #[inline]
    fn place(&mut self, want: usize) -> Piece {
        let room = if self.uses_own() { 0 } else { self.ring_room() };
        self.in_own = room == 0;
        if self.in_own {
            if !self.uses_own() {
                self.counts.starved += 1;
            }
            let len = self.own_room().min(want as u64);
            return self.areas.own(self.accepted, self.boundary, len);
        }
        if self.boundary == self.consumed && self.boundary - self.origin >= WARM {
            self.origin = self.boundary;
        }
        self.areas
            .ring(self.boundary, self.origin, room.min(want as u64))
    }

    #[inline]
    fn commit(&mut self, len: usize, _out: &impl Outbox) {
        self.accepted += len as u64;
        if !self.in_own {
            self.boundary = self.accepted;
            self.shown = self.accepted;
            self.counts.wire += 1;
        }
    }

    #[inline]
    fn publish(&mut self, out: &impl Outbox) {
        out.tell(Word::Origin, self.origin);
        out.tell(Word::Boundary, self.boundary);
        out.tell(Word::Produced, self.shown);
        if self.uses_own() {
            out.tell(Word::Queued, self.accepted);
        }
    }

    #[inline]
    fn accepted(&self) -> u64 {
        self.accepted
    }

    #[inline]
    fn limit(&self) -> u64 {
        self.buffer + self.own
    }

    fn piece_at(&self, from: u64, _out: &impl Outbox) -> Piece {
        if from < self.boundary {
            self.areas.ring(from, self.origin, self.boundary - from)
        } else {
            let len = self.accepted.saturating_sub(from);
            self.areas.own(from, self.boundary, len)
        }
    }

    #[inline]
    fn is_parked(&self) -> bool {
        self.shown < self.accepted
    }

    fn post(&mut self, all: bool, out: &impl Outbox) -> bool {
        let free = if all {
            u64::MAX
        } else {
            self.buffer.saturating_sub(self.shown - self.consumed)
        };
        let shown = self.accepted.min(self.shown.saturating_add(free));
        if shown == self.shown {
            return false;
        }
        self.shown = shown;
        self.counts.wire += 1;
        out.tell(Word::Produced, shown);
        true
    }

    fn resize(&mut self, own: usize) {
        self.own = (own as u64).min(self.areas.half());
    }

    fn held(&self, taken: u64) -> u64 {
        self.boundary.saturating_sub(taken)
    }

    fn reserved(&self) -> u64 {
        self.buffer
    }

    #[inline]
    fn counts(&self) -> Counts {
        self.counts
    }
}

/// The receiving half.
#[derive(Clone, Debug)]
pub struct Receiver {
    view: View,
    lazy: u64,
    granted: u64,
    released: bool,
}

impl Receiver {
    /// A receiver over a region of two halves, by the sender's terms.
    #[must_use]
    pub fn new(region: usize, terms: &Terms) -> Self {
        Self {
            view: View::new(region),
            lazy: lazy(terms.buffer),
            granted: 0,
            released: false,
        }
    }
}

impl crate::Receiver for Receiver {
    #[inline]
    fn announced(&mut self, from: &impl Inbox) -> Result<(), Violation> {
        let mut end = from.told(Word::Produced).as_claim();
        if self.released {
            end = end.max(from.told(Word::Queued).as_claim());
        }
        let boundary = from.told(Word::Boundary).as_claim();
        let origin = from.told(Word::Origin).as_ring_position();
        self.view.update(end, boundary, origin)
    }

    #[inline]
    fn available(&self) -> usize {
        self.view.available()
    }

    #[inline]
    fn next(&mut self, _from: &impl Inbox) -> Result<Piece, Violation> {
        Ok(self.view.next())
    }

    #[inline]
    fn consume(&mut self, len: usize) {
        debug_assert!(len <= self.available());
        self.view.consumed += len as u64;
    }

    #[inline]
    fn consumed(&self) -> u64 {
        self.view.consumed
    }

    #[inline]
    fn grant(&mut self, eager: bool, to: &impl Inbox) -> Granted {
        let owed = self.view.consumed - self.granted;
        if owed >= self.lazy || (eager && owed > 0) {
            self.granted = self.view.consumed;
            to.hand_back(Back::Consumed, self.granted);
            return Granted::Told;
        }
        Granted::Nothing
    }

    fn release(&mut self) {
        self.released = true;
    }
}
