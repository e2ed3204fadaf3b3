//! A buffer of this side's that the peer reads: the lender's part of `loans`. Under the sending lock.

use super::Ring;
use super::loans::{PIECE, allows, is_lawful, pause};
use super::tell::{self, Said};
use crate::clock;
use crate::verbs::{Access, Registered};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// How long (µs) one that has begun to read is waited for; and a Read, which an adapter makes short unless its link has failed.
const BEGUN_US: u64 = 10_000;
const READING_US: u64 = 2_000_000;
/// And how long a loan is at most, however often the peer says this or that.
const MOST_US: u64 = 5_000_000;

/// Bytes that are lent at once: a call looks after signals and time-outs in between.
const MOST: usize = 1 << 20;
const _: () = assert!(MOST <= tell::MOST as usize);

/// A loan, registered as long as it is there.
#[derive(Debug)]
pub struct Lent<'a> {
    ring: &'a Ring,
    registered: Box<dyn Registered>,
    at: u64,
    len: u32,
    number: u32,
    /// Bytes that the peer has read, and up to where it may.
    read: u32,
    allowed: u32,
}

impl Ring {
    /// Lends so many bytes, if the adapter does that and has room. Whoever has it says so next, as the first thing by the ring.
    ///
    /// # Safety
    /// They are readable as long, and whoever changes them meanwhile does not rely on what the peer reads.
    pub unsafe fn lend(&self, at: *mut u8, len: usize) -> Option<Lent<'_>> {
        let memory = NonNull::new(at)?;
        let short = u32::try_from(len.min(MOST)).ok()?;
        // (words of loans are more than slots have room for)
        if self.is_over() || self.incoming.is_on() || self.outgoing.is_on() {
            return None;
        }
        // SAFETY: the caller's promise.
        let registered =
            unsafe { (self.adapter()).register(memory, short as usize, Access::Lends) }?;
        Some(Lent {
            ring: self,
            registered,
            at: at.expose_provenance() as u64,
            len: short,
            number: tell::next(self.loans.lent.load(Ordering::Relaxed)),
            read: 0,
            allowed: 0,
        })
    }
}

impl Lent<'_> {
    /// Where it lies, the peer's key to it, and how long it is.
    #[must_use]
    pub fn place(&self) -> (u64, u32, u32) {
        (self.at, self.registered.rkey(), self.len)
    }

    /// The peer is about to be told of it. What was said of one that had this number long ago is forgotten.
    pub fn count(&self) {
        self.ring.loans.begin(self.number);
    }

    /// It was not told.
    pub fn uncount(&self) {
        let before = tell::before(self.number);
        self.ring.loans.lent.store(before, Ordering::Relaxed);
    }

    /// Sees to it until the peer has read it all, or does not go on for so long (µs).
    pub fn serve(&mut self, patience_us: u64) {
        let begun = clock::ticks();
        let mut since = begun;
        let mut taken = self.ring.taken_by_peer();
        let mut last = None;
        while !self.ring.is_over() && self.read < self.len {
            self.ring.reap();
            if !self.is_uncertain() && clock::ticks().wrapping_sub(begun) > clock::us(MOST_US) {
                return;
            }
            let said = self.ring.loans.borrower(self.number);
            let moves = self.ring.taken_by_peer();
            if said != last || moves != taken {
                (last, taken, since) = (said, moves, clock::ticks());
                if let Some(loan) = said {
                    if !is_lawful(loan, self.read, self.allowed.max(self.read)) {
                        self.ring.fail();
                        return;
                    }
                    self.read = loan.bytes;
                    match loan.said {
                        Said::Declines => {
                            self.allowed = self.read;
                            return;
                        }
                        Said::Idles => self.allowed = self.read,
                        Said::Wants => {
                            self.allowed = self.len.min(self.read + PIECE);
                            let allowed = allows(self.number, self.allowed);
                            if self.allowed > self.read && self.ring.tell(allowed).is_err() {
                                return;
                            }
                        }
                    }
                }
                continue;
            }
            let patience = if self.is_uncertain() {
                READING_US
            } else if said.is_some() {
                BEGUN_US
            } else {
                patience_us
            };
            if clock::ticks().wrapping_sub(since) > clock::us(patience) {
                if self.is_uncertain() {
                    self.ring.halt();
                }
                return;
            }
            pause(since);
        }
    }

    /// Whether the peer may be reading.
    const fn is_uncertain(&self) -> bool {
        self.read < self.allowed
    }

    /// Ends it: nothing of it is read any more. How many bytes the peer has read for certain, and up to where it may have.
    #[must_use]
    pub fn end(self) -> (usize, usize) {
        (self.read as usize, self.allowed.max(self.read) as usize)
    }
}
