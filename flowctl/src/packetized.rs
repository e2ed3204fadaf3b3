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
//! behind them. Where bytes go in messages they are copied once there is room ([`crate::carrier`]).
//!
//! Two refinements that change no rule:
//! - *Warm start*: when the ring is empty and the write position has moved past [`WARM`] bytes, the
//!   sender starts again at offset 0 by moving the origin. Small messages then stay in lines that both
//!   caches know, and a connection that never sends much never touches more pages. It is safe because
//!   an empty ring means that the receiver has read up to the position at which the origin moves.
//! - *Lazy grants*: the receiver reports only once an eighth of the ring was read, or when it is about
//!   to wait, so that small messages do not bounce a cache line each.

pub use crate::areas::WARM;
use crate::areas::{View, count, lazy};
use crate::outgoing::Outgoing;
use crate::{Back, Counts, Granted, Inbox, Outbox, Piece, Queued, Terms, Violation, Word};

/// The sending half: what is shown lies between what was consumed and what was accepted.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    pub(crate) halves: Outgoing,
    pub(crate) shown: u64,
}

impl Sender {
    /// A sender into a region of two halves, by terms that fit it.
    #[must_use]
    pub fn new(region: usize, terms: &Terms) -> Self {
        Self {
            halves: Outgoing::new(region, terms),
            shown: 0,
        }
    }
}

impl crate::Sender for Sender {
    #[inline]
    fn granted(&mut self, out: &impl Outbox) -> Result<(), Violation> {
        self.halves.read_so_far(out)?;
        // A receiver that has waited for long may take parked bytes by itself.
        self.shown = self.shown.max(self.halves.consumed);
        self.halves.leave_empty_own();
        Ok(())
    }

    #[inline]
    fn room(&self) -> usize {
        count(if self.halves.uses_own() {
            self.halves.own_room()
        } else {
            self.halves.ring_room() + self.halves.own()
        })
    }

    fn is_roomy(&self) -> bool {
        self.halves.is_roomy(self.halves.ring_room())
    }

    #[inline]
    fn is_short(&self, want: usize) -> bool {
        self.halves.uses_own() || self.halves.ring_room() < want as u64
    }

    #[inline]
    fn place(&mut self, want: usize) -> Piece {
        let (want, room) = (want as u64, self.halves.ring_room());
        if self.halves.uses_own() || room == 0 {
            self.halves.place_in_own(want)
        } else {
            self.halves.place_in_ring(want.min(room))
        }
    }

    #[inline]
    fn commit(&mut self, len: usize, _out: &impl Outbox) {
        if self.halves.commit(len as u64) {
            self.shown = self.halves.accepted;
        }
    }

    #[inline]
    fn publish(&mut self, out: &impl Outbox) {
        self.halves.publish_places(out);
        out.tell(Word::Produced, self.shown);
        if self.halves.uses_own() {
            let (end, withheld) = (self.halves.accepted, false);
            Queued { end, withheld }.tell(out);
        }
    }

    #[inline]
    fn is_parked(&self) -> bool {
        self.shown < self.halves.accepted
    }

    fn show(&mut self, all: bool) -> bool {
        let free = if all {
            u64::MAX
        } else {
            let shown = self.shown - self.halves.consumed;
            self.halves.buffer.saturating_sub(shown)
        };
        let shown = self.halves.accepted.min(self.shown.saturating_add(free));
        if shown == self.shown {
            return false;
        }
        self.shown = shown;
        self.halves.counts.wire += 1;
        true
    }

    fn withhold(&self, out: &impl Outbox) -> bool {
        self.halves.withhold(out)
    }

    #[inline]
    fn accepted(&self) -> u64 {
        self.halves.accepted
    }

    #[inline]
    fn limit(&self) -> u64 {
        self.halves.limit()
    }

    fn piece_at(&self, from: u64, _out: &impl Outbox) -> Piece {
        self.halves.piece_at(from)
    }

    fn resize(&mut self, own: usize) {
        self.halves.resize(own);
    }

    fn held(&self, taken: u64) -> u64 {
        self.halves.held(taken)
    }

    fn reserved(&self) -> u64 {
        self.halves.buffer
    }

    #[inline]
    fn counts(&self) -> Counts {
        self.halves.counts
    }
}

/// The receiving half.
#[derive(Clone, Debug)]
pub struct Receiver {
    view: View,
    lazy: u64,
    granted: u64,
}

impl Receiver {
    /// A receiver over a region of two halves, by the sender's terms.
    #[must_use]
    pub fn new(region: usize, terms: &Terms) -> Self {
        Self {
            view: View::new(region),
            lazy: lazy(terms.buffer),
            granted: 0,
        }
    }
}

impl crate::Receiver for Receiver {
    #[inline]
    fn announced(&mut self, from: &impl Inbox) -> Result<(), Violation> {
        self.view.announced(from)
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
        self.view.beyond.release();
    }

    fn pull(&mut self, from: &impl Inbox) {
        self.view.beyond.pull(from);
    }
}
