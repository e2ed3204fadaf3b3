//! A reader that is as fast as the one who sends to it finds one small message a look, and each look takes the line with
//! the sender's counters to the reader's core: both then wait for that line with every message. So where this is seen
//! to go on, looks are kept a moment apart, and each finds several messages.
//!
//! Not for a reader that sends as well, for somebody waits for its answers; nor where more time than that passes
//! between looks anyway. Bytes that this side has counted are never waited for (what epoll has reported may be: a reader
//! of one connection after the other then comes to each a moment later).

use crate::clock;

/// Looks in a row that found little.
const STREAK: u8 = 16;
const MOST: u8 = 2 * STREAK;

/// Bytes that are little.
const LITTLE: usize = 4096;

/// How far (ns) looks are kept apart, and how far they may be of themselves for that to begin.
const APART_NS: u64 = 2000;
const NEAR_NS: u64 = 4000;

/// How the looks of one reader follow each other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// When it looked last, in ticks, as far as they fit.
    last: u32,
    /// How much it had sent then, likewise.
    sent: u16,
    streak: u8,
}

impl Pace {
    /// Before a look of a reader that knows of nothing, and has sent so many messages.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // (only whether it has changed)
    pub(super) fn before_look(&mut self, sent: u64) {
        if self.sent != sent as u16 {
            (self.sent, self.streak) = (sent as u16, 0);
        } else if self.streak >= STREAK {
            self.keep_apart();
        }
    }

    /// What the look has found, in bytes.
    #[inline]
    pub(super) fn found(&mut self, bytes: usize) {
        self.streak = match bytes {
            0 => 0,
            1..LITTLE => (self.streak + 1).min(MOST),
            _ => self.streak.saturating_sub(1),
        };
    }

    #[allow(clippy::cast_possible_truncation)] // (differences of a few microseconds)
    fn keep_apart(&mut self) {
        let now = clock::ticks() as u32;
        let (apart, near) = (clock::us(APART_NS) / 1000, clock::us(NEAR_NS) / 1000);
        let passed = now.wrapping_sub(self.last);
        self.last = now;
        if u64::from(passed) > near {
            return;
        }
        let mut waited = passed;
        while u64::from(waited) < apart {
            std::hint::spin_loop();
            self.last = clock::ticks() as u32;
            waited = passed.wrapping_add(self.last.wrapping_sub(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LITTLE, MOST, Pace, STREAK};

    fn little_for(pace: &mut Pace, looks: u8, sent: u64) {
        for _ in 0..looks {
            pace.before_look(sent);
            pace.found(64);
        }
    }

    #[test]
    fn looks_that_find_little_make_a_streak() {
        let mut pace = Pace::default();
        little_for(&mut pace, STREAK - 1, 0);
        assert!(pace.streak < STREAK);
        little_for(&mut pace, u8::MAX, 0);
        assert_eq!(pace.streak, MOST, "and it does not run over");
    }

    #[test]
    fn what_is_sent_ends_it_and_so_does_nothing_found() {
        let mut pace = Pace::default();
        little_for(&mut pace, MOST, 0);
        pace.before_look(1);
        assert_eq!(pace.streak, 0);
        little_for(&mut pace, MOST, 1);
        pace.found(0);
        assert_eq!(pace.streak, 0);
    }

    #[test]
    fn much_wears_it_off() {
        let mut pace = Pace::default();
        little_for(&mut pace, MOST, 0);
        for _ in 0..=MOST - STREAK {
            pace.found(LITTLE);
        }
        assert!(pace.streak < STREAK);
    }
}
