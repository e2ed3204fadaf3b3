//! Locks that a hook may take: they never sleep for long, know their owner, and can be taken by a
//! process whose other threads are anywhere.
//!
//! The owner is the thread pointer: one instruction to read, different for every live thread, never 0.
//! Whoever holds one is in a critical section, in which no handler of the program runs
//! (`signals::thread`). A thread that finds a lock held by itself all the same is in the handler of a
//! fault, or in one that was set behind the library's back; it must not wait.
//!
//! The locks of a stream that several processes hold are theirs together: the owner's word names its
//! process too, and whoever waits for long asks whether that lives. The next owner after one that died
//! puts the state back to what counts (`transport::sdp::Shareable`).

use super::family;
use super::order::{self, Rank, Ranked};
use crate::signals::thread::{enter, leave};
use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use transport::sdp::{Place, Shareable};
use transport::sys::{self, time};

/// Bits of an owner's word for the thread pointer, which is a multiple of 16 and no longer than user
/// addresses are; the rest names the process.
const THREAD_BITS: u32 = 44;
const ALIGNMENT_BITS: u32 = 4;

/// This process's part of an owner's word. Children of fork have threads at their parent's addresses.
static PROCESS: AtomicU64 = AtomicU64::new(1 << THREAD_BITS);

/// In a child after fork: its threads own locks by this member number from now on.
pub(crate) fn name_process(member: u32) {
    PROCESS.store(
        u64::from(family::name(member)) << THREAD_BITS,
        Ordering::Relaxed,
    );
}

/// This thread of this process.
#[inline]
pub(crate) fn me() -> u64 {
    (thread() >> ALIGNMENT_BITS) | PROCESS.load(Ordering::Relaxed)
}

/// The thread pointer.
#[inline]
pub(crate) fn thread() -> u64 {
    let v: u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: on x86-64 Linux the first word at fs is the thread pointer itself.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) v, options(nostack, readonly, preserves_flags));
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the thread pointer register is readable.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) v, options(nostack, nomem));
    };
    v
}

/// The lock is held by this very thread, further up its stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mine;

fn contend(word: &AtomicU64, me: u64) -> Result<(), Mine> {
    let mut turns = 0u32;
    loop {
        let owner = word.load(Ordering::Relaxed);
        if owner == me {
            return Err(Mine);
        }
        if owner == 0
            && word
                .compare_exchange_weak(0, me, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        {
            return Ok(());
        }
        turns += 1;
        match turns {
            0..100 => std::hint::spin_loop(),
            100..2000 => sys::yield_core(),
            // The owner was preempted, perhaps by us: get out of its way.
            _ => drop(time::nap(50)),
        }
    }
}

/// libc's word for whether this process has one thread only (`__libc_single_threaded`), where it says.
static SINGLE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// Finds libc's word. Once, at start.
pub(crate) fn init() {
    // SAFETY: a lookup by C string.
    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    SINGLE.store(at.cast(), Ordering::Relaxed);
}

/// Whether this process has one thread only, as far as libc says.
#[inline]
pub(crate) fn is_single_threaded() -> bool {
    let at = SINGLE.load(Ordering::Relaxed);
    // SAFETY: null, or libc's variable, which lives for ever and which only this thread could change.
    !at.is_null() && unsafe { at.read() } != 0
}

/// Takes the lock, and enters the critical section before.
#[inline(always)]
fn acquire(word: &AtomicU64, rank: Rank) -> Result<(), Mine> {
    enter();
    let me = me();
    if is_single_threaded() {
        // Nobody else to exclude: what is kept is who holds it, for handlers.
        if word.load(Ordering::Relaxed) == 0 {
            word.store(me, Ordering::Relaxed);
        } else {
            contended(word, me)?;
        }
    } else if word
        .compare_exchange(0, me, Ordering::SeqCst, Ordering::Relaxed)
        .is_err()
    {
        contended(word, me)?;
    }
    order::taken(rank);
    Ok(())
}

#[cold]
fn contended(word: &AtomicU64, me: u64) -> Result<(), Mine> {
    let r = contend(word, me);
    if r.is_err() {
        leave();
    }
    r
}

#[inline]
fn release(word: &AtomicU64, rank: Rank) {
    order::released(rank);
    word.store(0, Ordering::Release);
    leave();
}

/// A plain lock for the library's own memory.
#[derive(Debug)]
pub(crate) struct SpinLock(AtomicU64, Rank);

impl SpinLock {
    pub(crate) const fn new(rank: Rank) -> Self {
        Self(AtomicU64::new(0), rank)
    }

    pub(crate) fn acquire(&self) {
        // Held by this thread only if fork's handlers nest, in which case waiting would be for ever.
        if acquire(&self.0, self.1).is_err() {
            enter();
        }
    }

    pub(crate) fn try_acquire(&self) -> Result<(), Mine> {
        acquire(&self.0, self.1)
    }

    /// Whether it could be taken at once.
    fn is_taken_at_once(&self) -> bool {
        enter();
        let free = self
            .0
            .compare_exchange(0, me(), Ordering::SeqCst, Ordering::Relaxed)
            .is_ok();
        if free {
            order::taken(self.1);
        } else {
            leave();
        }
        free
    }

    pub(crate) fn release(&self) {
        release(&self.0, self.1);
    }

    /// In a child after fork, where no other thread exists: free, whoever held it.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
        order::forget();
    }
}

/// Turns of waiting (each a nap of 50 µs or more) between two questions whether the owner lives.
const ASK_EVERY: u32 = 40;

/// Takes a lock that other processes take too, and enters the critical section only then: its owner may
/// be stopped for as long as somebody likes. True if the owner before died holding it; `Mine` too if it
/// takes more turns than `most`.
#[cold]
fn acquire_shared(word: &AtomicU64, me: u64, most: u32) -> Result<bool, Mine> {
    let mut turns = 0u32;
    loop {
        let owner = word.load(Ordering::Relaxed);
        if owner == me {
            return Err(Mine);
        }
        let dead = turns > 2000 && turns.is_multiple_of(ASK_EVERY) && owner != 0 && {
            let member = u32::try_from(owner >> THREAD_BITS).unwrap_or(0);
            !family::is_alive(member)
        };
        if owner == 0 || dead {
            enter();
            if word
                .compare_exchange_weak(owner, me, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
            {
                return Ok(dead);
            }
            leave();
        }
        turns = turns.saturating_add(1);
        if turns > most {
            return Err(Mine);
        }
        match turns {
            0..100 => std::hint::spin_loop(),
            100..2000 => sys::yield_core(),
            _ => drop(time::nap(50)),
        }
    }
}

/// Turns of waiting for a lock that others have, where waiting for a stopped process would be wrong: some
/// tens of milliseconds.
const SOON: u32 = 2400;

/// A lock over one direction's state.
#[derive(Debug)]
pub(crate) struct Direction<T> {
    owner: AtomicU64,
    /// Other processes take it too.
    shared: AtomicBool,
    state: UnsafeCell<T>,
}

// SAFETY: the state is reached under the lock only.
unsafe impl<T: Send> Sync for Direction<T> {}

impl<T: Shareable + Ranked> Direction<T> {
    /// Where the word of the lock lies.
    pub(crate) const OWNER: usize = offset_of!(Self, owner);

    pub(crate) fn new(state: T) -> Self {
        Self {
            owner: AtomicU64::new(0),
            shared: AtomicBool::new(false),
            state: UnsafeCell::new(state),
        }
    }

    /// Takes the lock.
    #[inline]
    pub(crate) fn lock(&self) -> Result<Held<'_, T>, Mine> {
        if self.is_shared() {
            return self.lock_shared(u32::MAX);
        }
        acquire(&self.owner, T::RANK)?;
        Ok(Held { of: self })
    }

    /// Takes the lock at once, where no other process and no other thread has to be waited for.
    #[inline(always)]
    pub(crate) fn lock_alone(&self) -> Option<Held<'_, T>> {
        if self.is_shared() || self.is_held() {
            return None;
        }
        acquire(&self.owner, T::RANK).ok()?;
        Some(Held { of: self })
    }

    /// Whether somebody has it, at this moment.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != 0
    }

    /// Takes the lock, unless another process keeps it for long.
    pub(crate) fn lock_soon(&self) -> Result<Held<'_, T>, Mine> {
        if self.is_shared() {
            return self.lock_shared(SOON);
        }
        self.lock()
    }

    #[cold]
    fn lock_shared(&self, most: u32) -> Result<Held<'_, T>, Mine> {
        let orphaned = acquire_shared(&self.owner, me(), most)?;
        order::taken(T::RANK);
        let mut held = Held { of: self };
        if orphaned {
            held.recover();
        }
        Ok(held)
    }

    /// Takes it back from an owner of another process. That has died, as no other is at the stream any more: perhaps
    /// as the only one that was left at it, which takes its locks as if nobody had ever shared it.
    pub(crate) fn bury_others(&self) {
        let owner = self.owner.load(Ordering::SeqCst);
        if owner != 0 && owner >> THREAD_BITS != PROCESS.load(Ordering::Relaxed) >> THREAD_BITS {
            // (a call that comes too late may have got it since)
            let _ = self
                .owner
                .compare_exchange(owner, 0, Ordering::SeqCst, Ordering::Relaxed);
        }
    }

    /// Whether other processes take it too.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// In a child after fork, where no other thread exists, of a copy that is its own: free, whatever the
    /// parent's was.
    pub(crate) fn reset(&mut self) {
        *self.owner.get_mut() = 0;
        order::forget();
        *self.shared.get_mut() = false;
        self.state.get_mut().share(None);
    }
}

/// A held direction.
#[derive(Debug)]
pub(crate) struct Held<'a, T: Shareable + Ranked> {
    of: &'a Direction<T>,
}

impl<T: Shareable + Ranked> Held<'_, T> {
    /// From now on other processes take the lock too, and what counts is noted in this place; or none does
    /// any more.
    pub(crate) fn share(&mut self, place: Option<&'static mut Place<T::Noted>>) {
        self.of.shared.store(place.is_some(), Ordering::SeqCst);
        (**self).share(place);
    }
}

impl<T: Shareable + Ranked> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.of.is_shared() {
            self.note();
        }
        release(&self.of.owner, T::RANK);
    }
}

impl<T: Shareable + Ranked> Deref for Held<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.of.state.get() }
    }
}

impl<T: Shareable + Ranked> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held.
        unsafe { &mut *self.of.state.get() }
    }
}

/// How often [`Slow::lock_soon`] looks, with naps between.
const SOON_NAPS: u32 = 50;

/// A lock for slow paths.
#[derive(Debug)]
pub(crate) struct Slow<T> {
    lock: SpinLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached under the lock only.
unsafe impl<T: Send> Sync for Slow<T> {}

impl<T> Slow<T> {
    pub(crate) const fn new(rank: Rank, value: T) -> Self {
        Self {
            lock: SpinLock::new(rank),
            value: UnsafeCell::new(value),
        }
    }

    pub(crate) fn lock(&self) -> SlowHeld<'_, T> {
        self.lock.acquire();
        SlowHeld { of: self }
    }

    /// Takes the lock, unless somebody keeps it for longer than a few milliseconds, who may be waiting for this very thread.
    pub(crate) fn lock_soon(&self) -> Option<SlowHeld<'_, T>> {
        let taken = (0..SOON_NAPS).any(|_| {
            let taken = self.lock.is_taken_at_once();
            if !taken {
                let _ = time::nap(50);
            }
            taken
        });
        // (made only then: one that is dropped releases the lock, whoever has it)
        taken.then(|| SlowHeld { of: self })
    }

    /// Around fork, which blocks nothing itself: what was put off would be put off in the child as well.
    pub(crate) fn hold(&self) -> u64 {
        let mask = time::set_mask(u64::MAX);
        self.lock.acquire();
        mask
    }

    pub(crate) fn let_go(&self, mask: u64) {
        self.lock.release();
        time::set_mask(mask);
    }

    /// The value, while [`Self::hold`] is in force.
    ///
    /// # Safety
    /// This thread holds the lock and no other reference exists.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn held(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.value.get() }
    }
}

/// A held slow lock.
#[derive(Debug)]
pub(crate) struct SlowHeld<'a, T> {
    of: &'a Slow<T>,
}

impl<T> Drop for SlowHeld<'_, T> {
    fn drop(&mut self) {
        self.of.lock.release();
    }
}

impl<T> Deref for SlowHeld<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.of.value.get() }
    }
}

impl<T> DerefMut for SlowHeld<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held.
        unsafe { &mut *self.of.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::{Rank, Slow};

    static LOCK: Slow<u32> = Slow::new(Rank::Registry, 0);

    /// Another thread's try.
    fn is_had() -> bool {
        let tries = std::thread::spawn(|| LOCK.lock_soon().is_some());
        tries.join().is_ok_and(|had| had)
    }

    #[test]
    fn who_gives_up_leaves_the_lock_to_its_holder() {
        let held = LOCK.lock();
        assert!(!is_had());
        assert!(!is_had(), "the first that gave up has let it go");
        drop(held);
        assert!(is_had());
    }
}
