//! Where the library's heap has its memory: from the kernel, and once that gives no more (a program that limits its data or
//! its addresses), from a reserve that was there from the beginning. Out of memory Rust's collections end the process,
//! and going back to plain bytes takes memory just when a program with such a limit starts another.
//!
//! Called by `dlmalloc`, under the heap's lock. The rule: a block of the reserve is some run's whose bits are set, or nobody's.

use dlmalloc::Allocator;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use transport::sys::mem::{Mapping, rlimit};
use transport::syscall;

/// What the reserve is handed out in: as `dlmalloc` asks for it.
const BLOCK: usize = 64 * 1024;
const BLOCKS: usize = 64;

/// A limit below which there is none.
const LITTLE: u64 = 256 * 1024 * 1024;

/// Where the reserve is: mapped when the heap first asks for memory, untouched, and so no memory, until it is needed. Null where
/// there is none. (Not a static: without room for that nothing would start under the library.)
static RESERVE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static IS_MAPPED: AtomicBool = AtomicBool::new(false);

/// Which blocks are handed out.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// What `dlmalloc` is told of a segment of the reserve, so that it does not join it with one of the kernel's.
const OF_RESERVE: u32 = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct Kernel;

/// The bits of so many blocks from this one on.
fn run(first: usize, blocks: usize) -> u64 {
    let bits = u64::MAX.checked_shr((BLOCKS.saturating_sub(blocks)) as u32);
    bits.filter(|_| blocks > 0).unwrap_or(0) << first
}

/// Takes blocks for so many bytes from the reserve: where, and how many bytes those are. Under the heap's lock.
fn take(size: usize) -> Option<(*mut u8, usize)> {
    let reserve = RESERVE.load(Ordering::Relaxed);
    if reserve.is_null() {
        return None;
    }
    let blocks = size.div_ceil(BLOCK);
    let taken = TAKEN.load(Ordering::Relaxed);
    let free = |&first: &usize| taken & run(first, blocks) == 0;
    let first = (0..=BLOCKS.checked_sub(blocks)?).find(free)?;
    TAKEN.store(taken | run(first, blocks), Ordering::Relaxed);
    // SAFETY: within the reserve, and nobody else's from here on.
    let at = unsafe { reserve.add(first * BLOCK) };
    // SAFETY: as above. (Fresh memory is zeros: `allocates_zeros`.)
    unsafe { at.write_bytes(0, blocks * BLOCK) };
    Some((at, blocks * BLOCK))
}

/// Which block of the reserve this is, if it is of it.
fn block(at: *mut u8) -> Option<usize> {
    let offset = at
        .addr()
        .checked_sub(RESERVE.load(Ordering::Relaxed).addr())?;
    (offset < BLOCKS * BLOCK).then_some(offset / BLOCK)
}

/// Whether the program is to do with little from the beginning, so that the reserve would take it some.
fn is_limited() -> bool {
    let is_low = |what| rlimit(what).is_some_and(|(soft, _)| soft < LITTLE);
    is_low(libc::RLIMIT_AS) || is_low(libc::RLIMIT_DATA)
}

/// Fresh memory of the kernel's.
fn map(size: usize) -> Option<*mut u8> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping where the kernel wants it.
    let at = unsafe { syscall!(mmap, 0, size, prot, flags, -1i32, 0) }.ok()?;
    Some(std::ptr::with_exposed_provenance_mut(at))
}

fn give_back(first: usize, size: usize) {
    let taken = TAKEN.load(Ordering::Relaxed);
    TAKEN.store(taken & !run(first, size / BLOCK), Ordering::Relaxed);
}

// SAFETY: memory of the kernel's, or of the reserve, given to one caller until it gives it back.
unsafe impl Allocator for Kernel {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        if !IS_MAPPED.swap(true, Ordering::Relaxed)
            && !is_limited()
            && let Ok(m) = Mapping::private(BLOCKS * BLOCK)
        {
            RESERVE.store(m.leak().as_ptr(), Ordering::Relaxed); // (counted: what a program allows itself stays its own)
        }
        let own = map(size).map(|at| (at, size, 0));
        own.or_else(|| take(size).map(|(at, size)| (at, size, OF_RESERVE)))
            .unwrap_or((std::ptr::null_mut(), 0, 0))
    }

    fn remap(&self, at: *mut u8, old: usize, new: usize, can_move: bool) -> *mut u8 {
        if block(at).is_some() {
            return std::ptr::null_mut();
        }
        let flags = if can_move { libc::MREMAP_MAYMOVE } else { 0 };
        // SAFETY: a mapping of `alloc`'s, whose owner asks.
        unsafe { syscall!(mremap, at, old, new, flags) }
            .map_or(std::ptr::null_mut(), std::ptr::with_exposed_provenance_mut)
    }

    fn free_part(&self, at: *mut u8, old: usize, new: usize) -> bool {
        if block(at).is_some() {
            return false;
        }
        // SAFETY: the end of a mapping of `alloc`'s, whose owner has done with it.
        unsafe { syscall!(munmap, at.wrapping_add(new), old - new) }.is_ok()
    }

    fn free(&self, at: *mut u8, size: usize) -> bool {
        if let Some(first) = block(at) {
            give_back(first, size);
            return true;
        }
        // SAFETY: a mapping of `alloc`'s, whose owner has done with it.
        unsafe { syscall!(munmap, at, size) }.is_ok()
    }

    fn can_release_part(&self, flags: u32) -> bool {
        flags & OF_RESERVE == 0
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        4096
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_handed_out_once_and_taken_back() {
        let (heap, len, _) = Kernel.alloc(BLOCK);
        assert!(len == BLOCK && block(heap).is_none());
        let at = |size| take(size).map(|(at, size)| (block(at), size));
        assert_eq!(at(BLOCK + 1), Some((Some(0), 2 * BLOCK)));
        assert_eq!(
            at((BLOCKS - 2) * BLOCK),
            Some((Some(2), (BLOCKS - 2) * BLOCK))
        );
        assert_eq!((at(1), at((BLOCKS + 1) * BLOCK)), (None, None));

        let first = RESERVE.load(Ordering::Relaxed);
        // SAFETY: the first block is this test's.
        unsafe { first.write(7) };
        assert!(Kernel.remap(first, 2 * BLOCK, 3 * BLOCK, true).is_null());
        assert!(Kernel.free(first, 2 * BLOCK));
        assert_eq!(at(3 * BLOCK), None);
        assert_eq!(at(1), Some((Some(0), BLOCK)));
        // SAFETY: as above.
        assert_eq!(unsafe { first.read() }, 0);

        assert!(Kernel.free(first, BLOCK));
        assert!(Kernel.free(first.wrapping_add(2 * BLOCK), (BLOCKS - 2) * BLOCK));
        assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
        assert_eq!(block(first.wrapping_add(BLOCKS * BLOCK)), None);
    }
}
