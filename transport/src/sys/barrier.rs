//! The asymmetric barrier (membarrier(2), GLOBAL_EXPEDITED): whoever rarely needs one pays for both, so
//! that the side that would need one for every message needs only to keep the compiler in order.
//!
//! It works between processes that have registered; whether this one has stands in [`is_light`], and
//! each side says so in the segment.

use crate::syscall;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

const REGISTER_GLOBAL_EXPEDITED: i32 = 1 << 2;
const GLOBAL_EXPEDITED: i32 = 1 << 1;

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Registers this process. Once, at start; children of fork inherit it.
pub fn register() {
    // SAFETY: no pointers.
    let r = unsafe { syscall!(membarrier, REGISTER_GLOBAL_EXPEDITED, 0, 0) };
    REGISTERED.store(r.is_ok(), Ordering::Relaxed);
}

/// Whether this process is registered: its own barriers may be light where the other side's are heavy.
#[inline]
#[must_use]
pub fn is_light() -> bool {
    REGISTERED.load(Ordering::Relaxed)
}

/// The barrier of the side that rarely needs one: full, for this thread and for every thread of a
/// registered process.
pub fn heavy() {
    fence(Ordering::SeqCst);
    if is_light() {
        // SAFETY: no pointers.
        let _ = unsafe { syscall!(membarrier, GLOBAL_EXPEDITED, 0, 0) };
    }
}

/// The barrier of the other side: nothing but order for the compiler, if `light`; else a full one.
#[inline]
pub fn light(light: bool) {
    if light {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}
