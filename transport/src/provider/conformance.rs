//! What every provider owes `sdp`: one suite over pairs of connected sides, run on each provider at the
//! end of this file. The lies of a hostile peer are told through the trait itself.

use super::{End, Provider};
use crate::doorbell::{DATA, SPACE};
use crate::sdp::{Put, Rx, Tx, Walk, rx::Got, rx::How};
use crate::shm::layout::{FIN_NONE, FIN_RESET};
use crate::shm::tests::Joined;
use flowctl::packetized::{Receiver, Sender};
use flowctl::{Piece, Published, Receiver as _, Sender as _};

/// A connection both of whose ends are here.
trait Pair {
    type Side: Provider;

    /// Two fresh sides.
    fn pair(&self) -> (Self::Side, Self::Side);

    /// Whether nothing outside the connection's own memory was touched.
    fn is_intact(&self) -> bool;
}

impl Pair for Joined {
    type Side = crate::shm::segment::Segment;

    fn pair(&self) -> (Self::Side, Self::Side) {
        self.sides(1)
    }

    fn is_intact(&self) -> bool {
        self.is_untouched(0) && self.is_untouched(2)
    }
}

/// Repeatable numbers.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap()
    }
}

fn put(p: &impl Provider, tx: &mut Sender, bytes: &[u8]) -> usize {
    tx.granted(p.granted()).unwrap();
    let mut done = 0;
    while done < bytes.len() {
        let piece = tx.place(bytes.len() - done);
        if piece.len == 0 {
            break;
        }
        // SAFETY: the piece is no longer than what is left of the slice.
        unsafe { p.put(piece, bytes[done..].as_ptr()) };
        p.publish(tx.commit(piece.len));
        done += piece.len;
    }
    done
}

fn take(p: &impl Provider, rx: &mut Receiver, most: usize) -> Vec<u8> {
    let (produced, origin) = p.announced();
    rx.announced(produced, origin).unwrap();
    let mut out = Vec::new();
    while out.len() < most {
        let mut piece = rx.next(0);
        piece.len = piece.len.min(most - out.len());
        if piece.len == 0 {
            break;
        }
        let at = out.len();
        out.resize(at + piece.len, 0);
        // SAFETY: the vector was just given that many bytes.
        unsafe { p.take(piece, out[at..].as_mut_ptr()) };
        rx.consume(piece.len);
        p.took(rx.consumed());
    }
    if let Some(consumed) = rx.grant(true) {
        p.grant(consumed);
    }
    out
}

fn bytes_are_exact_round_the_ring(pair: &impl Pair) {
    let (a, b) = pair.pair();
    let ring = a.buffer();
    assert!(ring.is_power_of_two() && ring == b.buffer());
    let mut dice = Dice(7);
    for (from, to) in [(&a, &b), (&b, &a)] {
        let (mut tx, mut rx) = (Sender::new(ring, ring), Receiver::new(ring, ring));
        let (mut sent, mut got) = (0usize, 0usize);
        for _ in 0..2000 {
            let n = dice.below(ring + ring / 2);
            let bytes: Vec<u8> = (sent..sent + n).map(|i| (i % 251) as u8).collect();
            sent += put(from, &mut tx, &bytes);
            for byte in take(to, &mut rx, dice.below(ring + 1)) {
                assert_eq!(usize::from(byte), got % 251);
                got += 1;
            }
            assert_eq!(from.taken(), got as u64);
        }
        assert!(sent > 20 * ring && sent - got <= ring);
    }
}

fn a_full_ring_takes_no_more_until_it_is_read(pair: &impl Pair) {
    let (a, b) = pair.pair();
    let ring = a.buffer();
    let (mut tx, mut rx) = (Sender::new(ring, ring), Receiver::new(ring, ring));
    assert_eq!(put(&a, &mut tx, &vec![1; ring + 1]), ring);
    assert_eq!(put(&a, &mut tx, &[2]), 0);
    assert_eq!(take(&b, &mut rx, 5), [1; 5]);
    assert_eq!(put(&a, &mut tx, &[2; 9]), 5);
    let rest = take(&b, &mut rx, usize::MAX);
    assert_eq!(rest.len(), ring);
    assert_eq!(rest[ring - 5..], [2; 5]);
}

fn bytes_are_seen_once_published(pair: &impl Pair) {
    let (a, b) = pair.pair();
    let mut tx = Sender::new(a.buffer(), a.buffer());
    let piece = tx.place(3);
    let (at, len) = a.place(piece);
    assert_eq!(len, 3);
    // SAFETY: the provider gave three bytes at `at`.
    unsafe { std::ptr::copy_nonoverlapping([4u8, 5, 6].as_ptr(), at, 3) };
    assert!(b.announced().0.is(0));
    a.publish(tx.commit(3));
    let mut rx = Receiver::new(b.buffer(), b.buffer());
    assert_eq!(take(&b, &mut rx, 9), [4, 5, 6]);
}

fn ends_and_fins_are_stated_one_by_one(pair: &impl Pair) {
    let (a, b) = pair.pair();
    assert_eq!((b.stated(End::Kernel), b.stated(End::Fast)), (None, None));
    a.state(End::Kernel, 0);
    assert_eq!(
        (b.stated(End::Kernel), b.stated(End::Fast)),
        (Some(0), None)
    );
    a.state(End::Fast, 17);
    assert_eq!(b.stated(End::Fast), Some(17));
    assert_eq!(
        a.stated(End::Kernel),
        None,
        "the other direction is its own"
    );
    assert_eq!(b.finished(), FIN_NONE);
    a.finish(FIN_RESET);
    assert_eq!((a.finished(), b.finished()), (FIN_NONE, FIN_RESET));
}

fn a_wish_is_answered_once(pair: &impl Pair) {
    let (a, b) = pair.pair();
    // A side that has not looked yet may sleep in the kernel: the first message rings.
    assert!(b.must_ring(DATA) && !b.must_ring(DATA) && !b.must_ring(SPACE));
    a.arm(DATA);
    a.arm(DATA);
    a.arm(SPACE);
    assert_eq!(a.armed(), DATA | SPACE);
    assert!(b.must_ring(DATA) && !b.must_ring(DATA));
    assert_eq!(a.armed(), SPACE);
    a.disarm(SPACE);
    assert!(!b.must_ring(SPACE));
    a.arm(SPACE);
    assert!(b.must_ring(SPACE | DATA));
    assert_eq!(b.armed(), DATA, "the other side's wishes are its own");
}

fn bells_are_counted(pair: &impl Pair) {
    let (a, b) = pair.pair();
    a.count_bell();
    a.count_bell();
    assert_eq!((a.bells(), b.bells()), (0, 2));
    a.uncount_bell();
    assert_eq!(b.bells(), 1);
    a.uncount_bell();
    a.uncount_bell();
    assert_eq!(b.bells(), 0, "never below none");
}

fn a_stopped_side_does_not_enter(pair: &impl Pair) {
    let (a, b) = pair.pair();
    assert!(a.enter() && b.peer_is_putting() && !a.peer_is_putting());
    a.leave();
    assert!(!b.peer_is_putting() && !a.stopped());
    b.stop_peer(None);
    assert!(a.stopped() && !b.stopped());
    assert!(!a.enter() && !b.peer_is_putting());
    assert_eq!(a.take_give_back(), None);
    assert!(b.enter(), "one direction only");
    b.leave();
    a.stop_peer(Some(0));
    assert!(!a.gave_back());
    assert_eq!(b.take_give_back(), Some(0));
    assert!(
        a.gave_back() && !a.cancel_give_back(),
        "taken on, not to be taken back"
    );
    assert_eq!(b.take_give_back(), None, "taken on once");
}

fn counters_are_each_sides_own(pair: &impl Pair) {
    let (a, b) = pair.pair();
    a.grant(5);
    a.took(6);
    assert!(b.granted().is(5) && a.granted().is(0));
    assert_eq!((b.taken(), a.taken()), (6, 0));
}

/// Lies about the words: each is refused, or leads to places inside the ring.
fn lies_are_refused_or_harmless(pair: &impl Pair) {
    let (a, b) = pair.pair();
    let ring = a.buffer();
    let mut dice = Dice(11);
    let mut guarded = vec![0xa5u8; 2 * ring];
    let mut produced = vec![
        0,
        1,
        ring as u64,
        ring as u64 + 1,
        u64::MAX,
        u64::MAX - ring as u64,
        1 << 63,
    ];
    produced.extend((0..300).map(|_| dice.next()));
    produced.extend((0..300).map(|i| dice.next() % (i * 16 + 1)));
    for produced in produced {
        let origin = dice.next();
        a.publish(Published { produced, origin });
        let mut rx = Receiver::new(ring, ring);
        let (p, o) = b.announced();
        assert_eq!(rx.announced(p, o).is_ok(), produced <= ring as u64);
        while rx.available() > 0 {
            let piece = rx.next(0);
            // SAFETY: the buffer is twice the ring's size.
            unsafe { b.take(piece, guarded.as_mut_ptr()) };
            rx.consume(piece.len);
        }
        assert!(guarded[ring..].iter().all(|&x| x == 0xa5));
        let mut tx = Sender::new(ring, ring);
        let _ = tx.commit(100);
        a.grant(produced);
        assert_eq!(tx.granted(b.granted()).is_ok(), produced <= 100);
        assert!(tx.room() <= ring);
    }
}

/// Places that no honest caller asks for stay inside the ring all the same.
fn no_place_is_outside(pair: &impl Pair) {
    let (a, b) = pair.pair();
    let ring = a.buffer();
    let mut back = Sender::new(ring, ring);
    assert_eq!(put(&b, &mut back, &vec![0x5a; ring]), ring);
    let long = vec![0xeeu8; 4 * ring];
    let mut guarded = vec![0xa5u8; 4 * ring];
    for offset in [0, 1, ring - 1, ring, 3 * ring + 7, usize::MAX - 1, 1 << 40] {
        let piece = Piece {
            offset,
            len: 3 * ring,
        };
        assert!(a.place(piece).1 <= ring);
        // SAFETY: the source is longer than the piece.
        unsafe { a.put(piece, long.as_ptr()) };
        // SAFETY: the target is longer than the piece.
        unsafe { b.take(piece, guarded.as_mut_ptr()) };
        assert!(guarded[ring..].iter().all(|&x| x == 0xa5));
    }
    let mut rx = Receiver::new(ring, ring);
    let kept = take(&a, &mut rx, usize::MAX);
    assert!(
        kept.len() == ring && kept.iter().all(|&x| x == 0x5a),
        "the other ring is whole"
    );
}

/// The same lies told to a stream: it breaks, and nothing else happens. No descriptor is touched.
fn a_stream_breaks_on_a_lie(pair: &impl Pair) {
    let mut bytes = [7u8; 64];
    let mut walk = || Walk::one(bytes.as_mut_ptr(), 64);
    let read = |rx: &mut Rx, p: &_, mut walk: Walk| {
        // SAFETY: the walk's buffer is writable.
        unsafe { rx.read(p, -1, &mut walk, How::default()) }.unwrap()
    };
    for produced in [u64::MAX, 1 << 62] {
        let (a, b) = pair.pair();
        let mut rx = Rx::new();
        rx.attach(&b);
        a.state(End::Kernel, 0);
        assert_eq!(read(&mut rx, &b, walk()), Got::Empty);
        a.publish(Published {
            produced,
            origin: 3,
        });
        assert_eq!(read(&mut rx, &b, walk()), Got::Broken);
        assert!(rx.available(&b).is_err() && rx.gather(&b, -1).is_err());
    }
    for end in [1, u64::MAX - 1] {
        let (a, b) = pair.pair();
        let mut rx = Rx::new();
        rx.attach(&b);
        a.state(End::Kernel, 0);
        a.state(End::Fast, end);
        assert_eq!(read(&mut rx, &b, walk()), Got::Broken);
    }
    let (a, b) = pair.pair();
    let mut tx = Tx::new();
    tx.attach(&a, a.buffer());
    let _ = a.must_ring(DATA);
    // SAFETY: the walk's buffer is readable.
    assert_eq!(unsafe { tx.put(&a, -1, &mut walk()) }, Ok(Put::Bytes(64)));
    b.grant(65);
    assert!(tx.room(&a).is_err());
    // What was never sent cannot be asked back.
    b.stop_peer(Some(u64::MAX - 1));
    tx.end_fast(&a);
    assert!(!tx.owes());
}

macro_rules! conformance {
    ($provider:ident, $make:expr, [$($case:ident),* $(,)?]) => {
        mod $provider {
            $(#[test]
            fn $case() {
                let pair = $make;
                super::$case(&pair);
                assert!(super::Pair::is_intact(&pair), "touched memory outside");
            })*
        }
    };
}

conformance!(
    shm,
    crate::shm::tests::Joined::new(4096),
    [
        bytes_are_exact_round_the_ring,
        a_full_ring_takes_no_more_until_it_is_read,
        bytes_are_seen_once_published,
        ends_and_fins_are_stated_one_by_one,
        a_wish_is_answered_once,
        bells_are_counted,
        a_stopped_side_does_not_enter,
        counters_are_each_sides_own,
        lies_are_refused_or_harmless,
        no_place_is_outside,
        a_stream_breaks_on_a_lie,
    ]
);
