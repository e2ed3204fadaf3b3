//! Proof of what carried the bytes: reads what the library reported at exit. Called by `exchange` after every run with
//! the library. A run that fell back to kernel TCP unseen would look like a result; here it becomes a failure.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use super::case::Carrier;

/// One process: one line of SHUNT_REPORT.
#[derive(Deserialize)]
struct Process {
    program: String,
    totals: Totals,
    /// The first thousand; `totals` counts all.
    connections: Vec<Connection>,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(default)]
struct Totals {
    shm: u64,
    iwarp: u64,
    verbs: u64,
    tcp: u64,
}

#[derive(Deserialize)]
struct Connection {
    transport: String,
    bytes_sent: u64,
    bytes_received: u64,
    reason: Option<String>,
}

/// Side talk of a program that may stay on the kernel, by bytes and by connections.
const TOLERATED: f64 = 0.05;

/// Every file must say that its bytes went the way they should.
pub(crate) fn check(carrier: Carrier, reports: &[PathBuf]) -> anyhow::Result<()> {
    let failed: Vec<_> = reports
        .iter()
        .filter_map(|report| check_one(carrier, report).err())
        .map(|why| format!("{why:#}"))
        .collect();
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

fn check_one(carrier: Carrier, report: &Path) -> anyhow::Result<()> {
    let name = report.file_stem().unwrap_or_default().to_string_lossy();
    let text = fs::read_to_string(report).unwrap_or_default();
    ensure!(
        !text.trim().is_empty(),
        "the {name} wrote no report: was the library loaded?"
    );
    let parse = |line| {
        serde_json::from_str::<Process>(line).with_context(|| format!("{name}'s report: {line}"))
    };
    let processes = text
        .lines()
        .map(parse)
        .collect::<anyhow::Result<Vec<_>>>()?;
    judge(carrier, &processes).with_context(|| name.into_owned())
}

fn judge(carrier: Carrier, processes: &[Process]) -> anyhow::Result<()> {
    let connections = || processes.iter().flat_map(|process| &process.connections);
    let bytes_over = |wanted: fn(&str) -> bool| {
        let chosen = connections().filter(|c| wanted(&c.transport));
        chosen.map(|c| c.bytes_sent + c.bytes_received).sum::<u64>() as f64
    };
    let shm_bytes = bytes_over(|transport| transport == "shm");
    let other_bytes = bytes_over(|transport| transport != "shm");
    let count = |of: fn(&Totals) -> u64| {
        processes
            .iter()
            .map(|process| of(&process.totals))
            .sum::<u64>() as f64
    };
    let shm = count(|totals| totals.shm);
    let other = count(|totals| totals.iwarp + totals.verbs + totals.tcp);
    match carrier {
        Carrier::Any => Ok(()),
        Carrier::Kernel => {
            ensure!(
                shm == 0.0 && shm_bytes == 0.0,
                "a connection to a plain peer claims to be on shared memory"
            );
            ensure!(other > 0.0, "no connection in the report");
            Ok(())
        }
        Carrier::SharedMemory => {
            let programs: BTreeSet<_> = processes
                .iter()
                .map(|process| process.program.as_str())
                .collect();
            let reasons: BTreeSet<_> = connections().filter_map(|c| c.reason.as_deref()).collect();
            let share = shm_bytes / (shm_bytes + other_bytes).max(1.0);
            if shm_bytes == 0.0 || share < 1.0 - TOLERATED || other > (shm + other) * 0.5 {
                bail!(
                    "not on shared memory: {shm:.0} of {:.0} connections and {:.0} % of the bytes of {programs:?}, reasons {reasons:?}",
                    shm + other,
                    share * 100.0,
                );
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(shm: u64, tcp: u64, connections: &[(&str, u64)]) -> Process {
        let connection = |&(transport, bytes): &(&str, u64)| Connection {
            transport: transport.into(),
            bytes_sent: bytes,
            bytes_received: 0,
            reason: (transport == "tcp").then(|| "peer".into()),
        };
        Process {
            program: "p".into(),
            totals: Totals {
                shm,
                tcp,
                ..Totals::default()
            },
            connections: connections.iter().map(connection).collect(),
        }
    }

    #[test]
    fn bytes_on_shared_memory_pass() {
        let process = report(1, 1, &[("shm", 1000), ("tcp", 10)]);
        assert!(judge(Carrier::SharedMemory, &[process]).is_ok());
    }

    #[test]
    fn a_silent_fallback_is_found() {
        let process = report(1, 1, &[("shm", 10), ("tcp", 1000)]);
        assert!(judge(Carrier::SharedMemory, &[process]).is_err());
        assert!(judge(Carrier::SharedMemory, &[report(0, 0, &[])]).is_err());
        let many = report(1000, 9000, &[("shm", 1000)]);
        assert!(judge(Carrier::SharedMemory, &[many]).is_err());
    }

    #[test]
    fn a_plain_peer_is_on_the_kernel() {
        assert!(judge(Carrier::Kernel, &[report(0, 1, &[("tcp", 5)])]).is_ok());
        assert!(judge(Carrier::Kernel, &[report(1, 0, &[("shm", 5)])]).is_err());
    }

    #[test]
    fn the_agreed_line_is_understood() {
        let line = r#"{"program":"p","pid":1,"totals":{"shm":1,"iwarp":0,"verbs":0,"tcp":0},"connections":[
            {"local":"127.0.0.1:1","peer":"127.0.0.1:2","role":"connect","transport":"shm","flow":"packetized",
            "bytes_sent":5,"bytes_received":6,"messages_sent":1,"messages_received":1,"zcopy_bytes":0,"no_credit":0,
            "demotions":[],"reason":null}]}"#;
        let process: Process = serde_json::from_str(line).unwrap();
        assert!(judge(Carrier::SharedMemory, &[process]).is_ok());
    }
}
