//! Clients that are there before their server: whoever comes in the moment that it begins to listen, or was refused just
//! before, is not taken for one that nobody with the library serves.

use shunt_tests::apps::{LONG, Stage, have};
use shunt_tests::run::Outcome;

const SERVER: &str = r#"
import socket, sys
s = socket.socket()
s.bind(("127.0.0.1", 0))
with open("port.new", "w") as f: f.write(str(s.getsockname()[1]))
import os, time; os.rename("port.new", "port")
while not os.path.exists("refused"): time.sleep(0.005)
s.listen(5)
c, _ = s.accept()
assert c.recv(3, socket.MSG_WAITALL) == b"ask"
c.sendall(b"answer")
assert c.recv(1) == b""
"#;

/// Tries until it is let in.
const CLIENT: &str = r#"
import errno, os, select, socket, sys, time
while not os.path.exists("port"): time.sleep(0.005)
to = ("127.0.0.1", int(open("port").read()))
def connect():
    s = socket.socket()
    s.setblocking(sys.argv[1] == "blocking")
    e = s.connect_ex(to)
    if e == errno.EINPROGRESS:
        select.select([], [s], [])
        e = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    s.setblocking(True)
    return e, s
while True:
    e, s = connect()
    if e == 0: break
    assert e == errno.ECONNREFUSED, e
    open("refused", "w").close()
    time.sleep(0.002)
s.sendall(b"ask")
assert s.recv(6, socket.MSG_WAITALL) == b"answer"
"#;

/// Runs both, the server by these words; what the client reports.
fn run(server: &[&str], how: &str) -> Option<Outcome> {
    let (program, words) = server.split_first()?;
    if !have(&[program, "python3"]) {
        return None;
    }
    let mut stage = Stage::new(true);
    stage.file("server.py", SERVER.as_bytes());
    stage.file("client.py", CLIENT.as_bytes());
    let server = stage.launch(program).args(words).start();
    let client = stage.launch("python3").args(["client.py", how]).start();
    let client = client.finish(LONG);
    client.expect_ok(how);
    server.finish(LONG).expect_ok("server");
    Some(client)
}

fn check(server: &[&str]) {
    for how in ["blocking", "nonblocking"] {
        if let Some(client) = run(server, how) {
            client
                .report
                .check_shm(1, 9)
                .unwrap_or_else(|e| panic!("{server:?}, {how}: {e}"));
        }
    }
}

#[test]
fn one_that_was_refused_just_before_is_attached() {
    check(&["python3", "server.py"]);
}

/// The library looks and finds nobody, the server begins to listen, and the kernel lets the connection in.
#[test]
fn one_whose_server_begins_to_listen_meanwhile_is_attached() {
    if !have(&["strace", "python3"]) {
        return;
    }
    let server = SERVER.replace(
        "s.listen(5)",
        "time.sleep(0.1); s.listen(5); time.sleep(0.5)",
    );
    let client = CLIENT.replace(
        "while True:",
        "open(\"refused\", \"w\").close()\nwhile True:",
    );
    let late = "-f -o trace -e trace=connect -e inject=connect:delay_enter=300000:when=1";
    for how in ["blocking", "nonblocking"] {
        let mut stage = Stage::new(true);
        stage.file("server.py", server.as_bytes());
        stage.file("client.py", client.as_bytes());
        let server = stage.launch("python3").args(["server.py"]).start();
        let client = stage
            .launch("strace")
            .args(late.split(' '))
            .args(["python3", "client.py", how])
            .start();
        let client = client.finish(LONG);
        client.expect_ok(how);
        server.finish(LONG).expect_ok("server");
        let found = client.report.check_shm(1, 9);
        found.unwrap_or_else(|e| panic!("{how}: {e}"));
    }
}

#[test]
fn one_that_comes_before_listen_has_returned_is_attached() {
    let late = [
        "-e",
        "trace=listen",
        "-e",
        "inject=listen:delay_exit=100000",
    ];
    let words = [
        &["strace", "-f", "-o", "trace"],
        &late[..],
        &["python3", "server.py"],
    ];
    check(&words.concat());
}
