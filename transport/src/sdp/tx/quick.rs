//! The send that most are: one small buffer that the ring has room for, nothing else to be said of the connection. It
//! does what [`Tx::put`] would have done, without asking what the answer to is known, and leaves everything else to that.
//!
//! Rule: false means that nothing was put, so the caller can begin anew with the general way.

use super::Tx;
use super::put::Looked;
use crate::doorbell;
use crate::provider::Provider;
use crate::sdp::Leg;
use flowctl::any::Sender;
use flowctl::{Piece, Sender as _};

impl Tx {
    /// The most (bytes) that is put so: all of it is told of at once.
    pub const QUICK: usize = 8 * 1024;

    /// Puts all of one buffer, and rings if the peer sleeps. False if that cannot be, or there is more to look at.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes, which are [`Self::QUICK`] at most.
    #[inline(always)]
    pub unsafe fn put_quick(
        &mut self,
        p: &impl Provider,
        fd: i32,
        from: *const u8,
        len: usize,
    ) -> bool {
        // (who died in the middle of it shared the stream, and leaves what `put` puts right)
        let orphaned = self.orphaned | self.tell_orphaned | self.bell_due;
        if self.leg != Leg::Fast
            || orphaned
            || self.withheld > 0
            || self.journal.is_on()
            || self.is_advertised(p)
            || self.acknowledges(p) != Ok(false)
        {
            return false;
        }
        let Sender::Nic(flow) = &mut self.flow else {
            return false;
        };
        let mut fits = !flow.is_short(len);
        if !fits || self.looked.is_due(flow.accepted()) {
            if flow.granted(p).is_err() {
                return false; // (the general way looks too, and finds the lie)
            }
            self.looked = Looked::at(flow.accepted());
        }
        fits &= !flow.is_short(len);
        if !flow.takes(len) {
            return false;
        }
        if !p.enter() {
            return false;
        }
        p.time_put();
        let mut done = 0;
        while done < len {
            let piece = flow.place(len - done);
            let n = piece.len.min(len - done);
            if n == 0 {
                break; // (it takes all: see below)
            }
            // SAFETY: `done + n` bytes of the caller's buffer.
            unsafe { p.put(Piece { len: n, ..piece }, from.add(done)) };
            flow.commit(n, p);
            done += n;
        }
        flow.publish(p);
        if !fits {
            self.note_starved(p);
        }
        if p.must_ring(doorbell::DATA) {
            self.woke_reader = true;
            self.send_bell(p, fd);
        }
        p.leave();
        debug_assert_eq!(done, len, "there was room");
        true
    }
}
