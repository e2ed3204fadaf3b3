//! Shared memory that has gone, and whose addresses stay valid for a while: empty memory is there for threads that were on their
//! way to look when a connection ended under them.
//!
//! Two rules. The oldest are unmapped, but some stay in any case, and many as long as they are small: that is for looks that take
//! a moment. Who goes through many connections says so ([`look`]): what is retired meanwhile stays until it has done, however long
//! its thread is kept from its core.

use crate::syscall;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// As pages of base and length. Each has its place by its number.
static RETIRED: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];
static NEXT: AtomicUsize = AtomicUsize::new(0);
static OLDEST: AtomicUsize = AtomicUsize::new(0);
static PAGES: AtomicU64 = AtomicU64::new(0);
/// How many stay, and how many pages of address space more may: that counts where it is limited (RLIMIT_AS).
pub(super) const STAY: usize = 64;
const STAY_PAGES: u64 = (64 * 1024 * 1024) >> PAGE_BITS;
/// Bits of a retired entry for the length, in pages.
const LEN_BITS: u32 = 28;
const PAGE_BITS: u32 = 12;

/// From which number on a look may come upon what was retired. One that finds no place is not noted.
static LOOKS: [AtomicUsize; 16] = [const { AtomicUsize::new(NONE) }; 16];
const NONE: usize = usize::MAX;

/// Ranges for which there was no place while somebody looked. They stay for good: so many at most.
static LEAKED: AtomicUsize = AtomicUsize::new(0);
const LEAKED_MOST: usize = 8192;

/// A look at many; as long as this lives.
#[derive(Debug)]
pub struct Look(Option<&'static AtomicUsize>);

/// Begins one.
#[must_use]
pub fn look() -> Look {
    let from = NEXT.load(Ordering::SeqCst);
    let (yes, no) = (Ordering::SeqCst, Ordering::Relaxed);
    let free = |place: &&AtomicUsize| place.compare_exchange(NONE, from, yes, no).is_ok();
    let place = LOOKS.iter().find(free);
    fence(Ordering::SeqCst); // (before it takes an address from where whoever retires that has taken it)
    Look(place)
}

impl Drop for Look {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(NONE, Ordering::Release);
        }
    }
}

/// In a child after fork: who looked are its parent's threads.
pub fn in_child() {
    for place in &LOOKS {
        place.store(NONE, Ordering::Relaxed);
    }
    super::kept::in_child();
}

/// Whether somebody has looked since before this was retired.
pub(super) fn is_looked_at(number: usize) -> bool {
    fence(Ordering::SeqCst);
    let since = |place: &AtomicUsize| {
        let from = place.load(Ordering::SeqCst);
        from != NONE && number.wrapping_sub(from) <= NONE >> 1
    };
    LOOKS.iter().any(since)
}

/// Gives memory back that was leaked, but keeps its addresses valid for a while.
///
/// # Safety
/// The whole of a mapping, that nobody uses any more but threads that were on their way to look.
pub unsafe fn retire_at(base: NonNull<u8>, len: usize) {
    retire(base, len);
}

/// Gives the memory back, but keeps the addresses valid for a while.
pub(super) fn retire(base: NonNull<u8>, len: usize) {
    let flags = libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let lay = |kind| {
        // SAFETY: the range is a mapping whose owner is going away; it stays mapped.
        unsafe { syscall!(mmap, base.as_ptr(), len, prot, flags | kind, -1i32, 0) }
    };
    // (what is private may count as data of the program's, RLIMIT_DATA, and there be no room for it)
    let kept = lay(libc::MAP_PRIVATE).or_else(|_| lay(libc::MAP_SHARED));
    let pages = len.div_ceil(1 << PAGE_BITS) as u64;
    if kept.is_err() || pages >> LEN_BITS != 0 {
        // SAFETY: as above.
        let _ = unsafe { syscall!(munmap, base.as_ptr(), len) };
        return;
    }
    let word = (base.addr().get() as u64 >> PAGE_BITS) << LEN_BITS | pages;
    PAGES.fetch_add(pages, Ordering::Relaxed);
    enlist(word);
}

/// The number of what goes and is kept elsewhere ([`super::kept`]): it has a place here that is empty.
pub(super) fn number() -> usize {
    enlist(0)
}

/// Gives this a place, and unmaps what is too old by then. Its number.
fn enlist(word: u64) -> usize {
    let at = NEXT.fetch_add(1, Ordering::AcqRel);
    exchange(at, word, at.wrapping_sub(RETIRED.len()));
    loop {
        let oldest = OLDEST.load(Ordering::Acquire);
        let n = NEXT.load(Ordering::Acquire).wrapping_sub(oldest);
        let large = PAGES.load(Ordering::Relaxed) > STAY_PAGES;
        // (some places are left free: the next ones are stored before the oldest are taken out)
        if n <= STAY || n + STAY <= RETIRED.len() && (!large || is_looked_at(oldest)) {
            return at;
        }
        let next = oldest.wrapping_add(1);
        let (yes, no) = (Ordering::AcqRel, Ordering::Relaxed);
        if OLDEST.compare_exchange(oldest, next, yes, no).is_ok() {
            exchange(oldest, 0, oldest);
        }
    }
}

/// Puts an entry in its place, and unmaps what was there, which had that number.
fn exchange(at: usize, word: u64, number: usize) {
    let slot = RETIRED.get(at % RETIRED.len());
    let old = slot.map_or(0, |slot| slot.swap(word, Ordering::AcqRel));
    if old == 0 {
        return;
    }
    let (at, pages) = (old >> LEN_BITS, old & ((1 << LEN_BITS) - 1));
    PAGES.fetch_sub(pages, Ordering::Relaxed);
    if is_looked_at(number) && LEAKED.fetch_add(1, Ordering::Relaxed) < LEAKED_MOST {
        return;
    }
    // SAFETY: a range that was retired, by whoever took it out of the list alone.
    let _ = unsafe { syscall!(munmap, at << PAGE_BITS, pages << PAGE_BITS) };
}

#[cfg(test)]
mod tests {
    use super::{RETIRED, STAY_PAGES, look};
    use crate::sys::mem::{Mapping, memory_file};

    /// One after the other: they share the list.
    #[test]
    fn what_was_retired_can_be_read() {
        let file = memory_file(c"retired", 4096).unwrap();
        let gone = || {
            let mapping = Mapping::shared(&file, 0, 4096).unwrap();
            mapping.base().as_ptr()
        };
        for _ in 0..RETIRED.len() + 500 {
            // SAFETY: what this test is about: empty memory is there.
            assert_eq!(unsafe { gone().read_volatile() }, 0);
        }
        let held = look();
        let first = gone();
        for _ in 0..RETIRED.len() + 500 {
            gone();
        }
        let large = Mapping::shared(&file, 0, (STAY_PAGES as usize + 1) << 12).unwrap();
        drop(large);
        for _ in 0..100 {
            gone();
        }
        // SAFETY: as above.
        assert_eq!(unsafe { first.read_volatile() }, 0);
        drop(held);
    }
}
