//! redis and memcached: event loops with many small requests.

use shunt_tests::apps::{Stage, digest, free_port, have, twice};
use shunt_tests::run::Job;
use std::fmt::Write as _;

fn redis(stage: &mut Stage, port: u16) -> Job {
    let text = port.to_string();
    let words = [
        "--port",
        &text,
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--daemonize",
        "no",
    ];
    let start = stage.launch("redis-server").args(words);
    stage.serve(start, port)
}

#[test]
fn redis_cli() {
    if have(&["redis-server", "redis-cli"]) {
        twice(|stage| {
            let port = free_port();
            let server = redis(stage, port);
            let mut commands = String::new();
            for i in 0..200 {
                let _ = writeln!(
                    commands,
                    "set key:{i} value-{}\nget key:{i}\nincr count",
                    i * i
                );
                let _ = writeln!(commands, "rpush list {i}");
            }
            let _ = writeln!(
                commands,
                "lrange list 0 -1\nset big {}\nget big",
                "x".repeat(300_000)
            );
            let input = stage.file("commands", commands.as_bytes());
            let start = stage
                .launch("redis-cli")
                .args(["-p", &port.to_string()])
                .input(&input);
            let client = stage.client(start, "redis-cli");
            stage.assert_shm("redis-cli", &client.report, 1, 600_000);
            let end = server.stop(libc::SIGTERM);
            end.expect_ok("redis-server");
            stage.assert_shm("redis-server", &end.report, 1, 600_000);
            client.stdout
        });
    }
}

#[test]
fn redis_benchmark() {
    if have(&["redis-server", "redis-benchmark"]) {
        twice(|stage| {
            let port = free_port();
            let server = redis(stage, port);
            for depth in ["1", "16"] {
                let words = [
                    "-p",
                    &port.to_string(),
                    "-n",
                    "20000",
                    "-c",
                    "50",
                    "-t",
                    "set,get",
                    "-P",
                    depth,
                    "-q",
                ];
                let start = stage.launch("redis-benchmark").args(words);
                let client = stage.client(start, "redis-benchmark");
                assert!(client.stdout.contains("GET:"), "{}", client.stdout);
                stage.assert_shm("redis-benchmark", &client.report, 50, 400_000);
            }
            let end = server.stop(libc::SIGTERM);
            end.expect_ok("redis-server");
            stage.assert_shm("redis-server", &end.report, 100, 800_000);
            String::new()
        });
    }
}

/// Clock ticks a process has used.
fn ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let words: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    words[11].parse::<u64>().unwrap() + words[12].parse::<u64>().unwrap()
}

/// A server with idle connections sleeps.
#[test]
fn redis_idle_uses_no_cpu() {
    if have(&["redis-server", "python3"]) {
        twice(|stage| {
            let port = free_port();
            let server = redis(stage, port);
            let script = stage.file("idle.py", IDLE.as_bytes());
            let start = stage
                .launch("python3")
                .args([script.as_os_str()])
                .env("PORT", port.to_string());
            let mut idle = start.start();
            let busy = shunt_tests::sys::wait::eventually(|| {
                stage.folder.path("ready").exists() || !idle.running()
            });
            assert!(busy && idle.running(), "the idle client ended");
            std::thread::sleep(std::time::Duration::from_millis(300));
            let before = ticks(server.pid()) + ticks(idle.pid());
            std::thread::sleep(std::time::Duration::from_secs(2));
            let used = ticks(server.pid()) + ticks(idle.pid()) - before;
            assert!(
                used <= 15,
                "{used} hundredths of a second of CPU in two idle seconds"
            );
            let end = idle.stop(libc::SIGTERM);
            stage.assert_shm("idle client", &end.report, 20, 1000);
            server.stop(libc::SIGTERM).expect_ok("redis-server");
            String::new()
        });
    }
}

const IDLE: &str = r#"
import os, socket, time
all = []
for i in range(20):
    s = socket.create_connection(("127.0.0.1", int(os.environ["PORT"])))
    for j in range(5):
        s.sendall(b"PING\r\n")
        assert s.recv(100) == b"+PONG\r\n"
    all.append(s)
open("ready", "w").close()
all[0].settimeout(50)
try:
    all[0].recv(1)
except TimeoutError:
    pass
"#;

#[test]
fn memcached() {
    if have(&["memcached", "python3"]) {
        twice(|stage| {
            let port = free_port();
            let text = port.to_string();
            let words = [
                "-u",
                "nobody",
                "-l",
                "127.0.0.1",
                "-p",
                &text,
                "-U",
                "0",
                "-t",
                "4",
            ];
            let start = stage.launch("memcached").args(words);
            let server = stage.serve(start, port);
            let script = stage.file("client.py", MEMCACHE.as_bytes());
            let start = stage
                .launch("python3")
                .args([script.as_os_str()])
                .env("PORT", &text);
            let client = stage.client(start, "memcached client");
            stage.assert_shm("memcached client", &client.report, 16, 1_000_000);
            let end = server.stop(libc::SIGTERM);
            stage.assert_shm("memcached", &end.report, 16, 1_000_000);
            client.stdout + &digest(&script)
        });
    }
}

const MEMCACHE: &str = r#"
import hashlib, os, socket, threading
seen = {}
def work(who):
    s = socket.create_connection(("127.0.0.1", int(os.environ["PORT"])))
    f = s.makefile("rb")
    mark = hashlib.sha256()
    for i in range(150):
        value = (b"%d-%d " % (who, i)) * (1 + i * 7 % 300)
        s.sendall(b"set k%d.%d 0 0 %d\r\n" % (who, i, len(value)) + value + b"\r\n")
        mark.update(f.readline())
        s.sendall(b"get k%d.%d k%d.%d\r\n" % (who, i, who, i // 2))
        for line in iter(f.readline, b"END\r\n"):
            mark.update(line)
    seen[who] = mark.hexdigest()
threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
for t in threads: t.start()
for t in threads: t.join()
for who in sorted(seen): print(who, seen[who])
"#;
