//! Which connections the mover's thread makes, watches and takes down rings for. Called by `raising` and its parts, and around fork.
//!
//! The rule: who is in a list may have become another connection's meanwhile ([`Rider`]); a ring that is in one is there until that
//! thread takes it down.

use super::super::super::lock::Slow;
use super::super::super::{Phase, Socket};
use super::super::resting::Pulse;
use super::super::{connecting, riding, wire};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use transport::clock;
use transport::ring::Ring;
use transport::wire::Wire;

/// How long (µs) after a failure the next ring is offered: the first time, and at most.
const AGAIN_US: u64 = 1_000_000;
const AGAIN_MOST_US: u64 = 30_000_000;
/// And at most where other connections have rings: then it is room that was lacking, here or there.
const ROOM_MOST_US: u64 = 4_000_000;

/// See the fields.
pub(super) static LISTS: Slow<Lists> = Slow::new(
    crate::sockets::order::Rank::Riders,
    Lists {
        wanted: Vec::new(),
        riders: Vec::new(),
        retired: Vec::new(),
        again: Vec::new(),
        awaited: Vec::new(),
    },
);
/// How many there are in all of them, for a look without the lock.
static COUNT: AtomicU32 = AtomicU32::new(0);
static MASK: AtomicU64 = AtomicU64::new(0);

pub(super) struct Lists {
    /// Connections for which something is to be done.
    pub(super) wanted: Vec<Rider>,
    /// Those with a ring.
    pub(super) riders: Vec<Ridden>,
    /// Rings that are done with, and since when.
    pub(super) retired: Vec<(Old, u64)>,
    /// Offers to be made anew.
    pub(super) again: Vec<Again>,
    /// Those whose peers are about to say something, and until when that is looked for.
    pub(super) awaited: Vec<(Rider, u64)>,
}

/// Which, and when something went by it last.
#[derive(Clone, Copy)]
pub(super) struct Ridden {
    pub(super) rider: Rider,
    pub(super) ring: NonNull<Ring>,
    pub(super) pulse: Pulse,
}

pub(super) struct Again {
    rider: Rider,
    at: u64,
    /// What it had carried by then: one that carries little since needs none.
    carried: [u64; 2],
    /// How long (µs) the next pause is.
    pause: u64,
}

impl Lists {
    /// A ring is offered for this one again, after a while.
    pub(super) fn try_again(&mut self, s: &'static Socket) {
        if !self.again.iter().any(|a| a.rider.is(s)) {
            self.again.push(Again {
                rider: Rider::new(s),
                at: clock::ticks() + clock::us(AGAIN_US),
                carried: riding::carried(s),
                pause: 2 * AGAIN_US,
            });
        }
        self.count();
    }

    pub(super) fn count(&self) {
        let (made, other) = (self.riders.len() + self.retired.len(), self.again.len());
        let all = made + other + self.wanted.len() + self.awaited.len();
        COUNT.store(u32::try_from(all).unwrap_or(u32::MAX), Ordering::Release);
    }
}

/// A socket, as long as it stands for the same connection.
#[derive(Clone, Copy)]
pub(in super::super) struct Rider {
    pub(in super::super) socket: &'static Socket,
    generation: u32,
}

pub(super) struct Old(pub(super) NonNull<Ring>);

// SAFETY: whoever has it has it alone.
unsafe impl Send for Old {}

// SAFETY: the rings of the list are this process's, and given back by its mover's thread alone.
unsafe impl Send for Lists {}

impl Rider {
    pub(super) fn new(socket: &'static Socket) -> Self {
        Self {
            socket,
            generation: socket.generation.load(Ordering::Acquire),
        }
    }

    /// Whether it is this one, and stands for the connection that it has now.
    pub(super) fn is(&self, s: &Socket) -> bool {
        std::ptr::eq(self.socket, s) && self.generation == s.generation.load(Ordering::Acquire)
    }

    /// The connection's state and descriptor, if it still is the one that was meant, and in RDMA mode.
    pub(in super::super) fn wire(&self) -> Option<(&'static Wire, i32)> {
        let s = self.socket;
        if s.generation.load(Ordering::Acquire) != self.generation || s.phase() != Phase::Wired {
            return None;
        }
        let fd = s.own_fd(s.record.fd.load(Ordering::Relaxed).cast_signed());
        (fd >= 0).then_some(())?;
        Some((wire(s)?, fd))
    }

    /// Whether it has this ring.
    pub(in super::super) fn has_ring(&self, ring: NonNull<Ring>) -> bool {
        let now = self.wire().and_then(|(w, _)| w.common.ring.get());
        now.is_some_and(|now| std::ptr::eq(now, ring.as_ptr()))
    }
}

/// Whether the thread has to look now and then.
pub(super) fn is_busy() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Those to whom an offer is due once more: a ring has failed some time ago.
pub(super) fn due_again(now: u64) -> Vec<Rider> {
    let mut due = Vec::new();
    let mut lists = LISTS.lock();
    let most = match lists.riders.is_empty() {
        true => AGAIN_MOST_US,
        false => ROOM_MOST_US,
    };
    lists.again.retain_mut(|again| {
        let Some((wire, _)) = again.rider.wire() else {
            return false;
        };
        if wire.common.ring.get().is_some() {
            return false; // one has come up
        }
        if riding::is_worth_again(again.rider.socket, again.carried) && again.at <= now {
            due.push(again.rider);
            again.at = now + clock::us(again.pause);
            again.pause = (2 * again.pause).min(most);
        }
        true
    });
    due
}

/// Before fork: nobody is in the lists while they are copied.
pub(in super::super) fn before_fork() {
    MASK.store(LISTS.hold(), Ordering::Relaxed);
    connecting::before_fork();
}

pub(in super::super) fn in_parent() {
    connecting::let_go();
    LISTS.let_go(MASK.load(Ordering::Relaxed));
}

/// In a child: the adapters are the parent's.
pub(in super::super) fn in_child() {
    // SAFETY: held since before the fork, and there is no other thread.
    let lists = unsafe { LISTS.held() };
    for ridden in &lists.riders {
        // SAFETY: a ring of a list is there, in memory that this process has too.
        unsafe { ridden.ring.as_ref() }.forget();
    }
    for (old, _) in &lists.retired {
        // SAFETY: as above.
        unsafe { old.0.as_ref() }.forget();
    }
    lists.wanted.clear();
    lists.riders.clear();
    lists.retired.clear();
    lists.again.clear();
    lists.awaited.clear();
    COUNT.store(0, Ordering::Release);
    connecting::in_child();
    in_parent();
}
