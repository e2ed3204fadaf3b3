//! Flow control of one direction of a stream: how much may go now, where it goes in the receiver's
//! buffer, and what the receiver hands back. Arithmetic only.
//!
//! Called by `transport::sdp`, once per piece of data, under that direction's lock. It knows no file
//! descriptor, no clock and no memory but its own, so every scheme can be tested with a model of both
//! ends. A scheme is a pair of halves: [`Sender`] on the side that sends, [`Receiver`] on the other.
//! Whatever the other end wrote arrives as [`Untrusted`] and is checked here before it is used.

#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::indexing_slicing, clippy::cast_possible_truncation))]

pub mod packetized;
mod untrusted;

pub use untrusted::{Untrusted, Violation};

/// A contiguous run of bytes inside the receiver's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Byte offset from the start of the buffer.
    pub offset: usize,
    /// Length in bytes; `offset + len` never exceeds the buffer.
    pub len: usize,
}

/// What a sender tells the receiver after it has put data in place: two control words. `origin` has to
/// be visible before `produced`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Bytes put over the life of the direction.
    pub produced: u64,
    /// The stream position that lies at offset 0 of the buffer.
    pub origin: u64,
}

/// The half that sends: it alone decides where bytes go in the receiver's buffer.
pub trait Sender {
    /// Takes the receiver's consumption counter (bytes taken over the life of the direction).
    ///
    /// # Errors
    /// [`Violation`] if the counter runs backwards or past what was sent.
    fn granted(&mut self, consumed: Untrusted<u64>) -> Result<(), Violation>;

    /// Bytes that may be put now without overrunning the receiver.
    fn room(&self) -> usize;

    /// Where the next bytes go: at most `want`, at most [`Self::room`], contiguous. Zero length means
    /// out of room.
    fn place(&mut self, want: usize) -> Piece;

    /// Accounts for `len` bytes put at the place last asked for and says what to publish.
    fn commit(&mut self, len: usize) -> Published;
}

/// The half that receives.
pub trait Receiver {
    /// Takes the sender's control words.
    ///
    /// # Errors
    /// [`Violation`] if more is claimed than the buffer holds, or the count runs backwards.
    fn announced(
        &mut self,
        produced: Untrusted<u64>,
        origin: Untrusted<u64>,
    ) -> Result<(), Violation>;

    /// Bytes that can be read now.
    fn available(&self) -> usize;

    /// The contiguous bytes that start `skip` bytes past the read position.
    fn next(&self, skip: usize) -> Piece;

    /// Gives `len` bytes back as read.
    fn consume(&mut self, len: usize);

    /// The counter to hand back to the sender now, if it is time to: always when `eager` and something
    /// is owed, otherwise only once enough has been read to be worth a cache line.
    fn grant(&mut self, eager: bool) -> Option<u64>;
}
