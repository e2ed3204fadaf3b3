//! What a connect asks, how long it believes the answer, and what it does then.

use super::*;

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
import socket, sys, time
host, port, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for nth in range(times):
    if nth == 1: time.sleep(0.3) # (the answer to the first may take some time where cores are short)
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
    let mut asked = overheard.taken();
    asked.dedup(); // (nobody answers, and the client may be kept between its connect and its use)
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

/// A client that is there before the server, and tries until it is let in, is not held to what was said when nobody was there.
#[test]
fn a_service_that_was_not_there_is_asked_about_anew() {
    const CLIENT: &str = r#"
import errno, os, select, socket, sys, time
def connect():
    s = socket.socket()
    s.setblocking(sys.argv[3] == "blocking")
    e = s.connect_ex((sys.argv[1], int(sys.argv[2])))
    if e == errno.EINPROGRESS:
        select.select([], [s], [])
        e = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    s.setblocking(True)
    return e, s
while True:
    e, s = connect()
    if e == 0: break
    assert e == errno.ECONNREFUSED, e
    open("refused", "w").close()
    time.sleep(0.02)
for more in range(30):
    if more == 1: time.sleep(0.3) # (the answer may take some time where cores are short)
    s.sendall(b"6 * 7\n")
    assert s.recv(10) == b"42"
    s.close()
    e, s = connect()
    assert e == 0, e
"#;
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let client = scene.stage.file("client.py", CLIENT.as_bytes());
    let rules = scene.stage.file("rules", ASKING);
    let refused = scene.stage.folder.path("refused");
    for how in ["blocking", "nonblocking"] {
        let two = Host::Two.v4().to_string();
        let port = if how == "blocking" { 7001 } else { 7002 };
        let start = scene.stage.launch("python3").args([client.as_path()]);
        let start = start
            .args([&two, &port.to_string(), how])
            .env("SHUNT_RULES", &rules);
        let job = scene.hosts.launch(Host::One, start).start();
        assert!(eventually(|| refused.exists()), "{how}");
        let _server = scene.puppet(port, &[IWARP]);
        let done = job.finish(LONG);
        done.expect_ok(how);
        std::fs::remove_file(&refused).unwrap();
        let told = done.report.summary();
        let mut all = done.report.connections();
        let carried = all.any(|c| c.received > 0 && c.transport == "iwarp");
        assert!(carried, "{how}: {told}");
    }
}
