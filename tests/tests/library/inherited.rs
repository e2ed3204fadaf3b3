//! Servers whose listener another program has made, which does not run the library: left to them by exec, as systemd's sockets
//! are, by way of a shell; or passed to them by a message. It may have left it to them to listen.

use shunt_tests::apps::{LONG, Stage, have};

/// Listens without the library, and hands that on.
const MAKER: &str = r#"
import array, os, socket, sys
l = socket.socket()
l.bind(("127.0.0.1", 0))
if sys.argv[5] == "listens": l.listen(64)
l.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
with open("port.new", "w") as f: f.write(str(l.getsockname()[1]))
os.rename("port.new", "port")
if sys.argv[2] == "exec":
    os.dup2(l.fileno(), 3)
else:
    ours, theirs = socket.socketpair()
    socket.send_fds(ours, [b"x"], [l.fileno()])
    os.dup2(theirs.fileno(), 3)
os.set_inheritable(3, True)
env = dict(os.environ, LD_PRELOAD=sys.argv[1], SHUNT_REPORT=sys.argv[3])
os.execvpe("sh", ["sh", "-c", "true; exec python3 server.py " + " ".join(sys.argv[2:])], env)
"#;

/// Serves until a client says that it was the last, alone or by children that share the listener.
const SERVER: &str = r#"
import os, select, signal, socket, sys
if sys.argv[1] == "exec":
    l = socket.socket(fileno=3)
else:
    l = socket.socket(fileno=socket.recv_fds(socket.socket(fileno=3), 1, 1)[1][0])
if sys.argv[4] == "bound": l.listen(64)
def serve():
    l.setblocking(False)
    ready = select.epoll()
    ready.register(l, select.EPOLLIN)
    while True:
        ready.poll()
        try: c, _ = l.accept()
        except BlockingIOError: continue
        c.setblocking(True)
        while word := c.recv(3, socket.MSG_WAITALL):
            if word == b"end": sys.exit(0)
            c.sendall(b"answer")
if sys.argv[3] == "alone":
    serve()
children = []
for i in range(2):
    child = os.fork()
    if not child: serve()
    children.append(child)
for child in children: os.waitpid(child, 0)
"#;

const CLIENT: &str = r#"
import os, socket, sys, time
while not os.path.exists("port"): time.sleep(0.005)
def connect():
    while True:
        try: return socket.create_connection(("127.0.0.1", int(open("port").read())))
        except ConnectionRefusedError: time.sleep(0.005)
def ask(s):
    s.sendall(b"ask"); assert s.recv(6, socket.MSG_WAITALL) == b"answer"
ask(connect()) # it serves
time.sleep(0.5) # (what was found before that is believed for a quarter of a second)
for i in range(20):
    s = connect()
    for k in range(50): ask(s)
    s.close()
for i in range(int(sys.argv[1])):
    s = connect(); s.sendall(b"end"); assert s.recv(1) == b""
"#;

#[test]
fn a_listener_that_was_left_to_the_program_is_one_like_any_other() {
    if !have(&["python3"]) {
        return;
    }
    let ways = ["exec", "message"].map(|way| [(way, "listens"), (way, "bound")]);
    for (way, left) in ways.into_iter().flatten() {
        for (who, ends) in [("alone", "1"), ("children", "2")] {
            let mut stage = Stage::new(true);
            for (name, text) in [
                ("maker.py", MAKER),
                ("server.py", SERVER),
                ("client.py", CLIENT),
            ] {
                stage.file(name, text.as_bytes());
            }
            let library = stage.folder.path("libshunt.so");
            let library = library.to_string_lossy();
            let words = ["maker.py", &library, way, "report", who, left];
            let server = stage.plain("python3").args(words).start();
            let client = stage.launch("python3").args(["client.py", ends]).start();
            let client = client.finish(LONG);
            client.expect_ok(way);
            server.finish(LONG).expect_ok("server");
            // (the first may have come before there was a board)
            client
                .report
                .check_shm(20, 20 * 50 * 9)
                .unwrap_or_else(|e| panic!("{way}, {left}, {who}: {e}"));
        }
    }
}
