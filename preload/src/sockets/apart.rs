//! Threads that have a table of descriptors of their own (unshare(2), close_range(2)). The library's table is one for the process,
//! and so are its streams' numbers: what such a thread closes stays open for the others, and what it opens is not theirs.
//!
//! The rule: from before there is one the process's streams are the kernel's, new ones too, which needs no table (reason
//! `unshared`); and what the thread does to its descriptors is not noted. (Bytes that are kept here it reads as the others do.)

use super::uring;
use crate::signals::thread::here;
use std::sync::atomic::{AtomicBool, Ordering};
use transport::reason::Reason;

static ANY: AtomicBool = AtomicBool::new(false);

/// A thread is about to have one: no stream is followed from now on.
pub(crate) fn note() {
    ANY.store(true, Ordering::SeqCst);
}

/// This thread has one.
pub(crate) fn begin() {
    here().apart.store(1, Ordering::Relaxed);
}

/// Whether this thread has one.
#[inline]
pub(crate) fn is_own() -> bool {
    here().apart.load(Ordering::Relaxed) != 0
}

/// Why connections that begin in this process are the kernel's, if they are.
pub(crate) fn reason() -> Option<Reason> {
    if ANY.load(Ordering::Relaxed) {
        return Some(Reason::Unshared);
    }
    uring::is_used().then_some(Reason::AsyncIo)
}
