//! The shared-memory provider: a put is a copy into the segment, a control word is a store.

use super::{End, Provider};
use crate::doorbell;
use crate::shm::layout::{TAKEN, UNSTATED};
use crate::shm::segment::Segment;
use crate::sync::{AtomicU64, Ordering};
use crate::sys::barrier;
use flowctl::{Piece, Published, Untrusted};

fn stated(word: &AtomicU64) -> Option<u64> {
    Some(word.load(Ordering::Acquire)).filter(|&v| v != UNSTATED)
}

impl Provider for Segment {
    #[inline]
    fn buffer(&self) -> usize {
        self.ring()
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
    fn publish(&self, words: Published) {
        let tx = &self.mine().tx;
        tx.origin.store(words.origin, Ordering::Relaxed);
        tx.produced.store(words.produced, Ordering::Release);
    }

    #[inline]
    fn announced(&self) -> (Untrusted<u64>, Untrusted<u64>) {
        (self.peer_produced(), self.peer_origin())
    }

    #[inline]
    fn grant(&self, consumed: u64) {
        self.mine().rx.consumed.store(consumed, Ordering::Release);
    }

    #[inline]
    fn granted(&self) -> Untrusted<u64> {
        self.peer_consumed()
    }

    #[inline]
    fn took(&self, bytes: u64) {
        self.mine().busy.taken.store(bytes, Ordering::Release);
    }

    fn taken(&self) -> u64 {
        self.peer().busy.taken.load(Ordering::Acquire)
    }

    fn state(&self, end: End, at: u64) {
        let tx = &self.mine().tx;
        match end {
            End::Kernel => &tx.kernel_end,
            End::Fast => &tx.fast_end,
        }
        .store(at, Ordering::Release);
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
    }

    #[inline]
    fn finished(&self) -> u32 {
        self.peer().tx.fin.load(Ordering::Acquire)
    }

    #[inline]
    fn wish(&self, what: u32) -> bool {
        doorbell::wish(&self.mine().bell.armed, what)
    }

    #[inline]
    fn disarm(&self, what: u32) {
        doorbell::disarm(&self.mine().bell.armed, what);
    }

    #[inline]
    fn armed(&self) -> u32 {
        self.mine().bell.armed.load(Ordering::Relaxed)
    }

    #[inline]
    fn must_ring(&self, what: u32) -> bool {
        barrier::light(self.is_light());
        doorbell::is_wished(&self.peer().bell.armed, what)
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

    fn peer_is_putting(&self) -> bool {
        self.peer().busy.putting.load(Ordering::SeqCst) != 0
    }
}
