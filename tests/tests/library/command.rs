//! The command `shunt`: run a program, say beforehand when it cannot be helped, list connections.

use shunt_tests::apps::{LONG, Stage};
use shunt_tests::run::{Launch, library};
use shunt_tests::{json, sys};
use std::os::unix::fs::PermissionsExt;

/// The command lies next to the library.
fn shunt() -> Launch {
    Launch::new(library().with_file_name("shunt"))
}

#[test]
fn run_passes_arguments_and_status() {
    let words = [
        "run",
        "--",
        "sh",
        "-c",
        "echo \"$1\"; exit 7",
        "x",
        "two words",
    ];
    let outcome = shunt().args(words).start().finish(LONG);
    assert_eq!(
        (outcome.stdout.as_str(), outcome.ending().as_str()),
        ("two words\n", "exit 7")
    );
    assert_eq!(outcome.stderr, "");
}

#[test]
fn run_loads_the_library_and_takes_options() {
    let words = [
        "run",
        "--transport=tcp",
        "--",
        "sh",
        "-c",
        "echo $LD_PRELOAD $SHUNT_TRANSPORT",
    ];
    let outcome = shunt().args(words).start().finish(LONG);
    outcome.expect_ok("shunt run");
    assert!(outcome.stdout.contains("libshunt.so"), "{}", outcome.stdout);
    assert!(
        outcome.stdout.trim_end().ends_with(" tcp"),
        "{}",
        outcome.stdout
    );
}

#[test]
fn run_of_a_missing_program_says_so() {
    let outcome = shunt()
        .args(["run", "--", "/no/such/program"])
        .start()
        .finish(LONG);
    assert_ne!(outcome.ending(), "exit 0");
    assert!(
        outcome.stderr.contains("/no/such/program"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_static_program_runs_plain_and_is_announced() {
    let stage = Stage::new(false);
    let source = stage.file(
        "plain.c",
        b"#include <stdio.h>\nint main(void) { puts(\"ran\"); return 5; }\n",
    );
    let words = ["-static", "-o", "plain"];
    let compile = stage
        .plain("gcc")
        .args(words)
        .args([source])
        .start()
        .finish(LONG);
    compile.expect_ok("gcc -static");
    let program = stage.folder.path("plain");
    let outcome = shunt()
        .args(["run", "--"])
        .args([&program])
        .start()
        .finish(LONG);
    assert_eq!(
        (outcome.stdout.as_str(), outcome.ending().as_str()),
        ("ran\n", "exit 5")
    );
    assert!(
        outcome.stderr.contains("static"),
        "nothing said: {:?}",
        outcome.stderr
    );
    assert_eq!(outcome.stderr.lines().count(), 1, "{:?}", outcome.stderr);
}

#[test]
fn a_set_user_id_program_runs_plain_and_is_announced() {
    let stage = Stage::new(false);
    let copy = stage.folder.path("setuid-true");
    // (by another process: one that another test has just forked would have it open for writing, and nobody could run it)
    let copied = std::process::Command::new("cp")
        .arg("/bin/true")
        .arg(&copy)
        .status();
    assert!(copied.unwrap().success());
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o4755)).unwrap();
    let outcome = shunt()
        .args(["run", "--"])
        .args([&copy])
        .start()
        .finish(LONG);
    outcome.expect_ok("set-user-id program");
    assert_eq!(outcome.stderr.lines().count(), 1, "{:?}", outcome.stderr);
}

const HOLD: &str = r#"
import socket, sys, time
lis = socket.create_server(("127.0.0.1", 0))
s = socket.create_connection(lis.getsockname())
c, _ = lis.accept()
for i in range(10):
    s.sendall(b"ask"); c.recv(3); c.sendall(b"answer"); s.recv(6)
open("ready", "w").close()
c.settimeout(50)
try:
    c.recv(1)
except TimeoutError:
    pass
"#;

#[test]
fn stat_lists_live_connections() {
    let mut stage = Stage::new(true);
    let script = stage.file("hold.py", HOLD.as_bytes());
    let mut job = stage.launch("python3").args([script]).start();
    let ready = sys::wait::eventually(|| stage.folder.path("ready").exists() || !job.running());
    assert!(ready && job.running());
    let outcome = shunt().args(["stat", "--json"]).start().finish(LONG);
    outcome.expect_ok("shunt stat --json");
    let mark = format!("\"pid\":{}", job.pid());
    let line = outcome
        .stdout
        .lines()
        .find(|l| l.replace(' ', "").contains(&mark));
    let line = line.unwrap_or_else(|| panic!("process {} not in {}", job.pid(), outcome.stdout));
    json::parse(line.trim_end_matches(',')).unwrap();
    assert!(line.contains("shm"), "{line}");
    let text = shunt().args(["stat"]).start().finish(LONG);
    text.expect_ok("shunt stat");
    assert!(text.stdout.contains("shm"), "{}", text.stdout);
    job.stop(libc::SIGTERM);
}
