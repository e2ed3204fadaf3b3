//! Several threads in calls on one stream: as readers and writers, and when the process ends.

use super::Case;
use crate::log;
use crate::side::{Side, fill_up};
use crate::sys::proc::Thread;
use crate::sys::{Fd, io, net, proc, wait};
use libc::POLLIN;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

pub(super) const CASES: &[Case] = &[
    Case::pair("several_readers_and_writers", several),
    Case::pair("closed_under_sends", |s| closed_under(s, true)),
    Case::pair("closed_under_reads", |s| closed_under(s, false)),
    Case::pair("closed_twice_under_read", closed_twice),
    Case::pair("exit_with_threads_inside", |s| ends(s, true))
        .processes_only()
        .any_path("the report is written while the process ends"),
    Case::pair("exit_at_once_with_threads_inside", |s| ends(s, false))
        .processes_only()
        .any_path("the report is written while the process ends"),
];

const WRITERS: u8 = 4;
const READERS: usize = 3;
const EACH: usize = 3 << 20;

/// Each byte is read by one of them, once.
fn several(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let writers: Vec<_> = (1..=WRITERS)
            .map(|n| {
                std::thread::spawn(move || {
                    let mut left = EACH;
                    let mut size = 1;
                    while left > 0 {
                        size = (size * 7 + 3) % 9001 + 1;
                        let piece = vec![n; size.min(left)];
                        left -= io::send_all(fd, &piece).ok();
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|t| t.join().unwrap());
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        let readers: Vec<_> = (0..READERS)
            .map(|n| {
                std::thread::spawn(move || {
                    let mut counts = [0usize; 256];
                    let mut buf = vec![0; 500 + 4000 * n];
                    loop {
                        let r = io::recv(fd, &mut buf, 0);
                        if r.0 <= 0 {
                            return (counts, r);
                        }
                        for b in &buf[..r.ok()] {
                            counts[usize::from(*b)] += 1;
                        }
                    }
                })
            })
            .collect();
        let mut all = [0usize; 256];
        for t in readers {
            let (counts, last) = t.join().unwrap();
            log!(s, "last {last}");
            all.iter_mut().zip(counts).for_each(|(a, n)| *a += n);
        }
        log!(s, "{:?} of {}", &all[1..=usize::from(WRITERS)], EACH);
        log!(s, "{}", all.iter().sum::<usize>());
    }
    s.sync("done");
}

/// Another thread closes the descriptor, or puts another in its place, while the bytes of a call are under way: the call
/// goes on, and what takes the number sees nothing of it. Once they have begun to arrive, or can only have been read.
fn closed_under(s: &Side, sends: bool) {
    const MUCH: usize = 16 << 20;
    /// More than the kernel keeps of what nobody reads.
    const READ: usize = 12 << 20;
    let close_soon = |fd: Fd, round: usize| {
        let side = *s;
        std::thread::spawn(move || {
            side.hear();
            std::thread::sleep(wait::millis(round as u64 % 3));
            if round.is_multiple_of(2) {
                return net::close(fd).ok();
            }
            let (other, watched) = net::unix_pair(libc::SOCK_STREAM);
            net::dup2(other, fd).ok();
            std::thread::sleep(wait::millis(3));
            let stray = io::recv(watched, &mut [0], libc::MSG_DONTWAIT).0 > 0;
            for fd in [other, fd, watched] {
                net::close(fd).ok();
            }
            usize::from(stray)
        })
    };
    for round in 0..12 {
        let fd = s.pair();
        if s.a() {
            let data = vec![round as u8 + 1; MUCH];
            if sends {
                let closer = close_soon(fd, round);
                log!(s, "{}", io::send(fd, &data, libc::MSG_NOSIGNAL));
                log!(s, "{}", closer.join().unwrap());
            } else {
                io::send_all(fd, &data[..READ]).ok();
                s.tell(1);
                io::send_all(fd, &data[READ..]).ok();
            }
        } else if sends {
            let first = io::recv_exact(fd, 100_000).0;
            s.tell(1);
            let (rest, last) = io::recv_to_end(fd);
            let right = first.iter().chain(&rest).all(|&b| b == round as u8 + 1);
            log!(s, "{} {right} {last}", first.len() + rest.len());
        } else {
            let mut buf = vec![0; MUCH];
            let closer = close_soon(fd, round);
            log!(s, "{}", io::recv(fd, &mut buf, libc::MSG_WAITALL));
            log!(s, "{}", closer.join().unwrap());
            log!(s, "{}", buf.iter().all(|&b| b == round as u8 + 1));
        }
        s.sync("next");
    }
}

/// Both numbers of a connection are closed while a thread reads by one of them: it lives until that has what comes.
fn closed_twice(s: &Side) {
    for round in 0..4 {
        let fd = s.pair();
        if s.a() {
            let other = net::dup(fd).fd();
            let side = *s;
            let closer = proc::once_asleep(move |_| {
                let both = if round % 2 == 0 {
                    [other, fd]
                } else {
                    [fd, other]
                };
                for number in both {
                    net::close(number).ok();
                }
                side.tell(1);
            });
            let mut buf = [0; 200];
            let r = io::recv(fd, &mut buf, libc::MSG_WAITALL);
            log!(s, "{r} {}", buf.iter().all(|b| *b == 7));
            closer.join().unwrap();
        } else {
            s.hear();
            io::send_all(fd, &[7; 100]).ok();
            std::thread::sleep(wait::millis(5));
            io::send_all(fd, &[7; 100]).ok();
            log!(s, "{}", io::recv(fd, &mut [0], 0));
            net::close(fd).ok();
        }
        s.sync("next");
    }
}

static INSIDE: [AtomicI32; 3] = [const { AtomicI32::new(0) }; 3];

fn inside(place: usize, call: impl FnOnce() + Send + 'static) {
    std::thread::spawn(move || {
        INSIDE[place].store(Thread::current().id(), SeqCst);
        call();
    });
}

/// The process ends while its threads are asleep in calls, and one is busy.
fn ends(s: &Side, in_order: bool) {
    let fd = s.pair();
    let other: Fd = s.pair();
    if s.a() {
        fill_up(other);
        inside(0, move || {
            io::recv(fd, &mut [0; 8], 0);
        });
        inside(1, move || {
            wait::poll(&[(fd, POLLIN)], -1);
        });
        inside(2, move || {
            io::send_all(other, &[3; 100]);
        });
        for place in &INSIDE {
            wait::eventually(|| place.load(SeqCst) != 0);
            Thread::of(std::process::id(), place.load(SeqCst)).wait_asleep();
        }
        std::thread::spawn(move || {
            loop {
                io::send(fd, &[4; 64], libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
            }
        });
        std::thread::sleep(wait::millis(5));
        if in_order {
            std::process::exit(7);
        }
        // SAFETY: ends the process.
        unsafe { libc::_exit(8) }
    }
    s.wait_gone();
    log!(s, "{} {}", io::recv_to_end(fd).1, io::recv_to_end(other).1);
}
