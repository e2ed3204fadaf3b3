//! What the two halves of one side tell each other, without a lock: the receiver what has come and what the peer
//! has acknowledged, the sender what it has told.

use super::adverts::Adverts;
use super::riding::Riding;
use super::window::Words;
use crate::clock;
use crate::sdp::Ended;
use crate::sdp_wire::header::Seq;
use crate::sdp_wire::sequence::{Heard, Told};
use crate::sys::Errno;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Words of one side.
#[derive(Debug)]
pub struct Common {
    /// Written by the receiving half: the peer's acknowledgement (upper half) and its buffers.
    acknowledged: AtomicU64,
    /// What was received last (upper half), and this side's free buffers.
    received: AtomicU64,
    /// Written by the sending half: the number sent last.
    sent: AtomicU32,
    /// The acknowledgement told last (upper half), and the buffers told of with it.
    told: AtomicU64,
    /// The peer's first FPDU has come: a responder may send (RFC 5044 section 7.1.2).
    pub heard: AtomicBool,
    /// The sending half has something to say of its own: an update, an answer.
    pub due: AtomicBool,
    /// The sending half is about to say it: whoever does may die before it is said.
    pub(super) serves: AtomicBool,
    /// A send has heard of a reset: the program's next call tells, if none has yet.
    pub failed: AtomicBool,
    /// The error by which the kernel connection ended (`Errno::in_byte`); 0 if none was heard.
    error: AtomicU8,
    /// Since when, in ticks, the sending half holds messages to go together; 0 if it holds none.
    gathered: AtomicU64,
    /// The program's messages follow each other so that they go together.
    streams: AtomicBool,
    /// The program has read since it sent last.
    read: AtomicBool,
    /// Messages that the program had sent when it waited for data last.
    answers: AtomicU64,
    /// Sleeps in a row, of a program that only reads, that were short.
    shorts: AtomicU32,
    /// Half of this side's receive buffers: when to tell of free ones.
    half: AtomicU32,
    /// The peer keeps few, and tells of them unasked.
    few: AtomicBool,
    /// The peer has asked to go on with plain bytes, or its set-up was declined.
    pub to_plain: AtomicBool,
    /// The peer has ended its direction: it wants no more credits, and may be closing.
    finished: AtomicBool,
    /// It has just been heard how both go on, and not all has been set to that.
    pub(super) settles: AtomicBool,
    /// How far both are with bytes that come back: see [`Return`].
    back: AtomicU32,
    /// Which of the processes that hold the connection, by its number, ends RDMA mode just now and has taken what nobody has read; 0 if
    /// none does.
    leaver: AtomicU32,
    /// Octets that had come when this side asked the peer to take back what it sent.
    pub asked_at: AtomicU64,
    /// The same when it was last given up to leave RDMA mode, as the peer did not answer: as long as no more have, it need not be waited for.
    pub let_be_at: AtomicU64,
    /// Messages that the peer waits for, as bits.
    asked: AtomicU32,
    /// The ring by which the octets go, or are about to, and how far both sides are with that.
    pub ring: Riding,
    /// What the halves tell each other of advertised buffers.
    pub adverts: Adverts,
    /// Those of packetized directions.
    pub words: Words,
}

/// How far both sides are with bytes that one of them has received and will not read by the library: the other takes
/// them back and sends them once more, plain. Bits of one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Return {
    /// The peer has asked this side to end its direction, and to wait.
    Asked = 1,
    /// This side has: it waits for what comes back, and for the end of the peer's direction.
    Waits = 2,
    /// The peer's direction has ended.
    Whole = 4,
    /// This side has asked.
    Asks = 8,
    /// The peer has ended its direction, and waits.
    Awaited = 16,
    /// This side has asked, was not answered, and does not wait for that any more. An answer is followed as if the peer had ended its
    /// direction by itself.
    Stands = 32,
}

/// What a peer can wait for: bits of one word. (Of each kind one at a time can be open.)
pub(super) const SUSP_COMM_ACK: u32 = 1;
pub(super) const CH_RCV_BUF_ACK: u32 = 2;
pub(super) const SEND_SM: u32 = 4;
pub(super) const SINK_CANCEL_ACK: u32 = 8;
pub(super) const RDMA_RD_COMPL: u32 = 16;
pub(super) const SINK_AVAIL: u32 = 32;

/// A sleep until something comes is short (µs); so many in a row make a stream.
const SHORT_US: u64 = 200;
const SHORTS: u32 = 16;

const fn pack(seq: Seq, n: u32) -> u64 {
    (seq.0 as u64) << 32 | n as u64
}

#[allow(clippy::cast_possible_truncation)]
const fn unpack(word: u64) -> (Seq, u32) {
    (Seq((word >> 32) as u32), word as u32)
}

impl Common {
    pub(super) const fn new() -> Self {
        Self {
            acknowledged: AtomicU64::new(0),
            received: AtomicU64::new(0),
            sent: AtomicU32::new(0),
            told: AtomicU64::new(0),
            heard: AtomicBool::new(false),
            due: AtomicBool::new(false),
            serves: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            error: AtomicU8::new(0),
            gathered: AtomicU64::new(0),
            streams: AtomicBool::new(false),
            read: AtomicBool::new(false),
            answers: AtomicU64::new(u64::MAX),
            shorts: AtomicU32::new(0),
            half: AtomicU32::new(0),
            few: AtomicBool::new(false),
            to_plain: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            settles: AtomicBool::new(false),
            back: AtomicU32::new(0),
            leaver: AtomicU32::new(0),
            asked_at: AtomicU64::new(0),
            let_be_at: AtomicU64::new(u64::MAX),
            asked: AtomicU32::new(0),
            ring: Riding::new(),
            adverts: Adverts::new(),
            words: Words::new(),
        }
    }

    pub(super) fn note_gathered(&self, since: u64) {
        self.gathered.store(since, Ordering::Release);
    }

    /// Since when, in ticks, messages wait to go together; nothing if none do.
    #[inline]
    pub fn gathered_since(&self) -> Option<u64> {
        Some(self.gathered.load(Ordering::Acquire)).filter(|&since| since > 0)
    }

    pub(super) fn note_streams(&self, streams: bool) {
        if self.streams.load(Ordering::Relaxed) != streams {
            self.streams.store(streams, Ordering::Relaxed);
        }
    }

    /// The kernel has said this to a call of ours, and says it once. How the connection ended is kept for the program
    /// ([`Self::error`]); here it is a reset, whoever cut it.
    pub(super) fn hear(&self, e: Errno) -> Errno {
        if !Ended::is_said_by(e) {
            return e;
        }
        let (done, lost) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.error.compare_exchange(0, e.in_byte(), done, lost);
        Errno::CONNRESET
    }

    /// A call that is not the program's has met this error: if it ends the connection the program's next call tells.
    pub fn fail(&self, e: Errno) {
        if self.hear(e) == Errno::CONNRESET {
            self.failed.store(true, Ordering::Release);
        }
    }

    /// What the program is told of a connection that has failed.
    #[must_use]
    pub fn error(&self) -> Errno {
        Errno::of_byte(self.error.load(Ordering::Acquire)).unwrap_or(Errno::CONNRESET)
    }

    /// Whether it is worth asking [`super::Out::gather`].
    #[inline]
    pub fn may_gather(&self) -> bool {
        self.streams.load(Ordering::Relaxed)
            && !self.read.load(Ordering::Relaxed)
            && !self.failed.load(Ordering::Relaxed)
            && !self.to_plain.load(Ordering::Relaxed)
    }

    /// The program has read: what it sends may be an answer that somebody waits for.
    #[inline]
    pub fn note_read(&self) {
        if !self.read.load(Ordering::Relaxed) {
            self.read.store(true, Ordering::Relaxed);
        }
    }

    /// The program waits for data, having sent so many messages. Whether it has sent any since it waited last: then
    /// somebody may be about to answer.
    pub fn has_answered(&self, sent: u64) -> bool {
        self.answers.swap(sent, Ordering::Relaxed) != sent
    }

    /// A sleep until something came took this long (ticks).
    pub fn note_sleep(&self, slept: u64) {
        let short = slept < clock::us(SHORT_US);
        let shorts = self.shorts.load(Ordering::Relaxed);
        let next = if short { shorts.saturating_add(1) } else { 0 };
        if next != shorts {
            self.shorts.store(next, Ordering::Relaxed);
        }
    }

    /// Whether what comes is a stream of which more comes soon: many such sleeps in a row were short.
    pub fn flows(&self) -> bool {
        self.shorts.load(Ordering::Relaxed) >= SHORTS
    }

    pub(super) fn take_read(&self) -> bool {
        self.read.load(Ordering::Relaxed) && self.read.swap(false, Ordering::Relaxed)
    }

    pub(super) fn set_buffers(&self, own: u16, is_told: bool) {
        self.half.store(u32::from(own / 2), Ordering::Relaxed);
        self.few.store(is_told, Ordering::Relaxed);
    }

    pub(super) fn half(&self) -> u16 {
        u16::try_from(self.half.load(Ordering::Relaxed)).unwrap_or(u16::MAX)
    }

    /// Whether this side keeps few receive buffers: what comes to it is to be controlled by credits.
    #[must_use]
    pub fn keeps_slots(&self) -> bool {
        (1..super::set_up::MANY / 2).contains(&self.half())
    }

    /// The peer has ended its direction.
    pub(super) fn note_finished(&self) {
        self.finished.store(true, Ordering::Release);
    }

    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// Whether a peer that reads what is under way may have something to say of it: it frees receive buffers of which
    /// there are few, speaks of a ring, reads what was advertised, was asked what it has taken of what is packetized, or to go back to plain
    /// bytes, for which nobody waits any more. What it says to a connection that is closed by then would be answered with a reset,
    /// and the rest be lost.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.ring.is_spoken_of() || self.is_answered_beside_ring()
    }

    /// The same, but for what it may have to say of a ring.
    #[must_use]
    pub fn is_answered_beside_ring(&self) -> bool {
        self.few.load(Ordering::Relaxed)
            || self.are_slots_asked()
            || self.adverts.were_used()
            || self.words.is_asked()
            || self.is_returning(Return::Stands)
    }

    /// Whether the peer was asked for receive buffers, and will answer.
    pub fn are_slots_asked(&self) -> bool {
        let asked = self.words.slots_asked();
        asked.is_some_and(|by| !self.heard().acknowledged.0.has_reached(by))
            && !self.words.is_lifted()
    }

    /// This is so from now on.
    pub fn note_return(&self, what: Return) {
        self.back.fetch_or(what as u32, Ordering::AcqRel);
    }

    /// Whether this is so.
    #[must_use]
    pub fn is_returning(&self, what: Return) -> bool {
        self.back.load(Ordering::Acquire) & what as u32 != 0
    }

    /// Who ends RDMA mode just now.
    #[must_use]
    pub fn leaver(&self) -> Option<u32> {
        Some(self.leaver.load(Ordering::Acquire)).filter(|&who| who != 0)
    }

    /// `from` does not any more, `to` does. Whether that was so: only one can at a time.
    pub fn pass_leaving(&self, from: Option<u32>, to: Option<u32>) -> bool {
        let (from, to) = (from.unwrap_or(0), to.unwrap_or(0));
        let (done, lost) = (Ordering::AcqRel, Ordering::Acquire);
        self.leaver.compare_exchange(from, to, done, lost).is_ok()
    }

    /// It is not any more. Whether it was.
    pub(super) fn end_return(&self, what: Return) -> bool {
        self.back.fetch_and(!(what as u32), Ordering::AcqRel) & what as u32 != 0
    }

    /// What this side has asked is waited for no longer ([`Return::Stands`]). The caller holds the lock under which an answer is heard.
    pub fn let_ask_stand(&self) {
        self.note_return(Return::Stands);
        self.end_return(Return::Asks);
        if self.is_returning(Return::Awaited) {
            self.to_plain.store(true, Ordering::Release);
        }
    }

    /// The peer waits for this.
    pub(super) fn ask(&self, what: u32) {
        self.asked.fetch_or(what, Ordering::AcqRel);
        self.due.store(true, Ordering::Release);
    }

    /// What the peer waits for.
    pub(super) fn asked(&self) -> u32 {
        self.asked.load(Ordering::Acquire)
    }

    /// It has been told.
    pub(super) fn answered(&self, what: u32) {
        self.asked.fetch_and(!what, Ordering::AcqRel);
    }

    pub(super) fn tell_heard(&self, heard: &Heard) {
        let (acknowledged, bufs) = heard.acknowledged;
        let (received, free) = heard.received;
        self.acknowledged
            .store(pack(acknowledged, bufs.into()), Ordering::Release);
        self.received.store(pack(received, free), Ordering::Release);
    }

    pub(super) fn heard(&self) -> Heard {
        let (acknowledged, bufs) = unpack(self.acknowledged.load(Ordering::Acquire));
        Heard {
            acknowledged: (acknowledged, u16::try_from(bufs).unwrap_or(u16::MAX)),
            received: unpack(self.received.load(Ordering::Acquire)),
        }
    }

    pub(super) fn tell_told(&self, told: &Told) {
        let (acknowledged, bufs) = told.told;
        self.told
            .store(pack(acknowledged, bufs.into()), Ordering::Release);
        self.sent.store(told.sent.0, Ordering::Release);
    }

    pub(super) fn told(&self) -> Told {
        let (acknowledged, bufs) = unpack(self.told.load(Ordering::Acquire));
        Told {
            sent: Seq(self.sent.load(Ordering::Acquire)),
            told: (acknowledged, u16::try_from(bufs).unwrap_or(u16::MAX)),
        }
    }
}
