//! When a message is large, and in which pieces its two copiers share it.

use super::choice::Choice;
use crate::clock;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// `SHUNT_ZCOPY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    Off = 0,
    Auto = 1,
    Sync = 2,
    /// As `Sync`, where a message cannot be held in place (`super::held`).
    Async = 3,
}

/// What is done about a write to a message that is held in place and has not been read (`SHUNT_ZCOPY_WRITE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Touch {
    /// Wait for as long as copying would take, then copy: at most twice what the better of the two
    /// would have cost, whatever the reader does.
    Measured = 0,
    /// Copy at once.
    Copy = 1,
    /// Wait for the reader, within bounds.
    Wait = 2,
}

static MODE: AtomicU8 = AtomicU8::new(Mode::Off as u8);
/// Bytes from which on a message is large. Beyond everything while the mode is `off`.
static LARGE: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The pieces that are claimed at once, in bytes: half of what is left, within these.
const LEAST: u64 = 32 * 1024;
const MOST: u64 = 256 * 1024;
const PAGE: u64 = 4096;

/// By choice, bytes of a message that go by one way; then it is chosen anew. A message counts for the choice as
/// often as it has such parts: otherwise finding out which way is faster would take some very large ones.
const STAGE: usize = 2 << 20;

/// Bytes up to which two claims are enough. (Of more, whoever comes late would be left too little.)
const HALVED: u64 = 256 * 1024;

/// How long (µs) a source waits for a sink that is in the middle of a piece; then it takes the claim back.
const PATIENCE_US: u64 = 1_000;

/// Most messages that pass before a reader that did not come is waited for again.
pub(super) const LONGEST_PASS: u32 = 127;

/// Bytes that a copy into the ring moves in a microsecond, about; and the longest (µs) to wait for a reader.
const BYTES_A_US: u64 = 8192;
const WAIT_US: u64 = 60;
/// How long (µs) a reader takes at most from the end of a read to the next, if it does nothing else.
const RETURN_US: u64 = 2;

/// [`RETURN_US`] in ticks.
#[must_use]
pub fn return_time() -> u64 {
    clock::us(RETURN_US)
}

/// How long, in ticks, a copy of so many bytes through the ring would take, roughly, within bounds.
#[must_use]
pub fn copy_time(bytes: u64) -> u64 {
    clock::us((bytes / BYTES_A_US + 2).min(WAIT_US))
}

/// How long (µs) a sender that could copy waits for the reader: by its settings; by choice; by choice before it
/// is known whether that reader comes; by choice for one that is on its way, or where many wait for a core.
const SYNC_US: u64 = 1_000_000;
const AUTO_US: u64 = 5_000;
const TRIAL_US: u64 = 500;
const COMES_US: u64 = 50_000;

/// The longest such wait, in ticks. Where the reader has never come, or not the last time, it is the shorter the
/// more waits of this process were in vain ([`note_reader`]).
#[must_use]
pub fn longest_wait(choice: &Choice, comes: bool) -> u64 {
    let doubt = if choice.is_trusted() {
        0
    } else {
        DOUBT.load(Ordering::Relaxed)
    };
    let most = clock::us(match mode() {
        Mode::Auto if comes || choice.is_crowded() => COMES_US >> doubt,
        Mode::Auto if choice.is_known() => AUTO_US >> doubt,
        Mode::Auto => TRIAL_US >> doubt,
        Mode::Async => return clock::us(AUTO_US),
        _ => return clock::us(SYNC_US),
    });
    let owed = OWED.load(Ordering::Relaxed);
    most.min(allowance(clock::ticks(), owed, clock::us(VAIN_US)).max(clock::us(LEAST_US)))
}

/// Waits in vain may take one part in so many of a process's time, and so much (µs) at once; a wait always has
/// this long (µs).
const SHARE: u64 = 32;
const VAIN_US: u64 = 100_000;
const LEAST_US: u64 = 100;

/// Until when, in ticks, this process has to work to make up for what it has waited in vain.
static OWED: AtomicU64 = AtomicU64::new(0);

/// How long a wait may be, of so much at once.
const fn allowance(now: u64, owed: u64, most: u64) -> u64 {
    most.saturating_sub(owed.saturating_sub(now) / SHARE)
}

/// What is owed after a wait in vain.
fn owed_after(now: u64, owed: u64, waited: u64) -> u64 {
    owed.max(now).saturating_add(waited.saturating_mul(SHARE))
}

/// A wait was in vain, of so many ticks.
pub(super) fn note_vain(waited: u64) {
    let owed = owed_after(clock::ticks(), OWED.load(Ordering::Relaxed), waited);
    OWED.store(owed, Ordering::Relaxed);
    note_reader(false);
}

/// How often this process's waits were in vain, less how often a reader came that was not trusted: each halves
/// the next. Otherwise a server whose clients come late, each with a connection of its own, would wait long for
/// every one of them, and so would two programs of one thread each that send to one another on many connections,
/// each waiting for the other to read a different one.
static DOUBT: AtomicU32 = AtomicU32::new(0);
const MOST_DOUBT: u32 = 9;

fn after(doubt: u32, came: bool) -> u32 {
    if came {
        doubt.saturating_sub(1)
    } else {
        (doubt + 1).min(MOST_DOUBT)
    }
}

/// A wait was in vain, or a reader came that was not trusted.
pub(super) fn note_reader(came: bool) {
    let doubt = DOUBT.load(Ordering::Relaxed);
    let next = after(doubt, came);
    if next != doubt {
        DOUBT.store(next, Ordering::Relaxed);
    }
}

/// Sets both, once at start.
pub fn set(mode: Mode, large: usize) {
    let large = if mode == Mode::Off { usize::MAX } else { large };
    MODE.store(mode as u8, Ordering::Relaxed);
    LARGE.store(large, Ordering::Relaxed);
}

/// The mode.
#[inline]
#[must_use]
pub fn mode() -> Mode {
    match MODE.load(Ordering::Relaxed) {
        1 => Mode::Auto,
        2 => Mode::Sync,
        3 => Mode::Async,
        _ => Mode::Off,
    }
}

/// Bytes from which on a message is large.
#[inline]
#[must_use]
pub fn large() -> usize {
    LARGE.load(Ordering::Relaxed)
}

/// How much of the next so many bytes goes by the way that is chosen now.
#[must_use]
pub fn stage(len: usize) -> usize {
    if len < 2 * STAGE || mode() != Mode::Auto {
        len // (no small rest: each part costs both sides a turn)
    } else {
        STAGE
    }
}

/// How much to claim of what is left of so much: whole pages, so that no page is copied to twice. Each claim costs a call
/// of the kernel, so what is copied in a few microseconds is halved once, one half for each side.
#[must_use]
pub fn chunk(total: u64, left: u64) -> u64 {
    let of = if total <= HALVED { total } else { left };
    (of / 2).next_multiple_of(PAGE).clamp(LEAST, MOST)
}

/// [`PATIENCE_US`] in ticks.
#[must_use]
pub fn patience() -> u64 {
    clock::us(PATIENCE_US)
}

#[cfg(test)]
mod tests {
    use super::{
        COMES_US, HALVED, LEAST, MOST, MOST_DOUBT, PAGE, after, allowance, chunk, owed_after,
    };

    /// The claims of one message.
    fn claims(total: u64) -> Vec<u64> {
        let mut left = total;
        let mut all = Vec::new();
        while left > 0 {
            let len = chunk(total, left).min(left);
            all.push(len);
            left -= len;
        }
        all
    }

    #[test]
    fn short_messages_are_halved_once_and_long_ones_follow_who_is_idle() {
        assert_eq!(claims(LEAST), [LEAST]);
        assert_eq!(claims(2 * LEAST), [LEAST, LEAST]);
        assert_eq!(claims(128 << 10), [64 << 10, 64 << 10]);
        assert_eq!(claims(HALVED), [HALVED / 2, HALVED / 2]);
        let long = claims(1 << 20);
        assert!(
            long.iter().all(|&n| n <= MOST) && long.last() == Some(&LEAST),
            "{long:?}"
        );
        for total in (1..600).map(|n| n * 1000) {
            let all = claims(total);
            assert_eq!(all.iter().sum::<u64>(), total);
            let whole = all.iter().rev().skip(1).all(|n| n.is_multiple_of(PAGE));
            assert!(whole, "{all:?}");
        }
    }

    #[test]
    fn clients_that_come_late_are_soon_waited_for_no_longer_and_again_once_they_come() {
        let (mut doubt, mut waited) = (0, 0);
        for _ in 0..1000 {
            waited += COMES_US >> doubt;
            doubt = after(doubt, false);
        }
        assert!(waited < 200_000, "{waited} us for 1000 connections");
        assert_eq!(doubt, MOST_DOUBT);
        for _ in 0..MOST_DOUBT {
            doubt = after(doubt, true);
        }
        assert_eq!((doubt, after(0, true)), (0, 0));
    }

    #[test]
    fn waits_in_vain_take_a_small_part_of_the_time() {
        let (mut now, mut owed, mut waited) = (1_000_000_u64, 0, 0);
        let begun = now;
        for _ in 0..100_000 {
            let wait = allowance(now, owed, 1_000).min(500);
            (now, waited) = (now + wait, waited + wait);
            owed = owed_after(now, owed, wait);
            now += 300; // and works for a while
        }
        assert!(waited < (now - begun) / 20, "{waited} of {}", now - begun);
        assert_eq!(allowance(owed, owed, 1_000), 1_000);
    }
}
