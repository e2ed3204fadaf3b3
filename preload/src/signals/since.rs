//! Handlers that ran while a call looked in user space: the call ends as the kernel would have ended it,
//! were it asleep there. And the last step into a sleep, during which none may come unnoticed.

use super::{HELD, may_interrupt, thread};
use std::sync::atomic::Ordering;
use transport::sys::{Errno, Result, time};

/// A point in a thread's history of handlers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since(u64);

impl Since {
    /// Now: a load.
    #[inline]
    pub(crate) fn now() -> Self {
        Self(thread::here().ran.load(Ordering::Relaxed))
    }

    /// Whether a handler has run.
    #[inline]
    pub(crate) fn any(self) -> bool {
        Self::now().0 != self.0
    }

    /// Whether one has run that was set without SA_RESTART.
    pub(crate) fn any_hard(self) -> bool {
        Self::now().0 >> 32 != self.0 >> 32
    }
}

/// All signals but faults are held back while this lives, or until a handler ran in a sleep that let
/// them through.
#[derive(Debug)]
pub(crate) struct Hold {
    mask: u64,
    before: (u32, u64),
}

impl Hold {
    pub(crate) fn new() -> Self {
        let t = thread::here();
        let mask = time::set_mask(HELD);
        let before = (
            t.holds.load(Ordering::Relaxed),
            t.held.load(Ordering::Relaxed),
        );
        t.held.store(mask, Ordering::Relaxed);
        t.holds.store(1, Ordering::Relaxed);
        Self { mask, before }
    }

    /// The program's mask, for the sleep.
    pub(crate) fn mask(&self) -> libc::sigset_t {
        // SAFETY: all-zero is an empty set.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel's set is the first word.
        unsafe { (&raw mut set).cast::<u64>().write(self.mask) };
        set
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let t = thread::here();
        let holds = t.holds.load(Ordering::Relaxed) != 0;
        t.held.store(self.before.1, Ordering::Relaxed);
        t.holds.store(self.before.0, Ordering::Relaxed);
        if holds {
            time::set_mask(self.mask);
        }
    }
}

/// Sleeps by `sleep`, which is given the mask to sleep with (null: as it is), unless a handler has run.
///
/// # Errors
/// EINTR if one has; whatever the sleep ends with. A sleep that fails after a handler has run has failed with EINTR, whatever
/// `errno` says by now: the mask is the program's again, and the next handler may have left another there before it was read.
pub(crate) fn sleep<T>(
    since: Since,
    sleep: impl FnOnce(*const libc::sigset_t) -> Result<T>,
) -> Result<T> {
    let slept = if may_interrupt() {
        let hold = Hold::new();
        if since.any() {
            return Err(Errno::INTR);
        }
        let mask = hold.mask();
        sleep(&raw const mask)
    } else {
        sleep(std::ptr::null())
    };
    match slept {
        Err(_) if since.any() => Err(Errno::INTR),
        slept => slept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_sleep_says_so_whatever_handlers_leave_in_errno() {
        let handled = || thread::here().ran.fetch_add(1, Ordering::Relaxed);
        let after = sleep(Since::now(), |_| {
            handled();
            Err::<(), _>(Errno::AGAIN)
        });
        assert_eq!(after, Err(Errno::INTR));
        let before = sleep(Since::now(), |_| Err::<(), _>(Errno::AGAIN));
        assert_eq!(before, Err(Errno::AGAIN));
        let woken = sleep(Since::now(), |_| {
            handled();
            Ok(())
        });
        assert_eq!(woken, Ok(()));
    }
}
