//! Reading where large messages come: the reader's buffer is posted while the ring's bytes before an advert
//! are read, so that the sender can fill the rest meanwhile; then what the advert holds is received.

use super::{Got, How, Rx, read_by};
use crate::clock;
use crate::direct::far::{Far, Look};
use crate::direct::{Pending, policy};
use crate::doorbell::TAKEN;
use crate::provider::Provider;
use crate::sdp::journal::Journal;
use crate::sdp::{Leg, Walk};
use crate::sys::yield_core;
use flowctl::{Receiver as _, Violation, with_scheme};

/// Bytes of a buffer that was taken back which are waited for at most: as kernel TCP shows without a reader.
const AT_ONCE: u64 = 60 * 1024;

/// Looks for bytes of the ring that are said to come before an advert, and came before it if they do.
const VAIN: u32 = 100;

/// How long (µs) a sender in the middle of a put is waited for, before what its lane holds is compared.
const PUT_US: u64 = 20_000;

/// What becomes of bytes that a sender has shown and not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// There are none, or they may never come.
    Nothing,
    /// They are about to come through the ring.
    Soon,
    There,
}

impl Rx {
    /// [`Rx::read`] on the fast leg of a connection with large messages.
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    pub(super) unsafe fn read_large(
        &mut self,
        p: &impl Provider,
        walk: &mut Walk,
        how: How,
    ) -> Got {
        p.pass();
        if let Some(far) = how.far
            && !self.journal.is_on()
        {
            p.fetch(far);
        }
        if how.peek {
            // SAFETY: passed on to the caller.
            return unsafe { self.look_large(p, walk, how) };
        }
        if !how.discard {
            self.post(p, walk);
        }
        let before = walk.done();
        let mut got;
        let mut vain = 0;
        loop {
            let limit = match self.before_advert(p) {
                Ok(limit) => limit,
                Err(Violation) => return Got::Broken,
            };
            if limit == Some(0) {
                let (to, len) = walk.chunk();
                if len == 0 {
                    got = Got::Bytes(0); // a read of no bytes has all that it asked for
                    break;
                }
                let to = (!how.discard).then_some(to);
                let at = self.flow.consumed();
                let held = p.pending().is_some_and(|a| a.lane != 0);
                // SAFETY: the walk's chunk is writable by the caller's promise.
                let n = unsafe {
                    if held {
                        how.far.and_then(|far| p.receive_held(at, to, len, far))
                    } else {
                        Some(p.receive(at, to, len))
                    }
                };
                let Some(n) = n else {
                    p.withdraw();
                    return Got::Broken;
                };
                walk.advance(n);
                self.ring_due |= p.must_ring(TAKEN);
                got = Got::Empty;
                if walk.left() == 0 || (n == 0 && self.before_advert(p) == Ok(Some(0))) {
                    break;
                }
                continue;
            }
            let mut part = walk.part(limit.unwrap_or(usize::MAX));
            // SAFETY: passed on to the caller.
            got = unsafe { self.read_ring(p, &mut part, how, false) }.unwrap_or(Got::Broken);
            walk.skip(part.done());
            if walk.left() == 0 {
                break; // (an advert has no place in the buffer then)
            }
            if !matches!(got, Got::Bytes(n) if n > 0) {
                if how.lingers && got == Got::Empty && walk.done() == before {
                    return Got::Empty;
                }
                // An advert may have been opened for the posted buffer just before it was taken back.
                p.withdraw();
                if p.pending().is_none() {
                    break;
                }
                vain += 1;
                if vain > VAIN {
                    return Got::Broken;
                }
            }
        }
        p.withdraw();
        match walk.done() - before {
            0 => got,
            n => Got::Bytes(n),
        }
    }

    /// Looks at what the ring holds before an advert. What an advert holds is not shown: its sender may take
    /// it back yet, and what a look has shown has to come. It is asked for through the ring.
    ///
    /// # Safety
    /// The walk's buffers are writable.
    unsafe fn look_large(&mut self, p: &impl Provider, walk: &mut Walk, how: How) -> Got {
        let Ok(limit) = self.before_advert(p) else {
            return Got::Broken;
        };
        if p.ahead().any(|a| a.lane != 0) {
            // SAFETY: passed on to the caller.
            return unsafe { self.look_held(p, walk, how) };
        }
        if limit == Some(0) {
            p.ask_small();
            self.ring_due |= p.must_ring(TAKEN);
            return Got::Empty;
        }
        let before = walk.done();
        let mut part = walk.part(limit.unwrap_or(usize::MAX));
        // SAFETY: passed on to the caller.
        let got = unsafe { self.read_ring(p, &mut part, how, false) }.unwrap_or(Got::Broken);
        walk.skip(part.done());
        match walk.done() - before {
            0 => got,
            n => Got::Bytes(n),
        }
    }

    /// Looks at what the ring and the sender's lane hold, up to an advert that its sender may take back.
    ///
    /// # Safety
    /// The walk's buffers are writable.
    #[cold]
    unsafe fn look_held(&mut self, p: &impl Provider, walk: &mut Walk, how: How) -> Got {
        let before = walk.done();
        let mut flow = self.flow.clone();
        let Some(look) = how.far.and_then(|far| p.look_held(far, walk.left())) else {
            return Got::Broken;
        };
        let mut ahead = p.ahead();
        loop {
            let advert = ahead.next();
            let limit = match advert {
                Some(a) => a.at.checked_sub(flow.consumed()),
                None => Some(u64::MAX),
            };
            let Some(limit) = limit else {
                return Got::Broken;
            };
            let mut part = walk.part(usize::try_from(limit).unwrap_or(usize::MAX));
            // SAFETY: passed on to the caller.
            let read = with_scheme!(Receiver, &mut flow, flow => unsafe {
                read_by(flow, &mut Journal::off(), p, &mut part, how)
            });
            if read.is_err() {
                return Got::Broken;
            }
            walk.skip(part.done());
            let Some(advert) = advert.filter(|a| a.at == flow.consumed() && walk.left() > 0) else {
                break;
            };
            if advert.lane == 0 {
                if walk.done() == before {
                    p.ask_small();
                    self.ring_due |= p.must_ring(TAKEN);
                }
                break;
            }
            // SAFETY: passed on to the caller.
            if !unsafe { copy_look(&look, advert.left, walk, how) } {
                break;
            }
        }
        match walk.done() - before {
            0 => Got::Empty,
            n => Got::Bytes(n),
        }
    }

    /// Whoever read last may have died in the middle of receiving from an advert. Without the lane's end this is asked
    /// again by who has it.
    pub(super) fn settle_advert(&mut self, p: &impl Provider, far: Option<&Far>) {
        if !self.advert_orphaned {
            return;
        }
        if !p.has_adverts() {
            self.advert_orphaned = false;
            return;
        }
        p.bury_reader();
        let Some(far) = far else {
            return;
        };
        let begun = clock::ticks();
        while !p.bury_reader_of_lane(far) && clock::ticks() - begun < clock::us(PUT_US) {
            yield_core();
        }
        self.advert_orphaned = false;
    }

    /// Bytes that the ring and the sender's lane hold.
    pub fn shown(&mut self, p: &impl Provider) -> usize {
        self.regrant(p);
        let known = self.leg == Leg::Fast && self.flow.announced(p).is_ok();
        if !known {
            return 0;
        }
        let held = p.ahead().filter(|a| a.lane != 0);
        let held = held.fold(0, |n: u64, a| n.saturating_add(a.left));
        let held = usize::try_from(held).unwrap_or(usize::MAX);
        self.flow.available().saturating_add(held)
    }

    /// After a read that found too little: whether the sender has taken a buffer back, or was asked to, and
    /// has yet to copy what it held. `enough`: this advert is not waited for again.
    pub fn awaits_copy(&mut self, p: &impl Provider, enough: bool) -> Awaited {
        self.regrant(p);
        if self.leg != Leg::Fast || self.flow.announced(p).is_err() {
            return Awaited::Nothing;
        }
        let (read, there) = (self.flow.consumed(), self.flow.available());
        let end = |back: &Pending| back.at.saturating_add(back.left);
        let awaited = p
            .taken_back()
            .filter(|back| back.at <= read && read < end(back));
        let Some(back) = awaited else {
            if p.taken_back().is_some_and(|back| end(&back) <= read) {
                p.forget_taken_back(); // all of it has come
            }
            return if there > 0 {
                Awaited::There
            } else {
                Awaited::Nothing
            };
        };
        if there as u64 >= (end(&back) - read).min(AT_ONCE) {
            return Awaited::There;
        }
        if enough {
            p.forget_taken_back();
            return if there > 0 {
                Awaited::There
            } else {
                Awaited::Nothing
            };
        }
        Awaited::Soon
    }

    /// Posts the walk's next buffer, if it is large.
    fn post(&mut self, p: &impl Provider, walk: &mut Walk) {
        let (to, len) = walk.chunk();
        if len >= policy::large() && !self.journal.is_on() {
            p.post(self.flow.consumed(), to, len);
        }
    }

    /// How many bytes of the ring come before the next advert, if there is one.
    fn before_advert(&mut self, p: &impl Provider) -> Result<Option<usize>, Violation> {
        self.flow.announced(p)?;
        let Some(pending) = p.pending() else {
            return Ok(None);
        };
        let limit = pending.at.checked_sub(self.flow.consumed());
        let limit = limit.and_then(|n| usize::try_from(n).ok());
        limit.map(Some).ok_or(Violation)
    }
}

/// Copies so many bytes of what a lane holds, or only counts them. False if there are fewer.
///
/// # Safety
/// The walk's buffers are writable.
unsafe fn copy_look(look: &Look, mut left: u64, walk: &mut Walk, how: How) -> bool {
    while left > 0 && walk.left() > 0 {
        let (to, len) = walk.chunk();
        let wanted = usize::try_from(left).map_or(len, |left| left.min(len));
        let n = if how.discard {
            wanted
        } else {
            // SAFETY: the walk's chunk is writable by the caller's promise.
            unsafe { look.read(to, wanted) }.unwrap_or(0)
        };
        if n == 0 {
            return false;
        }
        walk.advance(n);
        left -= n as u64;
    }
    true
}
