//! The measurements made with other people's network benchmarks: sockperf, netperf, iperf3. Called by `compare`.

use anyhow::Context as _;
use serde_json::Value;

use super::case::Better::{Higher, Lower};
use super::case::{Case, Ctx, FloorFigure, Reading, Target};
use crate::run::Program;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        sockperf(),
        netperf(
            "netperf-rr",
            "netperf TCP_RR, 64 B",
            "TCP_RR",
            &["-r", "64,64"],
            "rtt/s",
        )
        .targets([Target::OverMedian(50.0)])
        .near_the_ring(),
        iperf(),
        netperf_stream(),
        Case {
            per: "connection",
            ..netperf(
                "netperf-crr",
                "netperf TCP_CRR, 1 B",
                "TCP_CRR",
                &["-r", "1,1"],
                "conn/s",
            )
            .targets([Target::OverMedian(1.5)])
        },
    ]
}

fn stream_targets() -> [Target; 3] {
    [
        Target::OverMedian(2.5),
        Target::OverBest(1.8),
        Target::OfFloor(0.85),
    ]
}

fn sockperf() -> Case {
    let address = |port: u16| {
        [
            "--tcp".into(),
            "-i".into(),
            "127.0.0.1".into(),
            "-p".into(),
            port.to_string(),
        ]
    };
    let client = move |ctx: &Ctx, _, port| {
        // sockperf numbers its messages for 600,000 a second at most and ends with an error beyond.
        let length = [
            "-m",
            "64",
            "--mps",
            "590000",
            "--full-rtt",
            "-t",
            &ctx.whole_seconds(),
        ]
        .map(String::from);
        Program::new("sockperf")
            .args(["ping-pong"])
            .args(address(port))
            .args(length)
    };
    Case::new(
        "sockperf",
        "sockperf ping-pong, 64 B",
        ("µs", Lower),
        client,
        sockperf_reading,
    )
    .server(move |_, _, port| {
        Program::new("sockperf")
            .args(["server"])
            .args(address(port))
    })
    .needs(["sockperf"])
    .targets([Target::OverMedian(50.0)])
    .near_the_ring()
}

/// The median round trip, and how many there were.
fn sockperf_reading(out: &str) -> anyhow::Result<Reading> {
    let after = |mark: &str| {
        let rest = out.split_once(mark).map(|(_, rest)| rest.trim_start());
        let word =
            rest.and_then(|rest| rest.split(|c: char| c != '.' && !c.is_ascii_digit()).next());
        word.and_then(|word| word.parse::<f64>().ok())
            .with_context(|| format!("no {mark}"))
    };
    Ok(Reading {
        value: after("percentile 50.000 =")?,
        units: after("ReceivedMessages=")?,
    })
}

/// Without children, so that its CPU time can be read when it ends.
fn netserver(port: u16) -> Program {
    Program::new("netserver").args(["-f", "-D", "-4", "-L", "127.0.0.1", "-p", &port.to_string()])
}

fn netperf_client(ctx: &Ctx, port: u16, test: &str, options: &[&str], columns: &str) -> Program {
    Program::new("netperf")
        .args(["-4", "-H", "127.0.0.1", "-P", "0", "-p", &port.to_string()])
        .args(["-l", &ctx.whole_seconds(), "-t", test, "--"])
        .args(options)
        .args(["-o", columns])
}

/// Transactions per second.
fn netperf(
    name: &'static str,
    what: &'static str,
    test: &'static str,
    options: &'static [&'static str],
    unit: &'static str,
) -> Case {
    let client = move |ctx: &Ctx, _, port| {
        netperf_client(ctx, port, test, options, "THROUGHPUT,ELAPSED_TIME")
    };
    let parse = |out: &str| {
        let [rate, seconds] = columns(out)?;
        Ok(Reading {
            value: rate,
            units: rate * seconds,
        })
    };
    Case::new(name, what, (unit, Higher), client, parse)
        .server(|_, _, port| netserver(port))
        .needs(["netperf", "netserver"])
}

fn netperf_stream() -> Case {
    let blocks = &["-m", "131072", "-M", "131072"];
    let client = |ctx: &Ctx, _, port| {
        netperf_client(
            ctx,
            port,
            "TCP_STREAM",
            blocks,
            "LOCAL_BYTES_SENT,ELAPSED_TIME",
        )
    };
    let parse = |out: &str| {
        let [bytes, seconds] = columns(out)?;
        Ok(Reading {
            value: bytes / seconds / 1e9,
            units: bytes,
        })
    };
    let case = Case::new(
        "netperf-stream",
        "netperf TCP_STREAM, 128 KiB",
        ("GB/s", Higher),
        client,
        parse,
    )
    .server(|_, _, port| netserver(port))
    .needs(["netperf", "netserver"])
    .targets(stream_targets());
    Case {
        per: "byte",
        floor: Some(FloorFigure::StreamGbPerS),
        ..case
    }
}

/// The last line of netperf's output is the columns that were asked for.
fn columns<const N: usize>(out: &str) -> anyhow::Result<[f64; N]> {
    let line = out
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .context("no output")?;
    let numbers = line
        .split(',')
        .map(|word| word.trim().parse())
        .collect::<Result<Vec<f64>, _>>()?;
    numbers
        .try_into()
        .ok()
        .context("other columns than asked for")
}

fn iperf() -> Case {
    let client = |ctx: &Ctx, _, port: u16| {
        let port = port.to_string();
        Program::new("iperf3").args([
            "-c",
            "127.0.0.1",
            "-p",
            &port,
            "-l",
            "128K",
            "-J",
            "-t",
            &ctx.whole_seconds(),
        ])
    };
    let parse = |out: &str| {
        let result: Value = serde_json::from_str(out)?;
        let number = |key| {
            result["end"]["sum_received"][key]
                .as_f64()
                .with_context(|| format!("no {key}"))
        };
        Ok(Reading {
            value: number("bits_per_second")? / 8e9,
            units: number("bytes")?,
        })
    };
    let case = Case::new("iperf3", "iperf3, 128 KiB", ("GB/s", Higher), client, parse)
        .server(|_, _, port| Program::new("iperf3").args(["-s", "-1", "-p", &port.to_string()]))
        .needs(["iperf3"])
        .targets(stream_targets());
    Case {
        per: "byte",
        floor: Some(FloorFigure::StreamGbPerS),
        ..case
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockperf_output() {
        let out = "sockperf: [Valid Duration] RunTime=0.550 sec; SentMessages=21266; ReceivedMessages=21260\n\
                   sockperf: ---> percentile 75.000 =   26.067\nsockperf: ---> percentile 50.000 =   25.225\n";
        let reading = sockperf_reading(out).unwrap();
        assert_eq!((reading.value, reading.units), (25.225, 21260.0));
        assert!(sockperf_reading("sockperf: ERROR").is_err());
    }

    #[test]
    fn netperf_output() {
        assert_eq!(columns::<2>("36765.79,1.00\n").unwrap(), [36765.79, 1.0]);
        assert!(columns::<2>("establish control: are you sure?\n").is_err());
    }
}
