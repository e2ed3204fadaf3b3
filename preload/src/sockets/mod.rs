//! A TCP socket of the program: what the library knows of it and how it is found. The calls on it are
//! in the modules beside this one; the hooks call those.
//!
//! Sockets live in a pool that is never given back, so a reference stays valid for ever; what a stale
//! one shows is a socket of another connection, which every slow path notices by `generation`.

pub(crate) mod accept;
pub(crate) mod apart;
mod cancel;
pub(crate) mod close;
pub(crate) mod connecting;
pub(crate) mod counted;
pub(crate) mod cut;
pub(crate) mod demote;
pub(crate) mod ending;
pub(crate) mod engage;
pub(crate) mod family;
pub(crate) mod fences;
pub(crate) mod forwarded;
pub(crate) mod handover;
mod held;
pub(crate) mod idle;
pub(crate) mod large;
pub(crate) mod listener;
pub(crate) mod lock;
pub(crate) mod mapped;
pub(crate) mod napping;
pub(crate) mod news;
pub(crate) mod operator;
pub(crate) mod options;
pub(crate) mod order;
pub(crate) mod parked;
mod peek;
pub(crate) mod pool;
pub(crate) mod quick;
pub(crate) mod ready;
pub(crate) mod recv;
pub(crate) mod residual;
pub(crate) mod rouse;
pub(crate) mod seats;
pub(crate) mod send;
pub(crate) mod shows;
pub(crate) mod sizes;
pub(crate) mod spin;
pub(crate) mod stalled;
pub(crate) mod stream;
pub(crate) mod timing;
pub(crate) mod uring;
pub(crate) mod wait;
pub(crate) mod wired;

use crate::epoll::set::Membership;
use crate::table;
use flowctl::{Scheme, Terms};
use news::News;
use std::cell::UnsafeCell;
use std::ops::Deref;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32, Ordering, fence};
use stream::Stream;
use transport::direct::Direct;
use transport::reason::Reason;
use transport::record::{Record, Transport};
use transport::rendezvous::client::Ticket;
use transport::rendezvous::server::Claim;
use transport::sdp::Leg;

/// Where a socket is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Not connected.
    Idle = 0,
    Listening = 1,
    /// On kernel TCP for good.
    Plain = 2,
    /// Connected, and it is not known yet whether the other end has Shunt.
    Fresh = 3,
    /// The client has offered the connection to the server.
    Announced = 4,
    /// Both have agreed; each direction is on its fast leg, or moving.
    Attached = 5,
    /// It may be moved to software iWARP: the client has asked, or the server may be asked.
    Opening = 6,
    /// Carried by software iWARP.
    Wired = 7,
}

impl Phase {
    /// Whether what comes by the kernel connection is for the library to look at.
    #[inline]
    pub(crate) const fn is_fast(self) -> bool {
        matches!(self, Self::Attached | Self::Opening | Self::Wired)
    }

    const fn from_number(n: u8) -> Self {
        match n {
            1 => Self::Listening,
            2 => Self::Plain,
            3 => Self::Fresh,
            4 => Self::Announced,
            5 => Self::Attached,
            6 => Self::Opening,
            7 => Self::Wired,
            _ => Self::Idle,
        }
    }
}

/// How the connection was made, and what it holds of the rendezvous. Under the registry lock. (Targets and
/// families by small numbers: every connection keeps one of these.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    None,
    /// Connected to a target that is served with Shunt.
    Client {
        target: u32,
        ticket: Option<Ticket>,
        expected: bool,
    },
    /// Accepted from a listener with a board.
    Server {
        family: u32,
        claim: Option<Claim>,
        looks: u32,
        /// Whose the other end is, once the kernel has been asked.
        owner: Option<u32>,
    },
    /// Held since before this process was forked, from a parent whose client side knew of the server.
    Inherited,
    /// Connected, and to ask for software iWARP at its first use; with `mapped`, if the port mapper there has accepted.
    Caller {
        mapped: bool,
        /// An RDMA adapter may move it then.
        rides: bool,
    },
    /// Accepted from a listener whose connections may ask for software iWARP.
    Callee {
        rides: bool,
    },
    /// Passed on by another process before it had carried anything: a request for software iWARP is declined, since that process
    /// may hold it too.
    Passed,
    /// A listener.
    Listener {
        /// Or why its connections stay on kernel TCP.
        family: Result<u32, Reason>,
        /// What it accepts may ask for software iWARP, and for an RDMA adapter under it.
        wired: bool,
        rides: bool,
    },
}

/// A TCP socket: the stream that it stands for, which others may hold too, and what this process alone
/// knows of it. Reads like its stream.
///
/// Four cache lines, aligned to them: threads that work on neighbouring sockets do not write to each
/// other's lines, and at this size the alignment costs nothing.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Socket {
    stream: AtomicPtr<Stream>,
    /// When the kernel connection was last looked at ([`coarse`]).
    pub(crate) checked: AtomicU32,
    /// This process's seat at the stream.
    seat: AtomicU8,
    /// The kernel has shown something on the connection that has not been looked at, or it may have
    /// before anybody watched.
    pub(crate) kernel_news: News,
    /// Time-outs (SO_RCVTIMEO, SO_SNDTIMEO) that were asked for and are not set: bits of
    /// `timing`.
    pub(crate) untimed: AtomicU8,
    pub(crate) company: spin::Company,
    pub(crate) budget: spin::Budget,
    /// Threads in a wait, spinning or asleep.
    pub(crate) waiters: AtomicU32,
    /// Threads asleep in the kernel on this very socket, and those of them that [`rouse`] wakes.
    asleep: AtomicU32,
    rooming: AtomicU32,
    /// How many there are in `sets`, for looks without the lock.
    pub(crate) set_count: AtomicU32,
    /// The descriptor of the call that parked bytes.
    pub(crate) parked_fd: AtomicI32,
    /// A hidden duplicate of the descriptor, for threads that wait in a socket that was closed.
    pub(crate) shadow: AtomicI32,
    pub(crate) generation: AtomicU32,
    /// Descriptors of the program that stand for this socket.
    pub(crate) refs: AtomicU32,
    /// When the first look for an announcement was taken ([`coarse`]); 0 for never.
    pub(crate) first_look: AtomicU32,
    pub(crate) record: Record,
    pub(crate) way: UnsafeCell<Way>,
    pub(crate) sets: UnsafeCell<Vec<Membership>>,
    pub(crate) lanes: AtomicPtr<held::Lanes>,
}

/// A time, or how long something takes, in units of 4096 ticks: for what need not be known exactly, nor for longer
/// than an hour.
#[allow(clippy::cast_possible_truncation)]
pub(crate) const fn coarse(ticks: u64) -> u32 {
    (ticks >> COARSE) as u32
}

const COARSE: u32 = 12;

/// An attached connection may cost 1 KiB of private memory at each end. These are three quarters of it; the
/// rest is for registrations in sets, the rendezvous, and the table.
const _: () = assert!(size_of::<Socket>() <= 256 && size_of::<Stream>() <= 512);

// SAFETY: the cells (`way`, `sets`) are reached under the registry lock.
unsafe impl Sync for Socket {}

impl Deref for Socket {
    type Target = Stream;
    #[inline]
    fn deref(&self) -> &Stream {
        // SAFETY: set when the socket was made, to memory that is never unmapped.
        unsafe { &*self.stream.load(Ordering::Relaxed) }
    }
}

impl Socket {
    /// The socket's seat among those who hold its stream.
    #[inline]
    pub(crate) fn seat(&self) -> usize {
        usize::from(self.seat.load(Ordering::Relaxed))
    }

    /// In a child after fork: stands for this stream from now on, from this seat.
    pub(crate) fn rebind(&self, stream: *mut Stream, seat: usize) {
        self.stream.store(stream, Ordering::Relaxed);
        self.sit_at(seat);
    }

    fn sit_at(&self, seat: usize) {
        self.seat
            .store(u8::try_from(seat).unwrap_or(0), Ordering::Relaxed);
    }

    /// In a child after fork: no thread of it is anywhere.
    pub(crate) fn restart_counts(&self) {
        for count in [&self.asleep, &self.rooming, &self.waiters] {
            count.store(0, Ordering::Relaxed);
        }
        self.watch_seat();
    }

    /// Whether another process holds the stream too. Asks the kernel who lives, where there is anybody.
    pub(crate) fn has_others(&self) -> bool {
        self.seats()
            .is_some_and(|s| s.has_others(Some(self.seat())))
    }

    /// Whether this number stands for the socket.
    #[inline]
    pub(crate) fn is_own(&self, fd: i32) -> bool {
        table::socket(fd).is_some_and(|s| std::ptr::eq(s, self))
    }

    /// Whether a call by this number, which has one of its locks and is not counted as inside, may go on: the connection has not ended
    /// since it was looked up, and does not before the lock is let go. (Who ends it clears the number, or takes the shadow, before he
    /// takes the locks.) Not while it is being closed: who is not sure is counted first ([`Self::stays`]).
    #[inline]
    pub(crate) fn is_here(&self, fd: i32) -> bool {
        self.is_own(fd) || self.shadow.load(Ordering::SeqCst) >= 0
    }

    /// Whether a call by this number that has just been counted as inside may go on: whoever ends the connection clears the number
    /// before he asks who is inside, and leaves a shadow for those.
    #[inline]
    pub(crate) fn stays(&self, fd: i32) -> bool {
        fence(Ordering::SeqCst);
        self.is_here(fd) || self.is_left(fd)
    }

    #[cold]
    fn is_left(&self, fd: i32) -> bool {
        let _w = crate::world::lock(); // (which he has until he has made up his mind)
        self.is_here(fd)
    }

    /// The descriptor to use for a call of the program's on `fd`: the one it named, or the hidden
    /// duplicate if the program has closed it meanwhile. (Whose number was not closed does not use that: it goes with those who need it.)
    #[inline]
    pub(crate) fn live_fd(&self, fd: i32) -> i32 {
        let shadow = self.shadow.load(Ordering::Acquire);
        if shadow >= 0 && !self.is_own(fd) {
            shadow
        } else {
            fd
        }
    }

    /// A number that stands for the socket: the one that is named, unless that stands for something else by now. (-1 if none does.)
    pub(crate) fn own_fd(&self, fd: i32) -> i32 {
        if self.is_own(fd) {
            return fd;
        }
        let first = self.record.fd.load(Ordering::Relaxed).cast_signed();
        if self.is_own(first) {
            return first;
        }
        let mut found = self.shadow.load(Ordering::Acquire);
        table::each(0, u32::MAX, |fd, entry| {
            if matches!(entry, table::Entry::Socket(x) if std::ptr::eq(x, self)) {
                found = fd;
            }
        });
        if found >= 0 {
            self.record
                .fd
                .store(found.cast_unsigned(), Ordering::Relaxed);
        }
        found
    }

    /// Takes in an event of the kernel connection where no lock may be taken.
    pub(crate) fn note_kernel(&self, events: u32) {
        self.kernel_news.tell();
        #[allow(clippy::cast_possible_truncation)]
        if self.shows_end((events & 0x7fff) as i16) {
            self.over.store(true, Ordering::Release);
        }
    }

    /// Whether poll(2) bits of the kernel connection say that the peer has ended it: FIN or RST. What this
    /// side has shut there itself shows in the same bits for ever.
    pub(crate) fn shows_end(&self, bits: i16) -> bool {
        let half = self.woken_hard.load(Ordering::Acquire);
        let both = half && self.tx_shut.load(Ordering::Acquire);
        bits & libc::POLLERR != 0
            || (bits & libc::POLLHUP != 0 && !both)
            || (bits & libc::POLLRDHUP != 0 && !half)
    }

    /// How long, in ticks, an announcement has been looked for.
    pub(crate) fn looks_for(&self) -> u64 {
        let now = coarse(transport::clock::ticks()).max(1);
        match self.first_look.load(Ordering::Relaxed) {
            0 => {
                self.first_look.store(now, Ordering::Relaxed);
                0
            }
            then => u64::from(now.wrapping_sub(then)) << COARSE,
        }
    }

    /// By what terms this socket sends.
    pub(crate) fn terms(&self) -> Terms {
        let mut terms = crate::world::settings().terms;
        let sndbuf = u64::from(self.sndbuf.load(Ordering::Relaxed));
        if sndbuf > 0 {
            terms.own = terms.own.min(sndbuf);
            if terms.scheme == Scheme::Credit {
                terms.buffer = terms.buffer.min(sndbuf); // as many slots on both sides
            }
        }
        terms
    }

    /// Notes by what scheme this socket sends.
    pub(crate) fn note_scheme(&self) {
        let scheme = crate::world::settings().terms.scheme;
        self.record.flow.store(scheme as u8, Ordering::Relaxed);
    }

    /// Notes what went past the ring, while the segment that counts it is there.
    pub(crate) fn note_direct(&self) {
        if self.phase() == Phase::Attached
            && let Some(p) = self.segment()
        {
            // (the words are gone once the segment was let go of)
            self.record
                .zcopy_bytes
                .fetch_max(p.moved(), Ordering::Relaxed);
            let why = p.refusal() as u8;
            self.record.zcopy_reason.fetch_max(why, Ordering::Relaxed);
        }
    }

    /// Brings the record up to date with what flow control has counted, and with what another process
    /// that holds the stream has done to it.
    pub(crate) fn note_flow(&self) {
        if self.phase() == Phase::Wired {
            return wired::note(self);
        }
        let shm = self.record.transport.load(Ordering::Relaxed) == Transport::Shm as u8;
        match self.phase() {
            Phase::Attached if !shm => {
                self.record.set_transport(Transport::Shm);
                self.note_scheme();
            }
            Phase::Plain if shm => self.record.set_demoted(Reason::ByHolder),
            _ => {}
        }
        if self.record.flow.load(Ordering::Relaxed) != 0
            && let Ok(tx) = self.tx.lock()
        {
            self.record.set_flow(tx.counts(), tx.buffer());
            self.note_direct();
        }
    }
}

const fn leg(n: u8) -> Leg {
    match n {
        0 => Leg::First,
        1 => Leg::Fast,
        _ => Leg::Last,
    }
}
