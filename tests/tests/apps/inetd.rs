//! Programs that get a connection as their standard input and output: by socat, by inetd.

use shunt_tests::apps::{LONG, Stage, digest, find, free_port, have, twice};
use shunt_tests::run::Job;
use shunt_tests::side::Random;

/// Reads and writes by every way that such a program has, and then ends.
const FILTER: &str = r#"
import os, socket, sys
os.write(1, b"by write\n")
sys.stdout.write("by a file\n")
sys.stdout.flush()
s = socket.socket(fileno=os.dup(0))
s.sendall(b"by a socket %s\n" % s.getsockname()[0].encode())
print(sys.stdin.readline().strip()[::-1], flush=True)
os.system("echo by a shell; head -n 1 | tr a-z A-Z")
for line in sys.stdin:
    print(len(line), flush=True)
print("end")
"#;

/// The script reads unbuffered, so that the shell it starts finds the second line.
const ASK: &str = r#"
import socket, sys, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
f = s.makefile("rb", buffering=0)
for _ in range(3):
    print(f.readline())
s.sendall(b"turn round\n")
print(f.readline())
print(f.readline())
s.sendall(b"to the shell\n")
print(f.readline())
for i in range(0, 200, 10):
    s.sendall(b"x" * i + b"\n")
    print(f.readline())
s.shutdown(socket.SHUT_WR)
print(f.readline(), f.readline())
"#;

const UNBUFFERED: &str = r#"
import io, os, sys
class Bytewise(io.RawIOBase):
    def readable(self): return True
    def readinto(self, room):
        got = os.read(0, 1)
        room[:len(got)] = got
        return len(got)
sys.stdin = io.TextIOWrapper(io.BufferedReader(Bytewise(), 1))
"#;

/// The reasons that a stream handed to another program may have.
const HANDED: &[&str] = &[
    "exec",
    "forked",
    "by_holder",
    "stdio",
    "passed",
    "undecided",
    "peer_demoted",
    "peer_plain",
    "peer_gone",
    "peer_silent",
    "peer_went_round",
];

fn files(stage: &Stage) {
    stage.file("filter.py", format!("{UNBUFFERED}{FILTER}").as_bytes());
    stage.file("ask.py", ASK.as_bytes());
    stage.file("in", &Random::new(6).bytes(1 << 20));
}

/// A conversation with the filter on one port, then bytes through `cat` on another, four at once.
fn talk(stage: &mut Stage, server: Job, filter: u16, cat: u16) -> String {
    let text = filter.to_string();
    let start = stage.launch("python3").args(["ask.py", &text]);
    let asked = stage.client(start, "ask");
    stage.assert_path("ask", &asked.report, 1, HANDED);
    let mut seen = asked.stdout;
    let to = format!("TCP:127.0.0.1:{cat}");
    let input = stage.folder.path("in");
    let mut jobs = Vec::new();
    for i in 0..4 {
        let words = ["-t", "20", &format!("STDIN!!CREATE:out{i}"), &to];
        jobs.push(stage.launch("socat").args(words).input(&input).start());
    }
    for (i, job) in jobs.into_iter().enumerate() {
        let end = job.finish(LONG);
        end.expect_ok("cat");
        stage.assert_path("cat", &end.report, 1, HANDED);
        seen += &digest(&stage.folder.path(&format!("out{i}")));
    }
    let end = server.stop(libc::SIGTERM);
    stage.assert_path("server", &end.report, 0, HANDED);
    seen
}

fn listen(port: u16) -> String {
    format!("TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork")
}

/// socat that becomes the program itself, with the connection as 0 and 1.
#[test]
fn socat_nofork() {
    if have(&["socat", "python3"]) {
        twice(|stage| {
            files(stage);
            let (filter, cat) = (free_port(), free_port());
            let python = find("python3").unwrap();
            let start = stage
                .launch("socat")
                .args([listen(cat), "EXEC:/bin/cat,nofork".into()]);
            let other = stage.serve(start, cat);
            let program = format!("EXEC:'{} filter.py',nofork", python.display());
            let start = stage.launch("socat").args([listen(filter), program]);
            let server = stage.serve(start, filter);
            let seen = talk(stage, server, filter, cat);
            let end = other.stop(libc::SIGTERM);
            stage.assert_path("other server", &end.report, 0, HANDED);
            seen
        });
    }
}

#[test]
fn openbsd_inetd() {
    if have(&["inetd", "socat", "python3"]) {
        twice(|stage| {
            files(stage);
            let (filter, cat) = (free_port(), free_port());
            let name = String::from_utf8(
                std::process::Command::new("id")
                    .arg("-un")
                    .output()
                    .unwrap()
                    .stdout,
            );
            let (name, python) = (name.unwrap(), find("python3").unwrap());
            let (user, python) = (name.trim(), python.display());
            let folder = stage.folder.path("");
            let config = format!(
                "127.0.0.1:{cat} stream tcp nowait {user} /bin/cat cat\n\
                 127.0.0.1:{filter} stream tcp nowait {user} {python} python3 {}/filter.py\n",
                folder.display()
            );
            let config = stage.file("inetd.conf", config.as_bytes());
            let start = stage.launch("inetd").args(["-i"]).args([config]);
            let server = stage.serve(start, filter);
            assert!(shunt_tests::sys::wait::eventually(|| {
                shunt_tests::apps::listening(cat)
            }));
            talk(stage, server, filter, cat)
        });
    }
}
