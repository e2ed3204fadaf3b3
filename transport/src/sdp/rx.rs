//! The receiving half of a connection. Owns the count of bytes on each leg; see `sdp`.
//!
//! Rule: every byte read off the kernel connection is either data of a kernel leg or a counted
//! doorbell byte; which it is follows from the counts, never from the value. Used under the receiving
//! lock.

mod kernel;
mod large;
mod leaving;
mod pace;
mod quick;

pub use large::Awaited;

use super::journal::{Journal, Place, Shareable};
use super::{Leg, Walk};
use crate::direct::far::Far;
use crate::provider::{End, Provider};
use crate::shm::layout::{FIN_NONE, FIN_RESET};
use crate::sys::Result;
use flowctl::any::Receiver;
use flowctl::{Granted, Receiver as _, Violation, with_scheme};

/// How long (µs) the rest of a first leg may take to be delivered by the kernel of this host.
const STALL_US: u64 = 1_000_000;

/// What a read gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    Bytes(usize),
    /// Nothing yet.
    Empty,
    /// The peer has shut its direction.
    Eof,
    /// The peer reset the connection.
    Reset,
    /// The fast leg is over and every bell taken: the kernel connection alone goes on.
    Kernel,
    /// The peer wrote what it never may.
    Broken,
}

impl From<Violation> for Got {
    fn from(_: Violation) -> Self {
        Self::Broken
    }
}

/// How to read.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// Leave the bytes where they are.
    pub peek: bool,
    /// Throw the bytes away instead of copying them.
    pub discard: bool,
    /// If nothing is there, leave a large buffer posted: the caller looks for a while, reads again without
    /// this, and holds the lock meanwhile.
    pub lingers: bool,
    /// The call waits where there is nothing.
    pub waits: bool,
    /// It wants all of its bytes (MSG_WAITALL), and takes them: what it has is no reason to end, but urgent data is.
    pub whole: bool,
    /// The buffer that such a read left posted still is.
    pub resumes: bool,
    /// The reading end of the sender's lane, or the place for it.
    pub far: Option<&'static Far>,
}

/// Of a kernel connection that has ended, without an error that was taken.
const OVER: u8 = u8::MAX;

/// The receiving half.
#[derive(Debug)]
pub struct Rx {
    flow: Receiver,
    journal: Journal<Receiver>,
    /// Whoever used it last died in the middle of it, and may have taken bells that it did not count.
    orphaned: bool,
    /// As above, and it may have received what its adverts do not say.
    advert_orphaned: bool,
    /// As above, and it may have granted what was not noted.
    grant_orphaned: bool,
    /// The peer's terms are known: it has begun its fast leg.
    open: bool,
    leg: Leg,
    /// Bytes by the kernel on the first leg.
    kernel: u64,
    /// Doorbell bytes taken off the kernel connection.
    bells: u64,
    /// Whether the kernel connection has ended, by FIN or RST, bells aside: 0, [`OVER`], or the error that told of it when bells
    /// were taken, which the kernel tells once.
    over: u8,
    /// The room freed by reading was published and the peer waits for it.
    ring_due: bool,
    /// Credits have to be handed back in a message of their own.
    update_due: bool,
    pace: pace::Pace,
}

/// What has to be done on the sending half after a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Ring the peer, which waits for room.
    pub ring: bool,
    /// Send it its credits.
    pub update: bool,
}

impl Due {
    /// Whether anything is.
    #[inline]
    #[must_use]
    pub const fn any(self) -> bool {
        self.ring || self.update
    }
}

impl Rx {
    /// A connection that has just been made.
    #[must_use]
    pub fn new() -> Self {
        Self {
            flow: Receiver::new(4096, &super::tx::UNKNOWN),
            journal: Journal::off(),
            orphaned: false,
            advert_orphaned: false,
            grant_orphaned: false,
            open: false,
            leg: Leg::First,
            kernel: 0,
            bells: 0,
            over: 0,
            ring_due: false,
            update_due: false,
            pace: pace::Pace::default(),
        }
    }

    /// Where this direction is.
    #[inline]
    #[must_use]
    pub const fn leg(&self) -> Leg {
        self.leg
    }

    /// Bytes read from the kernel on the first leg.
    #[must_use]
    pub const fn kernel_bytes(&self) -> u64 {
        self.kernel
    }

    /// Bytes read off the fast leg.
    #[inline]
    #[must_use]
    pub fn fast_bytes(&self) -> u64 {
        self.flow.consumed()
    }

    /// Takes the peer's terms on once it has begun its fast leg. False before.
    fn open(&mut self, p: &impl Provider) -> Result<bool, Violation> {
        if !self.open && p.stated(End::Kernel).is_some() {
            self.flow = Receiver::new(p.region(), &p.offered()?);
            self.open = true;
        }
        Ok(self.open)
    }

    /// Reads what is there, from whichever leg the direction is on. Bytes read are walked over.
    ///
    /// # Errors
    /// What the kernel gave on a kernel leg, EAGAIN aside.
    ///
    /// # Safety
    /// The walk's buffers are writable.
    #[inline]
    pub unsafe fn read(
        &mut self,
        p: &impl Provider,
        fd: i32,
        walk: &mut Walk,
        how: How,
    ) -> Result<Got> {
        if self.orphaned {
            self.recount(p, fd);
        }
        if self.advert_orphaned {
            self.settle_advert(p, how.far);
        }
        self.regrant(p);
        let before = walk.done();
        // SAFETY: passed on to the caller.
        let got = unsafe { self.read_legs(p, fd, walk, how) }?;
        // Bytes of an earlier leg were read before this one said how it stands.
        Ok(match walk.done() - before {
            0 => got,
            n => Got::Bytes(n),
        })
    }

    #[inline]
    unsafe fn read_legs(
        &mut self,
        p: &impl Provider,
        fd: i32,
        walk: &mut Walk,
        how: How,
    ) -> Result<Got> {
        loop {
            match self.leg {
                Leg::Fast => {
                    // SAFETY: passed on to the caller.
                    match unsafe { self.read_fast(p, walk, how) } {
                        // The last bytes were published before the end: look once more.
                        Got::Empty if self.fast_is_over(p) => match self.available(p) {
                            Ok(0) if p.stated(End::Fast) == Some(self.flow.consumed()) => {
                                self.leg = Leg::Last;
                            }
                            Ok(0) | Err(Violation) => return Ok(Got::Broken),
                            Ok(_) => {}
                        },
                        Got::Bytes(0) if walk.left() > 0 => {} // arrived meanwhile
                        got => return Ok(got),
                    }
                }
                Leg::First => match self.read_first(p, fd, walk, how)? {
                    // The leg may end here, and more be there on the next.
                    Some(Got::Bytes(_)) if walk.left() > 0 => {
                        let end = p.stated(End::Kernel);
                        if how.peek {
                            let left = end.map(|end| end.saturating_sub(self.kernel));
                            if left == Some(walk.done() as u64) {
                                if self.open(p).is_err() {
                                    return Ok(Got::Broken);
                                }
                                // SAFETY: passed on to the caller.
                                return Ok(unsafe { self.read_fast(p, walk, how) });
                            }
                            return Ok(Got::Bytes(0));
                        }
                        // (else the rest of it is read: one call takes a few buffers of a long vector only)
                        if end.is_none() {
                            return Ok(Got::Bytes(0));
                        }
                    }
                    Some(got) => return Ok(got),
                    None => match self.open(p) {
                        Ok(_) => self.leg = Leg::Fast,
                        Err(Violation) => return Ok(Got::Broken),
                    },
                },
                Leg::Last => {
                    return Ok(if self.take_bells(p, fd, usize::MAX) {
                        Got::Kernel
                    } else {
                        Got::Empty
                    });
                }
            }
        }
    }

    fn fast_is_over(&self, p: &impl Provider) -> bool {
        p.stated(End::Fast).is_some()
    }

    #[inline]
    unsafe fn read_fast(&mut self, p: &impl Provider, walk: &mut Walk, how: How) -> Got {
        if how.resumes {
            // (the peer may have turned to the ring, and may turn again: what it delivers has to be looked for)
            // SAFETY: passed on to the caller.
            return unsafe { self.read_large(p, walk, how) };
        }
        // SAFETY: passed on to the caller.
        match unsafe { self.read_ring(p, walk, how, true) } {
            Some(got) => got,
            // SAFETY: as above.
            None => unsafe { self.read_large(p, walk, how) },
        }
    }

    /// Reads what the ring holds: with `looks`, what it holds now, or `None` if adverts may stand among that;
    /// without, what the caller knows of and has seen to stand before any advert.
    ///
    /// # Safety
    /// The walk's buffers are writable.
    #[inline]
    unsafe fn read_ring(
        &mut self,
        p: &impl Provider,
        walk: &mut Walk,
        how: How,
        looks: bool,
    ) -> Option<Got> {
        let before = walk.done();
        let due = with_scheme!(Receiver, &mut self.flow, flow => {
            let known = flow.available();
            if looks {
                if (known == 0 || known < walk.left()) && flow.announced(p).is_err() {
                    return Some(Got::Broken);
                }
                // (after that: what follows an advert is announced after the advert)
                if p.has_adverts() {
                    return None;
                }
            }
            // SAFETY: passed on to the caller.
            unsafe {
                if how.peek {
                    read_by(&mut flow.clone(), &mut Journal::off(), p, walk, how)
                } else {
                    read_by(flow, &mut self.journal, p, walk, how)
                }
            }
        });
        match due {
            Ok(due) => {
                self.ring_due |= due.ring;
                self.update_due |= due.update;
            }
            Err(Violation) => return Some(Got::Broken),
        }
        let n = walk.done() - before;
        if n > 0 || (walk.left() == 0 && self.flow.available() > 0) {
            return Some(Got::Bytes(n));
        }
        self.hand_back(p);
        Some(self.ended(p))
    }

    /// What an empty ring means.
    fn ended(&mut self, p: &impl Provider) -> Got {
        match p.finished() {
            // The sender is gone without a word: what it had parked is all there is.
            FIN_NONE if !self.is_kernel_over() => Got::Empty,
            // The last bytes were published before the word: look once more.
            fin => {
                self.flow.release();
                if self.flow.announced(p).is_err() {
                    Got::Broken
                } else if self.flow.available() > 0 {
                    Got::Bytes(0)
                } else if fin == FIN_NONE {
                    Got::Empty
                } else if fin == FIN_RESET {
                    Got::Reset
                } else {
                    Got::Eof
                }
            }
        }
    }

    /// Hands back all that was read: this side is about to wait, or the peer may be starved.
    pub fn hand_back(&mut self, p: &impl Provider) {
        if self.open {
            self.grant_orphaned = false;
            self.journal.note(|| self.flow.clone());
            let due = settle(self.flow.grant(true, p), p);
            self.ring_due |= due.ring;
            self.update_due |= due.update;
        }
    }

    /// Whoever read last may have died when it had told the peer of room and not noted that: the state that was noted
    /// last is the one it did so by, so that doing it again comes to the same or to more. Before anything is looked
    /// at that the peer may have sent by it.
    #[inline]
    fn regrant(&mut self, p: &impl Provider) {
        if self.grant_orphaned {
            self.hand_back(p);
        }
    }

    /// What has to be done on the sending half. Asked once after each read. Where several processes read it stays
    /// due until it was done ([`Rx::done`]): whoever was about to may be killed.
    #[inline]
    pub const fn take_due(&mut self) -> Due {
        let due = Due {
            ring: self.ring_due,
            update: self.update_due,
        };
        if !self.journal.is_on() {
            self.done(due);
        }
        due
    }

    /// What was due has been done.
    #[inline]
    pub const fn done(&mut self, due: Due) {
        self.ring_due &= !due.ring;
        self.update_due &= !due.update;
    }

    /// What the peer has parked counts from now on: it was waited for long enough, or the peer is gone.
    pub fn release(&mut self) {
        self.flow.release();
    }

    /// What the peer has withheld so far counts.
    pub fn pull(&mut self, p: &impl Provider) {
        self.flow.pull(p);
    }

    /// Bytes that can be read off the fast leg now, those of an advert included.
    ///
    /// # Errors
    /// The peer's counter is impossible.
    pub fn available(&mut self, p: &impl Provider) -> Result<usize, Violation> {
        if !self.open(p)? {
            return Ok(0);
        }
        if self.is_kernel_over() {
            self.flow.release();
        }
        self.regrant(p);
        self.flow.announced(p)?;
        let ring = self.flow.available();
        if !p.has_adverts() {
            return Ok(ring);
        }
        self.settle_advert(p, None);
        let left = p.ahead().fold(0, |n: u64, a| n.saturating_add(a.left));
        Ok(ring.saturating_add(usize::try_from(left).unwrap_or(usize::MAX)))
    }

    /// Moves on to the last leg if the fast one is over and read to its end, and takes the bells that
    /// lie before its data.
    pub fn advance(&mut self, p: &impl Provider, fd: i32) {
        if self.orphaned {
            self.recount(p, fd);
        }
        self.pass_first(p);
        if self.leg == Leg::Fast
            && p.stated(End::Fast) == Some(self.flow.consumed())
            && p.pending().is_none()
        {
            self.leg = Leg::Last;
        }
        if self.leg == Leg::Last {
            self.take_bells(p, fd, usize::MAX);
        }
    }

    /// Moves on to the fast leg if the first one is read to its end: then every byte on the kernel
    /// connection is a bell, and can be taken as one.
    pub fn pass_first(&mut self, p: &impl Provider) {
        let read =
            self.leg == Leg::First && !self.orphaned && p.stated(End::Kernel) == Some(self.kernel);
        // (terms that are a lie are found by the next read)
        if read && self.open(p) == Ok(true) {
            self.leg = Leg::Fast;
        }
    }
}

/// What handing back asks for.
#[inline]
fn settle(granted: Granted, p: &impl Provider) -> Due {
    Due {
        ring: granted == Granted::Told && p.must_ring(crate::doorbell::SPACE),
        update: granted == Granted::UpdateDue,
    }
}

/// Reads by one scheme what is known to be there.
///
/// # Safety
/// The walk's buffers are writable.
#[inline]
unsafe fn read_by<F: flowctl::Receiver + Clone + Into<Receiver>>(
    flow: &mut F,
    journal: &mut Journal<Receiver>,
    p: &impl Provider,
    walk: &mut Walk,
    how: How,
) -> Result<Due, Violation> {
    let mut due = Due::default();
    loop {
        let (to, len) = walk.chunk();
        if len == 0 {
            break;
        }
        let mut piece = flow.next(p)?;
        piece.len = piece.len.min(len).min(64 * 1024);
        if piece.len == 0 {
            break;
        }
        if !how.discard {
            // SAFETY: the walk's chunk is writable by the caller's promise.
            unsafe { p.take(piece, to) };
        }
        walk.advance(piece.len);
        flow.consume(piece.len);
        journal.note(|| flow.clone().into());
        if !how.peek {
            p.took(flow.consumed());
            let now = settle(flow.grant(false, p), p);
            due.ring |= now.ring;
            due.update |= now.update;
        }
    }
    Ok(due)
}

impl Shareable for Rx {
    type Noted = Receiver;

    fn share(&mut self, place: Option<&'static mut Place<Receiver>>) {
        self.journal.turn(place, &self.flow);
    }

    fn note(&mut self) {
        self.journal.note(|| self.flow.clone());
    }

    fn recover(&mut self) {
        self.journal.recover(&mut self.flow);
        self.orphaned = true;
        self.advert_orphaned = true;
        self.grant_orphaned = true;
        // (what it owed the peer)
        self.ring_due = true;
        self.update_due = true;
    }
}

impl Default for Rx {
    fn default() -> Self {
        Self::new()
    }
}
