//! Where the boards of this process's arenas lie (`crate::board`), and who has a seat there.
//!
//! Called by the shared-memory provider, who marks, and by sets with many connections (`preload::epoll`), who look. The rule: a board
//! is found by the number of its arena at each use, so that nothing is held of an arena that has gone.

use super::layout::Header;
use super::segment::{Role, Segment};
use crate::board::Board;
use crate::doorbell::{Seat, Ticket};
use crate::sync::Ordering;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU16};

/// Arenas of this process that have boards at a time. What comes beyond goes without.
const MOST: u16 = 4096;

/// Where the headers lie, by the arena's number.
static HEADERS: [AtomicPtr<Header>; MOST as usize] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MOST as usize];
/// The number of the next one. (It goes round, so that none is another's soon.)
static NEXT: AtomicU16 = AtomicU16::new(0);

/// This process's own number for an arena, for as long as that is mapped.
#[derive(Debug)]
pub(super) struct Number(u16);

impl Number {
    /// # Safety
    /// There is a header, which stays mapped as long as this lives.
    pub(super) unsafe fn of(header: NonNull<Header>) -> Self {
        for _ in 0..MOST {
            let number = NEXT.fetch_add(1, Ordering::Relaxed) % MOST;
            let free = |place: &AtomicPtr<Header>| {
                place
                    .compare_exchange(
                        ptr::null_mut(),
                        header.as_ptr(),
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    )
                    .is_ok()
            };
            if HEADERS.get(usize::from(number)).is_some_and(free) {
                return Self(number);
            }
        }
        Self(MOST + NEXT.fetch_add(1, Ordering::Relaxed) % (u16::MAX - MOST))
    }

    pub(super) const fn get(&self) -> u16 {
        self.0
    }

    /// The header stays mapped for ever.
    pub(super) const fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        if let Some(place) = HEADERS.get(usize::from(self.0)) {
            place.store(ptr::null_mut(), Ordering::Release);
        }
    }
}

/// The words of one side's board.
fn words(arena: u16, side: Role) -> Option<&'static Board> {
    let header = HEADERS.get(usize::from(arena))?.load(Ordering::Acquire);
    // SAFETY: null, or a header that is mapped; one that has just gone stays readable for a look (`sys::retired`). All atomics.
    let [client, server] = unsafe { &header.as_ref()?.boards };
    Some(match side {
        Role::Client => client,
        Role::Server => server,
    })
}

impl Segment {
    const fn other(&self) -> Role {
        match self.role() {
            Role::Client => Role::Server,
            Role::Server => Role::Client,
        }
    }

    /// Marks this connection for a set of the other side, and says by which ticket that sleeps, if it does. An error: there is no
    /// board here, and it has to be rung.
    #[inline]
    pub(crate) fn mark(&self, seat: Seat) -> Result<Option<Ticket>, ()> {
        let board = words(self.arena(), self.other()).ok_or(())?;
        Ok(board.mark(self.slot(), seat))
    }

    /// By which ticket a set of the other side sleeps.
    pub(crate) fn seat_sleeps_by(&self, seat: Seat) -> Result<Option<Ticket>, ()> {
        let board = words(self.arena(), self.other()).ok_or(())?;
        Ok(board.sleeps_by(seat))
    }
}

/// A set's seat on this side's board of an arena. Given back when dropped.
#[derive(Debug)]
pub struct Seated {
    arena: u16,
    side: Role,
    seat: Seat,
}

impl Seated {
    /// A seat in the arena of this connection. `None`: there is none left.
    #[must_use]
    pub fn take(segment: &Segment) -> Option<Self> {
        let (arena, side) = (segment.arena(), segment.role());
        let seat = words(arena, side)?.sit_down()?;
        Some(Self { arena, side, seat })
    }

    /// Whether it is in this connection's arena.
    #[must_use]
    pub fn is_for(&self, segment: &Segment) -> bool {
        self.arena == segment.arena() && self.side == segment.role()
    }

    #[must_use]
    pub const fn seat(&self) -> Seat {
        self.seat
    }

    /// The board, while the arena is there.
    #[inline]
    #[must_use]
    pub fn board(&self) -> Option<&'static Board> {
        words(self.arena, self.side)
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        if let Some(board) = self.board() {
            board.stand_up(self.seat);
        }
    }
}
