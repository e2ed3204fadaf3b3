//! What SDP and RDMAP say of their own beside data: updates of credits, answers, the end of the direction or of RDMA mode,
//! the Terminate.

use super::{HEAD, Mode, Out, PENDING, Sent};
use crate::iwarp::ddp::Segment;
use crate::iwarp::mpa::Parts;
use crate::ring::TERMS;
use crate::sdp_wire::message::Message;
use crate::sys::{Result, net};
use crate::wire::{Common, Due, RECEIVE_SIZE, Return, common};
use std::sync::atomic::Ordering;

impl Out {
    /// Says something of SDP's own. False if it cannot be said now: there is no room here, or no credit.
    ///
    /// # Errors
    /// As send(2).
    pub fn say(&mut self, common: &Common, fd: i32, message: &Message<'_>) -> Result<bool> {
        self.say_and(common, fd, message, |_| {})
    }

    /// [`Self::say`], with what has changed once it is said: that is noted together.
    pub(super) fn say_and(
        &mut self,
        common: &Common,
        fd: i32,
        message: &Message<'_>,
        change: impl FnOnce(&mut Self),
    ) -> Result<bool> {
        self.say_with(common, fd, message, 0, change)
    }

    /// [`Self::say_and`]; with MSG_MORE where more follows at once.
    pub(super) fn say_with(
        &mut self,
        common: &Common,
        fd: i32,
        message: &Message<'_>,
        more: i32,
        change: impl FnOnce(&mut Self),
    ) -> Result<bool> {
        self.has_slot(common);
        let room = PENDING - self.end >= 2 * (HEAD + 64);
        // (behind RingBegin the kernel connection carries no octets of the stream)
        let held = self.begins_ring && !matches!(message, Message::RingBegin);
        if self.mode != Mode::Rdma
            || self.ended
            || held
            || !room
            || !common.heard.load(Ordering::Acquire)
        {
            return Ok(false);
        }
        // (words of slots need none: they are done with before anything else is looked at)
        let passing = match message {
            Message::Plain => common.is_returning(Return::Awaited),
            Message::Starved => self.releases,
            Message::Data { payload: [], .. } => self.keeps,
            _ => false,
        };
        let header = if passing {
            Some(self.numbers.seq.send_passing(false))
        } else {
            self.numbers.seq.send(false, false)
        };
        let Some(header) = header else {
            return Ok(false);
        };
        if let Some(head) = message.head(&header) {
            let head = self.ddp_head(message.is_solicited(false), head.as_ref());
            self.frame(&head, &mut Parts::one(&[]), 0);
        }
        change(self);
        self.spoke = true;
        self.tell(common);
        self.flush(common, fd, more)?;
        Ok(true)
    }

    /// Says what is due: updates of credits, answers, the end of this direction.
    ///
    /// # Errors
    /// As send(2).
    pub fn serve(&mut self, common: &Common, fd: i32) -> Result<()> {
        common.serves.store(true, Ordering::Release);
        common.due.store(false, Ordering::Release);
        let served = self.serve_all(common, fd);
        common.serves.store(false, Ordering::Release);
        served
    }

    fn serve_all(&mut self, common: &Common, fd: i32) -> Result<()> {
        // (one packet: the kernel would keep the second until the first is acknowledged, which may take it 40 ms)
        let more = if self.early_start < self.early_end {
            libc::MSG_MORE
        } else {
            0
        };
        if matches!(self.mode, Mode::Undecided | Mode::Waiting) || !self.flush(common, fd, more)? {
            common.due.store(true, Ordering::Release);
            return Ok(());
        }
        let waits = self.send_early(common, fd)?;
        if self.mode == Mode::Plain {
            if waits.is_some() {
                common.due.store(true, Ordering::Release);
            }
            return Ok(());
        }
        if waits == Some(Sent::Full) {
            common.due.store(true, Ordering::Release);
            return Ok(());
        }
        self.say_taken(common, fd)?;
        self.seek_slots(common, fd)?;
        if self.asks {
            self.seek_room(common, fd)?;
        }
        if waits.is_some() {
            // (where both sides wait for each other's word, each has to be said)
            self.say_update(common, fd)?;
            common.due.store(true, Ordering::Release);
            return Ok(());
        }
        if !self.complete_writes(common, fd, true)? {
            common.due.store(true, Ordering::Release); // once the peer allows it
        }
        let answers = [
            (common::SUSP_COMM_ACK, Message::SuspCommAck),
            (common::SEND_SM, Message::SendSm),
            (common::SINK_CANCEL_ACK, Message::SinkCancelAck),
            (
                common::CH_RCV_BUF_ACK,
                Message::ChRcvBufAck { size: RECEIVE_SIZE },
            ),
        ];
        self.serve_ring(common, fd)?;
        self.ask_reads(common, fd)?;
        for (what, message) in answers {
            if common.asked() & what != 0 && self.say(common, fd, &message)? {
                common.answered(what);
            }
        }
        for what in [common::RDMA_RD_COMPL, common::SINK_AVAIL] {
            self.say_of_adverts(common, fd, what)?;
        }
        if self.finish_due && !self.finished {
            // (one packet with the kernel's own end, and one wake-up of the peer's)
            let more = if self.closes { libc::MSG_MORE } else { 0 };
            self.say_with(common, fd, &Message::DisConn, more, |out| {
                out.finished = true;
                out.end_advert(common);
                out.end_writes();
            })?;
        }
        self.say_update(common, fd)?;
        let ring = common.ring.is_due(Due::SayBegin) || common.ring.is_due(Due::SayOffer);
        let ring = ring || common.ring.is_due(Due::SayAnswer);
        if ring || common.asked() != 0 || (self.finish_due && !self.finished) {
            common.due.store(true, Ordering::Release); // once the peer allows it
        }
        Ok(())
    }

    /// Tells the peer of free receive buffers, if it is time to.
    fn say_update(&mut self, common: &Common, fd: i32) -> Result<()> {
        self.numbers.seq.hear(&common.heard());
        let wanted = if self.keeps {
            let wanted = common.words.slots_wanted();
            let told = self.numbers.seq.told().told.0;
            wanted.is_some_and(|by| !told.has_reached(by))
        } else {
            self.numbers.seq.has_more_to_tell()
                && self.numbers.seq.peer_credits() <= u32::from(common.half())
        };
        if wanted && !is_ending(common, fd) {
            let update = Message::Data {
                payload: &[],
                urgent: false,
            };
            let said = self.say(common, fd, &update)?;
            if said && self.keeps {
                self.hurry(fd);
            } else if !said && self.keeps {
                common.due.store(true, Ordering::Release); // once it can be said
            }
        }
        Ok(())
    }

    /// What had to be said at once has been, or is to be once it can.
    pub(super) fn hurry_or_owe(&mut self, common: &Common, fd: i32, said: bool) {
        if said {
            self.hurry(fd);
        } else {
            common.due.store(true, Ordering::Release);
        }
    }

    /// Answers the peer what was taken of a packetized direction.
    fn say_taken(&mut self, common: &Common, fd: i32) -> Result<()> {
        let (answers, bytes) = common.words.answers();
        if answers > self.answers && !common.words.is_silent() && !is_ending(common, fd) {
            let said = self.say_and(common, fd, &Message::Taken { bytes }, |out| {
                out.answers = answers;
            })?;
            self.hurry_or_owe(common, fd, said);
        }
        Ok(())
    }

    /// Says what is due of a ring.
    fn serve_ring(&mut self, common: &Common, fd: i32) -> Result<()> {
        let ring = &common.ring;
        let terms = ring.own();
        if (ring.is_due(Due::SayOffer) || ring.is_due(Due::SayAnswer)) && is_ending(common, fd) {
            ring.done(Due::SayAnswer);
            // (that none will begin is waited for by who has only ended its direction)
            if terms != [0; TERMS] || net::ready_now(fd, libc::POLLRDHUP) != 0 {
                ring.done(Due::SayOffer);
            }
        }
        let words = [
            (Due::SayOffer, Message::RingOffer { terms }),
            (Due::SayAnswer, Message::RingAnswer { terms }),
        ];
        for (what, message) in words {
            if ring.is_due(what) && self.say(common, fd, &message)? {
                ring.done(what);
            }
        }
        if ring.get().is_none() {
            ring.done(Due::SayBegin);
        }
        if ring.is_due(Due::SayBegin)
            && !self.begins_ring
            && let Some(at) = ring.get()
        {
            // Once for each ring; also for one that is over by now, if the peer has begun: it waits for the word.
            // Said at once with the change: whatever is said after it goes by the ring.
            self.begins_ring = at.is_to_begin();
            if !self.begins_ring || self.say(common, fd, &Message::RingBegin)? {
                ring.done(Due::SayBegin);
            } else {
                self.begins_ring = false;
                at.is_still_to_begin();
            }
        }
        Ok(())
    }

    /// Shuts this direction: the peer is told as soon as it can be.
    ///
    /// # Errors
    /// As send(2).
    pub fn finish(&mut self, common: &Common, fd: i32) -> Result<()> {
        self.finish_due = true;
        self.note();
        self.release(common, fd)?;
        self.serve(common, fd)
    }

    /// [`Self::finish`] by who closes the kernel connection next: what is said goes with that. Who does not after all has it
    /// go (`net::uncork`).
    ///
    /// # Errors
    /// As send(2).
    pub fn finish_and_close(&mut self, common: &Common, fd: i32) -> Result<()> {
        self.closes = true;
        let finished = self.finish(common, fd);
        self.closes = false;
        finished
    }

    /// The last thing that is said: which rule the peer has broken.
    pub fn terminate(&mut self, common: &Common, fd: i32, segment: &Segment) {
        if !self.ended && !self.begins_ring && PENDING - self.end > 256 {
            self.frame(segment.head.bytes(), &mut Parts::one(&[]), 0);
            self.ended = true;
            let _ = self.flush(common, fd, 0);
        }
        self.ended = true;
    }
}

/// Whether the peer has ended its direction, as far as either way tells: what it does not wait for is not said to it, since
/// it may be closing and would answer with a reset, by which its kernel drops what it has not sent yet.
pub(super) fn is_ending(common: &Common, fd: i32) -> bool {
    common.is_finished() || net::ready_now(fd, libc::POLLRDHUP) != 0
}
