//! Servers whose processes share a listener or hand connections to one another: Apache's prefork, Python's
//! forking servers, multiprocessing with passed sockets, process pools.

use shunt_tests::apps::{LONG, Stage, digest, free_port, have, is_root, number_after, twice};
use shunt_tests::run::Job;
use shunt_tests::side::Random;

fn apache(stage: &mut Stage, port: u16) -> Job {
    stage.file("www/small", &[b'a'; 1024]);
    stage.file("www/large", &Random::new(8).bytes(10 << 20));
    let folder = stage.folder.path("");
    let folder = folder.display();
    let modules = "/usr/lib/apache2/modules";
    let config = format!(
        "ServerRoot {folder}\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {folder}/pid\n\
         DefaultRuntimeDir {folder}\nErrorLog /dev/stderr\nUser nobody\nGroup nogroup\n\
         LoadModule mpm_prefork_module {modules}/mod_mpm_prefork.so\n\
         LoadModule authz_core_module {modules}/mod_authz_core.so\n\
         StartServers 4\nMinSpareServers 4\nMaxRequestWorkers 20\nKeepAlive On\nMaxKeepAliveRequests 0\n\
         DocumentRoot {folder}/www\n<Directory {folder}/www>\nRequire all granted\n</Directory>\n"
    );
    let file = stage.file("apache.conf", config.as_bytes());
    let start = stage.launch("apache2").args(["-D", "FOREGROUND", "-f"]);
    stage.serve(start.args([file]), port)
}

#[test]
fn apache_prefork() {
    if have(&["apache2", "curl", "wrk"]) && is_root() {
        twice(|stage| {
            let port = free_port();
            let server = apache(stage, port);
            let (small, large) = (
                format!("http://127.0.0.1:{port}/small"),
                format!("http://127.0.0.1:{port}/large"),
            );
            let words = ["-sS", "--fail", "-o", "out", &large, "-o", "out2", &large];
            let start = stage.launch("curl").args(words);
            let curl = stage.client(start, "curl");
            stage.assert_shm("curl", &curl.report, 1, 10 << 20);
            let start = stage.launch("wrk").args(["-t1", "-c8", "-d1s", &small]);
            let wrk = stage.client(start, "wrk");
            assert!(
                number_after(&wrk.stdout, "Requests/sec:") > 100.0,
                "{}",
                wrk.stdout
            );
            for bad in ["Socket errors", "Non-2xx"] {
                assert!(!wrk.stdout.contains(bad), "{}", wrk.stdout);
            }
            stage.assert_shm("wrk", &wrk.report, 4, 1 << 17); // (in a second, however busy the machine is)
            let end = server.stop(libc::SIGTERM);
            end.expect_ok("apache2");
            stage.assert_shm("apache2", &end.report, 4, 10 << 20);
            digest(&stage.folder.path("out")) + &digest(&stage.folder.path("out2"))
        });
    }
}

/// A server from a script, and one client for all of them. At least so many connections are attached;
/// those that go back to the kernel do so for one of the reasons.
fn scene(stage: &mut Stage, server: &str, attached: u64, reasons: &[&str]) -> String {
    stage.file("server.py", format!("{SERVE}{server}").as_bytes());
    stage.file("client.py", CLIENT.as_bytes());
    let port = free_port();
    let text = port.to_string();
    let start = stage.launch("python3").args(["server.py", &text]);
    let server = stage.serve(start, port);
    let start = stage.launch("python3").args(["client.py", &text]);
    let client = stage.client(start, "client");
    let end = server.finish(LONG);
    end.expect_ok("server");
    let bytes = 100_000 * attached;
    stage.assert_shm_then("client", &client.report, attached, bytes, reasons);
    // (over iWARP a child declines whose parent, on a busy machine, still has the connection open)
    let over_iwarp: &[&str] = match shunt_tests::run::transport() {
        Some(_) => &["peer_plain", "declined"],
        None => &[],
    };
    let reasons = &[reasons, over_iwarp].concat();
    stage.assert_path("client", &client.report, 13, reasons);
    stage.assert_path("server", &end.report, 13, reasons);
    client.stdout + &end.stdout
}

/// Twelve connections, four at a time; lines and bulk; "stop" at last.
const CLIENT: &str = r#"
import concurrent.futures, hashlib, socket, sys
port = int(sys.argv[1])
def ask(n):
    s = socket.create_connection(("127.0.0.1", port))
    f = s.makefile("rb")
    seen = []
    for i in range(30):
        data = bytes((n + i * j) % 251 for j in range(1 + i * i * 20))
        s.sendall(b"%d\n" % len(data) + data)
        seen.append(f.readline())
        assert f.read(len(data)) == data[::-1]
    s.shutdown(socket.SHUT_WR)
    assert f.read() == b""
    return hashlib.sha256(b"".join(seen)).hexdigest()[:16]
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print(list(pool.map(ask, range(12))))
s = socket.create_connection(("127.0.0.1", port))
s.sendall(b"stop\n")
print(s.recv(10))
"#;

/// What a process does with a connection; true if it is the last.
const SERVE: &str = r#"
import hashlib, multiprocessing, os, socket, socketserver, sys
from multiprocessing import reduction
port = int(sys.argv[1])
def serve(s):
    f = s.makefile("rwb")
    while line := f.readline():
        if line == b"stop\n":
            return True
        data = f.read(int(line))
        f.write(hashlib.sha256(data).hexdigest().encode() + b"\n" + data[::-1])
        f.flush()
    return False
"#;

const FORKED: &[&str] = &[
    "forked",
    "by_holder",
    "peer_demoted",
    "undecided",
    "peer_gone",
    "peer_silent",
];
const PASSED: &[&str] = &[
    "passed",
    "forked",
    "by_holder",
    "exec",
    "peer_demoted",
    "peer_plain",
    "peer_went_round",
    "not_listened",
    "undecided",
    "peer_gone",
    "peer_silent",
];

/// [`scene`] plain and with the library, where there is a python.
fn python(server: &str, attached: u64, reasons: &[&str]) {
    if have(&["python3"]) {
        twice(|stage| scene(stage, server, attached, reasons));
    }
}

#[test]
fn python_forking_server() {
    python(
        r#"
class One(socketserver.BaseRequestHandler):
    def handle(self):
        if serve(self.request):
            os.kill(os.getppid(), 15)
class Server(socketserver.ForkingTCPServer):
    allow_reuse_address = True
import signal
signal.signal(15, lambda *_: sys.exit(0))
with Server(("127.0.0.1", port), One) as server:
    server.serve_forever()
"#,
        0,
        FORKED,
    );
}

/// The parent accepts and sends each connection to a worker over a pipe.
#[test]
fn python_send_handle() {
    python(
        r#"
def work(pipe):
    while True:
        s = socket.socket(fileno=reduction.recv_handle(pipe))
        last = serve(s)
        s.close()
        pipe.send(last)
if __name__ == "__main__":
    lis = socket.create_server(("127.0.0.1", port), backlog=20)
    workers = []
    for _ in range(3):
        ours, theirs = multiprocessing.Pipe()
        p = multiprocessing.Process(target=work, args=(theirs,), daemon=True)
        p.start()
        workers.append((ours, p))
    free = list(workers)
    last = False
    while not last:
        s, _ = lis.accept()
        if not free:
            ready = multiprocessing.connection.wait([w[0] for w in workers])
            free = [w for w in workers if w[0] in ready]
            last = any([w[0].recv() for w in free])
        w = free.pop()
        first = s.recv(1, socket.MSG_PEEK)
        reduction.send_handle(w[0], s.fileno(), w[1].pid)
        s.close()
        if first == b"s":
            last = True
    for w in workers:
        if w not in free:
            w[0].recv()
"#,
        12,
        PASSED,
    );
}

/// Sockets pickled into a pool whose workers are new programs.
#[test]
fn python_pickled_sockets() {
    python(
        r#"
def work(s):
    with s:
        return serve(s)
if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    lis = socket.create_server(("127.0.0.1", port), backlog=20)
    with multiprocessing.Pool(2) as pool:
        results = []
        while not any(r.ready() and r.get() for r in results):
            lis.settimeout(0.1)
            try:
                s, _ = lis.accept()
            except TimeoutError:
                continue
            s.setblocking(True)
            results.append(pool.apply_async(work, (s,)))
            del s
"#,
        0,
        PASSED,
    );
}

/// Workers that inherit the listener and accept for themselves: nothing is shared once accepted.
#[test]
fn python_process_pool() {
    python(
        r#"
import concurrent.futures
lis = socket.create_server(("127.0.0.1", port), backlog=20)
def work(_):
    while not over.is_set():
        lis.settimeout(0.1)
        try:
            s, _ = lis.accept()
        except TimeoutError:
            continue
        s.setblocking(True)
        with s:
            if serve(s):
                over.set()
    return "worked"
if __name__ == "__main__":
    over = multiprocessing.Event()
    with concurrent.futures.ProcessPoolExecutor(3) as pool:
        print(list(pool.map(work, range(3))))
"#,
        12,
        FORKED,
    );
}
