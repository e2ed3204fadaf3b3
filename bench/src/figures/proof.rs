//! What the library reported at exit: proof that a run was carried by the scheme that was asked for, and the counts that
//! go into the tables. Called by `pair` after every run with the library. A connection that fell back to kernel TCP, was
//! demoted, or ran under another scheme is an error here, never a point in a figure.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::scheme::Scheme;

#[derive(Deserialize)]
struct Process {
    connections: Vec<Connection>,
}

/// One side's view of the connection. Counts that this version of the library does not report are none.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Connection {
    transport: String,
    flow: Option<String>,
    demotions: Vec<String>,
    reason: Option<String>,
    bytes_sent: u64,
    bytes_received: u64,
    /// How often this side was out of room.
    pub no_credit: u64,
    /// Messages or segments as the scheme put them on the wire.
    pub wire_messages: Option<u64>,
    /// Asynchronous events of the nic scheme.
    pub events: Option<u64>,
    /// Credit updates that went as messages of their own.
    pub updates: Option<u64>,
    /// Receive buffer reserved by the direction that this side sends, bytes.
    pub reserved: Option<u64>,
    /// The most payload that was in it at once, bytes.
    pub peak_used: Option<u64>,
}

/// The connection was on another transport than shared memory, for this reason.
#[derive(Debug)]
pub(super) struct FellBack(String, String);

impl std::fmt::Display for FellBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not on shared memory but on {} ({})", self.0, self.1)
    }
}

impl std::error::Error for FellBack {}

/// The one connection of a program that had one.
pub(super) fn check(scheme: Scheme, report: &Path) -> anyhow::Result<Connection> {
    let text = fs::read_to_string(report).unwrap_or_default();
    ensure!(
        !text.trim().is_empty(),
        "no report: was the library loaded?"
    );
    judge(scheme, &text).with_context(|| format!("the report: {}", text.trim()))
}

fn judge(scheme: Scheme, text: &str) -> anyhow::Result<Connection> {
    let mut connections = Vec::new();
    for line in text.lines() {
        connections.extend(serde_json::from_str::<Process>(line)?.connections);
    }
    ensure!(
        connections.len() == 1,
        "{} connections where there was one",
        connections.len()
    );
    let connection = connections.remove(0);
    if connection.transport != "shm" {
        let why = connection
            .reason
            .unwrap_or_else(|| "no reason given".into());
        return Err(FellBack(connection.transport, why).into());
    }
    ensure!(
        connection.demotions.is_empty(),
        "sent back to the kernel: {:?}",
        connection.demotions
    );
    ensure!(
        connection.flow.as_deref() == Some(scheme.word()),
        "the flow control was {} where {} was asked for",
        connection.flow.as_deref().unwrap_or("none"),
        scheme.word()
    );
    ensure!(
        connection.bytes_sent + connection.bytes_received > 0,
        "no byte was carried"
    );
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(transport: &str, flow: &str, demotions: &str, more: &str) -> String {
        format!(
            r#"{{"program":"p","pid":1,"totals":{{"shm":1,"iwarp":0,"verbs":0,"tcp":0}},"connections":[{{"local":"a",
            "peer":"b","role":"connect","transport":"{transport}","flow":{flow},"bytes_sent":5,"bytes_received":6,
            "messages_sent":1,"messages_received":1,"zcopy_bytes":0,"no_credit":3,"demotions":[{demotions}],
            "reason":null{more}}}]}}"#
        )
        .replace('\n', "")
    }

    #[test]
    fn the_scheme_that_was_asked_for_passes_with_its_counts() {
        let old = judge(Scheme::Nic, &report("shm", "\"nic\"", "", "")).unwrap();
        assert_eq!(
            (old.no_credit, old.wire_messages, old.reserved),
            (3, None, None)
        );
        let more = r#","wire_messages":7,"events":1,"updates":2,"reserved":65536,"peak_used":100"#;
        let new = judge(Scheme::Nic, &report("shm", "\"nic\"", "", more)).unwrap();
        assert_eq!(
            (new.wire_messages, new.events, new.updates),
            (Some(7), Some(1), Some(2))
        );
        assert_eq!((new.reserved, new.peak_used), (Some(65_536), Some(100)));
    }

    #[test]
    fn every_fallback_is_found() {
        let fails = |text: &str, part: &str| {
            let error = judge(Scheme::Credit, text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        fails(&report("tcp", "null", "", ""), "not on shared memory");
        let error = judge(Scheme::Credit, &report("tcp", "null", "", "")).unwrap_err();
        assert!(error.context("where").downcast_ref::<FellBack>().is_some());
        fails(
            &report("shm", "\"packetized\"", "", ""),
            "packetized where credit",
        );
        fails(&report("shm", "\"credit\"", "\"forked\"", ""), "sent back");
        fails(r#"{"connections":[]}"#, "0 connections");
        assert!(judge(Scheme::Credit, "not json").is_err());
    }
}
