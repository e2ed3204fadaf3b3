//! Several sets, aliases, sets inside sets, in poll and in select, and in a child.

use super::Case;
use crate::log;
use crate::side::Side;
use crate::sys::wait::{Select, add, delete, epoll_wait, modify};
use crate::sys::{Fd, io, net, proc, wait};
use libc::{EPOLLET, EPOLLEXCLUSIVE, EPOLLIN, EPOLLOUT, EPOLLRDHUP, POLLIN};

pub(super) const CASES: &[Case] = &[
    Case::pair("sets_two", sets_two),
    Case::pair("sets_alias_in_one", sets_alias_in_one),
    Case::pair("sets_alias_outlives", sets_alias_outlives),
    Case::pair("sets_number_of_another", sets_number_of_another),
    Case::pair("sets_alias_taken_out", sets_alias_taken_out),
    Case::pair("sets_handed_on", sets_handed_on),
    Case::pair("sets_nested_level", |s| nested(s, 0)),
    Case::pair("sets_nested_edge", |s| nested(s, EPOLLET)),
    Case::pair("sets_nested_edge_after_edge", edge_after_edge),
    Case::pair("sets_nested_sleeper", sets_nested_sleeper),
    Case::pair("sets_nested_silent", sets_nested_silent),
    Case::pair("sets_nested_two_of_one", sets_nested_two_of_one),
    Case::pair("sets_half_close_once", sets_half_close_once),
    Case::pair("sets_in_poll_and_select", sets_in_poll_and_select),
    Case::pair("sets_poll_on_set_sleeps", sets_poll_on_set_sleeps),
    Case::pair("sets_loops", sets_loops),
    Case::pair("sets_dup_of_set", sets_dup_of_set),
    Case::pair("sets_nested_made_anew", sets_nested_made_anew).processes_only(),
    Case::pair("sets_exclusive_in_a_child", sets_exclusive_in_a_child)
        .processes_only()
        .any_path("the connection is used by a child"),
    Case::pair("sets_inherited_by_fork", sets_inherited_by_fork)
        .processes_only()
        .any_path("the connection is used by a child"),
];

fn sets_two(s: &Side) {
    let fd = s.pair();
    let (one, two) = (wait::epoll(), wait::epoll());
    add(one, fd, EPOLLIN, 1).ok();
    add(two, fd, EPOLLIN | EPOLLOUT | EPOLLET, 2).ok();
    log!(s, "{} | {}", epoll_wait(one, 4, 0), epoll_wait(two, 4, 0));
    s.sync("quiet");
    io::send_all(fd, b"abc").ok();
    wait::wait_queued(fd, 3);
    s.sync("sent");
    log!(
        s,
        "{} | {}",
        epoll_wait(one, 4, 1000),
        epoll_wait(two, 4, 1000)
    );
    log!(s, "{} | {}", epoll_wait(one, 4, 10), epoll_wait(two, 4, 10));
    io::recv_exact(fd, 3);
    log!(s, "{} | {}", epoll_wait(one, 4, 10), epoll_wait(two, 4, 10));
    delete(one, fd).ok();
    log!(s, "{}", modify(two, fd, EPOLLOUT, 3));
    log!(s, "{}", epoll_wait(two, 4, 10));
    s.sync("done");
}

fn sets_alias_in_one(s: &Side) {
    let fd = s.pair();
    let alias = net::dup(fd).fd();
    let set = wait::epoll();
    log!(
        s,
        "{} {}",
        add(set, fd, EPOLLIN, 1),
        add(set, alias, EPOLLIN | EPOLLOUT, 2)
    );
    log!(s, "{}", epoll_wait(set, 4, 0));
    s.sync("quiet");
    io::send_all(fd, b"x").ok();
    wait::wait_queued(fd, 1);
    log!(s, "{}", epoll_wait(set, 4, -1));
    log!(s, "{}", delete(set, fd));
    log!(s, "{}", epoll_wait(set, 4, -1));
    s.sync("done");
}

/// Closing one of two names leaves the entry alive until the last one goes.
fn sets_alias_outlives(s: &Side) {
    let fd = s.pair();
    let alias = net::dup(fd).fd();
    let set = wait::epoll();
    add(set, fd, EPOLLIN, 1).ok();
    net::close(fd).ok();
    log!(s, "{}", epoll_wait(set, 4, 0));
    s.sync("quiet");
    io::send_all(alias, b"x").ok();
    wait::wait_queued(alias, 1);
    log!(s, "{}", epoll_wait(set, 4, 1000));
    s.sync("looked");
    net::close(alias).ok();
    log!(s, "{}", epoll_wait(set, 4, 0));
    s.sync("done");
}

/// The number that was registered is closed and another's by now: what is told is of the connection, which lives by another name.
fn sets_number_of_another(s: &Side) {
    let fd = s.pair();
    let alias = net::dup(fd).fd();
    let set = wait::epoll();
    if s.a() {
        add(set, fd, EPOLLIN | EPOLLRDHUP, 1).ok();
        let (end, other) = net::pipe();
        io::write(other, b"of no interest").ok();
        net::dup2(end, fd).ok();
        log!(s, "{}", epoll_wait(set, 4, 0));
    } else {
        net::close(fd).ok();
    }
    s.sync("quiet");
    if s.a() {
        wait::wait_for(alias, libc::POLLRDHUP);
        log!(s, "end {}", epoll_wait(set, 4, 1000));
        log!(s, "{}", io::send(alias, b"into the void", 0));
        wait::wait_for(alias, libc::POLLHUP | libc::POLLERR);
        log!(s, "reset {}", epoll_wait(set, 4, 1000));
        log!(s, "{}", io::send(alias, b"x", libc::MSG_NOSIGNAL));
        log!(s, "told {}", epoll_wait(set, 4, 1000));
    } else {
        net::close(alias).ok();
    }
    s.sync("done");
}

/// A registration that has fired once says nothing to a set around its own, not even of the end; beside an edge that still counts.
fn sets_nested_silent(s: &Side) {
    let fd = s.pair();
    let (inner, outer) = (wait::epoll(), wait::epoll());
    add(inner, fd, EPOLLOUT | libc::EPOLLONESHOT, 1).ok();
    add(outer, inner, EPOLLIN, 2).ok();
    log!(s, "{}", epoll_wait(inner, 4, -1));
    s.sync("fired");
    if s.a() {
        net::close(fd).ok();
        s.sync("closed");
    } else {
        s.sync("closed");
        wait::wait_for(fd, libc::POLLRDHUP);
        let look = |what: &str| {
            let poll = wait::poll(&[(inner, POLLIN)], 0);
            log!(s, "{what} {} {poll}", epoll_wait(outer, 4, 0));
        };
        look("silent");
        modify(inner, fd, EPOLLIN | EPOLLET, 3).ok();
        look("modified");
        log!(s, "{}", epoll_wait(inner, 4, 0));
        look("told");
        let event = crate::sys::proc::eventfd(1);
        add(inner, event, EPOLLIN | EPOLLET, 4).ok();
        look("another");
        log!(s, "{}", epoll_wait(inner, 4, 0));
    }
    s.sync("done");
}

/// Pings by A, each waited for in this set, where the connection has so many names, by B, who echoes.
fn pings(s: &Side, fd: Fd, set: Fd, names: usize, rounds: u32) {
    let mut byte = [0u8; 1];
    for _ in 0..rounds {
        if s.a() {
            std::thread::sleep(std::time::Duration::from_millis(3));
            io::send_all(fd, b"p").ok();
            io::recv_exact(fd, 1);
        } else {
            let woken = epoll_wait(set, 4, -1).ret.ok();
            // (who is woken by one of several names may look before the others are told)
            let mut told = epoll_wait(set, 4, 0);
            wait::eventually(|| {
                let all = told.ret.ok() >= names;
                if !all {
                    told = epoll_wait(set, 4, 0);
                }
                all
            });
            log!(s, "{} {told}", woken > 0);
            io::recv(fd, &mut byte, 0).ok();
            io::send_all(fd, &byte).ok();
        }
    }
}

/// One name of two is taken out of a set: the other goes on waking who sleeps.
fn sets_alias_taken_out(s: &Side) {
    let fd = super::sharing::warm_pair(s);
    let alias = net::dup(fd).fd();
    let set = wait::epoll();
    add(set, fd, EPOLLIN, 1).ok();
    add(set, alias, EPOLLIN, 2).ok();
    pings(s, fd, set, 2, 40);
    delete(set, fd).ok();
    pings(s, fd, set, 1, 20);
    add(set, fd, EPOLLIN, 3).ok();
    delete(set, alias).ok();
    pings(s, fd, set, 1, 20);
    s.sync("done");
}

/// A connection goes from one set to another, as from who accepts to who serves.
fn sets_handed_on(s: &Side) {
    let fd = super::sharing::warm_pair(s);
    let (one, two) = (wait::epoll(), wait::epoll());
    add(one, fd, EPOLLIN, 1).ok();
    pings(s, fd, one, 1, 40);
    delete(one, fd).ok();
    add(two, fd, EPOLLIN, 2).ok();
    pings(s, fd, two, 1, 40);
    delete(two, fd).ok();
    log!(s, "{}", add(one, fd, EPOLLIN, 3));
    pings(s, fd, one, 1, 20);
    log!(s, "{}", epoll_wait(two, 4, 0));
    s.sync("done");
}

fn nested(s: &Side, flags: i32) {
    let fd = s.pair();
    let (inner, outer, top) = (wait::epoll(), wait::epoll(), wait::epoll());
    add(inner, fd, EPOLLIN, 1).ok();
    add(outer, inner, EPOLLIN | flags, 2).ok();
    add(top, outer, EPOLLIN | flags, 3).ok();
    log!(s, "{}", epoll_wait(top, 4, 0));
    s.sync("quiet");
    io::send_all(fd, b"x").ok();
    wait::wait_queued(fd, 1);
    log!(s, "top {}", epoll_wait(top, 4, 1000));
    log!(s, "outer {}", epoll_wait(outer, 4, 1000));
    log!(s, "inner {}", epoll_wait(inner, 4, 1000));
    io::recv(fd, &mut [0; 4], 0).ok();
    log!(s, "{} {}", epoll_wait(inner, 4, 0), epoll_wait(outer, 4, 0));
    log!(s, "{}", epoll_wait(top, 4, 0));
    s.sync("done");
}

/// The inner set is closed, and another made by the same number: the outer one knows nothing of that until it is told.
fn sets_nested_made_anew(s: &Side) {
    let fd = s.pair();
    let (inner, outer) = (wait::epoll(), wait::epoll());
    add(inner, fd, EPOLLIN, 1).ok();
    add(outer, inner, EPOLLIN, 2).ok();
    s.sync("quiet");
    io::send_all(fd, b"x").ok();
    wait::wait_queued(fd, 1);
    log!(s, "{}", epoll_wait(outer, 4, 0));
    net::close(inner).ok();
    let anew = wait::epoll();
    assert_eq!(anew, inner);
    add(anew, fd, EPOLLIN, 3).ok();
    log!(s, "{}", epoll_wait(outer, 4, 0));
    log!(s, "{}", modify(outer, anew, EPOLLIN | EPOLLOUT, 4));
    log!(s, "{}", epoll_wait(outer, 4, 0));
    log!(s, "{}", delete(outer, anew));
    log!(s, "{}", add(outer, anew, EPOLLIN, 5));
    log!(s, "{}", epoll_wait(outer, 4, 0));
    s.sync("done");
}

/// A child waits on its parent's set, in which the connection stands alone by an exclusive registration, and has bytes unread.
fn sets_exclusive_in_a_child(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let set = wait::epoll();
        add(set, fd, EPOLLIN | EPOLLEXCLUSIVE, 1).ok();
        s.sync("sent");
        wait::wait_queued(fd, 5);
        log!(s, "{}", epoll_wait(set, 4, 0));
        let side = *s;
        let child = proc::fork(move || {
            log!(side, "child {}", epoll_wait(set, 4, 1000));
            log!(side, "{}", io::recv_exact(fd, 3).0.len());
            log!(side, "child {}", epoll_wait(set, 4, 0));
            0
        });
        log!(s, "{}", proc::wait_child(child));
        log!(s, "{}", epoll_wait(set, 4, 1000));
        log!(s, "{}", io::recv_exact(fd, 2).0.len());
        log!(s, "{}", epoll_wait(set, 4, 0));
        s.sync("read");
    } else {
        io::send_all(fd, b"hello").ok();
        s.sync("sent");
        s.sync("read");
    }
    s.sync("done");
}

/// Nobody sleeps when something comes: edge-triggered sets, around one that is not and around one in another, tell of it once each time.
fn edge_after_edge(s: &Side) {
    let fd = s.pair();
    let (inner, outer, other, top) = (wait::epoll(), wait::epoll(), wait::epoll(), wait::epoll());
    add(inner, fd, EPOLLIN, 1).ok();
    add(outer, inner, EPOLLIN | EPOLLET, 2).ok();
    add(other, inner, EPOLLIN, 3).ok();
    add(top, other, EPOLLIN | EPOLLET, 4).ok();
    for patience in [0, 0, 30, 30, 0] {
        s.sync("quiet");
        io::send_all(fd, b"x").ok();
        wait::wait_queued(fd, 1);
        std::thread::sleep(wait::millis(20));
        for set in [outer, top, outer, top] {
            log!(s, "{patience} {}", epoll_wait(set, 4, patience));
        }
        log!(s, "inner {}", epoll_wait(inner, 4, 0));
        io::recv(fd, &mut [0; 4], 0).ok();
        for set in [outer, top, inner] {
            log!(s, "read {}", epoll_wait(set, 4, patience));
        }
    }
    s.sync("done");
}

fn sets_nested_sleeper(s: &Side) {
    let fd = s.pair();
    let (inner, outer) = (wait::epoll(), wait::epoll());
    add(inner, fd, EPOLLIN, 1).ok();
    add(outer, inner, EPOLLIN, 2).ok();
    if s.a() {
        let helper = s.tell_once_asleep();
        log!(s, "{}", epoll_wait(outer, 4, -1));
        log!(s, "{}", epoll_wait(inner, 4, 0));
        helper.join().unwrap();
    } else {
        s.hear();
        io::send_all(fd, b"x").ok();
    }
    s.sync("done");
}

/// A connection in two sets, both of them in a third, which is slept on for so long that it is left to what wakes for it.
fn sets_nested_two_of_one(s: &Side) {
    let fd = super::sharing::warm_pair(s);
    let (one, two, outer) = (wait::epoll(), wait::epoll(), wait::epoll());
    add(one, fd, EPOLLIN, 1).ok();
    add(two, fd, EPOLLIN | EPOLLET, 2).ok();
    add(outer, one, EPOLLIN, 3).ok();
    add(outer, two, EPOLLIN, 4).ok();
    // (so many that it is worth a ring, where there are adapters)
    for _ in 0..40 {
        if s.a() {
            io::send_all(fd, b"p").ok();
            io::recv_exact(fd, 1);
        } else {
            io::recv_exact(fd, 1);
            io::send_all(fd, b"p").ok();
        }
    }
    epoll_wait(two, 4, 0);
    s.sync("quiet");
    for _ in 0..3 {
        if s.a() {
            let helper = s.tell_once_asleep();
            log!(s, "{}", epoll_wait(outer, 4, 5000).ret.ok() > 0);
            log!(
                s,
                "{} | {}",
                epoll_wait(one, 4, 1000),
                epoll_wait(two, 4, 1000)
            );
            io::recv_exact(fd, 1);
            helper.join().unwrap();
        } else {
            s.hear();
            std::thread::sleep(wait::millis(300));
            io::send_all(fd, b"x").ok();
        }
    }
    s.sync("done");
}

/// An edge-triggered set that asks for the peer's end alone is told of it once, whatever has come before.
fn sets_half_close_once(s: &Side) {
    let fd = super::sharing::warm_pair(s);
    if s.a() {
        let set = wait::epoll();
        add(set, fd, EPOLLRDHUP | EPOLLET, 1).ok();
        let helper = s.tell_once_asleep();
        log!(s, "{}", epoll_wait(set, 4, -1));
        helper.join().unwrap();
        log!(s, "{}", epoll_wait(set, 4, 0));
        log!(s, "{}", epoll_wait(set, 4, 20));
        io::recv_exact(fd, 3);
        log!(s, "{}", epoll_wait(set, 4, 0));
    } else {
        s.hear();
        io::send_all(fd, b"abc").ok();
        std::thread::sleep(wait::millis(20));
        net::shutdown(fd, libc::SHUT_WR).ok();
    }
    s.sync("done");
}

fn sets_in_poll_and_select(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    add(set, fd, EPOLLIN, 1).ok();
    let read = Select {
        read: &[set],
        write: &[],
        except: &[],
    };
    log!(
        s,
        "{} | {}",
        wait::poll(&[(set, POLLIN)], 0),
        read.select(Some(wait::millis(0)))
    );
    s.sync("quiet");
    io::send_all(fd, b"x").ok();
    wait::wait_queued(fd, 1);
    log!(
        s,
        "{} | {}",
        wait::poll(&[(set, POLLIN)], -1),
        read.select(None)
    );
    log!(s, "{}", wait::poll(&[(set, POLLIN), (fd, POLLIN)], -1));
    io::recv(fd, &mut [0; 4], 0).ok();
    log!(
        s,
        "{} | {}",
        wait::poll(&[(set, POLLIN)], 0),
        read.select(Some(wait::millis(0)))
    );
    modify(set, fd, EPOLLOUT, 1).ok();
    log!(
        s,
        "{} | {}",
        wait::poll(&[(set, POLLIN)], -1),
        read.select(None)
    );
    s.sync("done");
}

fn sets_poll_on_set_sleeps(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    add(set, fd, EPOLLIN, 1).ok();
    if s.a() {
        for by_select in [false, true] {
            let helper = s.tell_once_asleep();
            if by_select {
                log!(
                    s,
                    "{}",
                    Select {
                        read: &[set],
                        write: &[],
                        except: &[]
                    }
                    .select(None)
                );
            } else {
                log!(s, "{}", wait::poll(&[(set, POLLIN)], -1));
            }
            helper.join().unwrap();
            io::recv(fd, &mut [0; 4], 0).ok();
        }
    } else {
        for _ in 0..2 {
            s.hear();
            io::send_all(fd, b"x").ok();
        }
    }
    s.sync("done");
}

fn sets_loops(s: &Side) {
    let fd = s.pair();
    let (one, two) = (wait::epoll(), wait::epoll());
    add(one, fd, EPOLLIN, 1).ok();
    log!(s, "{}", add(one, two, EPOLLIN, 2));
    log!(s, "{}", add(two, one, EPOLLIN, 3));
    log!(s, "{}", add(one, one, EPOLLIN, 4));
    let chain: Vec<Fd> = (0..7).map(|_| wait::epoll()).collect();
    for pair in chain.windows(2) {
        log!(s, "{}", add(pair[1], pair[0], EPOLLIN, 1));
    }
    s.sync("done");
}

fn sets_dup_of_set(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    let alias = net::dup(set).fd();
    add(set, fd, EPOLLOUT, 1).ok();
    log!(s, "{} | {}", epoll_wait(alias, 4, 0), epoll_wait(set, 4, 0));
    log!(s, "{}", add(alias, fd, EPOLLIN, 2));
    net::close(set).ok();
    log!(s, "{}", epoll_wait(alias, 4, 0));
    log!(s, "{}", delete(alias, fd));
    s.sync("done");
}

fn sets_inherited_by_fork(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let set = wait::epoll();
        add(set, fd, EPOLLIN, 5).ok();
        let side = *s;
        let child = crate::sys::proc::fork(move || {
            log!(side, "child {}", epoll_wait(set, 4, 10_000));
            log!(side, "child {:?}", io::recv_exact(fd, 5).0);
            0
        });
        s.tell(1);
        log!(s, "{}", crate::sys::proc::wait_child(child));
    } else {
        s.hear();
        io::send_all(fd, b"hello").ok();
    }
    s.sync("done");
}
