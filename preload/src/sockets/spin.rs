//! The looks before a sleep, for waits on one socket, poll, select and epoll alike: first a few without
//! letting go of the core, then with yields between them, within a budget that learns.
//!
//! Rules: spinning is bounded in time that nobody else used; a yield that let somebody run for long
//! means that a busy program shares the core, and then sleeping is better (the kernel lets a woken
//! thread in front of a busy one, but not one that yields). How long that is depends on how many turns of
//! this process's threads it has seen end: a crowd that yields is not busy. A handler that runs meanwhile
//! ends the looks, since it may have to end the call.

use super::lock::is_single_threaded;
use crate::signals::{self, since::Since};
use crate::world;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use transport::clock;
use transport::sys::{self, load};

/// Looks without letting others run.
pub(crate) const PAUSES: u32 = 60;
/// A yield that takes longer than this (µs) let somebody else run; what they used is not our spinning.
const FOREIGN_US: u64 = 1;
/// What such a yield counts of the budget (µs): all who had a turn have not brought what is waited for.
const TURN_COST: u64 = 10;
/// A yield that takes longer than this (µs) let a busy program run.
const HOG_US: u64 = 60;
/// Nobody who works for this thread takes so long (µs): a turn of a program that does not let go of the core by itself.
const TURN_US: u64 = 1_000;
/// How long (µs) such a discovery counts, at first and at most: each time doubles it, because finding
/// out costs a turn of the busy program.
const HOG_FOR_US: u64 = 20_000;
const HOG_AT_MOST_US: u64 = 20_000 << 7;
/// How long (µs) after it nothing is made of a long yield: those who slept come back one by one.
const GRACE_US: u64 = 2_000;

/// How much longer (µs) a yield may take for each turn that another thread of this process has ended meanwhile on the
/// same core: those run for moments, and so do the threads that they work with.
const TURN_OF_MANY_US: u64 = 40;

/// Turns that threads of this process have ended by a yield or a sleep, by core.
static TURNS: [OfCore; CORES] = [const { OfCore(AtomicU64::new(0)) }; CORES];
static OF_NONE: OfCore = OfCore(AtomicU64::new(0));
/// Cores told apart (a power of two).
const CORES: usize = 64;

#[repr(align(64))]
struct OfCore(AtomicU64);

/// The turns of the core that this thread is on.
fn turns() -> &'static AtomicU64 {
    let of = TURNS.get(sys::core() % CORES);
    &of.unwrap_or(&OF_NONE).0
}

/// Before a sleep: whoever waits for this core was not kept off it by a busy program.
#[inline]
pub(crate) fn end_turn() {
    turns().fetch_add(1, Ordering::Relaxed);
}

/// Threads that wanted each core, and when that was asked.
static CROWD: AtomicU32 = AtomicU32::new(0);
static CROWD_AT: AtomicU64 = AtomicU64::new(0);
/// How long (µs) that is good for.
const CROWD_FOR_US: u64 = 10_000;
/// No crowd's turns take so long (µs): about a time slice of the kernel's.
const CROWD_TURN_US: u64 = 1_280;

/// Whether so many threads want the core, of whatever process, that a yield which took so long let all of them have a
/// short turn: the workers of a server that forks, and their clients. Where there are `others` of this process, whoever
/// they work with has not had more turns than they.
#[cold]
fn is_crowd(took: u64, others: u64, now: u64) -> bool {
    if signals::is_sandboxed() {
        return false; // (which may kill for a question)
    }
    if now.wrapping_sub(CROWD_AT.load(Ordering::Relaxed)) > clock::us(CROWD_FOR_US) {
        static CORES_THERE: AtomicU32 = AtomicU32::new(0);
        if CORES_THERE.load(Ordering::Relaxed) == 0 {
            CORES_THERE.store(load::cores(), Ordering::Relaxed);
        }
        let all = load::runnable().unwrap_or(0);
        let each = all / CORES_THERE.load(Ordering::Relaxed).max(1);
        CROWD.store(each, Ordering::Relaxed);
        CROWD_AT.store(now, Ordering::Relaxed);
    }
    let crowd = u64::from(CROWD.load(Ordering::Relaxed));
    let crowd = if is_single_threaded() {
        crowd
    } else {
        crowd.min(2 * others)
    };
    took <= clock::us(HOG_US + crowd * TURN_OF_MANY_US)
}

static HOGGED_AT: AtomicU64 = AtomicU64::new(0);
static HOGGED_UNTIL: AtomicU64 = AtomicU64::new(0);
static HOG_FOR: AtomicU64 = AtomicU64::new(HOG_FOR_US);

/// A yield that began and ended at these times let a busy program run. Those that were kept off by the same turn of it
/// have found nothing new.
#[cold]
fn hogged(began: u64, now: u64) {
    if began < HOGGED_AT.load(Ordering::Relaxed) {
        return;
    }
    HOGGED_AT.store(now, Ordering::Relaxed);
    let calm = began.saturating_sub(HOGGED_UNTIL.load(Ordering::Relaxed));
    let mut long = HOG_FOR.load(Ordering::Relaxed);
    if calm > clock::us(long) {
        long = HOG_FOR_US;
    }
    HOG_FOR.store((2 * long).min(HOG_AT_MOST_US), Ordering::Relaxed);
    // The end is a moment that other processes come to as well: one that yields among others that sleep gets no turn.
    // (a power of two, the same number of ticks in all of them)
    let period = clock::us(long).next_power_of_two();
    let until = ((now + period / 2) / period + 1) * period;
    HOGGED_UNTIL.store(until, Ordering::Relaxed);
}

/// Whether a busy program was found on the core lately: whoever is woken up beside runs at the cost of others.
#[inline]
pub(crate) fn is_hogged() -> bool {
    clock::ticks() < HOGGED_UNTIL.load(Ordering::Relaxed)
}

/// Whether the core is shared with others who wait and yield (the peer, perhaps): then a yield is the
/// quickest look, and looking without one only keeps them off.
#[derive(Debug)]
pub(crate) struct Company(AtomicBool);

impl Company {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Whether it was found so.
    #[inline]
    pub(crate) fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
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

/// Looks until something is found (true), the budget (µs) is spent, or a handler has run since the call
/// began. `look` is told how often it was called; `stop` ends the looks early.
pub(crate) fn spin(
    budget_us: u32,
    company: &Company,
    since: Since,
    mut look: impl FnMut(u32) -> bool,
    stop: impl Fn() -> bool,
) -> bool {
    if budget_us == 0 {
        return look(0);
    }
    if is_hogged() {
        return look(0);
    }
    let mut now = clock::ticks();
    if !company.is_known() {
        for turn in 0..PAUSES {
            if look(turn) {
                return true;
            }
            std::hint::spin_loop();
        }
    }
    now = now.max(clock::ticks());
    let budget = clock::us(u64::from(budget_us));
    let (foreign, hog) = (clock::us(FOREIGN_US), clock::us(HOG_US));
    let turn_of_hog = clock::us(TURN_US);
    let turn_of_many = clock::us(TURN_OF_MANY_US);
    let judged_from = HOGGED_UNTIL.load(Ordering::Relaxed) + clock::us(GRACE_US);
    let mut spent = 0;
    let mut turn = PAUSES;
    while spent < budget && !since.any() {
        let turns = turns();
        let before = turns.load(Ordering::Relaxed);
        sys::yield_core();
        let after = clock::ticks();
        let (began, took) = (now, after - now);
        now = after;
        let others = turns.fetch_add(1, Ordering::Relaxed) - before;
        company.0.store(took > foreign, Ordering::Relaxed);
        let found = look(turn);
        // (what was waited for may well have come during its turn)
        let many = hog + others * turn_of_many;
        let is_hog = took > if found { many.max(turn_of_hog) } else { many };
        let is_hog = is_hog && (began > judged_from || took > turn_of_hog);
        let is_hog = is_hog && !(took < clock::us(CROWD_TURN_US) && is_crowd(took, others, now));
        if is_hog {
            hogged(began, now);
        }
        if found || is_hog {
            return found;
        }
        spent += if took > foreign {
            TURN_COST * foreign
        } else {
            took.max(1)
        };
        turn += 1;
        if turn.is_multiple_of(16) && stop() {
            return false;
        }
    }
    // The core is ours, or shared with those who yield too.
    HOG_FOR.store(HOG_FOR_US, Ordering::Relaxed);
    false
}
