//! poll and select of more descriptors than a process may have, and of numbers beyond the usual sets.

use super::Case;
use crate::log;
use crate::side::Side;
use crate::sys::{Fd, Ret, call, io, net, proc, wait};
use libc::{POLLIN, POLLOUT};

pub(super) const CASES: &[Case] = &[
    Case::pair("poll_beyond_limit", poll_beyond_limit).processes_only(),
    Case::pair("poll_asleep_at_limit", poll_asleep_at_limit).processes_only(),
    Case::pair("select_beyond_limit", select_beyond_limit).processes_only(),
    Case::pair("select_closed_beyond_the_sets", select_closed).processes_only(),
    Case::pair("select_closed_by_whom_it_was_left", select_inherited).processes_only(),
];

/// How many descriptors a process may have, where that is limited.
const LIMIT: u64 = 40;

/// With another limit of descriptors, which holds for nothing else.
fn within<T>(limit: u64, call: impl FnOnce() -> T) -> T {
    let before = proc::limit(libc::RLIMIT_NOFILE, limit);
    let r = call();
    proc::limit(libc::RLIMIT_NOFILE, before);
    r
}

/// A list of so many, of which the last are named and the others are nothing.
fn list(len: usize, last: &[(Fd, i16)]) -> Vec<(Fd, i16)> {
    let mut all = vec![(-1, POLLIN); len - last.len()];
    all.extend(last);
    all
}

/// More entries than a process may have descriptors are refused, whatever there is to tell, and as many are not.
fn poll_beyond_limit(s: &Side) {
    let fd = s.pair();
    let (closed, ended) = ended_pipe();
    io::send_all(fd, b"x").ok();
    wait::wait_for(fd, POLLIN);
    let limit = LIMIT as usize;
    for (most, len) in [
        (0, 1),
        (1, 1),
        (LIMIT, limit - 1),
        (LIMIT, limit),
        (LIMIT, limit + 1),
    ] {
        let all = list(len, &[(fd, POLLIN)]);
        let told = within(most, || {
            let now = Some(wait::millis(0));
            [
                wait::poll(&all, 0),
                wait::ppoll(&all, now, None),
                wait::poll(&all, 1000),
            ]
        });
        log!(s, "{most} {len} {}", told.map(short).join(", "));
    }
    // (what shows by itself does so of a list of as many, too)
    let all = list(limit, &[(ended, POLLIN), (closed, POLLIN), (fd, POLLOUT)]);
    log!(s, "{}", short(within(LIMIT, || wait::poll(&all, 1000))));
    let all = list(limit + 1, &[(fd, POLLIN)]);
    log!(s, "as before {}", short(wait::poll(&all, 0)));
    io::recv_exact(fd, 1);
    s.sync("done");
}

/// Without the many entries that are nothing.
fn short(told: String) -> String {
    told.replace("- ", "")
}

/// A number that is closed, and the end of a pipe that nobody writes to.
fn ended_pipe() -> (Fd, Fd) {
    let (r, w) = net::pipe();
    let closed = net::dup(r).fd();
    net::close(closed).ok();
    net::close(w).ok();
    (closed, r)
}

/// A list of as many as may be sleeps, and is woken by the connection and by others.
fn poll_asleep_at_limit(s: &Side) {
    let fd = s.pair();
    let (r, w) = net::pipe();
    if s.a() {
        let all = list(LIMIT as usize, &[(r, POLLIN), (fd, POLLIN)]);
        proc::limit(libc::RLIMIT_NOFILE, LIMIT);
        log!(s, "quiet {}", short(wait::poll(&all, 30)));
        let helper = s.tell_once_asleep();
        log!(s, "connection {}", short(wait::poll(&all, 5000)));
        helper.join().unwrap();
        io::recv_exact(fd, 1);
        let helper = proc::once_asleep(move |_| net::close(w).ok());
        log!(s, "pipe {}", short(wait::poll(&all, 5000)));
        helper.join().unwrap();
    } else {
        s.hear();
        io::send_all(fd, b"x").ok();
    }
    s.sync("done");
}

/// select(2) does not ask how many a process may have.
fn select_beyond_limit(s: &Side) {
    let fd = s.pair();
    let (r, w) = net::pipe();
    let what = wait::Select {
        read: &[fd, r],
        write: &[fd, w],
        except: &[],
    };
    log!(s, "{}", within(0, || what.select(None)));
    s.sync("quiet");
    io::send_all(fd, b"x").ok();
    wait::wait_for(fd, POLLIN);
    let read = wait::Select { write: &[], ..what };
    log!(s, "{}", within(1, || read.select(Some(wait::millis(1000)))));
    io::recv_exact(fd, 1);
    log!(
        s,
        "{}",
        within(1, || read.pselect(Some(wait::millis(20)), None))
    );
    s.sync("done");
}

/// select of `fds`, by sets of `bits` that the program has made itself.
fn select(n: i32, fds: &[Fd], millis: i64) -> Ret {
    let mut words = vec![0u64; 1 << 10];
    for &fd in fds {
        words[fd as usize / 64] |= 1 << (fd % 64);
    }
    let mut time = libc::timeval {
        tv_sec: millis / 1000,
        tv_usec: millis % 1000 * 1000,
    };
    let null = std::ptr::null_mut();
    call!(libc::select(
        n,
        words.as_mut_ptr().cast(),
        null,
        null,
        &raw mut time
    ))
}

/// A number that the program has had is told to be closed, also beyond the usual size; one that its table never had room for is not.
fn select_closed(s: &Side) {
    let fd = s.pair();
    log!(s, "never had {}", select(3001, &[fd, 3000], 20));
    let high = net::dup2(fd, 1500).fd();
    log!(s, "open {}", select(1501, &[fd, high], 20));
    net::close(high).ok();
    for n in [1501, 3001, 60_000] {
        log!(s, "closed {}", select(n, &[fd, high], 20));
    }
    log!(s, "its neighbour {}", select(1502, &[fd, high + 1], 20));
    log!(s, "never had {}", select(3001, &[fd, 3000], 20));
    s.sync("quiet");
    io::send_all(fd, b"x").ok();
    wait::wait_for(fd, POLLIN);
    log!(s, "closed {}", select(1501, &[fd, high], 1000));
    log!(s, "never had {}", select(3001, &[fd, 3000], 1000));
    s.sync("done");
}

/// Likewise of one that was there when the process began, and what a child's table has.
fn select_inherited(s: &Side) {
    let fd = s.pair();
    let high = net::dup2(1, 1500).fd();
    let child = proc::fork(|| {
        net::close(high).ok();
        log!(s, "left and closed {}", select(1501, &[fd, high], 20));
        0
    });
    log!(s, "{}", proc::wait_child(child));
    net::close(high).ok();
    let child = proc::fork(|| {
        log!(s, "closed before {}", select(1501, &[fd, high], 20));
        0
    });
    log!(s, "{}", proc::wait_child(child));
    log!(s, "still {}", select(1501, &[fd, high], 20));
    s.sync("done");
}
