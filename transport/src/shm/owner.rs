//! Whose process holds a side of a segment: what tells a peer that died from one that lives behind a kernel connection that
//! somebody has cut.
//!
//! Called by `preload::sockets`. Rule: a side that several processes may hold says nothing, for the death of one of them
//! does not show in another.

use super::segment::Segment;
use crate::direct;
use crate::sync::Ordering;
use crate::sys::process::{Fate, Life};

impl Segment {
    /// This process holds this side, and no other does.
    pub fn own(&self) {
        let me = Life::mine(direct::me()).map_or(0, Life::word);
        self.mine().home.owner.store(me, Ordering::Release);
    }

    /// Another process may hold this side from now on.
    pub fn disown(&self) {
        self.mine().home.owner.store(0, Ordering::Release);
    }

    /// What has become of the process that holds the other side.
    #[must_use]
    pub fn fate_of_peer(&self) -> Fate {
        // (a peer that lies about it deceives nobody but itself)
        let owner = self.peer().home.owner.load(Ordering::Acquire);
        Life::of_word(owner).map_or(Fate::Unknown, Life::fate)
    }
}
