//! What comes by the kernel connection: the first leg's bytes, and bells. Which is which follows from the
//! counts, never from the value of a byte.

use super::{Got, How, OVER, Rx};
use crate::provider::{End, Provider};
use crate::sdp::walk::BATCH;
use crate::sdp::{Ended, Leg, Walk};
use crate::sys::{Errno, Result, diag, net};

impl Rx {
    /// Reads before there is a segment: the kernel connection, without waiting.
    ///
    /// # Errors
    /// As recv(2); EAGAIN if there is nothing.
    pub fn read_kernel(&mut self, fd: i32, walk: &mut Walk, flags: i32) -> Result<usize> {
        let n = Self::recv(fd, walk, usize::MAX, flags)?;
        if flags & libc::MSG_PEEK == 0 {
            self.kernel += n as u64;
        }
        Ok(n)
    }

    pub(super) fn recv(fd: i32, walk: &mut Walk, limit: usize, flags: i32) -> Result<usize> {
        if limit >= walk.left()
            && let Some((iov, count)) = walk.untouched()
        {
            // SAFETY: as below.
            return unsafe { net::recv_vec(fd, iov.cast_mut(), count, flags | libc::MSG_DONTWAIT) };
        }
        // (a read that began on another leg goes on into all of its buffers, as it would in the kernel)
        if let Some(mut all) = walk.whole(limit) {
            let flags = flags | libc::MSG_DONTWAIT;
            // SAFETY: as below.
            return unsafe { net::recv_vec(fd, all.as_mut_ptr(), all.len(), flags) };
        }
        let mut iov = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; BATCH];
        let count = walk.batch(&mut iov, limit);
        // SAFETY: the pointers are the program's, for the kernel to check.
        let n = unsafe { net::recv_vec(fd, iov.as_mut_ptr(), count, flags | libc::MSG_DONTWAIT) }?;
        Ok(n)
    }

    /// The first leg; `None` once it is finished.
    pub(super) fn read_first(
        &mut self,
        p: &impl Provider,
        fd: i32,
        walk: &mut Walk,
        how: How,
    ) -> Result<Option<Got>> {
        let mut limit = usize::MAX;
        let mut flags = 0;
        let goes_on = !(how.whole && walk.done() > 0) || net::goes_on(fd);
        let known = p.stated(End::Kernel);
        if let Some(end) = known {
            if self.kernel == end {
                return Ok(None);
            }
            let Some(left) = end.checked_sub(self.kernel) else {
                return Ok(Some(Got::Broken));
            };
            limit = usize::try_from(left).unwrap_or(usize::MAX);
        }
        if walk.done() > 0 && net::has_only_error(fd) {
            return Ok(Some(Got::Reset)); // (what was read is all that this call tells: the error is the next one's)
        }
        if !goes_on {
            return Ok(Some(Got::Empty));
        }
        // While the end is not stated, bells and even the last leg's data may come in behind this leg's
        // bytes: they are looked at first, and taken once it is known how many are of this leg.
        if how.peek || known.is_none() {
            flags |= libc::MSG_PEEK;
        }
        if how.discard {
            flags |= libc::MSG_TRUNC;
        }
        match Self::recv(fd, walk, limit, flags) {
            Err(Errno::AGAIN) => Ok(Some(Got::Empty)),
            Err(e) => Err(e),
            Ok(0) if walk.left() == 0 => Ok(Some(Got::Bytes(0))),
            Ok(0) => {
                self.end_kernel(None);
                // The end may have been stated, and the connection closed, since we looked.
                Ok((p.stated(End::Kernel) != Some(self.kernel)).then_some(Got::Eof))
            }
            Ok(n) => {
                let mut data = n;
                if known.is_none() {
                    if let Some(end) = p.stated(End::Kernel) {
                        let Some(left) = end.checked_sub(self.kernel) else {
                            return Ok(Some(Got::Broken));
                        };
                        data = n.min(usize::try_from(left).unwrap_or(usize::MAX));
                    }
                    if !how.peek && data > 0 {
                        data = net::discard(fd, data)?;
                    }
                }
                if !how.peek {
                    self.kernel += data as u64;
                    self.note_first(p);
                }
                walk.skip(data);
                Ok((data > 0).then_some(Got::Bytes(data)))
            }
        }
    }

    /// Tells the peer how far the first leg has been read, for when this side is gone.
    pub fn note_first(&self, p: &impl Provider) {
        p.took_first(self.kernel);
    }

    /// Bells that have been counted by the peer and not taken here.
    #[must_use]
    pub fn bells_outstanding(&self, p: &impl Provider) -> u64 {
        p.bells().saturating_sub(self.bells)
    }

    /// Bells taken so far.
    #[must_use]
    pub const fn bells_taken(&self) -> u64 {
        self.bells
    }

    /// Whether the kernel connection has ended.
    #[inline]
    #[must_use]
    pub const fn is_kernel_over(&self) -> bool {
        self.over != 0
    }

    /// The kernel connection has ended, as an error has said that nobody else is told.
    pub fn end_kernel(&mut self, taken: Option<Errno>) {
        if self.over == 0 || taken.is_some() {
            self.over = taken.map_or(OVER, Errno::in_byte);
        }
    }

    /// The error of the kernel connection that was met where bells were taken.
    #[must_use]
    pub fn taken_error(&self) -> Option<Errno> {
        Errno::of_byte(self.over).filter(|_| self.over != OVER)
    }

    /// Takes bells off the kernel connection, `most` at most. True if none is left. Not on the first
    /// leg, where data may lie before them.
    pub fn take_bells(&mut self, p: &impl Provider, fd: i32, most: usize) -> bool {
        if self.leg == Leg::First {
            return false;
        }
        if self.orphaned {
            self.recount(p, fd);
        }
        let outstanding = self.bells_outstanding(p);
        if outstanding == 0 {
            return true;
        }
        let want = usize::try_from(outstanding).unwrap_or(usize::MAX).min(most);
        match net::discard(fd, want) {
            Ok(0) => {
                self.end_kernel(None);
                true
            }
            Err(e) if e == Errno::PIPE || Ended::is_said_by(e) => {
                self.end_kernel(Some(e));
                true
            }
            Ok(n) => {
                self.bells += n as u64;
                n as u64 == outstanding
            }
            Err(_) => false,
        }
    }

    /// Counts anew what has been taken off the kernel connection: whoever died may have taken some without a word.
    #[cold]
    pub(super) fn recount(&mut self, p: &impl Provider, fd: i32) {
        if let Some(taken) = diag::taken(fd) {
            self.orphaned = false;
            // (what lies behind the first leg's end is bells, and behind those the last leg, which nobody counts)
            self.kernel = taken.min(p.stated(End::Kernel).unwrap_or(u64::MAX));
            self.bells = self.bells.max((taken - self.kernel).min(p.bells()));
        } else {
            self.count_bells(p, fd);
        }
    }

    /// Likewise by what the peer has counted. On the fast leg every byte on the kernel connection is a bell, and while the peer
    /// is not in the middle of a put every bell that it has counted has come.
    fn count_bells(&mut self, p: &impl Provider, fd: i32) {
        if self.leg != Leg::Fast {
            self.orphaned = false;
            return;
        }
        let counted = p.bells();
        let still = !p.peer_is_putting();
        let lying = net::unread(fd) as u64;
        if still && !p.peer_is_putting() && p.bells() == counted {
            self.orphaned = false;
            self.bells = self.bells.max(counted.saturating_sub(lying));
        }
    }
}
