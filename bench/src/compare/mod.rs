//! `bench compare`: kernel TCP and Shunt in turn, for every measurement. This file owns the order of events and the
//! choice of measurements; `case` says what a measurement is, `own` and `tools` list them, `exchange` runs one
//! repetition, `evidence` proves what carried it, `verdict` judges, `output` and `plot` write it down.

mod case;
mod evidence;
mod exchange;
mod output;
mod own;
mod plot;
mod tools;
mod verdict;
mod web;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;

use crate::floor::Floor;
use crate::run;
use case::{Case, Ctx, Ends};
use verdict::{Row, Side};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The library under test; by default the one that was built with this program
    #[arg(long)]
    lib: Option<PathBuf>,
    /// Repetitions of each measurement on each side
    #[arg(long, default_value_t = 5)]
    reps: usize,
    /// Seconds that one repetition sends for
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Three short repetitions: a look, not a result
    #[arg(long)]
    quick: bool,
    /// Only measurements whose name contains one of these
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Name the measurements and stop
    #[arg(long)]
    list: bool,
    /// Kernel TCP alone, where there is no library to test
    #[arg(long)]
    kernel_only: bool,
    /// Where compare.csv and compare.json go
    #[arg(long, default_value = "out")]
    out: PathBuf,
    /// Where compare.svg and compare.png go; only a run of everything with the library draws them, unless this is given
    #[arg(long)]
    plots: Option<PathBuf>,
}

impl Args {
    fn repetitions(&self) -> (usize, Duration) {
        if self.quick {
            (3, Duration::from_millis(300))
        } else {
            (self.reps.max(1), Duration::from_secs_f64(self.seconds))
        }
    }

    fn selects(&self, case: &Case) -> bool {
        self.only.is_empty()
            || self
                .only
                .iter()
                .any(|part| case.name.contains(part.as_str()))
    }

    /// docs/img is written by complete runs only: half a picture must not replace a whole one.
    fn plot_folder(&self) -> Option<PathBuf> {
        let complete = self.only.is_empty() && !self.kernel_only && !self.quick;
        self.plots
            .clone()
            .or_else(|| complete.then(|| PathBuf::from("docs/img")))
    }
}

pub(crate) fn main(args: &Args) -> anyhow::Result<()> {
    let cases: Vec<Case> = all()
        .into_iter()
        .filter(|case| args.selects(case))
        .collect();
    anyhow::ensure!(
        !cases.is_empty(),
        "no measurement has such a name; see --list"
    );
    if args.list {
        for case in &cases {
            println!(
                "{:<22} {} [{}]",
                case.name,
                case.what,
                case.targets_in_words()
            );
        }
        return Ok(());
    }

    let (reps, length) = args.repetitions();
    let ctx = Ctx::new(library(args)?, length)?;
    let floor = Floor::measure(reps, length.min(Duration::from_millis(200)))?;
    floor.print();

    let mut rows = Vec::new();
    for case in &cases {
        if let Some(missing) = case
            .needs
            .iter()
            .find(|program| run::find(program).is_none())
        {
            println!("{}: {missing}: not installed, skipped", case.name);
            rows.push(Row::skipped(case, format!("{missing}: not installed")));
            continue;
        }
        let [kernel, shunt] = measure(&ctx, case, reps);
        let row = Row::judge(case, &kernel, ctx.lib.is_some().then_some(&shunt), &floor);
        println!("{}", output::line(&row));
        rows.push(row);
    }
    println!();
    output::print(&rows);
    output::write(&args.out, &rows, &floor, reps, length)?;
    if let Some(folder) = args.plot_folder() {
        plot::draw(&folder, &rows)?;
    }
    crate::sides::output::none_failed(&rows, |row| row.failed.is_some())
}

fn all() -> Vec<Case> {
    [own::cases(), tools::cases(), web::cases()]
        .into_iter()
        .flatten()
        .collect()
}

/// None: kernel TCP alone.
fn library(args: &Args) -> anyhow::Result<Option<PathBuf>> {
    if args.kernel_only {
        return Ok(None);
    }
    let found = run::library(args.lib.as_deref());
    found.map(Some).context("or give --kernel-only")
}

/// How long the floor is looked at before and after each run that is held against it.
const LOOK: Duration = Duration::from_millis(50);

/// All repetitions of one measurement. The sides take turns, and take turns at going first.
fn measure(ctx: &Ctx, case: &Case, reps: usize) -> [Side; 2] {
    let sides = [Ends::NONE, case.shunt];
    let mut results = [Side::default(), Side::default()];
    let ctx = ctx.for_turns(case.turns);
    for rep in 0..reps * case.turns as usize {
        for turn in 0..2 {
            let which = (rep + turn) % 2;
            if results[which].hopeless() || (which == 1 && ctx.lib.is_none()) {
                continue;
            }
            let Some(floor) = case.floor.filter(|_| which == 1) else {
                results[which].add(exchange::run(&ctx, case, sides[which]));
                continue;
            };
            // (a floor that cannot be read is like a run that failed: the row says so)
            let before = floor.look(LOOK);
            let result = exchange::run(&ctx, case, sides[which]);
            match (before, floor.look(LOOK)) {
                (Ok(before), Ok(after)) => results[which].add_between(result, [before, after]),
                (Err(error), _) | (_, Err(error)) => results[which].add(Err(error)),
            }
        }
    }
    results
}
