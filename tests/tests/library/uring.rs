//! Programs that use io_uring. What they do by it on their sockets nobody can see, so the streams of a process that has a
//! ring are the kernel's, whenever it was set up; but not if it is for files only.

use shunt_tests::apps::{LONG, Stage};
use shunt_tests::run::Outcome;

fn uring(stage: &mut Stage, words: [&str; 3]) -> Outcome {
    let program = stage.folder.path("uring");
    let job = stage.launch(&program.to_string_lossy()).args(words).start();
    let outcome = job.finish(LONG);
    outcome.expect_ok(&words.join(" "));
    outcome
}

fn lines(outcome: &Outcome) -> Vec<&str> {
    let mut lines: Vec<_> = outcome.stdout.lines().collect();
    lines.sort_unstable();
    lines
}

/// A ring that liburing's calls made after the connection cannot be seen (README.md, known limits).
#[test]
fn what_goes_by_a_ring_is_the_kernels() {
    let (mut plain, mut shunted) = (Stage::new(false), Stage::new(true));
    for stage in [&plain, &shunted] {
        let source = stage.file("uring.c", include_bytes!("uring.c"));
        let words = ["-w", "-O1", "-o", "uring"];
        let compile = stage.plain("gcc").args(words).args([source]);
        compile.start().finish(LONG).expect_ok("gcc");
    }
    for who in ["server", "client"] {
        for (how, when) in [
            ("inline", "before"),
            ("syscall", "before"),
            ("syscall", "after"),
            ("inline", "files"),
            ("syscall", "files"),
        ] {
            let words = [how, when, who];
            let without = uring(&mut plain, words);
            if without.stdout.contains("no rings here") {
                return;
            }
            let with = uring(&mut shunted, words);
            assert_eq!(lines(&with), lines(&without), "{words:?}");
            assert_eq!(
                lines(&with),
                ["client: all right", "server: all right"],
                "{words:?}"
            );
            let report = with.report.summary();
            let of_kernel = report.contains("async_io");
            assert_eq!(of_kernel, when != "files", "{words:?}: {report}");
            if when == "files" {
                assert_eq!(with.report.shm(), 2, "{words:?}: {report}");
            }
        }
    }
}
