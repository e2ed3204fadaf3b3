//! Large messages, past the ring or through it: whatever is done to a buffer once its send has returned,
//! the reader gets what was sent, every byte of it, in order. By blocking calls, poll and epoll at either
//! end, several threads, both ways at once.
//!
//! What other cases of large messages share is here too: bytes that follow from their position, memory
//! that begins where one likes, waits of every kind.

use super::Case;
use crate::log;
use crate::side::{Random, Side};
use crate::sys::{Fd, io, net, wait};
use libc::{MSG_DONTWAIT, MSG_NOSIGNAL, MSG_WAITALL};

pub(super) const CASES: &[Case] = &[
    one_way("zcopy_blocking", Way::Block, Way::Block).large(1 << 20),
    one_way("zcopy_to_exact_reader", Way::Block, Way::Exact).large(1 << 20),
    one_way("zcopy_to_poll", Way::Block, Way::Poll).large(1 << 20),
    one_way("zcopy_to_epoll", Way::Block, Way::Level).large(1 << 20),
    one_way("zcopy_to_epoll_edge", Way::Block, Way::Edge).large(1 << 20),
    one_way("zcopy_from_poll", Way::Poll, Way::Block).large(0),
    one_way("zcopy_from_epoll", Way::Level, Way::Block).large(0),
    one_way("zcopy_from_epoll_edge", Way::Edge, Way::Block).large(0),
    one_way("zcopy_poll_both_ends", Way::Poll, Way::Poll).large(0),
    one_way("zcopy_edges_both_ends", Way::Edge, Way::Edge).large(0),
    Case::pair("zcopy_duplex", |s| duplex(s, Way::Block, Way::Block)).large(1 << 20),
    Case::pair("zcopy_duplex_poll", |s| duplex(s, Way::Poll, Way::Poll)).large(0),
    Case::pair("zcopy_duplex_edges", |s| duplex(s, Way::Edge, Way::Edge)).large(0),
    Case::pair("duplex_edges_of_two_sets", |s| {
        duplex(s, Way::Edge, Way::Edge)
    }),
    Case::pair("zcopy_crossed", crossed).large(0),
    Case::pair("zcopy_ping_pong", ping_pong).large(20 << 20),
    Case::pair("zcopy_from_the_first_byte", from_the_first_byte)
        .large(0)
        .conns(5),
    // (threads that find another's buffer advertised send by the ring, most of the time if need be)
    Case::pair("zcopy_many_senders", many_senders).large(1 << 16),
    Case::pair("zcopy_many_readers", many_readers).large(1 << 20),
];

const fn one_way(name: &'static str, sends: Way, reads: Way) -> Case {
    // (a function pointer per pair of ways: cases are data)
    let body: fn(&Side) = match (sends, reads) {
        (Way::Block, Way::Block) => |s| overwritten(s, Way::Block, Way::Block),
        (Way::Block, Way::Exact) => |s| overwritten(s, Way::Block, Way::Exact),
        (Way::Block, Way::Poll) => |s| overwritten(s, Way::Block, Way::Poll),
        (Way::Block, Way::Level) => |s| overwritten(s, Way::Block, Way::Level),
        (Way::Block, Way::Edge) => |s| overwritten(s, Way::Block, Way::Edge),
        (Way::Poll, Way::Block) => |s| overwritten(s, Way::Poll, Way::Block),
        (Way::Level, Way::Block) => |s| overwritten(s, Way::Level, Way::Block),
        (Way::Edge, Way::Block) => |s| overwritten(s, Way::Edge, Way::Block),
        (Way::Poll, Way::Poll) => |s| overwritten(s, Way::Poll, Way::Poll),
        _ => |s| overwritten(s, Way::Edge, Way::Edge),
    };
    Case::pair(name, body)
}

/// How an end waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// In the call itself.
    Block,
    /// The same, each read with a buffer of the message's size.
    Exact,
    Poll,
    /// By epoll, level-triggered.
    Level,
    /// By epoll, edge-triggered.
    Edge,
}

/// One end's waiting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    fd: Fd,
    way: Way,
    event: i16,
    set: Fd,
}

impl Waiter {
    pub(super) fn new(fd: Fd, way: Way, event: i16) -> Self {
        let mut set = -1;
        if matches!(way, Way::Level | Way::Edge) {
            set = wait::epoll();
            let edge = if way == Way::Edge { libc::EPOLLET } else { 0 };
            wait::add(set, fd, i32::from(event) | edge, 1).ok();
        }
        Self {
            fd,
            way,
            event,
            set,
        }
    }

    fn blocks(self) -> bool {
        matches!(self.way, Way::Block | Way::Exact)
    }

    pub(super) fn flags(self) -> i32 {
        let flag = if self.blocks() { 0 } else { MSG_DONTWAIT };
        MSG_NOSIGNAL | flag
    }

    /// Waits until the call may be made (again).
    #[track_caller]
    pub(super) fn wait(self) {
        match self.way {
            Way::Block | Way::Exact => {}
            Way::Poll => wait::wait_for(self.fd, self.event),
            Way::Level | Way::Edge => {
                let woken = wait::epoll_wait(self.set, 4, 10_000);
                assert_eq!(woken.ret.0, 1, "nothing told of descriptor {}", self.fd);
            }
        }
    }
}

/// The bytes of a stream, which follow from their position.
#[derive(Debug)]
pub(super) struct Bytes {
    table: Vec<u8>,
    pub(super) at: usize,
}

impl Bytes {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            table: Random::new(seed).bytes(65_521),
            at: 0,
        }
    }

    fn each(&mut self, len: usize, mut part: impl FnMut(usize, &[u8])) {
        let mut done = 0;
        while done < len {
            let from = self.at % self.table.len();
            let n = (len - done).min(self.table.len() - from);
            part(done, &self.table[from..from + n]);
            done += n;
            self.at += n;
        }
    }

    /// The next bytes.
    pub(super) fn fill(&mut self, buf: &mut [u8]) {
        self.each(buf.len(), |at, part| {
            buf[at..at + part.len()].copy_from_slice(part);
        });
    }

    /// Fails unless these are the next bytes.
    #[track_caller]
    pub(super) fn check(&mut self, buf: &[u8]) {
        let begun = self.at;
        let mut wrong = None;
        self.each(buf.len(), |at, part| {
            if buf[at..at + part.len()] != *part && wrong.is_none() {
                let i = (0..part.len()).find(|&i| buf[at + i] != part[i]);
                wrong = i.map(|i| begun + at + i);
            }
        });
        if let Some(at) = wrong {
            let found = &buf[at - begun..];
            panic!(
                "wrong from byte {at} of the stream on, in a read of {} bytes at {begun}: {}",
                buf.len(),
                self.what_is(found)
            );
        }
    }

    /// Where bytes come from that are wrong.
    fn what_is(&self, found: &[u8]) -> String {
        let some = &found[..found.len().min(16)];
        let twice = [&self.table[..], &self.table[..]].concat();
        let place = |some: &[u8]| twice.windows(some.len()).position(|w| w == some);
        let spoilt: Vec<u8> = some.iter().map(|b| !b).collect();
        match (place(some), place(&spoilt)) {
            (Some(at), _) => format!("those of byte {at} modulo {}", self.table.len()),
            (_, Some(at)) => format!("overwritten ones of byte {at} modulo {}", self.table.len()),
            _ => format!("{some:x?}"),
        }
    }
}

/// Memory that begins so many bytes after the beginning of a page.
#[derive(Debug)]
pub(super) struct Room {
    all: Vec<u8>,
    from: usize,
}

impl Room {
    pub(super) fn new(offset: usize, len: usize) -> Self {
        let all = vec![0u8; len + 2 * 4096];
        let from = all.as_ptr().addr().next_multiple_of(4096) - all.as_ptr().addr() + offset;
        Self { all, from }
    }

    pub(super) fn part(&mut self, len: usize) -> &mut [u8] {
        &mut self.all[self.from..self.from + len]
    }
}

const KIB: usize = 1024;
const SIZES: [usize; 12] = [
    4 * KIB - 1,
    4 * KIB,
    4 * KIB + 1,
    16 * KIB + 3,
    32 * KIB,
    64 * KIB - 1,
    64 * KIB + 1,
    200 * KIB,
    256 * KIB + 5,
    512 * KIB,
    KIB * KIB + 3,
    4 * KIB * KIB,
];
const OFFSETS: [usize; 4] = [0, 1, 63, 4095];

/// One that chooses its way anew several times (`policy::stage`).
const IN_PARTS: (usize, usize) = (77, (9 << 20) + 1);

/// The messages: where each begins in its page, and how long it is. Small ones stand between.
fn plan() -> Vec<(usize, usize)> {
    let mut random = Random::new(70);
    let mut list = Vec::new();
    for offset in OFFSETS {
        for size in SIZES {
            list.push((offset, size));
            for _ in 0..random.below(3) {
                list.push((random.below(4000), 1 + random.below(300)));
            }
        }
    }
    list.push(IN_PARTS);
    list
}

/// Sends the message of the next bytes, and overwrites each part of the buffer as soon as a call has said
/// that it went.
pub(super) fn send_and_spoil(waiter: Waiter, bytes: &mut Bytes, buf: &mut [u8]) {
    bytes.fill(buf);
    let mut sent = 0;
    while sent < buf.len() {
        let r = io::send(waiter.fd, &buf[sent..], waiter.flags());
        if r.0 > 0 {
            let n = r.ok();
            spoil(&mut buf[sent..sent + n]);
            sent += n;
        } else {
            assert!(!waiter.blocks() && r.is(libc::EAGAIN), "{r}");
            waiter.wait();
        }
    }
}

/// What was sent is no more there.
pub(super) fn spoil(part: &mut [u8]) {
    for b in part {
        *b = !*b;
    }
}

/// Sends all of the plan. Returns how many bytes.
fn send_plan(fd: Fd, way: Way, seed: u64) -> usize {
    let waiter = Waiter::new(fd, way, libc::POLLOUT);
    let mut bytes = Bytes::new(seed);
    for (offset, size) in plan() {
        let mut room = Room::new(offset, size);
        send_and_spoil(waiter, &mut bytes, room.part(size));
    }
    bytes.at
}

/// Reads all of the plan. Returns how many bytes.
fn read_plan(fd: Fd, way: Way, seed: u64) -> usize {
    let waiter = Waiter::new(fd, way, libc::POLLIN);
    let mut bytes = Bytes::new(seed);
    let total: usize = plan().iter().map(|p| p.1).sum();
    let mut messages = plan().into_iter();
    let mut random = Random::new(71);
    let mut room = Room::new(17, IN_PARTS.1);
    let mut told = false;
    while bytes.at < total {
        let (flags, want) = match way {
            Way::Exact => (MSG_WAITALL, messages.next().unwrap().1),
            _ => {
                let most = [300, 5000, 70_000, 400_000, 4 << 20][random.below(5)];
                (
                    waiter.flags(),
                    (1 + random.below(most)).min(total - bytes.at),
                )
            }
        };
        let part = room.part(want);
        let r = io::recv(fd, part, flags);
        if r.0 > 0 {
            bytes.check(&part[..r.ok()]);
            told = false;
        } else {
            assert!(
                !waiter.blocks() && r.is(libc::EAGAIN),
                "{r} at {}",
                bytes.at
            );
            assert!(!told, "told of bytes at {}, and there are none", bytes.at);
            waiter.wait();
            told = way != Way::Edge;
        }
    }
    bytes.at
}

/// A sends and spoils, B reads.
fn overwritten(s: &Side, sends: Way, reads: Way) {
    let fd = s.pair();
    if s.a() {
        log!(s, "sent {}", send_plan(fd, sends, 72));
    } else {
        log!(s, "got {}", read_plan(fd, reads, 72));
    }
    s.sync("done");
}

/// Both ways at once, a thread each.
fn duplex(s: &Side, sends: Way, reads: Way) {
    let fd = s.pair();
    let (out, back) = if s.a() { (73, 74) } else { (74, 73) };
    let sender = std::thread::spawn(move || send_plan(fd, sends, out));
    let got = read_plan(fd, reads, back);
    log!(s, "sent {} got {got}", sender.join().unwrap());
    s.sync("done");
}

/// Both ends send first and read then, as much as kernel TCP takes without a reader.
fn crossed(s: &Side) {
    let fd = s.pair();
    let (mut out, mut back) = (Bytes::new(75), Bytes::new(75));
    let waiter = Waiter::new(fd, Way::Block, 0);
    let mut room = Room::new(5, 60_000);
    for size in [4096, 20_000, 60_000, 60_000, 33_333, 60_000] {
        s.sync("round");
        send_and_spoil(waiter, &mut out, room.part(size));
        let (got, last) = io::recv_exact(fd, size);
        assert_eq!(got.len(), size, "{last}");
        back.check(&got);
    }
    log!(s, "{} {}", out.at, back.at);
    s.sync("done");
}

/// Large requests and answers: whoever has sent reads.
fn ping_pong(s: &Side) {
    let fd = s.pair();
    let (mut out, mut back) = (Bytes::new(76), Bytes::new(76));
    let waiter = Waiter::new(fd, Way::Block, 0);
    let mut room = Room::new(64, 1 << 20);
    for round in 0..60 {
        let size = SIZES[round % 11];
        for sends in [true, false] {
            if s.a() == sends {
                send_and_spoil(waiter, &mut out, room.part(size));
            } else {
                let part = room.part(size);
                let got = io::recv(fd, part, MSG_WAITALL).ok();
                assert_eq!(got, size);
                back.check(part);
            }
        }
    }
    log!(s, "{} {}", out.at, back.at);
    s.sync("done");
}

/// New connections whose first bytes, by the kernel, are read together with large messages after them.
fn from_the_first_byte(s: &Side) {
    let mut random = Random::new(79);
    let mut total = 0;
    for round in 0..100 {
        let fd = s.open();
        let mut bytes = Bytes::new(round);
        let sizes: Vec<usize> = (0..6).map(|_| 1 + random.below(120_000)).collect();
        let all: usize = sizes.iter().sum();
        if s.a() {
            let waiter = Waiter::new(fd, Way::Poll, libc::POLLOUT);
            for size in sizes {
                send_and_spoil(waiter, &mut bytes, Room::new(3, size).part(size));
            }
        } else {
            let mut room = Room::new(3, all);
            while bytes.at < all {
                let part = room.part(all - bytes.at);
                let n = io::recv(fd, part, 0).ok();
                bytes.check(&part[..n]);
            }
        }
        total += all;
        s.sync("round");
        net::close(fd).ok();
    }
    log!(s, "{total}");
}

const SENDERS: usize = 3;

/// The bytes of one of several threads: its number is in the low bits of each.
fn own_bytes(who: usize, len: usize) -> Vec<u8> {
    let mut own = Random::new(77 + who as u64).bytes(len);
    for b in &mut own {
        *b = *b & !3 | who as u8;
    }
    own
}

/// Several threads send on one socket. A large message need not stay in one piece, on kernel TCP either;
/// each thread's bytes come in order.
fn many_senders(s: &Side) {
    let fd = s.pair();
    let each = 6 << 20;
    if s.a() {
        let threads: Vec<_> = (0..SENDERS)
            .map(|who| {
                std::thread::spawn(move || {
                    let own = own_bytes(who, each);
                    let mut random = Random::new(80 + who as u64);
                    let mut room = Room::new(who * 7, 400_000);
                    let mut at = 0;
                    while at < each {
                        let size = (1 + random.below(400_000)).min(each - at);
                        let part = room.part(size);
                        part.copy_from_slice(&own[at..at + size]);
                        let n = io::send(fd, part, 0).ok();
                        part.fill(0xff);
                        at += n;
                    }
                })
            })
            .collect();
        for t in threads {
            t.join().unwrap();
        }
        log!(s, "sent");
    } else {
        let expected: Vec<_> = (0..SENDERS).map(|who| own_bytes(who, each)).collect();
        let mut at = [0; SENDERS];
        let mut buf = vec![0u8; 300_000];
        let mut left = SENDERS * each;
        while left > 0 {
            let room = buf.len().min(left);
            let n = io::recv(fd, &mut buf[..room], 0).ok();
            for b in &buf[..n] {
                let who = usize::from(b & 3);
                assert!(who < SENDERS, "a byte of nobody's, {left} left");
                assert_eq!(*b, expected[who][at[who]], "thread {who} at {}", at[who]);
                at[who] += 1;
            }
            left -= n;
        }
        log!(s, "got {at:?}");
    }
    s.sync("done");
}

/// Several threads read from one socket: each byte goes to one of them.
fn many_readers(s: &Side) {
    let fd = s.pair();
    let (messages, size) = (200usize, 50_000usize);
    if s.a() {
        for i in 0..messages {
            let mut message = vec![i as u8; size];
            assert_eq!(io::send_all(fd, &message).ok(), size);
            message.fill(0xff);
        }
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        let readers: Vec<_> = (0..3)
            .map(|i| {
                std::thread::spawn(move || {
                    let mut counts = [0usize; 256];
                    let mut buf = vec![0u8; 20_000 * (i + 1)];
                    loop {
                        let n = io::recv(fd, &mut buf, 0).ok();
                        if n == 0 {
                            return counts;
                        }
                        buf[..n].iter().for_each(|b| counts[usize::from(*b)] += 1);
                    }
                })
            })
            .collect();
        let mut sum = [0usize; 256];
        for r in readers {
            let counts = r.join().unwrap();
            sum.iter_mut().zip(counts).for_each(|(a, b)| *a += b);
        }
        let right = (0..256).all(|i| sum[i] == if i < messages { size } else { 0 });
        log!(s, "every byte once: {right}");
    }
    s.sync("done");
}
