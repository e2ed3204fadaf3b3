//! What the calls on a connection are told that has failed: of a reset once, by whichever call is the next, whatever the library
//! had to ask the kernel before, and whatever was received and not read; and calls that name memory that is not there.

use super::Case;
use crate::log;
use crate::side::Side;
use crate::sys::{Fd, aside, call, io, net, pass, wait};

const MOVES: &str = "the stream goes back to the kernel";

pub(super) const CASES: &[Case] = &[
    Case::moving("sent_behind_reset_seen", reset_seen),
    Case::pair("failed_then_send", |s| failed(s, sends)),
    Case::pair("failed_then_sendfile", |s| failed(s, sendfiles)),
    Case::pair("failed_then_splice", |s| failed(s, splices)),
    Case::pair("failed_then_bad_send", |s| failed(s, sends_bad)),
    Case::pair("failed_then_recvmmsg", |s| failed(s, recvmmsg)),
    Case::pair("failed_then_asked", |s| failed(s, asked)),
    Case::pair("failed_sendfile_behind_send", sendfile_behind_send),
    Case::pair("plain_behind_shut_read", plain_behind_shut_read).any_path(MOVES),
    Case::pair("bad_buffer_of_what_is_kept", bad_buffer_of_what_is_kept)
        .processes_only()
        .any_path(MOVES),
    Case::pair("bad_buffer_behind_a_good_one", behind_a_good_one),
    Case::pair("bad_length_of_address", bad_length_of_address),
];

/// End B closes with something unread, having sent; end A looks at what is there, and then does this.
fn failed(s: &Side, then: fn(&Side, Fd)) {
    let fd = s.pair();
    if s.a() {
        // SAFETY: no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        io::send_all(fd, b"unread").ok();
        s.sync("sent");
        s.sync("closed");
        wait::wait_for(fd, 0); // (an error is told without being asked for)
        log!(s, "{} queued", net::queued(fd));
        then(s, fd);
    } else {
        s.sync("sent");
        wait::wait_queued(fd, 6);
        io::send_all(fd, &[7; 50]).ok();
        net::close(fd).ok();
        s.sync("closed");
    }
    s.sync("done");
}

/// What is there is read, and what follows.
fn rest(s: &Side, fd: Fd) {
    log!(s, "error {}", net::so_error(fd));
    for _ in 0..3 {
        log!(s, "recv {}", io::recv(fd, &mut [0; 40], libc::MSG_DONTWAIT));
    }
    log!(s, "send {}", io::send(fd, b"x", 0));
}

fn sends(s: &Side, fd: Fd) {
    log!(s, "send {}", io::send(fd, b"x", 0));
    log!(s, "send {}", io::send(fd, b"x", 0));
    rest(s, fd);
}

fn sendfiles(s: &Side, fd: Fd) {
    for _ in 0..3 {
        let file = io::memory_file(&[1; 100]);
        let (r, at) = io::sendfile(fd, file, 0, 100);
        log!(s, "sendfile {r} at {at}");
        net::close(file).ok();
    }
    rest(s, fd);
}

fn splices(s: &Side, fd: Fd) {
    let (out, into) = net::pipe();
    for _ in 0..2 {
        io::write(into, &[1; 100]).ok();
        log!(s, "splice {}", io::splice(out, fd, 100));
    }
    rest(s, fd);
}

fn sends_bad(s: &Side, fd: Fd) {
    for _ in 0..2 {
        log!(
            s,
            "bad send {}",
            io::raw::send(fd, 8, 10, libc::MSG_NOSIGNAL)
        );
    }
    rest(s, fd);
}

fn recvmmsg(s: &Side, fd: Fd) {
    for _ in 0..2 {
        let (mut x, mut y) = ([0; 10], [0; 10]);
        let (r, list) = io::recvmmsg(fd, &mut [&mut x, &mut y], libc::MSG_DONTWAIT);
        log!(s, "recvmmsg {r} {list:?}");
    }
    rest(s, fd);
}

fn asked(s: &Side, fd: Fd) {
    let all = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
    log!(s, "{}", wait::poll(&[(fd, all)], 0));
    log!(s, "error {}", net::so_error(fd));
    log!(s, "{}", wait::poll(&[(fd, all)], 0));
    rest(s, fd);
}

/// A file is sent where a send has failed just before.
fn sendfile_behind_send(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.sync("closed");
        wait::wait_for(fd, libc::POLLRDHUP);
        log!(s, "{}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
        wait::wait_for(fd, 0);
        // SAFETY: no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        sends(s, fd);
        sendfiles(s, fd);
    } else {
        net::close(fd).ok();
        s.sync("closed");
    }
    s.sync("done");
}

/// Passes a descriptor to this very program: the stream goes back to the kernel.
fn pass_to_itself(fd: Fd) {
    let (left, right) = net::unix_pair(libc::SOCK_SEQPACKET);
    pass::send_fd(left, fd);
    let _ = pass::recv_fd(right, 0);
}

/// A read behind an end that this side has said itself, on a stream that the other end has sent back to the kernel since.
fn plain_behind_shut_read(s: &Side) {
    let fd = s.pair();
    if s.a() {
        log!(s, "{}", net::shutdown(fd, libc::SHUT_RD));
        s.sync("shut");
        s.sync("passed");
        net::set_timeout(fd, libc::SO_RCVTIMEO, 2000).ok();
        log!(s, "{}", io::send(fd, b"x", 0)); // (to see where the stream is)
        for _ in 0..2 {
            log!(s, "{}", io::recv(fd, &mut [0; 10], 0));
        }
    } else {
        s.sync("shut");
        pass_to_itself(fd);
        s.sync("passed");
    }
    s.sync("done");
}

/// Bytes that are kept, of a stream that both ends have sent back to the kernel, are there for a read that cannot be.
fn bad_buffer_of_what_is_kept(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.sync("sent");
        wait::wait_queued(fd, 30);
        pass_to_itself(fd);
        net::set_timeout(fd, libc::SO_RCVTIMEO, 2000).ok();
        let page = io::forbidden_page();
        let list = [io::iov_at(page, 10), io::iov_at(page, 10)];
        log!(s, "{}", io::raw::readv(fd, &list, 2));
        let mut buf = [0; 30];
        log!(s, "{} {buf:?}", io::recv(fd, &mut buf, libc::MSG_WAITALL));
    } else {
        io::send_all(fd, &[3; 30]).ok();
        pass_to_itself(fd);
        s.sync("sent");
    }
    s.sync("done");
}

/// What the kernel could write of what it then refuses is written, and unread as before.
fn behind_a_good_one(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.sync("sent");
        wait::wait_queued(fd, 30);
        let mut good = [0; 10];
        let list = [io::iov_mut(&mut good), io::iov_at(io::forbidden_page(), 20)];
        let r = io::raw::readv(fd, &list, 2);
        log!(s, "{r} {good:?} {}", net::queued(fd));
        let mut buf = [0; 30];
        log!(s, "{} {buf:?}", io::recv(fd, &mut buf, 0));
    } else {
        io::send_all(fd, &[3; 30]).ok();
        s.sync("sent");
    }
    s.sync("done");
}

/// Where the length of an address is to be written there is nothing.
fn bad_length_of_address(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.sync("sent");
        wait::wait_queued(fd, 9);
        let page = io::forbidden_page();
        for flags in [libc::MSG_PEEK, 0] {
            let mut buf = [0u8; 3];
            let r = call!(libc::recvfrom(
                fd,
                buf.as_mut_ptr().cast(),
                3,
                flags,
                page as *mut libc::sockaddr,
                page as *mut u32
            ));
            log!(s, "{r} {buf:?} {}", net::queued(fd));
        }
    } else {
        io::send_all(fd, b"123456789").ok();
        s.sync("sent");
    }
    s.sync("done");
}

/// The peer disconnects with bytes of its own unread here, which a look shows before anything is sent.
fn reset_seen(s: &Side) {
    let fd = s.pair();
    if s.a() {
        wait::wait_queued(fd, 6);
        s.sync("queued");
        s.sync("disconnected");
        wait::wait_for(fd, libc::POLLHUP);
        for _ in 0..3 {
            log!(s, "{}", io::send(fd, b"xy", libc::MSG_NOSIGNAL));
        }
    } else {
        io::send_all(fd, b"unread").ok();
        s.sync("queued");
        aside::disconnect(fd).ok();
        s.sync("disconnected");
    }
    s.sync("done");
}
