//! Small messages that follow each other closely go together, as one Send. A system call costs more than fifty of them.
//!
//! Who sends a message now and then, waits for answers, or sends a few in a row has each of them sent at once: only from
//! the [`STREAK`]th on of messages that come one after the other, with nothing read in between, they are gathered. What is gathered
//! goes when there is enough of it or it is [`AGE_US`] old, whichever comes first, by the sender's next message; before
//! the program sleeps, forks, shuts, closes or ends; and else by whoever looks after it (`preload::sockets::wired::mover`).
//! So nothing waits longer than that age and the time between two looks together, or two milliseconds where another
//! connection of the process waits for its peer. Where nobody would look after it nothing is gathered.
//!
//! Called by `send` of this module's parent, and for the common case, which needs no system call, straight from
//! `preload`; under the sending lock.

use super::{Common, EARLY, From, Mode, Out, SMALL, Sent};
use crate::clock;
use crate::sdp::Walk;
use crate::sys::Result;

/// Messages that go at once before those that follow them are gathered.
pub(in crate::wire) const STREAK: u32 = 32;
/// The longest message that is gathered, in bytes.
pub const GATHERED: usize = 2048;
/// How long (µs) after one call the next still follows it.
const GAP_US: u64 = 10;
/// A sender that makes a longer gap, up to this (µs), was perhaps kept from its core: that costs its streak so many messages,
/// which it can have so many more of than it needs.
const PAUSE_US: u64 = 300;
const COSTS: u32 = 16;
const LONGEST: u32 = STREAK + 4 * COSTS;
/// How long (µs) a sender that goes on holds a message.
pub const AGE_US: u64 = 40;
/// Bytes that go together: as many as are put together in one copy.
const TOGETHER: usize = SMALL;

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gathered {
    /// It is the first of those that wait now: somebody has to look after them.
    First,
    /// It waits with others.
    More,
    /// It is to be sent.
    No,
}

/// How the program's messages follow each other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Streak {
    length: u32,
    /// When the last call ended, in ticks.
    last: u64,
    /// That call found no room: how long the program waited for it says nothing.
    pub(super) stalled: bool,
    /// When the oldest message that waits was taken, in ticks.
    since: u64,
    /// The kernel or the peer's credits did not let everything go: it is not for more that it waits.
    stuck: bool,
}

impl Out {
    /// Takes a small message if it is to go with others and nothing has to go now.
    ///
    /// # Safety
    /// The walk's buffers are readable.
    #[inline]
    pub unsafe fn gather(&mut self, common: &Common, walk: &mut Walk) -> Gathered {
        let now = clock::ticks();
        let streak = &self.streak;
        let held = self.early_end - self.early_start;
        let is_late = now.wrapping_sub(streak.last) >= clock::us(GAP_US)
            || (held > 0 && now.wrapping_sub(streak.since) >= clock::us(AGE_US));
        let is_enough = held + walk.left() >= TOGETHER || walk.left() > GATHERED;
        if is_late
            || is_enough
            || streak.length < STREAK
            || streak.stuck
            || !self.may_gather()
            || !self.has_credit(common)
        {
            return Gathered::No;
        }
        // SAFETY: passed on to the caller.
        unsafe { self.hold(common, walk, now) };
        self.streak.last = now;
        self.streak.length = (self.streak.length + 1).min(LONGEST);
        if held == 0 {
            Gathered::First
        } else {
            Gathered::More
        }
    }

    fn may_gather(&self) -> bool {
        // (by a ring a message costs no system call; and what is held by a process that shares the stream may be lost)
        matches!(self.mode, Mode::Rdma)
            && !self.ended
            && !self.noted.is_on()
            && self.start == self.end
            && self.is_by_kernel()
            && self.parked() == 0
    }

    /// Takes bytes to go with others. How many.
    ///
    /// # Safety
    /// As [`Self::gather`].
    unsafe fn hold(&mut self, common: &Common, walk: &mut Walk, now: u64) -> usize {
        if self.early_start == self.early_end {
            (self.early_start, self.early_end) = (0, 0);
            self.streak.since = now;
            common.note_gathered(now);
        }
        // SAFETY: passed on to the caller.
        unsafe { self.take_early(walk) }
    }

    /// Whether the message that is about to be sent follows others so that it goes together with them.
    pub(super) fn follows(&mut self, common: &Common, walk: &Walk, more: i32) -> bool {
        let has_read = common.take_read();
        let streak = &mut self.streak;
        let stalled = std::mem::take(&mut streak.stalled);
        let gap = clock::ticks().wrapping_sub(streak.last);
        let small = walk.left() <= GATHERED && walk.done() == 0 && more == 0;
        streak.length = if !small || has_read {
            0
        } else if stalled || gap < clock::us(GAP_US) {
            (streak.length + 1).min(LONGEST)
        } else if gap < clock::us(PAUSE_US) {
            streak.length.saturating_sub(COSTS)
        } else {
            0
        };
        let streams = streak.length >= STREAK;
        common.note_streams(streams);
        streams && self.may_gather()
    }

    /// A call has ended so.
    pub(super) fn note_sent(&mut self, sent: Result<Sent>) {
        self.streak.last = clock::ticks();
        self.streak.stalled = matches!(sent, Ok(Sent::Full | Sent::NoCredit));
    }

    /// Takes a message that follows others, and sends them all if it is time.
    ///
    /// # Errors
    /// As send(2): then it was not taken.
    ///
    /// # Safety
    /// The walk's buffers are readable.
    pub(super) unsafe fn send_gathered(
        &mut self,
        common: &Common,
        fd: i32,
        walk: &mut Walk,
    ) -> Result<Sent> {
        if self.streak.stuck
            && let Some(wait) = self.send_early(common, fd)?
        {
            return Ok(wait);
        }
        let now = clock::ticks();
        // SAFETY: passed on to the caller.
        let taken = unsafe { self.hold(common, walk, now) };
        let is_old = now.wrapping_sub(self.streak.since) >= clock::us(AGE_US);
        if is_old || self.early_end - self.early_start >= TOGETHER {
            match self.send_early(common, fd) {
                Ok(Some(wait)) if taken == 0 => return Ok(wait),
                Ok(_) => {}
                Err(e) => {
                    walk.rewind();
                    return Err(e);
                }
            }
        }
        Ok(Sent::Bytes(taken))
    }

    /// Sends what was taken before, gathered, early or parked. Says what has to be waited for if not all has gone.
    ///
    /// # Errors
    /// As send(2): then it is lost, as what a kernel has is with a connection that fails.
    pub(super) fn send_early(&mut self, common: &Common, fd: i32) -> Result<Option<Sent>> {
        if let Some(wait) = self.send_parked(common, fd)? {
            return Ok(Some(wait));
        }
        let mut parts = u32::from(self.streak.stuck);
        while self.early_start < self.early_end {
            parts += 1;
            let at = self.early.as_mut_ptr().wrapping_add(self.early_start);
            let len = (self.early_end - self.early_start).min(SMALL);
            let mut walk = Walk::one(at, len);
            let before = self.early_start;
            self.from = From::Early;
            // SAFETY: our own bytes, which this does not write to.
            let sent = unsafe { self.send_now(common, fd, &mut walk, 0) };
            self.from = From::Program;
            match sent {
                Ok(Sent::Bytes(n)) => self.early_start = before + n,
                Ok(wait) => {
                    self.streak.stuck = true;
                    return Ok(Some(wait));
                }
                Err(e) => {
                    self.has_gone(common);
                    return Err(e);
                }
            }
        }
        self.has_gone(common);
        if parts > 1 {
            self.hurry(fd); // (its end would wait for an acknowledgement of its beginning)
        }
        Ok(None)
    }

    pub(super) fn has_gone(&mut self, common: &Common) {
        (self.early_start, self.early_end) = (0, 0);
        self.streak.stuck = false;
        common.note_gathered(0);
    }

    /// Sends everything that waits, as far as it can go now.
    ///
    /// # Errors
    /// As send(2).
    pub fn flush_all(&mut self, common: &Common, fd: i32) -> Result<()> {
        if !matches!(self.mode, Mode::Undecided | Mode::Waiting) && self.flush(common, fd, 0)? {
            self.send_early(common, fd)?;
        }
        Ok(())
    }

    /// Whether octets wait for the kernel or for the peer, and not only for more of their kind.
    #[must_use]
    pub fn is_stuck(&self, common: &Common) -> bool {
        let early = self.early_start < self.early_end;
        let gathers = common.gathered_since().is_some() && !self.streak.stuck;
        self.start < self.end || (early && !gathers)
    }
}

/// A whole batch and the message that completes it have room.
const _: () = assert!(TOGETHER + GATHERED <= EARLY);
