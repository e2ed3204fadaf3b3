//! Programs that become others. nginx replaces its own program while it is asked: the new one takes over the listener by exec, old and
//! new serve side by side, and no request fails. Connections that are closed on the way end as kernel TCP's do.

use shunt_tests::apps::{LONG, Stage, find, free_port, have, is_root, twice};
use shunt_tests::run::Job;
use shunt_tests::side::Random;
use shunt_tests::sys::{proc, wait};

/// nginx ignores the order while it has the parent that it was started by, which therefore ends once it
/// runs; the shell stays, as the one that the test waits for.
fn nginx(stage: &mut Stage, port: u16) -> Job {
    stage.file("www/small", b"small\n");
    stage.file("www/large", &Random::new(9).bytes(4 << 20));
    let folder = stage.folder.path("");
    let folder = folder.display();
    let config = format!(
        "user nobody nogroup; daemon off; worker_processes 2; pid {folder}/pid; error_log stderr error;
        events {{ worker_connections 256; }}
        http {{
            access_log off; keepalive_timeout 60;
            client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2;
            fastcgi_temp_path {folder}/t3; uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
            server {{ listen 127.0.0.1:{port}; root {folder}/www; }}
        }}"
    );
    stage.file("nginx.conf", config.as_bytes());
    let script = format!(
        "({} -e stderr -c {folder}/nginx.conf & until [ -s pid ]; do sleep 0.02; done); read forever <wait",
        find("nginx").unwrap().display()
    );
    let made = stage.plain("mkfifo").args(["wait"]).start().finish(LONG);
    made.expect_ok("mkfifo");
    let start = stage.launch("bash").args(["-c", &script]);
    stage.serve(start, port)
}

fn master(stage: &Stage, file: &str) -> Option<i32> {
    let text = std::fs::read_to_string(stage.folder.path(file)).ok()?;
    text.trim().parse().ok()
}

fn gone(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

/// Asks without a pause until the file `enough` is there; meanwhile one large answer is read slowly, and
/// one connection is held that was made before.
const LOAD: &str = r#"
import hashlib, http.client, os, socket, sys, threading, time
port = int(sys.argv[1])
count, failed = [0] * 3, []
def fetch(path, slowly=False):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    c.request("GET", path, headers={"Connection": "close"})
    r = c.getresponse()
    assert r.status == 200, r.status
    got = b""
    while part := r.read(40000):
        got += part
        if slowly and not os.path.exists("enough"):
            time.sleep(0.02)
    c.close()
    return got
def ask(i):
    while not os.path.exists("enough"):
        try:
            assert fetch("/small") == b"small\n"
            count[i] += 1
            if count[i] == 20:
                open(f"warm{i}", "w")
        except Exception as e:
            failed.append(repr(e))
def slow():
    try:
        print("large", hashlib.sha256(fetch("/large", True)).hexdigest())
    except Exception as e:
        failed.append("large: " + repr(e))
threads = [threading.Thread(target=ask, args=(i,)) for i in range(3)]
threads.append(threading.Thread(target=slow))
for t in threads: t.start()
for t in threads: t.join()
print("failed", failed, "enough", min(count) > 40)
"#;

/// Many requests on one connection: to whoever serves now.
const KEPT: &str = r#"
import http.client, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=30)
for i in range(100):
    c.request("GET", "/small")
    assert c.getresponse().read() == b"small\n"
c.request("GET", "/large")
print(len(c.getresponse().read()))
"#;

#[test]
fn nginx_binary_upgrade() {
    if !have(&["nginx", "python3"]) || !is_root() {
        return;
    }
    twice(|stage| {
        let port = free_port();
        let text = port.to_string();
        let shell = nginx(stage, port);
        stage.file("load.py", LOAD.as_bytes());
        stage.file("kept.py", KEPT.as_bytes());
        let start = stage.launch("python3").args(["kept.py", &text]);
        let before = stage.client(start, "before");
        stage.assert_shm("before", &before.report, 1, 4 << 20);
        let load = stage.launch("python3").args(["load.py", &text]).start();
        let warm = |n: u32| {
            move |s: &Stage| (0..3).all(|i| s.folder.path(&format!("warm{i}")).exists()) || n == 0
        };
        assert!(
            wait::eventually(|| warm(1)(stage)),
            "the load does not begin"
        );

        let old = master(stage, "pid").unwrap();
        proc::kill(old, libc::SIGUSR2).ok();
        let both = || master(stage, "pid.oldbin") == Some(old) && master(stage, "pid").is_some();
        assert!(wait::eventually(both), "no new program");
        let new = master(stage, "pid").unwrap();
        assert_ne!(old, new);
        // Old and new side by side, then the old one's workers go, then its master.
        std::thread::sleep(wait::millis(300));
        proc::kill(old, libc::SIGWINCH).ok();
        std::thread::sleep(wait::millis(300));
        stage.file("enough", b"");
        let end = load.finish(LONG);
        end.expect_ok("load");
        proc::kill(old, libc::SIGQUIT).ok();
        assert!(wait::eventually(|| gone(old)), "the old master stays");

        let start = stage.launch("python3").args(["kept.py", &text]);
        let after = stage.client(start, "after");
        proc::kill(new, libc::SIGQUIT).ok();
        assert!(wait::eventually(|| gone(new)), "the new master stays");
        shell.stop(libc::SIGTERM);
        // (the first connections to the new one: who made them has not left it a notice yet)
        let reasons = [
            "peer_plain",
            "undecided",
            "peer_gone",
            "peer_silent",
            "peer_demoted",
            "exec",
        ];
        stage.assert_path("load", &end.report, 100, &reasons);
        stage.assert_shm("after", &after.report, 1, 4 << 20);
        end.stdout + &before.stdout + &after.stdout
    });
}

/// A client that talks, becomes another program, and so closes its connection: again and again, as what the peer's bells have left in
/// the kernel then is a matter of moments.
const BECOMES_ANOTHER: &str = r#"
import os, socket, sys
port, left = int(sys.argv[1]), int(sys.argv[2])
c = socket.create_connection(("127.0.0.1", port))
for _ in range(50):
    c.sendall(b"x" * 100)
    c.recv(3)
c.recv(3)
c.sendall(b"y" * 5000)
if left > 1:
    os.execv(sys.executable, [sys.executable, sys.argv[0], str(port), str(left - 1)])
os.execv("/bin/true", ["true"])
"#;
const HEARS_THE_END: &str = r#"
import socket, sys, time
s = socket.socket()
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen(5)
for _ in range(int(sys.argv[2])):
    a, _ = s.accept()
    for _ in range(50):
        got = 0
        while got < 100:
            got += len(a.recv(100))
        a.sendall(b"abc")
    time.sleep(0.02)
    a.sendall(b"abc")
    got = 0
    while part := a.recv(65536):
        got += len(part)
    assert got == 5000, got
    a.close()
print("heard")
"#;

/// Programs that close their connections by becoming other ones: the peer reads an end, not a reset.
#[test]
fn python_closes_by_exec() {
    if have(&["python3"]) {
        twice(|stage| {
            stage.file("client.py", BECOMES_ANOTHER.as_bytes());
            stage.file("server.py", HEARS_THE_END.as_bytes());
            let port = free_port();
            let (text, times) = (port.to_string(), "30");
            let start = stage.launch("python3").args(["server.py", &text, times]);
            let server = stage.serve(start, port);
            let start = stage.launch("python3").args(["client.py", &text, times]);
            stage.client(start, "client");
            let end = server.finish(LONG);
            end.expect_ok("server");
            stage.assert_shm("server", &end.report, 30, 30 * 5000);
            end.stdout
        });
    }
}
