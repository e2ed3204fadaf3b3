//! `bench wire`: software iWARP against kernel TCP between two hosts, which are network namespaces joined by a veth pair:
//! streams with and without sums, small messages, the system calls they take, ping-pong. This file owns the command line
//! and the list of measurements; `measure` is one of them, `sides` runs it and writes it down.
//!
//! Kernel TCP and Shunt take turns within one run. A run with the library that was not on iWARP is a failure, never a figure.

mod measure;

use crate::machine;
use crate::sides::{self, Hosts, Lab, output};
use measure::Measure;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    run: sides::Args,
    /// Only these
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Measure>,
}

pub(crate) fn main(args: &Args) -> anyhow::Result<()> {
    let mut lab = Lab::new(args.run.lib.as_deref())?.between(Hosts::new()?);
    let plan = args.run.plan();
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
    output::write(&args.run.out, "wire", &rows, &plan)?;
    output::none_failed(&rows, |row| row.failed.is_some())
}
