//! What comes where nobody looks: much that is not read for a while, and ends behind words that are the transport's own.

use super::Case;
use crate::log;
use crate::side::{Random, Side};
use crate::sys::{Fd, Ret, io, net, proc, wait};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(super) const CASES: &[Case] = &[
    Case::pair("both_write_much_first", both_write_much_first)
        .any_path("who waits for room for long goes back to the kernel"),
    Case::moving("closed_after_peer_has_left", closed_after_peer_has_left),
    Case::moving("both_leave_at_once", both_leave_at_once),
    Case::moving("left_while_a_ring_is_made", left_while_a_ring_is_made),
    Case::pair("exits_behind_an_unread_end", exits_behind_an_unread_end).processes_only(),
    Case::pair("ended_long_before_accept", ended_long_before_accept)
        .processes_only()
        .any_path("nobody has accepted it")
        .slow(),
    Case::pair("both_shut_behind_much", both_shut_behind_much),
    Case::pair("edge_of_reset_after_a_poll", edge_of_reset_after_a_poll),
    Case::pair("edge_of_reset_behind_own_end", |s| {
        edge_of_reset_behind_own_end(s, |_| ());
    }),
    Case::pair("edge_of_reset_behind_end_of_many", |s| {
        edge_of_reset_behind_own_end(s, |fd| question_and_answer(s, fd));
    }),
    Case::pair("sent_after_a_reset", sent_after_a_reset),
    Case::pair("killed_beside_what_is_ready", killed_beside_what_is_ready).processes_only(),
];

/// Both ends send more than a ring holds, which the kernel takes, before either reads.
fn both_write_much_first(s: &Side) {
    let fd = s.pair();
    question_and_answer(s, fd);
    let mine = Random::new(21).bytes(300_000);
    let begun = Instant::now();
    log!(s, "sent {}", io::send_all(fd, &mine));
    assert!(
        begun.elapsed() < wait::millis(6000),
        "{:?}",
        begun.elapsed()
    );
    let (got, _) = io::recv_exact(fd, mine.len());
    log!(s, "read {}", got == mine);
    s.sync("done");
}

/// Enough that a ring is worth it.
fn question_and_answer(s: &Side, fd: Fd) {
    for _ in 0..100 {
        if s.a() {
            io::send(fd, b"ask", 0).ok();
            io::recv_exact(fd, 3);
        } else {
            io::recv_exact(fd, 3);
            io::send(fd, b"did", 0).ok();
        }
    }
    s.sync("warm");
}

/// A process sleeps in a set of its parent's, so the stream is the kernel's from there on; the other end sends, closes, and has
/// made no call since that could have heard of it.
fn closed_after_peer_has_left(s: &Side) {
    let fd = s.pair();
    question_and_answer(s, fd);
    let much = Random::new(22).bytes(1_000_000);
    if s.a() {
        let set = wait::epoll();
        wait::add(set, fd, libc::EPOLLIN, 1).ok();
        let child = proc::fork(move || {
            wait::epoll_wait(set, 1, 10_000);
            i32::from(io::recv_exact(fd, 1).0 != b"n")
        });
        sleep(wait::millis(100));
        s.sync("sleeps");
        log!(s, "child {}", proc::wait_child(child));
        s.sync("left");
        s.sync("closed");
        let (got, last) = io::recv_to_end(fd);
        log!(s, "read {} {last}", got == much);
    } else {
        s.sync("sleeps");
        io::send(fd, b"n", 0).ok();
        s.sync("left");
        io::send_all(fd, &much).ok();
        net::close(fd).ok();
        s.sync("closed");
    }
    s.sync("done");
}

/// Each end hands the stream to the kernel in the same moment, so both ask the other to take back what is unread.
fn both_leave_at_once(s: &Side) {
    for unread in [0, 0, 4, 0, 4, 0] {
        let fd = s.pair();
        s.warm_up(fd);
        io::send_all(fd, &b"firs"[..unread]).ok();
        s.sync("warm");
        net::setopt(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, 0).ok();
        io::send_all(fd, b"next").ok();
        let got = io::recv_exact(fd, unread + 4).0;
        log!(s, "{}", String::from_utf8_lossy(&got));
        s.sync("next");
        net::close(fd).ok();
    }
}

/// The end of file is seen by a poll before the edge-triggered set tells of it; a reset comes later.
fn edge_of_reset_after_a_poll(s: &Side) {
    let fd = s.pair();
    question_and_answer(s, fd);
    if s.a() {
        let set = wait::epoll();
        let all = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        wait::add(set, fd, all, 1).ok();
        wait::epoll_wait(set, 1, 0);
        s.sync("set");
        s.sync("shut");
        wait::poll(&[(fd, libc::POLLRDHUP)], 5000);
        log!(s, "end {}", wait::epoll_wait(set, 1, 1000));
        log!(s, "send {}", io::send(fd, b"too late", libc::MSG_NOSIGNAL));
        log!(s, "reset {}", wait::epoll_wait(set, 1, 5000));
        log!(s, "again {}", wait::epoll_wait(set, 1, 50));
    } else {
        s.sync("set");
        sleep(wait::millis(100)); // (an offer of a ring that comes late would be answered with a reset)
        net::shutdown(fd, libc::SHUT_RDWR).ok();
        s.sync("shut");
    }
    s.sync("done");
}

/// Both directions were shut here, of which an edge-triggered set has told; what comes all the same makes a reset.
fn edge_of_reset_behind_own_end(s: &Side, warm: impl Fn(Fd)) {
    let fd = s.pair();
    warm(fd);
    if s.a() {
        let set = wait::epoll();
        let all = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        wait::add(set, fd, all, 1).ok();
        sleep(wait::millis(100)); // (as above)
        net::shutdown(fd, libc::SHUT_RDWR).ok();
        log!(s, "end {}", wait::epoll_wait(set, 1, 1000));
        wait::epoll_wait(set, 1, 100); // (the kernel may tell once more when the peer's has heard)
        s.sync("shut");
        // (the kernel tells of it once, or twice)
        log!(s, "reset {}", wait::epoll_wait(set, 1, 5000));
    } else {
        s.sync("shut");
        log!(s, "send {}", io::send(fd, b"too late", libc::MSG_NOSIGNAL));
    }
    s.sync("done");
}

/// The peer has said something and reset the connection, and this side looks at neither before it sends.
fn sent_after_a_reset(s: &Side) {
    let fd = s.pair();
    question_and_answer(s, fd);
    if s.a() {
        s.sync("reset");
        sleep(wait::millis(100)); // (until the kernel has it)
        for _ in 0..3 {
            log!(s, "send {}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
        }
        log!(s, "poll {}", wait::poll(&[(fd, libc::POLLIN)], 0));
        for _ in 0..2 {
            log!(s, "read {}", io::recv(fd, &mut [0; 100], 0));
        }
    } else {
        sleep(wait::millis(100)); // (as above)
        io::send(fd, b"last words", 0).ok();
        sleep(wait::millis(100));
        net::linger(fd, true, 0).ok();
        net::close(fd).ok();
        s.sync("reset");
    }
    s.sync("done");
}

/// Much is sent before both directions are shut, and read slowly: what the reader's end says of its own meanwhile is no answer to that.
fn both_shut_behind_much(s: &Side) {
    let much = Random::new(23).bytes(1_000_000);
    for round in 0..4 {
        let fd = s.pair();
        if s.a() == (round % 2 == 0) {
            let mut got = Vec::new();
            let mut piece = [0; 8192];
            let last = loop {
                sleep(Duration::from_micros(500));
                match io::recv(fd, &mut piece, 0) {
                    Ret(n @ 1..) => got.extend_from_slice(&piece[..n as usize]),
                    last => break last,
                }
            };
            log!(s, "read {} {}, then {last}", got.len(), got == much);
            s.sync("read");
        } else {
            io::send_all(fd, &much).ok();
            net::shutdown(fd, libc::SHUT_RDWR).ok();
            s.sync("read");
        }
        net::close(fd).ok();
    }
}

/// Every poll has something to tell at once, and the end of a killed peer shows all the same.
fn killed_beside_what_is_ready(s: &Side) {
    let (fd, other) = (s.pair(), s.pair());
    if s.a() {
        io::send_all(other, b"x").ok();
        proc::die();
    }
    s.wait_gone();
    wait::wait_for(other, libc::POLLIN);
    for watched in [
        &[(fd, libc::POLLRDHUP), (other, libc::POLLIN)][..],
        &[(other, libc::POLLIN | libc::POLLRDHUP)],
    ] {
        let begun = Instant::now();
        let mut told = wait::poll(watched, 0);
        while !told.contains("RDHUP") && begun.elapsed() < wait::millis(2000) {
            told = wait::poll(watched, 0);
        }
        log!(s, "{told}");
    }
}

/// A connection goes back to the kernel when it has carried about as much as makes an adapter's ring worth it, which may just be
/// agreed, connected or begun.
fn left_while_a_ring_is_made(s: &Side) {
    for round in 0..20 {
        let fd = s.pair();
        let echo = |count| {
            for _ in 0..count {
                if s.a() {
                    io::send_all(fd, &[b'w'; 1000]).ok();
                }
                if io::recv_exact(fd, 1000).0 != [b'w'; 1000] {
                    return false;
                }
                if !s.a() {
                    io::send_all(fd, &[b'w'; 1000]).ok();
                }
            }
            true
        };
        let before = echo(28 + round);
        if s.a() {
            net::fcntl(fd, libc::F_SETOWN, std::process::id() as i32).ok();
        }
        log!(s, "{before} {}", echo(5));
        net::close(fd).ok();
    }
    s.sync("done");
}

/// A process ends without a close, and without having read that its peer's sending has ended: that is no reset.
fn exits_behind_an_unread_end(s: &Side) {
    let fd = s.pair();
    if s.a() {
        log!(s, "{}", io::recv_exact(fd, 8).1);
        io::send_all(fd, b"answer").ok();
        s.sync("shut");
        // SAFETY: nothing that unwinding or destructors would have to do.
        unsafe { libc::_exit(0) };
    }
    io::send_all(fd, b"question").ok();
    log!(s, "{}", io::recv_exact(fd, 6).1);
    net::shutdown(fd, libc::SHUT_WR).ok();
    s.sync("shut");
    s.wait_gone();
    let (got, end) = io::recv_to_end(fd);
    log!(s, "{} {end}", got.len());
}

/// A client that has sent, and ended, seconds before the server accepts.
fn ended_long_before_accept(s: &Side) {
    if s.accepts() {
        let lis = s.listen(4);
        s.sync("sent");
        std::thread::sleep(wait::millis(7000));
        let fd = net::accept(lis).fd();
        let (got, end) = io::recv_to_end(fd);
        log!(s, "{} {end}", got.len());
    } else {
        let fd = s.connect();
        log!(s, "{}", io::send_all(fd, &[b'e'; 3000]));
        s.sync("sent");
    }
}
