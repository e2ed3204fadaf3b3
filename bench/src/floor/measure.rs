//! One repetition of each floor figure. Called by `Floor::measure`; every function forks its peer, pins both and
//! reaps the peer before it returns.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::ring::Ring;
use crate::stats::percentile;
use crate::sys;

const APART: [usize; 2] = [0, 1];
const MESSAGE: usize = 64;
const BLOCK: usize = 128 << 10;
const PUBLISH: usize = 64 << 10;

/// Runs `peer` in a new process on the first core and `body` here on the second; ends both bindings.
fn with_peer<T>(
    cores: [usize; 2],
    peer: impl FnOnce(),
    body: impl FnOnce() -> T,
) -> anyhow::Result<T> {
    let [theirs, ours] = cores.map(|core| sys::Cores::one(core % sys::cores()));
    let child = sys::fork(|| {
        if theirs.bind().is_ok() {
            peer();
        }
    })?;
    let before = sys::Cores::current()?;
    ours.bind()?;
    let result = body();
    before.bind()?;
    if !sys::wait_exit(child, Duration::from_secs(5))? {
        sys::kill(child as i32, libc::SIGKILL);
    }
    sys::reap(child)?;
    Ok(result)
}

/// Calls `once` until `limit` has passed; the p50 of what each call took, in µs.
fn p50_us(limit: Duration, mut once: impl FnMut()) -> f64 {
    let mut samples = Vec::with_capacity(1 << 20);
    let end = Instant::now() + limit;
    let mut before = Instant::now();
    while before < end && samples.len() < samples.capacity() {
        once();
        let now = Instant::now();
        samples.push((now - before).as_nanos() as u32);
        before = now;
    }
    f64::from(percentile(&mut samples, 0.5)) / 1e3
}

/// 64 B there and back over two rings, µs.
pub(super) fn ring_round_trip(limit: Duration) -> anyhow::Result<f64> {
    let (there, back) = (Ring::new(64 << 10)?, Ring::new(64 << 10)?);
    let echo = || {
        let (mut from, mut to) = (there.consumer(false), back.producer(PUBLISH));
        let mut message = [0; MESSAGE];
        while from.take_all(&mut message) && to.put(&message) {}
    };
    with_peer(APART, echo, || {
        let (mut to, mut from) = (there.producer(PUBLISH), back.consumer(false));
        let mut message = [0; MESSAGE];
        let rtt = p50_us(limit, || {
            to.put(&message);
            from.take_all(&mut message);
        });
        there.stop();
        rtt
    })
}

/// 64 B one way, each message published and taken alone; messages per second.
pub(super) fn messages(lazy: bool, limit: Duration) -> anyhow::Result<f64> {
    one_way(Ring::new(1 << 20)?, MESSAGE, lazy, limit)
        .map(|bytes_per_s| bytes_per_s / MESSAGE as f64)
}

/// 128 KiB blocks one way; GB/s.
pub(super) fn stream(capacity: usize, limit: Duration) -> anyhow::Result<f64> {
    one_way(Ring::new(capacity)?, BLOCK, false, limit).map(|bytes_per_s| bytes_per_s / 1e9)
}

/// Bytes per second that the consumer here took from the producer there, both in pieces of `block`.
fn one_way(ring: Ring, block: usize, lazy: bool, limit: Duration) -> anyhow::Result<f64> {
    let produce = || {
        let mut producer = ring.producer(PUBLISH);
        let bytes = vec![7; block];
        while producer.put(&bytes) {}
    };
    with_peer(APART, produce, || {
        let mut consumer = ring.consumer(lazy);
        let mut bytes = vec![0; block];
        let mut taken = 0;
        // The first bytes wait for the fork and the first page faults: not counted.
        consumer.take_all(&mut bytes);
        let start = Instant::now();
        while start.elapsed() < limit {
            for _ in 0..(1 << 20) / block {
                consumer.take_all(&mut bytes);
                // (a copy that nobody looks at is no copy: the compiler leaves it out)
                std::hint::black_box(&mut bytes);
                taken += block;
            }
        }
        let took = start.elapsed();
        ring.stop();
        taken as f64 / took.as_secs_f64()
    })
}

/// GB/s of one core copying the same `bytes` over and over.
pub(super) fn memcpy(bytes: usize, limit: Duration) -> f64 {
    let from = vec![7_u8; bytes];
    let mut to = vec![1_u8; bytes];
    let start = Instant::now();
    let mut copied = 0;
    while start.elapsed() < limit {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
        copied += bytes;
    }
    copied as f64 / start.elapsed().as_secs_f64() / 1e9
}

/// Two processes that put each other to sleep and wake each other, µs for both ways.
pub(super) fn futex_round_trip(cores: [usize; 2], limit: Duration) -> anyhow::Result<f64> {
    #[expect(clippy::cast_ptr_alignment, reason = "mappings are page-aligned")]
    let words = sys::shared(4096)?.cast::<[AtomicU32; 2]>();
    // SAFETY: zeroed, aligned, large enough, and never unmapped.
    let [turn, stop]: &'static [AtomicU32; 2] = unsafe { &*words };
    let wait_for = |mine: u32| {
        while turn.load(Ordering::Acquire) != mine && stop.load(Ordering::Acquire) == 0 {
            sys::futex_wait(turn, 1 - mine);
        }
    };
    let pass_to = |theirs: u32| {
        turn.store(theirs, Ordering::Release);
        sys::futex_wake(turn);
    };
    let peer = || {
        while stop.load(Ordering::Acquire) == 0 {
            wait_for(1);
            pass_to(0);
        }
    };
    with_peer(cores, peer, || {
        let rtt = p50_us(limit, || {
            pass_to(1);
            wait_for(0);
        });
        stop.store(1, Ordering::Release);
        pass_to(1);
        rtt
    })
}
