//! Figure 4.4: ping-pong latency by size. The schemes differ only when the sender is out of room, which a ping-pong never
//! is: they must coincide. Whether it was so is read from the library's report, and marked where it was not.

use std::time::Duration;

use serde::Serialize;

use super::pair::{Lab, Pair};
use super::scheme::Scheme;
use super::{Plan, notes};
use crate::plot::{self, Axis, Line, Panel, Picture, Scale};
use crate::stats::Quartiles;
use crate::table::{self, Table, groups, keys, spread};

/// How both sides wait for the next message.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Wait {
    Polling,
    Blocking,
}

impl Wait {
    const ALL: [Self; 2] = [Self::Polling, Self::Blocking];

    fn title(self) -> &'static str {
        match self {
            Self::Polling => "polling: both programs poll with MSG_DONTWAIT",
            Self::Blocking => "blocking: recv sleeps at once (SHUNT_SPIN_US=0)",
        }
    }
}

/// One run. Times are half of the round trip, in µs.
#[derive(Serialize)]
struct Run {
    wait: Wait,
    scheme: Scheme,
    size: usize,
    repetition: usize,
    p50_us: f64,
    p99_us: f64,
    round_trips: f64,
    no_credit: Option<u64>,
    sndbuf: Option<i64>,
    rcvbuf: Option<i64>,
}

/// One point of the figure.
#[derive(Clone, Serialize)]
struct Point {
    wait: Wait,
    scheme: Scheme,
    size: usize,
    runs: usize,
    median_us: f64,
    q1_us: f64,
    q3_us: f64,
    min_us: f64,
    max_us: f64,
    /// Times out of room in all runs together, both sides.
    no_credit: Option<u64>,
    /// What figure 4.4 rests on: never out of room.
    precondition: Option<&'static str>,
}

const HELD: &str = "held";
const BROKEN: &str = "BROKEN";

pub(super) fn make(lab: &Lab, plan: &Plan, name: &str) -> anyhow::Result<String> {
    let step = plan.pick(4, 1);
    let sizes: Vec<usize> = (0..=16).step_by(step).map(|power| 1 << power).collect();
    let mut runs = Vec::new();
    for repetition in 0..plan.reps {
        for wait in Wait::ALL {
            for &size in &sizes {
                for scheme in plan.turns(repetition) {
                    runs.push(measure(lab, plan, wait, scheme, size, repetition)?);
                }
            }
        }
        println!("  repetition {} of {}", repetition + 1, plan.reps);
    }
    table::write_csv(&plan.out, &format!("{name}-runs"), &runs)?;
    let points = summarise(&runs);
    table::write_csv(&plan.out, name, &points)?;
    plot::draw(&plan.out, name, &picture(plan, &runs, &points))?;
    Ok(tables(&points))
}

fn measure(
    lab: &Lab,
    plan: &Plan,
    wait: Wait,
    scheme: Scheme,
    size: usize,
    repetition: usize,
) -> anyhow::Result<Run> {
    let seconds = plan.pick(0.03, 0.1);
    let busy = (wait == Wait::Polling).then(|| "--busy".into());
    let args = |more: &[String]| {
        let size = ["--size".to_owned(), size.to_string()];
        size.into_iter()
            .chain(busy.clone())
            .chain(more.iter().cloned())
            .collect()
    };
    let outcome = lab.run(&Pair {
        scheme,
        params: &plan.params,
        spin_us: (wait == Wait::Blocking).then_some(0),
        server: ("pingpong-server", args(&[])),
        client: (
            "pingpong-client",
            args(&["--verify".into(), "--seconds".into(), seconds.to_string()]),
        ),
        limit: Duration::from_secs(20),
    })?;
    let half_us = |ns: f64| ns / 2e3;
    let (sndbuf, rcvbuf) = outcome.client.kernel_buffers();
    Ok(Run {
        wait,
        scheme,
        size,
        repetition,
        p50_us: half_us(outcome.client.number("p50_ns")?),
        p99_us: half_us(outcome.client.number("p99_ns")?),
        round_trips: outcome.client.number("messages")?,
        no_credit: outcome.no_credit(),
        sndbuf,
        rcvbuf,
    })
}

fn summarise(runs: &[Run]) -> Vec<Point> {
    let point = |((wait, scheme, size), runs): ((Wait, Scheme, usize), Vec<&Run>)| {
        let times = spread(&runs, |run| Some(run.p50_us))?;
        let no_credit = runs.iter().map(|run| run.no_credit).sum::<Option<u64>>();
        Some(Point {
            wait,
            scheme,
            size,
            runs: runs.len(),
            median_us: times.median,
            q1_us: times.q1,
            q3_us: times.q3,
            min_us: times.min,
            max_us: times.max,
            no_credit,
            precondition: no_credit.map(|times| if times == 0 { HELD } else { BROKEN }),
        })
    };
    let groups = groups(runs, |run| (run.wait, run.scheme, run.size));
    groups.into_iter().filter_map(point).collect()
}

impl Point {
    fn times(&self) -> Quartiles {
        Quartiles {
            min: self.min_us,
            q1: self.q1_us,
            median: self.median_us,
            q3: self.q3_us,
            max: self.max_us,
        }
    }
}

fn picture(plan: &Plan, runs: &[Run], points: &[Point]) -> Picture {
    let line = |wait, scheme: Scheme| Line {
        of: scheme.of(),
        points: points
            .iter()
            .filter(|point| (point.wait, point.scheme) == (wait, scheme))
            .map(|point| (point.size as f64, point.times()))
            .collect(),
    };
    let panel = |wait: Wait| Panel {
        title: wait.title().into(),
        x: Axis::message_size(),
        y: Axis::new(
            "latency (half of the round trip), µs",
            Scale::Decades,
            table::tick,
        ),
        lines: plan
            .schemes
            .iter()
            .map(|&scheme| line(wait, scheme))
            .collect(),
    };
    let kernel = runs.iter().find_map(|run| run.sndbuf.zip(run.rcvbuf));
    let mut notes = notes(plan, "echo", kernel);
    notes.extend(broken(points).map(|words| format!("{words}.")));
    Picture {
        title: "Figure 4.4: ping-pong latency under the three flow controls".into(),
        notes,
        columns: 2,
        panels: Wait::ALL.map(panel).into(),
    }
}

/// The points at which a sender was out of room, in words.
fn broken(points: &[Point]) -> Option<String> {
    let broken = points
        .iter()
        .filter(|point| point.precondition == Some(BROKEN));
    let words: Vec<String> = groups(&broken.collect::<Vec<_>>(), |point| {
        (point.scheme, point.wait)
    })
    .into_iter()
    .map(|((scheme, wait), points)| {
        let sizes: Vec<String> = points
            .iter()
            .map(|point| table::size(point.size as f64))
            .collect();
        format!(
            "{} ({}) at {}",
            scheme.word(),
            format!("{wait:?}").to_lowercase(),
            sizes.join(", ")
        )
    })
    .collect();
    (!words.is_empty()).then(|| {
        format!(
            "OUT OF ROOM, so not a fair point of this figure: {}",
            words.join("; ")
        )
    })
}

fn tables(points: &[Point]) -> String {
    let mut text = String::new();
    for wait in Wait::ALL {
        let of_wait: Vec<Point> = points
            .iter()
            .filter(|point| point.wait == wait)
            .cloned()
            .collect();
        let schemes = keys(&of_wait, |point| point.scheme);
        let head = ["bytes"]
            .into_iter()
            .chain(schemes.iter().map(|scheme| scheme.title()));
        let mut table = Table::new(head.chain(["slowest to fastest of the schemes"]));
        for (size, row) in groups(&of_wait, |point| point.size) {
            let cell = |scheme: &Scheme| {
                let point = row.iter().find(|point| point.scheme == *scheme);
                let mark = point
                    .filter(|p| p.precondition == Some(BROKEN))
                    .map_or("", |_| " !");
                table::quartiles(point.map(|point| point.times())) + mark
            };
            let cells = [table::size(size as f64)]
                .into_iter()
                .chain(schemes.iter().map(cell));
            table.row(cells.chain([table::number(apart(&row))]));
        }
        text += &format!("Latency, µs, {}\n\n{}\n", wait.title(), table.text());
    }
    text + &match broken(points) {
        Some(words) => format!("**{words}** (marked with !).\n"),
        None if points.iter().any(|point| point.no_credit.is_some()) => {
            "No scheme was out of room at any size (`no_credit` 0 in every report).\n".into()
        }
        None => String::new(),
    }
}

/// How many times slower the slowest of the schemes is than the fastest; none where there is one scheme.
fn apart(row: &[&Point]) -> Option<f64> {
    let medians = row
        .iter()
        .filter(|point| point.scheme.of_shunt())
        .map(|point| point.median_us);
    let all = Quartiles::of(medians.clone())?;
    (medians.count() > 1).then(|| all.max / all.min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(scheme: Scheme, repetition: usize, p50_us: f64, no_credit: Option<u64>) -> Run {
        Run {
            wait: Wait::Polling,
            scheme,
            size: 64,
            repetition,
            p50_us,
            p99_us: 9.0,
            round_trips: 10.0,
            no_credit,
            sndbuf: None,
            rcvbuf: None,
        }
    }

    #[test]
    fn being_out_of_room_once_is_marked() {
        let runs = [
            run(Scheme::Credit, 0, 2.0, Some(0)),
            run(Scheme::Tcp, 0, 20.0, None),
            run(Scheme::Nic, 0, 3.0, Some(0)),
            run(Scheme::Credit, 1, 4.0, Some(1)),
        ];
        let points = summarise(&runs);
        assert_eq!(points.len(), 3);
        assert_eq!(
            (points[0].median_us, points[0].precondition),
            (3.0, Some(BROKEN))
        );
        assert_eq!(points[1].precondition, None);
        assert_eq!(points[2].precondition, Some(HELD));
        assert_eq!(apart(&points.iter().collect::<Vec<_>>()), Some(1.0));
        assert!(broken(&points).unwrap().contains("credit (polling) at 64"));
        assert!(broken(&points[1..]).is_none());
        assert!(tables(&points).contains(" !"));
    }
}
