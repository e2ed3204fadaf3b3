//! A direction that is packetized (`crate::wire::window`): how much may go, and what waits here until there is room.
//!
//! Out of room, or where the kernel takes no more, the program's bytes are copied to this side's own buffer and `send` returns.
//! They go, before all later ones, by the program's next call of the library, or after a while by whoever looks after it
//! (`preload::sockets::wired::mover`). Before this side may be there no more (it shuts, leaves RDMA mode, ends) they
//! are *released*, and so they are where nothing has moved for long: the peer is told that the scheme ends, and the kernel's buffers are the limit.
//!
//! Called by the modules beside it and, to park, by `preload`; under the sending lock. Rule: while bytes are parked none are taken
//! among the early ones; those that are there come behind what is parked, from among them.

use super::window::run;
use super::{Common, From, Mode, Out, Sent};
use crate::clock;
use crate::sdp::Walk;
use crate::sdp_wire::header::Header;
use crate::sdp_wire::message::Message;
use crate::sys::Result;
use crate::sys::copy::copy;
use flowctl::Scheme;
use flowctl::carrier::Carrier;
use std::sync::atomic::Ordering;

impl Out {
    /// The other half hears of what has gone.
    pub(super) fn tell(&self, common: &Common) {
        common.tell_told(&self.numbers.seq.told());
        if let Some(window) = &self.numbers.window {
            window.publish(&common.words);
        }
    }

    /// The scheme holds for what this side sends: bytes of the receive buffer, how often the peer was told of what this side has taken.
    #[must_use]
    pub fn is_packetized(&self) -> bool {
        self.numbers.window.is_some()
    }

    /// Bytes of the peer's receive buffer of which this side disposes, and how often it has told the peer what it has taken itself.
    #[must_use]
    pub fn window(&self) -> (u64, u64) {
        let window = self.numbers.window.as_ref();
        (window.map_or(0, Carrier::reserved), self.answers)
    }

    pub(super) fn starved_of_room(&self) -> u64 {
        let window = self.numbers.window.as_ref();
        window.map_or(0, |window| window.counts().starved)
    }

    /// The scheme by which this side sends.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        match self.numbers.window {
            Some(_) => Scheme::Packetized,
            None if self.slots => Scheme::Credit,
            None => Scheme::Nic,
        }
    }

    /// Whether the peer has a receive buffer for data.
    pub(super) fn has_slot(&mut self, common: &Common) -> bool {
        self.numbers.seq.hear(&common.heard());
        if !self.numbers.seq.may_send(true) && common.words.is_lifted() {
            self.numbers.seq.lift();
        }
        self.numbers.seq.may_send(true)
    }

    /// Whether it lacks one for what is to be sent; since when is noted where that may end by [`Self::release`].
    pub(super) fn lacks_slot(&mut self, common: &Common) -> bool {
        let lacks = !self.has_slot(common);
        if self.releases {
            let over = self.ended || self.finish_due || self.mode != Mode::Rdma;
            common.words.note_lacking(lacks && !over);
        }
        lacks
    }

    /// Takes in what the peer has taken. Whether there is room for anything.
    pub(super) fn has_room(&mut self, common: &Common) -> bool {
        let Some(window) = &mut self.numbers.window else {
            return true;
        };
        if window.heard(&common.words).is_err() {
            self.ended = true; // (the receiving half has found out before)
        }
        if common.words.is_lifted() {
            window.lift();
        }
        window.free() > 0
    }

    /// Out of room, the peer is asked for some, once until it answers. Not where several processes hold the stream: the last of them could
    /// end without waiting for the answer. Such a direction goes on without the scheme.
    ///
    /// # Errors
    /// As send(2).
    pub fn seek_room(&mut self, common: &Common, fd: i32) -> Result<()> {
        if self.releases {
            return self.seek_slots(common, fd);
        }
        self.asks = false;
        if self.mode != Mode::Rdma || self.has_room(common) || common.words.is_asked() {
            return Ok(());
        }
        if self.noted.is_on() {
            return self.end_scheme(common, fd);
        }
        common.words.ask();
        if self.say(common, fd, &Message::Starved)? {
            self.shows = true;
            self.hurry(fd);
        } else {
            common.words.lift_ask();
            self.asks = true;
            common.due.store(true, Ordering::Release); // once it can be said
        }
        Ok(())
    }

    /// The peer is asked for receive buffers when half of those that it keeps are taken: it answers when it has read so far, and
    /// not unasked, for the reasons that hold for a window.
    ///
    /// # Errors
    /// As send(2).
    pub(super) fn seek_slots(&mut self, common: &Common, fd: i32) -> Result<()> {
        if !self.releases || self.mode != Mode::Rdma || self.ended || self.finished {
            return Ok(());
        }
        self.has_slot(common);
        if self.numbers.seq.credits() > self.few_left || common.are_slots_asked() {
            return Ok(());
        }
        if self.noted.is_on() {
            return self.end_slots(common, fd);
        }
        let said = self.say_and(common, fd, &Message::Starved, |out| {
            common.words.ask_for_slots(out.numbers.seq.last_sent());
        })?;
        self.hurry_or_owe(common, fd, said);
        Ok(())
    }

    /// Bytes that may go, as far as the window matters.
    pub(super) fn room(&self) -> usize {
        let window = self.numbers.window.as_ref();
        window.map_or(usize::MAX, Carrier::free)
    }

    /// The header of a message with payload, which takes its room. Nothing without credit or room.
    pub(super) fn send_counted(&mut self, len: usize) -> Option<Header> {
        if let Some(window) = &mut self.numbers.window {
            if len == 0 || len > window.free() || !self.numbers.seq.may_send(true) {
                return None;
            }
            if self.from == From::Own {
                window.carried(len);
            } else {
                window.gone(len);
            }
        }
        let header = self.numbers.seq.send(true, false)?;
        self.numbers.writes.payload_sent();
        Some(header)
    }

    /// Bytes that are parked.
    #[must_use]
    pub fn parked(&self) -> usize {
        let window = self.numbers.window.as_ref();
        window.map_or(0, Carrier::waiting)
    }

    /// Whether a program that waits for room is told that there is: by the own buffer, not by the kernel's. Nothing where bytes are
    /// not parked.
    #[must_use]
    pub fn is_roomy_to_park(&self, common: &Common) -> Option<bool> {
        let window = self.numbers.window.as_ref()?;
        (self.may_park(common) && self.early_start == self.early_end).then(|| window.is_roomy())
    }

    /// The peer is told that nothing is parked here any more, if it was told that something may be. Beside what goes to it, or at the end: to
    /// a peer that closes nothing is said unasked.
    ///
    /// # Errors
    /// As send(2).
    pub(super) fn show_none(&mut self, common: &Common, fd: i32, more: i32) -> Result<()> {
        if common.words.is_asked() {
            return Ok(()); // (it would have to be said again)
        }
        self.clear_and(common, fd, more)
    }

    /// The same before this side may be there no more, or before others hold the stream too. (Before anything is parked again the peer is
    /// told so.)
    ///
    /// # Errors
    /// As send(2).
    pub fn clear(&mut self, common: &Common, fd: i32) -> Result<()> {
        self.clear_and(common, fd, 0)
    }

    fn clear_and(&mut self, common: &Common, fd: i32, more: i32) -> Result<()> {
        if self.shows && self.parked() == 0 && self.early_start == self.early_end {
            self.shows = !self.say_with(common, fd, &Message::Cleared, more, |_| {})?;
        }
        Ok(())
    }

    /// Whether the peer's library knows by all means that something may be parked here: it has been said, and has gone.
    fn is_shown(&self) -> bool {
        self.shows && (self.parked() > 0 || self.start == self.end)
    }

    /// Whether what cannot go is parked: not where several processes hold the stream, of which the one whose call it is may end, and
    /// not behind a buffer that the peer is to read.
    fn may_park(&self, common: &Common) -> bool {
        self.mode == Mode::Rdma
            && self.is_shown()
            && !self.is_too_early(common)
            && !self.ended
            && !self.finish_due
            && !self.noted.is_on()
            && self.numbers.turns.advert.is_none()
            && !common.adverts.is_awaited()
    }

    /// Takes the program's bytes that cannot go now, behind all that has not gone. How many.
    ///
    /// # Safety
    /// The walk's buffers are readable.
    pub unsafe fn park(&mut self, common: &Common, walk: &mut Walk) -> usize {
        if self.numbers.window.is_none() || !self.may_park(common) || !self.park_early(common) {
            return 0;
        }
        // SAFETY: passed on to the caller.
        unsafe { self.put_own(common, walk) }
    }

    /// Bytes that were taken early or to go together are parked, if there are any that cannot go. False if there is no room for all.
    fn park_early(&mut self, common: &Common) -> bool {
        let len = self.early_end - self.early_start;
        if len > 0 {
            let at = self.early.as_mut_ptr().wrapping_add(self.early_start);
            // SAFETY: our own bytes, in another place than where they go.
            self.early_start += unsafe { self.put_own(common, &mut Walk::one(at, len)) };
            if self.early_start < self.early_end {
                self.note();
                return false;
            }
            self.has_gone(common);
            self.note();
        }
        true
    }

    /// Copies to the own buffer. How much.
    ///
    /// # Safety
    /// The walk's buffers are readable.
    unsafe fn put_own(&mut self, common: &Common, walk: &mut Walk) -> usize {
        let before = walk.done();
        self.note(); // (before what has gone is written over)
        while let Some(window) = &mut self.numbers.window {
            let (from, here) = walk.chunk();
            let (at, n) = run(window.park(here));
            let place = self.own.get_mut(at..at + n).unwrap_or_default();
            if place.is_empty() {
                break;
            }
            // SAFETY: the caller's promise, and a slice of ours, of that length at most.
            unsafe { copy(from, place.as_mut_ptr(), place.len()) };
            window.put(place.len());
            walk.advance(place.len());
        }
        let parked = walk.done() - before;
        if parked > 0 && common.words.parked_since().is_none() {
            common.words.note_parked(clock::ticks());
        }
        parked
    }

    /// Sends what is parked, as far as it can go. Says what has to be waited for if not all has gone.
    ///
    /// # Errors
    /// As send(2): then it is lost, as what a kernel has is with a connection that fails.
    pub(super) fn send_parked(&mut self, common: &Common, fd: i32) -> Result<Option<Sent>> {
        let some = self.parked() > 0;
        while self.parked() > 0 {
            if !self.has_credit(common) {
                self.seek_room(common, fd)?;
                if !self.has_credit(common) {
                    return Ok(Some(Sent::NoCredit));
                }
            }
            let Some(window) = &self.numbers.window else {
                break;
            };
            let (at, len) = run(window.parked());
            let mut walk = Walk::one(self.own.as_mut_ptr().wrapping_add(at), len);
            // (what says that nothing is left comes with the last of it)
            let is_last = self.shows
                && len == self.parked()
                && len <= self.room()
                && !common.words.is_asked();
            let more = if is_last { libc::MSG_MORE } else { 0 };
            self.from = From::Own;
            // SAFETY: our own bytes, which this does not write to.
            let sent = unsafe { self.send_now(common, fd, &mut walk, more) };
            self.from = From::Program;
            match sent {
                Ok(Sent::Bytes(_)) => common.words.note_parked(clock::ticks()), // (it moves)
                Ok(wait) => return Ok(Some(wait)),
                Err(e) => {
                    self.has_gone(common);
                    self.drop_parked(common);
                    return Err(e);
                }
            }
        }
        if common.words.parked_since().is_some() {
            common.words.note_parked(0);
        }
        if some && self.streak.stalled && self.advertising.waits {
            // (a program that waits for room hears nothing of an answer that what was parked has used up)
            self.seek_room(common, fd)?;
        }
        if some && self.shows {
            self.show_none(common, fd, 0)?;
        }
        if some {
            self.hurry(fd); // (behind what was said of it the kernel would keep the last of it back)
        }
        Ok(None)
    }

    /// The connection has failed: nothing goes any more.
    pub(super) fn drop_parked(&mut self, common: &Common) {
        if self.parked() > 0 {
            self.starved += self.starved_of_room();
            self.numbers.window = None;
            common.words.note_parked(0);
            self.note();
        }
    }

    /// What is parked is to go whether the peer has room or not, since this side may be there no more when it has.
    ///
    /// # Errors
    /// As send(2).
    pub fn release(&mut self, common: &Common, fd: i32) -> Result<()> {
        if self.mode != Mode::Rdma || self.is_too_early(common) {
            return Ok(());
        }
        if self.releases && !self.has_slot(common) {
            return self.end_slots(common, fd);
        }
        if self.has_room(common) && self.parked() == 0 {
            return Ok(());
        }
        let Some(window) = &self.numbers.window else {
            return Ok(());
        };
        if window.waiting() + self.early_end - self.early_start <= window.free() {
            return Ok(()); // it goes in any case
        }
        self.park_early(common);
        self.end_scheme(common, fd)
    }

    /// The same where the peer keeps few receive buffers.
    fn end_slots(&mut self, common: &Common, fd: i32) -> Result<()> {
        let before = self.numbers.seq;
        self.numbers.seq.lift(); // (what says so needs none either)
        if self.say(common, fd, &Message::Released)? {
            common.words.note_lacking(false);
            self.note();
        } else {
            self.numbers.seq = before;
            common.due.store(true, Ordering::Release); // once it can be said
        }
        Ok(())
    }

    fn end_scheme(&mut self, common: &Common, fd: i32) -> Result<()> {
        let said = self.say_and(common, fd, &Message::Released, |out| {
            out.shows = false;
            if let Some(window) = &mut out.numbers.window {
                window.lift();
            }
        })?;
        if !said {
            common.due.store(true, Ordering::Release); // once it can be said
        }
        Ok(())
    }
}
