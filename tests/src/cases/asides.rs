//! What programs ask for beside their bytes: the connection's state, how much is left; and calls that are
//! rarely used on streams.

use super::Case;
use super::attach::talk;
use crate::log;
use crate::side::{Random, Side};
use crate::sys::{Fd, Ret, aside, io, net, pass, proc, wait};
use std::sync::mpsc;

pub(super) const CASES: &[Case] = &[
    Case::pair("tcp_info_states", tcp_info_states),
    Case::pair("tcp_info_of_both_shut", tcp_info_of_both_shut),
    Case::pair("bytes_left_are_told", bytes_left_are_told),
    Case::pair("times_not_asked_for", times_not_asked_for),
    Case::pair("pages_are_asked_for", pages_are_asked_for).any_path("the kernel alone has pages"),
    Case::pair("vectors_without_waiting", vectors_without_waiting),
    Case::pair("length_beyond_the_buffer", length_beyond_the_buffer),
    Case::pair(
        "disconnected_and_connected_again",
        disconnected_and_connected_again,
    )
    .any_path("it ends, and begins again by the kernel"),
    Case::pair("disconnected_and_listens", disconnected_and_listens),
    Case::pair("connect_on_a_small_stack", connect_on_a_small_stack),
    Case::pair("rests_and_goes_on", rests_and_goes_on).slow(),
    Case::moving("passed_on_beside_a_thread", passed_on_beside_a_thread),
];

/// The first octet of TCP_INFO, once it is one of these.
fn state(fd: Fd, awaited: &[u8]) -> u8 {
    let mut state = 0;
    wait::eventually(|| {
        state = aside::tcp_state(fd);
        awaited.contains(&state)
    });
    state
}

/// Servers look there for clients that have gone.
fn tcp_info_states(s: &Side) {
    const ESTABLISHED: u8 = 1;
    let fd = s.pair();
    log!(s, "{}", state(fd, &[ESTABLISHED]));
    s.sync("established");
    if s.a() {
        net::shutdown(fd, libc::SHUT_WR).ok();
        s.sync("shut");
        log!(s, "{}", state(fd, &[4, 5]) > ESTABLISHED); // FIN_WAIT1 or 2
        log!(s, "{}", io::recv_to_end(fd).0.len());
    } else {
        s.sync("shut");
        log!(s, "{}", state(fd, &[aside::CLOSE_WAIT]));
        io::send_all(fd, b"rest").ok();
        log!(s, "{}", state(fd, &[aside::CLOSE_WAIT]));
        net::close(fd).ok();
    }
    s.sync("done");
}

/// Who has shut both halves still waits for the other's end.
fn tcp_info_of_both_shut(s: &Side) {
    const CLOSE: u8 = 7;
    let fd = s.pair();
    s.sync("established");
    if s.a() {
        net::shutdown(fd, libc::SHUT_RDWR).ok();
        log!(s, "{}", state(fd, &[5])); // FIN_WAIT2
        s.sync("shut");
        s.sync("read");
        log!(s, "{}", state(fd, &[5]));
        s.sync("looked");
        log!(s, "{}", state(fd, &[CLOSE]));
    } else {
        s.sync("shut");
        log!(s, "{}", io::recv_to_end(fd).0.len());
        log!(s, "{}", state(fd, &[aside::CLOSE_WAIT]));
        s.sync("read");
        s.sync("looked");
        net::shutdown(fd, libc::SHUT_WR).ok();
        log!(s, "{}", state(fd, &[CLOSE]));
    }
    s.sync("done");
}

/// TCP_INQ: with each message comes how much is left.
fn bytes_left_are_told(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"0123456789").ok();
        s.sync("sent");
        s.sync("read");
    } else {
        log!(
            s,
            "{}",
            net::setopt(fd, libc::IPPROTO_TCP, aside::TCP_INQ, 1)
        );
        s.sync("sent");
        wait::wait_queued(fd, 10);
        for (len, room) in [(3, 64), (2, 24), (1, 20), (1, 0), (3, 64)] {
            log!(s, "{}", aside::recv_with_control(fd, len, room));
        }
        s.sync("read");
    }
    s.sync("done");
}

/// SO_TIMESTAMP, set by a program that reads without room for times.
fn times_not_asked_for(s: &Side) {
    let fd = s.pair();
    if !s.a() {
        let set = net::setopt(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMP, 1);
        log!(s, "{set}");
    }
    s.sync("set");
    if s.a() {
        io::send_all(fd, b"0123456789").ok();
        log!(s, "{}", io::recv_exact(fd, 4).0.len());
    } else {
        wait::wait_queued(fd, 10);
        log!(s, "{}", io::recv_exact(fd, 10).0.len());
        io::send_all(fd, b"back").ok();
    }
    s.sync("done");
}

/// TCP_ZEROCOPY_RECEIVE: what has come and fills no page is to be read.
fn pages_are_asked_for(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"0123456789").ok();
        s.sync("sent");
        log!(s, "{}", io::recv_exact(fd, 4).0.len());
    } else {
        s.sync("sent");
        wait::wait_queued(fd, 10);
        log!(s, "{}", aside::ask_for_pages(fd));
        log!(s, "{}", io::recv_exact(fd, 10).0.len());
        io::send_all(fd, b"back").ok();
    }
    s.sync("done");
}

/// preadv2 and pwritev2 with RWF_NOWAIT are readv and writev that do not wait.
fn vectors_without_waiting(s: &Side) {
    let fd = s.pair();
    let mut room = [0; 8];
    if s.a() {
        log!(s, "{}", aside::pwritev2(fd, b"to you", libc::RWF_NOWAIT));
        s.sync("sent");
        wait::wait_queued(fd, 4);
        log!(s, "{}", aside::preadv2(fd, &mut room, libc::RWF_HIPRI));
        log!(s, "{}", String::from_utf8_lossy(&room));
        log!(s, "{}", aside::preadv2(fd, &mut room, libc::RWF_NOWAIT));
    } else {
        s.sync("sent");
        wait::wait_queued(fd, 6);
        log!(
            s,
            "{}",
            aside::preadv2(fd, &mut room[..2], libc::RWF_NOWAIT)
        );
        log!(s, "{}", io::recv(fd, &mut room, 0));
        log!(s, "{}", String::from_utf8_lossy(&room));
        log!(s, "{}", aside::preadv2(fd, &mut room, libc::RWF_NOWAIT));
        log!(s, "{}", aside::pwritev2(fd, b"back", 0));
    }
    s.sync("done");
}

/// A program names a length beyond its buffer, and is given what there is.
fn length_beyond_the_buffer(s: &Side) {
    let fd = s.pair();
    if s.a() {
        for round in 0..3u8 {
            io::send_all(fd, &[round; 5]).ok();
            s.sync("sent");
            s.sync("read");
        }
    } else {
        let (at, last) = aside::before_forbidden();
        for len in [20_000, 200_000, 0x7fff_0000] {
            s.sync("sent");
            wait::wait_queued(fd, 5);
            log!(s, "{} {}", io::raw::recv(fd, at, len, 0), last());
            s.sync("read");
        }
    }
    s.sync("done");
}

/// connect to nothing ends a connection, and the socket can be connected again.
fn disconnected_and_connected_again(s: &Side) {
    let first = s.pair();
    if s.accepts() {
        wait::wait_for(first, libc::POLLHUP);
        log!(s, "{}", io::recv_to_end(first).1);
        let again = net::accept(s.listen(4)).fd();
        let (got, end) = io::recv_exact(again, 5);
        log!(s, "{} {end}", String::from_utf8_lossy(&got));
        io::send_all(again, b"heard").ok();
        net::close(again).ok();
    } else {
        log!(s, "{}", aside::disconnect(first));
        let to = s.target();
        log!(s, "{}", net::connect(first, to));
        log!(s, "{}", io::send_all(first, b"again"));
        let (got, end) = io::recv_to_end(first);
        log!(s, "{} {end}", String::from_utf8_lossy(&got));
    }
    s.sync("done");
}

/// The same socket may listen then, and what it accepts is a connection as any other.
fn disconnected_and_listens(s: &Side) {
    let first = s.pair();
    s.warm_up(first);
    let fd = if s.accepts() {
        wait::wait_for(first, libc::POLLHUP);
        let port = u16::try_from(s.hear()).unwrap();
        let to = (std::net::Ipv4Addr::LOCALHOST, port).into();
        let fd = net::socket_for(to, 0);
        log!(s, "{}", net::connect(fd, to));
        log!(s, "{}", io::send_all(fd, b"hello"));
        fd
    } else {
        log!(s, "{}", aside::disconnect(first));
        log!(s, "{}", net::bind(first, net::loopback()));
        log!(s, "{}", net::listen(first, 4));
        s.tell(u64::from(net::getsockname(first).port()));
        let fd = net::accept(first).fd();
        log!(s, "{}", String::from_utf8_lossy(&io::recv_exact(fd, 5).0));
        fd
    };
    s.warm_up(fd);
    s.sync("done");
}

/// A connection that has carried much and rests holds next to no memory, and goes on where it was.
fn rests_and_goes_on(s: &Side) {
    const MUCH: usize = 2 << 20;
    let fd = s.pair();
    let bytes = Random::new(71).bytes(MUCH);
    for round in 0..2 {
        for turn in [true, false] {
            if s.a() == turn {
                // (in pieces: none goes straight from memory to memory)
                let sent = bytes.chunks(8192).map(|piece| io::send_all(fd, piece).ok());
                log!(s, "{round} {}", sent.sum::<usize>());
            } else {
                log!(s, "{round} {}", io::recv_exact(fd, MUCH).0 == bytes);
            }
        }
        s.sync("round");
        if round == 0 {
            for _ in 0..4 {
                // (there is nothing to read)
                log!(s, "{}", wait::poll(&[(fd, libc::POLLIN)], 1200));
            }
            s.sync("rested");
            log!(s, "little {}", proc::shared_memory() < 300);
            s.sync("looked");
        }
    }
    s.sync("done");
}

/// A thread may have a stack of 16 KiB in all (PTHREAD_STACK_MIN).
fn connect_on_a_small_stack(s: &Side) {
    let fd = if s.accepts() {
        net::accept(s.listen(4)).fd()
    } else {
        let to = s.target();
        aside::connect_on_a_small_stack(to)
    };
    talk(s, fd);
}

/// A server of several threads greets its client and passes the connection on: its next owner reads all that comes.
fn passed_on_beside_a_thread(s: &Side) {
    const ROUNDS: usize = 8;
    let (mine, theirs) = net::unix_pair(libc::SOCK_STREAM);
    if s.accepts() {
        let side = *s;
        let child = proc::fork(move || {
            for _ in 0..ROUNDS {
                let got = pass::recv_fd(theirs, libc::MSG_CMSG_CLOEXEC);
                let (bytes, _) = io::recv_exact(got, 9);
                log!(side, "{}", String::from_utf8_lossy(&bytes));
                io::send_all(got, &bytes).ok();
                net::close(got).ok();
            }
            0
        });
        let (keep, ends) = mpsc::channel::<()>();
        let other = std::thread::spawn(move || ends.recv().is_err());
        let lis = s.listen(8);
        for _ in 0..ROUNDS {
            let fd = net::accept(lis).fd();
            io::send_all(fd, b"hi").ok();
            s.sync("said");
            pass::send_fd(mine, fd);
            net::close(fd).ok();
        }
        log!(s, "{}", proc::wait_child(child));
        drop(keep);
        other.join().ok();
    } else {
        let to = s.target();
        for _ in 0..ROUNDS {
            let fd = net::socket_for(to, 0);
            net::connect(fd, to).ok();
            io::recv_exact(fd, 2);
            let said: Ret = io::send_all(fd, b"the ");
            io::send_all(fd, b"words").ok();
            s.sync("said");
            log!(
                s,
                "{said} {}",
                String::from_utf8_lossy(&io::recv_to_end(fd).0)
            );
            net::close(fd).ok();
        }
    }
    s.sync("done");
}
