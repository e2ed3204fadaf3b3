//! Whose process holds a side of a segment: what tells a peer that died from one that lives behind a kernel connection that
//! somebody has cut.
//!
//! Called by `preload::sockets`. Rule: a side that several processes may hold says nothing, for the death of one of them
//! does not show in another.

use super::segment::Segment;
use crate::direct;
use crate::sync::{Ordering, fence};
use crate::sys::process::{Fate, Life};

/// The word of a process that ends: it names none.
const PARTS: u64 = 1;

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

    /// This process, which alone holds this side, ends: from here on it reads no bell and answers nothing. (A peer that has stopped this
    /// side before that may have rung: who calls this looks once more.)
    pub fn part(&self) {
        self.mine().home.owner.store(PARTS, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.rouse_peer(); // (the end is the kernel's to tell, which no nap hears)
    }

    /// Whether the process that holds the other side has said so. After this side has stopped it, or has begun to nap.
    #[must_use]
    pub fn peer_parts(&self) -> bool {
        fence(Ordering::SeqCst);
        self.peer().home.owner.load(Ordering::SeqCst) == PARTS
    }

    /// What has become of the process that holds the other side.
    #[must_use]
    pub fn fate_of_peer(&self) -> Fate {
        // (a peer that lies about it deceives nobody but itself)
        let owner = self.peer().home.owner.load(Ordering::Acquire);
        Life::of_word(owner).map_or(Fate::Unknown, Life::fate)
    }
}
