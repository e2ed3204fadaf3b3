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
//!
//! **Seats.** A set with very many connections neither looks at each nor wishes anew on each for every sleep. Its wish names a
//! seat on the arena's board (`crate::shm::board`) and stands for as long as the set likes: who publishes marks the connection on the
//! board, where the set finds it, and rings only while there is a ticket on that seat: then the set sleeps.

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

/// The place of an epoll set on the board of an arena, and which of those that have had it the set is: a wish by it may outlive the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    pub at: u8,
    pub turn: u32,
}

/// How far left the turn of a seat stands.
const TURN: u32 = TICKET + 8;

/// In a word: it is a seat that stands in the place of the ticket.
const BY_SEAT: u64 = 1 << 63;

/// By what a set wishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Ticket(Ticket),
    Seat(Seat),
}

impl By {
    /// As it lies in a peer's word.
    const fn in_word(word: u64) -> Option<Self> {
        if word & BY_SEAT != 0 {
            #[allow(clippy::cast_possible_truncation)]
            return Some(Self::Seat(Seat {
                at: (word >> TICKET) as u8,
                turn: (word >> TURN) as u32,
            }));
        }
        match Ticket::new(word >> TICKET) {
            Some(ticket) => Some(Self::Ticket(ticket)),
            None => None,
        }
    }

    const fn word(self) -> u64 {
        match self {
            Self::Ticket(t) => t.0 << TICKET,
            Self::Seat(s) => BY_SEAT | (s.turn as u64) << TURN | (s.at as u64) << TICKET,
        }
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

/// Sleeper, an epoll set: as [`wish`], with the ticket of this sleep, or a seat, in place of an earlier one's. A barrier is due. Of
/// several sets that hold the connection none may use this. False: the peer keeps changing the word.
#[must_use]
pub fn wish_by(armed: &AtomicU64, what: u32, by: By) -> bool {
    let new = by.word() | u64::from(what) << OF_SET;
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

/// The wishes that stand for a bell, with a ticket or without. (One by a seat is for the board in the first place.)
#[inline]
pub fn armed(armed: &AtomicU64) -> u32 {
    let word = armed.load(Ordering::Relaxed);
    let by_set = if word & BY_SEAT == 0 {
        word >> OF_SET
    } else {
        0
    };
    #[allow(clippy::cast_possible_truncation)]
    let all = ((word | by_set) & ALL) as u32;
    all
}

/// Whether the peer sleeps and waits for this, and nobody has rung it yet. `is_awake`: whether a set that wishes by this needs no bell.
#[inline]
pub fn sleeps(armed: &AtomicU64, what: u32, is_awake: impl Fn(By) -> bool) -> bool {
    let word = armed.load(Ordering::Relaxed);
    let (plain, by_set) = (u64::from(what), u64::from(what) << OF_SET);
    word & plain != 0 || word & by_set != 0 && !By::in_word(word).is_some_and(is_awake)
}

/// Publisher, about to ring: whom the bell wakes besides. To be noted, as a ticket, once the bell is sent.
#[inline]
pub fn by(armed: &AtomicU64) -> Option<By> {
    By::in_word(armed.load(Ordering::Relaxed))
}

/// Publisher, whose barrier has just been issued: as [`must_ring`].
#[inline]
pub fn is_wished(armed: &AtomicU64, what: u32, is_told: impl Fn(By) -> bool) -> bool {
    let (plain, by_set) = (u64::from(what), u64::from(what) << OF_SET);
    let mut seen = armed.load(Ordering::Relaxed);
    for _ in 0..TRIES {
        if seen & (plain | by_set) == 0 {
            return false;
        }
        // (asked whatever else is wished for: who has a seat is told in any case)
        let told = seen & by_set == 0 || By::in_word(seen).is_some_and(&is_told);
        if seen & plain == 0 && told {
            return false; // the wish stands: a bell is on its way, or none is needed
        }
        let stands = if seen & BY_SEAT == 0 { 0 } else { by_set };
        let rest = seen & !(plain | by_set & !stands);
        match armed.compare_exchange(seen, rest, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    true // (to ring once too often does no harm)
}

/// Publisher, after it has stored its word: whether it has to ring. True for exactly one publisher
/// per arming without a seat. `is_told`: whether a set that wishes by this is rung already, or, once marked, needs no bell.
#[inline]
pub fn must_ring(armed: &AtomicU64, what: u32, is_told: impl Fn(By) -> bool) -> bool {
    fence(Ordering::SeqCst);
    is_wished(armed, what, is_told)
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
