//! What the library reported at exit: that the connection was on shared memory, and how many of its bytes went without the
//! ring's copies. Called by `lab` after every run with the library. A run that should have been zero copy and was not is
//! a `Claim::Copied`: it is shown as that, and never as what it was asked to be.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::mode::Mode;

#[derive(Deserialize)]
struct Process {
    connections: Vec<Connection>,
}

#[derive(Deserialize)]
struct Connection {
    transport: String,
    demotions: Vec<String>,
    reason: Option<String>,
    bytes_sent: u64,
    bytes_received: u64,
    zcopy_bytes: u64,
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

/// Whether a run was what its mode says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Claim {
    /// Nothing of what was to go without the ring did.
    Copied,
    /// Less of it than `NEARLY_ALL`.
    Partly,
    /// As it is called; what chooses by itself always is.
    Held,
}

/// Messages of the start, and what belongs to no message, may be copied.
const NEARLY_ALL: f64 = 0.9;

impl Claim {
    pub(super) fn of(mode: Mode, zcopy_share: Option<f64>) -> Self {
        match zcopy_share {
            Some(share) if mode.is_zero_copy() && share <= 0.0 => Self::Copied,
            Some(share) if mode.is_zero_copy() && share < NEARLY_ALL => Self::Partly,
            _ => Self::Held,
        }
    }
}

/// Share of the bytes that went without the ring, by the report of one end of the connection (or of all of them, for a
/// program with several).
pub(super) fn check(mode: Mode, report: &Path) -> anyhow::Result<f64> {
    let text = fs::read_to_string(report).unwrap_or_default();
    ensure!(
        !text.trim().is_empty(),
        "no report: was the library loaded?"
    );
    judge(mode, &text).with_context(|| format!("the report: {}", text.trim()))
}

fn judge(mode: Mode, text: &str) -> anyhow::Result<f64> {
    let mut connections = Vec::new();
    for line in text.lines() {
        connections.extend(serde_json::from_str::<Process>(line)?.connections);
    }
    ensure!(!connections.is_empty(), "no connection");
    let (mut bytes, mut zcopy) = (0, 0);
    for connection in connections {
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
        bytes += connection.bytes_sent + connection.bytes_received;
        zcopy += connection.zcopy_bytes;
    }
    ensure!(bytes > 0, "no byte was carried");
    ensure!(
        zcopy == 0 || mode != Mode::Off,
        "{zcopy} bytes went without the ring, which was to carry all"
    );
    Ok(zcopy as f64 / bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(transport: &str, demotions: &str, zcopy: u64) -> String {
        format!(
            r#"{{"program":"p","pid":1,"totals":{{"shm":1}},"connections":[{{"transport":"{transport}","flow":null,
            "bytes_sent":90,"bytes_received":10,"zcopy_bytes":{zcopy},"demotions":[{demotions}],"reason":null}}]}}"#
        )
        .replace('\n', "")
    }

    #[test]
    fn a_mode_that_copied_is_not_what_it_is_called() {
        for mode in [Mode::Sync, Mode::Async] {
            let claim = |share| Claim::of(mode, Some(share));
            assert_eq!(claim(0.0), Claim::Copied);
            assert_eq!(claim(0.5), Claim::Partly);
            assert_eq!(claim(0.99), Claim::Held);
        }
        assert_eq!(Claim::of(Mode::Auto, Some(0.0)), Claim::Held);
        assert_eq!(Claim::of(Mode::Tcp, None), Claim::Held);
        // The worst of several runs is what is shown.
        assert!(Claim::Copied < Claim::Partly && Claim::Partly < Claim::Held);
    }

    #[test]
    fn the_share_is_of_all_bytes() {
        assert_eq!(judge(Mode::Sync, &report("shm", "", 90)).unwrap(), 0.9);
        assert_eq!(judge(Mode::Off, &report("shm", "", 0)).unwrap(), 0.0);
    }

    #[test]
    fn what_is_not_a_result_is_found() {
        let error = judge(Mode::Sync, &report("tcp", "", 0)).unwrap_err();
        assert!(error.context("where").downcast_ref::<FellBack>().is_some());
        let fails = |text: &str, part: &str| {
            let error = judge(Mode::Off, text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        fails(&report("shm", "\"forked\"", 0), "sent back");
        fails(&report("shm", "", 5), "without the ring");
        fails(r#"{"connections":[]}"#, "no connection");
        assert!(judge(Mode::Off, "not json").is_err());
    }
}
