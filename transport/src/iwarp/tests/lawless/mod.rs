//! Each rule broken once, by segments made by hand: the stream ends with the Terminate that the RFCs name for it, with the
//! headers that belong to it, and nothing more happens.

mod cases;

use cases::{CASES, Make};

use super::reference;
use super::world::{ALL, BUFFER, End, ID, PLAIN, pair};
use crate::iwarp::ddp::{Region, Rights, Stag, StreamId};
use crate::iwarp::mpa::setup::Role;
use crate::iwarp::mpa::{Framer, Markers, Parts};
use crate::iwarp::rdmap::{Includes, ReadRequest, SendKind, Settings, Stream, Violation};

const BASE: u64 = 0x1000;
const LEN: usize = 500;

/// What the lawless peer knows: STags of the end that it speaks to.
struct Known {
    all: Stag,
    nothing: Stag,
    other_stream: Stag,
}

/// A responder with regions, that has heard a first Send.
fn victim() -> (End, Known, Framer) {
    let [_, mut end] = pair(PLAIN);
    let known = Known {
        all: end.register(vec![1; LEN], BASE, ALL, 0x1111_1100),
        nothing: end.register(vec![2; LEN], BASE, Rights::NONE, 0x2222_2200),
        other_stream: {
            let region = Region {
                stream: StreamId(ID.0 + 1),
                base: BASE,
                len: LEN as u64,
                rights: ALL,
                memory: 0,
            };
            end.regions.register(region, 0x3333_3300).unwrap()
        },
    };
    let mut framer = Framer::new(Markers::OFF, true);
    feed(
        &mut end,
        &mut framer,
        &untagged(0x43, 0, 1, 0, true, 0, b"hello"),
    );
    assert_eq!(end.sends.len(), 1);
    (end, known, framer)
}

fn feed(end: &mut End, framer: &mut Framer, ulpdu: &[u8]) {
    let mut out = vec![0; framer.wire_len(ulpdu.len())];
    framer
        .frame(&[], &mut Parts::one(ulpdu), ulpdu.len(), &mut out)
        .unwrap();
    end.feed(&out);
}

fn tagged(rdmap: u8, stag: Stag, offset: u64, last: bool, payload: &[u8]) -> Vec<u8> {
    let control = if last { 0xc1 } else { 0x81 };
    [
        &[control, rdmap][..],
        &stag.0.to_be_bytes(),
        &offset.to_be_bytes(),
        payload,
    ]
    .concat()
}

fn untagged(
    rdmap: u8,
    queue: u32,
    number: u32,
    offset: u32,
    last: bool,
    word: u32,
    payload: &[u8],
) -> Vec<u8> {
    let control = if last { 0x41 } else { 0x01 };
    let words = [word, queue, number, offset].map(u32::to_be_bytes).concat();
    [&[control, rdmap][..], &words, payload].concat()
}

fn request(source: Stag, offset: u64, len: u32) -> Vec<u8> {
    let words = [
        &7_u32.to_be_bytes()[..],
        &8_u64.to_be_bytes(),
        &len.to_be_bytes(),
        &source.0.to_be_bytes(),
        &offset.to_be_bytes(),
    ];
    untagged(0x41, 1, 1, 0, true, 0, &words.concat())
}

/// Feeds lawful ULPDUs, then the last one, which must end the stream like this.
fn breaks(ulpdus: &[Vec<u8>], end: &mut End, framer: &mut Framer, violation: Violation) {
    let (wrong, lawful) = ulpdus.split_last().unwrap();
    for ulpdu in lawful {
        feed(end, framer, ulpdu);
        assert_eq!(end.breach, None, "{violation:?}: before it");
    }
    end.out.clear();
    let (sends, memory) = (end.sends.len(), end.memory.clone());
    feed(end, framer, wrong);
    assert_eq!(end.breach.map(|breach| breach.violation), Some(violation));
    let sent = reference::ulpdus(&end.out, 0, false, true).unwrap();
    assert_eq!(sent.len(), 1, "{violation:?}: one Terminate");
    let segment = reference::segment(&sent[0]);
    assert_eq!((segment.opcode, segment.queue, segment.message), (7, 2, 1));
    assert!(segment.last && !segment.tagged && segment.offset == 0);
    let told = reference::terminated(&segment.payload);
    assert_eq!(told.numbers, violation.numbers(), "{violation:?}");
    let read = wrong.len() == 46 && violation.includes() == Includes::DdpAndRead;
    let header_len = if wrong.first().is_some_and(|first| first & 0x80 != 0) {
        14
    } else {
        18
    };
    if wrong.len() < header_len {
        assert_eq!((told.header, told.segment_len), (None, None));
    } else {
        assert_eq!(
            told.header.as_deref(),
            Some(&wrong[..header_len]),
            "{violation:?}"
        );
        assert_eq!(told.segment_len.map(usize::from), Some(wrong.len()));
    }
    assert_eq!(
        told.read,
        read.then(|| wrong[18..].to_vec()),
        "{violation:?}"
    );
    // What follows is dropped: a Send that would have been lawful, and one that would not.
    end.out.clear();
    for number in [2, 9] {
        feed(end, framer, &untagged(0x43, 0, number, 0, true, 0, b"more"));
    }
    assert_eq!(end.sends.len(), sends);
    assert!(end.memory == memory && end.out.is_empty());
    assert!(end.stream.send(SendKind::default(), 1).is_err());
}

#[test]
fn each_rule() {
    for (what, violation, make) in CASES {
        let (mut end, known, mut framer) = victim();
        println!("{what}");
        breaks(&make(&known), &mut end, &mut framer, *violation);
    }
}

/// Nothing of an empty tagged message is looked at, nor of an empty Read (RFC 5041 section 5.2, RFC 5040 section 5.2.1).
#[test]
fn empty_messages_name_nothing() {
    let (mut end, _, mut framer) = victim();
    feed(
        &mut end,
        &mut framer,
        &tagged(0x40, Stag(0xdead), u64::MAX, true, b""),
    );
    end.out.clear();
    feed(&mut end, &mut framer, &request(Stag(0xdead), u64::MAX, 0));
    assert_eq!(end.breach, None);
    let answer = reference::segment(&reference::ulpdus(&end.out, 0, false, true).unwrap()[0]);
    assert_eq!(
        (answer.opcode, answer.stag, answer.offset, answer.last),
        (2, 7, 8, true)
    );
    assert!(answer.payload.is_empty());
}

/// Reserved bits are not looked at.
#[test]
fn reserved_bits() {
    let (mut end, _, mut framer) = victim();
    let mut ulpdu = untagged(0x43, 0, 2, 0, true, 0xffff_ffff, b"x");
    ulpdu[0] |= 0x3c;
    ulpdu[1] |= 0x30;
    feed(&mut end, &mut framer, &ulpdu);
    assert_eq!((end.breach, end.sends.len()), (None, 2));
}

/// More Sends than buffers, more Reads than were agreed.
#[test]
fn no_buffers() {
    let run = |receive_buffers, ulpdus: &[Vec<u8>]| {
        let (mut end, _, mut framer) = victim();
        end.answers = false;
        end.stream = Stream::new(&Settings {
            id: ID,
            role: Role::Responder,
            ird: 1,
            ord: 1,
            rtr: None,
            receive_size: BUFFER,
            receive_buffers,
        });
        breaks(ulpdus, &mut end, &mut framer, Violation::UntaggedNoBuffer);
    };
    run(0, &[untagged(0x43, 0, 1, 0, true, 0, b"x")]);
    let read = |number| untagged(0x41, 1, number, 0, true, 0, &[0; 28]);
    run(1, &[read(1), read(2)]);
}

/// Answers that do not fit the question.
#[test]
fn answers() {
    let ask = |end: &mut End, known: &Known| {
        end.read(ReadRequest {
            sink: known.all,
            sink_offset: BASE,
            len: 4,
            source: Stag(1),
            source_offset: 0,
        });
    };
    let cases: [(Violation, Make); 6] = [
        (Violation::TaggedInvalidStag, |known| {
            vec![tagged(0x42, known.nothing, BASE, true, b"abcd")]
        }),
        (Violation::TaggedBounds, |known| {
            vec![tagged(0x42, known.all, BASE + 1, true, b"abcd")]
        }),
        (Violation::TaggedBounds, |known| {
            vec![tagged(0x42, known.all, BASE, true, b"abcde")]
        }),
        (Violation::TaggedBounds, |known| {
            vec![tagged(0x42, known.all, BASE, true, b"abc")]
        }),
        (Violation::TaggedBounds, |known| {
            vec![tagged(0x42, known.all, 0, true, b"")]
        }),
        (Violation::TaggedBounds, |known| {
            vec![
                tagged(0x42, known.all, BASE, false, b"ab"),
                tagged(0x42, known.all, BASE, true, b"cd"),
            ]
        }),
    ];
    for (violation, make) in cases {
        let (mut end, known, mut framer) = victim();
        ask(&mut end, &known);
        breaks(&make(&known), &mut end, &mut framer, violation);
        assert!(end.reads_done.is_empty());
    }
    let (mut end, known, mut framer) = victim();
    ask(&mut end, &known);
    for (offset, last, payload) in [(0, false, &b"ab"[..]), (2, true, b"cd")] {
        feed(
            &mut end,
            &mut framer,
            &tagged(0x42, known.all, BASE + offset, last, payload),
        );
    }
    assert_eq!((end.breach, end.reads_done.len()), (None, 1));
    assert_eq!(&end.memory[0][..5], b"abcd\x01");
}

/// No Terminate answers a Terminate, whatever it says; afterwards nothing is sent or received.
#[test]
fn terminates_of_any_kind() {
    let cases: [(Vec<u8>, Option<Violation>); 6] = [
        (
            untagged(0x47, 2, 1, 0, true, 0, &[0x11, 0, 0, 0]),
            Some(Violation::TaggedInvalidStag),
        ),
        (
            untagged(0x47, 2, 1, 0, true, 0, &[0x20, 2, 0, 0]),
            Some(Violation::Crc),
        ),
        (untagged(0x47, 2, 1, 0, true, 0, &[0x11, 0]), None),
        (
            untagged(0x47, 2, 1, 0, true, 0, &[0x11, 0, 0xe0, 0, 1, 2]),
            None,
        ),
        (untagged(0x47, 2, 2, 0, true, 0, &[0x11, 0, 0, 0]), None),
        (untagged(0x47, 2, 1, 0, true, 0, &[0xff, 0xff, 0, 0]), None),
    ];
    for (ulpdu, violation) in cases {
        let (mut end, _, mut framer) = victim();
        end.out.clear();
        feed(&mut end, &mut framer, &ulpdu);
        let said = end.terminated.unwrap();
        assert_eq!(said.and_then(|said| said.violation()), violation);
        feed(
            &mut end,
            &mut framer,
            &untagged(0x43, 0, 2, 0, true, 0, b"more"),
        );
        assert_eq!((end.breach, end.sends.len(), end.out.len()), (None, 1, 0));
        assert!(end.stream.is_ended() && end.stream.may_send().is_err());
    }
}

/// Figure 9 of RFC 5040 and its like: all different, and found again by their numbers.
#[test]
fn the_table_of_violations() {
    for violation in Violation::ALL {
        let (layer, kind, code) = violation.numbers();
        assert_eq!(Violation::from_numbers(layer, kind, code), Some(violation));
        let includes = match (layer, kind) {
            (0, 1) => Includes::DdpAndRead,
            (0, 2) | (1, 1 | 2) => Includes::Ddp,
            _ => Includes::Nothing,
        };
        assert_eq!(violation.includes(), includes, "{violation:?}");
    }
    assert_eq!(
        Violation::from_numbers(0, 0, 77),
        Some(Violation::LocalCatastrophic)
    );
    assert_eq!(Violation::from_numbers(3, 0, 0), None);
}

/// Noise in well-framed segments: an end, or nothing, and never a panic or an octet out of place.
mod noise {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn any_segments(
            ulpdus in prop::collection::vec(
                (prop::sample::select(&[0x41_u8, 0x01, 0xc1, 0x81, 0x00, 0xc3][..]), 0x3f..0x49_u8, any::<[u8; 4]>(),
                 prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(2), any::<u8>()], 0..60)),
                1..20,
            ),
            aimed in any::<bool>(),
        ) {
            let (mut end, known, mut framer) = victim();
            let guarded = end.memory[1].clone();
            for (control, rdmap, word, rest) in ulpdus {
                let word = if aimed { known.nothing.0.to_be_bytes() } else { word };
                let ulpdu = [&[control, rdmap][..], &word, &rest].concat();
                feed(&mut end, &mut framer, &ulpdu);
            }
            prop_assert!(end.memory[1] == guarded);
        }
    }
}
