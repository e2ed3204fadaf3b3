//! Streams that several processes hold after fork, one of which is killed: asleep, in the middle of a call, about to ring the other end,
//! or on the way back to the kernel. The others go on from where it was, or are told of a reset.

use super::Case;
use super::sandbox::{end, enter_unseen, is, load};
use super::sharing::warm_pair;
use super::sharing_load::CROWD;
use crate::log;
use crate::side::Side;
use crate::sys::{Fd, io, net, proc, wait};
use libc::MSG_DONTWAIT;
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    Case::pair("share_killed_sleeper", share_killed_sleeper)
        .processes_only()
        .large(0),
    Case::pair("share_killed_holder", share_killed_holder)
        .processes_only()
        .large(0),
    Case::pair("share_killed_reader", share_killed_reader)
        .processes_only()
        .large(0),
    Case::pair("share_killed_heirs", share_killed_heirs)
        .processes_only()
        .large(0),
    Case::pair("share_killed_ringing", share_killed_ringing)
        .processes_only()
        .any_path(CROWD),
    Case::pair("share_killed_forking", share_killed_forking)
        .processes_only()
        .any_path(CROWD),
];

/// A holder is killed asleep in a read, with its bell on the way. The other sees bytes and the end as ever.
fn share_killed_sleeper(s: &Side) {
    let fd = warm_pair(s);
    if !s.a() {
        s.sync("killed");
        io::send_all(fd, b"x").ok();
        s.sync("sent");
        net::close(fd).ok();
        return;
    }
    let child = proc::fork(|| io::recv(fd, &mut [0; 1], 0).0 as i32);
    proc::Thread::of(child as u32, child).wait_asleep();
    proc::kill(child, libc::SIGKILL).ok();
    log!(s, "{}", proc::wait_child(child));
    s.sync("killed");
    s.sync("sent");
    log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
    log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
}

/// A holder is killed in the middle of sending much: what it had sent is followed by all of the other's.
fn share_killed_holder(s: &Side) {
    let fd = warm_pair(s);
    if !s.a() {
        let (got, last) = io::recv_to_end(fd);
        let mine: Vec<u8> = got.into_iter().filter(|b| *b < 128).collect();
        let in_order = mine.windows(2).all(|w| w[1] == (w[0] + 1) & 127);
        log!(s, "{} {in_order} {last}", mine.len());
        s.sync("done");
        return;
    }
    let mine: Vec<u8> = (0..128 * 400).map(|i| (i & 127) as u8).collect();
    for round in 0..12u64 {
        let child = proc::fork(|| {
            let bytes = vec![200u8; 300_000];
            loop {
                if io::send(fd, &bytes, 0).0 < 0 {
                    return 0;
                }
            }
        });
        std::thread::sleep(std::time::Duration::from_micros(300 + 217 * round));
        io::send_all(fd, &mine[..128 * 100]).ok();
        proc::kill(child, libc::SIGKILL).ok();
        let _ = proc::wait_child(child);
        io::send_all(fd, &mine).ok();
    }
    net::close(fd).ok();
    s.sync("done");
}

/// Children who were left a connection each, and are its only holders by then, are killed in the middle of a call. Connections of
/// their parent that come later are in nobody's hands.
fn share_killed_heirs(s: &Side) {
    for round in 0..48u64 {
        let fd = warm_pair(s);
        if s.a() {
            let child = proc::fork(|| {
                s.tell(1);
                // (many little pieces: most of the time goes by inside, not in waiting for the reader)
                let pieces = [&[7u8; 3][..]; 1024];
                // (a look in vain now and then, by which the library learns that nobody else has it)
                for i in 0u64.. {
                    if i.is_multiple_of(64) {
                        let _ = io::recv(fd, &mut [0], MSG_DONTWAIT);
                    }
                    io::writev(fd, &pieces).ok();
                }
                0
            });
            net::close(fd).ok();
            s.hear();
            std::thread::sleep(std::time::Duration::from_micros(1500 + 97 * round));
            proc::kill(child, libc::SIGKILL).ok();
            log!(s, "{}", proc::wait_child(child));
        } else {
            s.hear();
            s.tell(1);
            let (got, last) = io::recv_to_end(fd);
            // (over software iWARP one that dies within a frame leaves a reset)
            let ended = last.0 == 0 || last.is(libc::ECONNRESET);
            log!(s, "{} {ended}", got.iter().all(|b| *b == 7));
            net::close(fd).ok();
        }
        s.sync("round");
    }
    s.sync("done");
}

/// A holder is killed in the middle of reading much: the others read on from where it was, byte after byte, to the end.
fn share_killed_reader(s: &Side) {
    const ROUNDS: u64 = 12;
    let fd = warm_pair(s);
    if !s.a() {
        let bytes: Vec<u8> = (0..32 << 20).map(|i| (i % 251) as u8).collect();
        for (i, piece) in bytes.chunks(70_000).enumerate() {
            // (small ones too)
            let (small, rest) = piece.split_at(piece.len().min(i));
            for message in small.chunks(100).chain([rest]) {
                io::send_all(fd, message).ok();
            }
        }
        net::close(fd).ok();
        s.sync("done");
        return;
    }
    // (what came instead tells how much is missing, or came twice)
    let follows = |got: &[u8]| match got.windows(2).position(|w| w[1] != (w[0] + 1) % 251) {
        None => "follows".to_owned(),
        Some(i) => format!(
            "{} {} {:?}",
            got.len(),
            i + 1,
            &got[i..got.len().min(i + 40)]
        ),
    };
    for round in 0..ROUNDS {
        let child = proc::fork(|| {
            let mut buf = vec![0; 3000 * (1 + round as usize)];
            while io::recv(fd, &mut buf, 0).0 > 0 {}
            0
        });
        std::thread::sleep(std::time::Duration::from_micros(300 + 117 * round));
        proc::kill(child, libc::SIGKILL).ok();
        let _ = proc::wait_child(child);
        let (got, _) = io::recv_exact(fd, 20_000);
        log!(s, "{}", follows(&got));
    }
    let (got, last) = io::recv_to_end(fd);
    log!(s, "{} {last}", follows(&got));
    s.sync("done");
}

/// The n-th byte of what one side sends. (None is a bell's, nor one of those who are killed.)
fn mark(n: usize) -> u8 {
    1 + (n % 250) as u8
}

const OF_THE_KILLED: u8 = 255;

/// The byte that follows this one.
fn after(b: u8) -> u8 {
    mark(usize::from(b))
}

/// Whether bytes are what follows so many.
fn follow(got: &[u8], before: usize) -> bool {
    got.iter().enumerate().all(|(i, b)| *b == mark(before + i))
}

/// From now on this process is killed when it is about to send one byte as the library sends bells: one that it has counted.
fn die_of_a_bell() {
    const ARGUMENTS: u32 = 16;
    let flags = (MSG_DONTWAIT | libc::MSG_NOSIGNAL) as u32;
    let mut filter = [
        load(0),
        is(libc::SYS_sendto as u32, 0, 5),
        load(ARGUMENTS + 2 * 8),
        is(1, 0, 3),
        load(ARGUMENTS + 3 * 8),
        is(flags, 0, 1),
        end(libc::SECCOMP_RET_KILL_PROCESS),
        end(libc::SECCOMP_RET_ALLOW),
    ];
    enter_unseen(&mut filter);
}

/// Holders are killed between counting a bell and sending it. Every byte of the others arrives all the same, also of those that go by
/// the kernel later, where a bell that never came would be taken for one of them.
fn share_killed_ringing(s: &Side) {
    const TURNS: usize = 8;
    const KILLED: usize = 4;
    let fd = warm_pair(s);
    if !s.a() {
        let (mut got, mut given, mut in_order) = (0, 0, true);
        let mut buf = [0u8; 256];
        let last = loop {
            // (asleep by a bell, not by naps)
            wait::poll(&[(fd, libc::POLLIN)], -1);
            let n = io::recv(fd, &mut buf, 0);
            if n.0 <= 0 {
                break n;
            }
            let came = &buf[..n.0 as usize];
            let mine: Vec<u8> = came
                .iter()
                .copied()
                .filter(|b| *b != OF_THE_KILLED)
                .collect();
            in_order &= follow(&mine, got);
            got += mine.len();
            let answer: Vec<u8> = (0..came.len()).map(|i| mark(given + i)).collect();
            io::send_all(fd, &answer).ok();
            given += answer.len();
        };
        log!(s, "{got} {in_order} {last}");
        net::close(fd).ok();
        s.sync("done");
        return;
    }
    let (mut sent, mut in_order) = (0, true);
    // (the killed have heard some of it)
    let mut turns = |next: Option<u8>| {
        let mut next = next;
        for _ in 0..TURNS {
            io::send_all(fd, &[mark(sent)]).ok();
            sent += 1;
            for b in io::recv_exact(fd, 1).0 {
                in_order &= b == next.unwrap_or(b) && b != 0;
                next = Some(after(b));
            }
        }
        next
    };
    let mut next = None;
    for _ in 0..KILLED {
        let child = proc::fork(|| {
            die_of_a_bell();
            for _ in 0..TURNS {
                std::thread::sleep(wait::millis(10)); // (by then the other end sleeps, and has done with naps)
                io::send_all(fd, &[OF_THE_KILLED]).ok();
                io::recv_exact(fd, 1);
            }
            0
        });
        let _ = proc::wait_child(child);
        next = turns(None);
    }
    let (r, w) = net::pipe();
    let crowd: Vec<i32> = (0..9)
        .map(|_| {
            proc::fork(|| {
                net::close(w).ok();
                io::read(r, &mut [0]).0 as i32
            })
        })
        .collect();
    next = turns(next);
    net::shutdown(fd, libc::SHUT_WR).ok();
    let (rest, last) = io::recv_to_end(fd);
    for b in rest {
        in_order &= next == Some(b);
        next = Some(after(b));
    }
    log!(s, "{in_order} {last}");
    net::close(w).ok();
    for child in crowd {
        log!(s, "{}", proc::wait_child(child));
    }
    s.sync("done");
}

/// A holder is killed while it takes the stream back to the kernel, as there is no seat for its child: the others have every byte, up to a
/// reset at most.
fn share_killed_forking(s: &Side) {
    for round in 0..16 {
        killed_forking(s, round);
    }
    s.sync("done");
}

fn killed_forking(s: &Side, round: u64) {
    const THERE: usize = 200_000;
    const READ: usize = 20_000;
    const BACK: usize = 5_000;
    let fd = s.pair();
    let marks = |n: usize| (0..n).map(mark).collect::<Vec<u8>>();
    // (all of it, or what there was before a reset)
    let judged = |got: &[u8], n: usize, last: crate::sys::Ret| {
        let whole = got.len() == n && last.0 == 0 || last.is(libc::ECONNRESET);
        if follow(got, 0) && whole {
            "as it should".to_owned()
        } else {
            format!("{} of {n}, {last}, {}", got.len(), follow(got, 0))
        }
    };
    if !s.a() {
        let there = marks(THERE);
        let sent = there
            .chunks(3000)
            .all(|piece| io::send_all(fd, piece).0 > 0);
        let (got, last) = io::recv_to_end(fd);
        // (a sender may be told of the reset in the reader's place)
        let last = if sent {
            last
        } else {
            crate::sys::ret(-i64::from(libc::ECONNRESET))
        };
        log!(s, "{}", judged(&got, BACK, last));
        net::close(fd).ok();
        s.sync("round");
        return;
    }
    let (mut got, _) = io::recv_exact(fd, READ);
    let (r, w) = net::pipe();
    let idle: Vec<i32> = (0..6)
        .map(|_| {
            proc::fork(|| {
                net::close(w).ok();
                io::read(r, &mut [0]).0 as i32
            })
        })
        .collect();
    let (begun, begins): (Fd, Fd) = net::pipe();
    let forks = proc::fork(|| {
        net::close(w).ok();
        io::write(begins, b"!").ok();
        for _ in 0..3 {
            proc::fork(|| 0);
        }
        std::thread::sleep(wait::millis(10_000));
        0
    });
    io::read(begun, &mut [0]).ok();
    std::thread::sleep(Duration::from_micros(50 + 150 * round));
    proc::kill(forks, libc::SIGKILL).ok();
    let _ = proc::wait_child(forks);
    let (rest, last) = io::recv_exact(fd, THERE - READ);
    got.extend(rest);
    let last = if got.len() == THERE {
        crate::sys::ret(0)
    } else {
        last
    };
    log!(s, "{}", judged(&got, THERE, last));
    io::send(fd, &marks(BACK), libc::MSG_NOSIGNAL);
    net::close(w).ok();
    for child in idle {
        let _ = proc::wait_child(child);
    }
    for open in [r, begun, begins, fd] {
        net::close(open).ok();
    }
    s.sync("round");
}
