//! Unmodified programs on two hosts (`netns`), with software iWARP between them: every test asserts that it carried
//! their bytes. What the wire does to packets must change nothing but speed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod adverts;
mod late;
mod programs;
mod wire;

use shunt_tests::apps::{LONG, Stage};
use shunt_tests::netns::{Host, Hosts};
use shunt_tests::report::Report;
use shunt_tests::run::{Job, Launch, Outcome};

/// Two hosts whose programs speak iWARP with each other, by rule.
struct Scene {
    hosts: Hosts,
    stage: Stage,
    crc: &'static str,
}

impl Scene {
    fn new(crc: &'static str) -> Option<Self> {
        let hosts = Hosts::new()?;
        let stage = Stage::new(true);
        let rules = "use iwarp connect * *:*\nuse iwarp listen * *:*\n";
        stage.file("rules", rules.as_bytes());
        Some(Self { hosts, stage, crc })
    }

    fn launch(&mut self, program: &str) -> Launch {
        let rules = self.stage.folder.path("rules");
        let start = self.stage.launch(program);
        start.env("SHUNT_RULES", rules).env("SHUNT_CRC", self.crc)
    }

    /// A server on host one.
    fn serve(&self, start: Launch, port: u16) -> Job {
        self.hosts.serve(Host::One, start, port)
    }

    /// A client on host two, run to its end, which must be a good one.
    fn client(&self, start: Launch, what: &str) -> Outcome {
        let outcome = self.hosts.launch(Host::Two, start).start().finish(LONG);
        outcome.expect_ok(what);
        outcome
    }
}

/// The address of the servers, as text.
fn server() -> String {
    Host::One.v4().to_string()
}

/// At least this many connections, and this many bytes on them, went over iWARP to their end, and nothing that carried
/// bytes was on kernel TCP.
#[track_caller]
fn assert_iwarp(what: &str, report: &Report, connections: usize, bytes: u64) {
    let all: Vec<_> = report.connections().collect();
    let wired: Vec<_> = all.iter().filter(|c| c.transport == "iwarp").collect();
    let carried: u64 = wired.iter().map(|c| c.sent + c.received).sum();
    let plain = all
        .iter()
        .find(|c| c.transport == "tcp" && c.sent + c.received > 0);
    let enough = wired.len() >= connections && carried >= bytes;
    let stayed = wired.iter().all(|c| c.demotions.is_empty());
    assert!(
        enough && stayed && plain.is_none(),
        "{what}: {} connections with {carried} bytes over iWARP, expected {connections} with {bytes}: {all:?}",
        wired.len()
    );
}
