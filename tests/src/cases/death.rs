//! A peer that is killed: what it had sent is still delivered, then the end as TCP gives it.

use super::Case;
use crate::log;
use crate::side::{Random, Side, hash};
use crate::sys::proc;
use crate::sys::{Fd, aside, io, net, wait};

pub(super) const CASES: &[Case] = &[
    Case::pair("killed_after_send", killed_after_send).processes_only(),
    Case::pair("killed_after_bulk", killed_after_bulk).processes_only(),
    Case::pair("killed_while_it_waits", killed_while_it_waits)
        .processes_only()
        .conns(4),
    Case::pair("killed_with_unread", killed_with_unread).processes_only(),
    Case::pair("killed_with_unread_half_closed", |s| unread_behind(s, true)).processes_only(),
    Case::pair("killed_with_unread_of_who_shut", |s| {
        unread_behind(s, false)
    })
    .processes_only(),
    Case::pair("killed_with_unread_of_the_first", unread_of_the_first).processes_only(),
    Case::pair("killed_while_peer_reads", killed_while_peer_reads).processes_only(),
    Case::pair("killed_while_peer_polls", killed_while_peer_polls).processes_only(),
    Case::pair("killed_while_peer_in_epoll", killed_while_peer_in_epoll).processes_only(),
    Case::pair("killed_while_peer_writes", killed_while_peer_writes).processes_only(),
    Case::pair("killed_while_peer_sends_much", |s| {
        sends_much(s, s.open(), false)
    })
    .processes_only()
    .any_path("the killed end has never looked at it"),
    Case::pair("killed_while_peer_sends_file", |s| {
        sends_much(s, s.open(), true)
    })
    .processes_only()
    .any_path("the killed end has never looked at it"),
    Case::pair("killed_while_peer_sends_much_by_kernel", |s| {
        sends_much(s, left(s), false)
    })
    .processes_only()
    .any_path("one end has left it to the kernel"),
    Case::pair("killed_while_peer_sends_file_by_kernel", |s| {
        sends_much(s, left(s), true)
    })
    .processes_only()
    .any_path("one end has left it to the kernel"),
    Case::pair("killed_while_peer_waits_for_all", waits_for_all)
        .processes_only()
        .any_path("one end has left it to the kernel"),
    Case::pair("killed_mid_stream_1", |s| killed_mid_stream(s, 1)).processes_only(),
    Case::pair("killed_mid_stream_2", |s| killed_mid_stream(s, 2)).processes_only(),
    Case::pair("killed_mid_stream_3", |s| killed_mid_stream(s, 3)).processes_only(),
    Case::pair("killed_mid_stream_4", |s| killed_mid_stream(s, 4)).processes_only(),
    Case::pair("killed_mid_duplex", killed_mid_duplex).processes_only(),
    Case::pair("killed_while_connecting", killed_while_connecting)
        .processes_only()
        .any_path("killed before it could attach"),
    Case::pair("killed_and_write", killed_and_write).processes_only(),
    Case::pair("killed_with_much_on_its_way", with_much_on_its_way).processes_only(),
    Case::pair("signalled_while_unaccepted", signalled_while_unaccepted)
        .processes_only()
        .any_path("nobody accepts it"),
    Case::pair("exit_with_threads", exit_with_threads).processes_only(),
    Case::pair("aborted", aborted).processes_only(),
];

fn end(s: &Side, fd: Fd) {
    let (got, last) = io::recv_to_end(fd);
    log!(s, "{} {:x} {last}", got.len(), hash(&got));
    log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
}

/// A signal that the program does not handle ends it there and then, whatever its peers have not taken yet.
fn signalled_while_unaccepted(s: &Side) {
    if s.accepts() {
        s.listen(4);
    } else {
        let (sent, has_sent) = net::pipe();
        let victim = proc::fork(|| {
            let fd = s.connect();
            io::send_all(fd, b"hello").ok();
            io::write(has_sent, &[1]).ok();
            loop {
                std::thread::sleep(wait::millis(1000));
            }
        });
        io::read(sent, &mut [0]).ok();
        proc::kill(victim, libc::SIGTERM).ok();
        log!(s, "ends {}", wait::eventually(|| proc::has_ended(victim)));
        proc::kill(victim, libc::SIGKILL).ok();
        log!(s, "{}", proc::wait_child(victim));
    }
    s.sync("done");
}

fn killed_after_send(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"last words").ok();
        proc::die();
    }
    s.wait_gone();
    wait::wait_for(fd, libc::POLLRDHUP);
    log!(
        s,
        "{}",
        wait::poll(&[(fd, libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP)], 0)
    );
    end(s, fd);
}

/// More than anybody has read: as much as send said it took, all of it.
fn killed_after_bulk(s: &Side) {
    let fd = s.pair();
    if s.a() {
        net::set_nonblocking(fd, true).ok();
        let total = crate::side::fill_up(fd);
        s.tell(total as u64);
        s.hear();
        proc::die();
    }
    let total = s.hear() as usize;
    s.tell(1);
    s.wait_gone();
    let (got, last) = io::recv_to_end(fd);
    log!(s, "{} {last}", got.len() == total);
}

/// The victim had not read everything: its peer gets what was sent, then a reset.
fn killed_with_unread(s: &Side) {
    let fd = s.pair();
    if s.a() {
        wait::wait_queued(fd, 6);
        s.tell(1);
        proc::die();
    }
    io::send_all(fd, b"unread").ok();
    s.hear();
    s.wait_gone();
    wait::wait_for(fd, libc::POLLHUP);
    log!(
        s,
        "{}",
        wait::poll(&[(fd, libc::POLLIN | libc::POLLRDHUP)], 0)
    );
    end(s, fd);
    log!(s, "{}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
}

fn killed_while_peer_reads(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.hear();
        proc::die();
    }
    let helper = s.tell_once_asleep();
    log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
    helper.join().unwrap();
}

fn killed_while_peer_polls(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.hear();
        proc::die();
    }
    let helper = s.tell_once_asleep();
    log!(
        s,
        "{}",
        wait::poll(&[(fd, libc::POLLIN | libc::POLLRDHUP)], -1)
    );
    helper.join().unwrap();
    end(s, fd);
}

fn killed_while_peer_in_epoll(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.hear();
        proc::die();
    }
    let set = wait::epoll();
    wait::add(set, fd, libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET, 1).ok();
    let helper = s.tell_once_asleep();
    log!(s, "{}", wait::epoll_wait(set, 4, -1));
    helper.join().unwrap();
    end(s, fd);
}

/// A writer that sleeps because nobody reads is released.
fn killed_while_peer_writes(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.hear();
        proc::die();
    }
    crate::side::fill_up(fd);
    let helper = s.tell_once_asleep();
    let r = io::send(fd, b"blocked", libc::MSG_NOSIGNAL);
    log!(s, "{}", r.is(libc::ECONNRESET) || r.is(libc::EPIPE));
    helper.join().unwrap();
    log!(s, "{}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
}

/// What was sent and has not gone when the connection fails goes nowhere: a program that leaves it at that costs nothing.
fn with_much_on_its_way(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.hear();
        proc::die();
    }
    crate::side::fill_up(fd);
    s.tell(1);
    s.wait_gone();
    wait::wait_for(fd, libc::POLLHUP);
    std::thread::sleep(wait::millis(100));
    let before = proc::sleeps();
    std::thread::sleep(wait::millis(400));
    log!(s, "rests {}", proc::sleeps() - before < 20);
    let r = io::send(fd, b"x", libc::MSG_NOSIGNAL);
    log!(s, "{}", r.is(libc::ECONNRESET) || r.is(libc::EPIPE));
}

/// A connection that one end has sent back to the kernel.
fn left(s: &Side) -> Fd {
    let fd = s.open();
    s.always_warm_up(fd);
    if !s.a() {
        super::legs::to_kernel(fd);
    }
    fd
}

/// One large send that sleeps in the middle is told what has gone; the error is the next call's, and only then is the pipe broken.
fn sends_much(s: &Side, fd: Fd, file: bool) {
    const MUCH: usize = 64 << 20;
    if s.a() {
        s.hear();
        proc::die();
    }
    proc::count(libc::SIGPIPE, false);
    let helper = s.tell_once_asleep();
    let r = if file {
        io::sendfile_null(fd, io::memory_file(&vec![7; MUCH]), MUCH)
    } else {
        io::send(fd, &vec![7; MUCH], 0)
    };
    log!(s, "some {}", r.0 > 0 && r.0 < MUCH as i64);
    helper.join().unwrap();
    log!(s, "{}", wait::poll(&[(fd, libc::POLLOUT)], 0));
    log!(s, "{}", io::send(fd, b"x", 0));
    log!(s, "signals {}", proc::caught(libc::SIGPIPE));
    log!(s, "{}", io::send(fd, b"x", 0));
    log!(s, "signals {}", proc::caught(libc::SIGPIPE));
    log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
}

/// A read that wants more than has come is told what there is; the error is the next call's.
fn waits_for_all(s: &Side) {
    let fd = left(s);
    s.sync("left");
    if s.a() {
        io::send_all(fd, &[7; 100]).ok();
        wait::wait_queued(fd, 6);
        s.hear();
        proc::die();
    }
    io::send_all(fd, b"unread").ok();
    let helper = s.tell_once_asleep();
    log!(s, "{}", io::recv(fd, &mut [0; 1000], libc::MSG_WAITALL));
    helper.join().unwrap();
    log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
    log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
}

/// Killed at a random point of a stream: what arrives is a true beginning of what was sent.
fn killed_mid_stream(s: &Side, seed: u64) {
    let fd = s.pair();
    let mut random = Random::new(seed);
    let stop = 200_000 + random.below(3_000_000);
    if s.a() {
        let mut sent = 0;
        let mut piece = vec![0; 5000];
        loop {
            let size = 1 + random.below(piece.len());
            let bytes = &mut piece[..size];
            for (i, b) in bytes.iter_mut().enumerate() {
                *b = ((sent + i) % 251) as u8;
            }
            io::send_all(fd, bytes).ok();
            sent += size;
            if sent >= stop {
                s.tell(sent as u64);
                proc::die();
            }
        }
    }
    let (got, last) = io::recv_to_end(fd);
    let sent = s.hear() as usize;
    let right = got.iter().enumerate().all(|(i, b)| *b == (i % 251) as u8);
    log!(s, "all {} in order {right} {last}", got.len() == sent);
}

/// Killed by its peer in the middle of traffic both ways; only order can be promised.
fn killed_mid_duplex(s: &Side) {
    let fd = s.pair();
    let data: Vec<u8> = (0..251 * 40).map(|i| (i % 251) as u8).collect();
    if s.a() {
        s.tell(u64::from(std::process::id()));
        let reader = std::thread::spawn(move || {
            let mut buf = vec![0; 10_000];
            while io::recv(fd, &mut buf, 0).0 > 0 {}
        });
        while io::send_all(fd, &data).0 > 0 {}
        reader.join().unwrap();
        return;
    }
    let victim = s.hear() as i32;
    let writer = {
        let data = data.clone();
        std::thread::spawn(move || while io::send_all(fd, &data).0 > 0 {})
    };
    let killer = std::thread::spawn(move || {
        std::thread::sleep(wait::millis(120));
        proc::kill(victim, libc::SIGKILL).ok();
    });
    let (got, last) = io::recv_to_end(fd);
    let right = got.iter().enumerate().all(|(i, b)| *b == (i % 251) as u8);
    log!(s, "some {} in order {right}", !got.is_empty());
    log!(
        s,
        "end or reset {}",
        last.0 == 0 || last.is(libc::ECONNRESET)
    );
    writer.join().unwrap();
    killer.join().unwrap();
}

/// The connecting end dies before the other end has accepted.
fn killed_while_connecting(s: &Side) {
    if s.accepts() {
        let (lis, at) = net::listener(net::loopback(), 4);
        s.tell(u64::from(at.port()));
        s.wait_gone();
        let fd = net::accept(lis).fd();
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", String::from_utf8_lossy(&got));
        // The next client is served as if nothing had happened.
        let own = net::socket_for(at, 0);
        net::connect(own, at).ok();
        let fd = net::accept(lis).fd();
        crate::side::exchange_alone(own, fd);
        log!(s, "served");
    } else {
        let fd = s.connect();
        io::send_all(fd, b"first and last").ok();
        proc::die();
    }
}

fn killed_and_write(s: &Side) {
    let fd = s.pair();
    if s.a() {
        proc::die();
    }
    proc::count(libc::SIGPIPE, false);
    s.wait_gone();
    wait::wait_for(fd, libc::POLLRDHUP);
    log!(s, "{}", io::write(fd, b"one"));
    wait::wait_for(fd, libc::POLLHUP);
    log!(s, "{}", io::write(fd, b"two"));
    log!(s, "{}", proc::caught(libc::SIGPIPE));
}

/// exit() while other threads are inside calls on the connection.
fn exit_with_threads(s: &Side) {
    let fd = s.pair();
    if s.a() {
        std::thread::spawn(move || io::recv(fd, &mut [0; 4], 0));
        std::thread::spawn(move || wait::poll(&[(fd, libc::POLLIN)], -1));
        io::send_all(fd, b"parting").ok();
        std::thread::sleep(wait::millis(20));
        std::process::exit(0);
    }
    s.wait_gone();
    end(s, fd);
}

fn aborted(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"crash").ok();
        std::process::abort();
    }
    s.wait_gone();
    end(s, fd);
}

/// The one that is killed has not read all, and has ended its own direction before; or the other reads no more.
fn unread_behind(s: &Side, by_dead: bool) {
    let fd = s.pair();
    if s.a() {
        if by_dead {
            net::shutdown(fd, libc::SHUT_WR).ok();
        }
        s.sync("shut");
        wait::wait_queued(fd, 100);
        s.tell(1);
        proc::die();
    }
    s.sync("shut");
    if by_dead {
        log!(s, "{}", io::recv(fd, &mut [0; 10], 0));
    } else {
        net::shutdown(fd, libc::SHUT_RD).ok();
    }
    io::send_all(fd, &[1; 100]).ok();
    s.hear();
    s.wait_gone(); // (the channel; the connection may go a moment later)
    wait::wait_for(fd, libc::POLLHUP);
    log!(s, "{}", io::recv(fd, &mut [0; 10], libc::MSG_DONTWAIT));
    let send = || io::send(fd, b"x", libc::MSG_NOSIGNAL);
    log!(s, "{} {}", send(), send());
}

/// Bytes that have come before both ends had agreed are unread.
fn unread_of_the_first(s: &Side) {
    let fd = s.open();
    if s.a() {
        io::send_all(fd, b"seen").ok();
        wait::wait_queued(fd, 6);
        s.sync("sent");
        log!(s, "{}", io::recv(fd, &mut [0; 3], 0));
        s.sync("looked");
        proc::die();
    }
    io::send_all(fd, b"unread").ok();
    s.sync("sent");
    s.sync("looked");
    s.wait_gone();
    wait::wait_for(fd, libc::POLLHUP);
    log!(s, "{:?}", io::recv_to_end(fd));
    log!(s, "{}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
}

/// Killed asleep, with everything read: what its peer sends after that is answered by a reset behind the end, which no read is told of.
fn killed_while_it_waits(s: &Side) {
    // (with a different number of messages before: now and then a sender asks the kernel)
    let fds: Vec<Fd> = (0..4).map(|_| s.pair()).collect();
    for (i, &fd) in fds.iter().enumerate() {
        for _ in 0..i {
            if s.a() {
                io::recv_exact(fd, 4);
            } else {
                io::send_all(fd, b"warm").ok();
            }
        }
    }
    if s.a() {
        for &fd in &fds {
            io::send_all(fd, b"question").ok();
        }
        s.tell(u64::from(std::process::id()));
        s.tell_once_asleep();
        let watched: Vec<_> = fds.iter().map(|&fd| (fd, libc::POLLIN)).collect();
        wait::poll(&watched, 60_000);
        return;
    }
    let victim = s.hear() as i32;
    s.hear();
    std::thread::sleep(wait::millis(20)); // (in the kernel, after a nap)
    proc::kill(victim, libc::SIGKILL).ok();
    s.wait_gone();
    for &fd in &fds {
        // (the end may be behind on another core, where an answer to what is sent overtakes it)
        wait::eventually(|| aside::tcp_state(fd) == aside::CLOSE_WAIT);
    }
    for fd in fds {
        log!(s, "{}", io::recv_exact(fd, 8).1);
        log!(s, "{}", io::send(fd, b"answer", libc::MSG_NOSIGNAL));
        for _ in 0..2 {
            end(s, fd);
        }
        for _ in 0..2 {
            log!(s, "{}", io::send(fd, b"more", libc::MSG_NOSIGNAL));
        }
        end(s, fd);
    }
}
