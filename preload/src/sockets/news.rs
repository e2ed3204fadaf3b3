//! Whether the kernel connection has shown something that nobody has looked at yet.
//!
//! Told by whoever sees an event of it; asked by whoever would otherwise have to ask the kernel each time. The rule: who
//! finds nothing forgets only what had been told before the look, so that an event that another thread
//! sees meanwhile stays told.

use std::sync::atomic::{AtomicU8, Ordering};

/// How often something was told since it was forgotten, from 1 on round to 1 again; 0: nothing.
#[derive(Debug)]
pub(crate) struct News(AtomicU8);

impl News {
    /// The kernel may have shown something before anybody watched.
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(1))
    }

    pub(crate) fn tell(&self) {
        let next = |n: u8| Some(n.checked_add(1).unwrap_or(1));
        let _ = (self.0).fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
    }

    /// What has been told so far, for [`Self::forget`]; nothing if that is nothing.
    pub(crate) fn told(&self) -> Option<Told> {
        let n = self.0.load(Ordering::Acquire);
        (n != 0).then_some(Told(n))
    }

    pub(crate) fn are_any(&self) -> bool {
        self.told().is_some()
    }

    /// A look that began after that was asked has found nothing.
    pub(crate) fn forget(&self, told: Told) {
        let _ = (self.0).compare_exchange(told.0, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Forgets all. Whether there was anything: then the caller looks, and tells again if he has not taken in all.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(0, Ordering::AcqRel) != 0
    }
}

/// See [`News::told`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told(u8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_during_a_look_stays() {
        let news = News::new();
        let before = news.told();
        news.tell();
        before.into_iter().for_each(|told| news.forget(told));
        assert!(news.are_any());
        news.told().into_iter().for_each(|told| news.forget(told));
        assert!(!news.are_any());
    }

    #[test]
    fn telling_goes_round_without_nothing() {
        let news = News::new();
        for _ in 0..600 {
            news.tell();
            assert!(news.are_any());
        }
        assert!(news.take());
        assert!(!news.take());
    }
}
