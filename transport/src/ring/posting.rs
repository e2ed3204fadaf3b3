//! Work requests of one ring that are under way, and what comes of them and from the peer. Both directions use one queue
//! pair, so there is a lock for it: a short one, which is tried and not waited for long, and which handlers do not interrupt.
//!
//! Rule: the adapter is used under the lock and only while the ring is not over. Whoever takes it down takes the lock for
//! good first.

use super::stage::Event;
use super::tell::Tell;
use super::{Ring, Word};
use crate::clock;
use crate::sys::section::Section;
use crate::sys::{self, Errno, Result};
use crate::verbs::{self, Done, Work};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Work requests of one post.
const MOST: u64 = 2;

/// Work requests that can be under way.
const DEPTH: u64 = verbs::DEPTH as u64;

/// How often the lock is tried.
const TRIES: u32 = 2_000;
/// How often that is done, with a yield each time, by who wants to sleep.
const PATIENCE: u32 = 50;

/// How long (µs) whoever takes the adapter down waits for the lock.
const SHUT_US: u64 = 10_000_000;

/// Completions taken at once.
const BATCH: usize = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Posting {
    lock: AtomicU32,
    /// Requests that were posted, and those that are known to be done. Each request's id is its number.
    posted: AtomicU64,
    done: AtomicU64,
    /// The adapter's event was armed and has not been taken.
    armed: AtomicBool,
}

/// Holds the lock. No handler of the program's runs meanwhile.
struct Held<'a> {
    posting: &'a Posting,
    /// For good.
    shuts: bool,
    _section: Section,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.shuts {
            self.posting.lock.store(0, Ordering::Release);
        }
    }
}

/// What came of arming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// The event tells of what comes from here on.
    Yes,
    /// The same, and it had told of something before: others who sleep by it may have seen that, and do not any more.
    Anew,
    /// Somebody else is at the adapter for long: look again soon.
    No,
}

impl Posting {
    pub(super) const fn new() -> Self {
        Self {
            lock: AtomicU32::new(0),
            posted: AtomicU64::new(0),
            done: AtomicU64::new(0),
            armed: AtomicBool::new(false),
        }
    }

    fn hold(&self) -> Option<Held<'_>> {
        let section = Section::enter();
        for _ in 0..TRIES {
            if self.lock.swap(1, Ordering::Acquire) == 0 {
                return Some(Held {
                    posting: self,
                    shuts: false,
                    _section: section,
                });
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Nobody gets at the adapter any more. False: somebody is there for ever.
    pub(super) fn shut(&self) -> bool {
        let begun = clock::ticks();
        loop {
            if let Some(mut held) = self.hold() {
                held.shuts = true;
                return true;
            }
            if clock::ticks() - begun > clock::us(SHUT_US) {
                return false;
            }
            sys::yield_core();
        }
    }

    /// Whether the request of this number has been carried out.
    pub(super) fn is_done(&self, number: u64) -> bool {
        self.done.load(Ordering::Acquire) >= number
    }

    /// Has the adapter carry out nothing more: where the ring is over, and somebody's memory must not be written to.
    pub(super) fn halt(&self, ring: &Ring) {
        let begun = clock::ticks();
        while clock::ticks() - begun < clock::us(SHUT_US) {
            // (nobody gets it for good but who halts the adapter itself)
            if let Some(_held) = self.hold() {
                ring.adapter().halt();
                return;
            }
            sys::yield_core();
        }
    }

    /// Whether nothing is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.done.load(Ordering::Acquire) == self.posted.load(Ordering::Acquire)
    }

    /// Whether no more can be posted before some of it is done.
    pub(super) fn is_full(&self) -> bool {
        let done = self.done.load(Ordering::Acquire); // (before what goes on)
        self.posted.load(Ordering::Acquire) - done + MOST > DEPTH
    }

    /// Takes in what the adapter has. Nothing where somebody else is about to.
    pub(super) fn reap(&self, ring: &Ring) {
        if let Some(_held) = self.hold()
            && !ring.is_over()
            && reap(self, ring).is_err()
        {
            ring.fail();
        }
    }

    /// Posts requests, the last of which asks for a completion and has the number that `work` is made with.
    ///
    /// # Errors
    /// EAGAIN: too many are under way, another thread is posting, or the ring is over. Others: the adapter has failed.
    ///
    /// # Safety
    /// The memory that is named stays as it is until it is done.
    pub(super) unsafe fn post(
        &self,
        ring: &Ring,
        count: u64,
        work: impl FnOnce(u64) -> [Option<Work>; 2],
    ) -> Result<()> {
        let _held = self.hold().ok_or(Errno::AGAIN)?;
        if ring.is_over() {
            return Err(Errno::AGAIN);
        }
        let last = self.posted.load(Ordering::Relaxed) + count;
        if last - self.done.load(Ordering::Relaxed) > DEPTH / 2 {
            reap(self, ring)?;
        }
        if last - self.done.load(Ordering::Relaxed) > DEPTH {
            return Err(Errno::AGAIN);
        }
        match work(last) {
            // SAFETY: the caller's promise.
            [Some(a), Some(b)] => unsafe { ring.adapter().post(&[a, b]) },
            // SAFETY: as above.
            [Some(a), None] | [None, Some(a)] => unsafe { ring.adapter().post(&[a]) },
            [None, None] => return Ok(()),
        }?;
        self.posted.store(last, Ordering::Release);
        Ok(())
    }

    /// As [`Ring::arm`].
    pub(super) fn arm(&self, ring: &Ring) -> Armed {
        for _ in 0..PATIENCE {
            let Some(_held) = self.hold() else {
                sys::yield_core();
                continue;
            };
            if ring.is_over() {
                return Armed::Yes; // (the kernel connection says all from here on)
            }
            let taken = self.armed.load(Ordering::Relaxed) && ring.adapter().take_event();
            if taken || !self.armed.load(Ordering::Relaxed) {
                self.armed.store(true, Ordering::Relaxed);
                if ring.adapter().arm().is_err() {
                    ring.fail();
                }
            }
            if !ring.is_over() && reap(self, ring).is_err() {
                ring.fail();
            }
            return if taken { Armed::Anew } else { Armed::Yes };
        }
        Armed::No
    }
}

/// Takes in what the adapter has. Under the lock.
///
/// # Errors
/// The adapter has failed, or the peer tells what cannot be. What has come beside that is counted all the same: who looks once more
/// ([`Ring::reap_last`]) must not find what follows a gap.
fn reap(posting: &Posting, ring: &Ring) -> Result<()> {
    let mut done = [Done::default(); BATCH];
    let mut reaped = Ok(());
    loop {
        let n = ring.adapter().poll(&mut done);
        for one in done.iter().take(n) {
            match one.told.map(Tell::from_word) {
                _ if !one.ok => reaped = Err(Errno(libc::EIO)),
                None if let Some(landed) = one.landed => {
                    if !ring.incoming.land(landed) {
                        return Err(Errno(libc::EIO)); // no peer of ours sends so
                    }
                    ring.hear(Word::Put, landed.len);
                }
                Some(Tell::Put(_)) if ring.incoming.is_on() => return Err(Errno(libc::EIO)),
                Some(Tell::Taken(n)) if ring.outgoing.is_on() => {
                    // (more than was put, where it gives back what was never burnt: whoever puts next tells)
                    let taken = ring.outgoing.returned(n).unwrap_or(u32::MAX);
                    ring.hear(Word::Taken, taken);
                }
                Some(Tell::Put(n)) => ring.hear(Word::Put, n),
                Some(Tell::Taken(n)) => ring.hear(Word::Taken, n),
                Some(tell) => ring.loans.hear(tell),
                None => posting.done.store(one.id, Ordering::Release),
            }
        }
        if n < BATCH {
            return reaped;
        }
    }
}

impl Ring {
    /// Sees to it that [`Self::event`] tells of whatever comes from here on, and takes in what has come. The caller looks
    /// once more before it sleeps.
    pub fn arm(&self) -> Armed {
        self.posting.arm(self)
    }

    /// The descriptor that becomes readable when the peer has told something, or the adapter has failed, after
    /// [`Self::arm`]; -1 where that is not for this side to watch any more.
    #[must_use]
    pub fn event(&self) -> i32 {
        if self.is_over() {
            return -1;
        }
        self.event
    }

    /// Takes in what the adapter has done and the peer has told; ends the ring if it has failed.
    pub fn reap(&self) {
        if !self.is_over() {
            self.posting.reap(self);
        }
    }

    /// The ring is over, and is about to say how much has come: takes in what the adapter has had by then. (What has failed is
    /// told where it ended.)
    pub(super) fn reap_last(&self) {
        if self.owner == sys::pid().cast_unsigned()
            && let Some(_held) = self.posting.hold()
        {
            let _ = reap(&self.posting, self);
        }
    }

    /// Whether no more can be put whatever room there is, since so much is under way: the peer's adapter waits for its program,
    /// or the link is slow. No event tells when that is over.
    #[must_use]
    pub fn is_clogged(&self) -> bool {
        self.posting.is_full() && {
            self.reap();
            self.posting.is_full()
        }
    }

    /// Whether all that has been put is in the peer's memory.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.reap();
        self.posting.is_quiet()
    }

    /// The adapter has failed: so the ring is over.
    pub(super) fn fail(&self) {
        self.stage.set(Event::Failed);
        self.end();
    }
}
