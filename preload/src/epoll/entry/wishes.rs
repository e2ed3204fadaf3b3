//! What an entry wishes to be woken by while somebody sleeps on its set: a bell of its own, or one for the whole set (`ticket`).
//!
//! Called under the set's lock.

use super::{Asked, Entry, Heed, Subject, poll_bits};
use crate::sockets::{Phase, Socket, fences, parked, ready, wired};
use std::sync::atomic::Ordering;
use transport::doorbell::{self, By, Seat, Ticket};
use transport::provider::Provider;
use transport::sdp::Leg;
use transport::shm::segment::Segment;
use transport::sys::net;

/// What wakes whoever sleeps on the set for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waker {
    Bell,
    /// A bell on any of the set's entries, during one sleep.
    Ticket,
    /// The same, as long as the set has its seat: the entry is posted (`epoll::board`).
    Board,
    /// Nothing is sure to: it is looked at again before long.
    None,
}

impl Entry {
    /// Wishes to be rung when what the program waits for comes about. True if a wish is new: then a
    /// heavy barrier comes before the look that decides about sleeping.
    pub(crate) fn wish(&mut self) -> bool {
        let had_ticket = self.is_by_ticket() || self.is_posted();
        self.note_wish();
        if (self.parked || self.disabled) && had_ticket {
            if self.is_posted() {
                self.disarm_by();
            }
            return false; // (a ticket is taken back after the sleep)
        }
        self.waker = Waker::Bell;
        if self.parked || self.disabled {
            return false;
        }
        if let Some(s) = self.socket() {
            // (an offer may be answered during the sleep, and bytes follow at once)
            let attached = matches!(s.phase(), Phase::Announced | Phase::Attached);
            let blind = self.unwatched && wired::ring_event(s).is_some();
            if wired::is_wired(s)
                && (blind
                    || wired::before_sleep(
                        s,
                        self.fd,
                        ready::wishes(poll_bits(self.events)),
                        wired::Sleeper::Set,
                    ) < u64::MAX)
            {
                self.waker = Waker::None;
                parked::look_soon();
            }
            if self.is_behind(s) {
                self.waker = Waker::None;
                parked::look_soon();
            }
            return attached
                && s.segment().is_some_and(|p| {
                    fences::pace(s, p);
                    let new = p.wish(ready::wishes(poll_bits(self.events)));
                    if had_ticket {
                        p.disarm_by(); // (a bell that answers an old ticket would count for nothing)
                    }
                    new
                });
        }
        match self.subject {
            Subject::Set(inner) => {
                let new = inner.wish_all();
                if inner.is_unsure() {
                    self.waker = Waker::None; // (whoever found that out has sleeps be naps)
                }
                new
            }
            _ => false,
        }
    }

    /// Whether room is lacking whose bell would lie behind bytes of the first leg that the program does not read: it wakes nobody where it
    /// finds no room itself in the kernel, which those fill.
    fn is_behind(&self, s: &Socket) -> bool {
        s.phase() == Phase::Attached
            && s.rx_leg() == Leg::First
            && ready::wishes(poll_bits(self.events)) & doorbell::SPACE != 0
            && net::unread(self.fd) > 0
            && s.segment()
                .is_some_and(|p| !ready::can_write(s, p, self.fd))
    }

    /// As [`Self::wish`], by the ticket of the set's sleep where nobody else's wish can be in its place (no other set has the
    /// socket, and no other process), and where a bell is sure to wake the set: it does not lie behind other bytes in the
    /// kernel, whose registration is ours. False: it cannot be, and nothing is wished for.
    pub(in super::super) fn wish_by(&mut self, ticket: Ticket) -> bool {
        let wished = self.wish_at(By::Ticket(ticket));
        if wished {
            self.waker = Waker::Ticket;
        }
        wished
    }

    /// As [`Self::wish_by`], by the set's seat in the arena of its connection, and until it is taken back.
    pub(in super::super) fn wish_by_seat(&mut self, seat: Seat) -> bool {
        let wished = self.wish_at(By::Seat(seat));
        if wished {
            self.waker = Waker::Board;
        }
        wished
    }

    fn wish_at(&mut self, by: By) -> bool {
        let wished = self.exclusively().is_some_and(|(s, p)| {
            fences::pace(s, p);
            p.wish_by(ready::wishes(poll_bits(self.events)), by)
        });
        if wished {
            self.note_wish();
        }
        wished
    }

    /// Its connection, where the set's wish can be in nobody's place.
    fn exclusively(&self) -> Option<(&'static Socket, &'static Segment)> {
        let s = self.socket()?;
        (!self.parked
            && self.asked == Asked::Ours
            && !self.orphan
            && s.phase() == Phase::Attached
            && s.rx_leg() == Leg::Fast
            && s.set_count.load(Ordering::Acquire) <= 1
            && !s.is_shared())
        .then_some((s, s.segment()?))
    }

    /// Its connection, if it may be posted.
    pub(in super::super) fn postable(&self) -> Option<&'static Segment> {
        (!self.disabled)
            .then(|| self.exclusively())
            .flatten()
            .map(|(_, p)| p)
    }

    fn note_wish(&mut self) {
        if self.heed == Heed::Asked {
            self.heed = Heed::Hot;
        }
    }

    /// Whether a heavy barrier is due after a wish by a ticket.
    pub(in super::super) fn owes_barrier(&self) -> bool {
        let segment = self.socket().and_then(|s| s.segment());
        segment.is_none_or(|p| !p.is_fenced())
    }

    /// Whether its last wish was by a ticket, which is good for that sleep only: it cannot be left to its bell.
    pub(in super::super) const fn is_by_ticket(&self) -> bool {
        matches!(self.waker, Waker::Ticket)
    }

    /// Whether it is posted: the wish stands, whatever comes.
    #[inline]
    pub(in super::super) const fn is_posted(&self) -> bool {
        matches!(self.waker, Waker::Board)
    }

    /// In a child after fork: what it has wished for by a seat was its parent's wish.
    pub(in super::super) const fn forget_wish(&mut self) {
        if self.is_posted() {
            self.waker = Waker::Bell;
        }
    }

    /// Takes back what was wished for by a ticket or a seat, if anything.
    pub(in super::super) fn disarm_by(&mut self) {
        if !self.is_by_ticket() && !self.is_posted() {
            return;
        }
        self.waker = Waker::Bell;
        // (else the segment may be let go)
        if let Some(s) = self.socket()
            && s.phase() == Phase::Attached
            && let Some(p) = s.segment()
        {
            p.disarm_by();
        }
    }

    /// Takes back what was wished for this entry, where nobody else can have wished for the same: whoever
    /// sleeps on another set, or in a call on the socket, would miss what comes.
    pub(crate) fn disarm(&self) {
        if let Some(s) = self.socket()
            && s.phase() == Phase::Attached
            && s.set_count.load(Ordering::Acquire) <= 1
            && s.sleepers() == 0
            && !s.is_shared()
            && let Some(p) = s.segment()
        {
            p.disarm(ready::wishes(poll_bits(self.events)));
        }
    }
}
