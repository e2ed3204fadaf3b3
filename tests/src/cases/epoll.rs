//! One epoll set and one connection: when each trigger tells of it, and of its end.

use super::Case;
use crate::log;
use crate::side::{Side, fill_up};
use crate::sys::wait::{add, delete, epoll_wait, modify};
use crate::sys::{Fd, io, net, proc, wait};
use libc::{
    EPOLLERR, EPOLLET, EPOLLEXCLUSIVE, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP,
};

pub(super) const CASES: &[Case] = &[
    Case::pair("epoll_level", |s| triggers(s, 0)),
    Case::pair("epoll_edge", |s| triggers(s, EPOLLET)),
    Case::pair("epoll_oneshot", |s| triggers(s, EPOLLONESHOT)),
    Case::pair("epoll_edge_oneshot", |s| {
        triggers(s, EPOLLET | EPOLLONESHOT)
    }),
    Case::pair("epoll_exclusive", |s| triggers(s, EPOLLEXCLUSIVE)),
    Case::pair("epoll_edge_partial_read", epoll_edge_partial_read),
    Case::pair("epoll_edge_until_short", |s| until(s, Until::Short)),
    Case::pair("epoll_edge_until_told", |s| until(s, Until::Told)),
    Case::pair("epoll_edge_added_late", epoll_edge_added_late),
    Case::pair("epoll_edge_rearm", epoll_edge_rearm),
    Case::pair("epoll_edge_out", epoll_edge_out),
    Case::pair("epoll_edge_out_behind_data", epoll_edge_out_behind_data),
    Case::pair("epoll_level_out", epoll_level_out),
    Case::pair("epoll_rdhup", epoll_rdhup),
    Case::pair("epoll_edge_shut", epoll_edge_shut),
    Case::pair("epoll_hup_and_reset", epoll_hup_and_reset),
    Case::pair("epoll_wakes_sleeper", epoll_wakes_sleeper),
];

/// The same steps under each trigger: nothing, data, look again, more data, read, look again.
fn triggers(s: &Side, flags: i32) {
    let fd = s.pair();
    let set = wait::epoll();
    log!(s, "add {}", add(set, fd, EPOLLIN | flags, 7));
    log!(s, "quiet {}", epoll_wait(set, 4, 0));
    s.sync("quiet");
    io::send_all(fd, b"abc").ok();
    wait::wait_queued(fd, 3);
    s.sync("three");
    log!(s, "data {}", epoll_wait(set, 4, 1000));
    log!(s, "again {}", epoll_wait(set, 4, 10));
    s.sync("looked");
    io::send_all(fd, b"def").ok();
    wait::wait_queued(fd, 6);
    s.sync("six");
    log!(s, "more {}", epoll_wait(set, 4, 10));
    io::recv_exact(fd, 6);
    log!(s, "read {}", epoll_wait(set, 4, 10));
    s.sync("read");
    io::send_all(fd, b"ghi").ok();
    wait::wait_queued(fd, 3);
    s.sync("nine");
    log!(s, "after {}", epoll_wait(set, 4, 10));
    log!(
        s,
        "rearm {}",
        modify(set, fd, EPOLLIN | (flags & !EPOLLEXCLUSIVE), 8)
    );
    log!(s, "rearmed {}", epoll_wait(set, 4, 10));
    log!(s, "delete {}", delete(set, fd));
    log!(s, "deleted {}", epoll_wait(set, 4, 0));
    s.sync("done");
}

/// Reading a part is no new edge; new data is.
fn epoll_edge_partial_read(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    add(set, fd, EPOLLIN | EPOLLET, 1).ok();
    s.sync("added");
    io::send_all(fd, b"abcdef").ok();
    wait::wait_queued(fd, 6);
    s.sync("sent");
    log!(s, "{}", epoll_wait(set, 4, 1000));
    io::recv(fd, &mut [0; 2], 0).ok();
    log!(s, "{}", epoll_wait(set, 4, 10));
    s.sync("looked");
    io::send_all(fd, b"g").ok();
    wait::wait_queued(fd, 5);
    s.sync("more");
    log!(s, "{}", epoll_wait(set, 4, 1000));
    log!(s, "{}", epoll_wait(set, 4, 10));
    s.sync("done");
}

fn epoll_edge_added_late(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    io::send_all(fd, b"x").ok();
    wait::wait_queued(fd, 1);
    s.sync("sent");
    add(set, fd, EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP, 1).ok();
    log!(s, "{}", epoll_wait(set, 4, 1000));
    log!(s, "{}", epoll_wait(set, 4, 10));
    s.sync("done");
}

/// EPOLL_CTL_MOD on a ready descriptor reports it again.
fn epoll_edge_rearm(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    add(set, fd, EPOLLIN | EPOLLET, 1).ok();
    io::send_all(fd, b"x").ok();
    wait::wait_queued(fd, 1);
    s.sync("sent");
    for data in 2..5 {
        log!(s, "{}", epoll_wait(set, 4, 1000));
        log!(s, "{}", epoll_wait(set, 4, 0));
        modify(set, fd, EPOLLIN | EPOLLET, data).ok();
    }
    log!(s, "{}", epoll_wait(set, 4, 1000));
    modify(set, fd, 0, 9).ok();
    log!(s, "{}", epoll_wait(set, 4, 0));
    s.sync("done");
}

fn out_cycle(s: &Side, fd: Fd, set: Fd) {
    if s.a() {
        log!(s, "writable {}", epoll_wait(set, 4, 1000));
        let total = fill_up(fd);
        // On an edge the kernel may have queued wake-ups while it was filling.
        while epoll_wait(set, 4, 0).ret.0 > 0 && wait::poll(&[(fd, libc::POLLOUT)], 0) == "1 [OUT]"
        {
        }
        log!(s, "full {}", epoll_wait(set, 4, 20));
        s.tell(total as u64);
        log!(s, "drained {}", epoll_wait(set, 4, -1));
        log!(s, "goes {}", io::send(fd, b"x", libc::MSG_DONTWAIT));
    } else {
        let total = s.hear() as usize;
        crate::side::drain(fd, total + 1);
    }
    s.sync("done");
}

fn epoll_edge_out(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    add(set, fd, EPOLLOUT | EPOLLET, 3).ok();
    out_cycle(s, fd, set);
}

/// Data that comes while there is no room is told without the room, which is told when it comes: who keeps account of what it
/// has been told (tokio, mio) tries no send in between.
fn epoll_edge_out_behind_data(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let set = wait::epoll();
        add(set, fd, EPOLLIN | EPOLLOUT | EPOLLET, 3).ok();
        log!(s, "writable {}", epoll_wait(set, 4, 1000));
        let total = fill_up(fd);
        while epoll_wait(set, 4, 20).ret.0 > 0 {}
        s.tell(total as u64);
        // (with it may come, by credits, a little room)
        log!(s, "data {}", epoll_wait(set, 4, -1).ret.0);
        log!(s, "read {}", io::recv_exact(fd, 1).0.len());
        s.sync("read");
        let told = epoll_wait(set, 4, 10_000);
        log!(s, "drained {told}");
        s.sync("drained");
    } else {
        let total = s.hear() as usize;
        io::send_all(fd, b"x").ok();
        s.sync("read");
        crate::side::drain(fd, total);
        s.sync("drained");
    }
}

fn epoll_level_out(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    add(set, fd, EPOLLOUT, 3).ok();
    log!(s, "{}", epoll_wait(set, 4, 0));
    out_cycle(s, fd, set);
}

fn epoll_rdhup(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    add(set, fd, EPOLLRDHUP, 1).ok();
    log!(s, "{}", epoll_wait(set, 4, 0));
    s.sync("added");
    if s.a() {
        io::send_all(fd, b"last").ok();
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        log!(s, "{}", epoll_wait(set, 4, -1));
        modify(set, fd, EPOLLIN | EPOLLOUT, 1).ok();
        wait::wait_queued(fd, 4);
        log!(s, "{}", epoll_wait(set, 4, -1));
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", got.len());
        log!(s, "{}", epoll_wait(set, 4, -1));
    }
    s.sync("done");
}

/// Each half that the program shuts is an edge, whatever was told before: also for who sleeps.
fn epoll_edge_shut(s: &Side) {
    const ALL: i32 = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    for asleep in [false, true] {
        for halves in [
            [libc::SHUT_WR, libc::SHUT_RD],
            [libc::SHUT_RD, libc::SHUT_WR],
        ] {
            let fd = s.pair();
            if s.a() {
                s.sync("added");
                net::shutdown(fd, libc::SHUT_WR).ok();
                s.sync("ended");
                s.sync("looked");
                continue;
            }
            let set = wait::epoll();
            add(set, fd, ALL, 1).ok();
            log!(s, "{}", epoll_wait(set, 4, 0));
            s.sync("added");
            s.sync("ended");
            log!(s, "ended {}", epoll_wait(set, 4, -1));
            while epoll_wait(set, 4, 20).ret.0 > 0 {}
            for how in halves {
                // (how many the kernel tells of depends on when its own segments come back)
                if asleep {
                    let other = proc::once_asleep(move |_| net::shutdown(fd, how));
                    log!(s, "shut {}", epoll_wait(set, 4, -1));
                    let _ = other.join().unwrap();
                } else {
                    let _ = net::shutdown(fd, how); // (the second finds no connection, or does)
                    log!(s, "shut {}", epoll_wait(set, 4, -1));
                }
                while epoll_wait(set, 4, 20).ret.0 > 0 {}
            }
            net::close(fd).ok();
            s.sync("looked");
        }
    }
    s.sync("done");
}

/// Error and hang-up are reported although nobody asked.
fn epoll_hup_and_reset(s: &Side) {
    let (fd, other) = (s.pair(), s.pair());
    let set = wait::epoll();
    add(set, fd, 0, 1).ok();
    add(set, other, EPOLLET | EPOLLERR | EPOLLHUP, 2).ok();
    if s.a() {
        net::linger(fd, true, 0).ok();
        net::linger(other, true, 0).ok();
        net::close(fd).ok();
        net::close(other).ok();
        s.sync("reset");
    } else {
        s.sync("reset");
        wait::wait_for(fd, 0);
        wait::wait_for(other, 0);
        log!(s, "{}", epoll_wait(set, 4, -1));
        log!(s, "{}", epoll_wait(set, 4, 0));
    }
    s.sync("done");
}

fn epoll_wakes_sleeper(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    if s.a() {
        for flags in [EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT] {
            add(set, fd, flags, 1).ok();
            let helper = s.tell_once_asleep();
            log!(s, "{}", epoll_wait(set, 4, -1));
            helper.join().unwrap();
            io::recv(fd, &mut [0; 4], 0).ok();
            delete(set, fd).ok();
        }
    } else {
        for _ in 0..3 {
            s.hear();
            io::send_all(fd, b"x").ok();
        }
    }
    s.sync("done");
}

/// The next octet of a stream whose every octet depends on its place.
fn octet(at: usize) -> u8 {
    (at % 251) as u8 ^ (at >> 12) as u8
}

/// How a program that waits for edges knows that it has read all.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// A call has moved less than it could (epoll(7)).
    Short,
    /// It has read as much as FIONREAD said.
    Told,
}

/// Both ends wait for the next edge once they believe that there is no more, as nginx does: none may be missing.
fn until(s: &Side, until: Until) {
    const ALL: usize = 6 << 20;
    const STALLED: i32 = 8000;
    let fd = s.pair();
    net::set_nonblocking(fd, true).ok();
    let set = wait::epoll();
    let (mut done, mut stalled, mut wrong) = (0, false, 0);
    s.sync("begin");
    if s.a() {
        add(set, fd, EPOLLOUT | EPOLLET, 1).ok();
        let sizes = [300_000, 100, 70_000, 5_000];
        for size in sizes.iter().cycle() {
            let chunk: Vec<u8> = (done..ALL.min(done + size)).map(octet).collect();
            let sent = usize::try_from(io::send(fd, &chunk, libc::MSG_NOSIGNAL).0).unwrap_or(0);
            done += sent;
            if done == ALL || stalled {
                break;
            }
            if sent < chunk.len() {
                stalled = epoll_wait(set, 1, STALLED).list.is_empty();
            }
        }
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        add(set, fd, EPOLLIN | EPOLLRDHUP | EPOLLET, 1).ok();
        let mut buf = vec![0; 100_000];
        'all: for size in [16_384, 100_000, 4_096, 65_536].iter().cycle() {
            if epoll_wait(set, 1, STALLED).list.is_empty() {
                stalled = true;
                break;
            }
            // (meanwhile much comes, at last all that is left)
            std::thread::sleep(wait::millis(if done > ALL / 2 { 60 } else { 1 }));
            let mut told = usize::MAX;
            loop {
                let asked = told.min(*size);
                let r = io::recv(fd, &mut buf[..asked], 0);
                let came = usize::try_from(r.0).unwrap_or(0);
                let expected = (done..).map(octet);
                wrong += buf[..came]
                    .iter()
                    .zip(expected)
                    .filter(|(b, e)| *b != e)
                    .count();
                done += came;
                if r.0 == 0 || done == ALL {
                    break 'all; // (the edge of the last octets may have been that of the end)
                }
                if until == Until::Told && told == usize::MAX {
                    told = usize::try_from(net::queued(fd)).unwrap_or(0);
                } else {
                    told -= came;
                }
                if came < asked || told == 0 {
                    break;
                }
            }
        }
    }
    log!(s, "{} {stalled} {wrong}", done == ALL);
    s.sync("done");
}
