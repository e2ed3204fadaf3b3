//! Threads cancelled in, before and between calls on a stream, which others go on using.

use super::Case;
use crate::log;
use crate::side::{Random, Side, drain_to, fill_up};
use crate::sys::jump::{self, allow_cancel, cancel_anywhere, cancel_oneself, test_cancel};
use crate::sys::proc::Thread;
use crate::sys::{Fd, call, io, net, proc, wait};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};

pub(super) const CASES: &[Case] = &[
    Case::pair("cancel_recv", |s| blocked(s, 0)),
    Case::pair("cancel_read", |s| blocked(s, 1)),
    Case::pair("cancel_recvmsg", |s| blocked(s, 2)),
    Case::pair("cancel_poll", |s| blocked(s, 3)),
    Case::pair("cancel_select", |s| blocked(s, 4)),
    Case::pair("cancel_epoll", |s| blocked(s, 5)),
    Case::pair("cancel_send", |s| blocked(s, 6)),
    Case::pair("cancel_write", |s| blocked(s, 7)),
    Case::pair("cancel_accept", cancel_accept),
    Case::pair("cancel_connect", cancel_connect).any_path("one end connects to itself"),
    Case::pair("cancel_pending", cancel_pending),
    Case::pair("cancel_disabled", cancel_disabled),
    Case::pair("cancel_anywhere", cancel_at_random),
    Case::pair("cancel_then_close", cancel_then_close),
    Case::pair("cancel_as_it_wakes", cancel_as_it_wakes),
];

static FD: AtomicI32 = AtomicI32::new(-1);
static CALL: AtomicI32 = AtomicI32::new(0);
static TID: AtomicI32 = AtomicI32::new(0);
static STAGE: AtomicI32 = AtomicI32::new(0);

fn make(number: i32, fd: Fd) -> i64 {
    let mut buf = [0u8; 8];
    match number {
        0 => io::recv(fd, &mut buf, 0).0,
        1 => io::read(fd, &mut buf).0,
        2 => {
            let mut iov = io::iov_mut(&mut buf);
            // SAFETY: all zeroes is a message without anything.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            message.msg_iov = &raw mut iov;
            message.msg_iovlen = 1;
            call!(libc::recvmsg(fd, &raw mut message, 0)).0
        }
        3 => {
            let mut one = libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            };
            call!(libc::poll(&raw mut one, 1, -1)).0
        }
        4 => {
            // SAFETY: all zeroes is an empty set.
            let mut set: libc::fd_set = unsafe { std::mem::zeroed() };
            // SAFETY: a small descriptor and a valid set.
            unsafe { libc::FD_SET(fd, &raw mut set) };
            call!(libc::select(
                fd + 1,
                &raw mut set,
                null_mut(),
                null_mut(),
                null_mut()
            ))
            .0
        }
        5 => {
            let set = wait::epoll();
            wait::add(set, fd, libc::EPOLLIN, 1).ok();
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            call!(libc::epoll_wait(set, &raw mut event, 1, -1)).0
        }
        6 => io::send(fd, &buf, libc::MSG_NOSIGNAL).0,
        7 => io::write(fd, &buf).0,
        8 => net::accept(fd).0,
        _ => {
            let to = crate::sys::net::getsockname(fd);
            let own = net::socket_for(to, 0);
            net::connect(own, to).0
        }
    }
}

extern "C" fn one_call(_: *mut c_void) -> *mut c_void {
    TID.store(Thread::current().id(), SeqCst);
    let number = CALL.load(SeqCst);
    // (a sender that finds room after all goes on until there is none)
    while make(number, FD.load(SeqCst)) == 8 && matches!(number, 6 | 7) {}
    null_mut()
}

/// Starts a thread in this call, and cancels it there.
fn cancel_inside(number: i32, fd: Fd) -> bool {
    FD.store(fd, SeqCst);
    CALL.store(number, SeqCst);
    TID.store(0, SeqCst);
    let thread = jump::start(one_call);
    wait::eventually(|| TID.load(SeqCst) != 0);
    Thread::of(std::process::id(), TID.load(SeqCst)).wait_asleep();
    thread.cancel();
    thread.was_cancelled()
}

/// The socket afterwards, used by those who are left.
fn all_is_well(s: &Side, fd: Fd) {
    s.sync("cancelled");
    let big = Random::new(31).bytes(2 << 20);
    for turn in [true, false] {
        if turn == s.a() {
            log!(s, "{}", io::send_all(fd, &big));
        } else {
            log!(s, "{}", io::recv_exact(fd, big.len()).0 == big);
        }
    }
    for _ in 0..200 {
        if s.a() {
            io::send_all(fd, &[1; 64]).ok();
        }
        assert_eq!(io::recv_exact(fd, 64).0.len(), 64);
        if !s.a() {
            io::send_all(fd, &[1; 64]).ok();
        }
    }
    s.sync("bulk");
    if s.a() {
        net::close(fd).ok();
    } else {
        log!(s, "end {}", io::recv(fd, &mut [0; 1], 0));
    }
}

fn blocked(s: &Side, number: i32) {
    let fd = s.pair();
    let sends = number >= 6;
    if s.a() {
        if sends {
            fill_up(fd);
        }
        for _ in 0..5 {
            log!(s, "cancelled {}", cancel_inside(number, fd));
        }
        if sends {
            s.tell(1);
            io::send_all(fd, &[0xff]).ok();
        }
    } else if sends {
        s.hear();
        drain_to(fd, 0xff);
    }
    all_is_well(s, fd);
    s.sync("done");
}

fn cancel_accept(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let (lis, at) = net::listener(net::loopback(), 4);
        for _ in 0..5 {
            log!(s, "cancelled {}", cancel_inside(8, lis));
        }
        s.tell(u64::from(at.port()));
        let own = net::accept(lis).fd();
        all_is_well(s, own);
    } else {
        let own = s.connect();
        all_is_well(s, own);
    }
    net::close(fd).ok();
    s.sync("done");
}

/// A connect to a listener that takes nobody any more waits.
fn cancel_connect(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let (lis, at) = net::listener(net::loopback(), 0);
        let first = net::socket_for(at, 0);
        net::connect(first, at).ok();
        log!(s, "cancelled {}", cancel_inside(9, lis));
        let own = net::accept(lis).fd();
        io::send_all(first, b"through").ok();
        log!(s, "{}", io::recv_exact(own, 7).0 == b"through");
    }
    all_is_well(s, fd);
    s.sync("done");
}

extern "C" fn pending(_: *mut c_void) -> *mut c_void {
    cancel_oneself();
    // (neither would wait)
    make(CALL.load(SeqCst), FD.load(SeqCst));
    null_mut()
}

/// A thread that was cancelled before ends at a call that would not have waited, which does nothing.
fn cancel_pending(s: &Side) {
    let fd = s.pair();
    if s.a() {
        wait::wait_queued(fd, 8);
        FD.store(fd, SeqCst);
        for number in [0, 1, 2, 3, 4, 5, 6, 7] {
            CALL.store(number, SeqCst);
            log!(s, "{number} {}", jump::start(pending).was_cancelled());
        }
        log!(s, "{:?}", io::recv(fd, &mut [0; 20], libc::MSG_DONTWAIT));
    } else {
        io::send_all(fd, &[4; 8]).ok();
    }
    all_is_well(s, fd);
    s.sync("done");
}

extern "C" fn disabled(_: *mut c_void) -> *mut c_void {
    allow_cancel(false);
    cancel_oneself();
    for number in [0, 6] {
        if make(number, FD.load(SeqCst)) == 8 {
            STAGE.fetch_add(1, SeqCst);
        }
    }
    allow_cancel(true);
    test_cancel();
    STAGE.fetch_add(100, SeqCst);
    null_mut()
}

fn cancel_disabled(s: &Side) {
    let fd = s.pair();
    if s.a() {
        wait::wait_queued(fd, 8);
        FD.store(fd, SeqCst);
        let cancelled = jump::start(disabled).was_cancelled();
        log!(s, "{cancelled} {}", STAGE.load(SeqCst));
    } else {
        io::send_all(fd, &[4; 8]).ok();
        log!(s, "{:?}", io::recv_exact(fd, 8).0);
    }
    all_is_well(s, fd);
    s.sync("done");
}

extern "C" fn read_for_ever(_: *mut c_void) -> *mut c_void {
    cancel_anywhere();
    loop {
        let mut buf = [0u8; 700];
        // SAFETY: the buffer is writable. (Nothing but the call, which may end anywhere.)
        unsafe { libc::recv(FD.load(SeqCst), buf.as_mut_ptr().cast(), buf.len(), 0) };
    }
}

/// Threads that may be cancelled anywhere, while they read: the next one reads on.
fn cancel_at_random(s: &Side) {
    let fd = s.pair();
    static STOP: AtomicBool = AtomicBool::new(false);
    if s.a() {
        FD.store(fd, SeqCst);
        let mut random = Random::new(33);
        let mut cancelled = 0;
        for _ in 0..60 {
            let thread = jump::start(read_for_ever);
            let pause = 200 + random.below(2000) as u64;
            std::thread::sleep(std::time::Duration::from_micros(pause));
            thread.cancel();
            cancelled += i32::from(thread.was_cancelled());
        }
        log!(s, "cancelled {cancelled}");
        s.tell(1);
        // What follows the last filler byte is what was sent after it.
        let mut tail = Vec::new();
        while !tail.ends_with(b"that was all") {
            let (got, last) = io::recv_exact(fd, 1);
            assert_eq!(got.len(), 1, "{last}");
            tail.extend(got);
            let keep = tail.len().saturating_sub(64);
            tail.drain(..keep);
        }
        log!(s, "{}", String::from_utf8_lossy(&tail[tail.len() - 12..]));
    } else {
        let channel = *s;
        let listens = std::thread::spawn(move || {
            channel.hear();
            STOP.store(true, SeqCst);
        });
        while !STOP.load(SeqCst) {
            io::send_all(fd, &[0; 3000]).ok();
        }
        listens.join().unwrap();
        io::send_all(fd, b"that was all").ok();
    }
    all_is_well(s, fd);
    s.sync("done");
}

extern "C" fn wait_for_ever(_: *mut c_void) -> *mut c_void {
    loop {
        let fd = FD.load(SeqCst);
        make(CALL.load(SeqCst), fd);
        let _ = io::recv(fd, &mut [0; 8], libc::MSG_DONTWAIT);
    }
}

extern "C" fn nothing(_: i32) {}

/// Threads that are cancelled as what they wait for comes, in a program that handles signals: each ends.
fn cancel_as_it_wakes(s: &Side) {
    let fd = s.pair();
    if s.a() {
        proc::handle(libc::SIGUSR1, nothing, true);
        FD.store(fd, SeqCst);
        let mut random = Random::new(34);
        for number in [3, 4, 5] {
            CALL.store(number, SeqCst);
            let mut cancelled = 0;
            for _ in 0..150 {
                let thread = jump::start(wait_for_ever);
                std::thread::sleep(std::time::Duration::from_micros(100));
                io::send_all(fd, &[1]).ok();
                let until = std::time::Instant::now()
                    + std::time::Duration::from_micros(random.below(120) as u64);
                while std::time::Instant::now() < until {}
                thread.cancel();
                cancelled += i32::from(thread.was_cancelled());
            }
            log!(s, "cancelled {cancelled}");
        }
        net::shutdown(fd, libc::SHUT_WR).ok();
        io::recv_to_end(fd);
    } else {
        while io::recv(fd, &mut [0], 0).0 == 1 {
            io::send_all(fd, &[1]).ok();
        }
    }
    net::close(fd).ok();
    s.sync("done");
}

/// Nobody is left inside: the end is heard at once.
fn cancel_then_close(s: &Side) {
    let fd = s.pair();
    if s.a() {
        log!(s, "cancelled {}", cancel_inside(0, fd));
        net::close(fd).ok();
    } else {
        log!(s, "end {}", io::recv(fd, &mut [0; 1], 0));
    }
    s.sync("done");
}
