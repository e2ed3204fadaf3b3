//! The SDP port mapper between two hosts: who answers, for whom, and what a connect asks. The programs know nothing
//! of it; the test asks with the client's own code, and listens in as a port mapper of its own.

mod answers;
mod asks;

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
