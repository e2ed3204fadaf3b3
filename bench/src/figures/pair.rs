//! One run: a server on one core, a client on the other, both under the library or neither; both end, and what carried
//! them is proved. Called by the figures. Every wait is bounded, and nothing it starts outlives it.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

use super::proof::{self, Connection, FellBack};
use super::scheme::{Params, Scheme};
use crate::run::{Child, Program, Scratch, Start, free_port, wait_listening};

/// What does not change from run to run.
pub(super) struct Lab {
    pub lib: PathBuf,
    /// This program, which is also the client and the server.
    me: PathBuf,
    scratch: Scratch,
    fell_back: Cell<usize>,
}

/// How often a run is made before its falling back to kernel TCP is an error.
const ATTEMPTS: usize = 3;

/// What is run.
pub(super) struct Pair<'a> {
    pub scheme: Scheme,
    pub params: &'a Params,
    /// SHUNT_SPIN_US; none: the library's default.
    pub spin_us: Option<u32>,
    /// Names under `bench prog` and arguments.
    pub server: (&'static str, Vec<String>),
    pub client: (&'static str, Vec<String>),
    /// How long the client may take.
    pub limit: Duration,
}

/// What both ends said, and what the library said about them.
pub(super) struct Outcome {
    pub server: End,
    pub client: End,
}

pub(super) struct End {
    output: Value,
    /// None for kernel TCP.
    pub report: Option<Connection>,
}

impl Lab {
    pub(super) fn new(lib: Option<&Path>) -> anyhow::Result<Self> {
        Ok(Self {
            lib: crate::run::library(lib)?,
            me: std::env::current_exe()?,
            scratch: Scratch::new()?,
            fell_back: Cell::new(0),
        })
    }

    /// A run in which the two ends did not find each other in time, which happens on a busy machine, is no result: it is
    /// named, counted and made again. Everything else that is not as it should be is an error.
    pub(super) fn run(&self, pair: &Pair<'_>) -> anyhow::Result<Outcome> {
        let what = || {
            format!(
                "{} with {}: {}",
                pair.client.0,
                pair.scheme.word(),
                pair.client.1.join(" ")
            )
        };
        for _ in 1..ATTEMPTS {
            match self.try_run(pair) {
                Err(error) if error.downcast_ref::<FellBack>().is_some() => {
                    self.fell_back.set(self.fell_back.get() + 1);
                    println!("  {}: {error:#}; made again", what());
                }
                result => return result.with_context(what),
            }
        }
        self.try_run(pair).with_context(what)
    }

    /// How many runs had to be made again so far.
    pub(super) fn fell_back(&self) -> usize {
        self.fell_back.get()
    }

    fn try_run(&self, pair: &Pair<'_>) -> anyhow::Result<Outcome> {
        let port = free_port()?;
        let server = self.start(pair, &pair.server, port, 0)?;
        wait_listening(port, &server)?;
        let client = self.start(pair, &pair.client, port, 1)?;
        let client = client.finish(pair.limit)?;
        let server = server.finish(Duration::from_secs(5))?;
        Ok(Outcome {
            server: self.end(pair, &pair.server, &server.output)?,
            client: self.end(pair, &pair.client, &client.output)?,
        })
    }

    fn start(
        &self,
        pair: &Pair<'_>,
        (name, args): &(&'static str, Vec<String>),
        port: u16,
        core: usize,
    ) -> anyhow::Result<Child> {
        let mut program = Program::new(&self.me)
            .args(["prog", name, "--port", &port.to_string()])
            .args(args);
        if pair.scheme == Scheme::Tcp {
            program = program.args(["--sockbuf".into(), pair.params.buf.0.to_string()]);
        }
        let settings = pair.params.settings(pair.scheme, pair.spin_us);
        let report = self.report(name);
        // What the run before left must not prove anything about this one.
        let _ = fs::remove_file(&report);
        let start = Start {
            core: Some(core),
            preload: pair
                .scheme
                .of_shunt()
                .then_some((self.lib.as_path(), report.as_path())),
            settings: Some(&settings),
            output: self.scratch.0.join(name).with_extension("out"),
        };
        Child::start(&program, start)
    }

    fn end(
        &self,
        pair: &Pair<'_>,
        (name, _): &(&'static str, Vec<String>),
        output: &str,
    ) -> anyhow::Result<End> {
        let proved = || proof::check(pair.scheme, &self.report(name)).context(*name);
        Ok(End {
            output: serde_json::from_str(output.trim())
                .with_context(|| format!("{name}: output not understood: {output}"))?,
            report: pair.scheme.of_shunt().then(proved).transpose()?,
        })
    }

    fn report(&self, name: &str) -> PathBuf {
        self.scratch.0.join(name).with_extension("report")
    }
}

impl End {
    /// One number of the line that the program printed.
    pub(super) fn number(&self, name: &str) -> anyhow::Result<f64> {
        let number = self.output.get(name).and_then(Value::as_f64);
        number.with_context(|| format!("no {name} in {}", self.output))
    }

    /// Send and receive buffer, as the kernel states them; none of them counts on shared memory.
    pub(super) fn kernel_buffers(&self) -> (Option<i64>, Option<i64>) {
        let buffer = |n: usize| match self.report {
            None => self.output.get("buffers")?.get(n)?.as_i64(),
            Some(_) => None,
        };
        (buffer(0), buffer(1))
    }
}

impl Outcome {
    /// Times out of room at both ends; none for kernel TCP.
    pub(super) fn no_credit(&self) -> Option<u64> {
        Some(self.server.report.as_ref()?.no_credit + self.client.report.as_ref()?.no_credit)
    }
}
