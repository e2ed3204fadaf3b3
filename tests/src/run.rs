//! Starts programs plain or under the library, with a limit on how long they may take.
//!
//! A program that hangs is looked at (what each thread waits for) before it is ended; whatever a
//! test started is ended by it, by process group, also when the test fails.

use crate::report::Report;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The library under test: SHUNT_LIB, or the release build of this workspace.
pub fn library() -> PathBuf {
    let path = std::env::var_os("SHUNT_LIB").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/libshunt.so"),
        PathBuf::from,
    );
    let path = path.canonicalize();
    path.unwrap_or_else(|e| panic!("no library to test ({e}): build it with cargo build --release"))
}

/// A folder of its own for one test, removed when dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("shunt-test-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Which naps the programs do without: SHUNT_NO_NAPS, where somebody hunts for what naps hide (`all`).
fn naps() -> String {
    std::env::var("SHUNT_NO_NAPS").unwrap_or_else(|_| "1".to_owned())
}

/// The flow-control scheme that the next program is to use: that of SHUNT_TEST_FLOW, or of several with commas between, or with
/// `mixed` of all, each in turn, so that the two ends of a connection differ.
fn flow() -> Option<String> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let asked = std::env::var("SHUNT_TEST_FLOW").ok()?;
    let asked = if asked == "mixed" {
        "credit,nic,packetized"
    } else {
        &asked
    };
    let schemes: Vec<&str> = asked.split(',').collect();
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    schemes.get(next % schemes.len()).map(|&s| s.to_owned())
}

/// The transport that every program is asked to use, if SHUNT_TEST_TRANSPORT names one: iwarp.
pub fn transport() -> Option<String> {
    std::env::var("SHUNT_TEST_TRANSPORT").ok()
}

/// The stand-in for an adapter that programs are to have where they lend their buffers: one that keeps registrations. None where
/// they have none, or the one that somebody asks for.
pub fn stand_in_that_keeps() -> Option<&'static str> {
    let asked = ["SHUNT_TEST_ADAPTER", "SHUNT_TEST_STANDIN"];
    let is_asked = asked.iter().any(|name| std::env::var_os(name).is_some());
    (transport().as_deref() == Some("verbs") && !is_asked).then_some("1^")
}

/// In a case's program: whether its connections go as those between hosts do.
pub fn goes_far() -> bool {
    std::env::var_os("SHUNT_RULES").is_some()
}

/// Likewise: whether what they carry may go by an adapter.
pub fn rides() -> bool {
    let rules = std::env::var_os("SHUNT_RULES").map(std::fs::read_to_string);
    rules.is_some_and(|text| text.is_ok_and(|text| text.contains("verbs")))
}

/// A file of rules that say so of every connection, also of those on this host.
fn rules() -> PathBuf {
    static FILES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let transport = transport().unwrap_or_default();
    let path = rules_path(&transport);
    let mut files = FILES.lock().unwrap();
    if !files.contains(&path) {
        let lines = ["connect", "listen"].map(|role| format!("use {transport} {role} * *:*\n"));
        std::fs::write(&path, lines.concat()).unwrap();
        // SAFETY: a function without arguments, as it is to be.
        unsafe { libc::atexit(forget_rules) };
        files.push(path.clone());
    }
    path
}

/// Where this process has those for a transport.
fn rules_path(transport: &str) -> PathBuf {
    std::env::temp_dir().join(format!("shunt-rules-{}-{transport}", std::process::id()))
}

/// Once all that was started has ended. (In a child that was forked it is another path.)
extern "C" fn forget_rules() {
    for transport in ["iwarp", "verbs"] {
        let _ = std::fs::remove_file(rules_path(transport));
    }
}

/// A program about to be started.
#[derive(Debug)]
pub struct Launch {
    command: Command,
    name: String,
    report: Option<PathBuf>,
}

impl Launch {
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let name = program.as_ref().to_string_lossy().into_owned();
        let mut command = Command::new(program);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.process_group(0).env_remove("LD_PRELOAD");
        // The harness's own variables are no settings of the library.
        for (key, _) in
            std::env::vars_os().filter(|(k, _)| k.to_string_lossy().starts_with("SHUNT_"))
        {
            command.env_remove(key);
        }
        Self {
            command,
            name,
            report: None,
        }
    }

    pub fn args<S: AsRef<OsStr>>(mut self, list: impl IntoIterator<Item = S>) -> Self {
        self.command.args(list);
        self
    }

    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    pub fn input(mut self, file: &Path) -> Self {
        self.command.stdin(std::fs::File::open(file).unwrap());
        self
    }

    pub fn in_folder(mut self, path: &Path) -> Self {
        self.command.current_dir(path);
        self
    }

    /// Runs it under the library, with its report in this file.
    pub fn under(mut self, library: &Path, report: PathBuf) -> Self {
        self.command
            .env("LD_PRELOAD", library)
            .env("SHUNT_REPORT", &report)
            .env("SHUNT_NO_NAPS", naps()); // a wake-up that is lost shows
        if let Some(few) = std::env::var_os("SHUNT_TEST_FEW") {
            self.command.env("SHUNT_FEW", few); // (boards, where there are no more connections than in most cases)
        }
        if let Some(scheme) = flow() {
            self.command.env("SHUNT_FLOW", scheme);
        }
        if transport().is_some() {
            self.command.env("SHUNT_RULES", rules());
            if std::env::var_os("SHUNT_TEST_ADAPTER").is_none() {
                let ports = std::env::var_os("SHUNT_TEST_STANDIN");
                let ports = ports.unwrap_or_else(|| "1".into());
                self.command.env("SHUNT_STANDIN_ADAPTER", ports);
            }
        }
        if let Some(way) = std::env::var_os("SHUNT_TEST_ZCOPY") {
            self.command.env("SHUNT_ZCOPY", way);
            self.command.env("SHUNT_ZCOPY_MIN", "4k");
        }
        if let Some(size) = std::env::var_os("SHUNT_TEST_BUF") {
            self.command.env("SHUNT_BUF", size);
        }
        if let Some(mode) = std::env::var_os("SHUNT_TEST_ZCOPY") {
            self.command.env("SHUNT_ZCOPY", mode);
        }
        self.report = Some(report);
        self
    }

    /// The command itself, for what this type has no word for.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    pub fn start(mut self) -> Job {
        // SAFETY: no more than system calls.
        unsafe { self.command.pre_exec(as_from_a_terminal) };
        let mut child = self
            .command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {}: {e}", self.name));
        let stdout = collect(child.stdout.take().unwrap());
        let stderr = collect(child.stderr.take().unwrap());
        Job {
            child,
            name: self.name,
            report: self.report,
            stdout,
            stderr,
            over: false,
        }
    }
}

/// What a shell starts in the background ignores SIGINT, and so would everything that these tests start: a server
/// that is asked to end by it never would.
fn as_from_a_terminal() -> std::io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
        // SAFETY: no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    Ok(())
}

fn collect(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (give, take) = channel();
    std::thread::spawn(move || {
        let mut buf = [0; 16384];
        while let Ok(n) = pipe.read(&mut buf) {
            if n == 0 || give.send(buf[..n].to_vec()).is_err() {
                break;
            }
        }
    });
    take
}

/// A running program.
#[derive(Debug)]
pub struct Job {
    child: Child,
    name: String,
    report: Option<PathBuf>,
    stdout: Receiver<Vec<u8>>,
    stderr: Receiver<Vec<u8>>,
    over: bool,
}

/// What came of a program.
#[derive(Debug)]
pub struct Outcome {
    pub stdout: String,
    pub stderr: String,
    pub status: ExitStatus,
    /// Set when it had to be ended; holds what its threads were waiting for.
    pub hang: Option<String>,
    pub report: Report,
}

impl Outcome {
    /// "exit N", "signal N" or "hang".
    pub fn ending(&self) -> String {
        if self.hang.is_some() {
            return "hang".to_string();
        }
        crate::sys::proc::show_status(self.status.into_raw())
    }

    /// Fails with everything known about the run unless it ended well.
    #[track_caller]
    pub fn expect_ok(&self, what: &str) -> &Self {
        assert!(
            self.hang.is_none() && self.status.success(),
            "{what}: {}\nstdout: {}\nstderr: {}\n{}",
            self.ending(),
            self.stdout,
            self.stderr,
            self.hang.as_deref().unwrap_or("")
        );
        self
    }
}

impl Job {
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn signal(&self, signal: i32) {
        let _ = crate::sys::proc::kill(self.pid(), signal);
    }

    pub fn running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    fn wait_until(&mut self, end: Instant) -> Option<ExitStatus> {
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            if Instant::now() > end {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for it to end by itself; ends it when it takes longer than the limit.
    pub fn finish(mut self, limit: Duration) -> Outcome {
        let (status, hang) = match self.wait_until(Instant::now() + limit) {
            Some(status) => (status, None),
            None => {
                let state = look_at(self.pid());
                self.end_group();
                (
                    self.child.wait().unwrap(),
                    Some(format!("{} hangs:\n{state}", self.name)),
                )
            }
        };
        self.over = true;
        let stdout = take_all(&self.stdout);
        let stderr = take_all(&self.stderr);
        self.end_group();
        let report = self.report.as_deref().map_or_else(Report::default, |path| {
            Report::read(path).unwrap_or_else(|e| panic!("{}: {e}", self.name))
        });
        Outcome {
            stdout,
            stderr,
            status,
            hang,
            report,
        }
    }

    /// Asks it to end with this signal, then waits.
    pub fn stop(self, signal: i32) -> Outcome {
        self.signal(signal);
        self.finish(Duration::from_secs(20))
    }

    fn end_group(&self) {
        let _ = crate::sys::proc::kill(-self.pid(), libc::SIGKILL);
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !self.over {
            self.end_group();
            let _ = self.child.wait();
        }
    }
}

/// What was printed; waits a little for a child that still holds the pipe.
fn take_all(pipe: &Receiver<Vec<u8>>) -> String {
    let mut all = Vec::new();
    while let Ok(part) = pipe.recv_timeout(Duration::from_secs(5)) {
        all.extend(part);
    }
    String::from_utf8_lossy(&all).into_owned()
}

fn children_of(pid: i32) -> Vec<i32> {
    let mut list = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(other) = entry
            .file_name()
            .to_str()
            .and_then(|n| n.parse::<i32>().ok())
        else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.split(' ').nth(1));
        if parent.and_then(|p| p.parse::<i32>().ok()) == Some(pid) {
            list.push(other);
            list.extend(children_of(other));
        }
    }
    list
}

/// What every thread of a process and of its children is doing.
pub fn look_at(pid: i32) -> String {
    let mut text = String::new();
    let mut all = vec![pid];
    all.extend(children_of(pid));
    for pid in all {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let read =
                |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let state = read("status");
            let state = state
                .lines()
                .find(|l| l.starts_with("State"))
                .unwrap_or("")
                .to_string();
            let thread = task.file_name().to_string_lossy().into_owned();
            let _ = writeln!(
                text,
                "process {pid} thread {thread} {} {state}",
                read("comm").trim()
            );
            let _ = writeln!(
                text,
                "  wchan {} syscall {}",
                read("wchan"),
                read("syscall").trim()
            );
            for line in read("stack").lines().take(8) {
                let _ = writeln!(text, "  {line}");
            }
        }
    }
    text
}
