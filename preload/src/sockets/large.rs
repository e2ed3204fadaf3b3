//! Waiting where large messages come (`transport::direct`): a reader looks for a while with its buffer posted,
//! so that what comes goes straight there. Called by `recv`, before the looks that end in a sleep.
//!
//! Rule: a buffer of the program is posted only under the receiving lock, so that no handler of the
//! program runs and nobody else reads while the peer may write to it.

use super::wait::{Want, may_go};
use super::{Socket, spin};
use crate::signals::since::Since;
use transport::provider::Provider;

/// Looks for something to come. Under the receiving lock.
pub(super) fn linger(s: &'static Socket, p: &impl Provider) {
    let look = |_| p.pending().is_some() || may_go(s, Want::Data);
    spin::spin(s.budget.us(), &s.company, Since::now(), look, || false);
}
