//! Message numbers, acknowledgements and receive buffers of one side of a connection.
//!
//! - Every message, of whatever kind, takes a receive buffer of the peer. RDMA takes none.
//! - Credits are the peer's free buffers as this side can know: those that it had told of, less what was sent
//!   since the message that it had acknowledged then.
//!
//! | credits | what may be sent |
//! |---|---|
//! | 0 | nothing |
//! | 1 | a message without payload that hands out more credits |
//! | 2 | a message without payload |
//! | 3 and more | anything |
//!
//! - When the peer's credits have come down to 1 or less, and there are more for it, it is told, without
//!   waiting for anything ([`Sequence::is_update_due`]). That alone keeps both sides able to tell each other, not
//!   able to send data: with 2 credits a peer would wait. When else to tell it is a scheme's to decide, by
//!   [`Sequence::peer_credits`] and [`Sequence::has_more_to_tell`].
//! - Hello and HelloAck have number 0 on both sides. So 0 acknowledges no other message: where messages began
//!   with number 0 that would mean nothing or one.

use super::Violation;
use super::header::{Header, Seq};

/// Credits that are kept: one for an update, one more for other messages without payload.
const KEPT: u32 = 2;

/// What one side knows.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    /// Number of the last message sent.
    sent: Seq,
    /// The peer has received up to here, and has told of so many free buffers with that.
    acknowledged: Seq,
    bufs: u16,
    /// Number of the last message received.
    received: Seq,
    /// This side's receive buffers that are posted and free.
    free: u32,
    /// The acknowledgement and free buffers that were told of last.
    told: (Seq, u16),
    /// While adverts are being cancelled: the last message that may be acknowledged.
    held: Option<Seq>,
    /// Receive buffers of the peer do not matter any more.
    lifted: bool,
}

/// What has been heard of the peer: its acknowledgement with its buffers, the number received last with this
/// side's free buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    pub acknowledged: (Seq, u16),
    pub received: (Seq, u32),
}

/// What the peer has been told: the number sent last, and the acknowledgement with this side's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub sent: Seq,
    pub told: (Seq, u16),
}

impl Sequence {
    /// After Hello and HelloAck, which have told of this many free buffers each way.
    #[must_use]
    pub const fn new(own: u16, peer: u16) -> Self {
        Self {
            sent: Seq(0),
            acknowledged: Seq(0),
            bufs: peer,
            received: Seq(0),
            free: own as u32,
            told: (Seq(0), own),
            held: None,
            lifted: false,
        }
    }

    /// For tests: as if so many messages had gone before, each way.
    #[cfg(test)]
    pub(super) fn renumber(&mut self, by: u32) {
        for seq in [
            &mut self.sent,
            &mut self.acknowledged,
            &mut self.received,
            &mut self.told.0,
        ] {
            seq.0 = seq.0.wrapping_add(by);
        }
    }

    /// What the receiving half knows, for a sending half that keeps a copy of its own.
    #[must_use]
    pub const fn heard(&self) -> Heard {
        Heard {
            acknowledged: (self.acknowledged, self.bufs),
            received: (self.received, self.free),
        }
    }

    /// Takes in what the other copy has heard.
    pub const fn hear(&mut self, heard: &Heard) {
        (self.acknowledged, self.bufs) = heard.acknowledged;
        (self.received, self.free) = heard.received;
    }

    /// What the sending half has told, for a receiving half that keeps a copy of its own.
    #[must_use]
    pub const fn told(&self) -> Told {
        Told {
            sent: self.sent,
            told: self.told,
        }
    }

    /// Takes in what the other copy has told.
    pub const fn note_told(&mut self, told: &Told) {
        self.sent = told.sent;
        self.told = told.told;
    }

    /// Receive buffers were posted.
    pub const fn post(&mut self, buffers: u32) {
        self.free = self.free.saturating_add(buffers);
    }

    /// Messages that the peer has room for.
    #[must_use]
    pub const fn credits(&self) -> u32 {
        if self.lifted {
            return u32::MAX;
        }
        credits(self.bufs, self.sent, self.acknowledged)
    }

    /// From now on messages need no credits: the peer has said, or was told, that it takes them all, or will not say any more
    /// what it takes. (Shunt's own.)
    pub const fn lift(&mut self) {
        self.lifted = true;
    }

    /// Whether a message may be sent now.
    #[must_use]
    pub const fn may_send(&self, has_payload: bool) -> bool {
        match self.credits() {
            0 => false,
            1 => !has_payload && self.has_more_to_tell(),
            KEPT => !has_payload,
            _ => true,
        }
    }

    /// The header of the next message, which is sent now. Nothing if it may not be.
    pub fn send(&mut self, has_payload: bool, urgent_pending: bool) -> Option<Header> {
        self.may_send(has_payload)
            .then(|| self.send_passing(urgent_pending))
    }

    /// The header of a message that needs no credit, since its buffer is free again before the next one is looked at: at the end
    /// of a direction whose other side cannot grant any more, behind one that had a credit. (Shunt's own.)
    pub fn send_passing(&mut self, urgent_pending: bool) -> Header {
        self.sent = self.sent.next();
        self.told = (self.acknowledgement(), self.bufs_now());
        let (acknowledged, bufs) = self.told;
        Header {
            bufs,
            number: self.sent,
            acknowledged,
            urgent_pending,
        }
    }

    /// Takes in the header of a message of the peer.
    ///
    /// # Errors
    /// The rule that it breaks; then nothing has changed.
    pub fn receive(&mut self, header: &Header) -> Result<(), Violation> {
        if header.number != self.received.next() {
            return Err(Violation::Sequence);
        }
        // (how far it is from what was acknowledged says all, also when numbers go round)
        let more = header.acknowledged.since(self.acknowledged);
        if more > self.sent.since(self.acknowledged) {
            return Err(Violation::Acknowledgement);
        }
        self.free = self.free.checked_sub(1).ok_or(Violation::Overrun)?;
        self.received = header.number;
        self.acknowledged = header.acknowledged;
        self.bufs = header.bufs;
        Ok(())
    }

    /// Whether the peer has to be told of more credits now.
    #[must_use]
    pub const fn is_update_due(&self) -> bool {
        self.peer_credits() <= 1 && self.has_more_to_tell()
    }

    /// Whether the peer has acknowledged a message of this side.
    #[must_use]
    pub const fn is_acknowledged(&self, number: Seq) -> bool {
        self.acknowledged.has_reached(number)
    }

    /// The peer has cancelled its adverts by the message with this number: until [`Self::release`], which comes
    /// with the one SendSm, nothing from there on is acknowledged.
    pub const fn hold_before(&mut self, cancel: Seq) {
        self.held = Some(cancel.previous());
    }

    /// Acknowledges everything again.
    pub const fn release(&mut self) {
        self.held = None;
    }

    /// Number of the last message sent.
    #[must_use]
    pub const fn last_sent(&self) -> Seq {
        self.sent
    }

    const fn acknowledgement(&self) -> Seq {
        match self.held {
            Some(last) if self.received.has_reached(last) => last,
            _ => self.received,
        }
    }

    /// Bufs.
    fn bufs_now(&self) -> u16 {
        u16::try_from(self.free).unwrap_or(u16::MAX)
    }

    /// The peer's credits, as it counts them by what it has been told.
    #[must_use]
    pub const fn peer_credits(&self) -> u32 {
        credits(self.told.1, self.received, self.told.0)
    }

    /// Whether the peer would count more credits after a message that is sent now.
    #[must_use]
    pub const fn has_more_to_tell(&self) -> bool {
        let most = u16::MAX as u32;
        let free = if self.free < most { self.free } else { most };
        let held = self.received.since(self.acknowledgement());
        free.saturating_sub(held) > self.peer_credits()
    }
}

/// Credits by what was told: free buffers when a message had been acknowledged, less those sent since.
#[must_use]
pub const fn credits(bufs: u16, sent: Seq, acknowledged: Seq) -> u32 {
    (bufs as u32).saturating_sub(sent.since(acknowledged))
}
