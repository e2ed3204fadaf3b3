//! A direction by Sends (the credit scheme): which of the receiver's slots octets lie in, and which the sender may use. Pure.
//!
//! The receiver's incoming ring is [`SLOTS`] slots, and some more for words, each the memory of a receive that it has posted. A
//! credit is one posted receive: a Send burns one, however few octets it has, and the receiver gives back several at once when
//! its reader is done with theirs and they have been posted again. So no Send ever finds no receive, and the adapters are told
//! not to ask again ("receiver not ready").
//!
//! Used by `posting` (under its lock), `sending` and `receiving` (under theirs). Rules: receives are posted before their credits are
//! given back; the lengths of what was sent are kept until then, since what was sent stays in the staging ring as long.

#![forbid(unsafe_code)]

use crate::verbs::{Landed, RECEIVES, SLOTS};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Credits that are given back at once.
pub(super) const BACK: u64 = SLOTS as u64 / 4;

/// Places of the list below: more than there are receives.
const LIST: usize = 64;
const _: () = assert!(LIST > RECEIVES);

/// What has landed, by slot, in order.
#[derive(Debug)]
pub(super) struct Incoming {
    on: AtomicBool,
    /// Octets of a slot.
    size: u32,
    /// Slot and octets of each, by its number.
    list: [AtomicU64; LIST],
    /// Slots that have landed, that were read, and that were given back.
    landed: AtomicU64,
    read: AtomicU64,
    back: AtomicU64,
    /// Octets of the next that were read.
    offset: AtomicU32,
}

impl Incoming {
    pub(super) const fn new(size: u32, on: bool) -> Self {
        Self {
            on: AtomicBool::new(on),
            size,
            list: [const { AtomicU64::new(0) }; LIST],
            landed: AtomicU64::new(0),
            read: AtomicU64::new(0),
            back: AtomicU64::new(0),
            offset: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    fn at(&self, number: u64) -> &AtomicU64 {
        let [first, ..] = &self.list;
        let place = usize::try_from(number % LIST as u64).unwrap_or(0);
        self.list.get(place).unwrap_or(first)
    }

    /// Octets have landed. False: that cannot be.
    pub(super) fn land(&self, what: Landed) -> bool {
        let landed = self.landed.load(Ordering::Relaxed);
        let open = landed - self.back.load(Ordering::Acquire);
        let can = self.is_on()
            && (what.slot as usize) < RECEIVES
            && (1..=self.size).contains(&what.len)
            && open < SLOTS as u64;
        if can {
            let entry = u64::from(what.slot) << 32 | u64::from(what.len);
            self.at(landed).store(entry, Ordering::Relaxed);
            self.landed.store(landed + 1, Ordering::Release);
        }
        can
    }

    /// Where the next octets lie in the incoming ring, and how many there.
    pub(super) fn next(&self) -> Option<(usize, usize)> {
        let read = self.read.load(Ordering::Relaxed);
        if read == self.landed.load(Ordering::Acquire) {
            return None;
        }
        let (slot, len) = unpack(self.at(read).load(Ordering::Relaxed));
        let offset = self.offset.load(Ordering::Relaxed);
        let from = slot as usize * self.size as usize + offset as usize;
        Some((from, len.saturating_sub(offset) as usize))
    }

    /// So many of these were read.
    pub(super) fn advance(&self, n: usize) {
        let read = self.read.load(Ordering::Relaxed);
        let (_, len) = unpack(self.at(read).load(Ordering::Relaxed));
        let offset = self.offset.load(Ordering::Relaxed) as usize + n;
        if offset >= len as usize {
            self.offset.store(0, Ordering::Relaxed);
            self.read.store(read + 1, Ordering::Relaxed);
        } else {
            self.offset
                .store(u32::try_from(offset).unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// Slots that were read and not given back.
    pub(super) fn free(&self) -> u64 {
        self.read.load(Ordering::Relaxed) - self.back.load(Ordering::Relaxed)
    }

    /// Which they are, the first so many.
    pub(super) fn freed(&self, n: u64) -> impl Iterator<Item = u32> {
        let back = self.back.load(Ordering::Relaxed);
        (back..back + n).map(|number| unpack(self.at(number).load(Ordering::Relaxed)).0)
    }

    /// So many were posted again, and the peer is about to be told.
    pub(super) fn give_back(&self, n: u64) {
        self.back.fetch_add(n, Ordering::Release);
    }
}

fn unpack(entry: u64) -> (u32, u32) {
    let part = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
    (part(entry >> 32), part(entry))
}

/// What was sent, by slot.
#[derive(Debug)]
pub(super) struct Outgoing {
    on: AtomicBool,
    lens: [AtomicU32; SLOTS],
    sent: AtomicU64,
    /// Of these, those whose credits have come back.
    back: AtomicU64,
}

impl Outgoing {
    pub(super) const fn new() -> Self {
        Self {
            on: AtomicBool::new(false),
            lens: [const { AtomicU32::new(0) }; SLOTS],
            sent: AtomicU64::new(0),
            back: AtomicU64::new(0),
        }
    }

    /// The peer has slots, or has none.
    pub(super) fn begin(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Sends that there are receives for.
    #[inline]
    pub(super) fn credits(&self) -> usize {
        let back = self.back.load(Ordering::Acquire); // (before what goes on)
        let out = self.sent.load(Ordering::Acquire) - back;
        SLOTS.saturating_sub(usize::try_from(out).unwrap_or(SLOTS))
    }

    fn len(&self, number: u64) -> &AtomicU32 {
        let [first, ..] = &self.lens;
        let place = usize::try_from(number % SLOTS as u64).unwrap_or(0);
        self.lens.get(place).unwrap_or(first)
    }

    /// A Send of so many octets is about to go. There is credit for it.
    pub(super) fn burn(&self, len: u32) {
        let sent = self.sent.load(Ordering::Relaxed);
        self.len(sent).store(len, Ordering::Relaxed);
        self.sent.store(sent + 1, Ordering::Release);
    }

    /// It has not gone.
    pub(super) fn unburn(&self) {
        self.sent.fetch_sub(1, Ordering::Release);
    }

    /// So many credits have come back. The octets that had gone with these; none if so many were not burnt.
    pub(super) fn returned(&self, n: u32) -> Option<u32> {
        let back = self.back.load(Ordering::Relaxed);
        let out = self.sent.load(Ordering::Acquire).saturating_sub(back);
        if u64::from(n) > out || n as usize > SLOTS {
            return None;
        }
        let end = back + u64::from(n);
        let octets = (back..end).map(|number| self.len(number).load(Ordering::Relaxed));
        let octets = octets.sum();
        self.back.store(end, Ordering::Release);
        Some(octets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_come_back_with_the_octets_that_burnt_them() {
        let out = Outgoing::new();
        for len in 1..=SLOTS as u32 {
            assert_eq!(out.credits(), SLOTS + 1 - len as usize);
            out.burn(len);
        }
        assert_eq!(out.credits(), 0);
        assert_eq!(out.returned(3), Some(1 + 2 + 3));
        assert_eq!(out.credits(), 3);
        out.burn(100);
        out.unburn();
        assert_eq!(out.credits(), 3);
        assert_eq!(out.returned(SLOTS as u32), None);
        assert_eq!(out.returned(1), Some(4));
    }

    #[test]
    fn slots_are_read_in_the_order_in_which_they_landed() {
        let inc = Incoming::new(100, true);
        let landed = |slot, len| inc.land(Landed { slot, len });
        assert!(landed(7, 10) && landed(2, 100));
        assert!(!landed(RECEIVES as u32, 1) && !landed(0, 0) && !landed(0, 101));
        assert_eq!(inc.next(), Some((700, 10)));
        inc.advance(4);
        assert_eq!((inc.next(), inc.free()), (Some((704, 6)), 0));
        inc.advance(6);
        assert_eq!((inc.next(), inc.free()), (Some((200, 100)), 1));
        assert_eq!(inc.freed(1).collect::<Vec<_>>(), [7]);
        inc.give_back(1);
        inc.advance(100);
        assert_eq!((inc.next(), inc.free()), (None, 1));
        // More than the sender has credits for.
        assert!((0..SLOTS as u32 - 1).all(|slot| landed(slot, 1)));
        assert!(!landed(0, 1));
    }
}
