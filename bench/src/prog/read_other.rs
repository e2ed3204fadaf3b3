//! What `read` on a descriptor that is no socket costs; with the library preloaded, its whole toll on foreign
//! descriptors. Called by `prog::main` and, without the library, by `floor`.

use std::fs::File;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::{stats, sys};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to read
    #[arg(long, default_value = "/dev/zero")]
    path: String,
    /// Bytes of one read; 0 returns before the driver is asked for data
    #[arg(long, default_value_t = 0)]
    size: usize,
    #[arg(long, default_value_t = 0.3)]
    seconds: f64,
}

/// Best batch, ns per call: the cost is fixed, everything above it is somebody else's time.
pub(crate) fn cost_ns(path: &str, size: usize, limit: Duration) -> anyhow::Result<f64> {
    const BATCH: u32 = 2000;
    let file = File::open(path)?;
    let mut bytes = vec![0; size];
    let mut batches = Vec::new();
    let end = Instant::now() + limit;
    while Instant::now() < end {
        let start = Instant::now();
        for _ in 0..BATCH {
            sys::read(&file, &mut bytes)?;
        }
        batches.push(start.elapsed().as_nanos() as u32);
    }
    Ok(f64::from(stats::percentile(&mut batches, 0.02)) / f64::from(BATCH))
}

pub(super) fn main(args: &Args) -> anyhow::Result<()> {
    // A socket is open meanwhile, so that a library that watches sockets has one to watch.
    let _listener = TcpListener::bind("127.0.0.1:0")?;
    let ns = cost_ns(&args.path, args.size, Duration::from_secs_f64(args.seconds))?;
    super::print(
        &json!({"prog": "read-other", "path": args.path, "size": args.size, "ns_per_call": ns}),
    );
    Ok(())
}
