//! What comes to an end that the program itself has shut already: the peer's death, data, one more shutdown.

use super::Case;
use crate::log;
use crate::side::{Side, fill_up};
use crate::sys::{Fd, io, net, proc, wait};
use libc::{SHUT_RD, SHUT_RDWR, SHUT_WR};

pub(super) const CASES: &[Case] = &[
    Case::pair("killed_behind_shutdown_read_received", |s| {
        killed_behind_shutdown(s, false, |s, fd| {
            log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
        })
    })
    .processes_only(),
    Case::pair("killed_behind_shutdown_read_sent", |s| {
        killed_behind_shutdown(s, false, |s, fd| {
            log!(s, "{}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
        })
    })
    .processes_only(),
    Case::pair("killed_behind_shutdown_read_polled", |s| {
        killed_behind_shutdown(s, false, |s, fd| log!(s, "{}", wait::poll(&[(fd, ALL)], 0)))
    })
    .processes_only(),
    Case::pair("killed_behind_shutdown_read_while_sending", |s| {
        killed_behind_shutdown(s, true, |s, fd| {
            log!(s, "{}", io::send(fd, b"blocked", libc::MSG_NOSIGNAL));
        })
    })
    .processes_only(),
    Case::pair("killed_behind_shutdown_read_while_polling", |s| {
        killed_behind_shutdown(s, true, |s, fd| {
            log!(s, "{}", wait::poll(&[(fd, libc::POLLOUT)], -1));
        })
    })
    .processes_only(),
    Case::pair("killed_behind_shutdown_read_while_in_epoll", |s| {
        killed_behind_shutdown(s, true, |s, fd| {
            let set = wait::epoll();
            wait::add(set, fd, libc::EPOLLOUT, 7).ok();
            log!(s, "{}", wait::epoll_wait(set, 4, -1));
        })
    })
    .processes_only(),
    Case::pair("data_for_shutdown_both_received", |s| {
        data_for_shut(s, |s, fd| {
            let mut buf = [0; 9];
            log!(s, "peek {}", io::recv(fd, &mut buf, libc::MSG_PEEK));
            log!(s, "{}", io::recv(fd, &mut buf, 0));
        })
    }),
    Case::pair("data_for_shutdown_both_received_now", |s| {
        data_for_shut(s, |s, fd| {
            let mut buf = [0; 9];
            log!(s, "{}", io::recv(fd, &mut buf, libc::MSG_DONTWAIT));
            log!(s, "{}", io::recv(fd, &mut buf, libc::MSG_DONTWAIT));
        })
    }),
    Case::pair("data_for_shutdown_both_received_many", |s| {
        data_for_shut(s, |s, fd| {
            let (mut x, mut y) = ([0; 4], [0; 4]);
            for _ in 0..2 {
                log!(s, "{:?}", io::recvmmsg(fd, &mut [&mut x, &mut y], 0));
            }
        })
    }),
    Case::pair("data_for_shutdown_both_received_whole", |s| {
        data_for_shut(s, |s, fd| {
            log!(s, "{}", io::recv(fd, &mut [0; 9], libc::MSG_WAITALL));
        })
    }),
    Case::pair("shutdown_after_both_ends", |s| {
        shutdown_after_both(s, SHUT_RDWR)
    }),
    Case::pair("shutdown_write_after_both_ends", |s| {
        shutdown_after_both(s, SHUT_WR)
    }),
    Case::pair("shutdown_read_after_both_ends", |s| {
        shutdown_after_both(s, SHUT_RD)
    }),
];

const ALL: i16 = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;

/// B watches the connection and shuts its receiving there, which shows in the kernel as the peer's end would; then A is killed with
/// bytes unread. With `full` B waits for room by then.
fn killed_behind_shutdown(s: &Side, full: bool, told: fn(&Side, Fd)) {
    let fd = s.pair();
    if s.a() {
        s.hear();
        wait::wait_queued(fd, 6);
        s.hear();
        proc::die();
    }
    let set = wait::epoll();
    wait::add(set, fd, libc::EPOLLIN | libc::EPOLLET, 7).ok();
    log!(s, "shutdown {}", net::shutdown(fd, SHUT_RD));
    io::send_all(fd, b"unread").ok();
    s.tell(1);
    let begun = std::time::Instant::now();
    if full {
        fill_up(fd);
        let helper = s.tell_once_asleep();
        told(s, fd);
        helper.join().unwrap();
    } else {
        s.tell(1);
        s.wait_gone();
        wait::wait_for(fd, libc::POLLHUP);
        told(s, fd);
    }
    log!(s, "soon {}", begun.elapsed() < wait::millis(2500));
    log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
    log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
    log!(s, "{}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
}

/// Data for an end that has shut both halves is an error of that end's too: also of its reads, behind what had come before.
fn data_for_shut(s: &Side, reads: fn(&Side, Fd)) {
    let fd = s.pair();
    if s.a() {
        wait::wait_queued(fd, 3);
        log!(s, "shutdown {}", net::shutdown(fd, SHUT_RDWR));
        s.sync("shut");
        s.sync("sent");
        wait::wait_for(fd, libc::POLLERR);
        reads(s, fd);
        log!(s, "{}", io::recv(fd, &mut [0; 9], 0));
        log!(s, "{}", io::recv(fd, &mut [0; 9], 0));
        log!(s, "{}", net::so_error(fd));
    } else {
        io::send_all(fd, b"had").ok();
        s.sync("shut");
        wait::wait_for(fd, libc::POLLRDHUP);
        log!(s, "send {}", io::send(fd, b"too late", libc::MSG_NOSIGNAL));
        s.sync("sent");
    }
    s.sync("done");
}

/// Both ends have said that they send no more, and A has made no call since: nothing is connected any more.
fn shutdown_after_both(s: &Side, how: i32) {
    let fd = s.pair();
    if s.a() {
        log!(s, "{}", net::shutdown(fd, SHUT_WR));
        s.sync("one");
    } else {
        s.sync("one");
        log!(s, "{:?}", io::recv_to_end(fd));
        log!(s, "{}", net::shutdown(fd, SHUT_WR));
        // (the answer to that is the kernel's to send, at once)
        std::thread::sleep(wait::millis(5));
        log!(s, "again {}", net::shutdown(fd, how));
    }
    s.sync("two");
}
