//! Streams that several processes hold after fork, under load: all of them send much, there are many of them
//! or of the streams, and some are stopped.

use super::Case;
use super::sharing::{beside_echo, there_and_back, warm_pair};
use crate::log;
use crate::side::{Side, hash};
use crate::sys::{Fd, io, net, proc, wait};

pub(super) const CROWD: &str = "there are more holders than seats";

pub(super) const CASES: &[Case] = &[
    Case::pair("share_both_send_much", share_both_send_much).processes_only(),
    Case::pair("share_while_thread_sends", share_while_thread_sends).processes_only(),
    Case::pair("share_many_connections", share_many_connections).processes_only(),
    Case::pair("share_with_a_crowd", share_with_a_crowd)
        .processes_only()
        .any_path(CROWD),
    Case::pair("share_server_of_many", share_server_of_many).processes_only(),
    Case::pair("share_left_to_child_at_once", share_left_to_child).processes_only(),
    Case::pair("share_stopped_sender", share_stopped_sender).processes_only(),
];

/// Two processes send at once. Each one's bytes stay in order, and none is lost.
fn share_both_send_much(s: &Side) {
    let fd = warm_pair(s);
    const EACH: usize = 3 << 20;
    if !s.a() {
        let (got, last) = io::recv_to_end(fd);
        let of = |high: bool| -> Vec<u8> {
            let mine = |b: &u8| (*b >= 128) == high;
            got.iter().copied().filter(mine).collect()
        };
        for half in [of(false), of(true)] {
            let in_order = half.windows(2).all(|w| w[1] & 127 == (w[0] + 1) & 127);
            log!(s, "{} {in_order} {:x}", half.len(), hash(&half));
        }
        log!(s, "{last}");
        s.sync("done");
        return;
    }
    let bytes = |high: u8| -> Vec<u8> { (0..EACH).map(|i| high | (i & 127) as u8).collect() };
    let child = proc::fork(|| {
        for piece in bytes(128).chunks(10_000) {
            io::send_all(fd, piece).ok();
        }
        0
    });
    for piece in bytes(0).chunks(70_000) {
        io::send_all(fd, piece).ok();
    }
    log!(s, "{}", proc::wait_child(child));
    net::close(fd).ok();
    s.sync("done");
}

/// A fork in one thread while another is inside send; the child sends too, after it.
fn share_while_thread_sends(s: &Side) {
    let fd = warm_pair(s);
    const MUCH: usize = 8 << 20;
    if !s.a() {
        let (got, last) = io::recv_to_end(fd);
        let a = got.iter().filter(|b| **b == b'a').count();
        log!(s, "{a} {} {last}", got.len() - a);
        s.sync("done");
        return;
    }
    let sender = std::thread::spawn(move || io::send_all(fd, &vec![b'a'; MUCH]).ok());
    let children: Vec<i32> = (0..5)
        .map(|_| {
            proc::fork(|| {
                io::send_all(fd, b"child").ok();
                0
            })
        })
        .collect();
    for child in children {
        log!(s, "{}", proc::wait_child(child));
    }
    sender.join().unwrap();
    net::close(fd).ok();
    s.sync("done");
}

/// A program with many connections forks; the child uses every other one, the parent the rest, then
/// all.
fn share_many_connections(s: &Side) {
    let fds: Vec<Fd> = (0..60).map(|_| s.pair()).collect();
    for &fd in &fds {
        s.always_warm_up(fd);
    }
    if !s.a() {
        for round in 0..2 {
            for (i, &fd) in fds.iter().enumerate() {
                let (got, _) = io::recv_exact(fd, 3);
                if i < 4 {
                    log!(s, "{round} {got:?}");
                }
                io::send_all(fd, b"ack").ok();
            }
        }
        s.sync("done");
        return;
    }
    let child = proc::fork(|| {
        for &fd in fds.iter().step_by(2) {
            io::send_all(fd, b"abc").ok();
            assert_eq!(io::recv_exact(fd, 3).0, b"ack");
        }
        0
    });
    for &fd in fds.iter().skip(1).step_by(2) {
        io::send_all(fd, b"def").ok();
        assert_eq!(io::recv_exact(fd, 3).0, b"ack");
    }
    log!(s, "{}", proc::wait_child(child));
    for &fd in &fds {
        io::send_all(fd, b"ghi").ok();
        assert_eq!(io::recv_exact(fd, 3).0, b"ack");
    }
    s.sync("done");
}

/// More children than there are seats, all alive at once.
fn share_with_a_crowd(s: &Side) {
    let Some(fd) = beside_echo(s) else { return };
    let children: Vec<(i32, Fd)> = (0..12u8)
        .map(|i| {
            let (go_r, go_w) = net::pipe();
            let child = proc::fork(|| {
                io::read(go_r, &mut [0; 1]).ok();
                there_and_back(fd, i);
                0
            });
            (child, go_w)
        })
        .collect();
    for (child, go) in children {
        there_and_back(fd, 200);
        io::write(go, b"!").ok();
        log!(s, "{}", proc::wait_child(child));
    }
    there_and_back(fd, 201);
    net::close(fd).ok();
    s.sync("done");
}

/// A server forks a child for each connection and goes on accepting while they serve: what it has closed
/// is used by others.
fn share_server_of_many(s: &Side) {
    const AT_ONCE: usize = 12;
    const ROUNDS: usize = 3;
    if s.accepts() {
        let (lis, at) = net::listener(net::loopback(), 64);
        s.tell(u64::from(at.port()));
        let mut children = Vec::new();
        for _ in 0..AT_ONCE * ROUNDS {
            let fd = net::accept(lis).fd();
            children.push(proc::fork(|| {
                net::close(lis).ok();
                let mut buf = [0u8; 512];
                loop {
                    let n = io::recv(fd, &mut buf, 0).0;
                    if n <= 0 {
                        return n as i32;
                    }
                    io::send_all(fd, &buf[..n as usize]).ok();
                }
            }));
            net::close(fd).ok();
        }
        for child in children {
            log!(s, "{}", proc::wait_child(child));
        }
    } else {
        let mut to = net::loopback();
        to.set_port(s.hear() as u16);
        let mut old: Vec<Fd> = Vec::new();
        for round in 0..ROUNDS {
            let new: Vec<Fd> = (0..AT_ONCE)
                .map(|_| {
                    let fd = net::socket_for(to, 0);
                    net::connect(fd, to).ok();
                    fd
                })
                .collect();
            for turn in 0..40u8 {
                for (i, &fd) in old.iter().chain(&new).enumerate() {
                    let word = [turn, i as u8, round as u8, 7];
                    io::send_all(fd, &word).ok();
                    assert_eq!(io::recv_exact(fd, 4).0, word);
                }
            }
            for fd in std::mem::replace(&mut old, new) {
                net::close(fd).ok();
            }
        }
        for fd in old {
            net::close(fd).ok();
        }
        log!(s, "all answered");
    }
    s.sync("done");
}

/// A server has answered for a while when it forks, and closes its own descriptor at once: the child goes on, whatever the parent was about
/// with the connection just then. All on one core, where a thread is likely to be interrupted in the middle of that.
fn share_left_to_child(s: &Side) {
    const ROUNDS: usize = 20;
    // SAFETY: plain bits, of which the kernel writes as many as it is told of.
    unsafe {
        let mut cores: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&cores), &raw mut cores);
        let first = (0..libc::CPU_SETSIZE as usize).find(|&core| libc::CPU_ISSET(core, &cores));
        libc::CPU_ZERO(&mut cores);
        libc::CPU_SET(first.unwrap_or(0), &mut cores);
        libc::sched_setaffinity(0, size_of_val(&cores), &raw const cores);
    }
    let block = vec![b'k'; 300_000];
    let sizes = || (0..ROUNDS).map(|round| [1, 1000, 100_000, 7, block.len()][round % 5]);
    for _ in 0..30 {
        let fd = s.pair();
        let answer = || {
            sizes().all(|n| {
                io::recv_exact(fd, n).0.len() == n && io::send_all(fd, &block[..n]).0 == n as i64
            })
        };
        let ask = || {
            sizes().all(|n| {
                io::send_all(fd, &block[..n]).0 == n as i64 && io::recv_exact(fd, n).0 == block[..n]
            })
        };
        if s.a() {
            log!(s, "{} {}", ask(), ask());
            net::close(fd).ok();
        } else {
            log!(s, "{}", answer());
            let child = proc::fork(|| i32::from(!answer()));
            net::close(fd).ok();
            log!(s, "{}", proc::wait_child(child));
        }
    }
    s.sync("done");
}

/// A holder asleep for room is stopped while another shuts the stream: once it goes on, it hears of it.
fn share_stopped_sender(s: &Side) {
    let fd = warm_pair(s);
    if !s.a() {
        s.sync("over");
        return;
    }
    let child = proc::fork(|| {
        let bytes = vec![1u8; 64 << 20];
        let sent = io::send(fd, &bytes, libc::MSG_NOSIGNAL);
        i32::from(sent.0 >= bytes.len() as i64)
    });
    proc::stop_asleep(child);
    std::thread::sleep(wait::millis(60));
    net::shutdown(fd, libc::SHUT_WR).ok();
    std::thread::sleep(wait::millis(100));
    proc::kill(child, libc::SIGCONT).ok();
    log!(s, "{}", proc::wait_child(child));
    s.sync("over");
}
