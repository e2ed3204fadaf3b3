//! Credit-based flow control, as the SDP standard has it (the thesis, section 4.1.1).
//!
//! The receiver keeps N slots of S bytes. It cannot know how long messages are, so each message burns a
//! slot, and one longer than S is cut. A credit is a receive buffer that is free; credits come back on
//! whatever message goes the other way, or, once half of them are owed, in an update of its own, which
//! is a message too and uses a credit of the opposite direction. Two receive buffers beyond the N are
//! kept for messages without payload, by the SDP rules. With c credits left:
//!
//! | c | what may be sent |
//! |---|---|
//! | 0 | nothing |
//! | 1 | a message without payload that hands out credits |
//! | 2 | a message without payload |
//! | 3 and more | anything |
//!
//! So the two sides can be starved of data credits and still tell each other of new ones: while a side
//! has not seen an update it sends at most N messages, for which at most two updates fall due, and two
//! is what is kept. Updates use credits too: a side that has only answered can be left without one for
//! data, so its peer hands those back as well. With N = 1 that would never end (each update would take
//! the only data credit of the side that sends it), hence N >= 2.
//!
//! Where things lie: slot k of a region begins at `k * (S + 64)`, on a line of its own, with the payload;
//! the message's length stands in the slot's last line. The receiver looks there only if more than one
//! message is under way: the length of a single one follows from the words it has read already, so a
//! small message costs no line more than with the other schemes. A message without payload needs no
//! slot: it is a count ([`Word::Control`]).

use crate::queued::Beyond;
use crate::{
    Back, Counts, Granted, Inbox, Note, Outbox, Piece, Queued, Terms, Untrusted, Violation, Word,
};

/// Receive buffers kept for messages without payload.
const RESERVED: u64 = 2;

/// Slots in a region.
#[derive(Clone, Copy, Debug)]
struct Slots {
    count: u64,
    size: usize,
}

impl Slots {
    fn new(terms: &Terms) -> Self {
        Self {
            count: u64::from(terms.slots).max(2),
            size: usize::try_from(terms.slot).unwrap_or(usize::MAX).max(1),
        }
    }

    /// Where the slot of a message begins.
    #[allow(clippy::cast_possible_truncation)]
    const fn at(self, message: u64) -> usize {
        (message % self.count) as usize * Terms::stride(self.size)
    }

    /// Where the length of a message stands.
    const fn header(self, message: u64) -> usize {
        self.at(message) + header_in_slot(self.size)
    }
}

/// Where in a slot of this size the length stands: after the payload, in a line of its own.
#[must_use]
pub const fn header_in_slot(size: usize) -> usize {
    Terms::stride(size) - 64
}

/// The sending half.
#[derive(Clone, Debug)]
pub struct Sender {
    slots: Slots,
    /// Data messages sent.
    messages: u64,
    /// Messages without payload sent.
    controls: u64,
    /// Messages of either kind whose receive buffers are free again.
    freed: u64,
    accepted: u64,
    counts: Counts,
}

impl Sender {
    /// A sender into a region that the terms fit.
    #[must_use]
    pub fn new(_region: usize, terms: &Terms) -> Self {
        Self {
            slots: Slots::new(terms),
            messages: 0,
            controls: 0,
            freed: 0,
            accepted: 0,
            counts: Counts::default(),
        }
    }

    /// Receive buffers that are free, as far as this side knows.
    #[inline]
    #[must_use]
    pub const fn credits(&self) -> u64 {
        (self.slots.count + RESERVED).saturating_sub(self.messages + self.controls - self.freed)
    }

    const fn for_data(&self) -> u64 {
        self.credits().saturating_sub(RESERVED)
    }
}

impl crate::Sender for Sender {
    const MESSAGES: bool = true;

    #[inline]
    fn granted(&mut self, out: &impl Outbox) -> Result<(), Violation> {
        self.freed = out
            .handed_back(Back::Acknowledged)
            .within(self.freed, self.messages + self.controls)?;
        Ok(())
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)]
    fn room(&self) -> usize {
        self.for_data() as usize * self.slots.size
    }

    #[inline]
    fn place(&mut self, want: usize) -> Piece {
        let mut len = want.min(self.slots.size);
        if self.for_data() == 0 {
            len = 0;
            self.counts.starved += 1;
        }
        Piece {
            offset: self.slots.at(self.messages),
            len,
        }
    }

    #[inline]
    fn commit(&mut self, len: usize, out: &impl Outbox) {
        if len == 0 {
            return;
        }
        // A slot's size is a 32-bit number, and `place` gives no more.
        let len32 = u32::try_from(len).unwrap_or(u32::MAX);
        out.write_header(self.slots.header(self.messages), len32);
        self.messages += 1;
        self.counts.wire += 1;
        self.accepted += len as u64;
    }

    #[inline]
    fn publish(&mut self, out: &impl Outbox) {
        out.tell(Word::Segments, self.messages);
        out.tell(Word::Produced, self.accepted);
    }

    fn withhold(&self, out: &impl Outbox) -> bool {
        let (end, withheld) = (self.accepted, true);
        Queued { end, withheld }.tell(out);
        true
    }

    #[inline]
    fn accepted(&self) -> u64 {
        self.accepted
    }

    #[inline]
    fn limit(&self) -> u64 {
        self.slots.count * self.slots.size as u64
    }

    /// Walks back over the headers: a sender has no use for them otherwise, so it keeps none.
    fn piece_at(&self, from: u64, out: &impl Outbox) -> Piece {
        let nothing = Piece { offset: 0, len: 0 };
        let mut end = self.accepted;
        for back in 1..=self.slots.count.min(self.messages) {
            let message = self.messages - back;
            let header = out.read_header(self.slots.header(message));
            let Ok(len) = length(header, self.slots.size) else {
                return nothing;
            };
            let Some(begin) = end.checked_sub(len as u64) else {
                return nothing;
            };
            if begin <= from && from < end {
                let skip = crate::areas::count(from - begin);
                return Piece {
                    offset: self.slots.at(message) + skip,
                    len: len - skip,
                };
            }
            end = begin;
        }
        nothing
    }

    fn control(&mut self) -> bool {
        // It hands out credits and has no payload: one is enough.
        if self.credits() == 0 {
            return false;
        }
        self.controls += 1;
        self.counts.updates += 1;
        true
    }

    fn tell_control(&self, out: &impl Outbox) {
        out.tell(Word::Control, self.controls);
    }

    fn held(&self, taken: u64) -> u64 {
        self.accepted.saturating_sub(taken)
    }

    fn reserved(&self) -> u64 {
        self.limit()
    }

    #[inline]
    fn counts(&self) -> Counts {
        self.counts
    }
}

fn length(header: Untrusted<u32>, size: usize) -> Result<usize, Violation> {
    let most = u32::try_from(size).unwrap_or(u32::MAX);
    let len = header.within(1, most)?;
    usize::try_from(len).map_err(|_| Violation)
}

/// The receiving half.
#[derive(Clone, Debug)]
pub struct Receiver {
    slots: Slots,
    /// Data messages that are read to their end.
    messages: u64,
    /// Of the current message: its length, and how much of it is read. Both 0 between messages.
    len: usize,
    read: usize,
    produced: u64,
    consumed: u64,
    beyond: Beyond,
}

impl Receiver {
    /// A receiver over a region, by the sender's terms.
    #[must_use]
    pub fn new(_region: usize, terms: &Terms) -> Self {
        Self {
            slots: Slots::new(terms),
            messages: 0,
            len: 0,
            read: 0,
            produced: 0,
            consumed: 0,
            beyond: Beyond::default(),
        }
    }

    /// Messages that may be owed before an update falls due: half of the credits.
    const fn half(&self) -> u64 {
        self.slots.count.div_ceil(2)
    }

    /// Whether an update is due, by what has been read and what has been acknowledged.
    fn is_update_due(&self, side: &impl Inbox) -> bool {
        let acknowledged = side.noted(Note::Acknowledged).min(self.messages);
        let data = self.messages - acknowledged;
        if data >= self.half() {
            return true;
        }
        let controls = side.told(Word::Control).as_hearsay();
        let controls_out = controls.saturating_sub(side.noted(Note::Controls));
        let sent = side.told(Word::Segments).as_hearsay();
        let used = sent
            .saturating_sub(acknowledged)
            .saturating_add(controls_out);
        let left = (self.slots.count + RESERVED).saturating_sub(used);
        // Out of data credits: it is told of any two. Not of one, which may be for an update like this:
        // the two sides would answer each other for ever.
        (left <= RESERVED && data.saturating_add(controls_out) >= 2) || (left <= 1 && data > 0)
    }
}

impl crate::Receiver for Receiver {
    #[inline]
    fn announced(&mut self, from: &impl Inbox) -> Result<(), Violation> {
        let full = self
            .consumed
            .saturating_add(self.slots.count * self.slots.size as u64);
        let end = Untrusted::new(self.beyond.end(from));
        self.produced = end.within(self.produced, full.max(self.produced))?;
        Ok(())
    }

    #[inline]
    fn available(&self) -> usize {
        crate::areas::count(self.produced - self.consumed)
    }

    #[inline]
    fn next(&mut self, from: &impl Inbox) -> Result<Piece, Violation> {
        let available = self.available();
        if self.len == 0 && available > 0 {
            let sent = from.told(Word::Segments).as_hearsay();
            let is_last = sent.wrapping_sub(self.messages) == 1;
            let len = if is_last && !self.beyond.is_any() {
                available // there is no other message
            } else {
                length(
                    from.header(self.slots.header(self.messages)),
                    self.slots.size,
                )?
            };
            if len > available || len > self.slots.size {
                return Err(Violation); // a message is told of whole, and fits its slot
            }
            self.len = len;
        }
        Ok(Piece {
            offset: self.slots.at(self.messages) + self.read,
            len: self.len - self.read,
        })
    }

    #[inline]
    fn consume(&mut self, len: usize) {
        debug_assert!(self.read + len <= self.len);
        self.consumed += len as u64;
        self.read += len;
        if self.read >= self.len && self.len > 0 {
            (self.read, self.len) = (0, 0);
            self.messages += 1;
        }
    }

    #[inline]
    fn consumed(&self) -> u64 {
        self.consumed
    }

    fn grant(&mut self, _eager: bool, to: &impl Inbox) -> Granted {
        to.note(Note::Freed, self.messages);
        if self.is_update_due(to) {
            Granted::UpdateDue
        } else {
            Granted::Nothing
        }
    }

    fn release(&mut self) {
        self.beyond.release();
    }

    fn pull(&mut self, from: &impl Inbox) {
        self.beyond.pull(from);
    }
}

/// Acknowledges, on a message that goes the other way, all that has been read and every message without
/// payload (which is done with once it is seen). True if data credits are among what is handed out.
pub fn acknowledge(side: &(impl Inbox + Outbox)) -> bool {
    let freed = side.noted(Note::Freed);
    let before = side.noted(Note::Acknowledged);
    let controls = side.told(Word::Control).as_hearsay();
    side.note(Note::Acknowledged, freed);
    side.note(Note::Controls, controls);
    side.tell(Word::Acknowledged, freed.wrapping_add(controls));
    freed != before
}
