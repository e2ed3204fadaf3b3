//! One run: servers, clients, both under the library with one SHUNT_ZCOPY or neither; all end, and what carried them is
//! read from the library's reports. Called by the sections. Every wait is bounded, and nothing it starts outlives it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::mode::Mode;
use super::proof::{self, FellBack};
use crate::run::{Child, Program, Scratch, Start, free_port, wait_listening};
use crate::stats::Spread;
use crate::sys;

/// What does not change from run to run.
pub(super) struct Lab {
    lib: PathBuf,
    /// This program, which is also the client and the server.
    me: PathBuf,
    scratch: Scratch,
    fell_back: Cell<usize>,
    why_copied: RefCell<BTreeSet<String>>,
}

/// How often a run is made before its falling back to kernel TCP is an error.
const ATTEMPTS: usize = 3;
/// By then several clients have warmed up.
const TOGETHER: Duration = Duration::from_millis(500);

/// Where the programs run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    /// Servers on core 0, clients on core 1.
    Apart,
    /// All on core 0.
    Together,
    /// Wherever the scheduler puts them.
    Free,
}

/// `bench prog bulk-server` and `bulk-client`, once or several times.
pub(super) struct Bulk {
    pub mode: Mode,
    pub pairs: usize,
    pub place: Place,
    /// Arguments of both programs.
    pub both: Vec<String>,
    pub client: Vec<String>,
    /// How long the clients may take.
    pub limit: Duration,
}

/// What a run gave; of several pairs, all together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub messages: f64,
    pub gb_per_s: f64,
    /// Of a message, as the sender sees it; of several senders the median.
    pub p50_us: f64,
    pub p99_us: f64,
    /// Of a message and the computation that goes with it; of several pairs, the time that each has for one.
    pub each_us: f64,
    /// Of that, what the computation took on the wall.
    pub computed_us: f64,
    /// CPU time, ns for a byte.
    pub sender_cpu: f64,
    pub receiver_cpu: f64,
    /// Share of the bytes that went without the ring; none for kernel TCP.
    pub zcopy_share: Option<f64>,
}

/// What one pair said.
struct Pair {
    client: Value,
    server: Value,
    zcopy_share: Option<f64>,
}

impl Lab {
    pub(super) fn new(lib: Option<&Path>) -> anyhow::Result<Self> {
        Ok(Self {
            lib: crate::run::library(lib)?,
            me: std::env::current_exe()?,
            scratch: Scratch::new()?,
            fell_back: Cell::new(0),
            why_copied: RefCell::default(),
        })
    }

    /// How many runs had to be made again so far.
    pub(super) fn fell_back(&self) -> usize {
        self.fell_back.get()
    }

    /// The library's reasons for copying since this was last asked.
    pub(super) fn why_copied(&self) -> BTreeSet<String> {
        self.why_copied.take()
    }

    /// A run in which the two ends did not find each other in time, which happens on a busy machine, is no result: it is
    /// named, counted and made again. Everything else that is not as it should be is an error.
    pub(super) fn again<T>(
        &self,
        what: &str,
        once: impl Fn() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        for _ in 1..ATTEMPTS {
            match once() {
                Err(error) if error.downcast_ref::<FellBack>().is_some() => {
                    self.fell_back.set(self.fell_back.get() + 1);
                    println!("  {what}: {error:#}; made again");
                }
                result => return result.with_context(|| what.to_owned()),
            }
        }
        once().with_context(|| what.to_owned())
    }

    pub(super) fn bulk(&self, bulk: &Bulk) -> anyhow::Result<Outcome> {
        let words: Vec<&str> = (bulk.both.iter().chain(&bulk.client))
            .map(String::as_str)
            .collect();
        let what = format!("{}: {}", bulk.mode.title(), words.join(" "));
        self.again(&what, || summarise(&self.try_bulk(bulk)?))
    }

    fn try_bulk(&self, bulk: &Bulk) -> anyhow::Result<Vec<Pair>> {
        let mut servers = Vec::new();
        for n in 0..bulk.pairs {
            let port = free_port()?;
            let program = self.prog("bulk-server", port).args(&bulk.both);
            let server = self.start(bulk.mode, bulk.place, &server_name(n), &program)?;
            wait_listening(port, &server)?;
            servers.push((port, server));
        }
        let mut begin = Vec::new();
        if bulk.pairs > 1 {
            let at = sys::monotonic_ns() + TOGETHER.as_nanos() as u64;
            begin = vec!["--start-at".to_owned(), at.to_string()];
        }
        let mut clients = Vec::new();
        for (n, (port, _)) in servers.iter().enumerate() {
            let program = self.prog("bulk-client", *port).args(&bulk.both);
            let program = program.args(&bulk.client).args(&begin);
            clients.push(self.start(bulk.mode, bulk.place, &client_name(n), &program)?);
        }
        let mut ended = Vec::new();
        for (n, client) in clients.into_iter().enumerate() {
            match client.finish(bulk.limit) {
                Ok(client) => ended.push(client),
                Err(error) => {
                    let (_, server) = servers.swap_remove(n);
                    return Err(error.context(self.other_end(bulk.mode, server, n)));
                }
            }
        }
        let mut pairs = Vec::new();
        for (n, (client, (_, server))) in ended.iter().zip(servers).enumerate() {
            let server = server.finish(Duration::from_secs(5))?;
            let ends = [server_name(n), client_name(n)];
            pairs.push(Pair {
                client: line(&client.output)?,
                server: line(&server.output)?,
                zcopy_share: self.zcopy_share(bulk.mode, &ends)?,
            });
        }
        Ok(pairs)
    }

    /// What became of the server whose client failed: the cause may lie there.
    fn other_end(&self, mode: Mode, server: Child, n: usize) -> String {
        let ended = server.finish_or_terminate(Duration::from_secs(1));
        let ended = ended.map_or_else(|error| format!("{error:#}"), |ended| ended.output);
        let shares = [server_name(n), client_name(n)].map(|end| {
            let share = mode
                .of_shunt()
                .then(|| proof::check(mode, &self.report(&end)));
            share.map_or(String::new(), |share| match share {
                Ok(proof) => format!("; {end}: {} without the ring", proof.share),
                Err(error) => format!("; {end}: {error:#}"),
            })
        });
        format!("the server: {}{}", ended.trim(), shares.concat())
    }

    fn prog(&self, name: &str, port: u16) -> Program {
        let args = ["prog", name, "--port", &port.to_string()];
        Program::new(&self.me).args(args)
    }

    /// Starts one end, which is known by `name` from then on; `client` is part of the name of those that are.
    pub(super) fn start(
        &self,
        mode: Mode,
        place: Place,
        name: &str,
        program: &Program,
    ) -> anyhow::Result<Child> {
        let core = match place {
            Place::Apart => Some(usize::from(name.starts_with("client"))),
            Place::Together => Some(0),
            Place::Free => None,
        };
        let (settings, report) = (mode.settings(), self.report(name));
        // What the run before left must not prove anything about this one.
        let _ = fs::remove_file(&report);
        let start = Start {
            core,
            preload: (mode.of_shunt()).then_some((self.lib.as_path(), report.as_path())),
            settings: Some(&settings),
            output: self.scratch.0.join(name).with_extension("out"),
        };
        Child::start(program, start)
    }

    /// Share of the bytes that went without the ring. Whichever side moved them, both may count them or only one: the
    /// larger count is right.
    pub(super) fn zcopy_share(&self, mode: Mode, ends: &[String]) -> anyhow::Result<Option<f64>> {
        if !mode.of_shunt() {
            return Ok(None);
        }
        let mut most = 0_f64;
        for end in ends {
            let proof = proof::check(mode, &self.report(end)).with_context(|| end.clone())?;
            most = most.max(proof.share);
            if let Some(why) = proof.why_copied {
                self.why_copied.borrow_mut().insert(why);
            }
        }
        Ok(Some(most))
    }

    fn report(&self, name: &str) -> PathBuf {
        self.scratch.0.join(name).with_extension("report")
    }
}

pub(super) fn server_name(n: usize) -> String {
    format!("server{n}")
}

pub(super) fn client_name(n: usize) -> String {
    format!("client{n}")
}

fn line(output: &str) -> anyhow::Result<Value> {
    serde_json::from_str(output.trim()).with_context(|| format!("not understood: {output}"))
}

/// From the first that began to the last byte that arrived anywhere.
fn summarise(pairs: &[Pair]) -> anyhow::Result<Outcome> {
    let number = |value: &Value, name: &str| {
        let number = value.get(name).and_then(Value::as_f64);
        number.with_context(|| format!("no {name} in {value}"))
    };
    let of = |name: &str| -> anyhow::Result<Vec<f64>> {
        let clients = pairs.iter().map(|pair| number(&pair.client, name));
        clients.collect()
    };
    let (mut receiver_cpu, mut ended) = (0.0, 0_f64);
    for pair in pairs {
        let (sent, received) = (&pair.client["messages"], &pair.server["messages"]);
        ensure!(sent == received, "{received} of {sent} messages arrived");
        receiver_cpu += number(&pair.server, "cpu_ns")?;
        ended = ended.max(number(&pair.server, "ended_ns")?);
    }
    let started = of("started_ns")?.into_iter().fold(f64::INFINITY, f64::min);
    let bytes: f64 = of("bytes")?.iter().sum();
    ensure!(bytes > 0.0 && ended > started, "nothing was measured");
    let median = |name| -> anyhow::Result<f64> {
        Ok(Spread::of(&of(name)?).map_or(0.0, |spread| spread.median))
    };
    let shares: Option<Vec<f64>> = pairs.iter().map(|pair| pair.zcopy_share).collect();
    let messages: f64 = of("messages")?.iter().sum();
    Ok(Outcome {
        messages,
        each_us: (ended - started) * pairs.len() as f64 / messages / 1e3,
        computed_us: of("computed_ns")?.iter().sum::<f64>() / messages / 1e3,
        gb_per_s: bytes / (ended - started),
        p50_us: median("p50_ns")? / 1e3,
        p99_us: median("p99_ns")? / 1e3,
        sender_cpu: of("cpu_ns")?.iter().sum::<f64>() / bytes,
        receiver_cpu: receiver_cpu / bytes,
        zcopy_share: shares.map(|shares| shares.iter().sum::<f64>() / pairs.len() as f64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pair(started: u64, ended: u64, messages: u64, zcopy_share: Option<f64>) -> Pair {
        Pair {
            client: json!({"messages": messages, "bytes": messages * 100, "started_ns": started, "cpu_ns": 500,
                "p50_ns": 2000, "p99_ns": 3000, "computed_ns": messages * 20}),
            server: json!({"messages": messages, "ended_ns": ended, "cpu_ns": 1500}),
            zcopy_share,
        }
    }

    #[test]
    fn several_pairs_are_timed_from_the_first_to_the_last() {
        let pairs = [
            pair(100, 500, 10, Some(1.0)),
            pair(200, 1100, 10, Some(0.0)),
        ];
        let outcome = summarise(&pairs).unwrap();
        assert_eq!((outcome.gb_per_s, outcome.p50_us), (2.0, 2.0));
        assert_eq!((outcome.each_us, outcome.computed_us), (0.1, 0.02));
        assert_eq!((outcome.sender_cpu, outcome.receiver_cpu), (0.5, 1.5));
        assert_eq!(outcome.zcopy_share, Some(0.5));
        assert_eq!(summarise(&[pair(1, 2, 1, None)]).unwrap().zcopy_share, None);
    }

    #[test]
    fn a_message_that_did_not_arrive_is_an_error() {
        let mut lost = pair(100, 500, 10, None);
        lost.server["messages"] = 9.into();
        assert!(summarise(&[lost]).is_err());
    }
}
