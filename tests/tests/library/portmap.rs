//! The SDP port mapper between two hosts: who answers, for whom, and what a connect asks. The programs know nothing
//! of it; the test asks with the client's own code, and listens in as a port mapper of its own.

use shunt_tests::apps::{LONG, Stage, have};
use shunt_tests::netns::{Host, Hosts};
use shunt_tests::report::Report;
use shunt_tests::run::{Job, Launch, library};
use shunt_tests::sys::wait::eventually;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use transport::clock;
use transport::mapping::link::ToMapper;
use transport::port_mapper::PORT;
use transport::port_mapper::asker::Timing;
use transport::port_mapper::message::{Kind, Message, PmTime};
use transport::port_mapper::questions::{Holds, Questions, Verdict};
use transport::sys::net::await_input;

/// Does as it is told: evaluates what comes by a connection, and says what that gave.
const PUPPET: &str = r#"
import socket, sys, os, ctypes, threading, time
host, port = sys.argv[1], int(sys.argv[2])
if sys.argv[3:] == ["nested"] and os.fork():
    while True:
        time.sleep(1000)
family = socket.AF_INET6 if ":" in host else socket.AF_INET
lis = socket.create_server((host, port), family=family, dualstack_ipv6=family == socket.AF_INET6)
kept = []
def listen(port):
    kept.append(socket.create_server(("", port)))
def threads(pid=None):
    tasks = "/proc/%d/task" % (pid or os.getpid())
    return sorted(open("%s/%s/comm" % (tasks, t)).read().strip() for t in os.listdir(tasks))
def status(name, key):
    for t in os.listdir("/proc/self/task"):
        if open("/proc/self/task/%s/comm" % t).read().strip() == name:
            lines = open("/proc/self/task/%s/status" % t).read().splitlines()
            return next(l.split(None, 1)[1] for l in lines if l.startswith(key))
stormy, failed = set(), []
def fork_often(name):
    for _ in range(150):
        child = os.fork()
        if not child:
            s = socket.socket()
            os._exit(s.connect_ex(("127.0.0.1", 1)) != 111)
        if os.waitpid(child, 0)[1]:
            failed.append(child)
    stormy.discard(name)
def storm():
    for name in range(3):
        stormy.add(name)
        threading.Thread(target=fork_often, args=[name]).start()
    return "begun"
def move():
    "Goes on in a child; the process itself ends."
    if os.fork():
        os._exit(0)
while True:
    c, _ = lis.accept()
    line = b""
    while not line.endswith(b"\n"):
        line += c.recv(1000)
    try:
        said = repr(eval(line.decode()))
    except Exception as e:
        said = repr(e)
    c.sendall(said.encode())
    c.close()
"#;

const IWARP: (&str, &str) = ("SHUNT_TRANSPORT", "iwarp");
const THREAD: &str = "shunt-portmap";

struct Scene {
    hosts: Hosts,
    stage: Stage,
}

impl Scene {
    fn new() -> Option<Self> {
        let hosts = Hosts::new()?;
        let stage = Stage::new(true);
        stage.file("puppet.py", PUPPET.as_bytes());
        Some(Self { hosts, stage })
    }

    /// A puppet on the second host, at all its addresses.
    fn puppet(&mut self, port: u16, settings: &[(&str, &str)]) -> Job {
        let launch = self.stage.launch("python3");
        self.hosts
            .serve(Host::Two, puppet(launch, "::", port, settings), port)
    }

    /// One that has never heard of the library.
    fn plain_puppet(&mut self, port: u16) -> Job {
        let launch = self.stage.plain("python3");
        self.hosts
            .serve(Host::Two, puppet(launch, "::", port, &[]), port)
    }

    /// Has a puppet do something.
    fn tell(&self, port: u16, what: &str) -> String {
        let mut said = String::new();
        self.hosts.on(Host::One, || {
            let mut to = TcpStream::connect((Host::Two.v4(), port)).unwrap();
            to.set_read_timeout(Some(LONG)).unwrap();
            to.write_all(format!("{what}\n").as_bytes()).unwrap();
            to.read_to_string(&mut said).unwrap();
        });
        said
    }

    fn threads(&self, port: u16) -> usize {
        self.tell(port, "threads()").matches(THREAD).count()
    }

    /// Asks about a service on the second host.
    fn ask(&self, ip: impl Into<IpAddr> + Send, port: u16) -> Option<Verdict> {
        let timing = Timing {
            first_us: 200_000,
            requests: 5,
        };
        let service = SocketAddr::new(ip.into(), port);
        self.hosts.on(Host::One, || ask(service, timing, LONG))
    }

    /// Whether the answer becomes this one: a server is there a moment before its mark.
    fn becomes(&self, port: u16, verdict: Verdict) -> bool {
        eventually(|| self.ask(Host::Two.v4(), port) == Some(verdict))
    }
}

fn puppet(launch: Launch, host: &str, port: u16, settings: &[(&str, &str)]) -> Launch {
    let port = port.to_string();
    let launch = launch.args(["puppet.py", host, &port]);
    settings
        .iter()
        .fold(launch, |launch, (name, value)| launch.env(name, value))
}

const HOLDS: Holds = Holds {
    denied_us: 60_000_000,
    silent_us: 60_000_000,
    once_us: 60_000_000,
    patience_us: 0,
};

fn now() -> u64 {
    clock::monotonic_ns() / 1000
}

/// One question, asked by this thread, and what came of it in that time.
fn ask(service: SocketAddr, timing: Timing, limit: Duration) -> Option<Verdict> {
    let mut questions = Questions::new(timing, HOLDS);
    let (link, from) = ToMapper::open(service).unwrap();
    let fd = link.raw();
    let begun = now();
    questions.ask(service, from, begun | 1, link, begun);
    let end = begun + limit.as_micros() as u64;
    loop {
        let verdict = questions.verdict(service, now());
        if verdict.is_some() || now() > end {
            return verdict;
        }
        await_input(fd, 10_000);
    }
}

#[test]
fn listeners_that_may_use_iwarp_are_answered_for() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let _one = scene.puppet(7001, &[IWARP]);
    let _two = scene.puppet(7002, &[IWARP]);
    let _plain = scene.plain_puppet(7003);
    let _auto = scene.puppet(7004, &[]);
    for port in [7001, 7002] {
        assert!(scene.becomes(port, Verdict::Accepted), "{port}");
    }
    let v6: Ipv6Addr = Host::Two.v6();
    for (port, expected) in [
        (7001, Verdict::Accepted),
        (7002, Verdict::Accepted),
        (7003, Verdict::Denied),
        (7004, Verdict::Denied),
        (7005, Verdict::Denied),
    ] {
        assert_eq!(scene.ask(Host::Two.v4(), port), Some(expected), "{port}");
        assert_eq!(scene.ask(v6, port), Some(expected), "{port} by IPv6");
    }
    assert_eq!(
        [7001, 7002, 7004].map(|p| scene.threads(p)),
        [1, 0, 0],
        "one thread, for all of the host"
    );
}

#[test]
fn a_listener_that_is_closed_is_denied() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let _one = scene.puppet(7001, &[IWARP]);
    assert_eq!(scene.tell(7001, "listen(7009)"), "None");
    assert!(scene.becomes(7009, Verdict::Accepted));
    assert_eq!(scene.tell(7001, "kept.pop().close()"), "None");
    assert!(scene.becomes(7009, Verdict::Denied));
    assert_eq!(scene.ask(Host::Two.v4(), 7001), Some(Verdict::Accepted));
}

#[test]
fn rules_say_which_listeners_take_it() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let rules =
        b"use iwarp listen python3 *:7001\nuse auto listen * *:7002\nuse tcp listen * *:7003\n";
    let rules = scene.stage.file("rules", rules);
    let rules = ("SHUNT_RULES", rules.to_str().unwrap());
    let ports = [7001, 7002, 7003, 7004];
    let _all = ports.map(|port| scene.puppet(port, &[rules]));
    for port in [7001, 7002] {
        assert!(scene.becomes(port, Verdict::Accepted), "{port}");
    }
    for port in [7003, 7004] {
        assert_eq!(
            scene.ask(Host::Two.v4(), port),
            Some(Verdict::Denied),
            "{port}"
        );
    }
}

#[test]
fn silence_and_no_port_mapper_are_told_apart() {
    let Some(scene) = Scene::new() else { return };
    if !have(&["nft"]) {
        return;
    }
    let service = SocketAddr::new(Host::Two.v4().into(), 7001);
    // A first wait of an hour: what is known before that is known by ICMP.
    let patient = Timing {
        first_us: 3_600_000_000,
        requests: 1,
    };
    let on = |what: &(dyn Fn() -> Option<Verdict> + Sync)| scene.hosts.on(Host::One, what);
    assert_eq!(on(&|| ask(service, patient, LONG)), Some(Verdict::Silent));
    scene
        .hosts
        .run(Host::Two, "nft", &["add", "table", "inet", "t"]);
    let chain = "add chain inet t c { type filter hook input priority 0 ; }";
    scene.hosts.run(Host::Two, "nft", &[chain]);
    let rule = format!("add rule inet t c udp dport {PORT} counter drop");
    scene.hosts.run(Host::Two, "nft", &[&rule]);
    let short = Duration::from_millis(100);
    assert_eq!(on(&|| ask(service, patient, short)), None, "not known yet");
    let quick = Timing {
        first_us: 1_000,
        requests: 4,
    };
    assert_eq!(on(&|| ask(service, quick, LONG)), Some(Verdict::Silent));
    let count = scene.hosts.run(Host::Two, "nft", &["list", "ruleset"]);
    assert!(count.contains("counter packets 5 "), "1 + 4: {count}");
}

#[test]
fn another_takes_over_from_one_that_ends() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let one = scene.puppet(7001, &[IWARP]);
    assert!(scene.becomes(7001, Verdict::Accepted));
    let _two = scene.puppet(7002, &[IWARP]);
    assert!(scene.becomes(7002, Verdict::Accepted));
    one.stop(libc::SIGKILL);
    assert_eq!(scene.ask(Host::Two.v4(), 7002), Some(Verdict::Silent));
    // It notices at an accept, if the last try is not too recent.
    assert!(eventually(|| scene.threads(7002) == 1));
    assert!(scene.becomes(7002, Verdict::Accepted));
    assert_eq!(scene.ask(Host::Two.v4(), 7001), Some(Verdict::Denied));
}

#[test]
fn a_child_answers_by_a_thread_of_its_own() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let launch = scene.stage.launch("python3");
    let launch = puppet(launch, "::", 7001, &[IWARP]).args(["nested"]);
    let _all = scene.hosts.serve(Host::Two, launch, 7001);
    assert!(scene.becomes(7001, Verdict::Accepted));
    let one = scene.tell(7001, "os.getpid()");
    assert_eq!(scene.tell(7001, "move()"), "None");
    // The port goes with the parent.
    assert!(scene.becomes(7001, Verdict::Silent));
    assert!(eventually(|| scene.threads(7001) == 1));
    assert_ne!(scene.tell(7001, "os.getpid()"), one);
    assert!(scene.becomes(7001, Verdict::Accepted));
}

#[test]
fn the_thread_is_like_any_of_the_program_and_takes_none_of_its_signals() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let _one = scene.puppet(7001, &[IWARP]);
    assert!(scene.becomes(7001, Verdict::Accepted));
    let blocked = scene.tell(7001, &format!("status({THREAD:?}, 'SigBlk')"));
    // All but the two of libc's, SIGKILL and SIGSTOP.
    assert_eq!(blocked, "'fffffffe7ffbfeff'");
    assert_eq!(
        scene.tell(7001, "os.setresuid(65534, 65534, 65534)"),
        "None"
    );
    let user = scene.tell(7001, &format!("status({THREAD:?}, 'Uid').split()"));
    assert_eq!(user, "['65534', '65534', '65534', '65534']");
    assert_eq!(scene.ask(Host::Two.v4(), 7001), Some(Verdict::Accepted));
}

#[test]
fn a_sandbox_ends_it() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let _one = scene.puppet(7001, &[IWARP]);
    assert!(scene.becomes(7001, Verdict::Accepted));
    // PR_SET_SECCOMP with a filter that cannot be read: the kernel refuses, after the library has been told.
    let prctl = "ctypes.CDLL(None, use_errno=True).prctl(22, 2, 8, 0, 0)";
    assert_eq!(scene.tell(7001, prctl), "-1");
    assert_eq!(scene.threads(7001), 0);
    assert_eq!(scene.ask(Host::Two.v4(), 7001), Some(Verdict::Silent));
}

#[test]
fn the_service_answers_instead() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let command = || Launch::new(library().with_file_name("shunt")).args(["portmap"]);
    let service = scene.hosts.launch(Host::Two, command()).start();
    assert!(eventually(|| {
        let table = format!("/proc/{}/net/udp6", service.pid());
        let table = std::fs::read_to_string(table).unwrap_or_default();
        table.contains(&format!(":{PORT:04X} "))
    }));
    let _one = scene.puppet(7001, &[IWARP]);
    assert!(scene.becomes(7001, Verdict::Accepted));
    assert_eq!(scene.threads(7001), 0);
    assert_eq!(scene.ask(Host::Two.v6(), 7002), Some(Verdict::Denied));
    let second = scene.hosts.launch(Host::Two, command()).start();
    let second = second.finish(LONG);
    assert_eq!(second.ending(), "exit 1");
    assert_eq!(second.stdout, "");
    let line = second
        .stderr
        .strip_prefix("shunt: portmap: UDP port 3935 is taken: ");
    assert!(
        line.is_some_and(|l| l.lines().count() == 1),
        "{}",
        second.stderr
    );
    let waiting = scene.hosts.launch(Host::Two, command().args(["--wait"]));
    let mut waiting = waiting.start();
    let service = service.stop(libc::SIGTERM);
    assert_eq!(service.stdout, "answering at UDP port 3935\n");
    assert_eq!(
        (service.ending(), service.stderr),
        ("signal 15".to_owned(), String::new())
    );
    assert!(scene.becomes(7001, Verdict::Accepted));
    assert!(waiting.running());
}

/// The first thread leaves by pthread_exit: the process ends with the program's last thread, not with ours.
#[test]
fn a_process_ends_with_the_programs_last_thread() {
    const LEAVES: &str = r#"
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
static pthread_t first;
static int before;
static int tasks(void) {
    int n = -2;
    DIR *d = opendir("/proc/self/task");
    while (readdir(d)) n++;
    closedir(d);
    return n;
}
static void *last(void *unused) {
    pthread_join(first, 0);
    printf("%d threads, then %d\n", before, tasks());
    return 0;
}
int main(void) {
    pthread_t t;
    first = pthread_self();
    listen(socket(AF_INET, SOCK_STREAM, 0), 1);
    before = tasks();
    pthread_create(&t, 0, last, 0);
    pthread_exit(0);
}
"#;
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let source = scene.stage.file("leaves.c", LEAVES.as_bytes());
    let words = ["-pthread", "-o", "leaves"];
    let compile = scene.stage.plain("gcc").args(words).args([source]).start();
    compile.finish(LONG).expect_ok("gcc");
    let program = scene.stage.folder.path("leaves");
    for (settings, says) in [
        (IWARP, "2 threads, then 2\n"),
        (("SHUNT_TRANSPORT", "auto"), "1 threads, then 2\n"),
    ] {
        let start = scene.stage.launch("sh");
        let start = start.args(["-c", "exec \"$0\"", program.to_str().unwrap()]);
        let start = start.env(settings.0, settings.1);
        let done = scene.hosts.launch(Host::Two, start).start().finish(LONG);
        done.expect_ok("leaves");
        assert_eq!(done.stdout, says, "{settings:?}");
    }
}

/// Threads fork, and their children connect, while questions come.
#[test]
fn forks_and_questions_do_not_get_into_each_others_way() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let _one = scene.puppet(7001, &[IWARP]);
    assert!(scene.becomes(7001, Verdict::Accepted));
    assert_eq!(scene.tell(7001, "storm()"), "'begun'");
    let mut asked = 0;
    assert!(eventually(|| {
        asked += 1;
        scene.ask(Host::Two.v4(), 7001) == Some(Verdict::Accepted)
            && scene.tell(7001, "len(stormy)") == "0"
    }));
    assert!(asked > 1);
    assert_eq!(scene.tell(7001, "failed"), "[]");
    assert_eq!(scene.threads(7001), 1);
}

/// A port mapper on the second host that only listens in.
struct Overheard {
    socket: UdpSocket,
}

impl Overheard {
    fn new(scene: &Scene) -> Self {
        let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
        let socket = scene.hosts.on(Host::Two, bind);
        socket.set_nonblocking(true).unwrap();
        Self { socket }
    }

    /// All requests that have come, and where from.
    fn taken(&self) -> Vec<(Message, SocketAddr)> {
        let mut buf = [0; 100];
        let mut all = Vec::new();
        while let Ok((n, from)) = self.socket.recv_from(&mut buf) {
            all.push((Message::decode(&buf[..n]).unwrap(), from));
        }
        all
    }
}

/// Has a program on the first host connect to the puppet at this port so often; what it reports.
fn connect(scene: &mut Scene, port: u16, times: usize, settings: &[(&str, &str)]) -> Report {
    const CLIENT: &str = r#"
import socket, sys
host, port, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for _ in range(times):
    s = socket.create_connection((host, port))
    s.sendall(b"6 * 7\n")
    assert s.recv(10) == b"42"
    s.close()
"#;
    let client = scene.stage.file("client.py", CLIENT.as_bytes());
    let start = scene.stage.launch("python3").args([client]);
    let words = [
        Host::Two.v4().to_string(),
        port.to_string(),
        times.to_string(),
    ];
    let start = settings
        .iter()
        .fold(start.args(words), |s, (name, value)| s.env(name, value));
    let start = scene.hosts.launch(Host::One, start);
    let done = start.start().finish(LONG);
    done.expect_ok("client");
    done.report.check_reasons().unwrap();
    assert_eq!(done.report.connections().count(), times);
    done.report
}

/// How many connections iWARP has carried; the others have to be on kernel TCP for want of an acceptance.
#[track_caller]
fn carried(report: &Report) -> usize {
    let (iwarp, tcp): (Vec<_>, Vec<_>) = report
        .connections()
        .partition(|c| c.transport == "iwarp" && c.demotions.is_empty());
    for c in tcp {
        let what = (c.transport.as_str(), c.reason.as_deref());
        assert_eq!(what, ("tcp", Some("not_mapped")), "{}", report.summary());
    }
    iwarp.len()
}

/// Asks the port mapper of whom it connects to.
const ASKING: &[u8] = b"use auto connect python3 10.0.0.0/8:*\n";

#[test]
fn a_connect_asks_where_that_is_wanted_and_once() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let overheard = Overheard::new(&scene);
    // (It takes iWARP, so that whoever speaks that to it is understood.)
    let _server = scene.puppet(7001, &[IWARP]);
    assert_eq!(scene.threads(7001), 0, "the test has the port");
    connect(&mut scene, 7001, 1, &[]);
    connect(&mut scene, 7001, 1, &[("SHUNT_TRANSPORT", "tcp")]);
    for rule in ["iwarp", "shm", "tcp", "verbs"] {
        let rules = format!("use {rule} connect * *:*\n");
        let rules = scene.stage.file("rules", rules.as_bytes());
        let rules = ("SHUNT_RULES", rules.to_str().unwrap());
        connect(&mut scene, 7001, 1, &[rules]);
    }
    assert_eq!(overheard.taken(), [], "nobody was to be asked");
    let rules = scene.stage.file("rules", ASKING);
    connect(
        &mut scene,
        7001,
        1,
        &[("SHUNT_RULES", rules.to_str().unwrap())],
    );
    let asked = overheard.taken();
    let [(message, from)] = &asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!(message.kind, Kind::Request);
    let service = SocketAddr::new(Host::Two.v4().into(), 7001);
    assert_eq!(message.service, service);
    assert_eq!((message.client, message.mapped), (*from, None));
    assert_eq!(from.ip(), IpAddr::from(Host::One.v4()));
}

#[test]
fn an_answer_is_remembered_by_the_process() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let overheard = Overheard::new(&scene);
    let _server = scene.puppet(7001, &[IWARP]);
    let rules = scene.stage.file("rules", ASKING);
    let rules = ("SHUNT_RULES", rules.to_str().unwrap());
    for kind in [Kind::Deny, Kind::Accept(PmTime(255))] {
        let stop = AtomicBool::new(false);
        let asked = std::thread::scope(|scope| {
            // Denies, or accepts for ever, whatever comes.
            let answering = scope.spawn(|| {
                let mut requests = Vec::new();
                while !stop.load(Ordering::SeqCst) {
                    for (message, from) in overheard.taken() {
                        if message.kind == Kind::Request {
                            requests.push(message.handle);
                            let answer = message.with(kind).encode();
                            overheard.socket.send_to(answer.as_ref(), from).unwrap();
                        }
                    }
                    std::thread::sleep(Duration::from_micros(200));
                }
                requests
            });
            connect(&mut scene, 7001, 200, &[rules]);
            stop.store(true, Ordering::SeqCst);
            answering.join().unwrap()
        });
        // (a denial holds for two seconds, of which the connections may take some on a busy machine)
        let times = asked.len();
        assert!(times > 0 && times < 20, "{kind:?}: {times}");
    }
}

#[test]
fn only_who_is_accepted_is_spoken_to() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let rules = scene.stage.file("rules", ASKING);
    let rules = [("SHUNT_RULES", rules.to_str().unwrap())];
    let _server = scene.puppet(7001, &[IWARP]);
    let _plain = scene.plain_puppet(7002);
    assert!(scene.becomes(7001, Verdict::Accepted));
    // (The first connection may be too early for its answer, not all of them.)
    let report = connect(&mut scene, 7001, 30, &rules);
    assert_ne!(carried(&report), 0, "{}", report.summary());
    let report = connect(&mut scene, 7002, 30, &rules);
    assert_eq!(carried(&report), 0);
}

#[test]
fn silence_leaves_everything_on_kernel_tcp_and_is_not_asked_for_ever() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let rules = scene.stage.file("rules", ASKING);
    let rules = [("SHUNT_RULES", rules.to_str().unwrap())];
    let overheard = Overheard::new(&scene);
    let _server = scene.puppet(7001, &[IWARP]);
    let report = connect(&mut scene, 7001, 100, &rules);
    assert_eq!(carried(&report), 0);
    let asked = overheard.taken();
    let handles: BTreeSet<u64> = asked.iter().map(|(m, _)| m.handle).collect();
    // (silence holds for ten seconds, of which the connections may take some on a busy machine)
    assert!(!asked.is_empty() && asked.len() <= 3 * handles.len());
    assert!(handles.len() < 10, "{}", handles.len());
}
