//! What outlives the death of a process in the middle of a call on a connection that several hold: one may be killed at
//! any instruction, and the next must find each half as of the last octet that counts.
//!
//! Each half keeps here a copy of its state (numbers and positions, not its buffers), once the stream is shared. Rules:
//! - Whoever works on a half has a [`Turn`]: between two the half is whole. A turn that begins where another has not ended
//!   follows one whose process has died: its state is put back to the last note.
//! - A state is noted where the half is whole: at the beginning of a turn, and before each call to the kernel. What the
//!   call came to the kernel writes down beside ([`Receipt`]). So there is one note for each call.
//! - Octets that the last note counts are not written over before the next one.
//! - What follows from a state is told to the other half after it was noted; to tell it again is harmless.
//!
//! Used by `Out` and `In` under their locks; off, it costs one look.

use super::Common;
use crate::sys::net::Receipt;
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

/// The last state that counts, of two places in turn, so that there always is one. Zeroed memory is one that is off.
pub(super) struct Noted<F> {
    on: bool,
    /// A turn is under way.
    works: AtomicBool,
    current: AtomicUsize,
    places: [Place<F>; 2],
}

struct Place<F> {
    state: MaybeUninit<F>,
    receipt: Receipt,
}

impl<F> fmt::Debug for Noted<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Noted")
            .field("on", &self.on)
            .finish_non_exhaustive()
    }
}

impl<F: Clone> Noted<F> {
    /// Whether several processes use the half.
    #[inline]
    pub(super) const fn is_on(&self) -> bool {
        self.on
    }

    /// From now on states are noted, and one has been; or none any more.
    pub(super) fn turn(&mut self, on: bool) {
        self.on = on;
        self.works.store(false, Ordering::Relaxed);
    }

    /// Where the next state is written by `write_state`, straight: it is large, and whoever notes it may have little stack.
    pub(super) fn place(&mut self) -> *mut F {
        self.next().state.as_mut_ptr()
    }

    /// What has been written there counts. No call to the kernel has been made since.
    pub(super) fn written(&mut self) {
        self.next().receipt.clear();
        // (stores of one thread are done in their order; only the compiler has to be told)
        compiler_fence(Ordering::SeqCst);
        let next = 1 - (self.current.load(Ordering::Relaxed) & 1);
        self.current.store(next, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }

    fn next(&mut self) -> &mut Place<F> {
        let [first, second] = &mut self.places;
        if *self.current.get_mut() & 1 == 0 {
            second
        } else {
            first
        }
    }

    /// A turn has begun, and its first state is noted. The half is not whole any more.
    pub(super) fn begin(&self) {
        self.works.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    /// It is whole again.
    pub(super) fn end(&self) {
        compiler_fence(Ordering::SeqCst);
        self.works.store(false, Ordering::Release);
    }

    /// Whether a turn has begun and has not ended: at the beginning of one that its process has died.
    pub(super) fn is_under_way(&self) -> bool {
        self.works.load(Ordering::Acquire)
    }

    /// Where the kernel writes what becomes of the call that follows the last note.
    pub(super) fn receipt(&mut self) -> &mut Receipt {
        let [first, second] = &mut self.places;
        if self.current.load(Ordering::Acquire) & 1 == 0 {
            &mut first.receipt
        } else {
            &mut second.receipt
        }
    }

    /// The state that was noted last, and what has become of the call after it, in octets.
    pub(super) fn last(&self) -> Option<(F, usize)> {
        let place = self.places.get(self.current.load(Ordering::Acquire) & 1)?;
        // SAFETY: written when it was turned on, and each time since before `current` has named it.
        let state = self.on.then(|| unsafe { place.state.assume_init_ref() });
        state.map(|state| (state.clone(), place.receipt.octets()))
    }
}

/// Writes all fields of a state to where it is kept, each from what the reference refers to.
macro_rules! write_state {
    ($state:ident at $at:expr, { $($field:ident: $from:expr),* $(,)? }) => {{
        let at: *mut $state = $at;
        let _ = |$state { $($field: _),* }: &$state| {}; // (none is left out)
        // SAFETY: the caller's place for one, and nobody else's.
        unsafe { $($crate::wire::noted::copy($from, &raw mut (*at).$field);)* }
    }};
}
pub(super) use write_state;

/// Copies what nothing has to be done for when it goes, so there may be two of it.
///
/// # Safety
/// `to` is writable.
#[inline]
pub(super) const unsafe fn copy<T>(from: &T, to: *mut T) {
    const { assert!(!std::mem::needs_drop::<T>()) };
    // SAFETY: the caller's promise, for one that is not initialized or needs no drop.
    unsafe { std::ptr::copy_nonoverlapping(from, to, 1) };
}

/// A half of a connection.
pub trait Half {
    /// Whether several processes use it.
    fn is_shared(&self) -> bool;
    /// A turn begins: what a dead process left is put right, and the state noted.
    fn begin_turn(&mut self, common: &Common);
    /// The turn ends, and the half is whole.
    fn end_turn(&mut self);
}

/// A process works on a half, under its lock.
#[derive(Debug)]
pub struct Turn<'a, H: Half>(&'a mut H);

impl<'a, H: Half> Turn<'a, H> {
    #[inline]
    pub(super) fn begin(half: &'a mut H, common: &Common) -> Self {
        if half.is_shared() {
            half.begin_turn(common);
        }
        Self(half)
    }
}

impl<H: Half> Drop for Turn<'_, H> {
    #[inline]
    fn drop(&mut self) {
        if self.0.is_shared() {
            self.0.end_turn();
        }
    }
}

impl<H: Half> Deref for Turn<'_, H> {
    type Target = H;
    #[inline]
    fn deref(&self) -> &H {
        self.0
    }
}

impl<H: Half> DerefMut for Turn<'_, H> {
    #[inline]
    fn deref_mut(&mut self) -> &mut H {
        self.0
    }
}
