//! Ending one direction or both: order, half-close, blocked threads, writing into the void.

use super::Case;
use crate::log;
use crate::side::{Random, Side, drain, fill_up, hash, text};
use crate::sys::proc::{Thread, once_asleep};
use crate::sys::{Fd, io, net, proc, wait};
use libc::{SHUT_RD, SHUT_RDWR, SHUT_WR};

pub(super) const CASES: &[Case] = &[
    Case::pair("reads_behind_both_shut", reads_behind_both_shut),
    Case::pair("shutdown_write", |s| halves(s, &[SHUT_WR])),
    Case::pair("shutdown_read", |s| halves(s, &[SHUT_RD])),
    Case::pair("shutdown_both", |s| halves(s, &[SHUT_RDWR])),
    Case::pair("shutdown_write_read", |s| halves(s, &[SHUT_WR, SHUT_RD])),
    Case::pair("shutdown_read_write", |s| halves(s, &[SHUT_RD, SHUT_WR])),
    Case::pair("shutdown_twice", |s| {
        halves(s, &[SHUT_WR, SHUT_WR, SHUT_RDWR])
    }),
    Case::pair("shutdown_bad_how", |s| halves(s, &[7, -1])),
    Case::pair("shutdown_by_both_ends", shutdown_by_both_ends),
    Case::pair("half_close_bulk", half_close_bulk),
    Case::pair("half_close_bulk_polled", |s| {
        half_close_told(s, |fd| {
            move || {
                wait::poll(&[(fd, libc::POLLOUT)], 9000);
            }
        })
    }),
    Case::pair("half_close_bulk_level", |s| half_close_told(s, by_set(0))),
    Case::pair("half_close_bulk_edge", |s| {
        half_close_told(s, by_set(libc::EPOLLET))
    }),
    Case::pair("read_after_shutdown_read", read_after_shutdown_read),
    Case::pair(
        "look_at_all_after_shutdown_read",
        look_at_all_after_shutdown_read,
    ),
    Case::pair("poll_for_room_after_shutdown_read", |s| {
        room_after_shutdown_read(s, |fd| wait::poll(&[(fd, libc::POLLOUT)], -1))
    }),
    Case::pair("select_for_room_after_shutdown_read", |s| {
        room_after_shutdown_read(s, |fd| {
            let lists = wait::Select {
                read: &[],
                write: &[fd],
                except: &[],
            };
            lists.select(None)
        })
    }),
    Case::pair("epoll_for_room_after_shutdown_read", |s| {
        room_after_shutdown_read(s, |fd| {
            let set = wait::epoll();
            wait::add(set, fd, libc::EPOLLOUT, 7).ok();
            wait::epoll_wait(set, 4, -1).to_string()
        })
    }),
    Case::pair("send_after_shutdown_read", |s| {
        room_after_shutdown_read(s, |fd| io::send(fd, b"more", 0).to_string())
    }),
    Case::pair("send_to_shutdown_reader", send_to_shutdown_reader),
    Case::pair("shutdown_wakes_reader", |s| wakes_reader(s, SHUT_RD)),
    Case::pair("shutdown_both_wakes_reader", |s| wakes_reader(s, SHUT_RDWR)),
    Case::pair("shutdown_wakes_writer", shutdown_wakes_writer),
    Case::pair("shutdown_wakes_poll", shutdown_wakes_poll),
    Case::pair("shutdown_with_unsent_bulk", shutdown_with_unsent_bulk),
    Case::pair("shutdown_after_peer_closed", shutdown_after_peer_closed),
    Case::pair(
        "shutdown_after_answered_words",
        shutdown_after_answered_words,
    ),
    Case::pair("end_is_sticky", end_is_sticky),
    Case::pair("data_for_shutdown_read_write", |s| {
        data_for_shut(s, &[SHUT_RD, SHUT_WR])
    }),
    Case::pair("data_for_shutdown_write_read", |s| {
        data_for_shut(s, &[SHUT_WR, SHUT_RD])
    }),
    Case::pair("data_for_shutdown_both", |s| data_for_shut(s, &[SHUT_RDWR])),
    Case::pair("shutdown_both_while_peer_closes", both_while_peer_closes),
];

const ALL: i16 = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;

fn look(s: &Side, fd: Fd, word: &str) {
    let mut buf = [0; 4];
    log!(s, "{word} poll {}", wait::poll(&[(fd, ALL)], 0));
    log!(
        s,
        "{word} recv {}",
        io::recv(fd, &mut buf, libc::MSG_DONTWAIT)
    );
    log!(
        s,
        "{word} again {}",
        io::recv(fd, &mut buf, libc::MSG_DONTWAIT)
    );
}

/// A shuts down step by step with data waiting on both ends; both look after each step.
fn halves(s: &Side, steps: &[i32]) {
    let fd = s.pair();
    proc::count(libc::SIGPIPE, false);
    io::send_all(fd, b"data").ok();
    wait::wait_queued(fd, 4);
    s.sync("data");
    for how in steps {
        if s.a() {
            log!(s, "shutdown {how} {}", net::shutdown(fd, *how));
        }
        s.sync("step");
        if !s.a() && steps.iter().any(|h| *h == SHUT_WR || *h == SHUT_RDWR) && steps[0] != SHUT_RD {
            wait::wait_for(fd, libc::POLLRDHUP);
        }
        look(s, fd, "after");
        s.sync("looked");
    }
    if s.a() {
        let open = !steps.iter().any(|h| *h == SHUT_WR || *h == SHUT_RDWR);
        let r = io::send(fd, b"tail", libc::MSG_NOSIGNAL);
        log!(s, "send {r} {}", open == (r.0 == 4));
        log!(s, "error {}", net::so_error(fd));
        s.sync("tail");
    } else {
        s.sync("tail");
        net::shutdown(fd, SHUT_WR).ok();
        let (rest, last) = if steps[0] == 7 || (steps == [SHUT_RD]) {
            io::recv_exact(fd, 4)
        } else {
            io::recv_to_end(fd)
        };
        log!(s, "rest {} {last}", String::from_utf8_lossy(&rest));
    }
    s.sync("done");
}

fn shutdown_by_both_ends(s: &Side) {
    let fd = s.pair();
    io::send_all(fd, b"last words").ok();
    log!(s, "{}", net::shutdown(fd, SHUT_WR));
    let (got, last) = io::recv_to_end(fd);
    log!(s, "{} {last}", String::from_utf8_lossy(&got));
    s.sync("both");
    wait::wait_for(fd, libc::POLLHUP);
    look(s, fd, "closed");
    log!(s, "send {}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
    log!(s, "shutdown {}", net::shutdown(fd, SHUT_RD));
    log!(s, "shutdown {}", net::shutdown(fd, SHUT_WR));
    log!(s, "peer {}", net::getpeername(fd).is_ok());
    s.sync("done");
}

/// Asks, has finished sending, and takes the answer.
fn ask_and_shut(s: &Side, fd: Fd) {
    io::send_all(fd, b"request").ok();
    net::shutdown(fd, SHUT_WR).ok();
    let (got, last) = io::recv_to_end(fd);
    log!(s, "{} {:x} {last}", got.len(), hash(&got));
}

/// One end has finished sending; the other sends much more afterwards.
fn half_close_bulk(s: &Side) {
    let fd = s.pair();
    if s.a() {
        ask_and_shut(s, fd);
    } else {
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", String::from_utf8_lossy(&got));
        let answer = Random::new(1).bytes(4 << 20);
        log!(s, "{}", io::send_all(fd, &answer));
        log!(s, "{}", net::close(fd));
    }
    s.sync("done");
}

/// Waits for room, or data, in a set.
fn by_set(how: i32) -> impl Fn(Fd) -> Box<dyn FnMut()> {
    move |fd| {
        let set = wait::epoll();
        wait::add(set, fd, libc::EPOLLIN | libc::EPOLLOUT | how, 1).ok();
        Box::new(move || {
            if how == 0 {
                wait::modify(set, fd, libc::EPOLLOUT, 1).ok(); // (the end is there all the time)
            }
            wait::epoll_wait(set, 1, 9000);
        })
    }
}

/// The same with an answer that is sent as far as there is room, which is waited for otherwise: nothing is read any more, and
/// what the receiver says of its room comes behind the end.
fn half_close_told<W: FnMut()>(s: &Side, waiter: impl Fn(Fd) -> W) {
    let fd = s.pair();
    if s.a() {
        ask_and_shut(s, fd);
    } else {
        let mut wait = waiter(fd);
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", String::from_utf8_lossy(&got));
        let answer = Random::new(1).bytes(4 << 20);
        let mut sent = 0;
        let mut waits = 0;
        while sent < answer.len() && waits < 20_000 {
            let r = io::send(fd, &answer[sent..], libc::MSG_DONTWAIT);
            if r.is(libc::EAGAIN) {
                let begun = std::time::Instant::now();
                wait();
                assert!(begun.elapsed().as_secs() < 8, "no room after {sent}");
                waits += 1;
            } else {
                sent += r.ok();
            }
        }
        log!(s, "{sent} {}", net::close(fd));
    }
    s.sync("done");
}

/// What was queued is still read; then end of file instead of waiting.
fn read_after_shutdown_read(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"queued").ok();
        s.sync("sent");
        s.sync("shut");
        log!(s, "late {}", io::send(fd, b"late", libc::MSG_NOSIGNAL));
        s.sync("late");
    } else {
        s.sync("sent");
        wait::wait_queued(fd, 6);
        log!(s, "{}", net::shutdown(fd, SHUT_RD));
        let mut buf = [0; 3];
        log!(s, "{}", io::recv(fd, &mut buf, 0));
        log!(s, "{}", io::recv(fd, &mut buf, 0));
        log!(s, "{}", io::recv(fd, &mut buf, 0));
        s.sync("shut");
        s.sync("late");
        wait::eventually(|| net::queued(fd) == 4);
        log!(s, "poll {}", wait::poll(&[(fd, ALL)], 0));
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", String::from_utf8_lossy(&got));
        log!(s, "send {}", io::send(fd, b"still", 0));
    }
    s.sync("done");
    if s.a() {
        log!(s, "{}", String::from_utf8_lossy(&io::recv_exact(fd, 5).0));
    }
    s.sync("end");
}

/// The kernel accepts data for a reader that has shut down reading.
/// A has shut its receiving and waits for room; B makes some once A sleeps.
fn room_after_shutdown_read(s: &Side, waits: fn(Fd) -> String) {
    let fd = s.pair();
    if s.a() {
        let filled = fill_up(fd);
        s.tell(filled as u64);
        log!(s, "shutdown {}", net::shutdown(fd, SHUT_RD));
        s.tell(Thread::current().id() as u64);
        s.tell(u64::from(std::process::id()));
        log!(s, "{}", waits(fd));
        s.sync("done");
        net::close(fd).ok();
    } else {
        let filled = s.hear() as usize;
        let thread = s.hear() as i32;
        Thread::of(s.hear() as u32, thread).wait_asleep();
        drain(fd, filled);
        s.sync("done");
    }
}

fn send_to_shutdown_reader(s: &Side) {
    let fd = s.pair();
    if s.a() {
        net::shutdown(fd, SHUT_RD).ok();
        s.sync("shut");
    } else {
        s.sync("shut");
        for _ in 0..3 {
            log!(s, "{}", io::send(fd, b"data", libc::MSG_NOSIGNAL));
        }
        log!(s, "poll {}", wait::poll(&[(fd, ALL)], 0));
    }
    s.sync("done");
}

fn wakes_reader(s: &Side, how: i32) {
    let fd = s.pair();
    if s.a() {
        let helper = once_asleep(move |_| net::shutdown(fd, how));
        log!(s, "recv {}", io::recv(fd, &mut [0; 4], 0));
        log!(s, "shutdown {}", helper.join().unwrap());
    }
    s.sync("done");
}

fn shutdown_wakes_writer(s: &Side) {
    let fd = s.pair();
    if s.a() {
        proc::ignore(libc::SIGPIPE);
        crate::side::fill_up(fd);
        let helper = once_asleep(move |_| net::shutdown(fd, SHUT_WR));
        log!(s, "send {}", io::send(fd, b"blocked", libc::MSG_NOSIGNAL));
        log!(s, "shutdown {}", helper.join().unwrap());
    }
    s.sync("done");
}

fn shutdown_wakes_poll(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let helper = once_asleep(move |_| net::shutdown(fd, SHUT_RD));
        log!(
            s,
            "poll {}",
            wait::poll(&[(fd, libc::POLLIN | libc::POLLRDHUP)], -1)
        );
        helper.join().unwrap().ok();
    } else {
        log!(
            s,
            "poll {}",
            wait::poll(&[(fd, libc::POLLIN | libc::POLLRDHUP)], 50)
        );
    }
    s.sync("done");
}

/// Everything accepted before the shutdown is delivered, then the end.
fn shutdown_with_unsent_bulk(s: &Side) {
    let fd = s.pair();
    if s.a() {
        net::set_nonblocking(fd, true).ok();
        let total = crate::side::fill_up(fd);
        log!(s, "{}", net::shutdown(fd, SHUT_WR));
        s.tell(total as u64);
    } else {
        let total = s.hear() as usize;
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", got.len() == total);
    }
    s.sync("done");
}

fn shutdown_after_peer_closed(s: &Side) {
    let fd = s.pair();
    if s.a() {
        net::close(fd).ok();
        s.sync("closed");
    } else {
        s.sync("closed");
        wait::wait_for(fd, libc::POLLRDHUP);
        look(s, fd, "closed");
        log!(s, "write {}", net::shutdown(fd, SHUT_WR));
        wait::wait_for(fd, libc::POLLHUP);
        log!(s, "poll {}", wait::poll(&[(fd, ALL)], 0));
    }
    s.sync("done");
}

fn end_is_sticky(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"x").ok();
        net::shutdown(fd, SHUT_WR).ok();
    } else {
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{got:?} {last}");
        for _ in 0..3 {
            log!(
                s,
                "{} {}",
                io::recv(fd, &mut [0; 4], 0),
                io::read(fd, &mut [0; 4])
            );
            log!(s, "{}", io::recv(fd, &mut [0; 4], libc::MSG_DONTWAIT));
            log!(s, "poll {}", wait::poll(&[(fd, ALL)], 0));
        }
    }
    s.sync("done");
}

/// Who has shut both halves reads the end, though the peer has not ended and has bytes to read: nothing has failed.
fn reads_behind_both_shut(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.sync("looked");
        log!(s, "{}", io::send(fd, &[7; 4091], 0));
        log!(s, "{}", net::shutdown(fd, libc::SHUT_RDWR));
        log!(s, "{}", io::recv(fd, &mut [0; 100], 0));
        look(s, fd, "then");
        s.sync("read");
    } else {
        log!(s, "{}", io::recv(fd, &mut [0; 100], libc::MSG_DONTWAIT));
        s.sync("looked");
        s.sync("read");
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", got.len());
    }
}

/// Data for an end that has shut both halves, together or one by one, is answered with a reset, and both are told.
fn data_for_shut(s: &Side, steps: &[i32]) {
    let fd = s.pair();
    proc::ignore(libc::SIGPIPE);
    if s.a() {
        for how in steps {
            log!(s, "shutdown {how} {}", net::shutdown(fd, *how));
        }
        s.sync("shut");
        s.sync("sent");
        wait::wait_for(fd, libc::POLLERR);
        look_error(s, fd);
        s.sync("told");
    } else {
        s.sync("shut");
        wait::wait_for(fd, libc::POLLRDHUP);
        log!(s, "send {}", io::send(fd, b"too late", 0));
        s.sync("sent");
        wait::wait_for(fd, libc::POLLERR);
        look_error(s, fd);
        s.sync("told");
    }
}

fn look_error(s: &Side, fd: Fd) {
    log!(s, "poll {}", wait::poll(&[(fd, ALL)], 0));
    log!(s, "send {}", io::send(fd, b"x", 0));
    log!(s, "again {}", io::send(fd, b"x", 0));
    look(s, fd, "then");
}

/// What was sent to an end that neither sends nor receives any more was answered with a reset: there is no connection to shut.
fn shutdown_after_answered_words(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"one").ok();
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
        s.sync("heard");
        s.sync("shut");
        log!(s, "{}", io::send(fd, b"two", libc::MSG_NOSIGNAL));
        wait::wait_for(fd, libc::POLLHUP | libc::POLLERR);
        for _ in 0..2 {
            log!(s, "{}", io::send(fd, b"three", libc::MSG_NOSIGNAL));
        }
        log!(s, "{}", net::shutdown(fd, SHUT_WR));
    } else {
        net::shutdown(fd, SHUT_WR).ok();
        s.sync("heard");
        log!(s, "{}", text(&io::recv_exact(fd, 3).0));
        net::shutdown(fd, SHUT_RDWR).ok();
        s.sync("shut");
    }
    s.sync("done");
}

/// A peer that closes as soon as it hears of the end makes no error of the call that it heard of.
fn both_while_peer_closes(s: &Side) {
    let mut good = 0;
    for _ in 0..100 {
        let fd = s.pair();
        if s.a() {
            good += i32::from(net::shutdown(fd, SHUT_RDWR).0 == 0);
        } else {
            io::recv_to_end(fd);
        }
        net::close(fd).ok();
    }
    log!(s, "{good}");
    s.sync("done");
}

/// Nothing more comes than is there, so a look at more than that does not wait.
fn look_at_all_after_shutdown_read(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"abc").ok();
    } else {
        wait::wait_queued(fd, 3);
        net::shutdown(fd, SHUT_RD).ok();
        let all = libc::MSG_PEEK | libc::MSG_WAITALL;
        log!(s, "{}", io::recv(fd, &mut [0; 10], all));
        log!(s, "{}", io::recv(fd, &mut [0; 10], libc::MSG_WAITALL));
    }
    s.sync("done");
}
