//! Random walks: a few seeds that have told something once, and a few more. `walk --soak` does as many
//! as one likes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use shunt_tests::walk::judge;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The time for all of them together; seeds that do not fit in are left out, the first never.
const TIME: Duration = Duration::from_secs(50);
/// Those that have told something.
const KNOWN: [u64; 14] = [
    1064, 1084, 2025, 2080, 2113, 3064, 3145, 3172, 3199, 3311, 5193, 30043, 30164, 30168,
];
const SEEDS: std::ops::Range<u64> = 1..80;

#[test]
fn seeds() {
    if std::env::var_os("SHUNT_WALK").is_none() {
        // SAFETY: nothing else runs yet.
        unsafe { std::env::set_var("SHUNT_WALK", env!("CARGO_BIN_EXE_walk")) };
    }
    let begun = Instant::now();
    let left = Mutex::new(KNOWN.into_iter().chain(SEEDS));
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while begun.elapsed() < TIME {
                    let Some(seed) = left.lock().unwrap().next() else {
                        break;
                    };
                    if let Err(text) = judge::judge(seed, &judge::MODES) {
                        failures.lock().unwrap().push(text);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    println!("{} seeds left out", left.into_inner().unwrap().count());
}
