//! Where the words and rings lie in the registered memory of one side, and how they are read and written.
//!
//! | offset | what | written by |
//! |---|---|---|
//! | 0 | words for this side to read | the peer's adapter |
//! | 256 | this side's own words | this side; its adapter copies them to the peer, and the peer's reads them |
//! | 512 | what this side's adapter has read of the peer's words | this side's adapter |
//! | 768 | what a wish is written from | nobody: ones |
//! | 4096 | the incoming ring | the peer's adapter |
//! | 4096 + RING | the staging ring | this side |
//!
//! A position is a pair of words, the value and its complement: an adapter need not write eight octets at once, and a
//! pair that does not match is not read as anything.

use super::{RING, Wish};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A position that one side tells the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Octets that were put to the peer's incoming ring.
    Put,
    /// Octets that were taken from this side's incoming ring.
    Taken,
}

/// Words of one side.
#[repr(C, align(64))]
pub(super) struct Words {
    positions: [[AtomicU64; 2]; 2],
    wishes: [AtomicU64; 2],
}

const OWN: usize = 256;
const ANSWERS: usize = 512;
const ONES: usize = 768;
const INCOMING: usize = 4096;
const STAGING: usize = INCOMING + RING;

/// What was read of a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Value(u64),
    /// It is just being written.
    Torn,
}

fn read(pair: &[AtomicU64; 2]) -> Heard {
    let [value, check] = pair;
    let value = value.load(Ordering::Acquire);
    if check.load(Ordering::Acquire) == !value {
        Heard::Value(value)
    } else {
        Heard::Torn
    }
}

fn write(pair: &[AtomicU64; 2], to: u64) {
    let [value, check] = pair;
    value.store(to, Ordering::Release);
    check.store(!to, Ordering::Release);
}

/// The registered memory of one side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    base: NonNull<u8>,
}

impl Area {
    pub(super) const LEN: usize = STAGING + RING;

    /// Fresh zeroed memory of that length, page aligned.
    pub(super) fn new(base: NonNull<u8>) -> Self {
        let area = Self { base };
        for words in [area.words(0), area.words(OWN), area.words(ANSWERS)] {
            for pair in &words.positions {
                write(pair, 0);
            }
        }
        for wish in &area.words(ONES).wishes {
            wish.store(1, Ordering::Relaxed);
        }
        area
    }

    #[allow(clippy::cast_ptr_alignment)] // (offsets of lines in memory that begins with a page)
    const fn words(&self, offset: usize) -> &Words {
        // SAFETY: within the memory, aligned, and all words are atomic; whoever has an `Area` has the memory.
        unsafe { &*self.base.as_ptr().add(offset).cast::<Words>() }
    }

    /// Where it begins, as the peer's adapter has to name it.
    pub(super) fn address(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    const fn at(&self, offset: usize) -> *const u8 {
        // SAFETY: callers name offsets within the memory.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// What the peer has told.
    #[inline]
    pub(super) fn heard(&self, word: Word) -> Heard {
        read(position(self.words(0), word))
    }

    /// What this side has told, or will.
    #[inline]
    pub(super) fn told(&self, word: Word) -> u64 {
        let [value, _] = position(self.words(OWN), word);
        value.load(Ordering::Acquire)
    }

    /// This side's word from now on, for the peer's adapter to read.
    pub(super) fn tell(&self, word: Word, to: u64) {
        write(position(self.words(OWN), word), to);
    }

    /// What this side's adapter has read of the peer's own word.
    pub(super) fn answered(&self, word: Word) -> Heard {
        read(position(self.words(ANSWERS), word))
    }

    /// Whether the peer has wished for this; it has not any more. Behind whatever was told to it.
    pub(super) fn take_wish(&self, wish: Wish) -> bool {
        fence(Ordering::SeqCst);
        let word = wished(self.words(0), wish);
        word.load(Ordering::Acquire) != 0 && word.swap(0, Ordering::AcqRel) != 0
    }

    /// Where a word lies here: as it is told, and as the peer keeps what it is told.
    pub(super) const fn own(&self, word: Word) -> (*const u8, usize) {
        (self.at(OWN + offset(word)), offset(word))
    }

    /// Where the answer to a question for the peer's own word goes, and where that lies at the peer.
    pub(super) const fn answer(&self, word: Word) -> (*const u8, usize) {
        (self.at(ANSWERS + offset(word)), OWN + offset(word))
    }

    /// Where a wish is written from, and to.
    pub(super) const fn wish(&self, wish: Wish) -> (*const u8, usize) {
        let offset = WISHES + 8 * wish as usize;
        (self.at(ONES + offset), offset)
    }

    /// Places of a run of the staging ring: here, in the peer's memory, and how many octets in one piece.
    pub(super) fn staging(&self, position: u64, len: usize) -> (*mut u8, usize, usize) {
        let (from, n) = run(position, len);
        (self.at(STAGING + from).cast_mut(), INCOMING + from, n)
    }

    /// A run of the incoming ring, and how many octets in one piece.
    pub(super) fn incoming(&self, position: u64, len: usize) -> (*const u8, usize) {
        let (from, n) = run(position, len);
        (self.at(INCOMING + from), n)
    }
}

/// Octets of a position.
pub(super) const POSITION: usize = 16;
const WISHES: usize = 2 * POSITION;

const fn offset(word: Word) -> usize {
    POSITION * word as usize
}

const fn position(words: &Words, word: Word) -> &[AtomicU64; 2] {
    let [put, taken] = &words.positions;
    match word {
        Word::Put => put,
        Word::Taken => taken,
    }
}

const fn wished(words: &Words, wish: Wish) -> &AtomicU64 {
    let [data, room] = &words.wishes;
    match wish {
        Wish::Data => data,
        Wish::Room => room,
    }
}

/// Where a position lies in a ring, and how many of `len` octets lie there in one piece.
fn run(position: u64, len: usize) -> (usize, usize) {
    let from = usize::try_from(position % RING as u64).unwrap_or(0);
    (from, len.min(RING - from))
}
