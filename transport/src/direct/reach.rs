//! Whether this process may look into the memory of the other end, found out once for each connection and
//! process that asks: by looking.
//!
//! Rules: only a peer that the kernel says belongs to the same user is looked into (the rendezvous has
//! its word for that); and the process that the peer names has to be the one that maps this very segment: a
//! word written here is found there, twice. So a peer cannot make this process read a third one's memory
//! that it could not read itself.

use crate::reason::Reason;
use crate::shm::layout::{Control, Home, Side};
use crate::shm::segment::{Role, Segment};
use crate::sync::Ordering;
use crate::sys::{Errno, vm};
use crate::{clock, sys};
use std::mem::offset_of;
use std::sync::atomic::AtomicU32;

use super::policy;

/// This process.
static ME: AtomicU32 = AtomicU32::new(0);

/// Says which process this is; at start, and in a child after fork.
pub fn set_pid(pid: i32) {
    ME.store(pid.cast_unsigned(), Ordering::Relaxed);
}

/// The number of this process.
pub(crate) fn me() -> u32 {
    ME.load(Ordering::Relaxed)
}

/// Rounds of the proof.
const ROUNDS: u64 = 2;

/// The peer's memory can be reached; or not, for a reason in the next byte.
const YES: u32 = 1;
const REFUSED: u32 = 2;

/// The other end's process, for `sys::vm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub pid: u32,
    /// Where the control page lies there.
    page: u64,
}

/// One side's words, as seen from this one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whose {
    Mine,
    Peers,
}

impl Segment {
    /// Says where this side is. Before the other side can look, and again in a process that the stream was
    /// handed on to.
    pub fn settle_in(&self) {
        let home = &self.mine().home;
        home.at.store(
            (std::ptr::from_ref(self.control()).addr()) as u64,
            Ordering::Relaxed,
        );
        home.pid
            .store(ME.load(Ordering::Relaxed), Ordering::Release);
    }

    /// [`Self::settle_in`], if another process did it last.
    pub(super) fn stay(&self) {
        if self.mine().home.pid.load(Ordering::Relaxed) != ME.load(Ordering::Relaxed) {
            self.settle_in();
        }
    }

    /// Where a word of a side's lies in the peer's view of the control page.
    pub(super) const fn in_page(&self, peer: Peer, whose: Whose, offset: usize) -> u64 {
        let client = matches!(self.role(), Role::Client) == matches!(whose, Whose::Mine);
        let side = if client { 0 } else { size_of::<Side>() };
        peer.page.wrapping_add((side + offset) as u64)
    }

    /// The peer, if its memory can be reached.
    pub(super) fn peer_process(&self) -> Result<Peer, Reason> {
        let home = &self.peer().home;
        let pid = home.pid.load(Ordering::Acquire);
        let page = home.at.load(Ordering::Relaxed);
        let peer = Peer { pid, page };
        if pid == 0 {
            return Err(Reason::None); // it has not attached
        }
        let known = &self.mine().home.reach;
        let was = known.load(Ordering::Relaxed);
        #[allow(clippy::cast_possible_truncation)]
        let (for_pid, answer) = ((was >> 32) as u32, was as u32);
        if for_pid == pid && answer != 0 {
            return if answer == YES {
                Ok(peer)
            } else {
                Err(Reason::from_number((answer >> 8) as u8))
            };
        }
        let found = self.probe(peer);
        let answer = match found {
            Ok(()) => YES,
            Err(why) => REFUSED | (why as u32) << 8,
        };
        known.store(u64::from(pid) << 32 | u64::from(answer), Ordering::Relaxed);
        found.map(|()| peer)
    }

    /// Why the peer was found not to be reachable, if it was.
    pub(super) fn known_refusal(&self) -> Reason {
        let known = self.mine().home.reach.load(Ordering::Relaxed);
        #[allow(clippy::cast_possible_truncation)]
        let answer = known as u32;
        if answer & REFUSED == 0 {
            return Reason::None;
        }
        Reason::from_number((answer >> 8) as u8)
    }

    /// What has to be found in the peer's memory.
    pub(super) fn proof(&self, peer: Peer) -> vm::Proof {
        let offset = offset_of!(Side, home) + offset_of!(Home, nonce);
        vm::Proof {
            at: self.in_page(peer, Whose::Mine, offset),
            value: self.mine().home.nonce.load(Ordering::Relaxed),
        }
    }

    /// Whether the peer has found that it cannot look into this process.
    pub(super) fn is_refused(&self) -> bool {
        let answer = self.peer().home.reach.load(Ordering::Relaxed);
        #[allow(clippy::cast_possible_truncation)]
        let (pid, answer) = ((answer >> 32) as u32, answer as u32);
        pid == ME.load(Ordering::Relaxed) && answer & REFUSED != 0
    }

    #[cold]
    fn probe(&self, peer: Peer) -> Result<(), Reason> {
        if policy::large() == usize::MAX {
            return Err(Reason::ZcopyOff);
        }
        if !self.is_same_user() {
            return Err(Reason::ZcopyUser);
        }
        let nonce = &self.mine().home.nonce;
        let from = self.proof(peer).at;
        for round in 0..ROUNDS {
            let expected = scatter(clock::ticks() ^ std::ptr::from_ref(&round).addr() as u64);
            nonce.store(expected, Ordering::SeqCst);
            let proof = vm::Proof {
                at: from,
                value: expected,
            };
            let mut first = 0u8;
            // SAFETY: one writable byte.
            match unsafe { vm::pull(peer.pid, from, &raw mut first, 1, proof) } {
                Ok(true) => {}
                Err(Errno(libc::EPERM | libc::ENOSYS)) => return Err(Reason::ZcopyDenied),
                _ => return Err(Reason::ZcopyHidden),
            }
        }
        Ok(())
    }

    /// Whether the peer's process lives and is the program that it was, as far as the kernel says: the thread
    /// that copied has gone with the one before (exec ends all others).
    pub(super) fn peer_lives(&self) -> bool {
        let home = &self.peer().home;
        let peer = Peer {
            pid: home.pid.load(Ordering::Relaxed),
            page: home.at.load(Ordering::Relaxed),
        };
        if vm::is_over(peer.pid) {
            return false;
        }
        let proof = self.proof(peer);
        let mut byte = 0u8;
        // SAFETY: one writable byte.
        match unsafe { vm::pull(peer.pid, proof.at, &raw mut byte, 1, proof) } {
            // (a probe of another thread's may just have written another word)
            Ok(found) => found || self.proof(peer) != proof,
            // (otherwise it may not be looked into, or has no first thread any more)
            Err(e) => e != Errno::FAULT,
        }
    }
}

const _: () = assert!(offset_of!(Control, sides) == 0);

/// Spreads a number over all bits (the finalizer of splitmix64).
const fn scatter(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Lets another thread run; for looks of this module's callers.
pub(super) fn breathe(turn: u32) {
    if turn < 200 {
        std::hint::spin_loop();
    } else {
        sys::yield_core();
    }
}
