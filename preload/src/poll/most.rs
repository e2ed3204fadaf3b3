//! How many entries poll(2) takes: no more than the process may have descriptors (RLIMIT_NOFILE), also of those that are nothing.
//!
//! The limit is remembered, as a poll that finds something asks the kernel nothing. Called by `poll` and, where the program
//! sets the limit, by its hooks.

use crate::signals;
use std::sync::atomic::{AtomicU64, Ordering};
use transport::sys::mem::rlimit;

/// The limit as it was last asked for, and above it how often the program has set one: an answer that has crossed that is not kept.
static KNOWN: AtomicU64 = AtomicU64::new(0);

/// Limits beyond are as good as none here.
const LIMIT: u64 = u32::MAX as u64;

/// Whether the kernel refuses so many.
#[inline]
pub(super) fn is_too_many(n: usize) -> bool {
    n as u64 > KNOWN.load(Ordering::Acquire) & LIMIT && ask(n)
}

/// Asks the kernel, unless that may be forbidden: then what is known holds, if anything is.
#[cold]
fn ask(n: usize) -> bool {
    let before = KNOWN.load(Ordering::Acquire);
    if signals::is_sandboxed() {
        return before & LIMIT != 0;
    }
    let Some((soft, _)) = rlimit(libc::RLIMIT_NOFILE) else {
        return false;
    };
    let now = before & !LIMIT | soft.min(LIMIT);
    let (done, lost) = (Ordering::AcqRel, Ordering::Relaxed);
    let _ = KNOWN.compare_exchange(before, now, done, lost);
    n as u64 > soft
}

/// The program has set a limit of descriptors. (Asked for at once: it may be about to forbid itself to ask.)
pub(crate) fn limited() {
    let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
    let next = |known: u64| Some((known & !LIMIT).wrapping_add(LIMIT + 1));
    let _ = KNOWN.fetch_update(done, seen, next);
    ask(0);
}
