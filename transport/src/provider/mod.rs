//! What carries bytes between the two ends of an attached connection, in the vocabulary of verbs:
//! registered buffers, put (RDMA Write), control words (write with immediate), a doorbell. `sdp` is
//! written against this trait; every provider runs the one conformance suite in `conformance`.
//!
//! The words of the trait are one side's: "mine" is written here, "peer's" is read and is hostile until
//! checked, which is why it comes as [`Untrusted`].

#[cfg(test)]
mod conformance;
mod shm;

use crate::direct::Direct;
use crate::doorbell::{By, Ticket};
use flowctl::{Inbox, Outbox, Piece, Terms, Violation};

/// One side of an attached connection. The control words of flow control are `flowctl`'s traits; zero copy
/// is [`Direct`].
pub trait Provider: Outbox + Inbox + Direct {
    /// Bytes of each direction's region, a power of two: room for a receive buffer and for as much of
    /// the sender's own.
    fn region(&self) -> usize;

    /// States by what terms this side sends. Before its fast leg begins.
    fn offer(&self, terms: &Terms);

    /// By what terms the peer sends. After the peer's fast leg has begun.
    ///
    /// # Errors
    /// [`Violation`] if they are none that fit.
    fn offered(&self) -> Result<Terms, Violation>;

    /// States how much this side wants to have sent to it at once, in bytes.
    fn want(&self, receive: u64);

    /// How much the peer wants at most.
    fn wanted(&self) -> u64;

    /// Puts bytes into the outgoing region. They are the peer's once a word that covers them is told.
    ///
    /// # Safety
    /// `from` is readable for `piece.len` bytes; the caller holds the sending lock.
    unsafe fn put(&self, piece: Piece, from: *const u8);

    /// Where the bytes of a piece may be produced in place (a file read straight into the buffer).
    /// The caller holds the sending lock.
    fn place(&self, piece: Piece) -> (*mut u8, usize);

    /// Copies bytes out of the incoming region.
    ///
    /// # Safety
    /// `to` is writable for `piece.len` bytes; the caller holds the receiving lock.
    unsafe fn take(&self, piece: Piece, to: *mut u8);

    /// Notes, to the byte, what this side has read.
    fn took(&self, bytes: u64);

    /// What the peer has read, to the byte.
    fn taken(&self) -> u64;

    /// As [`Self::took`], of the bytes that came by the kernel before the fast leg.
    fn took_first(&self, bytes: u64);

    /// What the peer has read of those.
    fn taken_first(&self) -> u64;

    /// States where a leg of this side's sending ends.
    fn state(&self, end: End, at: u64);

    /// Where a leg of the peer's sending ends, if it has said so.
    fn stated(&self, end: End) -> Option<u64>;

    /// This side sends no more (one of `FIN_*`).
    fn finish(&self, fin: u32);

    /// The peer's `FIN_*` word.
    fn finished(&self) -> u32;

    /// Wishes to be rung for `what` (`crate::doorbell`). True if the wish is new and its barrier due: then
    /// `sys::barrier::heavy` comes before the look that decides about sleeping.
    fn wish(&self, what: u32) -> bool;

    /// Wishes to be rung for `what`; look again before sleeping.
    fn arm(&self, what: u32) {
        if self.wish(what) {
            crate::sys::barrier::heavy();
        }
    }

    /// Takes wishes back.
    fn disarm(&self, what: u32);

    /// As [`Self::wish`], for an epoll set that sleeps on several connections by one ticket, or has a seat. A barrier is due. False: it
    /// could not be said.
    fn wish_by(&self, what: u32, by: By) -> bool;

    /// Takes back what was wished for by a ticket or a seat.
    fn disarm_by(&self);

    /// The wishes of this side that still stand.
    fn armed(&self) -> u32;

    /// Whether the peer has to be rung, after something was published. True once per wish.
    fn must_ring(&self, what: u32) -> bool;

    /// Whether the peer sleeps and has not been rung yet.
    fn peer_sleeps_for(&self, what: u32) -> bool;

    /// By which ticket the peer's set sleeps, or last did. Asked before a bell is sent.
    fn ticket(&self) -> Option<Ticket>;

    /// A bell has been sent since the ticket was read: this process owes the set no other.
    fn note_rung(&self, ticket: Ticket);

    /// Counts a doorbell byte about to be sent on the kernel connection.
    fn count_bell(&self);

    /// Takes one back that could not be sent.
    fn uncount_bell(&self);

    /// So many doorbell bytes were sent in all: whoever counted them last has died, perhaps before it sent one.
    fn recount_bells(&self, sent: u64);

    /// Doorbell bytes that the peer has counted.
    fn bells(&self) -> u64;

    /// Tells the peer to put no more, and from which position on to resend by the kernel, if from any.
    fn stop_peer(&self, give_back: Option<u64>);

    /// Whether the peer has told this side to put no more.
    fn stopped(&self) -> bool;

    /// Begins a put or a ring. False if this side was stopped: then nothing may be put or rung. Between
    /// a true answer and [`Self::leave`] the peer's [`Self::peer_is_putting`] is true.
    fn enter(&self) -> bool;

    /// Ends what [`Self::enter`] began.
    fn leave(&self);

    /// Asks the peer to say from now on when it puts.
    fn ask_times(&self);

    /// Says when this put is made, if the peer has asked. After [`Self::enter`], before anything is told.
    fn time_put(&self);

    /// When the peer last put, in ticks; 0 if it has not said.
    fn put_at(&self) -> u64;

    /// Takes on the peer's request, if there is one, to have this side's bytes again from a position on.
    fn take_give_back(&self) -> Option<u64>;

    /// Whether the peer has taken on this side's request to give bytes back.
    fn gave_back(&self) -> bool;

    /// Takes this side's request back. False if the peer has taken it on.
    fn cancel_give_back(&self) -> bool;

    /// Whether the peer is in the middle of a put.
    fn peer_is_putting(&self) -> bool;
}

/// The ends of a direction's legs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Bytes by the kernel before the fast leg.
    Kernel,
    /// Bytes by the fast leg.
    Fast,
}
