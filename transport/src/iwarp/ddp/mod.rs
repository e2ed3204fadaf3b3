//! DDP: segments that say where their bytes belong (RFC 5041). A tagged segment names a registered region (STag) and an offset
//! in it; an untagged one names a queue of buffers, a message in it (MSN) and an offset in that (MO).
//!
//! [`Header`] is the format, [`Message`] cuts what is sent into segments, [`Queue`] and [`Regions`] check where received
//! segments want to go. Errors are named after RFC 5041 section 7.2; which Terminate follows is the business of
//! [`rdmap`](super::rdmap).

mod header;
mod message;
mod queue;
mod regions;

pub use header::{Header, RawHeader, Tagged, Unreadable, Untagged};
pub use message::{Address, Head, Message, Segment};
pub use queue::{Queue, QueueError};
pub use regions::{Full, Region, RegionError, Regions, Rights, StreamId};

/// Names a registered region to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stag(pub u32);

/// The version in every header.
pub const VERSION: u8 = 1;
/// Octets of the header of a tagged segment.
pub const TAGGED: usize = 14;
/// Octets of the header of an untagged segment.
pub const UNTAGGED: usize = 18;
