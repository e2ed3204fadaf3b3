//! Non-blocking mode, however and whenever it is set.

use super::Case;
use crate::log;
use crate::side::{Side, drain, fill_up};
use crate::sys::proc::once_asleep;
use crate::sys::{Fd, io, net, wait};

pub(super) const CASES: &[Case] = &[
    Case::pair("nonblock_fcntl", |s| {
        by(s, |fd| {
            net::set_nonblocking(fd, true).ok();
        })
    }),
    Case::pair("nonblock_fionbio", |s| {
        by(s, |fd| {
            net::fionbio(fd, true).ok();
        })
    }),
    Case::pair("nonblock_created", nonblock_created),
    Case::pair("nonblock_accept4", nonblock_accept4),
    Case::pair("nonblock_not_inherited", nonblock_not_inherited),
    Case::pair("nonblock_switched", nonblock_switched),
    Case::pair("nonblock_through_dup", nonblock_through_dup),
    Case::pair("nonblock_dontwait", nonblock_dontwait),
    Case::pair("nonblock_full_and_drained", nonblock_full_and_drained),
    Case::pair("nonblock_partial", nonblock_partial),
    Case::pair("nonblock_set_while_blocked", nonblock_set_while_blocked),
];

/// Every call on an empty connection says EAGAIN, and works once data is there.
fn probe_empty(s: &Side, fd: Fd) {
    let mut buf = [0; 8];
    log!(s, "read {}", io::read(fd, &mut buf));
    log!(s, "recv {}", io::recv(fd, &mut buf, 0));
    log!(s, "recvfrom {}", io::recvfrom_null(fd, &mut buf, 0));
    log!(s, "recvmsg {}", io::recvmsg(fd, &mut [&mut buf], 0).0);
    log!(s, "readv {}", io::readv(fd, &mut [&mut buf]));
    log!(s, "peek {}", io::recv(fd, &mut buf, libc::MSG_PEEK));
    log!(s, "waitall {}", io::recv(fd, &mut buf, libc::MSG_WAITALL));
    s.sync("empty");
    io::send_all(fd, b"four").ok();
    wait::wait_queued(fd, 4);
    log!(s, "waitall {}", io::recv(fd, &mut buf, libc::MSG_WAITALL));
    log!(s, "read {}", io::read(fd, &mut buf));
    s.sync("done");
}

fn by(s: &Side, set: fn(Fd)) {
    let fd = s.pair();
    set(fd);
    log!(s, "flag {}", net::is_nonblocking(fd));
    probe_empty(s, fd);
}

fn nonblock_created(s: &Side) {
    let fd = if s.accepts() {
        let lis = s.listen(4);
        net::accept4(lis, libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)
            .0
            .fd()
    } else {
        let fd = net::socket_for(net::loopback(), libc::SOCK_NONBLOCK);
        let to = s.target();
        let r = net::connect(fd, to);
        assert!(r.0 == 0 || r.is(libc::EINPROGRESS));
        wait::wait_for(fd, libc::POLLOUT);
        log!(s, "error {}", net::so_error(fd));
        fd
    };
    // Warm up the way an event loop would, never blocking in recv.
    for _ in 0..4 {
        io::send_all(fd, b"turn").ok();
        wait::wait_queued(fd, 4);
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
        s.sync("turn");
    }
    log!(s, "flag {}", net::is_nonblocking(fd));
    probe_empty(s, fd);
}

fn nonblock_accept4(s: &Side) {
    if s.accepts() {
        let (lis, at) = net::listener(net::loopback(), 4);
        net::set_nonblocking(lis, true).ok();
        log!(s, "none yet {}", net::accept4(lis, 0).0);
        s.tell(u64::from(at.port()));
        wait::wait_for(lis, libc::POLLIN);
        let fd = net::accept4(lis, libc::SOCK_NONBLOCK).0.fd();
        log!(s, "flag {}", net::is_nonblocking(fd));
        log!(s, "cloexec {}", net::fcntl(fd, libc::F_GETFD, 0));
        log!(s, "bad flags {}", net::accept4(lis, 1).0);
        s.sync("connected");
        log!(s, "recv {}", io::recv(fd, &mut [0; 4], 0));
        s.sync("looked");
        net::set_nonblocking(fd, false).ok();
        s.warm_up(fd);
        s.sync("done");
    } else {
        let fd = s.connect();
        s.sync("connected");
        s.sync("looked");
        s.warm_up(fd);
        s.sync("done");
    }
}

/// An accepted socket does not take the listener's mode.
fn nonblock_not_inherited(s: &Side) {
    let (lis, at) = net::listener(net::loopback(), 4);
    net::set_nonblocking(lis, true).ok();
    let own = net::socket_for(at, 0);
    net::connect(own, at).ok();
    wait::wait_for(lis, libc::POLLIN);
    let (got, _) = net::accept4(lis, libc::SOCK_CLOEXEC);
    log!(s, "flag {}", net::is_nonblocking(got.fd()));
    log!(s, "cloexec {}", net::fcntl(got.fd(), libc::F_GETFD, 0));
    let fd = s.pair();
    io::send_all(fd, b"x").ok();
    log!(s, "{}", io::recv_exact(fd, 1).1);
    s.sync("done");
}

fn nonblock_switched(s: &Side) {
    let fd = s.pair();
    let mut buf = [0; 4];
    for round in 0..3 {
        net::set_nonblocking(fd, true).ok();
        log!(s, "on {}", io::recv(fd, &mut buf, 0));
        s.sync("looked");
        if round % 2 == 0 {
            net::fionbio(fd, false)
        } else {
            net::set_nonblocking(fd, false)
        }
        .ok();
        if s.a() {
            std::thread::sleep(wait::millis(20));
            io::send_all(fd, b"ping").ok();
            log!(s, "off {}", io::recv(fd, &mut buf, 0));
        } else {
            log!(s, "off {}", io::recv(fd, &mut buf, 0));
            io::send_all(fd, b"pong").ok();
        }
        s.sync("round");
    }
}

/// The mode belongs to the open file, so every alias sees it.
fn nonblock_through_dup(s: &Side) {
    let fd = s.pair();
    let alias = net::dup(fd).fd();
    net::set_nonblocking(alias, true).ok();
    log!(s, "recv {}", io::recv(fd, &mut [0; 4], 0));
    log!(s, "flag {}", net::is_nonblocking(fd));
    net::fionbio(fd, false).ok();
    log!(s, "flag {}", net::is_nonblocking(alias));
    s.sync("done");
}

fn nonblock_dontwait(s: &Side) {
    let fd = s.pair();
    let mut buf = [0; 4];
    log!(s, "recv {}", io::recv(fd, &mut buf, libc::MSG_DONTWAIT));
    log!(s, "flag {}", net::is_nonblocking(fd));
    s.sync("empty");
    if s.a() {
        let total = fill_up(fd);
        log!(s, "full {}", io::send(fd, &buf, libc::MSG_DONTWAIT));
        log!(
            s,
            "sendmsg {}",
            io::sendmsg(fd, &[&buf], libc::MSG_DONTWAIT)
        );
        s.tell(total as u64);
        s.sync("drained");
        io::send_all(fd, b"more").ok();
    } else {
        let total = s.hear() as usize;
        drain(fd, total);
        s.sync("drained");
        log!(s, "{:?}", io::recv_exact(fd, 4).0);
    }
    s.sync("done");
}

fn nonblock_full_and_drained(s: &Side) {
    let fd = s.pair();
    net::set_nonblocking(fd, true).ok();
    for turn in [true, false] {
        if s.a() == turn {
            let total = fill_up(fd);
            log!(s, "some went in {}", total > 0);
            log!(s, "write {}", io::write(fd, b"x"));
            log!(s, "writev {}", io::writev(fd, &[b"x"]));
            log!(s, "sendto {}", io::sendto_null(fd, b"x", 0));
            log!(s, "poll {}", wait::poll(&[(fd, libc::POLLOUT)], 0));
            s.tell(total as u64);
            wait::wait_for(fd, libc::POLLOUT);
            s.sync("drained");
            log!(s, "again {}", io::write(fd, b"x"));
        } else {
            net::set_nonblocking(fd, false).ok();
            let total = s.hear() as usize;
            drain(fd, total);
            s.sync("drained");
            log!(s, "{}", io::recv_exact(fd, 1).1);
            net::set_nonblocking(fd, true).ok();
        }
        s.sync("turn");
    }
}

/// A large non-blocking write takes what fits; the count is exactly what arrives.
fn nonblock_partial(s: &Side) {
    let fd = s.pair();
    if s.a() {
        net::set_nonblocking(fd, true).ok();
        let big = crate::side::Random::new(3).bytes(32 << 20);
        let took = io::write(fd, &big).ok();
        log!(s, "partial {}", took > 0 && took < big.len());
        s.tell(took as u64);
        s.tell(crate::side::hash(&big[..took]));
    } else {
        let took = s.hear() as usize;
        let mark = s.hear();
        let (got, _) = io::recv_exact(fd, took);
        log!(s, "exact {}", crate::side::hash(&got) == mark);
        log!(
            s,
            "no more {}",
            io::recv(fd, &mut [0; 4], libc::MSG_DONTWAIT)
        );
    }
    s.sync("done");
}

/// A call that already sleeps is not disturbed by the mode changing under it.
fn nonblock_set_while_blocked(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let helper = once_asleep(move |_| {
            net::set_nonblocking(fd, true).ok();
        });
        s.tell(1);
        log!(s, "{}", io::recv(fd, &mut [0; 8], 0));
        helper.join().unwrap();
        log!(s, "{}", io::recv(fd, &mut [0; 8], 0));
    } else {
        s.hear();
        std::thread::sleep(wait::millis(150));
        io::send_all(fd, b"late").ok();
    }
    s.sync("done");
}
