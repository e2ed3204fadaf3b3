//! `shunt rules check`: prints the rules of a file as the library understands them, and says what is wrong
//! with it, with the same parser and the same words.

use crate::complain;
use crate::run::printable;
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use transport::rules::{self, At, Parsed, Rule};

/// Checks the file; returns the exit status.
pub(crate) fn check(file: &OsStr) -> i32 {
    let name = printable(file);
    let content = match rules::read(file.as_bytes()) {
        Ok(content) => content,
        Err(why) => {
            complain(&format!("{name}: {why}"));
            return 1;
        }
    };
    let parsed = rules::parse(&content);
    let written = io::stdout()
        .write_all(table(&parsed).as_bytes())
        .and_then(|()| io::stdout().flush());
    for problem in &parsed.problems {
        complain(&format!("{name}:{}: {}", problem.line, problem.what));
    }
    i32::from(written.is_err() || !parsed.problems.is_empty())
}

/// One line a rule.
fn table(parsed: &Parsed) -> String {
    let mut out = String::new();
    for rule in &parsed.rules {
        out.push_str(&format!("{}: {}", rule.line, rule.what));
        if let Some(note) = note(parsed, rule) {
            out.push_str("  # ");
            out.push_str(&note);
        }
        out.push('\n');
    }
    if out.is_empty() {
        out.push_str("no rules\n");
    }
    out
}

/// What is not obvious about a rule.
fn note(parsed: &Parsed, rule: &At<Rule>) -> Option<String> {
    let earlier = parsed.hidden_by(rule)?;
    Some(format!(
        "never holds: line {} matches all of it",
        earlier.line
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_shown_as_it_is_understood() {
        let file = b"# ours\n\n  use tcp connect redis-* 10.1.2.3/8:6379-6379 # cache\n\
            use verbs listen * [fd00::1]:*\nuse shm connect redis-cli 10.0.0.0/16:6379\nuse it\n";
        let parsed = rules::parse(file);
        assert_eq!(
            table(&parsed),
            "3: use tcp connect redis-* 10.0.0.0/8:6379\n\
             4: use verbs listen * [fd00::1]:*\n\
             5: use shm connect redis-cli 10.0.0.0/16:6379\n"
        );
        assert_eq!(parsed.problems.len(), 1);
        let parsed =
            rules::parse(b"use tcp connect * 10.0.0.0/8:*\nuse shm connect a 10.9.0.0/16:80\n");
        assert!(table(&parsed).ends_with("# never holds: line 1 matches all of it\n"));
        assert_eq!(table(&rules::parse(b"")), "no rules\n");
    }

    #[test]
    fn what_cannot_be_read_ends_with_1() {
        assert_eq!(check(OsStr::new("/nonexistent/rules")), 1);
        assert_eq!(check(OsStr::new("/dev/null")), 1, "not a regular file");
        assert_eq!(check(OsStr::new("/")), 1);
    }
}
