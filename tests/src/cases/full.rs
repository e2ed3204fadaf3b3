//! More is sent than a buffer here holds, before anybody reads: kernel TCP holds some MiB more, and there are
//! programs that count on it. And readers that are late, without being missed.

use super::Case;
use crate::log;
use crate::side::{Random, Side, hash};
use crate::sys::wait::{add, epoll_wait};
use crate::sys::{Fd, io, net, wait};
use libc::{EPOLLET, EPOLLOUT, MSG_DONTWAIT};
use std::thread;

const GOES_BACK: &str = "the stream goes back to the kernel for its buffers";

pub(super) const CASES: &[Case] = &[
    Case::pair("full_both_blocking", |s| both(s, send_all)).any_path(GOES_BACK),
    Case::pair("full_both_polled", |s| both(s, send_polled)).any_path(GOES_BACK),
    Case::pair("full_both_edge", |s| both(s, send_edge)).any_path(GOES_BACK),
    Case::pair("full_both_by_trying", |s| both(s, send_trying)).any_path(GOES_BACK),
    Case::pair("full_both_by_threads", |s| {
        both(s, |fd, data| {
            thread::scope(|t| t.spawn(|| send_all(fd, data)).join().unwrap());
        });
    })
    .any_path(GOES_BACK),
    Case::pair("full_one_polled", full_one_polled).any_path(GOES_BACK),
    Case::pair("full_told_elsewhere", full_told_elsewhere).any_path(GOES_BACK),
    Case::pair("full_late_reader", full_late_reader),
];

/// More than the buffers of an attached connection, less than the kernel's.
const MUCH: usize = 1_500_000;

fn bytes(of_a: bool) -> Vec<u8> {
    Random::new(if of_a { 71 } else { 72 }).bytes(MUCH)
}

fn send_all(fd: Fd, data: &[u8]) {
    io::send_all(fd, data).ok();
}

/// Sends what has room; `wait` is called whenever there is none.
fn send_waiting(fd: Fd, data: &[u8], mut wait: impl FnMut()) {
    let mut sent = 0;
    while sent < data.len() {
        let r = io::send(fd, &data[sent..data.len().min(sent + 60_000)], MSG_DONTWAIT);
        if r.is(libc::EAGAIN) {
            wait();
        } else {
            sent += r.ok();
        }
    }
}

fn send_polled(fd: Fd, data: &[u8]) {
    send_waiting(fd, data, || wait::wait_for(fd, libc::POLLOUT));
}

fn send_edge(fd: Fd, data: &[u8]) {
    let set = wait::epoll();
    add(set, fd, EPOLLOUT | EPOLLET, 1).ok();
    send_waiting(fd, data, || {
        epoll_wait(set, 1, 9000);
    });
    net::close(set).ok();
}

/// Without asking anybody for room.
fn send_trying(fd: Fd, data: &[u8]) {
    send_waiting(fd, data, || thread::sleep(wait::millis(5)));
}

fn read_all(s: &Side, fd: Fd) {
    let (got, _) = io::recv_exact(fd, MUCH);
    log!(s, "{} bytes {}", got.len(), got == bytes(!s.a()));
}

/// Both ends send before they read.
fn both(s: &Side, send: impl Fn(Fd, &[u8])) {
    let fd = s.pair();
    send(fd, &bytes(s.a()));
    s.sync("all sent");
    read_all(s, fd);
    io::send_all(fd, b"end").ok();
    log!(s, "{:x}", hash(&io::recv_exact(fd, 3).0));
    s.sync("done");
}

/// One end blocks, the other polls; what has been sent besides is whole.
fn full_one_polled(s: &Side) {
    both(s, if s.a() { send_all } else { send_polled });
}

/// Much is sent that is read only once something came on another connection.
fn full_told_elsewhere(s: &Side) {
    let (much, word) = (s.pair(), s.pair());
    if s.a() {
        io::send_all(much, &bytes(true)).ok();
        io::send_all(word, b"go").ok();
    } else {
        log!(s, "{:x}", hash(&io::recv_exact(word, 2).0));
        read_all(s, much);
    }
    s.sync("done");
}

/// A reader that is busy for a while makes its sender wait, and nothing else.
fn full_late_reader(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, &bytes(true)).ok();
    } else {
        thread::sleep(wait::millis(700));
        read_all(s, fd);
    }
    s.sync("done");
}
