//! Takes the protection away: because the pages have been read, or because the program is about to write
//! to them before that. Two ways for the latter: *copy* gives the program new frames with the same contents,
//! the old ones stay in the pipe; *wait* lets the reader take them first, and copies if it does not.
//!
//! Everything here runs in the only thread of the process, in a critical section, and allocates nothing.

use super::{PAGE, State};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::ptr::{copy_nonoverlapping, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicU8, Ordering};
use transport::direct::policy::Touch;
use transport::sys::{Result, time};
use transport::{clock, syscall};

static TOUCH: AtomicU8 = AtomicU8::new(Touch::Measured as u8);

/// Of a reader that does not read, or is dead, or has been stopped.
const LONGEST_WAIT_US: u64 = 100_000;

/// How much a first write lifts, and how much a row of them at most.
const STEP: usize = 16 * PAGE;
const MOST: usize = 128 * PAGE;

/// Chooses; `Measured` is what serves, the others are for measurements and for who knows better.
pub(crate) fn set_touch(touch: Touch) {
    TOUCH.store(touch as u8, Ordering::Relaxed);
}

/// What copying costs here, and where the program last wrote.
#[derive(Debug)]
pub(super) struct Cost {
    /// Ticks for a page, a moving average.
    page: u64,
    /// Where the range ended that was lifted last, and how large it was.
    last: usize,
    size: usize,
}

impl Cost {
    pub(super) const fn new() -> Self {
        Self {
            page: 2000,
            last: 0,
            size: STEP,
        }
    }

    fn note(&mut self, ticks: u64, pages: usize) {
        let page = ticks / (pages as u64).max(1);
        // (one that was preempted says nothing)
        self.page = (self.page * 7 + page.min(self.page * 4)) / 8;
    }

    /// What to lift for a write here: more each time, where the program writes on and on.
    fn range(&mut self, at: usize) -> Range<usize> {
        let page = at & !(PAGE - 1);
        self.size = if page == self.last {
            (self.size * 2).min(MOST)
        } else {
            STEP
        };
        page..page.saturating_add(self.size)
    }
}

/// A copy of what is being replaced.
#[repr(align(64))]
struct Scratch(UnsafeCell<[u8; STEP]>);

// SAFETY: used by the only thread there is, in a critical section.
unsafe impl Sync for Scratch {}

static SCRATCH: Scratch = Scratch(UnsafeCell::new([0; STEP]));

fn set(range: &Range<usize>, protection: i32) -> Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    // SAFETY: pages of the program whose protection was read and write, and will be again.
    unsafe { syscall!(mprotect, range.start, range.len(), protection) }.map(drop)
}

/// Keeps writes off.
pub(super) fn protect(range: &Range<usize>) -> Result<()> {
    set(range, libc::PROT_READ)
}

fn open(range: &Range<usize>) -> Result<()> {
    set(range, libc::PROT_READ | libc::PROT_WRITE)
}

/// Frames of the program's own for these pages, contents as they are. Those that were there stay in the
/// pipe, unchanged and unreachable. False if the kernel would not.
fn renew(range: &Range<usize>) -> bool {
    // (4: MADV_DONTNEED; 24: for locked pages too, where the kernel knows it)
    const ADVICE: [i32; 2] = [24, libc::MADV_DONTNEED];
    let scratch: *mut u8 = SCRATCH.0.get().cast();
    let mut at = range.start;
    while at < range.end {
        let len = STEP.min(range.end - at);
        let page: *mut u8 = with_exposed_provenance_mut(at);
        // SAFETY: the program's private memory, readable and writable by now, which nobody looks at
        // between the two copies: there is one thread, and its handlers are put off.
        let renewed = unsafe {
            copy_nonoverlapping(page, scratch, len);
            let mut advice = ADVICE.iter();
            let renewed = advice.any(|a| syscall!(madvise, at, len, *a).is_ok());
            if renewed {
                // All at once: half the price of a fault for each page. (An older kernel does without.)
                let _ = syscall!(madvise, at, len, libc::MADV_POPULATE_WRITE);
                copy_nonoverlapping(scratch, page, len);
            }
            renewed
        };
        if !renewed {
            return false;
        }
        at += len;
    }
    true
}

impl State {
    /// Takes away the protection of pages that no piece covers.
    pub(super) fn unprotect(&mut self, range: &Range<usize>) {
        let mut at = range.start;
        while let Some(gap) = self.pieces.next_gap(&(at..range.end)) {
            at = gap.end;
            // (where two neighbours can no longer be told apart this takes nothing)
            if open(&gap).is_err() {
                self.lift_around(&gap);
            }
        }
    }

    /// Lifts this and all that it adjoins: where a mapping would have to be cut in two for a part of it, and there are too
    /// many (vm.max_map_count), the kernel changes the whole only. Nothing would ever open what stayed protected unknown.
    #[cold]
    fn lift_around(&mut self, range: &Range<usize>) {
        let all = self.pieces.around(range.clone());
        let opened = open(&all).is_ok();
        if !(opened && renew(&all)) {
            // Not for memory as it was admitted. What is left: the reader takes it first.
            self.wait(&all, u64::MAX);
            let _ = open(&all);
        }
        self.pieces.subtract(&all);
    }

    /// Gives back what has been read; with `whole` only where all of a piece has.
    pub(super) fn give_back(&mut self, whole: bool) {
        let mut lanes = 0u64;
        for p in self.pieces.all() {
            lanes |= 1 << p.lane;
        }
        while lanes != 0 {
            let lane = lanes.trailing_zeros() as usize;
            lanes &= lanes - 1;
            let read = self.lanes.read(lane);
            while let Some(range) = self.pieces.take_read(lane, read, whole) {
                self.unprotect(&range);
            }
        }
    }

    /// Nothing in the range is protected afterwards: copies what has not been read.
    pub(super) fn lift(&mut self, range: Range<usize>) {
        let range = self.pieces.widened(range);
        let mut at = range.start;
        while let Some(run) = self.pieces.next_run(&(at..range.end)) {
            at = run.end;
            let before = clock::ticks();
            if !(open(&run).is_ok() && renew(&run)) {
                self.lift_around(&run);
            }
            self.cost.note(clock::ticks() - before, run.len() / PAGE);
        }
        self.pieces.subtract(&range);
    }

    /// Nothing is protected afterwards.
    pub(super) fn lift_all(&mut self) {
        let all = || self.pieces.all().iter();
        if let Some(start) = all().map(|p| p.start).min() {
            self.lifted = start..all().map(|p| p.end).max().unwrap_or(start);
        }
        self.give_back(false);
        self.lift(0..usize::MAX & !(PAGE - 1));
    }

    /// Whether something of this range is still protected for somebody who has not read it, after having
    /// waited for so many microseconds at most.
    fn wait(&mut self, range: &Range<usize>, ticks: u64) -> bool {
        let limit = ticks.min(clock::us(LONGEST_WAIT_US));
        let start = clock::ticks();
        let mut turns = 0u32;
        loop {
            self.give_back(false);
            if self.pieces.next_run(range).is_none() {
                return false;
            }
            if clock::ticks().saturating_sub(start) >= limit {
                return true;
            }
            turns += 1;
            match turns {
                0..20 => (0..50).for_each(|_| std::hint::spin_loop()),
                20..200 => transport::sys::yield_core(),
                // (cut short by nothing: handlers are put off)
                _ => drop(time::nap(50)),
            }
        }
    }

    /// Nothing in the range is protected afterwards: its readers are waited for as long as a copy takes.
    pub(super) fn finish(&mut self, range: &Range<usize>) {
        let limit = self.cost.page * (range.len() / PAGE) as u64;
        if self.wait(range, limit) {
            self.lift(range.clone());
        }
    }

    /// The program writes to a page here. False if that is not because of us.
    pub(super) fn touched(&mut self, at: usize) -> bool {
        let page = at & !(PAGE - 1);
        if self.pieces.next_run(&(page..page + PAGE)).is_none() {
            return false;
        }
        self.give_back(false);
        let range = self.cost.range(at);
        if let Some(run) = self.pieces.next_run(&range) {
            let limit = match TOUCH.load(Ordering::Relaxed) {
                t if t == Touch::Copy as u8 => 0,
                t if t == Touch::Wait as u8 => u64::MAX,
                _ => self.cost.page * (run.len() / PAGE) as u64,
            };
            if limit == 0 || self.wait(&range, limit) {
                self.lift(range.clone());
            }
        }
        self.cost.last = range.end;
        true
    }
}
