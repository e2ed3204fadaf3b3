//! Runs one case by hand, or one end of it for the test that compares all of them.
//!
//! `conform` lists the cases. `conform CASE` runs it plain and under the library in every mode and
//! prints what differs. `conform CASE MODE` does one mode. `conform CASE --plain [N]` checks that
//! the transcript on kernel TCP is the same N times. The five-word form is one end of a run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use shunt_tests::cases::{self, Body, Case};
use shunt_tests::matrix::{self, Oracle, Trial, Zcopy};
use shunt_tests::side::{Setup, Side};
use shunt_tests::sys::net;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => {
            for case in cases::all() {
                let modes: Vec<_> = matrix::trials(&case).iter().map(|t| t.name()).collect();
                println!("{} {}", case.name, modes.join(","));
            }
            ExitCode::SUCCESS
        }
        [name, side, warm, swap, channel] => {
            let setup = Setup {
                warm: *warm == "warm",
                swap: *swap == "swap",
            };
            play(find(name), side, setup, channel.parse().unwrap())
        }
        [name, "--plain"] => repeat(&find(name), 1),
        [name, "--plain", times] => repeat(&find(name), times.parse().unwrap()),
        [name, rest @ ..] => compare(&find(name), rest.first().copied()),
    }
}

fn find(name: &str) -> Case {
    cases::find(name).unwrap_or_else(|| panic!("no case {name}"))
}

/// One end, or both as threads, or the whole of a solo case.
fn play(case: Case, side: &str, setup: Setup, channel: i32) -> ExitCode {
    std::panic::set_hook(Box::new(|info| {
        eprintln!("{info}");
        // SAFETY: ends the process without running anything else.
        unsafe { libc::_exit(101) }
    }));
    shunt_tests::sys::proc::default_action(libc::SIGPIPE);
    match (case.body, side) {
        (Body::Solo(body), _) => body(&Side::new('S', -1, setup)),
        (Body::Pair(body), "threads") => {
            let (left, right) = net::unix_pair(libc::SOCK_SEQPACKET);
            let other = std::thread::spawn(move || body(&Side::new('A', left, setup)));
            body(&Side::new('B', right, setup));
            other.join().unwrap();
        }
        (Body::Pair(body), side) => {
            net::fcntl(channel, libc::F_SETFD, libc::FD_CLOEXEC).ok();
            body(&Side::of_two(side.chars().next().unwrap(), channel, setup));
        }
    }
    ExitCode::SUCCESS
}

fn repeat(case: &Case, times: usize) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for mode in matrix::modes(case)
        .into_iter()
        .filter(|m| !m.name().starts_with("only"))
    {
        let zcopy = Zcopy::Default;
        let trial = Trial { mode, zcopy };
        let first = matrix::run(case, trial, false);
        if times == 1 {
            print!("{}:\n{}", mode.name(), first.transcript);
        }
        let mut bad = first.transcript.contains("exit 101") || first.transcript.contains("hang");
        for _ in 1..times {
            let again = matrix::run(case, trial, false);
            if again.transcript != first.transcript {
                println!(
                    "{}/{} varies:\n{}---\n{}",
                    case.name,
                    mode.name(),
                    first.transcript,
                    again.transcript
                );
                bad = true;
                break;
            }
        }
        if bad {
            println!("{}/{} BAD\n{first:?}", case.name, mode.name());
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn compare(case: &Case, only: Option<&str>) -> ExitCode {
    let mut oracle = Oracle::new();
    let mut code = ExitCode::SUCCESS;
    for trial in matrix::trials(case) {
        if only.is_some_and(|name| name != trial.name()) {
            continue;
        }
        match matrix::judge(case, trial, &mut oracle) {
            Ok(()) => println!("{}/{} ok", case.name, trial.name()),
            Err(text) => {
                println!("{}/{} FAILED\n{text}", case.name, trial.name());
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
