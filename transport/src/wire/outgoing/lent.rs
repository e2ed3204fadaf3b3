//! Buffers that are lent by the ring, as their source: a large message that the peer's adapter reads from where it lies (`ring::loans`).
//!
//! Between SrcAvail and the end of the loan nothing else goes this way, and the call does not return: the loan is one step of it, under
//! its lock. What the peer has not read then goes as Data, behind a Recall that says from where. Where an adapter fails while the
//! peer may be reading, only the peer knows how far it came: those bytes are copied here and count as sent, and the peer leaves
//! out what it has.

use super::{From, Mode, Out, PENDING, Sent};
use crate::clock;
use crate::ring::{self, Lent, Ring};
use crate::sdp::Walk;
use crate::sdp_wire::message::{self, Message};
use crate::sys::Result;
use crate::wire::Common;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long (µs) a reader that does not come is waited for. Where the program wants the call back at once, all such waits of the process
/// together take no more of its time than one of so many parts: a server of a thousand connections has other things to do.
const PATIENCE_US: u64 = 5_000;
const PARTS: u64 = 20;
/// Until when (ticks) no call of that kind lends.
static BUSY_UNTIL: AtomicU64 = AtomicU64::new(0);
/// How long (µs) no other is made after one that the peer did not read, or that there was no room for: twice as long each time, up to
/// this doubled so often.
const PAUSE_US: u64 = 2_000;
const DOUBLED: u32 = 6;

/// Messages that there is credit for: SrcAvail, Recall, and what is copied.
const CREDITS: u32 = 64;

/// Room in the ring for what is said of a loan.
const ROOM: usize = 1024;

const _: () = assert!(ring::PIECE as usize + 32 * 1024 <= PENDING);

impl Out {
    /// Lends what this call sends next, if that is worth it and can be. `None`: it goes as Data, perhaps behind a part of it.
    ///
    /// # Errors
    /// As send(2).
    ///
    /// # Safety
    /// The walk's buffers are readable.
    pub(super) unsafe fn lend(
        &mut self,
        common: &Common,
        fd: i32,
        walk: &mut Walk,
    ) -> Result<Option<Sent>> {
        let (at, here) = walk.chunk();
        let Some(ring) = common.ring.get().filter(|_| here >= self.advertising.least) else {
            return Ok(None);
        };
        if !self.may_lend(common, ring) {
            return Ok(None);
        }
        // SAFETY: the caller's promise, for as long as this takes.
        let Some(lent) = (unsafe { ring.lend(at, here) }) else {
            self.pause_loans();
            return Ok(None);
        };
        let before = walk.done();
        let (address, stag, len) = lent.place();
        let message = Message::SrcAvail {
            advert: message::Advert { len, stag, address },
            payload: &[],
        };
        lent.count();
        if !self.say(common, fd, &message)? {
            lent.uncount(); // (it was to be had a moment ago: nothing was said)
            return Ok(None);
        }
        let since = clock::ticks();
        let (read, uncertain) = self.see_to(lent);
        walk.skip(read);
        self.advertising.read += read as u64;
        self.messages += 1;
        if read == len as usize {
            self.advertising.in_vain = 0;
        } else {
            let now = clock::ticks();
            let until = now.saturating_add(PARTS * now.wrapping_sub(since));
            if !self.advertising.waits {
                BUSY_UNTIL.store(until, Ordering::Relaxed);
            }
            // SAFETY: as above.
            unsafe { self.recall(common, fd, walk, read, uncertain - read) }?;
        }
        Ok(match walk.done() - before {
            0 => None,
            n => Some(Sent::Bytes(n)),
        })
    }

    fn may_lend(&mut self, common: &Common, ring: &Ring) -> bool {
        let now = clock::ticks();
        self.from == From::Program
            && self.mode == Mode::Rdma
            && self.link.is_ring()
            && !self.begins_ring
            && !self.noted.is_on()
            && !self.slots
            && self.numbers.window.is_none()
            && self.start == self.end
            && now >= self.advertising.not_before
            && (self.advertising.waits || now >= BUSY_UNTIL.load(Ordering::Relaxed))
            && !ring.is_over()
            && ring.room() >= ROOM
            && {
                self.numbers.seq.hear(&common.heard());
                self.numbers.seq.credits() >= CREDITS
            }
    }

    fn pause_loans(&mut self) {
        let times = self.advertising.in_vain.min(DOUBLED);
        self.advertising.in_vain = times + 1;
        self.advertising.not_before = clock::ticks() + (clock::us(PAUSE_US) << times);
    }

    /// Sees to a loan that was said, and ends it: how many bytes the peer has read, and up to where it may have.
    fn see_to(&self, mut lent: Lent<'_>) -> (usize, usize) {
        if self.start == self.end {
            lent.serve(PATIENCE_US); // (else the ring is over, and the word goes another way)
        }
        lent.end()
    }

    /// What was not read of a buffer comes as Data, behind `read` bytes of it; `uncertain` more may have been read, and are sent
    /// from here.
    ///
    /// # Errors
    /// As send(2).
    ///
    /// # Safety
    /// The walk's buffers are readable.
    unsafe fn recall(
        &mut self,
        common: &Common,
        fd: i32,
        walk: &mut Walk,
        read: usize,
        uncertain: usize,
    ) -> Result<()> {
        self.pause_loans();
        let bytes = u32::try_from(read).unwrap_or(u32::MAX); // (less than what was lent)
        let said = self.say(common, fd, &Message::Recall { bytes })?;
        let mut part = walk.part(uncertain);
        while said && part.left() > 0 {
            let before = part.left();
            // SAFETY: passed on to the caller.
            unsafe { self.send_small(common, fd, &mut part, 0, true, false) }?;
            if part.left() == before {
                break;
            }
        }
        walk.skip(part.done());
        if !said || part.left() > 0 {
            self.ended = true; // (there was credit and room for all of it: the peer has taken that back, which it may not)
        }
        Ok(())
    }
}
