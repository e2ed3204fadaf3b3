//! Reading where large messages come: the reader's buffer is posted while the ring's bytes before an advert
//! are read, so that the sender can fill the rest meanwhile; then what the advert holds is received.

use super::{Got, How, Rx};
use crate::direct::policy;
use crate::doorbell::TAKEN;
use crate::provider::Provider;
use crate::sdp::Walk;
use flowctl::{Receiver as _, Violation};

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
        if how.peek {
            // SAFETY: passed on to the caller.
            return unsafe { self.look_large(p, walk, how) };
        }
        if !how.discard {
            self.post(p, walk);
        }
        let before = walk.done();
        let mut got;
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
                // SAFETY: the walk's chunk is writable by the caller's promise.
                let n = unsafe { p.receive(self.flow.consumed(), to, len) };
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
            }
        }
        p.withdraw();
        match walk.done() - before {
            0 => got,
            n => Got::Bytes(n),
        }
    }

    /// Looks at what the ring holds before an advert, and at what that holds.
    ///
    /// # Safety
    /// The walk's buffers are writable.
    unsafe fn look_large(&mut self, p: &impl Provider, walk: &mut Walk, how: How) -> Got {
        let before = walk.done();
        let Ok(limit) = self.before_advert(p) else {
            return Got::Broken;
        };
        let mut got = Got::Empty;
        if limit != Some(0) {
            let mut part = walk.part(limit.unwrap_or(usize::MAX));
            // SAFETY: passed on to the caller.
            got = unsafe { self.read_ring(p, &mut part, how, false) }.unwrap_or(Got::Broken);
            walk.skip(part.done());
        }
        let ring = walk.done();
        let at = self.flow.consumed() + (ring - before) as u64;
        if limit == Some(ring - before) {
            while walk.left() > 0 {
                let (to, len) = walk.chunk();
                // SAFETY: the walk's chunk is writable by the caller's promise.
                let n = unsafe { p.look(at, walk.done() - ring, to, len) };
                walk.advance(n);
                if n < len {
                    break;
                }
            }
        }
        match walk.done() - before {
            0 => got,
            n => Got::Bytes(n),
        }
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
