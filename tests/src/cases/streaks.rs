//! Many small messages in a row, and then something else: whatever carries them, none may wait for what does not come.

use super::Case;
use crate::log;
use crate::side::Side;
use crate::sys::{Fd, io, net, proc, wait};
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    Case::pair("streak_then_silence", streak_then_silence),
    Case::pair("streak_then_spinning", streak_then_spinning),
    Case::pair("streak_then_other_connection", streak_then_other_connection),
    Case::pair("streak_then_shutdown", |s| streak_then_end(s, shut)).processes_only(),
    Case::pair("streak_then_close", |s| streak_then_end(s, close)).processes_only(),
    Case::pair("streak_then_killed", |s| {
        streak_then_end(s, |_| proc::die())
    })
    .processes_only(),
    Case::pair("streak_then_aborted", |s| {
        streak_then_end(s, |_| std::process::abort())
    })
    .processes_only(),
    Case::pair("streak_then_exit", |s| {
        streak_then_end(s, |_| std::process::exit(0))
    })
    .processes_only(),
    Case::pair("full_then_killed", |s| {
        full_then_end(s, 5000, || proc::die())
    })
    .processes_only(),
    Case::pair("full_then_aborted", |s| {
        full_then_end(s, 5000, || std::process::abort())
    })
    .processes_only(),
    Case::pair("full_then_killed_by_little", |s| {
        full_then_end(s, 48, || proc::die())
    })
    .processes_only(),
    Case::pair("full_then_exit", |s| {
        full_then_end(s, 5000, || std::process::exit(0))
    })
    .processes_only(),
    Case::moving("streak_then_fork", streak_then_fork),
    Case::pair("streaks_of_two_threads", streaks_of_two_threads),
    Case::pair("streak_nonblocking", streak_nonblocking),
    Case::pair("streak_and_large", streak_and_large),
    Case::pair("streak_counted_as_unsent", streak_counted_as_unsent),
];

/// Messages of a streak, and bytes of each.
const MANY: usize = 3000;
const SIZE: usize = 64;

fn message(n: usize) -> [u8; SIZE] {
    std::array::from_fn(|i| (n * 31 + i * 7) as u8)
}

fn streak(fd: Fd) {
    for n in 0..MANY {
        io::send_all(fd, &message(n)).ok();
    }
}

/// Takes as much as one streak and says whether it is one.
fn take(s: &Side, fd: Fd) {
    let (got, _) = io::recv_exact(fd, MANY * SIZE);
    let right = got.chunks(SIZE).enumerate().all(|(n, m)| m == message(n));
    log!(s, "{} {right}", got.len());
}

/// The sender waits for something that has to do with the stream, but not by a socket.
fn streak_then_silence(s: &Side) {
    let fd = s.pair();
    for turn in 0..20 {
        if s.a() {
            streak(fd);
            log!(s, "{}", s.hear());
        } else {
            take(s, fd);
            s.tell(turn);
        }
    }
    s.sync("done");
}

/// The sender computes until the other end has all of it, and makes no call that waits.
fn streak_then_spinning(s: &Side) {
    let fd = s.pair();
    for _ in 0..20 {
        if s.a() {
            streak(fd);
            let mut answer = [0; 1];
            while io::recv(fd, &mut answer, libc::MSG_DONTWAIT).is(libc::EAGAIN) {
                std::hint::spin_loop();
            }
            log!(s, "{}", answer[0]);
        } else {
            take(s, fd);
            io::send_all(fd, b"!").ok();
        }
    }
    s.sync("done");
}

fn streak_then_other_connection(s: &Side) {
    let (one, two) = (s.pair(), s.pair());
    for _ in 0..20 {
        if s.a() {
            streak(one);
            io::send_all(two, b"look").ok();
            log!(s, "{}", io::recv_exact(two, 2).0.len());
        } else {
            // (in this order: by credits a streak that nobody reads has no room)
            take(s, one);
            log!(s, "{}", io::recv_exact(two, 4).0.len());
            io::send_all(two, b"ok").ok();
        }
    }
    s.sync("done");
}

fn shut(fd: Fd) {
    net::shutdown(fd, libc::SHUT_WR).ok();
}

fn close(fd: Fd) {
    net::close(fd).ok();
}

fn streak_then_end(s: &Side, ends: fn(Fd)) {
    let fd = s.pair();
    if s.a() {
        streak(fd);
        ends(fd);
        s.wait_gone();
        return;
    }
    take(s, fd);
    log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
}

/// The kernel is full when the sender ends: what its sends have said to have taken arrives nevertheless.
fn full_then_end(s: &Side, size: usize, ends: fn()) {
    let fd = s.pair();
    if s.a() {
        net::setopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, 32768).ok();
        net::set_nonblocking(fd, true).ok();
        let mut taken = 0;
        loop {
            match io::send(fd, &vec![7; size], 0) {
                sent if sent.0 > 0 => taken += sent.ok(),
                full => break log!(s, "{full}"),
            }
        }
        s.tell(taken as u64);
        ends();
        s.wait_gone();
        return;
    }
    let taken = s.hear();
    std::thread::sleep(Duration::from_millis(50));
    let (got, end) = io::recv_to_end(fd);
    log!(s, "{} {end}", got.len() as u64 == taken);
}

/// The child goes on where the parent was.
fn streak_then_fork(s: &Side) {
    let fd = s.pair();
    if s.a() {
        streak(fd);
        let child = proc::fork(move || {
            streak(fd);
            0
        });
        log!(s, "{}", proc::wait_child(child));
        streak(fd);
    } else {
        for _ in 0..3 {
            take(s, fd);
        }
    }
    s.sync("done");
}

/// Messages of two threads may be mixed, but none is cut.
fn streaks_of_two_threads(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let threads = [1u8, 2].map(|who| {
            std::thread::spawn(move || {
                for n in 0..MANY {
                    let mut m = message(n);
                    m[0] = who;
                    io::send_all(fd, &m).ok();
                }
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
    } else {
        let (got, _) = io::recv_exact(fd, 2 * MANY * SIZE);
        for who in [1, 2] {
            let own = got.chunks(SIZE).filter(|m| m[0] == who);
            let right = own.enumerate().all(|(n, m)| m[1..] == message(n)[1..]);
            log!(s, "{right}");
        }
        log!(s, "{}", got.len());
    }
    s.sync("done");
}

/// A sender that does not block, and asks when it may go on.
fn streak_nonblocking(s: &Side) {
    let fd = s.pair();
    let most = 40 * MANY;
    if s.a() {
        net::set_nonblocking(fd, true).ok();
        let mut n = 0;
        while n < most {
            let m = message(n);
            let mut left = &m[..];
            while !left.is_empty() {
                let r = io::send(fd, left, libc::MSG_NOSIGNAL);
                if r.is(libc::EAGAIN) {
                    wait::wait_for(fd, libc::POLLOUT);
                } else {
                    left = &left[r.ok()..];
                }
            }
            n += 1;
        }
        log!(s, "{}", s.hear());
    } else {
        std::thread::sleep(wait::millis(50)); // (so that it fills up)
        let (got, _) = io::recv_exact(fd, most * SIZE);
        let right = got.chunks(SIZE).enumerate().all(|(n, m)| m == message(n));
        log!(s, "{} {right}", got.len());
        s.tell(1);
    }
    s.sync("done");
}

/// Large ones in between keep their places.
fn streak_and_large(s: &Side) {
    let fd = s.pair();
    let large = vec![5u8; 100_000];
    for _ in 0..10 {
        if s.a() {
            streak(fd);
            io::send_all(fd, &large).ok();
            streak(fd);
        } else {
            take(s, fd);
            let (got, _) = io::recv_exact(fd, large.len());
            log!(s, "{}", got == large);
            take(s, fd);
        }
    }
    s.sync("done");
}

/// What has not been acknowledged is counted, wherever it is.
fn streak_counted_as_unsent(s: &Side) {
    let fd = s.pair();
    if s.a() {
        for _ in 0..20 {
            streak(fd);
            let all_there = wait::eventually(|| net::ioctl_int(fd, libc::TIOCOUTQ).1 == 0);
            log!(s, "{all_there}");
            s.sync("sent");
        }
    } else {
        for _ in 0..20 {
            take(s, fd);
            s.sync("sent");
        }
    }
    s.sync("done");
}
