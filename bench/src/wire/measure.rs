//! What is measured between two hosts. Called by `wire`.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::calls;
use crate::sides::{End, Lab, Pair, Plan, Row, Samples, Side, Target};

/// What the programs are told: small messages and their echo, the same one way, a stream.
const SMALL: [&str; 2] = ["--size", "64"];
const MESSAGES: [&str; 3] = ["--nodelay", "--block", "64"];
const BLOCKS: [&str; 2] = ["--block", "131072"];
/// Large ones and their echo, by programs that leave TCP_NODELAY off: whatever makes the kernel wait for an acknowledgement shows.
const LARGE: [&str; 3] = ["--nagle", "--size", "1000000"];

/// A new one is a name here, what it is in words and what has to be reached.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub(crate) enum Measure {
    /// A stream, without sums
    Stream,
    /// A stream, with CRC32C
    StreamCrc,
    /// Messages of 64 octets one way
    Small,
    /// The system calls of both ends that a MiB of these takes
    Calls,
    /// A message of 64 octets and its answer
    Pingpong,
    /// A stream, without sums, by credit
    StreamCredit,
    /// A stream, without sums, by packetized
    StreamPacketized,
    /// 1 MB and its echo
    Exchange,
    /// 1 MB and its echo, by credit
    ExchangeCredit,
    /// 1 MB and its echo, by packetized
    ExchangePacketized,
}

impl Measure {
    pub(super) const ALL: [Self; 10] = [
        Self::Stream,
        Self::StreamCrc,
        Self::Small,
        Self::Calls,
        Self::Pingpong,
        Self::StreamCredit,
        Self::StreamPacketized,
        Self::Exchange,
        Self::ExchangeCredit,
        Self::ExchangePacketized,
    ];

    /// What it is, in what, and what has to be reached.
    const fn about(self) -> (&'static str, &'static str, &'static str, Target) {
        match self {
            Self::Stream => (
                "stream",
                "blocks of 128 KiB, CRC off",
                "GB/s",
                Target::TimesAtLeast(0.95),
            ),
            Self::StreamCrc => (
                "stream-crc",
                "the same, CRC on",
                "GB/s",
                Target::TimesAtLeast(0.8),
            ),
            Self::Small => (
                "small",
                "messages of 64 B one way",
                "/s",
                Target::TimesAtLeast(5.0),
            ),
            Self::Calls => (
                "calls",
                "system calls of both ends for a MiB of these",
                "/MiB",
                Target::TimesAtMost(0.05),
            ),
            Self::Pingpong => (
                "pingpong",
                "64 B and their echo",
                "µs",
                Target::TimesAtMost(1.1),
            ),
            Self::StreamCredit => (
                "stream-credit",
                "blocks of 128 KiB by credit",
                "GB/s",
                Target::None,
            ),
            Self::StreamPacketized => (
                "stream-packetized",
                "blocks of 128 KiB by packetized",
                "GB/s",
                Target::None,
            ),
            Self::Exchange => ("exchange", "1 MB and its echo", "µs", Target::None),
            Self::ExchangeCredit => (
                "exchange-credit",
                "1 MB and its echo by credit",
                "µs",
                Target::None,
            ),
            Self::ExchangePacketized => (
                "exchange-packetized",
                "1 MB and its echo by packetized",
                "µs",
                Target::None,
            ),
        }
    }

    const fn scheme(self) -> &'static str {
        match self {
            Self::StreamCredit | Self::ExchangeCredit => "credit",
            Self::StreamPacketized | Self::ExchangePacketized => "packetized",
            _ => "auto",
        }
    }

    const fn is_stream(self) -> bool {
        matches!(
            self,
            Self::Stream | Self::StreamCrc | Self::StreamCredit | Self::StreamPacketized
        )
    }

    pub(super) fn row(self, lab: &mut Lab, plan: &Plan) -> Row {
        let (name, what, unit, target) = self.about();
        let crc = if self == Self::StreamCrc { "on" } else { "off" };
        lab.set(vec![
            ("SHUNT_TRANSPORT", "iwarp".into()),
            ("SHUNT_CRC", crc.into()),
            ("SHUNT_FLOW", self.scheme().into()),
        ]);
        let mut samples = Samples::default();
        plan.turns(1, |side| samples.add(side, self.once(lab, plan, side)));
        Row::judge(name, what, unit, target, samples)
    }

    fn once(self, lab: &Lab, plan: &Plan, side: Side) -> anyhow::Result<f64> {
        let seconds = plan.pick("0.3", "1");
        let event = match self {
            Self::Calls => Some(calls::event().context("system calls cannot be counted here")?),
            _ => None,
        };
        let event = event.map(|number| format!("--count-event={number}"));
        let (to, from, took, sent): (_, _, &[&str], &[&str]) = match self {
            Self::Pingpong => ("pingpong-server", "pingpong-client", &SMALL, &SMALL),
            Self::Small | Self::Calls => ("stream-server", "stream-client", &[], &MESSAGES),
            _ if self.is_stream() => ("stream-server", "stream-client", &[], &BLOCKS),
            _ => ("pingpong-server", "pingpong-client", &LARGE, &LARGE),
        };
        let words = |words: &[&str]| {
            let words = words.iter().map(|&word| word.to_owned());
            words.chain(event.clone()).collect::<Vec<_>>()
        };
        let (took, sent) = (
            words(took),
            words(&[sent, &["--seconds", seconds]].concat()),
        );
        let pair = Pair {
            server: Some((to, &took)),
            client: (from, &sent),
            limit: Duration::from_secs(60),
        };
        let (client, server) = lab.run(side, &pair)?;
        let server = server.context("no server")?;
        for end in [&client, &server] {
            end.all_on(1, |totals| totals.iwarp)?;
        }
        self.figure(&client, &server)
    }

    /// What counts of what the two ends said.
    fn figure(self, client: &End, server: &End) -> anyhow::Result<f64> {
        let bytes = || {
            let [sent, came] = [client.number("/bytes")?, server.number("/bytes")?];
            ensure!(sent == came, "{sent} bytes sent and {came} received");
            anyhow::Ok(came)
        };
        Ok(match self {
            _ if self.is_stream() => {
                bytes()?;
                server.number("/gb_per_s")?
            }
            Self::Small => bytes()? / 64.0 / server.number("/seconds")?,
            Self::Calls => {
                let mut calls = 0.0;
                for end in [client, server] {
                    calls += end.number("/system_calls")?;
                }
                calls / (bytes()? / f64::from(1 << 20))
            }
            Self::Pingpong => client.number("/p50_ns")? / 1e3,
            // (the mean: a wait in each tenth round would not be in a median)
            _ => 1e6 / client.number("/per_second")?,
        })
    }
}
