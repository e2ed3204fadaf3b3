//! From samples to a row: medians, ratios, and whether each target was met. Called by `compare`. Pure arithmetic.

use std::time::Duration;

use serde::Serialize;

use super::case::{Better, Case, FloorFigure, Target};
use super::exchange::Sample;
use crate::floor::{self, Floor};
use crate::stats::Spread;

/// The repetitions of one side.
#[derive(Default)]
pub(crate) struct Side {
    samples: Vec<Sample>,
    failures: Vec<String>,
    /// What the floor's figure was around each of `samples`, where the measurement has one.
    floors: Vec<f64>,
}

impl Side {
    pub(crate) fn add(&mut self, result: anyhow::Result<Sample>) {
        match result {
            Ok(sample) => self.samples.push(sample),
            Err(error) => self.failures.push(format!("{error:#}")),
        }
    }

    /// A run, and the floor's figure right before and right after it: a virtual machine moves its cores about, from ones that share
    /// a cache to ones that do not, within seconds, and the bare ring is five times slower there too.
    pub(crate) fn add_between(&mut self, result: anyhow::Result<Sample>, around: [f64; 2]) {
        if result.is_ok() {
            self.floors.push(around.iter().sum::<f64>() / 2.0);
        }
        self.add(result);
    }

    /// Nothing is gained by waiting for a third failure.
    pub(crate) fn hopeless(&self) -> bool {
        self.failures.len() >= 2
    }

    fn figures(&self) -> Option<Figures> {
        let values: Vec<f64> = self
            .samples
            .iter()
            .map(|sample| sample.reading.value)
            .collect();
        let median = |of: fn(&Sample) -> f64| {
            Spread::of(&self.samples.iter().map(of).collect::<Vec<_>>())
                .map_or(0.0, |spread| spread.median)
        };
        Some(Figures {
            value: Spread::of(&values)?,
            server_cpu_ns: median(|sample| sample.server_cpu_ns),
            client_cpu_ns: median(|sample| sample.client_cpu_ns),
            values,
        })
    }
}

/// One side of a row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    #[serde(flatten)]
    pub value: Spread,
    /// CPU time, ns per unit.
    pub server_cpu_ns: f64,
    pub client_cpu_ns: f64,
    pub values: Vec<f64>,
}

/// One target and what was reached.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Judged {
    pub target: String,
    pub reached: f64,
    pub met: bool,
    /// The ratio to the kernel's median that would meet it, where it can be said as one: the plot's mark.
    pub mark: Option<f64>,
}

/// One measurement's result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub name: &'static str,
    pub what: &'static str,
    pub unit: &'static str,
    pub per: &'static str,
    pub kernel: Option<Figures>,
    pub shunt: Option<Figures>,
    /// How many times better than the kernel's median.
    pub ratio: Option<f64>,
    /// The median of the floor's figures around Shunt's runs; for the kernel alone that of the beginning.
    pub floor: Option<f64>,
    /// Median of the runs' ratios to the floor around each.
    pub to_floor: Option<f64>,
    /// What the ratio would be if Shunt were the floor itself: no target above it can be met on this machine.
    pub ceiling: Option<f64>,
    pub targets: Vec<Judged>,
    /// Why there is no result.
    pub failed: Option<String>,
    pub skipped: Option<String>,
}

impl Row {
    fn empty(case: &Case) -> Self {
        Self {
            name: case.name,
            what: case.what,
            unit: case.unit,
            per: case.per,
            kernel: None,
            shunt: None,
            ratio: None,
            floor: None,
            to_floor: None,
            ceiling: None,
            targets: Vec::new(),
            failed: None,
            skipped: None,
        }
    }

    pub(crate) fn skipped(case: &Case, why: String) -> Self {
        Self {
            skipped: Some(why),
            ..Self::empty(case)
        }
    }

    /// `shunt` is None where only the kernel was measured. One failed run with the library fails the row.
    pub(crate) fn judge(case: &Case, kernel: &Side, shunt: Option<&Side>, floor: &Floor) -> Self {
        let mut row = Self::empty(case);
        row.kernel = kernel.figures();
        let floors = shunt.map_or(&[][..], |shunt| &shunt.floors);
        let around = Spread::of(floors).map(|spread| spread.median);
        row.floor = around.or(case.floor.map(|figure| figure.of(floor)));
        if row.kernel.is_none() {
            row.failed = Some(format!(
                "kernel TCP: {}",
                kernel.failures.first().map_or("no runs", String::as_str)
            ));
            return row;
        }
        let median = row.kernel.as_ref().map(|kernel| kernel.value.median);
        row.ceiling = row
            .floor
            .zip(median)
            .map(|(floor, kernel)| case.better.times(floor, kernel));
        let Some(shunt) = shunt else { return row };
        if let Some(failure) = shunt.failures.first() {
            let runs = shunt.failures.len() + shunt.samples.len();
            row.failed = Some(format!(
                "Shunt, {} of {runs} runs: {failure}",
                shunt.failures.len()
            ));
            return row;
        }
        row.shunt = shunt.figures();
        if let (Some(kernel), Some(shunt)) = (&row.kernel, &row.shunt) {
            let mut theirs = kernel.value;
            if case.turns > 1 {
                theirs.median = shunt.value.median / paired_ratio(&shunt.values, &kernel.values);
            }
            let ours = shunt.value;
            row.ratio = Some(case.better.times(ours.median, theirs.median));
            let to_floor = (!floors.is_empty()).then(|| paired_ratio(&shunt.values, floors));
            row.to_floor = to_floor.or(row.floor.map(|floor| ours.median / floor));
            let judge = |target: &Target| target.judge(case, theirs, ours, row.to_floor);
            row.targets = case.targets.iter().map(judge).collect();
        }
        row
    }

    pub(crate) fn met(&self) -> bool {
        self.failed.is_none() && self.targets.iter().all(|judged| judged.met)
    }
}

/// Median of the ratios of neighbours in time: what the machine does to both sides alike drops out.
fn paired_ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    let ratios: Vec<f64> = ours
        .iter()
        .zip(theirs)
        .map(|(ours, theirs)| ours / theirs)
        .collect();
    Spread::of(&ratios).map_or(f64::NAN, |spread| spread.median)
}

impl Better {
    /// How many times better `ours` is than `theirs`.
    fn times(self, ours: f64, theirs: f64) -> f64 {
        match self {
            Self::Lower => theirs / ours,
            Self::Higher => ours / theirs,
        }
    }

    fn best(self, spread: Spread) -> f64 {
        if self == Self::Lower {
            spread.min
        } else {
            spread.max
        }
    }

    fn worst(self, spread: Spread) -> f64 {
        if self == Self::Lower {
            spread.max
        } else {
            spread.min
        }
    }
}

impl FloorFigure {
    fn of(self, floor: &Floor) -> f64 {
        match self {
            Self::RoundTripUs => floor.rtt_us.median,
            Self::RoundTripsPerSecond => 1e6 / floor.rtt_us.median,
            Self::MessagesPerSecond => floor.messages_eager.median.max(floor.messages_lazy.median),
            Self::StreamGbPerS => floor.stream(),
        }
    }

    /// One short look at this figure alone.
    pub(crate) fn look(self, each: Duration) -> anyhow::Result<f64> {
        Ok(match self {
            Self::RoundTripUs => floor::round_trip_us(each)?,
            Self::RoundTripsPerSecond => 1e6 / floor::round_trip_us(each)?,
            Self::MessagesPerSecond => floor::messages_per_second(each)?,
            Self::StreamGbPerS => floor::stream_gb_per_s(each)?,
        })
    }
}

impl Target {
    fn judge(self, case: &Case, kernel: Spread, shunt: Spread, to_floor: Option<f64>) -> Judged {
        let better = case.better;
        let (reached, met, mark) = match self {
            Self::OverMedian(x) => at_least(better.times(shunt.median, kernel.median), x, Some(x)),
            Self::OverBest(x) => {
                let best = better.best(kernel);
                at_least(
                    better.times(shunt.median, best),
                    x,
                    Some(x * better.times(best, kernel.median)),
                )
            }
            Self::WorstOverBest(x) => at_least(
                better.times(better.worst(shunt), better.best(kernel)),
                x,
                None,
            ),
            Self::CostAtMost(x) => at_most(shunt.median / kernel.median, x, Some(1.0 / x)),
            Self::ExtraAtMost(x) => at_most(shunt.median - kernel.median, x, None),
            Self::NsPerCallAtMost(x) => at_most(1e9 / shunt.median, x, None),
            Self::OfFloor(x) => at_least(
                to_floor.map_or(0.0, |ratio| better.times(ratio, 1.0)),
                x,
                None,
            ),
        };
        Judged {
            target: self.in_words(case),
            reached,
            met,
            mark,
        }
    }
}

fn at_least(reached: f64, wanted: f64, mark: Option<f64>) -> (f64, bool, Option<f64>) {
    (reached, reached >= wanted, mark)
}

fn at_most(reached: f64, wanted: f64, mark: Option<f64>) -> (f64, bool, Option<f64>) {
    (reached, reached <= wanted, mark)
}

#[cfg(test)]
mod tests {
    use super::super::case::Reading;
    use super::super::own;
    use super::*;

    fn side(values: &[f64]) -> Side {
        let mut side = Side::default();
        for &value in values {
            let reading = Reading { value, units: 1.0 };
            side.add(Ok(Sample {
                reading,
                server_cpu_ns: 0.0,
                client_cpu_ns: 0.0,
            }));
        }
        side
    }

    fn floor() -> Floor {
        let one = Spread {
            median: 0.5,
            min: 0.5,
            max: 0.5,
        };
        Floor {
            rtt_us: one,
            messages_eager: one,
            messages_lazy: one,
            stream_1m: one,
            stream_4m: one,
            memcpy_128k: one,
            memcpy_32m: one,
            futex_us: one,
            futex_same_us: one,
            read_0_ns: one,
            read_1_ns: one,
        }
    }

    fn pingpong() -> Case {
        own::cases()
            .into_iter()
            .find(|case| case.name == "pingpong")
            .unwrap()
    }

    #[test]
    fn lower_is_better_for_times() {
        let row = Row::judge(&pingpong(), &side(&[60.0]), Some(&side(&[0.6])), &floor());
        assert!((row.ratio.unwrap() - 100.0).abs() < 1e-9);
        assert!(row.met(), "{row:?}");
        let slow = Row::judge(&pingpong(), &side(&[60.0]), Some(&side(&[0.9])), &floor());
        assert!(!slow.met(), "1.8 times the floor: {slow:?}");
    }

    #[test]
    fn each_run_is_held_against_the_floor_of_its_own_moment() {
        // The cores move apart after the first run: everything takes five times as long, the floor too.
        let mut shunt = Side::default();
        for (value, around) in [(0.12, [0.1, 0.1]), (0.6, [0.5, 0.5]), (0.65, [0.5, 0.5])] {
            let reading = Reading { value, units: 1.0 };
            let sample = Sample {
                reading,
                server_cpu_ns: 0.0,
                client_cpu_ns: 0.0,
            };
            shunt.add_between(Ok(sample), around);
        }
        let row = Row::judge(&pingpong(), &side(&[60.0]), Some(&shunt), &floor());
        assert!((row.to_floor.unwrap() - 1.2).abs() < 1e-9, "{row:?}");
        assert!(row.met(), "{row:?}");
    }

    #[test]
    fn one_failed_run_fails_the_row() {
        let mut shunt = side(&[0.6, 0.6]);
        shunt.add(Err(anyhow::anyhow!("not on shared memory")));
        let row = Row::judge(&pingpong(), &side(&[60.0]), Some(&shunt), &floor());
        assert!(row.failed.is_some() && row.ratio.is_none() && !row.met());
    }

    #[test]
    fn short_turns_are_compared_with_their_neighbours() {
        let mut case = pingpong();
        case.turns = 2;
        case.targets = vec![Target::CostAtMost(1.05)];
        // The machine gets slower and slower; Shunt always takes 2 % more than its neighbour.
        let (kernel, shunt) = (
            side(&[10.0, 20.0, 30.0, 40.0]),
            side(&[10.2, 20.4, 30.6, 40.8]),
        );
        let row = Row::judge(&case, &kernel, Some(&shunt), &floor());
        assert!((row.ratio.unwrap() - 1.0 / 1.02).abs() < 1e-9);
        assert!(row.met(), "{row:?}");
    }

    #[test]
    fn best_and_worst() {
        let (kernel, shunt) = (
            Spread {
                median: 4.0,
                min: 2.0,
                max: 9.0,
            },
            Spread {
                median: 18.0,
                min: 8.0,
                max: 20.0,
            },
        );
        let mut case = pingpong();
        case.better = Better::Higher;
        let judge = |target: Target| target.judge(&case, kernel, shunt, Some(20.0));
        assert!(judge(Target::OverBest(1.8)).met);
        assert!(!judge(Target::WorstOverBest(1.0)).met);
        assert!(judge(Target::OfFloor(0.85)).met);
        assert!(judge(Target::CostAtMost(5.0)).met);
        assert!(!judge(Target::ExtraAtMost(5.0)).met);
    }
}
