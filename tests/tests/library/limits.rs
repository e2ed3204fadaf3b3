//! Programs that take from themselves what they need no more, once they have a connection: descriptors, memory, their rights.

use shunt_tests::apps::{LONG, Stage, have, is_root};

/// One program, of two processes: the server takes something from itself, and goes on with what it has.
const BOTH: &str = r#"
import os, resource, socket, sys, time
what = sys.argv[1]
l = socket.socket()
l.bind(("127.0.0.1", 0))
if what != "rights": l.listen(20)
def lower(which, to): resource.setrlimit(which, (to, to))
def ask(c):
    for i in range(20):
        c.sendall(b"ask")
        assert c.recv(6, socket.MSG_WAITALL) == b"answer"
def answer(c):
    for i in range(20):
        assert c.recv(3, socket.MSG_WAITALL) == b"ask"
        c.sendall(b"answer")
client = os.fork()
if not client:
    if what == "rights":
        time.sleep(0.5) # (it listens by now)
    at = l.getsockname()
    l.close()
    c = socket.create_connection(at)
    ask(c)
    if what == "descriptors":
        time.sleep(0.2)
        c.sendall(b"hello")
        assert c.recv(3, socket.MSG_WAITALL) == b"bye"
        time.sleep(0.5)
        left = 30_000_000
        while part := c.recv(1 << 16): left -= len(part)
        assert left == 0
    if what == "memory": time.sleep(0.3)
    if what == "space": # (for another such mapping as the library's largest there is none)
        with open("/proc/self/statm") as f: used = int(f.read().split()[0]) * resource.getpagesize()
        lower(resource.RLIMIT_AS, used + (200 << 20))
        child = os.fork()
        if child: assert os.waitpid(child, 0)[1] == 0
        ask(c)
    os._exit(0)
if what == "rights":
    server = os.fork()
    if server:
        l.close()
        codes = [os.waitpid(p, 0)[1] for p in (client, server)]
        sys.exit(max(map(os.waitstatus_to_exitcode, codes)))
    {"euid": os.seteuid, "uid": os.setuid}[sys.argv[2]](65534)
    l.listen(20)
s, _ = l.accept()
if what == "memory": lower(resource.RLIMIT_DATA, 1 << 20)
answer(s)
if what == "space":
    answer(s)
    answer(s)
if what == "descriptors":
    lower(resource.RLIMIT_NOFILE, 1) # (which poll takes as many entries of)
    assert s.recv(100, socket.MSG_PEEK) == b"hello" # (the client's words come later: it waits)
    s.settimeout(5)
    assert s.recv(100) == b"hello"
    s.settimeout(None)
    s.sendall(b"bye")
    s.sendall(bytes(30_000_000)) # (it waits for room)
l.close() # (before the connection)
s.close()
if what == "rights": os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(client, 0)[1]))
"#;

/// A program whose limit was there before it: connections to itself, until there are many; then it needs half of its space itself.
const CROWD: &str = r#"
import mmap, resource, socket
l = socket.socket()
l.bind(("127.0.0.1", 0))
l.listen(100)
pairs = []
for i in range(80):
    c = socket.create_connection(l.getsockname())
    c.sendall(b"ask")
    s, _ = l.accept()
    assert s.recv(3, socket.MSG_WAITALL) == b"ask"
    s.sendall(b"answer")
    assert c.recv(6, socket.MSG_WAITALL) == b"answer"
    c.sendall(b"more")
    assert s.recv(4, socket.MSG_WAITALL) == b"more"
    pairs.append((c, s))
half = mmap.mmap(-1, resource.getrlimit(resource.RLIMIT_AS)[0] // 2)
"#;

#[test]
fn a_limit_that_was_there_before_leaves_room_for_the_program() {
    if !have(&["python3"]) {
        return;
    }
    let mut stage = Stage::new(true);
    stage.file("crowd.py", CROWD.as_bytes());
    let words = "ulimit -v 400000; exec python3 crowd.py";
    let run = stage.launch("sh").args(["-c", words]).start().finish(LONG);
    run.expect_ok("crowd");
    run.report.check_shm(2, 20).unwrap();
}

fn check(words: &[&str]) {
    if !have(&["python3"]) {
        return;
    }
    let mut stage = Stage::new(true);
    stage.file("both.py", BOTH.as_bytes());
    let run = stage
        .launch("python3")
        .args(["both.py"].iter().chain(words));
    let run = run.start().finish(LONG);
    run.expect_ok(&words.join(" "));
    run.report
        .check_shm(1, 20 * 9)
        .unwrap_or_else(|e| panic!("{words:?}: {e}"));
}

#[test]
fn a_child_where_address_space_is_short() {
    check(&["space"]);
}

#[test]
fn who_may_open_nothing_more_waits_all_the_same() {
    check(&["descriptors"]);
}

#[test]
fn who_has_no_memory_left_closes_its_connections_after_its_listener() {
    check(&["memory"]);
}

#[test]
fn who_listens_as_another_user_than_it_bound_is_found() {
    // (only root can become another)
    if is_root() {
        check(&["rights", "euid"]);
        check(&["rights", "uid"]);
    } else {
        eprintln!("not root: nobody else can be become");
    }
}
