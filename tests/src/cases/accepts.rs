//! accept: long after the client has spoken or gone, by another thread, asleep, and without its listener.

use super::Case;
use super::attach::talk;
use crate::log;
use crate::side::Side;
use crate::sys::proc::once_asleep;
use crate::sys::{Fd, io, net, proc, wait};

pub(super) const CASES: &[Case] = &[
    Case::pair("accept_late_data_waiting", accept_late_data_waiting),
    Case::pair("accept_late_bulk_waiting", accept_late_bulk_waiting),
    Case::pair("client_gone_before_accept", client_gone_before_accept)
        .any_path("gone before it could attach"),
    Case::pair("client_reset_before_accept", client_reset_before_accept)
        .any_path("gone before it could attach"),
    Case::pair("accept_in_other_thread", accept_in_other_thread),
    Case::pair("accept_wakes", accept_wakes),
    Case::pair("accept_after_shutdown", accept_after_shutdown),
    Case::pair("accept_outlives_listener", accept_outlives_listener)
        .any_path("the listener is gone by then"),
    Case::pair(
        "close_listener_keeps_connection",
        close_listener_keeps_connection,
    ),
    // (two threads would take numbers from each other)
    Case::pair("accept_with_one_left", accept_with_one_left)
        .processes_only()
        .conns(CONNS),
];

/// Connections of [`accept_with_one_left`].
const CONNS: usize = 8;

/// A server has no descriptor left for a connection, and then one for each that comes: that is enough for it to accept them, and for
/// them to go as any other. From the middle on it has more.
fn accept_with_one_left(s: &Side) {
    let to = if s.accepts() {
        let lis = s.listen(16);
        let before = proc::limit(libc::RLIMIT_NOFILE, 64);
        let mut all: Vec<Fd> = Vec::new();
        while let Some(r) = Some(net::dup(1)).filter(|r| r.0 >= 0) {
            all.push(r.fd());
        }
        s.sync("used up");
        wait::wait_for(lis, libc::POLLIN);
        for _ in 0..3 {
            log!(s, "{}", net::accept(lis));
        }
        net::close(all.pop().unwrap()).ok();
        for i in 0..CONNS {
            if i == CONNS / 2 {
                proc::limit(libc::RLIMIT_NOFILE, before);
            }
            let fd = net::accept(lis);
            log!(s, "{i}: {}", fd.0 >= 0);
            s.always_warm_up(fd.fd());
            net::close(fd.fd()).ok();
            s.sync("next");
        }
        return;
    } else {
        s.target()
    };
    s.sync("used up");
    for _ in 0..CONNS {
        let fd = net::socket_for(to, 0);
        net::connect(fd, to).ok();
        s.always_warm_up(fd);
        s.sync("next");
        net::close(fd).ok();
    }
}

/// The client connects, sends and even reads nothing long before anybody accepts.
fn accept_late_data_waiting(s: &Side) {
    let fd = if s.accepts() {
        let lis = s.listen(8);
        s.sync("sent");
        std::thread::sleep(wait::millis(50));
        let fd = net::accept(lis).fd();
        wait::wait_queued(fd, 5);
        log!(s, "{}", wait::poll(&[(fd, libc::POLLIN)], 0));
        log!(s, "{}", String::from_utf8_lossy(&io::recv_exact(fd, 5).0));
        fd
    } else {
        let fd = s.connect();
        log!(s, "{}", io::send_all(fd, b"early"));
        s.sync("sent");
        fd
    };
    talk(s, fd);
}

fn accept_late_bulk_waiting(s: &Side) {
    let size = 3 << 20;
    if s.accepts() {
        let lis = s.listen(8);
        s.sync("connected");
        std::thread::sleep(wait::millis(50));
        let fd = net::accept(lis).fd();
        let (got, _) = io::recv_exact(fd, size);
        log!(s, "{:x}", crate::side::hash(&got));
        talk(s, fd);
    } else {
        let fd = s.connect();
        s.sync("connected");
        log!(
            s,
            "{}",
            io::send_all(fd, &crate::side::Random::new(2).bytes(size))
        );
        talk(s, fd);
    }
}

fn client_gone_before_accept(s: &Side) {
    if s.accepts() {
        let lis = s.listen(8);
        s.sync("gone");
        let (r, from) = net::accept4(lis, 0);
        log!(s, "{} {}", r.0 >= 0, from.ip());
        let (got, last) = io::recv_to_end(r.fd());
        log!(s, "{} {last}", String::from_utf8_lossy(&got));
    } else {
        let fd = s.connect();
        io::send_all(fd, b"left a note").ok();
        net::close(fd).ok();
        s.sync("gone");
    }
}

fn client_reset_before_accept(s: &Side) {
    if s.accepts() {
        let lis = s.listen(8);
        s.sync("gone");
        let r = net::accept(lis);
        log!(s, "{}", r.0 >= 0);
        wait::wait_for(r.fd(), libc::POLLHUP);
        log!(s, "{}", io::recv_to_end(r.fd()).1);
    } else {
        let fd = s.connect();
        net::linger(fd, true, 0).ok();
        net::close(fd).ok();
        s.sync("gone");
    }
}

/// One thread accepts, another uses the connection.
fn accept_in_other_thread(s: &Side) {
    if s.accepts() {
        let lis = s.listen(8);
        let fd = std::thread::spawn(move || net::accept(lis).fd())
            .join()
            .unwrap();
        talk(s, fd);
    } else {
        let to = s.target();
        let fd = std::thread::spawn(move || {
            let fd = net::socket_for(to, 0);
            net::connect(fd, to).ok();
            fd
        });
        talk(s, fd.join().unwrap());
    }
}

/// The client's half of a case whose server says when.
fn connect_once_told(s: &Side) -> Fd {
    let to = s.target();
    s.hear();
    let fd = net::socket_for(to, 0);
    net::connect(fd, to).ok();
    fd
}

fn accept_wakes(s: &Side) {
    if s.accepts() {
        let lis = s.listen(8);
        let helper = s.tell_once_asleep();
        let fd = net::accept(lis).fd();
        helper.join().unwrap();
        talk(s, fd);
    } else {
        talk(s, connect_once_told(s));
    }
}

/// Shutting a listener down wakes accept with EINVAL.
fn accept_after_shutdown(s: &Side) {
    let (lis, _) = net::listener(net::loopback(), 4);
    let helper = once_asleep(move |_| net::shutdown(lis, libc::SHUT_RDWR));
    log!(s, "{}", net::accept(lis));
    log!(s, "{}", helper.join().unwrap());
    let fd = s.pair();
    talk(s, fd);
}

/// A listener is closed while a thread sleeps in accept, which the kernel still ends with one more connection.
fn accept_outlives_listener(s: &Side) {
    let fd = if s.accepts() {
        let lis = s.listen(8);
        let side = *s;
        let helper = once_asleep(move |_| {
            net::close(lis).ok();
            side.tell(0);
        });
        let fd = net::accept(lis).fd();
        helper.join().unwrap();
        fd
    } else {
        connect_once_told(s)
    };
    talk(s, fd);
}

fn close_listener_keeps_connection(s: &Side) {
    let fd = if s.accepts() {
        let lis = s.listen(8);
        let fd = net::accept(lis).fd();
        net::close(lis).ok();
        fd
    } else {
        s.open()
    };
    std::thread::sleep(wait::millis(10));
    talk(s, fd);
}
