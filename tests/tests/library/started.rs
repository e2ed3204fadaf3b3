//! Programs that a program starts from an environment made anew: the library and its settings are there,
//! unless it was declined; everything else, failures too, is as without it.

use shunt_tests::apps::{LONG, Stage};
use shunt_tests::run::Outcome;

fn build(stage: &Stage) {
    let source = stage.file("start.c", include_bytes!("start.c"));
    let words = ["-w", "-O1", "-o", "start"];
    let compile = stage.plain("gcc").args(words).args([source]);
    compile.start().finish(LONG).expect_ok("gcc");
}

fn start(stage: &mut Stage, how: &str) -> Outcome {
    let program = stage.folder.path("start");
    let job = stage.launch(&program.to_string_lossy()).args([how]).start();
    let outcome = job.finish(LONG);
    outcome.expect_ok(how);
    outcome
}

const WAYS: &[&str] = &[
    "execve",
    "empty",
    "null",
    "execveat",
    "fexecve",
    "syscall",
    "execvpe",
    "execle",
    "execle-long",
    "execv",
    "execvp",
    "execl",
    "execl-short",
    "execl-long",
    "execlp",
    "vfork",
    "spawn",
    "spawnp",
    "system",
    "popen",
];

/// Every way to start a program gives it the library, and shows what kernel TCP's way would.
#[test]
fn a_rebuilt_environment_keeps_the_library() {
    let (mut plain, mut shunted) = (Stage::new(false), Stage::new(true));
    build(&plain);
    build(&shunted);
    for how in WAYS {
        let without = start(&mut plain, how);
        let with = start(&mut shunted, how);
        assert!(with.stdout.contains(" library -"), "{how}: {}", with.stdout);
        let same = with.stdout.replace(" library -", "");
        assert_eq!(without.stdout, same, "{how}");
        assert_eq!(without.stderr, with.stderr, "{how}");
        let shown = |p: &&shunt_tests::report::Process| p.program == "shown";
        let told = with.report.processes.iter().filter(shown).count();
        let expected = with.stdout.matches(" library -").count();
        assert_eq!(told, expected, "{how}: {}", with.report.summary());
    }
}

/// Without the names of glibc's own shell messages, and with errors, limits and long lists: as ever.
#[test]
fn failures_and_limits_are_the_kernels() {
    let (mut plain, mut shunted) = (Stage::new(false), Stage::new(true));
    build(&plain);
    build(&shunted);
    for how in ["errors", "limits", "many"] {
        let without = start(&mut plain, how);
        let with = start(&mut shunted, how);
        assert_eq!(without.stdout, with.stdout, "{how}");
        assert!(without.stdout.len() > 8, "{how}: {}", without.stdout);
    }
}

#[test]
fn an_empty_ld_preload_is_respected() {
    let mut stage = Stage::new(true);
    build(&stage);
    let outcome = start(&mut stage, "declined");
    assert_eq!(outcome.stdout, "one|two words|3 KEPT=it's\n");
    assert!(
        outcome
            .report
            .processes
            .iter()
            .all(|p| p.program != "shown")
    );
}

/// The loader would say on standard error that it cannot open the library.
#[test]
fn a_library_out_of_reach_is_not_added() {
    let mut stage = Stage::new(true);
    build(&stage);
    let outcome = start(&mut stage, "gone");
    let shown = (outcome.stdout.as_str(), outcome.stderr.as_str());
    assert_eq!(shown, ("one|two words|3 KEPT=it's\n", ""));
    let told: Vec<_> = outcome
        .report
        .processes
        .iter()
        .map(|p| &p.program)
        .collect();
    assert_eq!(told, ["start"]);
}

#[test]
fn a_setting_of_the_new_environment_stays() {
    let mut stage = Stage::new(true);
    build(&stage);
    let outcome = start(&mut stage, "setting");
    assert_eq!(outcome.stdout, "one|two words|3 KEPT=it's library 8k\n");
}

/// env(1) as scripts use it.
#[test]
fn env_with_nothing() {
    let mut stage = Stage::new(true);
    let job = stage.launch("env").args(["-i", "/bin/true"]).start();
    let outcome = job.finish(LONG);
    outcome.expect_ok("env -i");
    let names: Vec<_> = outcome
        .report
        .processes
        .iter()
        .map(|p| &p.program)
        .collect();
    assert_eq!(names, ["env", "true"]);
}
