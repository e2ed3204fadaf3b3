//! Critical sections of this crate's own short locks: the library that it is part of puts the program's signal handlers off
//! for as long, so that none waits for what it has interrupted, or jumps out of it.

use std::sync::OnceLock;

/// What enters one, and what leaves it.
type Pair = (fn(), fn());

static SECTIONS: OnceLock<Pair> = OnceLock::new();

/// Installs what enters and leaves one. Once, at start.
pub fn observe(enter: fn(), leave: fn()) {
    let _ = SECTIONS.set((enter, leave));
}

/// Inside one until it is dropped.
#[derive(Debug)]
pub(crate) struct Section(());

impl Section {
    #[inline]
    pub(crate) fn enter() -> Self {
        if let Some((enter, _)) = SECTIONS.get() {
            enter();
        }
        Self(())
    }
}

impl Drop for Section {
    #[inline]
    fn drop(&mut self) {
        if let Some((_, leave)) = SECTIONS.get() {
            leave();
        }
    }
}
