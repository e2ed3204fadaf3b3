//! One stream: both directions, since Reads tie them together. `send` says what may go, `receive` what has come; this file
//! owns their common state.
//!
//! The memory is the caller's: an [`Event`] says where octets belong, after every check, and the caller copies them there
//! before it asks for the next event. The order of events is the order of delivery; a Send therefore sees all Writes before it.

mod few;
mod foresee;
mod receive;
mod send;

use super::read::{READ_REQUEST, ReadRequest};
use super::terminate::{self, Terminate};
use crate::iwarp::ddp::{Queue, Stag, StreamId};
use crate::iwarp::mpa::setup::{ReadLimits, Role, Terms};
use crate::iwarp::mpa::{Rtr, Ulpdu};

use few::Few;

pub use foresee::Foreseen;
pub use send::Refused;

/// What a stream is made with.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Which stream it is in the table of regions.
    pub id: StreamId,
    pub role: Role,
    /// Reads of the peer that are answered at a time.
    pub ird: u16,
    /// Own Reads that may be outstanding.
    pub ord: u16,
    /// What the initiator sends first.
    pub rtr: Option<Rtr>,
    /// Octets of each buffer for Sends, and how many of them wait.
    pub receive_size: u32,
    pub receive_buffers: u32,
}

impl Settings {
    /// As agreed at set-up, with no buffers yet; `reads` where the upper layers agree on that.
    #[must_use]
    pub fn new(id: StreamId, terms: &Terms, reads: ReadLimits, receive_size: u32) -> Self {
        let ReadLimits { ird, ord } = terms.reads.unwrap_or(reads);
        Self {
            id,
            role: terms.role,
            ird,
            ord,
            rtr: terms.rtr,
            receive_size,
            receive_buffers: 0,
        }
    }
}

/// The payload of a received segment.
pub type Payload<'b> = Ulpdu<'b>;

/// Which operation a tagged segment belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaggedKind {
    /// The peer's Write: defined once a later Send has come.
    Write,
    /// The answer to the oldest own Read; its last segment completes it.
    ReadResponse(ReadRequest),
}

/// What a received segment means. `M` is the caller's handle of memory.
#[derive(Clone, Copy, Debug)]
pub enum Event<'b, M> {
    /// Nothing: a "ready to receive", or octets after the end.
    Nothing,
    /// Octets for a region: `memory` from its octet `offset` on. `None` and no octets: an empty message.
    Tagged {
        place: Option<(M, u64)>,
        payload: Payload<'b>,
        kind: TaggedKind,
        last: bool,
    },
    /// Octets for the buffer of the Send that is under way, from its octet `offset` on; with the last segment it is delivered.
    Send {
        message: u32,
        offset: u32,
        payload: Payload<'b>,
        solicited: bool,
        /// The region that has ended with this Send: last segment only.
        invalidated: Option<(Stag, M)>,
        last: bool,
    },
    /// The peer reads; [`Stream::to_answer`] says what.
    ReadRequest,
    /// The peer has ended the stream (`None`: with a message that makes no sense). Close the connection.
    Terminated(Option<Terminate>),
}

/// Where a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A responder before the first FPDU has come: it must not send (RFC 5044 section 7.1.2, rule 4).
    Waiting,
    /// An initiator that has to send "ready to receive" before anything else.
    Rtr(Rtr),
    Open,
    /// A Breach was found: the Terminate may go, and nothing else.
    Broken,
    /// Nothing may go, and what comes is dropped.
    Ended,
}

/// A Read that has been asked for.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    request: ReadRequest,
    received: u32,
}

/// The state of one stream. Holds no pointer; at most 32 Reads each way.
#[derive(Clone, Debug)]
pub struct Stream {
    id: StreamId,
    phase: Phase,
    /// Nothing has come that would allow a responder to send.
    mute: bool,
    /// The first FPDU may be an empty one.
    empty_rtr: bool,
    /// The message that goes next in each queue.
    next: [u32; 3],
    ord: u16,
    outstanding: Few<Outstanding>,
    sends: Queue,
    reads: Queue,
    terminates: Queue,
    to_answer: Few<ReadRequest>,
}

impl Stream {
    /// A stream that begins.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let phase = match (settings.role, settings.rtr) {
            (Role::Responder, _) => Phase::Waiting,
            (Role::Initiator, Some(rtr)) => Phase::Rtr(rtr),
            (Role::Initiator, None) => Phase::Open,
        };
        #[expect(clippy::cast_possible_truncation, reason = "two small constants")]
        let [read, terminate] = [READ_REQUEST as u32, terminate::LARGEST as u32];
        Self {
            id: settings.id,
            phase,
            mute: phase == Phase::Waiting,
            empty_rtr: phase == Phase::Waiting && settings.rtr == Some(Rtr::Fpdu),
            next: [1; 3],
            ord: settings.ord.min(few::MOST),
            outstanding: Few::new(),
            sends: Queue::new(settings.receive_size, settings.receive_buffers),
            reads: Queue::new(read, settings.ird.min(few::MOST).into()),
            terminates: Queue::new(terminate, 1),
            to_answer: Few::new(),
        }
    }

    /// `more` buffers for Sends wait.
    pub const fn post(&mut self, more: u32) {
        self.sends.post(more);
    }

    /// Own Reads that have not been answered in full.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// The peer has said, by the upper layer, that it answers none of the Reads that are outstanding.
    pub const fn forget_reads(&mut self) {
        self.outstanding = Few::new();
    }

    /// Whether nothing more can be sent or received.
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }
}
