//! Where the payload of a segment will go whose end has not arrived: so that the rest can be read straight from the connection to
//! its place, without a copy. Nothing is decided here: once the segment is whole, [`Stream::receive`] checks it as any
//! other.

use super::{Phase, Stream};
use crate::iwarp::ddp::{Header, Regions, Rights};
use crate::iwarp::rdmap::opcode::Opcode;
use crate::iwarp::rdmap::queue;

/// Where a payload will go if its segment is lawful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreseen<M> {
    /// To a region, from its octet `offset` on.
    Tagged { memory: M, offset: u64 },
    /// To the buffer of the Send that is under way, from its octet `offset` on.
    Send { message: u32, offset: u32 },
}

impl Stream {
    /// `front` is what has arrived of a ULPDU of `len` octets, from its first octet on. Returns where its payload will go and how
    /// many octets of header are in front of that; `None` if there is no payload, or no saying.
    ///
    /// Until the segment has been received the memory must stay, and what is in it means nothing.
    #[must_use]
    pub fn foresee<M: Copy>(
        &self,
        front: &[u8],
        len: usize,
        regions: &Regions<M>,
    ) -> Option<(Foreseen<M>, usize)> {
        if matches!(self.phase, Phase::Broken | Phase::Ended) {
            return None;
        }
        let header = Header::read(front).ok()?;
        let payload = u32::try_from(len.checked_sub(header.len())?).ok()?;
        if payload == 0 {
            return None;
        }
        let foreseen = match (Opcode::read(header.upper()).ok()?, header) {
            (Opcode::Send { .. }, Header::Untagged(segment)) if segment.queue == queue::SEND => {
                let mut queue = self.sends;
                queue.take(&segment, payload).ok()?;
                Foreseen::Send {
                    message: segment.message,
                    offset: segment.offset,
                }
            }
            (opcode @ (Opcode::Write | Opcode::ReadResponse), Header::Tagged(segment)) => {
                let answers = opcode == Opcode::ReadResponse;
                if answers {
                    self.check_response(&segment, payload).ok()?;
                }
                let rights = Rights {
                    write: !answers,
                    sink: answers,
                    ..Rights::NONE
                };
                let (stag, offset) = (segment.stag, segment.offset);
                let place = regions.check(stag, self.id, offset, payload.into(), rights);
                let (memory, offset) = place.ok()?;
                Foreseen::Tagged { memory, offset }
            }
            _ => return None,
        };
        Some((foreseen, header.len()))
    }
}
