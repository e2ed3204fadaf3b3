//! A stream that is passed over a local socket, to another process or to oneself, alone or in an epoll set.

use super::process::{answer, ask};
use super::{Case, MOVES};
use crate::log;
use crate::side::{Random, Side, hash, text};
use crate::sys::{Fd, io, net, pass, proc, wait};

pub(super) const CASES: &[Case] = &[
    Case::moving("pass_descriptor", pass_descriptor),
    Case::moving("pass_epoll_set", pass_epoll_set),
    Case::moving("pass_with_unread", pass_with_unread),
    Case::moving("pass_with_much_unread", pass_with_much_unread),
    Case::moving("pass_on_both_legs", |s| {
        pass_on_both_legs(s, 300_000, false)
    }),
    Case::moving("pass_on_both_legs_full", |s| {
        pass_on_both_legs(s, 1_800_000, false)
    }),
    Case::moving("pass_on_both_legs_shut", |s| {
        pass_on_both_legs(s, 300_000, true)
    }),
    Case::moving("pass_on_one_leg_shut", |s| pass_on_both_legs(s, 1000, true)),
    Case::moving("pass_and_read_on", pass_and_read_on),
    Case::moving("pass_shared_and_read_on", pass_shared_and_read_on),
    Case::moving("pass_and_execute", pass_and_execute),
    Case::moving("pass_after_a_peek", pass_after_a_peek),
    Case::moving("pass_before_any_byte", |s| pass_before_any_byte(s, 0)),
    Case::moving("pass_long_before_any_byte", |s| {
        pass_before_any_byte(s, 600)
    }),
    Case::moving("pass_what_is_reset", |s| {
        pass_what_is_reset(s, 100, hears_no_sooner)
    }),
    Case::moving("pass_what_is_reset_and_read", |s| {
        pass_what_is_reset(s, 0, hears_no_sooner)
    }),
    Case::moving("pass_what_is_reset_then_option", |s| {
        pass_what_is_reset(s, 100, net::so_error)
    }),
    Case::moving("pass_what_is_reset_then_send", |s| {
        pass_what_is_reset(s, 100, |fd| {
            io::send(fd, b"x", libc::MSG_NOSIGNAL).to_string()
        })
    }),
    Case::moving("pass_before_accepted", pass_before_accepted),
    Case::moving("pass_before_it_listens", pass_before_it_listens),
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

/// As FTP servers do in active mode: a process connects without waiting, waits until that is done, and passes the connection on; its
/// peer accepts it only then. And again, as the next may have the place of the first.
fn pass_before_accepted(s: &Side) {
    for _ in 0..3 {
        one_before_accepted(s);
    }
}

fn one_before_accepted(s: &Side) {
    if s.accepts() {
        let lis = s.listen(4);
        s.sync("passed");
        let fd = net::accept(lis).fd();
        answer(s, fd, &[9, 5]);
        net::close(lis).ok();
    } else {
        let (mine, theirs) = net::unix_pair(libc::SOCK_STREAM);
        let side = *s;
        let child = proc::fork(move || {
            let got = pass::recv_fd(theirs, libc::MSG_CMSG_CLOEXEC);
            net::set_nonblocking(got, false).ok();
            ask(&side, got, b"passed on");
            ask(&side, got, b"again");
            0
        });
        let to = s.target();
        let fd = net::socket_for(to, libc::SOCK_NONBLOCK);
        let _ = net::connect(fd, to);
        log!(s, "{}", wait::poll(&[(fd, libc::POLLOUT)], -1));
        pass::send_fd(mine, fd);
        net::close(fd).ok();
        s.sync("passed");
        log!(s, "{}", proc::wait_child(child));
    }
    s.sync("done");
}

/// A process that is passed a set hears of the sockets in it, also of one that is added afterwards.
fn pass_epoll_set(s: &Side) {
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

/// A process that shares nothing with this one is passed the stream, and does `go` with it.
pub(super) fn stranger(side: Side, go: impl Fn(Side, Fd)) -> (Fd, i32) {
    let (mine, theirs) = net::unix_pair(libc::SOCK_STREAM);
    let child = proc::fork(move || {
        let got = pass::recv_fd(theirs, libc::MSG_CMSG_CLOEXEC);
        go(side, got);
        0
    });
    net::close(theirs).ok();
    (mine, child)
}

/// Bytes that have come and were not read are the next reader's; the peer waits for its answer meanwhile, and goes on.
fn pass_with_unread(s: &Side) {
    let child = s.a().then(|| {
        stranger(*s, |side, got| {
            log!(side, "{}", text(&io::recv_exact(got, 7).0));
            ask(&side, got, b"passed on");
        })
    });
    let fd = s.pair();
    if let Some((channel, child)) = child {
        s.sync("sent");
        wait::wait_queued(fd, 9);
        log!(s, "{}", text(&io::recv_exact(fd, 2).0));
        pass::send_fd(channel, fd);
        net::close(fd).ok();
        log!(s, "{}", proc::wait_child(child));
    } else {
        io::send_all(fd, b"some more").ok();
        s.sync("sent");
        answer(s, fd, &[9]);
    }
    s.sync("done");
}

/// More than a socket's buffer is on its way, and the peer goes on sending: nothing is lost or changes places.
fn pass_with_much_unread(s: &Side) {
    const ALL: usize = 3 << 20;
    let child = s.a().then(|| {
        stranger(*s, |side, got| {
            let (bytes, end) = io::recv_to_end(got);
            log!(side, "{} {:x} {end}", bytes.len(), hash(&bytes));
            io::send_all(got, b"ok").ok();
        })
    });
    let fd = s.pair();
    if let Some((channel, child)) = child {
        log!(s, "{}", text(&io::recv_exact(fd, 4).0));
        pass::send_fd(channel, fd);
        net::close(fd).ok();
        log!(s, "{}", proc::wait_child(child));
    } else {
        io::send_all(fd, b"take").ok();
        io::send_all(fd, &Random::new(44).bytes(ALL)).ok();
        net::shutdown(fd, libc::SHUT_WR).ok();
        log!(s, "{}", text(&io::recv_exact(fd, 2).0));
        log!(s, "end {}", io::recv(fd, &mut [0; 4], 0));
    }
    s.sync("done");
}

/// Some of what is unread came by the kernel, before the ends had agreed, and the rest since: the next reader has all of it
/// in order, though the peer only waits for an answer.
fn pass_on_both_legs(s: &Side, early: usize, shuts: bool) {
    const LATE: usize = 400_000;
    let child = s.a().then(|| {
        stranger(*s, move |side, got| {
            std::thread::sleep(wait::millis(100));
            let (bytes, _) = io::recv_exact(got, early + LATE - 4);
            log!(side, "{} {:x}", bytes.len(), hash(&bytes));
            if shuts {
                log!(side, "end {}", io::recv(got, &mut [0; 4], 0));
            }
            io::send_all(got, b"ok").ok();
        })
    });
    let fd = s.open();
    let bytes = Random::new(45).bytes(early + LATE);
    if let Some((channel, child)) = child {
        s.sync("early");
        log!(s, "{:x}", hash(&io::recv_exact(fd, 4).0));
        s.sync("seen");
        s.sync("late");
        pass::send_fd(channel, fd);
        net::close(fd).ok();
        log!(s, "{}", proc::wait_child(child));
    } else {
        // (between hosts these wait for the other end's first call)
        std::thread::scope(|t| {
            let sender = t.spawn(|| io::send_all(fd, &bytes[..early]).ok());
            std::thread::sleep(wait::millis(50));
            s.sync("early");
            s.sync("seen");
            sender.join().unwrap();
        });
        // (the answer is waited for where what was given back can be sent)
        let sender = std::thread::spawn(move || {
            io::send_all(fd, &bytes[early..]).ok();
            if shuts {
                net::shutdown(fd, libc::SHUT_WR).ok();
            }
            text(&io::recv_exact(fd, 2).0)
        });
        std::thread::sleep(wait::millis(50));
        s.sync("late");
        log!(s, "{}", sender.join().unwrap());
    }
    s.sync("done");
}

/// Who has passed the stream on keeps it, and reads on each time that another has read some of it and closed it: each byte is had
/// once, though the sender is gone.
fn pass_and_read_on(s: &Side) {
    const ALL: usize = 60_000;
    let shares = [0, 3000, 7000];
    let others = s.a().then(|| {
        shares.map(|share| {
            stranger(*s, move |side, got| {
                let (bytes, _) = io::recv_exact(got, share);
                log!(side, "{share} {:x}", hash(&bytes));
            })
        })
    });
    let fd = s.pair();
    let Some(others) = others else {
        log!(s, "{}", text(&io::recv_exact(fd, 4).0));
        io::send_all(fd, &Random::new(46).bytes(ALL)).ok();
        net::close(fd).ok();
        return s.sync("closed");
    };
    io::send_all(fd, b"send").ok();
    s.sync("closed");
    let mut had = 0;
    for ((channel, child), share) in others.into_iter().zip(shares) {
        log!(s, "{:x}", hash(&io::recv_exact(fd, 1000).0));
        pass::send_fd(channel, fd);
        log!(s, "{}", proc::wait_child(child));
        had += 1000 + share;
    }
    let (rest, last) = io::recv_exact(fd, ALL - had);
    log!(s, "{} {:x} {last}", rest.len(), hash(&rest));
    log!(s, "end {}", io::recv(fd, &mut [0; 4], 0));
}

/// A connection that a child holds too, and then one that is passed it, who knows neither of them: all three read on, in turns. The
/// peer has closed.
fn pass_shared_and_read_on(s: &Side) {
    const ALL: usize = 60_000;
    let other = s.a().then(|| {
        stranger(*s, |side, got| {
            log!(side, "passed {:x}", hash(&io::recv_exact(got, 3000).0));
        })
    });
    let fd = s.pair();
    let Some((channel, child)) = other else {
        log!(s, "{}", text(&io::recv_exact(fd, 4).0));
        io::send_all(fd, &Random::new(47).bytes(ALL)).ok();
        net::close(fd).ok();
        return s.sync("closed");
    };
    let (mine, theirs) = net::unix_pair(libc::SOCK_STREAM);
    let side = *s;
    let holder = proc::fork(move || {
        for _ in 0..2 {
            io::recv_exact(theirs, 1);
            log!(side, "held {:x}", hash(&io::recv_exact(fd, 2000).0));
            io::send_all(theirs, b"x").ok();
        }
        0
    });
    let held = || {
        io::send_all(mine, b"x").ok();
        io::recv_exact(mine, 1);
    };
    io::send_all(fd, b"send").ok();
    s.sync("closed");
    log!(s, "{:x}", hash(&io::recv_exact(fd, 1000).0));
    held();
    pass::send_fd(channel, fd);
    log!(s, "{}", proc::wait_child(child));
    held();
    log!(s, "{}", proc::wait_child(holder));
    let (rest, last) = io::recv_exact(fd, ALL - 8000);
    log!(s, "{} {:x} {last}", rest.len(), hash(&rest));
    log!(s, "end {}", io::recv(fd, &mut [0; 4], 0));
}

/// Whoever is passed the connection reads some and becomes another program, which reads on; and so does who has passed it.
fn pass_and_execute(s: &Side) {
    const ALL: usize = 60_000;
    let sent = Random::new(48).bytes(ALL);
    let rest = io::memory_file(sent.get(3000..).unwrap_or_default());
    let other = s.a().then(|| {
        stranger(*s, |side, got| {
            log!(side, "{:x}", hash(&io::recv_exact(got, 2000).0));
            compare(got, rest);
        })
    });
    let fd = s.pair();
    if let Some((channel, child)) = other {
        io::send_all(fd, b"send").ok();
        s.sync("closed");
        log!(s, "{:x}", hash(&io::recv_exact(fd, 1000).0));
        pass::send_fd(channel, fd);
        log!(s, "{}", proc::wait_child(child));
        log!(s, "end {}", io::recv(fd, &mut [0; 4], 0));
    } else {
        log!(s, "{}", text(&io::recv_exact(fd, 4).0));
        io::send_all(fd, &sent).ok();
        net::close(fd).ok();
        s.sync("closed");
    }
}

/// Becomes a program that ends with 0 if what follows on the connection is all of this file.
fn compare(fd: Fd, file: Fd) {
    net::dup2(fd, 0).ok();
    net::dup2(file, 9).ok();
    proc::exec(&["/usr/bin/cmp", "-s", "-", "/proc/self/fd/9"], true);
}

/// A server that looks at the first byte and passes the stream on to whoever serves such.
fn pass_after_a_peek(s: &Side) {
    let child = s.a().then(|| {
        stranger(*s, |side, got| {
            log!(side, "{}", text(&io::recv_exact(got, 7).0));
            ask(&side, got, b"passed on");
        })
    });
    let fd = s.open();
    if let Some((channel, child)) = child {
        let mut first = [0];
        log!(s, "{}", io::recv(fd, &mut first, libc::MSG_PEEK));
        log!(s, "{}", text(&first));
        pass::send_fd(channel, fd);
        net::close(fd).ok();
        log!(s, "{}", proc::wait_child(child));
    } else {
        io::send_all(fd, b"request").ok();
        answer(s, fd, &[9]);
    }
    s.sync("done");
}

fn hears_no_sooner(_: Fd) -> String {
    String::new()
}

/// The other end has sent something and reset the connection: who is passed it reads the rest of that, if there is any, and hears of
/// the reset, by that or by whatever it does `first`.
fn pass_what_is_reset(s: &Side, rest: usize, first: fn(Fd) -> String) {
    let child = s.a().then(|| {
        stranger(*s, |side, got| {
            let shows = |when: &str| {
                let all = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
                log!(side, "{when} {}", wait::poll(&[(got, all)], 1000));
            };
            shows("before");
            log!(side, "{}", first(got));
            shows("then");
            let (bytes, end) = io::recv_to_end(got);
            log!(side, "{} {:x} {end}", bytes.len(), hash(&bytes));
            shows("after");
        })
    });
    let fd = s.open();
    if let Some((channel, child)) = child {
        s.sync("gone");
        log!(s, "{:x}", hash(&io::recv_exact(fd, 32).0));
        pass::send_fd(channel, fd);
        net::close(fd).ok();
        log!(s, "{}", proc::wait_child(child));
    } else {
        io::send_all(fd, &Random::new(47).bytes(32 + rest)).ok();
        net::linger(fd, true, 0).ok();
        net::close(fd).ok();
        s.sync("gone");
    }
    s.sync("done");
}

/// A server that passes on what it accepts; its client speaks so many milliseconds later.
fn pass_before_any_byte(s: &Side, late: u64) {
    let child = s.a().then(|| {
        stranger(*s, |side, got| {
            log!(side, "{}", text(&io::recv_exact(got, 7).0));
            ask(&side, got, b"passed on");
        })
    });
    let fd = s.open();
    if let Some((channel, child)) = child {
        pass::send_fd(channel, fd);
        net::close(fd).ok();
        log!(s, "{}", proc::wait_child(child));
    } else {
        std::thread::sleep(wait::millis(late));
        io::send_all(fd, b"request").ok();
        answer(s, fd, &[9]);
    }
    s.sync("done");
}

/// As node's cluster does: one process binds, another that it passes the socket to listens, waits, and accepts.
fn pass_before_it_listens(s: &Side) {
    if !s.accepts() {
        let fd = s.connect();
        io::send_all(fd, b"hello").ok();
        log!(s, "{}", text(&io::recv_exact(fd, 2).0));
        return s.sync("done");
    }
    let (mine, theirs) = net::unix_pair(libc::SOCK_STREAM);
    let at = net::loopback();
    let bound = net::socket_for(at, 0);
    net::bind(bound, at).ok();
    let port = net::getsockname(bound).port();
    let side = *s;
    let child = proc::fork(move || {
        net::close(bound).ok();
        let lis = pass::recv_fd(theirs, libc::MSG_CMSG_CLOEXEC);
        net::listen(lis, 4).ok();
        let set = wait::epoll();
        wait::add(set, lis, libc::EPOLLIN | libc::EPOLLET, 1).ok();
        side.tell(u64::from(port));
        log!(side, "{}", wait::epoll_wait(set, 1, 5000));
        let fd = net::accept(lis).fd();
        log!(side, "{}", text(&io::recv_exact(fd, 5).0));
        io::send_all(fd, b"yo").ok();
        0
    });
    pass::send_fd(mine, bound);
    net::close(bound).ok();
    log!(s, "{}", proc::wait_child(child));
    s.sync("done");
}
