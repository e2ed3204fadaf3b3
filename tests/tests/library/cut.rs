//! A sender that is killed with bytes parked, over software iWARP: a reader that gets an end of file has all that was sent, and any
//! other gets a reset.

use shunt_tests::apps::{LONG, Stage, have};

/// The reader is the program; it starts a sender for each round, which fills what it can, and says how much that was.
const PROGRAM: &str = r#"
import os, signal, socket, subprocess, sys, time
if len(sys.argv) > 1:
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    s.sendall(b"hello")
    assert s.recv(5, socket.MSG_WAITALL) == b"hello"
    s.setblocking(False)
    n = 0
    try:
        while True: n += s.send(b"y" * 10000)
    except BlockingIOError: pass
    print(n, flush=True)
    s.setblocking(True)
    if sys.argv[2] == "leave": os._exit(0)
    assert s.recv(4, socket.MSG_WAITALL) == b"more"
    s.sendall(b"last")
    time.sleep(120)

lis = socket.create_server(("127.0.0.1", 0))
def read(c, most=1 << 60):
    got = 0
    while got < most:
        try: data = c.recv(min(100000, most - got))
        except ConnectionResetError: return got, "reset"
        if not data: return got, "end"
        got += len(data)
    return got, "more"
def one(how):
    port = str(lis.getsockname()[1])
    p = subprocess.Popen([sys.executable, __file__, port, how], stdout=subprocess.PIPE)
    c, _ = lis.accept()
    assert c.recv(5, socket.MSG_WAITALL) == b"hello"
    c.sendall(b"hello")
    n = int(p.stdout.readline())
    assert n > 0
    if how == "killed":
        p.kill(); p.wait()
        got, last = read(c)
        assert last == "reset" and got < n or (got, last) == (n, "end"), (n, got, last)
    elif how == "drained":
        assert read(c, n) == (n, "more")
        c.sendall(b"more")
        assert c.recv(4, socket.MSG_WAITALL) == b"last"
        p.kill(); p.wait()
        last = read(c)
        assert last == (0, "end"), last
    else:
        got, last = read(c)
        assert (got, last) == (n, "end"), (n, got, last)
        p.wait()
    c.close()
    return last
# (all goes to the kernel where the sender is kept from its end for a second)
rounds = [one("killed") for i in range(8)]
assert "reset" in rounds, rounds
for i in range(3): one("drained")
for i in range(3): one("leave")
print("well")
"#;

#[test]
fn a_reader_of_a_sender_that_was_killed_takes_no_part_for_the_whole() {
    if !have(&["python3"]) {
        return;
    }
    let mut stage = Stage::new(true);
    let script = stage.file("cut.py", PROGRAM.as_bytes());
    let rules = stage.file(
        "rules",
        b"use iwarp connect * *:*\nuse iwarp listen * *:*\n",
    );
    let start = stage.launch("python3").args([script]);
    let start = start
        .env("SHUNT_RULES", rules)
        .env("SHUNT_FLOW", "packetized");
    let outcome = start.start().finish(LONG);
    outcome.expect_ok("cut.py");
    assert_eq!(outcome.stdout, "well\n");
    let mut seen = 0;
    for c in outcome.report.connections() {
        assert_eq!(c.transport, "iwarp");
        assert_eq!(c.flow.as_deref(), Some("packetized"));
        seen += usize::from(c.received > 10_000);
    }
    assert_eq!(seen, 14);
}
