//! Runs cases in every mode and compares each transcript with the one from kernel TCP.
//!
//! `trials` says which ends are under the library, how the run is set up and what zero copy is asked for;
//! `judge` runs one case in one of them and returns what is wrong with it. Deviations that are meant are
//! listed with their reasons in deviations.txt; one that no longer shows up is an error too.

use crate::cases::{Body, Case, Path as Expected};
use crate::remembered;
use crate::report::Report;
use crate::run::{Folder, Job, Launch, Outcome, library};
use crate::side::Setup;
use crate::sys::net;
use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How a case is run under the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Both ends as processes, warmed up.
    Both,
    /// The same with the connecting and accepting roles exchanged.
    Swap,
    /// Both ends as processes, no warm-up: everything happens while the ends still find each other.
    Cold,
    /// Both ends as threads of one process.
    Threads,
    /// Only end A under the library; end B is a plain peer.
    OnlyA,
    /// Only end B under the library; end A is a plain peer.
    OnlyB,
    /// One process that does everything itself.
    Solo,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Swap => "swap",
            Self::Cold => "cold",
            Self::Threads => "threads",
            Self::OnlyA => "only_a",
            Self::OnlyB => "only_b",
            Self::Solo => "solo",
        }
    }

    fn setup(self) -> Setup {
        Setup {
            warm: self != Self::Cold,
            swap: self == Self::Swap,
        }
    }

    /// The mode whose plain run is the oracle for this one.
    fn oracle(self) -> Self {
        match self {
            Self::OnlyA | Self::OnlyB => Self::Both,
            other => other,
        }
    }

    fn under(self, side: char) -> bool {
        match self {
            Self::OnlyA => side == 'A',
            Self::OnlyB => side == 'B',
            _ => true,
        }
    }
}

/// What the programs are asked to do with large messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zcopy {
    /// Nothing: as set up for all tests.
    Default,
    /// Messages are large from the smallest size on that can be.
    Auto,
    /// The same, and what could be copied waits for the reader.
    Sync,
    /// The same, and what can be held in place is; a write to it copies, or waits for the reader, as the library
    /// sees fit.
    Async,
    /// It always copies.
    AsyncCopy,
    /// It always waits.
    AsyncWait,
}

impl Zcopy {
    /// The value of SHUNT_ZCOPY, if it is to be set.
    const fn setting(self) -> Option<&'static str> {
        match self {
            Self::Default => None,
            Self::Auto => Some("auto"),
            Self::Sync => Some("sync"),
            Self::Async | Self::AsyncCopy | Self::AsyncWait => Some("async"),
        }
    }

    /// The value of SHUNT_ZCOPY_WRITE, if it is to be set.
    const fn write(self) -> Option<&'static str> {
        match self {
            Self::AsyncCopy => Some("copy"),
            Self::AsyncWait => Some("wait"),
            _ => None,
        }
    }

    const fn holds(self) -> bool {
        matches!(self, Self::Async | Self::AsyncCopy | Self::AsyncWait)
    }
}

/// One way to run a case.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    pub mode: Mode,
    pub zcopy: Zcopy,
}

impl Trial {
    pub fn name(self) -> String {
        let mode = self.mode.name();
        let words = [self.zcopy.setting(), self.zcopy.write()];
        let words = words.into_iter().flatten();
        words.fold(mode.to_owned(), |name, word| format!("{name}_{word}"))
    }
}

pub fn modes(case: &Case) -> Vec<Mode> {
    if matches!(case.body, Body::Solo(_)) {
        return vec![Mode::Solo];
    }
    let mut list = vec![Mode::Both, Mode::Swap, Mode::Cold];
    if case.threads {
        list.push(Mode::Threads);
    }
    list.extend([Mode::OnlyA, Mode::OnlyB]);
    list
}

/// Every way to run a case. One of large messages is run with them waiting for the reader, held in place, and
/// neither, a plain peer aside, which makes no difference.
pub fn trials(case: &Case) -> Vec<Trial> {
    if between_hosts(case.name).is_some() {
        return Vec::new(); // some of them would wait for what does not come
    }
    // (between hosts large messages go as others do, unless adverts are asked for)
    let apart = crate::run::transport().is_some();
    let ways: &[Zcopy] = match (case.large, case.held) {
        (Some(_), _) if apart && crate::run::transport().as_deref() != Some("tcp") => {
            &[Zcopy::Default, Zcopy::Sync]
        }
        _ if apart => &[Zcopy::Default],
        (Some(_), _) => &[Zcopy::Sync, Zcopy::Auto, Zcopy::Async],
        (None, Some(_)) => &[
            Zcopy::Default,
            Zcopy::Async,
            Zcopy::AsyncCopy,
            Zcopy::AsyncWait,
        ],
        (None, None) => &[Zcopy::Default],
    };
    let mut list = Vec::new();
    for mode in modes(case) {
        let plain_peer = matches!(mode, Mode::OnlyA | Mode::OnlyB);
        if plain_peer && apart {
            continue; // whoever names that transport without asking says that the peer has it
        }
        if between_hosts(&format!("{}/{}", case.name, mode.name())).is_some() {
            continue;
        }
        let some = if plain_peer { &ways[..1] } else { ways };
        let trials = some.iter().map(|&zcopy| Trial { mode, zcopy });
        list.extend(
            trials.filter(|trial| {
                between_hosts(&format!("{}/{}", case.name, trial.name())).is_none()
            }),
        );
    }
    list
}

/// What one run left behind.
#[derive(Debug, Clone)]
pub struct Run {
    pub transcript: String,
    notes: String,
    reports: Vec<(String, Report)>,
    /// It was not made by this runner.
    remembered: bool,
}

impl Run {
    /// One of which only this is known.
    fn of(transcript: String) -> Self {
        Self {
            transcript,
            notes: String::new(),
            reports: Vec::new(),
            remembered: true,
        }
    }

    fn is_broken(&self) -> bool {
        self.transcript.contains("exit 101\n") || self.transcript.contains("hang\n")
    }
}

/// Runs a case; `loaded` says whether the mode's ends are under the library at all.
pub fn run(case: &Case, trial: Trial, loaded: bool) -> Run {
    let mode = trial.mode;
    let limit = Duration::from_secs(if case.slow { 180 } else { 30 });
    let folder = Folder::new();
    if matches!(mode, Mode::Threads | Mode::Solo) {
        let side = if mode == Mode::Solo {
            "solo"
        } else {
            "threads"
        };
        let job = launch(case, side, trial, loaded, None, folder.path("report"));
        return gather(&[("-", job.finish(limit))]);
    }
    let (left, right) = net::unix_pair(libc::SOCK_SEQPACKET);
    let a = launch(
        case,
        "A",
        trial,
        loaded && mode.under('A'),
        Some(left),
        folder.path("A"),
    );
    let b = launch(
        case,
        "B",
        trial,
        loaded && mode.under('B'),
        Some(right),
        folder.path("B"),
    );
    net::close(left).ok();
    net::close(right).ok();
    let a = std::thread::spawn(move || a.finish(limit));
    let b = b.finish(limit);
    gather(&[("A", a.join().unwrap()), ("B", b)])
}

fn launch(
    case: &Case,
    side: &str,
    trial: Trial,
    loaded: bool,
    channel: Option<i32>,
    report: PathBuf,
) -> Job {
    let setup = trial.mode.setup();
    let warm = if setup.warm { "warm" } else { "cold" };
    let swap = if setup.swap { "swap" } else { "straight" };
    let channel_text = channel.unwrap_or(-1).to_string();
    let mut start = Launch::new(program()).args([case.name, side, warm, swap, &channel_text]);
    if let Some(fd) = channel {
        // SAFETY: fcntl is async-signal-safe; the descriptor stays open until after the spawn.
        unsafe {
            start.command().pre_exec(move || {
                libc::fcntl(fd, libc::F_SETFD, 0);
                Ok(())
            });
        }
    }
    if loaded {
        start = start.under(&library(), report);
        if let Some(setting) = trial.zcopy.setting() {
            start = start.env("SHUNT_ZCOPY", setting);
            start = start.env("SHUNT_ZCOPY_MIN", "4k");
            if let Some(adapter) = crate::run::stand_in_that_keeps() {
                start = start.env("SHUNT_STANDIN_ADAPTER", adapter);
            }
        }
        if let Some(setting) = trial.zcopy.write() {
            start = start.env("SHUNT_ZCOPY_WRITE", setting);
        }
    }
    start.start()
}

/// The runner of single cases, built next to the tests.
fn program() -> PathBuf {
    std::env::var_os("SHUNT_CONFORM")
        .map_or_else(|| std::env::current_exe().unwrap(), PathBuf::from)
}

fn gather(outcomes: &[(&str, Outcome)]) -> Run {
    let mut transcript = String::new();
    let mut notes = String::new();
    let lines: Vec<&str> = outcomes
        .iter()
        .flat_map(|(_, o)| o.stdout.lines())
        .collect();
    for side in ["A ", "B ", "S "] {
        for line in lines.iter().filter(|l| l.starts_with(side)) {
            transcript.push_str(line);
            transcript.push('\n');
        }
    }
    for (name, outcome) in outcomes {
        transcript.push_str(&format!("{name} {}\n", outcome.ending()));
        notes.push_str(&outcome.stderr);
        notes.push_str(outcome.hang.as_deref().unwrap_or(""));
    }
    let reports = outcomes
        .iter()
        .map(|(n, o)| ((*n).to_string(), o.report.clone()))
        .collect();
    Run {
        transcript,
        notes,
        reports,
        remembered: false,
    }
}

/// Plain transcripts already known, by mode.
pub type Oracle = HashMap<Mode, Run>;

/// What is wrong with this case in this mode; nothing when all is well.
pub fn judge(case: &Case, trial: Trial, oracle: &mut Oracle) -> Result<(), String> {
    let mode = trial.mode.oracle();
    let ask_kernel = || {
        let plain = run(case, Trial { mode, ..trial }, false);
        remembered::keep(case.name, mode.name(), &plain.transcript);
        plain
    };
    let expected = oracle.entry(mode).or_insert_with(|| {
        remembered::find(case.name, mode.name()).map_or_else(ask_kernel, Run::of)
    });
    if expected.is_broken() {
        return Err(format!(
            "broken on kernel TCP:\n{}{}",
            expected.transcript, expected.notes
        ));
    }
    let got = run(case, trial, true);
    if expected.remembered && compare(&expected.transcript, &got.transcript).is_some() {
        *expected = ask_kernel(); // (what is remembered may be what happens rarely)
    }
    let differs = compare(&expected.transcript, &got.transcript);
    match (differs, deviation(case.name, &trial.name())) {
        (Some(text), None) => return Err(format!("{text}{}{}", got.notes, path_note(&got))),
        (None, Some(why)) if !why.starts_with("sometimes: ") => {
            return Err(format!("no longer deviates, though listed: {why}"));
        }
        _ => {}
    }
    check_path(case, trial.mode, &got)?;
    check_zcopy(case, trial, &got)
}

fn path_note(got: &Run) -> String {
    got.reports
        .iter()
        .map(|(name, r)| format!("report {name}: {}\n", r.summary()))
        .collect()
}

/// The lines that differ, expected with "-" and got with "+".
fn compare(expected: &str, got: &str) -> Option<String> {
    if expected == got {
        return None;
    }
    let (left, right): (Vec<_>, Vec<_>) = (expected.lines().collect(), got.lines().collect());
    let same = left.iter().zip(&right).take_while(|(l, r)| l == r).count();
    let mut text = String::from("differs from kernel TCP:\n");
    for line in &left[same.saturating_sub(2)..same] {
        text.push_str(&format!("  {line}\n"));
    }
    for (sign, list) in [("-", &left), ("+", &right)] {
        for line in list.iter().skip(same).take(12) {
            text.push_str(&format!("{sign} {line}\n"));
        }
    }
    Some(text)
}

fn check_path(case: &Case, mode: Mode, got: &Run) -> Result<(), String> {
    let plain_peer = matches!(mode, Mode::OnlyA | Mode::OnlyB);
    for (name, report) in &got.reports {
        let loaded = name == "-" || mode.under(name.chars().next().unwrap());
        let ended_well = got.transcript.contains(&format!("{name} exit 0\n"));
        if !loaded || (!ended_well && report.processes.is_empty()) {
            continue;
        }
        let verdict = match case.path {
            Expected::Any(_) => report.check_reasons(),
            _ if plain_peer => report.check_tcp(),
            _ if mode == Mode::Cold => report.check_reasons(),
            // A server that has spoken first has declined (`transport::wire::set_up`).
            Expected::Shm(_) if is_declined(case, report) => report.check_reasons(),
            Expected::Shm(least) => {
                let least = if mode == Mode::Threads {
                    2 * least
                } else {
                    least
                };
                report.check_shm(least as u64, 1)
            }
        };
        verdict.map_err(|e| format!("end {name}: {e}\n{}{}", got.notes, path_note(got)))?;
    }
    Ok(())
}

/// Cases whose server surely waits for its client: none of them may be declined. (In many others who speaks first is a race.)
const CLIENT_FIRST: [&str; 4] = [
    "share_server_of_many",
    "many_open_before_the_first_byte",
    "fork_per_connection",
    "zcopy_then_exit",
];

/// Whether a connection that should be between hosts was declined by a server that had spoken.
fn is_declined(case: &Case, report: &Report) -> bool {
    let declined = |c: &crate::report::Connection| {
        matches!(c.reason.as_deref(), Some("declined" | "peer_plain"))
    };
    let certain = CLIENT_FIRST.contains(&case.name);
    crate::run::transport().is_some() && !certain && report.connections().any(declined)
}

/// Runs of large messages between hosts that were to go straight, and bytes that did. (Of one alone nothing is sure: a reader that is late
/// is not waited for, and there may be no ring before the end.)
static APART: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// How many such runs there were of which at least some must have, and none has.
pub fn none_went_straight() -> Option<u64> {
    let [runs, bytes] = APART.each_ref().map(|n| n.load(Ordering::Relaxed));
    (runs >= 50 && bytes == 0).then_some(runs)
}

/// What becomes of large messages between hosts that are asked to go straight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Straight {
    /// In some runs they do.
    Some,
    /// They never do: the sender's flow control counts each octet on its way, or each slot, and what is lent has none.
    Never,
}

/// That, by what carries the octets and by the schemes of flow control of those who send.
fn straight(transport: &str, flow: Option<&str>) -> Straight {
    // (`mixed` and lists have senders of each in turn)
    match (transport, flow) {
        ("tcp", _) | ("verbs", Some("credit" | "packetized")) => Straight::Never,
        _ => Straight::Some,
    }
}

/// As many bytes went straight from one program's memory to the other's as the case says.
fn check_zcopy(case: &Case, trial: Trial, got: &Run) -> Result<(), String> {
    let apart = crate::run::transport(); // (where a reader that is late is not waited for)
    let sure = matches!(trial.mode, Mode::Both | Mode::Swap | Mode::Threads) && apart.is_none();
    if let Some(transport) = apart.filter(|_| trial.zcopy == Zcopy::Sync) {
        let bytes: u64 = got.reports.iter().map(|(_, r)| r.zcopy_bytes()).sum();
        let flow = std::env::var("SHUNT_TEST_FLOW").ok();
        if straight(&transport, flow.as_deref()) == Straight::Some {
            APART[0].fetch_add(1, Ordering::Relaxed);
            APART[1].fetch_add(bytes, Ordering::Relaxed);
        } else if bytes > 0 {
            let text = format!("{bytes} bytes by zero copy, where there is none\n");
            return Err(text + &path_note(got));
        }
    }
    let least = match trial.zcopy {
        Zcopy::Sync => case.large.map(|large| large.sync),
        zcopy if zcopy.holds() && trial.mode != Mode::Threads => case.held,
        _ => None,
    };
    let Some(least) = least.filter(|_| sure) else {
        return Ok(());
    };
    let both: u64 = got.reports.iter().map(|(_, r)| r.zcopy_bytes()).sum();
    if both >= least {
        return Ok(());
    }
    Err(format!(
        "{both} bytes by zero copy, expected {least}\n{}",
        path_note(got)
    ))
}

/// Why this case differs where software iWARP carries the bytes.
fn between_hosts(case: &str) -> Option<&'static str> {
    const IWARP: &str = include_str!("../deviations-iwarp.txt");
    const VERBS: &str = include_str!("../deviations-verbs.txt");
    let by_ring = crate::run::transport()? == "verbs";
    let lines = IWARP.lines().chain(VERBS.lines().filter(|_| by_ring));
    let mut lines = lines.filter(|l| !l.starts_with('#'));
    lines.find_map(|line| {
        let (name, why) = line.split_once(' ')?;
        (name == case).then_some(why)
    })
}

/// The reason for a listed deviation of this case in this mode.
pub fn deviation(case: &str, mode: &str) -> Option<&'static str> {
    const LIST: &str = include_str!("../deviations.txt");
    LIST.lines()
        .filter(|l| !l.starts_with('#'))
        .find_map(|line| {
            let mut words = line.splitn(3, ' ');
            let (name, modes, why) = (words.next()?, words.next()?, words.next()?);
            let hit = name == case && (modes == "*" || modes.split(',').any(|m| m == mode));
            hit.then_some(why)
        })
}
