//! What outlives the death of a process in the middle of a call. A stream that several processes hold
//! lies in memory they share; one of them may be killed while it copies, and the next must find the
//! stream as of the last byte that counts.
//!
//! Used by `Tx` and `Rx` under their locks. Rule: a state is noted before anything that follows from it is
//! told to the peer, so that what the peer knows is never ahead of what is noted; telling it again is
//! harmless.

use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

/// The last state that counts. Off until the stream is shared: then it costs one look.
#[derive(Debug)]
pub(super) struct Journal<F> {
    on: bool,
    /// `safe` is being written: then it is the live state that is whole.
    writing: AtomicBool,
    safe: Option<F>,
}

impl<F: Clone> Journal<F> {
    pub(super) const fn off() -> Self {
        Self {
            on: false,
            writing: AtomicBool::new(false),
            safe: None,
        }
    }

    /// From now on, or no more.
    pub(super) fn turn(&mut self, on: bool, live: &F) {
        self.on = on;
        self.note(|| live.clone());
    }

    /// Notes a state that is whole.
    #[inline]
    pub(super) fn note(&mut self, live: impl FnOnce() -> F) {
        if self.on {
            // Stores of one thread become visible in their order; only the compiler has to be told.
            self.writing.store(true, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            self.safe = Some(live());
            compiler_fence(Ordering::SeqCst);
            self.writing.store(false, Ordering::Release);
        }
    }

    /// Puts back what was noted last: the process that worked on `live` has died.
    pub(super) fn recover(&mut self, live: &mut F) {
        if self.on
            && !self.writing.swap(false, Ordering::AcqRel)
            && let Some(safe) = &self.safe
        {
            *live = safe.clone();
        }
    }
}

/// A half of a stream that processes may share.
pub trait Shareable {
    /// From now on several processes use it, or one alone again. Under its lock.
    fn share(&mut self, shared: bool);
    /// Notes the state: the lock is about to be let go of.
    fn note(&mut self);
    /// The holder of the lock has died; the state is brought back to what counts.
    fn recover(&mut self);
}

#[cfg(test)]
mod tests {
    use super::Journal;

    #[test]
    fn the_last_noted_state_comes_back() {
        let mut j = Journal::off();
        let mut live = 1;
        j.recover(&mut live);
        assert_eq!(live, 1, "nothing is noted while it is off");
        j.turn(true, &live);
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
        j.turn(true, &live);
        live = 6;
        j.writing.store(true, std::sync::atomic::Ordering::Relaxed);
        j.safe = None;
        j.recover(&mut live);
        assert_eq!(live, 6);
    }
}
