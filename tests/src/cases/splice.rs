//! Bytes from a pipe into the stream (splice): as many as there are and have room, none lost where the socket is full,
//! and the errors that the kernel gives.

use super::{Case, MOVES};
use crate::log;
use crate::side::{Random, Side, text};
use crate::sys::{Fd, Ret, call, io, net, wait};
use libc::{SPLICE_F_MORE, SPLICE_F_MOVE, SPLICE_F_NONBLOCK};
use std::ptr;
use std::thread;

pub(super) const CASES: &[Case] = &[
    Case::pair("splice_in", splice_in),
    Case::pair("splice_in_flags", splice_in_flags),
    Case::pair("splice_in_waits", splice_in_waits),
    Case::pair("splice_in_full", splice_in_full),
    Case::pair("splice_in_shared_pipe", shared_pipe),
    Case::pair("splice_in_errors", errors),
    Case::pair("splice_in_gone", gone),
    Case::pair("splice_out_watched", out_watched).any_path(MOVES),
    Case::pair("splice_in_named", named).any_path("a pipe with a name goes by the kernel"),
];

pub(super) fn splice(pipe: Fd, to: Fd, n: usize, flags: u32) -> Ret {
    let null = ptr::null_mut();
    call!(libc::splice(pipe, null, to, null, n, flags))
}

pub(super) fn write_all(fd: Fd, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        bytes = &bytes[io::write(fd, bytes).ok()..];
    }
}

pub(super) fn content(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::new(211).fill(&mut bytes);
    bytes
}

/// A megabyte, in pieces of all sizes; then the pipe's end.
fn splice_in(s: &Side) {
    let fd = s.pair();
    let bytes = content(1 << 20);
    if s.a() {
        let (r, w) = net::pipe();
        let writer = {
            let bytes = bytes.clone();
            thread::spawn(move || {
                write_all(w, &bytes);
                net::close(w).ok();
            })
        };
        let mut random = Random::new(212);
        let mut sent = 0;
        loop {
            let n = splice(
                r,
                fd,
                1 + random.below(100_000),
                SPLICE_F_MOVE | SPLICE_F_MORE,
            )
            .ok();
            if n == 0 {
                break;
            }
            sent += n;
        }
        writer.join().unwrap();
        log!(s, "{sent}");
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", got == bytes);
    }
    s.sync("done");
}

/// An empty pipe, with every way of not waiting.
fn splice_in_flags(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let (r, w) = net::pipe();
        log!(s, "{}", splice(r, fd, 0, 0));
        log!(s, "{}", splice(r, fd, 10, SPLICE_F_NONBLOCK));
        io::write(w, b"12345").ok();
        log!(s, "{}", splice(r, fd, 3, SPLICE_F_NONBLOCK));
        log!(s, "{}", splice(r, fd, 0, 0));
        log!(s, "{}", splice(r, fd, 10, 0));
        net::set_nonblocking(fd, true).ok();
        log!(s, "{}", splice(r, fd, 10, SPLICE_F_NONBLOCK));
        net::close(w).ok();
        log!(s, "{}", splice(r, fd, 10, SPLICE_F_NONBLOCK));
        log!(s, "{}", splice(r, fd, 10, 0));
    } else {
        log!(s, "{:?}", io::recv_exact(fd, 5).0);
    }
    s.sync("done");
}

/// A pipe that has nothing yet is waited for, unless it is not to wait itself.
fn splice_in_waits(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let (r, w) = net::pipe();
        let helper = s.tell_once_asleep();
        let writer = thread::spawn(move || {
            helper.join().unwrap();
            io::write(w, b"later").ok();
        });
        log!(s, "{}", splice(r, fd, 100, 0));
        writer.join().unwrap();
        net::set_nonblocking(r, true).ok();
        log!(s, "{}", splice(r, fd, 100, 0));
    } else {
        s.hear();
        log!(s, "{:?}", io::recv_exact(fd, 5).0);
    }
    s.sync("done");
}

/// Nobody reads: what found no room is still in the pipe.
fn splice_in_full(s: &Side) {
    let fd = s.pair();
    let bytes = content(40 << 20);
    if s.a() {
        let (r, w) = net::pipe();
        net::set_nonblocking(fd, true).ok();
        net::set_nonblocking(w, true).ok();
        let (mut written, mut sent) = (0, 0);
        let error = loop {
            let n = io::write(w, &bytes[written..]).0;
            written += n.max(0) as usize;
            let r = splice(r, fd, 1 << 20, 0);
            if r.0 <= 0 {
                break r;
            }
            sent += r.ok();
        };
        log!(s, "{error}");
        net::close(w).ok();
        s.sync("full");
        while sent < written {
            wait::wait_for(fd, libc::POLLOUT);
            sent += splice(r, fd, 1 << 20, 0).0.max(0) as usize;
        }
        s.tell(written as u64);
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        s.sync("full");
        let (got, last) = io::recv_to_end(fd);
        let written = s.hear() as usize;
        log!(s, "{} {last}", got == bytes[..written]);
    }
    s.sync("done");
}

/// Two threads empty one pipe into the stream: every byte comes, once.
fn shared_pipe(s: &Side) {
    let fd = s.pair();
    let total = 4 << 20;
    if s.a() {
        let (r, w) = net::pipe();
        let movers: Vec<_> = (0..2)
            .map(|_| {
                thread::spawn(move || {
                    let mut sent = 0;
                    loop {
                        match splice(r, fd, 30_000, 0).ok() {
                            0 => return sent,
                            n => sent += n,
                        }
                    }
                })
            })
            .collect();
        write_all(w, &vec![7; total]);
        net::close(w).ok();
        let sent: usize = movers.into_iter().map(|m| m.join().unwrap()).sum();
        log!(s, "{sent}");
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {} {last}", got.len(), got.iter().all(|&b| b == 7));
    }
    s.sync("done");
}

fn errors(s: &Side) {
    let fd = s.pair();
    let (r, w) = net::pipe();
    if s.a() {
        io::write(w, b"stays").ok();
        let null = ptr::null_mut();
        let mut at = 0i64;
        let at = &raw mut at;
        log!(s, "{}", call!(libc::splice(r, at, fd, null, 5, 0)));
        log!(s, "{}", call!(libc::splice(r, null, fd, at, 5, 0)));
        log!(s, "{}", splice(r, fd, 5, 1 << 20));
        log!(s, "{}", splice(w, fd, 5, 0));
        log!(s, "{}", splice(-1, fd, 5, 0));
        log!(s, "{}", splice(r, fd, 5, 0));
    } else {
        log!(s, "{:?}", io::recv_exact(fd, 5).0);
    }
    s.sync("done");
}

/// The reader has closed.
fn gone(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let (r, w) = net::pipe();
        // SAFETY: no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        io::write(w, &[1; 3000]).ok();
        s.sync("closed");
        wait::wait_for(fd, libc::POLLRDHUP);
        log!(s, "{}", splice(r, fd, 1000, 0));
        wait::wait_for(fd, libc::POLLHUP);
        log!(s, "{}", splice(r, fd, 1000, 0));
        log!(s, "{}", net::queued(r));
    } else {
        net::close(fd).ok();
        s.sync("closed");
    }
    s.sync("done");
}

/// A pipe with a name.
fn named(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let path = std::env::temp_dir().join(format!("splice-{}", std::process::id()));
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        call!(libc::mkfifo(name.as_ptr(), 0o600)).ok();
        let pipe = call!(libc::open(name.as_ptr(), libc::O_RDWR)).ok() as Fd;
        std::fs::remove_file(&path).unwrap();
        io::write(pipe, b"named").ok();
        log!(s, "{}", splice(pipe, fd, 5, 0));
    } else {
        log!(s, "{:?}", io::recv_exact(fd, 5).0);
    }
    s.sync("done");
}

/// Bytes that were there when the sender went back to the kernel, and some that came after, are taken by splice
/// beside an epoll set: it tells of what comes next.
fn out_watched(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"first").ok();
        s.sync("watched");
        // SAFETY: the FILE is used by this thread only and closed once.
        unsafe {
            let file = libc::fdopen(net::dup(fd).fd(), c"w".as_ptr());
            libc::fprintf(file, c"second".as_ptr());
            libc::fclose(file);
        }
        s.sync("second");
        s.sync("spliced");
        io::send_all(fd, b"third").ok();
    } else {
        wait::wait_queued(fd, 5);
        let set = wait::epoll();
        wait::add(set, fd, libc::EPOLLIN, 1).ok();
        log!(s, "{:?}", wait::epoll_wait(set, 4, -1).list);
        s.sync("watched");
        s.sync("second");
        let (r, w) = net::pipe();
        let mut all = 0;
        while all < 11 {
            all += splice(fd, w, 11 - all, 0).ok();
        }
        let mut bytes = [0; 11];
        io::read(r, &mut bytes).ok();
        log!(s, "{:?}", text(&bytes));
        s.sync("spliced");
        log!(s, "{:?}", wait::epoll_wait(set, 4, -1).list);
        log!(s, "{:?}", text(&io::recv_exact(fd, 5).0));
    }
    s.sync("done");
}
