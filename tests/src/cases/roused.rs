//! A thread asleep because there is no room, and another that changes the stream under it.

use super::Case;
use super::legs::to_kernel;
use crate::log;
use crate::side::{Side, drain, fill_up};
use crate::sys::proc::once_asleep;
use crate::sys::{Fd, io, net, wait};

pub(super) const CASES: &[Case] = &[
    Case::pair("sender_asleep_stream_to_kernel", |s| {
        asleep(s, to_kernel, send);
    }),
    Case::pair("poll_for_room_stream_to_kernel", |s| {
        asleep(s, to_kernel, |fd| {
            let ready = wait::poll(&[(fd, libc::POLLOUT)], -1);
            format!("poll {ready} {}", send(fd))
        });
    }),
    Case::pair("epoll_for_room_stream_to_kernel", |s| {
        asleep(s, to_kernel, |fd| {
            let set = wait::epoll();
            wait::add(set, fd, libc::EPOLLOUT, 7).ok();
            let ready = wait::epoll_wait(set, 4, -1);
            net::close(set).ok();
            format!("epoll {ready} {}", send(fd))
        });
    }),
    Case::pair("dup2_while_sender_asleep", |s| {
        asleep(s, onto, |fd| {
            let sent = send(fd);
            let mut buf = [0; 9];
            let read = io::read(fd, &mut buf);
            format!("{sent} {read} {}", String::from_utf8_lossy(&buf))
        });
    }),
    Case::pair("close_while_sender_asleep", |s| {
        let shut = |fd| {
            net::close(fd).ok();
        };
        asleep(s, shut, |fd| {
            format!("{} {}", send(fd), io::send(fd, b"gone", 0))
        });
    }),
    Case::pair("two_senders_asleep_stream_to_kernel", two_senders),
];

fn send(fd: Fd) -> String {
    io::send(fd, b"blocked", libc::MSG_NOSIGNAL).to_string()
}

fn onto(fd: Fd) {
    let file = io::memory_file(b"file data");
    net::dup2(file, fd).ok();
    net::close(file).ok();
}

/// Fills the stream, sleeps in `call` until `change` has been made and the other end has read everything.
fn asleep(s: &Side, change: fn(Fd), call: fn(Fd) -> String) {
    let fd = s.pair();
    if s.a() {
        s.tell(fill_up(fd) as u64);
        let side = *s;
        let helper = once_asleep(move |_| {
            change(fd);
            side.tell(1);
        });
        log!(s, "{}", call(fd));
        helper.join().unwrap();
    } else {
        let filler = s.hear() as usize;
        s.hear();
        drain(fd, filler);
        let (got, _) = io::recv_exact(fd, 7);
        log!(s, "{}", String::from_utf8_lossy(&got));
    }
    s.sync("done");
}

/// Two at once; what each sends stays whole.
fn two_senders(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.tell(fill_up(fd) as u64);
        let side = *s;
        let helper = once_asleep(move |_| {
            let third = once_asleep(move |_| {
                to_kernel(fd);
                side.tell(1);
            });
            let sent = send(fd);
            third.join().unwrap();
            sent
        });
        log!(s, "{}", send(fd));
        log!(s, "{}", helper.join().unwrap());
    } else {
        let filler = s.hear() as usize;
        s.hear();
        drain(fd, filler);
        let (got, _) = io::recv_exact(fd, 14);
        log!(s, "{}", String::from_utf8_lossy(&got));
    }
    s.sync("done");
}
