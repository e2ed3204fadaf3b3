//! A blocking call's sleep for data begins with a nap (`transport::shm`): the peer wakes it by a call that costs a fraction of a
//! bell. What only the kernel connection tells (a peer that was killed) waits until the nap is over, so it takes a few
//! milliseconds at most, and the sleep on the connection follows.
//!
//! Called by `wait`, and by `poll` where that waits for one socket's data. Rules: only on a stream that is this process's alone,
//! both of whose directions are by the ring; not where the peer's process is just about to end; and where naps have not ended by
//! themselves lately, for each of them costs a call and a timer.

use super::counted::{Counting, What};
use super::{Phase, Socket, fences, operator};
use crate::real;
use crate::signals::since::Since;
use crate::signals::thread::here;
use std::sync::atomic::{AtomicU8, Ordering};
use transport::sdp::Leg;
use transport::shm::segment::Segment;
use transport::sys::{Errno, Result, time};

/// How long (ns) a nap is: an end that nobody tells of is seen so much later.
const NAP_NS: u64 = 4_000_000;

/// Sleeps that pass without one, at most, after naps that ended by themselves.
const MOST_PASSED: u8 = 63;

/// How a thread's naps have ended lately. (A thread that blocks mostly serves one connection at a time, and a socket has no room
/// for it.)
#[derive(Debug)]
pub(crate) struct Naps {
    /// Sleeps until the next, and how many passed before the last.
    left: AtomicU8,
    last: AtomicU8,
}

impl Naps {
    /// Zeros, as every thread's words begin.
    #[cfg(any(test, not(target_arch = "x86_64")))]
    pub(crate) const fn new() -> Self {
        Self {
            left: AtomicU8::new(0),
            last: AtomicU8::new(0),
        }
    }

    fn is_due(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// A sleep begins: whether with a nap.
    fn begins(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 0
    }

    fn note(&self, woken: bool) {
        let last = self.last.load(Ordering::Relaxed);
        let next = match woken {
            true => last / 2,
            false => last.saturating_mul(2).saturating_add(1).min(MOST_PASSED),
        };
        self.last.store(next, Ordering::Relaxed);
        self.left
            .store(if woken { 0 } else { next }, Ordering::Relaxed);
    }
}

fn can(s: &Socket) -> bool {
    s.phase() == Phase::Attached
        && s.rx_leg() == Leg::Fast
        && s.tx_leg() == Leg::Fast
        && !s.is_shared()
        && !s.woken_hard.load(Ordering::Acquire)
}

/// Whether the next sleep for data begins with a nap, which needs no wish for a bell.
#[inline]
pub(super) fn is_due(s: &Socket) -> bool {
    here().naps.is_due() && can(s)
}

/// Naps, if it is time to, for so long (ns) at most. Whether there may be something to do; if not, the sleep on the connection
/// follows.
///
/// # Errors
/// EINTR if a handler ran.
pub(super) fn nap(
    s: &Socket,
    p: &Segment,
    most: u64,
    since: Since,
    may_go: impl FnOnce() -> bool,
) -> Result<bool> {
    if !can(s) || !here().naps.begins() {
        return Ok(false);
    }
    fences::pace(s, p);
    p.begin_nap();
    if p.peer_parts() {
        p.end_nap();
        return Ok(false);
    }
    if may_go() || !can(s) {
        p.end_nap();
        return Ok(true);
    }
    if since.any() {
        p.end_nap();
        return Err(Errno::INTR);
    }
    let errno = real::errno();
    let ended = p.nap(most.min(NAP_NS));
    p.end_nap();
    match ended {
        Err(_) if operator::knocked(errno) => Ok(true),
        // (no handler of the program's: libc's own signal for a thread that is to be cancelled, which the sleep sees to)
        Err(_) if !since.any() && time::all_restart() => Ok(false),
        Ok(woken) => {
            here().naps.note(woken);
            Ok(woken)
        }
        Err(e) => Err(e),
    }
}

/// The same for a poll that waits for this socket's data and nothing else. True: it looks again.
///
/// # Errors
/// As [`nap`].
pub(crate) fn in_poll(
    s: &'static Socket,
    most: Option<u64>,
    since: Since,
    look: impl FnOnce() -> bool,
) -> Result<bool> {
    if !is_due(s) {
        return Ok(false);
    }
    let counting = Counting::begin();
    counting.add(What::Inside(s));
    match s.segment() {
        Some(p) => nap(s, p, most.unwrap_or(u64::MAX), since, look),
        None => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST_PASSED, Naps};

    #[test]
    fn who_is_never_woken_naps_rarely_and_who_is_naps_again() {
        let naps = Naps::new();
        let mut count = 0;
        for _ in 0..1000 {
            if naps.begins() {
                count += 1;
                naps.note(false);
            }
        }
        assert!((10..30).contains(&count), "{count}");
        while !naps.begins() {}
        naps.note(true);
        assert!(naps.is_due());
        for _ in 0..10 {
            assert!(naps.begins());
            naps.note(true);
        }
        naps.note(false);
        assert!(!naps.is_due() && naps.last.load(super::Ordering::Relaxed) < MOST_PASSED);
    }
}
