//! A server that does something to itself in the middle of a connection: leaves its root, its user, its
//! namespaces, its terminal, hands the descriptor to another program, or is looked at by a debugger.
//!
//! The client talks before, then has the server act, then talks on; then it connects once more.

use shunt_tests::apps::{LONG, Stage, find, free_port, have, is_root, twice};
use shunt_tests::report::Report;
use shunt_tests::run::{Job, Launch};

/// Requests are a length and bytes, answers the bytes backwards. Length 0: act, then say so.
const SERVER: &str = r#"
import ctypes, os, socket, subprocess, sys
act, port = sys.argv[1], int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
def exactly(s, n):
    got = b""
    while len(got) < n:
        part = s.recv(n - len(got))
        if not part:
            return None
        got += part
    return got
def checked(r):
    return r if r >= 0 else os.strerror(ctypes.get_errno())
def child(s, how):
    # A program without the library writes to the connection and reads from it.
    words = ["./child", str(s.fileno())]
    s.set_inheritable(True)
    if how == "fork":
        pid = os.fork()
        if pid == 0:
            os.execv(words[0], words)
        return os.waitpid(pid, 0)[1]
    if how == "spawn":
        pid = os.posix_spawn(words[0], words, {})
        return os.waitpid(pid, 0)[1]
    if how == "clean":
        return subprocess.run(words, close_fds=False, env={}).returncode
    return subprocess.run(words, pass_fds=[s.fileno()]).returncode
def do(s):
    if act == "chroot":
        os.chroot("jail")
        os.chdir("/")
        return os.listdir("/")
    if act == "setuid":
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        return os.getuid()
    if act == "unshare_net":
        return checked(libc.unshare(0x40000000))
    if act == "unshare_most":
        # mount, UTS, IPC, cgroup, file system, files
        return checked(libc.unshare(0x20000 | 0x4000000 | 0x8000000 | 0x2000000 | 0x200 | 0x400))
    if act == "setns":
        own = os.open("/proc/self/ns/net", os.O_RDONLY)
        return checked(libc.unshare(0x40000000)), checked(libc.setns(own, 0))
    if act == "daemon":
        return checked(libc.daemon(1, 1)), os.getsid(0) == os.getpid()
    if act.startswith("child_"):
        return child(s, act[6:])
lis = socket.create_server(("127.0.0.1", port))
for _ in range(2):
    s, _ = lis.accept()
    while head := exactly(s, 4):
        n = int.from_bytes(head, "big")
        s.sendall(exactly(s, n)[::-1] if n else b"acted %r\n" % (do(s),))
    s.close()
"#;

const CLIENT: &str = r#"
import hashlib, socket, sys
port = int(sys.argv[1])
s = None
def exactly(n):
    got = b""
    while len(got) < n:
        part = s.recv(n - len(got))
        assert part, ("ended after", got[-100:])
        got += part
    return got
def line():
    got = b""
    while not got.endswith(b"\n"):
        got += exactly(1)
    return got
def talk(rounds):
    mark = hashlib.sha256()
    for i in range(rounds):
        data = bytes((i * 7 + j) % 253 for j in range(i * i * 17))
        s.sendall(len(data).to_bytes(4, "big") + data if data else b"\0\0\0\1x")
        back = exactly(len(data) or 1)
        assert back == (data[::-1] or b"x")
        mark.update(back)
    print(mark.hexdigest()[:16], flush=True)
s = socket.create_connection(("127.0.0.1", port))
talk(40)
s.sendall(b"\0\0\0\0")
said = line()
if said == b"child\n":
    for i in range(20000):
        assert line() == b"line %d of the child\n" % i, i
    print("all lines of the child")
    s.sendall(b"heard\n")
    said = line()
print(said)
talk(40)
s.close()
s = socket.create_connection(("127.0.0.1", port))
talk(40)
s.shutdown(socket.SHUT_WR)
print(s.recv(10))
"#;

/// Linked without anything that could be interposed, not even a C library.
const CHILD: &str = r#"
static long call(long nr, long a, const void *b, long c) {
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(nr), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}
static int fd;
static void put(const char *s, long n) {
    while (n > 0) {
        long r = call(1, fd, s, n);
        if (r < 0) call(231, 9, 0, 0);
        s += r, n -= r;
    }
}
static int words(int argc, char **argv) {
    if (argc != 2) return 8;
    fd = 0;
    for (char *p = argv[1]; *p; p++) fd = fd * 10 + *p - '0';
    put("child\n", 6);
    for (int i = 0; i < 20000; i++) {
        char text[40] = "line ";
        int n = 5, digits = 1;
        for (int k = i; k >= 10; k /= 10) digits++;
        for (int k = i, d = digits; d-- > 0; k /= 10) text[n + d] = '0' + k % 10;
        n += digits;
        for (const char *p = " of the child\n"; *p; p++) text[n++] = *p;
        put(text, n);
    }
    char heard[6];
    for (long got = 0; got < 6;) {
        long r = call(0, fd, heard + got, 6 - got);
        if (r <= 0) return 7;
        got += r;
    }
    return heard[0] == 'h' && heard[5] == '\n' ? 0 : 6;
}
ENTRY
"#;

/// Compiles the child: a static program of the C library, or one without any.
fn build_child(stage: &Stage, bare: bool) {
    let entry = if bare {
        "__asm__(\".globl _start\\n_start:\\n mov (%rsp),%edi\\n lea 8(%rsp),%rsi\\n and $-16,%rsp\\n\
         call go\\n\");\nvoid go(int argc, char **argv) { call(231, words(argc, argv), 0, 0); }"
    } else {
        "int main(int argc, char **argv) { return words(argc, argv); }"
    };
    stage.file("child.c", CHILD.replace("ENTRY", entry).as_bytes());
    let words: &[&str] = if bare {
        &["-nostdlib", "-fno-builtin", "-fno-stack-protector"]
    } else {
        &[]
    };
    let start = stage
        .plain("gcc")
        .args(["-O1", "-static", "-o", "child", "child.c"]);
    start.args(words).start().finish(LONG).expect_ok("gcc");
}

fn serve(stage: &mut Stage, act: &str, port: u16, through: &[&str]) -> Job {
    stage.file("server.py", SERVER.as_bytes());
    stage.file("client.py", CLIENT.as_bytes());
    std::fs::create_dir_all(stage.folder.path("jail/empty")).unwrap();
    let python = find("python3").unwrap();
    let start = match through {
        [] => stage.launch("python3"),
        [tool, words @ ..] => stage.launch(tool).args(words).args([python]),
    };
    let text = port.to_string();
    stage.serve(start.args(["server.py", act, &text]), port)
}

fn ask(stage: &mut Stage, port: u16) -> Launch {
    let text = port.to_string();
    stage.launch("python3").args(["client.py", &text])
}

/// Both sides, with the reasons for which the first connection may have gone back to the kernel.
fn act(stage: &mut Stage, what: &str, through: &[&str], reasons: &[&str]) -> (String, Report) {
    let port = free_port();
    let server = serve(stage, what, port, through);
    let start = ask(stage, port);
    let client = stage.client(start, what);
    let end = server.finish(LONG);
    if what != "daemon" {
        end.expect_ok(what);
    }
    // A server in the background may still be about to write its report.
    let enough = |r: &Report| r.shm() + r.tcp() >= 4;
    if stage.loaded() {
        shunt_tests::sys::wait::eventually(|| enough(&stage.reports()));
    }
    let all = stage.reports();
    stage.assert_shm_then(what, &client.report, 1, 300_000, reasons);
    stage.assert_path(what, &all, 4, reasons);
    (client.stdout, all)
}

const NONE: &[&str] = &[];

#[test]
fn chroot() {
    if have(&["python3"]) && is_root() {
        twice(|stage| act(stage, "chroot", &[], NONE).0);
    }
}

#[test]
fn setuid() {
    if have(&["python3"]) && is_root() {
        twice(|stage| act(stage, "setuid", &[], NONE).0);
    }
}

#[test]
fn unshare_net() {
    if have(&["python3"]) && is_root() {
        twice(|stage| act(stage, "unshare_net", &[], NONE).0);
    }
}

#[test]
fn unshare_mounts_and_more() {
    if have(&["python3"]) && is_root() {
        twice(|stage| act(stage, "unshare_most", &[], NONE).0);
    }
}

#[test]
fn setns() {
    if have(&["python3"]) && is_root() {
        twice(|stage| act(stage, "setns", &[], NONE).0);
    }
}

#[test]
fn daemon() {
    if have(&["python3"]) {
        twice(|stage| {
            act(
                stage,
                "daemon",
                &[],
                &["forked", "by_holder", "peer_demoted"],
            )
            .0
        });
    }
}

/// The stream is the kernel's before a program without the library has it.
const SHARED: &[&str] = &[
    "exec",
    "forked",
    "by_holder",
    "peer_demoted",
    "peer_went_round",
];

fn with_child(how: &str, bare: bool) {
    if have(&["python3", "gcc"]) {
        twice(|stage| {
            build_child(stage, bare);
            let (said, all) = act(stage, how, &[], SHARED);
            assert!(said.contains("all lines of the child"), "{said}");
            assert!(said.contains("acted 0"), "{said}");
            let back = all
                .connections()
                .filter(|c| !c.demotions.is_empty())
                .count();
            assert!(!stage.loaded() || back >= 2, "{}", all.summary());
            said
        });
    }
}

#[test]
fn static_child_by_fork() {
    with_child("child_fork", false);
}

#[test]
fn static_child_by_subprocess() {
    with_child("child_subprocess", false);
}

#[test]
fn static_child_by_posix_spawn() {
    with_child("child_spawn", false);
}

#[test]
fn child_without_libc() {
    with_child("child_clean", true);
}

/// The tracer has the library too.
#[test]
fn strace() {
    if have(&["python3", "strace"]) {
        twice(|stage| act(stage, "none", &["strace", "-f", "-o", "trace"], NONE).0);
    }
}
