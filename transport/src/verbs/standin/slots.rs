//! The receives of a stand-in that have memory, as a list that the peer looks at from outside; and what the peer tells of how it has
//! used them.

use super::{
    LOCAL_PROTECTION, NOT_READY, Queue, RECEIVES_AT, REMOTE_ACCESS, RETRY_EXCEEDED, Seen, StandIn,
    TELLS, within,
};
use crate::sys::vm;
use crate::verbs::{Done, Landed, RECEIVES, Work};
use std::sync::atomic::{AtomicU32, Ordering};

/// Places of the list.
const PLACES: usize = 64;
const _: () = assert!(PLACES > RECEIVES);

/// Which slots were posted, by the number of the receive.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Receives([AtomicU32; PLACES]);

const fn place(number: u64) -> u64 {
    number % PLACES as u64
}

impl Receives {
    /// Each slot once, the first so many receives.
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|i| {
            AtomicU32::new(u32::try_from(i).unwrap_or(0))
        }))
    }

    pub(super) fn put(&self, number: u64, slot: u32) {
        let place = usize::try_from(place(number)).ok();
        if let Some(at) = place.and_then(|place| self.0.get(place)) {
            at.store(slot, Ordering::Relaxed);
        }
    }

    /// The slot of a receive of the peer's, whose list is there.
    pub(super) fn far(pid: u32, at: u64, number: u64) -> Option<u32> {
        let mut slot = 0u32;
        let from = at + place(number) * size_of::<u32>() as u64;
        // SAFETY: four octets of a local.
        let n = unsafe { vm::read(pid, from, (&raw mut slot).cast(), size_of::<u32>()) };
        (n == Ok(size_of::<u32>()) && (slot as usize) < RECEIVES).then_some(slot)
    }
}

/// What the peer has told: a word, or that octets have landed.
///
/// | bits | what |
/// |---|---|
/// | 63 to 56 | the turn: how often its place has been used |
/// | 47 | octets |
/// | 46 to 32 | the slot of the receive that was used, and one; 0: none |
/// | 31 to 0 | the word, or how many octets |
///
/// The turn is written last and by itself, so that the entry is there once it is right: the kernel's copies do not write a
/// word at once, and a number of more than one octet can be seen half written.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct Entry(u64);

const OCTETS: u64 = 1 << 47;
/// Octets before the turn.
pub(super) const BEFORE_TURN: usize = 7;
const _: () = assert!(cfg!(target_endian = "little"));

impl Entry {
    pub(super) fn word(word: u32, slot: Option<u32>) -> Self {
        let slot = slot.map_or(0, |slot| u64::from(slot) + 1);
        Self(slot << 32 | u64::from(word))
    }

    pub(super) fn landed(slot: u32, len: u32) -> Self {
        Self(Self::word(len, Some(slot)).0 | OCTETS)
    }

    /// The entry of this number, if it is that one.
    pub(super) fn numbered(bits: u64, number: u64) -> Option<Self> {
        (bits >> (8 * BEFORE_TURN) == u64::from(turn(number))).then_some(Self(bits))
    }

    pub(super) fn slot(self) -> Option<u32> {
        u32::try_from(self.0 >> 32 & 0x7fff).ok()?.checked_sub(1)
    }

    pub(super) fn done(self) -> Done {
        let value = u32::try_from(self.0 & u64::from(u32::MAX)).unwrap_or(0);
        let landed = self.slot().filter(|_| self.0 & OCTETS != 0);
        Done {
            told: landed.is_none().then_some(value),
            landed: landed.map(|slot| Landed { slot, len: value }),
            ok: true,
            ..Done::default()
        }
    }
}

/// The turn of a number's place. Never that of what was there before, nor of a place that was not used.
#[allow(clippy::cast_possible_truncation, reason = "an octet is meant")]
pub(super) const fn turn(number: u64) -> u8 {
    (number / TELLS as u64 + 1) as u8
}

impl StandIn {
    /// Takes the peer's next receive: its slot; none where receives have no memory.
    pub(super) fn draw(
        &self,
        drawn: &mut u64,
        seen: &Seen,
        (pid, at): (u32, u64),
    ) -> Result<Option<u32>, u32> {
        if seen.slot == 0 {
            return Ok(None);
        }
        if *drawn >= seen.posted {
            return Err(NOT_READY);
        }
        let slot = Receives::far(pid, at + RECEIVES_AT, *drawn).ok_or(RETRY_EXCEEDED)?;
        *drawn += 1;
        Ok(Some(slot))
    }

    /// Carries a Send of octets out.
    pub(super) fn send(
        &self,
        work: &Work,
        queue: &mut Queue,
        seen: &Seen,
        peer: (u32, u64, u64),
    ) -> Result<(), u32> {
        let here = work.local.expose_provenance() as u64;
        let own = self.door;
        if work.lkey != self.key() || !within(here, work.len, own.base, own.len) {
            return Err(LOCAL_PROTECTION);
        }
        let slot = self.draw(&mut queue.drawn, seen, (peer.0, peer.1))?;
        let Some(slot) = slot.filter(|_| u64::from(work.len) <= seen.slot) else {
            return Err(REMOTE_ACCESS); // (no memory, or not enough)
        };
        let to = seen.base + u64::from(slot) * seen.slot;
        // SAFETY: the caller of `post` vouches for the local memory; the other process's the kernel checks.
        let copied = unsafe { vm::write(peer.0, work.local, to, work.len as usize) };
        if copied != Ok(work.len as usize) {
            return Err(RETRY_EXCEEDED);
        }
        self.tell(Entry::landed(slot, work.len), queue.told, seen, peer)?;
        queue.told += 1;
        Ok(())
    }
}
