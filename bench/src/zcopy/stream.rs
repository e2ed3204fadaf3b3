//! Messages one way by size: as many as go (`stream`), and one after the other with an answer to each (`complete`, where
//! the time of a message includes every wake-up). This file owns what is measured; `show` draws and writes the tables.

use std::time::Duration;

use serde::Serialize;

use super::floor;
use super::judge::{self, Against};
use super::lab::{Bulk, Lab, Outcome, Place};
use super::mode::{Mode, word_of};
use super::proof::{Claim, share_of};
use super::targets::Measured;
use super::{Plan, show};
use crate::plot;
use crate::prog::BufferUse;
use crate::stats::Quartiles;
use crate::table::{self, groups, spread};

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Stream,
    Complete,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Complete => "complete",
        }
    }
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub kind: Kind,
    pub buffers: BufferUse,
    pub mode: Mode,
    pub size: usize,
    pub round: usize,
    /// Of `complete`: the size over the median time of a message.
    pub gb_per_s: f64,
    /// Of a send, with the answer if there is one.
    pub p50_us: f64,
    pub p99_us: f64,
    pub messages: f64,
    /// CPU time, ns for a byte.
    pub sender_cpu: f64,
    pub receiver_cpu: f64,
    pub zcopy_share: Option<f64>,
    pub claim: Claim,
}

/// One point of the figure.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    pub kind: Kind,
    pub buffers: BufferUse,
    pub mode: Mode,
    pub size: usize,
    pub runs: usize,
    pub median_gb_per_s: f64,
    pub q1_gb_per_s: f64,
    pub q3_gb_per_s: f64,
    pub min_gb_per_s: f64,
    pub max_gb_per_s: f64,
    pub median_p50_us: f64,
    pub q1_p50_us: f64,
    pub q3_p50_us: f64,
    pub median_p99_us: f64,
    pub sender_cpu: f64,
    pub receiver_cpu: f64,
    /// Of both sides together.
    pub median_cpu: f64,
    pub q1_cpu: f64,
    pub q3_cpu: f64,
    pub zcopy_share: Option<f64>,
    /// The worst of the runs.
    pub claim: Claim,
}

/// The bare machine at one size, GB/s: medians.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Floor {
    pub buffers: BufferUse,
    pub size: usize,
    pub one_core: f64,
    pub two_cores: f64,
    pub rewrite: f64,
}

/// Everything of one kind.
pub(super) struct Data {
    pub kind: Kind,
    pub points: Vec<Point>,
    pub floors: Vec<Floor>,
    /// Each mode against the ring.
    pub against: Vec<Against>,
}

pub(super) fn make(
    lab: &Lab,
    plan: &Plan,
    kind: Kind,
    measured: &mut Measured,
) -> anyhow::Result<String> {
    let checked = verify(lab, plan, kind)?;
    println!("  {checked} untimed runs: every byte was right");
    let (mut runs, mut bare) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        for &buffers in &plan.buffers {
            for &size in &plan.sizes {
                for mode in plan.turns(round) {
                    let outcome = lab.bulk(&timed(plan, kind, mode, buffers, size))?;
                    runs.push(Run::new(kind, buffers, mode, size, round, &outcome));
                }
                let length = Duration::from_secs_f64(plan.pick(0.004, 0.02));
                bare.push((buffers, size, floor::measure(size, buffers, length)?));
            }
        }
        println!("  round {} of {}", round + 1, plan.rounds);
    }
    let name = kind.name();
    table::write_csv(&plan.out, &format!("{name}-runs"), &runs)?;
    let data = Data {
        kind,
        points: points(&runs),
        floors: floors(&bare),
        against: judge::against(&runs),
    };
    table::write_csv(&plan.out, name, &data.points)?;
    table::write_csv(&plan.out, &format!("{name}-floor"), &data.floors)?;
    table::write_csv(&plan.out, &format!("{name}-against-off"), &data.against)?;
    plot::draw(&plan.out, name, &show::picture(plan, &data))?;
    let tables = show::tables(&data);
    measured.streams.push(data);
    Ok(tables)
}

/// One run of each kind of transfer in which the programs check every byte; how many there were. A buffer that is
/// rewritten is rewritten as soon as `send` has returned.
fn verify(lab: &Lab, plan: &Plan, kind: Kind) -> anyhow::Result<usize> {
    let mut checked = 0;
    for &buffers in &plan.buffers {
        for &size in &plan.sizes {
            for &mode in &plan.modes {
                let count = ((16 << 20) / size).clamp(3, 64);
                let mut both = both(kind, buffers, size, 2);
                both.push("--verify".into());
                lab.bulk(&Bulk {
                    mode,
                    pairs: 1,
                    place: Place::Apart,
                    both,
                    client: vec!["--count".into(), count.to_string()],
                    limit: LIMIT,
                })?;
                checked += 1;
            }
        }
    }
    Ok(checked)
}

const LIMIT: Duration = Duration::from_secs(30);

fn both(kind: Kind, buffers: BufferUse, size: usize, warm_up: usize) -> Vec<String> {
    let mut args = vec![
        "--size".into(),
        size.to_string(),
        "--buffer".into(),
        word_of(buffers).into(),
        "--warm-up".into(),
        warm_up.to_string(),
    ];
    if kind == Kind::Complete {
        args.push("--answer".into());
    }
    args
}

fn timed(plan: &Plan, kind: Kind, mode: Mode, buffers: BufferUse, size: usize) -> Bulk {
    // Long enough for the kernel to size its buffers, and for the library to find out what is faster.
    let warm_up = ((128 << 20) / size).clamp(4, 1000);
    let seconds = plan.pick(0.06, 0.25);
    Bulk {
        mode,
        pairs: 1,
        place: Place::Apart,
        both: both(kind, buffers, size, warm_up),
        client: vec!["--seconds".into(), seconds.to_string()],
        limit: LIMIT,
    }
}

impl Run {
    fn new(
        kind: Kind,
        buffers: BufferUse,
        mode: Mode,
        size: usize,
        round: usize,
        outcome: &Outcome,
    ) -> Self {
        Self {
            kind,
            buffers,
            mode,
            size,
            round,
            gb_per_s: match kind {
                Kind::Stream => outcome.gb_per_s,
                Kind::Complete => size as f64 / outcome.p50_us / 1e3,
            },
            p50_us: outcome.p50_us,
            p99_us: outcome.p99_us,
            messages: outcome.messages,
            sender_cpu: outcome.sender_cpu,
            receiver_cpu: outcome.receiver_cpu,
            zcopy_share: outcome.zcopy_share,
            claim: Claim::of(mode, outcome.zcopy_share),
        }
    }
}

fn points(runs: &[Run]) -> Vec<Point> {
    let point = |((buffers, mode, size), runs): ((BufferUse, Mode, usize), Vec<&Run>)| {
        let rate = spread(&runs, |run| Some(run.gb_per_s))?;
        let time = spread(&runs, |run| Some(run.p50_us))?;
        let cpu = spread(&runs, |run| Some(run.sender_cpu + run.receiver_cpu))?;
        Some(Point {
            kind: runs.first()?.kind,
            buffers,
            mode,
            size,
            runs: runs.len(),
            median_gb_per_s: rate.median,
            q1_gb_per_s: rate.q1,
            q3_gb_per_s: rate.q3,
            min_gb_per_s: rate.min,
            max_gb_per_s: rate.max,
            median_p50_us: time.median,
            q1_p50_us: time.q1,
            q3_p50_us: time.q3,
            median_p99_us: table::median(&runs, |run| Some(run.p99_us))?,
            sender_cpu: table::median(&runs, |run| Some(run.sender_cpu))?,
            receiver_cpu: table::median(&runs, |run| Some(run.receiver_cpu))?,
            median_cpu: cpu.median,
            q1_cpu: cpu.q1,
            q3_cpu: cpu.q3,
            zcopy_share: share_of(mode, &runs, |run| run.zcopy_share),
            claim: runs.iter().map(|run| run.claim).min()?,
        })
    };
    let groups = groups(runs, |run| (run.buffers, run.mode, run.size));
    let mut points: Vec<Point> = groups.into_iter().filter_map(point).collect();
    // In the order of the modes, not of their turns.
    points.sort_by_key(|point| Mode::ALL.iter().position(|mode| *mode == point.mode));
    points
}

fn floors(bare: &[(BufferUse, usize, floor::Rates)]) -> Vec<Floor> {
    let groups = groups(bare, |(buffers, size, _)| (*buffers, *size));
    let floor = |((buffers, size), rates): ((BufferUse, usize), Vec<&(_, _, floor::Rates)>)| {
        let of = |rate: fn(&floor::Rates) -> f64| table::median(&rates, |(_, _, r)| Some(rate(r)));
        Some(Floor {
            buffers,
            size,
            one_core: of(|rates| rates.one_core)?,
            two_cores: of(|rates| rates.two_cores)?,
            rewrite: of(|rates| rates.rewrite)?,
        })
    };
    groups.into_iter().filter_map(floor).collect()
}

impl Point {
    pub(super) fn rate(&self) -> Quartiles {
        Quartiles {
            min: self.min_gb_per_s,
            q1: self.q1_gb_per_s,
            median: self.median_gb_per_s,
            q3: self.q3_gb_per_s,
            max: self.max_gb_per_s,
        }
    }

    pub(super) fn time(&self) -> Quartiles {
        Quartiles {
            min: self.q1_p50_us,
            q1: self.q1_p50_us,
            median: self.median_p50_us,
            q3: self.q3_p50_us,
            max: self.q3_p50_us,
        }
    }

    pub(super) fn cpu(&self) -> Quartiles {
        Quartiles {
            min: self.q1_cpu,
            q1: self.q1_cpu,
            median: self.median_cpu,
            q3: self.q3_cpu,
            max: self.q3_cpu,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A run of the zero-copy share that its mode asks for.
    pub(in super::super) fn run(mode: Mode, size: usize, round: usize, gb_per_s: f64) -> Run {
        let outcome = Outcome {
            messages: 10.0,
            gb_per_s,
            p50_us: 1.0,
            p99_us: 2.0,
            each_us: 2.0,
            computed_us: 0.0,
            sender_cpu: 0.1,
            receiver_cpu: 0.2,
            zcopy_share: mode.of_shunt().then_some(match mode {
                Mode::Off => 0.0,
                _ => 1.0,
            }),
        };
        Run::new(Kind::Stream, BufferUse::Reused, mode, size, round, &outcome)
    }

    pub(in super::super) fn copied(run: Run) -> Run {
        Run {
            zcopy_share: Some(0.0),
            claim: Claim::of(run.mode, Some(0.0)),
            ..run
        }
    }

    pub(in super::super) fn data(runs: &[Run]) -> Data {
        Data {
            kind: Kind::Stream,
            points: points(runs),
            floors: Vec::new(),
            against: judge::against(runs),
        }
    }

    #[test]
    fn one_run_that_copied_marks_the_point() {
        let runs = [
            run(Mode::Sync, 4096, 0, 4.0),
            copied(run(Mode::Sync, 4096, 1, 6.0)),
            run(Mode::Tcp, 4096, 0, 1.0),
        ];
        let points = points(&runs);
        assert_eq!(points.len(), 2);
        assert_eq!((points[0].mode, points[0].claim), (Mode::Tcp, Claim::Held));
        assert_eq!(
            (points[1].median_gb_per_s, points[1].claim),
            (5.0, Claim::Copied)
        );
        assert!((points[1].cpu().median - 0.3).abs() < 1e-9);
    }

    #[test]
    fn a_message_that_is_answered_is_timed_alone() {
        let outcome = Outcome {
            messages: 1.0,
            gb_per_s: 0.001,
            p50_us: 2.0,
            p99_us: 2.0,
            each_us: 2.0,
            computed_us: 0.0,
            sender_cpu: 0.0,
            receiver_cpu: 0.0,
            zcopy_share: None,
        };
        let of = |kind| Run::new(kind, BufferUse::Walk, Mode::Tcp, 8000, 0, &outcome).gb_per_s;
        assert_eq!((of(Kind::Complete), of(Kind::Stream)), (4.0, 0.001));
    }
}
