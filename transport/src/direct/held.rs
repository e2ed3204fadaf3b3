//! Messages that their sender holds in place (AZ-SDP), on shared memory: adverts of what is in a *lane*, a
//! pipe that refers to the sender's pages and whose reading end the sink has fetched.
//!
//! Rules:
//! - A lane is used only once the sink has said that it has the reading end: from then on nothing that
//!   was sent depends on the sender, which may be killed.
//! - One lane a direction; its bytes are those of its adverts, in order. Nothing of it is taken back, and a
//!   new one is fetched only when nothing of the last is left.
//! - What the peer says is checked where it counts: the process is the one that maps this segment, the
//!   descriptor is the very pipe that it named, and a pipe that holds less than was said is a lie.

use super::Pending;
use super::far::{Far, FarEnd, Look};
use super::source::{advert, number};
use crate::provider::Provider;
use crate::shm::layout::ADVERTS;
use crate::shm::segment::Segment;
use crate::sync::Ordering;
use crate::sys::vm;

/// How far the sink is with this side's lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// There is none.
    None,
    /// It has not looked yet.
    Offered,
    /// It has the reading end.
    Fetched,
    /// It cannot have it.
    Refused,
}

/// Where the serial number stands in a lane's word; the descriptor is below.
const SERIAL_SHIFT: u32 = 32;

impl Segment {
    /// See [`super::Direct::offer_lane`].
    pub(super) fn offer_reading_end(&self, fd: i32, pipe: u64) {
        let source = &self.mine().source;
        let serial = (source.lane.load(Ordering::Relaxed) >> SERIAL_SHIFT) + 1;
        self.stay();
        source.pipe.store(pipe, Ordering::Relaxed);
        source.lane.store(
            serial << SERIAL_SHIFT | u64::from(fd.cast_unsigned()),
            Ordering::Release,
        );
        self.foretell_large(true);
    }

    pub(super) fn own_lane(&self) -> Lane {
        let lane = self.mine().source.lane.load(Ordering::Relaxed);
        let sink = &self.peer().sink;
        match lane {
            0 => Lane::None,
            n if sink.fetched.load(Ordering::Acquire) == n => Lane::Fetched,
            n if sink.refused.load(Ordering::Acquire) == n => Lane::Refused,
            _ => Lane::Offered,
        }
    }

    /// See [`super::Direct::hold`].
    pub(super) fn advertise_held(&self, at: u64, len: usize) {
        let lane = self.mine().source.lane.load(Ordering::Relaxed);
        self.open_advert(at, std::ptr::null(), len as u64, lane);
        let sent = &self.mine().home.sent;
        sent.store(sent.load(Ordering::Relaxed) + len as u64, Ordering::Relaxed);
    }

    /// Bytes of this side's lane that the sink has not read, as it says.
    pub(super) fn held_unread(&self) -> u64 {
        let opened = number(self.mine().tx.offer.load(Ordering::Relaxed));
        let sink = &self.peer().sink;
        let done = sink.done.load(Ordering::Acquire);
        let mut progress = sink.progress.load(Ordering::Relaxed);
        let count = opened.wrapping_sub(done).min(ADVERTS as u32);
        let mut unread = 0;
        for i in 1..=count {
            let advert = advert(self.mine(), done.wrapping_add(i));
            let progress = std::mem::take(&mut progress);
            if advert.lane.load(Ordering::Relaxed) != 0 {
                let len = advert.len.load(Ordering::Relaxed);
                unread += len.saturating_sub(progress);
            }
        }
        unread
    }

    /// See [`super::Direct::fetch`].
    pub(super) fn fetch_lane(&self, far: &Far) {
        let source = &self.peer().source;
        let lane = source.lane.load(Ordering::Acquire);
        let sink = &self.mine().sink;
        let known = [&sink.fetched, &sink.refused].map(|w| w.load(Ordering::Relaxed));
        if lane == 0 || known.contains(&lane) || self.ahead().any(|a| a.lane != 0) {
            return;
        }
        let pipe = source.pipe.load(Ordering::Relaxed);
        #[allow(clippy::cast_possible_truncation)]
        let fd = (lane as u32).cast_signed();
        let fetched = self.peer_process().is_ok_and(|peer| {
            let proof = self.proof(peer);
            let is_peer = || {
                let mut byte = 0u8;
                // SAFETY: one writable byte.
                let found = unsafe { vm::pull(peer.pid, proof.at, &raw mut byte, 1, proof) };
                found == Ok(true)
            };
            let end = FarEnd::fetch(peer.pid, fd, is_peer);
            end.and_then(|end| far.put(end, pipe)).is_ok()
        });
        let answer = if fetched {
            &sink.fetched
        } else {
            &sink.refused
        };
        answer.store(lane, Ordering::Release);
    }

    /// Whether this is of the lane that was fetched.
    fn is_fetched(&self, pending: &Pending) -> bool {
        pending.lane != 0 && pending.lane == self.mine().sink.fetched.load(Ordering::Relaxed)
    }

    /// See [`super::Direct::receive_held`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn receive_from_lane(
        &self,
        at: u64,
        to: Option<*mut u8>,
        len: usize,
        far: &Far,
    ) -> Option<usize> {
        let (number, pending) = self.pass_adverts();
        let pending = pending.filter(|p| p.at == at && self.is_fetched(p))?;
        let wanted = usize::try_from(pending.left).map_or(len, |left| left.min(len));
        // SAFETY: passed on to the caller.
        let n = unsafe { far.take(to, wanted) }.ok().filter(|&n| n > 0)?;
        let progress = self.mine().sink.progress.load(Ordering::Relaxed);
        self.note_received(
            number,
            progress.wrapping_add(n as u64),
            n as u64 == pending.left,
        );
        let received = &self.mine().home.received;
        received.store(
            received.load(Ordering::Relaxed) + n as u64,
            Ordering::Relaxed,
        );
        Some(n)
    }

    /// See [`super::Direct::bury_reader_of_lane`]. The lane holds what its adverts say, less what the dead had taken
    /// and not noted; only while the source is in the middle of a put may it hold more.
    pub(super) fn settle_lane(&self, far: &Far) -> bool {
        let (number, Some(next)) = self.pass_adverts() else {
            return true;
        };
        if !self.ahead().any(|a| self.is_fetched(&a)) {
            return true;
        }
        let news = || self.peer().tx.offer.load(Ordering::Acquire);
        let before = news();
        let still = !self.peer_is_putting();
        let held = far.unread();
        if !still || self.peer_is_putting() || news() != before {
            return false;
        }
        let said = self.ahead().filter(|a| a.lane != 0);
        let said = said.fold(0, |n: u64, a| n.saturating_add(a.left));
        let taken = said.saturating_sub(held);
        if taken > 0 && self.is_fetched(&next) {
            let progress = self.mine().sink.progress.load(Ordering::Relaxed);
            let progress = progress.wrapping_add(taken.min(next.left));
            self.note_received(number, progress, taken >= next.left);
        }
        true
    }

    /// See [`super::Direct::look_held`].
    pub(super) fn look_into_lane(&self, far: &Far, len: usize) -> Option<Look> {
        let ours = self.ahead().find(|a| a.lane != 0);
        ours.filter(|a| self.is_fetched(a))?;
        far.look(len).ok()
    }
}
