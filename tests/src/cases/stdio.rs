//! A stream under a FILE: bytes that libc moves without any call that the library could see.

use super::{Case, MOVES};
use crate::log;
use crate::side::{Side, own_pair, text};
use crate::sys::{Fd, io, net, wait};
use std::time::{Duration, Instant};

unsafe extern "C" {
    fn dprintf(fd: i32, format: *const libc::c_char, ...) -> i32;
}

pub(super) const CASES: &[Case] = &[
    Case::pair("stdio_on_socket", stdio_on_socket).any_path(MOVES),
    Case::pair("stdio_fdopen_midway", stdio_fdopen_midway).any_path(MOVES),
    Case::pair("stdio_beside_fired", stdio_beside_fired).any_path(MOVES),
    Case::pair("stdio_speaks_first", stdio_speaks_first)
        .processes_only()
        .any_path(MOVES),
    Case::pair("dprintf_on_socket", dprintf_on_socket).any_path(MOVES),
    Case::solo("stdio_on_own_ends", |s| stdio_on_own_ends(s, false)).any_path(MOVES),
    Case::solo("stdio_on_own_ends_in_a_set", |s| stdio_on_own_ends(s, true)).any_path(MOVES),
];

/// fprintf and fgets through a FILE, which libc serves without any call we can see.
fn stdio_on_socket(s: &Side) {
    let fd = s.pair();
    if s.a() {
        // SAFETY: the FILE is used by this thread only and closed once.
        unsafe {
            let file = libc::fdopen(fd, c"r+".as_ptr());
            let mut line = [0u8; 64];
            for i in 0..5 {
                libc::fprintf(file, c"line %d\n".as_ptr(), i);
                libc::fflush(file);
                libc::fgets(line.as_mut_ptr().cast(), 64, file);
                let end = line.iter().position(|b| *b == b'\n').unwrap_or(0);
                log!(s, "{}", text(&line[..end]));
            }
            log!(s, "{}", libc::fclose(file));
        }
    } else {
        for i in 0..5 {
            log!(s, "{:?}", text(&io::recv_exact(fd, 7).0));
            io::send_all(fd, format!("answer {i}\n").as_bytes()).ok();
        }
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
    }
    s.sync("done");
}

/// Bytes already queued and bytes still to come both reach the FILE, in order.
fn stdio_fdopen_midway(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.sync("sent");
        wait::wait_queued(fd, 12);
        log!(s, "{}", text(&io::recv_exact(fd, 6).0));
        io::send_all(fd, b"direct\n").ok();
        // SAFETY: as above.
        unsafe {
            let file = libc::fdopen(net::dup(fd).fd(), c"r+".as_ptr());
            let mut line = [0u8; 64];
            libc::fgets(line.as_mut_ptr().cast(), 64, file);
            log!(s, "{:?}", text(&line[..6]));
            libc::fprintf(file, c"buffered\n".as_ptr());
            libc::fclose(file);
        }
        io::send_all(fd, b"direct\n").ok();
    } else {
        io::send_all(fd, b"first\nagain\n").ok();
        s.sync("sent");
        log!(s, "{:?}", text(&io::recv_exact(fd, 23).0));
    }
    s.sync("done");
}

fn dprintf_on_socket(s: &Side) {
    let fd = s.pair();
    if s.a() {
        for i in 0..5 {
            // SAFETY: a constant format with one int.
            log!(s, "{}", unsafe { dprintf(fd, c"number %d\n".as_ptr(), i) });
            io::send_all(fd, b"between\n").ok();
        }
    } else {
        log!(s, "{:?}", text(&io::recv_exact(fd, 85).0));
    }
    s.sync("done");
}

/// A registration for once has fired when the stream goes back to the kernel: it stays silent until it is modified, at
/// the connection's end too.
fn stdio_beside_fired(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"x").ok();
        s.sync("fired");
        // SAFETY: the FILE is used by this thread only and closed once.
        unsafe {
            let file = libc::fdopen(net::dup(fd).fd(), c"w".as_ptr());
            libc::fprintf(file, c"line".as_ptr());
            libc::fclose(file);
        }
        s.sync("line");
        s.sync("read");
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        let set = wait::epoll();
        wait::add(set, fd, libc::EPOLLIN | libc::EPOLLONESHOT, 1).ok();
        log!(s, "{}", wait::epoll_wait(set, 4, -1));
        s.sync("fired");
        s.sync("line");
        log!(s, "{:?}", text(&io::recv_exact(fd, 5).0));
        net::shutdown(fd, libc::SHUT_WR).ok();
        s.sync("read");
        wait::wait_for(fd, libc::POLLHUP);
        log!(s, "{}", wait::epoll_wait(set, 4, 100));
        wait::modify(set, fd, libc::EPOLLIN | libc::EPOLLONESHOT, 2).ok();
        log!(s, "{}", wait::epoll_wait(set, 4, -1));
        log!(s, "{}", wait::epoll_wait(set, 4, 0));
    }
    s.sync("done");
}

/// A server's first words go by a FILE, and its clients wait for them in every way there is. Taking the connection for that is
/// no matter of a time that runs out: of some clients of a kind one at least is served at once.
fn stdio_speaks_first(s: &Side) {
    type Waits = fn(Fd);
    const WAYS: [(&str, Waits); 4] = [
        ("read", |_| ()),
        ("poll", |fd| wait::wait_for(fd, libc::POLLIN)),
        ("set", |fd| waits_in_set(fd, 0)),
        ("edges", |fd| {
            waits_in_set(fd, libc::EPOLLET | libc::EPOLLOUT)
        }),
    ];
    const CLIENTS: usize = 6;
    if s.a() {
        let lis = s.listen(8);
        for (way, _) in WAYS {
            let mut soonest = Duration::MAX;
            for _ in 0..CLIENTS {
                let fd = net::accept(lis).fd();
                let begun = Instant::now();
                // SAFETY: the FILE is used by this thread only and closed once.
                unsafe {
                    let file = libc::fdopen(fd, c"w".as_ptr());
                    libc::fprintf(file, c"hello".as_ptr());
                    libc::fflush(file);
                    soonest = soonest.min(begun.elapsed());
                    libc::fclose(file);
                }
            }
            log!(s, "{way} {}", soonest < wait::millis(150));
        }
    } else {
        let to = s.target();
        for (way, waits) in WAYS {
            for _ in 0..CLIENTS {
                let fd = net::socket_for(to, 0);
                net::connect(fd, to).ok();
                waits(fd);
                let (got, end) = io::recv_to_end(fd);
                log!(s, "{way} {} {end}", text(&got));
                net::close(fd).ok();
            }
        }
    }
    s.sync("done");
}

/// Waits in a set until there is something to read.
fn waits_in_set(fd: Fd, how: i32) {
    let set = wait::epoll();
    wait::add(set, fd, libc::EPOLLIN | how, 1).ok();
    let has_come = |woken: wait::Woken| {
        let read = libc::EPOLLIN.cast_unsigned();
        woken.list.iter().any(|(_, events)| events.0 & read != 0)
    };
    while !has_come(wait::epoll_wait(set, 1, -1)) {}
    net::close(set).ok();
}

/// Both ends are this thread's, which waits at one for what the library is to answer at the other. That may just be about more: it is
/// told to be by what has gone before, one message more each time.
fn stdio_on_own_ends(s: &Side, in_a_set: bool) {
    for round in 0..24 {
        let (left, right) = own_pair();
        let set = wait::epoll();
        if in_a_set {
            for fd in [left, right] {
                wait::add(set, fd, libc::EPOLLIN, fd as u64).ok();
            }
        }
        for _ in 0..round {
            exchange_some(left, right);
        }
        // SAFETY: each FILE is used by this thread only and closed once.
        let said = unsafe {
            let files = [left, right].map(|fd| libc::fdopen(fd, c"r+".as_ptr()));
            let mut line = [0u8; 64];
            let mut said = String::new();
            for (from, to) in [(0, 1), (1, 0)] {
                libc::fprintf(files[from], c"line\n".as_ptr());
                libc::fflush(files[from]);
                let came = libc::fgets(line.as_mut_ptr().cast(), 64, files[to]);
                said += if came.is_null() { "none " } else { "came " };
            }
            for file in files {
                libc::fclose(file);
            }
            said
        };
        net::close(set).ok();
        log!(s, "{said}");
    }
}

fn exchange_some(left: Fd, right: Fd) {
    let block = [b'm'; 1000];
    for _ in 0..3 {
        for (from, to) in [(left, right), (right, left)] {
            io::send_all(from, &block).ok();
            io::recv_exact(to, block.len());
        }
    }
}
