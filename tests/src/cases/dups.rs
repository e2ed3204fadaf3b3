//! Aliases of a connected descriptor, and descriptors that change while somebody uses them.

use super::{Case, MOVES};
use crate::log;
use crate::side::{Random, Side, text};
use crate::sys::proc::once_asleep;
use crate::sys::{Fd, call, io, net, proc, wait};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    Case::pair("dup_alias", |s| alias(s, |fd| net::dup(fd).fd())),
    Case::pair("dup2_alias", |s| alias(s, |fd| net::dup2(fd, 700).fd())),
    Case::pair("dup3_alias", |s| {
        alias(s, |fd| net::dup3(fd, 701, libc::O_CLOEXEC).fd())
    }),
    Case::pair("f_dupfd_alias", |s| {
        alias(s, |fd| net::fcntl(fd, libc::F_DUPFD, 600).fd())
    }),
    Case::pair("f_dupfd_cloexec_alias", |s| {
        alias(s, |fd| net::fcntl(fd, libc::F_DUPFD_CLOEXEC, 600).fd());
    }),
    Case::pair("pidfd_getfd_of_own", |s| alias(s, |fd| fetch(s, 0, fd))),
    Case::pair("pidfd_getfd_of_own_set", fetched_set),
    Case::pair("pidfd_getfd_of_child", fetched_from_child)
        .processes_only()
        .any_path(MOVES),
    Case::pair("alias_closed_beside_stream", alias_closed_beside_stream),
    Case::pair("dup_errors", dup_errors),
    Case::pair("dup2_onto_itself", dup2_onto_itself),
    Case::pair("dup2_onto_connection", dup2_onto_connection),
    Case::pair(
        "dup2_connection_onto_connection",
        dup2_connection_onto_connection,
    ),
    Case::pair("dup2_while_reader_blocked", dup2_while_reader_blocked),
    Case::pair("close_while_reader_blocked", close_while_reader_blocked),
    Case::pair("number_reused_while_reader_blocked", |s| {
        number_reused_while_reader_blocked(s, false);
    }),
    Case::pair("alias_reused_while_reader_blocked", |s| {
        number_reused_while_reader_blocked(s, true);
    }),
    Case::pair("close_while_poll_blocked", close_while_poll_blocked),
    Case::pair("last_close_ends_stream", last_close_ends_stream),
    Case::pair("close_range_closes", close_range_closes).processes_only(),
    Case::pair("number_reused_by_file", number_reused_by_file),
    Case::pair("dup_before_warm_up", dup_before_warm_up),
];

/// Two names for one stream: either may send, either may read, one may close.
fn alias(s: &Side, make: impl Fn(Fd) -> Fd) {
    let fd = s.pair();
    if s.a() {
        let other = make(fd);
        log!(s, "{}", io::send_all(fd, b"one "));
        log!(s, "{}", io::send_all(other, b"two "));
        log!(s, "{}", io::send_all(fd, b"three"));
        log!(s, "{}", text(&io::recv_exact(fd, 3).0));
        log!(s, "{}", text(&io::recv_exact(other, 3).0));
        log!(s, "close {}", net::close(fd));
        log!(s, "{}", io::send_all(other, b" four"));
        log!(s, "{}", text(&io::recv_exact(other, 3).0));
        log!(s, "gone {}", io::send(fd, b"x", 0));
        log!(s, "close {}", net::close(other));
    } else {
        log!(s, "{}", text(&io::recv_exact(fd, 13).0));
        io::send_all(fd, b"abcdef").ok();
        log!(s, "{}", text(&io::recv_exact(fd, 5).0));
        io::send_all(fd, b"ghi").ok();
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
    }
    s.sync("done");
}

/// A duplicate of what a process has by this number (0: this one), by its pidfd. Where that cannot be had, by dup.
fn fetch(s: &Side, process: i32, fd: Fd) -> Fd {
    let process = if process == 0 {
        std::process::id().cast_signed()
    } else {
        process
    };
    let pidfd = call!(libc::syscall(libc::SYS_pidfd_open, process, 0));
    if pidfd.0 < 0 {
        log!(s, "skipped: pidfd_open says {pidfd}");
        return net::dup(fd).fd();
    }
    let copy = call!(libc::syscall(libc::SYS_pidfd_getfd, pidfd.fd(), fd, 0));
    net::close(pidfd.fd()).ok();
    if [libc::ENOSYS, libc::EPERM].into_iter().any(|e| copy.is(e)) {
        log!(s, "skipped: pidfd_getfd says {copy}");
        return net::dup(fd).fd();
    }
    copy.fd()
}

/// A set goes on by the duplicate's number.
fn fetched_set(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let set = wait::epoll();
        wait::add(set, fd, libc::EPOLLIN, 7).ok();
        let copy = fetch(s, 0, set);
        net::close(set).ok();
        s.tell_once_asleep();
        log!(s, "{}", wait::epoll_wait(copy, 4, 10_000));
        log!(s, "{}", text(&io::recv_exact(fd, 4).0));
        net::close(copy).ok();
    } else {
        s.hear();
        io::send_all(fd, b"late").ok();
    }
    s.sync("done");
}

/// What a child has is its parent's too.
fn fetched_from_child(s: &Side) {
    alias(s, |fd| {
        let (end, hold) = net::pipe();
        let child = proc::fork(|| {
            net::close(hold).ok();
            io::read(end, &mut [0]).ok();
            0
        });
        let copy = fetch(s, child, fd);
        net::close(hold).ok();
        log!(s, "{}", proc::wait_child(child));
        copy
    });
}

fn dup_errors(s: &Side) {
    let fd = s.pair();
    log!(s, "{}", net::dup(900));
    log!(s, "{}", net::dup2(900, fd));
    log!(s, "{}", net::dup2(fd, -1));
    log!(s, "{}", net::dup2(fd, 1 << 30));
    log!(s, "{}", net::dup3(fd, fd, 0));
    log!(s, "{}", net::dup3(fd, 700, 1));
    log!(s, "{}", net::fcntl(fd, libc::F_DUPFD, 1 << 30));
    io::send_all(fd, b"alive").ok();
    log!(s, "{}", text(&io::recv_exact(fd, 5).0));
    s.sync("done");
}

fn dup2_onto_itself(s: &Side) {
    let fd = s.pair();
    log!(s, "{}", net::dup2(fd, fd).0 == i64::from(fd));
    io::send_all(fd, b"alive").ok();
    log!(s, "{}", text(&io::recv_exact(fd, 5).0));
    s.sync("done");
}

/// A file takes over the number: the peer sees the end, the number is the file.
fn dup2_onto_connection(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"before").ok();
        let file = io::memory_file(b"file data");
        log!(s, "{}", net::dup2(file, fd).0 == i64::from(fd));
        let mut buf = [0; 4];
        log!(s, "{} {}", io::read(fd, &mut buf), text(&buf));
        log!(s, "{}", io::recv(fd, &mut buf, 0));
    } else {
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", text(&got));
    }
    s.sync("done");
}

fn dup2_connection_onto_connection(s: &Side) {
    let (one, two) = (s.pair(), s.pair());
    if s.a() {
        io::send_all(two, b"on two").ok();
        log!(s, "{}", net::dup2(one, two).0 == i64::from(two));
        io::send_all(two, b"really one").ok();
        log!(s, "{}", text(&io::recv_exact(two, 2).0));
        net::close(one).ok();
        io::send_all(two, b"!").ok();
        net::close(two).ok();
    } else {
        let (got, last) = io::recv_to_end(two);
        log!(s, "{} {last}", text(&got));
        io::send_all(one, b"ok").ok();
        let (got, last) = io::recv_to_end(one);
        log!(s, "{} {last}", text(&got));
    }
    s.sync("done");
}

/// A sleeping read keeps its open file; the number already means something else.
fn dup2_while_reader_blocked(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let keep = net::dup(fd).fd();
        let channel = *s;
        let helper = once_asleep(move |_| {
            let file = io::memory_file(b"file");
            net::dup2(file, fd).ok();
            channel.tell(1);
        });
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
        helper.join().unwrap();
        let mut buf = [0; 4];
        log!(s, "{} {}", io::read(fd, &mut buf), text(&buf));
        log!(s, "{}", io::recv(keep, &mut buf, libc::MSG_DONTWAIT));
    } else {
        s.hear();
        io::send_all(fd, b"late").ok();
    }
    s.sync("done");
}

/// Closing the number does not end a read that sleeps on it: it gets what comes.
fn close_while_reader_blocked(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let channel = *s;
        let helper = once_asleep(move |_| {
            net::close(fd).ok();
            channel.tell(1);
        });
        let mut buf = [0; 4];
        log!(s, "{} {}", io::recv(fd, &mut buf, 0), text(&buf));
        helper.join().unwrap();
        log!(s, "{}", io::recv(fd, &mut buf, 0));
    } else {
        s.hear();
        log!(s, "{}", io::send(fd, b"late", libc::MSG_NOSIGNAL));
    }
    s.sync("done");
}

/// The number of a sleeping read is another connection's when it wakes up, and the sender waits for room by then: whatever
/// is told to that goes to it alone.
fn number_reused_while_reader_blocked(s: &Side, has_alias: bool) {
    const ALL: usize = 3 << 20;
    let fd = s.pair();
    if s.a() {
        let alias = has_alias.then(|| net::dup(fd).fd());
        let (one, other) = net::unix_pair(libc::SOCK_STREAM);
        let channel = *s;
        let helper = once_asleep(move |_| {
            net::dup2(one, fd).ok();
            channel.tell(1);
        });
        let mut buf = vec![0; 400_000];
        log!(s, "{}", io::recv(fd, &mut buf[..], 0).0 > 0);
        helper.join().unwrap();
        if let Some(alias) = alias {
            // (how much the first has read is a matter of pace)
            while io::recv(alias, &mut buf[..], 0).0 > 0 {}
        }
        log!(s, "{}", io::recv(other, &mut buf[..], libc::MSG_DONTWAIT));
    } else {
        s.hear();
        let sent = io::send_all(fd, &vec![7; ALL]);
        if has_alias {
            log!(s, "{sent}");
        }
        net::close(fd).ok();
    }
    s.sync("done");
}

fn close_while_poll_blocked(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let channel = *s;
        let helper = once_asleep(move |_| {
            net::close(fd).ok();
            channel.tell(1);
        });
        log!(s, "{}", wait::poll(&[(fd, libc::POLLIN)], 10_000));
        helper.join().unwrap();
        log!(s, "{}", wait::poll(&[(fd, libc::POLLIN)], 0));
    } else {
        s.hear();
        log!(s, "{}", io::send(fd, b"late", libc::MSG_NOSIGNAL));
    }
    s.sync("done");
}

fn last_close_ends_stream(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let aliases: Vec<Fd> = (0..3).map(|_| net::dup(fd).fd()).collect();
        net::close(fd).ok();
        for one in &aliases {
            s.sync("look");
            s.sync("looked");
            net::close(*one).ok();
        }
        s.sync("last");
    } else {
        for _ in 0..3 {
            s.sync("look");
            log!(s, "{}", wait::poll(&[(fd, libc::POLLIN)], 10));
            s.sync("looked");
        }
        s.sync("last");
        log!(s, "{}", wait::poll(&[(fd, libc::POLLIN)], -1));
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
    }
    s.sync("done");
}

fn close_range_closes(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let high = net::dup2(fd, 800).fd();
        net::close(fd).ok();
        io::send_all(high, b"last").ok();
        log!(s, "{}", crate::sys::call!(libc::close_range(790, 810, 0)));
        log!(s, "{}", io::send(high, b"x", 0));
    } else {
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", text(&got));
    }
    s.sync("done");
}

/// The freed number goes to other kinds of descriptors, each of which works as itself.
fn number_reused_by_file(s: &Side) {
    let fd = s.pair();
    net::close(fd).ok();
    s.sync("closed");
    let lowest = net::dup(1).fd();
    net::close(lowest).ok();
    let (r, w) = net::pipe();
    log!(s, "{}", io::write(w, b"pipe"));
    let mut buf = [0; 8];
    log!(s, "{} {}", io::read(r, &mut buf), text(&buf[..4]));
    net::close(r).ok();
    net::close(w).ok();
    let (u, v) = net::unix_pair(libc::SOCK_STREAM);
    log!(s, "{}", io::send(v, b"unix", 0));
    log!(s, "{} {}", io::recv(u, &mut buf, 0), text(&buf[..4]));
    net::close(u).ok();
    net::close(v).ok();
    let again = s.pair();
    io::send_all(again, b"tcp").ok();
    log!(s, "{}", text(&io::recv_exact(again, 3).0));
    s.sync("done");
}

/// The alias is made before the first byte, when nothing has been agreed yet.
fn dup_before_warm_up(s: &Side) {
    let fd = s.open();
    let other = net::dup(fd).fd();
    s.always_warm_up(fd);
    s.always_warm_up(other);
    net::close(fd).ok();
    s.always_warm_up(other);
    log!(s, "fine");
    s.sync("done");
}

/// Two threads go on with the stream by the number that they have; another makes further ones and closes them, all the time.
fn alias_closed_beside_stream(s: &Side) {
    let fd = s.pair();
    let mut random = Random::new(31);
    let sizes: Vec<usize> = (0..1500).map(|_| 1 + random.below(3000)).collect();
    if s.a() {
        net::setopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1).ok();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random::new(32);
                while !over.load(Ordering::Relaxed) {
                    net::close(net::dup(fd).fd()).ok();
                    sleep(Duration::from_micros(random.below(300) as u64));
                }
            });
            let sender = scope.spawn(|| {
                let mut random = Random::new(33);
                let all = sizes
                    .iter()
                    .map(|&size| io::send_all(fd, &random.bytes(size)).0);
                all.sum::<i64>()
            });
            let mut random = Random::new(33);
            let same = |&&size: &&usize| io::recv_exact(fd, size).0 == random.bytes(size);
            let good = sizes.iter().take_while(same).count();
            log!(s, "good {good}");
            log!(s, "sent {}", sender.join().unwrap());
            over.store(true, Ordering::Relaxed);
        });
    } else {
        for &size in &sizes {
            let (got, _) = io::recv_exact(fd, size);
            io::send_all(fd, &got).ok();
        }
    }
    s.sync("done");
}
