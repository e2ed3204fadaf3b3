//! Memory of connections that have gone, kept for those that come: to map it, touch its pages for the first time and give it back
//! takes a third of the time of a connection that carries one message each way.
//!
//! Rules:
//! - Threads that were on their way to look find what was there, until it is used again: not before as many have gone after it as
//!   stay in [`retired`], and never while somebody looks who began before it went.
//! - Children of fork have the same memory. So what was there at a fork is not kept ([`age`]), and a child forgets what lies here.
//! - Where the program's address space is limited nothing is kept.
//!
//! First in, first out: a ring of places. Whoever moves an end has the place that it passes.

use super::{mem, retired};
use crate::syscall;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Some places are left free: who has moved an end is not overtaken by the other before he is done with the place.
const SPARE: usize = 16;
const MOST: usize = retired::STAY + SPARE;

/// Memory, and its number among what has gone.
struct Place {
    at: AtomicPtr<u8>,
    number: AtomicUsize,
}

struct Shelf {
    places: [Place; MOST + SPARE],
    put: AtomicUsize,
    taken: AtomicUsize,
    /// All of it has this length.
    len: AtomicUsize,
}

static SHELF: Shelf = Shelf::new();

static AGE: AtomicUsize = AtomicUsize::new(0);

/// Changes with each fork. Memory is kept if it was mapped at the same age.
#[must_use]
pub fn age() -> usize {
    AGE.load(Ordering::Relaxed)
}

/// The process is about to fork. Nobody maps such memory meanwhile.
pub fn before_fork() {
    AGE.fetch_add(1, Ordering::Relaxed);
}

/// Keeps memory for whoever asks for as much. False: there is no room for it.
///
/// # Safety
/// The whole of a mapping, that nobody uses any more but threads that were on their way to look, and no other process.
pub unsafe fn keep(at: NonNull<u8>, len: usize) -> bool {
    !mem::is_limited() && SHELF.keep(at, len, retired::number)
}

/// Memory that was kept, with whatever is in it.
#[must_use]
pub fn take(len: usize) -> Option<NonNull<u8>> {
    SHELF.take(len, retired::is_looked_at)
}

/// In a child after fork: it is its parent's.
pub(super) fn in_child() {
    SHELF.forget();
}

impl Shelf {
    const fn new() -> Self {
        Self {
            places: [const {
                Place {
                    at: AtomicPtr::new(ptr::null_mut()),
                    number: AtomicUsize::new(0),
                }
            }; MOST + SPARE],
            put: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
        }
    }

    fn place(&self, number: usize) -> Option<&Place> {
        self.places.get(number % self.places.len())
    }

    fn keep(&self, at: NonNull<u8>, len: usize, number: impl FnOnce() -> usize) -> bool {
        let (yes, no) = (Ordering::AcqRel, Ordering::Relaxed);
        let put = self.put.load(Ordering::Acquire);
        let first = self.len.compare_exchange(0, len, no, no);
        if first.is_err_and(|of| of != len)
            || put.wrapping_sub(self.taken.load(Ordering::Acquire)) >= MOST
        {
            return false;
        }
        let Some(place) = self.place(put) else {
            return false;
        };
        let next = put.wrapping_add(1);
        if self.put.compare_exchange(put, next, yes, no).is_err() {
            return false;
        }
        place.number.store(number(), Ordering::Relaxed);
        place.at.store(at.as_ptr(), Ordering::Release);
        true
    }

    fn take(&self, len: usize, is_looked_at: impl FnOnce(usize) -> bool) -> Option<NonNull<u8>> {
        let (yes, no) = (Ordering::AcqRel, Ordering::Relaxed);
        let taken = self.taken.load(Ordering::Acquire);
        let left = self.put.load(Ordering::Acquire).wrapping_sub(taken);
        if left <= retired::STAY || self.len.load(Ordering::Relaxed) != len {
            return None;
        }
        let place = self.place(taken)?;
        let at = NonNull::new(place.at.load(Ordering::Acquire))?; // (it is just being put there)
        if is_looked_at(place.number.load(Ordering::Relaxed)) {
            return None;
        }
        let next = taken.wrapping_add(1);
        self.taken.compare_exchange(taken, next, yes, no).ok()?;
        let none = ptr::null_mut();
        let _ = place.at.compare_exchange(at.as_ptr(), none, yes, no);
        Some(at)
    }

    fn forget(&self) {
        for place in &self.places {
            let at = place.at.swap(ptr::null_mut(), Ordering::Relaxed);
            if !at.is_null() {
                // SAFETY: the child's own mapping of it, of which there is one; its parent's thread is not here.
                let _ = unsafe { syscall!(munmap, at, self.len.load(Ordering::Relaxed)) };
            }
        }
        let put = self.put.load(Ordering::Relaxed);
        self.taken.store(put, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Shelf};
    use crate::sys::retired::STAY;
    use std::ptr::NonNull;

    #[test]
    fn what_was_kept_comes_back_late_and_unseen() {
        const LEN: usize = 4096;
        let shelf = Shelf::new();
        // (nothing is done to what lies there)
        let memory = |n: usize| NonNull::new(std::ptr::without_provenance_mut(n * LEN)).unwrap();
        let keep = |n: usize| shelf.keep(memory(n), LEN, || n);
        let take = |looks_from: usize| shelf.take(LEN, |number| number >= looks_from);
        for n in 1..=STAY {
            assert!(keep(n));
            assert_eq!(take(usize::MAX), None);
        }
        assert!(keep(STAY + 1));
        assert!(!shelf.keep(memory(999), 2 * LEN, || 999));
        assert_eq!(shelf.take(2 * LEN, |_| false), None);
        assert_eq!(take(1), None);
        assert_eq!(take(2), Some(memory(1)));
        assert_eq!(take(usize::MAX), None);
        // Once there is no more room, and again when some has been taken.
        let mut next = STAY + 2;
        while keep(next) {
            next += 1;
        }
        assert_eq!(next, MOST + 2);
        for first in 2..1000 {
            assert_eq!(take(usize::MAX), Some(memory(first)));
            assert!(keep(next));
            assert!(!keep(next + 1));
            next += 1;
        }
    }
}
