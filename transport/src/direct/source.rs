//! The source's side on shared memory: delivering into a buffer that the reader has posted. Both copy: the
//! source pushes, and the reader, which sees the advert, pulls.
//!
//! Under the sending lock. Rule: when a delivery returns, the reader reads nothing more from the buffer
//! that counts (`claims`).

use super::choice::{Choice, Way};
use super::claims::{Claim, Claims, LONGEST};
use super::reach::{Peer, Whose, breathe};
use super::{Patience, policy};
use crate::clock;
use crate::shm::layout::{ADVERTS, Advert, Home, LARGE, Pass, Side, Source};
use crate::shm::segment::Segment;
use crate::sync::{AtomicU32, Ordering};
use crate::sys::vm;
use std::mem::offset_of;

/// The reader's buffer as it was posted. What the peer says: bounds nothing of this side's, since it is the
/// peer's own memory that is written.
#[derive(Clone, Copy, Debug)]
struct Posted {
    word: u64,
    number: u32,
    base: u64,
    read: u64,
    to: u64,
    len: u64,
}

/// Bits of [`crate::shm::layout::Sink::posted`]: it is posted, and its owner can pull.
pub(super) const POSTED: u64 = 1;
pub(super) const PULLS: u64 = 2;

const fn slot(adverts: &[Advert; ADVERTS], number: u32) -> &Advert {
    #[allow(clippy::indexing_slicing)] // (by a remainder of its length)
    &adverts[number as usize % ADVERTS]
}

/// The words of an advert of `source`'s for `sink`.
pub(super) const fn claims<'a>(source: &'a Side, sink: &'a Side, number: u32) -> Claims<'a> {
    Claims {
        number,
        claim: &slot(&source.adverts, number).claim,
        source: &source.source.busy,
        placed: &source.source.placed,
        sink: &sink.sink.busy,
    }
}

/// The advert itself.
pub(super) const fn advert(source: &Side, number: u32) -> &Advert {
    slot(&source.adverts, number)
}

/// The number in an offer.
#[allow(clippy::cast_possible_truncation)]
pub(super) const fn number(offer: u64) -> u32 {
    offer as u32
}

impl Segment {
    pub(super) const fn passing(&self, wait: Patience) -> &Pass {
        let [first, second] = &self.mine().home.passes;
        match wait {
            Patience::Return => first,
            Patience::Drain => second,
        }
    }

    fn posted(&self) -> Option<Posted> {
        let sink = &self.peer().sink;
        let word = sink.posted.load(Ordering::Acquire);
        (word & POSTED != 0).then(|| Posted {
            word,
            number: sink.number.load(Ordering::Relaxed),
            base: sink.base.load(Ordering::Relaxed),
            read: sink.read.load(Ordering::Relaxed),
            to: sink.to.load(Ordering::Relaxed),
            len: sink.len.load(Ordering::Relaxed),
        })
    }

    /// The reader's buffer for a new advert at this position: what is posted, from which of its bytes on,
    /// and how many.
    fn fitting(&self, at: u64) -> Option<(Posted, u64, u64)> {
        let posted = self.posted()?;
        let next = number(self.mine().tx.offer.load(Ordering::Relaxed)).wrapping_add(1);
        if posted.number != next || posted.base != 0 {
            return None; // it has not heard of the last one yet
        }
        let gap = at.checked_sub(posted.read)?;
        let room = posted.len.checked_sub(gap).filter(|&r| r > 0)?;
        Some((posted, gap, room.min(LONGEST)))
    }

    pub(super) fn foretell_large(&self, large: bool) {
        let offer = &self.mine().tx.offer;
        let word = offer.load(Ordering::Relaxed);
        if (word & LARGE != 0) != large {
            offer.store(word ^ LARGE, Ordering::Release);
        }
    }

    pub(super) fn room_awaited(&self, at: u64) -> u64 {
        self.fitting(at).map_or(0, |(posted, _, room)| {
            let moves = posted.word & PULLS != 0 || self.peer_process().is_ok();
            if moves { room } else { 0 }
        })
    }

    /// See [`super::Direct::deliver`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn deliver_to_posted(&self, at: u64, from: *const u8, len: usize) -> usize {
        let Some((posted, gap, room)) = self.fitting(at) else {
            return 0;
        };
        self.stay();
        let peer = self.peer_process().ok();
        let total = room.min(len as u64);
        let claims = self.open_advert(at, from, total, 0);
        if let Some(peer) = peer {
            let to = posted.to.wrapping_add(gap);
            // SAFETY: the caller's promise.
            unsafe { self.push_all(&claims, posted.word, peer, from, to, total) };
        }
        self.conclude(&claims, total, posted.word)
    }

    /// Whether another advert can be made: the peer has noticed enough of the last ones.
    pub(super) fn can_open(&self) -> bool {
        let opened = number(self.mine().tx.offer.load(Ordering::Relaxed));
        let noticed = self.peer().sink.done.load(Ordering::Acquire);
        opened.wrapping_sub(noticed) < ADVERTS as u32
    }

    /// See [`super::Direct::advertise`].
    pub(super) fn advertise_buffer(&self, at: u64, from: *const u8, len: usize) -> bool {
        if self.is_refused() || !self.can_open() {
            return false;
        }
        self.stay();
        let claims = self.open_advert(at, from, (len as u64).min(LONGEST), 0);
        self.mine()
            .home
            .open
            .store(claims.number, Ordering::Release);
        true
    }

    /// The open advert's words and itself.
    fn open(&self) -> Option<(Claims<'_>, &Advert)> {
        let number = self.mine().home.open.load(Ordering::Acquire);
        (number != 0).then(|| {
            (
                claims(self.mine(), self.peer(), number),
                advert(self.mine(), number),
            )
        })
    }

    pub(super) fn advert_is_over(&self) -> bool {
        let Some((claims, advert)) = self.open() else {
            return true;
        };
        let over = claims
            .claimed()
            .is_none_or(|(at, closed)| closed || at >= advert.len.load(Ordering::Relaxed));
        over && claims.sink_is_idle()
            || self.peer().sink.small.load(Ordering::Acquire) == claims.number
    }

    /// Takes part in the copying, if the reader is at the open advert with a buffer posted.
    ///
    /// # Safety
    /// The advertised buffer is readable.
    pub(super) unsafe fn help_reader(&self) {
        let Some((claims, advert)) = self.open() else {
            return;
        };
        let (Some(posted), Ok(peer)) = (self.posted(), self.peer_process()) else {
            return;
        };
        let at = advert.at.load(Ordering::Relaxed);
        let (Some(gap), true) = (at.checked_sub(posted.read), posted.number == claims.number)
        else {
            return;
        };
        let Some(room) = posted.len.checked_sub(gap) else {
            return;
        };
        let total = advert.len.load(Ordering::Relaxed);
        let limit = total.min(posted.base.saturating_add(room));
        let to = posted.to.wrapping_add(gap).wrapping_sub(posted.base);
        let from = advert.from.load(Ordering::Relaxed);
        let from = std::ptr::with_exposed_provenance(usize::try_from(from).unwrap_or(0));
        // SAFETY: passed on to the caller.
        unsafe { self.push_all(&claims, posted.word, peer, from, to, limit) };
    }

    /// Lets nobody read the advertised buffer any more, at once. Without any lock: also for handlers.
    pub(super) fn hide_buffer(&self) {
        if let Some((claims, _)) = self.open() {
            claims.shut();
            claims.revoke();
        }
    }

    /// See [`super::Direct::conclude`].
    pub(super) fn conclude_open(&self) -> usize {
        let Some((claims, advert)) = self.open() else {
            return 0;
        };
        claims.shut();
        let total = advert.len.load(Ordering::Relaxed);
        let n = self.conclude(&claims, total, 0);
        if n > 0 && !self.mine().home.choice().is_trusted() {
            policy::note_reader(true);
        }
        self.mine().home.open.store(0, Ordering::Release);
        n
    }

    /// See [`super::Direct::settle_taken_back`]. (A sink that reads without waiting waits for what was shown, for as long as a copy
    /// takes: what the ring has no room for would keep it in vain.)
    pub(super) fn shorten_taken_back(&self, accepted: u64) {
        let last = number(self.mine().tx.offer.load(Ordering::Relaxed));
        let advert = advert(self.mine(), last);
        if self.open().is_some() || advert.lane.load(Ordering::Relaxed) != 0 {
            return;
        }
        let claims = claims(self.mine(), self.peer(), last);
        let Some(by_ring) = accepted.checked_sub(advert.at.load(Ordering::Relaxed)) else {
            return;
        };
        let len = claims.arrived().saturating_add(by_ring);
        if len < advert.len.load(Ordering::Relaxed) {
            advert.len.store(len, Ordering::Release); // (behind what was published)
        }
    }

    /// Tells the peer of a buffer, or of what is in a lane.
    pub(super) fn open_advert(&self, at: u64, from: *const u8, len: u64, lane: u64) -> Claims<'_> {
        let mine = self.mine();
        let next = number(mine.tx.offer.load(Ordering::Relaxed)).wrapping_add(1);
        let advert = advert(mine, next);
        advert.at.store(at, Ordering::Relaxed);
        advert
            .from
            .store(from.expose_provenance() as u64, Ordering::Relaxed);
        advert.len.store(len, Ordering::Relaxed);
        advert.lane.store(lane, Ordering::Relaxed);
        let claims = claims(mine, self.peer(), next);
        claims.open();
        mine.tx
            .offer
            .store(LARGE | u64::from(next), Ordering::Release);
        claims
    }

    /// Copies chunk after chunk, until all of it is claimed.
    ///
    /// # Safety
    /// `from` is readable for `total` bytes.
    unsafe fn push_all(
        &self,
        claims: &Claims<'_>,
        posted: u64,
        peer: Peer,
        from: *const u8,
        to: u64,
        total: u64,
    ) {
        let sink = &self.peer().sink.posted;
        let mark = offset_of!(Side, source) + offset_of!(Source, placed);
        let mark_at = self.in_page(peer, Whose::Mine, mark);
        let knock = offset_of!(Side, home) + offset_of!(Home, knock);
        let knock = self.in_page(peer, Whose::Peers, knock);
        let is_posted = || sink.load(Ordering::Acquire) == posted;
        let chunk = |left| policy::chunk(total, left);
        while let Claim::Chunk(c) = claims.claim_to_push(total, chunk, is_posted) {
            #[allow(clippy::cast_possible_truncation)]
            let (offset, len) = (c.offset as usize, c.len as usize);
            // SAFETY: a chunk lies inside what is advertised.
            let copied = unsafe {
                vm::push(
                    peer.pid,
                    (from.wrapping_add(offset), len),
                    to.wrapping_add(c.offset),
                    knock,
                    (claims.next_mark(), mark_at),
                )
            };
            let whole = copied == Ok(true);
            claims.pushed(c, whole);
            if !whole {
                return;
            }
        }
    }

    /// Waits for the sink's part, not for long, and ends the advert. The bytes that have arrived.
    fn conclude(&self, claims: &Claims<'_>, total: u64, posted: u64) -> usize {
        let (mut begun, mut seen) = (clock::ticks(), 0);
        let mut turn = 0;
        loop {
            let claimed = claims.claimed();
            let idle = claims.sink_is_idle();
            match claimed {
                Some((at, false)) if at < total => {
                    if at > seen {
                        (begun, seen) = (clock::ticks(), at);
                    }
                    // Not all of it is claimed: only a sink that is at it goes on.
                    if self.peer().sink.posted.load(Ordering::Acquire) != posted {
                        claims.shut();
                    }
                }
                _ if idle => break,
                _ => {}
            }
            turn += 1;
            if turn % 16 == 0 && clock::ticks() - begun > policy::patience() {
                break;
            }
            breathe(turn);
        }
        claims.shut();
        claims.revoke();
        let arrived = claims.arrived().min(total);
        claims.settle(arrived);
        let sent = &self.mine().home.sent;
        sent.store(sent.load(Ordering::Relaxed) + arrived, Ordering::Relaxed);
        #[allow(clippy::cast_possible_truncation)]
        let arrived = arrived as usize;
        arrived
    }
}

fn way(word: &AtomicU32) -> Way {
    if word.load(Ordering::Relaxed) == 0 {
        Way::Direct
    } else {
        Way::Ring
    }
}

impl Home {
    pub(super) fn choice(&self) -> Choice {
        let words = &self.choice;
        Choice {
            since: words.since.load(Ordering::Relaxed),
            bytes: words.bytes.load(Ordering::Relaxed),
            messages: words.messages.load(Ordering::Relaxed),
            way: self.way(),
            best: way(&words.best),
            score: words.score.load(Ordering::Relaxed).cast_signed(),
            pairs: words.pairs.load(Ordering::Relaxed),
            paces: words.paces.each_ref().map(|p| p.load(Ordering::Relaxed)),
            left: words.left.load(Ordering::Relaxed),
            rest: words.rest.load(Ordering::Relaxed),
            put_off: words.put_off.load(Ordering::Relaxed),
            crowd: words.crowd.load(Ordering::Relaxed),
        }
    }

    pub(super) fn way(&self) -> Way {
        way(&self.choice.way)
    }

    pub(crate) fn choose(&self, c: &Choice) {
        let words = &self.choice;
        words.since.store(c.since, Ordering::Relaxed);
        words.bytes.store(c.bytes, Ordering::Relaxed);
        for (word, pace) in words.paces.iter().zip(c.paces) {
            word.store(pace, Ordering::Relaxed);
        }
        words.messages.store(c.messages, Ordering::Relaxed);
        words.way.store(c.way as u32, Ordering::Relaxed);
        words.best.store(c.best as u32, Ordering::Relaxed);
        words
            .score
            .store(c.score.cast_unsigned(), Ordering::Relaxed);
        words.pairs.store(c.pairs, Ordering::Relaxed);
        words.left.store(c.left, Ordering::Relaxed);
        words.rest.store(c.rest, Ordering::Relaxed);
        words.put_off.store(c.put_off, Ordering::Relaxed);
        words.crowd.store(c.crowd, Ordering::Relaxed);
    }
}
