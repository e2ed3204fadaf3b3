//! Epoll sets and several threads: who is woken, and what changes while somebody waits.

use super::Case;
use crate::log;
use crate::side::{Side, drain, fill_up};
use crate::sys::proc::once_asleep;
use crate::sys::wait::{add, delete, epoll_wait, modify};
use crate::sys::{Fd, io, net, wait};
use libc::{EPOLLET, EPOLLEXCLUSIVE, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

pub(super) const CASES: &[Case] = &[
    Case::pair("sets_two_sleepers", sets_two_sleepers),
    Case::pair("sets_shared_by_threads", sets_shared_by_threads),
    Case::pair("sets_oneshot_threads", sets_oneshot_threads),
    Case::pair("sets_oneshot_added_to", sets_oneshot_added_to),
    Case::pair("sets_oneshot_from_the_start", sets_oneshot_from_the_start),
    Case::pair(
        "sets_oneshot_by_a_closed_name",
        sets_oneshot_by_a_closed_name,
    ),
    Case::pair("sets_rearmed_among_pollers", sets_rearmed_among_pollers),
    Case::pair("sets_exclusive_threads", sets_exclusive_threads),
    Case::pair("sets_beside_a_silent_one", sets_beside_a_silent_one).slow(),
    Case::pair("sets_add_while_waiting", sets_add_while_waiting),
    Case::pair("sets_add_answered_while_waiting", |s| {
        add_before_first_look(s, false)
    }),
    Case::pair("sets_add_unanswered_while_waiting", |s| {
        add_before_first_look(s, true)
    }),
    Case::pair("sets_modify_while_waiting", sets_modify_while_waiting),
    Case::pair("sets_modify_while_full", sets_modify_while_full),
    Case::pair(
        "sets_modify_inner_while_waiting",
        sets_modify_inner_while_waiting,
    ),
    Case::pair("sets_delete_while_waiting", sets_delete_while_waiting),
    Case::pair(
        "sets_room_for_an_early_sleeper",
        sets_room_for_an_early_sleeper,
    ),
];

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
        let taken = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let (fds, taken) = (fds.clone(), taken.clone());
                std::thread::spawn(move || {
                    while taken.load(SeqCst) < 4 * rounds {
                        for (data, _) in epoll_wait(set, 2, 50).list {
                            let mut buf = [0; 64];
                            loop {
                                let r = io::recv(fds[data as usize], &mut buf, 0);
                                if r.0 <= 0 {
                                    break;
                                }
                                taken.fetch_add(r.ok(), SeqCst);
                            }
                        }
                    }
                })
            })
            .collect();
        for w in workers {
            w.join().unwrap();
        }
        log!(s, "{}", taken.load(SeqCst));
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

/// A connection is added to a set on which several threads sleep just as its first byte comes: one of them is told, once. (A pool of
/// threads gives the connection to whom it is told to; two of them in one would end in a crash.)
fn sets_oneshot_added_to(s: &Side) {
    const ROUNDS: usize = 150;
    let fd = s.pair();
    for round in 0..ROUNDS {
        if s.a() {
            let set = wait::epoll();
            let (heard, waker) = net::pipe();
            add(set, heard, EPOLLIN, 0).ok();
            let told = Arc::new(AtomicUsize::new(0));
            let sleepers: Vec<_> = (0..3)
                .map(|_| {
                    let told = told.clone();
                    std::thread::spawn(move || {
                        while let [(1, _)] = epoll_wait(set, 1, -1).list[..] {
                            told.fetch_add(1, SeqCst);
                        }
                    })
                })
                .collect();
            s.tell(1);
            let begun = std::time::Instant::now();
            while begun.elapsed().as_micros() < (round % 50) as u128 {}
            add(set, fd, EPOLLIN | EPOLLET | EPOLLONESHOT, 1).ok();
            while told.load(SeqCst) == 0 {
                std::thread::sleep(wait::millis(1));
                assert!(
                    begun.elapsed().as_secs() < 20,
                    "nobody was told in round {round}"
                );
            }
            std::thread::sleep(wait::millis(1)); // (in which a second one is told, where that can be)
            io::write(waker, &[1]).ok();
            for one in sleepers {
                one.join().unwrap();
            }
            assert_eq!(told.load(SeqCst), 1, "told in round {round}");
            io::recv_exact(fd, 1);
            for done in [set, heard, waker] {
                net::close(done).ok();
            }
        } else {
            s.hear();
            io::send_all(fd, b"x").ok();
        }
    }
    log!(s, "told once each");
    s.sync("done");
}

/// One-shot registrations of a connection that has carried nothing yet: what they tell, and when, as it comes to life and ends.
fn sets_oneshot_from_the_start(s: &Side) {
    let fd = s.open();
    if s.a() {
        let set = wait::epoll();
        let look = |what: &str| {
            log!(
                s,
                "{what}: {} {}",
                epoll_wait(set, 4, 1000),
                epoll_wait(set, 4, 0)
            );
        };
        let quiet = |what: &str| log!(s, "{what}: {}", epoll_wait(set, 4, 30));
        add(set, fd, EPOLLOUT | EPOLLONESHOT, 1).ok();
        log!(s, "again {}", add(set, fd, EPOLLIN | EPOLLONESHOT, 1));
        look("room");
        modify(set, fd, EPOLLIN | EPOLLONESHOT, 2).ok();
        quiet("nothing yet");
        s.tell(1);
        look("a byte");
        s.tell(1);
        s.hear();
        wait::wait_queued(fd, 2);
        quiet("told already");
        modify(set, fd, EPOLLIN | EPOLLET | EPOLLONESHOT, 3).ok();
        look("armed");
        log!(s, "{}", io::recv_exact(fd, 2).0.len());
        modify(set, fd, EPOLLIN | EPOLLONESHOT, 4).ok();
        quiet("read");
        delete(set, fd).ok();
        add(set, fd, EPOLLIN | EPOLLOUT | EPOLLONESHOT, 5).ok();
        look("added again");
        modify(set, fd, EPOLLIN | EPOLLOUT, 6).ok();
        log!(
            s,
            "{} {}",
            epoll_wait(set, 4, 1000),
            epoll_wait(set, 4, 1000)
        );
        s.always_warm_up(fd);
        modify(set, fd, EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, 7).ok();
        quiet("moved");
        s.tell(1);
        look("the end");
        modify(set, fd, EPOLLONESHOT, 8).ok();
        quiet("asked for nothing");
    } else {
        s.hear();
        io::send_all(fd, b"x").ok();
        s.hear();
        io::send_all(fd, b"y").ok();
        s.tell(1);
        s.always_warm_up(fd);
        s.hear();
        net::shutdown(fd, libc::SHUT_WR).ok();
    }
    s.sync("done");
}

/// The number that was registered is closed, and another stands for the connection still: the kernel tells of it all the same.
fn sets_oneshot_by_a_closed_name(s: &Side) {
    let fd = s.open();
    if s.a() {
        let (set, other) = (wait::epoll(), net::dup(fd).fd());
        add(set, fd, EPOLLIN | EPOLLONESHOT, 1).ok();
        net::close(fd).ok();
        s.tell(1);
        log!(s, "{}", epoll_wait(set, 4, 1000));
        log!(
            s,
            "{} {}",
            io::recv_exact(other, 1).0.len(),
            epoll_wait(set, 4, 0)
        );
        s.always_warm_up(other);
    } else {
        s.hear();
        io::send_all(fd, b"x").ok();
        s.always_warm_up(fd);
    }
    s.sync("done");
}

/// A pool: one thread sleeps on the set, another serves, arms again, and asks the set once without waiting, by which it may take what
/// was to wake the sleeper. (The sleeper has begun before there is anything in the set.)
fn sets_rearmed_among_pollers(s: &Side) {
    const ROUNDS: u8 = 200;
    const ONCE: i32 = EPOLLIN | EPOLLET | EPOLLONESHOT;
    let fd = s.pair();
    if s.a() {
        let set = wait::epoll();
        let (heard, waker) = net::pipe();
        add(set, heard, EPOLLIN, 0).ok();
        let (queue, work) = std::sync::mpsc::channel();
        let told = queue.clone();
        let sleeper = std::thread::spawn(move || {
            while epoll_wait(set, 1, -1)
                .list
                .iter()
                .all(|&(data, _)| data != 0)
            {
                let _ = told.send(()); // (the other may just have ended)
            }
        });
        std::thread::sleep(wait::millis(20));
        net::set_nonblocking(fd, true).ok();
        add(set, fd, ONCE, 1).ok();
        let mut byte = [0];
        for () in work {
            if io::recv(fd, &mut byte, 0).0 == 1 {
                io::send_all(fd, &byte).ok();
            }
            if byte == [ROUNDS] {
                break;
            }
            modify(set, fd, ONCE, 1).ok();
            for _ in epoll_wait(set, 1, 0).list {
                queue.send(()).unwrap();
            }
        }
        io::write(waker, &[1]).ok();
        sleeper.join().unwrap();
    } else {
        net::set_timeout(fd, libc::SO_RCVTIMEO, 5000).ok();
        for round in 1..=ROUNDS {
            io::send_all(fd, &[round]).ok();
            let (got, last) = io::recv_exact(fd, 1);
            assert_eq!(got, [round], "round {round} was not answered: {last}");
        }
    }
    log!(s, "answered");
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

/// A connection is added that has asked, and looked for nothing yet: the answer is there by then, or comes after.
fn add_before_first_look(s: &Side, late: bool) {
    let fd = s.open();
    if s.a() {
        io::recv_exact(fd, 1);
        if late {
            s.hear();
        }
        io::send_all(fd, b"y").ok();
    } else {
        let set = wait::epoll();
        io::send_all(fd, b"x").ok();
        let channel = *s;
        change_while_waiting(s, set, move || {
            add(set, fd, EPOLLIN, 9).ok();
            if late {
                std::thread::sleep(wait::millis(10));
                channel.tell(1);
            }
        });
        log!(s, "{}", io::recv_exact(fd, 1).0.len());
    }
    s.always_warm_up(fd); // (one message each way need not have found its way to the other path yet)
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

/// Where the connection has no room, so that nothing but the change itself can wake; a part of what has come was read before.
fn sets_modify_while_full(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let set = wait::epoll();
        add(set, fd, 0, 1).ok();
        wait::wait_queued(fd, 4);
        log!(s, "{}", io::recv_exact(fd, 2).0.len());
        let sent = fill_up(fd);
        change_while_waiting(s, set, move || {
            modify(set, fd, EPOLLIN, 2).ok();
        });
        s.tell(sent as u64);
    } else {
        io::send_all(fd, b"more").ok();
        drain(fd, s.hear() as usize);
    }
    s.sync("done");
}

/// The registration of a set within the one that is waited on.
fn sets_modify_inner_while_waiting(s: &Side) {
    let fd = s.pair();
    io::send_all(fd, b"x").ok();
    wait::wait_queued(fd, 1);
    let (set, inner) = (wait::epoll(), wait::epoll());
    add(inner, fd, EPOLLIN, 1).ok();
    add(set, inner, 0, 1).ok();
    change_while_waiting(s, set, move || {
        modify(set, inner, EPOLLIN, 2).ok();
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

/// As Erlang does: the socket is in a second set too, where a thread sleeps for ever, and is silent there, as it has
/// told once. Messages go to and fro for long, and the kernel's buffers are small: what the library
/// tells by the kernel must not fill them.
fn sets_beside_a_silent_one(s: &Side) {
    const TURNS: usize = 30_000;
    let fd = s.pair();
    net::setopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1).ok();
    for name in [libc::SO_RCVBUF, libc::SO_SNDBUF] {
        net::setopt(fd, libc::SOL_SOCKET, name, 8192).ok();
    }
    let (set, other) = (wait::epoll(), wait::epoll());
    wait::add(other, fd, EPOLLIN | EPOLLONESHOT, 1).ok();
    std::thread::spawn(move || {
        loop {
            wait::epoll_wait(other, 1, -1);
        }
    });
    wait::add(set, fd, EPOLLIN, 2).ok();
    for turn in 0..TURNS {
        if s.a() {
            io::write(fd, b"there").ok();
        }
        wait::epoll_wait(set, 1, -1);
        let r = io::recv(fd, &mut [0; 16], libc::MSG_DONTWAIT);
        assert_eq!(r.0, 5, "in turn {turn}: {r}");
        if !s.a() {
            io::write(fd, b"again").ok();
        }
    }
    log!(s, "{TURNS} turns");
    s.sync("done");
}

/// Who has slept on the set since before the connection carried anything hears of room, as event loops that send from other
/// threads than the one that waits.
fn sets_room_for_an_early_sleeper(s: &Side) {
    let fd = s.open();
    if s.a() {
        let set = wait::epoll();
        add(set, fd, 0, 1).ok();
        let sleeper = std::thread::spawn(move || epoll_wait(set, 4, -1).to_string());
        std::thread::sleep(wait::millis(50));
        io::send_all(fd, b"s").ok();
        s.hear();
        let sent = fill_up(fd);
        modify(set, fd, EPOLLOUT, 2).ok();
        s.tell(sent as u64);
        log!(s, "{}", sleeper.join().unwrap());
    } else {
        io::recv_exact(fd, 1);
        s.tell(1);
        drain(fd, s.hear() as usize);
    }
    s.sync("done");
}
