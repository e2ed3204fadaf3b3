//! What happens to processes while large messages are under way: forks and new programs beside a sender or
//! a reader, death of either end, stops of either end, streams that go back to the kernel. No byte is lost
//! or taken from where it is no more, and nobody waits for one who has stopped.

use super::Case;
use super::MOVES;
use super::zcopy::{Bytes, Room, Waiter, Way, send_and_spoil, spoil};
use super::zcopy_read::introduce;
use crate::log;
use crate::side::{Random, Side, text};
use crate::sys::{Fd, call, io, net, proc, wait};
use libc::{MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, MSG_WAITALL, SIGCONT, SIGKILL};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;

pub(super) const CASES: &[Case] = &[
    alone("zcopy_fork_beside_sender", |s| fork_beside(s, true)),
    alone("zcopy_fork_beside_reader", |s| fork_beside(s, false)),
    alone("zcopy_child_sends", child_sends),
    alone("zcopy_child_alone", child_alone),
    alone("zcopy_exec_beside_sender", exec_beside_sender),
    alone("zcopy_exec_beside_reader", exec_beside_reader),
    alone("zcopy_sender_killed", |s| killed(s, true)),
    alone("zcopy_reader_killed", |s| killed(s, false)),
    alone("zcopy_look_at_killed", look_at_killed),
    alone("zcopy_sender_stopped", |s| stopped(s, true)),
    alone("zcopy_reader_stopped", |s| stopped(s, false)),
    alone("zcopy_stdio_beside_sender", |s| stdio_beside(s, true)),
    alone("zcopy_stdio_beside_reader", |s| stdio_beside(s, false)),
];

/// Two processes, from one of which the stream may move on.
const fn alone(name: &'static str, body: fn(&Side)) -> Case {
    Case::pair(name, body)
        .processes_only()
        .any_path(MOVES)
        .large(0)
}

const MIB: usize = 1 << 20;
const BIG: usize = 12 * MIB;

/// A thread that sends one message and spoils it then.
fn sender(fd: Fd, seed: u64, size: usize) -> JoinHandle<usize> {
    std::thread::spawn(move || {
        let mut bytes = Bytes::new(seed);
        let waiter = Waiter::new(fd, Way::Block, 0);
        send_and_spoil(waiter, &mut bytes, Room::new(1, size).part(size));
        bytes.at
    })
}

/// A thread that reads so many bytes, by large reads.
fn reader(fd: Fd, seed: u64, size: usize) -> JoinHandle<usize> {
    std::thread::spawn(move || {
        let mut bytes = Bytes::new(seed);
        let mut room = Room::new(5, 3 * MIB);
        while bytes.at < size {
            let part = room.part((3 * MIB).min(size - bytes.at));
            let n = io::recv(fd, part, 0).ok();
            assert!(n > 0, "the end after {}", bytes.at);
            bytes.check(&part[..n]);
        }
        bytes.at
    })
}

/// Forks while another thread is inside a send or a read. The child's copies of their buffers are its own.
fn fork_beside(s: &Side, beside_sender: bool) {
    let fd = s.pair();
    introduce(s, fd);
    if s.a() == beside_sender {
        let other = if s.a() {
            sender(fd, 130, BIG)
        } else {
            reader(fd, 130, BIG)
        };
        let mut children = Vec::new();
        for round in 0..4 {
            std::thread::sleep(wait::millis(2 * round));
            children.push(proc::fork(|| {
                // (whatever is on the heap: the buffers of the other thread among it)
                let mut mine = vec![0xddu8; 2 * MIB];
                spoil(&mut mine);
                std::thread::sleep(wait::millis(10));
                net::close(fd).ok();
                i32::from(mine[0])
            }));
        }
        s.tell(1);
        log!(s, "{}", other.join().unwrap());
        for child in children {
            log!(s, "{}", proc::wait_child(child));
        }
    } else if s.a() {
        s.hear();
        log!(s, "{}", sender(fd, 130, BIG).join().unwrap());
    } else {
        s.hear();
        log!(s, "{}", reader(fd, 130, BIG).join().unwrap());
    }
    s.sync("done");
}

/// Parent and child take turns at sending large messages.
fn child_sends(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    let size = 700_000;
    let mut bytes = Bytes::new(131);
    if s.a() {
        let waiter = Waiter::new(fd, Way::Block, 0);
        for _ in 0..5 {
            send_and_spoil(waiter, &mut bytes, Room::new(1, size).part(size));
            let mut theirs = Bytes::new(131);
            theirs.at = bytes.at;
            let child = proc::fork(|| {
                send_and_spoil(waiter, &mut theirs, Room::new(2, size).part(size));
                0
            });
            log!(s, "{}", proc::wait_child(child));
            bytes.at += size;
        }
    } else {
        log!(s, "{}", reader(fd, 131, 10 * size).join().unwrap());
    }
    s.sync("done");
}

/// The child alone goes on, as servers' children do.
fn child_alone(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    if s.a() {
        let child = proc::fork(|| {
            let sent = sender(fd, 132, BIG).join().unwrap();
            let got = reader(fd, 133, BIG).join().unwrap();
            i32::from((sent, got) != (BIG, BIG))
        });
        net::close(fd).ok();
        log!(s, "{}", proc::wait_child(child));
    } else {
        log!(s, "{}", reader(fd, 132, BIG).join().unwrap());
        log!(s, "{}", sender(fd, 133, BIG).join().unwrap());
    }
    s.sync("done");
}

/// A new program while another thread is inside a large send: what has come of that is a beginning of it,
/// and the program's own bytes follow.
fn exec_beside_sender(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    if s.a() {
        let _sender = sender(fd, 134, 64 * MIB);
        s.hear();
        net::dup2(fd, 1).ok();
        proc::exec(&["/bin/echo", "-n", "that was the new program"], true);
        log!(s, "exec failed");
    } else {
        let mut all = vec![0; 2 * MIB];
        let n = io::recv(fd, &mut all, 0).ok();
        all.truncate(n);
        s.tell(1);
        let (rest, last) = io::recv_to_end(fd);
        all.extend(rest);
        let tail = b"that was the new program";
        let said = all.ends_with(tail);
        Bytes::new(134).check(&all[..all.len() - tail.len()]);
        log!(s, "{last} {said}");
    }
}

/// A new program while another thread waits in a large read: nothing comes before it, and it gets what comes.
fn exec_beside_reader(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    if s.a() {
        // The new program runs: what came before it would be the waiting thread's.
        log!(s, "{:?}", text(&io::recv_exact(fd, 3).0));
        io::send_all(fd, &vec![b'x'; 300_000]).ok();
        net::shutdown(fd, libc::SHUT_WR).ok();
        let (got, _) = io::recv_to_end(fd);
        log!(s, "{}", String::from_utf8_lossy(&got));
    } else {
        std::thread::spawn(move || {
            let mut buf = vec![0; MIB];
            io::recv(fd, &mut buf, 0)
        });
        std::thread::sleep(wait::millis(30));
        net::dup2(fd, 0).ok();
        net::dup2(fd, 1).ok();
        net::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC).ok();
        proc::exec(&["/bin/sh", "-c", "echo up; wc -c | tr -d ' \\n'"], true);
        log!(s, "exec failed");
    }
}

/// Either end is killed in the middle of large messages, at a different time each round. What arrives is a true
/// beginning; all that was sent arrives if the reader lives; and the survivor is told.
fn killed(s: &Side, sends: bool) {
    let mut random = Random::new(135);
    for round in 0..8 {
        let fd = s.pair();
        introduce(s, fd);
        let pause = random.below(6000) as u64;
        let dies = s.a() == sends;
        if dies {
            let child = proc::fork(|| {
                s.tell(1);
                let mut bytes = Bytes::new(136);
                let mut room = Room::new(round, 900_000);
                loop {
                    if s.a() {
                        let waiter = Waiter::new(fd, Way::Block, 0);
                        send_and_spoil(waiter, &mut bytes, room.part(900_000));
                    } else {
                        let part = room.part(500_000);
                        let n = io::recv(fd, part, 0).ok();
                        bytes.check(&part[..n]);
                    }
                }
            });
            net::close(fd).ok();
            s.hear();
            std::thread::sleep(std::time::Duration::from_micros(pause));
            // Not waited for: it stays as a zombie until its peer is done.
            proc::kill(child, SIGKILL).ok();
            s.sync("heard");
            log!(s, "{}", proc::wait_child(child));
        } else {
            s.hear();
            s.tell(1);
            let mut bytes = Bytes::new(136);
            let mut room = Room::new(3, 800_000);
            if s.a() {
                let mut r = crate::sys::Ret(0);
                while r.0 >= 0 {
                    let part = room.part(800_000);
                    let at = bytes.at;
                    bytes.fill(part);
                    r = io::send(fd, part, MSG_NOSIGNAL);
                    spoil(part);
                    bytes.at = at + r.0.max(0) as usize;
                }
                log!(s, "{}", r.is(libc::ECONNRESET) || r.is(libc::EPIPE));
            } else {
                loop {
                    let part = room.part(800_000);
                    let r = io::recv(fd, part, 0);
                    if r.0 <= 0 {
                        log!(s, "{r}");
                        break;
                    }
                    bytes.check(&part[..r.ok()]);
                }
            }
            s.sync("heard");
            net::close(fd).ok();
        }
    }
    s.sync("done");
}

/// The sender is killed within a large message that nobody has begun to read: a look at it that waits comes back. (What was lent went
/// with its lender; nothing says how much that is.)
fn look_at_killed(s: &Side) {
    for flags in [MSG_PEEK, MSG_PEEK | MSG_WAITALL] {
        let fd = s.pair();
        introduce(s, fd);
        if s.a() {
            let child = proc::fork(|| {
                s.tell(1);
                sender(fd, 139, BIG).join().map_or(1, |_| 0)
            });
            net::close(fd).ok();
            s.hear();
            std::thread::sleep(wait::millis(20));
            proc::kill(child, SIGKILL).ok();
            log!(s, "{}", proc::wait_child(child));
            s.tell(1);
        } else {
            s.hear();
            s.tell(1);
            s.hear();
            let r = io::recv(fd, &mut vec![0; 5000], flags);
            // (over software iWARP one that dies within a frame leaves a reset)
            log!(s, "{}", r.0 >= 0 || r.is(libc::ECONNRESET));
            net::close(fd).ok();
        }
        s.sync("next");
    }
}

/// One end is stopped and goes on, at any time; the other's calls that do not wait come back meanwhile, and
/// every byte arrives.
fn stopped(s: &Side, stops_sender: bool) {
    let fd = s.pair();
    introduce(s, fd);
    let over = Arc::new(AtomicBool::new(false));
    let (out, back) = if s.a() { (137, 138) } else { (138, 137) };
    let mut sent = Bytes::new(out);
    let mut got = Bytes::new(back);
    let mut room = Room::new(1, MIB);
    let mut target = Room::new(2, MIB);
    let rounds = 120;
    if s.a() == stops_sender {
        // The one that is stopped: sends and reads without end, both of it large.
        s.tell(u64::from(std::process::id()));
        let stop = over.clone();
        let thread = std::thread::spawn(move || {
            let waiter = Waiter::new(fd, Way::Block, 0);
            while !stop.load(SeqCst) {
                send_and_spoil(waiter, &mut sent, room.part(300_000));
            }
            net::shutdown(fd, libc::SHUT_WR).ok();
        });
        let side = *s;
        let tells = std::thread::spawn(move || {
            side.hear();
            over.store(true, SeqCst);
        });
        loop {
            let part = target.part(MIB);
            let n = io::recv(fd, part, 0).ok();
            if n == 0 {
                break;
            }
            got.check(&part[..n]);
        }
        thread.join().unwrap();
        tells.join().unwrap();
        log!(s, "heard all");
    } else {
        let pid = s.hear() as i32;
        let mut random = Random::new(139);
        // Sends and reads what goes at once.
        let mut pending = 0;
        let mut step = |sends: bool| {
            let part = target.part(MIB);
            let r = io::recv(fd, part, MSG_DONTWAIT);
            if r.0 > 0 {
                got.check(&part[..r.ok()]);
            } else {
                assert!(r.0 == 0 || r.is(libc::EAGAIN), "{r}");
            }
            if pending == 0 && sends {
                sent.fill(room.part(MIB));
                pending = MIB;
            }
            if pending > 0 {
                let from = MIB - pending;
                let part = &mut room.part(MIB)[from..];
                let r = io::send(fd, part, MSG_DONTWAIT | MSG_NOSIGNAL);
                if r.0 > 0 {
                    spoil(&mut part[..r.ok()]);
                    pending -= r.ok();
                }
            }
            wait::poll(&[(fd, libc::POLLIN | libc::POLLOUT)], 0);
            (r.0 == 0, pending)
        };
        for _ in 0..rounds {
            for _ in 0..random.below(20) {
                step(true);
            }
            proc::stop(pid);
            for _ in 0..6 {
                step(true);
            }
            proc::kill(pid, SIGCONT).ok();
            std::thread::sleep(std::time::Duration::from_micros(random.below(1500) as u64));
        }
        s.tell(1);
        let mut shut = false;
        loop {
            let (end, pending) = step(false);
            if pending == 0 && !shut {
                net::shutdown(fd, libc::SHUT_WR).ok();
                shut = true;
            }
            if end && shut {
                break;
            }
        }
        log!(s, "all went both ways");
    }
    s.sync("done");
}

unsafe extern "C" {
    fn fdopen(fd: Fd, mode: *const libc::c_char) -> *mut libc::FILE;
}

/// A stdio stream is opened on the socket while another thread is inside a large send or read: the stream
/// goes back to the kernel at that byte.
fn stdio_beside(s: &Side, beside_sender: bool) {
    let fd = s.pair();
    introduce(s, fd);
    for round in 0..6 {
        let own = net::dup(fd).fd();
        if s.a() {
            let thread = sender(fd, 140 + round, BIG);
            if beside_sender {
                std::thread::sleep(wait::millis(round));
                let stream = call!(fdopen(own, c"r".as_ptr()).addr());
                log!(s, "{}", stream.0 != 0);
            }
            log!(s, "{}", thread.join().unwrap());
        } else {
            let thread = reader(fd, 140 + round, BIG);
            if !beside_sender {
                std::thread::sleep(wait::millis(round));
                let stream = call!(fdopen(own, c"w".as_ptr()).addr());
                log!(s, "{}", stream.0 != 0);
            }
            log!(s, "{}", thread.join().unwrap());
        }
        s.sync("round");
    }
}
