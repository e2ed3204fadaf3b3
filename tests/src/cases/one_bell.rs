//! A thread sleeps on a set of several connections while another comes between it and what wakes it: takes the event, reads the
//! bytes, deletes, closes or moves the connection that they came by. What comes by the next connection at the same moment wakes
//! the sleeper all the same.

use super::{Case, MOVES};
use crate::log;
use crate::side::{Random, Side};
use crate::sys::wait::{add, delete, epoll_wait};
use crate::sys::{Fd, io, net, proc, wait};
use libc::{EPOLLET, EPOLLIN};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(super) const CASES: &[Case] = &[
    Case::pair("one_bell_nobody", |s| run(s, 2, 300, rest)).conns(3),
    Case::pair("one_bell_waits", |s| run(s, 60, 60, waits)).conns(61),
    Case::pair("one_bell_looked_at", |s| run(s, 60, 60, looks)).conns(61),
    Case::pair("one_bell_read", |s| run(s, 60, 60, reads)).conns(61),
    Case::pair("one_bell_deleted", |s| run(s, 2, 300, deletes)).conns(3),
    Case::pair("one_bell_closed", |s| run(s, 40, 40, closes)).conns(41),
    Case::pair("one_bell_of_many", |s| run(s, 90, 120, rest)).conns(91),
    Case::pair("one_bell_of_many_waits", |s| run(s, 90, 90, waits)).conns(91),
    Case::pair("one_bell_of_many_closed", |s| run(s, 90, 90, closes)).conns(91),
    Case::pair("one_bell_nameless_waits", |s| nameless(s, 60, waits)).conns(62),
    Case::pair("one_bell_nameless_closed", |s| nameless(s, 40, closes)).conns(42),
    Case::pair("one_bell_back_to_the_kernel", |s| run(s, 40, 40, moves)).any_path(MOVES),
    Case::pair("one_bell_behind_bytes", behind)
        .any_path("one of the two may stay where its first bytes went"),
    Case::pair("one_bell_forks", |s| run(s, 2, 60, forks)).processes_only(),
];

/// Reported once for each byte, and not read.
const NOISE: i32 = EPOLLIN | EPOLLET;
/// The connection that has to be answered.
const ASKS: u64 = 1000;
/// The end of a pipe by which the sleeper hears that all is over.
const OVER: u64 = 1001;
/// What is asked last.
const LAST: u8 = 0xff;

/// The set, the connections that only make noise, and the one that asks.
struct World {
    set: Fd,
    noise: Vec<Fd>,
    asking: Fd,
    waker: Fd,
    over: AtomicBool,
}

impl World {
    fn new(gone: Option<Fd>, noise: Vec<Fd>, asking: Fd) -> Arc<Self> {
        let set = wait::epoll();
        let (heard, waker) = net::pipe();
        if let Some(gone) = gone {
            add(set, gone, NOISE, 0).ok();
            net::dup(gone).ok();
            net::close(gone).ok();
        }
        add(set, heard, EPOLLIN, OVER).ok();
        for fd in &noise {
            net::set_nonblocking(*fd, true).ok();
            add(set, *fd, NOISE, 0).ok();
        }
        net::set_nonblocking(asking, true).ok();
        add(set, asking, EPOLLIN, ASKS).ok();
        Arc::new(Self {
            set,
            noise,
            asking,
            waker,
            over: AtomicBool::new(false),
        })
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Waits; every question is answered. The noise is left where it is.
    fn wait(&self, millis: i32) {
        for (data, _) in epoll_wait(self.set, 4, millis).list {
            let mut byte = [0];
            while data == ASKS && io::recv(self.asking, &mut byte, 0).0 == 1 {
                self.over.fetch_or(byte[0] == LAST, Ordering::SeqCst);
                io::send_all(self.asking, &byte).ok();
            }
        }
    }
}

/// Connections of one listener, since one bell serves only those between the same two ends.
fn opened(s: &Side, count: usize) -> Vec<Fd> {
    if s.accepts() {
        let listener = s.listen(128);
        (0..count).map(|_| net::accept(listener).fd()).collect()
    } else {
        let to = s.target();
        let open = |_| {
            let fd = net::socket_for(to, 0);
            net::connect(fd, to).ok();
            fd
        };
        (0..count).map(open).collect()
    }
}

/// So many for noise, and the one that asks, warmed up.
fn connected(s: &Side, noise: usize) -> (Vec<Fd>, Fd) {
    let mut fds = opened(s, noise + 1);
    for fd in &fds {
        s.warm_up(*fd);
    }
    let asking = fds.remove(noise);
    (fds, asking)
}

fn run(s: &Side, noise: usize, rounds: usize, meddle: fn(&World)) {
    let (noise, asking) = connected(s, noise);
    play(s, None, noise, asking, rounds, meddle);
}

/// The first one carries more than its reader has room for, before all else, and is never read: a bell would lie behind that.
fn behind(s: &Side) {
    let fds = opened(s, 2);
    if !s.a() {
        io::send(fds[0], &vec![1; 600_000], libc::MSG_DONTWAIT);
    }
    s.sync("stuck");
    s.warm_up(fds[1]);
    play(s, None, vec![fds[0]], fds[1], 200, rest);
}

/// The set knows the first one by a number that is nobody's any more.
fn nameless(s: &Side, count: usize, meddle: fn(&World)) {
    let (mut noise, asking) = connected(s, count + 1);
    let gone = noise.remove(0);
    play(s, Some(gone), noise, asking, count, meddle);
}

fn play(s: &Side, gone: Option<Fd>, noise: Vec<Fd>, asking: Fd, rounds: usize, meddle: fn(&World)) {
    if s.a() {
        let w = World::new(gone, noise, asking);
        let sleeper = {
            let w = w.clone();
            thread::spawn(move || {
                while !w.is_over() {
                    w.wait(-1);
                }
            })
        };
        meddle(&w);
        io::write(w.waker, &[1]).ok();
        sleeper.join().unwrap();
    } else {
        let mut random = Random::new(77);
        net::set_timeout(asking, libc::SO_RCVTIMEO, 5000).ok();
        let mut ask = |round: usize, byte: u8| {
            let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
            io::send(noise[round % noise.len()], &[1], flags);
            let (begun, pause) = (Instant::now(), random.below(150) as u64);
            while begun.elapsed() < Duration::from_micros(pause) {
                std::hint::spin_loop();
            }
            io::send_all(asking, &[byte]).ok();
            let (got, last) = io::recv_exact(asking, 1);
            assert_eq!(got, [byte], "round {round} was not answered: {last}");
            thread::sleep(Duration::from_micros(random.below(600) as u64));
        };
        for round in 0..rounds {
            ask(round, round as u8 & 0x7f);
        }
        ask(0, LAST);
    }
    log!(s, "answered");
    s.sync("done");
}

fn rest(w: &World) {
    while !w.is_over() {
        thread::sleep(wait::millis(1));
    }
}

/// Another thread asks the same set, once, as soon as something has come.
fn waits(w: &World) {
    one_by_one(w, |_| w.wait(0));
}

/// Another set has this one in it.
fn looks(w: &World) {
    let around = wait::epoll();
    add(around, w.set, EPOLLIN, 0).ok();
    one_by_one(w, |_| {
        epoll_wait(around, 1, 0);
    });
}

fn reads(w: &World) {
    one_by_one(w, |fd| {
        io::recv(fd, &mut [0; 8], libc::MSG_DONTWAIT);
    });
}

fn deletes(w: &World) {
    while !w.is_over() {
        for fd in &w.noise {
            delete(w.set, *fd).ok();
            thread::yield_now();
            add(w.set, *fd, NOISE, 0).ok();
        }
    }
}

/// As soon as something comes by a connection, `end` is done to it.
fn one_by_one(w: &World, end: impl Fn(Fd)) {
    for fd in &w.noise {
        while !w.is_over() && io::recv(*fd, &mut [0], libc::MSG_DONTWAIT | libc::MSG_PEEK).0 != 1 {
            thread::yield_now();
        }
        end(*fd);
    }
    rest(w);
}

fn closes(w: &World) {
    one_by_one(w, |fd| {
        net::close(fd).ok();
    });
}

fn moves(w: &World) {
    let (from, into) = net::pipe();
    one_by_one(w, |fd| {
        if io::splice(fd, into, 8).0 > 0 {
            io::read(from, &mut [0; 8]).ok();
        }
    });
}

fn forks(w: &World) {
    while !w.is_over() {
        let child = proc::fork(|| 0);
        proc::wait_child(child);
        thread::sleep(wait::millis(2));
    }
}
