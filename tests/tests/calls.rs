//! Random sequences of single calls, the kernel their oracle: a few seeds that have told something once, and a few more. `calls --soak`
//! does as many as one likes.
//!
//! Of the others only those after which nobody is killed: what a killed peer's end shows first depends on how soon it is noticed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use shunt_tests::calls::{judge, plan};
use std::time::{Duration, Instant};

/// The time for all of them together; seeds that do not fit in are left out, the first never.
const TIME: Duration = Duration::from_secs(15);
/// Those that have told something.
const KNOWN: [u64; 14] = [
    60, 71, 100, 142, 300, 5, 136, 365, 384, 1034, 1090, 1067, 1216, 1250,
];
const SEEDS: std::ops::Range<u64> = 301..364;

#[test]
fn seeds() {
    if std::env::var_os("SHUNT_CALLS").is_none() {
        // SAFETY: nothing else runs yet.
        unsafe { std::env::set_var("SHUNT_CALLS", env!("CARGO_BIN_EXE_calls")) };
    }
    let begun = Instant::now();
    let lives = |seed: &u64| plan::plan(*seed).killed.is_none();
    let mut left = KNOWN.into_iter().chain(SEEDS.filter(lives));
    let failures: Vec<String> = std::iter::from_fn(|| {
        let seed = left.next().filter(|_| begun.elapsed() < TIME)?;
        Some(judge::seed(seed).err())
    })
    .flatten()
    .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    println!("{} seeds left out", left.count());
}
