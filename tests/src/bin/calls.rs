//! Differential fuzzing of socket calls by hand, or one end of a run.
//!
//! `calls SEED` compares a seed with kernel TCP; `calls --plan SEED` prints its steps; `calls --plain SEED` and `--under SEED`
//! what it says; `calls --shrink SEED` the fewest steps that differ, `--only SEED STEPS` compares these (numbers, with commas
//! between); `calls --soak FROM COUNT` runs many. SHUNT_TEST_TRANSPORT
//! and SHUNT_TEST_FLOW are those of the tests. The words with "@" are processes of a run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use shunt_tests::calls::end::End;
use shunt_tests::calls::{hold, judge, plan};
use shunt_tests::sys::{net, proc};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse::<u64>().unwrap();
    match words.as_slice() {
        ["@end", seed, end, channel, keep] => {
            begin();
            let keep: Vec<usize> = keep.split(',').filter_map(|n| n.parse().ok()).collect();
            End::run(
                &plan::plan(number(seed)),
                &keep,
                end.parse().unwrap(),
                channel.parse().unwrap(),
                true,
            );
            ExitCode::SUCCESS
        }
        ["@both", seed, keep] => {
            begin();
            let keep: Vec<usize> = keep.split(',').filter_map(|n| n.parse().ok()).collect();
            let plan = plan::plan(number(seed));
            let (left, right) = net::unix_pair(libc::SOCK_SEQPACKET);
            std::thread::scope(|scope| {
                for (end, channel) in [left, right].into_iter().enumerate() {
                    let (plan, keep) = (&plan, &keep);
                    scope.spawn(move || End::run(plan, keep, end, channel, false));
                }
            });
            ExitCode::SUCCESS
        }
        ["@serve", fd, into, hex, most] => {
            let text: Vec<u8> = (0..hex.len() / 2)
                .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
                .collect();
            let (sent, got) = hold::serve(fd.parse().unwrap(), &text, most.parse().unwrap());
            hold::report(into.parse().unwrap(), sent, got);
            ExitCode::SUCCESS
        }
        ["--plan", seed] => {
            let plan = plan::plan(number(seed));
            println!("warm {} killed {:?}", plan.warm, plan.killed);
            for (i, step) in plan.steps.iter().enumerate() {
                println!("{i:04} {step:?}");
            }
            ExitCode::SUCCESS
        }
        ["--plain" | "--under", seed] => {
            let steps: Vec<usize> = (0..plan::plan(number(seed)).steps.len()).collect();
            let run = judge::run(number(seed), &steps, words[0] == "--under");
            println!("{}", run.transcript.join("\n"));
            ExitCode::SUCCESS
        }
        ["--only", seed, steps] => {
            let steps: Vec<usize> = steps.split(',').filter_map(|n| n.parse().ok()).collect();
            match judge::judge(number(seed), &plan::plan(number(seed)), &steps) {
                Ok(()) => println!("the same"),
                Err(text) => println!("{text}"),
            }
            ExitCode::SUCCESS
        }
        ["--shrink", seed] => {
            let (steps, text) = judge::shrink(number(seed));
            println!("{steps:?}\n{text}");
            ExitCode::SUCCESS
        }
        ["--soak", from, count] => soak(number(from), number(count)),
        [seed] => soak(number(seed), 1),
        _ => panic!(
            "calls SEED, --plan SEED, --plain SEED, --under SEED, --shrink SEED, --soak FROM COUNT"
        ),
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

fn soak(from: u64, count: u64) -> ExitCode {
    let failed = (from..from + count).filter(|seed| match judge::seed(*seed) {
        Ok(()) => false,
        Err(text) => {
            println!("{text}");
            true
        }
    });
    let failed = failed.count();
    println!("{count} seeds from {from}, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}
