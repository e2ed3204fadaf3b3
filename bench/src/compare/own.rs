//! The measurements made with this crate's own plain client and server. Called by `compare`.

use anyhow::Context as _;
use serde_json::Value;

use super::case::Better::{Higher, Lower};
use super::case::{Carrier, Case, Ctx, Ends, FloorFigure, Place, Reading, Target};
use crate::run::Program;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        blocking("pingpong", "64 B ping-pong, one core each")
            .targets([Target::OverMedian(50.0)])
            .near_the_ring(),
        pingpong("pingpong-busy", "64 B ping-pong, both polling", |_| true)
            .targets([Target::OverMedian(8.0)]),
        pingpong(
            "pingpong-vs-busy",
            "64 B ping-pong, Shunt blocking against TCP polling",
            |ends| ends == Ends::NONE,
        )
        .targets([Target::OverMedian(8.0)]),
        placed(
            blocking("pingpong-one-core", "64 B ping-pong, both on one core"),
            Place::Together,
        )
        .targets([Target::OverMedian(1.5)]),
        pairs("pairs-2", "64 B ping-pong, 2 pairs unpinned", 2),
        pairs("pairs-4", "64 B ping-pong, 4 pairs unpinned", 4),
        threads(
            "threads-16",
            "16 threads a side, request and answer",
            &[],
            &[],
        ),
        threads(
            "threads-16-work",
            "16 threads a side, 20 µs of work an answer",
            &["--work", "20"],
            &[],
        ),
        threads(
            "threads-16-short",
            "16 threads a side, a connection each request",
            &[],
            &["--short"],
        ),
        crowd(
            "crowd-1000",
            "1000 connections in one set, all busy",
            "1000",
        ),
        messages(
            "messages",
            "64 B messages one way, TCP_NODELAY",
            &["--nodelay"],
        )
        .targets([Target::OverMedian(40.0)]),
        // TCP trades the latency of each message for this rate: shown, but no target.
        messages(
            "messages-nagle",
            "64 B messages one way, TCP may gather",
            &[],
        ),
        stream("stream", "128 KiB stream, own", &[]).targets([
            Target::OverMedian(2.5),
            Target::OverBest(1.8),
            Target::OfFloor(0.85),
        ]),
        placed(
            stream("stream-unpinned", "128 KiB stream, own, unpinned", &[]),
            Place::Free,
        ),
        Case {
            // Checking takes longer than carrying: only that every byte is right is measured here.
            floor: None,
            ..stream(
                "stream-verified",
                "128 KiB stream, every byte checked",
                &["--verify"],
            )
        },
        crr("crr", "connect, 1 byte, close", &[]).targets([Target::OverMedian(1.5)]),
        connect_close(),
    ];
    cases.extend([
        plain_peer(
            "plain-client",
            "connect, 1 byte, close: client without Shunt",
            Ends {
                server: true,
                client: false,
            },
        ),
        plain_peer(
            "plain-server",
            "connect, 1 byte, close: server without Shunt",
            Ends {
                server: false,
                client: true,
            },
        ),
        read_other("read-other-0", "read of 0 bytes of /dev/zero", "0"),
        read_other("read-other-1", "read of 1 byte of /dev/zero", "1"),
    ]);
    cases
}

/// One number of the JSON line that a program of ours printed.
pub(crate) fn field(output: &str, name: &str) -> anyhow::Result<f64> {
    let line: Value = serde_json::from_str(output.trim())?;
    line.get(name)
        .and_then(Value::as_f64)
        .with_context(|| format!("no {name}"))
}

/// `value` of a program of ours, divided by `scale`, about its messages.
fn reading(value: &'static str, scale: f64) -> impl Fn(&str) -> anyhow::Result<Reading> {
    move |out| {
        Ok(Reading {
            value: field(out, value)? / scale,
            units: field(out, "messages")?,
        })
    }
}

fn for_a_while(ctx: &Ctx, program: Program) -> Program {
    program.args(["--seconds".into(), ctx.length.as_secs_f64().to_string()])
}

fn busy_if(busy: bool, program: Program) -> Program {
    program.args(busy.then_some("--busy"))
}

fn placed(mut case: Case, place: Place) -> Case {
    case.place = place;
    case
}

impl Case {
    /// Held against the bare ring's round trip as well.
    pub(crate) fn near_the_ring(mut self) -> Self {
        let figure = if self.better == Lower {
            FloorFigure::RoundTripUs
        } else {
            FloorFigure::RoundTripsPerSecond
        };
        self.floor = Some(figure);
        self.targets([Target::OfFloor(1.0 / 1.5)])
    }
}

fn blocking(name: &'static str, what: &'static str) -> Case {
    pingpong(name, what, |_| false)
}

fn pingpong(name: &'static str, what: &'static str, busy: fn(Ends) -> bool) -> Case {
    let client = move |ctx: &Ctx, ends, port| {
        busy_if(
            busy(ends),
            for_a_while(ctx, ctx.prog("pingpong-client", port)),
        )
    };
    Case::new(name, what, ("µs", Lower), client, reading("p50_ns", 1e3))
        .server(move |ctx, ends, port| busy_if(busy(ends), ctx.prog("pingpong-server", port)))
}

fn pairs(name: &'static str, what: &'static str, pairs: usize) -> Case {
    let client = |ctx: &Ctx, _, port| for_a_while(ctx, ctx.prog("pingpong-client", port));
    let case = Case::new(
        name,
        what,
        ("rtt/s", Higher),
        client,
        reading("per_second", 1.0),
    )
    .server(|ctx, _, port| ctx.prog("pingpong-server", port))
    .targets([Target::OverMedian(3.0), Target::WorstOverBest(1.0)]);
    Case {
        pairs,
        ..placed(case, Place::Free)
    }
}

/// More runnable threads than cores.
fn threads(
    name: &'static str,
    what: &'static str,
    server: &'static [&'static str],
    client: &'static [&'static str],
) -> Case {
    let make =
        move |ctx: &Ctx, _, port| for_a_while(ctx, ctx.prog("threads-client", port).args(client));
    let case = Case::new(
        name,
        what,
        ("req/s", Higher),
        make,
        reading("per_second", 1.0),
    )
    .server(move |ctx, _, port| ctx.prog("threads-server", port).args(server))
    .targets([Target::OverMedian(1.0)]);
    placed(case, Place::Free)
}

/// Many connections in one set at each end, all with traffic.
fn crowd(name: &'static str, what: &'static str, count: &'static str) -> Case {
    let make = move |ctx: &Ctx, _, port| {
        let all = ["--connections", count, "--active", count];
        for_a_while(ctx, ctx.prog("crowd-client", port).args(all))
    };
    let parse = reading("per_second", 1.0);
    let case = Case::new(name, what, ("req/s", Higher), make, parse)
        .server(move |ctx, _, port| {
            ctx.prog("crowd-server", port)
                .args(["--connections", count])
        })
        .targets([Target::OverMedian(2.0)]);
    placed(case, Place::Free)
}

fn messages(name: &'static str, what: &'static str, more: &'static [&'static str]) -> Case {
    let client = move |ctx: &Ctx, _, port| {
        for_a_while(
            ctx,
            ctx.prog("stream-client", port)
                .args(["--block", "64"])
                .args(more),
        )
    };
    // The server's clock: what was still on its way when the client stopped counts with the time it took.
    let parse = |out: &str| {
        let messages = field(out, "bytes")? / 64.0;
        Ok(Reading {
            value: messages / field(out, "seconds")?,
            units: messages,
        })
    };
    let case = Case::new(name, what, ("msg/s", Higher), client, parse)
        .server(|ctx, _, port| ctx.prog("stream-server", port).args(["--block", "64"]))
        .targets([Target::NsPerCallAtMost(40.0)]);
    Case {
        parse_server: true,
        floor: Some(FloorFigure::MessagesPerSecond),
        ..case
    }
}

fn stream(name: &'static str, what: &'static str, more: &'static [&'static str]) -> Case {
    let client =
        move |ctx: &Ctx, _, port| for_a_while(ctx, ctx.prog("stream-client", port).args(more));
    let parse = |out: &str| {
        Ok(Reading {
            value: field(out, "gb_per_s")?,
            units: field(out, "bytes")?,
        })
    };
    let case = Case::new(name, what, ("GB/s", Higher), client, parse)
        .server(move |ctx, _, port| ctx.prog("stream-server", port).args(more));
    Case {
        per: "byte",
        parse_server: true,
        floor: Some(FloorFigure::StreamGbPerS),
        ..case
    }
}

fn crr(name: &'static str, what: &'static str, more: &'static [&'static str]) -> Case {
    let client =
        move |ctx: &Ctx, _, port| for_a_while(ctx, ctx.prog("crr-client", port).args(more));
    let case = Case::new(
        name,
        what,
        ("conn/s", Higher),
        client,
        reading("per_second", 1.0),
    )
    .server(move |ctx, _, port| ctx.prog("crr-server", port).args(more));
    Case {
        per: "connection",
        ..case
    }
}

fn connect_close() -> Case {
    // Without data there is nothing to carry.
    let case =
        crr("connect-close", "connect, close", &["--bare"]).targets([Target::OverMedian(1.0)]);
    Case {
        carrier: Carrier::Any,
        turns: FINE,
        ..case
    }
}

/// For measurements whose target is a difference of a few per cent.
const FINE: u32 = 4;

fn plain_peer(name: &'static str, what: &'static str, shunt: Ends) -> Case {
    let client = |ctx: &Ctx, _, port| for_a_while(ctx, ctx.prog("crr-client", port));
    let case = Case::new(name, what, ("µs", Lower), client, reading("p50_ns", 1e3))
        .server(|ctx, _, port| ctx.prog("crr-server", port))
        .targets([Target::CostAtMost(1.05)]);
    Case {
        per: "connection",
        shunt,
        carrier: Carrier::Kernel,
        turns: FINE,
        ..case
    }
}

fn read_other(name: &'static str, what: &'static str, size: &'static str) -> Case {
    let client = move |ctx: &Ctx, _, _| {
        for_a_while(
            ctx,
            Program::new(&ctx.me).args(["prog", "read-other", "--size", size]),
        )
    };
    let parse = |out: &str| {
        Ok(Reading {
            value: field(out, "ns_per_call")?,
            units: 0.0,
        })
    };
    let case =
        Case::new(name, what, ("ns", Lower), client, parse).targets([Target::ExtraAtMost(5.0)]);
    Case {
        shunt: Ends {
            server: false,
            client: true,
        },
        carrier: Carrier::Any,
        turns: FINE,
        ..case
    }
}
