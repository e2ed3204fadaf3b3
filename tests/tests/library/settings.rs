//! Settings: a bad one is named in one line with what is allowed, and the program still runs.

use shunt_tests::apps::Stage;

/// What a program that uses no sockets prints on standard error with this setting.
fn complaint(name: &str, value: &str) -> String {
    let mut stage = Stage::new(true);
    let start = stage.launch("echo").args(["fine"]).env(name, value);
    let outcome = stage.client(start, "echo");
    assert_eq!(outcome.stdout, "fine\n");
    outcome.stderr
}

#[track_caller]
fn names_variable_and_value(name: &str, value: &str) {
    let text = complaint(name, value);
    assert_eq!(text.lines().count(), 1, "{name}={value}: {text:?}");
    assert!(
        text.contains(name) && text.contains(value),
        "{name}={value}: {text:?}"
    );
}

#[test]
fn words_outside_the_list() {
    for name in [
        "SHUNT_TRANSPORT",
        "SHUNT_FLOW",
        "SHUNT_ZCOPY",
        "SHUNT_ZCOPY_WRITE",
        "SHUNT_PEER_USERS",
    ] {
        names_variable_and_value(name, "nonsense");
    }
    let text = complaint("SHUNT_TRANSPORT", "nonsense");
    for allowed in ["auto", "shm", "iwarp", "verbs", "tcp"] {
        assert!(text.contains(allowed), "{text:?}");
    }
    let text = complaint("SHUNT_FLOW", "PACKETIZED!");
    for allowed in ["auto", "credit", "packetized", "nic"] {
        assert!(text.contains(allowed), "{text:?}");
    }
}

#[test]
fn numbers_that_are_none() {
    let names = [
        "SHUNT_BUF",
        "SHUNT_CREDITS",
        "SHUNT_SLOT",
        "SHUNT_WINDOW",
        "SHUNT_SPIN_US",
        "SHUNT_ZCOPY_MIN",
    ];
    for name in names {
        for value in ["many", "-1", "99999999999999999999999", "1.5x"] {
            names_variable_and_value(name, value);
        }
    }
}

#[test]
fn empty_and_odd_values() {
    for value in ["auto,shm", " shm", "shm\t"] {
        let text = complaint("SHUNT_TRANSPORT", value);
        assert_eq!(text.lines().count(), 1, "{value:?}: {text:?}");
    }
}

#[test]
fn unknown_variable() {
    let text = complaint("SHUNT_NO_SUCH_THING", "1");
    assert_eq!(text.lines().count(), 1, "{text:?}");
    assert!(text.contains("SHUNT_NO_SUCH_THING"), "{text:?}");
}

#[test]
fn good_settings_say_nothing() {
    for (name, value) in [
        ("SHUNT_TRANSPORT", "auto"),
        ("SHUNT_TRANSPORT", "tcp"),
        ("SHUNT_FLOW", "credit"),
        ("SHUNT_FLOW", "nic"),
        ("SHUNT_ZCOPY", "off"),
        ("SHUNT_SPIN_US", "0"),
        ("SHUNT_PEER_USERS", "any"),
        ("SHUNT_RULES", ""),
    ] {
        assert_eq!(complaint(name, value), "", "{name}={value}");
    }
}

/// A report that cannot be written is no reason for a program to fail.
#[test]
fn report_to_nowhere() {
    let stage = Stage::new(true);
    let start = stage.plain("echo").args(["fine"]);
    let start = start.under(
        &shunt_tests::run::library(),
        "/nonexistent/folder/report".into(),
    );
    let outcome = start.start().finish(shunt_tests::apps::LONG);
    outcome.expect_ok("echo");
    assert_eq!(outcome.stdout, "fine\n");
}

const TALK: &str = r#"
import socket, threading
lis = socket.create_server(("127.0.0.1", 0))
def serve():
    c, _ = lis.accept()
    while data := c.recv(100):
        c.sendall(data)
t = threading.Thread(target=serve)
t.start()
s = socket.create_connection(lis.getsockname())
for i in range(20):
    s.sendall(b"x" * 50)
    n = 0
    while n < 50:
        n += len(s.recv(50))
s.close()
t.join()
print("talked")
"#;

fn talk(settings: &[(&str, &str)]) -> shunt_tests::run::Outcome {
    let mut stage = Stage::new(true);
    let script = stage.file("talk.py", TALK.as_bytes());
    let mut start = stage.launch("python3").args([script]);
    for (name, value) in settings {
        start = start.env(name, value);
    }
    let outcome = stage.client(start, "python3");
    assert_eq!(outcome.stdout, "talked\n");
    outcome
}

#[test]
fn transport_tcp_keeps_everything_on_the_kernel() {
    let outcome = talk(&[("SHUNT_TRANSPORT", "tcp")]);
    outcome.report.check_tcp().unwrap();
    assert_eq!(outcome.report.tcp(), 2, "{}", outcome.report.summary());
}

#[test]
fn small_and_odd_sizes_still_work() {
    for settings in [
        &[("SHUNT_BUF", "4096")][..],
        &[("SHUNT_BUF", "70000")],
        &[("SHUNT_SPIN_US", "0")],
        &[("SHUNT_SPIN_US", "1000")],
        &[("SHUNT_FLOW", "credit"), ("SHUNT_BUF", "4096")],
        &[("SHUNT_FLOW", "packetized"), ("SHUNT_BUF", "4096")],
        &[("SHUNT_FLOW", "nic"), ("SHUNT_WINDOW", "64")],
        &[
            ("SHUNT_FLOW", "credit"),
            ("SHUNT_SLOT", "64"),
            ("SHUNT_CREDITS", "3"),
        ],
    ] {
        talk(settings)
            .report
            .check_shm(2, 1)
            .unwrap_or_else(|e| panic!("{settings:?}: {e}"));
    }
}
