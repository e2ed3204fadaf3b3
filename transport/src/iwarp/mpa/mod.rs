//! MPA: frames (FPDUs) on a TCP stream, and how a connection gets into that mode. RFC 5044; the enhanced set-up is RFC
//! 6581.
//!
//! An FPDU is a length of two octets, the ULPDU, a pad of up to three octets that makes it a multiple of four, and a
//! CRC. Each receiver decides whether it wants markers: then the sender puts four octets into the stream at every 512th
//! octet, which point back to the length. Each direction has a [`Framer`] at one end and a [`Deframer`] at the other; both
//! keep a [`Markers`], which is all they have to know of the position in the stream.
//!
//! Framing exists three times, and tests prove that the octets are the same: [`Framer::frame`] copies, marks and sums in one
//! pass over the data ("integrated" in the SDP thesis, chapter 3); [`generic`] first copies, then inserts markers, then sums, as
//! SDP over a separate iWARP layer has to; [`Framer::frame_in_place`] copies nothing and gives a list for a vectored
//! write.

mod crc;
mod deframe;
mod frame;
pub mod generic;
mod inbox;
mod markers;
mod parts;
pub mod setup;
pub mod startup;
mod ulpdu;
mod vector;

pub use crc::Crc;
pub use deframe::{Deframer, Error, Found};
pub use frame::Framer;
pub use inbox::Inbox;
pub use markers::Markers;
pub use parts::Parts;
pub use startup::{Depths, Frame, Kind, Malformed, Rtr, RtrSet};
pub use ulpdu::{Pieces, Ulpdu};
pub use vector::Vector;

/// The length in front of a ULPDU, octets.
pub const LENGTH: usize = 2;
/// The CRC behind it, octets. Always there, also where it is not in use.
pub const CRC: usize = 4;
/// The largest ULPDU that is ever sent, octets (RFC 5044 section 3.2: 64768).
pub const LARGEST_ULPDU: usize = 64_768;
/// The smallest MULPDU that may be reported, octets (RFC 5044 section 3.2).
pub const SMALLEST_MULPDU: usize = 128;
/// The largest FPDU that can arrive, octets: the length field can say 65535, and markers come on top.
pub const LARGEST_FPDU: usize = 66_080;

/// Octets of pad behind a ULPDU of `len` octets (RFC 5044 section 4.1).
#[must_use]
pub const fn pad(len: usize) -> usize {
    (4 - (LENGTH + len) % 4) % 4
}

/// The largest ULPDU, in octets, whose FPDU fits into one TCP segment of `emss` octets (RFC 5044 section 4.5).
#[must_use]
pub const fn mulpdu(emss: usize, markers: bool) -> usize {
    let markers = if markers { 4 * emss.div_ceil(512) } else { 0 };
    let fits = emss.saturating_sub(LENGTH + CRC + markers + emss % 4);
    if fits < SMALLEST_MULPDU {
        SMALLEST_MULPDU
    } else if fits > LARGEST_ULPDU {
        LARGEST_ULPDU
    } else {
        fits
    }
}
