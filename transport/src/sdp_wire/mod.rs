//! The messages of the Sockets Direct Protocol as they go over RDMA between hosts: what their bytes are, and the
//! rules about them that need no more than a message or a count. For the providers between hosts; on shared
//! memory the same roles are words of the segment.
//!
//! Sources: draft-pinkerton-iwarp-sdp-00, the text of the RDMA Consortium's SDP 1.0; the InfiniBand forms as
//! its implementations have them.
//!
//! | module | what |
//! |---|---|
//! | [`mid`] | the messages there are, and what each may carry |
//! | [`header`] | the Base Sockets Direct Header (BSDH), in front of every message |
//! | [`message`] | messages, their extended headers; the bytes to send |
//! | [`received`] | bytes that came, until they are checked |
//! | [`hello`], [`hello_ib`] | the messages that set a connection up |
//! | [`sequence`] | message numbers, acknowledgements, receive buffers: who may send what |
//! | [`stale`] | which adverts of a sink still count |
//! | [`mode`] | the flow-control modes of a direction, and how they change |
//!
//! Everything is big-endian, in the order header, extended header, payload, with nothing between. The figures
//! of the draft show the words with bit 0 at the right: the message identifier is the first byte, as on
//! InfiniBand.
//!
//! The rule here: nothing that a peer wrote is a [`message::Message`] before all that can be checked of it alone
//! has been; what breaks a rule is a [`Violation`], which names it and ends the connection.

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

pub(crate) mod fields;
pub mod header;
pub mod hello;
pub mod hello_ib;
pub mod message;
pub mod mid;
pub mod mode;
pub mod received;
pub mod sequence;
pub mod stale;
#[cfg(test)]
mod tests;
mod violation;

pub use violation::Violation;

/// Bytes of the smallest receive buffer that is allowed: the longest header and a byte.
pub const SMALLEST_BUFFER: u32 = 16 + 20 + 1;
/// Bytes of the largest receive buffer or advertised buffer.
pub const LARGEST_BUFFER: u32 = 1 << 31;
/// Receive buffers that each side has posted at least when the connection begins.
pub const FEWEST_BUFFERS: u16 = 3;

/// A size of receive buffers that the peer states.
const fn buffer_size(bytes: u32) -> Result<u32, Violation> {
    if bytes < SMALLEST_BUFFER || bytes > LARGEST_BUFFER {
        return Err(Violation::BufferSize);
    }
    Ok(bytes)
}
