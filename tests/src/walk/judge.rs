//! Runs a plan on kernel TCP and under the library, and compares what its processes saw.

use super::generate;
use super::plan::Plan;
use crate::matrix::deviation;
use crate::pair;
use crate::report::Report;
use crate::run::Outcome;
use std::path::PathBuf;
use std::time::Duration;

/// Which ends are under the library, and how they find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Both,
    /// The same with the connecting and accepting ends exchanged.
    Swap,
    OnlyA,
    OnlyB,
}

pub const MODES: [Mode; 4] = [Mode::Both, Mode::Swap, Mode::OnlyA, Mode::OnlyB];

impl Mode {
    pub fn name(self) -> &'static str {
        ["both", "swap", "only_a", "only_b"][self as usize]
    }

    fn loads(self, end: usize) -> bool {
        !matches!((self, end), (Self::OnlyA, 1) | (Self::OnlyB, 0))
    }
}

const LIMIT: Duration = Duration::from_secs(40);

/// One run of a plan.
#[derive(Debug)]
pub struct Run {
    pub transcript: Vec<String>,
    notes: String,
    reports: Vec<Report>,
}

/// Runs it in a mode, on kernel TCP alone or with the library where the mode has it.
pub fn run(seed: u64, mode: Mode, loaded: bool) -> Run {
    let words = |end: usize| {
        vec![
            "@end".into(),
            seed.to_string(),
            end.to_string(),
            u8::from(mode == Mode::Swap).to_string(),
            pair::CHANNEL.to_string(),
        ]
    };
    gather(pair::run(
        program,
        words,
        |end| loaded && mode.loads(end),
        LIMIT,
    ))
}

fn program() -> PathBuf {
    std::env::var_os("SHUNT_WALK").map_or_else(|| std::env::current_exe().unwrap(), PathBuf::from)
}

fn gather(outcomes: Vec<Outcome>) -> Run {
    let mut transcript: Vec<String> = outcomes
        .iter()
        .flat_map(|o| o.stdout.lines().map(String::from))
        .collect();
    // By step, then by process; the lines of one process at one step in their order.
    transcript.sort_by_key(|line| line.chars().take(7).collect::<String>());
    let mut notes = String::new();
    for (end, outcome) in outcomes.iter().enumerate() {
        transcript.push(format!("end {end} {}", outcome.ending()));
        notes += &outcome.stderr;
        notes += outcome.hang.as_deref().unwrap_or("");
    }
    let reports = outcomes.into_iter().map(|o| o.report).collect();
    Run {
        transcript,
        notes,
        reports,
    }
}

/// What is wrong with this seed in these modes; nothing when all is well.
pub fn judge(seed: u64, modes: &[Mode]) -> Result<(), String> {
    let plan = generate::plan(seed);
    for mode in modes {
        one(&plan, *mode).map_err(|e| format!("seed {seed} {}: {e}", mode.name()))?;
    }
    Ok(())
}

fn one(plan: &Plan, mode: Mode) -> Result<(), String> {
    let expected = run(plan.seed, mode, false);
    let broken = |l: &String| l.ends_with("hang") || l.ends_with("exit 101");
    if expected.transcript.iter().any(broken) {
        return Err(format!("broken on kernel TCP:\n{}", show(&expected)));
    }
    let got = run(plan.seed, mode, true);
    if let Some(text) = compare(plan, &expected.transcript, &got.transcript)
        && deviation("walk", mode.name()).is_none()
        && !varies(plan, mode, &expected, &got)
    {
        return Err(format!("{text}{}", got.notes));
    }
    check_path(plan, mode, &got)
}

/// Whether kernel TCP itself gives other answers at other times (a reset that overtakes, a busy
/// machine): then they are no measure, unless this one was never among them and they agree.
fn varies(plan: &Plan, mode: Mode, expected: &Run, got: &Run) -> bool {
    (0..4).any(|_| {
        let again = run(plan.seed, mode, false);
        again.transcript != expected.transcript
            || compare(plan, &again.transcript, &got.transcript).is_none()
    })
}

pub fn show(run: &Run) -> String {
    format!("{}\n{}", run.transcript.join("\n"), run.notes)
}

/// Edge-triggered watchers may be told more than the kernel tells, never less.
fn may_be_more(line: &str) -> bool {
    line.split(' ').nth(2) == Some("edge")
}

fn compare(plan: &Plan, expected: &[String], got: &[String]) -> Option<String> {
    let mut wanted = expected.iter().peekable();
    for (at, line) in got.iter().enumerate() {
        if wanted.peek() == Some(&line) {
            wanted.next();
        } else if !may_be_more(line) {
            return Some(difference(
                plan,
                wanted.next(),
                Some(line),
                &got[at.saturating_sub(12)..at],
            ));
        }
    }
    wanted
        .next()
        .map(|line| difference(plan, Some(line), None, &got[got.len().saturating_sub(12)..]))
}

fn difference(
    plan: &Plan,
    wanted: Option<&String>,
    got: Option<&String>,
    before: &[String],
) -> String {
    let mut text = String::from("differs from kernel TCP:\n");
    for line in before {
        text += &format!("  {line}\n");
    }
    text += &format!(
        "- {}\n+ {}\n",
        wanted.map_or("", |l| l),
        got.map_or("", |l| l)
    );
    let step = wanted
        .or(got)
        .and_then(|l| l.get(..4)?.parse::<usize>().ok());
    if let Some(step) = step.and_then(|i| plan.steps.get(i)) {
        text += &format!("step: {step:?}\n");
    }
    text
}

/// Streams that exchanged messages first are on shared memory if both ends could; all others say why
/// not.
fn check_path(plan: &Plan, mode: Mode, got: &Run) -> Result<(), String> {
    for (end, report) in got.reports.iter().enumerate() {
        if !mode.loads(end) {
            continue;
        }
        let verdict = match mode {
            Mode::OnlyA | Mode::OnlyB => report.check_tcp(),
            _ if plan.warm => report.check_shm(plan.conns.len() as u64, 1),
            _ => report.check_reasons(),
        };
        verdict.map_err(|e| format!("end {end}: {e}"))?;
    }
    Ok(())
}
