//! One line of a file of rules: its words.

#![forbid(unsafe_code)]

use super::place::Place;
use super::{Problem, Program, Role, Rule};
use crate::settings::Wanted;

/// The rule of a line; nothing for one that is empty or a comment.
pub(super) fn parse(line: &[u8]) -> Result<Option<Rule>, Problem> {
    let text = std::str::from_utf8(line).map_err(|_| Problem::NotText)?;
    let words: Vec<&str> = text
        .split_ascii_whitespace()
        .take_while(|word| !word.starts_with('#'))
        .collect();
    match words.as_slice() {
        [] => Ok(None),
        ["use", wanted, role, program, place] => Ok(Some(Rule {
            wanted: Wanted::from_word(wanted)
                .ok_or_else(|| Problem::Transport((*wanted).to_owned()))?,
            role: match *role {
                "connect" => Role::Connect,
                "listen" => Role::Listen,
                other => return Err(Problem::Role(other.to_owned())),
            },
            program: Program::parse(program)?,
            place: Place::parse(place)?,
        })),
        ["use", ..] => Err(Problem::Words(words.len())),
        [other, ..] => Err(Problem::NotUse((*other).to_owned())),
    }
}
