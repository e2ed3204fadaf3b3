//! Following the FPDUs among the raw octets: each is checked by MPA, DDP and RDMAP, then its message by SDP, before a
//! byte of it counts as one of the stream.
//!
//! Without a CRC a payload is handed on as it comes, once its headers have been checked: nothing at its end
//! could say that it is wrong. With one it is handed on when the sum has been.

use super::{Common, HEADERS, In, Open, Stage};
use crate::iwarp::ddp::TAGGED;
use crate::iwarp::mpa::{CRC, Error, Found, LENGTH, Ulpdu, pad};
use crate::iwarp::rdmap::{Breach, Event, TaggedKind, Violation};
use crate::sdp_wire;
use crate::sdp_wire::message::Message;
use crate::sdp_wire::mid::Mid;
use crate::sdp_wire::received::{FRONT, Received};
use crate::wire::{Due, GIVEN, Return};
use std::sync::atomic::Ordering;

/// Octets of an FPDU that have to be here before its headers can be looked at.
const FIRST: usize = LENGTH + 18 + FRONT;

/// Octets of an untagged DDP header.
const DDP: usize = 18;

impl In {
    /// Goes on as far as the raw octets allow, up to the next bytes of the stream.
    pub(super) fn parse(&mut self, common: &Common) {
        while !self.reset {
            let went_on = match self.stage {
                Stage::Header => self.header(common),
                Stage::Body { left: 0, tail } => {
                    self.stage = Stage::Skip(tail);
                    true
                }
                Stage::Given { left, tail } => self.keep_given(left, tail),
                Stage::Double { double, left, tail } => self.leave_out(double, left, tail),
                Stage::Skip(left) => self.skip(left, common),
                Stage::Body { .. } | Stage::Plain => false,
            };
            if !went_on {
                break;
            }
        }
        if self.reset {
            common.words.lift(); // (the peer says nothing any more that would be believed: the kernel tells who waits for room)
        }
        if std::mem::take(&mut self.untold) {
            self.note(); // (before it is told: a half that is put back would hear what it has acknowledged)
            common.tell_heard(&self.seq.heard());
            self.note_due(common);
        }
        self.tell_reading(common);
    }

    fn skip(&mut self, left: usize, common: &Common) -> bool {
        let n = left.min(self.end - self.start);
        self.start += n;
        if n < left {
            self.stage = Stage::Skip(left - n);
            return false;
        }
        if std::mem::take(&mut self.ends_message) {
            self.free();
        }
        if std::mem::take(&mut self.ends_read) {
            self.end_read(common);
        }
        self.stage = if self.ends_mode {
            Stage::Plain
        } else {
            Stage::Header
        };
        if std::mem::take(&mut self.begins_ring) {
            self.begin_ring(common);
        }
        true
    }

    /// Bytes that the reader has already.
    fn leave_out(&mut self, double: usize, left: usize, tail: usize) -> bool {
        let n = double.min(self.end - self.start);
        self.start += n;
        self.stage = if n < double {
            let double = double - n;
            Stage::Double { double, left, tail }
        } else {
            Stage::Body { left, tail }
        };
        n == double
    }

    /// Bytes that come back, as far as there is room for them.
    fn keep_given(&mut self, left: usize, tail: usize) -> bool {
        let room = GIVEN - self.given_end;
        let n = left.min(self.end - self.start).min(room);
        let from = self.raw.get(self.start..self.start + n);
        let to = self.back.get_mut(self.given_end..self.given_end + n);
        if let (Some(from), Some(to)) = (from, to) {
            to.copy_from_slice(from);
        }
        (self.start, self.given_end) = (self.start + n, self.given_end + n);
        if n < left {
            let left = left - n;
            self.stage = Stage::Given { left, tail };
            return false;
        }
        self.stage = Stage::Skip(tail);
        true
    }

    /// A receive buffer is free again.
    fn free(&mut self) {
        self.seq.post(1);
        self.stream.post(1);
        self.untold = true;
    }

    /// The peer is told of free buffers when it has asked, or where it is none that does once half of them can be told of anew.
    fn note_due(&mut self, common: &Common) {
        self.seq.note_told(&common.told());
        if self.few {
            let wanted = common.words.slots_wanted();
            if wanted.is_some_and(|by| !self.seq.told().told.0.has_reached(by)) {
                common.due.store(true, Ordering::Release);
            }
            return;
        }
        let half = self.seq.peer_credits().saturating_mul(2) <= self.posted;
        if self.seq.is_update_due() || (half && self.seq.has_more_to_tell()) {
            common.due.store(true, Ordering::Release);
        }
    }

    /// The FPDU at the front, if enough of it is here. False if more has to come.
    fn header(&mut self, common: &Common) -> bool {
        let here = self.raw.get(self.start..self.end).unwrap_or_default();
        let (ulpdu, len) = if self.crc {
            match self.deframer.look(here) {
                Ok(Found::Partial(_)) => return false,
                Ok(Found::Whole { ulpdu, .. }) => (ulpdu, ulpdu.len()),
                Err(error) => {
                    let violation = match error {
                        Error::Crc => Violation::Crc,
                        Error::Marker => Violation::Marker,
                    };
                    let breach = self.stream.fail(violation);
                    self.broken(&breach);
                    return true;
                }
            }
        } else {
            let Some((length, rest)) = here.split_first_chunk::<LENGTH>() else {
                return false;
            };
            let len = usize::from(u16::from_be_bytes(*length));
            // (of a large payload only its headers may have come; only data has the short ones)
            let plain_data = rest.get(DDP) == Some(&(Mid::Data as u8)) && len >= FIRST;
            let tagged = rest.first().is_some_and(|control| control & 0x80 != 0);
            let need = match (tagged, plain_data) {
                (true, _) => TAGGED,
                (false, true) => HEADERS - LENGTH,
                (false, false) => FIRST - LENGTH,
            };
            let Some(front) = rest.get(..len.min(need)) else {
                return false;
            };
            (Ulpdu::hollow(front, len), len)
        };
        let mut front = [0; FIRST];
        let copied = ulpdu.copy_to(&mut front);
        let front = front.get(..copied).unwrap_or_default();
        common.heard.store(true, Ordering::Release);
        let tail = pad(len) + CRC;
        let mut regions = self.regions(common, front);
        let event = self.stream.receive(Ulpdu::hollow(front, len), &mut regions);
        let (headers, payload) = match event {
            Err(breach) => {
                self.broken(&breach);
                return true;
            }
            Ok(Event::Send { offset, last, .. }) => {
                let payload = len.saturating_sub(DDP);
                let bytes = front.get(DDP..).unwrap_or_default();
                match self.segment(common, bytes, payload, offset == 0, last) {
                    Ok(head) => (DDP + head, payload.saturating_sub(head)),
                    Err(_) => {
                        let breach = self.stream.fail(Violation::LocalCatastrophic);
                        self.broken(&breach);
                        return true;
                    }
                }
            }
            Ok(Event::Terminated(_)) => {
                self.reset = true;
                return true;
            }
            Ok(Event::Tagged {
                kind: TaggedKind::ReadResponse(_),
                last,
                ..
            }) => {
                let payload = len.saturating_sub(TAGGED);
                self.answer_came(payload, last);
                (TAGGED, payload)
            }
            Ok(Event::Tagged {
                kind: TaggedKind::Write,
                place: Some(((), offset)),
                ..
            }) => {
                let payload = len.saturating_sub(TAGGED);
                if !self.writes.came(offset, payload) {
                    let breach = self.stream.fail(Violation::TaggedBounds);
                    self.broken(&breach);
                    return true;
                }
                self.read_bytes += payload as u64;
                if let Some(takes) = &mut self.takes {
                    takes.came_beside(payload);
                }
                (TAGGED, payload)
            }
            Ok(Event::ReadRequest) => {
                if let Err(breach) = self.asked_to_answer(common, &regions) {
                    self.broken(&breach);
                    return true;
                }
                (len, 0)
            }
            // A "ready to receive"; what follows an end.
            Ok(Event::Nothing | Event::Tagged { .. }) => (len, 0),
        };
        self.start += LENGTH + headers;
        let brings_back = std::mem::take(&mut self.brings_back);
        self.stage = if payload == 0 {
            Stage::Skip(tail)
        } else if brings_back {
            Stage::Given {
                left: payload,
                tail,
            }
        } else {
            self.last = payload;
            let double = self.leaves_out.min(payload);
            self.leaves_out -= double;
            let left = payload - double;
            if double > 0 {
                Stage::Double { double, left, tail }
            } else {
                Stage::Body { left, tail }
            }
        };
        true
    }

    /// A segment of a message with `payload` octets, of which the first are `front`. How many of them are the message's
    /// headers; all of them where they are no bytes of the stream.
    fn segment(
        &mut self,
        common: &Common,
        front: &[u8],
        payload: usize,
        first: bool,
        last: bool,
    ) -> Result<usize, sdp_wire::Violation> {
        let octets = u32::try_from(payload).unwrap_or(u32::MAX);
        self.ends_message = last;
        if !first {
            let open = self.message.take().ok_or(sdp_wire::Violation::Length)?;
            let left = open
                .left
                .checked_sub(octets)
                .filter(|&left| (left == 0) == last)
                .ok_or(sdp_wire::Violation::Length)?;
            self.message = (!last).then_some(Open { left, ..open });
            return Ok(if open.data { 0 } else { payload });
        }
        // Of a message in several segments the header alone says how long it is.
        let total = if last {
            payload
        } else {
            let said = front.get(4..8).and_then(|b| b.first_chunk::<4>());
            let said = said.map_or(0, |b| u32::from_be_bytes(*b) as usize);
            if said <= payload {
                return Err(sdp_wire::Violation::Length);
            }
            said
        };
        let (header, message) = Received::begun(front, total).check(&self.sizes)?;
        self.seq.note_told(&common.told());
        self.seq.receive(&header)?;
        self.untold = true;
        let head = crate::sdp_wire::header::HEADER + message.mid().extended();
        let data = message.mid().takes_payload(); // (also where it comes back)
        if !last {
            let left = u32::try_from(total - payload).unwrap_or(u32::MAX);
            self.message = Some(Open { left, data });
        }
        self.act(common, &message, total.saturating_sub(head))?;
        self.brings_back = message.mid() == Mid::GivenBack;
        if data
            && !self.brings_back
            && let Some(takes) = &mut self.takes
        {
            takes.came(total.saturating_sub(head), &common.words)?;
        }
        if self.brings_back {
            // Only who waits for them gets any, and no part of a message alone.
            if !common.is_returning(Return::Waits) || !last {
                return Err(sdp_wire::Violation::Unexpected);
            }
        }
        Ok(if data { head } else { payload })
    }

    /// What a message means whose payload has so many bytes.
    fn act(
        &mut self,
        common: &Common,
        message: &Message<'_>,
        payload: usize,
    ) -> Result<(), sdp_wire::Violation> {
        if self.fin && !matches!(message, Message::Data { payload: [], .. }) {
            // Behind its DisConn a source has nothing more to say but what serves the other direction.
            match message {
                Message::Data { .. } | Message::SrcAvail { .. } | Message::Recall { .. } => {
                    return Err(sdp_wire::Violation::Unexpected);
                }
                Message::AbortConn => self.reset = true,
                _ => {}
            }
        }
        self.note_writes(common, message, payload)?;
        self.is_new &= payload == 0 && matches!(message, Message::Data { .. });
        self.was_told |= matches!(
            message,
            Message::RingOffer { .. } | Message::RingAnswer { .. } | Message::RingBegin
        );
        match message {
            Message::DisConn => {
                self.drop_read();
                self.fin = true;
                common.note_finished();
            }
            Message::Plain => {
                self.drop_read();
                self.ends_mode = true;
                common.ring.expect_no_more();
                common.words.lift();
                common.note_return(Return::Whole);
                common.to_plain.store(true, Ordering::Release);
            }
            Message::TakeBack => {
                common.words.lift();
                common.note_return(Return::Asked);
                common.to_plain.store(true, Ordering::Release);
            }
            Message::PlainLater => {
                self.drop_read();
                self.ends_mode = true;
                common.ring.expect_no_more();
                common.words.lift();
                common.note_return(Return::Awaited);
                // (who has asked has something to give back first)
                if !common.is_returning(Return::Asks) {
                    common.to_plain.store(true, Ordering::Release);
                }
            }
            Message::RingOffer { terms } => {
                common.ring.expect_no_more(); // (another one, or none)
                common.ring.hear(terms, Due::Offered);
            }
            Message::RingAnswer { terms } => common.ring.hear(terms, Due::Answered),
            Message::RingBegin => {
                self.begins_ring = true;
                common.ring.want(Due::SayBegin); // this side's octets can go so too
            }
            Message::SuspComm { .. } => common.ask(super::super::common::SUSP_COMM_ACK),
            Message::ChRcvBuf { .. } => common.ask(super::super::common::CH_RCV_BUF_ACK),
            // (software has no addresses: each buffer begins at 0)
            Message::SrcAvail { advert, .. }
                if advert.address != 0 && payload == 0 && common.ring.is_wanted() =>
            {
                self.borrow_begins(common, advert)?;
            }
            Message::SrcAvail { advert, .. } => self.begin_read(common, advert, payload)?,
            Message::Recall { bytes } => self.borrow_ends(*bytes)?,
            Message::Withdraw => self.drop_read(),
            Message::Taken { bytes } => {
                common.words.heard(*bytes)?;
                if common.words.parked_since().is_some() {
                    common.due.store(true, Ordering::Release); // there may be room for them
                }
            }
            Message::Released | Message::Starved | Message::Cleared => {
                self.hear_of_room(common, message)?;
            }
            // (a SendSm for the buffer before may have been taken for one of this: in any case it goes on here)
            Message::Data { .. } if payload > 0 => {
                self.borrowed_is_read()?;
                self.drop_read();
            }
            Message::SendSm | Message::RdmaRdCompl { .. } => {
                let as_data = matches!(message, Message::SendSm);
                if !common.adverts.heard_done(as_data) {
                    return Err(sdp_wire::Violation::Unexpected);
                }
            }
            Message::AbortConn => self.reset = true,
            Message::SinkAvailCancel => common.ask(super::super::common::SINK_CANCEL_ACK),
            _ => {}
        }
        Ok(())
    }

    /// The peer has broken a rule: the last thing that it is told is which.
    fn broken(&mut self, breach: &Breach) {
        self.reset = true;
        self.terminate = self.stream.terminate(breach);
    }
}
