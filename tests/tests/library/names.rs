//! A program with functions of its own by the names of ours, which call libc by its other names: each call ends in the
//! library once, and never comes back to the program's.

use shunt_tests::apps::{LONG, Stage};

fn outcome(shunted: bool) -> (String, Stage) {
    let mut stage = Stage::new(shunted);
    let source = stage.file("names.c", include_bytes!("names.c"));
    let words = ["-w", "-O1", "-rdynamic", "-o", "names"];
    let compile = stage.plain("gcc").args(words).args([source]);
    compile.start().finish(LONG).expect_ok("gcc");
    let program = stage.folder.path("names");
    let outcome = stage
        .launch(&program.to_string_lossy())
        .start()
        .finish(LONG);
    outcome.expect_ok("names");
    if shunted {
        let carried = outcome.report.processes.iter().any(|p| p.shm > 0);
        assert!(carried, "nothing was reported");
    }
    (outcome.stdout, stage)
}

#[test]
fn wrappers_of_the_programs_own() {
    let (without, _plain) = outcome(false);
    let (with, _shunted) = outcome(true);
    assert_eq!(without, with);
}
