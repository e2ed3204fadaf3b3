//! The rules, each broken once: what is done, what it is called, and the ULPDUs that do it (all but the last are lawful).

use super::{BASE, BUFFER, Known, LEN, request, tagged, untagged};
use crate::iwarp::ddp::Stag;
use crate::iwarp::rdmap::Violation;

pub(super) type Make = fn(&Known) -> Vec<Vec<u8>>;

pub(super) const CASES: &[(&str, Violation, Make)] = &[
    // DDP, tagged (RFC 5041 section 7.2, type 1).
    (
        "an STag that nobody gave",
        Violation::TaggedInvalidStag,
        |known| vec![tagged(0x40, Stag(known.all.0 ^ 0x4000), BASE, true, b"x")],
    ),
    (
        "a region that must not be written",
        Violation::TaggedInvalidStag,
        |known| vec![tagged(0x40, known.nothing, BASE, true, b"x")],
    ),
    ("before the region", Violation::TaggedBounds, |known| {
        vec![tagged(0x40, known.all, BASE - 1, true, b"xy")]
    }),
    ("past the region", Violation::TaggedBounds, |known| {
        vec![tagged(0x40, known.all, BASE + LEN as u64 - 1, true, b"xy")]
    }),
    (
        "the region of another stream",
        Violation::TaggedNotThisStream,
        |known| vec![tagged(0x40, known.other_stream, BASE, true, b"x")],
    ),
    ("an offset that wraps", Violation::TaggedWrap, |known| {
        vec![tagged(0x40, known.all, u64::MAX, true, b"xy")]
    }),
    (
        "another version of DDP, tagged",
        Violation::TaggedVersion,
        |known| {
            let mut ulpdu = tagged(0x40, known.all, BASE, true, b"x");
            ulpdu[0] = 0xc2;
            vec![ulpdu]
        },
    ),
    // DDP, untagged (type 2).
    (
        "a queue that is not there",
        Violation::UntaggedQueue,
        |_| vec![untagged(0x43, 3, 1, 0, true, 0, b"x")],
    ),
    (
        "a Send in the queue of Reads",
        Violation::UntaggedQueue,
        |_| vec![untagged(0x43, 1, 1, 0, true, 0, b"x")],
    ),
    (
        "a Read Request in the queue of Sends",
        Violation::UntaggedQueue,
        |_| vec![untagged(0x41, 0, 2, 0, true, 0, &[0; 28])],
    ),
    ("a message twice", Violation::UntaggedNumber, |_| {
        vec![untagged(0x43, 0, 1, 0, true, 0, b"x")]
    }),
    ("a message left out", Violation::UntaggedNumber, |_| {
        vec![untagged(0x43, 0, 3, 0, true, 0, b"x")]
    }),
    ("a hole in a message", Violation::UntaggedOffset, |_| {
        vec![
            untagged(0x43, 0, 2, 0, false, 0, b"abc"),
            untagged(0x43, 0, 2, 4, true, 0, b"x"),
        ]
    }),
    (
        "more than a buffer holds",
        Violation::UntaggedTooLong,
        |_| vec![untagged(0x43, 0, 2, 0, true, 0, &[1; BUFFER as usize + 1])],
    ),
    (
        "more in the end than a buffer holds",
        Violation::UntaggedTooLong,
        |_| {
            vec![
                untagged(0x43, 0, 2, 0, false, 0, &[1; BUFFER as usize]),
                untagged(0x43, 0, 2, BUFFER, true, 0, &[1]),
            ]
        },
    ),
    (
        "a Read Request that is too long",
        Violation::UntaggedTooLong,
        |_| vec![untagged(0x41, 1, 1, 0, true, 0, &[0; 29])],
    ),
    (
        "another version of DDP, untagged",
        Violation::UntaggedVersion,
        |_| {
            let mut ulpdu = untagged(0x43, 0, 2, 0, true, 0, b"x");
            ulpdu[0] = 0x40;
            vec![ulpdu]
        },
    ),
    // RDMAP, remote protection (RFC 5040 section 4.8, type 1).
    (
        "a Read from an STag that nobody gave",
        Violation::SourceInvalidStag,
        |known| vec![request(Stag(known.all.0 ^ 0x4000), BASE, 1)],
    ),
    ("a Read past the region", Violation::SourceBounds, |known| {
        vec![request(known.all, BASE, LEN as u32 + 1)]
    }),
    (
        "a Read of what must not be read",
        Violation::SourceRights,
        |known| vec![request(known.nothing, BASE, 1)],
    ),
    (
        "a Read from another stream's region",
        Violation::SourceNotThisStream,
        |known| vec![request(known.other_stream, BASE, 1)],
    ),
    ("a Read that wraps", Violation::SourceWrap, |known| {
        vec![request(known.all, u64::MAX, 2)]
    }),
    (
        "a region ended that must not be",
        Violation::CannotInvalidate,
        |known| vec![untagged(0x44, 0, 2, 0, true, known.nothing.0, b"x")],
    ),
    (
        "another stream's region ended",
        Violation::CannotInvalidate,
        |known| vec![untagged(0x46, 0, 2, 0, true, known.other_stream.0, b"x")],
    ),
    // RDMAP, remote operation (type 2).
    ("another version of RDMAP", Violation::RdmapVersion, |_| {
        vec![untagged(0x03, 0, 2, 0, true, 0, b"x")]
    }),
    (
        "an operation that does not exist",
        Violation::UnexpectedOpcode,
        |_| vec![untagged(0x48, 0, 2, 0, true, 0, b"x")],
    ),
    ("a tagged Send", Violation::UnexpectedOpcode, |known| {
        vec![tagged(0x43, known.all, BASE, true, b"x")]
    }),
    ("an untagged Write", Violation::UnexpectedOpcode, |_| {
        vec![untagged(0x40, 0, 2, 0, true, 0, b"x")]
    }),
    (
        "an answer that nobody asked for",
        Violation::UnexpectedOpcode,
        |known| vec![tagged(0x42, known.all, BASE, true, b"x")],
    ),
    (
        "a Send that becomes another kind",
        Violation::UnexpectedOpcode,
        |_| {
            vec![
                untagged(0x43, 0, 2, 0, false, 0, b"abc"),
                untagged(0x45, 0, 2, 3, true, 0, b"x"),
            ]
        },
    ),
    (
        "a segment without a whole header",
        Violation::StreamCatastrophic,
        |_| vec![vec![0x41, 0x43, 0, 0]],
    ),
    (
        "an FPDU with nothing in it",
        Violation::StreamCatastrophic,
        |_| vec![Vec::new()],
    ),
    (
        "a Read Request that is too short",
        Violation::OperationUnspecified,
        |_| vec![untagged(0x41, 1, 1, 0, true, 0, &[0; 27])],
    ),
    (
        "a Read Request in two segments",
        Violation::OperationUnspecified,
        |_| vec![untagged(0x41, 1, 1, 0, false, 0, &[0; 28])],
    ),
];
