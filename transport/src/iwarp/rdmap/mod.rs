//! RDMAP: the operations of one stream (RFC 5040). [`Stream`] is its state: what may be sent, and what a received segment
//! means; [`Violation`] is the table of everything that ends a stream, and [`Terminate`] the message that says so.

mod opcode;
mod read;
mod stream;
mod terminate;
mod violation;

pub use opcode::{Opcode, SendKind};
pub use read::{READ_REQUEST, ReadRequest};
pub use stream::{Event, Foreseen, Payload, Refused, Settings, Stream, TaggedKind};
pub use terminate::{Breach, Terminate};
pub use violation::{Includes, Violation};

/// The queues of untagged messages (RFC 5040 section 4.1).
pub mod queue {
    /// Sends of all kinds.
    pub const SEND: u32 = 0;
    /// Read Requests.
    pub const READ: u32 = 1;
    /// Terminate.
    pub const TERMINATE: u32 = 2;
}
