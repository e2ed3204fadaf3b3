//! Copying bytes of the stream. Called by every transport, to and from the program's memory.
//!
//! The rule: never by an instruction that is slow where both ends lie. libc copies longer runs by `rep movsb`, and on some
//! processors (AMD's, with "fast short" copies) that moves a tenth of the usual where the target lies 1 to 31 bytes further into its page than
//! the source, and half of it up to 63: what it reads looks like what it has just written. Programs meet it often: large memory
//! of malloc begins 16 bytes into a page, and messages of whole pages begin with one in the ring.

use std::hint::black_box;
use std::ptr::copy_nonoverlapping;

const PAGE: usize = 4096;
/// Targets so much further into their page than the source are slow.
const NEAR: usize = 64;
/// libc uses the instruction for no fewer bytes than about this.
const LONG: usize = 2048;
/// Such a run is copied in parts that libc copies by loads and stores.
const PART: usize = 1024;

/// Copies `len` bytes.
///
/// # Safety
/// `from` is readable and `to` writable for as many, and they do not overlap.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if len >= LONG && is_near(from, to) {
        // SAFETY: passed on to the caller.
        unsafe { copy_in_parts(from, to, len) }
    } else {
        // SAFETY: as above.
        unsafe { copy_nonoverlapping(from, to, len) }
    }
}

/// As [`copy`], for what both ends of are the library's own: as much as is in both.
#[inline]
pub fn copy_slice(from: &[u8], to: &mut [u8]) {
    // SAFETY: two slices, of which one is exclusive; as long as the shorter.
    unsafe { copy(from.as_ptr(), to.as_mut_ptr(), from.len().min(to.len())) }
}

#[inline]
fn is_near(from: *const u8, to: *const u8) -> bool {
    let ahead = (to as usize).wrapping_sub(from as usize) % PAGE;
    ahead != 0 && ahead < NEAR
}

/// [`copy`] by loads and stores.
///
/// # Safety
/// As there.
#[inline(never)]
unsafe fn copy_in_parts(mut from: *const u8, mut to: *mut u8, mut len: usize) {
    while len > 0 {
        let n = black_box(PART).min(len); // (a loop that is seen through becomes one copy again)
        // SAFETY: the caller's promise.
        unsafe {
            copy_nonoverlapping(from, to, n);
            (from, to) = (from.add(n), to.add(n));
        }
        len -= n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_is_just_behind_within_a_page() {
        let near = |from: usize, to: usize| is_near(from as *const u8, to as *const u8);
        assert!(near(0x10_0000, 0x20_0010));
        assert!(near(0x10_0ff8, 0x20_0008));
        assert!(!near(0x10_0000, 0x20_0000));
        assert!(!near(0x10_0010, 0x20_0000));
        assert!(!near(0x10_0000, 0x20_0040));
    }

    #[test]
    fn every_length_and_distance_arrives() {
        let from: Vec<u8> = (0..3 * PAGE).map(|i| (i * 7 + i / 251) as u8).collect();
        let mut to = vec![0u8; 3 * PAGE];
        for ahead in [0, 1, 16, 31, 63, 64, 4095] {
            for len in [0, 1, LONG - 1, LONG, LONG + 1, PART * 3 + 5, 2 * PAGE - 1] {
                to.fill(0xee);
                // (so that the distance is what is meant, wherever the two lie)
                let at = (from.as_ptr() as usize + ahead).wrapping_sub(to.as_ptr() as usize) % PAGE;
                let end = at + len;
                copy_slice(&from[..len], &mut to[at..end]);
                assert_eq!(from[..len], to[at..end], "{ahead} {len}");
                assert!(to[..at].iter().chain(&to[end..]).all(|&b| b == 0xee));
            }
        }
    }
}
