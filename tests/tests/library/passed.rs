//! Bytes that were not read when the library can serve a connection no more, with a peer that hears of nothing at the time. Where a
//! server passes the connection to its worker, over a local socket, that reads all of them, though the client is busy, or has
//! gone. Where it goes on by stdio the client sends them once it calls the library again, if only to end.

use shunt_tests::apps::{LONG, Stage, have};
use shunt_tests::run::Outcome;

/// Number of connections, and bytes of what is passed with each.
const NUMBER: usize = 8;
const BYTES: usize = 100_000;

/// Greets, waits until the client's words are there, and passes the connection on; `full`: finds no room for the message, and
/// serves the client itself.
const SERVER: &str = r#"
import os, select, socket, subprocess, sys, time
number, size, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
ours, theirs = socket.socketpair()
def name(s):
    cookie = int.from_bytes(s.getsockopt(socket.SOL_SOCKET, 57, 8), sys.byteorder)
    return f"/dev/shm/shunt-kept.{os.geteuid()}.{cookie:x}"
def serve(s):
    got = b""
    if how == "peeking": assert s.recv(10, socket.MSG_PEEK) == words(size)[:10]
    ready = select.poll(); ready.register(s, select.POLLIN); assert ready.poll(5000)
    while part := s.recv(7777): got += part
    assert got == words(size), (len(got), size)
    assert not os.path.exists(name(s)), "it was left there"
def words(n): return bytes(i * 7 % 251 for i in range(n))
def work(channel):
    for i in range(number): serve(socket.socket(fileno=socket.recv_fds(channel, 1, 1)[1][0]))
if how == "worker":
    work(socket.socket(fileno=int(sys.argv[4])))
    sys.exit(0)
if how.endswith("exec"):
    worker = subprocess.Popen([sys.executable, "server.py", str(number), str(size), "worker", str(theirs.fileno())],
        pass_fds=[theirs.fileno()])
elif not how.endswith("full"):
    worker = os.fork()
    if not worker:
        ours.close()
        work(theirs)
        os._exit(0)
l = socket.create_server(("127.0.0.1", 0), backlog=64)
with open("port.new", "w") as f: f.write(str(l.getsockname()[1]))
os.rename("port.new", "port")
if how.endswith("full"):
    ours.setblocking(False)
    try:
        while True: ours.send(b"x" * 1000)
    except BlockingIOError: pass
for i in range(number):
    c, _ = l.accept()
    c.sendall(b"hi")
    assert c.recv(2) == b"ok"
    while not os.path.exists(f"sent{i}"): select.select([c], [], [], 0.002)
    if how.endswith("full"):
        try: socket.send_fds(ours, [b"x"], [c.fileno()]); assert False
        except BlockingIOError: serve(c)
    else:
        socket.send_fds(ours, [b"x"], [c.fileno()])
    c.close()
if how.endswith("exec"): sys.exit(worker.wait())
if not how.endswith("full"): sys.exit(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]))
"#;

/// Sends, and then goes, or computes for a while and goes, or shuts its half and waits for the other.
const CLIENT: &str = r#"
import os, socket, sys, time
number, size, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
words = bytes(i * 7 % 251 for i in range(size))
while not os.path.exists("port"): time.sleep(0.005)
for i in range(number):
    s = socket.create_connection(("127.0.0.1", int(open("port").read())))
    assert s.recv(2) == b"hi"
    s.sendall(b"ok")
    time.sleep(0.01) # (it has been read)
    s.sendall(words)
    if how == "waits": s.shutdown(socket.SHUT_WR)
    if how == "goes": s.close()
    open(f"sent{i}", "w").close()
    if how == "waits":
        try: assert s.recv(1) == b""
        except ConnectionResetError: pass
    until = time.monotonic() + 0.3
    while how == "computes" and time.monotonic() < until: pass
    s.close()
"#;

fn run(server: &str, client: &str) -> (Outcome, Outcome) {
    let mut stage = Stage::new(true);
    stage.file("server.py", SERVER.as_bytes());
    stage.file("client.py", CLIENT.as_bytes());
    let mut start = |name: &str, how: &str| {
        let (number, bytes) = (NUMBER.to_string(), BYTES.to_string());
        stage
            .launch("python3")
            .args([name, &number, &bytes, how])
            .start()
    };
    let (server, client) = (start("server.py", server), start("client.py", client));
    (server.finish(LONG), client.finish(LONG))
}

#[test]
fn who_is_passed_a_connection_has_all_that_was_not_read() {
    if !have(&["python3"]) {
        return;
    }
    for server in ["fork", "exec", "peeking", "full"] {
        for client in ["goes", "computes", "waits"] {
            let (served, asked) = run(server, client);
            served.expect_ok(&format!("server: {server}, {client}"));
            asked.expect_ok(&format!("client: {server}, {client}"));
            asked
                .report
                .check_shm(NUMBER as u64, (NUMBER * BYTES) as u64)
                .unwrap_or_else(|e| panic!("{server}, {client}: {e}"));
        }
    }
}

/// Reads what has come by stdio.
const READER: &str = r#"
import ctypes, os, socket, time
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
libc.fdopen.argtypes = [ctypes.c_int, ctypes.c_char_p]
libc.fread.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
l = socket.create_server(("127.0.0.1", 0))
with open("port.new", "w") as f: f.write(str(l.getsockname()[1]))
os.rename("port.new", "port")
c, _ = l.accept()
c.sendall(b"hi")
assert c.recv(2) == b"ok"
while not os.path.exists("sent"): time.sleep(0.002)
stream, got, part = libc.fdopen(c.fileno(), b"r"), b"", ctypes.create_string_buffer(5000)
while (n := libc.fread(part, 1, 5000, stream)) > 0: got += part.raw[:n]
assert got == bytes(i * 7 % 251 for i in range(20000)), len(got)
"#;

const WRITER: &str = r#"
import os, socket, sys, time
while not os.path.exists("port"): time.sleep(0.005)
s = socket.create_connection(("127.0.0.1", int(open("port").read())))
assert s.recv(2) == b"hi"
s.sendall(b"ok")
time.sleep(0.01) # (it has been read)
s.sendall(bytes(i * 7 % 251 for i in range(20000)))
open("sent", "w").close()
until = time.monotonic() + 0.3
while time.monotonic() < until: pass
if sys.argv[1] == "dies": os._exit(0)
if sys.argv[1] == "closes":
    s.close()
    time.sleep(0.2)
if sys.argv[1] == "waits":
    s.shutdown(socket.SHUT_WR)
    s.recv(1)
"#;

#[test]
fn stdio_reads_what_its_peer_had_sent_once_that_calls_again() {
    if !have(&["python3"]) {
        return;
    }
    for how in ["dies", "closes", "waits", "ends"] {
        let mut stage = Stage::new(true);
        stage.file("reader.py", READER.as_bytes());
        stage.file("writer.py", WRITER.as_bytes());
        let reader = stage.launch("python3").args(["reader.py"]).start();
        let writer = stage.launch("python3").args(["writer.py", how]).start();
        let (reader, writer) = (reader.finish(LONG), writer.finish(LONG));
        reader.expect_ok(&format!("reader: {how}"));
        writer.expect_ok(&format!("writer: {how}"));
        reader
            .report
            .check_shm(1, 2)
            .unwrap_or_else(|e| panic!("{how}: {e}"));
    }
}

/// Passes its listener on, to itself, closes what it had, and serves by what has come: without a call that would show what it is.
const LISTENER: &str = r#"
import os, socket
ours, theirs = socket.socketpair()
l = socket.create_server(("127.0.0.1", 0))
port = l.getsockname()[1]
socket.send_fds(ours, [b"x"], [l.fileno()])
l.close()
l = socket.socket(fileno=socket.recv_fds(theirs, 1, 1)[1][0])
with open("port.new", "w") as f: f.write(str(port))
os.rename("port.new", "port")
for i in range(3):
    c, _ = l.accept()
    for k in range(100): c.sendall(c.recv(5, socket.MSG_WAITALL))
    c.close()
"#;

const GUEST: &str = r#"
import os, socket, time
while not os.path.exists("port"): time.sleep(0.005)
for i in range(3):
    s = socket.create_connection(("127.0.0.1", int(open("port").read())))
    for k in range(100):
        s.sendall(b"%05d" % k)
        assert s.recv(5, socket.MSG_WAITALL) == b"%05d" % k
    s.close()
"#;

#[test]
fn a_listener_that_is_passed_is_a_listener() {
    if !have(&["python3"]) {
        return;
    }
    for transport in ["shm", "iwarp"] {
        let mut stage = Stage::new(true);
        stage.file("server.py", LISTENER.as_bytes());
        stage.file("client.py", GUEST.as_bytes());
        let rules = stage.file(
            "rules",
            b"use iwarp connect * *:*\nuse iwarp listen * *:*\n",
        );
        let rules = (transport == "iwarp").then_some(rules);
        let mut start = |name: &str| {
            let program = stage.launch("python3").args([name]);
            match &rules {
                Some(rules) => program.env("SHUNT_RULES", rules),
                None => program,
            }
            .start()
        };
        let ends = [start("server.py"), start("client.py")].map(|program| program.finish(LONG));
        for end in ends {
            end.expect_ok(transport);
            let by: Vec<_> = end.report.connections().map(|c| &c.transport).collect();
            assert_eq!(by, [transport; 3]);
        }
    }
}
