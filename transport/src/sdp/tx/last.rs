//! The end of the fast leg, and sending by the kernel before and after it. What the peer gave back is owed
//! there, and goes first.

use super::{STUCK_US, Tx};
use crate::clock;
use crate::provider::{End, Provider};
use crate::sdp::walk::BATCH;
use crate::sdp::{Leg, Walk};
use crate::sys::{Errno, Result, diag, net};
use flowctl::Sender as _;

impl Tx {
    /// Ends the fast leg at the byte where it is. What the peer gave back is owed on the last leg.
    pub fn end_fast(&mut self, p: &impl Provider, fd: i32) {
        if self.leg != Leg::Fast {
            return;
        }
        self.recount(p, fd);
        if std::mem::take(&mut self.orphaned) {
            p.leave(); // whoever was in the middle of a put will not end it
            self.flow.publish(p);
        }
        self.end_advert(p);
        let end = self.flow.accepted();
        self.leg = Leg::Last;
        self.post_all(p);
        // (what is in a lane would have to go in between: the reader has it, and keeps it)
        if p.held() == 0
            && let Some(from) = p.take_give_back()
            && from <= end
            && end - from <= p.region() as u64
            && from < end
        {
            self.owed = (from, end);
        }
        p.state(End::Fast, end);
    }

    /// Whoever used this half last may have died between the kernel's count of what was sent and ours: the kernel's holds, before
    /// it is stated which byte is what. (The peer takes each bell that was counted for one.)
    pub(super) fn recount(&mut self, p: &impl Provider, fd: i32) {
        if !std::mem::take(&mut self.uncounted) {
            return;
        }
        let Some(carried) = diag::carried(fd).filter(|c| c.connected) else {
            return; // (it is over: what the peer is told of it does not come of counts)
        };
        match self.leg {
            Leg::First => self.kernel = carried.sent,
            Leg::Fast => p.recount_bells(carried.sent.saturating_sub(self.kernel)),
            Leg::Last => {}
        }
    }

    /// Ends the fast leg and rings the peer, which must not sleep through it. The bell is counted before
    /// the end is stated: whoever reads the end knows every bell before the data that follows. A peer
    /// that has stopped this side is awake and may be back on the kernel, where a bell would be data.
    pub fn end_fast_ringing(&mut self, p: &impl Provider, fd: i32) {
        if self.leg != Leg::Fast {
            return;
        }
        if !p.enter() {
            self.end_fast(p, fd);
            return;
        }
        self.recount(p, fd);
        self.hurry(fd);
        p.count_bell();
        self.end_fast(p, fd);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let begun = clock::ticks();
        // SAFETY: one readable byte.
        while unsafe { net::send(fd, [0u8].as_ptr(), 1, flags) } == Err(Errno::AGAIN) {
            if p.stopped() || clock::ticks() - begun > clock::us(STUCK_US) {
                p.uncount_bell();
                break;
            }
            crate::sys::yield_core(); // full of bells: the peer is readable, and takes them when it looks
        }
        p.leave();
    }

    /// Sends by the kernel without waiting. What is owed goes first.
    ///
    /// # Errors
    /// As send(2).
    pub fn write_kernel(
        &mut self,
        p: Option<&impl Provider>,
        fd: i32,
        walk: &mut Walk,
        flags: i32,
    ) -> Result<usize> {
        if let Some(p) = p {
            self.settle(p, fd)?;
        }
        let flags = flags | libc::MSG_DONTWAIT;
        let mut iov = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; BATCH];
        let (iov, n) = match walk.untouched() {
            Some((iov, n)) => (iov.cast_mut(), n),
            None => {
                let n = walk.batch(&mut iov, usize::MAX);
                (iov.as_mut_ptr(), n)
            }
        };
        // SAFETY: the pointers are the program's, for the kernel to check.
        let sent = unsafe { net::send_vec(fd, iov, n, flags) }?;
        walk.skip(sent);
        if self.leg == Leg::First {
            self.kernel += sent as u64;
        }
        Ok(sent)
    }

    /// Whether bytes are owed by the kernel.
    #[must_use]
    pub const fn owes(&self) -> bool {
        self.owed.0 < self.owed.1
    }

    /// How many bytes those are.
    #[must_use]
    pub const fn owed(&self) -> u64 {
        self.owed.1.saturating_sub(self.owed.0)
    }

    /// Sends once more, by the kernel, what the peer gave back.
    ///
    /// # Errors
    /// EAGAIN while not all of it could go.
    pub fn settle(&mut self, p: &impl Provider, fd: i32) -> Result<()> {
        let (mut from, end) = self.owed;
        while from < end {
            let mut piece = self.flow.piece_at(from, p);
            piece.len = piece
                .len
                .min(usize::try_from(end - from).unwrap_or(usize::MAX));
            if piece.len == 0 {
                self.owed = (0, 0);
                return Err(Errno::CONNRESET); // the peer has overwritten what would tell
            }
            let (at, len) = p.place(piece);
            // SAFETY: the piece lies in the region.
            match unsafe { net::send(fd, at, len, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) } {
                Ok(n) => from += n as u64,
                Err(e) => {
                    self.owed = (from, end);
                    return Err(e);
                }
            }
        }
        self.owed = (0, 0);
        Ok(())
    }
}
