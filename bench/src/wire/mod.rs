//! `bench wire`: software iWARP against kernel TCP between two hosts, which are network namespaces joined by a veth pair:
//! streams with and without sums, small messages, the system calls they take, ping-pong. This file owns the command line
//! and the list of measurements; `measure` is one of them, `sides` runs it and writes it down.
//!
//! Kernel TCP and Shunt take turns within one run. A run with the library that was not on iWARP is a failure, never a figure.

mod measure;

use std::path::PathBuf;

use crate::machine;
use crate::sides::{Hosts, Lab, Plan, output};
use measure::Measure;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The library under test; by default the one that was built with this program
    #[arg(long)]
    lib: Option<PathBuf>,
    /// Repetitions of each measurement on each side
    #[arg(long, default_value_t = 7)]
    reps: usize,
    /// Three short repetitions: a look, not a result
    #[arg(long)]
    quick: bool,
    /// Only these
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Measure>,
    /// Where wire.csv and wire.json go
    #[arg(long, default_value = "out")]
    out: PathBuf,
}

pub(crate) fn main(args: &Args) -> anyhow::Result<()> {
    let mut lab = Lab::new(args.lib.as_deref())?.between(Hosts::new()?);
    let plan = Plan {
        reps: if args.quick { 3 } else { args.reps.max(1) },
        quick: args.quick,
    };
    let load = machine::load();
    if load > 0.3 {
        println!("load average {load}: others use these cores; wait, or the figures show them too");
    }
    let mut rows = Vec::new();
    for measure in Measure::ALL {
        if args.only.is_empty() || args.only.contains(&measure) {
            let row = measure.row(&mut lab, &plan);
            println!("{}", output::line(&row));
            rows.push(row);
        }
    }
    println!();
    output::print(&rows);
    output::write(&args.out, "wire", &rows, &plan)?;
    output::none_failed(&rows)
}
