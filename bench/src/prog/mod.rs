//! `bench prog`: ordinary socket programs. They know nothing of Shunt; `compare`, `figures`, `zcopy` and `cost` start them with and
//! without LD_PRELOAD. Each prints one line of JSON when it is done. A server listens on the loopback address, serves the number
//! of connections it was told and exits; a client connects once per connection.

mod bulk;
mod crowd;
mod crr;
mod demote;
mod handover;
mod mc_load;
mod memory;
mod overlap;
mod payload;
mod pingpong;
pub(crate) mod read_other;
mod socket;
mod stream;
mod threads;

use std::io;
use std::time::{Duration, Instant};

#[derive(clap::Subcommand)]
pub(crate) enum Prog {
    /// Echoes what it receives
    PingpongServer(pingpong::Server),
    /// Sends a message, waits for its echo, and so on
    PingpongClient(pingpong::Client),
    /// Receives a stream and throws it away
    StreamServer(stream::Server),
    /// Sends blocks one way
    StreamClient(stream::Client),
    /// Receives a burst of messages, computes, sends a burst
    OverlapServer(overlap::Server),
    /// Sends a burst of messages, computes, receives a burst
    OverlapClient(overlap::Client),
    /// Receives large messages
    BulkServer(bulk::Server),
    /// Sends large messages
    BulkClient(bulk::Client),
    /// Answers requests, a thread for each connection
    ThreadsServer(threads::Server),
    /// Sends requests, a thread for each connection
    ThreadsClient(threads::Client),
    /// Accepts, exchanges one byte, closes
    CrrServer(crr::Server),
    /// Connects, exchanges one byte, closes
    CrrClient(crr::Client),
    /// Echoes on many connections
    CrowdServer(crowd::Server),
    /// Opens many connections, of which some are busy
    CrowdClient(crowd::Client),
    /// Time of a call that takes idle connections back to kernel TCP; the server is pingpong-server
    DemoteClient(demote::Client),
    /// Sends what two processes receive in turn, receives what they send
    HandoverServer(handover::Server),
    /// Two processes that use one stream in turn
    HandoverClient(handover::Client),
    /// Time of read() on a descriptor that is no socket
    ReadOther(read_other::Args),
    /// GET load on memcached over several connections from one thread
    McLoad(mc_load::Args),
}

pub(crate) fn main(prog: &Prog) -> anyhow::Result<()> {
    match prog {
        Prog::PingpongServer(args) => pingpong::serve(args),
        Prog::PingpongClient(args) => pingpong::drive(args),
        Prog::StreamServer(args) => stream::serve(args),
        Prog::StreamClient(args) => stream::drive(args),
        Prog::OverlapServer(args) => overlap::serve(args),
        Prog::OverlapClient(args) => overlap::drive(args),
        Prog::BulkServer(args) => bulk::serve(args),
        Prog::BulkClient(args) => bulk::drive(args),
        Prog::ThreadsServer(args) => threads::serve(args),
        Prog::ThreadsClient(args) => threads::drive(args),
        Prog::CrrServer(args) => crr::serve(args),
        Prog::CrrClient(args) => crr::drive(args),
        Prog::CrowdServer(args) => crowd::serve(args),
        Prog::CrowdClient(args) => crowd::drive(args),
        Prog::DemoteClient(args) => demote::drive(args),
        Prog::HandoverServer(args) => handover::serve(args),
        Prog::HandoverClient(args) => handover::drive(args),
        Prog::ReadOther(args) => read_other::main(args),
        Prog::McLoad(args) => mc_load::main(args),
    }
}

pub(crate) use bulk::BufferUse;
use socket::{Messages, connect, listen};

/// How long a client goes on.
#[derive(Clone, Copy, clap::Args)]
struct Length {
    /// Stop after this long
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Stop after this many messages, even if time is left
    #[arg(long, default_value_t = u64::MAX)]
    count: u64,
}

impl Length {
    fn seconds(seconds: f64) -> Self {
        Self {
            seconds,
            count: u64::MAX,
        }
    }

    fn end(&self) -> Instant {
        Instant::now() + Duration::from_secs_f64(self.seconds)
    }
}

/// Percentiles in ns of the time each call of `once` took, until the length is reached; and how many there were.
struct Latencies {
    p25: u32,
    p50: u32,
    p75: u32,
    p99: u32,
    count: u64,
    took: Duration,
}

impl Latencies {
    fn measure(length: Length, mut once: impl FnMut() -> io::Result<()>) -> io::Result<Self> {
        const KEPT: usize = 4 << 20;
        // Filled, so that no page fault falls into the measurement.
        let mut samples = vec![1_u32; KEPT.min(usize::try_from(length.count).unwrap_or(KEPT))];
        let (start, end) = (Instant::now(), length.end());
        let (mut before, mut count) = (start, 0);
        while before < end && count < length.count {
            once()?;
            let now = Instant::now();
            let slot = count as usize % samples.len();
            samples[slot] = u32::try_from((now - before).as_nanos()).unwrap_or(u32::MAX);
            count += 1;
            before = now;
        }
        samples.truncate(usize::try_from(count).unwrap_or(KEPT));
        let [p25, p50, p75, p99] =
            [0.25, 0.5, 0.75, 0.99].map(|share| crate::stats::percentile(&mut samples, share));
        Ok(Self {
            p25,
            p50,
            p75,
            p99,
            count,
            took: before - start,
        })
    }

    fn per_second(&self) -> f64 {
        self.count as f64 / self.took.as_secs_f64()
    }
}

/// CPU time of this process so far, ns per `units` (messages or bytes).
fn cpu_ns_per(units: u64) -> f64 {
    crate::sys::cpu_time().as_nanos() as f64 / units.max(1) as f64
}

fn print(line: &serde_json::Value) {
    println!("{line}");
}
