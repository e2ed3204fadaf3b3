//! How a connection comes to ride on a ring, and off again, between the halves that speak of it and the thread that does
//! what takes long (`preload::sockets::wired::raising`).
//!
//! One side offers, the other answers; whoever has both rings says `RingBegin` as the last of its octets on the kernel
//! connection and goes on by the ring. Each direction by itself. What goes wrong before that leaves all as it is.

use crate::ring::{Ring, TERMS, Terms};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// What is to be done, or was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Due {
    /// The peer has offered: a ring is to be made.
    Offered = 1,
    /// The peer has answered: the ring is to be connected.
    Answered = 2,
    /// The offer is to be said.
    SayOffer = 4,
    /// The answer is to be said.
    SayAnswer = 8,
    /// This direction is to go by the ring.
    SayBegin = 16,
}

/// See the module. The rest is written by one side and read by another of this process, in order of `due`.
#[derive(Debug)]
pub struct Riding {
    ring: AtomicPtr<Ring>,
    due: AtomicU32,
    /// The rules allow one.
    wanted: AtomicBool,
    /// This side has connected: it is the one that offers; and it may have.
    offers: AtomicBool,
    begun: AtomicBool,
    /// One is to be offered, by the side that has connected, once the connection has shown that it is worth it.
    later: AtomicBool,
    /// The ring is being given back since nothing went by it; or for a larger one to take its place.
    rests: AtomicBool,
    /// One was offered, and the peer has not answered: another offer would have its answer taken for this one's.
    asked: AtomicBool,
    grows: AtomicBool,
    /// The last ring was over with some of it not taken.
    left: AtomicBool,
    /// A ring of it is to have the full size, since much goes by it.
    large: AtomicBool,
    /// Messages, and bytes, that the connection had carried when it became one without a ring.
    carried: [AtomicU64; 2],
    /// The peer's terms, as they came.
    heard: [AtomicU8; TERMS],
    /// This side's.
    own: [AtomicU8; TERMS],
}

impl Riding {
    pub(super) const fn new() -> Self {
        Self {
            ring: AtomicPtr::new(std::ptr::null_mut()),
            due: AtomicU32::new(0),
            wanted: AtomicBool::new(false),
            offers: AtomicBool::new(false),
            begun: AtomicBool::new(false),
            later: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            grows: AtomicBool::new(false),
            left: AtomicBool::new(false),
            large: AtomicBool::new(false),
            carried: [const { AtomicU64::new(0) }; 2],
            heard: [const { AtomicU8::new(0) }; TERMS],
            own: [const { AtomicU8::new(0) }; TERMS],
        }
    }

    /// Whether the rules allow one.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Whether the peer may have something to say of one: not where this side is to offer it, and has not.
    #[must_use]
    pub fn is_spoken_of(&self) -> bool {
        let silent = self.offers.load(Ordering::Relaxed) && !self.begun.load(Ordering::Acquire);
        self.is_wanted() && !silent
    }

    /// Whether there is one, or one was offered: else all that the peer may have to say of one is an offer.
    #[must_use]
    pub fn is_agreed_on(&self) -> bool {
        let open = self.get().is_some() || self.awaits_answer();
        open || self.due.load(Ordering::Acquire) != 0
    }

    /// It is this side that offers one. Before anything else.
    pub fn let_offer(&self) {
        self.offers.store(true, Ordering::Relaxed);
    }

    /// The rules allow one, or do not. Before anything else.
    pub fn allow(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    /// One is to be offered once that is worth it, by the side that has connected.
    pub fn begin_later(&self) {
        self.later.store(self.is_wanted(), Ordering::Release);
    }

    /// One is offered.
    pub fn await_answer(&self) {
        self.asked.store(true, Ordering::Release);
    }

    /// The peer has answered.
    pub fn note_answer(&self) {
        self.asked.store(false, Ordering::Release);
    }

    /// Whether it has not, after an offer.
    #[must_use]
    pub fn awaits_answer(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// The ring is about to be given back, since nothing goes by it.
    pub fn begin_rest(&self) {
        self.rests.store(true, Ordering::Release);
    }

    /// Whether the ring that has just ended was given back. Once.
    pub fn has_rested(&self) -> bool {
        self.rests.swap(false, Ordering::AcqRel)
    }

    /// The ring is about to be given back, since a larger one takes its place.
    pub fn begin_growth(&self) {
        self.grows.store(true, Ordering::Release);
    }

    /// Whether that was so of the ring that has just ended. Once.
    pub fn is_growing(&self) -> bool {
        self.grows.swap(false, Ordering::AcqRel)
    }

    /// A ring is over whose peer has not taken all that was put there.
    pub fn note_left(&self) {
        self.left.store(true, Ordering::Relaxed);
    }

    /// Whether one was.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// What a ring of it is to be like from now on.
    pub fn set_large(&self, large: bool) {
        self.large.store(large, Ordering::Relaxed);
    }

    /// Whether it is to have the full size.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.large.load(Ordering::Relaxed)
    }

    /// It has no ring now, having carried so many messages and bytes in all: what comes is counted from there.
    pub fn note_carried(&self, carried: [u64; 2]) {
        for (word, value) in self.carried.iter().zip(carried) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Messages and bytes that it has carried without a ring, of so many in all.
    #[must_use]
    pub fn carried_since(&self, all: [u64; 2]) -> [u64; 2] {
        let [messages, bytes] = &self.carried;
        let since = |word: &AtomicU64, all: u64| all.saturating_sub(word.load(Ordering::Relaxed));
        [since(messages, all[0]), since(bytes, all[1])]
    }

    /// Whether that is still to come.
    #[inline]
    #[must_use]
    pub fn begins_later(&self) -> bool {
        self.later.load(Ordering::Relaxed)
    }

    /// It is worth it now. Whether nobody has said so before.
    pub fn begins_now(&self) -> bool {
        self.begun.store(true, Ordering::Release);
        self.later.swap(false, Ordering::AcqRel)
    }

    /// The ring, if there is one.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<&Ring> {
        // SAFETY: null, or a ring whose memory stays valid for whoever was on the way to look (`Ring::close`).
        unsafe { self.ring.load(Ordering::Acquire).as_ref() }
    }

    /// The connection rides on this ring from now on. Under both locks.
    pub fn set(&self, ring: NonNull<Ring>) {
        self.left.store(false, Ordering::Relaxed); // (what the last one left a peer that lives has got since)
        self.ring.store(ring.as_ptr(), Ordering::Release);
    }

    /// It does not any more. Under both locks, once both directions go by the kernel.
    #[must_use]
    pub fn take(&self) -> Option<NonNull<Ring>> {
        NonNull::new(self.ring.swap(std::ptr::null_mut(), Ordering::AcqRel))
    }

    /// Whether this is due.
    #[must_use]
    pub fn is_due(&self, what: Due) -> bool {
        self.due.load(Ordering::Acquire) & what as u32 != 0
    }

    /// Whether anything is due that takes long.
    #[must_use]
    pub fn is_any_due(&self) -> bool {
        self.is_due(Due::Offered) || self.is_due(Due::Answered)
    }

    /// It is due.
    pub fn want(&self, what: Due) {
        self.due.fetch_or(what as u32, Ordering::AcqRel);
    }

    /// It is done. Whether it was due.
    pub fn done(&self, what: Due) -> bool {
        self.due.fetch_and(!(what as u32), Ordering::AcqRel) & what as u32 != 0
    }

    /// The peer will not begin to send by the ring that is there.
    pub(super) fn expect_no_more(&self) {
        if let Some(ring) = self.get() {
            ring.expect_no_more();
        }
    }

    /// The peer, which has been answered and may begin, is to say that it will not. Once for each answer.
    pub(super) fn take_answer_back(&self) {
        if self.own() != [0; TERMS] {
            self.set_own(None);
            self.want(Due::SayAnswer);
        }
    }

    /// The peer has said where its ring is.
    pub(super) fn hear(&self, terms: &[u8; TERMS], what: Due) {
        for (to, from) in self.heard.iter().zip(terms) {
            to.store(*from, Ordering::Relaxed);
        }
        self.want(what);
    }

    /// Where the peer's ring is, if it has said so and it can be.
    #[must_use]
    pub fn peer(&self) -> Option<Terms> {
        Terms::from_octets(&self.heard.each_ref().map(|o| o.load(Ordering::Relaxed)))
    }

    /// Where this side's ring is, to be said; nothing if it has none.
    pub fn set_own(&self, terms: Option<&Terms>) {
        let octets = terms.map_or([0; TERMS], Terms::to_octets);
        for (to, from) in self.own.iter().zip(octets) {
            to.store(from, Ordering::Relaxed);
        }
    }

    pub(super) fn own(&self) -> [u8; TERMS] {
        self.own.each_ref().map(|o| o.load(Ordering::Relaxed))
    }
}
