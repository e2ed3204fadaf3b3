//! Rings of RDMA adapters that nothing goes by are given back, and are small until much goes by them: their memory is for
//! connections that are at work. By the stand-in for an adapter.

use shunt_tests::apps::{LONG, Stage, have};
use shunt_tests::run::{Outcome, library};

/// Answers what each connection asks.
const SERVER: &str = r#"
import os, socket, threading
lis = socket.create_server(("127.0.0.1", 0))
with open("port.new", "w") as f: f.write(str(lis.getsockname()[1]))
os.rename("port.new", "port")
def answer(c):
    while question := c.recv(3, socket.MSG_WAITALL):
        c.sendall(b"answer" if question == b"ask" else bytes(1 << 20) if question == b"big" else question * 100)
for i in range(int(open("connections").read())):
    threading.Thread(target=answer, args=[lis.accept()[0]]).start()
"#;

/// Asks, and looks what carries its connections.
const CLIENT: &str = r#"
import json, os, socket, subprocess, sys, threading, time
def path(s, what="transport"):
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    all = json.loads(subprocess.check_output([sys.argv[1], "stat", "--json"], env=env))
    own = [c for p in all if p["pid"] == os.getpid() for c in p["connections"]]
    return next(c[what] for c in own if c["local"] == "127.0.0.1:%d" % s.getsockname()[1])
def ask(s, times=1):
    for i in range(times):
        s.sendall(b"ask"); assert s.recv(6, socket.MSG_WAITALL) == b"answer"
def ask_much(s):
    s.sendall(b"big"); assert s.recv(1 << 20, socket.MSG_WAITALL) == bytes(1 << 20)
def until(s, wanted, times, pause):
    begun = time.time()
    while path(s) != wanted:
        assert time.time() < begun + 60, "still on " + path(s)
        ask(s, times)
        time.sleep(pause)
while not os.path.exists("port"): time.sleep(0.01)
def connect():
    return socket.create_connection(("127.0.0.1", int(open("port").read())))
"#;

pub(super) fn run(name: &str, client: &str, connections: usize, adapter: &str) -> Option<Outcome> {
    run_by(("auto", "512k"), name, client, connections, adapter)
}

/// With this scheme of flow control, and buffers of this size, at both ends.
fn run_by(
    (scheme, buffer): (&str, &str),
    name: &str,
    client: &str,
    connections: usize,
    adapter: &str,
) -> Option<Outcome> {
    if !have(&["python3"]) {
        return None;
    }
    let mut stage = Stage::new(true);
    stage.file("server.py", SERVER.as_bytes());
    stage.file("client.py", format!("{CLIENT}{client}").as_bytes());
    stage.file("connections", connections.to_string().as_bytes());
    let rules = b"use verbs connect * *:*\nuse verbs listen * *:*\n";
    let rules = stage.file("rules", rules).to_string_lossy().into_owned();
    let mut start = |words: &[&str]| {
        let settings = [
            ("SHUNT_RULES", rules.as_str()),
            ("SHUNT_STANDIN_ADAPTER", adapter),
            ("SHUNT_FLOW", scheme),
            ("SHUNT_BUF", buffer),
        ];
        let launch = settings
            .iter()
            .fold(stage.launch("python3"), |l, (k, v)| l.env(k, v));
        launch.args(words).start()
    };
    let server = start(&["server.py"]);
    let command = library().with_file_name("shunt");
    let outcome = start(&["client.py", &command.to_string_lossy()]).finish(LONG);
    outcome.expect_ok(name);
    server.finish(LONG).expect_ok("server");
    Some(outcome)
}

#[test]
fn a_ring_that_nothing_goes_by_is_given_back_and_made_anew() {
    let client = r#"
idle, busy = connect(), connect()
until(idle, "verbs", 40, 0.05)
until(busy, "verbs", 40, 0.05)
# (what it is on shows with the next message, and one alone does not bring a ring back)
begun = time.time()
while time.time() < begun + 15:
    ask(busy); time.sleep(0.2)
assert path(busy) == "verbs", path(busy)
until(idle, "iwarp", 1, 11)
until(idle, "verbs", 40, 0.05)
ask(idle, 100); ask(busy, 100)
"#;
    run("client", client, 2, "1");
}

#[test]
fn connections_at_work_have_the_room_of_those_that_rest() {
    let client = r#"
all = [connect() for i in range(5)]
for turn in range(2):
    for s in all:
        until(s, "verbs", 40, 0.05)
        ask(s, 100)
"#;
    run("client", client, 5, "1/2");
}

#[test]
fn a_ring_is_as_large_as_what_goes_by_it_is_worth() {
    let client = r#"
SMALL, LARGE = 64 * 1024, 512 * 1024
little, grows, much = [connect() for i in range(3)]
until(little, "verbs", 40, 0.05)
until(grows, "verbs", 40, 0.05)
assert path(little, "reserved") == SMALL and path(grows, "reserved") == SMALL
begun = time.time()
while path(grows, "reserved") != LARGE or path(grows) != "verbs":
    assert time.time() < begun + 60, path(grows)
    for i in range(20): ask_much(grows)
while path(much) != "verbs":
    assert time.time() < begun + 60, path(much)
    ask_much(much)
assert path(much, "reserved") == LARGE, path(much, "reserved")
ask(little, 100)
assert path(little, "reserved") == SMALL and path(little) == "verbs"
"#;
    run("client", client, 3, "1");
}

#[test]
fn a_connection_without_room_for_a_ring_says_so() {
    let client = r#"
first, second = connect(), connect()
until(first, "verbs", 40, 0.05)
over = []
def keep_busy():
    while not over: ask(first); time.sleep(0.01)
busy = threading.Thread(target=keep_busy)
busy.start()
begun = time.time()
while path(second, "reason") != "adapter_room":
    assert time.time() < begun + 60, path(second, "reason")
    ask(second, 40)
over.append(1)
busy.join()
ask(second, 100)
"#;
    run("client", client, 2, "1/1");
}

/// Questions, all of whose answers wait: with a scheme that counts, the sender is out of room by that, also where an adapter carries
/// it. (Its buffers are smaller than a ring.)
#[test]
fn schemes_of_flow_control_hold_where_an_adapter_carries_the_bytes() {
    let client = r#"
s = connect()
until(s, "verbs", 40, 0.05)
assert path(s, "flow") == SCHEME, path(s, "flow")
before = path(s, "no_credit")
s.setblocking(False)
asked = 0
while True:
    try: asked += s.send(b"123" * 400)
    except BlockingIOError: break
assert path(s) == "verbs" and asked > 1000, asked
out = path(s, "no_credit") - before
assert (out > 0) == (SCHEME != "nic"), out
s.setblocking(True)
left = asked // 3 * 300
while left: left -= len(s.recv(min(left, 1 << 20)))
rest = b"123"[asked % 3:]
if len(rest) < 3: s.sendall(rest); s.recv(300, socket.MSG_WAITALL)
ask(s, 3)
"#;
    for scheme in ["credit", "packetized", "nic"] {
        let client = client.replace("SCHEME", &format!("{scheme:?}"));
        if let Some(outcome) = run_by((scheme, "16k"), "client", &client, 1, "1") {
            for c in outcome.report.connections() {
                let operation = if scheme == "credit" { "send" } else { "write" };
                assert_eq!(
                    (c.transport.as_str(), c.flow.as_deref()),
                    ("verbs", Some(scheme))
                );
                assert_eq!(c.operation.as_deref(), Some(operation));
                assert!(c.demotions.is_empty(), "{c:?}");
            }
        }
    }
}
