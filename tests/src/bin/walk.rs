//! Random walks by hand, or one process of one.
//!
//! `walk SEED` runs a seed in every mode and prints what differs; `walk SEED MODE` in one;
//! `walk --plan SEED` prints its steps; `walk --plain SEED` what it says on kernel TCP,
//! `walk --under SEED MODE` what under the library; `walk --soak FROM COUNT [WORKERS]` runs many. The words with "@" are processes of a run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use shunt_tests::sys::proc;
use shunt_tests::walk::ends::Walker;
use shunt_tests::walk::{generate, judge};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse::<u64>().unwrap();
    match words.as_slice() {
        ["@end", seed, end, swap, channel] => {
            begin();
            let plan = generate::plan(number(seed));
            Walker::main(
                plan,
                end.parse().unwrap(),
                *swap == "1",
                channel.parse().unwrap(),
            );
            ExitCode::SUCCESS
        }
        ["@resume", seed, rest @ ..] => {
            begin();
            let code = Walker::resume(generate::plan(number(seed)), rest);
            ExitCode::from(code as u8)
        }
        ["--plan", seed] => {
            let plan = generate::plan(number(seed));
            println!(
                "connections {:?} warm {} attentive {}",
                plan.conns, plan.warm, plan.attentive
            );
            for (i, step) in plan.steps.iter().enumerate() {
                println!("{i:04} {step:?}");
            }
            ExitCode::SUCCESS
        }
        ["--plain", seed] => {
            println!(
                "{}",
                judge::show(&judge::run(number(seed), judge::Mode::Both, false))
            );
            ExitCode::SUCCESS
        }
        ["--under", seed, mode] => {
            let mode = judge::MODES.into_iter().find(|m| m.name() == *mode);
            println!(
                "{}",
                judge::show(&judge::run(number(seed), mode.unwrap(), true))
            );
            ExitCode::SUCCESS
        }
        ["--soak", from, count] => soak(number(from), number(count), 2),
        ["--soak", from, count, workers] => soak(number(from), number(count), number(workers)),
        [seed] => outcome(judge::judge(number(seed), &judge::MODES)),
        [seed, mode] => {
            let modes = judge::MODES.into_iter().filter(|m| m.name() == *mode);
            outcome(judge::judge(number(seed), &modes.collect::<Vec<_>>()))
        }
        [] => panic!("walk SEED [MODE], --plan SEED, --plain SEED, --soak FROM COUNT [WORKERS]"),
        _ => panic!("unknown words {words:?}"),
    }
}

/// A failed check ends the process at once, and the run with it.
fn begin() {
    std::panic::set_hook(Box::new(|info| {
        eprintln!("{info}");
        // SAFETY: ends the process without running anything else.
        unsafe { libc::_exit(101) }
    }));
    proc::ignore(libc::SIGPIPE);
}

fn outcome(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            println!("{text}");
            ExitCode::FAILURE
        }
    }
}

fn soak(from: u64, count: u64, workers: u64) -> ExitCode {
    let next = AtomicU64::new(from);
    let bad = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + count {
                        break;
                    }
                    if let Err(text) = judge::judge(seed, &judge::MODES) {
                        bad.fetch_add(1, Ordering::Relaxed);
                        println!("{text}");
                    }
                }
            });
        }
    });
    let bad = bad.into_inner();
    println!("{count} seeds from {from}, {bad} failed");
    if bad == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
