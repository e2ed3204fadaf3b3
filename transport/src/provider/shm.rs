//! The shared-memory provider: a put is a copy into the segment, a control word is a store.

use super::{End, Provider};
use crate::doorbell::{self, By, Rung, Ticket};
use crate::shm::layout::{Side, TAKEN, UNSTATED};
use crate::shm::segment::Segment;
use crate::sync::{AtomicU64, Ordering, fence};
use crate::sys::barrier;
use flowctl::{Back, Inbox, Note, Notes, Outbox, Piece, Terms, Untrusted, Violation, Word};

/// What this process has rung: one bell for each sleep of an epoll set, by whichever connection.
#[cfg(not(loom))]
static RUNG: Rung = Rung::new();
#[cfg(loom)]
loom::lazy_static! { static ref RUNG: Rung = Rung::new(); }

fn stated(word: &AtomicU64) -> Option<u64> {
    Some(word.load(Ordering::Acquire)).filter(|&v| v != UNSTATED)
}

const fn word(side: &Side, word: Word) -> &AtomicU64 {
    let tx = &side.tx;
    match word {
        Word::Produced => &tx.produced,
        Word::Boundary => &tx.boundary,
        Word::Origin => &tx.origin,
        Word::Queued => &tx.queued,
        Word::Posted => &tx.posted,
        Word::Segments => &tx.segments,
        Word::Control => &tx.control,
        Word::Acknowledged => &tx.acknowledged,
    }
}

const fn back(side: &Side, back: Back) -> &AtomicU64 {
    match back {
        Back::Consumed => &side.rx.consumed,
        Back::Advertised => &side.rx.advertised,
        Back::Evented => &side.rx.evented,
        Back::Events => &side.rx.events,
        // Rides on the opposite direction.
        Back::Acknowledged => &side.tx.acknowledged,
    }
}

const fn note(side: &Side, note: Note) -> &AtomicU64 {
    match note {
        Note::Freed => &side.busy.freed,
        Note::Acknowledged => &side.busy.acknowledged,
        Note::Controls => &side.busy.controls,
    }
}

impl Segment {
    /// Whether a set needs no bell that is marked, and sleeps by this ticket or not at all.
    fn is_rung(&self, sleeps_by: Result<Option<Ticket>, ()>) -> bool {
        sleeps_by.is_ok_and(|ticket| ticket.is_none_or(|t| RUNG.has(self.arena(), t)))
    }
}

impl Notes for Segment {
    #[inline]
    fn note(&self, n: Note, value: u64) {
        note(self.mine(), n).store(value, Ordering::Release);
    }

    #[inline]
    fn noted(&self, n: Note) -> u64 {
        note(self.mine(), n).load(Ordering::Acquire)
    }
}

impl Outbox for Segment {
    #[inline]
    fn tell(&self, w: Word, value: u64) {
        word(self.mine(), w).store(value, Ordering::Release);
    }

    #[inline]
    fn handed_back(&self, b: Back) -> Untrusted<u64> {
        Untrusted::new(back(self.peer(), b).load(Ordering::Acquire))
    }

    #[inline]
    fn write_header(&self, offset: usize, len: u32) {
        Self::write_header(self, offset, len);
    }

    fn read_header(&self, offset: usize) -> Untrusted<u32> {
        self.own_header(offset)
    }
}

impl Inbox for Segment {
    #[inline]
    fn told(&self, w: Word) -> Untrusted<u64> {
        Untrusted::new(word(self.peer(), w).load(Ordering::Acquire))
    }

    #[inline]
    fn hand_back(&self, b: Back, value: u64) {
        back(self.mine(), b).store(value, Ordering::Release);
    }

    #[inline]
    fn header(&self, offset: usize) -> Untrusted<u32> {
        Self::header(self, offset)
    }
}

impl Provider for Segment {
    #[inline]
    fn region(&self) -> usize {
        Self::region(self)
    }

    fn offer(&self, terms: &Terms) {
        for (word, value) in self.mine().terms.words.iter().zip(terms.words()) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn offered(&self) -> Result<Terms, Violation> {
        let words = &self.peer().terms.words;
        let words = words
            .each_ref()
            .map(|w| Untrusted::new(w.load(Ordering::Relaxed)));
        Terms::read(words, Self::region(self))
    }

    fn want(&self, receive: u64) {
        self.mine().terms.receive.store(receive, Ordering::Release);
    }

    fn wanted(&self) -> u64 {
        self.peer().terms.receive.load(Ordering::Acquire)
    }

    #[inline]
    unsafe fn put(&self, piece: Piece, from: *const u8) {
        // SAFETY: passed on to the caller.
        unsafe { Self::put(self, piece, from) };
    }

    #[inline]
    fn place(&self, piece: Piece) -> (*mut u8, usize) {
        self.tx_at(piece)
    }

    #[inline]
    unsafe fn take(&self, piece: Piece, to: *mut u8) {
        // SAFETY: passed on to the caller.
        unsafe { Self::take(self, piece, to) };
    }

    #[inline]
    fn took(&self, bytes: u64) {
        self.mine().busy.taken.store(bytes, Ordering::Release);
    }

    fn taken(&self) -> u64 {
        self.peer().busy.taken.load(Ordering::Acquire)
    }

    fn took_first(&self, bytes: u64) {
        let word = &self.mine().busy.taken_first;
        word.store(bytes, Ordering::Release);
    }

    fn taken_first(&self) -> u64 {
        self.peer().busy.taken_first.load(Ordering::Acquire)
    }

    fn state(&self, end: End, at: u64) {
        let tx = &self.mine().tx;
        match end {
            End::Kernel => &tx.kernel_end,
            End::Fast => &tx.fast_end,
        }
        .store(at, Ordering::Release);
        fence(Ordering::SeqCst);
        self.rouse_peer();
    }

    #[inline]
    fn stated(&self, end: End) -> Option<u64> {
        let tx = &self.peer().tx;
        match end {
            End::Kernel => stated(&tx.kernel_end),
            End::Fast => stated(&tx.fast_end),
        }
    }

    fn finish(&self, fin: u32) {
        self.mine().tx.fin.store(fin, Ordering::Release);
        fence(Ordering::SeqCst);
        self.rouse_peer();
    }

    #[inline]
    fn finished(&self) -> u32 {
        self.peer().tx.fin.load(Ordering::Acquire)
    }

    #[inline]
    fn wish(&self, what: u32) -> bool {
        doorbell::wish(&self.mine().bell.armed, what) && !self.is_fenced()
    }

    #[inline]
    fn disarm(&self, what: u32) {
        doorbell::disarm(&self.mine().bell.armed, what);
    }

    fn wish_by(&self, what: u32, by: By) -> bool {
        doorbell::wish_by(&self.mine().bell.armed, what, by)
    }

    fn disarm_by(&self) {
        doorbell::disarm_by(&self.mine().bell.armed);
    }

    #[inline]
    fn armed(&self) -> u32 {
        doorbell::armed(&self.mine().bell.armed)
    }

    #[inline]
    fn must_ring(&self, what: u32) -> bool {
        barrier::light(self.is_light());
        if what & doorbell::DATA != 0 {
            self.rouse_peer();
        }
        doorbell::is_wished(&self.peer().bell.armed, what, |by| match by {
            By::Ticket(t) => RUNG.has(self.arena(), t),
            By::Seat(seat) => self.is_rung(self.mark(seat)),
        })
    }

    fn ticket(&self) -> Option<Ticket> {
        match doorbell::by(&self.peer().bell.armed)? {
            By::Ticket(t) => Some(t),
            By::Seat(seat) => self.seat_sleeps_by(seat).ok()?,
        }
    }

    fn peer_sleeps_for(&self, what: u32) -> bool {
        what & doorbell::DATA != 0 && self.peer_naps()
            || doorbell::sleeps(&self.peer().bell.armed, what, |by| match by {
                By::Ticket(t) => RUNG.has(self.arena(), t),
                By::Seat(seat) => self.is_rung(self.seat_sleeps_by(seat)),
            })
    }

    fn note_rung(&self, ticket: Ticket) {
        RUNG.note(self.arena(), ticket);
    }

    fn count_bell(&self) {
        let bells = &self.mine().tx.bells;
        bells.store(bells.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
    }

    fn uncount_bell(&self) {
        let bells = &self.mine().tx.bells;
        bells.store(
            bells.load(Ordering::Relaxed).saturating_sub(1),
            Ordering::SeqCst,
        );
    }

    fn recount_bells(&self, sent: u64) {
        self.mine().tx.bells.store(sent, Ordering::SeqCst);
    }

    #[inline]
    fn bells(&self) -> u64 {
        self.peer().tx.bells.load(Ordering::SeqCst)
    }

    fn stop_peer(&self, give_back: Option<u64>) {
        let stop = &self.peer().stop;
        stop.give_back
            .store(give_back.unwrap_or(UNSTATED), Ordering::SeqCst);
        stop.stop.store(1, Ordering::SeqCst);
        // Pairs with the barrier in `enter`: either the sender sees the stop or we see it putting.
        barrier::heavy();
        self.rouse_peer();
    }

    #[inline]
    fn stopped(&self) -> bool {
        // Acquires: what is asked back was stored before.
        self.mine().stop.stop.load(Ordering::Acquire) != 0
    }

    fn take_give_back(&self) -> Option<u64> {
        let word = &self.mine().stop.give_back;
        let asked = stated(word).filter(|&at| at != TAKEN)?;
        word.compare_exchange(asked, TAKEN, Ordering::SeqCst, Ordering::SeqCst)
            .ok()
    }

    fn gave_back(&self) -> bool {
        self.peer().stop.give_back.load(Ordering::SeqCst) == TAKEN
    }

    fn cancel_give_back(&self) -> bool {
        self.peer().stop.give_back.swap(UNSTATED, Ordering::SeqCst) != TAKEN
    }

    #[inline]
    fn enter(&self) -> bool {
        let mine = self.mine();
        mine.busy.putting.store(1, Ordering::Relaxed);
        barrier::light(self.is_light());
        if mine.stop.stop.load(Ordering::Acquire) == 0 {
            return true;
        }
        mine.busy.putting.store(0, Ordering::Release);
        false
    }

    #[inline]
    fn leave(&self) {
        self.mine().busy.putting.store(0, Ordering::Release);
    }

    fn ask_times(&self) {
        self.mine().bell.ordered.store(1, Ordering::Relaxed);
    }

    #[inline]
    fn time_put(&self) {
        // (on a line that is this side's alone until somebody has to know)
        if self.peer().bell.ordered.load(Ordering::Relaxed) != 0 {
            let now = crate::clock::ticks();
            self.mine().busy.put_at.store(now, Ordering::Relaxed);
        }
    }

    fn put_at(&self) -> u64 {
        self.peer().busy.put_at.load(Ordering::Relaxed)
    }

    fn peer_is_putting(&self) -> bool {
        self.peer().busy.putting.load(Ordering::SeqCst) != 0
    }
}
