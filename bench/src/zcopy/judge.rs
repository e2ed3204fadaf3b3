//! Each mode against the ring: by how much, from which size on, and where `auto` loses what it must not. Pure arithmetic
//! over the runs; called by `stream`, `many` and `targets`.
//!
//! Each round gives one ratio, of runs that were made close together: what the machine does to all of them alike drops
//! out. Shown are the median of these ratios and their quartiles.

use serde::Serialize;

use super::mode::Mode;
use super::proof::{Claim, share_of};
use super::stream::{Kind, Run};
use crate::prog::BufferUse;
use crate::stats::Quartiles;
use crate::table::{groups, keys};

/// By how much `auto` may be slower than `off`.
pub(super) const TOLERATED: f64 = 0.97;

/// One mode over the ring at one size; more than 1 is faster.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Against {
    pub kind: Kind,
    pub buffers: BufferUse,
    pub mode: Mode,
    pub size: usize,
    pub rounds: usize,
    pub ratio: f64,
    pub ratio_q1: f64,
    pub ratio_q3: f64,
    pub ratio_min: f64,
    pub ratio_max: f64,
    pub zcopy_share: Option<f64>,
    pub claim: Claim,
}

impl Against {
    pub(super) fn ratio(&self) -> Quartiles {
        Quartiles {
            min: self.ratio_min,
            q1: self.ratio_q1,
            median: self.ratio,
            q3: self.ratio_q3,
            max: self.ratio_max,
        }
    }

    /// Faster than the ring, and by what the mode is called after: a copy that came out ahead of a copy is noise.
    fn beats(&self) -> bool {
        let carried = match self.mode {
            Mode::Auto => self.zcopy_share > Some(0.0),
            _ => true,
        };
        self.claim == Claim::Held && carried && self.ratio > 1.0
    }
}

/// `value` of every run of `ours` over that of the run of `theirs` in the same round.
pub(super) fn paired<T>(
    ours: &[&T],
    theirs: &[&T],
    round: impl Fn(&T) -> usize,
    value: impl Fn(&T) -> f64,
) -> Option<Quartiles> {
    let ratio = |run: &&T| {
        let other = theirs.iter().find(|other| round(other) == round(run))?;
        Some(value(run) / value(other))
    };
    Quartiles::of(ours.iter().filter_map(ratio))
}

/// Every mode but the ring itself.
pub(super) fn against(runs: &[Run]) -> Vec<Against> {
    let mut against = Vec::new();
    for ((buffers, size), of_point) in groups(runs, |run| (run.buffers, run.size)) {
        let of = |mode: Mode| -> Vec<&Run> {
            let of_mode = of_point.iter().filter(|run| run.mode == mode);
            of_mode.copied().collect()
        };
        let ring = of(Mode::Off);
        for mode in Mode::ALL {
            let ours = of(mode);
            let ratio = paired(&ours, &ring, |run| run.round, |run| run.gb_per_s);
            let claim = ours.iter().map(|run| run.claim).min();
            let Some(((ratio, claim), first)) = ratio.zip(claim).zip(ours.first()) else {
                continue;
            };
            if mode != Mode::Off {
                against.push(Against {
                    kind: first.kind,
                    buffers,
                    mode,
                    size,
                    rounds: ours.len(),
                    ratio: ratio.median,
                    ratio_q1: ratio.q1,
                    ratio_q3: ratio.q3,
                    ratio_min: ratio.min,
                    ratio_max: ratio.max,
                    zcopy_share: share_of(mode, &ours, |run| run.zcopy_share),
                    claim,
                });
            }
        }
    }
    against
}

/// From which size on a mode beats the ring at that and at every larger size that was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct BreakEven {
    pub kind: Kind,
    pub buffers: BufferUse,
    pub mode: Mode,
    pub size: Option<usize>,
    /// Where there is none.
    pub why: Option<&'static str>,
}

pub(super) fn break_even(against: &[Against]) -> Vec<BreakEven> {
    let mut found = Vec::new();
    for ((buffers, mode), mut sizes) in groups(against, |one| (one.buffers, one.mode)) {
        sizes.sort_by_key(|one| one.size);
        let winning = sizes.iter().rev().take_while(|one| one.beats());
        let size = winning.last().map(|one| one.size);
        let Some(largest) = sizes.last() else {
            continue;
        };
        let why = match largest.claim {
            Claim::Copied => "messages were copied",
            Claim::Partly => "only a part went without the ring",
            Claim::Held if mode == Mode::Auto && largest.zcopy_share == Some(0.0) => {
                "it chose to copy"
            }
            Claim::Held => "slower at the largest size",
        };
        found.push(BreakEven {
            kind: largest.kind,
            buffers,
            mode,
            size,
            why: size.is_none().then_some(why),
        });
    }
    // In the order in which the points are shown.
    let order = keys(&found, |one| one.buffers);
    found.sort_by_key(|one| order.iter().position(|buffers| *buffers == one.buffers));
    found
}

/// `auto` where it is slower than `off` by more than is allowed.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Slower {
    pub kind: Kind,
    pub buffers: BufferUse,
    pub size: usize,
    pub ratio: f64,
    pub ratio_q1: f64,
    pub ratio_q3: f64,
    /// Three quarters of the rounds say so, and not only half of them.
    pub beyond_spread: bool,
}

/// How many points were compared, and which are too slow.
pub(super) fn slower(against: &[Against]) -> (usize, Vec<Slower>) {
    let auto = || against.iter().filter(|one| one.mode == Mode::Auto);
    let slow = auto().filter(|one| one.ratio < TOLERATED);
    let flagged = slow.map(|one| Slower {
        kind: one.kind,
        buffers: one.buffers,
        size: one.size,
        ratio: one.ratio,
        ratio_q1: one.ratio_q1,
        ratio_q3: one.ratio_q3,
        beyond_spread: one.ratio_q3 < TOLERATED,
    });
    (auto().count(), flagged.collect())
}

#[cfg(test)]
mod tests {
    use super::super::stream::tests::{copied, run};
    use super::*;

    const SIZES: [usize; 3] = [1024, 4096, 16_384];

    /// Runs of the ring at 10 GB/s, and of a mode at so many times that.
    fn runs(mode: Mode, ratios: [f64; 3]) -> Vec<Run> {
        let at = |(size, ratio): (usize, f64)| {
            (0..3).flat_map(move |round| {
                // The machine changes its mood from round to round, for both.
                let ring = 10.0 + round as f64 * 5.0;
                [
                    run(Mode::Off, size, round, ring),
                    run(mode, size, round, ring * ratio),
                ]
            })
        };
        SIZES.into_iter().zip(ratios).flat_map(at).collect()
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let against = against(&runs(Mode::Sync, [0.5, 1.5, 2.0]));
        assert_eq!(against.len(), 3);
        assert!((against[0].ratio_min - 0.5).abs() < 1e-9);
        assert!((against[0].ratio_max - 0.5).abs() < 1e-9);
    }

    #[test]
    fn break_even_is_where_every_larger_size_wins() {
        let of = |ratios| break_even(&against(&runs(Mode::Sync, ratios)))[0].clone();
        assert_eq!(of([0.5, 1.5, 2.0]).size, Some(4096));
        assert_eq!(of([1.5, 0.9, 2.0]).size, Some(16_384));
        let none = of([1.5, 1.5, 0.9]);
        assert_eq!(
            (none.size, none.why),
            (None, Some("slower at the largest size"))
        );
    }

    #[test]
    fn a_copy_never_breaks_even() {
        let fast = runs(Mode::Async, [1.5, 1.5, 1.5]).into_iter();
        let fast = fast.map(|run| {
            if run.mode == Mode::Off {
                run
            } else {
                copied(run)
            }
        });
        let found = break_even(&against(&fast.collect::<Vec<_>>()));
        assert_eq!(
            (found[0].size, found[0].why),
            (None, Some("messages were copied"))
        );
        let chosen: Vec<Run> = runs(Mode::Auto, [1.5, 1.5, 1.5])
            .into_iter()
            .map(copied)
            .collect();
        assert_eq!(
            break_even(&against(&chosen))[0].why,
            Some("it chose to copy")
        );
    }

    #[test]
    fn auto_is_flagged_beyond_three_per_cent() {
        let (points, slow) = slower(&against(&runs(Mode::Auto, [0.96, 0.98, 2.0])));
        assert_eq!((points, slow.len()), (3, 1));
        assert!(slow[0].size == 1024 && slow[0].beyond_spread);
        assert_eq!(slower(&against(&runs(Mode::Sync, [0.5; 3]))).0, 0);
    }
}
