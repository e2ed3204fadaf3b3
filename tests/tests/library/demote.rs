//! `shunt demote`: whatever the program is doing, its connections go back to kernel TCP, no byte is lost,
//! and it notices nothing; and what is said where that cannot be.

use shunt_tests::apps::{LONG, Stage, have};
use shunt_tests::json::{self, Value};
use shunt_tests::report::Report;
use shunt_tests::run::{Job, Launch, Outcome, library};
use shunt_tests::sys::wait::eventually;
use std::path::Path;

fn shunt(words: &[&str]) -> Outcome {
    let command = library().with_file_name("shunt");
    Launch::new(command).args(words).start().finish(LONG)
}

/// What both programs begin with: a connection that has moved, and files as signals.
const COMMON: &str = r#"
import os, select, signal, socket, sys, threading, time
def wait_for(name):
    while not os.path.exists(name): time.sleep(0.005)
def mark(name):
    new = "%s.%d" % (name, os.getpid())
    open(new, "w").close(); os.rename(new, name)
def serve():
    lis = socket.create_server(("127.0.0.1", 0))
    with open("port.new", "w") as f: f.write(str(lis.getsockname()[1]))
    os.rename("port.new", "port")
    c, _ = lis.accept()
    for i in range(10):
        assert c.recv(3) == b"ask"; c.sendall(b"answer")
    return lis, c
def call():
    wait_for("port")
    to = ("127.0.0.1", int(open("port").read()))
    s = socket.create_connection(to)
    for i in range(10):
        s.sendall(b"ask"); assert s.recv(6, socket.MSG_WAITALL) == b"answer"
    return to, s
"#;

/// The peer: speaks once it is told to.
const PEER: &str = r#"
to, s = call()
wait_for("go")
if sys.argv[1] == "accept": socket.create_connection(to)
s.sendall(b"late"); print(s.recv(100))
"#;

/// The program that is asked: sleeps, each time in another call, until the peer speaks.
const SLEEPER: &str = r#"
lis, c = serve()
mark("ready")
how = sys.argv[1]
if how == "poll":
    p = select.poll(); p.register(c, select.POLLIN); print(len(p.poll(60000)))
elif how == "select":
    print(len(select.select([c], [], [], 60)[0]))
elif how == "epoll":
    e = select.epoll(); e.register(c, select.EPOLLIN); print(len(e.poll(60)))
elif how == "epoll_edge":
    e = select.epoll(); e.register(c, select.EPOLLIN | select.EPOLLET); print(len(e.poll(60)))
elif how == "other_poll":
    p = select.poll(); p.register(lis, select.POLLIN)
    while not os.path.exists("go"): p.poll(100)
elif how == "other_epoll":
    e = select.epoll(); e.register(lis, select.EPOLLIN)
    while not os.path.exists("go"): e.poll(0.1)
elif how == "accept":
    print(lis.accept()[1][0])
elif how == "compute":
    while not os.path.exists("go"): pass
elif how == "handler":
    signal.signal(signal.SIGUSR1, lambda *_: print("handled"))
print(c.recv(100)); c.sendall(b"heard")
"#;

struct Scene {
    stage: Stage,
    asked: Job,
    peer: Job,
}

impl Scene {
    fn new(how: &str, asked: &str, peer: &str) -> Self {
        let mut stage = Stage::new(true);
        let asked = stage.file("asked.py", format!("{COMMON}{asked}").as_bytes());
        let peer = stage.file("peer.py", format!("{COMMON}{peer}").as_bytes());
        let mut start = |file: &Path| {
            let words = ["-u".as_ref(), file.as_os_str(), how.as_ref()];
            let folder = stage.folder.path("");
            stage
                .launch("python3")
                .args(words)
                .in_folder(&folder)
                .start()
        };
        let (asked, peer) = (start(&asked), start(&peer));
        let mut scene = Self { stage, asked, peer };
        let ready = scene.stage.folder.path("ready");
        assert!(eventually(|| ready.exists() || !scene.asked.running()) && scene.asked.running());
        scene
    }

    fn pid(&self) -> String {
        self.asked.pid().to_string()
    }

    /// What a thread of the asked process sleeps in: the number of the call.
    fn sleeps_in(&self, calls: &[libc::c_long]) -> bool {
        let file = format!("/proc/{}/syscall", self.asked.pid());
        eventually(|| {
            let line = std::fs::read_to_string(&file).unwrap_or_default();
            let number = line.split(' ').next().and_then(|n| n.parse().ok());
            number.is_some_and(|n| calls.contains(&n))
        })
    }

    /// The live connections of the asked process.
    fn stat(&self) -> Value {
        let outcome = shunt(&["stat", "--json", &self.pid()]);
        outcome.expect_ok("shunt stat");
        json::parse(&outcome.stdout).unwrap().list()[0].clone()
    }

    fn go(&self) {
        std::fs::write(self.stage.folder.path("go"), "").unwrap();
    }

    /// Lets both go on to their end; returns what the asked one printed and reported.
    fn end(self) -> (String, Report) {
        self.go();
        let (asked, peer) = (self.asked.finish(LONG), self.peer.finish(LONG));
        asked.expect_ok("the asked program");
        peer.expect_ok("its peer");
        assert_eq!(peer.stderr, "");
        (asked.stdout, asked.report)
    }
}

fn is_operator(report: &Report) -> bool {
    let code = Some("operator".to_owned());
    report
        .connections()
        .any(|c| c.reason == code && c.demotions == ["operator"])
}

/// Demotes a program that sleeps in one of these calls, and sees that it noticed nothing.
fn asleep(how: &str, calls: &[libc::c_long], printed: &str) {
    let scene = Scene::new(how, SLEEPER, PEER);
    assert!(scene.sleeps_in(calls), "{how}: not asleep");
    let outcome = shunt(&["demote", "--wait", "30", &scene.pid()]);
    outcome.expect_ok(how);
    assert!(
        outcome.stdout.contains("1 connection back"),
        "{}",
        outcome.stdout
    );
    let stat = scene.stat();
    assert_eq!(stat.get("totals").get("shm").number(), 0, "{how}");
    let (stdout, report) = scene.end();
    assert_eq!(stdout, printed, "{how}");
    assert!(is_operator(&report), "{how}: {}", report.summary());
}

const POLL: &[libc::c_long] = &[libc::SYS_poll, libc::SYS_ppoll];
const EPOLL: &[libc::c_long] = &[
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
];
/// Where a blocked recv sleeps: by ppoll once the program has handlers, as Python has.
const RECEIVING: &[i64] = &[libc::SYS_recvfrom, libc::SYS_ppoll];
const LATE: &str = "b'late'\n";

#[test]
fn asleep_in_recv() {
    asleep("recv", RECEIVING, LATE);
}

#[test]
fn asleep_in_poll_and_select() {
    asleep("poll", POLL, "1\nb'late'\n");
    // (select is served as poll)
    asleep("select", POLL, "1\nb'late'\n");
}

#[test]
fn asleep_in_epoll_wait() {
    asleep("epoll", EPOLL, "1\nb'late'\n");
    asleep("epoll_edge", EPOLL, "1\nb'late'\n");
}

#[test]
fn asleep_on_other_descriptors() {
    asleep(
        "accept",
        &[libc::SYS_accept, libc::SYS_accept4],
        "127.0.0.1\nb'late'\n",
    );
    asleep("other_poll", POLL, LATE);
    asleep("other_epoll", EPOLL, LATE);
}

#[test]
fn a_program_that_computes_does_it_later_and_is_named() {
    let scene = Scene::new("compute", SLEEPER, PEER);
    let outcome = shunt(&["demote", "--wait", "0.1", "--json", &scene.pid()]);
    assert_eq!(outcome.ending(), "exit 3");
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains(&scene.pid()) && outcome.stderr.contains("computes"));
    let said = json::parse(&outcome.stdout).unwrap();
    assert_eq!(said.list()[0].get("pending").number(), 1);
    assert_eq!(scene.stat().get("totals").get("shm").number(), 1);
    let (stdout, report) = scene.end();
    assert_eq!(stdout, LATE);
    assert!(is_operator(&report), "{}", report.summary());
}

#[test]
fn a_stopped_program_does_it_when_it_goes_on() {
    let scene = Scene::new("recv", SLEEPER, PEER);
    assert!(scene.sleeps_in(RECEIVING));
    scene.asked.signal(libc::SIGSTOP);
    let stopped = format!("/proc/{}/stat", scene.asked.pid());
    let is_stopped = || std::fs::read_to_string(&stopped).unwrap().contains(") T ");
    assert!(eventually(is_stopped));
    let outcome = shunt(&["demote", "--wait", "0.2", &scene.pid()]);
    assert_eq!(outcome.ending(), "exit 3");
    assert!(outcome.stderr.contains("is stopped"), "{}", outcome.stderr);
    assert!(is_stopped());
    scene.asked.signal(libc::SIGCONT);
    assert!(eventually(|| scene
        .stat()
        .get("totals")
        .get("shm")
        .number()
        == 0));
    let (stdout, report) = scene.end();
    assert_eq!(stdout, LATE);
    assert!(is_operator(&report), "{}", report.summary());
}

#[test]
fn signals_reach_a_sleeper_that_was_woken() {
    let scene = Scene::new("handler", SLEEPER, PEER);
    for _ in 0..3 {
        assert!(scene.sleeps_in(RECEIVING));
        let outcome = shunt(&["demote", "--wait", "30", &scene.pid()]);
        outcome.expect_ok("shunt demote");
        scene.asked.signal(libc::SIGUSR1);
    }
    let (stdout, _) = scene.end();
    assert!(
        stdout.starts_with("handled\n") && stdout.ends_with(LATE),
        "{stdout}"
    );
}

/// Both directions at once, every byte checked, until the test says go: however fast the machine, they are at
/// it when the operator comes. Who sends says in a file's name how much it was, before it ends its half.
const BULK: &str = r#"
own = os.path.basename(sys.argv[0])
other = {"asked.py": "peer.py", "peer.py": "asked.py"}[own]
block = bytes(i * 7 % 251 for i in range(1 << 20))
double = block + block
def send(s):
    n, left = 0, 64
    end = time.monotonic() + 50
    while left:
        s.sendall(block)
        n += len(block)
        if n == 20 * len(block): mark("ready")
        if os.path.exists("go") or time.monotonic() > end: left -= 1
    mark("%s-sent-%d" % (own, n))
    s.shutdown(socket.SHUT_WR)
def take(s):
    n = 0
    while True:
        got = s.recv(1 << 18)
        if not got: break
        at = n % len(block)
        if double[at:at + len(got)] != got:
            print("wrong bytes near", n); os._exit(1)
        n += len(got)
    print(os.path.exists("%s-sent-%d" % (other, n)))
def bulk(s):
    t = threading.Thread(target=send, args=(s,)); t.start(); take(s); t.join()
"#;

#[test]
fn under_load_both_ways_every_byte_arrives() {
    for target in ["", ":fd"] {
        let asked = format!("{BULK}\nlis, c = serve()\nmark(\"fd-%d\" % c.fileno())\nbulk(c)");
        let peer = format!("{BULK}\nto, s = call()\nbulk(s)");
        let scene = Scene::new("bulk", &asked, &peer);
        let stat = scene.stat();
        let live = &stat.get("connections").list()[0];
        assert_eq!(live.get("transport").text(), "shm");
        let fd = live.get("fd").number();
        assert!(scene.stage.folder.path(&format!("fd-{fd}")).exists());
        let word = match target {
            "" => scene.pid(),
            _ => format!("{}:{fd}", scene.pid()),
        };
        let outcome = shunt(&["demote", "--wait", "30", &word]);
        outcome.expect_ok("shunt demote");
        assert!(
            outcome.stdout.contains("1 connection back"),
            "{}",
            outcome.stdout
        );
        // Once more: there is nothing left to do.
        let again = shunt(&["demote", &scene.pid()]);
        again.expect_ok("shunt demote, again");
        assert!(
            again.stdout.contains("no attached connection"),
            "{}",
            again.stdout
        );
        let (stdout, report) = scene.end();
        assert_eq!(stdout, "True\n");
        assert!(is_operator(&report), "{}", report.summary());
    }
}

#[test]
fn what_cannot_be_is_one_line() {
    let refused = |word: &str, what: &[&str]| {
        let outcome = shunt(&["demote", word]);
        assert_eq!(outcome.ending(), "exit 1", "{word}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
        for part in what {
            assert!(outcome.stderr.contains(part), "{}", outcome.stderr);
        }
    };
    refused("2147483647", &["2147483647", "no such process"]);
    let own = std::process::id().to_string();
    refused(&own, &["does not run Shunt"]);
    assert_eq!(shunt(&["demote", "x"]).ending(), "exit 2");
    assert_eq!(shunt(&["demote"]).ending(), "exit 2");
    let scene = Scene::new("recv", SLEEPER, PEER);
    let stat = scene.stat();
    let fd = stat.get("connections").list()[0].get("fd").number();
    let attached = format!("attached are {fd}");
    refused(&format!("{}:900", scene.pid()), &["is not open", &attached]);
    refused(
        &format!("{}:0", scene.pid()),
        &["is not a socket", &attached],
    );
    let listener = (3..100).find(|n| {
        let link = std::fs::read_link(format!("/proc/{}/fd/{n}", scene.pid()));
        *n != fd && link.is_ok_and(|l| l.to_string_lossy().starts_with("socket:"))
    });
    let listener = format!("{}:{}", scene.pid(), listener.unwrap());
    refused(&listener, &["is not an attached connection", &attached]);
    let one = format!("{}:{fd}", scene.pid());
    assert!(scene.sleeps_in(RECEIVING));
    shunt(&["demote", "--wait", "30", &one]).expect_ok("demote PID:FD");
    refused(&one, &["on kernel TCP already (operator)"]);
    assert_eq!(scene.end().0, LATE);
}

#[test]
fn another_user_is_refused() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIPPED, only root can be another user");
        return;
    }
    if !have(&["setpriv"]) {
        return;
    }
    let scene = Scene::new("recv", SLEEPER, PEER);
    // A copy where anybody may run it.
    let copy = scene.stage.folder.path("shunt");
    std::fs::copy(library().with_file_name("shunt"), &copy).unwrap();
    let words = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let outcome = scene
        .stage
        .plain("setpriv")
        .args(words)
        .args([copy.as_os_str(), "demote".as_ref(), scene.pid().as_ref()])
        .start()
        .finish(LONG);
    assert_eq!(outcome.ending(), "exit 1");
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("not permitted") && outcome.stderr.contains("root"));
    assert_eq!(scene.stat().get("totals").get("shm").number(), 1);
    assert_eq!(scene.end().0, LATE);
}
