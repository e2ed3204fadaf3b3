//! Runs a seed on kernel TCP and under the library, compares, and makes a sequence that differs shorter.

use super::plan::{self, Kind, Plan};
use crate::pair;
use crate::report::Report;
use crate::run::{Folder, Launch, Outcome, library};
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
fn compare(expected: &[String], got: &[String]) -> Option<String> {
    let mut wanted = expected.iter().peekable();
    let before = |at: usize| got[at.saturating_sub(10)..at].join("\n  ");
    for (at, line) in got.iter().enumerate() {
        if wanted.peek() == Some(&line) {
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
