//! Sets of more connections than a set looks at one by one, of which a few have something at a time: each is told of once, whether
//! the set sleeps or not, while registrations change, connections are closed, and others look or sleep besides.

use super::{Case, MOVES};
use crate::log;
use crate::side::{Random, Side};
use crate::sys::wait::{add, delete, epoll_wait, modify};
use crate::sys::{Fd, io, net, proc, wait};
use libc::{EPOLLET, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP};
use std::thread;
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    Case::pair("board_of_levels", |s| run(s, EPOLLIN, nothing)).conns(MANY),
    Case::pair("board_of_edges", |s| run(s, EDGES, nothing)).conns(MANY),
    Case::pair("board_told_once", |s| {
        run(s, EPOLLIN | EPOLLONESHOT, nothing)
    })
    .conns(MANY),
    Case::pair("board_modified", |s| run(s, EPOLLIN, modifies)).conns(MANY),
    Case::pair("board_left_and_back", |s| run(s, EDGES, deletes)).conns(MANY),
    Case::pair("board_closed", |s| run_to(s, EPOLLIN, closes, Last::Closed)).conns(MANY),
    Case::pair("board_ended", |s| run_to(s, EDGES, ends, Last::Shut)).conns(MANY),
    Case::pair("board_in_two_sets", |s| run(s, EPOLLIN, two_sets)).conns(MANY),
    Case::pair("board_looked_at", |s| run(s, EPOLLIN, looks)).conns(MANY),
    Case::pair("board_by_another_name", |s| run(s, EDGES, renames)).conns(MANY),
    Case::pair("board_waited_for_twice", |s| run(s, EPOLLIN, waits_too)).conns(MANY),
    Case::pair("board_read_in_a_call", |s| run(s, EPOLLIN, reads)).conns(MANY),
    Case::pair("board_back_to_the_kernel", |s| run(s, EPOLLIN, moves)).any_path(MOVES),
    Case::pair("board_forks", |s| run(s, EPOLLIN, forks)).processes_only(),
    Case::pair("board_forked", |s| run(s, EDGES, has_children)).processes_only(),
];

/// More than are few.
const MANY: usize = 100;
const ROUNDS: usize = 60;
const EDGES: i32 = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;

/// What the side knows that has the set.
struct Lab {
    set: Fd,
    how: i32,
    /// Those that go on, by number.
    fds: Vec<Option<Fd>>,
    random: Random,
    /// Children that are under way.
    children: Vec<i32>,
}

/// What becomes of the connection that was meddled with.
#[derive(Clone, Copy, PartialEq)]
enum Last {
    Stays,
    /// By the side that has the set.
    Closed,
    /// By the other.
    Shut,
}

/// What is done in a round, besides: on a connection that has nothing in it.
type Meddle = fn(&mut Lab, usize, usize);

fn opened(s: &Side) -> Vec<Option<Fd>> {
    let fds: Vec<Fd> = if s.accepts() {
        let listener = s.listen(128);
        (0..MANY).map(|_| net::accept(listener).fd()).collect()
    } else {
        let to = s.target();
        let open = |_| {
            let fd = net::socket_for(to, 0);
            net::connect(fd, to).ok();
            fd
        };
        (0..MANY).map(open).collect()
    };
    fds.iter().for_each(|fd| s.warm_up(*fd));
    fds.into_iter().map(Some).collect()
}

/// Which speak in a round, and which is meddled with.
fn chosen(random: &mut Random, fds: &[Option<Fd>]) -> (Vec<usize>, usize) {
    let mut alive: Vec<usize> = (0..MANY).filter(|&i| fds[i].is_some()).collect();
    let mut some: Vec<usize> = (0..1 + random.below(6))
        .map(|_| alive.remove(random.below(alive.len())))
        .collect();
    let other = alive[random.below(alive.len())];
    some.sort_unstable();
    (some, other)
}

fn run(s: &Side, how: i32, meddle: Meddle) {
    run_to(s, how, meddle, Last::Stays);
}

fn run_to(s: &Side, how: i32, meddle: Meddle, last: Last) {
    let mut fds = opened(s);
    // (both sides choose alike)
    let mut random = Random::new(4711);
    if s.a() {
        let set = wait::epoll();
        for (i, fd) in fds.iter().flatten().enumerate() {
            net::set_nonblocking(*fd, true).ok();
            add(set, *fd, how, i as u64).ok();
        }
        let mut lab = Lab {
            set,
            how,
            fds,
            random: Random::new(12),
            children: Vec::new(),
        };
        for round in 0..ROUNDS {
            let (some, other) = chosen(&mut random, &lab.fds);
            meddle(&mut lab, round, other);
            s.sync("round");
            let heard = lab.hear(&some);
            log!(s, "{round}: {heard:?}");
        }
        for child in lab.children {
            proc::wait_child(child);
        }
    } else {
        for fd in fds.iter().flatten() {
            net::set_timeout(*fd, libc::SO_RCVTIMEO, 5000).ok();
        }
        let mut pauses = Random::new(99);
        for round in 0..ROUNDS {
            let (some, other) = chosen(&mut random, &fds);
            if last == Last::Shut
                && let Some(fd) = fds[other]
            {
                net::shutdown(fd, libc::SHUT_WR).ok();
            }
            s.sync("round");
            for &i in &some {
                thread::sleep(Duration::from_micros(pauses.below(300) as u64));
                io::send_all(fds[i].unwrap(), &[i as u8]).ok();
            }
            for &i in &some {
                let (got, end) = io::recv_exact(fds[i].unwrap(), 1);
                assert_eq!(got, [i as u8], "round {round}, {i}: {end}");
            }
            if last != Last::Stays
                && let Some(fd) = fds[other].take()
            {
                log!(s, "{round}: {}", io::recv(fd, &mut [0; 4], 0));
                net::close(fd).ok();
            }
        }
    }
    s.sync("done");
}

impl Lab {
    /// Waits until those have been told of that speak, and answers. Which were told of, and what was read.
    fn hear(&mut self, some: &[usize]) -> Vec<(usize, String)> {
        let mut heard = Vec::new();
        let is_left =
            |heard: &[(usize, String)]| some.iter().any(|i| heard.iter().all(|(h, _)| h != i));
        while is_left(&heard) {
            let woken = epoll_wait(self.set, 8, 5000).list;
            if woken.is_empty() {
                heard.push((MANY, "nothing more".to_owned()));
                break;
            }
            for (data, _) in woken {
                self.answer(data as usize, &mut heard);
            }
        }
        heard.sort();
        heard
    }

    fn answer(&mut self, i: usize, heard: &mut Vec<(usize, String)>) {
        let Some(fd) = self.fds[i] else { return };
        let mut byte = [0; 4];
        let r = io::recv(fd, &mut byte, 0);
        if r.0 == 1 {
            heard.push((i, format!("{}", byte[0])));
            io::send_all(fd, &byte[..1]).ok();
        } else if r.0 == 0 {
            // (ended: at a moment that is nobody's to say)
            net::close(fd).ok();
            self.fds[i] = None;
        }
        if self.how & EPOLLONESHOT != 0 {
            modify(self.set, fd, self.how, i as u64).ok();
        }
    }
}

fn nothing(_: &mut Lab, _: usize, _: usize) {}

fn modifies(lab: &mut Lab, _: usize, i: usize) {
    let how = [EPOLLIN, EPOLLIN | EPOLLET, EDGES][lab.random.below(3)];
    modify(lab.set, lab.fds[i].unwrap(), how, i as u64).ok();
}

fn deletes(lab: &mut Lab, round: usize, i: usize) {
    let fd = lab.fds[i].unwrap();
    delete(lab.set, fd).ok();
    if round.is_multiple_of(2) {
        epoll_wait(lab.set, 8, 0);
    }
    add(lab.set, fd, lab.how, i as u64).ok();
}

fn closes(lab: &mut Lab, _: usize, i: usize) {
    net::close(lab.fds[i].take().unwrap()).ok();
}

/// (The other side does it.)
fn ends(lab: &mut Lab, _: usize, i: usize) {
    let fd = lab.fds[i].take().unwrap();
    net::set_nonblocking(fd, false).ok();
    assert_eq!(io::recv(fd, &mut [0; 4], 0).0, 0);
    net::close(fd).ok();
}

/// One is in another set for a round, which is waited for.
fn two_sets(lab: &mut Lab, round: usize, i: usize) {
    let other = wait::epoll();
    add(other, lab.fds[i].unwrap(), EPOLLIN, 7).ok();
    epoll_wait(other, 4, (round % 2) as i32);
    net::close(other).ok();
}

/// A poll on the set, and a set around it, once in the middle.
fn looks(lab: &mut Lab, round: usize, _: usize) {
    if round == ROUNDS / 3 {
        wait::poll(&[(lab.set, libc::POLLIN)], 1);
        let around = wait::epoll();
        add(around, lab.set, EPOLLIN, 0).ok();
        epoll_wait(around, 1, 1);
        net::close(around).ok();
    }
}

/// The number goes, and what it stands for stays under another.
fn renames(lab: &mut Lab, round: usize, i: usize) {
    if round.is_multiple_of(4) {
        let fd = lab.fds[i].unwrap();
        lab.fds[i] = Some(net::dup(fd).fd());
        net::close(fd).ok();
    }
}

/// Another thread waits on the set too, for a moment.
fn waits_too(lab: &mut Lab, round: usize, _: usize) {
    if round == ROUNDS / 2 {
        let set = lab.set;
        let other = thread::spawn(move || {
            epoll_wait(set, 1, 30);
        });
        epoll_wait(lab.set, 1, 20);
        other.join().unwrap();
    }
}

/// Somebody reads, in a call of its own, what the set would tell of.
fn reads(lab: &mut Lab, _: usize, i: usize) {
    let fd = lab.fds[i].unwrap();
    assert!(io::recv(fd, &mut [0; 4], 0).is(libc::EAGAIN));
    io::recv(fd, &mut [0; 4], libc::MSG_PEEK | libc::MSG_DONTWAIT);
}

fn moves(lab: &mut Lab, round: usize, i: usize) {
    if round.is_multiple_of(5) {
        let (from, into) = net::pipe();
        let r = io::splice(lab.fds[i].unwrap(), into, 8);
        assert!(r.is(libc::EAGAIN));
        net::close(from).ok();
        net::close(into).ok();
    }
}

fn forks(_: &mut Lab, round: usize, _: usize) {
    if round.is_multiple_of(10) {
        proc::wait_child(proc::fork(|| 0));
    }
}

/// Children that do nothing have all of it for the rest.
fn has_children(lab: &mut Lab, round: usize, _: usize) {
    if round == ROUNDS / 3 {
        let child = proc::fork(|| {
            thread::sleep(wait::millis(300));
            0
        });
        lab.children.push(child);
    }
}
