//! The looks before a sleep, for waits on one socket, poll, select and epoll alike: first a few without
//! letting go of the core, then with yields between them, within a budget that learns.
//!
//! Rules: spinning is bounded in time that nobody else used; a yield that let somebody run for long
//! means that a busy program shares the core, and then sleeping is better (the kernel lets a woken
//! thread in front of a busy one, but not one that yields); signals are held back during the yields, so
//! that one that has to interrupt the call is found pending and not lost.

use crate::{signals, world};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use transport::clock;
use transport::sys::{self, time};

/// Looks without letting others run.
pub(crate) const PAUSES: u32 = 60;
/// A yield that takes longer than this (µs) let somebody else run; what they used is not our spinning.
const FOREIGN_US: u64 = 1;
/// A yield that takes longer than this (µs) let a busy program run.
const HOG_US: u64 = 60;
/// How long (µs) such a discovery counts, at first and at most: each time doubles it, because finding
/// out costs a turn of the busy program.
const HOG_FOR_US: u64 = 20_000;
const HOG_AT_MOST_US: u64 = 2_000_000;

static HOGGED_UNTIL: AtomicU64 = AtomicU64::new(0);
static HOG_FOR: AtomicU64 = AtomicU64::new(HOG_FOR_US);

#[cold]
fn hogged(now: u64) {
    let long = HOG_FOR.load(Ordering::Relaxed);
    HOGGED_UNTIL.store(now + clock::us(long), Ordering::Relaxed);
    HOG_FOR.store((2 * long).min(HOG_AT_MOST_US), Ordering::Relaxed);
}

/// What signals did that came during the looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    None,
    /// Handlers ran that restart calls.
    Restart,
    /// A handler ran that interrupts them.
    Interrupt,
}

/// Whether the core is shared with others who wait and yield (the peer, perhaps): then a yield is the
/// quickest look, and looking without one only keeps them off.
#[derive(Debug)]
pub(crate) struct Company(AtomicBool);

impl Company {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }
}

/// How the looks ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spun {
    Found,
    NotFound(Held),
}

/// How long to look, learnt from how long the sleeps after it were. In microseconds; `u32::MAX` until
/// something is known.
#[derive(Debug)]
pub(crate) struct Budget(AtomicU32);

impl Budget {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(u32::MAX))
    }

    fn most() -> u32 {
        u32::try_from(world::settings().spin_us).unwrap_or(u32::MAX)
    }

    /// Microseconds to look for now.
    pub(crate) fn us(&self) -> u32 {
        self.0.load(Ordering::Relaxed).min(Self::most())
    }

    /// A sleep after the looks took this long (ticks): a short one would have been worth waiting for.
    pub(crate) fn learn(&self, slept: u64) {
        let most = Self::most();
        let worth = slept < clock::us(4 * u64::from(most));
        let next = if worth {
            most
        } else {
            (self.us() / 2).max(most.min(5))
        };
        self.0.store(next, Ordering::Relaxed);
    }
}

/// Looks until something is found or the budget (µs) is spent. `look` is told how often it was called;
/// `stop` ends the looks early.
pub(crate) fn spin(
    budget_us: u32,
    company: &Company,
    mut look: impl FnMut(u32) -> bool,
    stop: impl Fn() -> bool,
) -> Spun {
    if budget_us == 0 {
        return if look(0) {
            Spun::Found
        } else {
            Spun::NotFound(Held::None)
        };
    }
    let mut now = clock::ticks();
    if now < HOGGED_UNTIL.load(Ordering::Relaxed) {
        return if look(0) {
            Spun::Found
        } else {
            Spun::NotFound(Held::None)
        };
    }
    if !company.0.load(Ordering::Relaxed) {
        for turn in 0..PAUSES {
            if look(turn) {
                return Spun::Found;
            }
            std::hint::spin_loop();
        }
    }
    now = now.max(clock::ticks());
    let budget = clock::us(u64::from(budget_us));
    let (foreign, hog) = (clock::us(FOREIGN_US), clock::us(HOG_US));
    let (found, held) = with_signals_held(|| {
        let mut spent = 0;
        let mut turn = PAUSES;
        while spent < budget {
            sys::yield_core();
            let after = clock::ticks();
            let took = after - now;
            now = after;
            company.0.store(took > foreign, Ordering::Relaxed);
            if look(turn) {
                return true;
            }
            if took > hog {
                hogged(now);
                return false;
            }
            spent += took.min(foreign).max(1);
            turn += 1;
            if turn.is_multiple_of(16) && stop() {
                return false;
            }
        }
        // The core is ours, or shared with those who yield too.
        HOG_FOR.store(HOG_FOR_US, Ordering::Relaxed);
        false
    });
    if found {
        Spun::Found
    } else {
        Spun::NotFound(held)
    }
}

/// Runs `f` with signals held back, then says what came meanwhile; handlers have run by then.
fn with_signals_held<T>(f: impl FnOnce() -> T) -> (T, Held) {
    if !signals::may_interrupt() {
        return (f(), Held::None);
    }
    // Faults must stay deliverable: a blocked one kills.
    const FAULTS: u64 = 1 << (libc::SIGSEGV - 1)
        | 1 << (libc::SIGBUS - 1)
        | 1 << (libc::SIGFPE - 1)
        | 1 << (libc::SIGILL - 1);
    let mask = time::set_mask(!FAULTS);
    let out = f();
    let came = time::pending() & !mask;
    let mut held = Held::None;
    for signal in (1..=64).filter(|n| came & (1 << (n - 1)) != 0) {
        let Ok((handler, flags)) = time::disposition(signal) else {
            continue;
        };
        if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
            continue;
        }
        if flags & libc::SA_RESTART.cast_unsigned() as u64 == 0 {
            held = Held::Interrupt;
        } else if held == Held::None {
            held = Held::Restart;
        }
    }
    time::set_mask(mask);
    (out, held)
}
