//! Each rule broken by itself.

use super::super::Violation;
use super::super::hello::{Hello, HelloAck};
use super::super::hello_ib;
use super::super::received::{Received, Sizes};
use super::{SIZES, made, vector};

const COUNTS: [u32; 3] = [8, 1, 0];

fn broken(bytes: &[u8]) -> Option<Violation> {
    Received::new(bytes).check(&SIZES).err()
}

/// A message with this extended header and payload.
fn message(mid: u8, flags: u8, extended: &[u32], payload: &[u8]) -> Vec<u8> {
    let extended: Vec<u8> = extended.iter().flat_map(|n| n.to_be_bytes()).collect();
    made(mid, flags, COUNTS, &[&extended, payload])
}

#[test]
fn headers() {
    let good = message(0xff, 0, &[], b"abc");
    assert_eq!(broken(&good), None);
    for short in 0..16 {
        assert_eq!(broken(&good[..short]), Some(Violation::Short), "{short}");
    }
    assert_eq!(broken(&good[..18]), Some(Violation::Length));
    assert_eq!(broken(&[&good[..], b"d"].concat()), Some(Violation::Length));
    let small = Sizes { own: 18, ..SIZES };
    let too_large = Received::new(&good).check(&small).err();
    assert_eq!(too_large, Some(Violation::TooLarge));
    assert!(
        Received::new(&good)
            .check(&Sizes { own: 19, ..SIZES })
            .is_ok()
    );
}

#[test]
fn identifiers() {
    for mid in 0..=0xffu8 {
        let expected = match mid {
            0x00 | 0x01 => Some(Violation::Unexpected),
            0x02..=0x04 | 0x08..=0x0a | 0x0e | 0x40 | 0x43..=0x47 | 0x49..=0x4b | 0xff => None,
            0x05..=0x07 | 0x0b..=0x0d | 0x41 | 0x42 | 0x48 | 0x4c | 0xfd | 0xfe => {
                Some(Violation::ExtendedHeader)
            }
            0x4d..=0x7f => Some(Violation::ExperimentalMid),
            _ => Some(Violation::ReservedMid),
        };
        assert_eq!(broken(&message(mid, 0, &[], b"")), expected, "{mid:#x}");
    }
}

#[test]
fn payload_where_none_is() {
    for (mid, extended) in [
        (0x02, &[][..]),
        (0x03, &[]),
        (0x04, &[]),
        (0x05, &[1]),
        (0x06, &[1]),
        (0x07, &[0]),
        (0x08, &[]),
        (0x09, &[]),
        (0x0a, &[]),
        (0x0b, &[4096]),
        (0x0c, &[4096]),
        (0x0d, &[0, 0x0001_0050]),
        (0x0e, &[]),
        (0x48, &[0, 4096]),
        (0x49, &[]),
        (0x4a, &[]),
        (0x4b, &[]),
        (0x4c, &[4096]),
    ] {
        assert_eq!(broken(&message(mid, 0, extended, b"")), None, "{mid:#x}");
        let with = broken(&message(mid, 0, extended, b"x"));
        assert_eq!(with, Some(Violation::Payload), "{mid:#x}");
        let urgent = broken(&message(mid, 1, extended, b""));
        assert_eq!(urgent, Some(Violation::UrgentOutsideData), "{mid:#x}");
        if !extended.is_empty() {
            let cut = message(mid, 0, &extended[1..], b"abc");
            assert_eq!(broken(&cut), Some(Violation::ExtendedHeader), "{mid:#x}");
        }
    }
}

#[test]
fn urgent_bytes() {
    assert_eq!(broken(&message(0xff, 1, &[], b"x")), None);
    assert_eq!(
        broken(&message(0xff, 1, &[], b"")),
        Some(Violation::UrgentWithoutPayload)
    );
    assert_eq!(broken(&message(0xff, 2, &[], b"")), None);
    assert_eq!(
        broken(&message(0xfe, 1, &[5, 1, 0, 0], b"x")),
        Some(Violation::UrgentOutsideData)
    );
}

#[test]
fn adverts() {
    let source = |len, payload: &[u8]| broken(&message(0xfe, 0, &[len, 1, 2, 3], payload));
    assert_eq!(source(4, b"abcd"), None);
    assert_eq!(source(1 << 31, b""), None);
    assert_eq!(source(3, b"abcd"), Some(Violation::AdvertPayload));
    assert_eq!(source(0, b""), Some(Violation::AdvertLength));
    assert_eq!(source((1 << 31) + 1, b""), Some(Violation::AdvertLength));
    let sink = |len, payload: &[u8]| broken(&message(0xfd, 0, &[len, 1, 2, 3, 4], payload));
    assert_eq!(sink(SIZES.peer + 1, b"request"), None);
    assert_eq!(sink(SIZES.peer, b""), Some(Violation::SmallAdvert));
    assert_eq!(sink(0, b""), Some(Violation::AdvertLength));
    assert_eq!(sink(u32::MAX, b""), Some(Violation::AdvertLength));
}

#[test]
fn modes_sizes_and_ports() {
    for (byte, good) in [
        (0x00, true),
        (0x90, true),
        (0x20, true),
        (0x30, false),
        (0xf0, false),
    ] {
        let expected = (!good).then_some(Violation::Mode);
        assert_eq!(
            broken(&message(0x07, 0, &[byte << 24], b"")),
            expected,
            "{byte:#x}"
        );
    }
    for mid in [0x0b, 0x0c] {
        for (size, good) in [
            (36, false),
            (37, true),
            (1 << 31, true),
            ((1 << 31) + 1, false),
            (0, false),
        ] {
            let expected = (!good).then_some(Violation::BufferSize);
            assert_eq!(broken(&message(mid, 0, &[size], b"")), expected, "{size}");
        }
    }
    assert_eq!(
        broken(&message(0x0d, 0, &[0, 0x0001_0000], b"")),
        Some(Violation::Port)
    );
    assert_eq!(
        broken(&message(0x0d, 0, &[1, 0x0001_0050], b"")),
        Some(Violation::Service)
    );
    assert_eq!(
        broken(&message(0x0d, 0, &[0, 0x0002_0050], b"")),
        Some(Violation::Service)
    );
}

/// A vector with some bytes changed.
fn changed(name: &str, changes: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = vector(name);
    for &(at, value) in changes {
        bytes[at] = value;
    }
    bytes
}

/// Changes to the bytes of a message, and the rule that they break.
type Table<'a> = &'a [(&'a [(usize, u8)], Violation)];

/// What all four forms have in common.
const OPENING: Table<'_> = &[
    (&[(0, 0xff)], Violation::Unexpected),
    (&[(0, 0x20)], Violation::ReservedMid),
    (&[(1, 1)], Violation::HelloFlags),
    (&[(1, 2)], Violation::HelloFlags),
    (&[(3, 2)], Violation::FewBuffers),
    (&[(7, 0x1d)], Violation::Length),
    (&[(11, 1)], Violation::HelloSequence),
    (&[(16, 0x31)], Violation::Version),
    (&[(16, 0x01)], Violation::Version),
];

#[track_caller]
fn breaks<T: std::fmt::Debug>(
    name: &str,
    decode: impl Fn(&[u8]) -> Result<T, Violation>,
    tables: &[Table<'_>],
) {
    let good = vector(name);
    assert!(decode(&good).is_ok(), "{name}");
    for (changes, expected) in tables.iter().copied().flatten() {
        let found = decode(&changed(name, changes)).err();
        assert_eq!(found, Some(*expected), "{name}: {changes:?}");
    }
    for len in 0..good.len() {
        let expected = if len < 16 {
            Violation::Short
        } else {
            Violation::Length
        };
        assert_eq!(decode(&good[..len]).err(), Some(expected), "{name}: {len}");
    }
    let long = [&good[..], &[0]].concat();
    assert_eq!(decode(&long).err(), Some(Violation::Length));
}

#[test]
fn hellos() {
    let own: Table<'_> = &[
        (&[(0, 1)], Violation::Unexpected),
        (&[(16, 0x21)], Violation::Version),
        (&[(18, 0), (19, 0)], Violation::MaxAdverts),
        (&[(20, 0x80), (23, 1)], Violation::BufferSize),
        (&[(26, 0), (27, 36)], Violation::BufferSize),
        (&[(24, 0x81)], Violation::BufferSize),
        (&[(29, 0)], Violation::Ord),
        (&[(31, 0)], Violation::Ird),
    ];
    breaks("sdp_hello_iwarp", Hello::decode, &[OPENING, own]);
    // (a smaller minor version is none)
    assert_eq!(
        Hello::decode(&changed("sdp_hello_iwarp", &[(16, 0x10)]))
            .unwrap()
            .side
            .minor,
        0
    );
    let ack: Table<'_> = &[
        (&[(0, 0)], Violation::Unexpected),
        (&[(16, 0x21)], Violation::Version),
        (&[(19, 0)], Violation::MaxAdverts),
        (&[(22, 0), (23, 36)], Violation::BufferSize),
        (&[(25, 0)], Violation::Ord),
        (&[(27, 0)], Violation::Ird),
    ];
    breaks("sdp_helloack_iwarp", HelloAck::decode, &[OPENING, ack]);
    let ib: Table<'_> = &[
        (&[(0, 1)], Violation::Unexpected),
        (&[(17, 0x50)], Violation::IpVersion),
        (&[(19, 0)], Violation::MaxAdverts),
        (&[(20, 0x90)], Violation::BufferSize),
        (&[(26, 0), (27, 5)], Violation::BufferSize),
    ];
    breaks("sdp_hello_ib", hello_ib::Hello::decode, &[OPENING, ib]);
}

/// There is no vector of this one: its bytes by offsets.
#[test]
fn infiniband_answers() {
    let decode = |changes: &[(usize, u8)]| {
        let mut bytes = made(1, 0, [8, 0, 0], &[&[0; 180]]);
        (bytes[16], bytes[19], bytes[22]) = (0x22, 4, 0x80);
        changes.iter().for_each(|&(at, value)| bytes[at] = value);
        hello_ib::HelloAck::decode(&bytes)
    };
    let good = hello_ib::HelloAck {
        version: (2, 2),
        bufs: 8,
        max_adverts: 4,
        receive_size: 32768,
    };
    assert_eq!(decode(&[]), Ok(good));
    assert_eq!(decode(&[(19, 0)]), Err(Violation::MaxAdverts));
    assert_eq!(decode(&[(22, 0)]), Err(Violation::BufferSize));
    assert_eq!(decode(&[(0, 0)]), Err(Violation::Unexpected));
    for (changes, expected) in OPENING.iter().filter(|(c, _)| c[0].0 != 7) {
        assert_eq!(decode(changes), Err(*expected), "{changes:?}");
    }
}

#[test]
fn every_rule_is_in_words() {
    let mut words: Vec<_> = Violation::ALL.iter().map(|v| v.text()).collect();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), Violation::ALL.len());
}
