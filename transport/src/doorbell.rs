//! The doorbell's promise: whoever goes to sleep on a direction is woken if anything was published
//! before or after it decided to, and nobody is rung who is awake.
//!
//! Two words decide: one that the publisher changes (bytes produced, bytes consumed) and `armed`,
//! which the sleeper sets. Each side writes its word, fences, then reads the other's; so at least one
//! of them sees the other (the store-buffer pattern; model checked in `tests/loom.rs`). What the ring
//! itself is — a byte on the kernel connection — is the caller's.

use crate::sync::{AtomicU32, Ordering, fence};

/// The sleeper waits for bytes.
pub const DATA: u32 = 1;
/// The sleeper waits for room.
pub const SPACE: u32 = 2;
/// The sleeper waits for the reader of a buffer that it has advertised.
pub const TAKEN: u32 = 4;

/// Sleeper: announces that it wants to be rung for `what`. It must look at the published word again
/// after this and before it sleeps.
#[inline]
pub fn arm(armed: &AtomicU32, what: u32) {
    if wish(armed, what) {
        fence(Ordering::SeqCst);
    }
}

/// Sleeper: states a wish without a barrier. True if it is new: then a barrier
/// ([`crate::sys::barrier::heavy`]) has to come before the look that decides about sleeping. Several
/// wishes can share one.
#[inline]
pub fn wish(armed: &AtomicU32, what: u32) -> bool {
    armed.load(Ordering::Relaxed) & what != what
        && armed.fetch_or(what, Ordering::SeqCst) & what != what
}

/// Publisher, whose barrier has just been issued: as [`must_ring`].
#[inline]
pub fn is_wished(armed: &AtomicU32, what: u32) -> bool {
    armed.load(Ordering::Relaxed) & what != 0
        && armed.fetch_and(!what, Ordering::SeqCst) & what != 0
}

/// Sleeper: takes the wish back. A ring may already be under way.
#[inline]
pub fn disarm(armed: &AtomicU32, what: u32) {
    if armed.load(Ordering::Relaxed) & what != 0 {
        armed.fetch_and(!what, Ordering::SeqCst);
    }
}

/// Publisher, after it has stored its word: whether it has to ring. True for exactly one publisher
/// per arming.
#[inline]
pub fn must_ring(armed: &AtomicU32, what: u32) -> bool {
    fence(Ordering::SeqCst);
    is_wished(armed, what)
}
