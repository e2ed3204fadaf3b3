//! A stream one way over one connection; small blocks make it a message rate. Called by `prog::main`.
//! The server times from the first byte to end of file and prints the rate that arrived.

use std::time::Instant;

use serde_json::json;

use super::payload::Pattern;
use super::socket::Setup;
use super::{Length, Messages, cpu_ns_per};
use crate::calls::Calls;

#[derive(clap::Args)]
pub(crate) struct Server {
    #[command(flatten)]
    setup: Setup,
    /// Bytes asked for in one recv
    #[arg(long, default_value_t = 128 << 10)]
    block: usize,
    /// Check every byte; the client must be told as well
    #[arg(long)]
    verify: bool,
    /// Poll instead of blocking
    #[arg(long)]
    busy: bool,
    /// Tell how many events of this number the kernel has counted
    #[arg(long)]
    count_event: Option<u64>,
}

#[derive(clap::Args)]
pub(crate) struct Client {
    #[command(flatten)]
    setup: Setup,
    /// Bytes given to one send
    #[arg(long, default_value_t = 128 << 10)]
    block: usize,
    /// Send each message at once (TCP_NODELAY)
    #[arg(long)]
    nodelay: bool,
    /// Bytes that tell their place; the server checks them
    #[arg(long)]
    verify: bool,
    /// Tell how many events of this number the kernel has counted
    #[arg(long)]
    count_event: Option<u64>,
    #[command(flatten)]
    length: Length,
}

pub(super) fn serve(args: &Server) -> anyhow::Result<()> {
    let pattern = Pattern::new(args.block);
    let messages = Messages::new(args.setup.listen()?.accept()?.0, args.busy)?;
    let mut block = vec![0; args.block];
    let (mut bytes, mut calls) = (0_u64, 0_u64);
    let mut start = None;
    let count = Calls::begin(args.count_event);
    loop {
        let n = messages.receive_some(&mut block, 0)?;
        start.get_or_insert_with(Instant::now);
        if n == 0 {
            break;
        }
        if args.verify {
            pattern.check(&block[..n], bytes)?;
        }
        bytes += n as u64;
        calls += 1;
    }
    let seconds = start
        .map_or(0.0, |start| start.elapsed().as_secs_f64())
        .max(1e-9);
    super::print(&json!({
        "prog": "stream-server", "bytes": bytes, "calls": calls, "seconds": seconds, "verified": args.verify,
        "buffers": messages.buffers()?,
        "gb_per_s": bytes as f64 / seconds / 1e9,
        "cpu_ns_per_byte": cpu_ns_per(bytes), "cpu_ns_per_call": cpu_ns_per(calls),
        "system_calls": count.so_far(),
    }));
    Ok(())
}

pub(super) fn drive(args: &Client) -> anyhow::Result<()> {
    let pattern = Pattern::new(args.block);
    let socket = args.setup.connect()?;
    socket.set_nodelay(args.nodelay)?;
    let (mut bytes, mut messages) = (0_u64, 0_u64);
    // The clock is read about once per 64 KiB, and at least every 1,000 messages: it must not be part of what a small
    // message costs, and slow ones must not overrun the time.
    let between = ((64 << 10) / args.block.max(1) as u64).min(1000) + 1;
    let count = Calls::begin(args.count_event);
    let (start, end) = (Instant::now(), args.length.end());
    while messages < args.length.count && (messages % between != 0 || Instant::now() < end) {
        let block = pattern.at(if args.verify { bytes } else { 0 }, args.block);
        let mut done = 0;
        while done < block.len() {
            done += crate::sys::send(&socket, &block[done..], 0)?;
        }
        bytes += block.len() as u64;
        messages += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    super::print(&json!({
        "prog": "stream-client", "block": args.block, "bytes": bytes, "messages": messages, "seconds": seconds,
        "gb_per_s": bytes as f64 / seconds / 1e9, "per_second": messages as f64 / seconds,
        "cpu_ns_per_byte": cpu_ns_per(bytes), "cpu_ns_per_message": cpu_ns_per(messages),
        "buffers": crate::sys::buffers(&socket)?, "system_calls": count.so_far(),
    }));
    Ok(())
}
