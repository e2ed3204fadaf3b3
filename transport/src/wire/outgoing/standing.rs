//! How far this direction has come: what waits, what has gone, and by what. Looks only.

use super::{EARLY, Mode, Out};
use crate::wire::Common;
use std::sync::atomic::Ordering;

impl Out {
    /// Octets that wait to go.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.end - self.start + self.early_end - self.early_start + self.parked()
    }

    /// Whether the kernel has a part of an FPDU, and the rest waits here: a peer that reads so far and finds the end knows that
    /// something is lacking.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        matches!(self.mode, Mode::Rdma) && self.start < self.begun && self.is_by_kernel()
    }

    /// Whether nothing may go yet: it is not known how the two sides go on, or the peer, which speaks first, has not.
    #[must_use]
    pub fn is_too_early(&self, common: &Common) -> bool {
        match self.mode {
            Mode::Undecided | Mode::Waiting => true,
            Mode::Rdma => !common.heard.load(Ordering::Acquire),
            Mode::Plain => false,
        }
    }

    /// Bytes that could be taken now, as far as it does not depend on the kernel; nothing while octets wait.
    #[must_use]
    pub fn is_roomy(&self, common: &Common) -> bool {
        if self.is_too_early(common) {
            self.early_end < EARLY / 2
        } else {
            self.pending() == 0
        }
    }

    /// Octets that went by an adapter's Writes, and by its Sends.
    #[must_use]
    pub const fn by_adapter(&self) -> [u64; 2] {
        self.link.put()
    }

    /// Messages that were sent, and how often credits were lacking.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.messages, self.starved + self.starved_of_room())
    }

    /// Whether this direction goes on with plain bytes, all of RDMA mode having gone.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        matches!(self.mode, Mode::Plain) && self.pending() == 0 && self.link.is_kernel()
    }

    /// Whether DisConn has gone.
    #[must_use]
    pub fn is_finished(&self, common: &Common) -> bool {
        self.finished && !self.is_under_way(common)
    }

    /// Whether a message could be begun now, as far as the peer's credits go.
    pub fn has_credit(&mut self, common: &Common) -> bool {
        common.heard.load(Ordering::Acquire)
            && !self.lacks_slot(common)
            && (self.has_room(common) || self.writes())
    }

    /// Whether octets go by the ring.
    #[must_use]
    pub const fn is_by_ring(&self) -> bool {
        self.link.is_ring()
    }

    /// Whether a ring has something left to do that the kernel or the peer has to take or say.
    #[must_use]
    pub const fn is_unsettled(&self) -> bool {
        self.link.is_unsettled()
    }

    /// Whether the end of this direction is to be said yet.
    #[must_use]
    pub fn is_finishing(&self, common: &Common) -> bool {
        let ends = self.finish_due && !self.finished && !self.ended && self.mode != Mode::Plain;
        ends && !common.failed.load(Ordering::Acquire)
    }

    /// Whether something has not left this side: it waits here, or has not reached the peer's memory.
    #[must_use]
    pub fn is_under_way(&self, common: &Common) -> bool {
        self.pending() > 0
            || self.mode == Mode::Waiting
            || self.is_finishing(common)
            || self.link.is_unsettled()
            || self.link.is_ring() && common.ring.get().is_some_and(|ring| !ring.is_quiet())
    }
}
