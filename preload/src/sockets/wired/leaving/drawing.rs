//! What a peer that has closed has left on its way. Its kernel answers whatever is said to it with a reset, and forgets what it has not sent
//! yet; and it sends, its end last, only as far as there is room here. So before anything is said what has come is drawn from the
//! kernel, until the end shows or nothing more comes, though there is room. A busy host may take longer than that to pass on what its
//! own kernel has: of a peer on this host that is asked whether it has ended.
//!
//! Called by `leaving`, which keeps what is drawn. A peer that lives is drawn from in vain: so there is a limit.

use std::ops::ControlFlow;
use transport::clock;
use transport::sys::diag::{self, Owner, Pace};
use transport::sys::net;

/// For how long (µs) nothing comes, from a peer whose kernel has nothing more: two round trips, and within these.
const QUIET_US: u64 = 1000;
const QUIET_MOST_US: u64 = 100_000;
/// How long (µs) the kernel's end takes that follows a peer's last word, if that has closed. One that has ended its direction only
/// says that word too.
const END_US: u64 = 20_000;
/// How long (µs) it takes in all, and how much (octets) beside what lies here from the first: what is drawn from a peer that goes on sending, and is
/// given back, has to find room in both kernels once more, which are full.
const MOST_US: u64 = 1_000_000;
const MOST: u64 = 1024 * 1024;
/// With so few octets received in all (the least window that a kernel begins with), and none unread, none can be waiting for room.
const FEW: u64 = 32 * 1024;

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drawing {
    /// Ticks.
    begun: u64,
    quiet: u64,
    /// When something came last, and the octets that had come before this began, and by then.
    last: u64,
    from: u64,
    came: u64,
}

/// The receiving direction, after a look at what has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Taken from the kernel so far.
    pub(super) octets: u64,
    /// The peer's kernel has ended, or RDMA mode has: all that there was in it is here.
    pub(super) ended: bool,
    /// The peer has said its last word.
    pub(super) said: bool,
}

impl Drawing {
    /// Nothing has been drawn yet. `None` if there is no need to.
    pub(super) fn begin(fd: i32, octets: u64) -> Option<Self> {
        let quiet = match diag::pace(fd) {
            Some(Pace { round_trip, .. }) => {
                (2 * u64::from(round_trip)).clamp(QUIET_US, QUIET_MOST_US)
            }
            None => QUIET_US,
        };
        let is_silent = |pace: Pace| u64::from(pace.silent) * 1000 > quiet + 4000; // (the kernel counts in ticks of 1 to 10 ms)
        if net::unread(fd) == 0 && (octets <= FEW || diag::pace(fd).is_some_and(is_silent)) {
            return None;
        }
        let now = clock::ticks();
        Some(Self {
            begun: now,
            quiet: clock::us(quiet),
            last: now,
            from: octets,
            came: octets,
        })
    }

    /// Whether to look again at once, later, or no more. `peer`: its socket, if that is here.
    pub(super) fn go_on(
        &mut self,
        seen: Seen,
        peer: impl FnOnce() -> Option<Owner>,
    ) -> ControlFlow<(), bool> {
        let now = clock::ticks();
        let more = seen.octets > self.came;
        if more {
            (self.last, self.came) = (now, seen.octets);
        }
        let quiet = if seen.said {
            clock::us(END_US)
        } else {
            self.quiet
        };
        let over = seen.ended || now - self.begun > clock::us(MOST_US);
        let enough = now - self.last > quiet || self.came - self.from > MOST;
        // (one that has not ended is asked as soon as may be: it may be about to)
        if over || enough && !peer().is_some_and(|peer| peer.ended) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(more)
    }
}
