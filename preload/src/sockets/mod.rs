//! A TCP socket of the program: what the library knows of it and how it is found. The calls on it are
//! in the modules beside this one; the hooks call those.
//!
//! Sockets live in a pool that is never given back, so a reference stays valid for ever; what a stale
//! one shows is a socket of another connection, which every slow path notices by `generation`.

pub(crate) mod accept;
pub(crate) mod close;
pub(crate) mod demote;
pub(crate) mod ending;
pub(crate) mod engage;
pub(crate) mod lock;
pub(crate) mod options;
pub(crate) mod parked;
pub(crate) mod pool;
pub(crate) mod ready;
pub(crate) mod recv;
pub(crate) mod residual;
pub(crate) mod rouse;
pub(crate) mod send;
pub(crate) mod spin;
pub(crate) mod wait;

use crate::epoll::set::Membership;
use flowctl::{Scheme, Terms};
use lock::Direction;
use std::cell::UnsafeCell;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering,
};
use transport::record::Record;
use transport::rendezvous::client::Ticket;
use transport::rendezvous::server::Claim;
use transport::sdp::{Leg, Rx, Tx};
use transport::shm::segment::Segment;

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
}

impl Phase {
    const fn from_number(n: u8) -> Self {
        match n {
            1 => Self::Listening,
            2 => Self::Plain,
            3 => Self::Fresh,
            4 => Self::Announced,
            5 => Self::Attached,
            _ => Self::Idle,
        }
    }
}

/// How the connection was made, and what it holds of the rendezvous. Under the registry lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    None,
    /// Connected to a target that is served with Shunt.
    Client {
        target: usize,
        ticket: Option<Ticket>,
        expected: bool,
    },
    /// Accepted from a listener with a board.
    Server {
        family: usize,
        claim: Option<Claim>,
        looks: u32,
        /// Whose the other end is, once the kernel has been asked.
        owner: Option<u32>,
    },
    /// A listener.
    Listener {
        family: Option<usize>,
    },
}

/// A TCP socket.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Socket {
    phase: AtomicU8,
    pub(crate) nonblock: AtomicBool,
    /// The kernel connection has ended (FIN or RST).
    pub(crate) over: AtomicBool,
    /// The kernel has shown something on the connection that has not been looked at, or it may have
    /// before anybody watched.
    pub(crate) kernel_news: AtomicBool,
    /// The program has shut its receiving.
    pub(crate) rx_shut: AtomicBool,
    /// The program has shut its sending.
    pub(crate) tx_shut: AtomicBool,
    /// TCP_NODELAY and TCP_CORK as the program has set them, or its listener passed them on: while the
    /// socket is attached the kernel has them so that a bell never waits.
    pub(crate) nodelay: AtomicBool,
    pub(crate) cork: AtomicBool,
    /// SO_LINGER is set to 0 seconds: closing resets.
    pub(crate) linger_zero: AtomicBool,
    /// Both directions are shut, and the kernel connection has been told.
    pub(crate) fin_sent: AtomicBool,
    /// Bytes were sent by the kernel after the other end was gone: what it answers counts.
    pub(crate) sent_late: AtomicBool,
    /// The kernel's receiving half has been shut by this side: it shows readable for ever.
    pub(crate) woken_hard: AtomicBool,
    /// A reset has been reported to the program.
    pub(crate) reset_told: AtomicBool,
    /// The peer broke the protocol.
    pub(crate) broken: AtomicBool,
    /// Mirror of the receiving leg, for looks without the lock.
    rx_leg: AtomicU8,
    tx_leg: AtomicU8,
    /// Mirror of the bytes read off the fast leg.
    pub(crate) rx_at: AtomicU64,
    /// Mirror of the bytes read off the first leg.
    pub(crate) rx_kernel: AtomicU64,
    segment: UnsafeCell<Option<Segment>>,
    pub(crate) tx: Direction<Tx>,
    pub(crate) rx: Direction<Rx>,
    /// When the kernel connection was last looked at, in ticks.
    pub(crate) checked: AtomicU64,
    pub(crate) lowat: AtomicU32,
    /// SO_SNDBUF and SO_RCVBUF as the program has set them, in bytes; 0 if it has not.
    pub(crate) sndbuf: AtomicU32,
    pub(crate) rcvbuf: AtomicU32,
    /// Times that a send found no room: what an edge of writability is an answer to.
    pub(crate) no_room: AtomicU64,
    /// When the first look for an announcement was taken, in ticks; 0 for never.
    pub(crate) first_look: AtomicU64,
    /// Since when, in ticks, the peer is seen to have parked bytes and nothing else has come; 0 if not.
    pub(crate) starving: AtomicU64,
    /// They are pulled from now on.
    pub(crate) pulls: AtomicBool,
    /// The descriptor of the call that parked bytes.
    pub(crate) parked_fd: AtomicI32,
    /// Threads asleep in the kernel on this very socket.
    pub(crate) sleepers: AtomicU32,
    /// Those of them that [`rouse`] wakes.
    pub(crate) roomers: AtomicU32,
    /// Threads in a wait, spinning or asleep.
    pub(crate) waiters: AtomicU32,
    pub(crate) budget: spin::Budget,
    pub(crate) company: spin::Company,
    /// Descriptors of the program that stand for this socket.
    pub(crate) refs: AtomicU32,
    pub(crate) generation: AtomicU32,
    /// A hidden duplicate of the descriptor, for threads that wait in a socket that was closed.
    pub(crate) shadow: AtomicI32,
    /// Slot state to look at while announced, and what it says once the server has agreed.
    pub(crate) answer_at: AtomicPtr<AtomicU32>,
    pub(crate) answer_yes: AtomicU32,
    pub(crate) residual: AtomicPtr<residual::Residual>,
    pub(crate) way: UnsafeCell<Way>,
    pub(crate) sets: UnsafeCell<Vec<Membership>>,
    /// How many there are in `sets`, for looks without the lock.
    pub(crate) set_count: AtomicU32,
    pub(crate) record: Record,
}

// SAFETY: the cells are reached under the registry lock (`way`, `sets`), or written before the phase
// that makes readers look at them (`segment`).
unsafe impl Sync for Socket {}

impl Socket {
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        Phase::from_number(self.phase.load(Ordering::Acquire))
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// The segment, from `Announced` on.
    #[inline]
    pub(crate) fn segment(&self) -> Option<&Segment> {
        // SAFETY: written before the phase that leads here, and not changed while the socket lives.
        unsafe { &*self.segment.get() }.as_ref()
    }

    /// # Safety
    /// Nobody looks yet: the phase is before `Announced`.
    pub(crate) unsafe fn set_segment(&self, segment: Option<Segment>) {
        // SAFETY: the caller's promise.
        unsafe { *self.segment.get() = segment };
    }

    #[inline]
    pub(crate) fn rx_leg(&self) -> Leg {
        leg(self.rx_leg.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn tx_leg(&self) -> Leg {
        leg(self.tx_leg.load(Ordering::Relaxed))
    }

    /// Copies what lock-free looks need. Called with the lock held, after a change.
    #[inline]
    pub(crate) fn mirror_rx(&self, rx: &Rx) {
        self.rx_at.store(rx.fast_bytes(), Ordering::Relaxed);
        self.rx_kernel.store(rx.kernel_bytes(), Ordering::Relaxed);
        self.rx_leg.store(rx.leg() as u8, Ordering::Relaxed);
        if rx.kernel_over && !self.over.load(Ordering::Relaxed) {
            self.over.store(true, Ordering::Release);
        }
    }

    #[inline]
    pub(crate) fn mirror_tx(&self, tx: &Tx) {
        self.tx_leg.store(tx.leg() as u8, Ordering::Relaxed);
    }

    /// The descriptor to use for a call of the program's on `fd`: the one it named, or the hidden
    /// duplicate if the program has closed it meanwhile.
    #[inline]
    pub(crate) fn live_fd(&self, fd: i32) -> i32 {
        let shadow = self.shadow.load(Ordering::Acquire);
        if shadow >= 0 { shadow } else { fd }
    }

    /// Takes in an event of the kernel connection where no lock may be taken.
    pub(crate) fn note_kernel(&self, events: u32) {
        self.kernel_news.store(true, Ordering::Release);
        let gone = events & (libc::EPOLLHUP | libc::EPOLLERR).cast_unsigned() != 0;
        let fin = events & libc::EPOLLRDHUP.cast_unsigned() != 0;
        if gone || (fin && !self.woken_hard.load(Ordering::Acquire)) {
            self.over.store(true, Ordering::Release);
        }
    }

    /// How long, in ticks, an announcement has been looked for.
    pub(crate) fn looks_for(&self) -> u64 {
        let now = transport::clock::ticks();
        match self.first_look.load(Ordering::Relaxed) {
            0 => {
                self.first_look.store(now.max(1), Ordering::Relaxed);
                0
            }
            then => now.saturating_sub(then),
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

    /// Brings the record up to date with what flow control has counted.
    pub(crate) fn note_flow(&self) {
        if self.record.flow.load(Ordering::Relaxed) != 0
            && let Ok(tx) = self.tx.lock()
        {
            self.record.set_flow(tx.counts(), tx.buffer());
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

const fn leg(n: u8) -> Leg {
    match n {
        0 => Leg::First,
        1 => Leg::Fast,
        _ => Leg::Last,
    }
}
