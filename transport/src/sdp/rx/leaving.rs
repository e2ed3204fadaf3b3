//! Leaving the fast leg before it is read to its end: what is unread is looked at over the border, left in the
//! kernel, or gathered for private use.

use super::{Rx, STALL_US};
use crate::clock;
use crate::provider::{End, Provider};
use crate::sdp::{Leg, Walk};
use crate::sys::{Errno, Result, net, yield_core};
use flowctl::{Receiver as _, Violation};

impl Rx {
    /// After a look that has walked over all that is left of the fast leg: looks on at what follows it on
    /// the kernel connection. True if it saw anything.
    ///
    /// # Errors
    /// As recv(2), EAGAIN aside.
    pub fn peek_on(&mut self, p: &impl Provider, fd: i32, walk: &mut Walk) -> Result<bool> {
        let left = match self.available(p) {
            Ok(left) if self.leg == Leg::Fast => left as u64,
            _ => return Ok(false),
        };
        let whole = p.stated(End::Fast) == Some(self.flow.consumed() + left);
        if !whole || walk.done() as u64 != left || !self.take_bells(p, fd, usize::MAX) {
            return Ok(false);
        }
        match Self::recv(fd, walk, usize::MAX, libc::MSG_PEEK) {
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

    /// The peer will put no more: gathers everything unread, on whatever leg, for private use. The fast
    /// leg is then over.
    ///
    /// # Errors
    /// The peer's counter is impossible, or what it counted never came.
    pub fn gather(&mut self, p: &impl Provider, fd: i32) -> Result<Vec<u8>, Violation> {
        let mut out = Vec::new();
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
        while self.flow.available() > 0 {
            let piece = self.flow.next(p)?;
            let at = out.len();
            out.resize(at + piece.len, 0);
            // SAFETY: the vector has just been given that many bytes.
            unsafe { p.take(piece, out.as_mut_ptr().add(at)) };
            self.flow.consume(piece.len);
        }
        self.leg = Leg::Last;
        Ok(out)
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
