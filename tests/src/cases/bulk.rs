//! Large transfers: seeded sizes and calls at both ends, both ways at once, several threads.

use super::Case;
use crate::log;
use crate::side::{Random, Side, hash};
use crate::sys::{Fd, Ret, io, net, wait};
use libc::{MSG_DONTWAIT, MSG_NOSIGNAL, MSG_WAITALL};

pub(super) const CASES: &[Case] = &[
    Case::pair("bulk_one_way", |s| duplex(s, 16 << 20, 0, 21)),
    Case::pair("bulk_both_ways", |s| duplex(s, 8 << 20, 8 << 20, 22)),
    Case::pair("bulk_both_ways_64m", |s| duplex(s, 64 << 20, 64 << 20, 23)).slow(),
    Case::pair("bulk_tiny_pieces", bulk_tiny_pieces),
    Case::pair("bulk_huge_pieces", bulk_huge_pieces),
    Case::pair("bulk_sendfile", bulk_sendfile),
    Case::solo("sendfile_into_small_buffer", sendfile_into_small_buffer),
    Case::pair("bulk_nonblocking_poll", bulk_nonblocking_poll),
    Case::pair("bulk_nonblocking_epoll_edge", bulk_nonblocking_epoll_edge),
    Case::pair(
        "threads_two_readers_two_writers",
        threads_two_readers_two_writers,
    ),
    Case::pair(
        "threads_duplex_many_connections",
        threads_duplex_many_connections,
    )
    .conns(6),
    Case::pair("request_response", request_response),
    Case::pair("pipelined_requests", pipelined_requests),
];

/// Sends some of the bytes by a call chosen by the generator.
fn send_somehow(fd: Fd, random: &mut Random, bytes: &[u8]) -> usize {
    let size = random.size();
    let part = &bytes[..size.min(bytes.len())];
    let (left, right) = part.split_at(part.len() / 3);
    let r = match random.below(6) {
        0 => io::write(fd, part),
        1 => io::send(fd, part, MSG_NOSIGNAL),
        2 => io::sendto_null(fd, part, 0),
        3 => io::writev(fd, &[left, b"", right]),
        4 => io::sendmsg(fd, &[left, right], 0),
        _ => {
            let (r, lengths) = io::sendmmsg(fd, &[left, right], 0);
            r.ok();
            Ret(lengths.iter().map(|n| i64::from(*n)).sum())
        }
    };
    r.ok()
}

/// Reads some bytes by a call chosen by the generator.
fn recv_somehow(fd: Fd, random: &mut Random, room: &mut [u8]) -> usize {
    let size = random.size();
    let size = size.min(room.len());
    let part = &mut room[..size];
    let r = match random.below(7) {
        0 => io::read(fd, part),
        1 => io::recv(fd, part, 0),
        2 => io::recvfrom_null(fd, part, 0),
        3 => {
            let (left, right) = part.split_at_mut(size / 2);
            io::readv(fd, &mut [left, &mut [], right])
        }
        4 => {
            let (left, right) = part.split_at_mut(size / 2);
            io::recvmsg(fd, &mut [left, right], 0).0
        }
        5 => {
            wait::wait_for(fd, libc::POLLIN);
            let r = io::recv(fd, part, MSG_DONTWAIT);
            if r.is(libc::EAGAIN) { Ret(0) } else { r }
        }
        _ => io::recv(fd, part, MSG_WAITALL),
    };
    r.ok()
}

fn send_seeded(fd: Fd, size: usize, seed: u64) -> u64 {
    let data = Random::new(seed).bytes(size);
    let mut random = Random::new(seed + 1);
    let mut sent = 0;
    while sent < size {
        sent += send_somehow(fd, &mut random, &data[sent..]);
    }
    hash(&data)
}

fn recv_seeded(fd: Fd, size: usize, seed: u64) -> u64 {
    let mut data = vec![0; size];
    let mut random = Random::new(seed + 2);
    let mut got = 0;
    while got < size {
        got += recv_somehow(fd, &mut random, &mut data[got..]);
    }
    hash(&data)
}

/// A sends the first amount and B the second, at the same time, from a thread each.
fn duplex(s: &Side, from_a: usize, from_b: usize, seed: u64) {
    let fd = s.pair();
    let (out, back) = if s.a() {
        (from_a, from_b)
    } else {
        (from_b, from_a)
    };
    let (out_seed, back_seed) = if s.a() {
        (seed, seed + 100)
    } else {
        (seed + 100, seed)
    };
    let sender = std::thread::spawn(move || send_seeded(fd, out, out_seed));
    let got = recv_seeded(fd, back, back_seed);
    let sent = sender.join().unwrap();
    log!(s, "sent {sent:x} got {got:x}");
    s.sync("done");
}

fn bulk_tiny_pieces(s: &Side) {
    let fd = s.pair();
    let count = 30_000;
    if s.a() {
        for i in 0..count {
            io::send(fd, &[i as u8, (i >> 8) as u8, 7], 0).ok();
        }
    } else {
        let mut random = Random::new(1);
        let mut data = vec![0; count * 3];
        let mut at = 0;
        while at < data.len() {
            let size = (1 + random.below(11)).min(data.len() - at);
            at += io::read(fd, &mut data[at..at + size]).ok();
        }
        log!(s, "{:x}", hash(&data));
    }
    s.sync("done");
}

fn bulk_huge_pieces(s: &Side) {
    let fd = s.pair();
    let size = 20 << 20;
    for turn in [true, false] {
        if s.a() == turn {
            let data = Random::new(9).bytes(size);
            log!(s, "{}", io::write(fd, &data));
        } else {
            let mut data = vec![0; size];
            log!(
                s,
                "{} {:x}",
                io::recv(fd, &mut data, MSG_WAITALL),
                hash(&data)
            );
        }
    }
    s.sync("done");
}

fn bulk_sendfile(s: &Side) {
    let fd = s.pair();
    let size = 5 << 20;
    let data = Random::new(10).bytes(size);
    if s.a() {
        let file = io::memory_file(&data);
        let mut at = 1000i64;
        while (at as usize) < size {
            let (r, next) = io::sendfile(fd, file, at, 300_000);
            assert_eq!(next, at + r.ok() as i64);
            at = next;
        }
        log!(s, "{at}");
        log!(s, "at end {:?}", io::sendfile(fd, file, at, 10));
        log!(s, "bad input {}", io::sendfile(fd, fd, 0, 10).0);
    } else {
        let (got, _) = io::recv_exact(fd, size - 1000);
        log!(s, "{}", got == data[1000..]);
    }
    s.sync("done");
}

/// A new connection with room for a part of the file only, and nobody but this thread to read: what
/// did not go stays in the file.
fn sendfile_into_small_buffer(s: &Side) {
    let data = Random::new(11).bytes(600_000);
    let (lis, at) = net::listener(net::loopback(), 4);
    net::setopt(lis, libc::SOL_SOCKET, libc::SO_RCVBUF, 4096).ok();
    for by_offset in [false, true] {
        let own = net::socket_for(at, 0);
        net::setopt(own, libc::SOL_SOCKET, libc::SO_SNDBUF, 4096).ok();
        net::connect(own, at).ok();
        let got = net::accept(lis).fd();
        net::set_nonblocking(own, true).ok();
        net::set_nonblocking(got, true).ok();
        let file = io::memory_file(&data);
        let (mut offset, mut sent, mut heard) = (0i64, 0, Vec::new());
        let mut buf = vec![0; 100_000];
        while heard.len() < data.len() {
            let r = if by_offset {
                let (r, next) = io::sendfile(own, file, offset, data.len());
                assert_eq!(next, offset + r.0.max(0));
                offset = next;
                r
            } else {
                io::sendfile_null(own, file, data.len() - sent)
            };
            sent += r.0.max(0) as usize;
            let r = io::recv(got, &mut buf, 0);
            heard.extend_from_slice(&buf[..r.0.max(0) as usize]);
        }
        log!(s, "{} {} {sent}", heard == data, heard.len());
        log!(
            s,
            "at end {}",
            io::sendfile_null(own, file, 10).0 == 0 || by_offset
        );
    }
    let (left, right) = crate::side::own_pair();
    io::send_all(left, b"end").ok();
    io::recv_exact(right, 3);
}

/// One thread, both directions, driven by poll.
fn bulk_nonblocking_poll(s: &Side) {
    let fd = s.pair();
    net::set_nonblocking(fd, true).ok();
    let size = 6 << 20;
    let data = Random::new(30 + u64::from(s.a())).bytes(size);
    let (mut sent, mut got) = (0, Vec::new());
    let mut buf = vec![0; 50_000];
    while sent < size || got.len() < size {
        let want = if sent < size {
            libc::POLLIN | libc::POLLOUT
        } else {
            libc::POLLIN
        };
        wait::wait_for(fd, want);
        let end = (sent + 40_000).min(size);
        let r = io::send(fd, &data[sent..end], MSG_NOSIGNAL);
        sent += usize::try_from(r.0).unwrap_or(0);
        let room = buf.len().min(size - got.len());
        if room > 0 {
            let r = io::recv(fd, &mut buf[..room], 0);
            got.extend_from_slice(&buf[..usize::try_from(r.0).unwrap_or(0)]);
        }
    }
    log!(s, "{:x} {:x}", hash(&data), hash(&got));
    s.sync("done");
}

/// The same driven by edges only: a missed edge is a hang.
fn bulk_nonblocking_epoll_edge(s: &Side) {
    let fd = s.pair();
    net::set_nonblocking(fd, true).ok();
    let set = wait::epoll();
    let both = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET;
    wait::add(set, fd, both, 1).ok();
    let size = 6 << 20;
    let data = Random::new(40 + u64::from(s.a())).bytes(size);
    let (mut sent, mut got) = (0, Vec::new());
    let mut buf = vec![0; 50_000];
    loop {
        while sent < size {
            let r = io::send(fd, &data[sent..], MSG_NOSIGNAL);
            if r.0 < 0 {
                assert!(r.is(libc::EAGAIN), "{r}");
                break;
            }
            sent += r.ok();
        }
        while got.len() < size {
            let r = io::recv(fd, &mut buf, 0);
            if r.0 <= 0 {
                assert!(r.is(libc::EAGAIN), "{r}");
                break;
            }
            got.extend_from_slice(&buf[..r.ok()]);
        }
        if sent == size && got.len() == size {
            break;
        }
        let woken = wait::epoll_wait(set, 4, 10_000);
        assert_eq!(
            woken.ret.0,
            1,
            "no edge after {sent} sent, {} got",
            got.len()
        );
    }
    log!(s, "{:x} {:x}", hash(&data), hash(&got));
    s.sync("done");
}

/// Fixed-size records from two threads at once arrive whole, whichever order they take.
fn threads_two_readers_two_writers(s: &Side) {
    let fd = s.pair();
    let records = 2000u32;
    let writers: Vec<_> = (0..2u32)
        .map(|who| {
            std::thread::spawn(move || {
                for i in 0..records {
                    let mut record = [who as u8; 64];
                    record[..4].copy_from_slice(&i.to_le_bytes());
                    assert_eq!(io::send(fd, &record, 0).ok(), 64);
                }
            })
        })
        .collect();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            std::thread::spawn(move || {
                let mut sum = 0u64;
                for _ in 0..records {
                    let mut record = [0; 64];
                    assert_eq!(io::recv(fd, &mut record, MSG_WAITALL).ok(), 64);
                    sum += record.iter().map(|b| u64::from(*b)).sum::<u64>();
                }
                sum
            })
        })
        .collect();
    for w in writers {
        w.join().unwrap();
    }
    let sum: u64 = readers.into_iter().map(|r| r.join().unwrap()).sum();
    log!(s, "{sum}");
    s.sync("done");
}

fn threads_duplex_many_connections(s: &Side) {
    let all: Vec<Fd> = (0..6).map(|_| s.pair()).collect();
    let a = s.a();
    let threads: Vec<_> = all
        .into_iter()
        .enumerate()
        .map(|(i, fd)| {
            let i = i as u64;
            std::thread::spawn(move || {
                let (out, back) = if a { (i, i + 50) } else { (i + 50, i) };
                let sender = std::thread::spawn(move || send_seeded(fd, 2 << 20, out));
                let got = recv_seeded(fd, 2 << 20, back);
                (sender.join().unwrap(), got)
            })
        })
        .collect();
    for t in threads {
        let (sent, got) = t.join().unwrap();
        log!(s, "{sent:x} {got:x}");
    }
    s.sync("done");
}

fn request_response(s: &Side) {
    let fd = s.pair();
    let mut random = Random::new(55);
    let mut mark = 0u64;
    for _ in 0..3000 {
        let ask = 1 + random.below(300);
        let answer = 1 + random.below(3000);
        if s.a() {
            io::send_all(fd, &vec![1; ask]).ok();
            mark = mark.wrapping_mul(31) + io::recv_exact(fd, answer).0.len() as u64;
        } else {
            mark = mark.wrapping_mul(31) + io::recv_exact(fd, ask).0.len() as u64;
            io::send_all(fd, &vec![2; answer]).ok();
        }
    }
    log!(s, "{mark:x}");
    s.sync("done");
}

/// Many requests in flight, answered in order.
fn pipelined_requests(s: &Side) {
    let fd = s.pair();
    net::setopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1).ok();
    let (rounds, depth) = (200, 32usize);
    for round in 0..rounds {
        if s.a() {
            for i in 0..depth {
                io::send_all(fd, &[(round + i) as u8; 20]).ok();
            }
            let (got, _) = io::recv_exact(fd, depth * 10);
            let right = got
                .chunks(10)
                .enumerate()
                .all(|(i, c)| c == [(round + i) as u8; 10]);
            assert!(right, "round {round}");
        } else {
            for _ in 0..depth {
                let (got, _) = io::recv_exact(fd, 20);
                io::send_all(fd, &got[..10]).ok();
            }
        }
    }
    log!(s, "{rounds}");
    s.sync("done");
}
