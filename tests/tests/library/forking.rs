//! A server with a child for each connection, which closes the listener first, and clients that come at once: the notice of each
//! is taken from the board by whichever process looks, and has to reach the one that serves that client.

use shunt_tests::apps::{LONG, Stage, have};

const SERVER: &str = r#"
import os, signal, socket
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
l = socket.create_server(("127.0.0.1", 0), backlog=64)
with open("port.new", "w") as f: f.write(str(l.getsockname()[1]))
os.rename("port.new", "port")
left = 40
while left:
    c, _ = l.accept()
    left -= 1
    if not os.fork():
        l.close()
        while c.recv(3, socket.MSG_WAITALL): c.sendall(b"answer")
        os._exit(0)
    c.close()
"#;

/// Eight connections at a time, by threads or by processes.
const CLIENT: &str = r#"
import os, socket, sys, threading, time
while not os.path.exists("port"): time.sleep(0.005)
at = ("127.0.0.1", int(open("port").read()))
def go():
    s = socket.create_connection(at)
    for i in range(40):
        s.sendall(b"ask"); assert s.recv(6, socket.MSG_WAITALL) == b"answer"
        time.sleep(0.005) # (a notice that got lost is repeated, not at once)
def threads():
    all = [threading.Thread(target=go) for i in range(8)]
    for t in all: t.start()
    for t in all: t.join()
def processes():
    children = []
    for i in range(8):
        child = os.fork()
        if not child:
            go(); os._exit(0)
        children.append(child)
    for child in children: assert os.waitpid(child, 0)[1] == 0
for turn in range(5): globals()[sys.argv[1]]()
"#;

#[test]
fn every_client_is_heard_of_by_the_child_that_serves_it() {
    if !have(&["python3"]) {
        return;
    }
    for kind in ["threads", "processes"] {
        let mut stage = Stage::new(true);
        stage.file("server.py", SERVER.as_bytes());
        stage.file("client.py", CLIENT.as_bytes());
        let server = stage.launch("python3").args(["server.py"]).start();
        let client = stage.launch("python3").args(["client.py", kind]).start();
        let client = client.finish(LONG);
        client.expect_ok(kind);
        server.finish(LONG).expect_ok("server");
        client
            .report
            .check_shm(40, 40 * 40 * 9)
            .unwrap_or_else(|e| panic!("{kind}: {e}"));
    }
}
