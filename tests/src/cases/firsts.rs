//! What a program does first with a connection that has carried nothing: nothing at all, a look, a call for no bytes, the
//! end of a half, a pipe or a file. The connection may be about to move; what follows is the same whatever that was.

use super::Case;
use super::process::{answer, ask};
use crate::log;
use crate::side::{Side, drain, fill_up, text};
use crate::sys::{Fd, io, net, wait};

const EITHER: &str = "who speaks first, and how soon, says where the connection is";

pub(super) const CASES: &[Case] = &[
    Case::pair("first_reads_nothing", |s| begins(s, reads_nothing)).any_path(EITHER),
    Case::pair("first_sends_nothing", |s| begins(s, sends_nothing)).any_path(EITHER),
    Case::pair("first_peeks", |s| begins(s, peeks)).any_path(EITHER),
    Case::pair("first_peeks_all", |s| begins(s, peeks_all)).any_path(EITHER),
    Case::pair("first_counts", |s| begins(s, counts)).any_path(EITHER),
    Case::pair("first_splices_out", first_splices_out).any_path(EITHER),
    Case::pair("first_sends_a_file", first_sends_a_file).any_path(EITHER),
    Case::pair("first_ends_its_half", first_ends_its_half).any_path(EITHER),
    Case::pair("first_ends_its_half_silently", first_ends_silently).any_path(EITHER),
    Case::pair("first_closes", first_closes).any_path(EITHER),
    Case::pair("first_waits_for_edges", first_waits_for_edges).any_path(EITHER),
    Case::pair("first_waits_before_connect", first_waits_before_connect).any_path(EITHER),
    Case::pair("first_waits_behind_the_end", first_waits_behind_the_end).any_path(EITHER),
    Case::pair("never_reads", never_reads).any_path(EITHER),
    Case::pair("first_fills_the_kernel", first_fills_the_kernel),
];

/// A does this first, and B asks meanwhile; then A answers, and both go on.
fn begins(s: &Side, first: fn(&Side, Fd)) {
    let fd = s.open();
    if s.a() {
        first(s, fd);
        answer(s, fd, &[7, 5]);
    } else {
        ask(s, fd, b"request");
        ask(s, fd, b"again");
        net::close(fd).ok();
    }
    s.sync("done");
}

fn reads_nothing(s: &Side, fd: Fd) {
    wait::wait_for(fd, libc::POLLIN);
    log!(s, "{} {}", io::recv(fd, &mut [], 0), io::read(fd, &mut []));
}

fn sends_nothing(s: &Side, fd: Fd) {
    log!(s, "{} {}", io::send(fd, b"", 0), io::write(fd, b""));
}

fn peeks(s: &Side, fd: Fd) {
    let mut byte = [0];
    for _ in 0..3 {
        let r = io::recv(fd, &mut byte, libc::MSG_PEEK);
        log!(s, "{r} {}", text(&byte));
    }
}

fn peeks_all(s: &Side, fd: Fd) {
    let mut bytes = [0; 7];
    let r = io::recv(fd, &mut bytes, libc::MSG_PEEK | libc::MSG_WAITALL);
    log!(s, "{r} {}", text(&bytes));
}

fn counts(s: &Side, fd: Fd) {
    wait::wait_queued(fd, 7);
    log!(s, "{}", net::queued(fd));
}

/// The client has sent all that the kernel takes before the server does anything; then that sends all that it may, and reads
/// nothing before there is room again: what tells of that has no room in the kernel, and would lie behind what is not read.
fn first_fills_the_kernel(s: &Side) {
    // (whether a bell has room, and what else makes the server look, is different each time)
    for _ in 0..6 {
        let fd = s.open();
        if s.accepts() {
            let much = s.hear() as usize;
            let set = wait::epoll();
            wait::add(set, fd, libc::EPOLLOUT, 1).ok();
            // (a program of several threads, whose set sleeps for longer)
            let (end, other) = std::sync::mpsc::channel::<()>();
            let idle = std::thread::spawn(move || other.recv().is_err());
            let mut sent = fill_up(fd);
            // (on a busy machine the other end may make room late: what is said to be writable then has to be)
            while wait::epoll_wait(set, 4, 20).ret.0 > 0 {
                let more = fill_up(fd);
                assert!(more > 0, "there is no room");
                sent += more;
            }
            log!(s, "full {}", wait::epoll_wait(set, 4, 0));
            // (as one of many connections, which is looked at in vain until it is left to its bell)
            let none = (0..2000).all(|_| wait::epoll_wait(set, 4, 0).ret.0 == 0);
            log!(s, "none {none}");
            s.tell(sent as u64);
            log!(s, "room {}", wait::epoll_wait(set, 4, 10_000));
            drop(end);
            idle.join().unwrap();
            s.sync("room");
            drain(fd, much);
            net::close(set).ok();
        } else {
            s.tell(fill_up(fd) as u64);
            let much = s.hear() as usize;
            drain(fd, much);
            s.sync("room");
        }
        s.sync("done");
        net::close(fd).ok();
    }
}

/// A's first call moves what comes to a pipe.
fn first_splices_out(s: &Side) {
    let fd = s.open();
    if s.a() {
        let (r, w) = net::pipe();
        let mut got = [0; 7];
        let mut have = 0;
        while have < got.len() {
            have += io::splice(fd, w, 7 - have).ok();
        }
        log!(s, "{} {}", io::read(r, &mut got), text(&got));
        io::send_all(fd, b"ok").ok();
        answer(s, fd, &[5]);
    } else {
        ask(s, fd, b"request");
        ask(s, fd, b"again");
        net::close(fd).ok();
    }
    s.sync("done");
}

/// B's first call sends from a file.
fn first_sends_a_file(s: &Side) {
    let fd = s.open();
    if s.a() {
        answer(s, fd, &[7, 5]);
    } else {
        let file = io::memory_file(b"request");
        log!(s, "{}", io::sendfile_null(fd, file, 100));
        log!(s, "{}", text(&io::recv_exact(fd, 2).0));
        ask(s, fd, b"again");
        net::close(fd).ok();
    }
    s.sync("done");
}

/// A request that ends with its sender's half.
fn first_ends_its_half(s: &Side) {
    let fd = s.open();
    if s.a() {
        let (got, end) = io::recv_to_end(fd);
        log!(s, "{} {end}", text(&got));
        io::send_all(fd, b"answer").ok();
        net::close(fd).ok();
    } else {
        io::send_all(fd, b"request").ok();
        net::shutdown(fd, libc::SHUT_WR).ok();
        let (got, end) = io::recv_to_end(fd);
        log!(s, "{} {end}", text(&got));
    }
    s.sync("done");
}

/// Nothing is asked, and the end of that is the question.
fn first_ends_silently(s: &Side) {
    let fd = s.open();
    if s.a() {
        log!(s, "end {}", io::recv(fd, &mut [0; 4], 0));
        io::send_all(fd, b"answer").ok();
        net::close(fd).ok();
    } else {
        net::shutdown(fd, libc::SHUT_WR).ok();
        let (got, end) = io::recv_to_end(fd);
        log!(s, "{} {end}", text(&got));
    }
    s.sync("done");
}

/// A port is tried, no more.
fn first_closes(s: &Side) {
    let fd = s.open();
    if s.a() {
        log!(s, "end {}", io::recv(fd, &mut [0; 4], 0));
    } else {
        net::close(fd).ok();
    }
    s.sync("done");
}

/// A set is told of the room of a new connection once, and a wait in vain tells nothing.
fn first_waits_for_edges(s: &Side) {
    let fd = s.open();
    if s.a() {
        s.sync("waited");
        answer(s, fd, &[7, 5]);
    } else {
        let set = wait::epoll();
        let edges = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        wait::add(set, fd, edges, 1).ok();
        log!(s, "room {}", wait::epoll_wait(set, 4, -1));
        log!(s, "none {}", wait::epoll_wait(set, 4, 20));
        log!(s, "none {}", wait::epoll_wait(set, 4, 0));
        s.sync("waited");
        ask(s, fd, b"request");
        ask(s, fd, b"again");
        net::close(fd).ok();
    }
    s.sync("done");
}

/// The other end has closed before this one was used at all: it finds an end, and no error.
fn first_waits_behind_the_end(s: &Side) {
    let all = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
    let in_set = |fd: Fd, events: i32| {
        let set = wait::epoll();
        wait::add(set, fd, events, 1).ok();
        let heard = [0, 20].map(|ms| wait::epoll_wait(set, 4, ms).to_string());
        net::close(set).ok();
        heard.join(", ")
    };
    let looks: [&dyn Fn(Fd) -> String; 4] = [
        &|fd| in_set(fd, libc::EPOLLOUT),
        &|fd| in_set(fd, i32::from(all) | libc::EPOLLET),
        &|fd| wait::poll(&[(fd, libc::POLLOUT)], 0).to_string(),
        &|fd| wait::poll(&[(fd, all)], -1).to_string(),
    ];
    for look in looks {
        let fd = s.open();
        if s.a() {
            net::close(fd).ok();
            s.tell(1);
        } else {
            s.hear();
            log!(s, "{}", look(fd));
            log!(s, "{} {}", io::recv(fd, &mut [0; 4], 0), net::so_error(fd));
            net::close(fd).ok();
        }
        s.sync("next");
    }
}

/// A socket that is in a set before it is connected, and a set that is polled.
fn first_waits_before_connect(s: &Side) {
    if s.accepts() {
        let lis = s.listen(8);
        for _ in 0..2 {
            let fd = net::accept(lis).fd();
            s.sync("waits");
            io::send_all(fd, b"hello").ok();
            let (got, end) = io::recv_to_end(fd);
            log!(s, "{} {end}", text(&got));
            net::close(fd).ok();
        }
    } else {
        let to = s.target();
        for polled in [false, true] {
            let fd = net::socket_for(to, 0);
            let set = wait::epoll();
            wait::add(set, fd, libc::EPOLLIN, 1).ok();
            net::connect(fd, to).ok();
            log!(s, "none {}", wait::epoll_wait(set, 4, 0));
            s.sync("waits");
            if polled {
                wait::wait_for(set, libc::POLLIN);
            }
            log!(s, "{}", wait::epoll_wait(set, 4, -1));
            log!(s, "{}", text(&io::recv_exact(fd, 5).0));
            io::send_all(fd, b"thanks").ok();
            net::close(fd).ok();
            net::close(set).ok();
        }
    }
    s.sync("done");
}

/// B sends and goes, and never asks for anything.
fn never_reads(s: &Side) {
    const ROUNDS: usize = 300;
    let fd = s.open();
    if s.a() {
        let (got, end) = io::recv_to_end(fd);
        log!(s, "{} {end}", got.len());
        log!(s, "{}", got.chunks(10).all(|c| c == b"0123456789"));
    } else {
        for _ in 0..ROUNDS {
            io::send_all(fd, b"0123456789").ok();
        }
        net::close(fd).ok();
    }
    s.sync("done");
}
