//! Buffers of the program's that are lent by a ring: what both sides do. A large message then goes past the rings, by RDMA Reads of
//! the adapter from where the one program has it to where the other wants it (SDP's Read zero copy).
//!
//! The *lender* registers the buffer and says where it lies (SrcAvail, among the octets); the *borrower* reads it piece by piece
//! and asks for each ([`Said::Wants`]), in words that go as those of the ring do ([`Tell`]); the lender allows it. So the lender knows
//! at any time whether a Read can be under way, and may end the loan between two: what its borrower says then is late, and
//! known for that by the loan's number. No more than one piece is ever uncertain, where an adapter fails in the middle of it.
//!
//! Rules: a loan lasts no longer than the call whose buffer it is, which holds its direction's lock and does not sleep for long;
//! the registration is gone when the call goes on. The same for the borrower's buffer.

use super::tell::{Loan, Said, Tell};
use super::{Ring, Word};
use crate::clock;
use crate::sys::{self, Errno, Result, time};
use crate::verbs::{Operation, Work};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes that are read at a time, at most: as many as a lender can keep a copy of (`wire::outgoing`).
pub(crate) const PIECE: u32 = 160 * 1024;

/// How long (µs) a word is tried to be told.
const TELL_US: u64 = 50_000;
/// How long (µs) somebody looks between yields before it naps (µs) between looks.
const LOOK_US: u64 = 200;
const NAP_US: u64 = 50;

/// The words of a ring about loans: each the last that was heard, 0 for none; and the numbers of the last ones.
#[derive(Debug)]
pub(super) struct Loans {
    /// Of the peer's as borrower, and as lender.
    borrower: AtomicU32,
    lender: AtomicU32,
    /// Numbers of what was lent and borrowed last.
    pub(super) lent: AtomicU32,
    pub(super) borrowed: AtomicU32,
}

impl Loans {
    pub(super) const fn new() -> Self {
        Self {
            borrower: AtomicU32::new(0),
            lender: AtomicU32::new(0),
            lent: AtomicU32::new(0),
            borrowed: AtomicU32::new(0),
        }
    }

    /// The peer has told a word of these.
    pub(super) fn hear(&self, tell: Tell) {
        match tell {
            Tell::Borrower(_) => self.borrower.store(tell.to_word(), Ordering::Release),
            Tell::Lender(_) => self.lender.store(tell.to_word(), Ordering::Release),
            Tell::Put(_) | Tell::Taken(_) => {}
        }
    }

    /// This side, as lender, begins one of this number.
    pub(super) fn begin(&self, number: u32) {
        self.borrower.store(0, Ordering::Release);
        self.lent.store(number, Ordering::Relaxed);
    }

    /// This side, as borrower, is about to ask: the answer to what it has asked before says nothing any more.
    pub(super) fn ask(&self) {
        self.lender.store(0, Ordering::Release);
    }

    /// The last word of the peer's about what is lent to it under this number.
    pub(super) fn borrower(&self, number: u32) -> Option<Loan> {
        match Tell::from_word(self.borrower.load(Ordering::Acquire)) {
            Tell::Borrower(loan) if loan.number == number => Some(loan),
            _ => None,
        }
    }

    /// And about what it lends.
    pub(super) fn lender(&self, number: u32) -> Option<Loan> {
        match Tell::from_word(self.lender.load(Ordering::Acquire)) {
            Tell::Lender(loan) if loan.number == number => Some(loan),
            _ => None,
        }
    }
}

/// A moment for somebody who has waited since then (ticks).
pub(super) fn pause(since: u64) {
    if clock::ticks().wrapping_sub(since) < clock::us(LOOK_US) {
        sys::yield_core();
    } else {
        let _ = time::nap(NAP_US);
    }
}

impl Ring {
    /// Tells the peer this, without octets.
    ///
    /// # Errors
    /// The ring is over, or cannot be used: then it is over now.
    pub(super) fn tell(&self, tell: Tell) -> Result<()> {
        let (remote, rkey) = self.peer.get();
        // SAFETY: no octets.
        let told = unsafe {
            self.post_one(|id| Work {
                operation: Operation::WriteInline,
                local: ptr::null_mut(),
                len: 0,
                lkey: self.lkey(),
                remote,
                rkey,
                signaled: true,
                tell: Some(tell.to_word()),
                id,
            })
        };
        told.map(|_| ())
    }

    /// Posts a request, however long the adapter is others', up to a point. Its number.
    ///
    /// # Errors
    /// As [`Self::tell`].
    ///
    /// # Safety
    /// As [`super::posting::Posting::post`].
    pub(super) unsafe fn post_one(&self, work: impl Fn(u64) -> Work) -> Result<u64> {
        let begun = clock::ticks();
        loop {
            let number = Cell::new(0);
            // SAFETY: the caller's promise.
            let posted = unsafe {
                self.posting.post(self, 1, |id| {
                    number.set(id);
                    [Some(work(id)), None]
                })
            };
            match posted {
                Ok(()) => return Ok(number.get()),
                Err(Errno::AGAIN)
                    if !self.is_over()
                        && clock::ticks().wrapping_sub(begun) < clock::us(TELL_US) =>
                {
                    self.reap();
                    pause(begun);
                }
                Err(e) => {
                    self.fail();
                    return Err(e);
                }
            }
        }
    }

    /// Nothing that was posted is carried out any more, nor anything of the peer's.
    pub(super) fn halt(&self) {
        self.fail();
        self.posting.halt(self);
    }

    /// What goes by the ring, as a mark that changes with it.
    pub(super) fn taken_by_peer(&self) -> u64 {
        self.heard(Word::Taken)
    }
}

/// Whether a word of a borrower's is one that it may say behind `read` bytes, of which it was allowed to read up to `allowed`.
pub(super) const fn is_lawful(loan: Loan, read: u32, allowed: u32) -> bool {
    read <= loan.bytes && loan.bytes <= allowed
}

/// What a lender says.
pub(super) const fn allows(number: u32, bytes: u32) -> Tell {
    Tell::Lender(Loan {
        number,
        said: Said::Idles,
        bytes,
    })
}
