//! NIC-assisted flow control (the thesis, section 4.3): the hardware's message credits, made safe by a
//! virtual window, and a queue that moves with no help from the sending thread.
//!
//! *Virtual window* (4.3.1). Segments are at most W bytes. The receiver advertises one receive more only
//! while at least W bytes are free for each receive that is out:
//! `free >= W * (advertised - arrived)` at every step. So a credit, which counts messages and not
//! bytes, always has room behind it.
//!
//! *Asynchronous events* (4.3.2). Out of credit the socket buffer splits. The NIC-handled part is filled
//! first: each message is a segment that is handed over at once. Later bytes go to the software-handled
//! part, where they coalesce. When the receiver goes on, the NIC sends its next segment *and* raises an
//! event, whose handler cuts the software part into segments of W and hands them over behind.
//!
//! What the provider makes of it: on shared memory the NIC is whatever moves posted segments without the
//! sender, and that is the receiver: once its ring is empty (so all of it is free) it pulls segments from
//! the sender's own buffer, and runs the event's handler itself. No third thread takes part.

use crate::areas::{Areas, View, WARM, count, lazy};
use crate::{Back, Counts, Granted, Inbox, Outbox, Piece, Terms, Violation, Word};

/// The sending half. Positions: `consumed <= accepted`, `boundary <= posted <= accepted`.
#[derive(Clone, Debug)]
pub struct Sender {
    areas: Areas,
    window: u64,
    buffer: u64,
    own: u64,
    boundary: u64,
    posted: u64,
    accepted: u64,
    consumed: u64,
    origin: u64,
    /// Segments put under an advertised receive.
    segments: u64,
    advertised: u64,
    in_own: bool,
    counts: Counts,
}

impl Sender {
    /// A sender into a region of two halves, by terms that fit it.
    #[must_use]
    pub fn new(region: usize, terms: &Terms) -> Self {
        let areas = Areas::new(region);
        let (buffer, window) = sizes(areas, terms);
        Self {
            areas,
            window,
            buffer,
            own: terms.own.min(areas.half()),
            boundary: 0,
            posted: 0,
            accepted: 0,
            consumed: 0,
            origin: 0,
            segments: 0,
            advertised: buffer / window,
            in_own: false,
            counts: Counts::default(),
        }
    }

    #[inline]
    const fn uses_own(&self) -> bool {
        self.accepted > self.boundary
    }

    const fn own_used(&self) -> u64 {
        let from = if self.boundary > self.consumed {
            self.boundary
        } else {
            self.consumed
        };
        self.accepted - from
    }

    #[inline]
    const fn credits(&self) -> u64 {
        self.advertised.saturating_sub(self.segments)
    }

    /// How much the NIC-handled part takes before bytes coalesce.
    const fn nic_part(&self) -> u64 {
        self.own / 2
    }

    const fn has_software_part(&self) -> bool {
        self.accepted > self.posted
    }
}

/// The receive buffer and the window by terms, in bounds.
fn sizes(areas: Areas, terms: &Terms) -> (u64, u64) {
    let buffer = terms.buffer.clamp(1, areas.half());
    (buffer, u64::from(terms.window).clamp(1, buffer))
}

impl crate::Sender for Sender {
    #[inline]
    fn granted(&mut self, out: &impl Outbox) -> Result<(), Violation> {
        self.consumed = out
            .handed_back(Back::Consumed)
            .within(self.consumed, self.accepted)?;
        let most = self.segments.saturating_add(self.buffer / self.window);
        self.advertised = out
            .handed_back(Back::Advertised)
            .within(0, most)?
            .max(self.advertised);
        if self.uses_own() {
            let evented = out.handed_back(Back::Evented).within(0, self.accepted)?;
            if evented > self.posted {
                self.counts.wire += (evented - self.posted).div_ceil(self.window);
                self.posted = evented;
            }
            self.counts.events = out.handed_back(Back::Events).as_hearsay();
            if self.consumed == self.accepted {
                self.boundary = self.accepted;
                self.posted = self.accepted;
            }
        }
        Ok(())
    }

    #[inline]
    fn room(&self) -> usize {
        if self.uses_own() {
            return count(self.own.saturating_sub(self.own_used()));
        }
        // Behind each credit there is a window of room, also if this side has not heard yet of all that
        // was read.
        count(self.credits().saturating_mul(self.window) + self.own)
    }

    fn is_roomy(&self) -> bool {
        if self.uses_own() {
            self.own.saturating_sub(self.own_used()) >= self.own / 3
        } else {
            self.own > 0 || self.room() as u64 >= self.buffer / 3
        }
    }

    #[inline]
    fn is_short(&self, want: usize) -> bool {
        self.uses_own() || self.credits().saturating_mul(self.window) < want as u64
    }

    #[inline]
    fn place(&mut self, want: usize) -> Piece {
        let want = want as u64;
        self.in_own = self.uses_own() || self.credits() == 0;
        if !self.in_own {
            if self.boundary == self.consumed && self.boundary - self.origin >= WARM {
                self.origin = self.boundary;
            }
            let len = want.min(self.window);
            return self.areas.ring(self.boundary, self.origin, len);
        }
        if !self.uses_own() {
            self.counts.starved += 1;
        }
        let used = self.own_used();
        let mut len = want.min(self.own.saturating_sub(used));
        if !self.has_software_part() && used < self.nic_part() {
            len = len.min(self.window).min(self.nic_part() - used);
        }
        self.areas.own(self.accepted, self.boundary, len)
    }

    #[inline]
    fn commit(&mut self, len: usize, _out: &impl Outbox) {
        let len = len as u64;
        if !self.in_own {
            self.accepted += len;
            self.boundary = self.accepted;
            self.posted = self.accepted;
            self.segments += 1;
            self.counts.wire += 1;
            return;
        }
        if !self.has_software_part() && self.own_used() + len <= self.nic_part() {
            self.posted += len;
            self.counts.wire += 1;
        }
        self.accepted += len;
    }

    #[inline]
    fn publish(&mut self, out: &impl Outbox) {
        out.tell(Word::Origin, self.origin);
        out.tell(Word::Boundary, self.boundary);
        if self.uses_own() {
            out.tell(Word::Posted, self.posted);
        }
        out.tell(Word::Produced, self.accepted);
        // Last: a receiver that sees a segment as arrived sees its bytes too, and so never advertises
        // the room they take.
        out.tell(Word::Segments, self.segments);
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
    window: u64,
    buffer: u64,
    arrived: u64,
    advertised: u64,
    told: u64,
    posted: u64,
    evented: u64,
    events: u64,
    granted: u64,
    lazy: u64,
}

impl Receiver {
    /// A receiver over a region of two halves, by the sender's terms.
    #[must_use]
    pub fn new(region: usize, terms: &Terms) -> Self {
        let (buffer, window) = sizes(Areas::new(region), terms);
        Self {
            view: View::new(region),
            window,
            buffer,
            arrived: 0,
            advertised: buffer / window,
            told: buffer / window,
            posted: 0,
            evented: 0,
            events: 0,
            granted: 0,
            lazy: lazy(terms.buffer),
        }
    }

    /// Bytes of the receive buffer that hold nothing.
    #[must_use]
    pub fn free(&self) -> u64 {
        let held = self.view.boundary.min(self.view.end);
        self.buffer
            .saturating_sub(held.saturating_sub(self.view.consumed))
    }

    /// Receives that are out: advertised, and no segment has come for them.
    #[must_use]
    pub const fn outstanding(&self) -> u64 {
        self.advertised - self.arrived
    }

    /// The virtual window, in bytes.
    #[must_use]
    pub const fn window(&self) -> u64 {
        self.window
    }

    /// The event: the software part becomes segments behind those of the NIC. Run by whoever pulls.
    #[cold]
    fn event(&mut self, to: &impl Inbox) {
        self.evented = self.view.end;
        self.events += 1;
        to.hand_back(Back::Events, self.events);
        to.hand_back(Back::Evented, self.evented);
    }
}

impl crate::Receiver for Receiver {
    #[inline]
    fn announced(&mut self, from: &impl Inbox) -> Result<(), Violation> {
        let arrived = from.told(Word::Segments);
        let end = from.told(Word::Produced).as_claim();
        let boundary = from.told(Word::Boundary).as_claim();
        let origin = from.told(Word::Origin).as_ring_position();
        self.arrived = arrived.within(self.arrived, self.advertised)?;
        self.view.update(end, boundary, origin)?;
        if self.view.end > self.view.boundary {
            self.posted = from.told(Word::Posted).as_claim();
        }
        Ok(())
    }

    #[inline]
    fn available(&self) -> usize {
        self.view.available()
    }

    #[inline]
    fn next(&mut self, from: &impl Inbox) -> Result<Piece, Violation> {
        let mut piece = self.view.next();
        if piece.len > 0 && self.view.is_in_own() {
            // The NIC sends its next segment; bytes that are not handed over yet raise the event.
            if self.posted.max(self.evented) < self.view.end {
                self.event(from);
            }
            piece.len = piece.len.min(count(self.window));
        }
        Ok(piece)
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
        let mut granted = Granted::Nothing;
        let (free, all) = (self.free(), self.buffer / self.window);
        let can = (free / self.window).saturating_sub(self.outstanding());
        let untold = self.advertised + can - self.told;
        if untold > 0 && (untold >= all.div_ceil(2) || eager) {
            self.advertised += can;
            self.told = self.advertised;
            to.hand_back(Back::Advertised, self.told);
            granted = Granted::Told;
        }
        let owed = self.view.consumed - self.granted;
        if owed >= self.lazy || (eager && owed > 0) {
            self.granted = self.view.consumed;
            to.hand_back(Back::Consumed, self.granted);
            granted = Granted::Told;
        }
        granted
    }
}
