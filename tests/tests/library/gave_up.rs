//! A client that gives a connection up before it has offered it: the server must not go on looking for that offer, or it would
//! take everybody without the library for somebody who is about to make one.

use shunt_tests::apps::{LONG, Stage, have};

const SERVER: &str = r#"
import os, socket
l = socket.create_server(("127.0.0.1", 0))
with open("port.new", "w") as f: f.write(str(l.getsockname()[1]))
os.rename("port.new", "port")
held = []
for i in range(2):
    c, _ = l.accept()
    held.append(c)
    assert c.recv(5, socket.MSG_WAITALL) == b"hello"
    c.sendall(b"answr")
held[1].recv(1)
"#;

/// Asks for a mark that only the kernel can keep, so that there is nothing to offer; or is plain.
const CLIENT: &str = r#"
import os, socket, sys, time
def wait(name):
    while not os.path.exists(name): time.sleep(0.005)
me = sys.argv[1]
wait("port" if me == "marked" else "marked")
s = socket.create_connection(("127.0.0.1", int(open("port").read())))
if me == "marked": s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 5)
s.sendall(b"hello")
assert s.recv(5, socket.MSG_WAITALL) == b"answr"
open(me, "w").close()
if me == "marked": wait("plain")
"#;

#[test]
fn nobody_looks_for_what_will_not_be_offered() {
    if !have(&["python3"]) {
        return;
    }
    let mut stage = Stage::new(true);
    stage.file("server.py", SERVER.as_bytes());
    stage.file("client.py", CLIENT.as_bytes());
    let server = stage.launch("python3").args(["server.py"]).start();
    let marked = stage
        .launch("python3")
        .args(["client.py", "marked"])
        .start();
    let plain = stage
        .launch("python3")
        .args(["client.py", "plain"])
        .env("SHUNT_TRANSPORT", "tcp")
        .start();
    let outcomes = [server, marked, plain].map(|program| {
        let outcome = program.finish(LONG);
        outcome.expect_ok("a program");
        outcome
    });
    let reasons = outcomes.iter().map(|outcome| {
        let of = |c: &shunt_tests::report::Connection| c.reason.clone().unwrap_or_default();
        outcome.report.connections().map(of).collect::<Vec<_>>()
    });
    let reasons: Vec<_> = reasons.collect();
    assert_eq!(reasons[0], ["peer_plain", "peer_plain"]);
    assert_eq!(reasons[1], ["socket_option"]);
    assert_eq!(reasons[2], ["transport_tcp"]);
}
