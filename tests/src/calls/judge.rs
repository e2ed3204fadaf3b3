//! Runs a seed on kernel TCP and under the library, compares, and makes a sequence that differs shorter.

use super::plan::{self, Kind, Plan};
use crate::pair;
use crate::report::Report;
use crate::run::{Folder, Launch, Outcome, library, transport};
use std::path::PathBuf;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct Run {
    pub transcript: Vec<String>,
    notes: String,
    reports: Vec<Report>,
}

fn program() -> PathBuf {
    std::env::var_os("SHUNT_CALLS").map_or_else(|| std::env::current_exe().unwrap(), PathBuf::from)
}

/// These steps of a seed, each end a process.
pub fn run(seed: u64, keep: &[usize], loaded: bool) -> Run {
    let keep: Vec<String> = keep.iter().map(usize::to_string).collect();
    let words = |end: usize| {
        vec![
            "@end".into(),
            seed.to_string(),
            end.to_string(),
            pair::CHANNEL.to_string(),
            keep.join(","),
        ]
    };
    let outcomes = if plan::kind(seed) == Kind::Threads {
        vec![both(seed, &keep.join(","), loaded)]
    } else {
        pair::run(program, words, |_| loaded, LIMIT)
    };
    let mut run = Run {
        transcript: Vec::new(),
        notes: String::new(),
        reports: Vec::new(),
    };
    let mut endings = Vec::new();
    for (end, outcome) in outcomes.into_iter().enumerate() {
        run.transcript
            .extend(outcome.stdout.lines().map(String::from));
        endings.push(format!("end {end} {}", outcome.ending()));
        run.notes += &outcome.stderr;
        run.notes += outcome.hang.as_deref().unwrap_or("");
        run.reports.push(outcome.report);
    }
    // By step, then by end; what one says in a step in its order.
    run.transcript
        .sort_by_key(|line| line.chars().take(6).collect::<String>());
    run.transcript.extend(endings);
    run
}

/// Both ends as threads of one process.
fn both(seed: u64, keep: &str, loaded: bool) -> Outcome {
    let folder = Folder::new();
    let mut start = Launch::new(program()).args(["@both", &seed.to_string(), keep]);
    if loaded {
        start = start.under(&library(), folder.path("report"));
    }
    start.start().finish(LIMIT)
}

/// What differs, with the lines before. An edge may be told more often than by the kernel, never less.
///
/// Between hosts four things more are not the kernel's:
/// - Octets of SDP's own wake whoever watches a set, until the set has been looked at: a set that holds one may be told of for nothing,
///   never be left out.
/// - What a killed program had taken from the kernel and not read is not unread to its kernel, which makes the end of file of what
///   would be a reset (or the reverse, by a request that it had not looked at). What it had sent has to be there.
/// - What goes to an end that is gone is answered after the time that a network takes, and by an adapter not at all: of the messages
///   of one sendmmsg more have gone by then.
/// - That both directions have ended is the kernel's knowledge once both libraries have said so, and shutdown says it then.
fn compare(expected: &[String], got: &[String]) -> Option<String> {
    let far = transport().is_some();
    let counts = |line: &&String| !far || !is_how_the_dead_end(line);
    let (expected, got): (Vec<_>, Vec<_>) = (
        expected.iter().filter(counts).cloned().collect(),
        got.iter().filter(counts).cloned().collect(),
    );
    let mut wanted = expected.iter().peekable();
    let before = |at: usize| got[at.saturating_sub(10)..at].join("\n  ");
    for (at, line) in got.iter().enumerate() {
        let allowed = |wanted: &&String| {
            far && [is_told_for_nothing, is_answered_late, is_over_later]
                .iter()
                .any(|is| is(wanted, line))
        };
        if wanted.peek() == Some(&line) || wanted.peek().is_some_and(allowed) {
            wanted.next();
        } else if line.split(' ').nth(2) != Some("edge") {
            let wanted = wanted.next().map_or("", |l| l);
            return Some(format!("  {}\n- {wanted}\n+ {line}\n", before(at)));
        }
    }
    wanted
        .next()
        .map(|line| format!("  {}\n- {line}\n+\n", before(got.len())))
}

/// Whether a set within a set was shown where the kernel would not have.
fn is_told_for_nothing(wanted: &str, got: &str) -> bool {
    wanted
        .strip_suffix(" outer 0")
        .is_some_and(|step| got.strip_prefix(step) == Some(" outer 1 0x99:IN"))
}

/// Whether a sendmmsg has sent at least what the kernel's had when the answer came: its list, and the line with its sum.
fn is_answered_late(wanted: &str, got: &str) -> bool {
    let list = |line: &'_ str| {
        let (step, rest) = line.split_once(" sendmmsg ")?;
        let inner = rest.split_once('[')?.1.strip_suffix(']')?;
        Some((step.to_owned(), inner.to_owned()))
    };
    if let (Some((step, few)), Some((same, many))) = (list(wanted), list(got)) {
        return step == same && many.starts_with(&format!("{few}, "));
    }
    let sum = |line: &'_ str| {
        let (call, sum) = line.rsplit_once(' ')?;
        let sum = sum.parse::<u64>().ok()?;
        call.contains(" give sendmmsg ")
            .then(|| (call.to_owned(), sum))
    };
    matches!((sum(wanted), sum(got)), (Some((call, few)), Some((same, many))) if call == same && few < many)
}

/// Whether a shutdown has not been told yet that nothing is connected any more.
fn is_over_later(wanted: &str, got: &str) -> bool {
    wanted.contains(" shutdown ")
        && wanted
            .strip_suffix("ENOTCONN")
            .is_some_and(|call| got.strip_suffix('0') == Some(call))
}

/// A line of how the end of a killed peer shows, and not of what it had sent.
fn is_how_the_dead_end(line: &str) -> bool {
    let is_data = || {
        let n = line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok());
        line.contains(" left ") && n.is_some_and(|n| n > 0)
    };
    line.starts_with(DEAD) && !is_data()
}

/// The step of what is left after a death.
const DEAD: &str = "9999 ";

/// What is wrong with these steps of a seed under the library. What kernel TCP itself tells otherwise at other times is no
/// measure.
pub fn judge(seed: u64, plan: &Plan, keep: &[usize]) -> Result<(), String> {
    let expected = run(seed, keep, false);
    if expected
        .transcript
        .iter()
        .any(|l| l.ends_with("hang") || l.ends_with("exit 101"))
    {
        return Err(format!(
            "broken on kernel TCP:\n{}\n{}",
            expected.transcript.join("\n"),
            expected.notes
        ));
    }
    let got = run(seed, keep, true);
    if let Some(text) = compare(&expected.transcript, &got.transcript) {
        let varies = (0..3).any(|_| {
            let again = run(seed, keep, false);
            again.transcript != expected.transcript
                || compare(&again.transcript, &got.transcript).is_none()
        });
        if !varies {
            return Err(format!("{text}{}", got.notes));
        }
    }
    // A fuzzer whose streams stay on kernel TCP tests nothing.
    for (end, report) in got.reports.iter().enumerate() {
        if plan.warm && plan.killed != Some(end) {
            report
                .check_shm(1, 1)
                .map_err(|e| format!("end {end}: {e}"))?;
        }
    }
    Ok(())
}

pub fn seed(seed: u64) -> Result<(), String> {
    let plan = plan::plan(seed);
    let keep: Vec<usize> = (0..plan.steps.len()).collect();
    judge(seed, &plan, &keep).map_err(|e| format!("seed {seed}: {e}"))
}

/// The fewest steps of a seed, as far as halving finds them, that still differ.
pub fn shrink(seed: u64) -> (Vec<usize>, String) {
    let plan = plan::plan(seed);
    let mut keep: Vec<usize> = (0..plan.steps.len()).collect();
    let mut text = String::new();
    let mut part = keep.len();
    while part > 0 {
        let mut at = 0;
        while at < keep.len() {
            let mut fewer = keep.clone();
            fewer.drain(at..(at + part).min(keep.len()));
            match judge(seed, &plan, &fewer) {
                Err(what) if !what.starts_with("broken") => {
                    keep = fewer;
                    text = what;
                }
                _ => at += part,
            }
        }
        part /= 2;
    }
    (keep, text)
}
