//! The set-up: what both ends agree on, what each violation is called, and that anything may arrive in any pieces.

use proptest::prelude::*;

use crate::iwarp::NoRoom;
use crate::iwarp::mpa::setup::{
    Answer, Fault, Heard, Initiator, ReadLimits, Reads, Responder, Role, Terms, Wants,
};
use crate::iwarp::mpa::startup::{BY_UPPER_LAYER, LARGEST, MOST_PRIVATE, Read};
use crate::iwarp::mpa::{Depths, Frame, Kind, Malformed, Rtr, RtrSet};
use crate::iwarp::rdmap::Violation;

const PLAIN: Wants = Wants {
    markers: false,
    crc: true,
    reads: None,
};

const WRITE_OR_READ: RtrSet = RtrSet {
    write: true,
    read: true,
    fpdu: false,
};

fn reads(ird: u16, ord: u16, rtr: RtrSet) -> Wants {
    Wants {
        reads: Some(Reads {
            ird,
            ord,
            least_ord: 0,
            rtr,
        }),
        ..PLAIN
    }
}

fn least(wants: Wants, least_ord: u16) -> Wants {
    let reads = wants.reads.map(|reads| Reads { least_ord, ..reads });
    Wants { reads, ..wants }
}

/// Both ends talk; what each comes to.
fn talk(asks: Wants, answers: Wants) -> Result<(Terms, Terms), Fault> {
    let (mut there, mut back) = ([0; LARGEST], [0; LARGEST]);
    let (initiator, len) = Initiator::ask(asks, b"question", &mut there).unwrap();
    let Heard::Whole {
        what,
        private,
        used,
    } = Responder::hear(&there[..len])?
    else {
        panic!("cut");
    };
    assert_eq!((private, used), (&b"question"[..], len));
    let (theirs, len) = what.accept(answers, b"answer", &mut back)?;
    // Octets behind the Reply are no concern of the set-up.
    let Heard::Whole {
        what,
        private,
        used,
    } = initiator.hear(&back)?
    else {
        panic!("cut");
    };
    assert_eq!((private, used), (&b"answer"[..], len));
    match what {
        Answer::Accepted(ours) => Ok((ours, theirs)),
        Answer::Rejected => panic!("rejected"),
    }
}

#[test]
fn markers_are_each_receivers_and_crcs_both() {
    for bits in 0..16 {
        let wants = |markers: i32, crc: i32| Wants {
            markers: bits & markers != 0,
            crc: bits & crc != 0,
            reads: None,
        };
        let (asks, answers) = (wants(1, 2), wants(4, 8));
        let (ours, theirs) = talk(asks, answers).unwrap();
        let terms = |role, send_markers, receive_markers| Terms {
            role,
            send_markers,
            receive_markers,
            crc: asks.crc || answers.crc,
            reads: None,
            rtr: None,
        };
        assert_eq!(ours, terms(Role::Initiator, answers.markers, asks.markers));
        assert_eq!(
            theirs,
            terms(Role::Responder, asks.markers, answers.markers)
        );
    }
}

#[test]
fn neither_asks_for_more_reads_than_the_other_answers() {
    for (asks, answers, ours, theirs) in [
        ((16, 8), (32, 32), (16, 8), (8, 16)),
        ((16, 8), (4, 2), (2, 4), (4, 2)),
        ((0, 0), (4, 2), (0, 0), (0, 0)),
        ((BY_UPPER_LAYER, BY_UPPER_LAYER), (4, 2), (2, 4), (4, 2)),
        ((7, 9), (BY_UPPER_LAYER, BY_UPPER_LAYER), (7, 9), (9, 7)),
    ] {
        let none = RtrSet::NONE;
        let terms = talk(
            reads(asks.0, asks.1, none),
            reads(answers.0, answers.1, none),
        )
        .unwrap();
        let limits = |(ird, ord)| Some(ReadLimits { ird, ord });
        assert_eq!(
            (terms.0.reads, terms.1.reads),
            (limits(ours), limits(theirs))
        );
        assert_eq!(terms.0.rtr, None);
    }
    let few = talk(
        least(reads(16, 8, RtrSet::NONE), 3),
        reads(2, 8, RtrSet::NONE),
    );
    assert_eq!(few, Err(Fault::InsufficientIrd));
    let few = talk(
        reads(0, 8, RtrSet::NONE),
        least(reads(2, 8, RtrSet::NONE), 1),
    );
    assert_eq!(few, Err(Fault::InsufficientIrd));
}

#[test]
fn ready_to_receive_is_of_a_kind_that_both_have() {
    let only = RtrSet::only;
    for (asks, answers, kind) in [
        (WRITE_OR_READ, WRITE_OR_READ, Ok(Rtr::Write)),
        (WRITE_OR_READ, only(Rtr::Read), Ok(Rtr::Read)),
        (
            only(Rtr::Fpdu),
            RtrSet {
                fpdu: true,
                ..WRITE_OR_READ
            },
            Ok(Rtr::Fpdu),
        ),
        (only(Rtr::Fpdu), WRITE_OR_READ, Err(Fault::NoMatchingRtr)),
        (WRITE_OR_READ, RtrSet::NONE, Err(Fault::NoMatchingRtr)),
    ] {
        let terms = talk(reads(4, 4, asks), reads(4, 4, answers));
        assert_eq!(terms.map(|(ours, _)| ours.rtr.unwrap()), kind);
        if let Ok((ours, theirs)) = terms {
            assert_eq!(ours.rtr, theirs.rtr);
        }
    }
    // A Read cannot be it where the responder answers none.
    let terms = talk(reads(4, 4, only(Rtr::Read)), reads(0, 4, WRITE_OR_READ));
    assert_eq!(terms.err(), Some(Fault::NoMatchingRtr));
}

/// A responder that leaves the numbers to the layer above goes along; revision 1 gets revision 1.
#[test]
fn revisions() {
    let (ours, theirs) = talk(reads(16, 8, RtrSet::NONE), PLAIN).unwrap();
    assert_eq!(
        (ours.reads, theirs.reads),
        (Some(ReadLimits { ird: 16, ord: 8 }), None)
    );
    let (ours, theirs) = talk(PLAIN, reads(16, 8, WRITE_OR_READ)).unwrap();
    assert_eq!(
        (ours.reads, theirs.reads, ours.rtr, theirs.rtr),
        (None, None, None, None)
    );
}

#[test]
fn a_rejection_leaves_plain_bytes() {
    for wants in [PLAIN, reads(16, 8, WRITE_OR_READ)] {
        let (mut there, mut back) = ([0; LARGEST], [0; LARGEST]);
        let (initiator, len) = Initiator::ask(wants, b"", &mut there).unwrap();
        let Heard::Whole { what, .. } = Responder::hear(&there[..len]).unwrap() else {
            panic!("cut");
        };
        let len = what.reject(PLAIN, b"why", &mut back).unwrap();
        let heard = initiator.hear(&back).unwrap();
        let expected = Heard::Whole {
            what: Answer::Rejected,
            private: &b"why"[..],
            used: len,
        };
        assert_eq!(heard, expected);
    }
}

fn request() -> (Initiator, Vec<u8>) {
    let mut out = [0; LARGEST];
    let (initiator, len) = Initiator::ask(PLAIN, b"abc", &mut out).unwrap();
    (initiator, out[..len].to_vec())
}

fn hears(bytes: &[u8]) -> Option<Malformed> {
    match Responder::hear(bytes) {
        Err(Fault::Malformed(malformed)) => Some(malformed),
        _ => None,
    }
}

#[test]
fn what_is_not_a_frame() {
    let (initiator, frame) = request();
    let with = |at: usize, octet: u8| {
        let mut frame = frame.clone();
        frame[at] = octet;
        frame
    };
    // The first octet that differs decides: nobody waits for the rest of somebody's plain bytes.
    assert_eq!(hears(b"G"), Some(Malformed::Key));
    assert_eq!(hears(b"MPA ID Reg"), Some(Malformed::Key));
    assert_eq!(Responder::hear(b"MPA"), Ok(Heard::Partial(20)));
    assert_eq!(Responder::hear(b""), Ok(Heard::Partial(20)));
    assert_eq!(hears(&with(17, 0)), Some(Malformed::Revision(0)));
    assert_eq!(hears(&with(17, 3)), Some(Malformed::Revision(3)));
    assert_eq!(hears(&with(18, 3)), Some(Malformed::TooLong(0x303)));
    // A reserved bit, and the reject bit of a Request, are not looked at; nor is the enhanced bit of revision 1.
    assert_eq!(hears(&with(16, 0x7f)), None);
    let mut short = with(16, 0x10);
    short[17] = 2;
    assert_eq!(hears(&short), Some(Malformed::TooShort));
    // Two initiators, two responders.
    assert_eq!(
        initiator.hear(&frame),
        Err(Fault::Malformed(Malformed::Role))
    );
    let reply = [b"MPA ID Rep Frame", &frame[16..]].concat();
    assert_eq!(hears(&reply), Some(Malformed::Role));
    for fault in [Fault::Malformed(Malformed::Key), Fault::Mismatch] {
        assert_eq!(Violation::of_setup(fault).numbers(), (2, 0, 4));
    }
    assert_eq!(
        Violation::of_setup(Fault::InsufficientIrd).numbers(),
        (2, 0, 6)
    );
    assert_eq!(
        Violation::of_setup(Fault::NoMatchingRtr).numbers(),
        (2, 0, 7)
    );
}

/// The responder's frame may leave the bit out that the Request had: one wish is enough (RFC 5044 section 7.1.1).
#[test]
fn one_wish_for_crcs_is_enough() {
    let (initiator, request) = request();
    let mut reply = [b"MPA ID Rep Frame", &request[16..]].concat();
    reply[16] = 0;
    let Ok(Heard::Whole {
        what: Answer::Accepted(terms),
        ..
    }) = initiator.hear(&reply)
    else {
        panic!("not accepted");
    };
    assert!(terms.crc);
}

/// Replies that no lawful responder sends.
#[test]
fn replies_that_do_not_answer() {
    let depths = Depths {
        ird: 4,
        ord: 4,
        peer_to_peer: true,
        rtr: RtrSet::only(Rtr::Write),
    };
    let reply = Frame {
        kind: Kind::Reply,
        markers: false,
        crc: true,
        reject: false,
        revision: 2,
        depths: Some(depths),
        private: b"",
    };
    let hear = |wants: Wants, reply: Frame<'_>| {
        let mut out = [0; LARGEST];
        let (initiator, _) = Initiator::ask(wants, b"", &mut out).unwrap();
        let len = reply.write(&mut out).unwrap();
        initiator.hear(&out[..len]).map(|_| ())
    };
    let asks = reads(4, 4, WRITE_OR_READ);
    let changed = |depths: Depths| Frame {
        depths: Some(depths),
        ..reply
    };
    assert_eq!(hear(asks, reply), Ok(()));
    assert_eq!(hear(PLAIN, reply), Err(Fault::Mismatch));
    assert_eq!(
        hear(
            asks,
            Frame {
                depths: None,
                ..reply
            }
        ),
        Err(Fault::Mismatch)
    );
    let older = Frame {
        depths: None,
        revision: 1,
        ..reply
    };
    assert_eq!(hear(asks, older), Err(Fault::Mismatch));
    assert_eq!(
        hear(asks, changed(Depths { ord: 5, ..depths })),
        Err(Fault::InsufficientIrd)
    );
    let client = Depths {
        peer_to_peer: false,
        ..depths
    };
    assert_eq!(hear(asks, changed(client)), Err(Fault::NoMatchingRtr));
    let other = Depths {
        rtr: RtrSet::only(Rtr::Fpdu),
        ..depths
    };
    assert_eq!(hear(asks, changed(other)), Err(Fault::NoMatchingRtr));
}

#[test]
fn limits_of_private_data() {
    let mut out = [0; LARGEST + 8];
    let data = [7; MOST_PRIVATE + 1];
    assert!(Initiator::ask(PLAIN, &data[..MOST_PRIVATE], &mut out).is_ok());
    assert_eq!(Initiator::ask(PLAIN, &data, &mut out).err(), Some(NoRoom));
    let wants = reads(1, 1, RtrSet::NONE);
    assert!(Initiator::ask(wants, &data[..MOST_PRIVATE - 4], &mut out).is_ok());
    assert_eq!(
        Initiator::ask(wants, &data[..MOST_PRIVATE - 3], &mut out).err(),
        Some(NoRoom)
    );
    assert_eq!(
        Initiator::ask(PLAIN, &data[..10], &mut out[..29]).err(),
        Some(NoRoom)
    );
}

fn depths() -> impl Strategy<Value = Depths> {
    (0..=BY_UPPER_LAYER, 0..=BY_UPPER_LAYER, any::<[bool; 4]>()).prop_map(|(ird, ord, flags)| {
        Depths {
            ird,
            ord,
            peer_to_peer: flags[0],
            rtr: RtrSet {
                fpdu: flags[1],
                write: flags[2],
                read: flags[3],
            },
        }
    })
}

proptest! {
    #[test]
    fn frames_are_read_as_written(
        flags in any::<[bool; 4]>(),
        depths in depths(),
        private in prop::collection::vec(any::<u8>(), 0..=508),
        behind in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let [reply, markers, crc, enhanced] = flags;
        let frame = Frame {
            kind: if reply { Kind::Reply } else { Kind::Request },
            markers,
            crc,
            reject: reply && markers,
            revision: if enhanced { 2 } else { 1 },
            depths: enhanced.then_some(depths),
            private: &private,
        };
        let mut out = [0; LARGEST];
        let len = frame.write(&mut out).unwrap();
        prop_assert_eq!(len, frame.len());
        let stream = [&out[..len], &behind].concat();
        prop_assert_eq!(Frame::read(frame.kind, &stream), Ok(Read::Whole(frame, len)));
    }

    #[test]
    fn noise_is_refused_or_waited_for(
        place in 0..24_usize,
        noise in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let (initiator, mut frame) = request();
        frame.truncate(place);
        frame.extend(noise);
        for heard in [Responder::hear(&frame).map(|_| ()), initiator.hear(&frame).map(|_| ())] {
            // A wrong key is never taken for a frame.
            prop_assert!(heard.is_err() || frame.starts_with(b"M"));
        }
    }
}
