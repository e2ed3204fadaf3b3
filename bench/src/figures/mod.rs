//! `bench figures`: the figures of chapter 4 of the SDP thesis, made on this machine: data as CSV, pictures as SVG and
//! PNG, tables as Markdown. This file owns the command line and the order of events. `scheme` says what is compared,
//! `pair` runs it, `proof` proves what carried it, `latency`, `bandwidth` and `overlap` are one figure each.
//!
//! Only order and ratio of the schemes mean anything, so they take turns point by point within one run.

mod bandwidth;
mod latency;
mod overlap;
mod pair;
mod proof;
mod scheme;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use crate::{machine, sys};
use pair::Lab;
use scheme::{Params, Scheme};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The library under test; by default the one that was built with this program
    #[arg(long)]
    lib: Option<PathBuf>,
    /// Repetitions of each point
    #[arg(long, default_value_t = 10)]
    reps: usize,
    /// Three short repetitions of few points: a look, not a result
    #[arg(long)]
    quick: bool,
    /// Only these figures: 4.4 (latency), 4.5 (bandwidth), 4.7 (overlap)
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Figure>,
    /// Only these schemes
    #[arg(long, value_enum, value_delimiter = ',')]
    schemes: Vec<Scheme>,
    #[command(flatten)]
    params: Params,
    /// How late a late receiver begins in 4.7, in µs; by default the time of the longest burst of any scheme
    #[arg(long)]
    lag_us: Option<f64>,
    /// Where everything goes
    #[arg(long, default_value = "out/figures")]
    out: PathBuf,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Figure {
    #[value(name = "4.4")]
    Latency,
    #[value(name = "4.5")]
    Bandwidth,
    #[value(name = "4.7")]
    Overlap,
}

/// What every figure needs to know.
struct Plan {
    schemes: Vec<Scheme>,
    reps: usize,
    quick: bool,
    params: Params,
    lag_us: Option<f64>,
    out: PathBuf,
}

impl Plan {
    /// The schemes in the order of their turns: each goes first as often as the others.
    fn turns(&self, repetition: usize) -> impl Iterator<Item = Scheme> {
        let first = repetition % self.schemes.len();
        let (late, early) = self.schemes.split_at(first);
        early.iter().chain(late).copied()
    }

    /// Chooses by whether this is only a look.
    fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}

impl Figure {
    const ALL: [Self; 3] = [Self::Latency, Self::Bandwidth, Self::Overlap];

    /// The name of its files.
    fn name(self) -> &'static str {
        match self {
            Self::Latency => "fig-4.4-latency",
            Self::Bandwidth => "fig-4.5-bandwidth",
            Self::Overlap => "fig-4.7-overlap",
        }
    }

    /// Measures, writes CSV and pictures, and returns the tables.
    fn make(self, lab: &Lab, plan: &Plan) -> anyhow::Result<String> {
        match self {
            Self::Latency => latency::make(lab, plan, self.name()),
            Self::Bandwidth => bandwidth::make(lab, plan, self.name()),
            Self::Overlap => overlap::make(lab, plan, self.name()),
        }
    }
}

pub(crate) fn main(args: &Args) -> anyhow::Result<()> {
    anyhow::ensure!(
        sys::cores() >= 2,
        "each side needs a core of its own, and there is one"
    );
    let lab = Lab::new(args.lib.as_deref())?;
    let all_or = |chosen: &[Scheme]| match chosen {
        [] => Scheme::ALL.to_vec(),
        some => some.to_vec(),
    };
    let plan = Plan {
        schemes: all_or(&args.schemes),
        reps: if args.quick { 3 } else { args.reps.max(1) },
        quick: args.quick,
        params: args.params,
        lag_us: args.lag_us,
        out: args.out.clone(),
    };
    fs::create_dir_all(&plan.out)?;

    let load = machine::load();
    if load > 0.3 {
        println!("load average {load}: others use these cores; wait, or the figures show them too");
    }
    let mut failed = Vec::new();
    for figure in Figure::ALL {
        if !args.only.is_empty() && !args.only.contains(&figure) {
            continue;
        }
        println!(
            "{}: {} repetitions, {}",
            figure.name(),
            plan.reps,
            plan.params
        );
        let (start, fallen) = (Instant::now(), lab.fell_back());
        match figure.make(&lab, &plan) {
            Ok(tables) => {
                println!("\n{tables}");
                let text = format!(
                    "{}\n\n{tables}",
                    provenance(&plan, load, lab.fell_back() - fallen)
                );
                fs::write(plan.out.join(format!("{}.md", figure.name())), text)?;
                println!(
                    "{} took {:.0} s",
                    figure.name(),
                    start.elapsed().as_secs_f64()
                );
            }
            // The other figures are worth having; the command fails all the same.
            Err(error) => {
                println!("{} FAILED: {error:#}", figure.name());
                failed.push(format!("{}: {error:#}", figure.name()));
            }
        }
    }
    println!("everything is in {}", plan.out.display());
    anyhow::ensure!(failed.is_empty(), "no figure: {}", failed.join("; "));
    Ok(())
}

/// What the tables were measured on, and with what.
fn provenance(plan: &Plan, load: f64, fallen: usize) -> String {
    format!(
        "Made by `bench figures{}`: {} repetitions, median (quartiles); {}; {}, {} cores, Linux {}, load average {load} before; {fallen} runs \
         fell back to kernel TCP and were made again.",
        plan.pick(" --quick", ""),
        plan.reps,
        plan.params,
        machine::cpu(),
        sys::cores(),
        machine::kernel(),
    )
}

/// What a reader must know of a figure over message sizes. `checked`: what the programs checked all of.
fn notes(plan: &Plan, checked: &str, kernel: Option<(i64, i64)>) -> Vec<String> {
    let how = format!(
        "Sizes: {}; one core a side; every {checked} checked; points: median of {} runs, bars: quartiles.",
        plan.params, plan.reps
    );
    [how].into_iter().chain(about_tcp(kernel)).collect()
}

/// How kernel TCP was set up, for the notes of a picture.
fn about_tcp(sizes: Option<(i64, i64)>) -> Option<String> {
    let (send, receive) = sizes?;
    Some(format!(
        "Kernel TCP: TCP_NODELAY; SO_SNDBUF and SO_RCVBUF set to the same size, which the kernel doubles for its \
         bookkeeping ({} and {} KiB granted).",
        send / 1024,
        receive / 1024
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_goes_first_in_turn() {
        let plan = Plan {
            schemes: vec![Scheme::Credit, Scheme::Nic, Scheme::Tcp],
            reps: 3,
            quick: false,
            params: Params {
                buf: scheme::Bytes(65_536),
                slot: scheme::Bytes(8192),
                credits: 8,
                window: scheme::Bytes(8192),
            },
            lag_us: None,
            out: PathBuf::new(),
        };
        let turns = |n| plan.turns(n).collect::<Vec<_>>();
        assert_eq!(turns(0), [Scheme::Credit, Scheme::Nic, Scheme::Tcp]);
        assert_eq!(turns(1), [Scheme::Nic, Scheme::Tcp, Scheme::Credit]);
        assert_eq!(turns(3), turns(0));
    }
}
