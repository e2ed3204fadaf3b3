//! Bytes from the stream into a pipe (splice), by which it stays what it is; and what such calls tell of a reset.

use super::Case;
use super::splice::{content, splice, write_all};
use crate::log;
use crate::side::Side;
use crate::sys::{Fd, call, io, net, wait};
use libc::{SPLICE_F_MOVE, SPLICE_F_NONBLOCK};
use std::ffi::CStr;
use std::ptr;

pub(super) const CASES: &[Case] = &[
    Case::pair("splice_out", splice_out),
    Case::pair("splice_out_errors", out_errors),
    Case::pair("splice_out_full", out_full),
    Case::pair("splice_out_unread", out_unread),
    Case::pair("splice_reset", reset),
    Case::pair("sendfile_of_proc", sendfile_of_proc),
];

/// So many bytes of a pipe, which are there.
fn take(pipe: Fd, n: usize) -> Vec<u8> {
    let mut all = vec![0; n];
    let mut got = 0;
    while got < n {
        got += io::read(pipe, &mut all[got..]).ok();
    }
    all
}

/// What is received goes into a pipe, and the stream stays what it is; then its end.
fn splice_out(s: &Side) {
    let fd = s.pair();
    let bytes = content(300_000);
    if s.a() {
        io::send_all(fd, &bytes).ok();
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        let (r, w) = net::pipe();
        let mut got = Vec::new();
        loop {
            let n = splice(fd, w, 1 << 20, SPLICE_F_MOVE).ok();
            let part = take(r, n);
            got.extend(part);
            if n == 0 {
                break;
            }
        }
        log!(s, "{}", got == bytes);
    }
    s.sync("done");
}

/// Nothing there, with every way of not waiting; a pipe that nobody reads; offsets; the wrong end.
fn out_errors(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.sync("looked");
        io::send_all(fd, b"here").ok();
        s.sync("sent");
    } else {
        let (r, w) = net::pipe();
        net::set_nonblocking(fd, true).ok();
        log!(s, "{}", splice(fd, w, 10, 0));
        log!(s, "{}", splice(fd, w, 0, 0));
        log!(s, "{}", splice(fd, w, 10, 0x8000));
        log!(s, "{}", splice(fd, r, 10, 0));
        net::set_nonblocking(fd, false).ok();
        s.sync("looked");
        // (the flag is about the pipe: the stream is waited for)
        log!(s, "{}", splice(fd, w, 3, SPLICE_F_NONBLOCK));
        s.sync("sent");
        let mut at = 0i64;
        let null = ptr::null_mut();
        log!(s, "{}", call!(libc::splice(fd, &raw mut at, w, null, 5, 0)));
        log!(s, "{}", call!(libc::splice(fd, null, w, &raw mut at, 5, 0)));
        log!(s, "{}", call!(libc::tee(fd, w, 5, 0)));
        // SAFETY: no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        net::close(r).ok();
        log!(s, "{}", splice(fd, w, 5, 0));
        log!(s, "{:?}", io::recv_exact(fd, 1).0);
    }
    s.sync("done");
}

/// A pipe takes what it has room for, and the rest is still in the stream.
fn out_full(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, &content(50_000)).ok();
    } else {
        let (r, w) = net::pipe();
        wait::wait_queued(fd, 50_000);
        write_all(w, &vec![1; 60_000]);
        let n = splice(fd, w, 50_000, 0).ok();
        log!(s, "{}", 0 < n && n < 50_000);
        log!(s, "{}", splice(fd, w, 50_000, SPLICE_F_NONBLOCK));
        take(r, 60_000);
        let mut got = take(r, n);
        got.extend(io::recv_exact(fd, 50_000 - n).0);
        log!(s, "{}", got == content(50_000));
    }
    s.sync("done");
}

/// What was not taken is unread: the end is a reset.
fn out_unread(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, &[1; 1000]).ok();
        s.sync("closed");
        log!(s, "{}", io::recv(fd, &mut [0; 10], 0));
    } else {
        let (_, w) = net::pipe();
        wait::wait_queued(fd, 1000);
        log!(s, "{}", splice(fd, w, 100, 0));
        net::close(fd).ok();
        s.sync("closed");
    }
    s.sync("done");
}

/// The end that a sendfile or a splice is told of has been told.
fn reset(s: &Side) {
    let fds = [s.pair(), s.pair()];
    if s.a() {
        // SAFETY: no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        let (r, w) = net::pipe();
        io::write(w, &[1; 100]).ok();
        let file = io::memory_file(&[2; 100]);
        for fd in fds {
            io::send_all(fd, b"unread").ok();
        }
        s.sync("sent");
        s.sync("closed");
        for fd in fds {
            wait::wait_for(fd, libc::POLLHUP);
        }
        log!(s, "{}", splice(r, fds[0], 100, 0));
        log!(s, "{:?}", io::sendfile(fds[1], file, 0, 100));
        for fd in fds {
            let r = io::send(fd, b"x", 0);
            log!(s, "{r} {}", io::recv(fd, &mut [0; 10], 0));
        }
    } else {
        s.sync("sent");
        for fd in fds {
            wait::wait_queued(fd, 6);
            net::close(fd).ok();
        }
        s.sync("closed");
    }
    s.sync("done");
}

/// Of the files of /proc the kernel sends some, and of others nothing; a count that is none is refused of any.
fn sendfile_of_proc(s: &Side) {
    const FILES: [&CStr; 6] = [
        c"/proc/self/status",
        c"/proc/self/maps",
        c"/proc/self/comm",
        c"/proc/version",
        c"/proc/sys/kernel/ostype",
        c"/etc/passwd",
    ];
    let fd = s.pair();
    for name in FILES {
        let file = call!(libc::open(name.as_ptr(), libc::O_RDONLY)).fd();
        let mut sent = 0;
        for count in [0, 10, usize::MAX] {
            let r = io::sendfile_null(fd, file, count);
            sent += r.0.max(0);
            log!(s, "{name:?} {count} {r}");
        }
        let (r, at) = io::sendfile(fd, file, 1 << 30, 10);
        log!(s, "{name:?} beyond {r} {at}");
        io::recv_exact(fd, sent as usize);
        net::close(file).ok();
    }
    s.sync("done");
}
