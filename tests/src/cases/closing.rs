//! Closing: unread data, linger, resets, and writing to a peer that has gone.

use super::Case;
use crate::log;
use crate::side::{Random, Side, fill_up, hash};
use crate::sys::{Fd, io, net, proc, wait};

pub(super) const CASES: &[Case] = &[
    Case::pair("close_clean", close_clean),
    Case::pair("close_with_unread", close_with_unread),
    Case::pair("close_with_unread_both_ways", close_with_unread_both_ways),
    Case::pair("close_with_unread_bulk", close_with_unread_bulk),
    Case::pair("linger_zero", linger_zero),
    Case::pair("linger_zero_with_data_sent", linger_zero_with_data_sent),
    Case::pair("linger_zero_at_once", linger_zero_at_once)
        .any_path("nothing comes after a first message"),
    Case::pair("linger_waits", linger_waits),
    Case::pair("linger_readback", linger_readback),
    Case::pair("close_right_after_send", close_right_after_send),
    Case::pair("close_after_bulk_send", close_after_bulk_send),
    Case::pair("write_to_closed_peer", write_to_closed_peer),
    Case::pair("write_twice_to_closed_peer", write_twice_to_closed_peer)
        .any_path("few messages are worth no ring"),
    Case::pair("sigpipe_kills", sigpipe_kills).processes_only(),
    Case::pair("reset_wakes_reader", reset_wakes_reader),
    Case::pair("reset_wakes_writer", reset_wakes_writer),
    Case::pair("reset_seen_by_poll", reset_seen_by_poll),
    Case::pair("so_error_after_reset", so_error_after_reset),
    Case::pair("reset_behind_the_end_read", |s| reset_behind_the_end(s, 0)),
    Case::pair("reset_behind_the_end_sent", |s| reset_behind_the_end(s, 1)),
    Case::pair("reset_behind_the_end_asked", |s| reset_behind_the_end(s, 2)),
    Case::pair("close_order_of_many", close_order_of_many).conns(8),
    Case::pair("exit_without_close", exit_without_close).processes_only(),
    Case::pair("exit_after_greeting", exit_after_greeting).processes_only(),
];

const ALL: i16 = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;

fn poll_now(fd: Fd) -> String {
    wait::poll(&[(fd, ALL)], 0)
}

fn close_clean(s: &Side) {
    let fd = s.pair();
    if s.a() {
        log!(s, "{}", net::close(fd));
        s.sync("closed");
    } else {
        s.sync("closed");
        wait::wait_for(fd, libc::POLLRDHUP);
        log!(s, "{}", poll_now(fd));
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
        log!(s, "{}", net::so_error(fd));
        log!(s, "{}", net::close(fd));
    }
    s.sync("done");
}

/// The closer did not read everything: its peer reads what it was sent, then sees a reset.
fn close_with_unread(s: &Side) {
    let fd = s.pair();
    if s.a() {
        wait::wait_queued(fd, 6);
        log!(s, "{}", net::close(fd));
        s.sync("closed");
    } else {
        log!(s, "{}", io::send(fd, b"unread", 0));
        s.sync("closed");
        wait::wait_for(fd, libc::POLLHUP);
        log!(s, "{}", poll_now(fd));
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
        log!(s, "{}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
    }
    s.sync("done");
}

fn close_with_unread_both_ways(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"came").ok();
        s.sync("sent");
        wait::wait_queued(fd, 6);
        log!(s, "{}", net::close(fd));
        s.sync("closed");
    } else {
        wait::wait_queued(fd, 4);
        log!(s, "{}", io::send(fd, b"unread", 0));
        s.sync("sent");
        s.sync("closed");
        wait::wait_for(fd, libc::POLLHUP);
        log!(s, "{}", poll_now(fd));
        let mut buf = [0; 2];
        log!(s, "{} {buf:?}", io::recv(fd, &mut buf, libc::MSG_PEEK));
        log!(s, "{} {buf:?}", io::recv(fd, &mut buf, 0));
        log!(s, "{} {buf:?}", io::recv(fd, &mut buf, 0));
        log!(s, "{}", io::recv(fd, &mut buf, 0));
        log!(s, "{}", io::recv(fd, &mut buf, 0));
    }
    s.sync("done");
}

/// The writer of a large message that nobody reads gets the reset.
fn close_with_unread_bulk(s: &Side) {
    let fd = s.pair();
    if s.a() {
        wait::wait_queued(fd, 1000);
        net::close(fd).ok();
    } else {
        proc::count(libc::SIGPIPE, false);
        let big = vec![1u8; 1 << 20];
        let last = loop {
            let r = io::send(fd, &big, libc::MSG_NOSIGNAL);
            if r.0 < 0 {
                break r;
            }
        };
        log!(
            s,
            "reset or pipe {}",
            last.is(libc::ECONNRESET) || last.is(libc::EPIPE)
        );
        let r = io::send(fd, &big, libc::MSG_NOSIGNAL);
        log!(s, "then {}", r.is(libc::EPIPE) || r.is(libc::ECONNRESET));
        log!(s, "then {}", io::send(fd, &big, libc::MSG_NOSIGNAL));
        log!(s, "signals {}", proc::caught(libc::SIGPIPE));
    }
    s.sync("done");
}

fn linger_zero(s: &Side) {
    let fd = s.pair();
    if s.a() {
        log!(s, "{}", net::linger(fd, true, 0));
        log!(s, "{}", net::close(fd));
        s.sync("closed");
    } else {
        s.sync("closed");
        wait::wait_for(fd, libc::POLLHUP);
        log!(s, "{}", poll_now(fd));
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
    }
    s.sync("done");
}

/// A reset does not take back what the peer already has.
fn linger_zero_with_data_sent(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"before").ok();
        s.sync("there");
        net::linger(fd, true, 0).ok();
        log!(s, "{}", net::close(fd));
        s.sync("closed");
    } else {
        wait::wait_queued(fd, 6);
        s.sync("there");
        s.sync("closed");
        wait::wait_for(fd, libc::POLLHUP);
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", String::from_utf8_lossy(&got));
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
    }
    s.sync("done");
}

/// Nor what a client said first of all, to a server that had not looked yet. (Later words the kernel may still hold back.)
fn linger_zero_at_once(s: &Side) {
    for _ in 0..40 {
        let fd = s.open();
        if s.accepts() {
            let (got, last) = io::recv_to_end(fd);
            log!(s, "{} {last}", String::from_utf8_lossy(&got));
            net::close(fd).ok();
        } else {
            io::send_all(fd, b"last words").ok();
            net::linger(fd, true, 0).ok();
            log!(s, "{}", net::close(fd));
        }
    }
}

/// With a linger time close waits, and the data arrive.
fn linger_waits(s: &Side) {
    let fd = s.pair();
    if s.a() {
        net::linger(fd, true, 10).ok();
        let total = fill_up(fd);
        s.tell(total as u64);
        log!(s, "{}", net::close(fd));
    } else {
        let total = s.hear() as usize;
        std::thread::sleep(wait::millis(30));
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", got.len() == total);
        net::close(fd).ok();
    }
    s.sync("done");
}

fn linger_readback(s: &Side) {
    let fd = s.pair();
    for (on, seconds) in [(true, 7), (false, 3), (true, 0), (false, 0)] {
        log!(s, "{}", net::linger(fd, on, seconds));
        let mut value = libc::linger {
            l_onoff: -1,
            l_linger: -1,
        };
        let mut len = 8;
        let at = (&raw mut value).cast();
        let (level, name) = (libc::SOL_SOCKET, libc::SO_LINGER);
        let r = crate::sys::call!(libc::getsockopt(fd, level, name, at, &raw mut len));
        log!(s, "{r} {} {}", value.l_onoff, value.l_linger);
    }
    s.sync("done");
}

fn close_right_after_send(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"all of this arrives").ok();
        log!(s, "{}", net::close(fd));
    } else {
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", String::from_utf8_lossy(&got));
    }
    s.sync("done");
}

fn close_after_bulk_send(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let big = Random::new(4).bytes(6 << 20);
        log!(s, "{} {:x}", io::send_all(fd, &big), hash(&big));
        log!(s, "{}", net::close(fd));
    } else {
        std::thread::sleep(wait::millis(20));
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {:x} {last}", got.len(), hash(&got));
    }
    s.sync("done");
}

/// The first write after the peer closed succeeds and provokes the reset; later ones fail.
fn write_to_closed_peer(s: &Side) {
    let fd = s.pair();
    if s.a() {
        net::close(fd).ok();
        s.sync("closed");
    } else {
        proc::count(libc::SIGPIPE, false);
        s.sync("closed");
        wait::wait_for(fd, libc::POLLRDHUP);
        log!(s, "{}", io::write(fd, b"first"));
        wait::wait_for(fd, libc::POLLHUP);
        log!(s, "{}", poll_now(fd));
        log!(s, "{}", io::write(fd, b"second"));
        log!(s, "{}", io::write(fd, b"third"));
        log!(s, "signals {}", proc::caught(libc::SIGPIPE));
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
        log!(s, "{}", net::so_error(fd));
    }
    s.sync("done");
}

/// The second write fails however soon it comes, as the answer to the first is the kernel's. (A server that ends a kept connection.)
fn write_twice_to_closed_peer(s: &Side) {
    let fd = s.open();
    if s.a() {
        io::recv_exact(fd, 3);
        io::send_all(fd, b"answer").ok();
        net::close(fd).ok();
        s.sync("closed");
    } else {
        io::send_all(fd, b"ask").ok();
        s.sync("closed");
        log!(s, "{:?}", io::recv_to_end(fd));
        for _ in 0..3 {
            log!(s, "{}", io::send(fd, b"more", libc::MSG_NOSIGNAL));
        }
    }
    s.sync("done");
}

fn sigpipe_kills(s: &Side) {
    let fd = s.pair();
    if s.a() {
        proc::default_action(libc::SIGPIPE);
        net::shutdown(fd, libc::SHUT_WR).ok();
        io::write(fd, b"x");
        log!(s, "still alive");
    } else {
        s.wait_gone();
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{got:?} {last}");
    }
}

fn reset_wakes_reader(s: &Side) {
    let fd = s.pair();
    if s.a() {
        std::thread::sleep(wait::millis(60));
        net::linger(fd, true, 0).ok();
        net::close(fd).ok();
    } else {
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
    }
    s.sync("done");
}

fn reset_wakes_writer(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.sync("full");
        std::thread::sleep(wait::millis(60));
        net::linger(fd, true, 0).ok();
        net::close(fd).ok();
    } else {
        fill_up(fd);
        s.sync("full");
        let r = io::send(fd, b"blocked", libc::MSG_NOSIGNAL);
        log!(s, "{}", r.is(libc::EPIPE) || r.is(libc::ECONNRESET));
        log!(s, "{}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
    }
    s.sync("done");
}

fn reset_seen_by_poll(s: &Side) {
    let fd = s.pair();
    if s.a() {
        std::thread::sleep(wait::millis(40));
        net::linger(fd, true, 0).ok();
        net::close(fd).ok();
    } else {
        log!(
            s,
            "{}",
            wait::poll(&[(fd, libc::POLLIN | libc::POLLRDHUP)], -1)
        );
        log!(s, "{}", wait::poll(&[(fd, 0)], -1));
    }
    s.sync("done");
}

fn so_error_after_reset(s: &Side) {
    let fd = s.pair();
    if s.a() {
        net::linger(fd, true, 0).ok();
        net::close(fd).ok();
        s.sync("closed");
    } else {
        s.sync("closed");
        wait::wait_for(fd, libc::POLLHUP);
        log!(s, "{} {}", net::so_error(fd), net::so_error(fd));
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
        log!(s, "{}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
        log!(s, "{}", poll_now(fd));
    }
    s.sync("done");
}

/// Who has said its end and then throws away what it has not read: a reader reads all and the end, a sender is told EPIPE.
fn reset_behind_the_end(s: &Side, first: usize) {
    let fd = s.pair();
    if s.a() {
        wait::wait_queued(fd, 6);
        io::send_all(fd, b"the last").ok();
        net::shutdown(fd, libc::SHUT_WR).ok();
        log!(s, "{}", net::close(fd));
        s.sync("closed");
    } else {
        log!(s, "{}", io::send(fd, b"unread", 0));
        s.sync("closed");
        wait::wait_for(fd, libc::POLLHUP);
        log!(s, "{}", poll_now(fd));
        let mut steps: [fn(&Side, Fd); 3] = [
            |s, fd| log!(s, "{:?}", io::recv_to_end(fd)),
            |s, fd| log!(s, "{}", io::send(fd, b"x", libc::MSG_NOSIGNAL)),
            |s, fd| log!(s, "{}", net::so_error(fd)),
        ];
        steps.rotate_left(first);
        for step in steps {
            step(s, fd);
            log!(s, "{}", poll_now(fd));
        }
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
        log!(s, "{}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
        log!(s, "{}", net::so_error(fd));
    }
    s.sync("done");
}

fn close_order_of_many(s: &Side) {
    let all: Vec<Fd> = (0..8).map(|_| s.pair()).collect();
    for (i, fd) in all.iter().enumerate() {
        if (i % 2 == 0) == s.a() {
            io::send_all(*fd, &[i as u8; 3]).ok();
            net::close(*fd).ok();
        } else {
            let (got, last) = io::recv_to_end(*fd);
            log!(s, "{got:?} {last}");
            net::close(*fd).ok();
        }
    }
    s.sync("done");
}

/// A peer that begins to read just then reads all of it, and the end: whatever it sends to find out whom it talks to.
fn exit_after_greeting(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"parting").ok();
    } else {
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", String::from_utf8_lossy(&got));
    }
}

fn exit_without_close(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"parting").ok();
    } else {
        s.wait_gone();
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", String::from_utf8_lossy(&got));
    }
}
