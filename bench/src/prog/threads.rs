//! A thread for each connection at both ends, as database servers and their load generators have: more runnable threads than
//! cores. Requests of 100 bytes, answers of 1000. Called by `prog::main`.
//! With `--short` each request has a connection of its own, which a thread of the server accepts.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::json;

use super::{Length, cpu_ns_per};

const REQUEST: usize = 100;
const ANSWER: usize = 1000;

#[derive(clap::Args)]
pub(crate) struct Server {
    #[arg(long)]
    port: u16,
    /// Threads, each of which serves a connection, and then another
    #[arg(long, default_value_t = 16)]
    threads: usize,
    /// Compute for so many microseconds before each answer
    #[arg(long, default_value_t = 0)]
    work: u64,
}

#[derive(clap::Args)]
pub(crate) struct Client {
    #[arg(long)]
    port: u16,
    /// Threads, each with a connection
    #[arg(long, default_value_t = 16)]
    threads: usize,
    /// A connection for each request
    #[arg(long)]
    short: bool,
    #[command(flatten)]
    length: Length,
}

/// Serves until it is told to terminate.
pub(super) fn serve(args: &Server) -> anyhow::Result<()> {
    let listener = super::listen(args.port)?;
    let work = Duration::from_micros(args.work);
    thread::scope(|scope| {
        for _ in 0..args.threads {
            scope.spawn(|| {
                while let Ok((socket, _)) = listener.accept() {
                    // (a client that goes away early is the client's affair)
                    let _ = answer(socket, work);
                }
            });
        }
    });
    Ok(())
}

fn answer(mut socket: TcpStream, work: Duration) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let (mut request, answer) = ([0; REQUEST], [7; ANSWER]);
    loop {
        socket.read_exact(&mut request)?;
        let begun = Instant::now();
        while !work.is_zero() && begun.elapsed() < work {
            std::hint::spin_loop();
        }
        socket.write_all(&answer)?;
    }
}

pub(super) fn drive(args: &Client) -> anyhow::Result<()> {
    let (port, short) = (args.port, args.short);
    let begun = Instant::now();
    let end = args.length.end();
    let threads: Vec<JoinHandle<io::Result<u64>>> = (0..args.threads)
        .map(|_| thread::spawn(move || ask(port, short, end)))
        .collect();
    let mut count = 0;
    for thread in threads {
        count += thread.join().ok().context("a thread has panicked")??;
    }
    let seconds = begun.elapsed().as_secs_f64();
    super::print(&json!({
        "prog": "threads-client", "threads": args.threads, "short": short, "messages": count,
        "per_second": count as f64 / seconds, "cpu_ns_per_message": cpu_ns_per(count),
    }));
    Ok(())
}

/// Asks until the end. How often.
fn ask(port: u16, short: bool, end: Instant) -> io::Result<u64> {
    let (request, mut answer) = ([1; REQUEST], [0; ANSWER]);
    let connect = || {
        let socket = super::connect(port)?;
        socket.set_nodelay(true).map(|()| socket)
    };
    let mut count = 0;
    let mut socket = connect()?;
    while Instant::now() < end {
        if short && count > 0 {
            socket = connect()?;
        }
        socket.write_all(&request)?;
        socket.read_exact(&mut answer)?;
        count += 1;
    }
    Ok(count)
}
