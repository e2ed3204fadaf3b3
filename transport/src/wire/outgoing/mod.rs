//! The sending half: bytes of the stream into FPDUs on the kernel connection.
//!
//! Small messages, and all with a sum, are put together here, in one copy, and go in one piece; large ones without go
//! from where they lie, with what frames them beside them, several FPDUs in one vectored write. The kernel may take a part of an FPDU: then
//! the rest of it is copied here, is the next thing to go, and its bytes count as sent. `large` has that way, `control`
//! what SDP says of its own, `advert` buffers that the peer reads, `lent` those that its adapter reads, `back` the end of RDMA mode, `behind` what is sent while a ring ends, `gather` small messages that go together, `park` what waits
//! for room of a packetized direction; `shared` is for streams that several processes hold; `standing` says how far it has come.

mod advert;
mod back;
mod behind;
mod control;
mod gather;
mod large;
mod lent;
mod park;
mod shared;
mod small;
mod standing;
mod written;

pub use advert::PATIENCE_US;
pub(super) use advert::piece;
#[cfg(test)]
pub(super) use gather::STREAK;
pub use gather::{AGE_US, GATHERED, Gathered};

use super::noted::{Half, Noted};
use super::window::{self, OWN};
use super::{Agreed, Common};
use crate::iwarp::ddp;
use crate::iwarp::mpa::setup::Role;
use crate::iwarp::mpa::{CRC, Framer, LARGEST_ULPDU, LENGTH, Markers, Parts, Rtr, pad};
use crate::iwarp::rdmap::Opcode;
use crate::ring::Tx;
use crate::sdp::Walk;
use crate::sdp_wire::header::HEADER;
use crate::sdp_wire::sequence::Sequence;
use crate::sys::mem::Mapping;
use crate::sys::{Errno, Result, net};
use advert::{Advertising, Turns};
use flowctl::carrier::Carrier;
use gather::Streak;
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use written::Writes;

/// Octets that can wait here to go.
const PENDING: usize = 256 * 1024;

/// Bytes that are taken from the program while it is not known how the two sides go on.
const EARLY: usize = 64 * 1024;

/// Messages up to here are put together in one copy: that is cheaper than a list.
const SMALL: usize = 16 * 1024;

/// Octets in front of a payload: length, DDP, BSDH.
const HEAD: usize = LENGTH + ddp::UNTAGGED + HEADER;

/// What came of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// This many bytes went.
    Bytes(usize),
    /// The kernel takes no more now.
    Full,
    /// The peer has to say something first: it grants no credit, or has not been heard yet.
    NoCredit,
}

/// What changes with every FPDU; copied, so that those the kernel did not take can be taken back.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    framer: Framer,
    seq: Sequence,
    message: u32,
    turns: Turns,
    writes: Writes,
    /// Of a direction that is packetized.
    window: Option<Carrier>,
}

/// Where the bytes lie that are being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Program,
    /// Here, among those that were taken before it was known how, or to go together.
    Early,
    /// Here, in this side's own buffer.
    Own,
}

/// How this direction goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The peer has been asked.
    Undecided,
    Rdma,
    /// RDMA mode is over; plain bytes go once what the peer gives back has come.
    Waiting,
    /// RDMA mode is over, or was declined.
    Plain,
}

/// See the module.
#[derive(Debug)]
pub struct Out {
    numbers: Numbers,
    crc: bool,
    markers: bool,
    /// Bytes of payload in one message at most.
    most: usize,
    /// DisConn was asked for, and has gone.
    finish_due: bool,
    finished: bool,
    /// The kernel's close follows at once.
    closes: bool,
    mode: Mode,
    /// A Terminate has gone: nothing may follow.
    ended: bool,
    messages: u64,
    starved: u64,
    start: usize,
    end: usize,
    /// Up to there what waits is the rest of an FPDU that has begun to go; 0 where that is not known.
    begun: usize,
    streak: Streak,
    early_start: usize,
    early_end: usize,
    link: Tx,
    /// Once what waits here has gone, octets go by the ring.
    begins_ring: bool,
    from: From,
    /// Bytes that had come back and were sent once more.
    passed: u64,
    advertising: Advertising,
    /// How often the peer was answered what was taken.
    answers: u64,
    /// It is to be asked the like, and could not be yet.
    asks: bool,
    /// The peer knows that bytes may be parked here.
    shows: bool,
    /// A word of this side's own has gone since the end of what a call sent.
    spoke: bool,
    /// The peer keeps few receive buffers, and knows of a sender that asks for them, or goes on without.
    slots: bool,
    releases: bool,
    /// This side does, and tells of them when it is asked.
    keeps: bool,
    /// It is time to ask once no more than so many are left.
    few_left: u32,
    noted: Noted<shared::State>,
    pending: [u8; PENDING],
    early: [u8; EARLY],
    own: [u8; OWN],
}

impl Out {
    /// Begins in fresh memory, or what another connection had; the buffers are not touched. Bytes are taken, and wait until it is
    /// known how the two sides go on.
    ///
    /// # Safety
    /// `at` is writable memory of that size and alignment that nobody else uses.
    pub(super) unsafe fn begin(at: *mut Self) {
        let buffers = [
            (offset_of!(Self, pending), PENDING),
            (offset_of!(Self, early), EARLY),
            (offset_of!(Self, own), OWN),
        ];
        // SAFETY: the caller's promise.
        unsafe {
            Mapping::clear_but(at.cast(), size_of::<Self>(), buffers);
            (&raw mut (*at).numbers).write(Numbers {
                framer: Framer::new(Markers::OFF, false),
                seq: Sequence::new(0, 0),
                message: 1,
                turns: Turns::default(),
                writes: Writes::default(),
                window: None,
            });
            (&raw mut (*at).from).write(From::Program);
            (&raw mut (*at).advertising).write(Advertising::OFF);
            (&raw mut (*at).mode).write(Mode::Undecided);
            (&raw mut (*at).link).write(Tx::new());
            (&raw mut (*at).streak).write(Streak::default());
        }
    }

    /// How this direction goes on. An initiator's "ready to receive" goes first, then what has been taken.
    pub(super) fn settle(&mut self, agreed: Option<&Agreed>) {
        let Some(agreed) = agreed else {
            self.mode = Mode::Plain;
            return;
        };
        self.mode = Mode::Rdma;
        self.crc = agreed.mpa.crc;
        self.markers = agreed.mpa.send_markers;
        self.most = (agreed.peer.0 as usize).min(LARGEST_ULPDU - ddp::UNTAGGED) - HEADER;
        self.numbers = Numbers {
            framer: Framer::new(Markers::wanted(self.markers), self.crc),
            seq: Sequence::new(agreed.own.1, agreed.peer.1),
            message: 1,
            turns: Turns::default(),
            writes: Writes::default(),
            window: agreed
                .windows
                .sends
                .map(|(window, own)| window::sender(window, own)),
        };
        let windows = &agreed.windows;
        (self.slots, self.releases) = (windows.slots, windows.releases);
        (self.keeps, self.few_left) = (windows.keeps, u32::from(agreed.peer.1 / 2));
        self.advertising = Advertising::new(agreed.adverts);
        if agreed.mpa.role == Role::Initiator
            && let Some(rtr) = agreed.mpa.rtr
        {
            self.ready_to_receive(rtr);
        }
    }

    /// Takes bytes while they cannot go yet. How many: there is room for a few.
    ///
    /// # Safety
    /// The walk's buffers are readable.
    unsafe fn take_early(&mut self, walk: &mut Walk) -> usize {
        let before = walk.done();
        while walk.left() > 0 {
            let (from, here) = walk.chunk();
            let room = self.early.get_mut(self.early_end..).unwrap_or_default();
            let n = here.min(room.len());
            if n == 0 {
                break;
            }
            // SAFETY: the caller's buffer, and room that is ours.
            unsafe { std::ptr::copy_nonoverlapping(from, room.as_mut_ptr(), n) };
            self.early_end += n;
            walk.advance(n);
        }
        walk.done() - before
    }

    fn ready_to_receive(&mut self, rtr: Rtr) {
        let write = ddp::Tagged {
            last: true,
            upper: Opcode::Write.control(),
            stag: ddp::Stag(0),
            offset: 0,
        };
        let mut head = Vec::with_capacity(ddp::TAGGED);
        if rtr == Rtr::Write {
            ddp::Header::Tagged(write).write(|bytes| head.extend_from_slice(bytes));
        }
        self.frame(&head, &mut Parts::one(&[]), 0);
    }

    /// Sends what waits here. True if nothing is left.
    ///
    /// # Errors
    /// As send(2); EAGAIN is none.
    pub fn flush(&mut self, common: &Common, fd: i32, more: i32) -> Result<bool> {
        if let Some(ring) = common.ring.get() {
            match self.link.settle(ring, fd) {
                Ok(()) => {}
                Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        while self.start < self.end {
            let Some(waiting) = self.pending.get_mut(self.start..self.end) else {
                return Err(Errno::CONNRESET);
            };
            let mut list = [libc::iovec {
                iov_base: waiting.as_mut_ptr().cast(),
                iov_len: waiting.len(),
            }];
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | more;
            // SAFETY: a readable slice.
            match unsafe { self.give(common, fd, &mut list, flags) } {
                Ok(n) => self.start += n,
                Err(Errno::AGAIN | Errno::INTR) => {
                    if self.is_shared() {
                        common.due.store(true, Ordering::Release); // whoever looks next sees to it
                    }
                    return Ok(false);
                }
                Err(e) => return Err(e),
            }
        }
        (self.start, self.end, self.begun) = (0, 0, 0);
        if std::mem::take(&mut self.begins_ring) {
            self.link.begin();
            net::push(fd); // (what goes by the ring from here on the peer reads behind the word that says so)
        }
        Ok(true)
    }

    /// Whether octets go by the kernel, and nothing of a ring is left to do.
    pub(super) const fn is_by_kernel(&self) -> bool {
        self.link.is_kernel() && !self.begins_ring
    }

    /// Sends as much of the program's buffers as the kernel takes, without waiting. `more`: MSG_MORE or 0.
    ///
    /// # Errors
    /// As send(2).
    ///
    /// # Safety
    /// The walk's buffers are readable.
    pub unsafe fn send(
        &mut self,
        common: &Common,
        fd: i32,
        walk: &mut Walk,
        more: i32,
    ) -> Result<Sent> {
        if self.is_too_early(common) {
            // SAFETY: passed on to the caller.
            return Ok(match unsafe { self.take_early(walk) } {
                0 => Sent::NoCredit,
                n => Sent::Bytes(n),
            });
        }
        if self.shows && self.has_credit(common) {
            self.show_none(common, fd, libc::MSG_MORE)?;
        }
        let sent = if self.follows(common, walk, more) {
            // SAFETY: as above.
            unsafe { self.send_gathered(common, fd, walk) }
        } else if let Some(wait) = self.send_early(common, fd)? {
            Ok(wait)
        } else {
            // SAFETY: as above.
            unsafe { self.send_now(common, fd, walk, more) }
        };
        self.note_sent(sent);
        sent
    }

    /// [`Self::send`] alone, behind everything that was taken before.
    ///
    /// # Safety
    /// As there.
    unsafe fn send_now(
        &mut self,
        common: &Common,
        fd: i32,
        walk: &mut Walk,
        more: i32,
    ) -> Result<Sent> {
        if !self.flush(common, fd, more)? {
            // SAFETY: passed on to the caller.
            return unsafe { self.send_behind_ring(common, fd, walk) };
        }
        if self.ended {
            return Err(Errno::CONNRESET);
        }
        if self.mode == Mode::Plain && !(self.from == From::Early && self.noted.is_on()) {
            // SAFETY: passed on to the caller.
            return unsafe { by_kernel(fd, walk, more) }; // (no ring: see `go_plain`)
        }
        if self.mode == Mode::Plain {
            // SAFETY: as above.
            return unsafe { self.put_plain(common, fd, walk) };
        }
        if self.from != From::Own {
            self.look_for_sink(common);
        } else if !self.leave_sink(common, fd)? {
            return Ok(Sent::NoCredit);
        }
        // SAFETY: passed on to the caller.
        if let Some(sent) = unsafe { self.go_on_with_advert(common, fd, walk) }? {
            return Ok(sent);
        }
        if !self.has_credit(common) {
            self.seek_room(common, fd)?;
        }
        if !self.has_credit(common) || !self.complete_writes(common, fd, false)? {
            self.starved += u64::from(self.numbers.window.is_none()); // (that counts by itself)
            return Ok(Sent::NoCredit);
        }
        if more == 0 && !self.writes() {
            // SAFETY: as above.
            if let Some(sent) = unsafe { self.advertise(common, fd, walk) }? {
                return Ok(sent);
            }
            // SAFETY: as above.
            if let Some(sent) = unsafe { self.lend(common, fd, walk) }? {
                return Ok(sent);
            }
            if !self.flush(common, fd, more)? {
                return Ok(Sent::Full); // (a Recall waits)
            }
        }
        // With a sum the bytes are copied once and summed as they are copied: a program that writes to its buffer
        // meanwhile would else send what does not match, where the kernel just sends one or the other.
        // So they are where the rest must not be lost with this process.
        // (and pieces of small receive buffers would be a long list)
        let copies = self.markers || self.crc || self.noted.is_on() || self.is_short();
        let sent = if walk.left() <= SMALL.min(self.payload_most()) || copies {
            // SAFETY: passed on to the caller.
            unsafe { self.send_small(common, fd, walk, more, false, false) }
        } else {
            // SAFETY: as above.
            unsafe { self.send_large(common, fd, walk, more, false) }
        };
        self.tell(common);
        if self.slots && self.seek_slots(common, fd) == Err(Errno::CONNRESET) {
            common.failed.store(true, Ordering::Release); // (what went is told now)
        }
        // The end of what a call sends would not wait for an acknowledgement if it went by itself: neither for that of its beginning,
        // where it goes in several parts, nor for that of what the library has said.
        if more == 0
            && walk.left() == 0
            && let Ok(Sent::Bytes(n)) = sent
        {
            let spoke = std::mem::take(&mut self.spoke);
            if spoke || walk.done() > n {
                self.hurry(fd);
            }
        }
        if self.writes() && sent.is_ok() && !self.complete_writes(common, fd, walk.left() == 0)? {
            common.due.store(true, Ordering::Release); // once it can be said
        }
        sent
    }

    /// Whether [`Self::take`] would take anything, as far as the kernel does not matter.
    pub fn may_take(&mut self, common: &Common) -> bool {
        self.is_roomy(common)
            && (self.is_too_early(common) || self.mode == Mode::Plain || self.has_credit(common))
    }

    /// Bytes that [`Self::take`] takes at most.
    #[must_use]
    pub fn takes(&self, common: &Common) -> usize {
        let most = if self.is_too_early(common) {
            EARLY - self.early_end
        } else {
            self.payload_most()
        };
        if most < SMALL { most } else { SMALL }
    }

    /// Takes the program's bytes whether the kernel does or not: for those that cannot be given back. After
    /// [`Self::may_take`], no more than [`Self::takes`].
    ///
    /// # Errors
    /// As send(2).
    ///
    /// # Safety
    /// The walk's buffers are readable.
    pub unsafe fn take(&mut self, common: &Common, fd: i32, walk: &mut Walk) -> Result<Sent> {
        if self.is_too_early(common) {
            // SAFETY: passed on to the caller.
            return Ok(Sent::Bytes(unsafe { self.take_early(walk) }));
        }
        if self.mode == Mode::Plain {
            // SAFETY: passed on to the caller.
            return unsafe { self.put_plain(common, fd, walk) };
        }
        self.has_slot(common);
        if !self.settle_adverts(common, fd)? {
            return Ok(Sent::NoCredit);
        }
        // SAFETY: as above.
        let sent = unsafe { self.send_small(common, fd, walk, 0, true, false) };
        self.tell(common);
        if self.writes() {
            common.due.store(true, Ordering::Release); // to say how much it was
        }
        sent
    }

    /// Takes plain bytes whether the kernel does or not.
    unsafe fn put_plain(&mut self, common: &Common, fd: i32, walk: &mut Walk) -> Result<Sent> {
        let mut taken = 0;
        while walk.left() > 0 && taken < SMALL {
            let (at, here) = walk.chunk();
            let n = here.min(SMALL - taken);
            // SAFETY: passed on to the caller.
            self.put_behind(unsafe { std::slice::from_raw_parts(at, n) });
            walk.advance(n);
            taken += n;
        }
        if self.from == From::Early {
            self.early_start += taken;
        }
        self.flush(common, fd, 0)?;
        Ok(Sent::Bytes(taken))
    }
}

/// After RDMA mode.
///
/// # Safety
/// The walk's buffers are readable.
unsafe fn by_kernel(fd: i32, walk: &mut Walk, more: i32) -> Result<Sent> {
    let mut iov = [libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    }; crate::sdp::walk::BATCH];
    let n = walk.batch(&mut iov, usize::MAX);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | more;
    // SAFETY: the caller's promise.
    match unsafe { net::send_vec(fd, iov.as_mut_ptr(), n, flags) } {
        Ok(n) => {
            walk.skip(n);
            Ok(Sent::Bytes(n))
        }
        Err(Errno::AGAIN) => Ok(Sent::Full),
        Err(e) => Err(e),
    }
}
