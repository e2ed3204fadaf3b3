//! A buffer of the peer's that this side reads: the borrower's part of `loans`. Under the receiving lock.

use super::Ring;
use super::loans::pause;
use super::tell::{self, Loan, Said, Tell};
use crate::clock;
use crate::verbs::{Access, Operation, Registered, Work};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// How long (µs) a lender may take to allow a Read, which is in the call that lends; and a Read.
const ALLOW_US: u64 = 20_000;
const READ_US: u64 = 1_000_000;

/// What the peer lends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Borrowed {
    rkey: u32,
    address: u64,
    len: u32,
    number: u32,
    /// Bytes that were read.
    read: u32,
    /// It can be read.
    live: bool,
    /// Something was said of it.
    begun: bool,
}

impl Borrowed {
    /// The peer lends this. Without a ring by which it can be read the rest comes otherwise.
    #[must_use]
    pub fn new(ring: Option<&Ring>, (address, rkey, len): (u64, u32, u32)) -> Self {
        let number = ring.map_or(0, |ring| {
            let number = tell::next(ring.loans.borrowed.load(Ordering::Relaxed));
            ring.loans.borrowed.store(number, Ordering::Relaxed);
            number
        });
        Self {
            rkey,
            address,
            len,
            number,
            read: 0,
            live: ring.is_some(),
            begun: false,
        }
    }

    /// Bytes that were read of it, and that were not.
    #[must_use]
    pub const fn read(&self) -> u32 {
        self.read
    }

    #[must_use]
    pub const fn left(&self) -> usize {
        (self.len - self.read) as usize
    }

    /// Whether there is more of it to be read.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        self.live && self.read < self.len
    }

    /// Reads the next bytes. How many: fewer than there is room for if that is all, or no more are to be had so.
    ///
    /// # Safety
    /// The buffer is writable, and nobody's but the caller's.
    pub unsafe fn pull(&mut self, ring: &Ring, to: *mut u8, room: usize) -> usize {
        // (somebody is here: registering may take longer than who does not come is waited for)
        if !std::mem::replace(&mut self.begun, true) && !self.say(ring, Said::Idles) {
            return 0;
        }
        let want = u32::try_from(room.min(self.left())).unwrap_or(0); // (less than the loan)
        let registered = NonNull::new(to).filter(|_| want > 0).and_then(|memory| {
            // SAFETY: the caller's promise.
            unsafe { (ring.adapter()).register(memory, want as usize, Access::Takes) }
        });
        let Some(registered) = registered else {
            self.say(ring, Said::Declines);
            return 0;
        };
        let mut done = 0;
        while done < want && self.is_live() {
            ring.loans.ask();
            if !self.say(ring, Said::Wants) {
                return done as usize;
            }
            let Some(allowed) = self.await_leave(ring) else {
                self.say(ring, Said::Declines);
                return done as usize;
            };
            let n = (allowed - self.read).min(want - done);
            // SAFETY: within the buffer.
            let at = unsafe { to.add(done as usize) };
            // SAFETY: as above.
            if !unsafe { self.read_piece(ring, at, n, &*registered) } {
                registered.failed();
                self.live = false;
                ring.halt();
                return done as usize;
            }
            (self.read, done) = (self.read + n, done + n);
        }
        // (what was read is safe, whether the peer hears of it or not)
        self.say(ring, Said::Idles);
        done as usize
    }

    /// Says how it stands. False if that cannot be: the ring is over.
    fn say(&mut self, ring: &Ring, said: Said) -> bool {
        let told = ring.tell(Tell::Borrower(Loan {
            number: self.number,
            said,
            bytes: self.read,
        }));
        self.live &= told.is_ok() && said != Said::Declines;
        told.is_ok()
    }

    /// Up to where it may be read, once the lender says so; none if it does not, or takes it back, which it says among the octets.
    fn await_leave(&self, ring: &Ring) -> Option<u32> {
        let since = clock::ticks();
        loop {
            ring.reap();
            let said = ring.loans.lender(self.number);
            if let Some(loan) = said.filter(|l| l.bytes > self.read && l.bytes <= self.len) {
                return Some(loan.bytes);
            }
            let late = clock::ticks().wrapping_sub(since) > clock::us(ALLOW_US);
            if ring.is_over() || late || ring.available() > 0 {
                return None;
            }
            pause(since);
        }
    }

    /// Reads so many bytes, and waits for them. False: the adapter has failed.
    ///
    /// # Safety
    /// They are writable, and registered.
    unsafe fn read_piece(
        &self,
        ring: &Ring,
        to: *mut u8,
        n: u32,
        registered: &dyn Registered,
    ) -> bool {
        let work = |id| Work {
            operation: Operation::Read,
            local: to,
            len: n,
            lkey: registered.lkey(),
            remote: self.address.wrapping_add(self.read.into()),
            rkey: self.rkey,
            signaled: true,
            tell: None,
            id,
        };
        // SAFETY: the caller's promise, for as long as it takes: it is done below, or the adapter is halted.
        let Ok(number) = (unsafe { ring.post_one(work) }) else {
            return false;
        };
        let since = clock::ticks();
        loop {
            if ring.posting.is_done(number) {
                return true;
            }
            if ring.is_over() || clock::ticks().wrapping_sub(since) > clock::us(READ_US) {
                return false;
            }
            ring.reap();
            pause(since);
        }
    }
}
