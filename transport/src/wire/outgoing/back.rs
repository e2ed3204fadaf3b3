//! The end of RDMA mode in this direction, and what goes with it: bytes that were received and that nobody here will read by
//! the library, since the program, or another, goes on with the kernel connection itself. The peer takes them back
//! and sends them once more, plain.
//!
//! Who asks for that says `TakeBack`. The other ends its direction (`PlainLater`) and keeps what its program sends then. So
//! all that the first has not read is here: it goes back (`GivenBack`), and `Plain` behind it lets the other go on. What comes
//! back is passed on as it comes: the kernel has as much room for it as it had before. It takes no credits: whose direction has
//! ended can grant none, and each message is done with before the next one is looked at.

use super::control::is_ending;
use super::{Mode, Out, PENDING};
use crate::iwarp::mpa::Parts;
use crate::ring::Ring;
use crate::sdp_wire::message::Message;
use crate::sys::Result;
use crate::wire::{Common, Due, Return};
use std::sync::atomic::Ordering;

/// Octets around the payload of one message, at most.
const AROUND: usize = 64;

impl Out {
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
        // (where both have asked, neither can wait for the other)
        let waits = common.is_returning(Return::Asked) && !common.is_returning(Return::Asks);
        let end = if waits {
            Message::PlainLater
        } else {
            Message::Plain
        };
        if waits && self.mode == Mode::Rdma {
            common.note_return(Return::Waits); // before the peer can hear of it
        }
        self.release(common, fd)?;
        let to_answer = is_to_answer(common, fd);
        // (the side that has offered begins by itself, or has)
        let answered = to_answer && self.is_by_kernel() && !common.ring.is_due(Due::SayBegin);
        if answered && self.mode == Mode::Rdma {
            common.ring.take_answer_back(); // (the peer's adapter may take seconds)
        }
        if self.mode == Mode::Rdma
            && self.send_early(common, fd)?.is_none()
            && self.flush(common, fd, 0)?
            && self.is_by_kernel()
            && !to_answer
        {
            let next = if waits { Mode::Waiting } else { Mode::Plain };
            common.words.be_silent(); // before the peer can hear of it
            self.say_and(common, fd, &end, |out| {
                out.mode = next;
                out.end_advert(common);
                out.end_writes();
            })?;
        }
        if self.flush(common, fd, 0)? && self.mode == Mode::Plain {
            self.send_early(common, fd)?;
        }
        Ok(self.is_plain())
    }

    /// Asks the peer to end its direction and to wait for what comes back. False if that cannot be said now; it is not
    /// said at all once this direction has ended.
    ///
    /// # Errors
    /// As send(2).
    pub fn ask_to_take_back(&mut self, common: &Common, fd: i32) -> Result<bool> {
        if self.mode != Mode::Rdma {
            return Ok(false);
        }
        common.note_return(Return::Asks);
        let was_silent = common.words.is_silent();
        common.words.be_silent();
        self.release(common, fd)?;
        if self.send_early(common, fd)?.is_none()
            && self.flush(common, fd, 0)?
            && self.is_by_kernel()
            && self.say(common, fd, &Message::TakeBack)?
        {
            return Ok(true);
        }
        common.end_return(Return::Asks);
        if !was_silent {
            common.words.speak();
        }
        Ok(false)
    }

    /// The same where what was asked before stands unanswered ([`Return::Stands`]), and needs no word. False once this direction has ended.
    #[must_use]
    pub fn ask_again(&self, common: &Common) -> bool {
        let may = self.mode == Mode::Rdma;
        if may {
            common.note_return(Return::Asks);
        }
        may
    }

    /// Whether the peer waits for what is given back.
    #[must_use]
    pub fn can_give_back(&self, common: &Common) -> bool {
        common.is_returning(Return::Awaited)
            && self.mode == Mode::Rdma
            && !self.ended
            && common.heard.load(Ordering::Acquire)
    }

    /// Gives the peer back what it has sent, after [`Self::can_give_back`]: as much as fits now. How many bytes.
    ///
    /// # Errors
    /// As send(2).
    pub fn give_back(&mut self, common: &Common, fd: i32, bytes: &[u8]) -> Result<usize> {
        self.numbers.seq.hear(&common.heard());
        let mut given = 0;
        for payload in bytes.chunks(self.most.max(1)) {
            // (together as far as they fit, however short each has to be: what comes back was there in one piece)
            let has_room = |out: &Self| PENDING - out.end >= payload.len() + AROUND;
            if !has_room(self) {
                self.flush(common, fd, 0)?;
                if !has_room(self) {
                    break;
                }
            }
            let message = Message::GivenBack { payload };
            let header = self.numbers.seq.send_passing(false);
            let Some(head) = message.head(&header) else {
                break;
            };
            let head = self.ddp_head(message.is_solicited(false), head.as_ref());
            self.frame(&head, &mut Parts::one(payload), payload.len());
            given += payload.len();
        }
        self.tell(common);
        self.flush(common, fd, 0)?;
        Ok(given)
    }

    /// Sends what has come back, as much as fits now. How many bytes.
    ///
    /// # Errors
    /// As send(2).
    pub(in crate::wire) fn pass_on(
        &mut self,
        common: &Common,
        fd: i32,
        given: &[u8],
    ) -> Result<usize> {
        self.flush(common, fd, 0)?;
        let room = PENDING - self.end;
        let now = given.get(..room.min(given.len())).unwrap_or_default();
        self.put_behind(now);
        self.passed += now.len() as u64; // (noted together)
        self.flush(common, fd, 0)?;
        Ok(now.len())
    }

    /// How many bytes were sent so, in all.
    pub(in crate::wire) const fn passed(&self) -> u64 {
        self.passed
    }

    /// Everything has come back: what waits here, and all later bytes, go plain.
    pub(in crate::wire) fn resume(&mut self) {
        if matches!(self.mode, Mode::Waiting) {
            self.mode = Mode::Plain;
        }
        self.note();
    }
}

/// Whether the peer may begin to send by a ring that this side has answered for: it would wait for a word of this side's, which cannot be
/// said once this direction is plain.
fn is_to_answer(common: &Common, fd: i32) -> bool {
    common.ring.get().is_some_and(Ring::is_expected) && !is_ending(common, fd)
}
