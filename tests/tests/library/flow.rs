//! What a program sees of the flow-control schemes: how much a connection holds, by settings and by its
//! own socket options, and that nothing stays behind while it waits elsewhere.

use shunt_tests::apps::Stage;

const SCHEMES: [&str; 3] = ["credit", "packetized", "nic"];

/// Two ends that have spoken, so that they are attached; then bytes are sent and not read until there is
/// no room. With a size as argument both ends set their buffers to it.
const FILL: &str = r#"
import socket, sys, threading
size = int(sys.argv[1]) if len(sys.argv) > 1 else 0
def sized(s):
    if size:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    return s
lis = sized(socket.socket())
lis.bind(("127.0.0.1", 0))
lis.listen()
a = sized(socket.socket())
a.connect(lis.getsockname())
b, _ = lis.accept()
def echo():
    for i in range(50):
        b.sendall(b.recv(10))
t = threading.Thread(target=echo)
t.start()
for i in range(50):
    a.sendall(b"x")
    a.recv(10)
t.join()
a.setblocking(False)
sent = 0
try:
    while True:
        sent += a.send(b"y" * 1000)
except BlockingIOError:
    pass
a.setblocking(True)
got = 0
t = threading.Thread(target=lambda: (a.shutdown(socket.SHUT_WR)))
t.start()
while data := b.recv(100000):
    got += len(data)
t.join()
assert got == sent, (got, sent)
print(sent)
"#;

fn fill(scheme: &str, buf: &str, size: Option<&str>) -> usize {
    let mut stage = Stage::new(true);
    let script = stage.file("fill.py", FILL.as_bytes());
    let mut start = stage.launch("python3").args([script]);
    start = start
        .args(size)
        .env("SHUNT_FLOW", scheme)
        .env("SHUNT_BUF", buf);
    let outcome = stage.client(start, "python3");
    let report = &outcome.report;
    report.check_shm(2, 1).unwrap();
    for c in report.connections() {
        assert_eq!(c.flow.as_deref(), Some(scheme));
    }
    outcome.stdout.trim().parse().unwrap()
}

#[test]
fn a_connection_holds_what_its_scheme_says() {
    // 256 slots of 1 KiB, a message in each; a ring and as much at the sender; a message in each of the eight windows that
    // are advertised, and the sender's own. (What was read last may not have been handed back yet.)
    assert_eq!(fill("credit", "256k", None), 256_000);
    let packetized = fill("packetized", "256k", None);
    assert!((524_000..=524_288).contains(&packetized), "{packetized}");
    let nic = fill("nic", "256k", None);
    assert!((262_144 + 3_000..=262_144 + 8_000).contains(&nic), "{nic}");
}

#[test]
fn socket_options_make_buffers_smaller() {
    for scheme in SCHEMES {
        let held = fill(scheme, "256k", Some("32768"));
        let least = if scheme == "credit" { 31_000 } else { 32_768 };
        assert!((least..=65_536).contains(&held), "{scheme}: {held}");
    }
}

/// The sender fills more than the receiver's buffer, and waits outside the library for the receiver to
/// say that it has all of it.
const ELSEWHERE: &str = r#"
import os, socket, threading, time
lis = socket.create_server(("127.0.0.1", 0))
a = socket.create_connection(lis.getsockname())
b, _ = lis.accept()
r, w = os.pipe()
done = threading.Event()
def reader():
    for i in range(50):
        b.sendall(b.recv(10))
    for i in range(3):
        n = 0
        while n < 100000:
            n += len(b.recv(100000))
        done.set()
t = threading.Thread(target=reader)
t.start()
for i in range(50):
    a.sendall(b"x")
    a.recv(10)
for i in range(3):
    a.sendall(b"y" * 100000)
    assert done.wait(20), "bytes stay behind"
    done.clear()
t.join()
print("all came")
"#;

#[test]
fn nothing_stays_behind_while_the_program_waits_elsewhere() {
    for scheme in SCHEMES {
        let mut stage = Stage::new(true);
        let script = stage.file("elsewhere.py", ELSEWHERE.as_bytes());
        let start = stage.launch("python3").args([script]);
        let start = start.env("SHUNT_FLOW", scheme).env("SHUNT_BUF", "64k");
        let outcome = stage.client(start, "python3");
        assert_eq!(outcome.stdout, "all came\n", "{scheme}");
        outcome.report.check_shm(2, 600_000).unwrap();
    }
}
