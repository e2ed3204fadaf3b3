//! Memory of connections that rest. What a stream has put into its region stays there when it was read, so each connection
//! that has ever carried much would hold a whole region for as long as it is open, as a server's many that are kept alive
//! are. A region whose stream has sent nothing for a while, and of which everything was read, is given back to the system;
//! the next bytes find fresh memory there.
//!
//! Looked at whenever a call is about to wait ([`attend`]), about once a second; sleeps in poll and epoll are naps ([`nap`])
//! until what was carried last has been looked at. Only the sending side may do it: nobody else puts anything there, and it
//! knows what was read. A thread that sleeps in a blocking call does nothing of it.

use super::{Phase, Socket};
use crate::world;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use transport::clock;
use transport::sdp::Leg;

/// How long (µs) between two looks, and so how long at least a stream has rested.
const REST_US: u64 = 1_000_000;
/// Bytes that were ever sent, for which it is worth a system call.
const WORTH: u64 = 64 * 1024;
/// Regions that are given back at one look (some µs each), and how long (µs) after that the look goes on.
const MOST: u32 = 100;
const SOON_US: u64 = 10_000;
/// Who waits again so soon (µs) after a look has not been at work.
const SAME_US: u64 = 10_000;

/// When to look next, in ticks.
static NEXT: AtomicU64 = AtomicU64::new(0);
/// Where the look goes on, and whether it has found somebody at work.
static AT: AtomicUsize = AtomicUsize::new(0);
static WORKS: AtomicBool = AtomicBool::new(false);
/// How many looks have found, one after the other, that nothing had moved and there was nothing to wait for, while nobody has
/// been at work in between.
static QUIET: AtomicU8 = AtomicU8::new(0);
/// So many end it. (Work that begins and ends within [`SAME_US`] of the first is seen by the second.)
const ENOUGH: u8 = 2;

/// What a wait begins with.
#[inline]
pub(crate) fn attend() {
    let (now, next) = (clock::ticks(), NEXT.load(Ordering::Relaxed));
    if now >= next {
        look(now, next);
    } else if QUIET.load(Ordering::Relaxed) > 0
        && next - now < clock::us(REST_US).saturating_sub(clock::us(SAME_US))
    {
        QUIET.store(0, Ordering::Relaxed);
    }
}

/// How long (ns) a sleep may be.
#[inline]
pub(crate) fn nap() -> u64 {
    if QUIET.load(Ordering::Relaxed) >= ENOUGH || !world::settings().naps {
        return u64::MAX;
    }
    let left = NEXT.load(Ordering::Relaxed).saturating_sub(clock::ticks());
    clock::ns(left.max(clock::us(SOON_US)))
}

#[cold]
fn look(now: u64, next: u64) {
    let then = now + clock::us(REST_US);
    let (done, lost) = (Ordering::Relaxed, Ordering::Relaxed);
    // (one thread does)
    if world::is_foreign() || NEXT.compare_exchange(next, then, done, lost).is_err() {
        return;
    }
    let mut left = MOST;
    let from = AT.load(Ordering::Relaxed);
    let at = world::lock().pool.each_from(from, |s| {
        match go_over(s) {
            Found::Rest => {}
            Found::Work => WORKS.store(true, Ordering::Relaxed),
            Found::Freed => left -= 1,
        }
        left > 0
    });
    AT.store(at.unwrap_or(0), Ordering::Relaxed);
    if at.is_some() {
        NEXT.store(now + clock::us(SOON_US), Ordering::Relaxed);
        return;
    }
    let quiet = QUIET.load(Ordering::Relaxed).saturating_add(1);
    let works = WORKS.swap(false, Ordering::Relaxed);
    QUIET.store(if works { 0 } else { quiet }, Ordering::Relaxed);
}

/// In a stream's mark: what it had in its region has gone back to the system since.
const FREED: u8 = 1 << 7;

/// Changes with nearly every send. (Where it does not, a stream that works is taken for one that rests: a page fault more.)
#[allow(clippy::cast_possible_truncation)]
const fn mark(sent: u64) -> u8 {
    (sent ^ sent >> 7 ^ sent >> 14 ^ sent >> 21) as u8 & !FREED
}

enum Found {
    /// Nothing that is to be looked at again before something happens.
    Rest,
    Work,
    /// Its region has gone back to the system now.
    Freed,
}

fn go_over(s: &'static Socket) -> Found {
    let sent = s.record.bytes_sent.load(Ordering::Relaxed);
    let mark = mark(sent);
    let before = s.sent_mark.load(Ordering::Relaxed);
    let moved = before & !FREED != mark;
    if moved {
        s.sent_mark.store(mark, Ordering::Relaxed);
    }
    if s.phase() != Phase::Attached || s.is_over() || s.is_shared() {
        return Found::Rest; // (of those that share it each counts what it has sent itself)
    }
    if moved {
        return Found::Work;
    }
    if sent < WORTH || before & FREED != 0 {
        return Found::Rest;
    }
    let Some(p) = s.segment().filter(|_| s.tx_leg() == Leg::Fast) else {
        return Found::Rest;
    };
    // (another process of several may be in the middle of a send)
    let Ok(tx) = s.tx.lock_soon() else {
        return Found::Work;
    };
    if s.phase() != Phase::Attached || !tx.has_nothing_there(p) {
        return Found::Work;
    }
    s.sent_mark.store(mark | FREED, Ordering::Relaxed);
    p.give_back_region();
    Found::Freed
}
