//! Every case in every mode, as one test each.
//!
//! A main of its own, because the tests are data: it lists and runs them in the way that cargo and
//! nextest expect of a test program (`--list`, `--exact`, filters, a final "test result" line).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use shunt_tests::cases::{self, Case};
use shunt_tests::matrix::{self, Mode, Oracle, Trial};
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
    let plan: Vec<(Case, Vec<Trial>)> = cases::all()
        .into_iter()
        .map(|case| (case, chosen(&case, &wanted)))
        .filter(|(_, trials)| !trials.is_empty())
        .collect();
    if has("--list") {
        for (case, trials) in &plan {
            for trial in trials {
                println!("{}/{}: test", case.name, trial.name());
            }
        }
        return ExitCode::SUCCESS;
    }
    run_all(&plan)
}

/// The modes to run; the quick run leaves out slow cases and the modes that rarely tell news.
fn chosen(case: &Case, wanted: &dyn Fn(&str) -> bool) -> Vec<Trial> {
    let quick = std::env::var_os("SHUNT_TEST_QUICK").is_some();
    if quick && case.slow {
        return Vec::new();
    }
    let mut trials = matrix::trials(case);
    let cold = std::env::var_os("SHUNT_TEST_COLD").is_some();
    trials.retain(|t| match t.mode {
        Mode::Both | Mode::OnlyA | Mode::Solo => true,
        Mode::Cold => cold || !quick,
        _ => !quick,
    });
    trials.retain(|t| wanted(&format!("{}/{}", case.name, t.name())));
    trials
}

/// Trials at a time. Most of a trial is waiting; SHUNT_TEST_WORKERS says otherwise.
fn workers() -> usize {
    let said = std::env::var("SHUNT_TEST_WORKERS").ok();
    said.and_then(|n| n.parse().ok()).unwrap_or_else(|| {
        std::thread::available_parallelism()
            .map_or(3, |cores| cores.get() * 3 / 2)
            .min(8)
    })
}

fn run_all(plan: &[(Case, Vec<Trial>)]) -> ExitCode {
    let next = AtomicUsize::new(0);
    let passed = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let workers = workers();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((case, trials)) = plan.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let mut oracle = Oracle::new();
                    for trial in trials {
                        let name = format!("{}/{}", case.name, trial.name());
                        match matrix::judge(case, *trial, &mut oracle) {
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
    let mut failures = failures.into_inner().unwrap();
    if let Some(runs) = matrix::none_went_straight() {
        let text = format!("of {runs} runs with large messages none went past the rings");
        failures.push(("zero copy between hosts".to_owned(), text));
    }
    if !failures.is_empty() {
        // The line that scripts/test and people look for.
        println!("\nfailures:");
    }
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
