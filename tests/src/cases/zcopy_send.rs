//! Senders of large messages that end otherwise than by having sent: time-outs, handlers, jumps,
//! cancellation, the socket shut or closed under them, readers that leave. What such a send has taken
//! arrives, and nothing that the program writes to the buffer afterwards.

use super::Case;
use super::zcopy::{Bytes, Room, Waiter, Way, send_and_spoil, spoil};
use super::zcopy_read::introduce;
use crate::log;
use crate::side::{Random, Side};
use crate::sys::jump::{self, Target, Timer, back, jumped};
use crate::sys::proc::Thread;
use crate::sys::{Fd, io, net, proc, wait};
use libc::{MSG_DONTWAIT, MSG_NOSIGNAL, SIGUSR2};
use std::ffi::c_void;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicUsize, Ordering::SeqCst,
};

pub(super) const CASES: &[Case] = &[
    Case::pair("zcopy_writev", |s| vectors(s, false)).large(1 << 20),
    Case::pair("zcopy_sendmsg", |s| vectors(s, true)).large(1 << 20),
    Case::pair("zcopy_send_timeout", send_timeout).large(0),
    Case::pair("zcopy_send_dontwait", send_dontwait).large(0),
    Case::pair("zcopy_then_shutdown", |s| then_end(s, false)).large(1),
    Case::pair("zcopy_then_close", |s| then_end(s, true)).large(1),
    Case::pair("zcopy_then_exit", then_exit)
        .processes_only()
        .large(1),
    Case::pair("zcopy_reader_closes", reader_closes),
    Case::pair("zcopy_reader_closes_early", reader_closes_early),
    Case::pair("zcopy_reader_shuts", reader_shuts).large(0),
    Case::pair("zcopy_handler_writes", |s| handler_writes(s, false)).large(0),
    Case::pair("zcopy_handler_writes_restart", |s| handler_writes(s, true)).large(0),
    Case::pair("zcopy_jump_out", jump_out).large(0),
    Case::pair("zcopy_cancel", cancel).large(0),
    Case::pair("zcopy_shut_by_another", shut_by_another),
    Case::pair("zcopy_closed_by_another", |s| closed_by_another(s, false)).large(0),
    Case::pair("zcopy_replaced_by_another", |s| closed_by_another(s, true)).large(0),
];

const MIB: usize = 1 << 20;

/// Several buffers of very different sizes.
fn vectors(s: &Side, by_message: bool) {
    let fd = s.pair();
    let sizes = [1, 5000, 0, 70_000, 3, MIB, 4096, 4095, 300_000, 8];
    let total: usize = sizes.iter().sum();
    let mut bytes = Bytes::new(110);
    for _ in 0..6 {
        if s.a() {
            let mut rooms: Vec<_> = (0..).zip(sizes).map(|(i, n)| Room::new(i, n)).collect();
            let mut parts: Vec<_> = rooms
                .iter_mut()
                .zip(sizes)
                .map(|(r, n)| r.part(n))
                .collect();
            parts.iter_mut().for_each(|part| bytes.fill(part));
            let mut sent = 0;
            while sent < total {
                // What is left of each.
                let mut skip = sent;
                let mut left = Vec::new();
                for part in &parts {
                    let gone = skip.min(part.len());
                    skip -= gone;
                    left.push(&part[gone..]);
                }
                let r = if by_message {
                    io::sendmsg(fd, &left, MSG_NOSIGNAL)
                } else {
                    io::writev(fd, &left)
                };
                sent += r.ok();
            }
            parts.iter_mut().for_each(|part| spoil(part));
        } else {
            let mut room = Room::new(11, total);
            let (mut got, part) = (0, room.part(total));
            while got < total {
                got += io::recv(fd, &mut part[got..], 0).ok();
            }
            bytes.check(part);
        }
    }
    log!(s, "{}", bytes.at);
    s.sync("done");
}

/// Sends more than goes without a reader; says how much went, and spoils the rest.
fn send_some(fd: Fd, bytes: &mut Bytes, size: usize, flags: i32) -> usize {
    let mut room = Room::new(7, size);
    let part = room.part(size);
    let at = bytes.at;
    bytes.fill(part);
    let r = io::send(fd, part, flags | MSG_NOSIGNAL);
    spoil(part);
    let went = r.0.max(0) as usize;
    bytes.at = at + went;
    went
}

/// Nobody reads: the call ends with its time, and has taken a part.
fn send_timeout(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    let mut bytes = Bytes::new(111);
    if s.a() {
        net::set_timeout(fd, libc::SO_SNDTIMEO, 150).ok();
        let size = 32 * MIB;
        let went = send_some(fd, &mut bytes, size, 0);
        log!(s, "part {}", 0 < went && went < size);
        let more = send_some(fd, &mut bytes, size, 0);
        log!(s, "more {}", more < size);
        s.tell(bytes.at as u64);
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        let want = s.hear() as usize;
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", got.len() == want);
        bytes.check(&got);
    }
    s.sync("done");
}

fn send_dontwait(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    let mut bytes = Bytes::new(112);
    if s.a() {
        for size in [5000, MIB, 3 * MIB, 70_000, 16 * MIB, 16 * MIB] {
            send_some(fd, &mut bytes, size, MSG_DONTWAIT);
        }
        s.tell(bytes.at as u64);
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        let want = s.hear() as usize;
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", got.len() == want);
        bytes.check(&got);
    }
    s.sync("done");
}

/// The end right behind a large message.
fn then_end(s: &Side, closes: bool) {
    let size = 3 * MIB;
    for round in 0..6 {
        let fd = s.pair();
        introduce(s, fd);
        let mut bytes = Bytes::new(113 + round);
        if s.a() {
            let waiter = Waiter::new(fd, Way::Block, 0);
            send_and_spoil(waiter, &mut bytes, Room::new(1, size).part(size));
            if closes {
                net::close(fd).ok();
            } else {
                net::shutdown(fd, libc::SHUT_WR).ok();
            }
        } else {
            let (got, last) = io::recv_to_end(fd);
            log!(s, "{} {last}", got.len());
            bytes.check(&got);
        }
        s.sync("round");
    }
}

fn then_exit(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    let size = 3 * MIB;
    let mut bytes = Bytes::new(119);
    if s.a() {
        let waiter = Waiter::new(fd, Way::Block, 0);
        send_and_spoil(waiter, &mut bytes, Room::new(1, size).part(size));
        std::process::exit(0);
    }
    let (got, last) = io::recv_to_end(fd);
    log!(s, "{} {last}", got.len());
    bytes.check(&got);
}

/// The reader closes with nothing read while a sender waits: a reset.
fn reader_closes(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    if s.a() {
        let helper = s.tell_once_asleep();
        let mut bytes = Bytes::new(120);
        let size = 32 * MIB;
        let went = send_some(fd, &mut bytes, size, 0);
        log!(s, "part {}", 0 < went && went < size);
        helper.join().unwrap();
        s.sync("closed");
        log!(s, "{}", io::send(fd, &[1; 100_000], MSG_NOSIGNAL));
        log!(s, "{}", io::send(fd, &[1; 100_000], MSG_NOSIGNAL));
        log!(s, "{}", io::recv(fd, &mut [0; 100_000], 0));
    } else {
        s.hear();
        net::close(fd).ok();
        s.sync("closed");
    }
    s.sync("done");
}

/// The reader has seen a message that kernel TCP takes whole, and the smallest buffers that the suite is run with, and closes: the
/// sender hears of it afterwards.
fn reader_closes_early(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    if s.a() {
        let mut bytes = Bytes::new(121);
        s.tell(u64::from(std::process::id()));
        s.tell(Thread::current().id() as u64);
        log!(s, "{}", send_some(fd, &mut bytes, 12_000, 0));
        s.sync("closed");
        wait::wait_for(fd, libc::POLLHUP);
        log!(s, "{}", io::send(fd, &[1; 100_000], MSG_NOSIGNAL));
        log!(s, "{}", io::send(fd, &[1; 100_000], MSG_NOSIGNAL));
    } else {
        let sender = Thread::of(s.hear() as u32, s.hear() as i32);
        wait::wait_for(fd, libc::POLLIN);
        sender.wait_resting();
        net::close(fd).ok();
        s.sync("closed");
    }
    s.sync("done");
}

/// The reader shuts its receiving half, and reads what there is all the same.
fn reader_shuts(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    let mut bytes = Bytes::new(122);
    if s.a() {
        s.hear();
        let waiter = Waiter::new(fd, Way::Block, 0);
        send_and_spoil(waiter, &mut bytes, Room::new(1, 60_000).part(60_000));
        s.sync("sent");
    } else {
        net::shutdown(fd, libc::SHUT_RD).ok();
        s.tell(1);
        s.sync("sent");
        let (got, last) = io::recv_exact(fd, 60_000);
        log!(s, "{} {last}", got.len());
        bytes.check(&got);
        log!(s, "{}", io::recv(fd, &mut [0; 10], 0));
    }
    s.sync("done");
}

static BUFFER: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static ROOM: AtomicUsize = AtomicUsize::new(0);
static GENERATION: AtomicU8 = AtomicU8::new(0);

/// Fills the buffer that is being sent with the next number.
extern "C" fn refill(_: i32) {
    let n = GENERATION.load(SeqCst).wrapping_add(1);
    let at = BUFFER.load(SeqCst);
    // SAFETY: the buffer is the case's, for as long as the timer runs.
    unsafe { std::ptr::write_bytes(at, n, ROOM.load(SeqCst)) };
    GENERATION.store(n, SeqCst);
}

/// A handler writes to the buffer of the send that it has interrupted: each call's bytes are of one time, and
/// that is the time of the call.
fn handler_writes(s: &Side, restart: bool) {
    let fd = s.pair();
    introduce(s, fd);
    let (size, calls) = (600_000, 60);
    if s.a() {
        let mut room = Room::new(1, size);
        let buffer = room.part(size);
        BUFFER.store(buffer.as_mut_ptr(), SeqCst);
        ROOM.store(size, SeqCst);
        proc::handle(SIGUSR2, refill, restart);
        let timer = Timer::new(SIGUSR2);
        timer.every(900);
        let mut told = Vec::new();
        let mut interrupted = 0;
        while told.len() < calls && interrupted < 100_000 {
            let from = GENERATION.load(SeqCst);
            let r = io::send(fd, buffer, MSG_NOSIGNAL);
            let to = GENERATION.load(SeqCst);
            if r.is(libc::EINTR) && !restart {
                interrupted += 1;
                continue;
            }
            told.push((r.ok(), from, to));
        }
        timer.stop();
        proc::ignore(SIGUSR2);
        net::shutdown(fd, libc::SHUT_WR).ok();
        s.tell(told.len() as u64);
        for (n, from, to) in told {
            s.tell(n as u64);
            s.tell(u64::from(from) << 8 | u64::from(to));
        }
    } else {
        let mut all = Vec::new();
        let mut buf = vec![0; 200_000];
        loop {
            let n = io::recv(fd, &mut buf, 0).ok();
            if n == 0 {
                break;
            }
            all.extend_from_slice(&buf[..n]);
            std::thread::sleep(wait::millis(1));
        }
        let (mut at, mut bad) = (0, String::new());
        for call in 0..s.hear() {
            let n = s.hear() as usize;
            let [to, from] = (s.hear() as u16).to_le_bytes();
            let part = &all[at..at + n];
            at += n;
            let first = part.first().copied().unwrap_or(from);
            let one = part.iter().all(|b| *b == first);
            if !one || first.wrapping_sub(from) > to.wrapping_sub(from) {
                let odd = part.iter().position(|b| *b != first);
                bad = format!("call {call}: {first} of {from} to {to}, from {odd:?} on another");
            }
        }
        log!(s, "all {} bad {bad:?}", at == all.len());
    }
    s.sync("done");
}

static TARGET: Target = Target::new();
static ARMED: AtomicBool = AtomicBool::new(false);

extern "C" fn leap(_: i32) {
    if ARMED.swap(false, SeqCst) {
        // SAFETY: armed inside the body only.
        unsafe { back(&TARGET) }
    }
}

const SPOILT: u8 = 0xee;

/// Reads to the mark, seeing that nothing spoilt comes.
fn read_to_mark(s: &Side, fd: Fd, mark: u8) {
    let mut buf = vec![0; 300_000];
    let (mut spoilt, mut last) = (0, !mark);
    while last != mark {
        let n = io::recv(fd, &mut buf, 0).ok();
        assert!(n > 0);
        spoilt += buf[..n].iter().filter(|b| **b == SPOILT).count();
        last = buf[n - 1];
        std::thread::sleep(wait::millis(1));
    }
    log!(s, "spoilt {spoilt}");
}

/// Handlers jump out of sends, again and again, and the buffer is used for something else.
fn jump_out(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    if s.a() {
        proc::handle(SIGUSR2, leap, false);
        let timer = Timer::new(SIGUSR2);
        let mut random = Random::new(123);
        let mut room = Room::new(1, MIB);
        let buffer = room.part(MIB);
        let mut left = 0;
        for _ in 0..300 {
            buffer.fill(1);
            let (at, n) = (buffer.as_ptr().addr(), 4096 + random.below(MIB - 4096));
            let after = 1 + random.below(1500) as i64;
            left += usize::from(jumped(&TARGET, &mut || {
                ARMED.store(true, SeqCst);
                timer.once(after);
                io::raw::send(fd, at, n, MSG_NOSIGNAL);
                ARMED.store(false, SeqCst);
            }));
            buffer.fill(SPOILT);
        }
        timer.stop();
        proc::ignore(SIGUSR2);
        log!(s, "left {}", left > 30);
        io::send_all(fd, &[0xff]).ok();
    } else {
        read_to_mark(s, fd, 0xff);
    }
    s.sync("done");
}

static FD: AtomicI32 = AtomicI32::new(-1);
static TID: AtomicI32 = AtomicI32::new(0);

extern "C" fn send_for_ever(_: *mut c_void) -> *mut c_void {
    TID.store(Thread::current().id(), SeqCst);
    loop {
        let (at, n) = (BUFFER.load(SeqCst).addr(), ROOM.load(SeqCst));
        io::raw::send(FD.load(SeqCst), at, n, MSG_NOSIGNAL);
    }
}

/// Threads cancelled in a large send, whose buffer is used for something else then.
fn cancel(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    if s.a() {
        let mut room = Room::new(1, MIB);
        let buffer = room.part(MIB);
        FD.store(fd, SeqCst);
        ROOM.store(buffer.len(), SeqCst);
        BUFFER.store(buffer.as_mut_ptr(), SeqCst);
        let mut cancelled = 0;
        for round in 0..20 {
            buffer.fill(1);
            TID.store(0, SeqCst);
            let thread = jump::start(send_for_ever);
            wait::eventually(|| TID.load(SeqCst) != 0);
            std::thread::sleep(wait::millis(round % 5));
            thread.cancel();
            cancelled += i32::from(thread.was_cancelled());
            buffer.fill(SPOILT);
        }
        log!(s, "cancelled {cancelled}");
        io::send_all(fd, &[0xff]).ok();
    } else {
        read_to_mark(s, fd, 0xff);
    }
    s.sync("done");
}

/// Another thread shuts the socket under a sender, who says how much it has sent.
fn shut_by_another(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    let mut bytes = Bytes::new(124);
    if s.a() {
        let helper = proc::once_asleep(move |_| net::shutdown(fd, libc::SHUT_WR));
        let size = 32 * MIB;
        let went = send_some(fd, &mut bytes, size, 0);
        log!(s, "part {}", 0 < went && went < size);
        log!(s, "shut {}", helper.join().unwrap());
        log!(s, "{}", io::send(fd, &[1; 100_000], MSG_NOSIGNAL));
        s.tell(bytes.at as u64);
    } else {
        let want = s.hear() as usize;
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", got.len() == want);
        bytes.check(&got);
    }
    s.sync("done");
}

/// Another thread closes the descriptor, or puts another in its place: the send goes on to its end.
fn closed_by_another(s: &Side, replaced: bool) {
    let fd = s.pair();
    introduce(s, fd);
    let mut bytes = Bytes::new(125);
    let size = 16 * MIB;
    if s.a() {
        let side = *s;
        let helper = proc::once_asleep(move |_| {
            let r = if replaced {
                let (other, _) = net::unix_pair(libc::SOCK_STREAM);
                net::dup2(other, fd)
            } else {
                net::close(fd)
            };
            side.tell(1);
            r.0 >= 0
        });
        log!(s, "{}", send_some(fd, &mut bytes, size, 0));
        log!(s, "{}", helper.join().unwrap());
    } else {
        s.hear();
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", got.len());
        bytes.check(&got);
    }
    s.sync("done");
}
