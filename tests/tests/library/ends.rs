//! How connections end, seen from outside: no port waits for a minute (TIME_WAIT) for words that cannot come, and no error is lost.

use shunt_tests::apps::{LONG, Stage, have};

/// Both ends close after a question and its answer; one shuts its half before, as servers do that linger. What that one
/// is told afterwards is what the kernel says.
const BOTH: &str = r#"
import errno, os, select, socket, sys, time
first, l = sys.argv[1], socket.create_server(("127.0.0.1", 0))
at = l.getsockname()
client = os.fork()
if not client:
    l.close()
    for i in range(20):
        c = socket.create_connection(at)
        c.sendall(b"ask")
        assert c.recv(6, socket.MSG_WAITALL) == b"answer"
        if first == "server": assert c.recv(1) == b""
        c.close()
        time.sleep(0.005)
    os._exit(0)
for i in range(20):
    s, _ = l.accept()
    assert s.recv(3, socket.MSG_WAITALL) == b"ask"
    s.sendall(b"answer")
    if first == "client": assert s.recv(1) == b""
    s.shutdown(socket.SHUT_WR)
    ready = select.poll()
    ready.register(s, select.POLLIN | select.POLLRDHUP)
    assert ready.poll(5000)
    assert s.recv(1) == b""
    if i == 19:
        assert ready.poll(0)[0][1] == select.POLLIN | select.POLLHUP | select.POLLRDHUP
        for ask in (s.getpeername, lambda: s.shutdown(socket.SHUT_RDWR)):
            try: ask(); sys.exit("there is a connection")
            except OSError as e: assert e.errno == errno.ENOTCONN, e
    s.close()
assert os.waitpid(client, 0)[1] == 0
port = ":%04X" % at[1]
lines = [line.split() for line in open("/proc/net/tcp")]
waiting = [line for line in lines if line[3] == "06" and (line[1].endswith(port) or line[2].endswith(port))]
# (the last has been ended by the kernel, and so has one whose ends were both held up at the same point)
assert len(waiting) <= 4, waiting
"#;

#[test]
fn who_shuts_before_it_closes_leaves_no_port_waiting() {
    if !have(&["python3"]) {
        return;
    }
    for first in ["server", "client"] {
        let mut stage = Stage::new(true);
        stage.file("both.py", BOTH.as_bytes());
        let run = stage.launch("python3").args(["both.py", first]);
        let run = run.start().finish(LONG);
        run.expect_ok(first);
        run.report
            .check_shm(40, 40 * 9)
            .unwrap_or_else(|e| panic!("{first}: {e}"));
    }
}

/// A client by software iWARP whose server is killed before it has looked at the request, and what the client is told of that.
const CUT_OFF: &str = r#"
import os, select, socket, sys, time
l = socket.create_server(("127.0.0.1", 0))
at = l.getsockname()
server = os.fork()
if not server:
    c, _ = l.accept()
    time.sleep(0.3 + int(sys.argv[1]) * 0.003)
    os.kill(os.getpid(), 9)
l.close()
c = socket.create_connection(at)
def send(what):
    try: return c.send(what)
    except OSError as e: return type(e)
assert 0 < send(bytes(64 << 20)) < 64 << 20
ready = select.poll()
ready.register(c, select.POLLOUT)
assert ready.poll(0)[0][1] == select.POLLOUT | select.POLLERR | select.POLLHUP
assert send(b"x") == ConnectionResetError
assert send(b"x") == BrokenPipeError
os.waitpid(server, 0)
"#;

/// The reset comes between the library's look for an answer and what it does of that: the error is still the program's.
#[test]
fn a_reset_between_two_looks_for_an_answer_is_told() {
    if !have(&["strace", "python3"]) {
        return;
    }
    let late = "-f -o trace -e trace=ppoll -e inject=ppoll:delay_exit=8000";
    let mut stage = Stage::new(true);
    stage.file("cut_off.py", CUT_OFF.as_bytes());
    let rules = stage.file(
        "rules",
        b"use iwarp connect * *:*\nuse iwarp listen * *:*\n",
    );
    for round in 0..8 {
        let round = round.to_string();
        let run = stage
            .launch("strace")
            .args(late.split(' '))
            .args(["python3", "cut_off.py", &round])
            .env("SHUNT_RULES", &rules);
        run.start().finish(LONG).expect_ok(&round);
    }
}
