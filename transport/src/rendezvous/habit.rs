//! What the connections to one address are like, where one after the other ends after a message or two: whether the next is
//! announced at once, or only if it lasts.
//!
//! Which of the two lets more of them through depends on the machine and on the program's threads, and changes with them. So
//! it is measured: the time between their ends, for a few hundred of them one way, then the other way; the faster stays for
//! some thousands, and is held against the other again.
//!
//! Connections that stay on the kernel leave their ports behind for a while (TIME_WAIT), which one of Shunt's does not. Where
//! ports become scarce, connections are announced at once, whatever was measured: looking for a free port would soon cost
//! more than anything else.
//!
//! Rule: one that lasts ends the habit, and the next are announced at once. Pure: the time is handed in. Kept by
//! [`super::target`].

#![forbid(unsafe_code)]

/// So many brief connections in a row are a habit.
const RUN: u32 = 64;
/// Ends that are left out after a change, and ends that are measured.
const SKIPPED: u32 = 32;
const MEASURED: u32 = 256;
/// Connections between two trials of the other way.
const KEPT: u32 = 8192;

#[derive(Debug, Default)]
pub(super) struct Habit {
    /// Brief connections in a row.
    run: u32,
    /// Announced only if they last.
    defers: bool,
    /// The other way is being tried: how long that many ends took before.
    trial: Option<u64>,
    /// Ends since the last change or trial, and how long the last of them took that are measured.
    ended: u32,
    took: u64,
    last: u64,
}

impl Habit {
    /// Whether the next connection is to be announced only if it lasts.
    pub(super) const fn defers(&self) -> bool {
        self.defers
    }

    /// Ports are scarce.
    pub(super) fn note_scarcity(&mut self) {
        if self.defers || self.trial.is_some() {
            *self = Self {
                run: RUN,
                last: self.last,
                ..Self::default()
            };
        }
    }

    /// A connection has ended at this time, after a message or two or not. Longer times than `most` between two ends are the
    /// program's, and count as that.
    pub(super) fn ended(&mut self, brief: bool, now: u64, most: u64) {
        if !brief {
            *self = Self::default();
            return;
        }
        let gap = now.saturating_sub(self.last).min(most);
        self.last = now;
        if self.run < RUN {
            self.run += 1;
            self.ended = KEPT - MEASURED - SKIPPED; // the first trial comes soon
            return;
        }
        self.ended += 1;
        let until = if self.trial.is_some() {
            SKIPPED + MEASURED
        } else {
            KEPT
        };
        if self.ended + MEASURED > until {
            self.took += gap;
        }
        if self.ended < until {
            return;
        }
        let took = std::mem::take(&mut self.took);
        self.ended = 0;
        match self.trial.take() {
            None => {
                self.trial = Some(took);
                self.defers = !self.defers;
            }
            // (a twentieth is no difference)
            Some(before) if took > before - before / 20 => self.defers = !self.defers,
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends `count` connections, each of which takes so long by how it goes; how many were put off.
    fn end(habit: &mut Habit, now: &mut u64, count: u32, (at_once, put_off): (u64, u64)) -> u32 {
        let mut deferred = 0;
        for _ in 0..count {
            deferred += u32::from(habit.defers());
            *now += if habit.defers() { put_off } else { at_once };
            habit.ended(true, *now, 10_000);
        }
        deferred
    }

    #[test]
    fn the_faster_way_is_taken_most_of_the_time() {
        for (costs, put_off) in [((100, 70), true), ((70, 100), false), ((100, 98), false)] {
            let (mut habit, mut now) = (Habit::default(), 5);
            let deferred = end(&mut habit, &mut now, 100_000, costs);
            let share = if put_off {
                deferred
            } else {
                100_000 - deferred
            };
            assert!((95_000..100_000).contains(&share), "{costs:?}: {share}");
            // It changes its mind when the machine does.
            let deferred = end(&mut habit, &mut now, 100_000, (costs.1, costs.0));
            if costs.0.abs_diff(costs.1) > 5 {
                let share = if put_off {
                    100_000 - deferred
                } else {
                    deferred
                };
                assert!(share > 85_000, "{costs:?}, turned round: {share}");
            }
        }
    }

    #[test]
    fn a_few_are_no_habit_and_one_that_lasts_ends_it() {
        let (mut habit, mut now) = (Habit::default(), 0);
        assert_eq!(end(&mut habit, &mut now, RUN + SKIPPED, (100, 1)), 0);
        assert!(end(&mut habit, &mut now, 1000, (100, 1)) > 0 && habit.defers());
        habit.ended(false, now, 10_000);
        assert!(!habit.defers());
        assert_eq!(end(&mut habit, &mut now, RUN + SKIPPED, (100, 1)), 0);
    }

    #[test]
    fn scarce_ports_end_it_until_the_next_trial() {
        let (mut habit, mut now) = (Habit::default(), 0);
        end(&mut habit, &mut now, 1000, (100, 1));
        assert!(habit.defers());
        habit.note_scarcity();
        assert_eq!(end(&mut habit, &mut now, KEPT, (100, 1)), 0);
        assert!(habit.defers());
    }

    #[test]
    fn a_program_that_pauses_says_nothing_of_either() {
        let mut habit = Habit::default();
        let mut now = 0;
        for i in 0..50_000_u64 {
            now += if i.is_multiple_of(3) { 1 << 40 } else { 100 };
            habit.ended(true, now, 10_000);
        }
        assert!(habit.took <= u64::from(MEASURED) * 10_000);
    }
}
