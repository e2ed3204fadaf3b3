//! Two ends on a pair of sockets, in one thread: whatever pieces the kernel takes and gives, the bytes are the same.

mod adverts;
mod back;
#[cfg(target_arch = "x86_64")]
// (elsewhere a single step does not get through a pair of exclusive accesses)
mod killed;
mod packetized;

use super::outgoing::STREAK;
use super::set_up::{Asker, LONGEST, Reply, Verdict, Want, answer};
use super::{Agreed, Flow, Gathered, Sent, State, Wire};
use crate::sdp::Walk;
use crate::sys::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Mostly small, sometimes large.
    fn size(&mut self) -> usize {
        match self.below(4) {
            0 => 1 + self.below(20),
            1 => 1 + self.below(3000),
            2 => 1 + self.below(70_000),
            _ => 1 + self.below(600_000),
        }
    }
}

/// The byte at a position of the stream of this end.
fn byte(end: usize, at: usize) -> u8 {
    (at.wrapping_mul(31) ^ (at >> 9) ^ end.wrapping_mul(77)) as u8
}

struct End {
    number: usize,
    wire: NonNull<Wire>,
    fd: OwnedFd,
    sent: usize,
    received: usize,
    buffer: Vec<u8>,
}

impl End {
    fn new(number: usize, agreed: &Agreed, fd: OwnedFd) -> Self {
        Self {
            number,
            wire: Wire::agreed(agreed).unwrap(),
            fd,
            sent: 0,
            received: 0,
            buffer: vec![0; 1 << 20],
        }
    }

    fn wire(&self) -> &Wire {
        unsafe { self.wire.as_ref() }
    }

    fn send(&mut self, random: &mut Random, most: usize) -> Sent {
        let n = random.size().min(most);
        for (i, b) in self.buffer[..n].iter_mut().enumerate() {
            *b = byte(self.number, self.sent + i);
        }
        let (first, second) = self.buffer[..n].split_at_mut(random.below(n + 1));
        let entries = [first, second].map(|s| libc::iovec {
            iov_base: s.as_mut_ptr().cast(),
            iov_len: s.len(),
        });
        let mut walk = unsafe { Walk::many(entries.as_ptr(), 2, n) };
        let wire = unsafe { self.wire.as_ref() };
        let mut out = unsafe { wire.out() };
        let sent = unsafe { out.send(&wire.common, self.fd.as_raw_fd(), &mut walk, 0) };
        let mut sent = sent.unwrap();
        if !matches!(sent, Sent::Bytes(_)) {
            let parked = unsafe { out.park(&wire.common, &mut walk) };
            if parked > 0 {
                sent = Sent::Bytes(parked);
            }
        }
        drop(out);
        self.buffer[..n].fill(0xee); // what is sent is sent
        if let Sent::Bytes(n) = sent {
            assert_eq!(n, walk.done());
            self.sent += n;
        }
        sent
    }

    fn receive(&mut self, random: &mut Random) -> usize {
        let wire = unsafe { self.wire.as_ref() };
        let mut incoming = unsafe { wire.incoming() };
        let (fd, other) = (self.fd.as_raw_fd(), 1 - self.number);
        match random.below(6) {
            0 => drop(incoming.available(&wire.common, fd)),
            1 => drop(incoming.is_readable(&wire.common, fd)),
            2 => {
                let mut walk = Walk::one(self.buffer.as_mut_ptr(), random.size());
                let n = unsafe { incoming.peek(&wire.common, fd, &mut walk, false) };
                for i in 0..n {
                    assert_eq!(self.buffer[i], byte(other, self.received + i), "peeked");
                }
            }
            _ => {}
        }
        let want = random.size();
        let mut walk = Walk::one(self.buffer.as_mut_ptr(), want);
        let n = unsafe { incoming.read(&wire.common, fd, &mut walk, false) };
        for i in 0..n {
            assert_eq!(
                self.buffer[i],
                byte(other, self.received + i),
                "byte {}",
                self.received + i
            );
        }
        self.received += n;
        self.serve();
        n
    }

    fn serve(&self) {
        let wire = self.wire();
        if wire.common.due.load(std::sync::atomic::Ordering::Acquire) {
            unsafe { wire.out().serve(&wire.common, self.fd.as_raw_fd()).unwrap() };
        }
    }

    fn flush(&self) -> bool {
        let (wire, fd) = (self.wire(), self.fd.as_raw_fd());
        unsafe { wire.out().flush_all(&wire.common, fd).unwrap() };
        unsafe { wire.out().pending() == 0 }
    }

    fn state(&self) -> State {
        unsafe { self.wire().incoming().state() }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        unsafe { Wire::release(self.wire) };
    }
}

fn agree(wants: [Want; 2]) -> [Agreed; 2] {
    let (mut request, mut reply) = ([0; LONGEST], [0; LONGEST]);
    let (asker, len) = Asker::ask(wants[0], &mut request).unwrap();
    for n in 0..len {
        let partial = answer(&request[..n], wants[1], false, &mut reply);
        assert_eq!(partial, Verdict::Partial);
    }
    let Verdict::Agreed {
        agreed,
        used,
        reply: n,
    } = answer(&request[..len], wants[1], false, &mut reply)
    else {
        panic!("not agreed");
    };
    assert_eq!(used, len);
    for n in 0..n {
        assert_eq!(asker.hear(&reply[..n]), Reply::Partial);
    }
    let Reply::Agreed(first, used) = asker.hear(&reply[..n]) else {
        panic!("not agreed");
    };
    assert_eq!(used, n);
    [first, agreed]
}

fn pair(wants: [Want; 2], buffer: i32) -> [End; 2] {
    let [first, second] = agree(wants);
    let (a, b) = UnixStream::pair().unwrap();
    for s in [&a, &b] {
        let len = size_of_val(&buffer) as u32;
        let r = unsafe {
            libc::setsockopt(
                s.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_SNDBUF,
                (&raw const buffer).cast(),
                len,
            )
        };
        assert_eq!(r, 0);
    }
    let ends = [
        End::new(0, &first, a.into()),
        End::new(1, &second, b.into()),
    ];
    assert!(ends[0].flush());
    ends
}

const fn want(crc: bool, buffers: (u32, u16)) -> Want {
    Want {
        crc,
        buffers,
        adverts: None,
        flow: Flow {
            packetized: false,
            answers: false,
            buffer: 1 << 19,
            own: 1 << 19,
        },
    }
}

/// The same of a side whose direction is packetized.
const fn packetized(want: Want, buffer: u64) -> Want {
    let flow = Flow {
        packetized: true,
        answers: false,
        buffer,
        own: buffer,
    };
    Want { flow, ..want }
}

#[test]
fn the_bytes_arrive_whatever_the_pieces() {
    for seed in 1..60_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut one = || match random.below(4) {
            0 => want(seed % 2 == 0, (1024 + random.below(9000) as u32, 5)),
            1 => want(seed % 2 == 0, (8192, 8)),
            2 => want(seed % 2 == 0, (256 + random.below(3000) as u32, 255)), // (many go together)
            _ => want(seed % 2 == 0, (65536, 32768)),
        };
        let mut wants = [one(), one()];
        for want in &mut wants {
            match random.below(4) {
                0 | 1 => {
                    let size = [4096, 10_000, 100_000, 1 << 20][random.below(4)];
                    *want = packetized(*want, size);
                }
                2 => want.flow.answers = true, // (slots, if it keeps few, of which a peer that knows of it asks)
                _ => {}
            }
        }
        let buffer = [4096, 20_000, 200_000, 2_000_000][random.below(4)];
        let mut ends = pair(wants, buffer);
        let total = [random.size() * 3, random.size() * 3];
        for step in 0..1_000_000 {
            let who = random.below(2);
            if step % 16 == 0 {
                // (every other time of a few that several processes hold, or did)
                unsafe { ends[who].wire().share(seed % 3 > 0 && random.below(2) == 0) };
            }
            if ends[who].sent < total[who] && random.below(2) == 0 {
                let most = total[who] - ends[who].sent;
                ends[who].send(&mut random, most);
            } else {
                ends[who].flush();
                ends[who].receive(&mut random);
            }
            if ends[0].received == total[1] && ends[1].received == total[0] {
                break;
            }
        }
        assert_eq!([ends[1].received, ends[0].received], total, "seed {seed}");
        // Both halves end.
        for who in [0, 1] {
            for _ in 0..10_000 {
                let (wire, fd) = (ends[who].wire(), ends[who].fd.as_raw_fd());
                unsafe { wire.out().finish(&wire.common, fd).unwrap() };
                ends[1 - who].receive(&mut random);
                ends[who].receive(&mut random);
                if ends[1 - who].state() == State::Eof {
                    break;
                }
            }
            assert_eq!(ends[1 - who].state(), State::Eof, "seed {seed}");
        }
    }
}

/// A sender ends while a part of an FPDU waits with it: its peer reads what came before, and a failure, not the end of the stream.
#[test]
fn who_finds_the_end_behind_a_part_of_an_fpdu_knows() {
    let mut cut = 0;
    for seed in 1..120_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let want = || want(seed % 2 == 0, (65536, 32768));
        let buffer = [4096, 20_000, 200_000][random.below(3)];
        let [mut one, mut other] = pair([want(), want()], buffer);
        let waits = |end: &End| unsafe { end.wire().out() }.pending() > 0;
        while matches!(one.send(&mut random, 100_000), Sent::Bytes(_)) && !waits(&one) {}
        let (sent, is_cut) = (one.sent, unsafe { one.wire().out() }.is_cut());
        drop(one);
        while other.receive(&mut random) > 0 || other.state() == State::Open {}
        if is_cut {
            cut += 1;
            assert!(other.received < sent, "seed {seed}");
            let common = &other.wire().common;
            assert!(
                unsafe { other.wire().incoming() }.has_failed(common),
                "seed {seed}"
            );
        }
    }
    assert!(cut > 20, "{cut} were cut");
}

#[test]
fn plain_bytes_follow_where_the_mode_ends() {
    for seed in 1..30_u64 {
        let mut random = Random(seed.wrapping_mul(0xd134_2543_de82_ef95));
        let mut w = want(seed % 2 == 0, (65536, 32768));
        if random.below(2) == 0 {
            w = packetized(w, [4096, 65536, 1 << 20][random.below(3)]);
        }
        let mut ends = pair([w, w], 100_000);
        let turn = [random.size(), random.size()];
        let total = turn.map(|n| n + 200_000);
        let mut turned = [false; 2];
        for step in 0..1_000_000 {
            let who = random.below(2);
            if step % 16 == 0 {
                unsafe { ends[who].wire().share(seed % 3 > 0 && random.below(2) == 0) };
            }
            let sent = ends[who].sent;
            if !turned[who] && sent >= turn[who] {
                let (wire, fd) = (ends[who].wire(), ends[who].fd.as_raw_fd());
                turned[who] = unsafe { wire.out().go_plain(&wire.common, fd).unwrap() };
                ends[who].receive(&mut random); // (a responder has to hear first)
            } else if sent < total[who] && random.below(2) == 0 {
                let most = if turned[who] { total[who] } else { turn[who] } - sent;
                ends[who].send(&mut random, most);
            } else {
                ends[who].flush();
                ends[who].receive(&mut random);
            }
            if ends[0].received == total[1] && ends[1].received == total[0] {
                break;
            }
        }
        assert_eq!([ends[1].received, ends[0].received], total, "seed {seed}");
        assert_eq!([ends[0].state(), ends[1].state()], [State::Plain; 2]);
        assert!(
            [0, 1]
                .iter()
                .all(|&i| unsafe { ends[i].wire().out().is_plain() })
        );
    }
}

#[test]
fn credits_stop_the_sender_and_reading_lets_it_go_on() {
    let mut random = Random(7);
    let mut ends = pair([want(false, (1000, 8)); 2], 2_000_000);
    ends[1].receive(&mut random); // (a responder has to hear first)
    let mut most = 0;
    while ends[1].send(&mut random, 500) != Sent::NoCredit {
        most += 1;
        assert!(most < 20);
    }
    assert_eq!(most, 6); // two of eight are kept
    while ends[0].receive(&mut random) > 0 {}
    ends[1].receive(&mut random);
    assert!(matches!(ends[1].send(&mut random, 500), Sent::Bytes(_)));
}

#[test]
fn a_responder_waits_until_it_has_heard() {
    let mut random = Random(3);
    let mut ends = pair([want(true, (65536, 100)); 2], 100_000);
    let early = ends[1].send(&mut random, 100);
    assert!(matches!(early, Sent::Bytes(_)), "taken, to go later");
    assert!(!ends[1].flush());
    assert!(unsafe { ends[1].wire().out().is_stuck(&ends[1].wire().common) });
    assert_eq!(ends[0].receive(&mut random), 0);
    ends[1].receive(&mut random);
    assert!(ends[1].flush());
    while ends[0].received < ends[1].sent {
        assert!(ends[0].receive(&mut random) > 0);
    }
    assert!(matches!(ends[1].send(&mut random, 100), Sent::Bytes(_)));
}

/// Sends one message of 64 bytes as `preload` does; whether it waits to go with others.
fn send_small(end: &mut End) -> bool {
    let at = end.sent;
    for (i, b) in end.buffer[..64].iter_mut().enumerate() {
        *b = byte(end.number, at + i);
    }
    let mut walk = Walk::one(end.buffer.as_mut_ptr(), 64);
    let fd = end.fd.as_raw_fd();
    let wire = unsafe { end.wire.as_ref() };
    let mut out = unsafe { wire.out() };
    let gathered = if wire.common.may_gather() {
        unsafe { out.gather(&wire.common, &mut walk) }
    } else {
        Gathered::No
    };
    if gathered == Gathered::No {
        let sent = unsafe { out.send(&wire.common, fd, &mut walk, 0) };
        assert_eq!(sent, Ok(Sent::Bytes(64)));
    }
    end.sent += 64;
    out.pending() > 0
}

#[test]
fn small_messages_go_together_once_many_follow_each_other() {
    for crc in [false, true] {
        let mut random = Random(11);
        let mut ends = pair([want(crc, (65536, 32768)); 2], 2_000_000);
        let mut waited = 0;
        for _ in 0..1000 {
            // Whatever the clock says, the first ones go at once, and so do those that come after a read.
            for n in 1..STREAK {
                assert!(!send_small(&mut ends[0]), "message {n}");
            }
            for _ in 0..100 {
                waited += u32::from(send_small(&mut ends[0]));
            }
            assert!(ends[0].flush());
            assert!(ends[0].wire().common.gathered_since().is_none());
            while ends[1].received < ends[0].sent {
                assert!(ends[1].receive(&mut random) > 0, "nothing is kept");
            }
            ends[0].wire().common.note_read();
            if waited > 500 {
                break;
            }
        }
        // (a machine on which no two calls ever follow each other would take longer than this test)
        assert!(waited > 500, "{waited}");
        assert!(unsafe { ends[0].wire().out() }.counts().0 < (ends[0].sent / 64) as u64);
    }
}

#[test]
fn what_is_gathered_goes_before_what_ends_the_mode() {
    for ends_how in 0..2 {
        let mut random = Random(13);
        let mut ends = pair([want(false, (65536, 32768)); 2], 2_000_000);
        while !send_small(&mut ends[0]) {
            ends[1].receive(&mut random);
        }
        let (wire, fd) = (ends[0].wire(), ends[0].fd.as_raw_fd());
        let mut out = unsafe { wire.out() };
        match ends_how {
            0 => drop(out.finish(&wire.common, fd)),
            _ => assert_eq!(out.go_plain(&wire.common, fd), Ok(true)),
        }
        drop(out);
        for _ in 0..10_000 {
            ends[1].receive(&mut random);
        }
        assert_eq!(ends[1].received, ends[0].sent);
        let end = [State::Eof, State::Plain][ends_how];
        assert_eq!(ends[1].state(), end);
    }
}

#[test]
fn nonsense_resets_and_is_answered_with_a_terminate() {
    for crc in [false, true] {
        let mut random = Random(5);
        let ends = pair([want(crc, (65536, 100)); 2], 100_000);
        ends[1].wire();
        let junk: Vec<u8> = (0..200_000).map(|_| random.next() as u8).collect();
        let r = unsafe {
            crate::sys::net::send(
                ends[0].fd.as_raw_fd(),
                junk.as_ptr(),
                60_000,
                libc::MSG_DONTWAIT,
            )
        };
        assert_ne!(r, Err(Errno::AGAIN));
        let wire = ends[1].wire();
        let mut incoming = unsafe { wire.incoming() };
        let mut buffer = vec![0; 4096];
        for _ in 0..100 {
            let mut walk = Walk::one(buffer.as_mut_ptr(), buffer.len());
            unsafe { incoming.read(&wire.common, ends[1].fd.as_raw_fd(), &mut walk, false) };
        }
        if incoming.state() == State::Reset {
            assert!(incoming.take_terminate().is_some());
        } else {
            assert!(crc, "an FPDU that is not whole yet");
        }
    }
}

#[test]
fn what_is_no_request_is_left_alone() {
    let mut reply = [0; LONGEST];
    let w = want(false, (65536, 100));
    for plain in [&b"GET / HTTP/1.1\r\n"[..], b"M", b"MPA ID R", b"\0"] {
        let verdict = answer(plain, w, false, &mut reply);
        let begins = b"MPA ID Req Frame".starts_with(plain);
        assert_eq!(verdict == Verdict::Partial, begins);
        assert_eq!(verdict == Verdict::Foreign, !begins);
    }
    let mut request = [0; LONGEST];
    let (asker, len) = Asker::ask(w, &mut request).unwrap();
    let Verdict::Declined { used, reply: n } = answer(&request[..len], w, true, &mut reply) else {
        panic!("not declined");
    };
    assert_eq!((used, asker.hear(&reply[..n])), (len, Reply::Declined(n)));
    assert_eq!(asker.hear(b"220 mail.example ESMTP"), Reply::Foreign);
    // Both have asked: each declines.
    assert_eq!(asker.hear(&request[..len]), Reply::Declined(len));
    assert_eq!(asker.hear(&request[..len - 1]), Reply::Partial);
}
