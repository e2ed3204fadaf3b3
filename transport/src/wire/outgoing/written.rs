//! A buffer of the peer's that it advertises (SinkAvail), as its source: what goes next is written right there (SDP's Write zero copy,
//! pipelined mode).
//!
//! While there is such a buffer, payload of whatever call goes by RDMA Writes, each FPDU one of its own, and RdmaWrCompl says how
//! much it was: once the buffer is full, or the call has no more. Which adverts count is the count's to say (`sdp_wire::stale`): one
//! that has crossed a message with payload is void, and both know.

use super::small::Head;
use super::{Mode, Out};
use crate::iwarp::ddp::{self, Stag, Tagged};
use crate::iwarp::rdmap::Opcode;
use crate::sdp_wire::message::{self, Half, Message};
use crate::sdp_wire::mode;
use crate::sdp_wire::stale;
use crate::sys::Result;
use crate::wire::{Common, common};

/// The peer's buffer.
#[derive(Clone, Copy, Debug)]
struct Open {
    stag: u32,
    address: u64,
    left: u32,
    written: u32,
}

/// What of it is in [`super::Numbers`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Writes {
    open: Option<Open>,
    /// Messages with payload that the peer counts.
    counted: stale::Source,
    /// How many of its adverts have been looked at.
    turn: u32,
    /// This direction's mode is pipelined.
    pipelined: bool,
}

impl Writes {
    pub(super) const fn is_pipelined(&self) -> bool {
        self.pipelined
    }

    pub(super) const fn turn(&self) -> u32 {
        self.turn
    }

    /// A message with payload is sent, not written.
    pub(super) const fn payload_sent(&mut self) {
        self.counted.payload_sent();
    }
}

impl Out {
    /// Looks whether the peer has advertised a buffer that counts; then its own buffer is not read any more (the draft: Writes win).
    pub(super) fn look_for_sink(&mut self, common: &Common) {
        let Some((turn, sink)) = common.adverts.sink(self.numbers.writes.turn) else {
            return;
        };
        let writes = &mut self.numbers.writes;
        // (of several the peer had dropped all but the last, for messages that were on their way)
        let missed = turn.wrapping_sub(writes.turn).saturating_sub(1);
        writes.counted.passed_over(missed);
        writes.turn = turn;
        if writes.counted.counts(sink.kept) == Ok(true) {
            writes.open = Some(Open {
                stag: sink.stag,
                address: sink.address,
                left: sink.len,
                written: 0,
            });
            self.end_advert(common);
            self.numbers.turns.give_up();
        }
    }

    /// Bytes that the next FPDU may carry, at most; of a buffer that is full none.
    pub(super) fn payload_most(&self) -> usize {
        match self.numbers.writes.open {
            Some(open) => self.most.min(open.left as usize),
            None => self.most.min(self.room()),
        }
    }

    /// Whether what goes next is written to a buffer of the peer's.
    pub(super) const fn writes(&self) -> bool {
        self.numbers.writes.open.is_some()
    }

    /// What stands in front of the next bytes that are written.
    pub(super) fn write_head(&mut self, len: usize) -> Option<Head> {
        let open = self.numbers.writes.open.as_mut()?;
        let n = u32::try_from(len)
            .ok()
            .filter(|&n| 0 < n && n <= open.left)?;
        let header = ddp::Header::Tagged(Tagged {
            last: true,
            upper: Opcode::Write.control(),
            stag: Stag(open.stag),
            offset: open.address,
        });
        open.address = open.address.wrapping_add(n.into());
        open.left -= n;
        open.written += n;
        let mut head = Head::new();
        header.write(|bytes| head.put(bytes));
        Some(head)
    }

    /// Says how much was written, if the buffer is full, or with `all`. False if that cannot be said now.
    ///
    /// # Errors
    /// As send(2).
    pub(super) fn complete_writes(&mut self, common: &Common, fd: i32, all: bool) -> Result<bool> {
        let Some(open) = self.numbers.writes.open else {
            return Ok(true);
        };
        if open.left > 0 && (open.written == 0 || !all) {
            return Ok(true);
        }
        if self.mode != Mode::Rdma {
            self.numbers.writes.open = None;
            return Ok(true);
        }
        let message = Message::RdmaWrCompl {
            len: open.written,
            pipelined: false,
        };
        self.advertising.written += u64::from(open.written);
        let said = self.say_and(common, fd, &message, |out| {
            out.numbers.writes.open = None;
        })?;
        if said {
            self.hurry(fd);
        } else {
            self.advertising.written -= u64::from(open.written);
        }
        Ok(said)
    }

    /// What goes next is sent, whatever the peer advertises: bytes that are parked are counted as such. False if that cannot be
    /// said now.
    ///
    /// # Errors
    /// As send(2).
    pub(super) fn leave_sink(&mut self, common: &Common, fd: i32) -> Result<bool> {
        let said = self.complete_writes(common, fd, true)?;
        let writes = &mut self.numbers.writes;
        if said && writes.open.take().is_some() {
            writes.counted.passed_over(1); // (the message that follows makes it void)
        }
        Ok(said)
    }

    /// Nothing more is written.
    pub(super) const fn end_writes(&mut self) {
        self.numbers.writes.open = None;
    }

    /// Says, as a sink, what the receiving half has asked for: that a buffer was read, or that there is one. What is to be said
    /// is looked at once it is known that it is whole; and it is not asked for any more before it is said, so that it is never said twice.
    ///
    /// # Errors
    /// As send(2).
    pub(super) fn say_of_adverts(&mut self, common: &Common, fd: i32, what: u32) -> Result<()> {
        if common.asked() & what == 0 {
            return Ok(());
        }
        let message = if what == common::SINK_AVAIL {
            let ours = common.adverts.offered();
            Message::SinkAvail {
                advert: message::Advert {
                    len: ours.len,
                    stag: ours.stag,
                    address: ours.address,
                },
                non_discards: ours.kept,
                payload: &[],
            }
        } else {
            Message::RdmaRdCompl {
                len: common.adverts.to_tell(),
                pipelined: self.advertising.is_on(),
            }
        };
        common.answered(what);
        if self.say(common, fd, &message)? {
            self.hurry(fd);
        } else {
            common.ask(what);
        }
        Ok(())
    }

    /// Changes this direction's mode to pipelined, as the peer wishes: it would advertise its buffers. False if that cannot be said now.
    ///
    /// # Errors
    /// As send(2).
    pub(super) fn be_pipelined(&mut self, common: &Common, fd: i32) -> Result<bool> {
        let change = Message::ModeChange {
            half: Half::Receive, // (the peer's)
            mode: mode::Mode::Pipelined,
        };
        self.say_and(common, fd, &change, |out| {
            out.numbers.writes.pipelined = true;
            common.adverts.note_pipelined();
        })
    }
}
