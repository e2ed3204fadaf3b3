//! One set of many connections that all carry something, each until one end has said its last word: whatever carries them changes
//! in the middle, and at different moments. Every octet comes back, and then the end.

use super::Case;
use crate::log;
use crate::side::{Random, Side};
use crate::sys::wait::{add, epoll_wait};
use crate::sys::{Fd, io, net, wait};
use libc::{EPOLLET, EPOLLIN, EPOLLOUT};
use std::collections::HashMap;
use std::thread;

pub(super) const CASES: &[Case] = &[
    Case::pair("crowd_echoed_by_edges", |s| crowd(s, EPOLLET)).conns(CROWD),
    Case::pair("crowd_echoed_by_levels", |s| crowd(s, 0)).conns(CROWD),
];

/// Connections at once, and how often.
const CROWD: usize = 30;
const ROUNDS: usize = 4;
/// Octets that one of them carries each way.
const SIZES: [usize; 5] = [20_000, 60_000, 100_000, 200_000, 400_000];
/// What an echo keeps at most before it reads on, where it hears of levels.
const MOST: usize = 64 * 1024;

/// One connection of the side that echoes.
#[derive(Default)]
struct Echo {
    kept: Vec<u8>,
    ended: bool,
}

impl Echo {
    /// Reads and writes as far as that goes. True once all has gone back behind the end of file.
    fn turn(&mut self, fd: Fd, most: usize) -> bool {
        let mut room = vec![0; 16 * 1024];
        while !self.ended && self.kept.len() < most {
            let r = io::recv(fd, &mut room, 0);
            if r.is(libc::EAGAIN) {
                break;
            }
            self.ended = r.ok() == 0;
            self.kept.extend_from_slice(&room[..r.ok()]);
        }
        while !self.kept.is_empty() {
            let r = io::send(fd, &self.kept, libc::MSG_NOSIGNAL);
            if r.is(libc::EAGAIN) {
                break;
            }
            self.kept.drain(..r.ok());
        }
        self.ended && self.kept.is_empty()
    }
}

fn crowd(s: &Side, how: i32) {
    for round in 0..ROUNDS {
        if s.a() {
            let fds = opened(s);
            echo(fds, how);
            log!(s, "all have ended");
        } else {
            let asks = opened(s).into_iter().enumerate();
            let asks: Vec<_> = asks
                .map(|(i, fd)| thread::spawn(move || ask(fd, (round * CROWD + i) as u64)))
                .collect();
            let wrong = asks.into_iter().filter_map(|t| t.join().unwrap());
            log!(s, "wrong {:?}", wrong.collect::<Vec<_>>());
        }
        s.sync("round");
    }
}

fn opened(s: &Side) -> Vec<Fd> {
    if s.accepts() {
        let listener = s.listen(64);
        let fds = (0..CROWD).map(|_| net::accept(listener).fd()).collect();
        net::close(listener).ok();
        return fds;
    }
    let to = s.target();
    let open = |_| {
        let fd = net::socket_for(to, 0);
        net::connect(fd, to).ok();
        fd
    };
    (0..CROWD).map(open).collect()
}

fn echo(fds: Vec<Fd>, how: i32) {
    let set = wait::epoll();
    let mut all: HashMap<u64, Echo> = HashMap::new();
    for fd in fds {
        net::set_nonblocking(fd, true).ok();
        let events = if how == 0 {
            EPOLLIN
        } else {
            EPOLLIN | EPOLLOUT
        };
        add(set, fd, events | how, fd as u64).ok();
        all.insert(fd as u64, Echo::default());
    }
    while !all.is_empty() {
        for (data, _) in epoll_wait(set, 64, -1).list {
            let Some(one) = all.get_mut(&data) else {
                continue;
            };
            let fd = data as Fd;
            let most = if how == 0 { MOST } else { usize::MAX };
            if one.turn(fd, most) {
                all.remove(&data);
                net::close(fd).ok();
            } else if how == 0 {
                let reads = if one.ended || one.kept.len() >= most {
                    0
                } else {
                    EPOLLIN
                };
                let writes = if one.kept.is_empty() { 0 } else { EPOLLOUT };
                wait::modify(set, fd, reads | writes, data).ok();
            }
        }
    }
    net::close(set).ok();
}

/// Sends, by a thread of its own, and reads to the end. What went wrong, if anything.
fn ask(fd: Fd, seed: u64) -> Option<String> {
    let mut random = Random::new(seed);
    let size = SIZES[random.below(SIZES.len())];
    let octets: Vec<u8> = (0..size)
        .map(|i| (i * 7 + seed as usize + i / 251) as u8)
        .collect();
    // (the first ones alone: who sends all before the other end is there stays where he is)
    let (first, rest) = octets.split_at(8);
    io::send_all(fd, first).ok();
    let mut came = io::recv_exact(fd, 8).0;
    let sent = rest.to_vec();
    let sends = thread::spawn(move || {
        let mut random = Random::new(seed + 1000);
        let mut left = &sent[..];
        while !left.is_empty() {
            let n = [3000, 16 * 1024, 60_000][random.below(3)].min(left.len());
            io::send_all(fd, &left[..n]).ok();
            left = &left[n..];
        }
        net::shutdown(fd, libc::SHUT_WR).ok();
    });
    let (more, last) = io::recv_to_end(fd);
    came.extend(more);
    sends.join().unwrap();
    net::close(fd).ok();
    let right = came == octets && last.0 == 0;
    (!right).then(|| format!("{} of {size}, then {last}", came.len()))
}
