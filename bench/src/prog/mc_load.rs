//! GET load on memcached: several connections, one request outstanding on each, one thread with epoll. Called by
//! `prog::main`. The answers are checked to the byte.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context, ensure};
use serde_json::json;

use super::{Length, cpu_ns_per};
use crate::{stats, sys};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    port: u16,
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Bytes of the value
    #[arg(long, default_value_t = 100)]
    size: usize,
    #[command(flatten)]
    length: Length,
}

const GET: &[u8] = b"get bench\r\n";

/// One connection with one GET on its way.
struct Conversation {
    socket: TcpStream,
    answer: Vec<u8>,
    received: usize,
    asked: Instant,
}

pub(super) fn main(args: &Args) -> anyhow::Result<()> {
    let answer = store(args.port, args.size)?;
    let epoll = sys::epoll()?;
    let mut conversations = Vec::new();
    for token in 0..args.connections as u64 {
        let mut socket = super::connect(args.port)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        sys::epoll_add(&epoll, &socket, token)?;
        socket.write_all(GET)?;
        conversations.push(Conversation {
            socket,
            answer: vec![0; answer.len()],
            received: 0,
            asked: Instant::now(),
        });
    }

    let (start, end) = (Instant::now(), args.length.end());
    let (mut samples, mut count) = (Vec::with_capacity(1 << 20), 0_u64);
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; args.connections];
    while Instant::now() < end && count < args.length.count {
        let ready = sys::epoll_wait(&epoll, &mut events, 1000)?;
        ensure!(ready > 0, "no answer within a second");
        for event in &events[..ready] {
            let one = &mut conversations[event.u64 as usize];
            let n = one.socket.read(&mut one.answer[one.received..])?;
            ensure!(n > 0, "memcached closed the connection");
            one.received += n;
            if one.received < answer.len() {
                continue;
            }
            ensure!(one.answer == answer, "wrong answer");
            count += 1;
            samples.push((one.asked.elapsed()).as_nanos() as u32);
            one.received = 0;
            one.asked = Instant::now();
            one.socket.write_all(GET)?;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    super::print(&json!({
        "prog": "mc-load", "messages": count, "seconds": seconds, "per_second": count as f64 / seconds,
        "p50_ns": stats::percentile(&mut samples, 0.5), "p99_ns": stats::percentile(&mut samples, 0.99),
        "cpu_ns_per_message": cpu_ns_per(count),
    }));
    Ok(())
}

/// Stores the value; returns what a GET must answer.
fn store(port: u16, size: usize) -> anyhow::Result<Vec<u8>> {
    let mut socket = super::connect(port)?;
    let value = "v".repeat(size);
    write!(socket, "set bench 0 0 {size}\r\n{value}\r\n")?;
    let mut stored = [0; 8];
    socket
        .read_exact(&mut stored)
        .context("memcached did not answer")?;
    ensure!(
        &stored == b"STORED\r\n",
        "memcached did not store the value"
    );
    Ok(format!("VALUE bench 0 {size}\r\n{value}\r\nEND\r\n").into_bytes())
}
