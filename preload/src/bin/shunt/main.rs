//! The command `shunt`: runs a program with the library under it, shows what the library is doing in the
//! processes that have it, sends their connections back to kernel TCP, checks files of rules, and answers for this host as a
//! port mapper. This file owns the entry and nothing else.
//!
//! There is no Rust `main`: the standard library's start-up would ignore SIGPIPE and open descriptors
//! 0 to 2, and the program that `shunt run` becomes would inherit both.

#![cfg_attr(not(test), no_main)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod addresses;
mod demote;
mod elf;
mod help;
mod knock;
mod library;
mod memory;
mod options;
mod output;
mod portmap;
mod processes;
mod program;
mod rules;
mod run;
mod stat;

use options::Command;
use std::ffi::OsString;

/// What the command line was wrong about.
const USAGE: i32 = 2;

/// The command on these words; returns the exit status.
fn shunt(words: Vec<OsString>) -> i32 {
    match options::parse(words) {
        Ok(Command::Run { settings, program }) => run::run(&settings, &program),
        Ok(Command::Demote {
            json,
            wait,
            targets,
        }) => demote::demote(json, wait, &targets),
        Ok(Command::Portmap { wait }) => portmap::portmap(wait),
        Ok(Command::RulesCheck { file }) => rules::check(&file),
        Ok(Command::Stat { json, pids }) => stat::stat(json, &pids),
        Err(options::Refusal::Clap(e)) => {
            let _ = e.print();
            e.exit_code()
        }
        Err(options::Refusal::Value(line)) => {
            complain(&line);
            USAGE
        }
    }
}

/// One line on standard error.
fn complain(line: &str) {
    use std::io::Write as _;
    // One write: lines of several processes do not mix.
    let _ = std::io::stderr().write_all(format!("shunt: {line}\n").as_bytes());
}

/// The C entry.
#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn main(argc: libc::c_int, argv: *const *const libc::c_char) -> libc::c_int {
    use std::os::unix::ffi::OsStrExt as _;
    let count = usize::try_from(argc).unwrap_or(0);
    let mut words = Vec::with_capacity(count);
    for i in 0..count {
        // SAFETY: the kernel passes `argc` C strings, which live as long as the process.
        let word = unsafe { std::ffi::CStr::from_ptr(*argv.add(i)) };
        words.push(std::ffi::OsStr::from_bytes(word.to_bytes()).to_owned());
    }
    shunt(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(words: &[&str]) -> i32 {
        shunt(words.iter().map(OsString::from).collect())
    }

    #[test]
    fn a_wrong_command_line_ends_with_2() {
        assert_eq!(
            status(&["shunt", "run", "--transport=carrier-pigeon", "--", "true"]),
            USAGE
        );
        assert_eq!(
            status(&["shunt", "run", "--transprot=shm", "--", "true"]),
            USAGE
        );
        assert_eq!(status(&["shunt", "run"]), USAGE);
        assert_eq!(status(&["shunt", "sing"]), USAGE);
    }

    #[test]
    fn help_and_version_end_well() {
        assert_eq!(status(&["shunt", "--help"]), 0);
        assert_eq!(status(&["shunt", "--version"]), 0);
    }
}
