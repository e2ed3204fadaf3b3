//! A lock for short work on data of this module. The standard library's sleeps by a libc function that is interposed.

use crate::sys;
use std::cell::UnsafeCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Data that one thread at a time may work on.
pub(super) struct Lock<T> {
    taken: AtomicBool,
    data: UnsafeCell<T>,
}

// SAFETY: `with` lets one thread at a time at the data.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lock")
    }
}

impl<T> Lock<T> {
    pub(super) const fn new(data: T) -> Self {
        Self {
            taken: AtomicBool::new(false),
            data: UnsafeCell::new(data),
        }
    }

    /// Works on the data, alone. Not within itself.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        while self.taken.swap(true, Ordering::Acquire) {
            sys::yield_core();
        }
        // SAFETY: whoever took the lock is the only one here until it is given back below.
        let r = work(unsafe { &mut *self.data.get() });
        self.taken.store(false, Ordering::Release);
        r
    }
}
