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

/// Memory, and its number among what has gone.
struct Place {
    at: AtomicPtr<u8>,
    number: AtomicUsize,
}

/// All of it has this length.
static LEN: AtomicUsize = AtomicUsize::new(0);

/// Some places are left free: who has moved an end is not overtaken by the other before he is done with the place.
const SPARE: usize = 16;
const MOST: usize = retired::STAY + SPARE;
static PLACES: [Place; MOST + SPARE] = [const {
    Place {
        at: AtomicPtr::new(ptr::null_mut()),
        number: AtomicUsize::new(0),
    }
}; MOST + SPARE];
static PUT: AtomicUsize = AtomicUsize::new(0);
static TAKEN: AtomicUsize = AtomicUsize::new(0);

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

fn place(number: usize) -> Option<&'static Place> {
    PLACES.get(number % PLACES.len())
}

/// Keeps memory for whoever asks for as much. False: there is no room for it.
///
/// # Safety
/// The whole of a mapping, that nobody uses any more but threads that were on their way to look, and no other process.
pub unsafe fn keep(at: NonNull<u8>, len: usize) -> bool {
    let put = PUT.load(Ordering::Acquire);
    let first = LEN.compare_exchange(0, len, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_err_and(|of| of != len)
        || put.wrapping_sub(TAKEN.load(Ordering::Acquire)) >= MOST
        || mem::is_limited()
    {
        return false;
    }
    let Some(place) = place(put) else {
        return false;
    };
    let (yes, no) = (Ordering::AcqRel, Ordering::Relaxed);
    let next = put.wrapping_add(1);
    if PUT.compare_exchange(put, next, yes, no).is_err() {
        return false;
    }
    place.number.store(retired::number(), Ordering::Relaxed);
    place.at.store(at.as_ptr(), Ordering::Release);
    true
}

/// Memory that was kept, with whatever is in it.
#[must_use]
pub fn take(len: usize) -> Option<NonNull<u8>> {
    let taken = TAKEN.load(Ordering::Acquire);
    let left = PUT.load(Ordering::Acquire).wrapping_sub(taken);
    if left <= retired::STAY || LEN.load(Ordering::Relaxed) != len {
        return None;
    }
    let place = place(taken)?;
    let at = NonNull::new(place.at.load(Ordering::Acquire))?; // (it is just being put there)
    if retired::is_looked_at(place.number.load(Ordering::Relaxed)) {
        return None;
    }
    let (yes, no) = (Ordering::AcqRel, Ordering::Relaxed);
    let next = taken.wrapping_add(1);
    TAKEN.compare_exchange(taken, next, yes, no).ok()?;
    let _ = place
        .at
        .compare_exchange(at.as_ptr(), ptr::null_mut(), yes, no);
    Some(at)
}

/// In a child after fork: it is its parent's.
pub(super) fn in_child() {
    for place in &PLACES {
        let at = place.at.swap(ptr::null_mut(), Ordering::Relaxed);
        if !at.is_null() {
            // SAFETY: the child's own mapping of it, of which there is one; its parent's thread is not here.
            let _ = unsafe { syscall!(munmap, at, LEN.load(Ordering::Relaxed)) };
        }
    }
    let put = PUT.load(Ordering::Relaxed);
    TAKEN.store(put, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::{MOST, keep, take};
    use crate::sys::mem::Mapping;
    use crate::sys::retired::{self, STAY};

    #[test]
    fn what_was_kept_comes_back_late_and_unseen() {
        const LEN: usize = 4096;
        let fresh = || Mapping::family(LEN).unwrap().leak();
        // SAFETY: nobody else has them.
        let keep = |at| unsafe { keep(at, LEN) };
        let first = fresh();
        assert!(keep(first));
        assert_eq!(take(LEN), None);
        for _ in 1..STAY {
            assert!(keep(fresh()));
        }
        assert_eq!(take(LEN), None);
        assert!(keep(fresh()));
        assert_eq!(take(2 * LEN), None);
        assert_eq!(take(LEN), Some(first));
        assert_eq!(take(LEN), None);
        // Who looks keeps it, and who has begun to look after it went does not.
        let look = retired::look();
        for _ in STAY..MOST {
            assert!(keep(fresh()));
        }
        assert!(!keep(first));
        assert!(take(LEN).is_some());
        assert!(keep(first));
        drop(look);
        let mut n = 0;
        while take(LEN).is_some() {
            n += 1;
        }
        assert_eq!(n, MOST - STAY);
    }
}
