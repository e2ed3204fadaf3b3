//! Between the end of a ring and the peer's word for how much of it has landed nothing of the stream can go. Some of the program's
//! bytes are taken all the same: what goes again by the kernel goes first.
//!
//! Called by `send` of this module's parent, and by whoever asks whether there is room; under the sending lock.

use super::{Common, From, Mode, Out, Sent};
use crate::sdp::Walk;
use crate::sys::Result;

/// So many wait behind a ring that is over before the program is told that there is no room. (An FPDU more fits in any case.)
const BEHIND_RING: usize = 32 * 1024;

impl Out {
    /// Whether a ring is over and what was put there has not gone again, but some of the program's bytes are taken all the same: it
    /// is we who want the peer's word, the kernel has room, and who sends a little does not expect to hear that there is none.
    pub fn is_roomy_behind_ring(&mut self, common: &Common) -> bool {
        self.link.is_between(common.ring.get())
            && self.mode == Mode::Rdma
            && !self.ended
            && !self.begins_ring
            && self.end < BEHIND_RING
            && self.has_credit(common)
    }

    /// Takes bytes there, to go behind all that.
    ///
    /// # Safety
    /// The walk's buffers are readable.
    pub(super) unsafe fn send_behind_ring(
        &mut self,
        common: &Common,
        fd: i32,
        walk: &mut Walk,
    ) -> Result<Sent> {
        if self.from == From::Own || !self.is_roomy_behind_ring(common) {
            return Ok(Sent::Full);
        }
        // SAFETY: passed on to the caller.
        Ok(match unsafe { self.take(common, fd, walk) }? {
            Sent::NoCredit => Sent::Full,
            sent => sent,
        })
    }
}
