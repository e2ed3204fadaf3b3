//! `bench`: what the machine can do, ordinary socket programs, and Shunt against kernel TCP.
//!
//! This file owns the command line and nothing else. `floor` measures the bare machine, `prog` holds plain socket
//! programs that know nothing of Shunt, `compare` runs programs with and without the library and judges the result,
//! `cost` measures what Shunt costs where it gains nothing, `figures` sets the flow-control schemes side by side, `zcopy`
//! does so with the ways to send large messages, `iwarp` with the ways to frame them, `wire` holds
//! software iWARP between hosts against kernel TCP; `plot` and `table` write down.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod calls;
mod compare;
mod cost;
mod figures;
mod floor;
mod guard;
mod iwarp;
mod machine;
mod plot;
mod prog;
mod run;
mod sides;
mod stats;
mod sys;
mod table;
mod wire;
mod zcopy;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Measures Shunt against kernel TCP and against the bare machine")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// What the machine can do with no sockets at all: bare ring, memcpy, wake-ups, one system call
    Floor(floor::Args),
    /// Keeping a message where it is until it is read: protection, page references, traps, step by step
    Guard(guard::Args),
    /// A plain socket program; prints one line of JSON
    #[command(subcommand)]
    Prog(prog::Prog),
    /// Kernel TCP and Shunt in turn, for every measurement; writes out/compare.* and docs/img/compare.*
    Compare(compare::Args),
    /// What Shunt costs: demotion, foreign descriptors, memory, idle connections; writes out/cost.*
    Cost(cost::Args),
    /// Zero copy for large messages against the ring, kernel TCP and memcpy; writes out/zcopy
    Zcopy(zcopy::Args),
    /// The flow-control schemes and kernel TCP: the figures of chapter 4 of the SDP thesis
    Figures(figures::Args),
    /// What iWARP framing costs the processor: after the figures of chapter 3 of the SDP thesis
    Iwarp(iwarp::Args),
    /// Software iWARP against kernel TCP between two hosts: streams, small messages, system calls; writes out/wire.*
    Wire(wire::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Floor(args) => floor::main(&args),
        Command::Guard(args) => guard::main(&args),
        Command::Prog(prog) => prog::main(&prog),
        Command::Compare(args) => compare::main(&args),
        Command::Cost(args) => cost::main(&args),
        Command::Zcopy(args) => zcopy::main(&args),
        Command::Figures(args) => figures::main(&args),
        Command::Iwarp(args) => iwarp::main(&args),
        Command::Wire(args) => wire::main(&args),
    }
}
