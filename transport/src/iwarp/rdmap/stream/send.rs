//! What may be sent. Every method gives a [`Message`] whose segments are to be framed and sent in order, before those of
//! the next message (RFC 5041 section 5.3).

use super::{Outstanding, Phase, Stream};
use crate::iwarp::ddp::{
    Address, Head, Message, Regions, Rights, Segment, Stag, StreamId, Tagged, Untagged,
};
use crate::iwarp::mpa::Rtr;
use crate::iwarp::rdmap::opcode::{Opcode, SendKind};
use crate::iwarp::rdmap::read::ReadRequest;
use crate::iwarp::rdmap::terminate::Breach;
use crate::iwarp::rdmap::{Violation, queue};

/// Why something may not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Nothing has come from the peer yet: a responder waits for the first FPDU.
    Waiting,
    /// [`Stream::rtr`] has to go first.
    RtrFirst,
    /// As many Reads are outstanding as the peer answers.
    TooManyReads,
    /// The tagged offsets would go past 2^64.
    Wrap,
    /// The stream has ended.
    Ended,
}

impl Stream {
    /// Whether anything may be sent.
    ///
    /// # Errors
    /// Why not.
    pub const fn may_send(&self) -> Result<(), Refused> {
        match self.phase {
            Phase::Open => Ok(()),
            Phase::Waiting => Err(Refused::Waiting),
            Phase::Rtr(_) => Err(Refused::RtrFirst),
            Phase::Broken | Phase::Ended => Err(Refused::Ended),
        }
    }

    /// What an initiator sends before anything else, if that was agreed: one segment, the head of which is empty for an
    /// empty FPDU. Afterwards the stream is open.
    pub fn rtr(&mut self) -> Option<Segment> {
        let Phase::Rtr(kind) = self.phase else {
            return None;
        };
        self.phase = Phase::Open;
        let nowhere = ReadRequest {
            sink: Stag(0),
            sink_offset: 0,
            len: 0,
            source: Stag(0),
            source_offset: 0,
        };
        match kind {
            Rtr::Fpdu => Some(Segment {
                head: Head::default(),
                from: 0,
                len: 0,
                last: true,
            }),
            Rtr::Write => self.write(Stag(0), 0, 0).ok()?.segment(usize::MAX),
            Rtr::Read => self.read(nowhere).ok(),
        }
    }

    /// A Send of `len` octets.
    ///
    /// # Errors
    /// As [`may_send`](Self::may_send).
    pub fn send(&mut self, kind: SendKind, len: u32) -> Result<Message, Refused> {
        self.may_send()?;
        let opcode = Opcode::Send {
            solicited: kind.solicited,
            invalidate: kind.invalidate.is_some(),
        };
        let ended = kind.invalidate.unwrap_or(Stag(0));
        Ok(self.untagged(opcode, queue::SEND, ended, len))
    }

    /// A Write of `len` octets to a region of the peer.
    ///
    /// # Errors
    /// As [`may_send`](Self::may_send), or [`Refused::Wrap`].
    pub fn write(&mut self, stag: Stag, offset: u64, len: u32) -> Result<Message, Refused> {
        self.may_send()?;
        tagged(Opcode::Write, stag, offset, len)
    }

    /// A Read: the request is one segment, and the answer comes as [`super::Event::Tagged`]. The sink has to be registered.
    ///
    /// # Errors
    /// As [`may_send`](Self::may_send), [`Refused::TooManyReads`] or [`Refused::Wrap`].
    pub fn read(&mut self, request: ReadRequest) -> Result<Segment, Refused> {
        self.may_send()?;
        if self.outstanding.len() >= self.ord.into() {
            return Err(Refused::TooManyReads);
        }
        let len = u64::from(request.len);
        if request.sink_offset.checked_add(len).is_none()
            || request.source_offset.checked_add(len).is_none()
        {
            return Err(Refused::Wrap);
        }
        self.outstanding.push_back(Outstanding {
            request,
            received: 0,
        });
        let mut segment = self.own_message(Opcode::ReadRequest, queue::READ);
        request.write(|bytes| segment.head.put(bytes));
        Ok(segment)
    }

    /// The oldest Read of the peer that has not been answered: what it asks for, and where that lies (`None`: no octets, so
    /// nothing is looked at). A region may end while its octets are being sent: look again before each batch. `sent`: octets of
    /// the answer that have been sent.
    ///
    /// # Errors
    /// The [`Breach`] that the peer is to be told of: the region has ended.
    #[expect(clippy::type_complexity, reason = "a request and its place")]
    pub fn to_answer<M: Copy>(
        &mut self,
        sent: u32,
        regions: &Regions<M>,
    ) -> Result<Option<(ReadRequest, Option<(M, u64)>)>, Breach> {
        let Some(&request) = self.to_answer.front() else {
            return Ok(None);
        };
        match source(&request, self.id, regions) {
            Ok(place) => Ok(Some((request, place))),
            Err(violation) => Err(self.cannot_answer(sent, violation)),
        }
    }

    /// The answer to that Read. When its last segment has been given, say [`answered`](Self::answered).
    ///
    /// # Errors
    /// As [`may_send`](Self::may_send); [`Refused::Ended`] also if there is nothing to answer.
    pub fn answer(&self) -> Result<Message, Refused> {
        self.may_send()?;
        let request = self.to_answer.front().ok_or(Refused::Ended)?;
        tagged(
            Opcode::ReadResponse,
            request.sink,
            request.sink_offset,
            request.len,
        )
    }

    /// The oldest Read has been answered: the peer may ask for another one. Before what has arrived meanwhile is looked at:
    /// the peer may have seen the answer already.
    pub fn answered(&mut self) {
        if self.to_answer.pop_front().is_some() {
            self.reads.post(1);
        }
    }

    /// The oldest Read cannot be answered any further than by `sent` octets: ends the stream with this violation.
    #[must_use]
    pub fn cannot_answer(&mut self, sent: u32, violation: Violation) -> Breach {
        self.break_off();
        Breach {
            violation,
            segment: None,
            read: self.to_answer.front().map(|request| request.after(sent)),
        }
    }

    /// Ends the stream for a reason that no segment gave: the CRC, say, or this end's own trouble.
    #[must_use]
    pub const fn fail(&mut self, violation: Violation) -> Breach {
        self.break_off();
        Breach::new(violation)
    }

    /// A stream that has ended stays so: the one Terminate has been sent, or the peer's has come.
    const fn break_off(&mut self) {
        if !self.is_ended() {
            self.phase = Phase::Broken;
        }
    }

    /// The last message of the stream; nothing after it. Close the connection gracefully, so that it arrives (RFC 5040
    /// section 6.2.1). `None` if it must not be sent: before the peer's first FPDU, or once the stream has ended.
    pub fn terminate(&mut self, breach: &Breach) -> Option<Segment> {
        if self.phase != Phase::Broken || self.mute {
            self.phase = Phase::Ended;
            return None;
        }
        let mut segment = self.own_message(Opcode::Terminate, queue::TERMINATE);
        breach.write(&mut segment.head);
        self.phase = Phase::Ended;
        Some(segment)
    }

    /// A message that is all header: one segment without payload.
    fn own_message(&mut self, opcode: Opcode, queue: u32) -> Segment {
        let mut message = self.untagged(opcode, queue, Stag(0), 0);
        // The first segment is always there.
        message.segment(usize::MAX).unwrap_or(Segment {
            head: Head::default(),
            from: 0,
            len: 0,
            last: true,
        })
    }

    fn untagged(&mut self, opcode: Opcode, queue: u32, ended: Stag, len: u32) -> Message {
        let mut number = 0;
        if let Some(next) = self.next.get_mut(queue as usize) {
            number = *next;
            *next = next.wrapping_add(1);
        }
        let header = Untagged {
            last: false,
            upper: opcode.control(),
            upper_word: ended.0,
            queue,
            message: number,
            offset: 0,
        };
        Message::new(Address::Untagged(header), len)
    }
}

/// Where the octets lie that a Read asks for. Nothing of an empty one must be looked at (RFC 5040 section 5.2.1).
pub(super) fn source<M: Copy>(
    request: &ReadRequest,
    stream: StreamId,
    regions: &Regions<M>,
) -> Result<Option<(M, u64)>, Violation> {
    if request.len == 0 {
        return Ok(None);
    }
    let rights = Rights {
        read: true,
        ..Rights::NONE
    };
    let len = request.len.into();
    let place = regions.check(request.source, stream, request.source_offset, len, rights);
    place.map(Some).map_err(Violation::of_source)
}

fn tagged(opcode: Opcode, stag: Stag, offset: u64, len: u32) -> Result<Message, Refused> {
    offset.checked_add(len.into()).ok_or(Refused::Wrap)?;
    let header = Tagged {
        last: false,
        upper: opcode.control(),
        stag,
        offset,
    };
    Ok(Message::new(Address::Tagged(header), len))
}
