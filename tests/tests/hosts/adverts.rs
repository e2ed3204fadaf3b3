//! Large messages whose buffers are advertised and read by the other end (`SHUNT_ZCOPY=sync`): the bytes are the same, and
//! that they were read is asserted at both ends.

use super::{Scene, assert_iwarp, server};
use shunt_tests::apps::{LONG, have};
use shunt_tests::netns::Host;
use shunt_tests::report::Report;
use shunt_tests::run::Outcome;

const PORT: u16 = 7102;

/// Both send 1 MiB messages to each other in turn, and then at once; every byte is looked at. Some of the reader's buffers are
/// large, some small; one of the readers is late.
const PROGRAM: &str = r#"
import hashlib, socket, sys, threading, time
role, host, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
SIZE = 1 << 20
def message(who, n):
    return hashlib.shake_128(b"%s %d" % (who.encode(), n)).digest(SIZE)
def read(s, want, piece):
    got = bytearray()
    while len(got) < want:
        part = s.recv(min(piece, want - len(got)))
        if not part: break
        got += part
    return bytes(got)
def take(s, who, n, piece):
    if read(s, SIZE, piece) != message(who, n):
        print("wrong bytes in", n); sys.exit(1)
if role == "server":
    l = socket.create_server((host, port)); s, _ = l.accept()
else:
    s = socket.create_connection((host, port))
peer = {"server": "client", "client": "server"}[role]
for n in range(count):
    if role == "client": s.sendall(message(role, n))
    take(s, peer if role == "client" else peer, n, [SIZE, 3000, 100000][n % 3])
    if role == "server": s.sendall(message(role, n))
    if n == 1: time.sleep(0.1)
def send():
    for n in range(count): s.sendall(message(role, 1000 + n))
t = threading.Thread(target=send); t.start()
for n in range(count): take(s, peer, 1000 + n, SIZE)
t.join()
s.shutdown(socket.SHUT_WR)
print("end", s.recv(1))
"#;

/// The two programs to their ends, with so many messages each way; the first and the second half of each.
pub(super) fn exchange(scene: &mut Scene, count: usize) -> [Outcome; 2] {
    let file = scene.stage.file("exchange.py", PROGRAM.as_bytes());
    let (to, port, count_text) = (server(), PORT.to_string(), count.to_string());
    let mut start = |role: &str| {
        let start = scene.launch("python3").env("SHUNT_ZCOPY", "sync");
        let start = start.args([&file]);
        start.args([role, &to, &port, &count_text])
    };
    let (one, two) = (start("server"), start("client"));
    let job = scene.hosts.serve(Host::One, one, PORT);
    let client = scene.client(two, "client");
    let end = job.finish(LONG);
    end.expect_ok("server");
    for (what, outcome) in [("client", &client), ("server", &end)] {
        assert_eq!(outcome.stdout, "end b''\n", "{what}");
        assert_iwarp(what, &outcome.report, 1, (4 * count as u64) << 20);
    }
    [end, client]
}

/// So many bytes at least went by Reads.
fn assert_read(what: &str, report: &Report, least: u64) {
    let read = report.zcopy_bytes();
    assert!(read >= least, "{what}: {read} bytes of {least}");
}

#[test]
fn large_messages_are_read_by_the_other_end() {
    if !have(&["python3"]) {
        return;
    }
    for crc in ["on", "off"] {
        let Some(mut scene) = Scene::new(crc) else {
            return;
        };
        let [end, client] = exchange(&mut scene, 12);
        // (those that a reader was late for go as they are, and for a while all that follow)
        assert_read("client", &client.report, 4 << 20);
        assert_read("server", &end.report, 4 << 20);
        assert_eq!(client.report.zcopy_bytes(), end.report.zcopy_bytes());
    }
}

#[test]
fn loss_changes_nothing_of_what_is_read() {
    if !have(&["python3", "nft"]) {
        return;
    }
    let Some(mut scene) = Scene::new("on") else {
        return;
    };
    super::wire::lose(&scene, 10);
    exchange(&mut scene, 6);
}
