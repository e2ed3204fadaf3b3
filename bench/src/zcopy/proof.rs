//! What the library reported at exit: that the connection was on shared memory, and how many of its bytes went without the
//! ring's copies. Called by `lab` after every run with the library. A run that should have been zero copy and was not is
//! a `Claim::Copied`: it is shown as that, and never as what it was asked to be.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::mode::Mode;
use crate::table::spread;

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
    /// Why there is no zero copy, where there cannot be.
    zcopy_reason: Option<String>,
}

/// What an end reported.
#[derive(Debug, PartialEq)]
pub(super) struct Proof {
    /// Share of the bytes that went without the ring.
    pub share: f64,
    /// Why the library had to copy, if it had to.
    pub why_copied: Option<String>,
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
    /// Less of it than `MOST`.
    Partly,
    /// As it is called; what chooses by itself always is.
    Held,
}

/// A message may begin in the ring, where a reader is shown that there is one; the most of it must not be there.
const MOST: f64 = 0.5;

impl Claim {
    pub(super) fn of(mode: Mode, zcopy_share: Option<f64>) -> Self {
        match zcopy_share {
            Some(share) if mode.is_zero_copy() && share <= 0.0 => Self::Copied,
            Some(share) if mode.is_zero_copy() && share < MOST => Self::Partly,
            _ => Self::Held,
        }
    }
}

/// The share that is shown for several runs: the least, where zero copy was asked for, and otherwise the median.
pub(super) fn share_of<T>(mode: Mode, runs: &[&T], of: impl Fn(&T) -> Option<f64>) -> Option<f64> {
    let shares = spread(runs, of)?;
    Some(if mode.is_zero_copy() {
        shares.min
    } else {
        shares.median
    })
}

/// What one end of the connection reported (or of all of them, for a program with several).
pub(super) fn check(mode: Mode, report: &Path) -> anyhow::Result<Proof> {
    let text = fs::read_to_string(report).unwrap_or_default();
    ensure!(
        !text.trim().is_empty(),
        "no report: was the library loaded?"
    );
    judge(mode, &text).with_context(|| format!("the report: {}", text.trim()))
}

fn judge(mode: Mode, text: &str) -> anyhow::Result<Proof> {
    let mut connections = Vec::new();
    for line in text.lines() {
        connections.extend(serde_json::from_str::<Process>(line)?.connections);
    }
    ensure!(!connections.is_empty(), "no connection");
    let (mut bytes, mut zcopy, mut why_copied) = (0, 0, None);
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
        why_copied = why_copied.or(connection.zcopy_reason);
    }
    ensure!(bytes > 0, "no byte was carried");
    ensure!(
        zcopy == 0 || mode != Mode::Off,
        "{zcopy} bytes went without the ring, which was to carry all"
    );
    Ok(Proof {
        share: zcopy as f64 / bytes as f64,
        why_copied: why_copied.filter(|_| mode != Mode::Off),
    })
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
            assert_eq!(claim(0.4), Claim::Partly);
            assert_eq!(claim(0.99), Claim::Held);
        }
        assert_eq!(Claim::of(Mode::Auto, Some(0.0)), Claim::Held);
        assert_eq!(Claim::of(Mode::Tcp, None), Claim::Held);
        // The worst of several runs is what is shown.
        assert!(Claim::Copied < Claim::Partly && Claim::Partly < Claim::Held);
    }

    #[test]
    fn one_run_in_part_is_not_hidden_by_others() {
        let shares = [Some(1.0), Some(0.2), Some(0.99)];
        let runs: Vec<_> = shares.iter().collect();
        assert_eq!(share_of(Mode::Sync, &runs, |share| *share), Some(0.2));
        assert_eq!(share_of(Mode::Auto, &runs, |share| *share), Some(0.99));
        assert_eq!(share_of(Mode::Tcp, &[&None], |share| *share), None);
    }

    #[test]
    fn the_share_is_of_all_bytes() {
        let share = |mode, zcopy| judge(mode, &report("shm", "", zcopy)).unwrap().share;
        assert_eq!((share(Mode::Sync, 90), share(Mode::Off, 0)), (0.9, 0.0));
    }

    #[test]
    fn the_reason_for_copying_is_found_where_it_was_not_asked_for() {
        let copied = report("shm", "", 0).replace(
            "\"reason\":null",
            "\"reason\":null,\"zcopy_reason\":\"peer_memory\"",
        );
        let why = |mode| judge(mode, &copied).unwrap().why_copied;
        assert_eq!(why(Mode::Sync).as_deref(), Some("peer_memory"));
        assert_eq!(why(Mode::Off), None);
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
