//! SHUNT_RULES: a program that knows nothing of it follows the rules, by the report; wrong lines are told and
//! harm nothing; `shunt rules check` understands a file as the library does.

use shunt_tests::apps::{LONG, Stage, free_port};
use shunt_tests::run::{Launch, Outcome, library};
use std::path::Path;

/// Listens at each HOST:PORT, connects there and has what it says echoed.
const TALK: &str = r#"
import socket, sys, threading
for place in sys.argv[1:]:
    host, port = place.rsplit(":", 1)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    lis = socket.create_server((host, int(port)), family=family)
    def serve():
        c, _ = lis.accept()
        while data := c.recv(100):
            c.sendall(data)
    t = threading.Thread(target=serve)
    t.start()
    s = socket.create_connection((near, int(port)))
    for i in range(20):
        s.sendall(b"x" * 50)
        n = 0
        while n < 50:
            n += len(s.recv(50))
    s.close()
    t.join()
print("talked")
"#;

struct Talk {
    outcome: Outcome,
}

impl Talk {
    /// Talks at these places under these rules and settings.
    fn new(rules: &str, places: &[String], settings: &[(&str, &str)]) -> Self {
        let mut stage = Stage::new(true);
        let script = stage.file("talk.py", TALK.as_bytes());
        let rules = stage.file("rules", rules.as_bytes());
        let mut start = stage.launch("python3").args([script]).args(places);
        start = start.env("SHUNT_RULES", rules);
        for (name, value) in settings {
            start = start.env(name, value);
        }
        let outcome = stage.client(start, "python3");
        assert_eq!(outcome.stdout, "talked\n");
        outcome.report.check_reasons().unwrap();
        Self { outcome }
    }

    /// What carried the two ends of the connection at this place, in their order, and why not better. (A
    /// connection is closed before the next is made.)
    #[track_caller]
    fn ends(&self, index: usize) -> [(&str, &str); 2] {
        ["connect", "accept"].map(|role| {
            let all = self.outcome.report.connections();
            let found = all.filter(|c| c.role == role).nth(index);
            let found = found.unwrap_or_else(|| panic!("{}", self.outcome.report.summary()));
            (
                found.transport.as_str(),
                found.reason.as_deref().unwrap_or(""),
            )
        })
    }
}

const SHM: [(&str, &str); 2] = [("shm", ""), ("shm", "")];

fn loopback(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

#[test]
fn connects_follow_the_first_rule_that_matches() {
    let [one, two, three, four] = [(); 4].map(|()| free_port());
    let rules = format!(
        "use tcp connect other *:*     # another program\n\
         use tcp connect */other *:*\n\
         use tcp connect python? 127.0.0.0/8:{one}\n\
         use shm connect * 127.0.0.1:{one}-{one}\n\
         use tcp connect python3 10.0.0.0/8:*\n\
         use auto connect * *:{two}\n\
         use verbs connect python3 *:{three}\n\
         use verbs listen * *:{three}\n\
         use iwarp connect python3 *:{four}\n\
         use iwarp listen * *:{four}\n"
    );
    let places = [one, two, three, four].map(loopback);
    let talk = Talk::new(&rules, &places, &[]);
    assert_eq!(talk.outcome.stderr, "");
    assert_eq!(talk.ends(0), [("tcp", "rule"), ("tcp", "peer_plain")]);
    assert_eq!(talk.ends(1), SHM);
    // (as iwarp, where neither end has an adapter)
    assert_eq!(talk.ends(2), [("iwarp", ""), ("iwarp", "")]);
    assert_eq!(talk.ends(3), [("iwarp", ""), ("iwarp", "")]);
}

#[test]
fn listeners_follow_the_first_rule_that_matches() {
    let (one, two, three) = (free_port(), free_port(), free_port());
    let rules = format!(
        "use shm listen python3 127.0.0.2:{one}\n\
         use tcp listen * 127.0.0.1:{one}\n\
         use shm listen * *:*\n\
         use tcp connect python3 127.0.0.1:{three}\n\
         use tcp listen * *:{three}\n"
    );
    let talk = Talk::new(&rules, &[one, two, three].map(loopback), &[]);
    assert_eq!(talk.ends(0), [("tcp", "peer_plain"), ("tcp", "rule")]);
    assert_eq!(talk.ends(1), SHM);
    assert_eq!(talk.ends(2), [("tcp", "rule"), ("tcp", "peer_plain")]);
}

#[test]
fn a_listener_at_all_addresses_is_at_zero() {
    let (one, two, three) = (free_port(), free_port(), free_port());
    let rules = format!(
        "use tcp listen * 127.0.0.0/8:*\nuse verbs listen * 0.0.0.0:{two}\nuse tcp listen * [::]:{three}\n"
    );
    let places = [
        format!("0.0.0.0:{one}"),
        format!("0.0.0.0:{two}"),
        format!("::1:{three}"),
    ];
    let talk = Talk::new(&rules, &places, &[]);
    assert_eq!(talk.ends(0), SHM);
    assert_eq!(talk.ends(1), [("tcp", "peer_plain"), ("tcp", "peer_plain")]);
    assert_eq!(talk.ends(2), SHM);
}

/// Where a rule matches, it decides instead of SHUNT_TRANSPORT; elsewhere that holds.
#[test]
fn rules_come_before_the_setting() {
    let (one, two) = (free_port(), free_port());
    let rules = format!("use shm connect * *:{one}\nuse auto listen * *:{one}\n");
    let places = [one, two].map(loopback);
    let talk = Talk::new(&rules, &places, &[("SHUNT_TRANSPORT", "tcp")]);
    assert_eq!(talk.ends(0), SHM);
    let why = ("tcp", "transport_tcp");
    assert_eq!(talk.ends(1), [why, why]);
}

#[test]
fn a_program_is_known_by_its_file_too() {
    let file = std::fs::canonicalize("/usr/bin/python3").unwrap();
    let (one, two) = (free_port(), free_port());
    let rules = format!(
        "use tcp connect {}x *:*\nuse tcp connect {} [::1]:{two}\n",
        file.display(),
        file.display()
    );
    let places = [loopback(one), format!("::1:{two}")];
    let talk = Talk::new(&rules, &places, &[]);
    assert_eq!(talk.ends(0), SHM);
    assert_eq!(talk.ends(1), [("tcp", "rule"), ("tcp", "peer_plain")]);
}

#[test]
fn wrong_lines_are_told_and_the_others_hold() {
    let port = free_port();
    let rules =
        format!("use sdp connect * *:*\n\nuse tcp connect * *:{port}\nuse tcp connect * *:port\n");
    let talk = Talk::new(&rules, &[loopback(port)], &[]);
    assert_eq!(talk.ends(0), [("tcp", "rule"), ("tcp", "peer_plain")]);
    let said: Vec<_> = talk.outcome.stderr.lines().collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said[0].contains("rules:1: sdp: allowed is auto, shm,"),
        "{said:?}"
    );
    assert!(
        said[1].contains("rules:4: port: allowed is *, a port"),
        "{said:?}"
    );
    let many = "use nothing\n".repeat(5000);
    let talk = Talk::new(&many, &[loopback(port)], &[]);
    assert_eq!(talk.ends(0), SHM);
    let last = talk.outcome.stderr.lines().last().unwrap().to_owned();
    assert!(
        talk.outcome.stderr.lines().count() < 20 && last.contains("4992 more"),
        "{last}"
    );
}

/// Nothing that the variable can name keeps a program from running, or waiting.
#[test]
fn a_file_that_is_none_is_told() {
    let mut stage = Stage::new(true);
    let pipe = stage.folder.path("pipe");
    stage
        .plain("mkfifo")
        .args([&pipe])
        .start()
        .finish(LONG)
        .expect_ok("mkfifo");
    for file in [Path::new("/nonexistent/rules"), Path::new("/"), &pipe] {
        let start = stage.launch("echo").args(["fine"]).env("SHUNT_RULES", file);
        let outcome = stage.client(start, "echo");
        assert_eq!(outcome.stdout, "fine\n");
        assert_eq!(outcome.stderr.lines().count(), 1, "{:?}", outcome.stderr);
        let named = format!("SHUNT_RULES={}: ", file.display());
        assert!(outcome.stderr.contains(&named), "{:?}", outcome.stderr);
    }
    let start = stage.launch("echo").args(["fine"]).env("SHUNT_RULES", "");
    assert_eq!(stage.client(start, "echo").stderr, "");
}

#[test]
fn check_shows_what_is_understood_and_what_is_wrong() {
    let stage = Stage::new(false);
    let shunt = || Launch::new(library().with_file_name("shunt")).args(["rules", "check"]);
    let good = stage.file(
        "good",
        b"# web\nuse shm listen nginx 127.0.0.9/8:80-80 # ours\n",
    );
    let outcome = shunt().args([&good]).start().finish(LONG);
    outcome.expect_ok("shunt rules check");
    assert_eq!(outcome.stdout, "2: use shm listen nginx 127.0.0.0/8:80\n");
    assert_eq!(outcome.stderr, "");
    let bad = stage.file("bad", b"use tcp connect * *:1\nuse tcp connect * 1.2.3:4\n");
    let outcome = shunt().args([&bad]).start().finish(LONG);
    assert_eq!(outcome.ending(), "exit 1");
    assert_eq!(outcome.stdout, "1: use tcp connect * *:1\n");
    let place = format!("{}:2: 1.2.3: allowed is ", bad.display());
    assert_eq!(outcome.stderr.lines().count(), 1, "{:?}", outcome.stderr);
    assert!(outcome.stderr.contains(&place), "{:?}", outcome.stderr);
    let outcome = shunt().args(["/nonexistent"]).start().finish(LONG);
    assert_eq!(outcome.ending(), "exit 1");
    assert!(
        outcome.stderr.contains("/nonexistent: No such file"),
        "{}",
        outcome.stderr
    );
    assert_eq!(shunt().start().finish(LONG).ending(), "exit 2");
}
