//! What can be wrong with a line of rules, in words: each message is one line that says what is allowed.

use crate::settings::Wanted;
use std::fmt;

/// Characters of a wrong word that are shown.
const SHOWN: usize = 48;

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It is not UTF-8.
    NotText,
    /// It begins with another word than `use`.
    NotUse(String),
    /// A rule has five words; so many are there.
    Words(usize),
    Transport(String),
    Role(String),
    /// A name with control characters.
    Program(String),
    /// No `:PORT` behind the address.
    NoPort(String),
    Address(String),
    /// A prefix, and the longest that its address can have.
    Prefix(String, u8),
    Port(String),
}

/// A word of the file for a message of one line, whatever is in it.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tame = |c: char| if c.is_control() { '?' } else { c };
        let word: String = self.0.chars().take(SHOWN).map(tame).collect();
        let more = if self.0.chars().nth(SHOWN).is_some() {
            "..."
        } else {
            ""
        };
        write!(f, "{word}{more}")
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotText => write!(f, "the line is not UTF-8 text"),
            Self::NotUse(word) => write!(
                f,
                "{}: a line begins with use, or with # for a comment",
                Shown(word)
            ),
            Self::Words(count) => write!(
                f,
                "a rule has 5 words, not {count}: use TRANSPORT connect|listen PROGRAM ADDRESS:PORT"
            ),
            Self::Transport(word) => {
                write!(
                    f,
                    "{}: allowed is {}",
                    Shown(word),
                    Wanted::WORDS.join(", ")
                )
            }
            Self::Role(word) => write!(f, "{}: allowed is connect, listen", Shown(word)),
            Self::Program(word) => write!(
                f,
                "{}: allowed is a program's name or path without control characters (* ? [] match)",
                Shown(word)
            ),
            Self::NoPort(word) => write!(
                f,
                "{}: the port is missing: allowed is ADDRESS:PORT, ADDRESS:LOW-HIGH, ADDRESS:*",
                Shown(word)
            ),
            Self::Address(word) => write!(
                f,
                "{}: allowed is *, an IPv4 address or an [IPv6] address in brackets; behind an address /PREFIX",
                Shown(word)
            ),
            Self::Prefix(word, most) => {
                write!(f, "/{}: allowed is /0 to /{most}", Shown(word))
            }
            Self::Port(word) => write!(
                f,
                "{}: allowed is *, a port from 1 to 65535, or two as LOW-HIGH",
                Shown(word)
            ),
        }
    }
}
