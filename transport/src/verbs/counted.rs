//! What both kinds of adapter do with a [`Ledger`]: work waits in it until the peer has room for the words that it tells, and
//! what comes of it and from the peer is handed out of it. What differs is a [`Carrier`].
//!
//! Rule: the carrier is used under the ledger's lock, by one thread at a time.

use super::ledger::Ledger;
use super::lock::Lock;
use super::message::Message;
use super::{Done, INLINE, Operation, Work};
use crate::sys::Result;
use std::ptr;

/// What has come of looking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Well,
    /// The connection has ended, or the peer has said what it must not.
    Ended,
}

/// A queue pair.
pub(super) trait Carrier {
    /// Gives the adapter what it can have.
    ///
    /// # Safety
    /// The memory of all that is held is as [`super::Adapter::post`] wants it.
    unsafe fn pump(&self, ledger: &mut Ledger) -> Look;

    /// Takes in what has come and what has ended.
    fn take_in(&self, ledger: &mut Ledger) -> Look;

    /// Says something of our own.
    fn say(&self, message: Message) -> Look;
}

/// The work and words of one queue pair.
#[derive(Debug)]
pub(super) struct Counted(Lock<Ledger>);

impl Counted {
    pub(super) fn new() -> Self {
        Self(Lock::new(Ledger::new()))
    }

    /// Works on what was posted and told, and ends it if that has come of it.
    pub(super) fn work<R>(&self, work: impl FnOnce(&mut Ledger) -> (R, Look)) -> R {
        self.0.with(|ledger| {
            let (r, look) = work(ledger);
            if look == Look::Ended {
                ledger.end();
            }
            r
        })
    }

    /// As [`super::Adapter::post`], of work that can be.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn post(&self, carrier: &impl Carrier, work: &[Work]) -> Result<()> {
        self.work(|ledger| {
            for work in work {
                let mut inline = [0; INLINE as usize];
                if work.operation == Operation::WriteInline && work.len > 0 {
                    let len = (work.len as usize).min(inline.len());
                    // SAFETY: the caller's promise; whoever has checked the work has seen to the length.
                    unsafe { ptr::copy_nonoverlapping(work.local, inline.as_mut_ptr(), len) };
                }
                if let Err(e) = ledger.take(*work, inline) {
                    return (Err(e), Look::Well);
                }
            }
            // SAFETY: the caller's promise.
            (Ok(()), unsafe { carrier.pump(ledger) })
        })
    }

    /// As [`super::Adapter::poll`].
    pub(super) fn poll(&self, carrier: &impl Carrier, done: &mut [Done]) -> usize {
        self.work(|ledger| {
            if look(carrier, ledger) == Look::Ended {
                ledger.end();
            }
            let n = ledger.hand_out(done);
            let said = ledger.take_back().map(|credits| carrier.say(credits));
            (n, said.unwrap_or(Look::Well))
        })
    }

    pub(super) fn end(&self) {
        self.0.with(Ledger::end);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.0.with(|ledger| ledger.has_ended())
    }
}

/// Takes in what has come, and lets go what may go now.
pub(super) fn look(carrier: &impl Carrier, ledger: &mut Ledger) -> Look {
    if ledger.has_ended() {
        return Look::Ended;
    }
    match carrier.take_in(ledger) {
        // SAFETY: whoever has posted it has promised that for its memory.
        Look::Well => unsafe { carrier.pump(ledger) },
        Look::Ended => Look::Ended,
    }
}
