//! A stream that is passed over a local socket, to another process or to oneself, alone or in an epoll set.

use super::process::{answer, ask};
use super::{Case, MOVES};
use crate::log;
use crate::side::{Side, text};
use crate::sys::{io, net, pass, proc};

pub(super) const CASES: &[Case] = &[
    Case::moving("pass_descriptor", pass_descriptor),
    Case::moving("pass_epoll_set", pass_epoll_set),
    Case::pair("pass_descriptor_to_oneself", pass_descriptor_to_oneself).any_path(MOVES),
];

/// Another process takes the stream over a local socket and goes on with it.
fn pass_descriptor(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let (mine, theirs) = net::unix_pair(libc::SOCK_STREAM);
        let side = *s;
        let child = proc::fork(move || {
            net::close(fd).ok();
            let got = pass::recv_fd(theirs, libc::MSG_CMSG_CLOEXEC);
            ask(&side, got, b"passed on");
            0
        });
        ask(s, fd, b"first");
        pass::send_fd(mine, fd);
        net::close(fd).ok();
        log!(s, "{}", proc::wait_child(child));
    } else {
        answer(s, fd, &[5, 9]);
    }
    s.sync("done");
}

/// A process that is passed a set hears of the sockets in it, also of one that is added afterwards.
fn pass_epoll_set(s: &Side) {
    use crate::sys::wait;
    let (channel, theirs) = net::unix_pair(libc::SOCK_STREAM);
    let child = s.a().then(|| {
        proc::fork(|| {
            let set = pass::recv_fd(theirs, libc::MSG_CMSG_CLOEXEC);
            log!(s, "child {}", wait::epoll_wait(set, 4, 5000));
            log!(s, "child {}", wait::epoll_wait(set, 4, 5000));
            0
        })
    });
    let (first, second) = (s.pair(), s.pair());
    for fd in [first, second] {
        s.always_warm_up(fd);
    }
    if let Some(child) = child {
        let set = wait::epoll();
        let once = libc::EPOLLIN | libc::EPOLLONESHOT;
        wait::add(set, first, once, 0x11).ok();
        log!(s, "{}", wait::epoll_wait(set, 4, 0));
        pass::send_fd(channel, set);
        wait::add(set, second, once, 0x22).ok();
        s.sync("watched");
        log!(s, "{}", proc::wait_child(child));
        for fd in [first, second] {
            log!(s, "{}", text(&io::recv_exact(fd, 3).0));
        }
    } else {
        s.sync("watched");
        io::send_all(first, b"one").ok();
        std::thread::sleep(wait::millis(300));
        io::send_all(second, b"two").ok();
    }
    s.sync("done");
}

fn pass_descriptor_to_oneself(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let (mine, theirs) = net::unix_pair(libc::SOCK_STREAM);
        pass::send_fd(mine, fd);
        let other = pass::recv_fd(theirs, libc::MSG_CMSG_CLOEXEC);
        ask(s, fd, b"by the first");
        ask(s, other, b"by the second");
        net::close(fd).ok();
        ask(s, other, b"alone");
        net::close(other).ok();
    } else {
        answer(s, fd, &[12, 13, 5]);
    }
    s.sync("done");
}
