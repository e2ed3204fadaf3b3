//! Kernel TCP and Shunt in turn: what `cost` and `wire` share. `pair` runs programs with and without the library and proves
//! what carried them, `hosts` are two network namespaces to run them in, `row` judges what came of it, `output` writes it
//! down. This file owns the order of turns.

use std::path::PathBuf;

mod hosts;
pub(crate) mod output;
mod pair;
mod row;

pub(crate) use hosts::{Host, Hosts};
pub(crate) use pair::{CLIENT_CORE, Connection, End, Lab, Pair, Side};
pub(crate) use row::{Row, Samples, Target};

/// What both are told on the command line.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The library under test; by default the one that was built with this program
    #[arg(long)]
    pub lib: Option<PathBuf>,
    /// Repetitions of each measurement on each side
    #[arg(long, default_value_t = 7)]
    reps: usize,
    /// Three short repetitions: a look, not a result
    #[arg(long)]
    quick: bool,
    /// Where the table goes, as CSV and JSON
    #[arg(long, default_value = "out")]
    pub out: PathBuf,
}

impl Args {
    pub(crate) fn plan(&self) -> Plan {
        Plan {
            reps: if self.quick { 3 } else { self.reps.max(1) },
            quick: self.quick,
        }
    }
}

/// How much is measured.
pub(crate) struct Plan {
    pub reps: usize,
    pub quick: bool,
}

impl Plan {
    /// Chooses by whether this is only a look.
    pub(crate) fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Calls `once` for either side in turn, which goes first in turn too.
    pub(crate) fn turns(&self, times: usize, mut once: impl FnMut(Side) -> bool) {
        for turn in 0..2 * self.reps * times {
            let first = (turn / 2) % 2;
            let side = Side::BOTH[(turn + first) % 2];
            if !once(side) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Side::{Kernel, Shunt};
    use super::*;

    #[test]
    fn sides_take_turns_and_take_turns_at_going_first() {
        let plan = Plan {
            reps: 2,
            quick: false,
        };
        let mut seen = Vec::new();
        plan.turns(1, |side| {
            seen.push(side);
            true
        });
        assert_eq!(seen, [Kernel, Shunt, Shunt, Kernel]);
    }
}
