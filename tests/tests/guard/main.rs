//! The guard of messages that stay in the program's memory, by itself: the library's own source, with small
//! stand-ins for what it takes from the library. The reader is played after the program has done its worst, so
//! nothing here depends on who is faster.
//!
//! A main of its own: each test runs in a process of its own that has one thread, which the guard insists on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod calls;
mod ends;
#[allow(dead_code)] // (the library uses all of it)
#[path = "../../../preload/src/guard/mod.rs"]
mod guard;
mod host;
mod load;
mod memory;
mod refused;
mod signals;
mod sockets;
mod writes;

use std::process::ExitCode;

/// A test by name.
type Test = (&'static str, fn());

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let exact = words.iter().any(|w| w == "--exact");
    let filters: Vec<&String> = words.iter().filter(|w| !w.starts_with('-')).collect();
    let wanted = |name: &str| {
        let fits = |f: &&String| {
            if exact {
                *f == name
            } else {
                name.contains(f.as_str())
            }
        };
        filters.is_empty() || filters.iter().any(fits)
    };
    let all = [
        writes::TESTS,
        memory::TESTS,
        calls::TESTS,
        ends::TESTS,
        refused::TESTS,
        load::TESTS,
    ]
    .concat();
    let plan: Vec<Test> = all.into_iter().filter(|t| wanted(t.0)).collect();
    if words.iter().any(|w| w == "--list") {
        plan.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    if words.iter().any(|w| w == "--ignored") {
        return ExitCode::SUCCESS;
    }
    // (a kernel before 6.11, or a sandbox that the tests themselves run in)
    if let Some(why) = host::unable() {
        println!("nothing can be held here ({why}): not tested");
        println!(
            "\ntest result: ok. 0 passed; 0 failed; {} ignored",
            plan.len()
        );
        return ExitCode::SUCCESS;
    }
    let mut failed = 0;
    for (name, test) in &plan {
        let ending = host::in_child(*test);
        let word = if ending == "exit 0" { "ok" } else { "FAILED" };
        failed += i32::from(word != "ok");
        println!(
            "test {name} ... {word}{}",
            if word == "ok" {
                String::new()
            } else {
                format!(" ({ending})")
            }
        );
    }
    let passed = plan.len() as i32 - failed;
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored");
    ExitCode::from(u8::from(failed != 0))
}
