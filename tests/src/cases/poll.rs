//! poll over connections and every other kind of descriptor.

use super::Case;
use crate::log;
use crate::side::{Side, fill_up};
use crate::sys::proc::once_asleep;
use crate::sys::{Fd, io, net, proc, wait};
use libc::{POLLIN, POLLOUT, POLLRDHUP};

pub(super) const CASES: &[Case] = &[
    Case::pair("poll_states", poll_states),
    Case::pair("poll_writable", poll_writable),
    Case::pair("poll_mixed", poll_mixed),
    Case::pair("poll_wakes_each_kind", poll_wakes_each_kind),
    Case::pair("poll_odd_entries", poll_odd_entries),
    Case::pair("poll_same_descriptor_twice", poll_same_descriptor_twice),
    Case::pair("poll_timeouts", poll_timeouts),
    Case::pair("poll_from_two_threads", poll_from_two_threads),
    Case::pair("poll_many_idle", poll_many_idle).conns(10),
    Case::pair("poll_fairness", poll_fairness),
];

const ALL: i16 = POLLIN | POLLOUT | POLLRDHUP | libc::POLLPRI;

fn poll_states(s: &Side) {
    let fd = s.pair();
    log!(s, "quiet {}", wait::poll(&[(fd, ALL)], 0));
    log!(s, "in only {}", wait::poll(&[(fd, POLLIN)], 0));
    log!(s, "nothing asked {}", wait::poll(&[(fd, 0)], 0));
    log!(s, "every name {}", wait::poll(&[(fd, 0x3ff)], 0));
    s.sync("quiet");
    io::send_all(fd, b"abc").ok();
    wait::wait_for(fd, POLLIN);
    log!(s, "data {}", wait::poll(&[(fd, ALL)], -1));
    log!(s, "every name {}", wait::poll(&[(fd, 0x3ff)], 0));
    wait::wait_queued(fd, 3);
    io::recv(fd, &mut [0; 2], 0).ok();
    log!(s, "some left {}", wait::poll(&[(fd, ALL)], 0));
    io::recv(fd, &mut [0; 2], 0).ok();
    log!(s, "read {}", wait::poll(&[(fd, ALL)], 0));
    s.sync("read");
    net::shutdown(fd, libc::SHUT_WR).ok();
    wait::wait_for(fd, libc::POLLHUP);
    log!(s, "ended {}", wait::poll(&[(fd, ALL)], 0));
    log!(s, "nothing asked {}", wait::poll(&[(fd, 0)], 0));
    s.sync("done");
}

fn poll_writable(s: &Side) {
    let fd = s.pair();
    if s.a() {
        log!(s, "empty {}", wait::poll(&[(fd, POLLOUT)], 0));
        let total = fill_up(fd);
        log!(s, "full {}", wait::poll(&[(fd, POLLOUT)], 20));
        log!(s, "full {}", wait::poll(&[(fd, ALL)], 0));
        s.tell(total as u64);
        log!(s, "drained {}", wait::poll(&[(fd, POLLOUT)], -1));
        log!(s, "goes {}", io::send(fd, b"x", libc::MSG_DONTWAIT));
    } else {
        let total = s.hear() as usize;
        std::thread::sleep(wait::millis(30));
        crate::side::drain(fd, total + 1);
    }
    s.sync("done");
}

/// Everything one program may poll together; the timer fires last.
pub(super) struct Mix {
    pub(super) pipe: (Fd, Fd),
    pub(super) event: Fd,
    pub(super) unix: (Fd, Fd),
    pub(super) idle: Fd,
    file: Fd,
}

impl Mix {
    pub(super) fn new() -> Self {
        Self {
            pipe: net::pipe(),
            event: proc::eventfd(0),
            unix: net::unix_pair(libc::SOCK_STREAM),
            idle: net::listener(net::loopback(), 1).0,
            file: io::memory_file(b"file"),
        }
    }

    fn poll(&self, fd: Fd, timeout: i32) -> String {
        let list = [
            (fd, POLLIN),
            (self.pipe.0, POLLIN),
            (self.event, POLLIN),
            (self.unix.0, POLLIN),
            (self.idle, POLLIN),
        ];
        wait::poll(&list, timeout)
    }
}

fn poll_mixed(s: &Side) {
    let fd = s.pair();
    let mix = Mix::new();
    log!(s, "quiet {}", mix.poll(fd, 0));
    log!(
        s,
        "file {}",
        wait::poll(&[(fd, POLLIN), (mix.file, POLLIN | POLLOUT)], -1)
    );
    io::write(mix.pipe.1, b"p").ok();
    log!(s, "pipe {}", mix.poll(fd, -1));
    io::write(mix.event, &1u64.to_ne_bytes()).ok();
    log!(s, "event {}", mix.poll(fd, -1));
    s.sync("others");
    io::send_all(fd, b"tcp").ok();
    wait::wait_for(fd, POLLIN);
    io::write(mix.unix.1, b"u").ok();
    log!(s, "all {}", mix.poll(fd, -1));
    io::read(mix.pipe.0, &mut [0; 4]).ok();
    wait::wait_queued(fd, 3);
    io::read(fd, &mut [0; 4]).ok();
    log!(s, "two read {}", mix.poll(fd, 0));
    let timer = proc::timerfd(wait::millis(20));
    log!(
        s,
        "timer {}",
        wait::poll(&[(fd, POLLIN), (timer, POLLIN)], -1)
    );
    s.sync("done");
}

/// A sleeping poll is woken by each kind in turn.
fn poll_wakes_each_kind(s: &Side) {
    let fd = s.pair();
    let mix = Mix::new();
    if s.a() {
        for kind in 0..4 {
            let (pipe, event, unix) = (mix.pipe.1, mix.event, mix.unix.1);
            let channel = *s;
            let helper = once_asleep(move |_| match kind {
                0 => channel.tell(0),
                1 => drop(io::write(pipe, b"x").ok()),
                2 => drop(io::write(event, &1u64.to_ne_bytes()).ok()),
                _ => drop(io::write(unix, b"x").ok()),
            });
            log!(s, "{kind} {}", mix.poll(fd, -1));
            helper.join().unwrap();
            match kind {
                0 => io::read(fd, &mut [0; 4]).ok(),
                1 => io::read(mix.pipe.0, &mut [0; 4]).ok(),
                2 => io::read(mix.event, &mut [0; 8]).ok(),
                _ => io::read(mix.unix.0, &mut [0; 4]).ok(),
            };
        }
    } else {
        s.hear();
        io::send_all(fd, b"x").ok();
    }
    s.sync("done");
}

fn poll_odd_entries(s: &Side) {
    let fd = s.pair();
    log!(
        s,
        "negative {}",
        wait::poll(&[(-1, POLLIN), (fd, POLLOUT), (-fd, POLLIN)], -1)
    );
    log!(
        s,
        "unopened {}",
        wait::poll(&[(900, POLLIN), (fd, POLLIN)], -1)
    );
    log!(s, "none {}", wait::poll(&[], 10));
    let page = io::forbidden_page() as *mut libc::pollfd;
    log!(s, "bad list {}", crate::sys::call!(libc::poll(page, 1, 0)));
    log!(s, "too many {}", {
        let mut one = libc::pollfd {
            fd,
            events: POLLIN,
            revents: 0,
        };
        crate::sys::call!(libc::poll(&raw mut one, 1 << 30, 0))
    });
    s.sync("done");
}

fn poll_same_descriptor_twice(s: &Side) {
    let fd = s.pair();
    io::send_all(fd, b"x").ok();
    wait::wait_for(fd, POLLIN);
    log!(
        s,
        "{}",
        wait::poll(&[(fd, POLLIN), (fd, POLLOUT), (fd, POLLRDHUP)], -1)
    );
    let alias = net::dup(fd).fd();
    log!(s, "{}", wait::poll(&[(fd, POLLIN), (alias, POLLIN)], -1));
    s.sync("done");
}

fn poll_timeouts(s: &Side) {
    let fd = s.pair();
    for timeout in [0, 1, 60] {
        let start = std::time::Instant::now();
        log!(s, "{}", wait::poll(&[(fd, POLLIN)], timeout));
        let took = start.elapsed().as_millis();
        log!(
            s,
            "early {} late {}",
            took < timeout as u128,
            took > timeout as u128 + 2000
        );
    }
    s.sync("done");
}

/// Both threads waiting for the same data are told.
fn poll_from_two_threads(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let waiters: Vec<_> = (0..2)
            .map(|_| std::thread::spawn(move || wait::poll(&[(fd, POLLIN)], -1)))
            .collect();
        std::thread::sleep(wait::millis(40));
        s.tell(1);
        for w in waiters {
            log!(s, "{}", w.join().unwrap());
        }
    } else {
        s.hear();
        io::send_all(fd, b"x").ok();
    }
    s.sync("done");
}

fn poll_many_idle(s: &Side) {
    let all: Vec<Fd> = (0..10).map(|_| s.pair()).collect();
    let list: Vec<_> = all.iter().map(|fd| (*fd, POLLIN)).collect();
    if s.a() {
        for i in [7usize, 0, 9, 3] {
            s.tell(i as u64);
            log!(s, "{}", wait::poll(&list, -1));
            io::recv(all[i], &mut [0; 4], 0).ok();
        }
        s.tell(99);
    } else {
        loop {
            let i = s.hear() as usize;
            if i == 99 {
                break;
            }
            io::send_all(all[i], b"x").ok();
        }
    }
    s.sync("done");
}

/// A connection that is always ready hides nothing else, and the other way round.
fn poll_fairness(s: &Side) {
    let fd = s.pair();
    let (r, w) = net::pipe();
    io::send_all(fd, b"always").ok();
    wait::wait_for(fd, POLLIN);
    log!(s, "one {}", wait::poll(&[(fd, POLLIN), (r, POLLIN)], -1));
    io::write(w, b"x").ok();
    for _ in 0..3 {
        log!(s, "both {}", wait::poll(&[(fd, POLLIN), (r, POLLIN)], -1));
        log!(s, "both {}", wait::poll(&[(r, POLLIN), (fd, POLLIN)], 0));
    }
    s.sync("done");
}
