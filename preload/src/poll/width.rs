//! How many bits of select's sets count.
//!
//! The kernel looks at no more of them than its table of descriptors has places, and programs rely on it: they name
//! getdtablesize(), which may be a million, and have sets of 1024 bits. The library's own descriptors have high numbers, so
//! the table is larger than it would be without them, and what lies behind such a set would be read as descriptors, and be
//! written to. Called by the hooks of select and pselect, and told of high numbers by those that make and close them.

use crate::probe::{Access, is_good};
use crate::{signals, table};
use std::sync::atomic::{AtomicI32, Ordering};
use transport::syscall;

/// Bits that each set has.
const USUAL: i32 = 1024;
const WORD: i32 = 64;
/// Numbers that are looked for: as many as the library follows.
const MOST: i32 = 1 << 20;

/// Places that the kernel's table has got for numbers of the program's beyond the usual that are closed by now, as far as is known:
/// it never becomes smaller, and names what is closed in it as such.
static PLACES: AtomicI32 = AtomicI32::new(USUAL);

/// The program has, or has just closed, this number.
#[inline]
pub(crate) fn had(fd: i32) {
    if fd >= USUAL {
        PLACES.fetch_max(places(fd), Ordering::Relaxed);
    }
}

/// A child's table is as large as what is open in it needs.
pub(crate) fn forked() {
    PLACES.store(USUAL, Ordering::Relaxed);
}

/// The kernel's table grows by doubling.
fn places(fd: i32) -> i32 {
    (fd.min(MOST - 1) + 1)
        .cast_unsigned()
        .next_power_of_two()
        .cast_signed()
}

/// What `n` is to be for these sets: what reaches beyond the usual size counts only as far as it would without the library's
/// descriptors.
#[inline]
pub(crate) fn width(n: i32, sets: [*mut libc::fd_set; 3]) -> i32 {
    if n <= USUAL { n } else { wide(n, sets) }
}

#[cold]
fn wide(n: i32, sets: [*mut libc::fd_set; 3]) -> i32 {
    if signals::is_sandboxed() {
        return n; // (all is the kernel's there, and nothing may be asked)
    }
    let last = n.saturating_sub(1).min(MOST - 1) / WORD;
    // (a program with so many descriptors mostly names the highest, which is the first that is looked at)
    let highest = (USUAL / WORD..=last).rev().find_map(|word| {
        let bits = sets.iter().fold(0, |all, set| all | read(*set, word));
        (0..WORD)
            .rev()
            .filter(|bit| bits >> bit & 1 == 1)
            .map(|bit| word * WORD + bit)
            .find(|&fd| fd < n && is_of_the_program(fd))
    });
    n.min(
        highest
            .map_or(USUAL, places)
            .max(PLACES.load(Ordering::Relaxed)),
    )
}

fn read(set: *mut libc::fd_set, word: i32) -> u64 {
    let at = set
        .cast::<u64>()
        .wrapping_add(word.cast_unsigned() as usize);
    if set.is_null() || !is_good(at.cast(), 8, Access::Read) {
        return 0;
    }
    // SAFETY: probed.
    unsafe { at.read_unaligned() }
}

fn is_of_the_program(fd: i32) -> bool {
    // SAFETY: it only asks.
    !table::is_hidden(fd) && unsafe { syscall!(fcntl, fd, libc::F_GETFD) }.is_ok()
}
