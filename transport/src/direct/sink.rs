//! The sink's side on shared memory: posting the reader's buffer, and receiving into it.
//!
//! Under the receiving lock from the posting to the withdrawal, so that no handler of the program runs and
//! nobody else reads meanwhile. Rule: nothing is written to the reader's buffer after the withdrawal.

use super::Pending;
use super::claims::{Claim, Claims};
use super::policy;
use super::reach::breathe;
use super::source::{POSTED, PULLS, advert, claims, number};
use crate::clock;
use crate::shm::layout::{ADVERTS, LARGE};
use crate::shm::segment::Segment;
use crate::sync::{Ordering, fence};
use crate::sys::{time, vm};

/// How long (µs) a source may be in the middle of a chunk before the kernel is asked whether it lives.
const ASK_US: u64 = 1_000;
/// How long (µs) each look after that rests.
const NAP_US: u64 = 200;

impl Segment {
    pub(super) fn looks_large(&self) -> bool {
        let offer = self.peer().tx.offer.load(Ordering::Acquire);
        offer & LARGE != 0 || number(offer) != self.mine().sink.done.load(Ordering::Relaxed)
    }

    /// The adverts that are there and not done with: which comes first, and how many.
    fn news(&self) -> (u32, u32) {
        let offer = self.peer().tx.offer.load(Ordering::Acquire);
        let done = self.mine().sink.done.load(Ordering::Relaxed);
        let count = number(offer).wrapping_sub(done).min(ADVERTS as u32);
        (done.wrapping_add(1), count)
    }

    /// Those of them that have something left, with their numbers.
    fn with_rest(&self, (first, count): (u32, u32)) -> impl Iterator<Item = (u32, Pending)> {
        let mut progress = self.mine().sink.progress.load(Ordering::Relaxed);
        (0..count).filter_map(move |i| {
            let number = first.wrapping_add(i);
            let progress = std::mem::take(&mut progress);
            Some((number, self.rest_of(number, progress)?))
        })
    }

    pub(super) fn ahead(&self) -> impl Iterator<Item = Pending> {
        self.with_rest(self.news()).map(|(_, pending)| pending)
    }

    /// What is left of an advert of which so much has been received, if anything is.
    fn rest_of(&self, number: u32, progress: u64) -> Option<Pending> {
        let advert = advert(self.peer(), number);
        let lane = advert.lane.load(Ordering::Relaxed);
        let len = advert.len.load(Ordering::Relaxed);
        let claims = claims(self.peer(), self.mine(), number);
        let (_, closed) = claims.claimed().unwrap_or((0, true));
        // (while the source is at its last chunk it is not known how much will have arrived)
        let len = if lane == 0 && closed && !claims.source_is_busy() {
            claims.arrived().min(len)
        } else {
            len
        };
        let at = advert.at.load(Ordering::Relaxed);
        let left = len.checked_sub(progress).filter(|&n| n > 0)?;
        Some(Pending { at, left, lane })
    }

    /// The advert that comes next, and what is left of it if it is there already. Adverts that are over
    /// and have nothing left are passed.
    fn upcoming(&self) -> (u32, Option<Pending>) {
        let (first, count) = self.news();
        match self.with_rest((first, count)).next() {
            Some((number, pending)) => (number, Some(pending)),
            None => (first.wrapping_add(count), None),
        }
    }

    pub(super) fn pending_advert(&self) -> Option<Pending> {
        self.upcoming().1
    }

    /// Notes adverts that have nothing left as done with. The one that comes next: what has been received of it
    /// is `Sink::progress`. Under the receiving lock.
    pub(super) fn pass_adverts(&self) -> (u32, Option<Pending>) {
        let sink = &self.mine().sink;
        let (next, pending) = self.upcoming();
        if next.wrapping_sub(1) != sink.done.load(Ordering::Relaxed) {
            sink.progress.store(0, Ordering::Relaxed);
            sink.done.store(next.wrapping_sub(1), Ordering::Release);
        }
        (next, pending)
    }

    /// See [`super::Direct::bury_reader`]. Nobody pushes: a buffer that several processes may read to is never
    /// posted, so all that is claimed is a reader's. What it had claimed last and not confirmed is revoked, as the
    /// source would, and ends the advert there; the chunks before it have arrived, in a buffer that is no more.
    pub(super) fn settle_pulls(&self) {
        let (number, Some(pending)) = self.pass_adverts() else {
            return;
        };
        let claims = claims(self.peer(), self.mine(), number);
        if pending.lane != 0 || claims.claimed().is_none() {
            return;
        }
        if !claims.sink_is_idle() {
            claims.shut();
            claims.revoke();
        }
        let (claimed, closed) = claims.claimed().unwrap_or((0, true));
        let total = advert(self.peer(), number).len.load(Ordering::Relaxed);
        self.note_received(
            number,
            claims.arrived().min(total),
            closed || claimed >= total,
        );
    }

    /// How far an advert has been received, or that it is done with.
    pub(super) fn note_received(&self, number: u32, progress: u64, over: bool) {
        let sink = &self.mine().sink;
        if over {
            sink.progress.store(0, Ordering::Relaxed);
            sink.done.store(number, Ordering::Release);
        } else {
            sink.progress.store(progress, Ordering::Relaxed);
        }
    }

    /// The advert that stands here, after so many bytes of the ring. One that did when the caller looked may be
    /// over, and bytes of the ring may come before the next.
    fn standing(&self, at: u64) -> Option<u32> {
        let (number, pending) = self.pass_adverts();
        pending.filter(|p| p.at == at).map(|_| number)
    }

    fn next_number(&self) -> u32 {
        self.mine()
            .sink
            .done
            .load(Ordering::Relaxed)
            .wrapping_add(1)
    }

    pub(super) fn post_buffer(&self, read: u64, to: *mut u8, len: usize) {
        let sink = &self.mine().sink;
        let was = sink.posted.load(Ordering::Relaxed);
        if was & POSTED != 0 {
            return;
        }
        self.stay();
        self.pass_adverts();
        let pulls = if self.peer_process().is_ok() {
            PULLS
        } else {
            0
        };
        sink.number.store(self.next_number(), Ordering::Relaxed);
        let progress = sink.progress.load(Ordering::Relaxed);
        sink.base.store(progress, Ordering::Relaxed);
        sink.read.store(read, Ordering::Relaxed);
        sink.to.store(to.addr() as u64, Ordering::Relaxed);
        sink.len.store(len as u64, Ordering::Relaxed);
        let version = (was | 3).wrapping_add(1) & !(POSTED | PULLS);
        sink.posted
            .store(version | pulls | POSTED, Ordering::Release);
    }

    pub(super) fn withdraw_buffer(&self) {
        let sink = &self.mine().sink;
        let was = sink.posted.load(Ordering::Relaxed);
        if was & POSTED == 0 {
            return;
        }
        sink.posted.store(was & !POSTED, Ordering::SeqCst);
        // Pairs with the one in `claim_to_push`.
        fence(Ordering::SeqCst);
        let number = sink.number.load(Ordering::Relaxed);
        self.await_source(&claims(self.peer(), self.mine(), number));
    }

    /// Waits until the source is not in the middle of a chunk. It is for the time of a copy, unless it was
    /// stopped on the few instructions before; if it has died it will not go on.
    fn await_source(&self, claims: &Claims<'_>) {
        let begun = clock::ticks();
        let mut turn = 0;
        while claims.source_is_busy() {
            turn += 1;
            if turn % 16 == 0 && clock::ticks() - begun > clock::us(ASK_US) {
                if !self.peer_lives() {
                    claims.bury_source();
                    return;
                }
                let _ = time::nap(NAP_US);
            }
            breathe(turn);
        }
    }

    /// See [`super::Direct::receive`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn receive_advert(&self, at: u64, to: Option<*mut u8>, len: usize) -> usize {
        let Some(number) = self.standing(at) else {
            self.withdraw_buffer(); // it was closed with nothing in it, just now
            return 0;
        };
        let sink = &self.mine().sink;
        let advert = advert(self.peer(), number);
        let (from, total) = (
            advert.from.load(Ordering::Relaxed),
            advert.len.load(Ordering::Relaxed),
        );
        let base = sink.progress.load(Ordering::Relaxed);
        let limit = total.min(base.saturating_add(len as u64));
        let claims = claims(self.peer(), self.mine(), number);
        if let Ok(peer) = self.peer_process() {
            let proof = self.proof(peer);
            let chunk = |left| policy::chunk(limit.saturating_sub(base), left);
            while let Claim::Chunk(c) = claims.claim_to_pull(limit, chunk) {
                // (the word is the peer's too)
                let at = c
                    .offset
                    .checked_sub(base)
                    .filter(|_| c.offset + c.len <= limit);
                let Some(at) = at.and_then(|at| usize::try_from(at).ok()) else {
                    claims.pulled(c, false);
                    break;
                };
                #[allow(clippy::cast_possible_truncation)]
                let wanted = c.len as usize;
                let whole = to.is_none_or(|to| {
                    // SAFETY: what is claimed lies between base and limit, and so inside the buffer.
                    let copied = unsafe {
                        vm::pull(
                            peer.pid,
                            from.wrapping_add(c.offset),
                            to.wrapping_add(at),
                            wanted,
                            proof,
                        )
                    };
                    copied == Ok(true)
                });
                if !claims.pulled(c, whole) {
                    break;
                }
            }
        } else {
            self.await_pushes(&claims, limit);
        }
        self.withdraw_buffer();
        let (claimed, closed) = claims.claimed().unwrap_or((0, true));
        let arrived = claims.arrived().min(limit);
        let got = arrived.saturating_sub(base);
        self.note_received(number, arrived, closed || claimed >= total);
        if got == 0 && len > 0 && !closed && claimed < total {
            // Whoever may not look into the source is served by the ring. (Not whoever reads little at a time:
            // what has been shown as readable must not be gone, however shortly.)
            sink.small.store(number, Ordering::Release);
        }
        let received = &self.mine().home.received;
        received.store(received.load(Ordering::Relaxed) + got, Ordering::Relaxed);
        #[allow(clippy::cast_possible_truncation)]
        let got = got as usize;
        got
    }

    /// See [`super::Direct::ask_small`].
    pub(super) fn ask_for_the_rest(&self) {
        if let (number, Some(_)) = self.upcoming() {
            self.mine().sink.small.store(number, Ordering::Release);
        }
    }

    /// See [`super::Direct::taken_back`].
    pub(super) fn last_taken_back(&self) -> Option<Pending> {
        let last = number(self.peer().tx.offer.load(Ordering::Acquire));
        if last == self.mine().sink.forgotten.load(Ordering::Relaxed) {
            return None;
        }
        let advert = advert(self.peer(), last);
        if advert.lane.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let claims = claims(self.peer(), self.mine(), last);
        let at = advert.at.load(Ordering::Relaxed);
        let len = advert.len.load(Ordering::Acquire);
        let asked = self.mine().sink.small.load(Ordering::Relaxed) == last;
        let left = match claims.claimed()? {
            (_, true) => len.saturating_sub(claims.arrived()),
            (claimed, false) if asked => len.saturating_sub(claimed),
            _ => 0,
        };
        (left > 0).then_some(Pending { at, left, lane: 0 })
    }

    /// The source copies alone, since this side may not look into it.
    fn await_pushes(&self, claims: &Claims<'_>, limit: u64) {
        let mut begun = clock::ticks();
        let mut last = 0;
        let mut turn = 0;
        while let Some((at, false)) = claims.claimed() {
            if at >= limit {
                return;
            }
            if at > last {
                last = at;
                begun = clock::ticks();
            }
            turn += 1;
            if turn % 16 == 0 && clock::ticks() - begun > policy::patience() {
                if !self.peer_lives() {
                    // Nobody copies any more: the advert would stand for ever.
                    claims.bury_source();
                    return;
                }
                if !claims.source_is_busy() {
                    return;
                }
                begun = clock::ticks();
            }
            breathe(turn);
        }
    }
}
