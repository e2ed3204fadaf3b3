//! Figure 4.7: computation beside communication. Where a scheme leaves data behind that only the sender's next call can
//! move, the computations of both sides follow one another instead of running side by side. This file owns what is
//! measured; `judge` finds slopes and ratios, `show` draws and writes the tables.
//!
//! On shared memory a receiver that is awake takes data as fast as it is sent, so the sender need not run out of room at
//! all. The thesis had a network between the two. Its delay is put back by a receiver that computes for a fixed lag,
//! once a burst has begun to arrive, before it receives the first message: that is a model, and named as one everywhere.

mod judge;
mod show;

use std::time::Duration;

use serde::Serialize;

use super::Plan;
use super::pair::{Lab, Pair};
use super::scheme::{Params, Scheme};
use crate::stats::Quartiles;
use crate::{plot, table};

/// Messages of one burst, and their size: those of the thesis.
const BURST: usize = 100;
const SIZE: usize = 1024;

/// Computation as a multiple of the time of a burst: before the bend, at it, and well behind it.
const SHARES: [f64; 6] = [0.25, 0.5, 1.0, 2.0, 3.0, 4.0];

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Wait {
    Spinning,
    Sleeping,
}

/// What the receiver does, and whether a burst finds room at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Receiver {
    Prompt,
    Late,
    /// Late, with buffers that hold a whole burst: the negative control.
    Roomy,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Variant {
    wait: Wait,
    receiver: Receiver,
}

impl Wait {
    const ALL: [Self; 2] = [Self::Spinning, Self::Sleeping];

    fn spin_us(self) -> Option<u32> {
        (self == Self::Sleeping).then_some(0)
    }

    fn title(self) -> &'static str {
        match self {
            Self::Spinning => "spinning (default SHUNT_SPIN_US; kernel TCP polled)",
            Self::Sleeping => "sleeping (SHUNT_SPIN_US=0)",
        }
    }
}

impl Receiver {
    const ALL: [Self; 3] = [Self::Prompt, Self::Late, Self::Roomy];
}

impl Variant {
    fn all() -> impl Iterator<Item = Self> {
        let with = |wait| Receiver::ALL.map(|receiver| Self { wait, receiver });
        Wait::ALL.into_iter().flat_map(with)
    }
}

/// What was found before the measurement, for each way to wait.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pilot {
    wait: Wait,
    /// Half of an iteration without computation: the time of one burst, µs, under the scheme that the ratios are of.
    burst_us: f64,
    /// How late a late receiver begins, µs: the longest burst of any scheme, so that a sender has always run out first.
    lag_us: f64,
}

/// One run: the iterations of one pair of processes.
#[derive(Clone, Serialize)]
struct Run {
    wait: Wait,
    receiver: Receiver,
    scheme: Scheme,
    buffer: String,
    lag_us: f64,
    compute_us: f64,
    repetition: usize,
    iterations: f64,
    p25_us: f64,
    p50_us: f64,
    p75_us: f64,
    /// Times that either side was out of room, for each iteration.
    no_credit_per_iteration: Option<f64>,
    /// Time on the wall over CPU time while the sender computed: above 1, somebody else had its core.
    stretch: Option<f64>,
    sndbuf: Option<i64>,
    rcvbuf: Option<i64>,
}

impl Run {
    fn variant(&self) -> Variant {
        Variant {
            wait: self.wait,
            receiver: self.receiver,
        }
    }
}

/// One point of the figure.
#[derive(Clone, Serialize)]
struct Point {
    wait: Wait,
    receiver: Receiver,
    scheme: Scheme,
    buffer: String,
    lag_us: f64,
    compute_us: f64,
    runs: usize,
    median_us: f64,
    q1_us: f64,
    q3_us: f64,
    min_us: f64,
    max_us: f64,
    no_credit_per_iteration: Option<f64>,
    stretch: Option<f64>,
}

impl Point {
    fn variant(&self) -> Variant {
        Variant {
            wait: self.wait,
            receiver: self.receiver,
        }
    }

    fn time(&self) -> Quartiles {
        Quartiles {
            min: self.min_us,
            q1: self.q1_us,
            median: self.median_us,
            q3: self.q3_us,
            max: self.max_us,
        }
    }
}

pub(super) fn make(lab: &Lab, plan: &Plan, name: &str) -> anyhow::Result<String> {
    let pilots = Wait::ALL
        .iter()
        .map(|&wait| pilot(lab, plan, wait))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut runs = Vec::new();
    for repetition in 0..plan.reps {
        for variant in Variant::all() {
            let of_wait = pilots.iter().filter(|pilot| pilot.wait == variant.wait);
            for pilot in of_wait {
                for compute_us in steps(plan, pilot) {
                    for scheme in plan.turns(repetition) {
                        runs.push(measure(
                            lab, plan, pilot, variant, scheme, compute_us, repetition,
                        )?);
                    }
                }
            }
        }
        println!("  repetition {} of {}", repetition + 1, plan.reps);
    }
    table::write_csv(&plan.out, &format!("{name}-runs"), &runs)?;
    let points = summarise(&runs);
    table::write_csv(&plan.out, name, &points)?;
    let verdicts = judge::judge(&runs, &pilots);
    table::write_csv(&plan.out, &format!("{name}-slopes"), &verdicts.slopes)?;
    table::write_csv(&plan.out, &format!("{name}-ratios"), &verdicts.ratios)?;
    let shown = show::Shown {
        plan,
        pilots: &pilots,
        runs: &runs,
        points: &points,
    };
    plot::draw(&plan.out, name, &shown.whole())?;
    plot::draw(&plan.out, &format!("{name}-near"), &shown.near())?;
    Ok(shown.tables(&verdicts))
}

/// The times that are computed for, µs: steps of the burst's time, and steps of the clock far beyond it.
fn steps(plan: &Plan, pilot: &Pilot) -> Vec<f64> {
    let far: &[f64] = plan.pick(&[1000.0, 2000.0], &[250.0, 500.0, 1000.0, 2000.0, 3000.0]);
    let near = SHARES.iter().map(|share| share * pilot.burst_us);
    let mut steps: Vec<f64> = std::iter::once(0.0)
        .chain(near)
        .chain(far.iter().copied())
        .collect();
    steps.sort_by(f64::total_cmp);
    steps
}

/// Iterations without computation and with a prompt receiver, for every scheme.
fn pilot(lab: &Lab, plan: &Plan, wait: Wait) -> anyhow::Result<Pilot> {
    let nothing = Pilot {
        wait,
        burst_us: 0.0,
        lag_us: 0.0,
    };
    let variant = Variant {
        wait,
        receiver: Receiver::Prompt,
    };
    let mut bursts = Vec::new();
    for &scheme in &plan.schemes {
        let mut times = Vec::new();
        for repetition in 0..plan.pick(3, 5) {
            times
                .push(measure(lab, plan, &nothing, variant, scheme, 0.0, repetition)?.p50_us / 2.0);
        }
        bursts.extend(Quartiles::of(times).map(|times| (scheme, times.median)));
    }
    let mut pilot = choose(wait, &bursts);
    pilot.lag_us = plan.lag_us.unwrap_or(pilot.lag_us);
    println!(
        "  {}: b = {:.1} µs, lag of a late receiver {:.0} µs",
        wait.title(),
        pilot.burst_us,
        pilot.lag_us
    );
    Ok(pilot)
}

/// The burst's time is that of packetized, since the question is where packetized bends; the lag is that of the slowest
/// scheme, rounded up.
fn choose(wait: Wait, bursts: &[(Scheme, f64)]) -> Pilot {
    let ours: Vec<_> = bursts
        .iter()
        .filter(|(scheme, _)| scheme.of_shunt())
        .copied()
        .collect();
    let known = if ours.is_empty() { bursts } else { &ours };
    let packetized = known
        .iter()
        .find(|(scheme, _)| *scheme == Scheme::Packetized);
    let longest = known.iter().map(|(_, us)| *us).fold(0.0, f64::max);
    Pilot {
        wait,
        burst_us: packetized.or(known.first()).map_or(0.0, |(_, us)| *us),
        lag_us: longest.ceil(),
    }
}

fn measure(
    lab: &Lab,
    plan: &Plan,
    pilot: &Pilot,
    variant: Variant,
    scheme: Scheme,
    compute_us: f64,
    repetition: usize,
) -> anyhow::Result<Run> {
    let params: Params = match variant.receiver {
        Receiver::Roomy => plan.params.with_room_for(BURST),
        _ => plan.params,
    };
    let lag_us = match variant.receiver {
        Receiver::Prompt => 0.0,
        Receiver::Late | Receiver::Roomy => pilot.lag_us,
    };
    let iterations = plan.pick(50, 200);
    let ns = |us: f64| ((us * 1e3).round() as u64).to_string();
    let numbers = [
        ("--burst", BURST.to_string()),
        ("--size", SIZE.to_string()),
        ("--compute-ns", ns(compute_us)),
    ];
    let work: Vec<String> = numbers
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect();
    // The library spins by itself; the kernel does not, so there the program polls.
    let busy =
        (variant.wait == Wait::Spinning && scheme == Scheme::Tcp).then(|| "--busy".to_owned());
    let with = |more: [String; 2]| {
        work.iter()
            .cloned()
            .chain(busy.clone())
            .chain(more)
            .collect()
    };
    let outcome = lab.run(&Pair {
        scheme,
        params: &params,
        spin_us: variant.wait.spin_us(),
        server: ("overlap-server", with(["--lag-ns".into(), ns(lag_us)])),
        client: (
            "overlap-client",
            with(["--iterations".into(), iterations.to_string()]),
        ),
        limit: Duration::from_secs(60),
    })?;
    let client = &outcome.client;
    let us = |name: &str| client.number(name).map(|ns| ns / 1e3);
    let (sndbuf, rcvbuf) = client.kernel_buffers();
    // Those of the warm-up are among what the library counts.
    let all = client.number("messages")? / BURST as f64 + client.number("warm_up")?;
    Ok(Run {
        wait: variant.wait,
        receiver: variant.receiver,
        scheme,
        buffer: params.buf.to_string(),
        lag_us,
        compute_us,
        repetition,
        iterations: client.number("iterations")?,
        p25_us: us("p25_ns")?,
        p50_us: us("p50_ns")?,
        p75_us: us("p75_ns")?,
        no_credit_per_iteration: outcome.no_credit().map(|times| times as f64 / all),
        stretch: client.number("stretch").ok(),
        sndbuf,
        rcvbuf,
    })
}

fn summarise(runs: &[Run]) -> Vec<Point> {
    let groups = table::groups(runs, |run| (run.variant(), run.scheme, run.compute_us));
    let point = |((variant, scheme, compute_us), runs): ((Variant, Scheme, f64), Vec<&Run>)| {
        let first = runs.first()?;
        let times = table::spread(&runs, |run| Some(run.p50_us))?;
        Some(Point {
            wait: variant.wait,
            receiver: variant.receiver,
            scheme,
            buffer: first.buffer.clone(),
            lag_us: first.lag_us,
            compute_us,
            runs: runs.len(),
            median_us: times.median,
            q1_us: times.q1,
            q3_us: times.q3,
            min_us: times.min,
            max_us: times.max,
            no_credit_per_iteration: table::median(&runs, |run| run.no_credit_per_iteration),
            stretch: table::median(&runs, |run| run.stretch),
        })
    };
    groups.into_iter().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_burst_is_of_packetized_and_the_lag_of_the_slowest_scheme() {
        let bursts = [
            (Scheme::Credit, 90.5),
            (Scheme::Packetized, 30.0),
            (Scheme::Tcp, 400.0),
        ];
        let pilot = choose(Wait::Sleeping, &bursts);
        assert_eq!((pilot.burst_us, pilot.lag_us), (30.0, 91.0));
        let alone = choose(Wait::Sleeping, &bursts[2..]);
        assert_eq!((alone.burst_us, alone.lag_us), (400.0, 400.0));
    }
}
