//! `bench zcopy`: what zero copy for large messages is worth: the ring, both kinds of zero copy, the library's own choice
//! and kernel TCP side by side, against the machine's memcpy. This file owns the command line and the order of events.
//! `mode` says what is compared, `lab` runs it, `proof` proves what carried it, `floor` is the bare machine; `stream`
//! (with `show`), `many`, `overlap` and `iperf` are what is measured; `judge` finds break-even sizes, `targets` says what
//! was reached.
//!
//! The modes take turns point by point, and ratios are of runs that were made one after the other. A run that was to be
//! zero copy and copied is marked wherever it is shown, and judged nowhere.

mod floor;
mod iperf;
mod judge;
mod lab;
mod many;
mod mode;
mod overlap;
mod proof;
mod show;
mod stream;
mod targets;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::json;

use crate::prog::BufferUse;
use crate::{machine, sys};
use lab::Lab;
use mode::Mode;
use targets::Measured;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The library under test; by default the one that was built with this program
    #[arg(long)]
    lib: Option<PathBuf>,
    /// Repetitions of each point; 5, or 3 with --quick
    #[arg(long)]
    rounds: Option<usize>,
    /// Short repetitions of fewer sizes: a look, not a result
    #[arg(long)]
    quick: bool,
    /// Only these sections
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Section>,
    /// Only these modes; without `off` nothing can be judged
    #[arg(long, value_enum, value_delimiter = ',')]
    modes: Vec<Mode>,
    /// Only these uses of the buffers
    #[arg(long, value_enum, value_delimiter = ',')]
    buffers: Vec<BufferUse>,
    /// Only messages of so many bytes, in `stream` and `complete`
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<usize>,
    /// Where everything goes
    #[arg(long, default_value = "out/zcopy")]
    out: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
enum Section {
    /// Messages one way, as fast as they go
    Stream,
    /// The time until a message has arrived and was answered
    Complete,
    /// More connections than cores
    Many,
    /// Computation between the messages
    Overlap,
    /// iperf3 with its default block
    Iperf,
}

impl Section {
    const ALL: [Self; 5] = [
        Self::Stream,
        Self::Complete,
        Self::Many,
        Self::Overlap,
        Self::Iperf,
    ];

    /// Measures, writes CSV and pictures, adds to what is judged, and returns the tables.
    fn make(self, lab: &Lab, plan: &Plan, measured: &mut Measured) -> anyhow::Result<String> {
        match self {
            Self::Stream => stream::make(lab, plan, stream::Kind::Stream, measured),
            Self::Complete => stream::make(lab, plan, stream::Kind::Complete, measured),
            Self::Many => many::make(lab, plan, measured),
            Self::Overlap => overlap::make(lab, plan),
            Self::Iperf => iperf::make(lab, plan, measured),
        }
    }

    /// The name of its files.
    fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Complete => "complete",
            Self::Many => "many",
            Self::Overlap => "overlap",
            Self::Iperf => "iperf3",
        }
    }
}

/// What every section needs to know.
struct Plan {
    modes: Vec<Mode>,
    buffers: Vec<BufferUse>,
    sizes: Vec<usize>,
    rounds: usize,
    quick: bool,
    out: PathBuf,
}

impl Plan {
    fn new(args: &Args) -> Self {
        let or = |given: &[BufferUse]| match given {
            [] => vec![BufferUse::Reused, BufferUse::Dirty, BufferUse::Walk],
            some => some.to_vec(),
        };
        let mut modes = Mode::ALL.to_vec();
        modes.retain(|mode| args.modes.is_empty() || args.modes.contains(mode));
        Self {
            modes,
            buffers: or(&args.buffers),
            sizes: match args.sizes.as_slice() {
                [] => sizes(args.quick),
                some => some.to_vec(),
            },
            rounds: args.rounds.unwrap_or(if args.quick { 3 } else { 5 }).max(1),
            quick: args.quick,
            out: args.out.clone(),
        }
    }

    /// Chooses by whether this is only a look.
    fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    fn turns(&self, round: usize) -> Vec<Mode> {
        Mode::turns(&self.modes, round)
    }

    /// What a reader of a picture must know.
    fn notes(&self, more: &str) -> Vec<String> {
        vec![
            format!(
                "{more} Points: median of {} runs, bars: quartiles; the modes take turns.",
                self.rounds
            ),
            "sync, async: SHUNT_ZCOPY_MIN=4k. Left out where messages were copied all the same, by the library's own count."
                .into(),
        ]
    }
}

/// 4 KiB to 64 MiB; the size of a target is among them.
fn sizes(quick: bool) -> Vec<usize> {
    let step = if quick { 2 } else { 1 };
    let mut sizes: Vec<usize> = (12..=26).step_by(step).map(|power| 1 << power).collect();
    if !sizes.contains(&targets::MIDDLE) {
        sizes.push(targets::MIDDLE);
        sizes.sort_unstable();
    }
    sizes
}

pub(crate) fn main(args: &Args) -> anyhow::Result<()> {
    anyhow::ensure!(
        sys::cores() >= 2,
        "each side needs a core of its own, and there is one"
    );
    let lab = Lab::new(args.lib.as_deref())?;
    let plan = Plan::new(args);
    anyhow::ensure!(
        plan.sizes.iter().all(|size| (2..=1 << 30).contains(size)),
        "a message has from 2 bytes to 1 GiB"
    );
    fs::create_dir_all(&plan.out)?;
    let load = machine::load();
    if load > 0.3 {
        println!("load average {load}: others use these cores; wait, or the numbers show them too");
    }
    let (mut measured, mut failed) = (Measured::default(), Vec::new());
    for section in Section::ALL {
        if !args.only.is_empty() && !args.only.contains(&section) {
            continue;
        }
        let name = section.name();
        println!("{name}: {} rounds", plan.rounds);
        let (start, fallen) = (Instant::now(), lab.fell_back());
        let made = section.make(&lab, &plan, &mut measured);
        let why_copied = lab.why_copied();
        match made {
            Ok(mut tables) => {
                for why in why_copied {
                    tables += &format!("\nThe library had to copy in some runs: {why}\n");
                }
                println!("\n{tables}");
                let text = format!(
                    "{}\n\n{tables}",
                    provenance(&plan, load, lab.fell_back() - fallen)
                );
                fs::write(plan.out.join(format!("{name}.md")), text)?;
                println!("{name} took {:.0} s\n", start.elapsed().as_secs_f64());
            }
            // The other sections are worth having; the command fails all the same.
            Err(error) => {
                println!("{name} FAILED: {error:#}\n");
                failed.push(format!("{name}: {error:#}"));
            }
        }
    }
    conclude(&plan, &measured, load)?;
    // A missed target is a result; a failed run is not.
    anyhow::ensure!(failed.is_empty(), "not measured: {}", failed.join("; "));
    Ok(())
}

/// What was reached of the targets: on the terminal, and with the rest of what was judged in zcopy.json.
fn conclude(plan: &Plan, measured: &Measured, load: f64) -> anyhow::Result<()> {
    let targets = targets::judge(measured);
    let table = targets::table(&targets);
    println!("{table}");
    fs::write(plan.out.join("targets.md"), &table)?;
    let all = json!({
        "machine": {"cores": sys::cores(), "cpu": machine::cpu(), "kernel": machine::kernel(), "load": load},
        "rounds": plan.rounds, "quick": plan.quick, "targets": targets,
        "break_even": measured.break_even(), "auto_against_off": measured.auto_against_off(),
    });
    fs::write(
        plan.out.join("zcopy.json"),
        serde_json::to_string_pretty(&all)? + "\n",
    )?;
    println!("everything is in {}", plan.out.display());
    Ok(())
}

/// What the tables were measured on, and with what.
fn provenance(plan: &Plan, load: f64, fallen: usize) -> String {
    format!(
        "Made by `bench zcopy{}`: {} rounds, median (quartiles); {}, {} cores, Linux {}, load average {load} before; \
         {fallen} runs fell back to kernel TCP and were made again.",
        plan.pick(" --quick", ""),
        plan.rounds,
        machine::cpu(),
        sys::cores(),
        machine::kernel(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_of_the_targets_are_always_measured() {
        for quick in [true, false] {
            let sizes = sizes(quick);
            assert_eq!((sizes[0], sizes[sizes.len() - 1]), (4096, 64 << 20));
            assert!(sizes.contains(&targets::MIDDLE) && sizes.contains(&targets::LARGE));
            assert!(sizes.is_sorted());
        }
    }
}
