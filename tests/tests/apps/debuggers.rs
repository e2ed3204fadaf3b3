//! gdb on a preloaded program: started by it, which has the library too, and attached under traffic.

use shunt_tests::apps::{LONG, Stage, free_port, have, is_root, twice};
use shunt_tests::run::Outcome;

const SERVER: &str = r#"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int turns;
__attribute__((noinline)) int turn(int fd) {
    char buf[5000];
    long n = read(fd, buf, sizeof buf);
    for (long at = 0; at < n;) {
        long r = write(fd, buf + at, n - at);
        if (r < 0) return 0;
        at += r;
    }
    turns++;
    return n > 0;
}
int main(int argc, char **argv) {
    int one = 1, lis = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = { AF_INET, htons(atoi(argv[1])), { htonl(INADDR_LOOPBACK) } };
    setsockopt(lis, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(lis, (void *)&at, sizeof at) || listen(lis, 5)) return 1;
    int fd = accept(lis, 0, 0);
    while (turn(fd)) ;
    puts("served");
    return 0;
}
"#;

const CLIENT: &str = r#"
import hashlib, os, socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
mark = hashlib.sha256()
def talk(i):
    data = bytes((i * 7 + j) % 253 for j in range(1 + i % 4000))
    s.sendall(data)
    got = b""
    while len(got) < len(data):
        part = s.recv(len(data) - len(got))
        assert part
        got += part
    assert got == data
for i in range(3000):
    talk(i)
if len(sys.argv) > 2:
    open("warm", "w")
    while not os.path.exists("enough"):
        talk(1)
s.shutdown(socket.SHUT_WR)
print(s.recv(1))
"#;

fn build(stage: &Stage) {
    stage.file("server.c", SERVER.as_bytes());
    stage.file("client.py", CLIENT.as_bytes());
    let words = ["-g", "-O1", "-o", "server", "server.c"];
    stage
        .plain("gcc")
        .args(words)
        .start()
        .finish(LONG)
        .expect_ok("gcc");
}

fn has(outcome: &Outcome, what: &str) -> bool {
    assert!(outcome.stdout.contains(what), "no {what:?}: {outcome:?}");
    true
}

#[test]
fn gdb_starts_a_program() {
    if have(&["gdb", "gcc", "python3"]) {
        twice(|stage| {
            build(stage);
            let port = free_port();
            let text = port.to_string();
            let commands = [
                "set pagination off",
                "set confirm off",
                "break main",
                &format!("run {port}"),
                "tbreak turn if turns == 1500",
                "continue",
                "print turns",
                "finish",
                "stepi",
                "continue",
            ];
            let mut start = stage.launch("gdb").args(["-nx", "-batch"]);
            for command in commands {
                start = start.args(["-ex", command]);
            }
            let server = stage.serve(start.args(["server"]), port);
            let start = stage.launch("python3").args(["client.py", &text]);
            let client = stage.client(start, "client");
            let end = server.finish(LONG);
            end.expect_ok("gdb");
            has(&end, "$1 = 1500");
            has(&end, "served");
            has(&end, "exited normally");
            stage.assert_shm("client", &client.report, 1, 1 << 20);
            stage.assert_shm("server under gdb", &end.report, 1, 1 << 20);
            client.stdout
        });
    }
}

#[test]
fn gdb_attaches_under_traffic() {
    if have(&["gdb", "gcc", "python3"]) && is_root() {
        twice(|stage| {
            build(stage);
            let port = free_port();
            let text = port.to_string();
            let program = stage.folder.path("server");
            let start = stage.launch(program.to_str().unwrap()).args([&text]);
            let server = stage.serve(start, port);
            let words = ["client.py", &text, "on"];
            let client = stage.launch("python3").args(words).start();
            let warm = stage.folder.path("warm");
            assert!(shunt_tests::sys::wait::eventually(|| warm.exists()));
            let pid = server.pid().to_string();
            for _ in 0..3 {
                let words = [
                    "-nx",
                    "-batch",
                    "-p",
                    &pid,
                    "-ex",
                    "bt",
                    "-ex",
                    "break turn",
                ];
                let more = ["-ex", "continue", "-ex", "delete", "-ex", "detach"];
                let gdb = stage
                    .plain("gdb")
                    .args(words)
                    .args(more)
                    .start()
                    .finish(LONG);
                gdb.expect_ok("gdb");
                has(&gdb, "turn");
            }
            stage.file("enough", b"");
            let client = client.finish(LONG);
            client.expect_ok("client");
            let end = server.finish(LONG);
            end.expect_ok("server");
            stage.assert_shm("client", &client.report, 1, 1 << 20);
            stage.assert_shm("server", &end.report, 1, 1 << 20);
            client.stdout + &end.stdout
        });
    }
}
