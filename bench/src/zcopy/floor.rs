//! What the bare machine does with messages of a size: memcpy on one core, a half on each of two cores, and rewriting a
//! buffer. No process boundary, no system call, nobody to wake: no way of carrying can pass the copies. Called by
//! `stream`.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::prog::BufferUse;
use crate::sys;

/// GB/s.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Rates {
    pub one_core: f64,
    pub two_cores: f64,
    /// Rewriting alone, as the sender does before each message where it does.
    pub rewrite: f64,
}

/// Memory that a walk covers, as in the programs.
const WALK: usize = 64 << 20;

/// One repetition.
pub(super) fn measure(size: usize, usage: BufferUse, length: Duration) -> anyhow::Result<Rates> {
    let count = match usage {
        BufferUse::Walk => (WALK / size).max(2),
        _ => 1,
    };
    Ok(Rates {
        one_core: alone(size, count, length)?,
        two_cores: together(size, count, length)?,
        rewrite: rewrite(size, length),
    })
}

/// Messages of one side, or of a half of it.
struct Copier {
    from: Vec<u8>,
    to: Vec<u8>,
    size: usize,
}

impl Copier {
    /// Pages are there before the first copy.
    fn new(size: usize, count: usize) -> Self {
        Self {
            from: vec![7; size * count],
            to: vec![1; size * count],
            size,
        }
    }

    fn copy(&mut self, number: u64) {
        let count = (self.from.len() / self.size) as u64;
        let at = (number % count) as usize * self.size;
        let whole = at..at + self.size;
        self.to[whole.clone()].copy_from_slice(black_box(&self.from[whole]));
        black_box(&mut self.to);
    }
}

fn rate(size: usize, messages: u64, took: Duration) -> f64 {
    size as f64 * messages as f64 / took.as_secs_f64() / 1e9
}

/// On the first core; the thread that measures ends with it, so the caller stays where it was.
fn alone(size: usize, count: usize, length: Duration) -> anyhow::Result<f64> {
    let run = || -> anyhow::Result<f64> {
        sys::Cores::one(0).bind()?;
        let mut copier = Copier::new(size, count);
        (0..count as u64).for_each(|number| copier.copy(number));
        let (start, mut number) = (Instant::now(), 0);
        while number < 2 || start.elapsed() < length {
            copier.copy(number);
            number += 1;
        }
        Ok(rate(size, number, start.elapsed()))
    };
    std::thread::scope(|scope| joined(scope.spawn(run)))
}

/// Each core copies a half of every message and waits for the other, as two sides of a connection must.
fn together(size: usize, count: usize, length: Duration) -> anyhow::Result<f64> {
    /// Said instead of a number when it is over.
    const STOP: u64 = u64::MAX;
    let half = size / 2;
    // The message that may be copied, and how many the helper has copied.
    let (wanted, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let helper = || -> anyhow::Result<f64> {
        let bound = sys::Cores::one(1 % sys::cores()).bind();
        let mut copier = Copier::new(half, count);
        let mut number = 0;
        loop {
            let may = wait_past(&wanted, number);
            if may == STOP {
                break bound.map(|()| 0.0).map_err(Into::into);
            }
            copier.copy(number);
            number += 1;
            done.store(number, Ordering::Release);
        }
    };
    let leader = || -> anyhow::Result<f64> {
        let bound = sys::Cores::one(0).bind();
        let mut copier = Copier::new(half, count);
        let mut number = 0;
        let mut message = || {
            wanted.store(number + 1, Ordering::Release);
            copier.copy(number);
            wait_past(&done, number);
            number += 1;
            number
        };
        for _ in 0..count {
            message();
        }
        let (start, before) = (Instant::now(), count as u64);
        let mut messages = 0;
        while messages < 2 || start.elapsed() < length {
            messages = message() - before;
        }
        let took = start.elapsed();
        wanted.store(STOP, Ordering::Release);
        bound?;
        Ok(rate(2 * half, messages, took))
    };
    std::thread::scope(|scope| {
        let helper = scope.spawn(helper);
        let rate = joined(scope.spawn(leader))?;
        joined(helper)?;
        Ok(rate)
    })
}

/// Waits until the number is larger than `than`; lets others run now and then, should they share the core.
fn wait_past(number: &AtomicU64, than: u64) -> u64 {
    let mut turns = 0_u32;
    loop {
        let now = number.load(Ordering::Acquire);
        if now > than {
            return now;
        }
        turns += 1;
        if turns.is_multiple_of(4096) {
            std::thread::yield_now();
        } else {
            spin_loop();
        }
    }
}

fn joined(thread: std::thread::ScopedJoinHandle<'_, anyhow::Result<f64>>) -> anyhow::Result<f64> {
    let result = thread.join();
    result.unwrap_or_else(|_| Err(anyhow::anyhow!("the copying thread panicked")))
}

fn rewrite(size: usize, length: Duration) -> f64 {
    let mut buffer = vec![1_u8; size];
    let (start, mut number) = (Instant::now(), 0);
    while number < 2 || start.elapsed() < length {
        buffer.fill(number as u8);
        black_box(&mut buffer);
        number += 1;
    }
    rate(size, number, start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_copied_whole() {
        let mut copier = Copier::new(5, 3);
        copier.copy(1);
        assert_eq!(copier.to, [1, 1, 1, 1, 1, 7, 7, 7, 7, 7, 1, 1, 1, 1, 1]);
        copier.copy(3);
        assert_eq!(copier.to[..5], [7; 5]);
    }

    #[test]
    fn two_cores_end_together() {
        let rates = measure(4096, BufferUse::Walk, Duration::from_micros(200)).unwrap();
        assert!(rates.one_core > 0.0 && rates.two_cores > 0.0 && rates.rewrite > 0.0);
    }
}
