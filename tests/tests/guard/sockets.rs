//! What the guard asks of the library's locks.

pub(crate) mod lock {
    use std::sync::atomic::{AtomicBool, Ordering};

    pub(crate) struct SpinLock(AtomicBool);

    impl SpinLock {
        pub(crate) const fn new(_: super::order::Rank) -> Self {
            Self(AtomicBool::new(false))
        }

        /// Nested: the guard was entered from within itself.
        pub(crate) fn acquire(&self) {
            assert!(!self.0.swap(true, Ordering::Acquire), "entered from within");
        }

        pub(crate) fn release(&self) {
            self.0.store(false, Ordering::Release);
        }

        pub(crate) fn reset(&self) {
            self.0.store(false, Ordering::Release);
        }
    }
}

pub(crate) mod order {
    pub(crate) enum Rank {
        Guard,
    }
}
