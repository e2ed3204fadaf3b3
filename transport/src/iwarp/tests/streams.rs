//! Two streams with each other: everything that may be sent arrives, in order and in its place, whatever the line is like.

use proptest::prelude::*;

use super::pattern;
use super::world::{ALL, BUFFER, Line, PLAIN, Received, pair, run};
use crate::iwarp::ddp::Stag;
use crate::iwarp::mpa::Rtr;
use crate::iwarp::rdmap::{ReadRequest, Refused, SendKind, Violation};

#[derive(Clone, Debug)]
enum Act {
    Send { len: usize, solicited: bool },
    Write { from: usize, len: usize },
    Read { from: usize, len: usize, to: usize },
    Carry,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..=BUFFER as usize, any::<bool>()).prop_map(|(len, solicited)| Act::Send { len, solicited }),
        3 => (0..30_000_usize, 0..10_000_usize).prop_map(|(from, len)| Act::Write { from, len }),
        3 => (0..30_000_usize, 0..10_000_usize, 0..30_000_usize)
            .prop_map(|(from, len, to)| Act::Read { from, len, to }),
        2 => Just(Act::Carry),
    ]
}

fn line() -> impl Strategy<Value = Line> {
    let rtr = prop_oneof![
        Just(None),
        Just(Some(Rtr::Fpdu)),
        Just(Some(Rtr::Write)),
        Just(Some(Rtr::Read))
    ];
    (
        any::<[bool; 2]>(),
        any::<bool>(),
        128..9000_usize,
        1..5_u16,
        rtr,
    )
        .prop_map(|(markers, crc, mulpdu, depth, rtr)| Line {
            markers,
            crc,
            mulpdu,
            depth,
            rtr,
        })
}

const SIZE: usize = 40_000;
const BASE: u64 = 0x7000_0000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn everything_arrives(
        line in line(),
        acts in prop::collection::vec((any::<bool>(), act()), 1..40),
        pieces in prop::collection::vec(1..5000_usize, 1..6),
        direct in any::<[bool; 2]>(),
    ) {
        let mut ends = pair(line);
        for (end, direct) in ends.iter_mut().zip(direct) {
            end.direct = direct;
        }
        // Of each end: a region that the peer reads, one that it writes, one for its own Reads.
        let stags = [0, 1].map(|of: usize| {
            [10, 20, 30].map(|seed| {
                let seed = seed + of as u64;
                ends[of].register(pattern(SIZE, seed), BASE, ALL, (seed as u32).wrapping_mul(0x1357_9bdf))
            })
        });
        // The same done at once.
        let mut expected = [0, 1].map(|of: usize| ends[of].memory.clone());
        let mut sent: [Vec<Received>; 2] = [Vec::new(), Vec::new()];
        let mut reads = [0, 0];
        if let Some(segment) = ends[0].stream.rtr() {
            ends[0].put(&segment, &[]);
        } else {
            ends[0].send(SendKind::default(), b"first");
            sent[1].push(Received { bytes: b"first".into(), solicited: false, invalidated: None });
        }
        prop_assert_eq!(ends[1].stream.may_send(), Err(Refused::Waiting));
        run(&mut ends, &pieces);
        let rtr_reads = ends[0].reads_done.len();
        for (number, (second, act)) in acts.into_iter().enumerate() {
            let (of, other) = if second { (1, 0) } else { (0, 1) };
            match act {
                Act::Send { len, solicited } => {
                    // A buffer at a time: how many wait is the upper layer's to know.
                    run(&mut ends, &pieces);
                    let bytes = pattern(len, number as u64);
                    ends[of].send(SendKind { solicited, invalidate: None }, &bytes);
                    sent[other].push(Received { bytes, solicited, invalidated: None });
                }
                Act::Write { from, len } => {
                    let bytes = pattern(len, number as u64);
                    ends[of].write(stags[other][1], BASE + from as u64, &bytes);
                    expected[other][1][from..from + len].copy_from_slice(&bytes);
                }
                Act::Read { from, len, to } => {
                    let request = ReadRequest {
                        sink: stags[of][2],
                        sink_offset: BASE + to as u64,
                        len: len as u32,
                        source: stags[other][0],
                        source_offset: BASE + from as u64,
                    };
                    if ends[of].stream.outstanding() == usize::from(line.depth) {
                        prop_assert_eq!(ends[of].stream.read(request), Err(Refused::TooManyReads));
                        run(&mut ends, &pieces);
                    }
                    ends[of].read(request);
                    reads[of] += 1;
                    let bytes = expected[other][0][from..from + len].to_vec();
                    expected[of][2][to..to + len].copy_from_slice(&bytes);
                }
                Act::Carry => run(&mut ends, &pieces),
            }
        }
        run(&mut ends, &pieces);
        for of in 0..2 {
            prop_assert_eq!(&ends[of].breach, &None);
            prop_assert!(ends[of].memory == expected[of], "memory of {}", of);
            prop_assert!(ends[of].sends == sent[of], "Sends to {}", of);
            prop_assert_eq!(ends[of].stream.outstanding(), 0);
            let own = ends[of].reads_done.len() - if of == 0 { rtr_reads } else { 0 };
            prop_assert_eq!(own, reads[of]);
        }
    }

    /// Whatever is damaged on a line with CRCs: the end that sees it says so and nothing else, and the peer is told.
    #[test]
    fn damage_ends_the_stream(
        markers in any::<[bool; 2]>(),
        place in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
        direct in any::<bool>(),
    ) {
        let mut ends = pair(Line { markers, ..PLAIN });
        ends[1].direct = direct;
        let stag = ends[1].register(pattern(SIZE, 1), BASE, ALL, 77);
        let bytes = pattern(20_000, 2);
        ends[0].send(SendKind::default(), b"first");
        run(&mut ends, &[9999]);
        ends[0].write(stag, BASE, &bytes);
        ends[0].send(SendKind::default(), b"last");
        let place = place.index(ends[0].out.len());
        ends[0].out[place] ^= flip;
        run(&mut ends, &[1000]);
        prop_assert!(ends[1].sends.len() == 1, "what follows the damage is not delivered");
        match ends[1].breach {
            Some(breach) => {
                prop_assert_eq!(breach.violation, Violation::Crc);
                let told = ends[0].terminated.flatten().unwrap();
                prop_assert_eq!(told.violation(), Some(Violation::Crc));
                prop_assert!(ends[0].stream.is_ended());
            }
            // A length became longer: the rest is waited for.
            None => prop_assert_eq!(ends[0].terminated, None),
        }
    }
}

#[test]
fn a_send_ends_a_region() {
    let mut ends = pair(PLAIN);
    let stag = ends[1].register(pattern(100, 1), 0, ALL, 0xabcd_ef00);
    let kind = SendKind {
        solicited: true,
        invalidate: Some(stag),
    };
    ends[0].write(stag, 10, b"before");
    ends[0].send(kind, &pattern(3000, 1));
    run(&mut ends, &[50]);
    assert_eq!(ends[1].breach, None);
    assert_eq!(ends[1].sends[0].invalidated, Some(stag));
    assert_eq!(&ends[1].memory[0][10..16], b"before");
    ends[0].write(stag, 10, b"behind");
    run(&mut ends, &[50]);
    assert_eq!(
        ends[1].breach.unwrap().violation,
        Violation::TaggedInvalidStag
    );
    assert_eq!(&ends[1].memory[0][10..16], b"before");
}

/// A Read whose region goes away half-way: the Terminate says how far it came (RFC 5040 section 4.8).
#[test]
fn a_read_that_cannot_be_answered_in_full() {
    let mut ends = pair(PLAIN);
    ends[1].answers = false;
    let sink = ends[0].register(vec![0; 10_000], 0, ALL, 1);
    let source = ends[1].register(pattern(10_000, 1), 50, ALL, 2);
    let request = ReadRequest {
        sink,
        sink_offset: 100,
        len: 9000,
        source,
        source_offset: 150,
    };
    ends[0].read(request);
    run(&mut ends, &[50]);
    let end = &mut ends[1];
    let place = end.stream.to_answer(0, &end.regions);
    assert_eq!(place, Ok(Some((request, Some((0, 100))))));
    let mut message = end.stream.answer().unwrap();
    let segment = message.segment(1442).unwrap();
    let bytes = end.memory[0][100..].to_vec();
    end.put(&segment, &bytes);
    end.regions.remove(source).unwrap();
    let breach = end
        .stream
        .to_answer(message.sent(), &end.regions)
        .unwrap_err();
    let last = end.stream.terminate(&breach).unwrap();
    end.put(&last, &[]);
    run(&mut ends, &[50]);
    let told = ends[0].terminated.flatten().unwrap();
    assert_eq!(told.violation(), Some(Violation::SourceInvalidStag));
    assert_eq!(told.read, Some(request.after(1428)));
    assert_eq!(
        told.read.map(|read| (read.len, read.sink_offset)),
        Some((7572, 1528))
    );
    assert_eq!(ends[0].memory[0][100..1528], bytes[..1428]);
    // The end that was told has nothing to tell any more.
    let breach = ends[0].stream.fail(Violation::Crc);
    assert_eq!(ends[0].stream.terminate(&breach), None);
}

/// Payloads of all kinds that are read straight to their place, with and without CRC.
#[test]
fn large_payloads_go_round_the_inbox() {
    for crc in [false, true] {
        let mut ends = pair(Line {
            crc,
            mulpdu: 8000,
            ..PLAIN
        });
        ends.iter_mut().for_each(|end| end.direct = true);
        let stags = [0, 1].map(|of: usize| ends[of].register(vec![0; SIZE], 0, ALL, 1));
        let bytes = pattern(30_000, 7);
        ends[0].send(SendKind::default(), &bytes[..4000]);
        ends[0].write(stags[1], 50, &bytes);
        run(&mut ends, &[700]);
        ends[0].read(ReadRequest {
            sink: stags[0],
            sink_offset: 10,
            len: 30_000,
            source: stags[1],
            source_offset: 50,
        });
        run(&mut ends, &[700]);
        assert_eq!(ends[1].sends[0].bytes, bytes[..4000]);
        assert_eq!(ends[1].memory[0][50..30_050], bytes);
        assert_eq!(ends[0].memory[0][10..30_010], bytes);
        assert_eq!(ends[0].reads_done.len(), 1);
        assert_eq!([ends[0].bypassed, ends[1].bypassed], [4, 5]);
    }
}

/// What is foreseen is only where octets go: a segment that turns out wrong is told as any other.
#[test]
fn what_was_foreseen_is_checked_all_the_same() {
    let mut ends = pair(PLAIN);
    let stag = ends[1].register(vec![0; 10_000], 0, ALL, 1);
    ends[1].direct = true;
    ends[0].write(stag, 0, &pattern(1000, 1));
    let bytes = std::mem::take(&mut ends[0].out);
    ends[1].feed(&bytes[..500]);
    assert_eq!(ends[1].bypassed, 1);
    ends[1].regions.remove(stag).unwrap();
    ends[1].feed(&bytes[500..]);
    assert_eq!(
        ends[1].breach.unwrap().violation,
        Violation::TaggedInvalidStag
    );
    assert_eq!(
        ends[1].breach.unwrap().segment.map(|(len, _)| len),
        Some(1014)
    );
}

#[test]
fn what_may_not_be_sent() {
    let mut ends = pair(PLAIN);
    let [first, second] = &mut ends;
    assert_eq!(first.stream.write(Stag(1), u64::MAX, 1), Err(Refused::Wrap));
    assert_eq!(second.stream.write(Stag(1), 0, 1), Err(Refused::Waiting));
    let request = ReadRequest {
        sink: Stag(1),
        sink_offset: 0,
        len: 1,
        source: Stag(1),
        source_offset: u64::MAX,
    };
    assert_eq!(first.stream.read(request), Err(Refused::Wrap));
    assert_eq!(first.stream.outstanding(), 0);
    // A responder that nobody has spoken to has nobody to tell.
    let breach = second.stream.fail(Violation::LocalCatastrophic);
    assert_eq!(second.stream.terminate(&breach), None);
    assert!(second.stream.is_ended());
}
