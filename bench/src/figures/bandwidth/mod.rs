//! Figure 4.5: one-way bandwidth by message size, and why: how many messages of the program went in one of the wire, and
//! how much of the reserved receive buffer ever held payload. The receiver asks for messages of the size that is sent,
//! as the benchmarks of the thesis's time did. This file owns what is measured; `show` draws and writes the tables.

mod show;

use std::time::Duration;

use anyhow::ensure;
use serde::Serialize;

use super::Plan;
use super::pair::{Lab, Pair};
use super::proof::Connection;
use super::scheme::Scheme;
use crate::plot;
use crate::stats::Quartiles;
use crate::table::{self, groups, spread};

/// How the receiver waits for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Receiver {
    Polling,
    Blocking,
}

impl Receiver {
    const ALL: [Self; 2] = [Self::Polling, Self::Blocking];

    fn title(self) -> &'static str {
        match self {
            Self::Polling => "polling receiver (MSG_DONTWAIT)",
            Self::Blocking => "blocking receiver (both sides SHUNT_SPIN_US=0)",
        }
    }
}

/// One run. Counts that the library does not report are blank.
#[derive(Serialize)]
struct Run {
    receiver: Receiver,
    scheme: Scheme,
    size: usize,
    repetition: usize,
    mb_per_s: f64,
    messages: f64,
    wire_messages: Option<u64>,
    /// Messages of the program for one on the wire.
    coalescing: Option<f64>,
    /// Share of the reserved receive buffer that held payload at once, at most.
    buffer_used: Option<f64>,
    no_credit: Option<u64>,
    events: Option<u64>,
    updates: Option<u64>,
    reserved: Option<u64>,
    peak_used: Option<u64>,
    sndbuf: Option<i64>,
    rcvbuf: Option<i64>,
}

/// One point of the figure; medians of the counts.
#[derive(Clone, Serialize)]
struct Point {
    receiver: Receiver,
    scheme: Scheme,
    size: usize,
    runs: usize,
    median_mb_per_s: f64,
    q1_mb_per_s: f64,
    q3_mb_per_s: f64,
    min_mb_per_s: f64,
    max_mb_per_s: f64,
    coalescing: Option<f64>,
    coalescing_q1: Option<f64>,
    coalescing_q3: Option<f64>,
    buffer_used: Option<f64>,
    buffer_used_q1: Option<f64>,
    buffer_used_q3: Option<f64>,
    no_credit_per_message: Option<f64>,
    events_per_message: Option<f64>,
    updates_per_message: Option<f64>,
}

pub(super) fn make(lab: &Lab, plan: &Plan, name: &str) -> anyhow::Result<String> {
    let step = plan.pick(5, 2);
    let sizes: Vec<usize> = (0..=20).step_by(step).map(|power| 1 << power).collect();
    let mut runs = Vec::new();
    for repetition in 0..plan.reps {
        for receiver in Receiver::ALL {
            for &size in &sizes {
                for scheme in plan.turns(repetition) {
                    runs.push(measure(lab, plan, receiver, scheme, size, repetition)?);
                }
            }
        }
        println!("  repetition {} of {}", repetition + 1, plan.reps);
    }
    table::write_csv(&plan.out, &format!("{name}-runs"), &runs)?;
    let points = summarise(&runs);
    table::write_csv(&plan.out, name, &points)?;
    plot::draw(&plan.out, name, &show::picture(plan, &runs, &points))?;
    Ok(show::tables(&points))
}

fn measure(
    lab: &Lab,
    plan: &Plan,
    receiver: Receiver,
    scheme: Scheme,
    size: usize,
    repetition: usize,
) -> anyhow::Result<Run> {
    let seconds = plan.pick(0.05, 0.15);
    let busy = (receiver == Receiver::Polling).then(|| "--busy".into());
    let block = ["--verify".into(), "--block".into(), size.to_string()];
    let sending = ["--nodelay".into(), "--seconds".into(), seconds.to_string()];
    let outcome = lab.run(&Pair {
        scheme,
        params: &plan.params,
        spin_us: (receiver == Receiver::Blocking).then_some(0),
        server: ("stream-server", block.iter().cloned().chain(busy).collect()),
        client: (
            "stream-client",
            block.iter().cloned().chain(sending).collect(),
        ),
        limit: Duration::from_secs(20),
    })?;
    let (bytes, messages) = (
        outcome.server.number("bytes")?,
        outcome.client.number("messages")?,
    );
    ensure!(
        bytes == messages * size as f64,
        "{bytes} bytes of {messages} messages of {size} arrived"
    );
    let (sndbuf, rcvbuf) = outcome.client.kernel_buffers();
    let report = outcome.client.report.as_ref();
    let wire_messages = report.and_then(|report| report.wire_messages);
    // Whichever side counts them: an event belongs to the sender, an update to the receiver, and data goes one way.
    let both = |count: fn(&Connection) -> Option<u64>| {
        let ends = [&outcome.client, &outcome.server];
        ends.map(|end| end.report.as_ref().and_then(count))
            .into_iter()
            .sum::<Option<u64>>()
    };
    let (reserved, peak_used) = (
        report.and_then(|r| r.reserved),
        report.and_then(|r| r.peak_used),
    );
    Ok(Run {
        receiver,
        scheme,
        size,
        repetition,
        mb_per_s: bytes / outcome.server.number("seconds")? / 1e6,
        messages,
        wire_messages,
        coalescing: ratio(Some(messages), wire_messages.map(|n| n as f64)),
        buffer_used: ratio(peak_used.map(|n| n as f64), reserved.map(|n| n as f64)),
        no_credit: report.map(|report| report.no_credit),
        events: both(|report| report.events),
        updates: both(|report| report.updates),
        reserved,
        peak_used,
        sndbuf,
        rcvbuf,
    })
}

fn ratio(above: Option<f64>, below: Option<f64>) -> Option<f64> {
    let (above, below) = above.zip(below)?;
    (below > 0.0).then(|| above / below)
}

fn summarise(runs: &[Run]) -> Vec<Point> {
    let point = |((receiver, scheme, size), runs): ((Receiver, Scheme, usize), Vec<&Run>)| {
        let rate = spread(&runs, |run| Some(run.mb_per_s))?;
        let coalescing = spread(&runs, |run| run.coalescing);
        let used = spread(&runs, |run| run.buffer_used);
        let each = |count: fn(&Run) -> Option<u64>| {
            table::median(&runs, |run| {
                ratio(count(run).map(|n| n as f64), Some(run.messages))
            })
        };
        Some(Point {
            receiver,
            scheme,
            size,
            runs: runs.len(),
            median_mb_per_s: rate.median,
            q1_mb_per_s: rate.q1,
            q3_mb_per_s: rate.q3,
            min_mb_per_s: rate.min,
            max_mb_per_s: rate.max,
            coalescing: coalescing.map(|q| q.median),
            coalescing_q1: coalescing.map(|q| q.q1),
            coalescing_q3: coalescing.map(|q| q.q3),
            buffer_used: used.map(|q| q.median),
            buffer_used_q1: used.map(|q| q.q1),
            buffer_used_q3: used.map(|q| q.q3),
            no_credit_per_message: each(|run| run.no_credit),
            events_per_message: each(|run| run.events),
            updates_per_message: each(|run| run.updates),
        })
    };
    let groups = groups(runs, |run| (run.receiver, run.scheme, run.size));
    groups.into_iter().filter_map(point).collect()
}

impl Point {
    fn rate(&self) -> Quartiles {
        Quartiles {
            min: self.min_mb_per_s,
            q1: self.q1_mb_per_s,
            median: self.median_mb_per_s,
            q3: self.q3_mb_per_s,
            max: self.max_mb_per_s,
        }
    }

    fn coalesced(&self) -> Option<Quartiles> {
        between(self.coalescing_q1, self.coalescing, self.coalescing_q3)
    }

    fn used(&self) -> Option<Quartiles> {
        between(self.buffer_used_q1, self.buffer_used, self.buffer_used_q3)
    }
}

fn between(q1: Option<f64>, median: Option<f64>, q3: Option<f64>) -> Option<Quartiles> {
    let (q1, median, q3) = (q1?, median?, q3?);
    Some(Quartiles {
        min: q1,
        q1,
        median,
        q3,
        max: q3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(scheme: Scheme, mb_per_s: f64, wire_messages: Option<u64>) -> Run {
        Run {
            receiver: Receiver::Polling,
            scheme,
            size: 64,
            repetition: 0,
            mb_per_s,
            messages: 100.0,
            wire_messages,
            coalescing: ratio(Some(100.0), wire_messages.map(|n| n as f64)),
            buffer_used: None,
            no_credit: Some(50),
            events: None,
            updates: None,
            reserved: None,
            peak_used: None,
            sndbuf: None,
            rcvbuf: None,
        }
    }

    #[test]
    fn medians_of_what_is_known() {
        let runs = [
            run(Scheme::Credit, 1.0, None),
            run(Scheme::Credit, 3.0, Some(10)),
        ];
        let points = summarise(&runs);
        assert_eq!(points.len(), 1);
        assert_eq!(
            (points[0].median_mb_per_s, points[0].coalescing),
            (2.0, Some(10.0))
        );
        assert_eq!(
            (points[0].buffer_used, points[0].no_credit_per_message),
            (None, Some(0.5))
        );
        assert!(points[0].used().is_none());
        assert!(show::tables(&points).contains("10.0 · – · 0.500 · – · –"));
    }

    #[test]
    fn nothing_is_divided_by_nothing() {
        assert_eq!(ratio(Some(1.0), Some(0.0)), None);
        assert_eq!(ratio(None, Some(1.0)), None);
        assert_eq!(ratio(Some(6.0), Some(3.0)), Some(2.0));
    }
}
