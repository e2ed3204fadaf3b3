//! Large messages: straight to where the reader waits, as long as it does; through the ring otherwise, a
//! piece at a time, so that a reader that comes meanwhile gets the rest.

use super::{PUBLISH, Put, Tx};
use crate::clock;
use crate::direct::choice::Way;
use crate::direct::{Patience, policy};
use crate::doorbell;
use crate::provider::Provider;
use crate::sdp::{Leg, Walk};
use flowctl::{Sender as _, Violation};

/// Bytes of a large message that go through the ring first, so that a reader which polls comes to read.
const TASTE: usize = 16 * 1024;

/// A buffer that waits for the reader (SrcAvail). At most one a direction, and nothing else is sent
/// meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advert {
    None,
    Open,
    /// It was ended, with so many bytes taken; its sender has not heard of it yet.
    Ended(u32),
}

impl Tx {
    /// Whether a sender's buffer waits for the reader: then nothing else may be sent.
    #[inline]
    #[must_use]
    pub fn is_advertised(&mut self, p: &impl Provider) -> bool {
        self.advert == Advert::Open && !self.ends_by_itself(p)
    }

    #[cold]
    fn ends_by_itself(&mut self, p: &impl Provider) -> bool {
        let over = p.is_taken();
        if over {
            self.end_advert(p);
        }
        over
    }

    /// Advertises the walk's next buffer, if it is large and the reader can take it. Then the caller waits
    /// until [`crate::direct::Direct::is_taken`], and calls [`Self::collect`]. Whether the reader was asleep for
    /// want of it, and is on its way now.
    pub fn advertise(&mut self, p: &impl Provider, fd: i32, walk: &mut Walk) -> Option<bool> {
        self.tell_withheld(p, fd);
        let (from, len) = walk.chunk();
        let can = len >= policy::large()
            && self.advert == Advert::None
            && !self.journal.is_on()
            && !self.flow.is_parked()
            && self.leg == Leg::Fast;
        if !can || p.reaches().is_err() || p.way() == Way::Ring || !p.enter() {
            return None;
        }
        p.foretell(true);
        p.time_put();
        let opened = p
            .advertise(self.flow.accepted(), from, policy::stage(len))
            .then(|| {
                self.advert = Advert::Open;
                let naps = p.peer_sleeps();
                let rings = p.must_ring(doorbell::DATA | doorbell::TAKEN);
                if rings {
                    self.send_bell(p, fd);
                }
                rings || naps
            });
        p.leave();
        opened
    }

    /// Copies a part itself, if the reader is at it.
    pub fn help(&self, p: &impl Provider) {
        if self.advert == Advert::Open && p.enter() {
            // SAFETY: the sender of the open advert is still in its call.
            unsafe { p.help() };
            p.leave();
        }
    }

    /// Ends what is advertised: no byte of it is taken from now on. False if nothing is.
    pub fn end_advert(&mut self, p: &impl Provider) -> bool {
        let open = self.advert == Advert::Open;
        if open {
            let taken = p.conclude();
            self.advert = Advert::Ended(u32::try_from(taken).unwrap_or(0));
        }
        open
    }

    /// The sender is back: walks over what was taken of its buffer. Returns how many bytes.
    pub fn collect(&mut self, p: Option<&impl Provider>, walk: &mut Walk) -> usize {
        if let Some(p) = p {
            self.end_advert(p);
        }
        let Advert::Ended(taken) = std::mem::replace(&mut self.advert, Advert::None) else {
            return 0;
        };
        let before = walk.done();
        walk.advance(taken as usize);
        if let Some(p) = p {
            p.moved_on(walk.done() - before);
        }
        walk.done() - before
    }

    /// The sender will not come back.
    pub fn abandon(&mut self, p: Option<&impl Provider>) {
        if let Some(p) = p {
            self.end_advert(p);
        }
        self.advert = Advert::None;
    }

    /// Holds the walk's next buffers in place, as far as they are large and `put` puts them into the lane, which
    /// the reader has fetched; it is told where they stand, and says how much it took. Small ones between them
    /// go through the ring.
    ///
    /// # Errors
    /// The peer's counter is impossible.
    ///
    /// # Safety
    /// The walk's buffers are readable.
    pub unsafe fn hold(
        &mut self,
        p: &impl Provider,
        fd: i32,
        walk: &mut Walk,
        mut put: impl FnMut(*const u8, usize) -> usize,
    ) -> Result<(), Violation> {
        self.tell_withheld(p, fd);
        let can = !self.is_advertised(p) && !self.journal.is_on() && !self.flow.is_parked();
        while can && self.leg == Leg::Fast && walk.left() > 0 {
            let (from, len) = walk.chunk();
            let n = if len < policy::large() {
                // SAFETY: passed on to the caller.
                unsafe { self.put_chunk(p, fd, walk) }?
            } else if p.has_room() && p.enter() {
                p.time_put();
                let n = put(from, len).min(len);
                if n > 0 {
                    p.hold(self.flow.accepted(), n);
                    walk.advance(n);
                    if p.must_ring(doorbell::DATA | doorbell::TAKEN) {
                        self.send_bell(p, fd);
                    }
                }
                p.leave();
                n
            } else {
                0
            };
            if n < len || self.flow.is_parked() {
                break;
            }
        }
        Ok(())
    }

    /// [`Tx::put`] of the walk's next buffer to a reader that is gone, as far as the ring has room.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn put_late(
        &mut self,
        p: &impl Provider,
        fd: i32,
        walk: &mut Walk,
    ) -> Result<usize, Violation> {
        if self.leg != Leg::Fast {
            return Ok(0);
        }
        // SAFETY: passed on to the caller.
        unsafe { self.put_chunk(p, fd, walk) }
    }

    /// [`Tx::put`] of the walk's next buffer, through the ring. How much of it went.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    unsafe fn put_chunk(
        &mut self,
        p: &impl Provider,
        fd: i32,
        walk: &mut Walk,
    ) -> Result<usize, Violation> {
        let (_, len) = walk.chunk();
        let mut part = walk.part(len);
        // SAFETY: passed on to the caller.
        unsafe { self.put_ring(p, fd, &mut part, false) }?;
        walk.skip(part.done());
        Ok(part.done())
    }

    /// Whether a reader waits with a buffer of its own for what comes next ([`Self::put_direct`]); it is told that large
    /// messages come straight.
    pub fn goes_straight(&mut self, p: &impl Provider) -> bool {
        let is_held_up = self.is_advertised(p) || self.withheld > 0;
        if is_held_up || self.journal.is_on() || p.reaches().is_err() {
            return false;
        }
        p.foretell(true);
        !self.flow.is_parked() && self.is_awaited(p, self.flow.accepted(), 0, false)
    }

    /// [`Tx::put`] of what only goes straight to a reader that waits. Out of room if none does.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn put_direct(&mut self, p: &impl Provider, fd: i32, walk: &mut Walk) -> Put {
        let before = walk.done();
        self.tell_withheld(p, fd);
        if !self.is_advertised(p) && !self.journal.is_on() && p.reaches().is_ok() {
            p.foretell(true);
            let most = policy::stage(walk.left());
            let done = |walk: &Walk| walk.done() - before;
            // SAFETY: passed on to the caller.
            while done(walk) < most && unsafe { self.deliver(p, walk, false) } {}
            p.moved_on(done(walk));
        }
        Put::Bytes(walk.done() - before)
    }

    /// [`Tx::put`] of a large message.
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    pub(super) unsafe fn put_large(
        &mut self,
        p: &impl Provider,
        fd: i32,
        walk: &mut Walk,
    ) -> Result<Put, Violation> {
        if self.journal.is_on() || p.reaches().is_err() {
            // SAFETY: passed on to the caller.
            return unsafe { self.put_ring(p, fd, walk, false) };
        }
        let before = walk.done();
        // (a sender that does not wait asleep, where cores are short, keeps its reader from coming)
        let way = if p.is_crowded() { Way::Ring } else { p.way() };
        p.foretell(way == Way::Direct);
        let mut part = walk.part(policy::stage(walk.left()));
        let put = if way == Way::Ring {
            // SAFETY: passed on to the caller.
            unsafe { self.put_ring(p, fd, &mut part, false) }
        } else {
            // SAFETY: as above.
            unsafe { self.put_straight(p, fd, &mut part) }
        };
        walk.skip(part.done());
        p.moved_on(walk.done() - before);
        p.settle_taken_back(self.flow.accepted());
        put
    }

    /// [`Self::put_large`] to a reader that comes, as far as it does.
    ///
    /// # Safety
    /// As there.
    unsafe fn put_straight(
        &mut self,
        p: &impl Provider,
        fd: i32,
        walk: &mut Walk,
    ) -> Result<Put, Violation> {
        let before = walk.done();
        while walk.left() > 0 {
            // SAFETY: passed on to the caller.
            if unsafe { self.deliver(p, walk, true) } {
                continue;
            }
            let mut part = walk.part(if walk.done() == before {
                TASTE
            } else {
                PUBLISH
            });
            // SAFETY: passed on to the caller.
            let put = unsafe { self.put_ring(p, fd, &mut part, false) }?;
            walk.skip(part.done());
            match put {
                Put::Bytes(n) if n > 0 => {}
                Put::Ended if walk.done() == before => return Ok(put),
                _ => break,
            }
        }
        Ok(Put::Bytes(walk.done() - before))
    }

    /// Delivers the walk's next buffer to the reader, if that waits for it, or with `waits` comes at once.
    /// False if nothing went.
    ///
    /// # Safety
    /// The walk's buffers are readable.
    unsafe fn deliver(&mut self, p: &impl Provider, walk: &mut Walk, waits: bool) -> bool {
        let (from, len) = walk.chunk();
        if len < policy::large() || self.flow.is_parked() {
            return false;
        }
        let at = self.flow.accepted();
        if !self.is_awaited(p, at, len, waits) || !p.enter() {
            return false;
        }
        p.time_put();
        // SAFETY: passed on to the caller.
        let n = unsafe { p.deliver(at, from, policy::stage(len)) };
        p.leave();
        walk.advance(n);
        n > 0
    }

    /// Whether the reader waits for what comes at this position, or with `waits` will in less time than it takes to copy
    /// that into the ring. A reader that blocks in its read is there in no time, or is not; one that waits
    /// in poll first has to be shown that there is something in the ring. A wait in vain makes the next ones
    /// of its kind rarer.
    fn is_awaited(&self, p: &impl Provider, at: u64, len: usize, waits: bool) -> bool {
        let fits = || p.awaited(at) >= policy::large() as u64;
        if fits() {
            return true;
        }
        if !waits || p.peer_sleeps() {
            return false;
        }
        let unread = self.unread(p);
        let (wait, most) = if unread == 0 {
            (Patience::Return, policy::return_time())
        } else {
            (Patience::Drain, policy::copy_time(len as u64 + unread))
        };
        if !p.is_prompt(wait) {
            return false;
        }
        let begun = clock::ticks();
        let mut turn = 0u32;
        let found = loop {
            std::hint::spin_loop();
            if fits() {
                break true;
            }
            turn += 1;
            if turn.is_multiple_of(8)
                && (clock::ticks() - begun > most || p.stopped() || p.peer_sleeps())
            {
                break false;
            }
        };
        p.note_prompt(wait, found);
        found
    }
}
