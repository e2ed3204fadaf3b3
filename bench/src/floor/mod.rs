//! `bench floor`: the machine with no library and no TCP. Also called by `compare`, which sets its results beside it.
//! Owns what is measured and how it is printed; the ring itself is in `ring`.

mod measure;
mod ring;

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::stats::Spread;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Repetitions of every figure
    #[arg(long, default_value_t = 5)]
    reps: usize,
    /// Seconds for one repetition of one figure
    #[arg(long, default_value_t = 0.2)]
    seconds: f64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Every figure, as median and range over the repetitions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Floor {
    /// 64 B there and back over two rings, p50 of a run, µs
    pub rtt_us: Spread,
    /// 64 B one way, the consumer gives its index back after each message, messages/s
    pub messages_eager: Spread,
    /// The same, given back after an eighth of the ring
    pub messages_lazy: Spread,
    /// 128 KiB blocks, published every 64 KiB, 1 MiB ring, GB/s
    pub stream_1m: Spread,
    /// The same with a ring of 4 MiB
    pub stream_4m: Spread,
    /// memcpy of 128 KiB that stay in the cache, GB/s
    pub memcpy_128k: Spread,
    /// memcpy of 32 MiB, GB/s
    pub memcpy_32m: Spread,
    /// Sleep and wake across cores, there and back, p50, µs
    pub futex_us: Spread,
    /// The same with both on one core
    pub futex_same_us: Spread,
    /// `read` of 0 and of 1 byte of /dev/zero, ns
    pub read_0_ns: Spread,
    pub read_1_ns: Spread,
}

impl Floor {
    /// Measures everything; takes about 11 × `reps` × `each`.
    pub(crate) fn measure(reps: usize, each: Duration) -> anyhow::Result<Self> {
        let figure = |run: &dyn Fn() -> anyhow::Result<f64>| -> anyhow::Result<Spread> {
            let values = (0..reps.max(1))
                .map(|_| run())
                .collect::<anyhow::Result<Vec<_>>>()?;
            Spread::of(&values).ok_or_else(|| anyhow::anyhow!("no repetition"))
        };
        Ok(Self {
            rtt_us: figure(&|| measure::ring_round_trip(each))?,
            messages_eager: figure(&|| measure::messages(false, each))?,
            messages_lazy: figure(&|| measure::messages(true, each))?,
            stream_1m: figure(&|| measure::stream(1 << 20, each))?,
            stream_4m: figure(&|| measure::stream(4 << 20, each))?,
            memcpy_128k: figure(&|| Ok(measure::memcpy(128 << 10, each)))?,
            memcpy_32m: figure(&|| Ok(measure::memcpy(32 << 20, each)))?,
            futex_us: figure(&|| measure::futex_round_trip([0, 1], each))?,
            futex_same_us: figure(&|| measure::futex_round_trip([0, 0], each))?,
            read_0_ns: figure(&|| crate::prog::read_other::cost_ns("/dev/zero", 0, each))?,
            read_1_ns: figure(&|| crate::prog::read_other::cost_ns("/dev/zero", 1, each))?,
        })
    }

    /// The better ring, GB/s: what "share of the bare ring" is counted against.
    pub(crate) fn stream(&self) -> f64 {
        self.stream_1m.median.max(self.stream_4m.median)
    }

    pub(crate) fn rows(&self) -> [(&'static str, Spread, &'static str); 11] {
        [
            ("ring, 64 B round trip", self.rtt_us, "µs"),
            (
                "ring, 64 B one way, eager index",
                self.messages_eager,
                "msg/s",
            ),
            (
                "ring, 64 B one way, lazy index",
                self.messages_lazy,
                "msg/s",
            ),
            ("ring 1 MiB, 128 KiB blocks", self.stream_1m, "GB/s"),
            ("ring 4 MiB, 128 KiB blocks", self.stream_4m, "GB/s"),
            ("memcpy 128 KiB", self.memcpy_128k, "GB/s"),
            ("memcpy 32 MiB", self.memcpy_32m, "GB/s"),
            ("futex round trip, two cores", self.futex_us, "µs"),
            ("futex round trip, one core", self.futex_same_us, "µs"),
            ("read() of 0 bytes, /dev/zero", self.read_0_ns, "ns"),
            ("read() of 1 byte, /dev/zero", self.read_1_ns, "ns"),
        ]
    }

    pub(crate) fn print(&self) {
        println!("floor of this machine (median, min–max)");
        for (what, spread, unit) in self.rows() {
            println!("  {what:<34} {spread} {unit}");
        }
    }
}

/// One look at a single figure, for who compares with it in turn: 64 B there and back, p50, µs.
pub(crate) fn round_trip_us(each: Duration) -> anyhow::Result<f64> {
    measure::ring_round_trip(each)
}

/// 64 B one way, messages/s: the better of the two ways to give the index back.
pub(crate) fn messages_per_second(each: Duration) -> anyhow::Result<f64> {
    Ok(measure::messages(false, each)?.max(measure::messages(true, each)?))
}

/// 128 KiB blocks, GB/s: the better of the two rings.
pub(crate) fn stream_gb_per_s(each: Duration) -> anyhow::Result<f64> {
    Ok(measure::stream(1 << 20, each)?.max(measure::stream(4 << 20, each)?))
}

pub(crate) fn main(args: &Args) -> anyhow::Result<()> {
    let floor = Floor::measure(args.reps, Duration::from_secs_f64(args.seconds))?;
    if args.json {
        println!("{}", serde_json::to_string(&floor)?);
    } else {
        floor.print();
    }
    Ok(())
}
