//! One epoll set with several connections: what is told in one answer, and in what order.

use super::Case;
use crate::log;
use crate::side::{Random, Side, own_pair};
use crate::sys::wait::{add, epoll_wait, epoll_wait_in_order};
use crate::sys::{Fd, io, net, wait};
use libc::{EPOLLET, EPOLLIN, EPOLLOUT};

pub(super) const CASES: &[Case] = &[
    Case::solo("epoll_both_ends_in_one_set", epoll_both_ends_in_one_set),
    Case::pair("epoll_order_of_arrival", epoll_order_of_arrival).conns(8),
    Case::pair("epoll_order_seen_awake", epoll_order_seen_awake).conns(2),
];

/// Both ends register before anything was sent, so they move while the set is looked at.
fn epoll_both_ends_in_one_set(s: &Side) {
    let (lis, at) = net::listener(net::loopback(), 4);
    for flags in [0, EPOLLET] {
        let own = net::socket_for(at, 0);
        net::connect(own, at).ok();
        let got = net::accept(lis).fd();
        let set = wait::epoll();
        add(set, own, EPOLLIN | EPOLLOUT | flags, 1).ok();
        add(set, got, EPOLLIN | EPOLLOUT | flags, 2).ok();
        log!(s, "new {}", epoll_wait(set, 4, 1000));
        log!(s, "again {}", epoll_wait(set, 4, 0));
        io::send_all(own, b"Hello!").ok();
        io::send_all(got, b"world!!!").ok();
        log!(s, "both {}", epoll_wait(set, 4, 1000));
        log!(s, "again {}", epoll_wait(set, 4, 0));
        log!(
            s,
            "{:?} {:?}",
            io::recv_exact(own, 8),
            io::recv_exact(got, 6)
        );
        io::send_all(got, b"x").ok();
        wait::wait_queued(own, 1);
        log!(s, "one {}", epoll_wait(set, 4, 1000));
    }
    // One that has said nothing is the kernel's to tell of, once in an answer.
    let own = net::socket_for(at, 0);
    net::connect(own, at).ok();
    let got = net::accept(lis).fd();
    let set = wait::epoll();
    io::send_all(own, b"PING").ok();
    add(set, got, EPOLLIN, 2).ok();
    add(set, own, EPOLLIN, 1).ok();
    wait::wait_queued(got, 4);
    log!(s, "once {}", epoll_wait(set, 4, 1000));
    log!(s, "{:?}", io::recv_exact(got, 4));
    log!(s, "none {}", epoll_wait(set, 4, 0));
    let (left, right) = own_pair();
    log!(s, "{}", io::send(left, b"end", 0));
    log!(s, "{:?}", io::recv_exact(right, 3));
}

fn several(s: &Side, count: usize) -> Vec<Fd> {
    let all: Vec<Fd> = (0..count).map(|_| s.pair()).collect();
    for fd in &all {
        s.always_warm_up(*fd);
    }
    all
}

/// A sends on some connections, one after the other; B, which slept or was busy elsewhere meanwhile, is
/// told of them in that order.
fn epoll_order_of_arrival(s: &Side) {
    let all = several(s, 8);
    let set = wait::epoll();
    if !s.a() {
        for (i, fd) in all.iter().enumerate() {
            add(set, *fd, EPOLLIN, i as u64).ok();
        }
    }
    let mut random = Random::new(40);
    let (rounds, mut right) = (20, 0);
    for _ in 0..rounds {
        let mut order: Vec<usize> = (0..all.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i + 1));
        }
        order.truncate(2 + random.below(6));
        s.sync("begin");
        if s.a() {
            for &i in &order {
                io::send_all(all[i], b"word").ok();
            }
            s.sync("sent");
        } else {
            s.sync("sent");
            for &i in &order {
                wait::wait_queued(all[i], 4);
            }
            let told = epoll_wait_in_order(set, 16, 1000);
            right += usize::from(told == order);
            for &i in &order {
                io::recv_exact(all[i], 4);
            }
            // (a level-triggered registration keeps its old place until it is seen to be quiet)
            assert_eq!(epoll_wait_in_order(set, 16, 0).len(), 0);
        }
    }
    // (the kernel's order is that of its processors, when a sender moves from one to another)
    log!(s, "{}", s.a() || right > rounds / 2);
    s.sync("done");
}

/// B serves what it is told of at once. A never sends the second before the first has gone, so however
/// B's looks fall, it is never told of the second alone.
fn epoll_order_seen_awake(s: &Side) {
    let all = several(s, 2);
    let rounds = 400;
    if s.a() {
        let mut random = Random::new(41);
        for _ in 0..rounds {
            let first = random.below(2);
            io::send_all(all[first], b"1").ok();
            io::send_all(all[1 - first], b"2").ok();
            // (each is acknowledged, so that a round begins with both empty)
            io::recv_exact(all[0], 1);
            io::recv_exact(all[1], 1);
        }
    } else {
        let set = wait::epoll();
        for (i, fd) in all.iter().enumerate() {
            add(set, *fd, EPOLLIN, i as u64).ok();
        }
        let mut heard = Vec::new();
        while heard.len() < 2 * rounds {
            for i in epoll_wait_in_order(set, 4, -1) {
                heard.extend(io::recv_exact(all[i], 1).0);
            }
            if heard.len() % 2 == 0 {
                assert_eq!(epoll_wait_in_order(set, 4, 0).len(), 0);
                io::send_all(all[0], b"k").ok();
                io::send_all(all[1], b"k").ok();
            }
        }
        let right = heard.chunks(2).filter(|c| *c == b"12").count();
        log!(s, "{}", right * 10 > rounds * 9);
    }
    s.sync("done");
}
