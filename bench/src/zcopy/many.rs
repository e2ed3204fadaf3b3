//! More connections than cores: four pairs of processes for each core, all sending at once, wherever the scheduler puts
//! them. Nobody's core is free to copy for somebody else, so what counts is the CPU time of a byte. This file owns what
//! is measured, draws it and writes its table.

use std::time::Duration;

use serde::Serialize;

use super::Plan;
use super::judge::paired;
use super::lab::{Bulk, Lab, Place};
use super::mode::{Mode, buffers, word_of};
use super::proof::{Claim, share_of};
use super::show::{MARKS, mark};
use super::targets::Measured;
use crate::plot::{self, Axis, Line, Panel, Picture, Scale};
use crate::prog::BufferUse;
use crate::stats::{Quartiles, short};
use crate::sys;
use crate::table::{self, Table, groups, spread};

/// The size of the target.
pub(super) const SIZE: usize = 1 << 20;

/// One run, all pairs together.
#[derive(Serialize)]
struct Run {
    buffers: BufferUse,
    mode: Mode,
    size: usize,
    round: usize,
    pairs: usize,
    gb_per_s: f64,
    sender_cpu: f64,
    receiver_cpu: f64,
    messages: f64,
    zcopy_share: Option<f64>,
    claim: Claim,
}

impl Run {
    fn cpu(&self) -> f64 {
        self.sender_cpu + self.receiver_cpu
    }
}

/// One point; ratios are to the ring, of the same round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    pub buffers: BufferUse,
    pub mode: Mode,
    pub size: usize,
    pub runs: usize,
    pub median_gb_per_s: f64,
    pub q1_gb_per_s: f64,
    pub q3_gb_per_s: f64,
    /// CPU time of both sides, ns for a byte.
    pub median_cpu: f64,
    pub q1_cpu: f64,
    pub q3_cpu: f64,
    pub sender_cpu: f64,
    pub receiver_cpu: f64,
    pub cpu_over_ring: Option<f64>,
    pub cpu_over_ring_q1: Option<f64>,
    pub cpu_over_ring_q3: Option<f64>,
    pub rate_over_ring: Option<f64>,
    pub zcopy_share: Option<f64>,
    pub claim: Claim,
}

fn pairs() -> usize {
    4 * sys::cores()
}

pub(super) fn make(lab: &Lab, plan: &Plan, measured: &mut Measured) -> anyhow::Result<String> {
    let sizes = plan.pick(vec![SIZE], vec![128 << 10, SIZE, 4 << 20]);
    let used = plan.buffers.iter().copied();
    let used: Vec<BufferUse> = used.take(plan.pick(1, usize::MAX)).collect();
    let mut runs = Vec::new();
    for round in 0..plan.rounds {
        for &buffers in &used {
            for &size in &sizes {
                for mode in plan.turns(round) {
                    runs.push(measure(lab, plan, mode, buffers, size, round)?);
                }
            }
        }
        println!("  round {} of {}", round + 1, plan.rounds);
    }
    table::write_csv(&plan.out, "many-runs", &runs)?;
    let points = points(&runs);
    table::write_csv(&plan.out, "many", &points)?;
    plot::draw(&plan.out, "many", &picture(plan, &used, &points))?;
    let text = table_of(&points);
    measured.many = points;
    Ok(text)
}

fn measure(
    lab: &Lab,
    plan: &Plan,
    mode: Mode,
    buffers: BufferUse,
    size: usize,
    round: usize,
) -> anyhow::Result<Run> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let warm_up = ((16 << 20) / size).clamp(4, 100).to_string();
    let outcome = lab.bulk(&Bulk {
        mode,
        pairs: pairs(),
        place: Place::Free,
        both: words(&[
            "--size",
            &size.to_string(),
            "--buffer",
            word_of(buffers),
            "--warm-up",
            &warm_up,
        ]),
        client: words(&["--seconds", &plan.pick(0.4, 1.5).to_string()]),
        limit: Duration::from_secs(60),
    })?;
    Ok(Run {
        buffers,
        mode,
        size,
        round,
        pairs: pairs(),
        gb_per_s: outcome.gb_per_s,
        sender_cpu: outcome.sender_cpu,
        receiver_cpu: outcome.receiver_cpu,
        messages: outcome.messages,
        zcopy_share: outcome.zcopy_share,
        claim: Claim::of(mode, outcome.zcopy_share),
    })
}

fn points(runs: &[Run]) -> Vec<Point> {
    let mut points = Vec::new();
    for ((buffers, size), of_point) in groups(runs, |run| (run.buffers, run.size)) {
        let of = |mode: Mode| -> Vec<&Run> {
            let of_mode = of_point.iter().filter(|run| run.mode == mode);
            of_mode.copied().collect()
        };
        let ring = of(Mode::Off);
        for mode in Mode::ALL {
            let ours = of(mode);
            let rate = spread(&ours, |run| Some(run.gb_per_s));
            let cpu = spread(&ours, |run| Some(run.cpu()));
            let claim = ours.iter().map(|run| run.claim).min();
            let Some(((rate, cpu), claim)) = rate.zip(cpu).zip(claim) else {
                continue;
            };
            let over = paired(&ours, &ring, |run| run.round, Run::cpu);
            let faster = paired(&ours, &ring, |run| run.round, |run| run.gb_per_s);
            let median = |of: fn(&Run) -> f64| table::median(&ours, |run| Some(of(run)));
            points.push(Point {
                buffers,
                mode,
                size,
                runs: ours.len(),
                median_gb_per_s: rate.median,
                q1_gb_per_s: rate.q1,
                q3_gb_per_s: rate.q3,
                median_cpu: cpu.median,
                q1_cpu: cpu.q1,
                q3_cpu: cpu.q3,
                sender_cpu: median(|run| run.sender_cpu).unwrap_or(0.0),
                receiver_cpu: median(|run| run.receiver_cpu).unwrap_or(0.0),
                cpu_over_ring: over.map(|over| over.median),
                cpu_over_ring_q1: over.map(|over| over.q1),
                cpu_over_ring_q3: over.map(|over| over.q3),
                rate_over_ring: faster.map(|faster| faster.median),
                zcopy_share: share_of(mode, &ours, |run| run.zcopy_share),
                claim,
            });
        }
    }
    points
}

fn between(q1: f64, median: f64, q3: f64) -> Quartiles {
    Quartiles {
        min: q1,
        q1,
        median,
        q3,
        max: q3,
    }
}

impl Point {
    fn rate(&self) -> Quartiles {
        between(self.q1_gb_per_s, self.median_gb_per_s, self.q3_gb_per_s)
    }

    fn cpu(&self) -> Quartiles {
        between(self.q1_cpu, self.median_cpu, self.q3_cpu)
    }
}

fn picture(plan: &Plan, used: &[BufferUse], points: &[Point]) -> Picture {
    type Height = fn(&Point) -> Quartiles;
    let panel = |usage: BufferUse, label: &'static str, height: Height| {
        let line = |mode: &Mode| Line {
            of: mode.of(),
            points: (points.iter())
                .filter(|point| (point.buffers, point.mode) == (usage, *mode))
                .filter(|point| point.claim == Claim::Held)
                .map(|point| (point.size as f64, height(point)))
                .collect(),
        };
        Panel {
            title: buffers(usage).into(),
            x: Axis::message_size(),
            y: Axis::new(label, Scale::Linear, table::tick),
            lines: plan.modes.iter().map(line).collect(),
        }
    };
    let rates = used
        .iter()
        .map(|&usage| panel(usage, "GB/s, all together", Point::rate));
    let label = "CPU time, ns for a byte, both sides together";
    let cpu = used.iter().map(|&usage| panel(usage, label, Point::cpu));
    Picture {
        title: format!(
            "More connections than cores: {} pairs of processes on {} cores",
            pairs(),
            sys::cores()
        ),
        notes: plan.notes("All send at once, blocking, unpinned."),
        columns: used.len().max(2),
        panels: rates.chain(cpu).collect(),
    }
}

fn table_of(points: &[Point]) -> String {
    let mut table = Table::new([
        "bytes",
        "buffers",
        "mode",
        "GB/s, all together",
        "times the ring's",
        "CPU time, ns for a byte: sender + receiver",
        "times the ring's",
    ]);
    for point in points {
        let cpu = between(
            point.cpu_over_ring_q1.unwrap_or(0.0),
            point.cpu_over_ring.unwrap_or(0.0),
            point.cpu_over_ring_q3.unwrap_or(0.0),
        );
        table.row([
            table::size(point.size as f64),
            buffers(point.buffers).into(),
            point.mode.title().to_owned() + &mark(point.mode, point.claim, point.zcopy_share),
            table::quartiles(Some(point.rate())),
            table::number(point.rate_over_ring),
            format!(
                "{} + {}",
                short(point.sender_cpu),
                short(point.receiver_cpu)
            ),
            table::quartiles(point.cpu_over_ring.map(|_| cpu)),
        ]);
    }
    format!(
        "{} pairs of processes on {} cores\n\n{}{MARKS}",
        pairs(),
        sys::cores(),
        table.text()
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn point(mode: Mode, cpu_over_ring: f64, zcopy_share: f64) -> Point {
        let run = |mode, cpu, share| Run {
            buffers: BufferUse::Reused,
            mode,
            size: SIZE,
            round: 0,
            pairs: 8,
            gb_per_s: 4.0,
            sender_cpu: cpu,
            receiver_cpu: 0.0,
            messages: 1.0,
            zcopy_share: Some(share),
            claim: Claim::of(mode, Some(share)),
        };
        let runs = [
            run(Mode::Off, 2.0, 0.0),
            run(mode, 2.0 * cpu_over_ring, zcopy_share),
        ];
        points(&runs)
            .into_iter()
            .find(|point| point.mode == mode)
            .unwrap()
    }

    #[test]
    fn cpu_time_is_held_against_the_ring() {
        let sync = point(Mode::Sync, 0.5, 1.0);
        assert_eq!(
            (sync.cpu_over_ring, sync.rate_over_ring),
            (Some(0.5), Some(1.0))
        );
        assert!(!table_of(&[sync]).contains("sync COPIED"));
        assert!(table_of(&[point(Mode::Sync, 0.5, 0.0)]).contains("sync COPIED"));
    }
}
