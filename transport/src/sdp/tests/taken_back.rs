//! A buffer that was shown and taken back, of which the ring has room for a part: who reads without waiting waits for a copy that is
//! being made, and for no more than that.

use super::held::{LEAST, sides};
use crate::direct::Direct;
use crate::sdp::rx::{Awaited, Got, How};
use crate::sdp::{Put, Rx, Tx, Walk};
use crate::shm::segment::Segment;
use crate::shm::tests::Joined;

/// What is sent; much more than the ring of `sides` holds.
const LEN: usize = 4 * LEAST;

fn put(tx: &mut Tx, p: &Segment, bytes: &mut [u8]) -> usize {
    let mut walk = Walk::one(bytes.as_mut_ptr(), bytes.len());
    // SAFETY: the walk's bytes.
    match unsafe { tx.put(p, -1, &mut walk, false) } {
        Ok(Put::Bytes(n)) => n,
        other => panic!("{other:?}"),
    }
}

fn read(rx: &mut Rx, p: &Segment) -> usize {
    let mut buf = vec![0; LEN];
    let mut walk = Walk::one(buf.as_mut_ptr(), buf.len());
    // SAFETY: the buffer.
    match unsafe { rx.read(p, -1, &mut walk, How::default()) } {
        Ok(Got::Bytes(n)) => n,
        Ok(Got::Empty) => 0,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_the_ring_has_no_room_for_is_not_waited_for() {
    let joined = Joined::new(4096);
    let (a, b, mut tx, mut rx) = sides(&joined);
    let mut bytes = vec![7u8; LEN];
    assert_eq!(put(&mut tx, &a, &mut bytes[..1]), 1); // (the reader is on this leg from then on)
    assert_eq!(read(&mut rx, &b), 1);
    let mut walk = Walk::one(bytes.as_mut_ptr(), LEN);
    assert!(tx.advertise(&a, -1, &mut walk).is_some());
    assert!(b.pending().is_some_and(|shown| shown.left == LEN as u64));
    assert_eq!(tx.collect(Some(&a), &mut walk), 0); // nobody has come
    assert_eq!(rx.awaits_copy(&b, false), Awaited::Soon);
    let mut sent = put(&mut tx, &a, &mut bytes);
    assert!(0 < sent && sent < LEN, "{sent}");
    assert_eq!(rx.awaits_copy(&b, false), Awaited::There);
    assert_eq!(read(&mut rx, &b), sent);
    assert_eq!(rx.awaits_copy(&b, false), Awaited::Nothing);
    assert!(!b.shows_large(1 + sent as u64));
    // The rest comes once it is sent.
    while sent < LEN {
        let n = put(&mut tx, &a, &mut bytes[sent..]);
        assert_eq!(rx.awaits_copy(&b, false), Awaited::There);
        assert_eq!(read(&mut rx, &b), n);
        sent += n;
    }
}
