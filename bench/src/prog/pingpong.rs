//! Ping-pong over one connection. Called by `prog::main`.
//! `--busy` polls with MSG_DONTWAIT for what it receives: kernel TCP at its fastest. With `--verify` each message differs
//! from the one before and every echo is checked.

use std::io::ErrorKind;

use serde_json::json;

use super::payload::Pattern;
use super::socket::Setup;
use super::{Latencies, Length, Messages, cpu_ns_per};

#[derive(clap::Args)]
pub(crate) struct Server {
    #[command(flatten)]
    setup: Setup,
    /// Bytes of one message
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Poll instead of blocking
    #[arg(long)]
    busy: bool,
    /// Leave TCP_NODELAY off
    #[arg(long)]
    nagle: bool,
    /// Connections to serve, one after the other
    #[arg(long, default_value_t = 1)]
    connections: u32,
}

#[derive(clap::Args)]
pub(crate) struct Client {
    #[command(flatten)]
    setup: Setup,
    /// Bytes of one message
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Poll instead of blocking
    #[arg(long)]
    busy: bool,
    /// Leave TCP_NODELAY off
    #[arg(long)]
    nagle: bool,
    /// Check every byte of every echo
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    length: Length,
}

pub(super) fn serve(args: &Server) -> anyhow::Result<()> {
    let listener = args.setup.listen()?;
    let mut message = vec![0; args.size];
    let mut served = 0_u64;
    for _ in 0..args.connections {
        let messages = Messages::new(listener.accept()?.0, args.busy)?.with_nagle(args.nagle)?;
        while messages.receive(&mut message)? {
            messages.send(&message)?;
            served += 1;
        }
    }
    super::print(&json!({
        "prog": "pingpong-server", "messages": served, "cpu_ns_per_message": cpu_ns_per(served),
    }));
    Ok(())
}

pub(super) fn drive(args: &Client) -> anyhow::Result<()> {
    let pattern = Pattern::new(args.size);
    let messages = Messages::new(args.setup.connect()?, args.busy)?.with_nagle(args.nagle)?;
    let (mut received, mut place) = (vec![0; args.size], 0);
    let mut round_trip = || {
        messages.send(pattern.at(place, args.size))?;
        if !messages.receive(&mut received)? {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if args.verify {
            pattern
                .check(&received, place)
                .map_err(std::io::Error::other)?;
            place += args.size as u64;
        }
        Ok(())
    };
    for _ in 0..args.length.count.min(200) {
        round_trip()?;
    }
    let round_trips = Latencies::measure(args.length, round_trip)?;
    pattern.check(&received, place.saturating_sub(args.size as u64))?;
    super::print(&json!({
        "prog": "pingpong-client", "size": args.size, "busy": args.busy, "verified": args.verify,
        "messages": round_trips.count, "p50_ns": round_trips.p50, "p99_ns": round_trips.p99,
        "per_second": round_trips.per_second(), "cpu_ns_per_message": cpu_ns_per(round_trips.count),
        "buffers": messages.buffers()?,
    }));
    Ok(())
}
