//! A server that takes its time: its kernel lets clients in, and its program accepts them seconds later. A client that by then
//! needs the bare connection waits for that, and loses nothing.

use super::{Scene, server};
use shunt_tests::apps::{LONG, have};

const PORT: u16 = 7300;

const SERVER: &str = r#"
import socket, sys, time
l = socket.create_server((sys.argv[1], int(sys.argv[2])))
time.sleep(5)
c, _ = l.accept()
got = b""
while more := c.recv(1000): got += more
c.sendall(b"had " + got)
c.close()
"#;

const CLIENT: &str = r#"
import array, os, socket, sys
how, rest = sys.argv[3], "import socket, sys; s = socket.socket(fileno=int(sys.argv[1])); " \
    "s.sendall(b'after'); s.shutdown(socket.SHUT_WR); print(s.recv(100).decode())"
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(b"before, ")
os.set_inheritable(s.fileno(), True)
words = [sys.executable, "-c", rest, str(s.fileno())]
if how == "exec": os.execv(words[0], words)
if how == "spawn":
    s.set_inheritable(True)
    sys.exit(os.waitpid(os.posix_spawn(words[0], words, os.environ), 0)[1])
near, far = socket.socketpair()
if os.fork():
    near.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [s.fileno()]))])
    s.close()
    sys.exit(os.wait()[1])
s.close()
_, fds, _, _ = socket.recv_fds(far, 1, 1)
os.set_inheritable(fds[0], True)
words[-1] = str(fds[0])
os.execv(words[0], words)
"#;

#[test]
fn a_connection_goes_on_elsewhere_before_it_was_accepted() {
    if !have(&["python3"]) {
        return;
    }
    for how in ["exec", "spawn", "pass"] {
        let Some(mut scene) = Scene::new("off") else {
            return;
        };
        let (to, port) = (server(), PORT.to_string());
        scene.stage.file("server.py", SERVER.as_bytes());
        scene.stage.file("client.py", CLIENT.as_bytes());
        let start = scene.launch("python3").args(["server.py", &to, &port]);
        let job = scene.serve(start, PORT);
        let start = scene.launch("python3").args(["client.py", &to, &port, how]);
        let client = scene.client(start, how);
        assert_eq!(client.stdout, "had before, after\n", "{how}");
        let done = job.finish(LONG);
        done.expect_ok(how);
        // (it was asked for iWARP, and was told then that the connection goes back to the kernel)
        let told = done.report.summary();
        let mut all = done.report.connections();
        assert!(
            all.any(|c| c.transport == "iwarp" && !c.demotions.is_empty()),
            "{how}: {told}"
        );
    }
}
