//! Both halves of every scheme against models of both ends: random walks, the bounded whole of all
//! interleavings, lies, and the rule that makes each scheme what it is.

extern crate std;

mod exhaustive;
mod model;
mod rules;
mod walks;

use crate::{Scheme, Terms};

/// Terms for tests: a buffer, as much of the sender's own, slots and a window.
fn terms(scheme: Scheme, buffer: u64, slots: u32, slot: u32, window: u32) -> Terms {
    Terms {
        scheme,
        buffer,
        own: buffer,
        slots,
        slot,
        window,
    }
}
