//! When an entry stops being looked at in user space, armed and left to its bell. Called by `wait`.
//!
//! A look at an entry that has nothing costs little, and a bell costs both sides a call of the kernel: so
//! an entry is looked at in vain about as often as makes up for one bell. The more entries are hot the
//! dearer is a look at each, since they no longer lie in the caches, and every wait goes past all of
//! them: the idle ones must not slow down those that have something. Whether they are idle is tried out (`trial`).

use super::entry::{Asked, Entry, Heed};
use super::set::{Inner, Set};
use super::ticket;
use crate::sockets::wired;
use std::sync::atomic::Ordering;
use transport::clock;
use transport::doorbell::Ticket;
use transport::sys::barrier;

/// What a look in vain counts.
const LOOK: usize = 16;
/// Looks in a row that find nothing, where few are hot.
const MOST: usize = 512 * LOOK;
/// Where many are.
const LEAST: usize = 8 * LOOK;
/// How many are few: they lie in the nearest cache.
const FEW: usize = 64;

/// What a look in vain counts, among so many hot ones. Who has nothing else to do looks at a few for next to nothing, and their
/// peers, who may have much to do, are spared the bells.
#[allow(clippy::cast_possible_truncation)]
pub(super) const fn weight(hot: usize, spinning: bool) -> u16 {
    if spinning && hot <= FEW {
        1
    } else {
        LOOK as u16
    }
}

/// How many of those that the kernel tells of are few: they are kept, since who looks at them wakes up sooner than who sleeps.
const FEW_TOLD: usize = 8;

/// Looks in vain that an entry is worth, by weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    with_bells: u16,
    /// With those that cost no bell: the kernel has their events anyway.
    with_told: u16,
    /// With those that are posted, or may be: a mark brings them back.
    with_board: Option<u16>,
}

/// Looks in vain at one that has a board.
const POSTED: u16 = 2 * LOOK as u16;

impl Patience {
    /// With the hot ones of this set.
    pub(super) fn of(set: &Set, l: &Inner) -> Self {
        let alone =
            || set.crowded.load(Ordering::SeqCst) == 0 && !set.around.load(Ordering::SeqCst);
        Self {
            with_board: (l.is_crowd() && l.boards.have_room() && alone()).then_some(POSTED),
            ..Self::among(l.hot.len(), l.trial.is_long())
        }
    }

    /// Among so many hot ones. `long`: as if they were few.
    #[allow(clippy::cast_possible_truncation)]
    fn among(hot: usize, long: bool) -> Self {
        let crowd = if long { FEW } else { hot.max(FEW) };
        let with_bells = (MOST * FEW / crowd).max(LEAST) as u16;
        let with_told = if hot > FEW_TOLD { 0 } else { with_bells };
        Self {
            with_bells,
            with_told,
            with_board: None,
        }
    }

    /// The same with entries that are armed for a sleep already.
    pub(super) const fn asleep(self) -> Self {
        Self {
            with_bells: self.with_bells / 4,
            with_told: self.with_told / 4,
            with_board: self.with_board,
        }
    }

    pub(super) fn with(self, e: &Entry) -> u16 {
        if e.is_posted() {
            return POSTED;
        }
        let by_itself = self.without_board(e);
        match self.with_board {
            Some(looks) if looks < by_itself && e.postable().is_some() => looks,
            _ => by_itself,
        }
    }

    fn without_board(self, e: &Entry) -> u16 {
        if e.is_by_kernel() {
            0
        } else if self.with_told < self.with_bells && e.socket().is_some_and(wired::tells_by_kernel)
        {
            self.with_told
        } else {
            self.with_bells
        }
    }
}

/// Whether an entry can be left to its bell, and was looked at in vain for long enough.
pub(super) fn is_tiring(e: &Entry, patience: Patience) -> bool {
    (e.parked || e.has_bell()) && e.idle > patience.with(e)
}

/// Leaves entries to their bells, but for those that turn out to have something after all. Whether there are such: what told of
/// it may have been taken by the wish.
pub(super) fn cool(l: &mut Inner, patience: Patience) -> bool {
    let mut new = false;
    for at in 0..l.hot.len() {
        if let Some(&i) = l.hot.get(at)
            && let Some(e) = l.entry(i)
            && is_tiring(e, patience)
        {
            if stands(e) {
                e.idle = STANDS; // (what has come since its mark was taken has marked it again)
            } else if patience.with_board.is_some() && l.post(i) {
                new = true;
            } else if let Some(e) = l.entry(i)
                && e.idle > patience.without_board(e)
            {
                new |= e.wish();
            }
        }
    }
    if new {
        barrier::heavy();
    }
    let mut found = false;
    keep(l, |e| {
        if e.is_posted() && e.idle == STANDS {
            return e.is_unsure();
        }
        let goes = e.is_posted() || e.idle > patience.without_board(e);
        !(is_tiring(e, patience) && goes) || {
            let ready = e.is_ready();
            found |= ready;
            ready || e.is_unsure()
        }
    });
    found
}

/// After a sleep: entries with recent traffic are looked at again without a bell; the others stay armed
/// and are left to it. Not while others sleep on the set, who have armed them, or are about to, under
/// this lock.
pub(super) fn disarm(set: &'static Set, ticket: Option<Ticket>) {
    let Some(mut l) = set.lock() else { return };
    if let Some(t) = ticket {
        ticket::over(set, &l, t);
    }
    if set.waiters.load(Ordering::SeqCst) > 0 {
        return;
    }
    let patience = Patience::of(set, &l).asleep();
    keep(&mut l, |e| {
        if stands(e) {
            return e.idle <= POSTED || e.is_unsure();
        }
        if e.asked != Asked::Ours && !e.has_bell() {
            return true;
        }
        if e.is_by_ticket() {
            e.disarm_by();
            return true;
        }
        if e.idle < patience.with(e) {
            e.disarm();
            return true;
        }
        // (others may have had it looked at since the sleep began)
        e.heed == Heed::Asked || e.is_ready() || e.is_unsure()
    });
}

/// A call begins: where many are hot, it may be time to try how patient to be.
pub(super) fn begin(l: &mut Inner) {
    if l.hot.len() > FEW {
        l.trial.turn(clock::ticks());
    }
}

/// Whether it is posted. One that is silent until it is modified, or deleted, is not for long: its peer would ring in vain.
fn stands(e: &mut Entry) -> bool {
    if e.is_posted() && (e.parked || e.is_disabled()) {
        e.disarm_by();
    }
    e.is_posted()
}

/// For [`Entry::idle`]: it is about to be left to its board, where it was posted before.
const STANDS: u16 = u16::MAX;

/// Drops from the hot list all that `stays` does not hold of.
fn keep(l: &mut Inner, mut stays: impl FnMut(&mut Entry) -> bool) {
    let mut hot = std::mem::take(&mut l.hot);
    hot.retain(|&i| {
        l.entry(i).is_some_and(|e| {
            let stays = stays(e);
            if !stays {
                e.heed = Heed::Bell;
            }
            stays
        })
    });
    l.hot = hot;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_shrinks_with_the_crowd() {
        let looks = |hot| Patience::among(hot, false).with_bells / weight(hot, false);
        assert_eq!([0, 1, 64].map(looks), [512; 3]);
        assert_eq!([128, 1024, 4096, 100_000].map(looks), [256, 32, 8, 8]);
        assert_eq!([64, 65].map(|hot| weight(hot, true)), [1, 16]);
        assert_eq!(usize::from(Patience::among(100_000, true).with_bells), MOST);
    }
}
