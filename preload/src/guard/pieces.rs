//! Which pages are protected, and on behalf of which bytes in which pipe. Pure bookkeeping: no system
//! call, no allocation (it is worked on in handlers).
//!
//! A piece is a run of whole pages that stands in a pipe. Pieces may overlap, when a buffer is sent twice:
//! a page is protected as long as some piece covers it. Lifting takes pages away from all of them at once.

use std::ops::Range;

/// Pages from `start` to `end`, whose first byte is byte `at` of all that went into `lane`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) lane: usize,
    pub(super) at: u64,
}

impl Piece {
    const NONE: Self = Self {
        start: 0,
        end: 0,
        lane: 0,
        at: 0,
    };

    const fn overlaps(&self, range: &Range<usize>) -> bool {
        let empty = range.start >= range.end;
        !empty && self.start < range.end && range.start < self.end
    }

    /// The part from this address on.
    const fn from(self, start: usize) -> Self {
        Self {
            start,
            at: self.at + (start - self.start) as u64,
            ..self
        }
    }
}

const MOST: usize = 64;

#[derive(Debug)]
pub(super) struct Pieces {
    all: [Piece; MOST],
    count: usize,
}

impl Pieces {
    pub(super) const fn new() -> Self {
        Self {
            all: [Piece::NONE; MOST],
            count: 0,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Half of the room is kept for pieces that are cut in two.
    pub(super) const fn has_room(&self) -> bool {
        self.count < MOST / 2
    }

    pub(super) fn all(&self) -> &[Piece] {
        self.all.get(..self.count).unwrap_or(&[])
    }

    /// False if there is no room.
    pub(super) fn add(&mut self, piece: Piece) -> bool {
        let Some(slot) = self.all.get_mut(self.count) else {
            return false;
        };
        *slot = piece;
        self.count += 1;
        true
    }

    fn take(&mut self, i: usize) {
        self.count -= 1;
        if let Some(&last) = self.all.get(self.count)
            && let Some(slot) = self.all.get_mut(i)
        {
            *slot = last;
        }
    }

    /// The first run of protected pages in the range.
    pub(super) fn next_run(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let hits = || self.all().iter().filter(|p| p.overlaps(range));
        let start = hits().map(|p| p.start.max(range.start)).min()?;
        let mut end = start;
        while let Some(further) = hits()
            .filter(|p| p.start <= end && end < p.end)
            .map(|p| p.end)
            .max()
        {
            end = further;
        }
        Some(start..end.min(range.end))
    }

    /// The first run of pages in the range that nothing covers.
    pub(super) fn next_gap(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let mut start = range.start;
        while let Some(run) = self.next_run(&(start..range.end)) {
            if run.start > start {
                return Some(start..run.start);
            }
            start = run.end;
        }
        (start < range.end).then_some(start..range.end)
    }

    /// The range with all pieces that adjoin it, and those that adjoin these.
    pub(super) fn around(&self, mut range: Range<usize>) -> Range<usize> {
        while let Some(p) = self.all().iter().find(|p| {
            let touches = p.start <= range.end && range.start <= p.end;
            touches && (p.start < range.start || range.end < p.end)
        }) {
            range = range.start.min(p.start)..range.end.max(p.end);
        }
        range
    }

    /// The range, or a larger one where there is no room to cut pieces in two at its ends.
    pub(super) fn widened(&self, range: Range<usize>) -> Range<usize> {
        let cut = |p: &&Piece| p.start < range.start && range.end < p.end;
        let splits = self.all().iter().filter(cut).count();
        if self.count + splits <= MOST {
            return range;
        }
        let hits = || self.all().iter().filter(|p| p.overlaps(&range));
        let start = hits().map(|p| p.start).min().unwrap_or(range.start);
        let end = hits().map(|p| p.end).max().unwrap_or(range.end);
        start.min(range.start)..end.max(range.end)
    }

    /// These pages are protected for nobody any more. The range has been [`widened`](Self::widened).
    pub(super) fn subtract(&mut self, range: &Range<usize>) {
        let mut i = 0;
        while let Some(p) = self.all().get(i).copied() {
            if !p.overlaps(range) {
                i += 1;
                continue;
            }
            self.take(i);
            if range.end < p.end {
                self.add(p.from(range.end));
            }
            if p.start < range.start {
                self.add(Piece {
                    end: range.start,
                    ..p
                });
            }
            // (what is left overlaps nothing, wherever it stands now)
        }
    }

    /// Takes out what has been read of a lane, of which `read` bytes have: the next run of pages that was
    /// done, which other pieces may still cover. With `whole` only pieces that are done altogether.
    pub(super) fn take_read(
        &mut self,
        lane: usize,
        read: u64,
        whole: bool,
    ) -> Option<Range<usize>> {
        const STEP: u64 = !(super::PAGE as u64 - 1);
        for i in 0..self.count {
            let p = self.all.get(i).copied().filter(|p| p.lane == lane);
            let Some(p) = p else { continue };
            let len = (p.end - p.start) as u64;
            let done = read.saturating_sub(p.at).min(len);
            if done == len {
                self.take(i);
                return Some(p.start..p.end);
            }
            let pages = usize::try_from(done & STEP).unwrap_or(0);
            if pages > 0 && !whole {
                if let Some(slot) = self.all.get_mut(i) {
                    *slot = p.from(p.start + pages);
                }
                return Some(p.start..p.start + pages);
            }
        }
        None
    }

    /// The pieces that lie in the range altogether are gone with their memory.
    pub(super) fn forget(&mut self, range: &Range<usize>) {
        let mut i = 0;
        while let Some(p) = self.all().get(i) {
            if range.start <= p.start && p.end <= range.end {
                self.take(i);
            } else {
                i += 1;
            }
        }
    }
}
