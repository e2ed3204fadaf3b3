//! Flow control of one direction of a stream: how much may go now, where it goes in the receiver's
//! buffer, and what the receiver hands back. Arithmetic only.
//!
//! Called by `transport::sdp`, once per piece of data, under that direction's lock. It knows no file
//! descriptor, no clock and no memory but its own, so every scheme can be tested with a model of both
//! ends. A scheme is a pair of halves: [`Sender`] on the side that sends, [`Receiver`] on the other.
//! They talk through control words ([`Word`], [`Back`]) that a provider carries. Whatever the other end
//! wrote arrives as [`Untrusted`] and is checked here before it is used.
//!
//! | scheme | receive buffer | out of room | while the sender computes |
//! |---|---|---|---|
//! | [`credit`] | slots; a message burns one | `send` waits | all that `send` took has left |
//! | [`packetized`] | one ring, run to the byte | parked by the sender | parked bytes stay |
//! | [`nic`] | advertised in windows | queued for the "NIC" | the queue moves by itself |

#![no_std]
#![forbid(unsafe_code)]
#![warn(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
// (after the lints above, which it relaxes)
#![cfg_attr(
    test,
    allow(
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation
    )
)]

pub mod any;
mod areas;
pub mod carrier;
pub mod credit;
pub mod nic;
mod outgoing;
pub mod packetized;
mod queued;
pub mod terms;
#[cfg(test)]
mod tests;
mod untrusted;

pub use queued::Queued;
pub use terms::{Scheme, Terms};
pub use untrusted::{Untrusted, Violation};

/// A contiguous run of bytes inside a direction's region: the receive buffer and the sender's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Byte offset from the start of the region.
    pub offset: usize,
    /// Length in bytes; `offset + len` never exceeds the region.
    pub len: usize,
}

/// What a sender tells its receiver. Positions are byte counts over the life of the direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The receiver may take bytes up to here. Told after everything that describes those bytes.
    Produced,
    /// Up to here bytes lie in the receive ring, from here on in the sender's own buffer.
    Boundary,
    /// The position that lies at offset 0 of the receive ring.
    Origin,
    /// Bytes that `send` has taken, parked and withheld ones included ([`Queued`]). Counts once the sender is gone.
    Queued,
    /// `nic`: up to here the own buffer was handed to the NIC by the sender.
    Posted,
    /// `nic`: segments put under an advertised receive; `credit`: data messages sent.
    Segments,
    /// `credit`: messages without payload sent.
    Control,
    /// `credit`: for the opposite direction: receive buffers made free there. Rides on what goes here.
    Acknowledged,
}

/// What a receiver hands back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Back {
    /// Bytes taken.
    Consumed,
    /// `nic`: receives advertised, each of a window.
    Advertised,
    /// `nic`: up to here events have handed the software part to the NIC.
    Evented,
    /// `nic`: events so far.
    Events,
    /// `credit`: receive buffers made free. Comes as [`Word::Acknowledged`] of the opposite direction.
    Acknowledged,
}

/// What the two halves of one side note for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// `credit`: data messages that this side has read to their end.
    Freed,
    /// Of those, how many it has acknowledged.
    Acknowledged,
    /// `credit`: messages without payload of the peer that this side has acknowledged.
    Controls,
}

/// Notes of one side, written by one half and read by the other.
pub trait Notes {
    fn note(&self, note: Note, value: u64);
    fn noted(&self, note: Note) -> u64;
}

/// The control words as a sender sees them. What it tells becomes visible in the order told, and after
/// the bytes that were put before.
pub trait Outbox: Notes {
    fn tell(&self, word: Word, value: u64);
    fn handed_back(&self, back: Back) -> Untrusted<u64>;
    /// Writes the length of the message whose slot begins at this offset of the region.
    fn write_header(&self, offset: usize, len: u32);
    /// Reads it again. The peer can have changed it.
    fn read_header(&self, offset: usize) -> Untrusted<u32>;
}

/// The control words as a receiver sees them.
pub trait Inbox: Notes {
    fn told(&self, word: Word) -> Untrusted<u64>;
    fn hand_back(&self, back: Back, value: u64);
    fn header(&self, offset: usize) -> Untrusted<u32>;
}

/// What came of handing back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    Nothing,
    /// The sender has been told: it may have to be woken.
    Told,
    /// It is time for an update, which has to ride on the opposite direction.
    UpdateDue,
}

/// What a scheme has counted, for the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times that a byte found no room, or no credit, at the receiver.
    pub starved: u64,
    /// Messages as they went: slots, ring writes, segments.
    pub wire: u64,
    /// Asynchronous events.
    pub events: u64,
    /// Credit updates that were messages of their own.
    pub updates: u64,
}

/// The half that sends: it alone decides where bytes go.
pub trait Sender {
    /// Whether a piece is a message: then it should not be cut for other reasons.
    const MESSAGES: bool = false;

    /// Takes in what the receiver has handed back.
    ///
    /// # Errors
    /// [`Violation`] if a counter runs backwards or past what was sent.
    fn granted(&mut self, out: &impl Outbox) -> Result<(), Violation>;

    /// Bytes that may be put now.
    fn room(&self) -> usize;

    /// Whether not all of `want` bytes would reach the receiver at once, as far as is known: time to look
    /// at what was handed back.
    fn is_short(&self, want: usize) -> bool {
        self.room() < want
    }

    /// Whether poll(2) should call the direction writable: a third of what is in use is free, as the
    /// kernel has it.
    fn is_roomy(&self) -> bool {
        self.room() as u64 >= self.limit() / 3
    }

    /// Where the next bytes go: at most `want`, contiguous. Zero length means out of room.
    fn place(&mut self, want: usize) -> Piece;

    /// Accounts for `len` bytes put at the place last asked for: one message, if a scheme has messages.
    fn commit(&mut self, len: usize, out: &impl Outbox);

    /// Tells the receiver of all that was committed.
    fn publish(&mut self, out: &impl Outbox);

    /// Instead of [`Self::publish`]: the program has more to say (MSG_MORE, TCP_CORK). The receiver may not take what was
    /// committed before the next word, unless it has waited for long or the sender is gone. False, and nothing told, where
    /// bytes lie in the sender's own buffer.
    fn withhold(&self, out: &impl Outbox) -> bool;

    /// Bytes put over the life of the direction.
    fn accepted(&self) -> u64;

    /// The most that may be on its way, in bytes.
    fn limit(&self) -> u64;

    /// Where bytes that were put before still lie: from position `from` on, contiguous. Zero length if
    /// that cannot be told.
    fn piece_at(&self, from: u64, out: &impl Outbox) -> Piece;

    /// Whether bytes lie with the sender that the receiver may not take yet.
    fn is_parked(&self) -> bool {
        false
    }

    /// Lets parked bytes go: as many as the receiver has room for, or all, since the program is inside
    /// the library for long. True if there were any: then the receiver is to be told ([`Self::publish`]).
    fn show(&mut self, _all: bool) -> bool {
        false
    }

    /// [`Self::show`], and tells the receiver. True if it was told.
    fn post(&mut self, all: bool, out: &impl Outbox) -> bool {
        let shown = self.show(all);
        if shown {
            self.publish(out);
        }
        shown
    }

    /// Takes what a message without payload needs, one that hands out credits of the opposite direction. False if the
    /// rules do not allow it now; otherwise it is to be sent ([`Self::tell_control`]).
    fn control(&mut self) -> bool {
        true
    }

    /// Sends the messages without payload for which there was leave.
    fn tell_control(&self, _out: &impl Outbox) {}

    /// Sizes the sender's own buffer anew, in bytes.
    fn resize(&mut self, _own: usize) {}

    /// Bytes of the receive buffer that are in use, once so many bytes of the stream were taken.
    fn held(&self, taken: u64) -> u64;

    /// Bytes of receive buffer that are reserved.
    fn reserved(&self) -> u64;

    fn counts(&self) -> Counts;
}

/// The half that receives.
pub trait Receiver {
    /// Looks for more.
    ///
    /// # Errors
    /// [`Violation`] if more is claimed than can be, or a count runs backwards.
    fn announced(&mut self, from: &impl Inbox) -> Result<(), Violation>;

    /// Bytes that can be read now.
    fn available(&self) -> usize;

    /// The contiguous bytes at the read position.
    ///
    /// # Errors
    /// [`Violation`] if the sender describes them as they cannot be.
    fn next(&mut self, from: &impl Inbox) -> Result<Piece, Violation>;

    /// Gives `len` bytes of the piece last asked for back as read.
    fn consume(&mut self, len: usize);

    /// Bytes read over the life of the direction.
    fn consumed(&self) -> u64;

    /// Tells the sender if it is time to: always when `eager` and something is owed that it could use,
    /// otherwise only once enough has been read to be worth a cache line.
    fn grant(&mut self, eager: bool, to: &impl Inbox) -> Granted;

    /// The sender is gone: what it had parked or withheld counts from now on.
    fn release(&mut self);

    /// It was waited for long enough: what the sender has withheld so far counts.
    fn pull(&mut self, from: &impl Inbox);
}
