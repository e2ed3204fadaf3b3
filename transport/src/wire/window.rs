//! Packetized flow control of a direction (`flowctl::packetized`) where its bytes go in messages: what the two sides say
//! of it when they set the connection up, and the control words of the scheme.
//!
//! The accounting is flowctl's. Its words come and go so:
//!
//! | word | how the other side has it |
//! |---|---|
//! | `Produced` | by what has come: payload of Data and of SrcAvail. What is read or written by RDMA is not counted: the reader has room for it |
//! | `Consumed` | by the message Taken, once for each Starved |
//! | all others | not at all; there is no ring whose places would matter |
//!
//! A receiver says nothing of its own accord: to a sender that has ended meanwhile its word would be answered with a reset, and the
//! sender's kernel drop what it has not sent yet. A sender that is out of room asks (Starved), and does not end before it was answered. By the
//! message Released it ends the scheme for its direction: from there on the kernel's buffers are the limit. From Starved on bytes that
//! its program has sent may be parked, until it says Cleared (or Released): if its direction ends between without a word, as with a process
//! that is killed, the receiver takes that for a reset, since an end of file would say that it has all.
//!
//! The credit scheme has its accounting in SDP itself (`sdp_wire::sequence`); a sender asks for receive buffers, and goes on without them, by the
//! same two messages, for the same reason. The answer is whatever acknowledges that it has asked.
//!
//! Used by `Out` ([`Words`] as its outbox) and `In` ([`Takes`]), each under its lock; between the two are atomics. A peer says
//! of itself in one byte of its Hello whether it knows of all that: to one that does not the direction is not packetized. Who asks says it
//! only if it is to send so itself, so that by default nobody meets anything that SDP does not have.

use crate::clock;
use crate::sdp_wire::Violation;
use crate::sdp_wire::header::Seq;
use flowctl::carrier::Carrier;
use flowctl::packetized;
use flowctl::{
    Back, Granted, Inbox, Note, Notes, Outbox, Receiver as _, Scheme, Terms, Untrusted, Word,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of the sender's own buffer at most.
pub(super) const OWN: usize = 512 * 1024;

/// What a side says of itself: the receive buffer that it gives, and whether it sends by the scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    pub packetized: bool,
    /// It answers a peer that has said the like of itself, or keeps few receive buffers, of which a sender may say that they do not
    /// matter any more.
    pub answers: bool,
    /// Bytes; as large as what it sends may need, too.
    pub buffer: u64,
    /// Bytes of its own buffer as a sender. (That it does not say.)
    pub own: u64,
}

/// Set in the byte of a side that sends so.
const SENDS: u8 = 0x80;
/// The rest of the byte: 4 bits and 3 of a number of bytes, (8 + low) * 2^(high + 8).
const LOW: u8 = 0b111;
const SMALLEST: u32 = 8;

impl Flow {
    /// By these settings.
    #[must_use]
    pub fn new(terms: &Terms) -> Self {
        Self {
            packetized: terms.scheme == Scheme::Packetized,
            answers: terms.scheme == Scheme::Credit,
            buffer: terms.buffer,
            own: terms.own,
        }
    }

    /// As one byte, 0 if nothing is to be said; of the size the four highest bits.
    #[must_use]
    pub fn byte(&self) -> u8 {
        if !self.packetized && !self.answers {
            return 0;
        }
        let size = self.buffer.clamp(4096, 1 << 26);
        let high = size.ilog2() - 3 - SMALLEST;
        let low = size >> (high + SMALLEST);
        #[allow(clippy::cast_possible_truncation)] // (16 and 8 values)
        let size = (high as u8) << 3 | low as u8 & LOW;
        if self.packetized { SENDS | size } else { size }
    }

    /// What a peer's byte says: whether it sends so, and its receive buffer. Nothing from who does not know of it.
    #[must_use]
    pub const fn read(byte: u8) -> Option<(bool, u64)> {
        if byte == 0 {
            return None;
        }
        let size = byte & !SENDS;
        let bytes = (8 + (size & LOW) as u64) << ((size >> 3) as u32 + SMALLEST);
        Some((byte & SENDS != 0, bytes))
    }

    /// The windows of what this side sends and of what it receives, with a peer that says this of itself: bytes of the
    /// receive buffer. Both sides come to the same. Nothing where the direction is not packetized.
    #[must_use]
    pub fn agreed(&self, peer: u8) -> (Option<u64>, Option<u64>) {
        let (Some((peer_sends, peer)), Some((_, own))) =
            (Self::read(peer), Self::read(self.byte()))
        else {
            return (None, None);
        };
        let window = own.min(peer);
        let of = |sends: bool| sends.then_some(window);
        (of(self.packetized), of(peer_sends))
    }
}

/// flowctl's terms of a window.
const fn terms(window: u64, own: u64) -> Terms {
    Terms {
        scheme: Scheme::Packetized,
        buffer: window,
        own,
        slots: 2,
        slot: 1,
        window: 1,
    }
}

/// A region of two halves that such a window and own buffer fit into. (There is none: only places in the own buffer are
/// looked at.)
fn region(window: u64) -> usize {
    Terms::region(usize::try_from(window).unwrap_or(OWN).max(OWN))
}

/// The sender of a direction.
pub(super) fn sender(window: u64, own: u64) -> Carrier {
    // (of what it parks the receiver may have to find room for once: see Released)
    let own = own.min(window).min(OWN as u64);
    Carrier::new(region(window), &terms(window, own))
}

/// Where a piece of a sender's lies in its own buffer, and how much of it in one run.
pub(super) const fn run(piece: flowctl::Piece) -> (usize, usize) {
    let at = piece.offset % OWN;
    let room = OWN - at;
    (at, if piece.len < room { piece.len } else { room })
}

/// Set beside a message's number, which may be 0.
const MARK: u64 = 1 << 32;

#[allow(clippy::cast_possible_truncation)] // (the number's half)
fn marked(word: &AtomicU64) -> Option<Seq> {
    let word = word.load(Ordering::Acquire);
    (word & MARK != 0).then_some(Seq(word as u32))
}

/// Words of both directions on one side.
#[derive(Debug)]
pub struct Words {
    /// Of what this side sends: how much has gone, and how much the peer says that it has taken.
    produced: AtomicU64,
    consumed: AtomicU64,
    /// It was asked, and has not answered.
    asked: AtomicBool,
    /// Since when, in ticks, bytes are parked; 0 if none are.
    since: AtomicU64,
    /// Of what this side receives: how much of it is to be told as taken, and how often it was to be.
    taken: AtomicU64,
    answers: AtomicU64,
    /// Since when, in ticks, the peer has had no receive buffer left where it keeps few; 0 if it has.
    lacking: AtomicU64,
    /// The message, marked as one, by which this side has asked for receive buffers last, and by which the peer has; 0 for none.
    slots_asked: AtomicU64,
    slots_wanted: AtomicU64,
    /// This side, and the peer, ends RDMA mode: it takes all that comes, and tells no more of it.
    silent: AtomicBool,
    lifted: AtomicBool,
}

impl Words {
    pub(super) const fn new() -> Self {
        Self {
            produced: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
            asked: AtomicBool::new(false),
            since: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            lacking: AtomicU64::new(0),
            slots_asked: AtomicU64::new(0),
            slots_wanted: AtomicU64::new(0),
            silent: AtomicBool::new(false),
            lifted: AtomicBool::new(false),
        }
    }

    /// The peer is asked for what it has taken. (To be noted before it can answer.)
    pub(super) fn ask(&self) {
        self.asked.store(true, Ordering::Release);
    }

    /// It could not be.
    pub(super) fn lift_ask(&self) {
        self.asked.store(false, Ordering::Release);
    }

    /// Whether the peer was asked, and will answer.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire) && !self.is_lifted()
    }

    /// The peer says how much it has taken.
    ///
    /// # Errors
    /// It cannot have, or has said more before.
    pub(super) fn heard(&self, taken: u64) -> Result<(), Violation> {
        let before = self.consumed.load(Ordering::Relaxed);
        let sent = self.produced.load(Ordering::Acquire);
        let taken = Untrusted::new(taken)
            .within(before, sent)
            .map_err(|_| Violation::HandedBack)?;
        self.consumed.store(taken, Ordering::Release);
        self.asked.store(false, Ordering::Release); // (behind it: who sees that asks again with what is known)
        Ok(())
    }

    /// How often the peer is to be answered, in all, and how many bytes were taken.
    pub(super) fn answers(&self) -> (u64, u64) {
        let answers = self.answers.load(Ordering::Acquire);
        (answers, self.taken.load(Ordering::Acquire))
    }

    fn answer(&self) {
        self.answers.fetch_add(1, Ordering::AcqRel);
    }

    /// This side is about to end RDMA mode in its direction, or asks the peer to: there is room for all that comes.
    pub(super) fn be_silent(&self) {
        self.silent.store(true, Ordering::Release);
    }

    /// It could not be said, and what comes is limited as before.
    pub(super) fn speak(&self) {
        self.silent.store(false, Ordering::Release);
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Acquire)
    }

    /// The peer is: it has room for all that this side sends.
    pub(super) fn lift(&self) {
        self.lifted.store(true, Ordering::Release);
    }

    pub(super) fn is_lifted(&self) -> bool {
        self.lifted.load(Ordering::Acquire)
    }

    /// Whether the peer, which keeps few receive buffers, has none left for data.
    pub(super) fn note_lacking(&self, lacks: bool) {
        let before = self.lacking.load(Ordering::Relaxed);
        if lacks == (before == 0) {
            let since = if lacks { clock::ticks() } else { 0 };
            self.lacking.store(since, Ordering::Release);
        }
    }

    /// Since when, in ticks, it has had none.
    #[inline]
    pub fn lacking_since(&self) -> Option<u64> {
        Some(self.lacking.load(Ordering::Acquire)).filter(|&since| since > 0)
    }

    /// This side asks, by this message, for receive buffers: the peer has answered once it acknowledges that.
    pub(super) fn ask_for_slots(&self, by: Seq) {
        self.slots_asked
            .store(MARK | u64::from(by.0), Ordering::Release);
    }

    pub(super) fn slots_asked(&self) -> Option<Seq> {
        marked(&self.slots_asked)
    }

    /// The peer asks so, and is answered by an acknowledgement.
    pub(super) fn want_slots(&self, by: Seq) {
        self.slots_wanted
            .store(MARK | u64::from(by.0), Ordering::Release);
    }

    pub(super) fn slots_wanted(&self) -> Option<Seq> {
        marked(&self.slots_wanted)
    }

    pub(super) fn note_parked(&self, since: u64) {
        self.since.store(since, Ordering::Release);
    }

    /// Since when, in ticks, bytes are parked here; nothing if none are.
    #[inline]
    pub fn parked_since(&self) -> Option<u64> {
        Some(self.since.load(Ordering::Acquire)).filter(|&since| since > 0)
    }
}

impl Notes for Words {
    fn note(&self, _: Note, _: u64) {}

    fn noted(&self, _: Note) -> u64 {
        0
    }
}

impl Outbox for Words {
    fn tell(&self, word: Word, value: u64) {
        if word == Word::Produced {
            self.produced.store(value, Ordering::Release);
        }
    }

    fn handed_back(&self, back: Back) -> Untrusted<u64> {
        Untrusted::new(match back {
            Back::Consumed => self.consumed.load(Ordering::Acquire),
            _ => 0,
        })
    }

    fn write_header(&self, _: usize, _: u32) {}

    fn read_header(&self, _: usize) -> Untrusted<u32> {
        Untrusted::new(0)
    }
}

/// What the receiver of a direction counts.
#[derive(Clone, Debug)]
pub(super) struct Takes {
    receiver: packetized::Receiver,
    came: Came,
    /// Bytes of the stream that the program has taken, of whatever came.
    read: u64,
    /// Of all that came, bytes that were read or written by RDMA: not counted.
    beside: u64,
    /// The sender has asked, and was not answered.
    asked: bool,
    /// Nothing is counted any more.
    over: bool,
    /// The sender may have parked some of what its program has sent.
    holds: bool,
}

#[derive(Clone, Copy, Debug)]
struct Came {
    produced: u64,
}

/// With what goes the other way.
struct Incoming<'a> {
    came: Came,
    words: &'a Words,
}

impl Takes {
    pub(super) fn new(window: u64) -> Self {
        Self {
            receiver: packetized::Receiver::new(Terms::region(half(window)), &terms(window, 0)),
            came: Came { produced: 0 },
            read: 0,
            beside: 0,
            asked: false,
            over: false,
            holds: false,
        }
    }

    const fn incoming<'a>(&self, words: &'a Words) -> Incoming<'a> {
        Incoming {
            came: self.came,
            words,
        }
    }

    /// A message with so many bytes of payload has come.
    ///
    /// # Errors
    /// There was no room for them.
    pub(super) fn came(&mut self, len: usize, words: &Words) -> Result<(), Violation> {
        self.came.produced = self.came.produced.saturating_add(len as u64);
        let from = self.incoming(words);
        match self.receiver.announced(&from) {
            Err(_) if !self.over && !words.is_silent() => Err(Violation::Room),
            _ => Ok(()),
        }
    }

    /// Bytes have come that are not counted.
    pub(super) const fn came_beside(&mut self, len: usize) {
        self.beside = self.beside.saturating_add(len as u64);
    }

    /// The sender is out of room.
    pub(super) const fn starved(&mut self) {
        self.asked = true;
        self.holds = !self.over;
    }

    /// The sender goes on without the scheme.
    pub(super) const fn released(&mut self) {
        self.over = true;
        self.holds = false;
    }

    /// Nothing is parked at the sender any more.
    pub(super) const fn cleared(&mut self) {
        self.holds = false;
    }

    /// Whether an end that comes now may have lost what was parked there.
    pub(super) const fn may_lack(&self) -> bool {
        self.holds
    }

    /// The program has taken so many bytes of the stream.
    pub(super) fn took(&mut self, len: usize) {
        self.read = self.read.saturating_add(len as u64);
        // (of bytes of both kinds those that are not counted are taken to be read first: so never too many are told of, and
        // all once everything has been read)
        let counted = self.read.saturating_sub(self.beside);
        let more = counted.saturating_sub(self.receiver.consumed());
        let n = usize::try_from(more).map_or(usize::MAX, |n| n);
        let n = n.min(self.receiver.available());
        self.receiver.consume(n);
    }

    /// Hands back what was taken, if the sender has asked and it is time to. True if the peer is to be told. (What follows from a state is told
    /// once that is noted.) Who goes on without the scheme is answered in any case: it may wait for that before it ends.
    pub(super) fn hand_back(&mut self, words: &Words) -> bool {
        let to = self.incoming(words);
        let told = self.asked && self.receiver.grant(self.over, &to) == Granted::Told;
        let answers = told || self.asked && self.over;
        if answers {
            self.asked = false;
            words.answer();
        }
        answers
    }
}

fn half(window: u64) -> usize {
    usize::try_from(window).unwrap_or(OWN)
}

impl Notes for Incoming<'_> {
    fn note(&self, _: Note, _: u64) {}

    fn noted(&self, _: Note) -> u64 {
        0
    }
}

impl Inbox for Incoming<'_> {
    fn told(&self, word: Word) -> Untrusted<u64> {
        Untrusted::new(match word {
            Word::Produced | Word::Boundary => self.came.produced,
            _ => 0,
        })
    }

    fn hand_back(&self, back: Back, value: u64) {
        if back == Back::Consumed {
            self.words.taken.store(value, Ordering::Release);
        }
    }

    fn header(&self, _: usize) -> Untrusted<u32> {
        Untrusted::new(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn flow(packetized: bool, buffer: u64) -> Flow {
        Flow {
            packetized,
            answers: true,
            buffer,
            own: buffer,
        }
    }

    proptest! {
        #[test]
        fn a_byte_says_the_size(buffer in 4096u64..=1 << 26, packetized in any::<bool>()) {
            let byte = flow(packetized, buffer).byte();
            let (sends, size) = Flow::read(byte).unwrap();
            prop_assert_eq!(sends, packetized);
            prop_assert!(size <= buffer && buffer - size <= buffer / 8, "{size} of {buffer}");
        }

        #[test]
        fn both_come_to_the_same(a in any::<u8>(), buffer in 0u64..1 << 40, packetized in any::<bool>()) {
            let own = flow(packetized, buffer);
            let (sends, receives) = own.agreed(a);
            prop_assert_eq!(sends.is_some(), packetized && a != 0);
            prop_assert_eq!(receives.is_some(), a & SENDS != 0);
            for window in [sends, receives].into_iter().flatten() {
                prop_assert!((2048..=1 << 26).contains(&window));
            }
            if let Some((peer_sends, size)) = Flow::read(a).filter(|&(_, size)| (4096..=1 << 26).contains(&size)) {
                let peer = flow(peer_sends, size);
                prop_assert_eq!(peer.byte(), a);
                prop_assert_eq!(peer.agreed(own.byte()), (receives, sends));
            }
        }
    }

    #[test]
    fn powers_of_two_are_whole_and_who_knows_nothing_agrees_to_nothing() {
        for shift in 12..=26 {
            let (_, size) = Flow::read(flow(true, 1 << shift).byte()).unwrap();
            assert_eq!(size, 1 << shift);
        }
        assert_eq!(Flow::read(0), None);
        let silent = Flow {
            answers: false,
            ..flow(false, 1 << 19)
        };
        assert_eq!(silent.byte(), 0);
        assert_eq!(silent.agreed(flow(true, 1 << 19).byte()), (None, None));
        assert_eq!(flow(true, 1 << 19).agreed(0), (None, None));
    }
}
