//! A program in a sandbox that starts another: the child borrows its memory (vfork), and closes descriptors of its own only.

use shunt_tests::apps::{LONG, Stage, have};

/// It limits itself by a filter that allows everything, with bytes unread, and starts a program before it reads them.
const PROGRAM: &str = r#"
import ctypes, os, socket, struct, subprocess, time
libc = ctypes.CDLL(None)
lis = socket.create_server(("127.0.0.1", 0))
s = socket.create_connection(lis.getsockname())
c, _ = lis.accept()
for i in range(10):
    s.sendall(b"ping")
    assert c.recv(4, socket.MSG_WAITALL) == b"ping"
    c.sendall(b"pong")
    assert s.recv(4, socket.MSG_WAITALL) == b"pong"
s.sendall(b"u" * 1000)
NO_NEW_PRIVS, SECCOMP, FILTER, ALLOW = 38, 22, 2, 0x7fff0000
step = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, ALLOW))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(step)))
assert libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(SECCOMP, FILTER, ctypes.c_void_p(ctypes.addressof(program)), 0, 0) == 0
assert subprocess.run(["true"], close_fds=True).returncode == 0
s.sendall(b"v" * 1000)
c.settimeout(20)
assert c.recv(2000, socket.MSG_WAITALL) == b"u" * 1000 + b"v" * 1000
print("well")
"#;

#[test]
fn a_program_that_a_sandboxed_one_starts_takes_nothing_from_it() {
    if !have(&["python3"]) {
        return;
    }
    let mut stage = Stage::new(true);
    let script = stage.file("sandboxed.py", PROGRAM.as_bytes());
    let start = stage.launch("python3").args([script]);
    let outcome = start.start().finish(LONG);
    outcome.expect_ok("sandboxed.py");
    assert_eq!(outcome.stdout, "well\n");
    let all: Vec<_> = outcome.report.connections().collect();
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(
        all.iter()
            .all(|c| c.transport == "shm" && c.demotions == ["seccomp"]),
        "{all:?}"
    );
}
