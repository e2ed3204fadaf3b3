//! Which of two patiences with its hot entries suits a set that has many. Called by `hot` and `look`, under the set's lock.
//!
//! Looks in vain that are few among many hot entries pay where most of these are idle. Where all have traffic, entries that are left to
//! their bells make both sides so slow that none has anything soon again, and that goes on: what looks would find shows only when
//! they are made. So at times a set tries the other patience for a moment, and keeps the one with which it told of more.
//! (Correctness never depends on it: an entry may be left to its bell, or looked at, at any time.)

use transport::clock;

/// How long (µs) one stays with what seemed better, before the other is tried; and how often that doubles where trying it was in vain.
const SETTLED_US: u64 = 300_000;
const DOUBLINGS: u32 = 3;
/// How long (µs) entries take to warm up, or to cool down, before that counts, and for how long it counts.
const WARM_US: u64 = 10_000;
const COUNT_US: u64 = 20_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Settled,
    /// With the other patience; it does not count yet.
    Warming,
    Counting,
}

/// What a set with many hot entries has found out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trial {
    stage: Stage,
    /// Since when (ticks); 0 before the first turn.
    since: u64,
    /// Events told of since.
    events: u64,
    /// Events in so long ([`SETTLED_US`]) with what is settled on.
    usual: u64,
    /// The long patience is the better one.
    prefers_long: bool,
    /// Trials in vain since that was found out.
    vain: u32,
}

impl Trial {
    /// One more event was told of.
    #[inline]
    pub(super) const fn told(&mut self) {
        self.events += 1;
    }

    /// Whether the long patience applies now.
    #[inline]
    pub(super) const fn is_long(&self) -> bool {
        self.prefers_long == matches!(self.stage, Stage::Settled)
    }

    /// A call begins on a set with many hot entries, now (ticks).
    pub(super) fn turn(&mut self, now: u64) {
        let took = now.wrapping_sub(self.since);
        let span = clock::us(match self.stage {
            Stage::Settled => SETTLED_US << self.vain,
            Stage::Warming => WARM_US,
            Stage::Counting => COUNT_US,
        });
        if took < span {
            return;
        }
        let is_steady = self.since != 0 && took < 2 * span; // (a pause counts for nothing)
        let rate = self.events * SETTLED_US / (took / clock::us(1).max(1)).max(1);
        self.stage = match self.stage {
            Stage::Settled if is_steady => {
                self.usual = rate;
                Stage::Warming
            }
            Stage::Warming if is_steady => Stage::Counting,
            Stage::Counting => {
                // (the short one is left for clearly more only, as the long one costs those who share the processor)
                let is_better = match self.prefers_long {
                    false => rate > self.usual + self.usual / 4,
                    true => rate + rate / 4 > self.usual,
                };
                let changes = is_steady && is_better;
                self.prefers_long ^= changes;
                self.vain = if changes {
                    0
                } else {
                    (self.vain + 1).min(DOUBLINGS)
                };
                Stage::Settled
            }
            _ => Stage::Settled,
        };
        (self.since, self.events) = (now, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many ms with so many events in each, by patience: how often the long one applied, in percent.
    fn run(trial: &mut Trial, now: &mut u64, ms: u64, [short, by_long]: [u64; 2]) -> u64 {
        let mut long = 0;
        for _ in 0..ms {
            long += u64::from(trial.is_long());
            let events = if trial.is_long() { by_long } else { short };
            (0..events).for_each(|_| trial.told());
            *now += clock::us(1000);
            trial.turn(*now);
        }
        long * 100 / ms
    }

    #[test]
    fn the_better_patience_is_found_and_left_again() {
        let (mut trial, mut now) = (Trial::default(), 1);
        let mut percent = |rates| run(&mut trial, &mut now, 10_000, rates);
        assert!(percent([100, 100]) < 5);
        assert!(percent([100, 300]) > 70);
        assert!(percent([300, 100]) < 30);
        assert!(percent([0, 0]) < 5);
    }
}
