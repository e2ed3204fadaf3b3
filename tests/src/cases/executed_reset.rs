//! A program is started with a connection that the other end has reset, of which the one that starts it has not been told.

use super::Case;
use crate::log;
use crate::side::{Random, Side, hash};
use crate::sys::{Fd, io, net, proc, wait};

pub(super) const CASES: &[Case] = &[
    Case::moving("exec_of_what_is_reset", |s| reset_before(s, 100, true)),
    Case::moving("exec_of_what_is_reset_and_read", |s| {
        reset_before(s, 0, true)
    }),
    Case::moving("exec_in_child_of_what_is_reset", |s| {
        reset_before(s, 100, false)
    }),
    Case::moving("exec_in_child_of_what_is_reset_and_read", |s| {
        reset_before(s, 0, false)
    }),
];

/// Reads the stream to its end, as the program that it was left to, and says how that was.
const TELLS: &str = "
import errno, os
n, end = 0, 'end'
try:
    while part := os.read(0, 4096): n += len(part)
except OSError as e: end = errno.errorcode[e.errno]
print(n, end, len(os.read(0, 1)))";

/// A program is started with a connection that the other end has reset, which this one has not been told: the program is. It reads
/// what was left before that, if there is any.
fn reset_before(s: &Side, rest: usize, in_place: bool) {
    let (r, w) = net::pipe();
    let side = *s;
    let becomes = move |fd: Fd| {
        net::dup2(fd, 0).ok();
        net::dup2(w, 1).ok();
        proc::exec(&["/usr/bin/python3", "-c", TELLS], true).0 as i32
    };
    let holds = move || {
        let fd = side.pair();
        wait::wait_queued(fd, 32 + rest as i32);
        side.sync("here");
        side.sync("gone");
        log!(side, "{:x}", hash(&io::recv_exact(fd, 32).0));
        if in_place {
            return becomes(fd);
        }
        let child = proc::fork(|| becomes(fd));
        log!(side, "{}", proc::wait_child(child));
        // (the program was told: nobody else is)
        log!(
            side,
            "{:?}",
            wait::poll(&[(fd, libc::POLLIN | libc::POLLOUT)], 0)
        );
        for _ in 0..2 {
            log!(side, "{}", io::recv(fd, &mut [0; 10], 0));
        }
        log!(side, "{}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
        0
    };
    if s.a() {
        // (a child of its own, so that somebody is left who hears the program)
        let child = proc::fork(holds);
        net::close(w).ok();
        log!(s, "{}", proc::wait_child(child));
        let mut said = [0; 100];
        let n = io::read(r, &mut said).ok();
        log!(s, "{}", String::from_utf8_lossy(&said[..n]));
    } else {
        let fd = s.pair();
        io::send_all(fd, &Random::new(47).bytes(32 + rest)).ok();
        s.sync("here");
        net::linger(fd, true, 0).ok();
        net::close(fd).ok();
        s.sync("gone");
    }
    s.sync("done");
}
