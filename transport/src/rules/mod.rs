//! The rules: which transport carries the connections of which program, to or at which addresses. Read from
//! the file that SHUNT_RULES names, in the manner of libsdp.conf. `preload::rules` asks [`Rules`] at each
//! connect and listen; the command `shunt rules check` shows what was understood.
//!
//! One rule a line:
//!
//! ```text
//! use auto|shm|iwarp|verbs|tcp  connect|listen  PROGRAM  ADDRESS[/PREFIX]:PORT[-PORT]
//! ```
//!
//! - `connect` rules look at the peer's address, `listen` rules at the address of the listening socket itself:
//!   one that listens at all addresses is at `0.0.0.0`, or at `[::]` and `0.0.0.0`. The first rule that matches holds.
//! - PROGRAM: [`program`]. ADDRESS and PORT: [`place`].
//! - A word that begins with `#` begins a comment.
//!
//! The rule kept here: a line that is wrong is told with its number, and only that line does not hold.

mod applied;
mod file;
mod line;
mod place;
mod plan;
mod problem;
mod program;
#[cfg(test)]
mod tests;

pub use applied::Rules;
pub use file::{Unreadable, read};
pub use place::{Place, Ports};
pub use plan::{Iwarp, Plan};
pub use problem::Problem;
pub use program::{Identity, Program};

use crate::settings::Wanted;
use std::fmt;

/// Which end of a connection a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Connect,
    Listen,
}

impl Role {
    /// The word in the file.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Listen => "listen",
        }
    }
}

/// One rule. Prints itself as a line that means the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub wanted: Wanted,
    pub role: Role,
    pub program: Program,
    pub place: Place,
}

impl Rule {
    /// Whether everything that `other` matches is matched by this rule too, as far as that can be told from
    /// the patterns.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.role == other.role
            && self.program.covers(&other.program)
            && self.place.covers(&other.place)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wanted, role) = (self.wanted.word(), self.role.word());
        write!(f, "use {wanted} {role} {} {}", self.program, self.place)
    }
}

/// Something in a file, with the number of its line, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At<T> {
    pub line: usize,
    pub what: T,
}

/// A file's rules, in its order, and what is wrong with other lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    pub rules: Vec<At<Rule>>,
    pub problems: Vec<At<Problem>>,
}

impl Parsed {
    /// The rule before this one that leaves nothing for it, if there is one.
    #[must_use]
    pub fn hidden_by(&self, rule: &At<Rule>) -> Option<&At<Rule>> {
        let mut earlier = self.rules.iter().take_while(|r| r.line < rule.line);
        earlier.find(|r| r.what.covers(&rule.what))
    }
}

/// Reads a file's content.
#[must_use]
pub fn parse(content: &[u8]) -> Parsed {
    let mut parsed = Parsed::default();
    for (index, bytes) in content.split(|&b| b == b'\n').enumerate() {
        let line = index + 1;
        match line::parse(bytes) {
            Ok(Some(what)) => parsed.rules.push(At { line, what }),
            Ok(None) => {}
            Err(what) => parsed.problems.push(At { line, what }),
        }
    }
    parsed
}
