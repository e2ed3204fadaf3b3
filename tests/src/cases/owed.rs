//! Bytes that the other end has asked back, as it starts a program, where the kernel's buffers are far smaller than what is to
//! go by them, and this end starts one too.

use super::Case;
use crate::log;
use crate::side::{Side, drain, fill_up, text};
use crate::sys::{Fd, call, io, net, proc, wait};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) const CASES: &[Case] = &[Case::moving("exec_of_both_in_turn", in_turn)];

fn start(s: &Side) {
    let child = proc::fork(|| {
        proc::exec(&["/bin/true"], true);
        9
    });
    log!(s, "{}", proc::wait_child(child));
}

/// A starts a program, and B, which has heard of it, starts one while A reads nothing.
fn in_turn(s: &Side) {
    let fd = s.pair();
    // (programs get it)
    call!(libc::fcntl(fd, libc::F_SETFD, 0)).ok();
    for name in [libc::SO_SNDBUF, libc::SO_RCVBUF] {
        net::setopt(fd, libc::SOL_SOCKET, name, 4096).ok();
    }
    if s.a() {
        let unread = s.hear() as usize;
        start(s);
        s.sync("started");
        std::thread::sleep(wait::millis(500));
        drain(fd, unread);
        io::send_all(fd, b"read").ok();
    } else {
        let unread = fill_up(fd);
        let calls = in_calls(fd);
        s.tell(unread as u64);
        s.sync("started");
        calls();
        start(s);
        log!(s, "{}", text(&io::recv_exact(fd, 4).0));
    }
    s.sync("done");
}

/// Has a thread look at the connection until what is returned is called.
fn in_calls(fd: Fd) -> impl FnOnce() {
    let over = Arc::new(AtomicBool::new(false));
    let looks = {
        let over = over.clone();
        std::thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                wait::poll(&[(fd, libc::POLLIN)], 1);
            }
        })
    };
    move || {
        over.store(true, Ordering::SeqCst);
        looks.join().unwrap();
    }
}
