//! Advertised buffers, as their source: SrcAvail with the beginning of a large message, then answers to the peer's Reads right
//! from the program's memory (SDP's Read zero copy, combined mode).
//!
//! Who sends is there all the while: each call that goes on with the message is given the program's buffer anew, and only it
//! answers Reads. So nothing of the program's memory is looked at when no call of its owner is under way. A call knows an
//! advert for its own by where the buffer goes on.
//!
//! A reader that does not come is no reason to stand still: a message that was waited for long enough is taken back with
//! [`Message::Withdraw`], at once and without an answer, and what has not been read of it goes as Data. The octets of one
//! connection are in order, so the peer knows of each Read whether it was answered before.

use super::small::Head;
use super::{From, Mode, Out, SMALL, Sent};
use crate::clock;
use crate::iwarp::ddp::{self, Stag, Tagged};
use crate::iwarp::mpa::{LARGEST_ULPDU, Parts};
use crate::iwarp::rdmap::{Opcode, READ_REQUEST, ReadRequest, queue};
use crate::sdp::Walk;
use crate::sdp_wire::message::{self, Message};
use crate::sys::{Result, net};
use crate::wire::Common;
use crate::wire::adverts::{self, Asked, PIECE, Reading};
use std::sync::atomic::Ordering;

/// How long (µs) a sender waits for the peer's word on a buffer before it takes it back; and how long it advertises none then.
pub const PATIENCE_US: u64 = 5_000;
const PAUSE_US: u64 = 100_000;

/// Bytes that are advertised at once.
const MOST: usize = 1 << 30;

/// Octets of SrcAvail's own header.
const EXTENDED: usize = 16;

/// A buffer that the peer may read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Advert {
    number: u32,
    /// Where the call goes on whose buffer it is: compared, never looked at.
    next: usize,
    /// Bytes that have gone, and that have not.
    offset: u32,
    left: u32,
}

/// What of adverts is in [`super::Numbers`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns {
    pub(super) advert: Option<Advert>,
    /// The number of the newest buffer.
    issued: u32,
    /// It was taken back: the peer says nothing of it any more.
    withdrawn: bool,
    /// Which Read is to be answered next.
    turn: u32,
    /// As a sink: what is read, and how many pieces have been asked for.
    sink: u32,
    pieces: u32,
    /// Read Requests that have gone.
    requests: u32,
}

/// How this side advertises.
#[derive(Clone, Copy, Debug)]
pub(super) struct Advertising {
    /// From how many bytes on.
    pub(super) least: usize,
    /// The call under way can wait.
    pub(super) waits: bool,
    /// When something was last heard or said of a buffer, in ticks; not again before.
    since: u64,
    pub(super) not_before: u64,
    /// Buffers in a row that were lent in vain.
    pub(super) in_vain: u32,
    /// Bytes that the peer has read, and that were written to its buffers.
    pub(super) read: u64,
    pub(super) written: u64,
}

impl Turns {
    /// The newest buffer will not be spoken of any more.
    pub(super) const fn give_up(&mut self) {
        self.withdrawn = true;
    }
}

impl Advertising {
    pub(super) const OFF: Self = Self {
        least: usize::MAX,
        waits: false,
        since: 0,
        not_before: 0,
        in_vain: 0,
        read: 0,
        written: 0,
    };

    pub(super) const fn is_on(&self) -> bool {
        self.least < usize::MAX
    }

    pub(super) fn new(least: Option<usize>) -> Self {
        Self {
            least: least.unwrap_or(usize::MAX),
            ..Self::OFF
        }
    }
}

impl Out {
    /// Whether the next sends are by a call that can wait: only such a one advertises its buffer.
    pub const fn be_waiting(&mut self, waits: bool) {
        self.advertising.waits = waits;
    }

    /// Bytes that the peer has read of advertised buffers, and that were written to those that it advertises.
    #[must_use]
    pub const fn advertised(&self) -> (u64, u64) {
        (self.advertising.read, self.advertising.written)
    }

    /// What comes before the next bytes of this call: the advert that is open, this call's or another's. `None`: they
    /// can go.
    ///
    /// # Errors
    /// As send(2).
    ///
    /// # Safety
    /// The walk's buffers are readable.
    pub(super) unsafe fn go_on_with_advert(
        &mut self,
        common: &Common,
        fd: i32,
        walk: &mut Walk,
    ) -> Result<Option<Sent>> {
        let Some(advert) = self.numbers.turns.advert else {
            return Ok(None);
        };
        common.adverts.note_awaited(false);
        let (at, here) = walk.chunk();
        // (who is answered with SendSm takes it back all the same: the word may be for the buffer before)
        let is_own = at.addr() == advert.next
            && here >= advert.left as usize
            && !common.adverts.is_wanted_as_data(advert.number);
        if is_own && !self.noted.is_on() && self.next_asked(common).is_some() {
            // SAFETY: passed on to the caller.
            return unsafe { self.answer(common, fd, walk) }.map(Some);
        }
        if is_own && !self.noted.is_on() && self.advertising.waits && !self.is_overdue() {
            common.adverts.note_awaited(true);
            return Ok(Some(Sent::NoCredit));
        }
        if !self.withdraw(common, fd)? {
            return Ok(Some(Sent::NoCredit));
        }
        Ok(None)
    }

    /// Whether a sender that waits for the peer's word on a buffer has to wait on.
    pub fn waits_for_word(&mut self, common: &Common) -> bool {
        let turns = self.numbers.turns;
        if !common.adverts.is_awaited()
            || self.noted.is_on()
            || self.is_overdue()
            || common.adverts.sink(self.numbers.writes.turn()).is_some()
        {
            return false;
        }
        match turns.advert {
            Some(advert) => {
                !common.adverts.is_wanted_as_data(advert.number)
                    && self.next_asked(common).is_none()
            }
            None => turns.issued > 0 && !turns.withdrawn && !common.adverts.is_done(turns.issued),
        }
    }

    /// What is open of either kind ends as far as it can, for bytes that cannot wait. False if that cannot be said now.
    ///
    /// # Errors
    /// As send(2).
    pub fn settle_adverts(&mut self, common: &Common, fd: i32) -> Result<bool> {
        if self.mode != Mode::Rdma {
            return Ok(true);
        }
        self.look_for_sink(common);
        Ok(self.withdraw(common, fd)? && self.complete_writes(common, fd, true)?)
    }

    /// Whether the peer has had its time.
    fn is_overdue(&self) -> bool {
        clock::ticks().wrapping_sub(self.advertising.since) > clock::us(PATIENCE_US)
    }

    /// Advertises what this call sends, with the beginning of it. `None`: it goes as Data.
    ///
    /// # Errors
    /// As send(2).
    ///
    /// # Safety
    /// The walk's buffers are readable.
    pub(super) unsafe fn advertise(
        &mut self,
        common: &Common,
        fd: i32,
        walk: &mut Walk,
    ) -> Result<Option<Sent>> {
        // (in pipelined mode the advert has no payload)
        let pipelined = self.numbers.writes.is_pipelined();
        let with = if pipelined {
            0
        } else {
            SMALL.min(self.most.saturating_sub(EXTENDED))
        };
        let (at, here) = walk.chunk();
        if here < self.advertising.least.max(2 * with)
            || !self.advertising.waits
            || (with == 0) != pipelined
            || self.from != From::Program
            || self.noted.is_on()
            || self.begins_ring
            || !self.link.is_kernel()
            || common.ring.is_wanted()
        {
            return Ok(None);
        }
        let turns = self.numbers.turns;
        if clock::ticks() < self.advertising.not_before {
            return Ok(None);
        }
        if turns.issued > 0 && !turns.withdrawn && !common.adverts.is_done(turns.issued) {
            // (one at a time: the last one is read when the peer has said so)
            common.adverts.note_awaited(!self.is_overdue());
            if !self.is_overdue() {
                return Ok(Some(Sent::NoCredit));
            }
            self.advertising.not_before = clock::ticks() + clock::us(PAUSE_US);
            return Ok(None);
        }
        common.adverts.note_awaited(false);
        if !pipelined && common.adverts.is_wished() {
            // (no advert is open: in this turn it goes as Data, or to a buffer of the peer's)
            return Ok((!self.be_pipelined(common, fd)?).then_some(Sent::NoCredit));
        }
        // (without room for the beginning it goes as Data, as far as there is any)
        if with > self.payload_most() {
            return Ok(None);
        }
        let header = if with > 0 {
            self.send_counted(with)
        } else {
            self.numbers.seq.send(true, false)
        };
        let Some(header) = header else {
            return Ok(Some(Sent::NoCredit));
        };
        let number = adverts::next(turns.issued);
        #[allow(clippy::cast_possible_truncation)] // (bounded by MOST)
        let len = here.min(MOST) as u32;
        // SAFETY: the caller's promise.
        let payload = unsafe { std::slice::from_raw_parts(at, with) };
        let message = Message::SrcAvail {
            advert: message::Advert {
                len,
                stag: adverts::source_stag(number),
                address: 0,
            },
            payload,
        };
        let Some(head) = message.head(&header) else {
            return Ok(None);
        };
        #[allow(clippy::cast_possible_truncation)] // (less than `len`)
        let offset = with as u32;
        self.numbers.turns = Turns {
            advert: Some(Advert {
                number,
                next: at.addr() + with,
                offset,
                left: len - offset,
            }),
            issued: number,
            withdrawn: false,
            ..turns
        };
        self.advertising.since = clock::ticks();
        common.adverts.open(number, len); // before the peer can ask
        let head = self.ddp_head(false, head.as_ref());
        self.frame(&head, &mut Parts::one(payload), with);
        self.tell(common);
        self.messages += 1;
        walk.skip(with);
        self.flush(common, fd, 0)?; // (what the kernel does not take waits here, and goes next)
        self.hurry(fd);
        common.adverts.note_awaited(with == 0);
        Ok(Some(if with == 0 {
            Sent::NoCredit
        } else {
            Sent::Bytes(with)
        }))
    }

    /// Takes the buffer back. False if that cannot be said now.
    pub(super) fn withdraw(&mut self, common: &Common, fd: i32) -> Result<bool> {
        if self.numbers.turns.advert.is_none() {
            return Ok(true);
        }
        if self.mode == Mode::Rdma
            && !self.say_and(common, fd, &Message::Withdraw, |out| {
                out.numbers.turns.advert = None;
                out.numbers.turns.withdrawn = true;
            })?
        {
            return Ok(false);
        }
        self.end_advert(common);
        self.advertising.not_before = clock::ticks() + clock::us(PAUSE_US);
        Ok(true)
    }

    /// Nothing of a buffer is read any more.
    pub(super) fn end_advert(&mut self, common: &Common) {
        self.numbers.turns.advert = None;
        common.adverts.close();
        // (what has been asked of it and not answered is void)
        self.numbers.turns.turn = common.adverts.last_turn();
        common.adverts.note_taken(self.numbers.turns.turn);
        common.adverts.note_awaited(false);
    }

    /// The Read that is to be answered next, if it is one that can be: the next bytes of the buffer, in one FPDU. Those of
    /// earlier buffers are passed over.
    fn next_asked(&mut self, common: &Common) -> Option<Asked> {
        let advert = self.numbers.turns.advert?;
        loop {
            let asked = common.adverts.asked(self.numbers.turns.turn)?;
            if asked.source != adverts::source_stag(advert.number) {
                self.numbers.turns.turn = self.numbers.turns.turn.wrapping_add(1);
                continue;
            }
            let fits = asked.offset == advert.offset
                && asked.len <= advert.left
                && asked.len as usize <= LARGEST_ULPDU - ddp::TAGGED;
            return fits.then_some(asked);
        }
    }

    /// Answers what was asked so far.
    unsafe fn answer(&mut self, common: &Common, fd: i32, walk: &mut Walk) -> Result<Sent> {
        let Some(advert) = self.numbers.turns.advert else {
            return Ok(Sent::NoCredit);
        };
        let mut part = walk.part(advert.left as usize);
        let sent = if self.markers || self.crc {
            // SAFETY: passed on to the caller.
            unsafe { self.send_small(common, fd, &mut part, 0, false, true) }
        } else {
            // SAFETY: as above.
            unsafe { self.send_large(common, fd, &mut part, 0, true) }
        };
        walk.skip(part.done());
        common.adverts.note_taken(self.numbers.turns.turn);
        if part.done() > 0 {
            self.advertising.since = clock::ticks();
            self.advertising.read += part.done() as u64;
        }
        if self.numbers.turns.advert.is_none() {
            self.end_advert(common);
            self.hurry(fd);
        }
        sent
    }

    /// What is little and somebody waits for it is not kept back for an acknowledgement.
    pub fn hurry(&self, fd: i32) {
        if self.link.is_kernel() {
            net::push(fd);
        }
    }

    /// What stands in front of the next answer, and how many bytes it has: nothing if none is to be given.
    pub(super) fn answer_head(&mut self, common: &Common) -> Option<(Head, usize)> {
        let asked = self.next_asked(common)?;
        let header = ddp::Header::Tagged(Tagged {
            last: true,
            upper: Opcode::ReadResponse.control(),
            stag: Stag(asked.sink),
            offset: asked.sink_offset,
        });
        let mut head = Head::new();
        header.write(|bytes| head.put(bytes));
        let turns = &mut self.numbers.turns;
        turns.turn = turns.turn.wrapping_add(1);
        if let Some(advert) = &mut turns.advert {
            advert.offset += asked.len;
            advert.left -= asked.len;
            advert.next += asked.len as usize;
            if advert.left == 0 {
                turns.advert = None;
            }
        }
        Some((head, asked.len as usize))
    }

    /// As a sink: asks for what the receiving half has found to be read.
    pub(super) fn ask_reads(&mut self, common: &Common, fd: i32) -> Result<()> {
        let Some(reading) = common.adverts.reading() else {
            return Ok(());
        };
        if self.mode != Mode::Rdma || self.ended || self.begins_ring {
            return Ok(()); // (the peer will not wait for long)
        }
        if self.numbers.turns.sink != reading.sink {
            self.numbers.turns.sink = reading.sink;
            self.numbers.turns.pieces = 0;
        }
        if self.numbers.turns.pieces >= reading.allowed {
            return Ok(());
        }
        while self.numbers.turns.pieces < reading.allowed {
            if super::PENDING - self.end < 256 {
                common.due.store(true, Ordering::Release); // once there is room
                break;
            }
            let request = piece(&reading, self.numbers.turns.pieces);
            self.numbers.turns.pieces += 1;
            self.numbers.turns.requests = self.numbers.turns.requests.wrapping_add(1);
            let header = ddp::Header::Untagged(ddp::Untagged {
                last: true,
                upper: Opcode::ReadRequest.control(),
                upper_word: 0,
                queue: queue::READ,
                message: self.numbers.turns.requests,
                offset: 0,
            });
            let mut head = Vec::with_capacity(ddp::UNTAGGED + READ_REQUEST);
            header.write(|bytes| head.extend_from_slice(bytes));
            head.extend_from_slice(&request.octets());
            self.frame(&head, &mut Parts::one(&[]), 0);
        }
        self.flush(common, fd, 0)?;
        self.hurry(fd);
        Ok(())
    }
}

/// The Read of one piece.
pub(in crate::wire) fn piece(reading: &Reading, index: u32) -> ReadRequest {
    let at = u64::from(index) * u64::from(PIECE);
    let left = u64::from(reading.len).saturating_sub(at);
    ReadRequest {
        sink: Stag(reading.sink),
        sink_offset: at,
        #[allow(clippy::cast_possible_truncation)] // (at most a piece)
        len: left.min(u64::from(PIECE)) as u32,
        source: Stag(reading.source),
        source_offset: reading.address.wrapping_add(at),
    }
}

const _: () = assert!(PIECE as usize + ddp::TAGGED <= LARGEST_ULPDU);
