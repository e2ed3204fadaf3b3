//! Violations of the protocol, one for each connection: what an end does after its hello, and the Terminate that the other one has to
//! answer with.

use transport::iwarp::ddp::Stag;
use transport::iwarp::rdmap::{ReadRequest, SendKind, Terminate, Violation};

use super::end::{BUFFER, BUFFERS, Ending};
use super::script::{Actor, Remote, WINDOW};

/// What an end does that it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offence {
    /// A Write to an STag that nobody has given out.
    WriteStag,
    /// A Write past the end of a region.
    WriteBounds,
    /// A Write to a region that may only be read.
    WriteRights,
    ReadStag,
    ReadBounds,
    /// A Read of a region that this end has ended with a Send.
    ReadEnded,
    /// A Send that is longer than the buffer.
    SendLong,
    /// More Sends than there are buffers.
    SendUnposted,
    /// Segments that say the wrong number, offset or queue.
    Number,
    Offset,
    Queue,
    /// Headers of versions or operations that do not exist.
    Opcode,
    RdmapVersion,
    DdpVersion,
    /// An answer to a Read that nobody asked for.
    Unasked,
    /// An octet that changed on its way.
    Crc,
}

impl Offence {
    pub const ALL: [Self; 16] = [
        Self::WriteStag,
        Self::WriteBounds,
        Self::WriteRights,
        Self::ReadStag,
        Self::ReadBounds,
        Self::ReadEnded,
        Self::SendLong,
        Self::SendUnposted,
        Self::Number,
        Self::Offset,
        Self::Queue,
        Self::Opcode,
        Self::RdmapVersion,
        Self::DdpVersion,
        Self::Unasked,
        Self::Crc,
    ];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WriteStag => "write-stag",
            Self::WriteBounds => "write-bounds",
            Self::WriteRights => "write-rights",
            Self::ReadStag => "read-stag",
            Self::ReadBounds => "read-bounds",
            Self::ReadEnded => "read-ended",
            Self::SendLong => "send-long",
            Self::SendUnposted => "send-unposted",
            Self::Number => "number",
            Self::Offset => "offset",
            Self::Queue => "queue",
            Self::Opcode => "opcode",
            Self::RdmapVersion => "rdmap-version",
            Self::DdpVersion => "ddp-version",
            Self::Unasked => "unasked",
            Self::Crc => "crc",
        }
    }

    /// What the RFCs call it.
    #[must_use]
    pub const fn violation(self) -> Violation {
        match self {
            Self::WriteStag | Self::WriteRights => Violation::TaggedInvalidStag,
            Self::WriteBounds => Violation::TaggedBounds,
            Self::ReadStag | Self::ReadEnded => Violation::SourceInvalidStag,
            Self::ReadBounds => Violation::SourceBounds,
            Self::SendLong => Violation::UntaggedTooLong,
            Self::SendUnposted => Violation::UntaggedNoBuffer,
            Self::Number => Violation::UntaggedNumber,
            Self::Offset => Violation::UntaggedOffset,
            Self::Queue => Violation::UntaggedQueue,
            Self::Opcode | Self::Unasked => Violation::UnexpectedOpcode,
            Self::RdmapVersion => Violation::RdmapVersion,
            Self::DdpVersion => Violation::UntaggedVersion,
            Self::Crc => Violation::Crc,
        }
    }

    /// What Linux's siw (6.12) means by the Terminate that it answers with.
    const fn in_words_of_siw(self) -> Violation {
        match self {
            // RFC 5041 section 7.2 has a code of its own for this; siw says that there is no buffer.
            Self::SendLong => Violation::UntaggedNoBuffer,
            // RFC 5040 section 7.2 has "unexpected opcode"; siw says that DDP has broken down.
            Self::Unasked => Violation::DdpCatastrophic,
            _ => self.violation(),
        }
    }

    /// Does it.
    ///
    /// # Panics
    /// If the stream is not open.
    pub fn commit(self, actor: &mut Actor) {
        let window = actor.their_window;
        let spare = actor.their_spare;
        let nowhere = Remote {
            stag: Stag(window.stag.0 ^ 0x5a5a_5a00),
            ..window
        };
        match self {
            Self::WriteStag => write(actor, nowhere, 0),
            Self::WriteBounds => write(actor, window, WINDOW - 4),
            Self::WriteRights => write(actor, spare, 0),
            Self::ReadStag => read(actor, nowhere, 0),
            Self::ReadBounds => read(actor, window, WINDOW - 4),
            Self::ReadEnded => {
                let ends = SendKind {
                    solicited: false,
                    invalidate: Some(spare.stag),
                };
                actor.end.send(ends, b"ends");
                read(actor, spare, 0);
            }
            Self::SendLong => actor.end.send(SendKind::default(), &vec![0; BUFFER + 1]),
            Self::SendUnposted => {
                for _ in 0..=BUFFERS {
                    actor.end.send(SendKind::default(), b"many");
                }
            }
            Self::Number => changed_send(actor, 13, 0x40),
            Self::Offset => changed_send(actor, 17, 4),
            Self::Queue => changed_send(actor, 9, 3),
            Self::Opcode => changed_send(actor, 1, 0x0c),
            Self::RdmapVersion => changed_send(actor, 1, 0xc0),
            Self::DdpVersion => changed_send(actor, 0, 3),
            Self::Unasked => {
                // Last segment, tagged, version 1; Read Response.
                let mut head = vec![0xc1, 0x42];
                head.extend(window.stag.0.to_be_bytes());
                head.extend(window.base.to_be_bytes());
                actor.end.put(&head, b"unasked");
            }
            Self::Crc => {
                let mut message = actor.end.send_message(SendKind::default(), 4);
                let head = message.segment(usize::MAX).unwrap().head;
                let mut bytes = actor.end.fpdu(head.bytes(), b"word");
                let at = bytes.len() - 6;
                bytes[at] ^= 1;
                actor.end.put_octets(bytes);
            }
        }
    }

    /// Commits it, and waits for the Terminate that it deserves.
    ///
    /// # Panics
    /// If another one comes, or none.
    pub fn commit_and_hear(self, actor: &mut Actor) -> Terminate {
        self.commit(actor);
        let ending = actor.end.wait_for_end();
        let Ending::Terminated(Some(said)) = ending else {
            panic!("{self:?}: {ending:?} instead of a Terminate");
        };
        let (is, ought) = if actor.siw {
            (siw_says(&said), self.in_words_of_siw())
        } else {
            (said.violation(), self.violation())
        };
        assert_eq!(is, Some(ought), "{self:?}: {said:?}");
        actor.end.close();
        said
    }

    /// Lets the peer commit it, and ends the stream with the Terminate.
    ///
    /// # Panics
    /// If this end saw something else.
    pub fn suffer(self, actor: &mut Actor) {
        assert_eq!(
            actor.end.wait_for_end(),
            Ending::Broken(self.violation()),
            "{self:?}"
        );
        actor.end.close();
    }
}

/// What a Terminate of siw's means. On little-endian machines it has the layer in the low half of the first octet and the
/// type of the error in the high one, and the header control bits at the other end of theirs (`struct iwarp_terminate` in the
/// driver's iwarp.h: bit fields, against the masks below it). RFC 5040 section 4.8 has the layer first; the
/// driver of Chelsio's adapters does so too. So siw's Terminates are understood by siw only, and siw takes ours for something else; nothing but the name
/// of the error depends on it.
fn siw_says(said: &Terminate) -> Option<Violation> {
    Violation::from_numbers(said.kind, said.layer, said.code)
}

fn write(actor: &mut Actor, to: Remote, from: usize) {
    actor
        .end
        .write(to.stag, to.base + from as u64, b"twelve bytes");
}

fn read(actor: &mut Actor, source: Remote, from: usize) {
    let (sink, sink_offset) = actor.sink();
    actor.end.read(ReadRequest {
        sink,
        sink_offset,
        len: 64,
        source: source.stag,
        source_offset: source.base + from as u64,
    });
}

/// A Send with one octet of its headers changed.
fn changed_send(actor: &mut Actor, octet: usize, flip: u8) {
    let mut message = actor.end.send_message(SendKind::default(), 4);
    let mut head = message.segment(usize::MAX).unwrap().head.bytes().to_vec();
    head[octet] ^= flip;
    actor.end.put(&head, b"word");
}
