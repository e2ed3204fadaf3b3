//! Large messages that an adapter reads from where the sender has them: by the stand-in for one, also by one that gives up in the
//! middle of that. The sender writes to its buffer as soon as it has it back.

use shunt_tests::apps::{LONG, Stage, have};

/// Says of each message what it has read.
const SERVER: &str = r#"
import hashlib, os, socket
lis = socket.create_server(("127.0.0.1", 0))
with open("port.new", "w") as f: f.write(str(lis.getsockname()[1]))
os.rename("port.new", "port")
c = lis.accept()[0]
to = memoryview(bytearray(1 << 20))
while True:
    n = 0
    while n < len(to) and (came := c.recv_into(to[n:])): n += came
    if n < len(to): break
    c.sendall(hashlib.blake2b(to).digest())
assert n == 0, n
"#;

const CLIENT: &str = r#"
import hashlib, os, socket, time
while not os.path.exists("port"): time.sleep(0.01)
s = socket.create_connection(("127.0.0.1", int(open("port").read())))
fresh = os.urandom(2 << 20)
message, begun, i = bytearray(1 << 20), time.time(), 0
while i < 100 or time.time() < begun + 5:
    at = i * 4099 % (1 << 20)
    message[:] = fresh[at:at + len(message)]
    digest = hashlib.blake2b(message).digest()
    s.sendall(message)
    message[:] = bytes(len(message))
    assert s.recv(64, socket.MSG_WAITALL) == digest, i
    i += 1
"#;

/// Bytes that went past the rings, and whether an adapter failed.
fn run(adapter: &str) -> Option<(u64, bool)> {
    if !have(&["python3"]) {
        return None;
    }
    let mut stage = Stage::new(true);
    stage.file("server.py", SERVER.as_bytes());
    stage.file("client.py", CLIENT.as_bytes());
    let rules = b"use verbs connect * *:*\nuse verbs listen * *:*\n";
    let rules = stage.file("rules", rules).to_string_lossy().into_owned();
    let mut start = |script: &str| {
        let launch = stage.launch("python3").env("SHUNT_RULES", &rules);
        let launch = launch.env("SHUNT_STANDIN_ADAPTER", adapter);
        launch.env("SHUNT_ZCOPY", "sync").args([script]).start()
    };
    let (server, client) = (start("server.py"), start("client.py"));
    let (client, server) = (client.finish(LONG), server.finish(LONG));
    client.expect_ok("client");
    server.expect_ok("server");
    let ends = [&client.report, &server.report];
    let past = ends.map(|report| report.zcopy_bytes()).into_iter().min();
    let mut all = ends.iter().flat_map(|report| report.connections());
    let failed = all.any(|c| c.reason.as_deref() == Some("adapter_failed"));
    Some((past.unwrap_or(0), failed))
}

#[test]
fn large_messages_go_past_the_rings() {
    if let Some((past, failed)) = run("1") {
        assert!(!failed);
        assert!(past >= 20 << 20, "{past} bytes past the rings");
    }
}

#[test]
fn an_adapter_that_fails_within_one_loses_and_doubles_nothing() {
    if let Some((past, failed)) = run("1!200") {
        assert!(failed, "no adapter has given up");
        assert!(past >= 1 << 20, "{past} bytes past the rings");
    }
}
