//! Buffers that are advertised and read, beside everything else that can happen to a connection: the bytes are the same.

use super::{End, Random, Sent, State, byte, pair, want};
use crate::sdp::Walk;
use crate::wire::set_up::Want;
use std::os::fd::AsRawFd;

/// A message under way, in memory of its own.
struct Message {
    buffer: Vec<u8>,
    at: usize,
}

impl Message {
    fn new(end: &End, len: usize) -> Self {
        let buffer = (0..len).map(|i| byte(end.number, end.sent + i)).collect();
        Self { buffer, at: 0 }
    }

    /// The program's own affair: another has sent in between.
    fn renew(&mut self, end: &End) {
        for (i, b) in self.buffer[self.at..].iter_mut().enumerate() {
            *b = byte(end.number, end.sent + i);
        }
    }

    /// One attempt of a call that can wait.
    fn send(&mut self, end: &mut End) -> Sent {
        let rest = &mut self.buffer[self.at..];
        let mut walk = Walk::one(rest.as_mut_ptr(), rest.len());
        let (wire, fd) = (unsafe { end.wire.as_ref() }, end.fd.as_raw_fd());
        let mut out = unsafe { wire.out() };
        out.be_waiting(true);
        let sent = unsafe { out.send(&wire.common, fd, &mut walk, 0) }.unwrap();
        out.be_waiting(false);
        if let Sent::Bytes(n) = sent {
            assert_eq!(n, walk.done());
        }
        self.buffer[self.at..self.at + walk.done()].fill(0xee); // what is sent is sent
        self.at += walk.done();
        end.sent += walk.done();
        sent
    }
}

const fn advertising(want: Want, least: usize) -> Want {
    Want {
        adverts: Some(least),
        ..want
    }
}

/// Bytes that were read, and that were written, of what each end has sent.
fn advertised(ends: &[End; 2]) -> [(u64, u64); 2] {
    [0, 1].map(|i| unsafe { ends[i].wire().out() }.advertised())
}

/// A reader that finds nothing, and waits.
fn wait(end: &End, random: &mut Random) {
    let wire = end.wire();
    unsafe { wire.incoming() }.advertise(&wire.common, random.size());
    end.serve();
}

#[test]
fn what_is_read_of_buffers_comes_in_its_place() {
    let (mut read, mut written) = (0, 0);
    for seed in 1..25_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut one = || {
            let buffers = match random.below(3) {
                0 => (1024 + random.below(9000) as u32, 5),
                1 => (8192, 8),
                _ => (65536, 32768),
            };
            let want = want(seed % 2 == 0, buffers);
            match random.below(4) {
                0 => want, // (who advertises nothing reads what is advertised)
                1 => advertising(want, 4096),
                _ => advertising(want, 65_536),
            }
        };
        let wants = [one(), one()];
        let buffer = [4096, 20_000, 200_000, 2_000_000][random.below(4)];
        let mut ends = pair(wants, buffer);
        let total = [1, 1].map(|_| random.size() * 3 + random.below(2) * 3_000_000);
        let mut under_way: [Option<Message>; 2] = [None, None];
        let trouble = random.below(3); // none, other calls, other processes
        let begun = std::time::Instant::now();
        for step in 0_u64.. {
            let who = random.below(2);
            if step % 64 == 0 && trouble == 2 {
                unsafe { ends[who].wire().share(random.below(2) == 0) };
            }
            let left = total[who] - ends[who].sent;
            if left > 0 && random.below(2) == 0 {
                let message = under_way[who].take();
                let mut message = message.unwrap_or_else(|| {
                    let n = random.size().max(random.size()).min(left);
                    Message::new(&ends[who], n)
                });
                message.send(&mut ends[who]);
                let gives_up = trouble > 0 && random.below(64) == 0;
                if message.at < message.buffer.len() && !gives_up {
                    under_way[who] = Some(message);
                }
                if trouble > 0 && random.below(32) == 0 && ends[who].sent < total[who] {
                    // (leaves room for what is under way)
                    let most = total[who] - ends[who].sent;
                    let held = under_way[who].as_ref().map_or(0, |m| m.buffer.len() - m.at);
                    if most > held {
                        ends[who].send(&mut random, most - held);
                        let end = &ends[who];
                        under_way[who].iter_mut().for_each(|m| m.renew(end));
                    }
                }
            } else {
                ends[who].flush();
                if ends[who].receive(&mut random) == 0 && random.below(2) == 0 {
                    wait(&ends[who], &mut random);
                }
            }
            if ends[0].received == total[1] && ends[1].received == total[0] {
                break;
            }
            if step % 1024 == 0 {
                assert!(begun.elapsed().as_secs() < 60, "seed {seed} stands still");
            }
        }
        for who in [0, 1] {
            assert!(ends[who].state() == State::Open, "seed {seed}");
        }
        for who in [0, 1] {
            let (r, w) = advertised(&ends)[who];
            let came = unsafe { ends[1 - who].wire().incoming() }.read_bytes();
            // (what was written last may not have been told of)
            assert!(r + w <= came, "seed {seed}: {came} bytes of {r} and {w}");
            (read, written) = (read + r, written + w);
        }
    }
    let counts = format!("{read} bytes were read of buffers, {written} written to them");
    assert!(read > 1_000_000 && written > 1_000_000, "{counts}");
}

#[test]
fn the_mode_ends_at_any_byte_of_a_buffer() {
    for seed in 1..25_u64 {
        let mut random = Random(seed.wrapping_mul(0xd134_2543_de82_ef95));
        let w = advertising(want(seed % 2 == 0, (65536, 32768)), 65_536);
        let mut ends = pair([w, w], [20_000, 200_000][random.below(2)]);
        ends[1].receive(&mut random); // (a responder has to hear first)
        let total = 2_000_000;
        let turn = random.below(total);
        let leaves = random.below(2);
        let mut message = Message::new(&ends[0], total);
        let mut turned = [false; 2];
        let begun = std::time::Instant::now();
        while ends[1].received < total {
            assert!(begun.elapsed().as_secs() < 60, "seed {seed} stands still");
            if message.at < total && random.below(2) == 0 {
                message.send(&mut ends[0]);
            } else {
                ends[0].flush();
                ends[0].receive(&mut random);
            }
            if ends[1].receive(&mut random) == 0 {
                wait(&ends[1], &mut random);
            }
            for who in [leaves, 1 - leaves] {
                let wire = ends[who].wire();
                let follows = wire
                    .common
                    .to_plain
                    .load(std::sync::atomic::Ordering::Acquire);
                let first = who == leaves && ends[0].sent >= turn;
                if !turned[who] && (first || follows) {
                    let fd = ends[who].fd.as_raw_fd();
                    turned[who] = unsafe { wire.out().go_plain(&wire.common, fd).unwrap() };
                }
            }
        }
        if turned == [true; 2] {
            ends[1].receive(&mut random);
            assert_eq!(ends[1].state(), State::Plain, "seed {seed}");
        }
    }
}

#[test]
fn a_reader_that_does_not_come_is_not_waited_for_long() {
    let w = advertising(want(false, (65536, 32768)), 65_536);
    let mut ends = pair([w, w], 2_000_000);
    let mut random = Random(3);
    ends[1].receive(&mut random);
    let mut message = Message::new(&ends[0], 300_000);
    assert!(matches!(message.send(&mut ends[0]), Sent::Bytes(16_384)));
    assert_eq!(message.send(&mut ends[0]), Sent::NoCredit);
    assert!(ends[0].wire().common.adverts.is_awaited());
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(matches!(message.send(&mut ends[0]), Sent::Bytes(_)));
    while message.at < 300_000 {
        message.send(&mut ends[0]);
    }
    assert_eq!(advertised(&ends), [(0, 0); 2]);
    while ends[1].received < 300_000 {
        ends[1].receive(&mut random);
    }
    // What it has asked for meanwhile is void.
    ends[0].receive(&mut random);
    assert_eq!(ends[0].state(), State::Open);
}

#[test]
fn a_call_that_cannot_wait_advertises_nothing() {
    let w = advertising(want(true, (65536, 32768)), 65_536);
    let mut ends = pair([w, w], 2_000_000);
    let mut random = Random(5);
    ends[1].receive(&mut random);
    for _ in 0..20 {
        ends[0].send(&mut random, 600_000);
        while ends[1].received < ends[0].sent {
            ends[1].receive(&mut random);
        }
    }
    assert!(!ends[0].wire().common.adverts.were_made());
}

#[test]
fn a_reader_that_waits_is_written_to() {
    for crc in [false, true] {
        let w = advertising(want(crc, (65536, 32768)), 65_536);
        let mut ends = pair([w, w], 2_000_000);
        let mut random = Random(9);
        ends[1].receive(&mut random);
        for _ in 0..30 {
            wait_long(&ends[1]);
            let mut message = Message::new(&ends[0], 500_000);
            while message.at < 500_000 {
                message.send(&mut ends[0]);
                if ends[1].receive(&mut random) == 0 {
                    wait_long(&ends[1]);
                }
                ends[0].receive(&mut random);
            }
            while ends[1].received < ends[0].sent {
                ends[1].receive(&mut random);
            }
            ends[0].receive(&mut random);
        }
        let (read, written) = advertised(&ends)[0];
        // The first was read; who has read wished to be written to.
        assert!(read > 400_000 && written > 10_000_000, "{read} {written}");
        assert_eq!(ends[0].state(), State::Open);
        assert_eq!(ends[1].state(), State::Open);
    }
}

fn wait_long(end: &End) {
    let wire = end.wire();
    unsafe { wire.incoming() }.advertise(&wire.common, 1 << 20);
    end.serve();
}

#[test]
fn reads_that_became_void_take_no_place() {
    let w = advertising(want(false, (65536, 32768)), 65_536);
    let mut ends = pair([w, w], 2_000_000);
    let mut random = Random(3);
    ends[1].receive(&mut random);
    for round in 0..4 {
        let mut message = Message::new(&ends[0], 2_000_000);
        message.send(&mut ends[0]);
        while ends[1].received < ends[0].sent {
            ends[1].receive(&mut random);
        }
        ends[0].receive(&mut random); // what it has asked for
        ends[0].send(&mut random, 10); // another call takes the buffer back
        while ends[1].received < ends[0].sent {
            ends[1].receive(&mut random);
        }
        ends[0].receive(&mut random);
        assert_eq!(ends[0].state(), State::Open, "round {round}");
        std::thread::sleep(std::time::Duration::from_millis(120)); // (until it advertises again)
    }
}

#[test]
fn a_call_that_cannot_wait_goes_on_where_another_gave_up() {
    let w = advertising(want(false, (65536, 32768)), 65_536);
    let mut ends = pair([w, w], 2_000_000);
    let mut random = Random(3);
    ends[1].receive(&mut random);
    let mut message = Message::new(&ends[0], 200_000);
    message.send(&mut ends[0]);
    assert_eq!(message.send(&mut ends[0]), Sent::NoCredit);
    let rest = &mut message.buffer[message.at..];
    let mut walk = Walk::one(rest.as_mut_ptr(), rest.len());
    let (wire, fd) = (ends[0].wire(), ends[0].fd.as_raw_fd());
    let sent = unsafe { wire.out().send(&wire.common, fd, &mut walk, 0) };
    assert!(matches!(sent, Ok(Sent::Bytes(_))), "{sent:?}");
}
