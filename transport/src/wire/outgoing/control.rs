//! What SDP and RDMAP say of their own beside data: updates of credits, answers, the end of the direction or of RDMA mode,
//! the Terminate.

use super::{HEAD, Mode, Out, PENDING};
use crate::iwarp::ddp::Segment;
use crate::iwarp::mpa::Parts;
use crate::sdp_wire::message::Message;
use crate::sys::Result;
use crate::wire::{Common, Due, RECEIVE_SIZE, common};
use std::sync::atomic::Ordering;

impl Out {
    /// Says something of SDP's own. False if it cannot be said now: there is no room here, or no credit.
    ///
    /// # Errors
    /// As send(2).
    pub fn say(&mut self, common: &Common, fd: i32, message: &Message<'_>) -> Result<bool> {
        self.numbers.seq.hear(&common.heard());
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
        let Some(header) = self.numbers.seq.send(false, false) else {
            return Ok(false);
        };
        if let Some(head) = message.head(&header) {
            let head = self.ddp_head(message.is_solicited(false), head.as_ref());
            self.frame(&head, &mut Parts::one(&[]), 0);
        }
        common.tell_told(&self.numbers.seq.told());
        self.flush(common, fd, 0)?;
        Ok(true)
    }

    /// Says what is due: updates of credits, answers, the end of this direction.
    ///
    /// # Errors
    /// As send(2).
    pub fn serve(&mut self, common: &Common, fd: i32) -> Result<()> {
        common.due.store(false, Ordering::Release);
        // (one packet: the kernel would keep the second until the first is acknowledged, which may take it 40 ms)
        let more = if self.early_start < self.early_end {
            libc::MSG_MORE
        } else {
            0
        };
        if self.mode == Mode::Undecided
            || !self.flush(common, fd, more)?
            || self.send_early(common, fd)?.is_some()
        {
            common.due.store(true, Ordering::Release);
            return Ok(());
        }
        if self.mode == Mode::Plain {
            return Ok(());
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
        for (what, message) in answers {
            if common.asked() & what != 0 && self.say(common, fd, &message)? {
                common.answered(what);
            }
        }
        if self.finish_due && !self.finished && self.say(common, fd, &Message::DisConn)? {
            self.finished = true;
        }
        self.numbers.seq.hear(&common.heard());
        let updates = self.numbers.seq.peer_credits() <= u32::from(common.half());
        if self.numbers.seq.has_more_to_tell() && updates {
            let update = Message::Data {
                payload: &[],
                urgent: false,
            };
            self.say(common, fd, &update)?;
        }
        let ring = common.ring.is_due(Due::SayBegin) || common.ring.is_due(Due::SayOffer);
        let ring = ring || common.ring.is_due(Due::SayAnswer);
        if ring || common.asked() != 0 || (self.finish_due && !self.finished) {
            common.due.store(true, Ordering::Release); // once the peer allows it
        }
        Ok(())
    }

    /// Says what is due of a ring.
    fn serve_ring(&mut self, common: &Common, fd: i32) -> Result<()> {
        let ring = &common.ring;
        let terms = ring.own();
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
        self.serve(common, fd)
    }

    /// Ends RDMA mode in this direction: what is sent from now on are plain bytes. False if that cannot be said now.
    ///
    /// # Errors
    /// As send(2).
    pub fn go_plain(&mut self, common: &Common, fd: i32) -> Result<bool> {
        if let Some(ring) = common.ring.get()
            && !self.link.is_kernel()
        {
            ring.end(); // (and whoever has both locks says how much has landed)
        }
        if self.mode == Mode::Rdma
            && self.send_early(common, fd)?.is_none()
            && self.flush(common, fd, 0)?
            && self.is_by_kernel()
            && self.say(common, fd, &Message::Plain)?
        {
            self.mode = Mode::Plain;
        }
        self.flush(common, fd, 0)?;
        Ok(self.is_plain())
    }

    /// The last thing that is said: which rule the peer has broken.
    pub fn terminate(&mut self, common: &Common, fd: i32, segment: &Segment) {
        if !self.ended && !self.begins_ring && PENDING - self.end > 256 {
            self.frame(segment.head.bytes(), &mut Parts::one(&[]), 0);
            let _ = self.flush(common, fd, 0);
        }
        self.ended = true;
    }
}
