//! `shunt demote`: asks running programs to send connections back to kernel TCP, and waits until they
//! have. The request is a word in the library's page (`transport::stat`); the program's own threads
//! carry it out, at their next call, and one that sleeps in a call of the library is made to look
//! (`knock`).

use crate::memory::{self, Page};
use crate::{complain, knock, output, processes, stat};
use std::fs;
use std::io::{self, Write as _};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use transport::record::{Record, Transport};
use transport::stat::Request;

/// Something could not be done.
const FAILED: i32 = 1;
/// Asked for, and not done within the time.
const PENDING: i32 = 3;

/// How long a program that is in the middle of its work may take before its sleepers are knocked at.
const GRACE: Duration = Duration::from_millis(2);
/// How long one that was knocked at may take before the next is.
const TURN: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_micros(500);

/// A process, or one descriptor of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) pid: u32,
    pub(crate) fd: Option<i32>,
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let (pid, fd) = match word.split_once(':') {
            Some((pid, fd)) => (pid, Some(fd)),
            None => (word, None),
        };
        let number = |text: &str| text.parse::<i32>().ok().filter(|n| *n >= 0);
        match (number(pid), fd.map(number)) {
            (Some(pid @ 1..), None) => Ok(Self {
                pid: pid.cast_unsigned(),
                fd: None,
            }),
            (Some(pid @ 1..), Some(Some(fd))) => Ok(Self {
                pid: pid.cast_unsigned(),
                fd: Some(fd),
            }),
            _ => Err("a process number is wanted, or PID:FD".to_owned()),
        }
    }
}

/// What became of a request.
struct Outcome {
    program: String,
    done: u32,
    /// Connections that have not gone back yet, and why.
    pending: Option<(usize, String)>,
}

/// Demotes; returns the exit status.
pub(crate) fn demote(json: bool, wait: Duration, targets: &[Target]) -> i32 {
    let mut status = 0;
    let deadline = Instant::now() + wait;
    let mut lines = Vec::new();
    for target in targets {
        match one(*target, deadline) {
            Ok(outcome) => {
                lines.push(show(json, *target, &outcome));
                if let Some((count, why)) = outcome.pending {
                    complain(&format!(
                        "process {} ({}): {} asked for, not done yet: {why}",
                        target.pid,
                        outcome.program,
                        connections(count as u64),
                    ));
                    status = if status == FAILED { FAILED } else { PENDING };
                }
            }
            Err(line) => {
                complain(&line);
                status = FAILED;
            }
        }
    }
    let text = match (json, lines.is_empty()) {
        (true, true) => "[]\n".to_owned(),
        (true, false) => format!("[\n{}\n]\n", lines.join(",\n")),
        (false, _) => lines.into_iter().map(|l| l + "\n").collect(),
    };
    let written = io::stdout().write_all(text.as_bytes());
    match written.and_then(|()| io::stdout().flush()) {
        Ok(()) => status,
        Err(_) => FAILED,
    }
}

fn connections(count: u64) -> String {
    match count {
        1 => "1 connection".to_owned(),
        n => format!("{n} connections"),
    }
}

fn show(json: bool, target: Target, outcome: &Outcome) -> String {
    let Target { pid, fd } = target;
    let pending = outcome.pending.as_ref().map_or(0, |p| p.0);
    if json {
        let fd = fd.map_or_else(|| "null".to_owned(), |fd| fd.to_string());
        let program = serde_json::Value::from(outcome.program.as_str());
        return format!(
            "{{\"program\":{program},\"pid\":{pid},\"fd\":{fd},\"demoted\":{},\"pending\":{pending}}}",
            outcome.done
        );
    }
    let what = match (outcome.done, pending) {
        (0, 0) => "no attached connection".to_owned(),
        (0, _) => "nothing done yet".to_owned(),
        (n, _) => format!("{} back on kernel TCP", connections(u64::from(n))),
    };
    format!("process {pid} ({}): {what}", outcome.program)
}

fn one(target: Target, deadline: Instant) -> Result<Outcome, String> {
    let Target { pid, fd } = target;
    let failed = |e: &io::Error| refusal(pid, e);
    let mappings = processes::mappings(pid).map_err(|e| failed(&e))?;
    let page = match mappings.as_slice() {
        [] => None,
        some => memory::page(pid, some).map_err(|e| failed(&e))?,
    };
    let Some(page) = page else {
        return Err(format!("process {pid} does not run Shunt"));
    };
    let mut outcome = Outcome {
        program: output::tame(&processes::program(pid)),
        done: 0,
        pending: None,
    };
    let records = page.records();
    let attached: Vec<&Record> = records.iter().filter(|r| is_attached(r)).collect();
    let count = match fd {
        Some(fd) => check(pid, fd, &records, &attached).map(|()| 1)?,
        None => attached.len(),
    };
    if count == 0 {
        return Ok(outcome);
    }
    let request = Request {
        ticket: ticket(),
        fd,
    };
    let ended = |e: io::Error| match e.raw_os_error() {
        Some(libc::ESRCH) => format!("process {pid} has ended"),
        _ => refusal(pid, &e),
    };
    match carry_out(&page, pid, request, deadline).map_err(ended)? {
        Some(done) => outcome.done = done,
        None => outcome.pending = Some((count, delay(pid))),
    }
    Ok(outcome)
}

fn is_attached(r: &Record) -> bool {
    Transport::from_number(r.transport.load(Ordering::Relaxed)) != Transport::Tcp
}

/// Whether a descriptor is an attached connection; else the line that says what it is, and what would be
/// one.
fn check(pid: u32, fd: i32, all: &[Record], attached: &[&Record]) -> Result<(), String> {
    let number = |r: &Record| r.fd.load(Ordering::Relaxed).cast_signed();
    let link = |fd: i32| fs::read_link(format!("/proc/{pid}/fd/{fd}"));
    let mut allowed: Vec<i32> = attached.iter().map(|r| number(r)).collect();
    allowed.sort_unstable();
    let allowed = match allowed.as_slice() {
        [] => "it has no attached connection".to_owned(),
        some => {
            let listed: Vec<String> = some.iter().take(16).map(i32::to_string).collect();
            let more = if some.len() > 16 { ", ..." } else { "" };
            format!("attached are {}{more}", listed.join(", "))
        }
    };
    let refuse = |what: &str| Err(format!("process {pid}: descriptor {fd} {what}; {allowed}"));
    let Ok(at) = link(fd) else {
        return refuse("is not open");
    };
    if !at.to_string_lossy().starts_with("socket:") {
        return refuse("is not a socket");
    }
    // By the socket, not by the number: it may be a duplicate.
    let same = |r: &&Record| number(r) == fd || link(number(r)).is_ok_and(|other| other == at);
    if attached.iter().copied().any(|r| same(&r)) {
        return Ok(());
    }
    match all.iter().find(same) {
        Some(r) => {
            let why = transport::reason::Reason::from_number(r.reason.load(Ordering::Relaxed));
            refuse(&format!("is on kernel TCP already ({})", why.code()))
        }
        None => refuse("is not an attached connection"),
    }
}

/// A number that no other request has had lately.
fn ticket() -> u32 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |d| d.as_secs() as u32 ^ d.subsec_nanos());
    (now ^ std::process::id().rotate_left(16)).max(1)
}

/// Leaves the request and waits for the answer. `None`: not within the time; the request stands.
fn carry_out(
    page: &Page,
    pid: u32,
    request: Request,
    deadline: Instant,
) -> io::Result<Option<u32>> {
    page.ask(request)?;
    let begun = Instant::now();
    let mut next = begun + GRACE;
    let mut tried = Vec::new();
    loop {
        if let Some(done) = page.answer(request)? {
            return Ok(Some(done));
        }
        let now = Instant::now();
        if now >= deadline {
            return Ok(None);
        }
        if now >= next {
            next = now + TURN;
            // Another operator's request may have taken the place of this one.
            page.ask(request)?;
            let all = knock::sleepers(pid);
            if all.iter().all(|tid| tried.contains(tid)) {
                tried.clear();
            }
            for tid in all {
                if !tried.contains(&tid) {
                    tried.push(tid);
                    if matches!(knock::knock(page, pid, tid), Ok(true)) {
                        break;
                    }
                }
            }
        }
        std::thread::sleep(LOOK.min(deadline - now));
    }
}

/// Why a process has not done it yet.
fn delay(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name));
        line.map(str::trim).unwrap_or_default().to_owned()
    };
    let what = match (field("State:").chars().next(), field("TracerPid:").as_str()) {
        (Some('T'), _) => return "it is stopped, and does it when it goes on".to_owned(),
        (_, tracer) if !matches!(tracer, "" | "0") => "a debugger holds it",
        _ => "it computes, or sleeps in a call that has nothing to do with its connections",
    };
    format!("{what}; its next call on a connection does it")
}

/// The line for a process that cannot be asked.
fn refusal(pid: u32, e: &io::Error) -> String {
    if e.kind() == io::ErrorKind::PermissionDenied {
        let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
        let guard = match scope.trim() {
            "" | "0" => "",
            _ => " (kernel.yama.ptrace_scope)",
        };
        return format!(
            "process {pid}: not permitted; what a debugger needs is needed: to be its user, or root{guard}"
        );
    }
    format!("process {pid} cannot be asked: {}", stat::cause(e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_processes_or_descriptors() {
        let target = |word: &str| word.parse::<Target>();
        assert_eq!(target("12"), Ok(Target { pid: 12, fd: None }));
        assert_eq!(
            target("12:0"),
            Ok(Target {
                pid: 12,
                fd: Some(0)
            })
        );
        for bad in [
            "",
            "0",
            "x",
            "-1",
            "1:",
            "1:x",
            ":3",
            "1:-2",
            "1:2:3",
            "4294967296",
        ] {
            assert!(target(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_asked_is_one_line() {
        let now = Instant::now();
        let own = Target {
            pid: std::process::id(),
            fd: None,
        };
        let line = one(own, now).err().unwrap();
        assert!(line.contains("does not run Shunt"), "{line}");
        let nobody = Target {
            pid: i32::MAX.cast_unsigned(),
            fd: None,
        };
        let line = one(nobody, now).err().unwrap();
        assert!(line.contains("no such process"), "{line}");
        let denied = refusal(5, &io::Error::from_raw_os_error(libc::EPERM));
        assert!(denied.contains("root") && !denied.contains('\n'));
    }

    #[test]
    fn a_descriptor_that_is_none_names_those_that_are() {
        let own = std::process::id();
        let record = Record::default();
        record.begin(77, 1, transport::reason::Reason::None);
        record.set_transport(Transport::Shm);
        let line = check(own, 1_000_000, &[], &[&record]).unwrap_err();
        assert!(line.contains("is not open; attached are 77"), "{line}");
        let file = fs::File::open("/dev/null").unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let line = check(own, fd, &[], &[]).unwrap_err();
        assert!(
            line.ends_with("is not a socket; it has no attached connection"),
            "{line}"
        );
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
        assert!(
            check(own, fd, &[], &[])
                .unwrap_err()
                .contains("is not an attached connection")
        );
        record.begin(fd, 1, transport::reason::Reason::PeerPlain);
        let line = check(own, fd, &[record], &[]).unwrap_err();
        assert!(
            line.contains("on kernel TCP already (peer_plain)"),
            "{line}"
        );
    }
}
