//! What outlives the death of a process in the middle of a call. A stream that several processes hold
//! lies in memory they share; one of them may be killed while it copies, and the next must find the
//! stream as of the last byte that counts.
//!
//! Used by `Tx` and `Rx` under their locks. Rule: a state is noted before anything that follows from it is
//! told to the peer, so that what the peer knows is never ahead of what is noted, or follows from it again
//! (`Rx::regrant`); telling it again is harmless.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

/// Where a half's last state is kept while the stream is shared: memory of the processes that share it.
pub type Place<F> = MaybeUninit<F>;

/// The last state that counts. Off until the stream is shared: then it costs one look.
#[derive(Debug)]
pub(super) struct Journal<F> {
    place: Option<NonNull<Place<F>>>,
    /// The place is being written: then it is the live state that is whole.
    writing: AtomicBool,
}

// SAFETY: the place is used under the lock of the half that the journal is of.
unsafe impl<F: Send> Send for Journal<F> {}

impl<F: Clone> Journal<F> {
    pub(super) const fn off() -> Self {
        Self {
            place: None,
            writing: AtomicBool::new(false),
        }
    }

    /// Whether it is on: the stream is shared.
    #[inline]
    pub(super) const fn is_on(&self) -> bool {
        self.place.is_some()
    }

    /// From now on, in this place, or no more.
    pub(super) fn turn(&mut self, place: Option<&'static mut Place<F>>, live: &F) {
        self.place = place.map(NonNull::from);
        self.note(|| live.clone());
    }

    /// Notes a state that is whole.
    #[inline]
    pub(super) fn note(&mut self, live: impl FnOnce() -> F) {
        if let Some(mut place) = self.place {
            // Stores of one thread become visible in their order; only the compiler has to be told. (What the live state
            // is made of comes first.)
            compiler_fence(Ordering::SeqCst);
            self.writing.store(true, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            // SAFETY: given for good, used under the half's lock.
            unsafe { place.as_mut() }.write(live());
            compiler_fence(Ordering::SeqCst);
            self.writing.store(false, Ordering::Release);
        }
    }

    /// Puts back what was noted last: the process that worked on `live` has died. One that died while it noted leaves
    /// `live` whole and the place torn: it is noted again, as this process may die before it notes anything else.
    pub(super) fn recover(&mut self, live: &mut F) {
        if self.writing.load(Ordering::Acquire) {
            return self.note(|| live.clone());
        }
        if let Some(place) = self.place {
            // SAFETY: as above, and written when the journal was turned on.
            *live = unsafe { place.as_ref().assume_init_ref() }.clone();
        }
    }
}

/// A half of a stream that processes may share.
pub trait Shareable {
    /// What is noted of it.
    type Noted: 'static;
    /// From now on several processes use it, and its state is noted here; or one alone again. Under its
    /// lock.
    fn share(&mut self, place: Option<&'static mut Place<Self::Noted>>);
    /// Notes the state: the lock is about to be let go of.
    fn note(&mut self);
    /// The holder of the lock has died; the state is brought back to what counts.
    fn recover(&mut self);
}

#[cfg(test)]
mod tests {
    use super::{Journal, Place};

    #[test]
    fn the_last_noted_state_comes_back() {
        let mut j = Journal::off();
        let mut live = 1;
        j.recover(&mut live);
        assert_eq!(live, 1, "nothing is noted while it is off");
        j.turn(Some(Box::leak(Box::new(Place::uninit()))), &live);
        live = 2;
        j.note(|| live);
        live = 3;
        j.recover(&mut live);
        assert_eq!(live, 2);
    }

    #[test]
    fn a_state_half_noted_does_not_count() {
        let mut j = Journal::off();
        let mut live = 5;
        j.turn(Some(Box::leak(Box::new(Place::uninit()))), &live);
        live = 6;
        j.writing.store(true, std::sync::atomic::Ordering::Relaxed);
        j.recover(&mut live);
        assert_eq!(live, 6);
        live = 7;
        j.recover(&mut live);
        assert_eq!(live, 6, "the next one may die too");
    }
}
