//! Several messages at once that stay in the sender's memory, with small ones between them: what readers,
//! looks, ends and changes of the way make of them. In mode async they are in a pipe; the reader acts only when the
//! sender is done, or gone.
//!
//! All of them together are little enough for kernel TCP to take without a reader.

use super::Case;
use super::held::used;
use super::zcopy::{Bytes, Room, spoil};
use crate::log;
use crate::side::Side;
use crate::sys::{Fd, io, net, pass, proc, wait};
use libc::{MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, POLLIN, POLLRDHUP};

pub(super) const CASES: &[Case] = &[
    held("held_read_in_pieces", |s| reader(s, pieces)),
    held("held_from_vectors", |s| from_vectors(s, false)),
    held("held_from_messages", |s| from_vectors(s, true)),
    held("held_read_into_vectors", |s| reader(s, vectors)),
    held("held_peeked", |s| reader(s, peeked)),
    held("held_thrown_away", |s| reader(s, thrown_away)),
    held("held_and_readiness", |s| reader(s, readiness)),
    held("held_and_edges", |s| reader(s, edges)),
    held("held_reader_splices", |s| reader(s, splices)).any_path(DEMOTES),
    held("held_reader_passes_it_on", |s| reader(s, passes_on)).any_path(DEMOTES),
    held("held_reader_forks", |s| reader(s, forks)),
    held("held_reader_executes", reader_executes).any_path(DEMOTES),
    held("held_reader_shuts", |s| reader(s, shuts)),
    held("held_sender_shuts", |s| {
        sender(s, |_, fd| _ = net::shutdown(fd, libc::SHUT_WR));
    }),
    held("held_sender_closes", |s| {
        sender(s, |_, fd| _ = net::close(fd))
    }),
    held("held_sender_killed", |s| sender(s, |_, _| proc::die())),
    held("held_sender_executes", |s| {
        sender(s, |_, _| _ = proc::exec(&["/bin/true"], true));
    }),
    held("held_sender_opens_stdio", |s| sender(s, opens_and_sends)).any_path(DEMOTES),
    held("held_sender_passes_it_on", |s| {
        sender(s, |s, fd| {
            let (one, two) = net::unix_pair(libc::SOCK_SEQPACKET);
            pass::send_fd(one, fd);
            let other = pass::recv_fd(two, 0);
            log!(s, "{}", io::send_all(other, &[7; 1000]));
        });
    })
    .any_path(DEMOTES),
    held("held_sender_sandboxed", |s| {
        sender(s, |s, fd| {
            sandbox();
            log!(s, "{}", io::send_all(fd, &[7; 20_000]));
        });
    })
    .any_path(DEMOTES),
    held("held_sender_forks", |s| sender(s, forks_and_sends)),
    held("held_reader_closes", |s| reader_goes(s, false)),
    held("held_reader_killed", |s| reader_goes(s, true)),
    held("held_until_full", until_full),
    held("held_on_two_streams", two_streams),
    held("held_both_ways", both_ways),
];

const DEMOTES: &str = "the stream goes back to the kernel";

/// (One of the ends may leave no report.)
const fn held(name: &'static str, body: fn(&Side)) -> Case {
    Case::pair(name, body)
        .processes_only()
        .held(TOTAL as u64 - 200)
}

const SIZES: [usize; 5] = [30_000, 100, 28_677, 3, 26_000];
const TOTAL: usize = 30_000 + 100 + 28_677 + 3 + 26_000;

/// Sends the messages out of one buffer, whose pages they share, and spoils all of it.
fn send_several(fd: Fd, bytes: &mut Bytes, room: &mut Room) {
    let all = room.part(TOTAL);
    bytes.fill(all);
    let mut at = 0;
    for size in SIZES {
        assert_eq!(io::send_all(fd, &all[at..at + size]).ok(), size);
        at += size;
    }
    spoil(all);
}

/// A sends, then B acts and reads what it has left.
fn reader(s: &Side, act: fn(&Side, Fd, &mut Bytes)) {
    let fd = used(s);
    let (mut bytes, mut room) = (Bytes::new(200), Room::new(777, TOTAL));
    if s.a() {
        send_several(fd, &mut bytes, &mut room);
    }
    s.sync("sent");
    if !s.a() {
        wait::wait_queued(fd, TOTAL as i32);
        act(s, fd, &mut bytes);
        take(fd, &mut bytes, TOTAL);
        log!(s, "then {}", io::recv(fd, &mut [0; 1], MSG_DONTWAIT));
    }
    s.sync("read");
}

/// Reads and checks up to this byte of the stream.
#[track_caller]
fn take(fd: Fd, bytes: &mut Bytes, to: usize) {
    let left = to.saturating_sub(bytes.at);
    let (got, last) = io::recv_exact(fd, left);
    assert_eq!(got.len(), left, "{last}");
    bytes.check(&got);
}

fn pieces(s: &Side, fd: Fd, bytes: &mut Bytes) {
    for size in [1, 4096, 10_000, 15_903, 99, 2, 5000, 30_000] {
        let mut buf = vec![0; size];
        let r = io::recv(fd, &mut buf, 0);
        log!(s, "{r} {}", net::queued(fd));
        bytes.check(&buf[..r.ok()]);
    }
}

fn vectors(s: &Side, fd: Fd, bytes: &mut Bytes) {
    let mut all = vec![0; TOTAL];
    let (one, rest) = all.split_at_mut(10);
    let (two, rest) = rest.split_at_mut(5000);
    let (three, four) = rest.split_at_mut(30_000);
    let r = io::readv(fd, &mut [one, &mut [], two, three, &mut four[..20_000]]);
    log!(s, "{r}");
    bytes.check(&all[..r.ok()]);
    let (r, flags) = io::recvmsg(fd, &mut [&mut all[..7], &mut [0; 12]], MSG_WAITALL);
    log!(s, "{r} {flags:x}");
    bytes.at += r.ok();
}

fn peeked(s: &Side, fd: Fd, bytes: &mut Bytes) {
    let mut buf = vec![0; 2 * TOTAL];
    for taken in [0, 20_000, 10_050, 100] {
        let r = io::recv(fd, &mut buf[..taken], MSG_WAITALL);
        bytes.check(&buf[..r.ok()]);
        for (size, flags) in [
            (1, MSG_PEEK),
            (9000, MSG_PEEK),
            (TOTAL - bytes.at, MSG_PEEK | MSG_WAITALL),
            (2 * TOTAL, MSG_PEEK | MSG_DONTWAIT),
        ] {
            let r = io::recv(fd, &mut buf[..size], flags);
            log!(s, "{r}");
            let at = bytes.at;
            bytes.check(&buf[..r.ok()]);
            bytes.at = at;
        }
        let r = io::recv(fd, &mut buf, MSG_PEEK | MSG_TRUNC);
        log!(s, "{r} {}", net::queued(fd));
    }
}

fn thrown_away(s: &Side, fd: Fd, bytes: &mut Bytes) {
    let mut buf = vec![0x55; TOTAL];
    for size in [7000, 24_000, 40_000] {
        let r = io::recv(fd, &mut buf[..size], MSG_TRUNC);
        log!(s, "{r} untouched {}", buf.iter().all(|b| *b == 0x55));
        bytes.at += r.ok();
    }
}

fn readiness(s: &Side, fd: Fd, bytes: &mut Bytes) {
    log!(s, "{}", wait::poll(&[(fd, POLLIN | POLLRDHUP)], -1));
    take(fd, bytes, 40_000);
    log!(s, "{}", wait::poll(&[(fd, POLLIN)], 0));
    take(fd, bytes, TOTAL);
    log!(s, "{}", wait::poll(&[(fd, POLLIN)], 0));
}

fn edges(s: &Side, fd: Fd, bytes: &mut Bytes) {
    let set = wait::epoll();
    wait::add(set, fd, libc::EPOLLIN | libc::EPOLLET, 7).ok();
    log!(s, "{}", wait::epoll_wait(set, 4, -1));
    take(fd, bytes, 30_100);
    log!(s, "{}", wait::epoll_wait(set, 4, 0));
    wait::modify(set, fd, libc::EPOLLIN, 8).ok();
    log!(s, "{}", wait::epoll_wait(set, 4, -1));
    take(fd, bytes, TOTAL);
    log!(s, "{}", wait::epoll_wait(set, 4, 0));
}

/// What goes by a pipe of the kernel comes from there: the stream goes back with all that is unread.
fn splices(s: &Side, fd: Fd, bytes: &mut Bytes) {
    take(fd, bytes, 10_001);
    let (from, to) = net::pipe();
    let mut buf = [0; 5000];
    let mut left = buf.len();
    while left > 0 {
        left -= io::splice(fd, to, left).ok();
    }
    let mut got = 0;
    while got < buf.len() {
        got += io::read(from, &mut buf[got..]).ok();
    }
    bytes.check(&buf);
    log!(s, "{}", net::queued(fd) as usize == TOTAL - bytes.at);
}

fn passes_on(s: &Side, fd: Fd, bytes: &mut Bytes) {
    take(fd, bytes, 31_000);
    let (one, two) = net::unix_pair(libc::SOCK_SEQPACKET);
    pass::send_fd(one, fd);
    let other = pass::recv_fd(two, 0);
    take(other, bytes, 70_000);
    log!(s, "{}", net::queued(fd));
}

fn forks(s: &Side, fd: Fd, bytes: &mut Bytes) {
    for to in [20_000, 50_000, 80_000] {
        let before = bytes.at;
        let child = proc::fork(|| {
            take(fd, bytes, before + 10_000);
            0
        });
        log!(s, "{}", proc::wait_child(child));
        bytes.at = before + 10_000;
        take(fd, bytes, to);
    }
}

fn shuts(s: &Side, fd: Fd, bytes: &mut Bytes) {
    take(fd, bytes, 100);
    log!(s, "{}", net::shutdown(fd, libc::SHUT_RD));
    log!(s, "{}", wait::poll(&[(fd, POLLIN | POLLRDHUP)], 0));
}

/// A sends and ends in some way; B reads when it has gone.
fn sender(s: &Side, end: fn(&Side, Fd)) {
    let fd = used(s);
    let (mut bytes, mut room) = (Bytes::new(201), Room::new(4095, TOTAL));
    if s.a() {
        send_several(fd, &mut bytes, &mut room);
        end(s, fd);
        spoil(room.part(TOTAL));
        return;
    }
    s.wait_gone();
    let (got, last) = io::recv_to_end(fd);
    log!(s, "{} {last}", got.len());
    bytes.check(&got[..TOTAL]);
    log!(s, "{}", crate::side::hash(&got[TOTAL..]));
}

/// A filter of system calls that allows everything.
fn sandbox() {
    const ALLOW: u32 = 0x7fff_0000;
    let instruction = libc::sock_filter {
        code: 6,
        jt: 0,
        jf: 0,
        k: ALLOW,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: (&raw const instruction).cast_mut(),
    };
    // SAFETY: a filter of one instruction.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program), 0);
    }
}

fn opens_and_sends(s: &Side, fd: Fd) {
    // SAFETY: a C string.
    let stream = unsafe { libc::fdopen(net::dup(fd).fd(), c"w".as_ptr()) };
    log!(s, "{}", !stream.is_null());
    log!(s, "{}", io::send_all(fd, &[7; 1000]));
}

fn forks_and_sends(s: &Side, fd: Fd) {
    let child = proc::fork(|| {
        io::send_all(fd, &[8; 10_000]).ok();
        0
    });
    log!(s, "{}", proc::wait_child(child));
    log!(s, "{}", io::send_all(fd, &[9; 10_000]));
}

/// The program that the reader becomes finds what it has not read. (Its own output is what is compared.)
fn reader_executes(s: &Side) {
    let fd = used(s);
    let (mut bytes, mut room) = (Bytes::new(206), Room::new(2000, TOTAL));
    if s.a() {
        send_several(fd, &mut bytes, &mut room);
        s.sync("sent");
        s.wait_gone();
        return;
    }
    s.sync("sent");
    wait::wait_queued(fd, TOTAL as i32);
    take(fd, &mut bytes, 31_000);
    net::dup2(fd, 0).ok();
    let script = format!("echo B $(head -c {} | cksum)", TOTAL - bytes.at);
    proc::exec(&["/bin/bash", "--norc", "-c", &script], true);
}

/// The reader leaves most of it: nobody waits for it any more, and the sender's memory is its own.
fn reader_goes(s: &Side, killed: bool) {
    let fd = used(s);
    let (mut bytes, mut room) = (Bytes::new(202), Room::new(64, TOTAL));
    if s.a() {
        send_several(fd, &mut bytes, &mut room);
    }
    s.sync("sent");
    if !s.a() {
        wait::wait_queued(fd, TOTAL as i32);
        take(fd, &mut bytes, 40_000);
        if killed {
            proc::die();
        }
        net::close(fd).ok();
        return;
    }
    wait::wait_for(fd, libc::POLLHUP);
    spoil(room.part(TOTAL));
    log!(s, "{}", io::send(fd, room.part(TOTAL), MSG_NOSIGNAL));
    log!(s, "{}", io::send(fd, room.part(TOTAL), MSG_NOSIGNAL));
    log!(s, "{}", io::recv(fd, &mut [0; 1], 0));
    net::close(fd).ok();
    spoil(room.part(TOTAL));
}

/// A sender that does not wait sends as much as there is room for.
fn until_full(s: &Side) {
    const SIZE: usize = 50_001;
    let fd = used(s);
    let mut bytes = Bytes::new(203);
    for _ in 0..3 {
        if s.a() {
            let mut sent = 0;
            let r = loop {
                let mut room = Room::new(sent % 4096, SIZE);
                let part = room.part(SIZE);
                let at = bytes.at;
                bytes.fill(part);
                let r = io::send(fd, part, MSG_DONTWAIT);
                spoil(part);
                let n = usize::try_from(r.0).unwrap_or(0);
                bytes.at = at + n;
                sent += n;
                if n == 0 {
                    break r;
                }
            };
            log!(s, "{r}");
            s.tell(bytes.at as u64);
        } else {
            let to = s.hear() as usize;
            take(fd, &mut bytes, to);
            log!(s, "then {}", io::recv(fd, &mut [0; 1], MSG_DONTWAIT));
        }
        s.sync("read");
    }
}

/// Large buffers and small ones in one call.
fn from_vectors(s: &Side, by_message: bool) {
    const PARTS: [usize; 6] = [100, 30_000, 0, 3, 28_677, 26_000];
    let fd = used(s);
    let (mut bytes, mut room) = (Bytes::new(207), Room::new(9, TOTAL));
    if s.a() {
        let all = room.part(TOTAL);
        bytes.fill(all);
        let mut rest: &[u8] = all;
        let parts = PARTS.map(|n| {
            let (part, after) = rest.split_at(n);
            rest = after;
            part
        });
        let r = if by_message {
            io::sendmsg(fd, &parts, MSG_NOSIGNAL)
        } else {
            io::writev(fd, &parts)
        };
        log!(s, "{r}");
        spoil(all);
    }
    s.sync("sent");
    if !s.a() {
        take(fd, &mut bytes, TOTAL);
    }
    s.sync("read");
}

/// The same memory on two connections at once.
fn two_streams(s: &Side) {
    let fds = [used(s), used(s)];
    let (mut bytes, mut room) = (Bytes::new(204), Room::new(5, TOTAL));
    if s.a() {
        let all = room.part(TOTAL);
        bytes.fill(all);
        for (size, fd) in [(TOTAL, fds[0]), (60_000, fds[1]), (20_000, fds[0])] {
            log!(s, "{}", io::send_all(fd, &all[..size]));
        }
        spoil(all);
    }
    s.sync("sent");
    if !s.a() {
        take(fds[1], &mut bytes, 60_000);
        bytes.at = 0;
        take(fds[0], &mut bytes, TOTAL);
        bytes.at = 0;
        take(fds[0], &mut bytes, 20_000);
    }
    s.sync("read");
}

fn both_ways(s: &Side) {
    let fd = used(s);
    let (mut out, mut room) = (Bytes::new(205), Room::new(1, TOTAL));
    let mut incoming = Bytes::new(205);
    for round in 1..6 {
        send_several(fd, &mut out, &mut room);
        s.sync("sent");
        take(fd, &mut incoming, round * TOTAL);
        s.sync("read");
    }
}
