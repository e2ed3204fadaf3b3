//! What the two halves of one side tell each other of advertised buffers: no locks, only words.
//!
//! A side is the source of what it sends: its sending half advertises a buffer of the program's (SrcAvail) and answers the Reads
//! that its receiving half has been asked. It is the sink of what it receives: its receiving half decides what is read of the
//! peer's buffer, and its sending half asks for it.
//!
//! Rules: each word has one half that writes it. A buffer is known by its number, which only grows, so that what is said of an
//! older one is known for that. Reads of a piece are asked in order, and each is answered by one FPDU.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Bytes of one Read: its answer is one FPDU.
pub(in crate::wire) const PIECE: u32 = 60 * 1024;

/// Reads that a side asks at a time, and answers.
pub(in crate::wire) const READS: u16 = 16;

/// Places for Reads that are to be answered: those of a buffer that is not advertised any more may stand before them.
const PLACES: usize = 2 * READS as usize;

/// How far into an STag the number of its buffer begins; below is the region's place in a table of three.
const NUMBER: u32 = 8;

/// The name of a source's buffer, and of what a sink reads to. (Neither stands for memory that others could reach: what comes or
/// goes by them are the next bytes of the stream, so they need not be hard to guess.)
pub(in crate::wire) const fn source_stag(number: u32) -> u32 {
    number << NUMBER
}

pub(in crate::wire) const fn sink_stag(number: u32) -> u32 {
    number << NUMBER | 1
}

/// The name of a sink's buffer that is written to.
pub(in crate::wire) const fn written_stag(number: u32) -> u32 {
    number << NUMBER | 2
}

/// The number of the buffer that a name stands for.
pub(in crate::wire) const fn number(stag: u32) -> u32 {
    stag >> NUMBER
}

/// Numbers go round where a name has no more room for them.
pub(in crate::wire) const fn next(number: u32) -> u32 {
    let next = number.wrapping_add(1) & (u32::MAX >> NUMBER);
    if next == 0 { 1 } else { next }
}

/// A Read that the peer has asked, checked against the buffer that was advertised then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::wire) struct Asked {
    pub source: u32,
    pub offset: u32,
    pub len: u32,
    pub sink: u32,
    pub sink_offset: u64,
}

#[derive(Debug)]
struct Place {
    /// Name and offset, sink and length, each pair in a word.
    what: AtomicU64,
    whereto: AtomicU64,
    offset: AtomicU64,
}

/// What this side reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::wire) struct Reading {
    /// The peer's buffer: its name, and the address of the first byte that is read.
    pub source: u32,
    pub address: u64,
    /// What it is read to.
    pub sink: u32,
    /// Bytes in all.
    pub len: u32,
    /// Pieces that may be asked for by now.
    pub allowed: u32,
}

/// A buffer that a sink advertises: this side's, or the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::wire) struct Sink {
    pub stag: u32,
    pub address: u64,
    pub len: u32,
    /// Messages with payload that had not made it void.
    pub kept: u32,
}

/// One such buffer, and how many there were.
#[derive(Debug)]
struct Slot {
    turn: AtomicU32,
    name: AtomicU64,
    address: AtomicU64,
    kept: AtomicU32,
}

impl Slot {
    const fn new() -> Self {
        Self {
            turn: AtomicU32::new(0),
            name: AtomicU64::new(0),
            address: AtomicU64::new(0),
            kept: AtomicU32::new(0),
        }
    }

    fn set(&self, turn: u32, sink: &Sink) {
        self.name.store(pack(sink.stag, sink.len), Ordering::SeqCst);
        self.address.store(sink.address, Ordering::SeqCst);
        self.kept.store(sink.kept, Ordering::SeqCst);
        self.turn.store(turn, Ordering::SeqCst);
    }

    fn get(&self) -> Sink {
        let (stag, len) = unpack(self.name.load(Ordering::SeqCst));
        Sink {
            stag,
            address: self.address.load(Ordering::SeqCst),
            len,
            kept: self.kept.load(Ordering::SeqCst),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Adverts {
    /// Source, by the sending half: the number of the newest buffer; how many bytes of it may be read, 0 if it is not open.
    issued: AtomicU32,
    open: AtomicU32,
    /// By the receiving half: the number of the last buffer that the peer is done with, and whether it wants the rest as Data.
    done: AtomicU32,
    send_sm: AtomicU32,
    /// Reads to answer: put by the receiving half, taken by the sending half.
    put: AtomicU32,
    taken: AtomicU32,
    places: [Place; PLACES],
    /// Sink, by the receiving half: sink and pieces, source and bytes; 0 while they change.
    reading: AtomicU64,
    from: AtomicU64,
    address: AtomicU64,
    /// Bytes that were read and that the peer has not been told of.
    told: AtomicU32,
    /// Source, by the receiving half: the peer's buffer that may be written to, and that the peer wishes to advertise some.
    theirs: Slot,
    wished: AtomicBool,
    /// By the sending half: it has said that this direction is pipelined.
    pipelined: AtomicBool,
    /// Sink, by the receiving half: the buffer that is to be advertised.
    ours: Slot,
    /// A sleeping sender has something to look at.
    news: AtomicBool,
    /// By the sending half: somebody waits for the peer's word on a buffer, for a while.
    awaited: AtomicBool,
}

const fn pack(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

#[allow(clippy::cast_possible_truncation)]
const fn unpack(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

impl Adverts {
    pub(in crate::wire) const fn new() -> Self {
        Self {
            issued: AtomicU32::new(0),
            open: AtomicU32::new(0),
            done: AtomicU32::new(0),
            send_sm: AtomicU32::new(0),
            put: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            places: [const {
                Place {
                    what: AtomicU64::new(0),
                    whereto: AtomicU64::new(0),
                    offset: AtomicU64::new(0),
                }
            }; PLACES],
            reading: AtomicU64::new(0),
            from: AtomicU64::new(0),
            address: AtomicU64::new(0),
            told: AtomicU32::new(0),
            theirs: Slot::new(),
            wished: AtomicBool::new(false),
            pipelined: AtomicBool::new(false),
            ours: Slot::new(),
            news: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
        }
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// Whether a sender waits for the peer's word on a buffer: [`crate::wire::PATIENCE_US`] at most.
    #[inline]
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Acquire)
    }

    pub(in crate::wire) fn note_awaited(&self, awaited: bool) {
        if self.awaited.load(Ordering::Relaxed) != awaited {
            self.awaited.store(awaited, Ordering::Release);
        }
    }

    /// Whether buffers of what is sent here were ever advertised.
    #[must_use]
    pub fn were_made(&self) -> bool {
        self.issued.load(Ordering::Acquire) > 0
    }

    /// Whether any were, of either kind: then words of the peer may be on their way that nobody waits for.
    #[must_use]
    pub fn were_used(&self) -> bool {
        self.were_made() || self.ours.name.load(Ordering::Acquire) != 0
    }

    /// Whether something has come since that the sender of an advertised buffer waits for; asked once.
    pub fn take_news(&self) -> bool {
        self.news.load(Ordering::Relaxed) && self.news.swap(false, Ordering::AcqRel)
    }

    /// Source: a buffer of so many bytes is about to be advertised.
    pub(in crate::wire) fn open(&self, number: u32, len: u32) {
        self.issued.store(number, Ordering::Release);
        self.open.store(len, Ordering::Release);
    }

    /// Source: it is not any more.
    pub(in crate::wire) fn close(&self) {
        if self.is_open() {
            self.open.store(0, Ordering::Release);
        }
    }

    /// Source: how many bytes may be read of the buffer of this name; nothing of one that is no more, and `None` of one that
    /// never was.
    pub(in crate::wire) fn extent(&self, stag: u32) -> Option<u32> {
        let issued = self.issued.load(Ordering::Acquire);
        let named = number(stag);
        if issued == 0 || named == 0 || stag != source_stag(named) {
            return None;
        }
        // (numbers go round; nobody speaks of one of half their range ago)
        let half = (u32::MAX >> NUMBER) / 2;
        let ago = issued.wrapping_sub(named) & (u32::MAX >> NUMBER);
        if ago > half {
            return None;
        }
        Some(if ago == 0 {
            self.open.load(Ordering::Acquire)
        } else {
            0
        })
    }

    /// Source: a Read has been asked. False if there are more of them than may be.
    pub(in crate::wire) fn put(&self, asked: &Asked) -> bool {
        let put = self.put.load(Ordering::Relaxed);
        if put.wrapping_sub(self.taken.load(Ordering::Acquire)) as usize >= PLACES {
            return false;
        }
        if let Some(place) = self.places.get(put as usize % PLACES) {
            place
                .what
                .store(pack(asked.source, asked.offset), Ordering::Relaxed);
            place
                .whereto
                .store(pack(asked.sink, asked.len), Ordering::Relaxed);
            place.offset.store(asked.sink_offset, Ordering::Relaxed);
        }
        self.put.store(put.wrapping_add(1), Ordering::Release);
        self.news.store(true, Ordering::Release);
        true
    }

    /// Source: the Read of this turn, if it has been asked.
    pub(in crate::wire) fn asked(&self, turn: u32) -> Option<Asked> {
        if turn == self.put.load(Ordering::Acquire) {
            return None;
        }
        let place = self.places.get(turn as usize % PLACES)?;
        let (source, offset) = unpack(place.what.load(Ordering::Relaxed));
        let (sink, len) = unpack(place.whereto.load(Ordering::Relaxed));
        Some(Asked {
            source,
            offset,
            len,
            sink,
            sink_offset: place.offset.load(Ordering::Relaxed),
        })
    }

    /// Source: the turn behind all that were asked so far.
    pub(in crate::wire) fn last_turn(&self) -> u32 {
        self.put.load(Ordering::Acquire)
    }

    /// Source: those before this turn are answered, or void.
    pub(in crate::wire) fn note_taken(&self, turn: u32) {
        if self.taken.load(Ordering::Relaxed) != turn {
            self.taken.store(turn, Ordering::Release);
        }
    }

    /// Source: the peer is done with the newest buffer, or wants the rest of it as Data. False if there never was one.
    pub(in crate::wire) fn heard_done(&self, as_data: bool) -> bool {
        let issued = self.issued.load(Ordering::Acquire);
        let word = if as_data { &self.send_sm } else { &self.done };
        word.store(issued, Ordering::Release);
        self.news.store(true, Ordering::Release);
        issued > 0
    }

    /// Source: whether the peer has said so of this buffer.
    pub(in crate::wire) fn is_done(&self, number: u32) -> bool {
        self.done.load(Ordering::Acquire) == number || self.is_wanted_as_data(number)
    }

    pub(in crate::wire) fn is_wanted_as_data(&self, number: u32) -> bool {
        self.send_sm.load(Ordering::Acquire) == number
    }

    /// Sink: this may be asked for from now on; nothing, of none.
    pub(in crate::wire) fn tell_reading(&self, reading: Option<Reading>) {
        let Some(now) = reading else {
            self.reading.store(0, Ordering::SeqCst);
            return;
        };
        let from = pack(now.source, now.len);
        let known = unpack(self.reading.load(Ordering::Relaxed)).0;
        if known != now.sink || self.from.load(Ordering::Relaxed) != from {
            self.reading.store(0, Ordering::SeqCst);
            self.from.store(from, Ordering::SeqCst);
            self.address.store(now.address, Ordering::SeqCst);
        }
        self.reading
            .store(pack(now.sink, now.allowed), Ordering::SeqCst);
    }

    /// Sink: what may be asked for.
    pub(in crate::wire) fn reading(&self) -> Option<Reading> {
        let word = self.reading.load(Ordering::SeqCst);
        let (sink, allowed) = unpack(word);
        let (source, len) = unpack(self.from.load(Ordering::SeqCst));
        let address = self.address.load(Ordering::SeqCst);
        // (the others do not change while this names one and the same)
        let same = unpack(self.reading.load(Ordering::SeqCst)).0 == sink;
        (word != 0 && same).then_some(Reading {
            source,
            address,
            sink,
            len,
            allowed,
        })
    }

    /// Source: the peer advertises this buffer, its `turn`th. (One at a time: the next comes once this one is used, or void
    /// for a message that has gone.)
    pub(in crate::wire) fn heard_sink(&self, turn: u32, sink: &Sink) {
        self.theirs.set(turn, sink);
        self.news.store(true, Ordering::Release);
    }

    /// Source: that buffer, and its turn, if it is not of this turn.
    pub(in crate::wire) fn sink(&self, known: u32) -> Option<(u32, Sink)> {
        let turn = self.theirs.turn.load(Ordering::SeqCst);
        (turn != known).then(|| (turn, self.theirs.get()))
    }

    /// Source: the peer wishes this direction to be pipelined.
    pub(in crate::wire) fn wish(&self) {
        self.wished.store(true, Ordering::Release);
    }

    /// Source: this direction is pipelined: the peer may advertise buffers.
    pub(in crate::wire) fn note_pipelined(&self) {
        self.pipelined.store(true, Ordering::Release);
    }

    pub(in crate::wire) fn is_pipelined(&self) -> bool {
        self.pipelined.load(Ordering::Acquire)
    }

    pub(in crate::wire) fn is_wished(&self) -> bool {
        self.wished.load(Ordering::Acquire)
    }

    /// Sink: this buffer is to be advertised; the sending half is told by what is asked of it.
    pub(in crate::wire) fn offer(&self, sink: &Sink) {
        self.ours.set(0, sink);
    }

    pub(in crate::wire) fn offered(&self) -> Sink {
        self.ours.get()
    }

    /// Sink: so many bytes have been read, which is all.
    pub(in crate::wire) fn note_read(&self, len: u32) {
        self.told.store(len, Ordering::Release);
    }

    /// Sink: how many bytes the peer is to be told of.
    pub(in crate::wire) fn to_tell(&self) -> u32 {
        self.told.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests;
