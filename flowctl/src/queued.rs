//! What a sender has taken beyond what it has told of: parked for want of room (`packetized`), or withheld because the
//! program has more to say ([`crate::Sender::withhold`]). Either lies where the receiver can read it, so nothing is lost if the
//! sender goes: it counts from then on ([`crate::Receiver::release`]), or once the receiver has waited for long
//! enough.

use crate::{Inbox, Outbox, Word};

/// In [`Word::Queued`]: what is not told of is withheld on purpose.
const WITHHELD: u64 = 1 << 63;

/// What [`Word::Queued`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// The position up to which `send` has taken bytes.
    pub end: u64,
    /// They are withheld on purpose, not parked.
    pub withheld: bool,
}

impl Queued {
    /// As the peer has it. A claim: whoever uses the end checks it.
    #[inline]
    #[must_use]
    pub fn read(from: &impl Inbox) -> Self {
        let word = from.told(Word::Queued).as_claim();
        Self {
            end: word & !WITHHELD,
            withheld: word & WITHHELD != 0,
        }
    }

    /// Tells the peer.
    #[inline]
    pub fn tell(self, out: &impl Outbox) {
        let withheld = if self.withheld { WITHHELD } else { 0 };
        out.tell(Word::Queued, self.end | withheld);
    }
}

/// How far a receiver takes what it was not told of: up to here; `ALL` from now on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beyond(u64);

/// See [`Beyond`].
const ALL: u64 = u64::MAX;

impl Beyond {
    pub(crate) const fn release(&mut self) {
        self.0 = ALL;
    }

    pub(crate) fn pull(&mut self, from: &impl Inbox) {
        self.0 = self.0.max(Queued::read(from).end);
    }

    /// Up to where bytes may be taken: a claim.
    #[inline]
    pub(crate) fn end(self, from: &impl Inbox) -> u64 {
        let told = from.told(Word::Produced).as_claim();
        match self.0 {
            ALL => told.max(Queued::read(from).end),
            pulled => told.max(pulled),
        }
    }

    /// Whether it has ever taken any.
    #[inline]
    pub(crate) const fn is_any(self) -> bool {
        self.0 > 0
    }
}
