//! The three ways to frame, and the two ways to take apart: always the same octets, whatever the sizes, the pieces and the
//! position; and a stream that was damaged gives an error or waits, and never anything else.

use std::io::IoSlice;

use proptest::prelude::*;

use super::{pattern, reference};
use crate::iwarp::NoRoom;
use crate::iwarp::mpa::{
    Deframer, Error, Found, Framer, Inbox, LARGEST_FPDU, LARGEST_ULPDU, Markers, Parts, Vector,
    generic,
};

/// ULPDUs as (head, payload) lengths, and the stream they make.
#[derive(Clone, Debug)]
struct Case {
    sizes: Vec<(usize, usize)>,
    markers: bool,
    crc: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let size = prop_oneof![
        4 => 0..80_usize,
        4 => 0..1500_usize,
        2 => 480..530_usize,
        1 => 1500..20_000_usize,
        1 => LARGEST_ULPDU - 100..LARGEST_ULPDU - 46,
    ];
    let sizes = prop::collection::vec((0..46_usize, size), 1..12);
    (sizes, any::<bool>(), any::<bool>()).prop_map(|(sizes, markers, crc)| Case {
        sizes,
        markers,
        crc,
    })
}

impl Case {
    fn heads(&self) -> Vec<Vec<u8>> {
        let sizes = self.sizes.iter().zip(0..);
        sizes.map(|((head, _), n)| pattern(*head, n)).collect()
    }

    fn payloads(&self) -> Vec<Vec<u8>> {
        let sizes = self.sizes.iter().zip(1000..);
        sizes
            .map(|((_, payload), n)| pattern(*payload, n))
            .collect()
    }

    fn ulpdus(&self) -> Vec<Vec<u8>> {
        let pairs = self.heads().into_iter().zip(self.payloads());
        pairs
            .map(|(head, payload)| [head, payload].concat())
            .collect()
    }

    fn framer(&self) -> Framer {
        Framer::new(Markers::wanted(self.markers), self.crc)
    }

    /// The stream, by the one-pass framer.
    fn stream(&self) -> Vec<u8> {
        let (mut framer, mut stream) = (self.framer(), Vec::new());
        for (head, payload) in self.heads().iter().zip(&self.payloads()) {
            let mut out = vec![0xee; framer.wire_len(head.len() + payload.len())];
            let mut parts = Parts::one(payload);
            let len = framer.frame(head, &mut parts, payload.len(), &mut out);
            assert_eq!(len, Ok(out.len()));
            assert!(parts.is_empty());
            stream.extend(out);
        }
        stream
    }

    fn deframer(&self) -> Deframer {
        Deframer::new(Markers::wanted(self.markers), self.crc)
    }
}

/// All ULPDUs that come out of an inbox fed with pieces of these sizes, over and over.
fn through_inbox(case: &Case, stream: &[u8], pieces: &[usize]) -> Result<Vec<Vec<u8>>, Error> {
    let mut inbox = Inbox::new(case.deframer(), 0);
    let mut sizes = pieces.iter().cycle();
    let (mut rest, mut found) = (stream, Vec::new());
    loop {
        while let Some(ulpdu) = inbox.next()? {
            found.push(ulpdu.pieces().collect::<Vec<_>>().concat());
        }
        if rest.is_empty() {
            assert_eq!(inbox.rest().len(), inbox.held());
            return Ok(found);
        }
        let n = rest.len().min(*sizes.next().unwrap());
        let taken = inbox.put(&rest[..n]);
        assert!(taken > 0, "an inbox without room");
        rest = &rest[taken..];
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn all_ways_make_the_same_octets(case in case(), cuts in prop::collection::vec(1..700_usize, 1..20)) {
        let stream = case.stream();
        let (mut generic, mut vectored) = (
            generic::Sender::new(Markers::wanted(case.markers), case.crc),
            case.framer(),
        );
        let mut scratch = vec![0; 8192 + 64 * case.sizes.len()];
        let mut vector = Vector::<4096>::new(&mut scratch);
        let (heads, payloads) = (case.heads(), case.payloads());
        // Payload in pieces: what is sent need not lie in one.
        let sliced: Vec<Vec<IoSlice<'_>>> = payloads
            .iter()
            .map(|payload| {
                let (mut rest, mut slices) = (&payload[..], Vec::new());
                for cut in cuts.iter().cycle() {
                    if rest.is_empty() {
                        break;
                    }
                    let (piece, after) = rest.split_at(rest.len().min(*cut));
                    slices.push(IoSlice::new(piece));
                    rest = after;
                }
                slices
            })
            .collect();
        let mut at = 0;
        for ((head, payload), slices) in heads.iter().zip(&payloads).zip(&sliced) {
            let mut out = vec![0; LARGEST_FPDU];
            let mut parts = Parts::many(slices);
            let len = generic.frame(head, &mut parts, payload.len(), &mut out).unwrap();
            prop_assert_eq!(&out[..len], &stream[at..at + len]);
            let mut parts = Parts::many(slices);
            let whole = vectored.frame_in_place(head, &mut parts, payload.len(), &mut vector);
            if whole == Err(NoRoom) {
                // Many small slices: the whole vector goes out, and the next begins.
                return Ok(());
            }
            prop_assert_eq!(whole, Ok(len));
            at += len;
        }
        prop_assert_eq!(vector.len(), stream.len());
        let listed: Vec<u8> = vector.slices().iter().flat_map(|slice| slice.to_vec()).collect();
        prop_assert_eq!(&listed, &stream);
        prop_assert_eq!(reference::ulpdus(&stream, 0, case.markers, case.crc), Ok(case.ulpdus()));
    }

    #[test]
    fn any_pieces_give_the_ulpdus_back(case in case(), pieces in prop::collection::vec(1..3000_usize, 1..9)) {
        let stream = case.stream();
        let found = through_inbox(&case, &stream, &pieces);
        prop_assert_eq!(found, Ok(case.ulpdus()));
    }

    /// The receiver's two ways, and parts of a ULPDU, wherever markers stand.
    #[test]
    fn a_ulpdu_is_read_in_any_way(case in case(), from in 0..3000_usize, len in 0..3000_usize) {
        let stream = case.stream();
        let (mut deframer, mut generic) = (case.deframer(), generic::Receiver::new());
        let mut rest = &stream[..];
        for expected in case.ulpdus() {
            let Ok(Found::Whole { ulpdu, wire }) = deframer.look(rest) else {
                return Err(TestCaseError::fail("not whole"));
            };
            prop_assert_eq!(ulpdu.len(), expected.len());
            prop_assert_eq!(generic.strip(&ulpdu), &expected[..]);
            let (from, end) = (from.min(expected.len()), (from + len).min(expected.len()));
            let part = ulpdu.skip(from).first(len);
            prop_assert_eq!(part.len(), end - from);
            let mut copy = vec![0; part.len()];
            prop_assert_eq!(part.copy_to(&mut copy), copy.len());
            prop_assert_eq!(&copy, &expected[from..end]);
            if let Some(whole) = part.whole() {
                prop_assert_eq!(whole, &copy[..]);
            }
            prop_assert!(part.pieces().all(|piece| !piece.is_empty()));
            rest = &rest[wire..];
        }
    }

    /// One damaged octet never passes the sum. (It may make an FPDU longer, which then is waited for.)
    #[test]
    fn damage_is_found(case in case(), place in any::<prop::sample::Index>(), flip in 1..=255_u8) {
        let case = Case { crc: true, ..case };
        let mut stream = case.stream();
        let place = place.index(stream.len());
        stream[place] ^= flip;
        let expected = case.ulpdus();
        match through_inbox(&case, &stream, &[1000]) {
            Err(Error::Crc) => {}
            Ok(found) => {
                prop_assert!(found.len() < expected.len());
                prop_assert_eq!(&found[..], &expected[..found.len()]);
            }
            Err(Error::Marker) => prop_assert!(false, "the sum comes first"),
        }
    }

    /// Any octets at all: no panic, and nothing without end.
    #[test]
    fn noise(bytes in prop::collection::vec(any::<u8>(), 0..3000), markers in any::<bool>(), crc in any::<bool>()) {
        let case = Case { sizes: Vec::new(), markers, crc };
        let found = through_inbox(&case, &bytes, &[100, 7]);
        let apart = reference::ulpdus(&bytes, 0, markers, crc);
        if let Ok(expected) = apart {
            prop_assert_eq!(found, Ok(expected));
        }
    }
}

/// RFC 5044 section 8, code 3; the low two bits of a pointer do not count, and neither do the reserved ones.
#[test]
fn markers_that_point_elsewhere() {
    let case = Case {
        sizes: vec![(18, 1000)],
        markers: true,
        crc: false,
    };
    let stream = case.stream();
    let look = |at: usize, value: u8| {
        let mut damaged = stream.clone();
        damaged[at] ^= value;
        case.deframer().look(&damaged).map(|_| ())
    };
    assert_eq!(look(514, 1), Err(Error::Marker));
    assert_eq!(look(515, 4), Err(Error::Marker));
    assert_eq!(look(3, 8), Err(Error::Marker));
    assert_eq!(look(515, 3), Ok(()));
    assert_eq!(look(512, 0xff), Ok(()));
    let mut deframer = case.deframer();
    let mut damaged = stream.clone();
    damaged[515] ^= 8;
    assert!(deframer.look(&damaged).is_err());
    assert_eq!(
        deframer.look(&stream).err(),
        Some(Error::Marker),
        "it is over"
    );
}

#[test]
fn without_room_nothing_changes() {
    let mut framer = Framer::new(Markers::ON, true);
    let payload = pattern(1000, 1);
    let mut small = [0; 1000];
    let mut parts = Parts::one(&payload);
    assert_eq!(
        framer.frame(&[1; 18], &mut parts, 1000, &mut small),
        Err(NoRoom)
    );
    let mut out = [0; 2000];
    assert_eq!(
        framer.frame(&[1; 18], &mut parts, 1001, &mut out),
        Err(NoRoom)
    );
    assert_eq!(
        framer.frame(&[1; 18], &mut parts, LARGEST_ULPDU, &mut out),
        Err(NoRoom)
    );
    let mut scratch = [0; 20];
    let mut vector = Vector::<16>::new(&mut scratch);
    let listed = framer.frame_in_place(&[1; 18], &mut parts, 1000, &mut vector);
    assert_eq!((listed, vector.len()), (Err(NoRoom), 0));
    let mut scratch = [0; 200];
    let mut vector = Vector::<4>::new(&mut scratch);
    let listed = framer.frame_in_place(&[1; 18], &mut parts, 1000, &mut vector);
    assert_eq!((listed, vector.len()), (Err(NoRoom), 0));
    assert_eq!(parts.len(), 1000);
    let len = framer.frame(&[1; 18], &mut parts, 1000, &mut out).unwrap();
    let found = reference::ulpdus(&out[..len], 0, true, true).unwrap();
    assert_eq!(found, [[&[1; 18], &payload[..]].concat()]);
}

/// FPDUs that share the entries between them: a small one costs two.
#[test]
fn a_vector_is_short() {
    let payload = pattern(40, 1);
    let mut scratch = [0; 4096];
    let mut vector = Vector::<128>::new(&mut scratch);
    let mut framer = Framer::new(Markers::OFF, true);
    for _ in 0..30 {
        framer
            .frame_in_place(&[2; 18], &mut Parts::one(&payload), 40, &mut vector)
            .unwrap();
    }
    assert_eq!(vector.slices().len(), 61);
    assert_eq!(vector.len(), 30 * 64);
}
