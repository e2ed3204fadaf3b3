//! Software iWARP: RDMA over an ordinary TCP stream, standard on the wire. Three layers, each a folder:
//!
//! | layer | what it adds | source |
//! |---|---|---|
//! | [`rdmap`] | operations: Send, RDMA Write, RDMA Read, Terminate; one stream's state | RFC 5040 |
//! | [`ddp`] | segments that say where their bytes belong; queues and tagged regions | RFC 5041 |
//! | [`mpa`] | frames with length, markers and CRC on a byte stream; the set-up of a connection | RFC 5044, 6581 |
//!
//! Everything here is arithmetic on slices: no system call, no clock, no random numbers, no thread. Whoever calls it
//! owns the TCP connection and the memory: it reads into an [`mpa::Inbox`], hands each ULPDU to
//! [`rdmap::Stream::receive`], and does what the [`rdmap::Event`] says; to send, it asks the stream for a
//! [`ddp::Message`], and frames segment after segment into a buffer or a list for one vectored write. Nothing is allocated
//! for a segment. Large payloads can be read straight to their place ([`rdmap::Stream::foresee`], [`mpa::Inbox::bypass`]).
//!
//! What the peer wrote is of types that are named so ([`ddp::Header`], [`mpa::Frame`]) until the stream has checked
//! it. Whatever breaks a rule ends the stream: the receiver returns a [`rdmap::Breach`], from which the Terminate
//! follows that the RFCs name ([`rdmap::Violation`] is the table); after it everything that arrives is dropped.

#![forbid(unsafe_code)]
#![warn(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
// (after the lints above, which it relaxes)
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::cast_possible_truncation)
)]

pub mod ddp;
pub mod mpa;
pub mod rdmap;

#[cfg(test)]
mod tests;

/// The buffer or list that was handed in is too small. Nothing has changed: try again with more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;
