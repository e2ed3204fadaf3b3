//! Which adverts of a sink still count. A SinkAvail can cross a message with payload that its source has sent
//! meanwhile: that message takes the buffer which the sink had waiting, and the advert for it is void.
//!
//! Both sides count messages with payload that did not void an advert; the sink puts its count into every
//! advert, and the source compares. Counts go round like message numbers.

use super::Violation;
use super::header::Seq;

/// The sink's count, NonDiscards.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sink {
    kept: Seq,
}

impl Sink {
    /// A message with payload came. With `voided` the sink has dropped an advert for it.
    pub const fn payload_came(&mut self, voided: bool) {
        if !voided {
            self.kept = self.kept.next();
        }
    }

    /// What goes into an advert.
    #[must_use]
    pub const fn non_discards(&self) -> u32 {
        self.kept.0
    }
}

/// The source's count, PotentialNonDiscards.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source {
    sent: Seq,
}

impl Source {
    /// A message with payload is sent.
    pub const fn payload_sent(&mut self) {
        self.sent = self.sent.next();
    }

    /// So many adverts have come that another one followed before a message was sent: the sink had dropped each of them.
    pub const fn passed_over(&mut self, adverts: u32) {
        self.sent = Seq(self.sent.0.wrapping_sub(adverts));
    }

    /// Takes in the next advert of the sink: whether it counts.
    ///
    /// # Errors
    /// [`Violation::NonDiscards`] if the sink has kept more than was sent.
    pub const fn counts(&mut self, non_discards: u32) -> Result<bool, Violation> {
        let kept = Seq(non_discards);
        if !self.sent.has_reached(kept) {
            return Err(Violation::NonDiscards);
        }
        let counts = self.sent.0 == kept.0;
        if !counts {
            self.sent = self.sent.previous();
        }
        Ok(counts)
    }
}
