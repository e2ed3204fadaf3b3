//! One epoll set: data words, errors, time-outs, how much an answer holds, and other kinds of descriptors.

use super::Case;
use crate::log;
use crate::side::Side;
use crate::sys::wait::{add, delete, epoll_wait, modify};
use crate::sys::{Fd, io, net, proc, wait};
use libc::{EPOLLET, EPOLLEXCLUSIVE, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLPRI, EPOLLRDHUP};

pub(super) const CASES: &[Case] = &[
    Case::pair("epoll_data_words", epoll_data_words),
    Case::pair("epoll_errors", epoll_errors),
    Case::pair("epoll_wait_errors", epoll_wait_errors),
    Case::pair("epoll_timeouts", epoll_timeouts),
    Case::pair("epoll_mixed", epoll_mixed),
    Case::pair("epoll_small_maxevents", epoll_small_maxevents).conns(6),
    Case::pair("epoll_close_removes", epoll_close_removes).processes_only(),
    Case::pair("epoll_before_connect", epoll_before_connect),
    Case::moving(
        "epoll_deleted_and_the_kernels",
        epoll_deleted_and_the_kernels,
    ),
    Case::solo("epoll_listener", epoll_listener).conns(2),
];

fn epoll_data_words(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    io::send_all(fd, b"x").ok();
    wait::wait_queued(fd, 1);
    let words = [
        0,
        1,
        u64::MAX,
        1 << 63,
        0xdead_beef_0bad_cafe,
        fd as u64,
        0xffff_ffff,
        1 << 32,
    ];
    add(set, fd, EPOLLIN, 5).ok();
    for word in words {
        modify(set, fd, EPOLLIN, word).ok();
        let woken = epoll_wait(set, 4, 1000);
        log!(s, "{} {}", woken.ret, woken.list[0].0 == word);
    }
    s.sync("done");
}

fn epoll_errors(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    let file = io::memory_file(b"x");
    log!(s, "modify absent {}", modify(set, fd, EPOLLIN, 0));
    log!(s, "delete absent {}", delete(set, fd));
    log!(s, "add {}", add(set, fd, EPOLLIN, 0));
    log!(s, "add twice {}", add(set, fd, EPOLLIN, 0));
    log!(s, "modify {}", modify(set, fd, EPOLLOUT, 0));
    log!(
        s,
        "modify exclusive {}",
        modify(set, fd, EPOLLIN | EPOLLEXCLUSIVE, 0)
    );
    log!(s, "delete {}", delete(set, fd));
    log!(s, "delete twice {}", delete(set, fd));
    log!(
        s,
        "exclusive oneshot {}",
        add(set, fd, EPOLLEXCLUSIVE | EPOLLONESHOT, 0)
    );
    log!(s, "exclusive {}", add(set, fd, EPOLLEXCLUSIVE | EPOLLIN, 0));
    log!(s, "modify of exclusive {}", modify(set, fd, EPOLLIN, 0));
    log!(
        s,
        "exclusive of what cannot be {}",
        add(set, fd, EPOLLEXCLUSIVE | EPOLLPRI, 0)
    );
    log!(s, "file {}", add(set, file, EPOLLIN, 0));
    log!(s, "unopened {}", add(set, 900, EPOLLIN, 0));
    log!(s, "no set {}", add(901, fd, EPOLLIN, 0));
    log!(s, "itself {}", add(set, set, EPOLLIN, 0));
    log!(s, "set is a socket {}", add(fd, set, EPOLLIN, 0));
    log!(s, "bad op {}", wait::epoll_ctl(set, 77, fd, EPOLLIN, 0));
    let null = std::ptr::null_mut();
    log!(
        s,
        "null event {}",
        crate::sys::call!(libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, file, null))
    );
    log!(
        s,
        "null event {}",
        crate::sys::call!(libc::epoll_ctl(set, libc::EPOLL_CTL_MOD, fd, null))
    );
    s.sync("done");
}

/// The stream goes back to the kernel while its registration is deleted.
fn epoll_deleted_and_the_kernels(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    log!(s, "add {}", add(set, fd, EPOLLIN, 1));
    log!(s, "{:?}", epoll_wait(set, 4, 0));
    log!(s, "delete {}", delete(set, fd));
    // SAFETY: a descriptor of its own, which is closed with the stream.
    unsafe { libc::fclose(libc::fdopen(net::dup(fd).fd(), c"w".as_ptr())) };
    log!(s, "modify {}", modify(set, fd, EPOLLOUT, 2));
    log!(s, "delete {}", delete(set, fd));
    log!(s, "add {}", add(set, fd, EPOLLIN, 3));
    log!(s, "add {}", add(set, fd, EPOLLIN, 4));
    log!(s, "modify {}", modify(set, fd, EPOLLOUT, 5));
    log!(s, "{:?}", epoll_wait(set, 4, 1000));
    s.sync("done");
}

fn epoll_wait_errors(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    add(set, fd, EPOLLOUT, 0).ok();
    let page = io::forbidden_page() as *mut libc::epoll_event;
    let null = std::ptr::null_mut();
    log!(
        s,
        "bad list {}",
        crate::sys::call!(libc::epoll_wait(set, page, 1, 1000))
    );
    log!(
        s,
        "null list {}",
        crate::sys::call!(libc::epoll_wait(set, null, 1, 1000))
    );
    log!(
        s,
        "none {}",
        crate::sys::call!(libc::epoll_wait(set, null, 0, 0))
    );
    log!(
        s,
        "negative {}",
        crate::sys::call!(libc::epoll_wait(set, null, -1, 0))
    );
    log!(s, "not a set {}", epoll_wait(fd, 4, 0));
    log!(s, "not open {}", epoll_wait(900, 4, 0));
    log!(s, "create {}", crate::sys::call!(libc::epoll_create(0)));
    log!(s, "create1 {}", crate::sys::call!(libc::epoll_create1(1)));
    log!(s, "still {}", epoll_wait(set, 4, 0));
    s.sync("done");
}

fn epoll_timeouts(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    add(set, fd, EPOLLIN, 0).ok();
    log!(s, "{}", epoll_wait(set, 4, 0));
    let start = std::time::Instant::now();
    log!(s, "{}", epoll_wait(set, 4, 50));
    log!(s, "early {}", start.elapsed() < wait::millis(50));
    let start = std::time::Instant::now();
    for _ in 0..10 {
        let short = std::time::Duration::from_micros(200);
        log!(s, "{}", wait::epoll_wait2(set, 4, Some(short)));
    }
    log!(s, "early {}", start.elapsed() < wait::millis(2));
    log!(s, "{}", wait::epoll_wait2(set, 4, Some(wait::millis(0))));
    s.sync("quiet");
    io::send_all(fd, b"x").ok();
    log!(s, "{}", wait::epoll_wait2(set, 4, None));
    log!(s, "{}", epoll_wait(set, 4, -1));
    log!(s, "{}", wait::epoll_pwait(set, 4, -1, &[libc::SIGUSR1]));
    s.sync("done");
}

fn epoll_mixed(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    let (r, w) = net::pipe();
    let event = proc::eventfd(0);
    let (u, v) = net::unix_pair(libc::SOCK_STREAM);
    let timer = proc::timerfd(wait::millis(30));
    for (i, one) in [fd, r, event, u, timer].iter().enumerate() {
        add(set, *one, EPOLLIN, i as u64).ok();
    }
    log!(s, "timer {}", epoll_wait(set, 8, -1));
    io::write(w, b"x").ok();
    log!(s, "pipe {}", epoll_wait(set, 8, -1));
    s.sync("pipe");
    io::send_all(fd, b"x").ok();
    wait::wait_for(fd, libc::POLLIN);
    // The kernel shows a byte to poll a moment before it tells epoll sets.
    let witness = wait::epoll();
    add(witness, fd, EPOLLIN, 0).ok();
    epoll_wait(witness, 1, -1);
    net::close(witness).ok();
    io::write(event, &1u64.to_ne_bytes()).ok();
    io::write(v, b"x").ok();
    for _ in 0..3 {
        log!(s, "all {}", epoll_wait(set, 8, -1));
    }
    io::read(fd, &mut [0; 4]).ok();
    log!(s, "less one {}", epoll_wait(set, 8, -1));
    s.sync("done");
}

/// With room for few, every ready one gets its turn.
fn epoll_small_maxevents(s: &Side) {
    let all: Vec<Fd> = (0..6).map(|_| s.pair()).collect();
    let set = wait::epoll();
    let (r, w) = net::pipe();
    io::write(w, b"x").ok();
    add(set, r, EPOLLIN, 100).ok();
    for (i, fd) in all.iter().enumerate() {
        add(set, *fd, EPOLLIN, i as u64).ok();
        io::send_all(*fd, b"x").ok();
    }
    for fd in &all {
        wait::wait_queued(*fd, 1);
    }
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..14 {
        let woken = epoll_wait(set, 1, 1000);
        assert_eq!(woken.ret.0, 1);
        seen.insert(woken.list[0].0);
    }
    log!(s, "{seen:?}");
    s.sync("done");
}

fn epoll_close_removes(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    add(set, fd, EPOLLOUT, 1).ok();
    log!(s, "{}", epoll_wait(set, 4, 0));
    net::close(fd).ok();
    log!(s, "{}", epoll_wait(set, 4, 0));
    log!(s, "{}", delete(set, fd));
    // The number comes back as another connection, which is not in the set.
    let again = s.pair();
    log!(s, "same number {}", again == fd);
    log!(s, "{}", epoll_wait(set, 4, 0));
    log!(s, "{}", add(set, again, EPOLLOUT, 2));
    log!(s, "{}", epoll_wait(set, 4, 0));
    s.sync("done");
}

/// Added before it is connected, as event loops do.
fn epoll_before_connect(s: &Side) {
    if s.accepts() {
        let lis = s.listen(4);
        let fd = net::accept(lis).fd();
        s.always_warm_up(fd);
        io::send_all(fd, b"hello").ok();
    } else {
        let fd = net::socket_for(net::loopback(), libc::SOCK_NONBLOCK);
        let set = wait::epoll();
        log!(
            s,
            "{}",
            add(set, fd, EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP, 4)
        );
        log!(s, "unconnected {}", epoll_wait(set, 4, 0));
        let to = s.target();
        let r = net::connect(fd, to);
        log!(s, "{}", r.0 == 0 || r.is(libc::EINPROGRESS));
        log!(s, "connected {}", epoll_wait(set, 4, -1));
        net::set_nonblocking(fd, false).ok();
        s.always_warm_up(fd);
        wait::wait_queued(fd, 5);
        log!(s, "data {}", epoll_wait(set, 4, -1));
    }
    s.sync("done");
}

fn epoll_listener(s: &Side) {
    let (lis, at) = net::listener(net::loopback(), 4);
    let set = wait::epoll();
    add(set, lis, EPOLLIN, 1).ok();
    log!(s, "{}", epoll_wait(set, 4, 0));
    let own = net::socket_for(at, 0);
    net::connect(own, at).ok();
    log!(s, "{}", epoll_wait(set, 4, -1));
    let got = net::accept(lis).fd();
    log!(s, "{}", epoll_wait(set, 4, 0));
    crate::side::exchange_alone(own, got);
    log!(s, "{}", epoll_wait(set, 4, 0));
}
