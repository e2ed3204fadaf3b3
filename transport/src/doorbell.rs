//! The doorbell's promise: whoever goes to sleep on a direction is woken if anything was published
//! before or after it decided to, and nobody is rung who is awake.
//!
//! Two words decide: one that the publisher changes (bytes produced, bytes consumed) and `armed`,
//! which the sleeper sets. Each side writes its word, fences, then reads the other's; so at least one
//! of them sees the other (the store-buffer pattern; model checked in `tests/loom.rs`). What the ring
//! itself is — a byte on the kernel connection — is the caller's.
//!
//! **Tickets.** An epoll set sleeps on many connections at once, and one bell wakes it for all. So it wishes with a
//! number, drawn anew for each sleep and the same on all of them: a publisher that has rung it by one connection
//! ([`Rung`]) passes the others of the same arena over. Wishes with a ticket and without have bits of their own in the word, so
//! what a set says takes nothing from who sleeps in a call on the same connection, and that one is always rung.
//! The sleeper's part: a ticket whose bell may have gone by it is never slept on again, and stands on no connection whose
//! bells do not wake the set (`preload::epoll`).

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The sleeper waits for bytes.
pub const DATA: u32 = 1;
/// The sleeper waits for room.
pub const SPACE: u32 = 2;
/// The sleeper waits for the reader of a buffer that it has advertised.
pub const TAKEN: u32 = 4;

/// All that can be wished for.
const ALL: u64 = 7;
/// How far left the wishes of a set stand from the others.
const OF_SET: u32 = 3;
/// How far left its ticket stands.
const TICKET: u32 = 6;

/// Bits of a ticket. (What is left of a word is the arena's, in [`Rung`].)
const BITS: u32 = 48;
/// How often a word is tried that the peer keeps changing.
const TRIES: u32 = 8;

/// The number of one sleep of one epoll set. Sets begin with numbers far from each other. All that a set is connected to can
/// read it, so it counts only between the two ends of one arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

impl Ticket {
    /// From the low bits of a number, unless all are zero.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        match number & ((1 << BITS) - 1) {
            0 => None,
            number => Some(Self(number)),
        }
    }

    /// As it lies in a peer's word.
    const fn in_word(word: u64) -> Option<Self> {
        Self::new(word >> TICKET)
    }

    /// As it is remembered.
    const fn of(self, arena: u16) -> u64 {
        self.0 | (arena as u64) << BITS
    }

    /// What a set's next sleep counts on from.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// How many sets are remembered at once. Those that share a place are rung more often than they need.
const PLACES: usize = if cfg!(loom) { 1 } else { 64 };

/// The tickets that were rung last.
#[derive(Debug)]
pub struct Rung([AtomicU64; PLACES]);

impl Default for Rung {
    fn default() -> Self {
        Self::new()
    }
}

impl Rung {
    /// None yet.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; PLACES])
    }

    /// None yet.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Of one arena (which has one process at the other end, mostly) the sets share a place with few others.
    #[allow(clippy::cast_possible_truncation)]
    fn place(&self, arena: u16, t: Ticket) -> Option<&AtomicU64> {
        let set = (t.0 >> 32) as usize;
        self.0.get((set ^ arena as usize) % PLACES)
    }

    /// Notes a ticket whose set has been rung by a connection of this arena: the bell is on its way.
    pub fn note(&self, arena: u16, t: Ticket) {
        if let Some(place) = self.place(arena, t) {
            place.store(t.of(arena), Ordering::Release);
        }
    }

    /// Whether it has been.
    #[inline]
    #[must_use]
    pub fn has(&self, arena: u16, t: Ticket) -> bool {
        self.place(arena, t)
            .is_some_and(|place| place.load(Ordering::Acquire) == t.of(arena))
    }
}

/// Sleeper: announces that it wants to be rung for `what`. It must look at the published word again
/// after this and before it sleeps.
#[inline]
pub fn arm(armed: &AtomicU64, what: u32) {
    if wish(armed, what) {
        fence(Ordering::SeqCst);
    }
}

/// Sleeper: states a wish without a barrier. True if it is new: then a barrier
/// ([`crate::sys::barrier::heavy`]) has to come before the look that decides about sleeping. Several
/// wishes can share one.
#[inline]
pub fn wish(armed: &AtomicU64, what: u32) -> bool {
    let what = u64::from(what);
    armed.load(Ordering::Relaxed) & what != what
        && armed.fetch_or(what, Ordering::SeqCst) & what != what
}

/// Sleeper, an epoll set: as [`wish`], with the ticket of this sleep in place of an earlier one's. A barrier is due. Of
/// several sets that hold the connection none may use this. False: the peer keeps changing the word.
#[must_use]
pub fn wish_by(armed: &AtomicU64, what: u32, ticket: Ticket) -> bool {
    let new = ticket.0 << TICKET | u64::from(what) << OF_SET;
    let mut seen = armed.load(Ordering::Relaxed);
    for _ in 0..TRIES {
        match armed.compare_exchange(seen, new | seen & ALL, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

/// Sleeper: takes the wish back. A ring may already be under way.
#[inline]
pub fn disarm(armed: &AtomicU64, what: u32) {
    let what = u64::from(what);
    if armed.load(Ordering::Relaxed) & what != 0 {
        armed.fetch_and(!what, Ordering::SeqCst);
    }
}

/// Sleeper, an epoll set: takes back what it wished for with a ticket, and the ticket.
pub fn disarm_by(armed: &AtomicU64) {
    if armed.load(Ordering::Relaxed) & !ALL != 0 {
        armed.fetch_and(ALL, Ordering::SeqCst);
    }
}

/// The wishes that stand, with a ticket or without.
#[inline]
pub fn armed(armed: &AtomicU64) -> u32 {
    let word = armed.load(Ordering::Relaxed);
    #[allow(clippy::cast_possible_truncation)]
    let all = ((word | word >> OF_SET) & ALL) as u32;
    all
}

/// Whether the peer sleeps and waits for this, and nobody has rung it yet.
#[inline]
pub fn sleeps(armed: &AtomicU64, what: u32, is_rung: impl Fn(Ticket) -> bool) -> bool {
    let word = armed.load(Ordering::Relaxed);
    let (plain, by_set) = (u64::from(what), u64::from(what) << OF_SET);
    word & plain != 0 || word & by_set != 0 && !Ticket::in_word(word).is_some_and(is_rung)
}

/// Publisher, about to ring: whom the bell wakes besides. To be noted once the bell is sent.
#[inline]
pub fn ticket(armed: &AtomicU64) -> Option<Ticket> {
    Ticket::in_word(armed.load(Ordering::Relaxed))
}

/// Publisher, whose barrier has just been issued: as [`must_ring`].
#[inline]
pub fn is_wished(armed: &AtomicU64, what: u32, is_rung: impl Fn(Ticket) -> bool) -> bool {
    let (plain, by_set) = (u64::from(what), u64::from(what) << OF_SET);
    let mut seen = armed.load(Ordering::Relaxed);
    for _ in 0..TRIES {
        if seen & (plain | by_set) == 0 {
            return false;
        }
        if seen & plain == 0 && Ticket::in_word(seen).is_some_and(&is_rung) {
            return false; // the wish stands, for a bell that is on its way
        }
        let rest = seen & !(plain | by_set);
        match armed.compare_exchange(seen, rest, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    true // (to ring once too often does no harm)
}

/// Publisher, after it has stored its word: whether it has to ring. True for exactly one publisher
/// per arming.
#[inline]
pub fn must_ring(armed: &AtomicU64, what: u32, is_rung: impl Fn(Ticket) -> bool) -> bool {
    fence(Ordering::SeqCst);
    is_wished(armed, what, is_rung)
}

/// Sleeper, before a nap on the word itself (`crate::shm`). It issues a barrier and looks again before it sleeps, and sleeps only
/// as long as the word stays what this made it.
pub fn lie_down(napping: &AtomicU32) {
    napping.store(1, Ordering::SeqCst);
}

/// Publisher, after its barrier: whether somebody naps and has to be woken. True for one publisher per nap.
#[inline]
#[must_use]
pub fn naps(napping: &AtomicU32) -> bool {
    napping.load(Ordering::Relaxed) != 0 && napping.swap(0, Ordering::SeqCst) != 0
}
