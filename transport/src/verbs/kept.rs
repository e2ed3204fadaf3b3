//! Registrations of the program's memory that outlast the call they were made for. Pure.
//!
//! Only those are kept that mean addresses and not pages (`on_demand`): what lies at an address when the adapter comes there is
//! what the program sees there, whatever was unmapped, moved or copied since. So one is found again by addresses alone, and
//! whether it still is good nobody has to ask.
//!
//! Rules: what is kept is bounded, in number and in bytes; the one that was not used for the longest goes first. Who uses one holds
//! it meanwhile, whether it is kept or not. Nothing is given back in here: whoever is handed the last of one sees to that.

#![forbid(unsafe_code)]

use super::Access;
use std::sync::Arc;

/// Registrations are made of whole pieces of the address space, so that a buffer is found in whatever parts it is read into.
const PIECE: usize = 2 << 20;

/// How many are kept, and how many bytes they have together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) count: usize,
    pub(super) bytes: usize,
}

/// Addresses: the first, and the one behind the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) from: usize,
    pub(super) to: usize,
}

impl Range {
    /// So many bytes from there on; none where the address space ends within them.
    pub(super) fn new(from: usize, len: usize) -> Option<Self> {
        let to = from.checked_add(len)?;
        Some(Self { from, to })
    }

    /// The whole pieces that it lies in.
    pub(super) fn widened(self) -> Option<Self> {
        let from = self.from & !(PIECE - 1);
        let to = self.to.checked_next_multiple_of(PIECE)?;
        Some(Self { from, to })
    }

    pub(super) const fn len(self) -> usize {
        self.to - self.from
    }

    const fn has(self, other: Self) -> bool {
        self.from <= other.from && other.to <= self.to
    }
}

#[derive(Debug)]
struct Entry<R> {
    range: Range,
    access: Access,
    region: Arc<R>,
    used: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Kept<R> {
    bounds: Bounds,
    entries: Vec<Entry<R>>,
    bytes: usize,
    uses: u64,
}

impl<R> Kept<R> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            entries: Vec::new(),
            bytes: 0,
            uses: 0,
        }
    }

    /// One that has all of this, for that.
    pub(super) fn find(&mut self, range: Range, access: Access) -> Option<Arc<R>> {
        self.uses += 1;
        let mut entries = self.entries.iter_mut();
        let entry = entries.find(|e| e.access == access && e.range.has(range))?;
        entry.used = self.uses;
        Some(Arc::clone(&entry.region))
    }

    /// Keeps this one. Those that there is no more room for, which may be this one itself.
    #[must_use]
    pub(super) fn keep(&mut self, range: Range, access: Access, region: Arc<R>) -> Vec<Arc<R>> {
        self.uses += 1;
        self.bytes += range.len();
        self.entries.push(Entry {
            range,
            access,
            region,
            used: self.uses,
        });
        let mut gone = Vec::new();
        while self.entries.len() > self.bounds.count || self.bytes > self.bounds.bytes {
            let all = self.entries.iter().enumerate();
            let Some((oldest, _)) = all.min_by_key(|(_, entry)| entry.used) else {
                break;
            };
            gone.push(self.take(oldest));
        }
        gone
    }

    /// This one is not used again: it, if it was kept.
    #[must_use]
    pub(super) fn drop_one(&mut self, region: &Arc<R>) -> Option<Arc<R>> {
        let mut entries = self.entries.iter();
        let at = entries.position(|entry| Arc::ptr_eq(&entry.region, region))?;
        Some(self.take(at))
    }

    /// Nor is any of them.
    #[must_use]
    pub(super) fn drop_all(&mut self) -> Vec<Arc<R>> {
        self.bytes = 0;
        self.entries.drain(..).map(|entry| entry.region).collect()
    }

    fn take(&mut self, at: usize) -> Arc<R> {
        let entry = self.entries.swap_remove(at);
        self.bytes -= entry.range.len();
        entry.region
    }
}

#[cfg(test)]
mod tests {
    use super::{Bounds, Kept, PIECE, Range};
    use crate::verbs::Access::{self, Lends, Takes};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn range(from: usize, len: usize) -> Range {
        Range::new(from, len).unwrap()
    }

    #[test]
    fn one_is_found_for_what_lies_in_it_and_for_that_alone() {
        let mut kept = Kept::new(Bounds {
            count: 4,
            bytes: usize::MAX,
        });
        assert!(kept.keep(range(100, 50), Takes, Arc::new(1)).is_empty());
        let mut of = |from, len, access| kept.find(range(from, len), access).map(|found| *found);
        assert_eq!(of(100, 50, Takes), Some(1));
        assert_eq!(of(149, 1, Takes), Some(1));
        for (from, len) in [(99, 10), (140, 11), (150, 1), (0, usize::MAX)] {
            assert_eq!(of(from, len, Takes), None);
        }
        assert_eq!(of(100, 50, Lends), None);
    }

    #[test]
    fn pieces_are_whole_and_end_with_the_address_space() {
        let wide = range(PIECE + 5, 10).widened().unwrap();
        assert_eq!(wide, range(PIECE, PIECE));
        let wide = range(2 * PIECE - 1, 2).widened().unwrap();
        assert_eq!(wide, range(PIECE, 2 * PIECE));
        assert_eq!(Range::new(usize::MAX - 5, 6), None);
        assert_eq!(range(usize::MAX - 5, 5).widened(), None);
    }

    #[test]
    fn what_failed_is_not_found_again() {
        let mut kept = Kept::new(Bounds {
            count: 4,
            bytes: 1000,
        });
        let (one, two) = (Arc::new(1), Arc::new(2));
        assert!(kept.keep(range(0, 10), Takes, Arc::clone(&one)).is_empty());
        assert!(kept.keep(range(10, 10), Takes, Arc::clone(&two)).is_empty());
        assert_eq!(kept.drop_one(&one), Some(Arc::clone(&one)));
        assert_eq!(kept.drop_one(&one), None);
        assert_eq!(kept.find(range(0, 10), Takes), None);
        assert_eq!(kept.drop_all(), [two]);
        assert_eq!((kept.bytes, kept.entries.len()), (0, 0));
    }

    proptest! {
        /// As a list of those that are kept, in the order of their last use.
        #[test]
        fn the_one_that_was_not_used_for_the_longest_goes_first(
            steps in prop::collection::vec((any::<bool>(), 0..40usize, 1..30usize, any::<bool>()), 1..200)
        ) {
            let (count, bytes) = (5, 60);
            let mut kept = Kept::new(Bounds { count, bytes });
            let mut model: Vec<(Range, Access, usize)> = Vec::new();
            for (number, (keeps, from, len, lends)) in steps.into_iter().enumerate() {
                let (range, access) = (range(from, len), if lends { Lends } else { Takes });
                if keeps {
                    let gone = kept.keep(range, access, Arc::new(number));
                    model.push((range, access, number));
                    let mut expected = Vec::new();
                    while model.len() > count
                        || model.iter().map(|(range, ..)| range.len()).sum::<usize>() > bytes
                    {
                        expected.push(model.remove(0).2);
                    }
                    prop_assert_eq!(gone.into_iter().map(|r| *r).collect::<Vec<_>>(), expected);
                } else {
                    let found = kept.find(range, access).map(|found| *found);
                    let at = found.and_then(|n| model.iter().position(|(.., m)| *m == n));
                    let fits = |(r, a, _): &(Range, Access, usize)| *a == access && r.has(range);
                    prop_assert_eq!(found.is_some(), model.iter().any(fits));
                    if let Some(at) = at {
                        prop_assert!(fits(&model[at]));
                        let used = model.remove(at);
                        model.push(used);
                    }
                    prop_assert_eq!(found.is_some(), at.is_some());
                }
            }
        }
    }
}
