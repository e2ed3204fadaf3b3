//! The library's own memory: never the program's allocator, which may itself be in the middle of
//! something (an allocator that reads a file at start, a signal handler, a fork). `dlmalloc` over
//! anonymous mappings ([`kernel`]), behind a lock that fork takes.
//!
//! Used only on slow paths (connect, close, epoll_ctl); its lock is a critical section like any other, so
//! no handler finds it taken by its own thread.

mod kernel;

use crate::sockets::lock::SpinLock;
use crate::sockets::order::Rank;
use kernel::Kernel;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;

pub(crate) struct Own {
    lock: SpinLock,
    heap: UnsafeCell<dlmalloc::Dlmalloc<Kernel>>,
}

// SAFETY: the heap is used under the lock only.
unsafe impl Sync for Own {}

#[global_allocator]
pub(crate) static OWN: Own = Own {
    lock: SpinLock::new(Rank::Memory),
    heap: UnsafeCell::new(dlmalloc::Dlmalloc::new_with_allocator(Kernel)),
};

impl Own {
    fn with<T>(&self, f: impl FnOnce(&mut dlmalloc::Dlmalloc<Kernel>) -> T) -> T {
        self.lock.acquire();
        // SAFETY: under the lock.
        let out = f(unsafe { &mut *self.heap.get() });
        self.lock.release();
        out
    }

    /// Around fork: nobody is in the heap while it is copied.
    pub(crate) fn hold(&self) {
        self.lock.acquire();
    }

    /// After fork, in parent and child.
    pub(crate) fn let_go(&self) {
        self.lock.release();
    }
}

// SAFETY: dlmalloc keeps the contract of GlobalAlloc.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, l: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        self.with(|h| unsafe { h.malloc(l.size(), l.align()) })
    }

    unsafe fn dealloc(&self, at: *mut u8, l: Layout) {
        // SAFETY: the caller's contract.
        self.with(|h| unsafe { h.free(at, l.size(), l.align()) });
    }

    unsafe fn alloc_zeroed(&self, l: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        self.with(|h| unsafe { h.calloc(l.size(), l.align()) })
    }

    unsafe fn realloc(&self, at: *mut u8, l: Layout, new: usize) -> *mut u8 {
        // SAFETY: the caller's contract.
        self.with(|h| unsafe { h.realloc(at, l.size(), l.align(), new) })
    }
}
