//! Processes that hold one connection are killed in the middle of their calls, after any number of instructions: the
//! stream goes on as if the last call had ended, or had not been made.

use super::super::set_up::Want;
use super::{End, Random, Sent, packetized, pair, want};
use crate::sdp::Walk;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What the processes have in common beside the connection.
struct Shared {
    /// Whether somebody has either lock.
    held: [AtomicU32; 2],
    /// Bytes that whoever was killed had been told of, in all his calls.
    told: AtomicU64,
}

const TX: usize = 0;
const RX: usize = 1;

impl Shared {
    fn new() -> &'static Self {
        let at: NonNull<Self> = crate::sys::mem::Mapping::family(size_of::<Self>())
            .unwrap()
            .leak()
            .cast();
        unsafe { at.as_ref() }
    }

    /// Works on a half as with its lock.
    fn with<T>(&self, half: usize, work: impl FnOnce() -> T) -> T {
        self.held[half].store(1, Ordering::SeqCst);
        let done = work();
        self.held[half].store(0, Ordering::SeqCst);
        done
    }

    /// Whether whoever was killed had a lock, which is free now.
    fn frees(&self, half: usize) -> bool {
        self.held[half].swap(0, Ordering::SeqCst) > 0
    }
}

/// Runs `work` in a child that is killed after so many instructions. How many it ran, if it came to its end before.
fn kill_after(instructions: u32, work: impl FnOnce()) -> Option<u32> {
    let traced = |request, pid: i32| {
        let null = std::ptr::null_mut::<libc::c_void>();
        assert_eq!(unsafe { libc::ptrace(request, pid, null, null) }, 0);
    };
    let child = unsafe { libc::fork() };
    if child == 0 {
        traced(libc::PTRACE_TRACEME, 0);
        unsafe { libc::raise(libc::SIGSTOP) };
        work();
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0);
    let mut status = 0;
    let mut wait = || {
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status
    };
    assert!(libc::WIFSTOPPED(wait()));
    for done in 0..instructions {
        traced(libc::PTRACE_SINGLESTEP, child);
        let status = wait();
        if !libc::WIFSTOPPED(status) {
            assert_eq!(
                (libc::WIFEXITED(status), libc::WEXITSTATUS(status)),
                (true, 0)
            );
            return Some(done);
        }
    }
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
    assert!(libc::WIFSIGNALED(wait()));
    None
}

/// How far each call is let run: to any point of the longest that was seen.
struct Reach(u32);

impl Reach {
    fn kill(&mut self, random: &mut Random, work: impl FnOnce()) {
        let after = random.below(self.0 as usize) as u32;
        if let Some(whole) = kill_after(after, work) {
            self.0 = self.0.min(whole + whole / 4 + 100);
        }
    }
}

/// Two ends of which the first is held by several.
fn shared_pair(want: Want) -> ([End; 2], &'static Shared) {
    let mut random = Random(77);
    let mut ends = pair([want; 2], 200_000);
    ends[1].receive(&mut random);
    ends[0].receive(&mut random);
    unsafe { ends[0].wire().share(true) };
    (ends, Shared::new())
}

/// The byte at a position: a few of them say where they are.
fn marked(at: usize) -> u8 {
    ((at as u32).wrapping_mul(0x9e37_79b1) >> 23) as u8
}

fn send_shared(end: &End, shared: &Shared, bytes: &mut [u8]) -> Sent {
    let (wire, fd) = (end.wire(), end.fd.as_raw_fd());
    let mut walk = Walk::one(bytes.as_mut_ptr(), bytes.len());
    shared.with(TX, || unsafe {
        wire.out().send(&wire.common, fd, &mut walk, 0).unwrap()
    })
}

fn serve_shared(end: &End, shared: &Shared) {
    let (wire, fd) = (end.wire(), end.fd.as_raw_fd());
    if wire.common.due.load(Ordering::Acquire) {
        shared.with(TX, || unsafe {
            wire.out().serve(&wire.common, fd).unwrap();
        });
    }
}

/// Everything that can be read now, by the one holder of this end.
fn read_all(end: &mut End, into: &mut Vec<u8>) {
    let (wire, fd) = (unsafe { end.wire.as_ref() }, end.fd.as_raw_fd());
    loop {
        let mut walk = Walk::one(end.buffer.as_mut_ptr(), end.buffer.len());
        let n = unsafe { wire.incoming().read(&wire.common, fd, &mut walk, false) };
        if n == 0 {
            break;
        }
        into.extend_from_slice(&end.buffer[..n]);
    }
    end.serve();
}

/// A sender is killed at any point: what came of its bytes is a beginning of them, of no less than it was told, and the
/// others' bytes come whole behind it.
fn senders(want: Want, sizes: usize, rounds: u32) {
    let (mut ends, shared) = shared_pair(want);
    let buffers = want.buffers;
    let mut random = Random(0x1234_5678_9abc_def1 ^ u64::from(rounds) ^ buffers.1 as u64);
    let mut reach = Reach(40_000);
    let mut cut = 0;
    for round in 0..rounds {
        let mut theirs: Vec<u8> = (0..4 * sizes).map(|i| 128 | marked(i)).collect();
        let messages: Vec<usize> = (0..3).map(|_| 1 + random.below(sizes)).collect();
        shared.told.store(0, Ordering::SeqCst);
        let held = &ends[0];
        reach.kill(&mut random, || {
            let mut at = 0;
            for n in messages {
                if let Sent::Bytes(n) = send_shared(held, shared, &mut theirs[at..at + n]) {
                    at += n;
                    shared.told.store(at as u64, Ordering::SeqCst);
                }
            }
        });
        let inside = shared.frees(TX);
        cut += u32::from(inside);
        let mut own: Vec<u8> = (0..100 + random.below(3000))
            .map(|i| 127 & marked(i))
            .collect();
        let (mut sent, mut got) = (0, Vec::new());
        for turn in 0.. {
            assert!(turn < 1000, "round {round}: the stream stands still");
            if sent < own.len()
                && let Sent::Bytes(n) = send_shared(&ends[0], shared, &mut own[sent..])
            {
                sent += n;
            }
            read_all(&mut ends[1], &mut got);
            assert_ne!(ends[1].state(), super::State::Reset, "round {round}");
            receive_nothing(&ends[0], shared);
            serve_shared(&ends[0], shared);
            shared.with(TX, || unsafe {
                let wire = ends[0].wire();
                let mut out = wire.out();
                out.flush_all(&wire.common, ends[0].fd.as_raw_fd()).unwrap();
            });
            if got.iter().filter(|b| **b < 128).count() == own.len() {
                break;
            }
        }
        let theirs_came = got.iter().take_while(|b| **b >= 128).count();
        let (first, rest) = got.split_at(theirs_came);
        assert_eq!(first, &theirs[..theirs_came], "round {round}");
        assert_eq!(rest, own, "round {round}");
        let told = shared.told.load(Ordering::SeqCst) as usize;
        assert!(theirs_came >= told, "round {round}");
        assert!(inside || theirs_came < told + sizes, "round {round}");
    }
    assert!(cut > rounds / 8, "{cut} of {rounds} were killed in a call");
}

/// Credits come to the shared end, which no data does.
fn receive_nothing(end: &End, shared: &Shared) {
    let (wire, fd) = (end.wire(), end.fd.as_raw_fd());
    shared.with(RX, || unsafe {
        assert_eq!(wire.incoming().available(&wire.common, fd), 0);
    });
}

#[test]
fn a_sender_is_killed_at_any_instruction() {
    senders(want(false, (65536, 32768)), 300, 60);
    senders(want(true, (65536, 32768)), 1500, 30);
}

#[test]
fn a_sender_is_killed_where_credits_are_few() {
    senders(want(false, (1000, 6)), 900, 50);
}

#[test]
fn a_sender_without_room_is_killed() {
    senders(packetized(want(false, (65536, 32768)), 4096), 3000, 50);
}

#[test]
fn a_sender_of_much_is_killed() {
    senders(want(false, (65536, 32768)), 120_000, 20);
}

/// How a holder receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Read(usize),
    Peek(usize),
    Look,
    Readable,
}

fn receive_shared(end: &End, shared: &Shared, way: Way, buffer: &mut [u8]) -> usize {
    let (wire, fd) = (end.wire(), end.fd.as_raw_fd());
    shared.with(RX, || unsafe {
        let mut incoming = wire.incoming();
        match way {
            Way::Read(n) => {
                let mut walk = Walk::one(buffer.as_mut_ptr(), n);
                incoming.read(&wire.common, fd, &mut walk, false)
            }
            Way::Peek(n) => {
                let mut walk = Walk::one(buffer.as_mut_ptr(), n);
                incoming.peek(&wire.common, fd, &mut walk, false)
            }
            Way::Look => incoming.available(&wire.common, fd),
            Way::Readable => incoming.is_readable(&wire.common, fd).into(),
        }
    })
}

/// A reader is killed at any point: what the next one reads follows what the dead was told of, or what the call that it
/// died in may have read. Whoever only looks takes nothing with him.
fn readers(want: Want, sizes: usize, rounds: u32) {
    let (mut ends, shared) = shared_pair(want);
    let buffers = want.buffers;
    let mut random = Random(0x8765_4321_9abc_def1 ^ u64::from(rounds) ^ buffers.1 as u64);
    let mut reach = Reach(40_000);
    let (mut sent, mut at, mut cut) = (0, 0, 0);
    let mut buffer = vec![0; 1 << 20];
    for round in 0..rounds {
        let ways: [Way; 3] = std::array::from_fn(|_| match random.below(6) {
            0 => Way::Peek(1 + random.below(2 * sizes)),
            1 => Way::Look,
            2 => Way::Readable,
            _ => Way::Read(1 + random.below(2 * sizes)),
        });
        for _ in 0..3 {
            let n = 1 + random.below(sizes);
            let mut bytes: Vec<u8> = (sent..sent + n).map(marked).collect();
            let mut walk = Walk::one(bytes.as_mut_ptr(), n);
            let (wire, fd) = (ends[1].wire(), ends[1].fd.as_raw_fd());
            let went = unsafe { wire.out().send(&wire.common, fd, &mut walk, 0).unwrap() };
            if let Sent::Bytes(n) = went {
                sent += n;
            }
        }
        shared.told.store(0, Ordering::SeqCst);
        let (held, room) = (&ends[0], &mut buffer);
        reach.kill(&mut random, || {
            for way in ways {
                let n = receive_shared(held, shared, way, room);
                if matches!(way, Way::Read(_)) {
                    shared.told.fetch_add(n as u64, Ordering::SeqCst);
                }
                serve_shared(held, shared);
            }
        });
        cut += u32::from(shared.frees(RX));
        at += shared.told.load(Ordering::SeqCst) as usize;
        // What is left of what was sent, and enough behind it to know where it is.
        let most = ways.iter().map(|way| match way {
            Way::Read(n) => *n,
            _ => 0,
        });
        let most = at + most.max().unwrap_or(0); // (it may not have come to hear of the last one)
        let (mut tail, mut got) = (0, Vec::new());
        for turn in 0.. {
            assert!(turn < 1000, "round {round}: the stream stands still");
            if tail < 200 {
                let mut bytes: Vec<u8> = (sent..sent + 200 - tail).map(marked).collect();
                let mut walk = Walk::one(bytes.as_mut_ptr(), bytes.len());
                let (wire, fd) = (ends[1].wire(), ends[1].fd.as_raw_fd());
                let went = unsafe { wire.out().send(&wire.common, fd, &mut walk, 0).unwrap() };
                if let Sent::Bytes(n) = went {
                    (sent, tail) = (sent + n, tail + n);
                }
            }
            ends[1].flush();
            read_nothing(&mut ends[1]);
            let n = receive_shared(&ends[0], shared, Way::Read(buffer.len()), &mut buffer);
            got.extend_from_slice(&buffer[..n]);
            serve_shared(&ends[0], shared);
            let state = unsafe { ends[0].wire().incoming().state() };
            assert_eq!(state, super::State::Open, "round {round}");
            let all_here = ends[1].flush() && n == 0;
            if tail == 200 && all_here {
                break;
            }
        }
        assert!(got.len() >= 200, "round {round}");
        let here = sent - got.len();
        let expected: Vec<u8> = (here..sent).map(marked).collect();
        assert_eq!(got, expected, "round {round}");
        assert!(
            (at..=most).contains(&here),
            "round {round}: {at} {here} {most}"
        );
        at = sent;
    }
    assert!(cut > rounds / 8, "{cut} of {rounds} were killed in a call");
}

/// What is not data for this end.
fn read_nothing(end: &mut End) {
    let mut got = Vec::new();
    read_all(end, &mut got);
    assert!(got.is_empty());
}

#[test]
fn a_reader_is_killed_at_any_instruction() {
    readers(want(false, (65536, 32768)), 300, 60);
    readers(want(true, (65536, 32768)), 1500, 30);
}

#[test]
fn a_reader_is_killed_where_credits_are_few() {
    readers(want(false, (1000, 6)), 900, 50);
}

#[test]
fn a_reader_is_killed_who_gives_room() {
    readers(packetized(want(false, (65536, 32768)), 4096), 1000, 60);
}

#[test]
fn a_reader_of_much_is_killed() {
    readers(want(false, (65536, 32768)), 60_000, 20);
}
