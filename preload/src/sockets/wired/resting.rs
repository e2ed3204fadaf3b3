//! Which rings are given back because nothing goes by them. A ring is registered memory, which cannot be paged out and of
//! which a process may have little, and a queue pair: connections that are at work have them, however many there are beside
//! ("on-demand slabs" of sU-RDMA; SRNIC's memory for each connection).
//!
//! A small ring through which much goes is to make way for a large one.
//!
//! Called by the mover's thread ([`super::raising`]), which does it. What comes afterwards goes by the kernel connection, and by
//! a ring again once it has shown that it is worth one.

use transport::clock;
use transport::ring::{RING, Ring};

/// How long (µs) nothing has gone by a ring that is given back; and where another connection finds no room for one.
const REST_US: u64 = 10_000_000;
const ROOM_US: u64 = 500_000;

/// How long (µs) nothing has gone by one that is full: there are programs that write first and read then, at both ends, and the kernel
/// holds several MiB (`stalled`, of shared memory).
const STUCK_US: u64 = 1_000_000;

/// A small ring that is gone through so often in this time (µs) is in the way of what goes by it.
const WINDOW_US: u64 = 100_000;
const MUCH: u64 = 4;

/// When something went by a ring last, as far as was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pulse {
    moved: u64,
    since: u64,
    /// What had moved when a window of time began, and when that was.
    before: u64,
    window: u64,
}

impl Pulse {
    /// Of a ring that has just been made.
    pub(super) fn new() -> Self {
        let now = clock::ticks();
        Self {
            moved: 0,
            since: now,
            before: 0,
            window: now,
        }
    }

    /// Looks at the ring. How long (ticks) nothing has gone by it.
    pub(super) fn take(&mut self, ring: &Ring, now: u64) -> u64 {
        let moved = ring.moved();
        if moved != self.moved {
            (self.moved, self.since) = (moved, now);
        }
        now.saturating_sub(self.since)
    }

    /// Whether it is a small ring through which more goes than is good for it. At each look at which a window has passed.
    pub(super) fn is_much(&mut self, ring: &Ring, now: u64) -> bool {
        let span = now.saturating_sub(self.window);
        if ring.size() >= RING || span < clock::us(WINDOW_US) {
            return false;
        }
        let moved = ring.moved();
        // (each octet is counted where it was put, and where it was taken)
        let octets = moved.wrapping_sub(self.before) / 2;
        (self.before, self.window) = (moved, now);
        let windows = (span / clock::us(WINDOW_US)).max(1);
        octets > MUCH * windows * ring.size() as u64
    }

    /// Whether a ring by which nothing has gone for so long (ticks) is given back.
    pub(super) fn is_long(idle: u64) -> bool {
        idle > clock::us(REST_US)
    }

    /// Whether one that is full is in the way.
    pub(super) fn is_stuck(idle: u64, ring: &Ring) -> bool {
        idle > clock::us(STUCK_US) && ring.is_up() && !ring.is_over() && ring.is_stuffed()
    }

    /// Whether it is where another connection needs the room.
    pub(super) fn is_enough_for_room(idle: u64) -> bool {
        idle > clock::us(ROOM_US)
    }
}

/// Whether it can be given back now: it carries both directions, and nothing is under way or waits to be read.
pub(super) fn may_rest(ring: &Ring) -> bool {
    ring.is_up() && !ring.is_over() && ring.is_quiet() && ring.available() == 0
}
