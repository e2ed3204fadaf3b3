//! Messages in a lane: both ends are this process, and the pipe is an ordinary one, so what is tested is the
//! order of bytes, and what a lie comes to.

use crate::direct::far::Far;
use crate::direct::policy::{self, Mode};
use crate::direct::{Direct, Lane, set_pid};
use crate::provider::{End, Provider};
use crate::sdp::rx::{Got, How};
use crate::sdp::{Put, Rx, Tx, Walk};
use crate::shm::segment::Segment;
use crate::shm::tests::Joined;
use crate::sys::fd::{Fd, inode};
use crate::syscall;
use flowctl::{Scheme, Terms};

pub(super) const LEAST: usize = 4096;

/// A pipe: the reading end, the writing one, its number.
fn pipe() -> (Fd, Fd, u64) {
    let mut ends = [0i32; 2];
    // SAFETY: two ints are written.
    unsafe { syscall!(pipe2, ends.as_mut_ptr(), libc::O_NONBLOCK) }.unwrap();
    let [from, to] = ends.map(Fd::own);
    let number = inode(from.raw()).unwrap();
    (from, to, number)
}

/// Two sides that may look into each other, the first of which sends.
pub(super) fn sides(joined: &Joined) -> (Segment, Segment, Tx, Rx) {
    policy::set(Mode::Async, LEAST);
    set_pid(crate::sys::pid());
    let (mut a, mut b) = joined.sides(1);
    for side in [&mut a, &mut b] {
        side.set_peer_user(crate::sys::euid());
    }
    a.settle_in();
    b.settle_in();
    let terms = Terms {
        scheme: Scheme::Nic,
        buffer: 2048,
        own: 2048,
        slots: 8,
        slot: 256,
        window: 256,
    };
    let mut tx = Tx::new();
    tx.attach(&a, -1, &terms);
    (a, b, tx, Rx::new())
}

fn far() -> &'static Far {
    Box::leak(Box::new(Far::new()))
}

fn read(rx: &mut Rx, p: &Segment, buf: &mut [u8], far: &'static Far, peek: bool) -> Got {
    let how = How {
        peek,
        far: Some(far),
        ..How::default()
    };
    let mut walk = Walk::one(buf.as_mut_ptr(), buf.len());
    // SAFETY: the buffer.
    unsafe { rx.read(p, -1, &mut walk, how) }.unwrap()
}

/// Holds a message: what a pipe has no room for is not taken.
fn hold(tx: &mut Tx, p: &Segment, to: &Fd, bytes: &mut [u8]) -> usize {
    let mut walk = Walk::one(bytes.as_mut_ptr(), bytes.len());
    let put = |at: *const u8, len| {
        // SAFETY: the walk's bytes.
        unsafe { syscall!(write, to.raw(), at, len) }.unwrap_or(0)
    };
    // SAFETY: as above.
    unsafe { tx.hold(p, -1, &mut walk, put) }.unwrap();
    walk.done()
}

fn offer(a: &Segment, b: &Segment, from: &Fd, number: u64, far: &'static Far) {
    a.offer_lane(from.raw(), number);
    assert_eq!(a.lane(), Lane::Offered);
    b.fetch(far);
}

#[test]
fn bytes_of_the_ring_and_of_the_lane_come_in_order() {
    let joined = Joined::new(4096);
    let (a, b, mut tx, mut rx) = sides(&joined);
    let (from, to, number) = pipe();
    let far = far();
    offer(&a, &b, &from, number, far);
    assert_eq!(a.lane(), Lane::Fetched);
    let (mut seed, mut sent, mut got) = (7u64, 0usize, 0usize);
    let mut dice = |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % n
    };
    let byte = |at: usize| (at * 31 + at / 251) as u8;
    for _ in 0..4000 {
        match dice(4) {
            0 => {
                let len = LEAST + dice(9000);
                let mut bytes: Vec<u8> = (sent..sent + len).map(byte).collect();
                sent += hold(&mut tx, &a, &to, &mut bytes);
            }
            1 => {
                let len = 1 + dice(1500);
                let mut bytes: Vec<u8> = (sent..sent + len).map(byte).collect();
                let mut walk = Walk::one(bytes.as_mut_ptr(), len);
                // SAFETY: the vector.
                if let Ok(Put::Bytes(n)) = unsafe { tx.put(&a, -1, &mut walk, false) } {
                    sent += n;
                }
            }
            k => {
                let mut buf = vec![0; 1 + dice(20_000)];
                let there = rx.available(&b).unwrap_or(0);
                assert_eq!(there, sent - got);
                assert_eq!(tx.unread(&a), there as u64);
                let n = match read(&mut rx, &b, &mut buf, far, k == 2) {
                    Got::Bytes(n) => n,
                    Got::Empty => 0,
                    other => panic!("{other:?}"),
                };
                assert_eq!(n, buf.len().min(there), "of {there}");
                assert!((0..n).all(|i| buf[i] == byte(got + i)));
                got += if k == 2 { 0 } else { n };
            }
        }
    }
    assert!(got > 1_000_000 && a.moved() > 1_000_000);
    // Gathered, all the rest comes too, once.
    tx.end_fast(&a, -1);
    let rest = rx.gather(&b, -1, Some(far)).unwrap();
    assert_eq!(rest.len(), sent - got);
    assert!((0..rest.len()).all(|i| rest[i] == byte(got + i)));
    assert_eq!(b.stated(End::Fast), Some(tx.fast_bytes()));
}

/// The peer says that more is in the lane than is, or that it is in another.
#[test]
fn a_lane_that_holds_less_than_was_said_breaks_the_stream() {
    for lie in 0..4 {
        let joined = Joined::new(4096);
        let (a, b, mut tx, mut rx) = sides(&joined);
        let (from, to, number) = pipe();
        let far = far();
        offer(&a, &b, &from, number, far);
        assert_eq!(a.lane(), Lane::Fetched);
        let mut bytes = [1u8; LEAST];
        assert_eq!(hold(&mut tx, &a, &to, &mut bytes), LEAST);
        let advert = &a.mine().adverts[1];
        let (len, lane) = (&advert.len, &advert.lane);
        let order = std::sync::atomic::Ordering::Relaxed;
        match lie {
            0 => len.store(LEAST as u64 + 1, order),
            1 => len.store(u64::MAX, order),
            2 => lane.store(lane.load(order) + 1, order),
            _ => advert.at.store(u64::MAX, order),
        }
        let mut buf = vec![0; 3 * LEAST];
        assert!(rx.gather(&b, -1, Some(far)).is_err(), "lie {lie}");
        let mut rx = Rx::new();
        let seen = read(&mut rx, &b, &mut buf, far, true);
        let mut last = read(&mut rx, &b, &mut buf, far, false);
        for _ in 0..3 {
            if matches!(last, Got::Bytes(_)) {
                last = read(&mut rx, &b, &mut buf, far, false);
            }
        }
        assert_eq!(last, Got::Broken, "lie {lie}, seen {seen:?}");
    }
}

#[test]
fn what_is_not_the_lane_that_was_named_is_refused() {
    let joined = Joined::new(4096);
    let (a, b, ..) = sides(&joined);
    let (from, to, number) = pipe();
    let far = far();
    for (fd, number) in [
        (from.raw(), number + 1),
        (to.raw(), number),
        (-1, number),
        (i32::MAX, number),
    ] {
        a.offer_lane(fd, number);
        b.fetch(far);
        assert_eq!(a.lane(), Lane::Refused);
        assert!(!far.is_open());
    }
    // (nor one in which something is already)
    let (other, into, its) = pipe();
    // SAFETY: one byte.
    unsafe { syscall!(write, into.raw(), [1u8].as_ptr(), 1) }.unwrap();
    a.offer_lane(other.raw(), its);
    b.fetch(far);
    assert_eq!(a.lane(), Lane::Refused);
    // A process that does not map this segment.
    // SAFETY: the child does nothing but wait to be killed.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: no pointers.
            unsafe { libc::pause() };
        }
    }
    a.offer_lane(from.raw(), number);
    a.mine()
        .home
        .at
        .store(0x1000, std::sync::atomic::Ordering::Relaxed);
    let pid = &a.mine().home.pid;
    pid.store(child.cast_unsigned(), std::sync::atomic::Ordering::Relaxed);
    b.fetch(far);
    assert_eq!(a.lane(), Lane::Refused);
    // SAFETY: our own child.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}
