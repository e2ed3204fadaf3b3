//! The read that most are: one buffer, bytes of the ring, nothing else to be said of the connection. It does what
//! [`Rx::read`] would have done, without asking what the answer to is known, and leaves everything else to that.
//!
//! Rule: `None` means that nothing was done, so the caller can begin anew with the general way.

use super::{Rx, settle};
use crate::provider::{End, Provider};
use crate::sdp::Leg;
use flowctl::any::Receiver;
use flowctl::{Piece, Receiver as _};

/// Bytes that are copied before room is handed back.
const STEP: usize = 64 * 1024;

impl Rx {
    /// Reads into one buffer what the ring holds. `None` if that is nothing, or if there is more to look at. This side has
    /// sent so many messages.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes.
    #[inline(always)]
    pub unsafe fn read_quick(
        &mut self,
        p: &impl Provider,
        to: *mut u8,
        len: usize,
        sent: u64,
    ) -> Option<usize> {
        // (who died in the middle of it shared the stream, and leaves what `read` puts right)
        let orphaned = self.orphaned | self.advert_orphaned | self.grant_orphaned;
        if self.leg != Leg::Fast || orphaned || self.journal.is_on() {
            return None;
        }
        let Receiver::Nic(flow) = &mut self.flow else {
            return None;
        };
        let known = flow.available();
        if known < len {
            if known == 0 {
                self.pace.before_look(sent);
            }
            // (a lie is found again)
            if flow.announced(p).is_err() {
                return None;
            }
            if known == 0 {
                self.pace.found(flow.available());
            }
        }
        if flow.available() < len && p.taken_back().is_some() {
            return None; // (there is more that was shown)
        }
        // (after that, as in `read_ring`; the end of the leg may have more behind it)
        if p.has_adverts() || flow.available() == 0 || p.stated(End::Fast).is_some() {
            return None;
        }
        let mut done = 0;
        while done < len {
            let Ok(piece) = flow.next(p) else { break };
            let n = piece.len.min(len - done).min(STEP);
            if n == 0 {
                break;
            }
            // SAFETY: `done + n` bytes of the caller's buffer.
            unsafe { p.take(Piece { len: n, ..piece }, to.add(done)) };
            flow.consume(n);
            done += n;
            p.took(flow.consumed());
            let due = settle(flow.grant(false, p), p);
            self.ring_due |= due.ring;
            self.update_due |= due.update;
        }
        (done > 0).then_some(done)
    }
}
