//! The sender of [`crate::packetized`] where a provider carries bytes in messages, instead of letting the receiver take them
//! where they are: what has room goes as a message, straight or from the own buffer; the own buffer holds what is parked
//! and nothing else, so its room comes back as soon as bytes have gone.
//!
//! Used by `transport::wire`. The accounting is the scheme's: what was *shown* has gone; the *boundary*, from which on bytes lie
//! in the own buffer, follows it. One thing is added: a sender that may be
//! there no more when there is room ends the scheme ([`Carrier::lift`]).

use crate::areas::count;
use crate::packetized::Sender;
use crate::{Back, Counts, Outbox, Piece, Sender as _, Terms, Violation};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Carrier {
    sender: Sender,
    /// The position that lies at offset 0 of the own buffer.
    own_from: u64,
    /// Bytes may go whether there is room for them or not.
    lifted: bool,
}

impl Carrier {
    /// A sender into a region of two halves, by terms that fit it.
    #[must_use]
    pub fn new(region: usize, terms: &Terms) -> Self {
        Self {
            sender: Sender::new(region, terms),
            own_from: 0,
            lifted: false,
        }
    }

    /// Takes in what was handed back: no more can be than has gone.
    ///
    /// # Errors
    /// [`Violation`] if it is, or runs backwards.
    #[inline]
    pub fn heard(&mut self, out: &impl Outbox) -> Result<(), Violation> {
        let handed = out.handed_back(Back::Consumed);
        let halves = &mut self.sender.halves;
        halves.consumed = handed.within(halves.consumed, self.sender.shown)?;
        Ok(())
    }

    /// Bytes that may go now, as far as the receiver's room is known; those that are parked come first.
    #[inline]
    #[must_use]
    pub fn free(&self) -> usize {
        let Sender { halves, shown } = &self.sender;
        if self.lifted {
            return usize::MAX;
        }
        count(halves.buffer.saturating_sub(shown - halves.consumed))
    }

    /// Accounts for a message of bytes that were not parked, of [`Self::free`] ones, while none are.
    #[inline]
    pub fn gone(&mut self, len: usize) {
        debug_assert!(self.waiting() == 0 && len <= self.free());
        let halves = &mut self.sender.halves;
        halves.leave_own();
        halves.commit(len as u64);
        self.sender.shown = halves.accepted;
    }

    /// Where the next bytes go that cannot go to the receiver; then [`Self::put`]. Zero length if the own buffer is full.
    pub fn park(&mut self, want: usize) -> Piece {
        let has_room = self.free() > 0;
        let halves = &mut self.sender.halves;
        let starved = halves.counts.starved;
        if !halves.uses_own() {
            self.own_from = halves.accepted;
        }
        let Piece { len, .. } = halves.place_in_own(want as u64);
        if has_room {
            halves.counts.starved = starved; // (it is the provider that takes no more)
        }
        halves.own_at(halves.accepted, self.own_from, len as u64)
    }

    /// So many bytes were put there.
    pub fn put(&mut self, len: usize) {
        self.sender.halves.commit(len as u64);
    }

    /// The first of the bytes that are parked, whether they may go or not.
    #[must_use]
    pub fn parked(&self) -> Piece {
        let Sender { halves, shown } = &self.sender;
        halves.own_at(*shown, self.own_from, halves.accepted - shown)
    }

    /// So many of them have gone, as one message, of [`Self::free`] ones.
    pub fn carried(&mut self, len: usize) {
        debug_assert!(len <= self.free() && len <= self.waiting());
        self.sender.shown += len as u64;
        self.sender.halves.carry(len as u64);
    }

    /// Bytes that are parked.
    #[inline]
    #[must_use]
    pub fn waiting(&self) -> usize {
        count(self.sender.halves.accepted - self.sender.shown)
    }

    /// The receiver does not count any more: everything may go.
    pub const fn lift(&mut self) {
        self.lifted = true;
    }

    /// Tells of what has gone.
    #[inline]
    pub fn publish(&self, out: &impl Outbox) {
        let mut sender = self.sender;
        sender.publish(out);
    }

    /// As [`crate::Sender::is_roomy`].
    #[must_use]
    pub fn is_roomy(&self) -> bool {
        self.sender.is_roomy()
    }

    /// Bytes of the receive buffer.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.sender.reserved()
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        self.sender.counts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packetized::Receiver;
    use crate::{Granted, Inbox, Note, Notes, Receiver as _, Scheme, Untrusted, Word};
    use core::cell::Cell;
    use proptest::prelude::*;

    const OWN: usize = 64;

    /// Words as a provider carries them.
    #[derive(Default)]
    struct Words {
        produced: Cell<u64>,
        consumed: Cell<u64>,
        came: Cell<u64>,
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
                self.produced.set(value);
            }
        }
        fn handed_back(&self, _: Back) -> Untrusted<u64> {
            Untrusted::new(self.consumed.get())
        }
        fn write_header(&self, _: usize, _: u32) {}
        fn read_header(&self, _: usize) -> Untrusted<u32> {
            Untrusted::new(0)
        }
    }

    impl Inbox for Words {
        fn told(&self, word: Word) -> Untrusted<u64> {
            Untrusted::new(match word {
                Word::Produced | Word::Boundary => self.came.get(),
                _ => 0,
            })
        }
        fn hand_back(&self, _: Back, value: u64) {
            self.consumed.set(value);
        }
        fn header(&self, _: usize) -> Untrusted<u32> {
            Untrusted::new(0)
        }
    }

    const fn terms(buffer: u64) -> Terms {
        Terms {
            scheme: Scheme::Packetized,
            buffer,
            own: buffer,
            slots: 2,
            slot: 1,
            window: 1,
        }
    }

    proptest! {
        /// Whatever both do: no byte finds no room at the receiver, all come in their order, and a sender that has heard of
        /// everything can go on.
        #[test]
        fn what_is_parked_goes_in_order_and_finds_room(
            steps in proptest::collection::vec((0..5u8, 1..50usize), 1..300), shift in 4..6u32,
        ) {
            let buffer = 1u64 << shift;
            let mut tx = Carrier::new(2 * OWN, &terms(buffer));
            let mut rx = Receiver::new(2 << shift, &terms(buffer));
            let (words, mut own) = (Words::default(), [0u8; OWN]);
            let (mut sent, mut got) = (0u64, 0u64);
            let goes = |from: u64, len: usize, words: &Words, rx: &mut Receiver| {
                assert_eq!(words.came.get(), from, "in order");
                words.came.set(from + len as u64);
                rx.announced(words).expect("there is room");
            };
            let carry = |tx: &mut Carrier, own: &[u8; OWN], words: &Words, rx: &mut Receiver| {
                tx.heard(words).expect("honest");
                while tx.waiting() > 0 && tx.free() > 0 {
                    let piece = tx.parked();
                    let n = piece.len.min(tx.free());
                    let at = words.came.get();
                    for i in 0..n {
                        assert_eq!(own[piece.offset % OWN + i], (at + i as u64) as u8);
                    }
                    tx.carried(n);
                    goes(at, n, words, rx);
                }
                tx.publish(words);
            };
            for (what, n) in steps {
                match what {
                    0 | 1 => {
                        carry(&mut tx, &own, &words, &mut rx);
                        let straight = if tx.waiting() > 0 { 0 } else { n.min(tx.free()) };
                        if straight > 0 {
                            tx.gone(straight);
                            tx.publish(&words);
                            goes(sent, straight, &words, &mut rx);
                            sent += straight as u64;
                        }
                        let piece = tx.park(n - straight);
                        for i in 0..piece.len {
                            own[piece.offset % OWN + i] = (sent + i as u64) as u8;
                        }
                        tx.put(piece.len);
                        sent += piece.len as u64;
                    }
                    2 => carry(&mut tx, &own, &words, &mut rx),
                    _ => {
                        let n = n.min(rx.available());
                        rx.consume(n);
                        got += n as u64;
                        let _: Granted = rx.grant(false, &words);
                    }
                }
                prop_assert!(tx.waiting() as u64 <= buffer);
            }
            while got < sent {
                carry(&mut tx, &own, &words, &mut rx);
                let n = rx.available();
                prop_assert!(n > 0, "it stands still");
                rx.consume(n);
                got += n as u64;
                rx.grant(false, &words);
            }
        }
    }

    #[test]
    fn lies_are_refused() {
        let mut tx = Carrier::new(2 * OWN, &terms(32));
        let words = Words::default();
        tx.gone(10);
        tx.park(5);
        tx.put(5);
        for (said, fine) in [(11, false), (9, true), (8, false), (10, true), (15, false)] {
            words.consumed.set(said);
            assert_eq!(tx.heard(&words).is_ok(), fine, "{said}");
        }
    }
}
