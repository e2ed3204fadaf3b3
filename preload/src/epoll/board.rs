//! How a set with very many connections hears of them: by the boards of their arenas (`transport::shm::board`), a few words for
//! hundreds of them, instead of a look at each or a bell from each.
//!
//! An entry is *posted* when it would be left to a bell of its own (`hot`): its peer marks it on the board from then on, where each look of
//! the set finds it and makes it hot again. A posted entry costs nothing while nothing comes, has not to be armed for a sleep, and
//! is not rung for while the set is awake. Called under the set's lock.
//!
//! The rule is that of tickets (`ticket`), by which a set sleeps: a bell on any posted entry wakes the thread that does. So one
//! thread sleeps on the set, nobody looks at it from around, and its connections are this process's alone. Where that ends all
//! entries leave the boards ([`Inner::leave_boards`]), each hot until it is wished for in another way.

use super::entry::Heed;
use super::set::Inner;
use crate::world;
use transport::doorbell::{Seat, Ticket};
use transport::shm::board::Seated;
use transport::shm::layout::SLOTS;
use transport::shm::segment::Segment;
use transport::sys::barrier;

/// Arenas in which a set has seats: so many words are looked at. What lies in others is left to bells.
const MOST: usize = 64;
/// Words of marks of an arena.
const WORDS: usize = SLOTS as usize / 64;
/// No entry, or no place.
const NONE: u16 = u16::MAX;
const NOBODY: u32 = u32::MAX;

/// What a set watches of one arena.
#[derive(Debug)]
struct Watch {
    seated: Seated,
    posted: usize,
    /// Whose marks are the set's to take.
    wanted: [u64; WORDS],
    /// Which entry a slot is.
    entries: [u32; SLOTS as usize],
}

/// The boards of a set, and which entries are posted there.
#[derive(Debug, Default)]
pub(super) struct Boards {
    watches: Vec<Option<Box<Watch>>>,
    /// By the number of an entry: the watch, and the slot in it.
    places: Vec<u16>,
    posted: usize,
    /// There was no seat for one of late.
    full: bool,
}

impl Boards {
    /// Entries that are posted, or have been and not left yet.
    pub(super) const fn posted(&self) -> usize {
        self.posted
    }

    /// Whether there may be a place for one more.
    pub(super) const fn have_room(&self) -> bool {
        !self.full
    }

    /// A place for an entry, by whose connection this is. Returns the seat to wish by; `None`: there is none.
    pub(super) fn post(&mut self, index: usize, segment: &Segment) -> Option<Seat> {
        let number = u32::try_from(index).ok()?;
        let slot = usize::from(segment.slot());
        let at = self.watch_of(segment)?;
        let earlier = self.watches.get(at)?.as_ref()?.entries.get(slot).copied()?;
        if earlier != number {
            self.leave(index);
            if earlier != NOBODY {
                self.leave(earlier as usize);
            }
        }
        // (what left may have been the last there)
        let at = self.watch_of(segment)?;
        let watch = self.watches.get_mut(at)?.as_mut()?;
        if earlier != number {
            *watch.entries.get_mut(slot)? = number;
            *watch.wanted.get_mut(slot / 64)? |= 1 << (slot % 64);
            if self.places.len() <= index {
                self.places.resize(index + 1, NONE);
            }
            *self.places.get_mut(index)? = u16::try_from(at * SLOTS as usize + slot).ok()?;
            watch.posted += 1;
            self.posted += 1;
        }
        Some(watch.seated.seat())
    }

    /// The watch of an arena, made if there is none.
    fn watch_of(&mut self, segment: &Segment) -> Option<usize> {
        let is_it = |w: &Option<Box<Watch>>| w.as_ref().is_some_and(|w| w.seated.is_for(segment));
        if let Some(at) = self.watches.iter().position(is_it) {
            return Some(at);
        }
        let free = self.watches.iter().position(Option::is_none);
        let at = free.unwrap_or(self.watches.len());
        let seated = (at < MOST).then(|| Seated::take(segment)).flatten();
        self.full = seated.is_none();
        let watch = Some(Box::new(Watch {
            seated: seated?,
            posted: 0,
            wanted: [0; WORDS],
            entries: [NOBODY; SLOTS as usize],
        }));
        match self.watches.get_mut(at) {
            Some(place) => *place = watch,
            None => self.watches.push(watch),
        }
        Some(at)
    }

    /// An entry has no place here any more. (Its wish is the caller's to take back.)
    pub(super) fn leave(&mut self, index: usize) {
        let Some(place) = self.places.get_mut(index) else {
            return;
        };
        let place = usize::from(std::mem::replace(place, NONE));
        let (at, slot) = (place / SLOTS as usize, place % SLOTS as usize);
        if place == usize::from(NONE) {
            return;
        }
        self.posted -= 1;
        if let Some(entry) = self.watches.get_mut(at)
            && let Some(watch) = entry
        {
            if let (Some(number), Some(wanted)) =
                (watch.entries.get_mut(slot), watch.wanted.get_mut(slot / 64))
            {
                *number = NOBODY;
                *wanted &= !(1 << (slot % 64));
            }
            watch.posted -= 1;
            if watch.posted == 0 {
                *entry = None;
                self.full = false;
            }
        }
    }

    /// The set sleeps by this ticket; or by none any more.
    pub(super) fn seat(&self, ticket: Option<Ticket>) {
        for watch in self.watches.iter().flatten() {
            if let Some(board) = watch.seated.board() {
                board.seat(watch.seated.seat(), ticket);
            }
        }
    }

    /// Takes the marks of a word of all there are; `None` behind the last.
    #[inline]
    fn take(&self, word: usize) -> Option<u64> {
        let Some(watch) = self.watches.get(word / WORDS)? else {
            return Some(0);
        };
        let wanted = watch.wanted.get(word % WORDS).copied().unwrap_or(0);
        if wanted == 0 {
            return Some(0);
        }
        let board = watch.seated.board();
        Some(board.map_or(0, |board| board.take(word % WORDS, wanted)))
    }

    /// Which entry a mark is for.
    fn entry_of(&self, word: usize, bit: usize) -> Option<usize> {
        let watch = self.watches.get(word / WORDS)?.as_ref()?;
        let number = *watch.entries.get(word % WORDS * 64 + bit)?;
        (number != NOBODY).then_some(number as usize)
    }

    /// The numbers of entries with a place here.
    pub(super) fn entries(&self) -> impl Iterator<Item = usize> {
        let placed = |(index, &place): (usize, &u16)| (place != NONE).then_some(index);
        self.places.iter().enumerate().filter_map(placed)
    }

    /// In a child after fork: the seats are its parent's.
    pub(super) fn forget(&mut self) {
        for watch in self.watches.drain(..).flatten() {
            std::mem::forget(watch);
        }
        self.places.clear();
        self.posted = 0;
    }
}

impl Inner {
    /// Whether it has so many entries to look after that boards pay.
    pub(super) fn is_crowd(&self) -> bool {
        self.hot.len() + self.boards.posted() > world::settings().few
    }

    /// Has the look that follows include all that is marked.
    #[inline]
    pub(super) fn hear(&mut self) {
        if self.boards.posted() == 0 {
            return;
        }
        let few = self.hot.len() + self.boards.posted() <= world::settings().few / 2;
        let mut word = 0;
        while let Some(mut marks) = self.boards.take(word) {
            while marks != 0 {
                let bit = marks.trailing_zeros() as usize;
                marks &= marks - 1;
                if let Some(index) = self.boards.entry_of(word, bit) {
                    if let Some(e) = self.entry(index) {
                        e.idle = 0;
                    }
                    self.heat(index);
                    if few {
                        self.leave_board(index);
                    }
                }
            }
            word += 1;
        }
    }

    /// Posts an entry. False if it cannot be; else a barrier is due before the look that decides about leaving it alone.
    pub(super) fn post(&mut self, index: usize) -> bool {
        let Some(segment) = self.entry(index).and_then(|e| e.postable()).copied() else {
            return false;
        };
        let Some(seat) = self.boards.post(index, &segment) else {
            return false;
        };
        if self.entry(index).is_some_and(|e| e.wish_by_seat(seat)) {
            return true;
        }
        self.boards.leave(index);
        false
    }

    /// An entry leaves its board, and is hot from then on until something else is wished for.
    fn leave_board(&mut self, index: usize) {
        self.boards.leave(index);
        if let Some(e) = self.entry(index) {
            e.disarm_by();
        }
        self.heat(index);
    }

    /// All do.
    #[cold]
    pub(super) fn leave_boards(&mut self) {
        let all: Vec<usize> = self.boards.entries().collect();
        for index in all {
            self.leave_board(index);
        }
    }

    /// Nothing has come for long: all are left to bells of their own, but for those that have something after all.
    #[cold]
    pub(super) fn rest(&mut self) {
        let all: Vec<usize> = self.boards.entries().collect();
        let mut new = false;
        for &index in &all {
            new |= self.entry(index).is_some_and(|e| e.wish());
            self.boards.leave(index);
        }
        if new {
            barrier::heavy();
        }
        for index in all {
            let stays = |e: &mut super::entry::Entry| e.is_ready() || e.is_unsure();
            if self.entry(index).is_some_and(stays) {
                self.heat(index);
            }
        }
    }

    /// In a child after fork, where no other thread exists: what was posted is hot.
    pub(super) fn forget_boards(&mut self) {
        let all: Vec<usize> = self.boards.entries().collect();
        self.boards.forget();
        for index in all {
            if let Some(e) = self.entry(index) {
                e.forget_wish();
                if e.heed == Heed::Bell {
                    self.heat(index);
                }
            }
        }
    }
}
