//! Connections by the thousand, the same address pair again, several processes on one port.

use super::Case;
use crate::log;
use crate::side::{Side, exchange};
use crate::sys::{Fd, io, net, proc};
use std::net::SocketAddr;

pub(super) const CASES: &[Case] = &[
    Case::pair("many_connects", |s| many(s, 2000))
        .any_path("too short to be worth moving")
        .slow(),
    Case::pair("many_connects_echo", many_connects_echo),
    Case::pair("many_connects_no_data", many_connects_no_data).any_path("no data, nothing to move"),
    Case::pair("same_tuple_again", same_tuple_again),
    Case::pair("forked_workers", forked_workers).processes_only(),
    Case::pair("reuseport_processes", reuseport_processes).processes_only(),
    Case::pair("many_open_at_once", many_open_at_once).conns(200),
    Case::pair(
        "many_open_before_the_first_byte",
        open_before_the_first_byte,
    )
    .conns(600),
];

fn open(to: SocketAddr) -> Fd {
    let fd = net::socket_for(to, 0);
    net::connect(fd, to).ok();
    fd
}

/// Connect, one byte, close; in sequence.
fn many(s: &Side, count: usize) {
    if s.accepts() {
        let lis = s.listen(1024);
        let mut sum = 0u64;
        for _ in 0..count {
            let fd = net::accept(lis).fd();
            let (got, last) = io::recv_to_end(fd);
            assert_eq!((got.len(), last.0), (1, 0));
            sum += u64::from(got[0]);
            net::close(fd).ok();
        }
        log!(s, "{sum}");
    } else {
        let to = s.target();
        for i in 0..count {
            let fd = open(to);
            io::send_all(fd, &[i as u8]).ok();
            net::close(fd).ok();
        }
    }
    s.sync("done");
}

fn many_connects_echo(s: &Side) {
    let count = 300;
    if s.accepts() {
        let lis = s.listen(1024);
        for _ in 0..count {
            let fd = net::accept(lis).fd();
            exchange(fd, true);
            net::close(fd).ok();
        }
    } else {
        let to = s.target();
        for _ in 0..count {
            let fd = open(to);
            exchange(fd, false);
            assert_eq!(io::recv(fd, &mut [0; 1], 0).0, 0);
            net::close(fd).ok();
        }
        log!(s, "{count}");
    }
    s.sync("done");
}

fn many_connects_no_data(s: &Side) {
    let count = 500;
    if s.accepts() {
        let lis = s.listen(1024);
        for _ in 0..count {
            let fd = net::accept(lis).fd();
            assert_eq!(io::recv(fd, &mut [0; 1], 0).0, 0);
            net::close(fd).ok();
        }
    } else {
        let to = s.target();
        for _ in 0..count {
            net::close(open(to)).ok();
        }
        log!(s, "{count}");
    }
    s.sync("done");
}

/// A fixed source port, closed by reset, so that the same four numbers return at once.
fn same_tuple_again(s: &Side) {
    let rounds = 40u8;
    if s.accepts() {
        let lis = s.listen(1024);
        for round in 0..rounds {
            let fd = net::accept(lis).fd();
            exchange(fd, true);
            let (got, _) = io::recv_exact(fd, 3);
            assert_eq!(got, [round; 3]);
            io::send_all(fd, &[round; 5]).ok();
            let last = io::recv(fd, &mut [0; 1], 0);
            assert!(last.is(libc::ECONNRESET), "round {round}: {last}");
            net::close(fd).ok();
            s.sync("round");
        }
    } else {
        let to = s.target();
        let mut source = net::loopback();
        for round in 0..rounds {
            let fd = net::socket_for(to, 0);
            net::setopt(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).ok();
            net::bind(fd, source).ok();
            source = net::getsockname(fd);
            net::connect(fd, to).ok();
            exchange(fd, false);
            io::send_all(fd, &[round; 3]).ok();
            let (got, _) = io::recv_exact(fd, 5);
            assert_eq!(got, [round; 5]);
            net::linger(fd, true, 0).ok();
            net::close(fd).ok();
            s.sync("round");
        }
        log!(s, "{rounds}");
    }
    s.sync("done");
}

/// One worker: echoes until the peer closes, connection after connection, until it is ended.
fn work(lis: Fd) -> i32 {
    loop {
        let fd = net::accept(lis).fd();
        let mut first = [0; 1];
        assert_eq!(io::recv(fd, &mut first, 0).0, 1);
        exchange(fd, true);
        let (got, _) = io::recv_exact(fd, 6);
        io::send_all(fd, &got).ok();
        assert_eq!(io::recv(fd, &mut first, 0).0, 0);
        net::close(fd).ok();
    }
}

/// The client of such workers: several connections alive at a time.
fn use_workers(s: &Side, to: SocketAddr, workers: usize) {
    for _ in 0..10 {
        let all: Vec<Fd> = (0..workers).map(|_| open(to)).collect();
        for fd in &all {
            io::send_all(*fd, b"w").ok();
        }
        for fd in &all {
            exchange(*fd, false);
            io::send_all(*fd, b"worker").ok();
            let (got, _) = io::recv_exact(*fd, 6);
            assert_eq!(got, b"worker");
            net::close(*fd).ok();
        }
    }
    log!(s, "served");
}

/// The parent listens, four children accept on the inherited descriptor.
fn forked_workers(s: &Side) {
    if s.accepts() {
        let (lis, at) = net::listener(net::loopback(), 64);
        let children: Vec<i32> = (0..4).map(|_| proc::fork(|| work(lis))).collect();
        s.tell(u64::from(at.port()));
        s.sync("served");
        for child in children {
            proc::kill(child, libc::SIGTERM).ok();
            log!(s, "{}", proc::wait_child(child));
        }
    } else {
        let to = s.target();
        use_workers(s, to, 4);
        s.sync("served");
    }
    s.sync("done");
}

fn reuseport_listener(at: SocketAddr) -> Fd {
    let fd = net::socket_for(at, 0);
    net::setopt(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1).ok();
    net::bind(fd, at).ok();
    net::listen(fd, 64).ok();
    fd
}

/// Two processes each with a listener of their own on one port; either may get a connection.
fn reuseport_processes(s: &Side) {
    if s.accepts() {
        let first = reuseport_listener(net::loopback());
        let at = net::getsockname(first);
        let (ready_r, ready_w) = net::pipe();
        let second = proc::fork(|| {
            net::close(first).ok();
            let lis = reuseport_listener(at);
            io::write(ready_w, b"!").ok();
            work(lis)
        });
        io::read(ready_r, &mut [0; 1]).ok();
        let one = proc::fork(|| work(first));
        s.tell(u64::from(at.port()));
        s.sync("served");
        for child in [second, one] {
            proc::kill(child, libc::SIGTERM).ok();
            log!(s, "{}", proc::wait_child(child));
        }
    } else {
        let to = s.target();
        // One at a time: which listener gets it is the kernel's choice.
        for _ in 0..3 {
            use_workers(s, to, 1);
        }
        s.sync("served");
    }
    s.sync("done");
}

fn many_open_at_once(s: &Side) {
    let count = 200;
    let mut all = Vec::new();
    if s.accepts() {
        let lis = s.listen(1024);
        for _ in 0..count {
            let fd = net::accept(lis).fd();
            exchange(fd, true);
            all.push(fd);
        }
    } else {
        let to = s.target();
        for _ in 0..count {
            let fd = open(to);
            exchange(fd, false);
            all.push(fd);
        }
    }
    for (i, fd) in all.iter().enumerate() {
        if s.a() {
            io::send_all(*fd, &[i as u8; 64]).ok();
        } else {
            let (got, _) = io::recv_exact(*fd, 64);
            assert_eq!(got, [i as u8; 64]);
        }
    }
    log!(s, "{}", all.len());
    s.sync("done");
}

/// More connections than an arena has room for are opened before any of them is used: there is no later
/// connect that could tell the server of further arenas.
fn open_before_the_first_byte(s: &Side) {
    let count = 600;
    let all: Vec<Fd> = if s.accepts() {
        let lis = s.listen(1024);
        (0..count).map(|_| net::accept(lis).fd()).collect()
    } else {
        let to = s.target();
        (0..count).map(|_| open(to)).collect()
    };
    s.sync("all are open");
    for fd in &all {
        exchange(*fd, s.accepts());
    }
    log!(s, "{}", all.len());
    s.sync("done");
}
