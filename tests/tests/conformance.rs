//! Every case in every mode, as one test each.
//!
//! A main of its own, because the tests are data: it lists and runs them in the way that cargo and
//! nextest expect of a test program (`--list`, `--exact`, filters, a final "test result" line).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use shunt_tests::cases::{self, Case};
use shunt_tests::matrix::{self, Mode, Oracle};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| words.iter().any(|w| w == flag);
    let filters: Vec<&String> = words.iter().filter(|w| !w.starts_with('-')).collect();
    let wanted = |name: &str| {
        filters.is_empty()
            || filters.iter().any(|f| {
                if has("--exact") {
                    *f == name
                } else {
                    name.contains(*f)
                }
            })
    };
    if has("--ignored") {
        return ExitCode::SUCCESS;
    }
    if std::env::var_os("SHUNT_CONFORM").is_none() {
        // SAFETY: nothing else runs yet.
        unsafe { std::env::set_var("SHUNT_CONFORM", env!("CARGO_BIN_EXE_conform")) };
    }
    let plan: Vec<(Case, Vec<Mode>)> = cases::all()
        .into_iter()
        .map(|case| (case, chosen(&case, &wanted)))
        .filter(|(_, modes)| !modes.is_empty())
        .collect();
    if has("--list") {
        for (case, modes) in &plan {
            for mode in modes {
                println!("{}/{}: test", case.name, mode.name());
            }
        }
        return ExitCode::SUCCESS;
    }
    run_all(&plan)
}

/// The modes to run; the quick run leaves out slow cases and the modes that rarely tell news.
fn chosen(case: &Case, wanted: &dyn Fn(&str) -> bool) -> Vec<Mode> {
    let quick = std::env::var_os("SHUNT_TEST_QUICK").is_some();
    if quick && case.slow {
        return Vec::new();
    }
    let mut modes = matrix::modes(case);
    modes.retain(|m| !quick || matches!(m, Mode::Both | Mode::OnlyA | Mode::Solo));
    modes.retain(|m| wanted(&format!("{}/{}", case.name, m.name())));
    modes
}

fn run_all(plan: &[(Case, Vec<Mode>)]) -> ExitCode {
    let next = AtomicUsize::new(0);
    let passed = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism()
        .map_or(2, usize::from)
        .min(8);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((case, modes)) = plan.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let mut oracle = Oracle::new();
                    for mode in modes {
                        let name = format!("{}/{}", case.name, mode.name());
                        match matrix::judge(case, *mode, &mut oracle) {
                            Ok(()) => {
                                passed.fetch_add(1, Ordering::SeqCst);
                                println!("test {name} ... ok");
                            }
                            Err(text) => {
                                println!("test {name} ... FAILED");
                                failures.lock().unwrap().push((name, text));
                            }
                        }
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    for (name, text) in &failures {
        println!("\n---- {name} ----\n{text}");
    }
    let word = if failures.is_empty() { "ok" } else { "FAILED" };
    let passed = passed.into_inner();
    println!(
        "\ntest result: {word}. {passed} passed; {} failed; 0 ignored",
        failures.len()
    );
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
