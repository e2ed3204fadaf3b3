//! Computation between the messages, the test of the AZ-SDP paper: what a message costs its sender beside what it computes.
//! Asynchronous zero copy lets the sender compute while the receiver still reads the buffer; a computation that writes to
//! the buffer takes that away again, and pays a fault besides. This file owns what is measured, draws it and writes its
//! tables.

use std::time::Duration;

use serde::Serialize;

use super::Plan;
use super::lab::{Bulk, Lab, Outcome, Place};
use super::mode::Mode;
use super::proof::{Claim, share_of};
use super::show::{MARKS, mark};
use crate::plot::{self, Axis, Line, Panel, Picture, Scale};
use crate::stats::{Quartiles, short};
use crate::table::{self, Table, groups, keys, spread};

/// Computation, as a multiple of the time of a message over the ring.
const SHARES: [f64; 7] = [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0];

/// One run.
#[derive(Serialize)]
struct Run {
    size: usize,
    touch: bool,
    mode: Mode,
    compute_us: f64,
    round: usize,
    gb_per_s: f64,
    /// Time of a message and its computation.
    each_us: f64,
    /// What is left of it without the time that computing took on the wall.
    beside_us: f64,
    /// Times longer that computing took on the wall than on the core: others, or the library, had the core.
    stretch: Option<f64>,
    messages: f64,
    zcopy_share: Option<f64>,
    claim: Claim,
}

/// One point.
#[derive(Clone, Serialize)]
struct Point {
    size: usize,
    touch: bool,
    mode: Mode,
    compute_us: f64,
    runs: usize,
    median_gb_per_s: f64,
    q1_gb_per_s: f64,
    q3_gb_per_s: f64,
    median_beside_us: f64,
    q1_beside_us: f64,
    q3_beside_us: f64,
    stretch: Option<f64>,
    zcopy_share: Option<f64>,
    claim: Claim,
}

pub(super) fn make(lab: &Lab, plan: &Plan) -> anyhow::Result<String> {
    let sizes = plan.pick(vec![1 << 20], vec![256 << 10, 1 << 20, 4 << 20]);
    let shares = SHARES.iter().step_by(plan.pick(3, 1));
    let mut computations = Vec::new();
    for size in sizes {
        let ring = [0; 3].map(|_| measure(lab, plan, (size, false), Mode::Off, 0.0, 0));
        let ring = ring.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        let times = Quartiles::of(ring.iter().map(|run| run.each_us));
        let message_us = times.map_or(0.0, |times| times.median);
        println!(
            "  {} bytes: {} µs a message over the ring",
            size,
            short(message_us)
        );
        computations.push((
            size,
            shares
                .clone()
                .map(move |share| (share * message_us).round()),
        ));
    }
    let mut runs = Vec::new();
    for round in 0..plan.rounds {
        for (size, computations) in &computations {
            for compute_us in computations.clone() {
                for touch in [false, true] {
                    for mode in plan.turns(round) {
                        let what = (*size, touch);
                        runs.push(measure(lab, plan, what, mode, compute_us, round)?);
                    }
                }
            }
        }
        println!("  round {} of {}", round + 1, plan.rounds);
    }
    table::write_csv(&plan.out, "overlap-runs", &runs)?;
    let points = points(&runs);
    table::write_csv(&plan.out, "overlap", &points)?;
    plot::draw(&plan.out, "overlap", &picture(plan, &points))?;
    Ok(tables(&points))
}

fn measure(
    lab: &Lab,
    plan: &Plan,
    (size, touch): (usize, bool),
    mode: Mode,
    compute_us: f64,
    round: usize,
) -> anyhow::Result<Run> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let warm_up = ((32 << 20) / size).clamp(4, 200).to_string();
    // Enough messages for a mean, however long the computation.
    let seconds = plan.pick(0.06_f64, 0.25).max(compute_us * 20e-6);
    let mut client: Vec<String> = words(&[
        "--seconds",
        &seconds.to_string(),
        "--compute-ns",
        &(compute_us * 1e3).to_string(),
    ]);
    client.extend(touch.then(|| "--touch".to_owned()));
    let outcome = lab.bulk(&Bulk {
        mode,
        pairs: 1,
        place: Place::Apart,
        both: words(&["--size", &size.to_string(), "--warm-up", &warm_up]),
        client,
        limit: Duration::from_secs(30),
    })?;
    Ok(Run {
        size,
        touch,
        mode,
        compute_us,
        round,
        gb_per_s: outcome.gb_per_s,
        each_us: outcome.each_us,
        beside_us: outcome.each_us - outcome.computed_us,
        stretch: stretch(&outcome, compute_us),
        messages: outcome.messages,
        zcopy_share: outcome.zcopy_share,
        claim: Claim::of(mode, outcome.zcopy_share),
    })
}

/// There is no computation after the last message.
fn stretch(outcome: &Outcome, compute_us: f64) -> Option<f64> {
    let asked = compute_us * (outcome.messages - 1.0);
    (asked > 0.0).then(|| outcome.computed_us * outcome.messages / asked)
}

fn points(runs: &[Run]) -> Vec<Point> {
    let key = |run: &Run| (run.size, run.touch, run.mode, run.compute_us);
    let point = |((size, touch, mode, compute_us), runs): ((usize, bool, Mode, f64), Vec<&Run>)| {
        let rate = spread(&runs, |run| Some(run.gb_per_s))?;
        let beside = spread(&runs, |run| Some(run.beside_us))?;
        Some(Point {
            size,
            touch,
            mode,
            compute_us,
            runs: runs.len(),
            median_gb_per_s: rate.median,
            q1_gb_per_s: rate.q1,
            q3_gb_per_s: rate.q3,
            median_beside_us: beside.median,
            q1_beside_us: beside.q1,
            q3_beside_us: beside.q3,
            stretch: table::median(&runs, |run| run.stretch),
            zcopy_share: share_of(mode, &runs, |run| run.zcopy_share),
            claim: runs.iter().map(|run| run.claim).min()?,
        })
    };
    let mut points: Vec<Point> = groups(runs, key).into_iter().filter_map(point).collect();
    points.sort_by_key(|point| Mode::ALL.iter().position(|mode| *mode == point.mode));
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

    fn beside(&self) -> Quartiles {
        between(self.q1_beside_us, self.median_beside_us, self.q3_beside_us)
    }
}

fn touching(touch: bool) -> &'static str {
    if touch {
        "computation writes to the buffer first"
    } else {
        "computation leaves the buffer alone"
    }
}

/// Sizes and ways of computing, in order.
fn variants(points: &[Point]) -> Vec<(usize, bool)> {
    let mut variants = keys(points, |point| (point.size, point.touch));
    variants.sort_unstable();
    variants
}

fn picture(plan: &Plan, points: &[Point]) -> Picture {
    type Height = fn(&Point) -> Quartiles;
    let panel = |(size, touch): (usize, bool), y: Axis, height: Height| {
        let line = |mode: &Mode| Line {
            of: mode.of(),
            points: (points.iter())
                .filter(|point| (point.size, point.touch, point.mode) == (size, touch, *mode))
                .filter(|point| point.claim == Claim::Held)
                .map(|point| (point.compute_us, height(point)))
                .collect(),
        };
        Panel {
            title: format!("{}, {}", table::size(size as f64), touching(touch)),
            x: Axis::new(
                "computation between the messages, µs",
                Scale::Linear,
                table::tick,
            ),
            y,
            lines: plan.modes.iter().map(line).collect(),
        }
    };
    let rate = Axis::new("GB/s (logarithmic)", Scale::Decades, table::tick);
    let beside = "time of a message beside the computation, µs (logarithmic)";
    let beside = Axis::new(beside, Scale::Decades, table::tick);
    let both = |variant| {
        [
            panel(variant, rate, Point::rate),
            panel(variant, beside, Point::beside),
        ]
    };
    let mut panels = Vec::new();
    // A row for a size: throughput of both ways of computing, then what is left beside them.
    for of_size in variants(points).chunks(2) {
        let (rates, rest): (Vec<_>, Vec<_>) = (of_size.iter())
            .map(|&variant| both(variant).into())
            .unzip();
        panels.extend(rates.into_iter().chain(rest));
    }
    Picture {
        title: "Computation between large messages (AZ-SDP)".into(),
        notes: plan.notes("Blocking, a core each; computing lasts by the sender's CPU time."),
        columns: 4,
        panels,
    }
}

fn tables(points: &[Point]) -> String {
    let mut text = String::new();
    for (size, touch) in variants(points) {
        let chosen: Vec<Point> = (points.iter())
            .filter(|point| (point.size, point.touch) == (size, touch))
            .cloned()
            .collect();
        let modes = keys(&chosen, |point| point.mode);
        let mut table = Table::new(
            ["computation, µs"]
                .into_iter()
                .chain(modes.iter().map(|m| m.title())),
        );
        let mut rows = groups(&chosen, |point| point.compute_us);
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (compute_us, row) in rows {
            let cell = |mode: &Mode| {
                let point = row.iter().find(|point| point.mode == *mode);
                point.map_or("–".into(), |point| {
                    let mark = mark(point.mode, point.claim, point.zcopy_share);
                    format!(
                        "{} · {}{mark}",
                        short(point.median_gb_per_s),
                        table::quartiles(Some(point.beside()))
                    )
                })
            };
            let first = [table::tick(compute_us)].into_iter();
            table.row(first.chain(modes.iter().map(cell)));
        }
        text += &format!(
            "{} bytes, {}: GB/s · µs of a message beside the computation\n\n{}\n",
            table::size(size as f64),
            touching(touch),
            table.text()
        );
    }
    let stretch = points.iter().filter_map(|point| point.stretch);
    let worst = stretch.fold(1.0, f64::max);
    text += &format!(
        "Computing took up to {} times as long on the wall as on the core (medians; more than 1.05: others had the core).\n\n",
        short(worst)
    );
    text + MARKS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_the_median_of_its_rounds() {
        let run = |round, gb_per_s, share| Run {
            size: 1 << 20,
            touch: true,
            mode: Mode::Async,
            compute_us: 10.0,
            round,
            gb_per_s,
            each_us: 12.0,
            beside_us: 2.0,
            stretch: Some(1.2),
            messages: 1.0,
            zcopy_share: Some(share),
            claim: Claim::of(Mode::Async, Some(share)),
        };
        let points = points(&[run(0, 1.0, 1.0), run(1, 3.0, 0.0), run(2, 2.0, 1.0)]);
        assert_eq!((points.len(), points[0].median_gb_per_s), (1, 2.0));
        assert!(tables(&points).contains("2.00 · 2.00 (2.00–2.00) COPIED"));
    }
}
