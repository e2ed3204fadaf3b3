//! A call that the library can only serve by going back to kernel TCP, on a connection that has been idle for a while.
//! Called by `prog::main`; the server is that of `pingpong`. Prints how long the call took, and how long until the peer
//! had answered what followed.

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::json;

use super::Messages;
use super::socket::Setup;
use crate::{stats, sys};

#[derive(clap::Args)]
pub(crate) struct Client {
    #[command(flatten)]
    setup: Setup,
    /// Which call
    #[arg(long, value_enum)]
    call: Call,
    /// Connections, one after the other: each is demoted once
    #[arg(long, default_value_t = 100)]
    connections: usize,
    /// For how long each is idle before, in ms
    #[arg(long, default_value_t = 2)]
    idle_ms: u64,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Call {
    /// dprintf(3) of a message
    Dprintf,
    /// send(2) of a byte with MSG_OOB
    Oob,
}

/// One message.
const TEXT: &[u8; 64] = b"a message of sixty-four bytes, all of it text, and not one more.";

pub(super) fn drive(args: &Client) -> anyhow::Result<()> {
    let (mut calls, mut answers) = (Vec::new(), Vec::new());
    let mut echo = [0; TEXT.len()];
    for _ in 0..args.connections {
        let socket = args.setup.connect()?;
        let messages = Messages::new(socket.try_clone()?, false)?;
        for _ in 0..20 {
            messages.send(TEXT)?;
            ensure!(messages.receive(&mut echo)?, "the peer is gone");
        }
        std::thread::sleep(Duration::from_millis(args.idle_ms));
        let start = Instant::now();
        match args.call {
            Call::Dprintf => sys::dprintf(&socket, TEXT)?,
            Call::Oob => sys::send(&socket, b"!", libc::MSG_OOB)?,
        };
        calls.push(ns(start));
        if matches!(args.call, Call::Oob) {
            messages.send(TEXT)?;
        }
        ensure!(messages.receive(&mut echo)?, "the peer is gone");
        answers.push(ns(start));
        ensure!(echo == *TEXT, "the echo is not what was sent");
    }
    let share = |of: &mut Vec<u32>, share| f64::from(stats::percentile(of, share)) / 1e3;
    super::print(&json!({
        "prog": "demote-client", "connections": args.connections,
        "call_p50_us": share(&mut calls, 0.5), "call_p99_us": share(&mut calls, 0.99), "call_max_us": share(&mut calls, 1.0),
        "answer_p50_us": share(&mut answers, 0.5), "answer_max_us": share(&mut answers, 1.0),
    }));
    Ok(())
}

fn ns(since: Instant) -> u32 {
    u32::try_from(since.elapsed().as_nanos()).unwrap_or(u32::MAX)
}
