//! Work requests of one ring that are under way. Both directions post to one queue pair, so there is a lock for it: a
//! short one, which is tried and not waited for, since a signal handler may have interrupted who holds it.

use super::memory::{Heard, POSITION, Word};
use super::{Ring, Wish};
use crate::clock;
use crate::sys::{self, Errno, Result};
use crate::verbs::{self, Adapter, Done, Operation, Work};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Work requests that can be under way.
const DEPTH: u64 = verbs::DEPTH as u64;

/// How often the lock is tried.
const TRIES: u32 = 2_000;

/// How long (µs) a side that wants to sleep waits for the peer's adapter.
const ANSWER_US: u64 = 20_000;

/// Completions taken at once.
const BATCH: usize = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Posting {
    lock: AtomicU32,
    /// Requests that were posted, and those that are known to be done. Each request's id is its number.
    posted: AtomicU64,
    done: AtomicU64,
}

struct Held<'a>(&'a Posting);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.lock.store(0, Ordering::Release);
    }
}

impl Posting {
    pub(super) const fn new() -> Self {
        Self {
            lock: AtomicU32::new(0),
            posted: AtomicU64::new(0),
            done: AtomicU64::new(0),
        }
    }

    fn hold(&self) -> Option<Held<'_>> {
        for _ in 0..TRIES {
            if self.lock.swap(1, Ordering::Acquire) == 0 {
                return Some(Held(self));
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Whether nothing is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.done.load(Ordering::Acquire) == self.posted.load(Ordering::Acquire)
    }

    /// Takes completions in.
    ///
    /// # Errors
    /// The adapter has failed.
    pub(super) fn reap(&self, adapter: &dyn Adapter) -> Result<()> {
        if self.is_quiet() {
            return Ok(());
        }
        self.hold().map_or(Ok(()), |_held| self.reap_held(adapter))
    }

    fn reap_held(&self, adapter: &dyn Adapter) -> Result<()> {
        let mut done = [Done::default(); BATCH];
        loop {
            let n = adapter.poll(&mut done);
            for one in done.iter().take(n) {
                if !one.ok {
                    return Err(Errno(libc::EIO));
                }
                self.done.store(one.id, Ordering::Release);
            }
            if n < BATCH {
                return Ok(());
            }
        }
    }

    /// Posts requests, the last of which asks for a completion and has the number that is returned. The number that
    /// `work` is made with is that of its last.
    ///
    /// # Errors
    /// EAGAIN: too many are under way, or another thread is posting. Others: the adapter has failed.
    ///
    /// # Safety
    /// The memory that is named stays as it is until it is done.
    pub(super) unsafe fn post(
        &self,
        adapter: &dyn Adapter,
        count: u64,
        work: impl FnOnce(u64) -> [Option<Work>; 3],
    ) -> Result<u64> {
        let _held = self.hold().ok_or(Errno::AGAIN)?;
        let last = self.posted.load(Ordering::Relaxed) + count;
        if last - self.done.load(Ordering::Relaxed) > DEPTH / 2 {
            self.reap_held(adapter)?;
        }
        if last - self.done.load(Ordering::Relaxed) > DEPTH {
            return Err(Errno::AGAIN);
        }
        let made = work(last);
        match made {
            // SAFETY: the caller's promise.
            [Some(a), Some(b), Some(c)] => unsafe { adapter.post(&[a, b, c]) },
            // SAFETY: as above.
            [Some(a), Some(b), None] | [Some(a), None, Some(b)] => unsafe { adapter.post(&[a, b]) },
            // SAFETY: as above.
            [Some(a), None, None] => unsafe { adapter.post(&[a]) },
            _ => Ok(()),
        }?;
        self.posted.store(last, Ordering::Release);
        Ok(last)
    }

    /// States a wish at the peer and asks how far it is, in this order; waits for the answer.
    ///
    /// # Errors
    /// EAGAIN: it is not known. Others: the adapter has failed.
    pub(super) fn ask(&self, ring: &Ring, wish: Wish, word: Word) -> Result<u64> {
        let (adapter, area, (remote, rkey)) = (ring.adapter(), &ring.area, ring.peer.get());
        let lkey = ring.lkey();
        let ((from, to), (answer, asked)) = (area.wish(wish), area.answer(word));
        // SAFETY: words of the registered memory: one is never changed, the other read only after the completion.
        let number = unsafe {
            self.post(adapter, 2, |id| {
                [
                    Some(Work {
                        operation: Operation::WriteInline,
                        local: from.cast_mut(),
                        len: 8,
                        lkey,
                        remote: remote + to as u64,
                        rkey,
                        signaled: false,
                        id: id - 1,
                    }),
                    Some(Work {
                        operation: Operation::Read,
                        local: answer.cast_mut(),
                        len: POSITION as u32,
                        lkey,
                        remote: remote + asked as u64,
                        rkey,
                        signaled: true,
                        id,
                    }),
                    None,
                ]
            })
        }?;
        let begun = clock::ticks();
        let mut turns = 0u32;
        while self.done.load(Ordering::Acquire) < number {
            self.reap(adapter)?;
            if clock::ticks() - begun > clock::us(ANSWER_US) {
                return Err(Errno::AGAIN);
            }
            turns += 1;
            if turns > 100 {
                sys::yield_core();
            } else {
                std::hint::spin_loop();
            }
        }
        match area.answered(word) {
            Heard::Value(value) => Ok(value),
            Heard::Torn => Err(Errno::AGAIN),
        }
    }
}
