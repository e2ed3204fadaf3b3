//! The receiving half of a connection. Owns the count of bytes on each leg; see `sdp`.
//!
//! Rule: every byte read off the kernel connection is either data of a kernel leg or a counted
//! doorbell byte; which it is follows from the counts, never from the value. Used under the receiving
//! lock.

use super::journal::{Journal, Place, Shareable};
use super::{Leg, Walk, walk::BATCH};
use crate::clock;
use crate::provider::{End, Provider};
use crate::shm::layout::{FIN_NONE, FIN_RESET};
use crate::sys::{Errno, Result, net, yield_core};
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
}

/// The receiving half.
#[derive(Debug)]
pub struct Rx {
    flow: Receiver,
    journal: Journal<Receiver>,
    /// Whoever used it last died in the middle of it, and may have taken bells that it did not count.
    orphaned: bool,
    /// The peer's terms are known: it has begun its fast leg.
    open: bool,
    leg: Leg,
    /// Bytes by the kernel on the first leg.
    kernel: u64,
    /// Doorbell bytes taken off the kernel connection.
    bells: u64,
    /// The kernel connection has ended: FIN or RST, bells aside.
    pub kernel_over: bool,
    /// The room freed by reading was published and the peer waits for it.
    ring_due: bool,
    /// Credits have to be handed back in a message of their own.
    update_due: bool,
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
            open: false,
            leg: Leg::First,
            kernel: 0,
            bells: 0,
            kernel_over: false,
            ring_due: false,
            update_due: false,
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

    /// Reads before there is a segment: the kernel connection, without waiting.
    ///
    /// # Errors
    /// As recv(2); EAGAIN if there is nothing.
    pub fn read_kernel(&mut self, fd: i32, walk: &mut Walk, flags: i32) -> Result<usize> {
        let n = Self::recv(fd, walk, usize::MAX, flags)?;
        if flags & libc::MSG_PEEK == 0 {
            self.kernel += n as u64;
        }
        Ok(n)
    }

    fn recv(fd: i32, walk: &mut Walk, limit: usize, flags: i32) -> Result<usize> {
        if limit >= walk.left()
            && let Some((iov, count)) = walk.untouched()
        {
            // SAFETY: as below.
            return unsafe { net::recv_vec(fd, iov.cast_mut(), count, flags | libc::MSG_DONTWAIT) };
        }
        let mut iov = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; BATCH];
        let count = walk.batch(&mut iov, limit);
        // SAFETY: the pointers are the program's, for the kernel to check.
        let n = unsafe { net::recv_vec(fd, iov.as_mut_ptr(), count, flags | libc::MSG_DONTWAIT) }?;
        Ok(n)
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
            self.count_bells(p, fd);
        }
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
                        if end != Some(self.kernel) {
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

    /// The first leg; `None` once it is finished.
    fn read_first(
        &mut self,
        p: &impl Provider,
        fd: i32,
        walk: &mut Walk,
        how: How,
    ) -> Result<Option<Got>> {
        let mut limit = usize::MAX;
        let mut flags = 0;
        let known = p.stated(End::Kernel);
        if let Some(end) = known {
            if self.kernel == end {
                return Ok(None);
            }
            let Some(left) = end.checked_sub(self.kernel) else {
                return Ok(Some(Got::Broken));
            };
            limit = usize::try_from(left).unwrap_or(usize::MAX);
        }
        // While the end is not stated, bells and even the last leg's data may come in behind this leg's
        // bytes: they are looked at first, and taken once it is known how many are of this leg.
        if how.peek || known.is_none() {
            flags |= libc::MSG_PEEK;
        }
        if how.discard {
            flags |= libc::MSG_TRUNC;
        }
        match Self::recv(fd, walk, limit, flags) {
            Err(Errno::AGAIN) => Ok(Some(Got::Empty)),
            Err(e) => Err(e),
            Ok(0) if walk.left() == 0 => Ok(Some(Got::Bytes(0))),
            Ok(0) => {
                self.kernel_over = true;
                // The end may have been stated, and the connection closed, since we looked.
                Ok((p.stated(End::Kernel) != Some(self.kernel)).then_some(Got::Eof))
            }
            Ok(n) => {
                let mut data = n;
                if known.is_none() {
                    if let Some(end) = p.stated(End::Kernel) {
                        let Some(left) = end.checked_sub(self.kernel) else {
                            return Ok(Some(Got::Broken));
                        };
                        data = n.min(usize::try_from(left).unwrap_or(usize::MAX));
                    }
                    if !how.peek && data > 0 {
                        data = net::discard(fd, data)?;
                    }
                }
                if !how.peek {
                    self.kernel += data as u64;
                }
                walk.skip(data);
                Ok((data > 0).then_some(Got::Bytes(data)))
            }
        }
    }

    #[inline]
    unsafe fn read_fast(&mut self, p: &impl Provider, walk: &mut Walk, how: How) -> Got {
        let before = walk.done();
        let due = with_scheme!(Receiver, &mut self.flow, flow => {
            let known = flow.available();
            if (known == 0 || known < walk.left()) && flow.announced(p).is_err() {
                return Got::Broken;
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
            Err(Violation) => return Got::Broken,
        }
        let n = walk.done() - before;
        if n > 0 || (walk.left() == 0 && self.flow.available() > 0) {
            return Got::Bytes(n);
        }
        self.hand_back(p);
        match p.finished() {
            // The sender is gone without a word: what it had parked is all there is.
            FIN_NONE if !self.kernel_over => Got::Empty,
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
            let due = settle(self.flow.grant(true, p), p);
            self.ring_due |= due.ring;
            self.update_due |= due.update;
        }
    }

    /// What has to be done on the sending half. Asked once after each read.
    #[inline]
    pub const fn take_due(&mut self) -> Due {
        let due = Due {
            ring: self.ring_due,
            update: self.update_due,
        };
        self.ring_due = false;
        self.update_due = false;
        due
    }

    /// What the peer has parked counts from now on: it was waited for long enough, or the peer is gone.
    pub fn release(&mut self) {
        self.flow.release();
    }

    /// Bytes that can be read off the fast leg now.
    ///
    /// # Errors
    /// The peer's counter is impossible.
    pub fn available(&mut self, p: &impl Provider) -> Result<usize, Violation> {
        if !self.open(p)? {
            return Ok(0);
        }
        if self.kernel_over {
            self.flow.release();
        }
        self.flow.announced(p)?;
        Ok(self.flow.available())
    }

    /// Moves on to the last leg if the fast one is over and read to its end, and takes the bells that
    /// lie before its data.
    pub fn advance(&mut self, p: &impl Provider, fd: i32) {
        self.pass_first(p);
        if self.leg == Leg::Fast && p.stated(End::Fast) == Some(self.flow.consumed()) {
            self.leg = Leg::Last;
        }
        if self.leg == Leg::Last {
            self.take_bells(p, fd, usize::MAX);
        }
    }

    /// Moves on to the fast leg if the first one is read to its end: then every byte on the kernel
    /// connection is a bell, and can be taken as one.
    pub fn pass_first(&mut self, p: &impl Provider) {
        let read = self.leg == Leg::First && p.stated(End::Kernel) == Some(self.kernel);
        // (terms that are a lie are found by the next read)
        if read && self.open(p) == Ok(true) {
            self.leg = Leg::Fast;
        }
    }

    /// Bells that have been counted by the peer and not taken here.
    #[must_use]
    pub fn bells_outstanding(&self, p: &impl Provider) -> u64 {
        p.bells().saturating_sub(self.bells)
    }

    /// Takes bells off the kernel connection, `most` at most. True if none is left. Not on the first
    /// leg, where data may lie before them.
    pub fn take_bells(&mut self, p: &impl Provider, fd: i32, most: usize) -> bool {
        if self.leg == Leg::First {
            return false;
        }
        let outstanding = self.bells_outstanding(p);
        if outstanding == 0 {
            return true;
        }
        let want = usize::try_from(outstanding).unwrap_or(usize::MAX).min(most);
        match net::discard(fd, want) {
            Ok(0) | Err(Errno(libc::ECONNRESET | libc::EPIPE)) => {
                self.kernel_over = true;
                true
            }
            Ok(n) => {
                self.bells += n as u64;
                n as u64 == outstanding
            }
            Err(_) => false,
        }
    }

    /// Counts anew how many bells have been taken: whoever died may have taken some without a word. On the
    /// fast leg every byte on the kernel connection is one, and while the peer is not in the middle of a
    /// put every bell that it has counted has come.
    #[cold]
    fn count_bells(&mut self, p: &impl Provider, fd: i32) {
        if self.leg != Leg::Fast {
            self.orphaned = false;
            return;
        }
        let counted = p.bells();
        let still = !p.peer_is_putting();
        let lying = net::unread(fd) as u64;
        if still && !p.peer_is_putting() && p.bells() == counted {
            self.orphaned = false;
            self.bells = self.bells.max(counted.saturating_sub(lying));
        }
    }

    /// After a look that has walked over all that is left of the fast leg: looks on at what follows it on
    /// the kernel connection. True if it saw anything.
    ///
    /// # Errors
    /// As recv(2), EAGAIN aside.
    pub fn peek_on(&mut self, p: &impl Provider, fd: i32, walk: &mut Walk) -> Result<bool> {
        let left = match self.available(p) {
            Ok(left) if self.leg == Leg::Fast => left as u64,
            _ => return Ok(false),
        };
        let whole = p.stated(End::Fast) == Some(self.flow.consumed() + left);
        if !whole || walk.done() as u64 != left || !self.take_bells(p, fd, usize::MAX) {
            return Ok(false);
        }
        match Self::recv(fd, walk, usize::MAX, libc::MSG_PEEK) {
            Ok(n) => {
                walk.skip(n);
                Ok(n > 0)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The peer will put no more: if all that is unread lies on the kernel connection, with no bell
    /// among it, it can stay there. The kernel connection alone goes on then.
    ///
    /// # Errors
    /// The peer's counter is impossible.
    pub fn leave_in_kernel(&mut self, p: &impl Provider) -> Result<bool, Violation> {
        let can =
            self.leg == Leg::First && self.available(p)? == 0 && self.bells_outstanding(p) == 0;
        if can {
            self.leg = Leg::Last;
        }
        Ok(can)
    }

    /// The peer will put no more: gathers everything unread, on whatever leg, for private use. The fast
    /// leg is then over.
    ///
    /// # Errors
    /// The peer's counter is impossible, or what it counted never came.
    pub fn gather(&mut self, p: &impl Provider, fd: i32) -> Result<Vec<u8>, Violation> {
        let mut out = Vec::new();
        if self.leg == Leg::First {
            let Some(end) = p.stated(End::Kernel) else {
                self.leg = Leg::Last; // nothing but data can follow on the kernel connection
                return Ok(out);
            };
            self.gather_first(fd, end, &mut out)?;
            self.leg = Leg::Fast;
        }
        self.open(p)?;
        self.flow.release();
        self.available(p)?;
        while self.flow.available() > 0 {
            let piece = self.flow.next(p)?;
            let at = out.len();
            out.resize(at + piece.len, 0);
            // SAFETY: the vector has just been given that many bytes.
            unsafe { p.take(piece, out.as_mut_ptr().add(at)) };
            self.flow.consume(piece.len);
        }
        self.leg = Leg::Last;
        Ok(out)
    }

    /// Reads the first leg to its end. What the kernel has not delivered yet comes as room is made.
    fn gather_first(&mut self, fd: i32, end: u64, out: &mut Vec<u8>) -> Result<(), Violation> {
        let mut moved = clock::ticks();
        while self.kernel != end {
            let left = end.checked_sub(self.kernel).ok_or(Violation)?;
            let left = usize::try_from(left).map_err(|_| Violation)?.min(64 * 1024);
            let at = out.len();
            out.resize(at + left, 0);
            // SAFETY: the vector has just been given that many bytes.
            let got = unsafe { net::recv(fd, out.as_mut_ptr().add(at), left, libc::MSG_DONTWAIT) };
            let n = got.unwrap_or(0);
            out.truncate(at + n);
            self.kernel += n as u64;
            match got {
                Ok(1..) => moved = clock::ticks(),
                Err(Errno::AGAIN) if clock::ticks() - moved < clock::us(STALL_US) => yield_core(),
                _ => return Err(Violation),
            }
        }
        Ok(())
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
    }
}

impl Default for Rx {
    fn default() -> Self {
        Self::new()
    }
}
