//! The receiving half: octets of the kernel connection into bytes of the stream.
//!
//! Three places, in the order of the stream: bytes that are *ready* (taken out of their FPDUs), octets that are *raw*
//! (as they came), and what the kernel still has. A read takes from the front; where a large payload is under way it
//! goes from the kernel straight to the program's buffer. `parse` follows the FPDUs, `read` moves bytes; `shared` is for
//! streams that several processes hold.

mod advert;
mod borrowed;
mod parse;
mod read;
mod shared;
mod written;

use super::noted::Noted;
use super::set_up::LONGEST;
use super::window::Takes;
use super::{Agreed, Common, GIVEN};
use crate::iwarp::ddp::{Segment, StreamId};
use crate::iwarp::mpa::setup::{ReadLimits, Role};
use crate::iwarp::mpa::{Deframer, Markers};
use crate::iwarp::rdmap::{Settings, Stream};
use crate::ring::{Begun, Borrowed, Ring, Rx};
use crate::sdp_wire::received::Sizes;
use crate::sdp_wire::sequence::Sequence;
use crate::sys::mem::Mapping;
use crate::sys::{Errno, Result, net};
use std::mem::offset_of;
use std::sync::atomic::Ordering;

/// Bytes of the two buffers: several of the largest FPDUs.
const RAW: usize = 512 * 1024;
const READY: usize = 256 * 1024;
/// Where [`In::available`] says so much there may be more: it is as long as what is made ready, or shares that with bytes that
/// have been read.
pub const MUCH: usize = READY / 2;

/// Octets of the raw buffer that are kept free in front of a piece of half its size.
const AHEAD: usize = 64 * 1024;

/// A payload from which on the next one is expected to be read straight to the program's buffer, in bytes.
const LARGE: usize = 8 * 1024;

/// Octets of the headers of an FPDU that carries data: length, DDP, BSDH.
pub(super) const HEADERS: usize = 2 + 18 + 16;

/// How the direction stands, once everything before has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// More may come.
    Open,
    /// The peer has shut its direction.
    Eof,
    /// The peer has reset the stream, or broken a rule.
    Reset,
    /// RDMA mode is over in this direction, and nothing of it is left: the kernel connection carries the stream.
    Plain,
}

/// Where in an FPDU the first raw octet stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Header,
    /// So many bytes of the stream, and so many octets of pad and CRC behind them.
    Body {
        left: usize,
        tail: usize,
    },
    /// As a body, of bytes that this side has sent and that come back.
    Given {
        left: usize,
        tail: usize,
    },
    /// So many octets of a body that the reader has, and the rest of it.
    Double {
        double: usize,
        left: usize,
        tail: usize,
    },
    /// Octets of no further use.
    Skip(usize),
    /// RDMA mode has ended: bytes of the stream.
    Plain,
}

/// A message of which segments are still to come.
#[derive(Clone, Copy, Debug)]
struct Open {
    left: u32,
    data: bool,
}

/// See the module.
#[derive(Debug)]
pub struct In {
    stream: Stream,
    deframer: Deframer,
    crc: bool,
    seq: Sequence,
    sizes: Sizes,
    posted: u32,
    /// Those are few, and the peer asks for them, or goes on without.
    few: bool,
    stage: Stage,
    message: Option<Open>,
    /// The FPDU at the front is the last of its message, which gives a receive buffer back.
    ends_message: bool,
    /// The next thing after the FPDU at the front are plain bytes.
    ends_mode: bool,
    /// Both directions are shut by this side: see [`Self::expect_none`].
    expects_none: bool,
    /// DisConn has come.
    fin: bool,
    reset: bool,
    /// The kernel connection has ended.
    over: bool,
    /// The last look at the kernel has taken all that it had.
    drained: bool,
    /// The kernel has said that it has nothing, and no end either.
    empty: bool,
    /// No message has come since it was agreed how the direction goes on, but empty ones.
    is_new: bool,
    /// A word of a ring has come, which is to be acknowledged.
    was_told: bool,
    failed: bool,
    /// The error that the kernel gave, to be told once.
    error: Option<Errno>,
    terminate: Option<Segment>,
    /// Octets that were taken from the kernel.
    octets: u64,
    /// What the last payload was like, in bytes.
    last: usize,
    start: usize,
    end: usize,
    ready_start: usize,
    ready_end: usize,
    link: Rx,
    /// The next thing after the FPDU at the front is the ring.
    begins_ring: bool,
    /// The sending half has not been told of the last messages.
    untold: bool,
    /// An error that the kernel gave before octets that still lie there.
    ahead: Option<Errno>,
    noted: Noted<shared::State>,
    /// The FPDU at the front brings bytes back, which are kept here until they go out again.
    brings_back: bool,
    given_start: usize,
    given_end: usize,
    /// Bytes that have gone out again.
    passed: u64,
    /// What is read of the peer's buffers: the one that it advertises, the number of the last, whether the FPDU at the front ends it,
    /// whether the sending half is to be told, and bytes in all.
    read: Option<advert::Read>,
    sink: u32,
    ends_read: bool,
    asks: bool,
    /// What the peer writes to, and how both count.
    writes: written::Writes,
    /// From how many bytes on this side advertises a reader's buffer.
    least: usize,
    read_bytes: u64,
    /// What the peer lends by its ring; bytes that come next and that were read before it was taken back.
    borrowed: Option<Borrowed>,
    leaves_out: usize,
    /// What is counted of a direction that is packetized.
    takes: Option<Takes>,
    raw: [u8; RAW],
    ready: [u8; READY],
    back: [u8; GIVEN],
}

impl In {
    /// Begins in fresh memory, or what another connection had; the buffers are not touched.
    ///
    /// # Safety
    /// `at` is writable memory of that size and alignment that nobody else uses.
    pub(super) unsafe fn begin(at: *mut Self) {
        let buffers = [
            (offset_of!(Self, raw), RAW),
            (offset_of!(Self, ready), READY),
            (offset_of!(Self, back), GIVEN),
        ];
        let nothing = Settings {
            id: StreamId(0),
            role: Role::Responder,
            ird: 0,
            ord: 0,
            rtr: None,
            receive_size: 0,
            receive_buffers: 0,
        };
        // SAFETY: the caller's promise; fields are written where they are, since the whole is too large for a stack.
        unsafe {
            Mapping::clear_but(at.cast(), size_of::<Self>(), buffers);
            (&raw mut (*at).stream).write(Stream::new(&nothing));
            (&raw mut (*at).deframer).write(Deframer::new(Markers::OFF, false));
            (&raw mut (*at).seq).write(Sequence::new(0, 0));
            (&raw mut (*at).sizes).write(Sizes { own: 0, peer: 0 });
            (&raw mut (*at).stage).write(Stage::Plain);
            (&raw mut (*at).message).write(None);
            (&raw mut (*at).error).write(None);
            (&raw mut (*at).ahead).write(None);
            (&raw mut (*at).terminate).write(None);
            (&raw mut (*at).read).write(None);
            (&raw mut (*at).borrowed).write(None);
            (&raw mut (*at).takes).write(None);
            (&raw mut (*at).writes).write(written::Writes::default());
            (&raw mut (*at).link).write(Rx::new());
        }
    }

    /// How the direction goes on, behind a reply of `used` octets, which has been taken.
    pub(super) fn settle(&mut self, common: &Common, agreed: Option<&Agreed>, used: usize) {
        (self.start, self.end) = (0, 0);
        self.octets += used as u64;
        let Some(agreed) = agreed else {
            return; // plain bytes
        };
        let reads = ReadLimits { ird: 1, ord: 1 };
        self.stream = Stream::new(&Settings {
            receive_buffers: agreed.own.1.into(),
            ..Settings::new(StreamId(0), &agreed.mpa, reads, agreed.own.0)
        });
        let _ = self.stream.rtr(); // (the sending half says it)
        self.crc = agreed.mpa.crc;
        self.deframer = Deframer::new(Markers::OFF, self.crc);
        self.seq = Sequence::new(agreed.own.1, agreed.peer.1);
        self.sizes = Sizes {
            own: agreed.own.0,
            peer: agreed.peer.0,
        };
        self.posted = agreed.own.1.into();
        self.few = agreed.windows.keeps;
        self.least = agreed.adverts.unwrap_or(usize::MAX);
        self.stage = Stage::Header;
        self.is_new = true;
        self.takes = agreed.windows.receives.map(Takes::new);
        common.set_buffers(
            agreed.own.1,
            agreed.windows.slots && !agreed.windows.releases,
        );
        common.tell_heard(&self.seq.heard());
        common.tell_told(&self.seq.told());
        if agreed.mpa.role == Role::Initiator {
            common.heard.store(true, Ordering::Release);
        }
    }

    /// Looks at what has come in answer to a request. It stays where it is: plain bytes behind it, or in its place, are the
    /// kernel's. Whether nothing can come any more behind it.
    pub(super) fn look_for_reply(&mut self, fd: i32) -> bool {
        let space = self.raw.get_mut(..LONGEST).unwrap_or_default();
        let (came, over) = net::peek(fd, space);
        (self.start, self.end) = (0, came);
        over
    }

    /// What has come so.
    pub(super) fn reply(&self) -> &[u8] {
        self.raw.get(self.start..self.end).unwrap_or_default()
    }

    /// What has come back, to be sent once more.
    pub(super) fn given(&self) -> &[u8] {
        self.back
            .get(self.given_start..self.given_end)
            .unwrap_or_default()
    }

    /// So many bytes have been, of all that have ever come back: of those that are here what had not gone before.
    pub(super) fn take_given(&mut self, passed: u64) {
        let more = passed.saturating_sub(self.passed);
        let here = self.given_end - self.given_start;
        let n = usize::try_from(more).map_or(here, |n| n.min(here));
        self.given_start += n;
        self.passed += n as u64;
        if self.given_start == self.given_end {
            (self.given_start, self.given_end) = (0, 0);
        }
        self.note(); // before anything that was here is written over
    }

    /// Whether the peer's direction has ended, as far as it was followed.
    pub(super) const fn is_at_end_of_mode(&self) -> bool {
        self.ends_mode
    }

    /// Goes on where there was no room for it.
    pub(super) fn go_on(&mut self, common: &Common) {
        self.parse(common);
    }

    /// Whether the kernel connection has ended.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.over
    }

    /// Octets that were taken from the kernel: with those that it still has, what grows with every arrival.
    #[must_use]
    pub const fn octets(&self) -> u64 {
        self.octets
    }

    /// What is to be sent because the peer has broken a rule, once.
    pub const fn take_terminate(&mut self) -> Option<Segment> {
        self.terminate.take()
    }

    /// The error that the kernel gave, once.
    pub const fn take_error(&mut self) -> Option<Errno> {
        self.error.take()
    }

    /// How the direction stands behind what is ready and raw.
    #[must_use]
    pub const fn state(&self) -> State {
        if self.reset {
            return State::Reset;
        }
        if self.held() > 0 {
            return State::Open;
        }
        let at_rest = match self.stage {
            Stage::Plain => true,
            Stage::Header => self.start == self.end,
            _ => false,
        };
        match (self.fin, self.over) {
            (true, _) => State::Eof,
            (_, true) if self.is_cramped() => State::Open,
            // It failed, or died in the middle of a frame, or with bytes parked: then some that it counts as sent are missing.
            (_, true) if self.failed || !at_rest || self.may_lack() => State::Reset,
            (_, true) => State::Eof,
            (_, false) if matches!(self.stage, Stage::Plain) => State::Plain,
            (_, false) => State::Open,
        }
    }

    /// Whether what comes back has no room here before some of it has gone out again: then the end is not all that follows.
    const fn is_cramped(&self) -> bool {
        matches!(self.stage, Stage::Given { .. }) && self.start < self.end
    }

    /// Whether the peer, in RDMA mode, may have parked bytes.
    const fn may_lack(&self) -> bool {
        match &self.takes {
            Some(takes) => takes.may_lack() && !matches!(self.stage, Stage::Plain),
            None => false,
        }
    }

    /// Whether bytes of the stream have come that nobody has read. After [`Self::is_readable`].
    #[must_use]
    pub fn has_bytes(&self, fd: i32) -> bool {
        self.held() > 0
            || self.borrowed.is_some_and(|borrowed| borrowed.left() > 0)
            || match self.stage {
                Stage::Body { .. } => true,
                Stage::Plain => net::unread(fd) > 0,
                _ => false,
            }
    }

    /// Whether the peer has ended its direction, whatever has not been read before that.
    #[must_use]
    pub const fn has_end(&self) -> bool {
        self.fin || self.over || self.reset
    }

    /// Whether the connection has failed, whatever was received before that: a send may be the one that has heard so.
    #[must_use]
    pub fn has_failed(&self, common: &Common) -> bool {
        self.failed || common.failed.load(Ordering::Acquire) || self.state() == State::Reset
    }

    /// Whether it failed after the peer had ended its direction.
    #[must_use]
    pub fn is_aborted(&self, common: &Common) -> bool {
        self.fin && (self.failed || common.failed.load(Ordering::Acquire))
    }

    /// Whether what follows, here and in the kernel, are plain bytes.
    #[must_use]
    pub const fn is_past_mode(&self) -> bool {
        matches!(self.stage, Stage::Plain)
    }

    /// Bytes that can be read without the kernel.
    #[must_use]
    pub const fn held(&self) -> usize {
        let ready = self.ready_end - self.ready_start;
        let here = self.end - self.start;
        match self.stage {
            Stage::Body { left, .. } => ready + if left < here { left } else { here },
            Stage::Plain => ready + here,
            _ => ready,
        }
    }

    /// Whether anything at all is here that has not been read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ready_start == self.ready_end && self.start == self.end
    }

    /// Reads octets from the kernel to behind the raw ones. Whether any came.
    fn fill(&mut self, common: &Common, fd: i32) -> bool {
        // (words of a ring come alone, too: what the peer's program says next would wait for the acknowledgement)
        if std::mem::take(&mut self.was_told) {
            net::acknowledge(fd);
        }
        self.fill_up_to(common, fd, RAW)
    }

    /// [`Self::fill`] with no more than `most`.
    fn fill_up_to(&mut self, common: &Common, fd: i32, most: usize) -> bool {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0
            && RAW - self.end < RAW / 2 + AHEAD
            && self.may_move(self.start, self.end)
        {
            self.raw.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        // (never more than leaves room for a ring in front of it)
        let ahead = (RAW / 2).saturating_sub(self.end - self.start);
        let end = RAW.min(self.end + ahead);
        let Some(space) = self.raw.get_mut(self.end..end).filter(|s| !s.is_empty()) else {
            return false;
        };
        let (to, len) = (space.as_mut_ptr(), space.len().min(most));
        // SAFETY: the slice is writable.
        let came = unsafe { self.recv_raw(common, fd, to, len) };
        match self.took(common, came) {
            Some(n) => {
                self.end += n;
                self.drained = n < len && self.link.is_kernel();
                // The initiator's "ready to receive" comes alone where its program says nothing yet: what that says first
                // would wait for the acknowledgement (Nagle's algorithm), and that for its delay. So would the parts of the first answer
                // to an initiator, as the kernel takes what was said so far for a conversation: on a connection of the program's own it
                // would acknowledge the first that comes at once.
                if n > 0 && (self.is_new || !common.heard.load(Ordering::Relaxed)) {
                    net::acknowledge(fd);
                }
                true
            }
            None => false,
        }
    }

    /// The octets behind this point come by the ring. What the kernel has given beyond it are no octets of the stream.
    fn begin_ring(&mut self, common: &Common) {
        let Some(ring) = common.ring.get() else {
            self.reset = true; // nobody has agreed to one
            return;
        };
        let behind = self.raw.get(self.start..self.end).unwrap_or_default();
        match self.link.begin(ring, behind) {
            Ok(Begun::Ring) => (self.start, self.end) = (0, 0),
            Ok(Begun::Over(used)) => self.put_ring_first(ring, used),
            Err(_) => self.reset = true,
        }
        common.due.store(true, Ordering::Release);
    }

    /// The ring was over as soon as it had begun: what has landed comes before what the kernel has given behind `used`
    /// octets of records.
    fn put_ring_first(&mut self, ring: &Ring, used: usize) {
        self.start += used;
        let rest = self.end - self.start;
        let landed = ring.available().min(RAW - rest);
        self.raw.copy_within(self.start..self.end, landed);
        (self.start, self.end) = (0, landed + rest);
        let mut done = 0;
        while done < landed {
            let Some(space) = self.raw.get_mut(done..landed) else {
                return;
            };
            // SAFETY: the slice is writable. (No descriptor: what has landed is there.)
            match unsafe {
                self.link
                    .recv(Some(ring), -1, space.as_mut_ptr(), space.len())
            } {
                Ok(n) if n > 0 => done += n,
                _ => {
                    self.reset = true;
                    return;
                }
            }
        }
        self.link.be_kernel();
    }

    /// The ring is over: see [`Rx::land`].
    pub(super) fn land(&mut self, ring: &Ring) {
        self.link.land(ring);
    }

    /// Tells the peer how much of its ring was taken, if that is due.
    pub fn tell(&mut self, ring: &Ring) {
        self.link.tell(ring);
    }

    /// Whether octets come from the kernel.
    pub(super) const fn is_by_kernel(&self) -> bool {
        self.link.is_kernel()
    }

    /// Whether octets come by a ring.
    #[must_use]
    pub const fn is_by_ring(&self) -> bool {
        !self.link.is_kernel()
    }

    /// Whether octets have come, by few loads; nothing where the kernel has to be asked.
    #[inline]
    #[must_use]
    pub fn has_octets(&self, common: &Common) -> Option<bool> {
        self.link.has_octets(common.ring.get())
    }

    /// This side shuts the kernel connection: its end is not the peer's.
    pub const fn shut(&mut self) {
        self.link.shut();
    }

    /// This side has shut both directions, with nothing unread: bytes of the stream that come from here on are late.
    pub const fn expect_none(&mut self) {
        self.expects_none = true;
    }

    /// Whether such have come, or what breaks a rule.
    pub fn is_late(&mut self, common: &Common, fd: i32) -> bool {
        self.expects_none
            && (self.is_readable(common, fd) && self.has_bytes(fd) || self.has_failed(common))
    }

    /// Those are dropped, and no more come: the connection is about to be reset.
    pub fn drop_late(&mut self) {
        self.expects_none = false;
        (self.over, self.failed) = (true, true);
        (self.start, self.end) = (0, 0);
        (self.ready_start, self.ready_end) = (0, 0);
        self.stage = Stage::Header;
        self.borrowed = None;
    }

    /// As [`Rx::be_patient`].
    pub const fn be_patient(&mut self, on: bool) -> bool {
        self.link.be_patient(on)
    }

    /// Whether the kernel has said that it has nothing, nor an end, since this was asked last.
    pub const fn take_empty(&mut self) -> bool {
        std::mem::replace(&mut self.empty, false)
    }

    /// Takes in what the kernel connection says beside the stream.
    pub fn quiet(&mut self, common: &Common, fd: i32) {
        if let Some(ring) = common.ring.get() {
            self.link.quiet(ring, fd);
        }
    }

    /// Takes in what the kernel said to a read of some bytes.
    fn took(&mut self, common: &Common, came: Result<usize>) -> Option<usize> {
        match came {
            Ok(0) => {
                // (By a ring, too: what a peer that was killed had handed to its adapter has landed, but for what it did in
                // its last microseconds; and an end within an FPDU is a reset.)
                self.over = true;
                self.failed |= common.failed.load(Ordering::Acquire); // (a send has taken the error)
                common.words.lift(); // (nobody says any more what was taken: what the peer has become a send is told by the kernel)
                None
            }
            Ok(n) => {
                self.octets += n as u64;
                Some(n)
            }
            Err(e @ (Errno::AGAIN | Errno::INTR)) => {
                self.empty |= e == Errno::AGAIN && self.link.is_kernel();
                None
            }
            Err(e) => {
                (self.over, self.failed) = (true, true);
                common.words.lift();
                self.error = Some(common.hear(e));
                None
            }
        }
    }
}
