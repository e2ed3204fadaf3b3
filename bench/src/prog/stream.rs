//! A stream one way over one connection; small blocks make it a message rate. Called by `prog::main`.
//! The server times from the first byte to end of file and prints the rate that arrived.

use std::time::Instant;

use serde_json::json;

use super::{Length, cpu_ns_per, payload};
use crate::sys;

#[derive(clap::Args)]
pub(crate) struct Server {
    #[arg(long)]
    port: u16,
    /// Bytes asked for in one recv
    #[arg(long, default_value_t = 128 << 10)]
    block: usize,
    /// Check every byte; the client must be told as well
    #[arg(long)]
    verify: bool,
}

#[derive(clap::Args)]
pub(crate) struct Client {
    #[arg(long)]
    port: u16,
    /// Bytes given to one send
    #[arg(long, default_value_t = 128 << 10)]
    block: usize,
    /// Send each message at once (TCP_NODELAY)
    #[arg(long)]
    nodelay: bool,
    /// Bytes that tell their place; the server checks them
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    length: Length,
}

pub(super) fn serve(args: &Server) -> anyhow::Result<()> {
    let (socket, _) = super::listen(args.port)?.accept()?;
    let mut block = vec![0; args.block];
    let (mut bytes, mut calls) = (0_u64, 0_u64);
    let mut start = None;
    loop {
        let n = sys::recv(&socket, &mut block, 0)?;
        start.get_or_insert_with(Instant::now);
        if n == 0 {
            break;
        }
        if args.verify
            && let Some(place) = payload::first_wrong(&block[..n], bytes)
        {
            anyhow::bail!("byte {place} of the stream is wrong");
        }
        bytes += n as u64;
        calls += 1;
    }
    let seconds = start
        .map_or(0.0, |start| start.elapsed().as_secs_f64())
        .max(1e-9);
    super::print(&json!({
        "prog": "stream-server", "bytes": bytes, "calls": calls, "seconds": seconds, "verified": args.verify,
        "gb_per_s": bytes as f64 / seconds / 1e9,
        "cpu_ns_per_byte": cpu_ns_per(bytes), "cpu_ns_per_call": cpu_ns_per(calls),
    }));
    Ok(())
}

pub(super) fn drive(args: &Client) -> anyhow::Result<()> {
    let socket = super::connect(args.port)?;
    socket.set_nodelay(args.nodelay)?;
    let mut block = vec![0x5a; args.block];
    let (mut bytes, mut messages) = (0_u64, 0_u64);
    // The clock is read about once per 64 KiB: it must not be part of what a small message costs.
    let between = (64 << 10) / args.block.max(1) as u64 + 1;
    let (start, end) = (Instant::now(), args.length.end());
    while messages < args.length.count && (messages % between != 0 || Instant::now() < end) {
        if args.verify {
            payload::fill(&mut block, bytes);
        }
        let mut done = 0;
        while done < block.len() {
            done += sys::send(&socket, &block[done..], 0)?;
        }
        bytes += block.len() as u64;
        messages += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    super::print(&json!({
        "prog": "stream-client", "block": args.block, "bytes": bytes, "messages": messages, "seconds": seconds,
        "gb_per_s": bytes as f64 / seconds / 1e9, "per_second": messages as f64 / seconds,
        "cpu_ns_per_byte": cpu_ns_per(bytes), "cpu_ns_per_message": cpu_ns_per(messages),
    }));
    Ok(())
}
