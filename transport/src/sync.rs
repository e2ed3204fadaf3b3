//! The atomics of everything that two processes or threads share: the real ones, or loom's under
//! `--cfg loom`, so that the same code is model checked.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
