//! The sending half of a connection. Owns the count of bytes on each leg; see `sdp`.
//!
//! Rule: a byte goes out on exactly one leg, and the end of a leg is stated only when no byte can
//! follow on it. Used under the sending lock.

mod large;
mod last;
mod put;
mod quick;
mod withheld;

use super::journal::{Journal, Place, Shareable};
use super::{Due, Ended, Leg, Walk};
use crate::direct::policy;
use crate::doorbell;
use crate::provider::{End, Provider};
use crate::sys::{Errno, Result, net};
use flowctl::any::Sender;
use flowctl::{Counts, Scheme, Sender as _, Terms, Violation, credit, with_scheme};
use put::{Keep, look_if_due, put_by};

/// Most bytes put before they are published, so that the reader works while the sender does.
const PUBLISH: usize = 32 * 1024;

/// How long (µs) a peer may leave the kernel connection full of bells that it wished for. An honest one
/// wishes for the next only once it is awake.
const STUCK_US: u64 = 1_000_000;

/// Before there are terms.
pub(super) const UNKNOWN: Terms = Terms {
    scheme: Scheme::Packetized,
    buffer: 1,
    own: 0,
    slots: 2,
    slot: 1,
    window: 1,
};

/// What came of putting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// This many bytes went (0: out of room).
    Bytes(usize),
    /// The fast leg has ended: go on with [`Tx::write_kernel`].
    Ended,
    /// Nothing to put: the file to be sent is at its end.
    Nothing,
}

/// The sending half.
#[derive(Debug)]
pub struct Tx {
    flow: Sender,
    journal: Journal<Sender>,
    /// Whoever used it last died in the middle of it.
    orphaned: bool,
    /// It may have died between noting what it had put and telling the peer.
    tell_orphaned: bool,
    /// It may have died between taking the peer's wish for a bell and ringing.
    bell_due: bool,
    /// It may have died between counting a byte of the kernel connection and sending it, or the other way round.
    uncounted: bool,
    /// The peer sends by credits, which are acknowledged on what goes from here.
    acks: Option<bool>,
    /// The most that was in use at the receiver when there was no room, and how often that was seen.
    peak: u32,
    starved: u32,
    /// Bytes that were put and are not told of, as the program has more to say (`withheld`).
    withheld: u16,
    leg: Leg,
    /// Bytes by the kernel on the first leg.
    kernel: u64,
    /// Where the peer's counter was last looked at, for the warm start.
    looked: put::Looked,
    /// The part of the region to be sent once more by the kernel: what the peer gave back. From where, to
    /// where; alike if nothing is owed.
    owed: (u64, u64),
    finished: bool,
    /// What a sender has advertised, and waits for the reader to take.
    advert: large::Advert,
    /// What the kernel has been told of bells.
    hurry: Hurry,
    /// The last bell was for a reader who slept, having read all that had been put before.
    woke_reader: bool,
    /// What is known of the kernel connection's end.
    pub ended: Ended,
}

/// How far the kernel has been told to send every byte at once, as bells need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hurry {
    None,
    /// Enough for the first byte of all: TCP_CORK is off.
    First,
    /// And TCP_NODELAY on.
    All,
}

impl Tx {
    /// A connection that has just been made.
    #[must_use]
    pub fn new() -> Self {
        Self {
            flow: Sender::new(4096, &UNKNOWN),
            journal: Journal::off(),
            orphaned: false,
            tell_orphaned: false,
            bell_due: false,
            uncounted: false,
            acks: None,
            peak: 0,
            starved: 0,
            leg: Leg::First,
            kernel: 0,
            looked: put::Looked::default(),
            owed: (0, 0),
            finished: false,
            withheld: 0,
            advert: large::Advert::None,
            hurry: Hurry::None,
            woke_reader: false,
            ended: Ended::default(),
        }
    }

    /// Where this direction is.
    #[inline]
    #[must_use]
    pub const fn leg(&self) -> Leg {
        self.leg
    }

    /// Bytes sent by the kernel on the first leg.
    #[must_use]
    pub const fn kernel_bytes(&self) -> u64 {
        self.kernel
    }

    /// Bytes put over the fast leg.
    #[must_use]
    pub fn fast_bytes(&self) -> u64 {
        self.flow.accepted()
    }

    /// The program has shut this direction.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        self.finished
    }

    /// Opens the fast leg: both sides have agreed. What these terms say is cut to what the region holds
    /// and the peer wants.
    pub fn attach(&mut self, p: &impl Provider, fd: i32, terms: &Terms) {
        self.recount(p, fd);
        let receive = match p.wanted() {
            0 => u64::MAX,
            n => n,
        };
        let terms = terms.cut(p.region(), receive);
        p.offer(&terms);
        self.flow = Sender::new(p.region(), &terms);
        self.looked = put::Looked::default();
        self.leg = Leg::Fast;
        p.state(End::Kernel, self.kernel);
    }

    /// Whether the peer sends by credits; known once it has begun its fast leg.
    #[inline]
    fn acknowledges(&mut self, p: &impl Provider) -> Result<bool, Violation> {
        match self.acks {
            Some(acks) => Ok(acks),
            None if p.stated(End::Kernel).is_none() => Ok(false),
            None => {
                let acks = p.offered()?.scheme == Scheme::Credit;
                self.acks = Some(acks);
                Ok(acks)
            }
        }
    }

    /// Puts as much of the program's buffers as there is room for, and rings if the peer sleeps. `more`: the program has more
    /// to say (MSG_MORE, TCP_CORK).
    ///
    /// # Errors
    /// The peer's counter is impossible.
    ///
    /// # Safety
    /// The walk's buffers are readable.
    #[inline]
    pub unsafe fn put(
        &mut self,
        p: &impl Provider,
        fd: i32,
        walk: &mut Walk,
        more: bool,
    ) -> Result<Put, Violation> {
        if self.is_advertised(p) {
            return Ok(Put::Bytes(0)); // what was begun goes first
        }
        if walk.left() >= policy::large() {
            self.tell_withheld(p, fd);
            // SAFETY: passed on to the caller.
            return unsafe { self.put_large(p, fd, walk) };
        }
        // SAFETY: passed on to the caller.
        unsafe { self.put_ring(p, fd, walk, more) }
    }

    /// [`Self::put`] through the ring.
    ///
    /// # Safety
    /// As there.
    #[inline]
    unsafe fn put_ring(
        &mut self,
        p: &impl Provider,
        fd: i32,
        walk: &mut Walk,
        more: bool,
    ) -> Result<Put, Violation> {
        let acks = self.acknowledges(p)?;
        self.retell(p);
        let looked = &mut self.looked;
        let journal = &mut self.journal;
        let keep = Keep {
            withheld: &mut self.withheld,
            more,
        };
        let put = with_scheme!(Sender, &mut self.flow, flow => {
            look_if_due(flow, looked, p, walk.left())?;
            if p.enter() {
                p.time_put();
                // SAFETY: passed on to the caller.
                let put = unsafe { put_by(flow, journal, keep, acks, p, walk) };
                Some(put)
            } else {
                None
            }
        });
        let Some(put) = put else {
            self.end_fast(p, fd);
            return Ok(Put::Ended);
        };
        self.note_starved(p);
        if let Ok((_, ring @ 1..)) = put
            && self.rings(p, ring)
        {
            self.send_bell(p, fd);
        }
        p.leave();
        Ok(Put::Bytes(put?.0))
    }

    /// Notes how much of the receive buffer was in use, if a put has just found no room.
    #[inline]
    fn note_starved(&mut self, p: &impl Provider) {
        #[allow(clippy::cast_possible_truncation)] // (only whether it has changed)
        let starved = self.flow.counts().starved as u32;
        if starved != self.starved {
            self.starved = starved;
            let held = u32::try_from(self.flow.held(p.taken()));
            self.peak = self.peak.max(held.unwrap_or(u32::MAX));
        }
    }

    /// Fills the region in place: `fill` is given memory and says how much of it it filled.
    ///
    /// # Errors
    /// What `fill` answered, if nothing was filled before; ECONNRESET if the peer lies.
    pub fn fill(
        &mut self,
        p: &impl Provider,
        fd: i32,
        want: usize,
        more: bool,
        mut fill: impl FnMut(*mut u8, usize) -> Result<usize>,
    ) -> Result<Put> {
        if self.is_advertised(p) {
            return Ok(Put::Bytes(0));
        }
        let mut total = 0;
        let mut failed = None;
        let acks = self.acknowledges(p).map_err(|_| Errno::CONNRESET)?;
        self.retell(p);
        while total < want && failed.is_none() {
            with_scheme!(Sender, &mut self.flow, flow => {
                look_if_due(flow, &mut self.looked, p, want - total)
            })
            .map_err(|_| Errno::CONNRESET)?;
            let piece = self.flow.place((want - total).min(2 * PUBLISH));
            if piece.len == 0 {
                self.tell_withheld(p, fd);
                break;
            }
            if !p.enter() {
                self.end_fast(p, fd);
                return Ok(if total > 0 {
                    Put::Bytes(total)
                } else {
                    Put::Ended
                });
            }
            p.time_put();
            let (at, len) = p.place(piece);
            match fill(at, len) {
                Ok(0) => failed = Some(None),
                Ok(n) => {
                    self.flow.commit(n.min(len), p);
                    self.journal.note(|| self.flow.clone());
                    total += n.min(len);
                    let keep = Keep {
                        withheld: &mut self.withheld,
                        more,
                    };
                    let ring = keep.tell(&mut self.flow, n.min(len), acks, p);
                    if self.rings(p, ring) {
                        self.send_bell(p, fd);
                    }
                }
                Err(e) => failed = Some(Some(e)),
            }
            p.leave();
        }
        match failed {
            Some(Some(e)) if total == 0 => Err(e),
            Some(None) if total == 0 => Ok(Put::Nothing),
            _ => Ok(Put::Bytes(total)),
        }
    }

    /// Lets parked bytes go, all of them: the program is inside the library for long.
    pub fn post(&mut self, p: &impl Provider, fd: i32) {
        self.retell(p);
        if self.leg != Leg::Fast || !self.flow.is_parked() || !p.enter() {
            return;
        }
        if self.flow.granted(p).is_ok() && self.post_all(p) && self.rings(p, doorbell::DATA) {
            self.send_bell(p, fd);
        }
        p.leave();
    }

    /// Shows the peer all that is parked or withheld. Whether anything was.
    fn post_all(&mut self, p: &impl Provider) -> bool {
        let shown = self.flow.show(true) | (std::mem::take(&mut self.withheld) > 0);
        if shown {
            self.journal.note(|| self.flow.clone());
            self.flow.publish(p);
        }
        shown
    }

    /// Whether bytes are parked: taken from the program, and not for the peer to take.
    #[inline]
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.leg == Leg::Fast && self.flow.is_parked()
    }

    /// Does what a read has asked for.
    pub fn serve(&mut self, p: &impl Provider, fd: i32, due: Due) {
        if due.update {
            self.update(p, fd);
        }
        if due.ring {
            self.ring(p, fd);
        }
    }

    /// Sends the peer the credits that it is owed, in a message of their own. Without effect while the
    /// rules do not allow one; then it is still due.
    fn update(&mut self, p: &impl Provider, fd: i32) {
        if self.leg != Leg::Fast {
            credit::acknowledge(p); // nothing goes from here any more that it could ride on
            return;
        }
        if !p.enter() {
            return;
        }
        if self.flow.granted(p).is_ok() && self.flow.control() {
            self.journal.note(|| self.flow.clone());
            self.flow.tell_control(p);
            credit::acknowledge(p);
            if p.must_ring(doorbell::SPACE) {
                self.send_bell(p, fd);
            }
        }
        p.leave();
    }

    /// Sizes the sender's own buffer anew, in bytes.
    pub fn resize(&mut self, own: usize) {
        self.flow.resize(own);
    }

    /// What the scheme has counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.flow.counts()
    }

    /// Bytes of receive buffer reserved for this direction, and the most in use when there was no room.
    #[must_use]
    pub fn buffer(&self) -> (u64, u64) {
        (self.flow.reserved(), self.peak.into())
    }

    /// Bytes that may be put now, as far as the peer has told.
    ///
    /// # Errors
    /// The peer's counter is impossible.
    pub fn room(&mut self, p: &impl Provider) -> Result<usize, Violation> {
        if self.is_advertised(p) {
            return Ok(0);
        }
        self.flow.granted(p)?;
        Ok(self.flow.room())
    }

    /// Whether poll(2) should call this direction writable: a third of the buffer is free, as the
    /// kernel has it.
    ///
    /// # Errors
    /// The peer's counter is impossible.
    pub fn is_writable(&mut self, p: &impl Provider) -> Result<bool, Violation> {
        if self.is_advertised(p) {
            return Ok(false);
        }
        if self.flow.is_roomy() {
            return Ok(true);
        }
        self.flow.granted(p)?;
        Ok(self.flow.is_roomy())
    }

    /// Bytes that the peer has not read, to the byte.
    #[must_use]
    pub fn unread(&self, p: &impl Provider) -> u64 {
        self.flow.accepted().saturating_sub(p.taken()) + p.held()
    }

    /// Whether the peer, which is gone, has left bytes unread: of the fast leg, or of the first.
    #[must_use]
    pub fn was_left_unread(&self, p: &impl Provider) -> bool {
        self.unread(p) > 0 || self.kernel > p.taken_first()
    }

    /// Whether what the peer, which is gone, has left unread was put after its end: the bell that went with it was answered by a reset
    /// behind the end of file. (Bytes that nobody is there for are no bytes that somebody threw away.)
    #[must_use]
    pub const fn was_put_behind_end(&self) -> bool {
        self.woke_reader && self.ended.is_behind_end()
    }

    /// Whether nothing of the region is in use: all was read, and nothing waits there to go.
    #[must_use]
    pub fn has_nothing_there(&self, p: &impl Provider) -> bool {
        self.leg == Leg::Fast
            && !self.is_parked()
            && !self.owes()
            && matches!(self.advert, large::Advert::None)
            && self.unread(p) == 0
    }

    /// The most that may be on its way, in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.flow.limit()
    }

    /// Shuts this direction on the fast leg.
    pub fn finish(&mut self, p: &impl Provider, fin: u32) {
        self.finished = true;
        self.end_advert(p);
        self.retell(p);
        self.post_all(p);
        p.finish(fin);
    }

    /// Rings the peer: one counted byte on the kernel connection. Only on the fast leg, where every
    /// byte on the kernel connection is a bell.
    pub fn ring(&mut self, p: &impl Provider, fd: i32) {
        if self.leg == Leg::Fast && p.enter() {
            self.woke_reader = false;
            self.send_bell(p, fd);
            p.leave();
        }
    }

    /// Tells the peer of what whoever died before had put, and noted, and perhaps not told of: it takes room, and to
    /// tell it twice is harmless.
    #[inline]
    fn retell(&mut self, p: &impl Provider) {
        if self.tell_orphaned {
            self.publish_again(p);
        }
    }

    #[cold]
    fn publish_again(&mut self, p: &impl Provider) {
        self.tell_orphaned = false;
        if self.leg == Leg::Fast && p.enter() {
            self.flow.publish(p);
            self.flow.tell_control(p);
            p.leave();
        }
    }

    /// Whether a bell is to follow what the peer has just been told.
    #[inline]
    pub fn rings(&mut self, p: &impl Provider, what: u32) -> bool {
        // (of two wishes that the peer may have, which it is has to be known before it is taken)
        let reads = what == doorbell::DATA
            || what & doorbell::DATA != 0 && p.peer_sleeps_for(doorbell::DATA);
        if p.must_ring(what) {
            self.woke_reader = reads;
            return true;
        }
        std::mem::take(&mut self.bell_due)
    }

    /// The caller is about to wait, and may wait for what the peer does: a bell that whoever died before owed it is
    /// rung.
    pub fn ring_for_the_dead(&mut self, p: &impl Provider, fd: i32) {
        self.retell(p);
        if std::mem::take(&mut self.bell_due) {
            self.ring(p, fd);
        }
    }

    /// Makes the kernel send every bell at once, whatever the program has asked for its data: a byte
    /// held back (Nagle, TCP_CORK) would be a wake-up tens of milliseconds late. Before the first bell
    /// only: most short connections never need one.
    fn hurry(&mut self, fd: i32) {
        let known = self.hurry;
        if known == Hurry::All {
            return;
        }
        // (the first byte of all has nothing in flight before it that it would have to wait for)
        let first = known == Hurry::None && self.kernel == 0;
        if known == Hurry::None {
            net::set_tcp(fd, libc::TCP_CORK, false);
        }
        if !first {
            net::set_tcp(fd, libc::TCP_NODELAY, true);
        }
        self.hurry = if first { Hurry::First } else { Hurry::All };
    }

    #[cold]
    fn send_bell(&mut self, p: &impl Provider, fd: i32) {
        self.hurry(fd);
        p.count_bell();
        let ticket = p.ticket();
        // (the peer's wish for it has been taken by now: it must not get lost)
        match (net::press(fd, &[0]), ticket) {
            (Ok(_), Some(ticket)) => p.note_rung(ticket),
            (Ok(_), None) => {}
            // Full of bells that nobody took, so readable anyway; or gone, which shows by itself.
            (Err(e), _) => {
                p.uncount_bell();
                self.ended.take(e);
            }
        }
    }
}

impl Shareable for Tx {
    type Noted = Sender;

    fn share(&mut self, place: Option<&'static mut Place<Sender>>) {
        self.journal.turn(place, &self.flow);
    }

    fn note(&mut self) {
        self.journal.note(|| self.flow.clone());
    }

    fn recover(&mut self) {
        self.journal.recover(&mut self.flow);
        self.orphaned = true;
        self.tell_orphaned = true;
        self.bell_due = true;
        self.uncounted = true;
    }
}

impl Default for Tx {
    fn default() -> Self {
        Self::new()
    }
}
