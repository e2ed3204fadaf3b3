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

use crate::areas::{Areas, View, count, lazy};
use crate::outgoing::Outgoing;
use crate::{Back, Counts, Granted, Inbox, Outbox, Piece, Terms, Violation, Word};

/// The sending half: `posted` lies between the boundary and what was accepted.
#[derive(Clone, Debug)]
pub struct Sender {
    halves: Outgoing,
    window: u64,
    posted: u64,
    /// Segments put under an advertised receive.
    segments: u64,
    advertised: u64,
}

impl Sender {
    /// A sender into a region of two halves, by terms that fit it.
    #[must_use]
    pub fn new(region: usize, terms: &Terms) -> Self {
        let (buffer, window) = sizes(Areas::new(region), terms);
        Self {
            halves: Outgoing::new(region, terms),
            window,
            posted: 0,
            segments: 0,
            advertised: buffer / window,
        }
    }

    #[inline]
    const fn credits(&self) -> u64 {
        self.advertised.saturating_sub(self.segments)
    }

    /// Bytes that have a credit. Behind each there is a window of room, also if this side has not heard
    /// yet of all that was read.
    #[inline]
    const fn credited(&self) -> u64 {
        self.credits().saturating_mul(self.window)
    }

    /// Whether so many bytes surely find a place, all of them. (At the end of the ring one segment becomes two, each
    /// of which takes a credit.)
    #[inline(always)]
    #[must_use]
    pub const fn takes(&self, len: usize) -> bool {
        let len = len as u64;
        (!self.halves.uses_own() && self.credited() >= len + self.window)
            || self.halves.own_room() >= len
    }

    /// Segments that bytes which lie in one piece make: one, for most messages.
    #[inline(always)]
    const fn segments_of(&self, len: u64) -> u64 {
        if len <= self.window {
            1
        } else {
            len.div_ceil(self.window)
        }
    }

    /// How much the NIC-handled part takes before bytes coalesce.
    const fn nic_part(&self) -> u64 {
        self.halves.own() / 2
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
        self.halves.read_so_far(out)?;
        let most = self
            .segments
            .saturating_add(self.halves.buffer / self.window);
        self.advertised = out
            .handed_back(Back::Advertised)
            .within(0, most)?
            .max(self.advertised);
        if self.halves.uses_own() {
            let accepted = self.halves.accepted;
            let evented = out.handed_back(Back::Evented).within(0, accepted)?;
            if evented > self.posted {
                self.halves.counts.wire += (evented - self.posted).div_ceil(self.window);
                self.posted = evented;
            }
            self.halves.counts.events = out.handed_back(Back::Events).as_hearsay();
            if self.halves.consumed == accepted {
                self.posted = accepted;
            }
            self.halves.leave_empty_own();
        }
        Ok(())
    }

    #[inline]
    fn room(&self) -> usize {
        count(if self.halves.uses_own() {
            self.halves.own_room()
        } else {
            self.credited() + self.halves.own()
        })
    }

    fn is_roomy(&self) -> bool {
        self.halves.is_roomy(self.credited())
    }

    #[inline]
    fn is_short(&self, want: usize) -> bool {
        self.halves.uses_own() || self.credited() < want as u64
    }

    #[inline(always)]
    fn place(&mut self, want: usize) -> Piece {
        let mut len = want as u64;
        if !self.halves.uses_own() && self.credits() > 0 {
            // (several segments that lie one behind the other are one copy)
            return self.halves.place_in_ring(len.min(self.credited()));
        }
        let (used, part) = (self.halves.own_used(), self.nic_part());
        if self.posted == self.halves.accepted && used < part {
            len = len.min(self.window).min(part - used);
        }
        self.halves.place_in_own(len)
    }

    #[inline(always)]
    fn commit(&mut self, len: usize, _out: &impl Outbox) {
        let behind_nic = self.posted == self.halves.accepted;
        if self.halves.commit(len as u64) {
            self.posted = self.halves.accepted;
            let segments = self.segments_of(len as u64);
            self.segments += segments;
            self.halves.counts.wire += segments - 1;
        } else if behind_nic && self.halves.own_used() <= self.nic_part() {
            self.posted = self.halves.accepted;
            self.halves.counts.wire += 1;
        }
    }

    #[inline]
    fn publish(&mut self, out: &impl Outbox) {
        self.halves.publish_places(out);
        if self.halves.uses_own() {
            out.tell(Word::Posted, self.posted);
        }
        out.tell(Word::Produced, self.halves.accepted);
        // Last: a receiver that sees a segment as arrived sees its bytes too, and so never advertises
        // the room they take.
        out.tell(Word::Segments, self.segments);
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
    window: u32,
    buffer: u64,
    arrived: u64,
    advertised: u64,
    /// How many receives are told of at once, unless the sender may wait.
    half: u32,
    posted: u64,
    evented: u64,
    events: u32,
    granted: u64,
    lazy: u32,
}

impl Receiver {
    /// A receiver over a region of two halves, by the sender's terms.
    #[must_use]
    pub fn new(region: usize, terms: &Terms) -> Self {
        let (buffer, window) = sizes(Areas::new(region), terms);
        Self {
            view: View::new(region),
            window: u32::try_from(window).unwrap_or(u32::MAX),
            buffer,
            arrived: 0,
            advertised: buffer / window,
            half: u32::try_from((buffer / window).div_ceil(2)).unwrap_or(u32::MAX),
            posted: 0,
            evented: 0,
            events: 0,
            granted: 0,
            lazy: u32::try_from(lazy(terms.buffer)).unwrap_or(u32::MAX),
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
        self.window as u64
    }

    /// The event: the software part becomes segments behind those of the NIC. Run by whoever pulls.
    #[cold]
    fn event(&mut self, to: &impl Inbox) {
        self.evented = self.view.end;
        self.events = self.events.wrapping_add(1);
        to.hand_back(Back::Events, self.events.into());
        to.hand_back(Back::Evented, self.evented);
    }
}

impl crate::Receiver for Receiver {
    #[inline]
    fn announced(&mut self, from: &impl Inbox) -> Result<(), Violation> {
        let arrived = from.told(Word::Segments);
        // (of what was pulled before it was told of, the segments count as not arrived yet: less is advertised, not more)
        self.view.announced(from)?;
        self.arrived = arrived.within(self.arrived, self.advertised)?;
        if self.view.end > self.view.boundary {
            self.posted = from.told(Word::Posted).as_claim();
        }
        Ok(())
    }

    #[inline]
    fn available(&self) -> usize {
        self.view.available()
    }

    #[inline(always)]
    fn next(&mut self, from: &impl Inbox) -> Result<Piece, Violation> {
        let mut piece = self.view.next();
        if piece.len > 0 && self.view.is_in_own() {
            // The NIC sends its next segment; bytes that are not handed over yet raise the event.
            if self.posted.max(self.evented) < self.view.end {
                self.event(from);
            }
            piece.len = piece.len.min(count(self.window()));
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

    #[inline(always)]
    fn grant(&mut self, eager: bool, to: &impl Inbox) -> Granted {
        let mut granted = Granted::Nothing;
        // (asked after every read, so by a product: is there room behind so many more receives?)
        let least = if eager { 1 } else { self.half.into() };
        let free = self.free();
        let window = self.window();
        if free >= (self.outstanding() + least) * window {
            self.advertised += free / window - self.outstanding();
            to.hand_back(Back::Advertised, self.advertised);
            granted = Granted::Told;
        }
        let owed = self.view.consumed - self.granted;
        if owed >= self.lazy.into() || (eager && owed > 0) {
            self.granted = self.view.consumed;
            to.hand_back(Back::Consumed, self.granted);
            granted = Granted::Told;
        }
        granted
    }

    fn release(&mut self) {
        self.view.beyond.release();
    }

    fn pull(&mut self, from: &impl Inbox) {
        self.view.beyond.pull(from);
    }
}
