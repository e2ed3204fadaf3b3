//! A connection that the other end has reset before it was passed on: what a set tells of it, and who is told.

use super::Case;
use super::passed::stranger;
use crate::log;
use crate::side::{Random, Side, hash};
use crate::sys::{io, net, pass, proc, wait};
use libc::{EPOLLET, EPOLLIN, EPOLLOUT, EPOLLRDHUP};

pub(super) const CASES: &[Case] = &[
    Case::moving("pass_what_is_reset_to_a_set", |s| {
        reset_in_a_set(s, 100, false, 0)
    }),
    Case::moving("pass_what_is_reset_to_a_set_by_edges", |s| {
        reset_in_a_set(s, 100, false, EPOLLET)
    }),
    Case::moving("pass_what_is_reset_and_read_to_a_set", |s| {
        reset_in_a_set(s, 0, false, 0)
    }),
    Case::moving("pass_what_is_reset_and_read_to_a_set_by_edges", |s| {
        reset_in_a_set(s, 0, false, EPOLLET)
    }),
    Case::moving("pass_what_is_told_to_a_set", |s| {
        reset_in_a_set(s, 0, true, 0)
    }),
    Case::moving("pass_what_is_told_to_a_set_by_edges", |s| {
        reset_in_a_set(s, 0, true, EPOLLET)
    }),
    Case::moving("pass_what_is_reset_and_hear_there", |s| {
        told_once(s, 100, false)
    }),
    Case::moving("pass_what_is_reset_and_read_and_hear_there", |s| {
        told_once(s, 0, false)
    }),
    Case::moving("pass_what_is_reset_and_hear_here", |s| {
        told_once(s, 100, true)
    }),
    Case::moving("pass_what_is_reset_and_read_and_hear_here", |s| {
        told_once(s, 0, true)
    }),
];

/// Whoever is passed the connection looks at it by a set, with these flags, which the passing one may have been told of the reset.
fn reset_in_a_set(s: &Side, rest: usize, told: bool, flags: i32) {
    let child = s.a().then(|| {
        stranger(*s, move |side, got| {
            let set = wait::epoll();
            let looks = |when: &str| {
                for _ in 0..3 {
                    log!(side, "{when} {}", wait::epoll_wait(set, 4, 20));
                }
            };
            wait::add(set, got, EPOLLIN | EPOLLOUT | EPOLLRDHUP | flags, 7).ok();
            looks("added");
            if rest > 0 {
                log!(side, "{}", io::recv_exact(got, rest / 2).1);
                looks("read some");
                log!(side, "{}", io::recv_exact(got, rest - rest / 2).1);
                looks("read all");
            }
            log!(side, "{}", io::recv(got, &mut [0; 10], 0));
            looks("told");
            log!(side, "{}", io::recv(got, &mut [0; 10], 0));
            looks("ended");
            log!(side, "{}", io::send(got, b"x", libc::MSG_NOSIGNAL));
            looks("sent");
        })
    });
    let fd = s.open();
    if let Some((channel, child)) = child {
        s.sync("gone");
        log!(s, "{:x}", hash(&io::recv_exact(fd, 32).0));
        if told {
            log!(s, "{}", io::recv(fd, &mut [0; 10], 0));
        }
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

/// Of two processes that have the connection the one that asks first is told of the reset: who was passed it, or, `here`, who has
/// passed it.
fn told_once(s: &Side, rest: usize, here: bool) {
    let (r, w) = net::pipe();
    let asks = move |side: &Side, fd| {
        log!(side, "{}", io::recv_exact(fd, 100).1);
        for _ in 0..2 {
            log!(
                side,
                "{}",
                wait::poll(&[(fd, libc::POLLIN | libc::POLLOUT)], 0)
            );
            log!(side, "{}", io::recv(fd, &mut [0; 10], 0));
        }
        log!(side, "{}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
    };
    let child = s.a().then(|| {
        stranger(*s, move |side, got| {
            io::read(r, &mut [0]).ok();
            asks(&side, got);
        })
    });
    let fd = s.open();
    if let Some((channel, child)) = child {
        s.sync("gone");
        log!(s, "{:x}", hash(&io::recv_exact(fd, 32).0));
        pass::send_fd(channel, fd);
        if here {
            asks(s, fd);
        }
        io::write(w, b"g").ok();
        log!(s, "{}", proc::wait_child(child));
        asks(s, fd);
    } else {
        io::send_all(fd, &Random::new(48).bytes(32 + rest)).ok();
        net::linger(fd, true, 0).ok();
        net::close(fd).ok();
        s.sync("gone");
    }
    s.sync("done");
}
