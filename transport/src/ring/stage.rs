//! What has happened to a ring: events of one word, so that whoever looks sees one state.

use std::sync::atomic::{AtomicU32, Ordering};

/// Something that has happened, or is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Event {
    /// The peer was told of the ring and may begin at any time: it has to be there then.
    Expected = 1,
    /// The sending direction has begun to go by it, or is about to.
    Begun = 2,
    /// It is over for this side: nothing is posted any more.
    Over = 4,
    /// It is over because the adapter has failed.
    Failed = 8,
    /// The kernel connection has ended: the peer says nothing more.
    Gone = 16,
    /// The peer could not be told how much was taken: another thread was posting.
    Untold = 32,
    /// It is there: what was taken down reads as zeros.
    There = 64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Stage(AtomicU32);

impl Stage {
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(Event::There as u32))
    }

    #[inline]
    pub(super) fn has(&self, event: Event) -> bool {
        self.0.load(Ordering::Acquire) & event as u32 != 0
    }

    /// Whether one has happened and another has not: of one look.
    #[inline]
    pub(super) fn is(&self, has: Event, not: Event) -> bool {
        self.0.load(Ordering::Acquire) & (has as u32 | not as u32) == has as u32
    }

    /// It has happened. Whether it had before.
    pub(super) fn set(&self, event: Event) -> bool {
        self.0.fetch_or(event as u32, Ordering::AcqRel) & event as u32 != 0
    }

    /// It has not, or is seen to. Whether it had.
    pub(super) fn clear(&self, event: Event) -> bool {
        self.has(event) && self.0.fetch_and(!(event as u32), Ordering::AcqRel) & event as u32 != 0
    }
}
