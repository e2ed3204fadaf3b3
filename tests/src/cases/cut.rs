//! A connection that somebody cuts from outside, between two processes that live: neither end may take it for the end of
//! the stream. End A's half is destroyed, which sends a reset to B's.

use super::Case;
use crate::log;
use crate::side::{Side, fill_up};
use crate::sys::destroy::destroy;
use crate::sys::{Fd, io, net, proc, wait};

pub(super) const CASES: &[Case] = &[
    Case::pair("cut_then_read", |s| then(s, reads)),
    Case::pair("cut_then_sent", |s| then(s, sends)),
    Case::pair("cut_then_asked", |s| then(s, asks)),
    Case::pair("cut_then_polled", |s| then(s, polls)),
    Case::pair("cut_then_shut", |s| then(s, shuts)),
    Case::pair("cut_with_unread", with_unread),
    Case::pair("cut_while_peer_reads", while_peer_reads),
    Case::pair("cut_while_reading", while_reading),
    Case::pair("cut_while_peer_polls", while_peer_polls),
    Case::pair("cut_while_in_epoll", while_in_epoll),
    Case::pair("cut_while_peer_sends", while_peer_sends),
    Case::pair("cut_while_shared", while_shared).processes_only(),
    Case::pair("cut_then_killed", then_killed).processes_only(),
];

/// What there is to be heard at an end, first by `first`.
fn then(s: &Side, first: fn(&Side, Fd)) {
    let fd = s.pair();
    cut(s, fd);
    first(s, fd);
    rest(s, fd);
}

/// Both leave it when both ends have heard of it.
fn cut(s: &Side, fd: Fd) {
    if s.a() {
        destroy(fd);
    }
    wait::wait_for(fd, libc::POLLHUP);
    s.sync("cut");
}

fn rest(s: &Side, fd: Fd) {
    reads(s, fd);
    sends(s, fd);
    asks(s, fd);
    polls(s, fd);
}

fn reads(s: &Side, fd: Fd) {
    for _ in 0..2 {
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
    }
}

fn sends(s: &Side, fd: Fd) {
    for _ in 0..2 {
        log!(s, "{}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
    }
}

fn asks(s: &Side, fd: Fd) {
    for _ in 0..2 {
        log!(s, "{}", net::so_error(fd));
    }
}

fn polls(s: &Side, fd: Fd) {
    let all = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
    log!(s, "{}", wait::poll(&[(fd, all)], 0));
}

fn shuts(s: &Side, fd: Fd) {
    log!(s, "{}", net::shutdown(fd, libc::SHUT_WR));
}

/// What came before is read first.
fn with_unread(s: &Side) {
    let fd = s.pair();
    io::send_all(fd, b"unread").ok();
    wait::wait_queued(fd, 6);
    s.sync("sent");
    cut(s, fd);
    let (got, last) = io::recv_to_end(fd);
    log!(s, "{} {last}", got.len());
    rest(s, fd);
}

fn while_peer_reads(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.hear();
        destroy(fd);
    } else {
        let helper = s.tell_once_asleep();
        reads(s, fd);
        helper.join().unwrap();
    }
    rest(s, fd);
}

/// The reader's own end is destroyed by another thread.
fn while_reading(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let helper = proc::once_asleep(move |_| destroy(fd));
        reads(s, fd);
        helper.join().unwrap();
    }
    rest(s, fd);
}

fn while_peer_polls(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.hear();
        destroy(fd);
    } else {
        let helper = s.tell_once_asleep();
        let heard = wait::poll(&[(fd, libc::POLLIN | libc::POLLRDHUP)], -1);
        log!(s, "{heard}");
        helper.join().unwrap();
    }
    rest(s, fd);
}

fn while_in_epoll(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    wait::add(set, fd, libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET, 1).ok();
    s.sync("watched");
    let helper = s.a().then(|| proc::once_asleep(move |_| destroy(fd)));
    log!(s, "{}", wait::epoll_wait(set, 4, -1));
    if let Some(helper) = helper {
        helper.join().unwrap();
    }
    // (a reset wakes twice, and the second may come behind the first look)
    std::thread::sleep(wait::millis(20));
    wait::epoll_wait(set, 4, 0);
    rest(s, fd);
    log!(s, "{}", wait::epoll_wait(set, 4, 0));
}

/// A writer that sleeps because nobody reads.
fn while_peer_sends(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.hear();
        destroy(fd);
        wait::wait_for(fd, libc::POLLHUP);
        return;
    }
    fill_up(fd);
    let helper = s.tell_once_asleep();
    log!(s, "{}", io::send(fd, b"blocked", libc::MSG_NOSIGNAL));
    helper.join().unwrap();
    rest(s, fd);
}

/// A holds it with a child of its own: whoever asks first is told.
fn while_shared(s: &Side) {
    let fd = s.pair();
    let child = s.a().then(|| {
        proc::fork(|| {
            loop {
                std::thread::park();
            }
        })
    });
    cut(s, fd);
    rest(s, fd);
    if let Some(child) = child {
        proc::kill(child, libc::SIGKILL).ok();
        proc::wait_child(child);
    }
}

/// The end that was cut dies before its peer has asked.
fn then_killed(s: &Side) {
    let fd = s.pair();
    cut(s, fd);
    if s.a() {
        proc::die();
    }
    s.wait_gone();
    rest(s, fd);
}
