//! Child processes: what to start, on which core, with the library or without, and their bounded end. Output goes to
//! files, so that nobody has to read while the measurement runs.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::sys;

/// A command line.
pub(crate) struct Program {
    program: OsString,
    args: Vec<OsString>,
}

impl Program {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().into(),
            args: Vec::new(),
        }
    }

    pub(crate) fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().into()));
        self
    }
}

/// Where a program lies; the folders of root are looked into as well.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(more)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// How a child is started.
pub(crate) struct Start<'a> {
    pub core: Option<usize>,
    /// Library and report file.
    pub preload: Option<(&'a Path, &'a Path)>,
    /// The library's settings; none: those of our own environment.
    pub settings: Option<&'a [(&'static str, String)]>,
    /// Output goes to this file, and errors to its name with `.err`.
    pub output: PathBuf,
}

/// A running child; killed when dropped.
pub(crate) struct Child {
    pid: u32,
    name: String,
    output: PathBuf,
    reaped: bool,
}

/// What a child left.
pub(crate) struct Ended {
    pub output: String,
    pub cpu: Duration,
}

impl Child {
    pub(crate) fn start(program: &Program, start: Start<'_>) -> anyhow::Result<Self> {
        let name = Path::new(&program.program)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let path = find(&name).filter(|_| !Path::new(&program.program).is_absolute());
        let mut command = Command::new(
            path.as_deref()
                .map_or(program.program.as_os_str(), Path::as_os_str),
        );
        command
            .args(&program.args)
            .stdin(Stdio::null())
            .process_group(0);
        command
            .stdout(File::create(&start.output)?)
            .stderr(File::create(errors_of(&start.output))?);
        // What failed stands in the last line of its errors then.
        command.env("RUST_BACKTRACE", "0");
        for (key, _) in std::env::vars_os() {
            let shunt = key.as_encoded_bytes().starts_with(b"SHUNT_");
            let ours = start.preload.is_some() && start.settings.is_none();
            if key == "LD_PRELOAD" || (shunt && !ours) {
                command.env_remove(key);
            }
        }
        if let Some((library, report)) = start.preload {
            command
                .env("LD_PRELOAD", library)
                .env("SHUNT_REPORT", report)
                .envs(
                    start
                        .settings
                        .into_iter()
                        .flatten()
                        .map(|(name, value)| (name, value)),
                );
        }
        let cores = start.core.map(|core| sys::Cores::one(core % sys::cores()));
        let prepare = move || {
            // Not SIGKILL: a server with workers must be able to end them.
            sys::die_with_parent(libc::SIGTERM)?;
            cores.as_ref().map_or(Ok(()), sys::Cores::bind)
        };
        // SAFETY: between fork and exec only two system calls are made.
        unsafe { command.pre_exec(prepare) };
        let pid = command
            .spawn()
            .with_context(|| format!("cannot start {name}"))?
            .id();
        Ok(Self {
            pid,
            name,
            output: start.output,
            reaped: false,
        })
    }

    /// Waits for it to end by itself; an error after `limit` or when it failed.
    pub(crate) fn finish(mut self, limit: Duration) -> anyhow::Result<Ended> {
        if !sys::wait_exit(self.pid, limit)? {
            bail!(
                "{} did not end within {:.0} s",
                self.name,
                limit.as_secs_f64()
            );
        }
        let (status, cpu) = self.reap()?;
        if status != 0 {
            let errors = fs::read_to_string(errors_of(&self.output)).unwrap_or_default();
            let last = errors
                .lines()
                .rev()
                .find(|line| !line.trim().is_empty())
                .unwrap_or("")
                .trim();
            bail!(
                "{} ended with {}: {last}",
                self.name,
                status_in_words(status)
            );
        }
        Ok(Ended {
            output: fs::read_to_string(&self.output)?,
            cpu,
        })
    }

    /// Ends it with SIGTERM, so that it can write its report; how it ended does not matter, but a crash does.
    pub(crate) fn terminate(mut self) -> anyhow::Result<Ended> {
        sys::kill(self.pid as i32, libc::SIGTERM);
        if !sys::wait_exit(self.pid, Duration::from_secs(5))? {
            bail!("{} ignored SIGTERM for 5 s", self.name);
        }
        let (status, cpu) = self.reap()?;
        if [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT, libc::SIGILL].contains(&(status & 0x7f)) {
            bail!("{} ended with {}", self.name, status_in_words(status));
        }
        Ok(Ended {
            output: fs::read_to_string(&self.output)?,
            cpu,
        })
    }

    /// Waits a little for a server that ends when its clients have gone, then terminates it.
    pub(crate) fn finish_or_terminate(self, grace: Duration) -> anyhow::Result<Ended> {
        if sys::wait_exit(self.pid, grace)? {
            self.finish(Duration::ZERO)
        } else {
            self.terminate()
        }
    }

    pub(crate) fn running(&self) -> bool {
        !sys::wait_exit(self.pid, Duration::ZERO).unwrap_or(true)
    }

    fn reap(&mut self) -> anyhow::Result<(i32, Duration)> {
        let result = sys::reap(self.pid)?;
        self.reaped = true;
        Ok(result)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The group, for the children it may have; an empty group is no harm.
        sys::kill(-(self.pid as i32), libc::SIGKILL);
        if !self.reaped {
            let _ = sys::reap(self.pid);
        }
    }
}

fn errors_of(output: &Path) -> PathBuf {
    output.with_extension("err")
}

fn status_in_words(status: i32) -> String {
    match status & 0x7f {
        0 => format!("exit status {}", (status >> 8) & 0xff),
        signal => format!("signal {signal}"),
    }
}
