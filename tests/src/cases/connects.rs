//! connect: at once or not, refused, again, from a bound address, and with arguments that are wrong.

use super::Case;
use super::attach::talk;
use crate::log;
use crate::side::{Side, text};
use crate::sys::{Fd, io, net, wait};
use std::net::{Ipv6Addr, SocketAddr};

pub(super) const CASES: &[Case] = &[
    Case::pair("connect_nonblocking", connect_nonblocking),
    Case::pair("connect_nonblocking_states", connect_nonblocking_states),
    Case::pair("connect_refused", connect_refused),
    Case::pair("connect_refused_nonblocking", connect_refused_nonblocking),
    Case::pair("connect_bound_source", connect_bound_source),
    Case::pair("connect_errors", connect_errors),
    Case::pair("connect_again_after_refusal", connect_again_after_refusal),
    Case::pair("connect_again_after_reset", connect_again_after_reset)
        .any_path("the first of each two is gone before it could attach"),
];

/// A port on which nobody listens, held so that nobody else takes it.
fn dead_port() -> (Fd, SocketAddr) {
    let fd = net::socket_for(net::loopback(), 0);
    net::bind(fd, net::loopback()).ok();
    (fd, net::getsockname(fd))
}

fn connect_nonblocking(s: &Side) {
    let fd = if s.accepts() {
        net::accept(s.listen(8)).fd()
    } else {
        let to = s.target();
        let fd = net::socket_for(to, libc::SOCK_NONBLOCK);
        let r = net::connect(fd, to);
        log!(s, "{}", r.0 == 0 || r.is(libc::EINPROGRESS));
        log!(s, "{}", wait::poll(&[(fd, libc::POLLOUT)], -1));
        log!(s, "{}", net::so_error(fd));
        net::set_nonblocking(fd, false).ok();
        fd
    };
    talk(s, fd);
}

fn connect_nonblocking_states(s: &Side) {
    let fd = if s.accepts() {
        net::accept(s.listen(8)).fd()
    } else {
        let to = s.target();
        let fd = net::socket_for(to, libc::SOCK_NONBLOCK);
        log!(
            s,
            "before {}",
            wait::poll(&[(fd, libc::POLLIN | libc::POLLOUT)], 0)
        );
        let _ = net::connect(fd, to);
        wait::wait_for(fd, libc::POLLOUT);
        let first = net::connect(fd, to);
        log!(s, "again {}", first.0 == 0 || first.is(libc::EISCONN));
        log!(s, "third {}", net::connect(fd, to));
        log!(s, "recv {}", io::recv(fd, &mut [0; 4], 0));
        net::set_nonblocking(fd, false).ok();
        fd
    };
    talk(s, fd);
}

fn connect_refused(s: &Side) {
    let (_held, at) = dead_port();
    let fd = net::socket_for(at, 0);
    log!(s, "{}", net::connect(fd, at));
    log!(s, "{}", net::so_error(fd));
    log!(s, "{}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
    log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
    let fd = s.pair();
    talk(s, fd);
}

fn connect_refused_nonblocking(s: &Side) {
    let (_held, at) = dead_port();
    let fd = net::socket_for(at, libc::SOCK_NONBLOCK);
    let set = wait::epoll();
    let r = net::connect(fd, at);
    log!(s, "{}", r.is(libc::EINPROGRESS) || r.is(libc::ECONNREFUSED));
    wait::add(set, fd, libc::EPOLLIN | libc::EPOLLOUT, 3).ok();
    log!(s, "{}", wait::epoll_wait(set, 4, -1));
    log!(
        s,
        "{}",
        wait::poll(&[(fd, libc::POLLIN | libc::POLLOUT)], -1)
    );
    let error = net::so_error(fd);
    log!(s, "{}", error == "ECONNREFUSED" || r.is(libc::ECONNREFUSED));
    log!(s, "{}", net::so_error(fd));
    let fd = s.pair();
    talk(s, fd);
}

/// A failed socket may try again and then works.
fn connect_again_after_refusal(s: &Side) {
    let fd = if s.accepts() {
        s.sync("refused");
        net::accept(s.listen(8)).fd()
    } else {
        let (_held, at) = dead_port();
        let fd = net::socket_for(at, 0);
        log!(s, "{}", net::connect(fd, at));
        s.sync("refused");
        log!(s, "{}", net::connect(fd, s.target()));
        fd
    };
    talk(s, fd);
}

fn connect_bound_source(s: &Side) {
    let fd = if s.accepts() {
        let (r, from) = net::accept4(s.listen(8), 0);
        log!(s, "from {}", from.ip());
        r.fd()
    } else {
        let to = s.target();
        let fd = net::socket_for(to, 0);
        let source = SocketAddr::from(([127, 9, 9, 9], 0));
        log!(s, "{}", net::bind(fd, source));
        let bound = net::getsockname(fd);
        log!(s, "{}", net::connect(fd, to));
        log!(s, "{}", net::getsockname(fd) == bound);
        fd
    };
    talk(s, fd);
}

fn connect_errors(s: &Side) {
    let fd = net::socket_for(net::loopback(), 0);
    let raw = net::RawAddr::new(net::loopback());
    let page = io::forbidden_page() as *const libc::sockaddr;
    log!(
        s,
        "bad pointer {}",
        crate::sys::call!(libc::connect(fd, page, 16))
    );
    log!(
        s,
        "short {}",
        crate::sys::call!(libc::connect(fd, raw.ptr(), 4))
    );
    log!(
        s,
        "huge {}",
        crate::sys::call!(libc::connect(fd, raw.ptr(), 4096))
    );
    log!(s, "not open {}", net::connect(900, net::loopback()));
    log!(
        s,
        "not a socket {}",
        net::connect(io::memory_file(b""), net::loopback())
    );
    let v6 = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 9);
    log!(s, "wrong family {}", net::connect(fd, v6).0 < 0);
    let fd = s.pair();
    talk(s, fd);
}

/// A client resets its connection and makes another by the same port, before the server has accepted either.
fn connect_again_after_reset(s: &Side) {
    if s.accepts() {
        let lis = s.listen(8);
        for _ in 0..5 {
            s.hear();
            let (first, second) = (net::accept(lis).fd(), net::accept(lis).fd());
            log!(s, "{}", io::recv(first, &mut [0; 9], 0));
            log!(s, "{}", text(&io::recv_exact(second, 7).0));
            io::send_all(second, b"reply").ok();
            log!(s, "{}", io::recv(second, &mut [0; 9], 0));
            net::close(first).ok();
            net::close(second).ok();
        }
    } else {
        let to = s.target();
        let mut own = net::loopback();
        for _ in 0..5 {
            for last in [false, true] {
                let fd = net::socket_for(to, 0);
                net::setopt(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).ok();
                net::bind(fd, own).ok();
                own = net::getsockname(fd);
                log!(s, "{}", net::connect(fd, to));
                if last {
                    io::send_all(fd, b"request").ok();
                    s.tell(0);
                    log!(s, "{}", text(&io::recv_exact(fd, 5).0));
                }
                net::linger(fd, true, 0).ok();
                net::close(fd).ok();
            }
        }
    }
    s.sync("done");
}
