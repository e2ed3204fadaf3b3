//! What lies where in an arena. Every word here is written by one side and read by the other, so each
//! is an atomic, and nothing read from it is believed before it is checked.
//!
//! An arena is one memory file: a header page, a table of slots, then one *segment* a slot: a control
//! page and two regions, client to server first. A region holds the receive buffer of its direction and
//! the sender's own buffer; `flowctl` says what lies where in it.

use crate::board::Board;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64};

/// Changes with every incompatible change of this file.
pub const MAGIC: u64 = 0x5348_554e_5400_000d;

/// Connections an arena has room for.
pub const SLOTS: u32 = 256;

/// Announcements that the log remembers; a reader further behind looks at all slots.
pub const LOG: usize = 1024;

/// Bytes before a segment's regions.
pub const CONTROL: usize = 4096;

/// "Not yet": the value of a position that has not been stated.
pub const UNSTATED: u64 = u64::MAX;

/// A request to give bytes back has been taken on.
pub const TAKEN: u64 = u64::MAX - 1;

/// The arena's first page(s).
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Header {
    pub magic: AtomicU64,
    /// Bytes of each region.
    pub region: AtomicU64,
    /// Connections of the client that are on their way and may still be announced here.
    pub pending: AtomicU32,
    /// Announcements made so far.
    pub logged: AtomicU64,
    /// Slot numbers in order of announcement.
    pub log: [AtomicU32; LOG],
    pub slots: [Slot; SLOTS as usize],
    /// Where each side's sets hear of its connections, client first.
    pub boards: [Board; 2],
}

/// Who is on which side of a slot, and how far they agree.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Slot {
    /// See [`State`]: a generation and a state in one word, so that a claim can never meet the next use
    /// of the slot.
    pub state: AtomicU32,
    /// Set by the server when it has no more use for the segment.
    pub released: AtomicU32,
    /// Client address, server address (16 bytes each), ports.
    pub tuple: [AtomicU64; 5],
}

/// A slot's life, in the low bits of [`Slot::state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// The client's to use.
    Free = 0,
    /// The client offers this connection.
    Announced = 1,
    /// The server has said yes: both use the segment.
    Claimed = 2,
}

const STATE_BITS: u32 = 2;

impl State {
    /// The word for this state in a generation.
    #[must_use]
    pub const fn word(self, generation: u32) -> u32 {
        (generation << STATE_BITS) | self as u32
    }
}

/// The generation in a state word.
#[must_use]
pub const fn generation(word: u32) -> u32 {
    word >> STATE_BITS
}

/// Whether a state word is in this state.
#[must_use]
pub const fn is(word: u32, state: State) -> bool {
    word & ((1 << STATE_BITS) - 1) == state as u32
}

/// A segment's control page: the two sides' words, client first.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Control {
    pub sides: [Side; 2],
}

/// The words of one side. Each group is on cache lines of its own (two: processors fetch pairs).
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Side {
    pub tx: Tx,
    pub rx: Rx,
    pub bell: Bell,
    pub busy: Busy,
    pub stop: Stop,
    pub terms: Terms,
    pub home: Home,
    pub source: Source,
    pub adverts: [Advert; ADVERTS],
    pub sink: Sink,
}

/// Written by this side as sender.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Tx {
    /// See `flowctl::Word`, of which each is one.
    pub produced: AtomicU64,
    pub boundary: AtomicU64,
    pub origin: AtomicU64,
    pub queued: AtomicU64,
    pub posted: AtomicU64,
    pub segments: AtomicU64,
    pub control: AtomicU64,
    pub acknowledged: AtomicU64,
    /// Bytes that went by the kernel before the fast leg, once that is settled.
    pub kernel_end: AtomicU64,
    /// Bytes that went by the fast leg, once it has ended.
    pub fast_end: AtomicU64,
    /// Doorbell bytes sent on the kernel connection, counted before each is sent.
    pub bells: AtomicU64,
    /// See [`FIN_NONE`].
    pub fin: AtomicU32,
    /// The number of the advert opened last, and [`LARGE`]; 0 if this side has no use for any.
    pub offer: AtomicU64,
}

/// In [`Tx::offer`]: large messages come.
pub const LARGE: u64 = 1 << 32;

/// This side still sends.
pub const FIN_NONE: u32 = 0;
/// This side sends no more, and goes on reading; end of file follows the last byte.
pub const FIN_SHUT: u32 = 1;
/// This side threw away what it had not read: a reset follows the last byte.
pub const FIN_RESET: u32 = 2;
/// This side is closed, having read everything; end of file follows the last byte.
pub const FIN_CLOSED: u32 = 3;
/// This side, which had said [`FIN_SHUT`], threw away what it had not read: end of file follows the last byte all the same, and
/// who sends is told EPIPE, as TCP tells of a reset behind an end.
pub const FIN_ABORTED: u32 = 4;

/// Written by this side as receiver.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Rx {
    /// See `flowctl::Back`, of which each is one.
    pub consumed: AtomicU64,
    pub advertised: AtomicU64,
    pub evented: AtomicU64,
    pub events: AtomicU64,
}

/// Set by this side when it goes to sleep, cleared by the other when it rings.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Bell {
    /// See `crate::doorbell`.
    pub armed: AtomicU64,
    /// Not 0: this side issues the heavy barrier when it arms or stops (`sys::barrier`), so the other
    /// may do with a light one.
    pub heavy: AtomicU32,
    /// Not 0: this side serves several connections at once, and is to be told when each put was made
    /// ([`Busy::put_at`]).
    pub ordered: AtomicU32,
    /// Not 0: a thread of this side naps on this word (`shm::nap`).
    pub napping: AtomicU32,
    /// For this side alone: which barrier it issues when it arms (`shm::fences`).
    pub mode: AtomicU32,
    /// For this side alone: messages that had been counted at the last sleep.
    pub slept_at: AtomicU32,
}

/// Whether this side is in the middle of a put, for the other side to see. Not a lock: what keeps this
/// side's threads apart is private, where the peer cannot hold it for ever.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Busy {
    pub putting: AtomicU32,
    /// Bytes read, to the byte: unlike [`Rx::consumed`] never late, and looked at only when this side
    /// is gone, to tell an orderly end from one with bytes unread.
    pub taken: AtomicU64,
    /// Bytes read of those that came by the kernel before the fast leg, likewise.
    pub taken_first: AtomicU64,
    /// See `flowctl::Note`, of which each is one.
    pub freed: AtomicU64,
    pub acknowledged: AtomicU64,
    pub controls: AtomicU64,
    /// When this side last put, in ticks, if the other side asked for it.
    pub put_at: AtomicU64,
}

/// How this side sends, and how much it would have sent to it at once. Written before this side's fast
/// leg begins, and not again.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Terms {
    /// See `flowctl::Terms`.
    pub words: [AtomicU64; flowctl::Terms::WORDS],
    /// The receive buffer that this side wants at most, in bytes.
    pub receive: AtomicU64,
}

/// Written by the *other* side.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Stop {
    /// Not 0: put no more into the region and ring no more; the fast leg ends where it is.
    pub stop: AtomicU32,
    /// With `stop`: resend by the kernel what lies in the region from this position on. Replaced by
    /// [`TAKEN`] by the side that will, or by [`UNSTATED`] if the asker will not wait for it.
    pub give_back: AtomicU64,
}

/// Adverts of a side that may be open, or unnoticed by the other side, at the same time.
pub const ADVERTS: usize = 8;

/// Where this side is, for the kernel to find its memory (`crate::direct`).
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Home {
    /// This side's process; 0 before it has attached.
    pub pid: AtomicU32,
    /// Where this page lies in that process.
    pub at: AtomicU64,
    /// The one process that holds this side, as `crate::sys::process::Life` has it; 0 while there are several, or it is not known.
    pub owner: AtomicU64,
    /// What the other side has to find there: proof that it looks into the right process.
    pub nonce: AtomicU64,
    /// Whether this side reaches the other's memory, once it has tried.
    pub reach: AtomicU64,
    /// Where the other side's deliveries knock.
    pub knock: AtomicU8,
    /// The advert that a sender of this side waits for; 0 for none.
    pub open: AtomicU32,
    /// Bytes that went past the ring, sent and received.
    pub sent: AtomicU64,
    pub received: AtomicU64,
    /// For each of `crate::direct::Patience`.
    pub passes: [Pass; 2],
    pub choice: Choice,
}

/// See `crate::direct::choice`, of whose fields each is one.
#[repr(C)]
#[derive(Debug)]
pub struct Choice {
    pub since: AtomicU64,
    pub bytes: AtomicU64,
    pub paces: [AtomicU64; 2],
    pub score: AtomicU64,
    pub put_off: AtomicU64,
    pub crowd: AtomicU32,
    pub messages: AtomicU32,
    pub way: AtomicU32,
    pub best: AtomicU32,
    pub pairs: AtomicU32,
    pub left: AtomicU32,
    pub rest: AtomicU32,
}

/// Waits for the reader that were in vain.
#[repr(C)]
#[derive(Debug)]
pub struct Pass {
    /// Messages to pass before the next, and how many passed last.
    pub left: AtomicU32,
    pub last: AtomicU32,
}

/// Written by this side while it delivers. See `crate::direct::claims`.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Source {
    pub busy: AtomicU64,
    pub placed: AtomicU8,
    /// The lane that this side would use (`crate::direct::held`): a serial number and a descriptor of its
    /// process; 0 before there is one. And what the descriptor has to be: the number of a pipe.
    pub lane: AtomicU64,
    pub pipe: AtomicU64,
}

/// A buffer of this side's that the other may read (SrcAvail).
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Advert {
    /// See `crate::direct::claims`: written by both.
    pub claim: AtomicU64,
    /// Where in the ring's bytes it stands.
    pub at: AtomicU64,
    pub from: AtomicU64,
    pub len: AtomicU64,
    /// Not 0: its bytes are in this lane, and cannot be taken back.
    pub lane: AtomicU64,
}

/// A buffer of this side's that the other may write (SinkAvail), and what this side has received.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Sink {
    /// Odd while the buffer is posted; different each time.
    pub posted: AtomicU64,
    /// Which advert it is for.
    pub number: AtomicU32,
    /// That advert's byte which belongs at the buffer's beginning...
    pub base: AtomicU64,
    /// ...after so many bytes of the ring.
    pub read: AtomicU64,
    pub to: AtomicU64,
    pub len: AtomicU64,
    /// Adverts done with, and how much of the next has been received.
    pub done: AtomicU32,
    pub progress: AtomicU64,
    /// What this side is doing with the other's advert.
    pub busy: AtomicU64,
    /// The advert whose rest is asked for through the ring (SendSm).
    pub small: AtomicU32,
    /// The advert that was taken back and is waited for no more; at first none, number 0.
    pub forgotten: AtomicU32,
    /// The lane of the other side's that this one reads from, and one that it cannot have.
    pub fetched: AtomicU64,
    pub refused: AtomicU64,
}

/// Bytes of one segment.
#[must_use]
pub const fn stride(region: usize) -> usize {
    CONTROL + 2 * region
}

/// Where the segments begin.
pub const SEGMENTS: usize = size_of::<Header>().next_multiple_of(4096);

/// Bytes of an arena.
#[must_use]
pub const fn arena(region: usize) -> usize {
    SEGMENTS + SLOTS as usize * stride(region)
}

const _: () = assert!(size_of::<Control>() == CONTROL);
const _: () = assert!(SLOTS as usize == crate::board::MARKS);
