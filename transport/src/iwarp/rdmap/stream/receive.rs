//! What a received segment means. Every check of RFC 5041 section 7.1 and RFC 5040 section 7.2 is made here or in what is called
//! from here, before anything is told to the caller: first what DDP says of itself, then version and operation, then the place.
//!
//! Invariant: after the first breach nothing is told any more.

use std::mem;

use super::send::source;
use super::{Event, Payload, Phase, Stream, TaggedKind};
use crate::iwarp::ddp::{
    Header, RawHeader, Regions, Rights, Stag, Tagged, UNTAGGED, Unreadable, Untagged,
};
use crate::iwarp::mpa::Ulpdu;
use crate::iwarp::rdmap::opcode::{Opcode, Unknown};
use crate::iwarp::rdmap::read::{READ_REQUEST, ReadRequest};
use crate::iwarp::rdmap::terminate::{self, Breach, Terminate};
use crate::iwarp::rdmap::{Violation, queue};

/// A violation, and the Read Request in question.
type Refusal = (Violation, Option<ReadRequest>);

impl Stream {
    /// Takes a ULPDU, and says what follows. `regions` may be shared with other streams.
    ///
    /// # Errors
    /// The first [`Breach`] of the peer's: send [`Stream::terminate`], and close. What comes later is [`Event::Nothing`].
    pub fn receive<'b, M: Copy>(
        &mut self,
        ulpdu: Ulpdu<'b>,
        regions: &mut Regions<M>,
    ) -> Result<Event<'b, M>, Breach> {
        match self.phase {
            Phase::Broken | Phase::Ended => return Ok(Event::Nothing),
            Phase::Waiting => self.phase = Phase::Open,
            Phase::Rtr(_) | Phase::Open => {}
        }
        self.mute = false;
        let may_be_empty = mem::take(&mut self.empty_rtr);
        if ulpdu.is_empty() && may_be_empty {
            return Ok(Event::Nothing);
        }
        let mut front = [0; UNTAGGED];
        let seen = ulpdu.copy_to(&mut front);
        let front = front.get(..seen).unwrap_or_default();
        self.segment(ulpdu, front, regions)
            .map_err(|(violation, read)| {
                self.phase = Phase::Broken;
                // Lengths of ULPDUs are of 16 bits.
                let len = u16::try_from(ulpdu.len()).unwrap_or(u16::MAX);
                Breach {
                    violation,
                    segment: RawHeader::read(front).map(|header| (len, header)),
                    read,
                }
            })
    }

    fn segment<'b, M: Copy>(
        &mut self,
        ulpdu: Ulpdu<'b>,
        front: &[u8],
        regions: &mut Regions<M>,
    ) -> Result<Event<'b, M>, Refusal> {
        let plain = |violation| (violation, None);
        let header = Header::read(front).map_err(|error| {
            plain(match error {
                Unreadable::Short => Violation::StreamCatastrophic,
                Unreadable::Version { tagged: true } => Violation::TaggedVersion,
                Unreadable::Version { tagged: false } => Violation::UntaggedVersion,
            })
        })?;
        if matches!(header, Header::Untagged(header) if header.queue > queue::TERMINATE) {
            return Err(plain(Violation::UntaggedQueue));
        }
        let opcode = Opcode::read(header.upper()).map_err(|unknown| {
            plain(match unknown {
                Unknown::Version => Violation::RdmapVersion,
                Unknown::Opcode => Violation::UnexpectedOpcode,
            })
        })?;
        let payload = ulpdu.skip(header.len());
        match (opcode, header) {
            (Opcode::Write, Header::Tagged(header)) => {
                self.write_came(&header, payload, regions).map_err(plain)
            }
            (Opcode::ReadResponse, Header::Tagged(header)) => {
                self.response_came(&header, payload, regions).map_err(plain)
            }
            (opcode, Header::Untagged(header)) if opcode.queue().is_some() => {
                if opcode.queue() != Some(header.queue) {
                    return Err(plain(Violation::UntaggedQueue));
                }
                match opcode {
                    Opcode::Terminate => Ok(self.terminate_came(&header, payload)),
                    Opcode::ReadRequest => self.request_came(&header, payload, regions),
                    _ => self
                        .send_came(opcode, &header, payload, regions)
                        .map_err(plain),
                }
            }
            _ => Err(plain(Violation::UnexpectedOpcode)),
        }
    }

    fn write_came<'b, M: Copy>(
        &self,
        header: &Tagged,
        payload: Payload<'b>,
        regions: &Regions<M>,
    ) -> Result<Event<'b, M>, Violation> {
        let rights = Rights {
            write: true,
            ..Rights::NONE
        };
        Ok(Event::Tagged {
            place: self.place(header, payload, regions, rights)?,
            payload,
            kind: TaggedKind::Write,
            last: header.last,
        })
    }

    fn response_came<'b, M: Copy>(
        &mut self,
        header: &Tagged,
        payload: Payload<'b>,
        regions: &Regions<M>,
    ) -> Result<Event<'b, M>, Violation> {
        let request = self.check_response(header, payload_len(payload))?;
        let rights = Rights {
            sink: true,
            ..Rights::NONE
        };
        let place = self.place(header, payload, regions, rights)?;
        if header.last {
            self.outstanding.pop_front();
        } else if let Some(read) = self.outstanding.front_mut() {
            // Not past the end of the Read: that was checked.
            read.received = read.received.saturating_add(payload_len(payload));
        }
        Ok(Event::Tagged {
            place,
            payload,
            kind: TaggedKind::ReadResponse(request),
            last: header.last,
        })
    }

    /// Whether a segment of an answer, with `len` octets, is the next one of the oldest Read, which it returns.
    pub(super) fn check_response(
        &self,
        header: &Tagged,
        len: u32,
    ) -> Result<ReadRequest, Violation> {
        let read = self
            .outstanding
            .front()
            .ok_or(Violation::UnexpectedOpcode)?;
        let request = read.request;
        let end = read
            .received
            .checked_add(len)
            .ok_or(Violation::TaggedBounds)?;
        if len > 0 {
            if header.stag != request.sink {
                return Err(Violation::TaggedInvalidStag);
            }
            // The sum was checked when the request was made.
            let due = request.sink_offset.wrapping_add(read.received.into());
            if header.offset != due {
                return Err(Violation::TaggedBounds);
            }
        }
        if end > request.len || (header.last && end < request.len) {
            return Err(Violation::TaggedBounds);
        }
        Ok(request)
    }

    /// Where a tagged segment goes. STag and offset of an empty one must not be looked at (RFC 5041 section 5.2).
    fn place<M: Copy>(
        &self,
        header: &Tagged,
        payload: Payload<'_>,
        regions: &Regions<M>,
        rights: Rights,
    ) -> Result<Option<(M, u64)>, Violation> {
        if payload.is_empty() {
            return Ok(None);
        }
        let len = payload.len() as u64;
        let place = regions.check(header.stag, self.id, header.offset, len, rights);
        place.map(Some).map_err(Violation::of_tagged)
    }

    fn send_came<'b, M: Copy>(
        &mut self,
        opcode: Opcode,
        header: &Untagged,
        payload: Payload<'b>,
        regions: &mut Regions<M>,
    ) -> Result<Event<'b, M>, Violation> {
        let Opcode::Send {
            solicited,
            invalidate,
        } = opcode
        else {
            return Err(Violation::UnexpectedOpcode);
        };
        self.sends.take(header, payload_len(payload))?;
        let mut invalidated = None;
        if invalidate && header.last {
            let stag = Stag(header.upper_word);
            let region = regions.invalidate(stag, self.id);
            let region = region.map_err(|_| Violation::CannotInvalidate)?;
            invalidated = Some((stag, region.memory));
        }
        Ok(Event::Send {
            message: header.message,
            offset: header.offset,
            payload,
            solicited,
            invalidated,
            last: header.last,
        })
    }

    fn request_came<'b, M: Copy>(
        &mut self,
        header: &Untagged,
        payload: Payload<'b>,
        regions: &Regions<M>,
    ) -> Result<Event<'b, M>, Refusal> {
        let taken = self.reads.take(header, payload_len(payload));
        taken.map_err(|error| (error.into(), None))?;
        let mut bytes = [0; READ_REQUEST];
        if !header.last || payload.copy_to(&mut bytes) != READ_REQUEST {
            return Err((Violation::OperationUnspecified, None));
        }
        let request = ReadRequest::read(&bytes).ok_or((Violation::OperationUnspecified, None))?;
        source(&request, self.id, regions).map_err(|violation| (violation, Some(request)))?;
        self.to_answer.push_back(request);
        Ok(Event::ReadRequest)
    }

    /// No Terminate answers a Terminate, not even a senseless one.
    fn terminate_came<'b, M: Copy>(
        &mut self,
        header: &Untagged,
        payload: Payload<'b>,
    ) -> Event<'b, M> {
        self.phase = Phase::Ended;
        let taken = self.terminates.take(header, payload_len(payload));
        let mut bytes = [0; terminate::LARGEST];
        let len = payload.copy_to(&mut bytes);
        let whole = taken.is_ok() && header.last;
        let said = bytes.get(..len).filter(|_| whole);
        Event::Terminated(said.and_then(Terminate::read))
    }
}

/// Lengths of ULPDUs are of 16 bits.
fn payload_len(payload: Payload<'_>) -> u32 {
    u32::try_from(payload.len()).unwrap_or(u32::MAX)
}
