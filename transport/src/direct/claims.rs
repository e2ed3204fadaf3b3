//! Who copies which part of an advertised buffer. The source pushes from it and the sink pulls from it,
//! both at once, each taking the next chunk when it is done with its last: so the split follows who is
//! idle. Both come to the same answer how many bytes, from the start, have arrived.
//!
//! Used by [`super::source`] and [`super::sink`] on the words of one direction in the segment.
//!
//! Rules:
//! - A side says that it is busy *before* it claims, at an offset no higher than what it will claim: what
//!   lies below every claim and below whatever is busy has arrived.
//! - What the sink pulls counts only once it has confirmed it. The source may revoke that at any time, and
//!   then nothing that it writes to its buffer can reach the reader any more.
//! - What the source pushes cannot be revoked: the sink keeps its buffer until the source is idle. The
//!   source claims only while it sees the sink's buffer posted *after* saying that it is busy.

use crate::sync::{AtomicU8, AtomicU64, Ordering, fence};

/// Bits of a word for an offset into an advertised buffer, in bytes.
const OFFSET_BITS: u32 = 40;
const OFFSET: u64 = (1 << OFFSET_BITS) - 1;
const STATE_SHIFT: u32 = OFFSET_BITS;
const NUMBER_SHIFT: u32 = 48;
/// The advert is over at the offset of the claim word.
const CLOSED: u64 = 1 << STATE_SHIFT;

/// The longest buffer that can be advertised at once, in bytes.
pub const LONGEST: u64 = 1 << 30;

/// What a side is doing with an advert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum State {
    Idle = 0,
    /// Copies at the offset, or is about to claim there.
    Busy = 1,
    /// The other side took the claim at the offset back (the sink's word only).
    Revoked = 2,
    /// Could not copy at the offset.
    Failed = 3,
}

/// Marks that the pushes of a source go round in.
const MARKS: u8 = 64;
const MARK_SHIFT: u32 = STATE_SHIFT + 2;

/// A word of either side: the advert's number, the mark of a push, a state, an offset. A word of another
/// advert says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word(u64);

impl Word {
    const fn new(number: u32, state: State, offset: u64) -> Self {
        Self(tag(number) | (state as u64) << STATE_SHIFT | offset & OFFSET)
    }

    /// Busy with the push that ends with this mark.
    const fn pushing(number: u32, mark: u8, offset: u64) -> Self {
        Self(Self::new(number, State::Busy, offset).0 | (mark as u64) << MARK_SHIFT)
    }

    const fn mark(self) -> u8 {
        (self.0 >> MARK_SHIFT) as u8 & (MARKS - 1)
    }

    fn state(self, number: u32) -> State {
        if self.0 >> NUMBER_SHIFT != tag(number) >> NUMBER_SHIFT {
            return State::Idle;
        }
        match (self.0 >> STATE_SHIFT) & 3 {
            1 => State::Busy,
            2 => State::Revoked,
            3 => State::Failed,
            _ => State::Idle,
        }
    }

    const fn offset(self) -> u64 {
        self.0 & OFFSET
    }
}

const fn tag(number: u32) -> u64 {
    (number as u64 & 0xffff) << NUMBER_SHIFT
}

/// A run of bytes of the advertised buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub offset: u64,
    pub len: u64,
}

/// What came of trying to claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// This chunk is this side's to copy.
    Chunk(Chunk),
    /// Everything up to the limit is claimed.
    All,
    /// The advert is over, or its words have become another's.
    Closed,
    /// The sink's buffer is not posted any more.
    Gone,
}

/// The words of one advert.
#[derive(Clone, Copy, Debug)]
pub struct Claims<'a> {
    /// Which advert; its low bits are in every word.
    pub number: u32,
    /// Up to where chunks were claimed.
    pub claim: &'a AtomicU64,
    /// What the source is doing.
    pub source: &'a AtomicU64,
    /// The mark of the push that was completed last. The kernel writes it behind the last byte, so that a
    /// source which was stopped or killed right after keeps nobody.
    pub placed: &'a AtomicU8,
    /// What the sink is doing.
    pub sink: &'a AtomicU64,
}

impl Claims<'_> {
    /// Opens the advert. The source's, before the peer is told of it.
    pub fn open(&self) {
        self.source
            .store(Word::new(self.number, State::Idle, 0).0, Ordering::Relaxed);
        self.claim.store(tag(self.number), Ordering::Release);
    }

    /// Up to where it is claimed, and whether it is over; `None` if the words are another advert's.
    #[must_use]
    pub fn claimed(&self) -> Option<(u64, bool)> {
        let c = self.claim.load(Ordering::Acquire);
        (c >> NUMBER_SHIFT == tag(self.number) >> NUMBER_SHIFT)
            .then_some((c & OFFSET, c & CLOSED != 0))
    }

    fn take(&self, from: u64, limit: u64, chunk: u64) -> Option<Chunk> {
        let len = chunk.min(limit - from);
        let word = |offset| tag(self.number) | offset;
        self.claim
            .compare_exchange(
                word(from),
                word(from + len),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
            .then_some(Chunk { offset: from, len })
    }

    /// The source takes the next chunk, as long as `chunk` says for what is left, if the sink's buffer is
    /// still posted.
    pub fn claim_to_push(
        &self,
        limit: u64,
        chunk: impl Fn(u64) -> u64,
        is_posted: impl Fn() -> bool,
    ) -> Claim {
        // (what it could not copy stays noted: it is asked again as long as the advert stands)
        if Word(self.source.load(Ordering::Relaxed)).state(self.number) == State::Failed {
            return Claim::Closed;
        }
        loop {
            let (from, closed) = match self.claimed() {
                Some(c) => c,
                None => return Claim::Closed,
            };
            if closed || from >= limit {
                self.rest_source();
                return if closed { Claim::Closed } else { Claim::All };
            }
            self.source.store(
                Word::pushing(self.number, self.next_mark(), from).0,
                Ordering::Relaxed,
            );
            // Pairs with the one in `is_settled`: either the sink sees this, or this side sees its buffer gone.
            fence(Ordering::SeqCst);
            if !is_posted() {
                self.rest_source();
                return Claim::Gone;
            }
            if let Some(c) = self.take(from, limit, chunk(limit - from)) {
                return Claim::Chunk(c);
            }
        }
    }

    /// The mark that the source's next push ends with.
    #[must_use]
    pub fn next_mark(&self) -> u8 {
        (self.placed.load(Ordering::Relaxed) + 1) % MARKS
    }

    /// The source is done with its chunk, or could not copy it: then the advert is over before it.
    pub fn pushed(&self, c: Chunk, whole: bool) {
        if whole {
            self.rest_source();
        } else {
            self.source.store(
                Word::new(self.number, State::Failed, c.offset).0,
                Ordering::Release,
            );
            self.shut();
        }
    }

    fn rest_source(&self) {
        self.source
            .store(Word::new(self.number, State::Idle, 0).0, Ordering::Release);
    }

    /// The sink takes the next chunk.
    pub fn claim_to_pull(&self, limit: u64, chunk: impl Fn(u64) -> u64) -> Claim {
        loop {
            let (from, closed) = match self.claimed() {
                Some(c) => c,
                None => return Claim::Closed,
            };
            if closed || from >= limit {
                return if closed { Claim::Closed } else { Claim::All };
            }
            self.sink.store(
                Word::new(self.number, State::Busy, from).0,
                Ordering::SeqCst,
            );
            let taken = self.take(from, limit, chunk(limit - from));
            if let Some(c) = taken {
                return Claim::Chunk(c);
            }
            if !self.confirm(from) {
                return Claim::Closed;
            }
        }
    }

    /// The sink has copied its chunk and confirms it. False if that was revoked: what it copied does not
    /// count.
    pub fn pulled(&self, c: Chunk, whole: bool) -> bool {
        if whole {
            return self.confirm(c.offset);
        }
        let failed = Word::new(self.number, State::Failed, c.offset);
        if self.settle_sink(c.offset, failed) {
            self.shut();
        }
        false
    }

    fn confirm(&self, offset: u64) -> bool {
        self.settle_sink(offset, Word::new(self.number, State::Idle, 0))
    }

    fn settle_sink(&self, offset: u64, word: Word) -> bool {
        let busy = Word::new(self.number, State::Busy, offset);
        self.sink
            .compare_exchange(busy.0, word.0, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// No more claims.
    pub fn shut(&self) {
        while let Some((at, false)) = self.claimed() {
            let word = tag(self.number) | at;
            let over = self.claim.compare_exchange(
                word,
                word | CLOSED,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if over.is_ok() {
                return;
            }
        }
    }

    /// Writes down how much has arrived, since the words of this advert are used for the next. The source's,
    /// at the very end.
    pub fn settle(&self, arrived: u64) {
        self.claim
            .store(tag(self.number) | CLOSED | arrived, Ordering::Release);
    }

    /// Whether the sink is not in the middle of a chunk. The source's question.
    #[must_use]
    pub fn sink_is_idle(&self) -> bool {
        Word(self.sink.load(Ordering::Acquire)).state(self.number) != State::Busy
    }

    /// Takes back what the sink has claimed and not confirmed. After [`Self::shut`].
    pub fn revoke(&self) {
        let was = Word(self.sink.load(Ordering::Acquire));
        if was.state(self.number) == State::Busy {
            let revoked = Word::new(self.number, State::Revoked, was.offset());
            // (or it has just confirmed)
            let _ =
                self.sink
                    .compare_exchange(was.0, revoked.0, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// Whether the source is in the middle of a chunk, or may be. The sink's question; once its buffer was
    /// withdrawn ([`fence`] in between) the answer "no" is for good.
    #[must_use]
    pub fn source_is_busy(&self) -> bool {
        let word = Word(self.source.load(Ordering::Acquire));
        word.state(self.number) == State::Busy && self.placed.load(Ordering::Acquire) != word.mark()
    }

    /// The source is no more: what it was in the middle of has not arrived. (One that died right behind a chunk may still say
    /// that it is busy.)
    pub fn bury_source(&self) {
        let word = Word(self.source.load(Ordering::Acquire));
        if self.source_is_busy() {
            let failed = Word::new(self.number, State::Failed, word.offset());
            self.source.store(failed.0, Ordering::Release);
        }
        self.shut();
    }

    /// How many bytes from the start have arrived, once the advert is over or all of it is claimed, and
    /// neither side is busy. Both sides get the same answer.
    #[must_use]
    pub fn arrived(&self) -> u64 {
        let mut claim = self.claim.load(Ordering::Acquire);
        loop {
            let mut at = self.claimed().map_or(0, |(at, _)| at);
            for word in [self.source, self.sink] {
                let word = Word(word.load(Ordering::Acquire));
                if matches!(word.state(self.number), State::Revoked | State::Failed) {
                    at = at.min(word.offset());
                }
            }
            // The source settles the advert before it uses its word for the next.
            let now = self.claim.load(Ordering::Acquire);
            if now == claim {
                return at;
            }
            claim = now;
        }
    }
}
