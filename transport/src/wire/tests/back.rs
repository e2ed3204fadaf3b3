//! One end leaves RDMA mode for good with bytes that its program has not read: they come once more, plain, before
//! everything that follows them, whatever goes on meanwhile.

use super::super::common::Return;
use super::{End, Random, byte, packetized, pair, want};
use std::os::fd::AsRawFd;

/// Takes everything that is here out of the stream, as a program does not.
pub(super) fn take_unread(end: &mut End, kept: &mut Vec<u8>) {
    let (wire, fd) = (unsafe { end.wire.as_ref() }, end.fd.as_raw_fd());
    let mut incoming = unsafe { wire.incoming() };
    incoming.look_for_plain(&wire.common, fd);
    while incoming.held() > 0 {
        let n = end.buffer.len().min(incoming.held());
        let mut walk = super::Walk::one(end.buffer.as_mut_ptr(), n);
        let n = unsafe { incoming.read(&wire.common, fd, &mut walk, false) };
        kept.extend_from_slice(&end.buffer[..n]);
    }
}

/// What `preload` does at each call once the peer wants plain bytes.
fn follow(end: &End) {
    let (wire, fd) = (end.wire(), end.fd.as_raw_fd());
    unsafe {
        wire.incoming().available(&wire.common, fd);
        wire.resume(fd).unwrap();
        wire.out().flush_all(&wire.common, fd).unwrap();
        if wire
            .common
            .to_plain
            .load(std::sync::atomic::Ordering::Acquire)
        {
            wire.out().go_plain(&wire.common, fd).unwrap();
        }
    }
}

/// Bytes that the kernel gives now, as a program without the library reads them.
fn read_plainly(end: &End, into: &mut Vec<u8>) {
    let mut part = [0; 10_000];
    let flags = libc::MSG_DONTWAIT;
    let fd = end.fd.as_raw_fd();
    while let Ok(n) = unsafe { crate::sys::net::recv(fd, part.as_mut_ptr(), part.len(), flags) } {
        if n == 0 {
            return;
        }
        into.extend_from_slice(&part[..n]);
    }
}

/// Bytes that the other end sends.
const ALL: usize = 900_000;

#[test]
fn what_was_not_read_comes_once_more_and_first() {
    let mut came_back = 0;
    for seed in 1..60_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let buffers = [(65536, 32768), (2000, 12), (900, 100)][random.below(3)];
        let mut w = want(seed % 2 == 0, buffers);
        if buffers.1 == 32768 && seed % 4 < 2 {
            w = packetized(w, [4096, 65536, 1 << 20][random.below(3)]);
        }
        // (who keeps slots is asked for them: a sender that has none left could not say that it wants to leave)
        w.flow.answers = buffers.1 < 32768;
        let mut ends = pair([w, w], [20_000, 200_000, 2_000_000][random.below(3)]);
        let leaver = random.below(2);
        let other = 1 - leaver;
        let until = [random.below(100_000), random.below(100_000)];
        let mut said = false;
        let mut gave = None;
        let mut kept = Vec::new();
        let mut plain = Vec::new();
        for _ in 0..200_000 {
            if random.below(3) == 0 && ends[other].sent < ALL {
                ends[other].send(&mut random, 30_000);
            }
            ends[other].flush();
            ends[other].receive(&mut random);
            follow(&ends[other]);
            let fd = ends[leaver].fd.as_raw_fd();
            if !said {
                if ends[leaver].sent < until[leaver] {
                    ends[leaver].send(&mut random, until[leaver]);
                }
                // (some of what has come is read, and some is not)
                if ends[leaver].received < until[other] {
                    ends[leaver].receive(&mut random);
                } else {
                    let wire = ends[leaver].wire();
                    said = unsafe { wire.out().ask_to_take_back(&wire.common, fd).unwrap() };
                }
            } else if gave.is_none() {
                ends[leaver].flush();
                take_unread(&mut ends[leaver], &mut kept);
                let wire = ends[leaver].wire();
                if unsafe { wire.incoming() }.is_past_mode() {
                    assert!(wire.common.is_returning(Return::Awaited));
                    assert!(unsafe { wire.out() }.can_give_back(&wire.common));
                    gave = Some(0);
                }
            } else if let Some(at) = gave.filter(|&at| at < kept.len()) {
                let wire = ends[leaver].wire();
                let n = unsafe { wire.out().give_back(&wire.common, fd, &kept[at..]) };
                gave = Some(at + n.unwrap());
                read_plainly(&ends[leaver], &mut plain); // (as the kernel's buffer would hold it)
            } else {
                let wire = ends[leaver].wire();
                if unsafe { wire.out().go_plain(&wire.common, fd).unwrap() } {
                    read_plainly(&ends[leaver], &mut plain);
                }
            }
            let all = ends[other].sent >= ALL;
            if gave.is_some() && all && ends[leaver].received + plain.len() == ends[other].sent {
                break;
            }
        }
        came_back += kept.len();
        let from = ends[leaver].received;
        assert_eq!(from + plain.len(), ends[other].sent, "seed {seed}");
        for (i, &b) in plain.iter().enumerate() {
            assert_eq!(b, byte(other, from + i), "seed {seed}, byte {}", from + i);
        }
        assert_eq!(ends[other].received, ends[leaver].sent, "seed {seed}");
        assert!(unsafe { ends[other].wire().out() }.is_plain());
    }
    assert!(came_back > 100_000, "{came_back}");
}

#[test]
fn where_both_ask_neither_waits() {
    let mut random = Random(17);
    let w = want(false, (65536, 100));
    let mut ends = pair([w, w], 200_000);
    ends[0].send(&mut random, 1000);
    while ends[1].received < ends[0].sent {
        ends[1].receive(&mut random); // (a responder has to hear first)
    }
    for end in &ends {
        let (wire, fd) = (end.wire(), end.fd.as_raw_fd());
        assert_eq!(
            unsafe { wire.out().ask_to_take_back(&wire.common, fd) },
            Ok(true)
        );
    }
    for _ in 0..4 {
        ends.iter().for_each(follow);
    }
    for end in &ends {
        assert!(unsafe { end.wire().out() }.is_plain());
        assert!(unsafe { end.wire().incoming() }.is_past_mode());
        assert!(!end.wire().common.is_returning(Return::Waits));
    }
}

#[test]
fn nobody_gives_back_what_was_not_asked_for() {
    let mut random = Random(19);
    let w = want(true, (65536, 100));
    let mut ends = pair([w, w], 200_000);
    ends[0].send(&mut random, 1000);
    while ends[1].received < ends[0].sent {
        ends[1].receive(&mut random);
    }
    let (wire, fd) = (ends[0].wire(), ends[0].fd.as_raw_fd());
    assert_eq!(
        unsafe { wire.out().give_back(&wire.common, fd, b"these") },
        Ok(5)
    );
    ends[1].receive(&mut random);
    assert_eq!(ends[1].state(), super::State::Reset);
}
