//! One connection: the byte stream over its legs.
//!
//! A direction of a stream runs over the kernel connection ([`Leg::First`]), then over the segment
//! ([`Leg::Fast`]), then perhaps over the kernel again ([`Leg::Last`]). The sender states in the
//! segment at which byte each leg ends; the reader finishes a leg and opens the next. Attaching and
//! demotion are this one mechanism. Beside data, the kernel connection carries doorbell bytes while the
//! sender's leg is the fast one; they are counted, so the reader always knows which bytes are data.
//!
//! Called by `preload::sockets`, which owns the locks: [`Tx`] and [`Rx`] are used under the lock of
//! their direction, and nothing here waits.

mod ended;
mod journal;
pub mod rx;
pub mod tx;
pub mod walk;

pub use ended::{Ended, Verdict};
pub use journal::{Place, Shareable};
pub use rx::{Due, Got, Rx};
pub use tx::{Put, Tx};
pub use walk::Walk;

/// Where a direction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leg {
    First,
    Fast,
    Last,
}

#[cfg(test)]
mod tests;
