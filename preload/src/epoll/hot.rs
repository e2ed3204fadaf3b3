//! When an entry stops being looked at in user space, armed and left to its bell. Called by `wait`.
//!
//! A look at an entry that has nothing costs little, and a bell costs both sides a call of the kernel: so
//! an entry is looked at in vain about as often as makes up for one bell. The more entries are hot the
//! dearer is a look at each, since they no longer lie in the caches, and every wait goes past all of
//! them: the idle ones must not slow down those that have something.

use super::entry::{Entry, Heed, Subject};
use super::set::{Inner, Set};
use super::ticket;
use std::sync::atomic::Ordering;
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

/// Looks in vain that an entry is worth, by weight, among so many hot ones.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn patience(hot: usize) -> u16 {
    (MOST * FEW / hot.max(FEW)).max(LEAST) as u16
}

/// As [`patience`], of an entry that is armed for a sleep already.
pub(super) fn patience_asleep(hot: usize) -> u16 {
    patience(hot) / 4
}

/// Whether an entry can be left to its bell, and was looked at in vain for long enough.
pub(super) const fn is_tiring(e: &Entry, patience: u16) -> bool {
    e.idle > patience && (e.parked || (e.managed && matches!(e.subject, Subject::Socket(..))))
}

/// Leaves entries to their bells, but for those that turn out to have something after all. Whether there are such: what told of
/// it may have been taken by the wish.
pub(super) fn cool(l: &mut Inner, patience: u16) -> bool {
    let mut new = false;
    for at in 0..l.hot.len() {
        if let Some(&i) = l.hot.get(at)
            && let Some(e) = l.entry(i)
            && is_tiring(e, patience)
        {
            new |= e.wish();
        }
    }
    if new {
        barrier::heavy();
    }
    let mut found = false;
    keep(l, |e| {
        !is_tiring(e, patience) || {
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
        ticket::over(set, t);
    }
    if set.waiters.load(Ordering::SeqCst) > 0 {
        return;
    }
    let patience = patience_asleep(l.hot.len());
    keep(&mut l, |e| {
        if !e.managed {
            return true;
        }
        if e.is_by_ticket() {
            e.disarm_by();
            return true;
        }
        if e.idle < patience {
            e.disarm();
            return true;
        }
        e.is_ready() || e.is_unsure()
    });
}

/// Drops from the hot list all that `stays` does not hold of.
fn keep(l: &mut Inner, mut stays: impl FnMut(&mut Entry) -> bool) {
    let mut hot = std::mem::take(&mut l.hot);
    hot.retain(|&i| {
        l.entry(i).is_some_and(|e| {
            let stays = stays(e);
            e.heed = if stays { Heed::Hot } else { Heed::Bell };
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
        let looks = |hot| patience(hot) / weight(hot, false);
        assert_eq!([0, 1, 64].map(looks), [512; 3]);
        assert_eq!([128, 1024, 4096, 100_000].map(looks), [256, 32, 8, 8]);
        assert_eq!([64, 65].map(|hot| weight(hot, true)), [1, 16]);
    }
}
