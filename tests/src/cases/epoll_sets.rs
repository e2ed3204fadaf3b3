//! Several sets, aliases, sets inside sets, sets shared by threads, changes while somebody waits.

use super::Case;
use crate::log;
use crate::side::Side;
use crate::sys::proc::once_asleep;
use crate::sys::wait::{Select, add, delete, epoll_wait, modify};
use crate::sys::{Fd, io, net, wait};
use libc::{EPOLLET, EPOLLEXCLUSIVE, EPOLLIN, EPOLLONESHOT, EPOLLOUT, POLLIN};

pub(super) const CASES: &[Case] = &[
    Case::pair("sets_two", sets_two),
    Case::pair("sets_two_sleepers", sets_two_sleepers),
    Case::pair("sets_alias_in_one", sets_alias_in_one),
    Case::pair("sets_alias_outlives", sets_alias_outlives),
    Case::pair("sets_nested_level", |s| nested(s, 0)),
    Case::pair("sets_nested_edge", |s| nested(s, EPOLLET)),
    Case::pair("sets_nested_sleeper", sets_nested_sleeper),
    Case::pair("sets_in_poll_and_select", sets_in_poll_and_select),
    Case::pair("sets_poll_on_set_sleeps", sets_poll_on_set_sleeps),
    Case::pair("sets_loops", sets_loops),
    Case::pair("sets_shared_by_threads", sets_shared_by_threads),
    Case::pair("sets_oneshot_threads", sets_oneshot_threads),
    Case::pair("sets_exclusive_threads", sets_exclusive_threads),
    Case::pair("sets_add_while_waiting", sets_add_while_waiting),
    Case::pair("sets_modify_while_waiting", sets_modify_while_waiting),
    Case::pair("sets_delete_while_waiting", sets_delete_while_waiting),
    Case::pair("sets_dup_of_set", sets_dup_of_set),
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

fn sets_two_sleepers(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let sleepers: Vec<_> = [EPOLLIN, EPOLLIN | EPOLLET]
            .map(|flags| {
                let set = wait::epoll();
                add(set, fd, flags, 6).ok();
                std::thread::spawn(move || epoll_wait(set, 4, -1).to_string())
            })
            .into();
        std::thread::sleep(wait::millis(50));
        s.tell(1);
        for one in sleepers {
            log!(s, "{}", one.join().unwrap());
        }
    } else {
        s.hear();
        io::send_all(fd, b"x").ok();
    }
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

/// Threads in one set: every message is seen by somebody and nothing is left over.
fn sets_shared_by_threads(s: &Side) {
    let fds: Vec<Fd> = (0..4).map(|_| s.pair()).collect();
    let rounds = 200;
    if s.a() {
        let set = wait::epoll();
        for (i, fd) in fds.iter().enumerate() {
            net::set_nonblocking(*fd, true).ok();
            add(set, *fd, EPOLLIN | EPOLLET, i as u64).ok();
        }
        let taken = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let (fds, taken) = (fds.clone(), taken.clone());
                std::thread::spawn(move || {
                    while taken.load(std::sync::atomic::Ordering::SeqCst) < 4 * rounds {
                        for (data, _) in epoll_wait(set, 2, 50).list {
                            let mut buf = [0; 64];
                            loop {
                                let r = io::recv(fds[data as usize], &mut buf, 0);
                                if r.0 <= 0 {
                                    break;
                                }
                                taken.fetch_add(r.ok(), std::sync::atomic::Ordering::SeqCst);
                            }
                        }
                    }
                })
            })
            .collect();
        for w in workers {
            w.join().unwrap();
        }
        log!(s, "{}", taken.load(std::sync::atomic::Ordering::SeqCst));
    } else {
        for i in 0..rounds {
            for fd in &fds {
                io::send_all(*fd, &[i as u8]).ok();
            }
        }
    }
    s.sync("done");
}

/// One-shot gives an event to exactly one of several threads until it is armed again.
fn sets_oneshot_threads(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let set = wait::epoll();
        add(set, fd, EPOLLIN | EPOLLONESHOT, 0).ok();
        let workers: Vec<_> = (0..3)
            .map(|_| std::thread::spawn(move || epoll_wait(set, 4, 600).ret.0))
            .collect();
        std::thread::sleep(wait::millis(50));
        s.tell(1);
        let total: i64 = workers.into_iter().map(|w| w.join().unwrap()).sum();
        log!(s, "woken {total}");
        modify(set, fd, EPOLLIN | EPOLLONESHOT, 1).ok();
        log!(s, "armed {}", epoll_wait(set, 4, 1000));
    } else {
        s.hear();
        io::send_all(fd, b"x").ok();
    }
    s.sync("done");
}

/// With exclusive wake-ups at least one of the sets is told.
fn sets_exclusive_threads(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let set = wait::epoll();
                add(set, fd, EPOLLIN | EPOLLEXCLUSIVE, 0).ok();
                std::thread::spawn(move || epoll_wait(set, 4, 600).ret.0)
            })
            .collect();
        std::thread::sleep(wait::millis(50));
        s.tell(1);
        let total: i64 = workers.into_iter().map(|w| w.join().unwrap()).sum();
        log!(s, "somebody woken {}", total >= 1);
    } else {
        s.hear();
        io::send_all(fd, b"x").ok();
    }
    s.sync("done");
}

/// Somebody waits without limit while the set changes under it.
fn change_while_waiting(s: &Side, set: Fd, change: impl FnOnce() + Send + 'static) {
    let helper = once_asleep(move |_| {
        change();
    });
    log!(s, "{}", epoll_wait(set, 4, -1));
    helper.join().unwrap();
}

fn sets_add_while_waiting(s: &Side) {
    let fd = s.pair();
    io::send_all(fd, b"x").ok();
    wait::wait_queued(fd, 1);
    let set = wait::epoll();
    change_while_waiting(s, set, move || {
        add(set, fd, EPOLLIN, 9).ok();
    });
    s.sync("done");
}

fn sets_modify_while_waiting(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    add(set, fd, EPOLLIN, 1).ok();
    change_while_waiting(s, set, move || {
        modify(set, fd, EPOLLIN | EPOLLOUT, 2).ok();
    });
    s.sync("done");
}

/// A deleted descriptor no longer wakes; another one in the set still does.
fn sets_delete_while_waiting(s: &Side) {
    let (fd, other) = (s.pair(), s.pair());
    if s.a() {
        let set = wait::epoll();
        add(set, fd, EPOLLIN, 1).ok();
        add(set, other, EPOLLIN, 2).ok();
        let channel = *s;
        change_while_waiting(s, set, move || {
            delete(set, fd).ok();
            channel.tell(1);
        });
        wait::wait_queued(fd, 1);
        log!(s, "{}", epoll_wait(set, 4, 0));
    } else {
        s.hear();
        io::send_all(fd, b"x").ok();
        std::thread::sleep(wait::millis(30));
        io::send_all(other, b"x").ok();
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
