//! What the tests of real programs share: finding programs, free ports, and running a scene twice.
//!
//! A scene is a function that starts a server and its clients on a `Stage` and returns what the
//! user would see. `twice` runs it plain and under the library and compares the two.

use crate::report::Report;
use crate::run::{Folder, Job, Launch, Outcome, library};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Looks a program up; Debian keeps some outside the usual path.
pub fn find(program: &str) -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"]
        .iter()
        .map(PathBuf::from)
        .collect();
    if let Some(own) = std::env::var_os("SHUNT_PROGRAMS") {
        folders.extend(std::env::split_paths(&own));
    }
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        folders.extend(versions.flatten().map(|v| v.path().join("bin")));
    }
    if let Some(path) = std::env::var_os("PATH") {
        folders.extend(std::env::split_paths(&path));
    }
    folders
        .into_iter()
        .map(|f| f.join(program))
        .find(|p| p.is_file())
}

/// Whether all of these are here. A missing one fails the test unless SHUNT_ALLOW_MISSING is set.
pub fn have(programs: &[&str]) -> bool {
    for program in programs {
        if find(program).is_none() {
            assert!(
                std::env::var_os("SHUNT_ALLOW_MISSING").is_some(),
                "{program} is not installed; scripts/test installs it when it is root"
            );
            println!("SKIPPED, {program} is not installed");
            return false;
        }
    }
    true
}

/// Whether this user may do what only root may. Scenes that need it are skipped by name without.
pub fn is_root() -> bool {
    // SAFETY: geteuid cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        println!("SKIPPED, needs root");
    }
    root
}

/// A port that nobody has, and that no client is given before the server that is meant to listen there does: they have the
/// ports from 32768 on (ip_local_port_range). Not twice in one run.
pub fn free_port() -> u16 {
    const PORTS: std::ops::Range<u32> = 20_000..32_768;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // (other runs at the same time begin elsewhere)
    let start = std::process::id().wrapping_mul(61);
    loop {
        let nth = start.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed));
        let port = (PORTS.start + nth % (PORTS.end - PORTS.start)) as u16;
        let taken = |host| {
            let tried = TcpListener::bind((host, port));
            tried.is_err_and(|e| e.kind() == ErrorKind::AddrInUse)
        };
        if !taken("::") && !taken("0.0.0.0") {
            return port;
        }
    }
}

/// Whether somebody listens there, without connecting.
pub fn listening(port: u16) -> bool {
    listening_in("self", port)
}

/// Whether somebody listens there on the host (network namespace) of this process.
pub fn listening_in(process: &str, port: u16) -> bool {
    let mark = format!(":{port:04X} ");
    ["tcp", "tcp6"].iter().any(|family| {
        let file = format!("/proc/{process}/net/{family}");
        let table = std::fs::read_to_string(file).unwrap_or_default();
        table.lines().any(|line| {
            let mut words = line.split_whitespace();
            let own = words.nth(1).unwrap_or("");
            format!("{own} ").ends_with(&mark) && words.nth(1) == Some("0A")
        })
    })
}

pub const LONG: Duration = Duration::from_secs(60);

/// One run of a scene, plain or under the library.
#[derive(Debug)]
pub struct Stage {
    pub folder: Folder,
    library: Option<PathBuf>,
    count: u32,
}

impl Stage {
    pub fn new(loaded: bool) -> Self {
        let folder = Folder::new();
        // Readable for servers that change their user.
        std::fs::set_permissions(folder.path(""), PermissionsExt::from_mode(0o755)).unwrap();
        let copy = folder.path("libshunt.so");
        let library = loaded.then(|| {
            std::fs::copy(library(), &copy).unwrap();
            std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
            copy
        });
        Self {
            folder,
            library,
            count: 0,
        }
    }

    pub fn loaded(&self) -> bool {
        self.library.is_some()
    }

    /// A program, under the library if this run is.
    pub fn launch(&mut self, program: &str) -> Launch {
        let start = self.plain(program);
        self.count += 1;
        let report = self.folder.path(&format!("report-{}", self.count));
        std::fs::write(&report, "").unwrap();
        std::fs::set_permissions(&report, PermissionsExt::from_mode(0o666)).unwrap();
        match &self.library {
            Some(library) => start.under(library, report),
            None => start,
        }
    }

    /// A program that is never under the library.
    pub fn plain(&self, program: &str) -> Launch {
        let path = find(program).unwrap_or_else(|| panic!("{program} is not installed"));
        Launch::new(path).in_folder(&self.folder.path(""))
    }

    /// Starts a server and waits until it listens.
    pub fn serve(&mut self, start: Launch, port: u16) -> Job {
        let mut job = start.start();
        let up = crate::sys::wait::eventually(|| listening(port) || !job.running());
        if !up || !job.running() {
            job.signal(libc::SIGTERM);
            job.finish(Duration::from_secs(5))
                .expect_ok("server did not start");
            panic!("server does not listen on {port}");
        }
        job
    }

    /// Runs a client to its end, which must be a good one.
    pub fn client(&mut self, start: Launch, what: &str) -> Outcome {
        let outcome = start.start().finish(LONG);
        outcome.expect_ok(what);
        outcome
    }

    /// Fails unless this much went over shared memory, when this run is under the library, and every connection that was
    /// attached stayed so to its end.
    #[track_caller]
    pub fn assert_shm(&self, what: &str, report: &Report, connections: u64, bytes: u64) {
        self.assert_shm_then(what, report, connections, bytes, &[]);
    }

    /// As [`Self::assert_shm`], but connections may go back to the kernel for one of these reasons.
    #[track_caller]
    pub fn assert_shm_then(
        &self,
        what: &str,
        report: &Report,
        connections: u64,
        bytes: u64,
        reasons: &[&str],
    ) {
        if self.loaded() {
            let verdict = match stays_on_tcp() {
                Some(_) => report.check_reasons(),
                None => report.check_shm(connections, bytes),
            };
            verdict
                .and_then(|()| report.check_demotions(reasons))
                .unwrap_or_else(|e| panic!("{what}: {e}"));
        }
    }

    /// Fails unless there is a report and every connection on kernel TCP says why.
    #[track_caller]
    pub fn assert_explained(&self, what: &str, report: &Report) {
        if self.loaded() {
            assert!(!report.processes.is_empty(), "{what}: no report");
            report
                .check_reasons()
                .unwrap_or_else(|e| panic!("{what}: {e}"));
        }
    }

    /// Fails unless at least this many connections are in the report, and each that is on kernel TCP, or
    /// went back there, is for one of these reasons.
    #[track_caller]
    pub fn assert_path(&self, what: &str, report: &Report, connections: u64, reasons: &[&str]) {
        if self.loaded() {
            report
                .check_path(connections, reasons)
                .unwrap_or_else(|e| panic!("{what}: {e}"));
        }
    }

    /// What all programs of this run have reported so far, those that outlived their starters too.
    pub fn reports(&self) -> Report {
        let all: Vec<Report> = (1..=self.count)
            .map(|n| Report::read(&self.folder.path(&format!("report-{n}"))).unwrap())
            .collect();
        Report::merged(&all.iter().collect::<Vec<_>>())
    }

    /// A file with this content, readable by everybody.
    pub fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.folder.path(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).unwrap();
        }
        std::fs::write(&path, content).unwrap();
        path
    }
}

/// Why the connections of the running test may stay on kernel TCP where rules name software iWARP.
fn stays_on_tcp() -> Option<&'static str> {
    const LIST: &str = include_str!("../deviations-apps-iwarp.txt");
    crate::run::transport()?;
    let thread = std::thread::current();
    let test = thread.name()?;
    let mut lines = LIST.lines().filter(|l| !l.starts_with('#'));
    lines.find_map(|line| {
        let (name, why) = line.split_once(' ')?;
        (name == test).then_some(why)
    })
}

/// Runs the scene plain and under the library; what the user sees must be the same.
#[track_caller]
pub fn twice(scene: impl Fn(&mut Stage) -> String) {
    let plain = scene(&mut Stage::new(false));
    let shunted = scene(&mut Stage::new(true));
    assert_eq!(
        plain, shunted,
        "what the programs print differs from kernel TCP"
    );
}

/// Length and hash of a file.
pub fn digest(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap();
    format!("{} bytes {:x}", bytes.len(), crate::side::hash(&bytes))
}

/// The value after `key` in some text, up to the next white space or comma.
#[track_caller]
pub fn number_after(text: &str, key: &str) -> f64 {
    let rest = text
        .split(key)
        .nth(1)
        .unwrap_or_else(|| panic!("no {key:?} in {text}"));
    let rest = rest.trim_start_matches([' ', '\t', ':', '=']);
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    rest[..end]
        .parse()
        .unwrap_or_else(|_| panic!("no number after {key:?} in {text}"))
}
