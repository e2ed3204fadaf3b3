//! Readers of large messages: pieces, several buffers, looks, flags and readiness while a sender waits
//! with its buffer, the ring untouched.
//!
//! The messages are of a size that kernel TCP takes whole without a reader: then what can be read, and
//! what every call says of it, does not depend on time.

use super::Case;
use super::zcopy::{Bytes, Room, Waiter, Way, send_and_spoil};
use crate::log;
use crate::side::{Random, Side};
use crate::sys::proc::Thread;
use crate::sys::{Fd, Ret, io, net, wait};
use libc::{MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, POLLIN};
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    Case::pair("zcopy_read_small", |s| pending(s, read_small)).large(0),
    Case::pair("zcopy_read_whole", |s| pending(s, read_whole)).large(SIZE as u64),
    Case::pair("zcopy_readv", |s| pending(s, readv)).large(SIZE as u64),
    Case::pair("zcopy_recvmsg", |s| pending(s, recvmsg)).large(SIZE as u64),
    Case::pair("zcopy_recvmmsg", |s| pending(s, recvmmsg)).large(SIZE as u64),
    Case::pair("zcopy_peek", |s| pending(s, peek)).large(0),
    Case::pair("zcopy_peek_waitall", |s| pending(s, peek_waitall)).large(0),
    Case::pair("zcopy_trunc", |s| pending(s, trunc)).large(0),
    Case::pair("zcopy_trunc_all", |s| pending(s, trunc_all)).large(SIZE as u64),
    Case::pair("zcopy_fionread", |s| pending(s, fionread)).large(0),
    Case::pair("zcopy_recv_timeout", |s| pending(s, recv_timeout)).large(SIZE as u64),
    Case::pair("zcopy_poll_pending", |s| pending(s, poll_pending)).large(SIZE as u64),
    Case::pair("zcopy_select_pending", |s| pending(s, select_pending)).large(SIZE as u64),
    Case::pair("zcopy_epoll_pending", |s| pending(s, epoll_pending)).large(SIZE as u64),
    Case::pair("zcopy_epoll_edge_pending", |s| pending(s, epoll_edge)).large(SIZE as u64),
    Case::pair("zcopy_epoll_oneshot", |s| pending(s, epoll_oneshot)).large(SIZE as u64),
    Case::pair("zcopy_blocked_reader", blocked_reader).large(2 * SIZE as u64),
    Case::pair("zcopy_waitall", waitall).large(4 << 20),
    Case::pair("zcopy_waitall_then_end", waitall_then_end).large(1),
    Case::pair("zcopy_lowat", lowat).large(0),
    Case::pair("zcopy_small_reads_of_much", small_reads).large(0),
    Case::pair("zcopy_peek_all_the_time", peek_all_the_time).large(0),
    Case::pair("zcopy_peek_then_time_out", peek_then_time_out).large(0),
    Case::pair("zcopy_slow_poller", slow_poller).large(0),
];

const SIZE: usize = 60_000;

/// How often. The sender does not wait for a reader for long.
const ROUNDS: u64 = 4;

/// A sends a message, and B acts once A has done what it can without a reader: sent it, or gone to sleep with
/// it. What is left B reads then. (Between hosts what was sent may be on its way.)
fn pending(s: &Side, act: fn(&Side, Fd, &mut Bytes)) {
    let fd = s.pair();
    let mut bytes = Bytes::new(90);
    introduce(s, fd);
    for round in 0..ROUNDS as usize {
        if s.a() {
            s.tell(u64::from(std::process::id()));
            s.tell(Thread::current().id() as u64);
            let waiter = Waiter::new(fd, Way::Block, 0);
            send_and_spoil(waiter, &mut bytes, Room::new(9, SIZE).part(SIZE));
            log!(s, "sent {}", bytes.at);
        } else {
            let sender = Thread::of(s.hear() as u32, s.hear() as i32);
            wait::wait_for(fd, POLLIN);
            sender.wait_resting();
            if crate::run::goes_far() {
                wait::wait_arrived(fd, SIZE as i32);
            }
            act(s, fd, &mut bytes);
            let left = (round + 1) * SIZE - bytes.at;
            let (rest, last) = io::recv_exact(fd, left);
            assert_eq!(rest.len(), left, "{last}");
            bytes.check(&rest);
            log!(s, "then {}", io::recv(fd, &mut [0; 1], MSG_DONTWAIT));
        }
        s.sync("round");
    }
}

/// The first large messages, from A to B: from then on a sender can wait with its buffer.
pub(super) fn introduce(s: &Side, fd: Fd) {
    let mut bytes = Bytes::new(89);
    let mut room = Room::new(0, SIZE);
    for _ in 0..2 {
        let part = room.part(SIZE);
        if s.a() {
            send_and_spoil(Waiter::new(fd, Way::Block, 0), &mut bytes, part);
        } else {
            assert_eq!(io::recv(fd, part, MSG_WAITALL).ok(), SIZE);
            bytes.check(part);
        }
        s.sync("introduced");
    }
}

/// Checks what a call has read.
fn took(s: &Side, bytes: &mut Bytes, r: Ret, buf: &[u8]) {
    log!(s, "{r}");
    bytes.check(&buf[..r.ok()]);
}

/// Checks what a call has looked at.
fn saw(s: &Side, bytes: &mut Bytes, r: Ret, buf: &[u8]) {
    let at = bytes.at;
    took(s, bytes, r, buf);
    bytes.at = at;
}

/// Reads that ask for little have the sender copy: a read meanwhile gets what is there.
fn read_small(s: &Side, fd: Fd, bytes: &mut Bytes) {
    for size in [1, 7, 100, 4095, 4096, 5000, 16_384, 20_000] {
        let (got, _) = io::recv_exact(fd, size);
        bytes.check(&got);
    }
    log!(s, "{}", bytes.at);
}

fn read_whole(s: &Side, fd: Fd, bytes: &mut Bytes) {
    let mut buf = vec![0; 2 * SIZE];
    let r = io::recv(fd, &mut buf, 0);
    took(s, bytes, r, &buf);
}

fn readv(s: &Side, fd: Fd, bytes: &mut Bytes) {
    let mut all = vec![0; SIZE + 5000];
    let (one, rest) = all.split_at_mut(10);
    let (two, rest) = rest.split_at_mut(5000);
    let (three, four) = rest.split_at_mut(30_000);
    let r = io::readv(fd, &mut [one, &mut [], two, three, four]);
    took(s, bytes, r, &all);
}

fn recvmsg(s: &Side, fd: Fd, bytes: &mut Bytes) {
    let mut all = vec![0; SIZE];
    let (one, two) = all.split_at_mut(40_000);
    let (r, flags) = io::recvmsg(fd, &mut [one, &mut two[..10_000]], 0);
    log!(s, "flags {flags:x}");
    took(s, bytes, r, &all);
    let (r, flags) = io::recvmsg(fd, &mut [&mut all], 0);
    log!(s, "flags {flags:x}");
    took(s, bytes, r, &all);
}

fn recvmmsg(s: &Side, fd: Fd, bytes: &mut Bytes) {
    let mut all = vec![0; SIZE];
    let (one, rest) = all.split_at_mut(20_000);
    let (two, three) = rest.split_at_mut(20_000);
    let (r, lengths) = io::recvmmsg(fd, &mut [one, two, three], MSG_DONTWAIT);
    log!(s, "{r} {lengths:?}");
    bytes.check(&all);
}

fn peek(s: &Side, fd: Fd, bytes: &mut Bytes) {
    let mut buf = vec![0; 3 * SIZE];
    for (size, flags) in [
        (100, MSG_PEEK),
        (SIZE, MSG_PEEK),
        (3 * SIZE, MSG_PEEK),
        (3 * SIZE, MSG_PEEK | MSG_DONTWAIT),
        (2 * SIZE, MSG_PEEK | MSG_TRUNC),
    ] {
        let r = io::recv(fd, &mut buf[..size], flags);
        if flags & MSG_TRUNC == 0 {
            saw(s, bytes, r, &buf);
        } else {
            log!(s, "{r}");
        }
    }
    let r = io::recv(fd, &mut buf[..1000], 0);
    took(s, bytes, r, &buf);
    let r = io::recv(fd, &mut buf, MSG_PEEK);
    saw(s, bytes, r, &buf);
    let (one, two) = buf.split_at_mut(5000);
    let (r, _) = io::recvmsg(fd, &mut [one, two], MSG_PEEK);
    saw(s, bytes, r, &buf);
}

fn peek_waitall(s: &Side, fd: Fd, bytes: &mut Bytes) {
    let mut buf = vec![0; SIZE];
    let r = io::recv(fd, &mut buf, MSG_PEEK | MSG_WAITALL);
    saw(s, bytes, r, &buf);
    let r = io::recv(fd, &mut buf, MSG_WAITALL);
    took(s, bytes, r, &buf);
}

fn trunc(s: &Side, fd: Fd, bytes: &mut Bytes) {
    let mut buf = vec![0x55; SIZE];
    let r = io::recv(fd, &mut buf[..7000], MSG_TRUNC);
    log!(s, "{r} untouched {}", buf.iter().all(|b| *b == 0x55));
    bytes.at += r.ok();
    let r = io::recv(fd, &mut buf[..20_000], 0);
    took(s, bytes, r, &buf);
    let r = io::recv(fd, &mut buf[..20_000], MSG_TRUNC);
    log!(s, "{r}");
    bytes.at += r.ok();
}

fn trunc_all(s: &Side, fd: Fd, bytes: &mut Bytes) {
    let mut buf = vec![0x55; 2 * SIZE];
    let r = io::recv(fd, &mut buf, MSG_TRUNC);
    log!(s, "{r} untouched {}", buf.iter().all(|b| *b == 0x55));
    bytes.at += r.ok();
}

fn fionread(s: &Side, fd: Fd, bytes: &mut Bytes) {
    let mut buf = vec![0; SIZE];
    for size in [20_000, 1000, 30_000] {
        log!(s, "{}", net::queued(fd));
        let r = io::recv(fd, &mut buf[..size], 0);
        took(s, bytes, r, &buf);
    }
    log!(s, "{}", net::queued(fd));
}

fn recv_timeout(s: &Side, fd: Fd, bytes: &mut Bytes) {
    net::set_timeout(fd, libc::SO_RCVTIMEO, 120).ok();
    let mut buf = vec![0; 2 * SIZE];
    let r = io::recv(fd, &mut buf, MSG_WAITALL);
    took(s, bytes, r, &buf);
    log!(s, "{}", io::recv(fd, &mut buf, 0));
}

fn poll_pending(s: &Side, fd: Fd, bytes: &mut Bytes) {
    let mut buf = vec![0; SIZE];
    for size in [20_000, 40_000] {
        for timeout in [0, 1000, -1] {
            log!(s, "{}", wait::poll(&[(fd, POLLIN)], timeout));
        }
        let r = io::recv(fd, &mut buf[..size], MSG_DONTWAIT);
        took(s, bytes, r, &buf);
    }
    log!(s, "{}", wait::poll(&[(fd, POLLIN)], 0));
}

fn select_pending(s: &Side, fd: Fd, bytes: &mut Bytes) {
    let mut buf = vec![0; SIZE];
    let read = wait::Select {
        read: &[fd],
        write: &[],
        except: &[],
    };
    for size in [20_000, 40_000] {
        log!(s, "{}", read.select(None));
        log!(s, "{}", read.select(Some(Duration::ZERO)));
        let r = io::recv(fd, &mut buf[..size], MSG_DONTWAIT);
        took(s, bytes, r, &buf);
    }
    log!(s, "{}", read.select(Some(Duration::ZERO)));
}

fn epoll_pending(s: &Side, fd: Fd, bytes: &mut Bytes) {
    let mut buf = vec![0; SIZE];
    let set = wait::epoll();
    wait::add(set, fd, libc::EPOLLIN, 7).ok();
    for size in [20_000, 40_000] {
        log!(s, "{}", wait::epoll_wait(set, 4, -1));
        log!(s, "{}", wait::epoll_wait(set, 4, 0));
        let r = io::recv(fd, &mut buf[..size], MSG_DONTWAIT);
        took(s, bytes, r, &buf);
    }
    log!(s, "{}", wait::epoll_wait(set, 4, 0));
}

fn epoll_edge(s: &Side, fd: Fd, bytes: &mut Bytes) {
    let mut buf = vec![0; SIZE];
    let set = wait::epoll();
    wait::add(set, fd, libc::EPOLLIN | libc::EPOLLET, 7).ok();
    log!(s, "{}", wait::epoll_wait(set, 4, -1));
    let r = io::recv(fd, &mut buf, MSG_DONTWAIT);
    took(s, bytes, r, &buf);
    wait::modify(set, fd, libc::EPOLLIN | libc::EPOLLET, 8).ok();
    log!(s, "{}", wait::epoll_wait(set, 4, 0));
}

fn epoll_oneshot(s: &Side, fd: Fd, bytes: &mut Bytes) {
    let mut buf = vec![0; SIZE];
    let set = wait::epoll();
    let once = libc::EPOLLIN | libc::EPOLLONESHOT;
    wait::add(set, fd, once, 7).ok();
    log!(s, "{}", wait::epoll_wait(set, 4, -1));
    log!(s, "{}", wait::epoll_wait(set, 4, 0));
    let r = io::recv(fd, &mut buf[..30_000], MSG_DONTWAIT);
    took(s, bytes, r, &buf);
    wait::modify(set, fd, once, 8).ok();
    log!(s, "{}", wait::epoll_wait(set, 4, 0));
}

/// The reader is there first, asleep in its call.
fn blocked_reader(s: &Side) {
    let fd = s.pair();
    let mut bytes = Bytes::new(91);
    for round in 0..8 {
        if s.a() {
            s.hear();
            let waiter = Waiter::new(fd, Way::Block, 0);
            send_and_spoil(waiter, &mut bytes, Room::new(round, SIZE).part(SIZE));
        } else {
            let mut buf = vec![0; SIZE];
            let helper = s.tell_once_asleep();
            let r = io::recv(fd, &mut buf, MSG_WAITALL);
            took(s, &mut bytes, r, &buf);
            helper.join().unwrap();
        }
    }
    s.sync("done");
}

/// One read of what several sends make up.
fn waitall(s: &Side) {
    let fd = s.pair();
    let mut bytes = Bytes::new(92);
    let sizes = [1 << 20, 5, 4096, 700_000, 100, 2 << 20, 60_000];
    let total: usize = sizes.iter().sum();
    for _ in 0..4 {
        if s.a() {
            let waiter = Waiter::new(fd, Way::Block, 0);
            for size in sizes {
                send_and_spoil(waiter, &mut bytes, Room::new(1, size).part(size));
            }
        } else {
            let mut room = Room::new(33, total);
            let r = io::recv(fd, room.part(total), MSG_WAITALL);
            took(s, &mut bytes, r, room.part(total));
        }
    }
    s.sync("done");
}

/// The end comes before all of it is there.
fn waitall_then_end(s: &Side) {
    let fd = s.pair();
    let mut bytes = Bytes::new(93);
    introduce(s, fd);
    if s.a() {
        let waiter = Waiter::new(fd, Way::Block, 0);
        let size = 3 << 20;
        send_and_spoil(waiter, &mut bytes, Room::new(1, size).part(size));
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        let mut buf = vec![0; 4 << 20];
        let r = io::recv(fd, &mut buf, MSG_WAITALL);
        took(s, &mut bytes, r, &buf);
        log!(s, "end {}", io::recv(fd, &mut buf, MSG_WAITALL));
    }
    s.sync("done");
}

/// SO_RCVLOWAT between messages: not readable before enough is there.
fn lowat(s: &Side) {
    let fd = s.pair();
    let mut bytes = Bytes::new(94);
    let waiter = Waiter::new(fd, Way::Block, 0);
    if s.a() {
        s.sync("set");
        send_and_spoil(waiter, &mut bytes, Room::new(1, 20_000).part(20_000));
        s.sync("looked");
        send_and_spoil(waiter, &mut bytes, Room::new(2, 30_000).part(30_000));
    } else {
        net::setopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 45_000).ok();
        s.sync("set");
        wait::wait_queued(fd, 20_000);
        log!(s, "{}", wait::poll(&[(fd, POLLIN)], 0));
        s.sync("looked");
        log!(s, "{}", wait::poll(&[(fd, POLLIN)], -1));
        wait::wait_queued(fd, 50_000);
        let mut buf = vec![0; 50_000];
        let r = io::recv(fd, &mut buf, 0);
        took(s, &mut bytes, r, &buf);
    }
    s.sync("done");
}

/// A reader that takes all in pieces below every threshold.
fn small_reads(s: &Side) {
    let fd = s.pair();
    let mut bytes = Bytes::new(95);
    let (messages, size) = (30, 300_000);
    if s.a() {
        let waiter = Waiter::new(fd, Way::Block, 0);
        for i in 0..messages {
            send_and_spoil(waiter, &mut bytes, Room::new(i, size).part(size));
        }
    } else {
        let mut random = Random::new(96);
        let mut buf = [0; 3000];
        while bytes.at < messages * size {
            let want = (1 + random.below(3000)).min(messages * size - bytes.at);
            let n = io::read(fd, &mut buf[..want]).ok();
            assert!(n > 0);
            bytes.check(&buf[..n]);
        }
        log!(s, "{}", bytes.at);
    }
    s.sync("done");
}

/// What a look has shown is what the next read gets, however much it asks for.
fn peek_all_the_time(s: &Side) {
    let fd = s.pair();
    let mut bytes = Bytes::new(97);
    let (messages, size) = (40, 250_000);
    if s.a() {
        let waiter = Waiter::new(fd, Way::Block, 0);
        for i in 0..messages {
            send_and_spoil(waiter, &mut bytes, Room::new(i, size).part(size));
        }
    } else {
        let mut random = Random::new(98);
        let mut buf = vec![0; 400_000];
        while bytes.at < messages * size {
            let want = 1 + random.below(buf.len());
            let flags = if random.below(2) == 0 {
                MSG_PEEK
            } else {
                wait::wait_for(fd, POLLIN);
                MSG_PEEK | MSG_DONTWAIT
            };
            let r = io::recv(fd, &mut buf[..want], flags);
            assert!(r.0 > 0, "{r} by a look at {}", bytes.at);
            let seen = r.ok();
            let at = bytes.at;
            bytes.check(&buf[..seen]);
            bytes.at = at;
            let again = 1 + random.below(seen);
            let r = io::recv(fd, &mut buf[..again], MSG_DONTWAIT);
            assert_eq!(r.0, again as i64, "of {seen} that a look has shown");
            bytes.check(&buf[..again]);
        }
        log!(s, "{}", bytes.at);
    }
    s.sync("done");
}

/// A reader that pauses between poll and read for longer than a sender waits for it: what poll has told of
/// is there.
fn slow_poller(s: &Side) {
    let fd = s.pair();
    let mut bytes = Bytes::new(99);
    let (messages, size) = (6, 300_000);
    if s.a() {
        let waiter = Waiter::new(fd, Way::Block, 0);
        for i in 0..messages {
            send_and_spoil(waiter, &mut bytes, Room::new(i, size).part(size));
        }
    } else {
        let mut random = Random::new(100);
        let mut buf = vec![0; 400_000];
        while bytes.at < messages * size {
            wait::wait_for(fd, POLLIN);
            std::thread::sleep(wait::millis(random.below(70) as u64));
            let r = io::recv(fd, &mut buf, MSG_DONTWAIT);
            assert!(r.0 > 0, "readable, and {r} at {}", bytes.at);
            bytes.check(&buf[..r.ok()]);
        }
        log!(s, "{}", bytes.at);
    }
    s.sync("done");
}

/// A sender that gives up, and then sends something else: what looks have shown before is what comes.
fn peek_then_time_out(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    if s.a() {
        net::set_timeout(fd, libc::SO_SNDTIMEO, 150).ok();
        let mut took = 0;
        for fill in [1u8, 2] {
            let n = io::send(fd, &vec![fill; 24 << 20], 0).0.max(0) as usize;
            log!(s, "partial {}", n < 24 << 20);
            took += n;
        }
        s.tell(took as u64);
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        let mut seen = vec![0u8; 40 << 20];
        let mut most = 0;
        let heard = *s;
        let total = std::thread::spawn(move || heard.hear() as usize);
        let room = seen.len();
        while !total.is_finished() {
            let n = io::recv(fd, &mut seen[..room], MSG_PEEK).ok();
            most = most.max(n);
            std::thread::sleep(wait::millis(3));
        }
        let total = total.join().unwrap();
        let (got, last) = io::recv_to_end(fd);
        log!(s, "all {} {last}", got.len() == total);
        log!(s, "as seen {}", got.get(..most) == Some(&seen[..most]));
    }
    s.sync("done");
}
