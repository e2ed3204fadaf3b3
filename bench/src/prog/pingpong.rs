//! Ping-pong over one connection. Called by `prog::main`.
//! `--busy` polls with MSG_DONTWAIT instead of blocking: kernel TCP at its fastest.

use std::io::{self, ErrorKind};
use std::net::TcpStream;

use serde_json::json;

use super::{Latencies, Length, cpu_ns_per};
use crate::sys;

#[derive(clap::Args)]
pub(crate) struct Server {
    #[arg(long)]
    port: u16,
    /// Bytes of one message
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Poll instead of blocking
    #[arg(long)]
    busy: bool,
    /// Connections to serve, one after the other
    #[arg(long, default_value_t = 1)]
    connections: u32,
}

#[derive(clap::Args)]
pub(crate) struct Client {
    #[arg(long)]
    port: u16,
    /// Bytes of one message
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Poll instead of blocking
    #[arg(long)]
    busy: bool,
    #[command(flatten)]
    length: Length,
}

/// Whole messages over one socket.
struct Messages {
    socket: TcpStream,
    flags: i32,
}

impl Messages {
    fn new(socket: TcpStream, busy: bool) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        Ok(Self {
            socket,
            flags: if busy { libc::MSG_DONTWAIT } else { 0 },
        })
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < message.len() {
            done += self.retry(|| sys::send(&self.socket, &message[done..], self.flags))?;
        }
        Ok(())
    }

    /// False at end of file.
    fn receive(&self, message: &mut [u8]) -> io::Result<bool> {
        let mut done = 0;
        while done < message.len() {
            match self.retry(|| sys::recv(&self.socket, &mut message[done..], self.flags))? {
                0 => return Ok(false),
                n => done += n,
            }
        }
        Ok(true)
    }

    fn retry(&self, mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        loop {
            match call() {
                Err(e) if e.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                result => return result,
            }
        }
    }
}

pub(super) fn serve(args: &Server) -> anyhow::Result<()> {
    let listener = super::listen(args.port)?;
    let mut message = vec![0; args.size];
    let mut served = 0_u64;
    for _ in 0..args.connections {
        let messages = Messages::new(listener.accept()?.0, args.busy)?;
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
    let messages = Messages::new(super::connect(args.port)?, args.busy)?;
    let (sent, mut received) = (vec![0x5a; args.size], vec![0; args.size]);
    let mut round_trip = || {
        messages.send(&sent)?;
        match messages.receive(&mut received)? {
            true => Ok(()),
            false => Err(ErrorKind::UnexpectedEof.into()),
        }
    };
    for _ in 0..args.length.count.min(200) {
        round_trip()?;
    }
    let round_trips = Latencies::measure(args.length, round_trip)?;
    anyhow::ensure!(received == sent, "the echo differs from what was sent");
    super::print(&json!({
        "prog": "pingpong-client", "size": args.size, "busy": args.busy, "messages": round_trips.count,
        "p50_ns": round_trips.p50, "p99_ns": round_trips.p99, "per_second": round_trips.per_second(),
        "cpu_ns_per_message": cpu_ns_per(round_trips.count),
    }));
    Ok(())
}
