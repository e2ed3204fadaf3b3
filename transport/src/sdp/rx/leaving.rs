//! Leaving the fast leg before it is read to its end: what is unread is looked at over the border, left in the
//! kernel, or gathered for private use.

use super::{Rx, STALL_US};
use crate::clock;
use crate::direct::Pending;
use crate::direct::far::Far;
use crate::provider::{End, Provider};
use crate::sdp::{Leg, Walk};
use crate::sys::{Errno, Result, net, yield_core};
use flowctl::{Receiver as _, Violation};

/// Bytes of a lane that are read at once.
const GATHER: usize = 1 << 20;

impl Rx {
    /// After a look that has walked over all that is left of the fast leg: looks on at what follows it on
    /// the kernel connection, where that is wanted without a copy. True if it saw anything.
    ///
    /// # Errors
    /// As recv(2), EAGAIN aside.
    pub fn peek_on(
        &mut self,
        p: &impl Provider,
        fd: i32,
        walk: &mut Walk,
        discard: bool,
    ) -> Result<bool> {
        let left = match self.available(p) {
            Ok(left) if self.leg == Leg::Fast => left as u64,
            _ => return Ok(false),
        };
        let ring = self.flow.available() as u64;
        let whole = p.stated(End::Fast) == Some(self.flow.consumed() + ring);
        if !whole || walk.done() as u64 != left || !self.take_bells(p, fd, usize::MAX) {
            return Ok(false);
        }
        // (where nothing but an error is left the look would take it, and what was seen is all that this call tells)
        if net::unread(fd) == 0 {
            return Ok(false);
        }
        let unseen = if discard { libc::MSG_TRUNC } else { 0 };
        match Self::recv(fd, walk, usize::MAX, libc::MSG_PEEK | unseen) {
            Ok(n) => {
                walk.skip(n);
                Ok(n > 0)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The peer will put no more: if all that is unread lies on the kernel connection, with no bell
    /// among it, it can stay there. The kernel connection alone goes on then.
    ///
    /// # Errors
    /// The peer's counter is impossible.
    pub fn leave_in_kernel(&mut self, p: &impl Provider) -> Result<bool, Violation> {
        let can =
            self.leg == Leg::First && self.available(p)? == 0 && self.bells_outstanding(p) == 0;
        if can {
            self.leg = Leg::Last;
        }
        Ok(can)
    }

    /// The peer sends all that is unread of the fast leg once more, by the kernel: it follows what lies there of the first leg.
    pub fn leave_rest_to_kernel(&mut self) {
        self.leg = Leg::Last;
    }

    /// The peer will put no more: gathers everything unread, on whatever leg, for private use. The fast
    /// leg is then over.
    ///
    /// # Errors
    /// The peer's counter is impossible, or what it counted never came.
    pub fn gather(
        &mut self,
        p: &impl Provider,
        fd: i32,
        far: Option<&Far>,
    ) -> Result<Vec<u8>, Violation> {
        let mut out = Vec::new();
        if self.orphaned {
            self.recount(p, fd);
        }
        if self.leg == Leg::First {
            let Some(end) = p.stated(End::Kernel) else {
                self.leg = Leg::Last; // nothing but data can follow on the kernel connection
                return Ok(out);
            };
            self.gather_first(fd, end, &mut out)?;
            self.leg = Leg::Fast;
        }
        self.open(p)?;
        self.flow.release();
        self.available(p)?;
        self.settle_advert(p, far);
        p.pass();
        loop {
            let held = p.pending().filter(|a| a.lane != 0);
            let before = match held {
                Some(a) => a.at.checked_sub(self.flow.consumed()).ok_or(Violation)?,
                None => u64::MAX,
            };
            self.gather_ring(p, before, &mut out)?;
            match held {
                Some(a) if a.at == self.flow.consumed() => {
                    let far = far.ok_or(Violation)?;
                    Self::gather_held(p, a, far, &mut out)?;
                }
                Some(_) => return Err(Violation),
                None => break,
            }
        }
        self.leg = Leg::Last;
        Ok(out)
    }

    /// Reads what the ring holds, so many bytes of it at most.
    fn gather_ring(
        &mut self,
        p: &impl Provider,
        most: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), Violation> {
        let mut left = usize::try_from(most).unwrap_or(usize::MAX);
        while left > 0 && self.flow.available() > 0 {
            let mut piece = self.flow.next(p)?;
            piece.len = piece.len.min(left);
            let at = out.len();
            out.resize(at + piece.len, 0);
            // SAFETY: the vector has just been given that many bytes.
            unsafe { p.take(piece, out.as_mut_ptr().add(at)) };
            self.flow.consume(piece.len);
            left -= piece.len;
        }
        Ok(())
    }

    /// Reads what a lane holds for an advert.
    fn gather_held(
        p: &impl Provider,
        advert: Pending,
        far: &Far,
        out: &mut Vec<u8>,
    ) -> Result<(), Violation> {
        let mut left = advert.left;
        if left > far.unread() {
            return Err(Violation);
        }
        let mut part = vec![0u8; usize::try_from(left).unwrap_or(usize::MAX).min(GATHER)];
        while left > 0 {
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(part.len());
            // SAFETY: memory of at least that length.
            let n = unsafe { p.receive_held(advert.at, Some(part.as_mut_ptr()), len, far) };
            let read = part.get(..n.ok_or(Violation)?).ok_or(Violation)?;
            out.extend_from_slice(read);
            left -= read.len() as u64;
        }
        Ok(())
    }

    /// Reads the first leg to its end. What the kernel has not delivered yet comes as room is made.
    fn gather_first(&mut self, fd: i32, end: u64, out: &mut Vec<u8>) -> Result<(), Violation> {
        let mut moved = clock::ticks();
        while self.kernel != end {
            let left = end.checked_sub(self.kernel).ok_or(Violation)?;
            let left = usize::try_from(left).map_err(|_| Violation)?.min(64 * 1024);
            let at = out.len();
            out.resize(at + left, 0);
            // SAFETY: the vector has just been given that many bytes.
            let got = unsafe { net::recv(fd, out.as_mut_ptr().add(at), left, libc::MSG_DONTWAIT) };
            let n = got.unwrap_or(0);
            out.truncate(at + n);
            self.kernel += n as u64;
            match got {
                Ok(1..) => moved = clock::ticks(),
                Err(Errno::AGAIN) if clock::ticks() - moved < clock::us(STALL_US) => yield_core(),
                _ => return Err(Violation),
            }
        }
        Ok(())
    }
}
