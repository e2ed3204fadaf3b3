//! Computation beside communication: the test of the SDP thesis, section 4.4. The client sends a burst of messages,
//! computes, and receives a burst; the server receives a burst, computes, and sends one. Called by `prog::main`.
//!
//! Computing makes no call that a library could see, and lasts until this thread has had so much time on its core: a
//! helper that takes the core away makes the iteration longer, as it would in a real program.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use serde_json::json;

use super::payload::Pattern;
use super::socket::Setup;
use super::{Latencies, Length, Messages};
use crate::sys;

#[derive(Clone, Copy, clap::Args)]
struct Work {
    #[command(flatten)]
    setup: Setup,
    /// Messages of one burst
    #[arg(long, default_value_t = 100)]
    burst: usize,
    /// Bytes of one message
    #[arg(long, default_value_t = 1024)]
    size: usize,
    /// Nanoseconds of computation between the bursts
    #[arg(long, default_value_t = 0)]
    compute_ns: u64,
    /// Poll instead of blocking
    #[arg(long)]
    busy: bool,
}

#[derive(clap::Args)]
pub(crate) struct Server {
    #[command(flatten)]
    work: Work,
    /// Nanoseconds that it computes when a burst has begun to arrive, before it receives the first message
    #[arg(long, default_value_t = 0)]
    lag_ns: u64,
}

#[derive(clap::Args)]
pub(crate) struct Client {
    #[command(flatten)]
    work: Work,
    #[arg(long, default_value_t = 200)]
    iterations: u64,
    /// Iterations before the ones that are measured
    #[arg(long, default_value_t = 20)]
    warm_up: u64,
}

/// One side: its socket, and how far the stream is in each direction.
struct Side {
    work: Work,
    messages: Messages,
    pattern: Pattern,
    message: Vec<u8>,
    sent: u64,
    received: u64,
}

impl Side {
    fn new(
        work: Work,
        socket: impl FnOnce() -> io::Result<std::net::TcpStream>,
    ) -> io::Result<Self> {
        // Before there is a connection: nobody shall wait for it.
        let pattern = Pattern::new(work.size);
        Ok(Self {
            work,
            messages: Messages::new(socket()?, work.busy)?,
            pattern,
            message: vec![0; work.size],
            sent: 0,
            received: 0,
        })
    }

    fn send_burst(&mut self) -> io::Result<()> {
        for _ in 0..self.work.burst {
            self.messages
                .send(self.pattern.at(self.sent, self.work.size))?;
            self.sent += self.work.size as u64;
        }
        Ok(())
    }

    /// False at end of file.
    fn receive_burst(&mut self) -> io::Result<bool> {
        for _ in 0..self.work.burst {
            if !self.messages.receive(&mut self.message)? {
                return Ok(false);
            }
            let checked = self.pattern.check(&self.message, self.received);
            checked.map_err(io::Error::other)?;
            self.received += self.work.size as u64;
        }
        Ok(true)
    }

    /// Waits for the first byte of a burst and leaves it where it is; false at end of file.
    fn wait_burst(&self) -> io::Result<bool> {
        let waited = self.messages.receive_some(&mut [0], libc::MSG_PEEK);
        waited.map(|n| n > 0)
    }
}

/// Returns the time it took on the wall.
pub(super) fn compute(ns: u64) -> Duration {
    if ns == 0 {
        return Duration::ZERO;
    }
    let start = Instant::now();
    let end = sys::thread_time() + Duration::from_nanos(ns);
    while sys::thread_time() < end {}
    start.elapsed()
}

pub(super) fn serve(args: &Server) -> anyhow::Result<()> {
    let accept = || args.work.setup.listen()?.accept();
    let mut side = Side::new(args.work, || accept().map(|accepted| accepted.0))?;
    let mut bursts = 0_u64;
    let mut burst = || {
        if args.lag_ns > 0 {
            if !side.wait_burst()? {
                return Ok(false);
            }
            compute(args.lag_ns);
        }
        if !side.receive_burst()? {
            return Ok(false);
        }
        compute(side.work.compute_ns);
        side.send_burst().map(|()| true)
    };
    while burst()? {
        bursts += 1;
    }
    super::print(
        &json!({"prog": "overlap-server", "messages": bursts * args.work.burst as u64,
        "lag_ns": args.lag_ns, "buffers": side.messages.buffers()?}),
    );
    Ok(())
}

pub(super) fn drive(args: &Client) -> anyhow::Result<()> {
    let mut side = Side::new(args.work, || args.work.setup.connect())?;
    let mut computed = Duration::ZERO;
    let mut iteration = || {
        side.send_burst()?;
        computed += compute(side.work.compute_ns);
        match side.receive_burst()? {
            true => Ok(()),
            false => Err(io::Error::from(ErrorKind::UnexpectedEof)),
        }
    };
    for _ in 0..args.warm_up {
        iteration()?;
    }
    let length = Length {
        // So many iterations, however long they take; whoever started this has a limit of his own.
        seconds: 3600.0,
        count: args.iterations,
    };
    let times = Latencies::measure(length, iteration)?;
    // How much longer computing took than it would alone on the core.
    let asked = args.work.compute_ns * (times.count + args.warm_up);
    let stretch = (asked > 0).then(|| computed.as_nanos() as f64 / asked as f64);
    super::print(&json!({
        "prog": "overlap-client", "messages": times.count * args.work.burst as u64, "iterations": times.count, "warm_up": args.warm_up,
        "p25_ns": times.p25, "p50_ns": times.p50, "p75_ns": times.p75, "p99_ns": times.p99,
        "seconds": times.took.as_secs_f64(), "stretch": stretch, "buffers": side.messages.buffers()?,
    }));
    Ok(())
}
