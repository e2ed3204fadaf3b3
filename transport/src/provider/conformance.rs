//! What every provider owes `sdp`: one suite over pairs of connected sides, run on each provider at the
//! end of this file. The lies of a hostile peer are told through the trait itself.

use super::{End, Provider};
use crate::doorbell::{By, DATA, SPACE, TAKEN, Ticket};
use crate::sdp::{Put, Rx, Tx, Walk, rx::Got, rx::How};
use crate::shm::layout::{FIN_NONE, FIN_RESET};
use crate::shm::tests::Joined;
use flowctl::any::{Receiver, Sender};
use flowctl::credit::header_in_slot;
use flowctl::{
    Back, Inbox as _, Outbox as _, Piece, Receiver as _, Scheme, Sender as _, Terms, Word,
};

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

/// Terms that fill a region: its half is the receive buffer, and nothing is the sender's own.
fn terms(p: &impl Provider, scheme: Scheme) -> Terms {
    let half = p.region() / 2;
    Terms {
        scheme,
        buffer: half as u64,
        own: half as u64,
        slots: 4,
        slot: u32::try_from(half / 4).unwrap(),
        window: u32::try_from(half / 4).unwrap(),
    }
}

/// A sender and the receiver at the other end.
fn halves(p: &impl Provider, scheme: Scheme) -> (Sender, Receiver) {
    let mut terms = terms(p, scheme);
    terms.own = 0;
    (
        Sender::new(p.region(), &terms),
        Receiver::new(p.region(), &terms),
    )
}

fn put(p: &impl Provider, tx: &mut Sender, bytes: &[u8]) -> usize {
    tx.granted(p).unwrap();
    tx.post(false, p);
    let mut done = 0;
    while done < bytes.len() {
        let piece = tx.place(bytes.len() - done);
        if piece.len == 0 {
            break;
        }
        // SAFETY: the piece is no longer than what is left of the slice.
        unsafe { p.put(piece, bytes[done..].as_ptr()) };
        tx.commit(piece.len, p);
        tx.publish(p);
        done += piece.len;
    }
    done
}

fn take(p: &impl Provider, rx: &mut Receiver, most: usize) -> Vec<u8> {
    rx.announced(p).unwrap();
    let mut out = Vec::new();
    while out.len() < most {
        let mut piece = rx.next(p).unwrap();
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
    rx.grant(true, p);
    out
}

/// Acknowledges what was taken, on what goes the other way.
fn acknowledge(p: &impl Provider) {
    flowctl::credit::acknowledge(p);
}

fn bytes_are_exact_round_the_region(pair: &impl Pair) {
    for scheme in Scheme::ALL {
        let (a, b) = pair.pair();
        let half = a.region() / 2;
        assert!(a.region().is_power_of_two() && a.region() == b.region());
        let mut dice = Dice(7);
        for (from, to) in [(&a, &b), (&b, &a)] {
            let terms = terms(from, scheme);
            from.offer(&terms);
            assert_eq!(to.offered(), Ok(terms));
            let mut tx = Sender::new(from.region(), &terms);
            let mut rx = Receiver::new(to.region(), &to.offered().unwrap());
            let (mut sent, mut got) = (0usize, 0usize);
            for _ in 0..2000 {
                let n = dice.below(half + half / 2);
                let bytes: Vec<u8> = (sent..sent + n).map(|i| (i % 251) as u8).collect();
                sent += put(from, &mut tx, &bytes);
                if dice.below(4) == 0 {
                    tx.post(true, from);
                }
                for byte in take(to, &mut rx, dice.below(half + 1)) {
                    assert_eq!(usize::from(byte), got % 251);
                    got += 1;
                }
                acknowledge(to);
                assert_eq!(from.taken(), got as u64);
            }
            assert!(sent > 20 * half && sent - got <= 2 * half);
        }
    }
}

fn a_full_buffer_takes_no_more_until_it_is_read(pair: &impl Pair) {
    let (a, b) = pair.pair();
    let ring = a.region() / 2;
    let (mut tx, mut rx) = halves(&a, Scheme::Packetized);
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
    let (mut tx, mut rx) = halves(&a, Scheme::Packetized);
    let piece = tx.place(3);
    let (at, len) = a.place(piece);
    assert_eq!(len, 3);
    // SAFETY: the provider gave three bytes at `at`.
    unsafe { std::ptr::copy_nonoverlapping([4u8, 5, 6].as_ptr(), at, 3) };
    assert!(b.told(Word::Produced).is(0));
    tx.commit(3, &a);
    tx.publish(&a);
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

fn a_set_is_rung_once_a_sleep(pair: &impl Pair) {
    let (a, b) = pair.pair();
    assert!(b.must_ring(DATA), "as above");
    let [first, second] = [1, 2].map(|n| By::Ticket(Ticket::new(7 << 40 | n).unwrap()));
    assert!(a.wish_by(DATA, first));
    assert_eq!(a.armed(), DATA);
    assert!(b.must_ring(DATA) && !b.must_ring(DATA));
    assert!(a.wish_by(DATA, first));
    assert!(b.must_ring(DATA), "the bell is not sent yet");
    assert!(a.wish_by(DATA, first) && b.peer_sleeps_for(DATA));
    b.note_rung(b.ticket().unwrap());
    assert!(!b.must_ring(DATA), "one bell wakes the set");
    assert_eq!(a.armed(), DATA, "and the wish stands");
    assert!(!b.peer_sleeps_for(DATA), "though it is about to wake");
    // Who sleeps in a call on the connection is rung all the same.
    a.arm(DATA);
    assert!(b.must_ring(DATA) && !b.must_ring(DATA));
    // The next sleep is another.
    assert!(a.wish_by(DATA | SPACE, second));
    assert!(!b.must_ring(TAKEN) && b.must_ring(SPACE));
    assert_eq!(a.armed(), DATA);
    a.arm(SPACE);
    a.disarm_by();
    assert_eq!(b.ticket(), None);
    assert_eq!(a.armed(), SPACE, "the set takes back its own wishes only");
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
    a.recount_bells(3);
    assert_eq!((a.bells(), b.bells()), (0, 3));
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

fn words_are_each_sides_own(pair: &impl Pair) {
    let (a, b) = pair.pair();
    let words = [
        Word::Produced,
        Word::Boundary,
        Word::Origin,
        Word::Queued,
        Word::Posted,
        Word::Segments,
        Word::Control,
        Word::Acknowledged,
    ];
    for (n, word) in (10..).zip(words) {
        a.tell(word, n);
    }
    for (n, word) in (10..).zip(words) {
        assert!(b.told(word).is(n) && a.told(word).is(0), "{word:?}");
    }
    let backs = [
        Back::Consumed,
        Back::Advertised,
        Back::Evented,
        Back::Events,
    ];
    for (n, back) in (20..).zip(backs) {
        a.hand_back(back, n);
    }
    for (n, back) in (20..).zip(backs) {
        assert!(
            b.handed_back(back).is(n) && a.handed_back(back).is(0),
            "{back:?}"
        );
    }
    assert!(
        b.handed_back(Back::Acknowledged).is(17),
        "rides on the other direction"
    );
    a.took(6);
    assert_eq!((b.taken(), a.taken()), (6, 0));
    a.want(9);
    assert_eq!((b.wanted(), a.wanted()), (9, 0));
    a.write_header(64, 5);
    assert_eq!(b.header(64).within(5, 5), Ok(5));
    assert_eq!(a.read_header(64).within(5, 5), Ok(5));
    assert_eq!(b.read_header(64).within(0, 0), Ok(0));
}

/// Lies about the words: each is refused, or leads to places inside the region.
fn lies_are_refused_or_harmless(pair: &impl Pair) {
    let (a, b) = pair.pair();
    let region = a.region();
    let mut dice = Dice(11);
    let mut guarded = vec![0xa5u8; 2 * region];
    let ring = region as u64 / 2;
    let mut lies = vec![0, 1, ring, ring + 1, u64::MAX, u64::MAX - ring, 1 << 63];
    lies.extend((0..300).map(|_| dice.next()));
    lies.extend((0..300).map(|i| dice.next() % (i * 16 + 1)));
    for (scheme, lie) in lies.iter().flat_map(|&l| Scheme::ALL.map(|s| (s, l))) {
        for word in [Word::Origin, Word::Boundary, Word::Posted, Word::Queued] {
            let small = dice.below(2) == 0;
            let value = dice.next();
            a.tell(word, if small { value % (2 * ring) } else { value });
        }
        for slot in 0..4 {
            let at = slot * Terms::stride(region / 8) + header_in_slot(region / 8);
            a.write_header(at, u32::try_from(dice.next() >> 33).unwrap());
        }
        a.tell(Word::Produced, lie);
        a.tell(Word::Segments, lie % 9);
        let (mut tx, mut rx) = halves(&a, scheme);
        if rx.announced(&b).is_ok() {
            while let Ok(piece) = rx.next(&b) {
                if piece.len == 0 {
                    break;
                }
                // SAFETY: the buffer is twice the region's size.
                unsafe { b.take(piece, guarded.as_mut_ptr()) };
                rx.consume(piece.len);
            }
        }
        assert!(guarded[region..].iter().all(|&x| x == 0xa5));
        let n = put(&a, &mut Sender::clone(&tx), &[1; 100]);
        let _ = tx.place(n);
        tx.commit(n, &a);
        b.hand_back(Back::Consumed, lie);
        b.tell(Word::Acknowledged, lie);
        let known = tx.granted(&a).is_ok();
        assert!(!known || lie <= 100, "{scheme:?} {lie}");
        assert!(tx.room() <= region);
        b.hand_back(Back::Consumed, 0);
        b.tell(Word::Acknowledged, 0);
    }
    for lie in lies {
        let words = [1 + lie % 3, lie, dice.next(), dice.next(), lie];
        if let Ok(terms) = Terms::read(words.map(flowctl::Untrusted::new), region) {
            assert!(terms.fits(region));
        }
    }
}

/// Places that no honest caller asks for stay inside the region all the same.
fn no_place_is_outside(pair: &impl Pair) {
    let (a, b) = pair.pair();
    let region = a.region();
    let (mut back, mut rx) = halves(&b, Scheme::Packetized);
    assert_eq!(put(&b, &mut back, &vec![0x5a; region / 2]), region / 2);
    let long = vec![0xeeu8; 4 * region];
    let mut guarded = vec![0xa5u8; 4 * region];
    let odd = [
        0,
        1,
        region - 1,
        region,
        3 * region + 7,
        usize::MAX - 1,
        1 << 40,
    ];
    for offset in odd {
        let piece = Piece {
            offset,
            len: 3 * region,
        };
        assert!(a.place(piece).1 <= region);
        // SAFETY: the source is longer than the piece.
        unsafe { a.put(piece, long.as_ptr()) };
        // SAFETY: the target is longer than the piece.
        unsafe { b.take(piece, guarded.as_mut_ptr()) };
        assert!(guarded[region..].iter().all(|&x| x == 0xa5));
        a.write_header(offset, 1);
        let _ = (b.header(offset), a.read_header(offset));
    }
    let kept = take(&a, &mut rx, usize::MAX);
    assert!(
        kept.len() == region / 2 && kept.iter().all(|&x| x == 0x5a),
        "the other region is whole"
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
    for (produced, scheme) in [u64::MAX, 1 << 62]
        .into_iter()
        .flat_map(|p| Scheme::ALL.map(|s| (p, s)))
    {
        let (a, b) = pair.pair();
        let mut rx = Rx::new();
        a.offer(&terms(&a, scheme));
        a.state(End::Kernel, 0);
        assert_eq!(read(&mut rx, &b, walk()), Got::Empty);
        a.tell(Word::Origin, 3);
        a.tell(Word::Produced, produced);
        assert_eq!(read(&mut rx, &b, walk()), Got::Broken);
        assert!(rx.available(&b).is_err() && rx.gather(&b, -1, None).is_err());
    }
    // A slot that says it is longer than it can be.
    let (a, b) = pair.pair();
    let mut rx = Rx::new();
    a.offer(&terms(&a, Scheme::Credit));
    a.state(End::Kernel, 0);
    a.write_header(header_in_slot(a.region() / 8), 1 << 20);
    a.tell(Word::Produced, 10);
    assert_eq!(read(&mut rx, &b, walk()), Got::Broken);
    // Terms that do not fit.
    let (a, b) = pair.pair();
    let mut rx = Rx::new();
    let mut large = terms(&a, Scheme::Credit);
    large.slots = 1 << 20;
    a.offer(&large);
    a.state(End::Kernel, 0);
    assert_eq!(read(&mut rx, &b, walk()), Got::Broken);
    for end in [1, u64::MAX - 1] {
        let (a, b) = pair.pair();
        let mut rx = Rx::new();
        a.offer(&terms(&a, Scheme::Nic));
        a.state(End::Kernel, 0);
        a.state(End::Fast, end);
        assert_eq!(read(&mut rx, &b, walk()), Got::Broken);
    }
    let (a, b) = pair.pair();
    let mut tx = Tx::new();
    tx.attach(&a, -1, &terms(&a, Scheme::Packetized));
    let _ = a.must_ring(DATA);
    // SAFETY: the walk's buffer is readable.
    let put = unsafe { tx.put(&a, -1, &mut walk(), false) };
    assert_eq!(put, Ok(Put::Bytes(64)));
    b.hand_back(Back::Consumed, 65);
    assert!(tx.room(&a).is_err());
    // What was never sent cannot be asked back.
    b.stop_peer(Some(u64::MAX - 1));
    tx.end_fast(&a, -1);
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
        bytes_are_exact_round_the_region,
        a_full_buffer_takes_no_more_until_it_is_read,
        bytes_are_seen_once_published,
        ends_and_fins_are_stated_one_by_one,
        a_wish_is_answered_once,
        a_set_is_rung_once_a_sleep,
        bells_are_counted,
        a_stopped_side_does_not_enter,
        words_are_each_sides_own,
        lies_are_refused_or_harmless,
        no_place_is_outside,
        a_stream_breaks_on_a_lie,
    ]
);
