//! `bench cost`: what Shunt costs where it gains nothing: going back to kernel TCP, descriptors that are not its own,
//! memory, many connections of which few are busy, and a stream that goes from process to process. This file owns the command line and the order of events;
//! `demotion`, `foreign`, `crowd` and `handover` are what is measured, `sides` runs it, judges it and writes it down.
//!
//! Kernel TCP and Shunt take turns within one run. A run with the library that was not on shared memory is a failure,
//! never a figure.

mod crowd;
mod demotion;
mod foreign;
mod handover;

use crate::sides::{self, Lab, Plan, Row, output};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    run: sides::Args,
    /// Only these
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Measure>,
}

/// One line of the list of costs, which may be several rows of the table. A new one is a name here and a
/// module beside this one.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
enum Measure {
    /// A call that takes an idle connection back to kernel TCP
    Demotion,
    /// read() on a descriptor that is not ours
    Foreign,
    /// Private memory of a connection
    Memory,
    /// Busy connections among many idle ones
    Active,
    /// A stream that two processes use in turn
    Handover,
}

impl Measure {
    const ALL: [Self; 5] = [
        Self::Demotion,
        Self::Foreign,
        Self::Memory,
        Self::Active,
        Self::Handover,
    ];

    fn rows(self, lab: &Lab, plan: &Plan) -> Vec<Row> {
        match self {
            Self::Demotion => demotion::rows(lab, plan),
            Self::Foreign => foreign::rows(lab, plan),
            Self::Memory => crowd::memory(lab, plan),
            Self::Active => crowd::active(lab, plan),
            Self::Handover => handover::rows(lab, plan),
        }
    }
}

pub(crate) fn main(args: &Args) -> anyhow::Result<()> {
    let lab = Lab::new(args.run.lib.as_deref())?;
    let plan = args.run.plan();
    let mut rows = Vec::new();
    for measure in Measure::ALL {
        if args.only.is_empty() || args.only.contains(&measure) {
            for row in measure.rows(&lab, &plan) {
                println!("{}", output::line(&row));
                rows.push(row);
            }
        }
    }
    println!();
    output::print(&rows);
    output::write(&args.run.out, "cost", &rows, &plan)?;
    output::none_failed(&rows, |row| row.failed.is_some())
}
