//! Where a stream goes from one way to another with bytes unread, and how it ends there: what a look
//! ahead sees, whom kept bytes follow, and which error is told how often.

use super::Case;
use crate::log;
use crate::side::{Random, Side, drain, fill_up, hash, text};
use crate::sys::{Fd, io, net, pass, proc, wait};

pub(super) const CASES: &[Case] = &[
    Case::pair("peek_over_legs", |s| peek_over_legs(s, libc::MSG_PEEK)),
    Case::pair("peek_all_over_legs", |s| {
        peek_over_legs(s, libc::MSG_PEEK | libc::MSG_WAITALL);
    }),
    Case::pair("peek_truncated_over_legs", |s| {
        peek_over_legs(s, libc::MSG_PEEK | libc::MSG_TRUNC);
    }),
    Case::pair("peek_from_offset", peek_from_offset)
        .any_path("the option leaves the stream to the kernel"),
    Case::pair("peek_from_offset_of_listener", peek_from_offset_of_listener)
        .any_path("the option leaves the stream to the kernel"),
    Case::pair("many_buffers_over_legs", many_buffers_over_legs),
    Case::moving("kept_bytes_are_passed_back", kept_bytes_are_passed_back),
    Case::pair("read_slowly_over_legs", read_slowly_over_legs).slow(),
    Case::pair("end_is_heard_in_kernel", end_is_heard_in_kernel),
    Case::pair("end_is_told_by_kernel", end_is_told_by_kernel),
    Case::pair("own_shutdown_is_no_reset", own_shutdown_is_no_reset),
    Case::pair(
        "data_to_a_shut_end_is_a_reset",
        data_to_a_shut_end_is_a_reset,
    ),
    Case::pair("poll_twice_as_stream_leaves", poll_twice_as_stream_leaves),
    Case::pair("broken_pipe_takes_the_error", broken_pipe_takes_the_error),
    Case::pair("close_after_both_ended", close_after_both_ended),
];

const ALL: i16 = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;

/// A FILE on a socket makes the library leave the stream to the kernel, at this byte.
pub(super) fn to_kernel(fd: Fd) {
    // SAFETY: the FILE is of a descriptor of its own, and closed once.
    unsafe {
        let file = libc::fdopen(net::dup(fd).fd(), c"w".as_ptr());
        assert_eq!(libc::fclose(file), 0);
    }
}

/// SO_PEEK_OFF: looks begin where the last ended, reads take that back, whatever is kept of what came before it was set.
fn peek_from_offset(s: &Side) {
    let fd = s.open();
    s.always_warm_up(fd);
    if !s.a() {
        io::send_all(fd, b"0123456789").ok();
        s.sync("sent");
        s.sync("looked"); // (outside the library: what was not read is kept)
        io::send_all(fd, b"ABCDEFGHIJ").ok();
        s.sync("more");
        return s.sync("done");
    }
    s.sync("sent");
    wait::wait_queued(fd, 10);
    look_about(s, fd, 0, &[3, 3, -2, 2, -1, 1, 9, 9]);
    s.sync("looked");
    s.sync("more");
    wait::wait_queued(fd, 17);
    look_about(s, fd, 7, &[2, 3, -4, 3]);
    look_about(s, fd, 1, &[2, 2, 20, 20]);
    look_about(s, fd, -1, &[2, 20]);
    look_about(s, fd, 0, &[20, -20]);
    s.sync("done");
}

/// The same from a listener that had it, or a socket before it was connected.
fn peek_from_offset_of_listener(s: &Side) {
    let fd = if s.accepts() {
        let (listener, at) = net::listener(net::loopback(), 4);
        net::setopt(listener, libc::SOL_SOCKET, libc::SO_PEEK_OFF, 0).ok();
        s.tell(u64::from(at.port()));
        net::accept(listener).fd()
    } else {
        let mut to = net::loopback();
        let fd = net::socket_for(to, 0);
        net::setopt(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, 0).ok();
        to.set_port(s.hear() as u16);
        net::connect(fd, to).ok();
        fd
    };
    s.always_warm_up(fd);
    io::send_all(fd, b"0123456789").ok();
    wait::wait_queued(fd, 10);
    for n in [3, 3, -2, 2, -1, 1, 9, 9, -9] {
        look_once(s, fd, n);
    }
    s.sync("done");
}

/// Looks at so many bytes, or reads them where that is below zero.
fn look_once(s: &Side, fd: Fd, n: i32) {
    let mut buf = vec![b'.'; n.unsigned_abs() as usize];
    let peek = if n > 0 { libc::MSG_PEEK } else { 0 };
    let r = io::recv(fd, &mut buf, peek | libc::MSG_DONTWAIT);
    let (_, offset) = net::getopt(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF);
    log!(s, "{n}: {r} {} {offset}", text(&buf));
}

fn look_about(s: &Side, fd: Fd, from: i32, all: &[i32]) {
    net::setopt(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, from).ok();
    for n in all {
        look_once(s, fd, *n);
    }
}

/// A read into many small buffers that begins before the place where the sender went back to the kernel goes on behind it, into all of
/// them.
fn many_buffers_over_legs(s: &Side) {
    let fd = s.open();
    s.always_warm_up(fd);
    let all = Random::new(12).bytes(900);
    if s.a() {
        s.sync("sent");
        for vector in [true, false] {
            wait::wait_queued(fd, 450);
            let mut got = vec![0; 450];
            let mut room: Vec<&mut [u8]> = got.chunks_mut(5).collect();
            let r = if vector {
                io::readv(fd, &mut room)
            } else {
                io::recvmsg(fd, &mut room, 0).0
            };
            log!(s, "{r} {:x}", hash(&got[..r.ok()]));
            if vector {
                to_kernel(fd);
                s.sync("half");
            }
        }
    } else {
        io::send_all(fd, &all[..7]).ok();
        to_kernel(fd);
        io::send_all(fd, &all[7..450]).ok();
        s.sync("sent");
        s.sync("half");
        io::send_all(fd, &all[450..]).ok();
    }
    s.sync("done");
}

/// What was sent before and after the sender went back to the kernel is one stream to a look ahead.
fn peek_over_legs(s: &Side, flags: i32) {
    let fd = s.pair();
    let all = Random::new(11).bytes(5000);
    if s.a() {
        s.sync("sent");
        wait::wait_queued(fd, 5000);
        for _ in 0..2 {
            let mut buf = vec![
                0;
                if flags & libc::MSG_WAITALL == 0 {
                    8000
                } else {
                    5000
                }
            ];
            let r = io::recv(fd, &mut buf, flags);
            log!(s, "peek {r} {:x}", hash(&buf[..r.ok()]));
        }
        log!(s, "poll {}", wait::poll(&[(fd, ALL)], 0));
        let (got, _) = io::recv_exact(fd, 5000);
        log!(s, "read {} {}", got.len(), got == all);
    } else {
        io::send_all(fd, &all[..3000]).ok();
        to_kernel(fd);
        io::send_all(fd, &all[3000..]).ok();
        s.sync("sent");
    }
    s.sync("done");
}

/// All that the buffers hold is on its way when the sender goes back to the kernel, and its reader takes longer for that than
/// anybody waits for one that takes nothing.
fn read_slowly_over_legs(s: &Side) {
    const PIECE: usize = 64 * 1024;
    let fd = s.pair();
    if s.a() {
        s.tell(fill_up(fd) as u64);
        to_kernel(fd);
        io::send_all(fd, b"tail").ok();
        log!(s, "then {}", io::recv(fd, &mut [0; 4], 0));
    } else {
        let mut left = s.hear() as usize;
        while left > 0 {
            let piece = left.min(PIECE);
            drain(fd, piece);
            left -= piece;
            std::thread::sleep(wait::millis(100));
        }
        log!(s, "{}", String::from_utf8_lossy(&io::recv_exact(fd, 4).0));
        net::close(fd).ok();
    }
    s.sync("done");
}

/// A child gives up its name for a stream that has bytes unread, and is passed another.
fn kept_bytes_are_passed_back(s: &Side) {
    let fd = s.pair();
    let all = Random::new(12).bytes(4000);
    if s.a() {
        s.sync("sent");
        wait::wait_queued(fd, 4000);
        log!(s, "read {}", io::recv_exact(fd, 1000).0 == all[..1000]);
        let (mine, theirs) = net::unix_pair(libc::SOCK_STREAM);
        let rest = all[1000..].to_vec();
        let side = *s;
        // The other end waits elsewhere, so that nobody sends the bytes once more.
        let child = proc::fork(move || {
            net::close(fd).ok();
            let got = pass::recv_fd(theirs, libc::MSG_CMSG_CLOEXEC);
            log!(side, "queued {}", net::queued(got));
            log!(side, "poll {}", wait::poll(&[(got, ALL)], 0));
            log!(side, "read {}", io::recv_exact(got, 3000).0 == rest);
            log!(
                side,
                "then {}",
                io::recv(got, &mut [0; 4], libc::MSG_DONTWAIT)
            );
            0
        });
        pass::send_fd(mine, fd);
        log!(s, "{}", proc::wait_child(child));
    } else {
        io::send_all(fd, &all).ok();
        s.sync("sent");
    }
    s.sync("done");
}

/// The other end has shut its sending and makes no call since; this one goes back to the kernel.
fn end_is_heard_in_kernel(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.sync("shut");
        wait::wait_queued(fd, 9);
        to_kernel(fd);
        log!(s, "poll {}", wait::poll(&[(fd, ALL)], 0));
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", String::from_utf8_lossy(&got));
        log!(s, "poll {}", wait::poll(&[(fd, ALL)], 0));
        log!(s, "send {}", io::send_all(fd, b"still heard"));
        log!(s, "shutdown {}", net::shutdown(fd, libc::SHUT_WR));
        s.sync("ended");
    } else {
        io::send_all(fd, b"last word").ok();
        log!(s, "shutdown {}", net::shutdown(fd, libc::SHUT_WR));
        s.sync("shut");
        s.sync("ended");
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", String::from_utf8_lossy(&got));
        log!(s, "poll {}", wait::poll(&[(fd, ALL)], 0));
        log!(s, "error {}", net::so_error(fd));
    }
    s.sync("done");
}

/// The other end is back on the kernel, and this one has made no call since: its end has to go there too.
fn end_is_told_by_kernel(s: &Side) {
    let fd = s.pair();
    if s.a() {
        to_kernel(fd);
        s.sync("left");
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", got.len());
    } else {
        s.sync("left");
        log!(s, "shutdown {}", net::shutdown(fd, libc::SHUT_WR));
    }
    s.sync("done");
}

/// Who shuts both directions is told of no end that the other has not made.
fn own_shutdown_is_no_reset(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, &[5; 9000]).ok();
        s.sync("sent");
        let set = wait::epoll();
        wait::add(set, fd, libc::EPOLLIN, 7).ok();
        log!(s, "shutdown {}", net::shutdown(fd, libc::SHUT_RDWR));
        for _ in 0..3 {
            log!(s, "epoll {}", wait::epoll_wait(set, 4, 0));
            log!(s, "poll {}", wait::poll(&[(fd, ALL)], 0));
            log!(s, "send {}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
            log!(s, "recv {}", io::recv(fd, &mut [0; 4], 0));
            log!(s, "error {}", net::so_error(fd));
        }
        s.sync("shut");
    } else {
        s.sync("sent");
        wait::wait_queued(fd, 9000);
        let mut buf = [0; 1000];
        log!(s, "peek {}", io::recv(fd, &mut buf, libc::MSG_PEEK));
        s.sync("shut");
        let (got, last) = io::recv_to_end(fd);
        log!(s, "read {} {last}", got.len());
    }
    s.sync("done");
}

/// Data, unlike a bell, is answered with a reset by an end that has shut both directions.
fn data_to_a_shut_end_is_a_reset(s: &Side) {
    let fd = s.pair();
    if s.a() {
        log!(s, "shutdown {}", net::shutdown(fd, libc::SHUT_RDWR));
        s.sync("shut");
        s.sync("sent");
        log!(s, "send {}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
        log!(s, "poll {}", wait::poll(&[(fd, ALL)], 0));
        log!(s, "send {}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
    } else {
        s.sync("shut");
        log!(s, "send {}", io::send(fd, b"to nobody", libc::MSG_NOSIGNAL));
        s.sync("sent");
    }
    s.sync("done");
}

/// Both names of a stream show what it is ready for, also where the look finds it back in the kernel.
fn poll_twice_as_stream_leaves(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let other = net::dup(fd).fd();
        s.sync("sent");
        // (asks for what comes with the bytes: when that is, is the kernel's business)
        let both = [(fd, libc::POLLIN), (other, libc::POLLIN)];
        log!(s, "poll {}", wait::poll(&both, -1));
        log!(s, "read {}", io::recv_exact(other, 6).0.len());
    } else {
        to_kernel(fd);
        io::send_all(fd, b"direct").ok();
        s.sync("sent");
    }
    s.sync("done");
}

/// EPIPE after an own shutdown takes the error that waits with it: it is not shown after that.
fn broken_pipe_takes_the_error(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.sync("closed");
        log!(s, "recv {}", io::recv(fd, &mut [0; 4], 0));
        log!(s, "send {}", io::send(fd, b"void", libc::MSG_NOSIGNAL));
        wait::wait_for(fd, libc::POLLHUP);
        log!(s, "shutdown {}", net::shutdown(fd, libc::SHUT_RDWR));
        log!(s, "send {}", io::send(fd, b"void", libc::MSG_NOSIGNAL));
        log!(s, "poll {}", wait::poll(&[(fd, ALL)], 0));
        log!(s, "error {}", net::so_error(fd));
    } else {
        net::close(fd).ok();
        s.sync("closed");
    }
    s.sync("done");
}

/// Once both directions have ended, bytes left unread make it no reset.
fn close_after_both_ended(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"never read").ok();
        log!(s, "shutdown {}", net::shutdown(fd, libc::SHUT_WR));
        s.sync("ended");
        s.sync("ended too");
        s.sync("closed");
        log!(s, "recv {}", io::recv(fd, &mut [0; 4], 0));
        log!(s, "poll {}", wait::poll(&[(fd, ALL)], 0));
        log!(s, "send {}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
        log!(s, "poll {}", wait::poll(&[(fd, ALL)], 0));
        log!(s, "error {}", net::so_error(fd));
    } else {
        s.sync("ended");
        wait::wait_queued(fd, 10);
        log!(s, "shutdown {}", net::shutdown(fd, libc::SHUT_WR));
        s.sync("ended too");
        net::close(fd).ok();
        s.sync("closed");
    }
    s.sync("done");
}
