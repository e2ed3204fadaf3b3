//! One run of a plain client, with its server if it has one, both under the library or neither; both end, and what
//! carried them is read from the library's reports. Called by the measurements. Every wait is bounded, and nothing it
//! starts outlives it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::{Host, Hosts};
use crate::run::{Child, Program, Scratch, Start, free_port, wait_listening};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Side {
    Kernel,
    Shunt,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Kernel, Self::Shunt];
}

/// Where the client runs, as far as there are so many cores; the server runs on the first.
pub(crate) const CLIENT_CORE: usize = 1;

/// What does not change from run to run.
pub(crate) struct Lab {
    lib: PathBuf,
    /// This program, which is also the client and the server.
    me: PathBuf,
    scratch: Scratch,
    /// Where servers and clients run; none: on this host both.
    hosts: Option<Hosts>,
    settings: Settings,
}

/// The library's settings.
pub(crate) type Settings = Vec<(&'static str, String)>;

/// What is run: names under `bench prog`, and arguments.
pub(crate) struct Pair<'a> {
    pub server: Option<(&'static str, &'a [String])>,
    pub client: (&'static str, &'a [String]),
    /// How long the client may take.
    pub limit: Duration,
}

/// What an end said, and what the library said about it, process by process as they ended (nothing, for kernel TCP).
pub(crate) struct End {
    pub output: Value,
    pub reports: Vec<Report>,
}

/// The library's report of one process.
#[derive(Debug, Deserialize)]
pub(crate) struct Report {
    pub totals: Totals,
    /// The first thousand.
    pub connections: Vec<Connection>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Totals {
    pub shm: u64,
    pub iwarp: u64,
    pub verbs: u64,
    pub tcp: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Connection {
    pub transport: String,
    pub demotions: Vec<String>,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub reason: Option<String>,
}

impl Lab {
    pub(crate) fn new(lib: Option<&Path>) -> anyhow::Result<Self> {
        Ok(Self {
            lib: crate::run::library(lib)?,
            me: std::env::current_exe()?,
            scratch: Scratch::new()?,
            hosts: None,
            settings: Settings::new(),
        })
    }

    /// Servers run on one host, clients on another.
    pub(crate) fn between(self, hosts: Hosts) -> Self {
        Self {
            hosts: Some(hosts),
            ..self
        }
    }

    /// The library runs with these settings from now on.
    pub(crate) fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Does something where servers or clients run.
    fn at<T>(&self, host: Host, what: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        match &self.hosts {
            Some(hosts) => hosts.within(host, what),
            None => what(),
        }
    }

    /// The client, and the server if there is one.
    pub(crate) fn run(&self, side: Side, pair: &Pair<'_>) -> anyhow::Result<(End, Option<End>)> {
        let port = self.at(Host::Server, free_port)?.to_string();
        let address = Host::Server.address().to_string();
        let place: &[&str] = match &self.hosts {
            Some(_) => &["--port", &port, "--address", &address],
            None => &["--port", &port],
        };
        let server = pair
            .server
            .map(|(name, args)| {
                self.at(Host::Server, || {
                    let child = self.start(side, name, place, args, 0)?;
                    wait_listening(port.parse()?, &child)?;
                    Ok((name, child))
                })
            })
            .transpose()?;
        let to = if server.is_some() { place } else { &[] };
        let (name, args) = pair.client;
        let client = self.at(Host::Client, || {
            self.start(side, name, to, args, CLIENT_CORE)
        })?;
        let client = client.finish(pair.limit);
        let client = self.end(side, name, &client.context(name)?.output)?;
        let server = server.map(|(name, child)| {
            let ended = child.finish_or_terminate(Duration::from_secs(10))?;
            self.end(side, name, &ended.output)
        });
        Ok((client, server.transpose()?))
    }

    fn start(
        &self,
        side: Side,
        name: &str,
        to: &[&str],
        args: &[String],
        core: usize,
    ) -> anyhow::Result<Child> {
        let program = Program::new(&self.me)
            .args(["prog", name])
            .args(to)
            .args(args);
        let report = self.report(name);
        // What the run before left must not prove anything about this one.
        let _ = fs::remove_file(&report);
        let start = Start {
            core: Some(core),
            preload: (side == Side::Shunt).then_some((self.lib.as_path(), report.as_path())),
            settings: Some(&self.settings),
            output: self.scratch.0.join(name).with_extension("out"),
        };
        Child::start(&program, start)
    }

    fn end(&self, side: Side, name: &str, output: &str) -> anyhow::Result<End> {
        let proved = || {
            let text = fs::read_to_string(self.report(name)).unwrap_or_default();
            Report::read_all(&text)
                .with_context(|| format!("the report of {name}: {}", text.trim()))
        };
        Ok(End {
            output: serde_json::from_str(output.trim())
                .with_context(|| format!("{name}: output not understood: {output}"))?,
            reports: match side {
                Side::Kernel => Vec::new(),
                Side::Shunt => proved()?,
            },
        })
    }

    fn report(&self, name: &str) -> PathBuf {
        self.scratch.0.join(name).with_extension("report")
    }
}

impl End {
    /// One number of the line that the program printed; `path` as in a JSON pointer.
    pub(crate) fn number(&self, path: &str) -> anyhow::Result<f64> {
        let number = self.output.pointer(path).and_then(Value::as_f64);
        number.with_context(|| format!("no {path} in {}", self.output))
    }

    /// The report of a program that is one process; nothing for kernel TCP.
    pub(crate) fn report(&self) -> anyhow::Result<Option<&Report>> {
        ensure!(self.reports.len() < 2, "more than one process");
        Ok(self.reports.first())
    }

    /// Every one of so many connections was on shared memory, if the library was there.
    pub(crate) fn all_attached(&self, connections: usize) -> anyhow::Result<()> {
        self.all_on(connections, |totals| totals.shm)
    }

    /// Every one of so many connections was moved there, if the library was there.
    pub(crate) fn all_on(
        &self,
        connections: usize,
        there: fn(&Totals) -> u64,
    ) -> anyhow::Result<()> {
        let Some(report) = self.report()? else {
            return Ok(());
        };
        let Totals {
            shm,
            iwarp,
            verbs,
            tcp,
        } = report.totals;
        let (all, moved) = (shm + iwarp + verbs + tcp, there(&report.totals));
        let connections = connections as u64;
        ensure!(
            moved == connections && all == connections,
            "{connections} connections, of which {}",
            report.in_words()
        );
        Ok(())
    }
}

impl Report {
    /// One line for each process, at least one.
    fn read_all(text: &str) -> anyhow::Result<Vec<Self>> {
        ensure!(!text.is_empty(), "none: was the library loaded?");
        let lines = text.lines().map(serde_json::from_str);
        Ok(lines.collect::<Result<_, _>>()?)
    }

    /// What the connections were on, and why some were not on shared memory.
    pub(crate) fn in_words(&self) -> String {
        let mut reasons: Vec<&str> = self
            .connections
            .iter()
            .filter(|connection| connection.transport != "shm")
            .filter_map(|connection| connection.reason.as_deref())
            .collect();
        reasons.sort_unstable();
        reasons.dedup();
        let Totals {
            shm,
            iwarp,
            verbs,
            tcp,
        } = self.totals;
        format!(
            "{shm} on shared memory, {tcp} on kernel TCP, {iwarp} on iWARP, {verbs} on adapters {reasons:?}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(shm: u64, tcp: u64) -> End {
        let line = format!(
            r#"{{"program":"p","pid":1,"totals":{{"shm":{shm},"iwarp":0,"verbs":0,"tcp":{tcp}}},"connections":[
            {{"transport":"tcp","demotions":[],"bytes_sent":1,"bytes_received":0,"reason":"no_slot"}}]}}"#
        );
        End {
            output: serde_json::json!({"growth": {"private": 5.0}}),
            reports: Report::read_all(&line.replace('\n', "")).unwrap(),
        }
    }

    #[test]
    fn one_connection_on_the_kernel_is_found() {
        assert!(end(10, 0).all_attached(10).is_ok());
        let error = end(9, 1).all_attached(10).unwrap_err().to_string();
        assert!(error.contains("no_slot"), "{error}");
        assert!(
            end(9, 0).all_attached(10).is_err(),
            "one is missing from the report"
        );
    }

    #[test]
    fn without_a_report_nothing_is_proved() {
        assert!(Report::read_all("").is_err());
        assert!(Report::read_all("{}").is_err());
    }

    #[test]
    fn a_second_process_is_not_overlooked() {
        let mut end = end(10, 0);
        end.reports.extend(self::end(10, 0).reports);
        assert!(end.all_attached(10).is_err());
    }

    #[test]
    fn numbers_by_path() {
        assert_eq!(end(1, 0).number("/growth/private").unwrap(), 5.0);
        assert!(end(1, 0).number("/growth").is_err());
    }
}
