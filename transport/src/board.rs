//! The board of an arena: where the epoll sets of one side hear of all their connections by a few words, instead of looking at a
//! page of each.
//!
//! Called by `shm::board`. A set takes a *seat* and wishes by it on its connections (`crate::doorbell`); that stands. Whoever
//! publishes on one of them marks it, then looks at the seat: a ticket there says that the set sleeps, and it is rung unless it
//! has been by that ticket.
//!
//! The rule: who marks does it after publishing and before looking at the seat; who sleeps puts the ticket there before looking at
//! the marks for the last time; and a mark is taken before its connection is looked at. So one of the two sees the other. (Model
//! checked in `tests/loom/boards.rs`.)
//!
//! What the other side writes here can make a set look in vain, or leave the connections of that arena unheard, which are its own.

use crate::doorbell::{Seat, Ticket};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Connections that a board has marks for.
pub const MARKS: usize = 256;

/// Epoll sets of one side that an arena has seats for.
pub const SEATS: usize = if cfg!(loom) { 1 } else { 128 };

/// The words of one side's board.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Board {
    pub news: News,
    /// Seats taken so far.
    pub turns: AtomicU32,
    pub seats: [Place; SEATS],
}

/// A bit for each slot: set by the other side, which has published something there; taken by the set that has the connection.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct News(pub [AtomicU64; MARKS / 64]);

/// A seat on a board.
#[repr(C)]
#[derive(Debug)]
pub struct Place {
    /// Which of those that have had it has it now; 0: none.
    pub turn: AtomicU32,
    /// The ticket of that set's sleep; 0 while it is awake.
    pub ticket: AtomicU64,
}

/// All that is sequentially consistent happens in one order, but loom holds only fences to it.
#[inline]
fn in_one_order() {
    #[cfg(loom)]
    crate::sync::fence(Ordering::SeqCst);
}

impl Board {
    fn place(&self, seat: Seat) -> Option<&Place> {
        self.seats.get(usize::from(seat.at))
    }

    /// A seat that nobody has. `None`: there is none.
    pub fn sit_down(&self) -> Option<Seat> {
        let (yes, no) = (Ordering::SeqCst, Ordering::Relaxed);
        let turn = self
            .turns
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1)
            .max(1);
        let free = |place: &Place| place.turn.compare_exchange(0, turn, yes, no).is_ok();
        let at = self.seats.iter().position(free)?;
        let at = u8::try_from(at).ok()?;
        Some(Seat { at, turn })
    }

    /// It is given back. The set that had it does not sleep.
    pub fn stand_up(&self, seat: Seat) {
        self.seat(seat, None);
        if let Some(place) = self.place(seat) {
            place.turn.store(0, Ordering::SeqCst);
        }
    }

    /// The word of a slot's mark, and its bit there.
    fn mark_of(&self, slot: u8) -> Option<(&AtomicU64, u64)> {
        let word = self.news.0.get(usize::from(slot / 64))?;
        Some((word, 1 << (slot % 64)))
    }

    /// By which ticket the set of a seat sleeps. Not if it has left: a bell would be counted for whoever sits there now.
    pub fn sleeps_by(&self, seat: Seat) -> Option<Ticket> {
        let place = self.place(seat)?;
        let is_its = || place.turn.load(Ordering::SeqCst) == seat.turn;
        let ticket = is_its().then(|| place.ticket.load(Ordering::SeqCst))?;
        Ticket::new(ticket).filter(|_| is_its())
    }

    /// Marks a slot, and says by which ticket the set of a seat sleeps, if it does.
    pub fn mark(&self, slot: u8, seat: Seat) -> Option<Ticket> {
        let (word, bit) = self.mark_of(slot)?;
        word.fetch_or(bit, Ordering::SeqCst);
        in_one_order();
        self.sleeps_by(seat)
    }

    /// Puts the ticket of a sleep on a seat, or takes it away.
    pub fn seat(&self, seat: Seat, ticket: Option<Ticket>) {
        if let Some(place) = self.place(seat) {
            let number = ticket.map_or(0, Ticket::number);
            place.ticket.store(number, Ordering::SeqCst);
            in_one_order();
        }
    }

    /// Takes the marks of those slots of a word that are wanted.
    #[inline]
    pub fn take(&self, word: usize, wanted: u64) -> u64 {
        self.news.0.get(word).map_or(0, |news| {
            if news.load(Ordering::SeqCst) & wanted == 0 {
                return 0;
            }
            news.fetch_and(!wanted, Ordering::SeqCst) & wanted
        })
    }
}

const _: () = assert!(SEATS <= 256);
