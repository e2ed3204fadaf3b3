//! Conversations of Linux's software iWARP driver, heard by both ends of ours: every octet is understood, and what our end would
//! have said is what siw said.

use super::world::{ALL, End, ID, Line, PLAIN};
use super::{lines, reference, unhex};
use crate::iwarp::ddp::{Region, Stag};
use crate::iwarp::mpa::setup::{Answer, Heard, Initiator, Reads, Responder, Role, Terms, Wants};
use crate::iwarp::mpa::startup::Read;
use crate::iwarp::mpa::{Frame, Kind, Rtr, RtrSet};
use crate::iwarp::rdmap::ReadRequest;

/// Who speaks, and the octets.
type Said = (Role, Vec<u8>);

fn conversation(name: &str) -> Vec<Said> {
    let lines = lines("siw.txt");
    let from = lines
        .iter()
        .position(|line| line == &format!("= {name}"))
        .unwrap();
    let said = lines[from + 1..]
        .iter()
        .take_while(|line| !line.starts_with('='));
    said.map(|line| match line.split_at(2) {
        ("> ", hex) => (Role::Initiator, unhex(hex)),
        (_, hex) => (Role::Responder, unhex(hex)),
    })
    .collect()
}

/// The terms that our ends come to from siw's frames, after checking that our own frames would be the same.
fn agree(request: &[u8], reply: &[u8]) -> (Option<Terms>, Option<Terms>) {
    let Ok(Read::Whole(asked, used)) = Frame::read(Kind::Request, request) else {
        panic!("no Request");
    };
    assert_eq!(used, request.len());
    let Ok(Read::Whole(answered, used)) = Frame::read(Kind::Reply, reply) else {
        panic!("no Reply");
    };
    assert_eq!(used, reply.len());
    let wants = |frame: &Frame<'_>, rtr| Wants {
        markers: frame.markers,
        crc: frame.crc,
        reads: frame.depths.map(|depths| Reads {
            ird: depths.ird,
            ord: depths.ord,
            least_ord: 0,
            rtr,
        }),
    };
    let mut out = [0; 600];
    let rtr = asked.depths.map_or(RtrSet::NONE, |depths| depths.rtr);
    let (initiator, len) = Initiator::ask(wants(&asked, rtr), asked.private, &mut out).unwrap();
    assert_eq!(&out[..len], request);
    let Ok(Heard::Whole { what: heard, .. }) = initiator.hear(reply) else {
        panic!("not an answer");
    };
    let Ok(Heard::Whole {
        what: responder, ..
    }) = Responder::hear(request)
    else {
        panic!("not a question");
    };
    match heard {
        Answer::Rejected => {
            assert!(answered.reject);
            (None, None)
        }
        Answer::Accepted(ours) => {
            let wants = wants(&answered, rtr);
            let (theirs, len) = responder.accept(wants, answered.private, &mut out).unwrap();
            assert_eq!(&out[..len], reply);
            (Some(ours), Some(theirs))
        }
    }
}

/// A region as siw named it: STag, tagged offset, octets.
type Named = (Stag, u64, usize);

fn end(role: Role, terms: &Terms, named: &[Named]) -> End {
    let line = Line {
        markers: [false; 2],
        crc: terms.crc,
        depth: terms
            .reads
            .map_or(1, |limits| limits.ird.max(limits.ord).max(1)),
        rtr: terms.rtr,
        ..PLAIN
    };
    let mut end = End::new(role, line);
    end.answers = false;
    end.memory = named.iter().map(|(_, _, len)| vec![0; *len]).collect();
    end
}

/// Registers the region that the next segments name. Only one at a time: siw counts slots above the low octet of an STag, we
/// in it.
fn open(end: &mut End, named: &[Named], wanted: u32) {
    end.regions.remove_all(ID);
    let found = named
        .iter()
        .zip(0..)
        .find(|((stag, ..), _)| stag.0 == wanted);
    if let Some(((stag, base, len), memory)) = found {
        let region = Region {
            stream: ID,
            base: *base,
            len: *len as u64,
            rights: ALL,
            memory,
        };
        assert_eq!(end.regions.register(region, stag.0), Ok(*stag));
    }
}

/// All segments of one side, by the decoder that was written apart.
fn segments(said: &[Said], role: Role, crc: bool) -> Vec<reference::Segment> {
    let mine = said.iter().filter(|(who, _)| *who == role);
    let stream: Vec<u8> = mine.flat_map(|(_, octets)| octets.clone()).collect();
    let ulpdus = reference::ulpdus(&stream, 0, false, crc).unwrap();
    ulpdus
        .iter()
        .map(|ulpdu| reference::segment(ulpdu))
        .collect()
}

/// What a Read Request of siw's asks for.
fn asked(segment: &reference::Segment) -> ReadRequest {
    let number = |at: usize, len: usize| {
        let octets = segment.payload[at..at + len].iter();
        octets.fold(0, |sum, octet| sum << 8 | u64::from(*octet))
    };
    ReadRequest {
        sink: Stag(number(0, 4) as u32),
        sink_offset: number(4, 8),
        len: number(12, 4) as u32,
        source: Stag(number(16, 4) as u32),
        source_offset: number(20, 8),
    }
}

/// Lets our responder hear siw's initiator, and the other way round, with the regions that each of siw's ends had. Our ends
/// ask for what siw's ask for, so that the answers are expected.
fn hear(name: &str, initiator: &[Named], responder: &[Named]) -> [End; 2] {
    let said = conversation(name);
    let (ours, theirs) = agree(&said[0].1, &said[1].1);
    let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
    let mut ends = [
        end(Role::Initiator, &ours, initiator),
        end(Role::Responder, &theirs, responder),
    ];
    if let Some(segment) = ends[0].stream.rtr() {
        ends[0].put(&segment, &[]);
    }
    for (who, octets) in &said[2..] {
        let (speaks, hears, named) = match who {
            Role::Initiator => (0, 1, responder),
            Role::Responder => (1, 0, initiator),
        };
        for ulpdu in reference::ulpdus(octets, 0, false, ours.crc).unwrap() {
            let segment = reference::segment(&ulpdu);
            if segment.opcode == 1 {
                let request = asked(&segment);
                let own = ends[speaks].stream.read(request).unwrap();
                assert_eq!(own.head.bytes(), ulpdu);
                open(&mut ends[hears], named, request.source.0);
            } else if segment.tagged {
                open(&mut ends[hears], named, segment.stag);
            }
        }
        ends[hears].feed(octets);
        assert_eq!(ends[hears].breach, None, "{name}");
        while ends[hears].stream.answer().is_ok() {
            ends[hears].stream.answered();
        }
    }
    for (of, role) in [(0, Role::Responder), (1, Role::Initiator)] {
        let apart = segments(&said[2..], role, ours.crc);
        let sends = apart.iter().filter(|segment| segment.opcode == 3);
        let sends: Vec<&Vec<u8>> = sends.map(|segment| &segment.payload).collect();
        let heard: Vec<&Vec<u8>> = ends[of].sends.iter().map(|send| &send.bytes).collect();
        assert_eq!(heard, sends, "{name}");
    }
    ends
}

/// rping: a Send, a Read by the server, a Write by the server, three times.
#[test]
fn rping() {
    for (name, source, written, sink) in [
        (
            "rping_crc",
            (Stag(0x8a6d_6700), 0x5642_9558_e470, 100),
            (Stag(0x31b3_8600), 0x5642_9558_bdd0, 100),
            (Stag(0xf42f_9a00), 0x55c7_225a_cdd0, 100),
        ),
        (
            "rping_without_crc",
            (Stag(0x1cc1_d000), 0x55bf_514f_6470, 100),
            (Stag(0xb05b_2000), 0x55bf_514f_3dd0, 100),
            (Stag(0x1eae_f300), 0x55b6_04c9_add0, 100),
        ),
    ] {
        let ends = hear(name, &[written, source], &[sink]);
        let read = &ends[1].memory[0];
        assert!(read.starts_with(b"rdma-ping-2: CDEF"));
        assert_eq!(&ends[0].memory[0], read, "what was written back");
        assert_eq!(ends[1].reads_done.len(), 3);
        assert!(ends[0].sends.len() >= 5 && ends[1].sends.len() >= 6);
    }
}

#[test]
fn reads_one_after_the_other() {
    let sink = (Stag(0x65e2_9c00), 0x5561_0f46_0000, 64);
    let source = (Stag(0xa7dc_9700), 0x55d6_c6e4_c000, 64);
    let ends = hear("reads", &[sink], &[source]);
    assert_eq!(ends[0].reads_done.len(), 11);
    assert_eq!(ends[0].memory[0][..4], [0x84, 0x0e, 0xe5, 0x26]);
}

/// An answer of three segments.
#[test]
fn a_large_read() {
    let source = (Stag(0xa2db_7b00), 0x55fc_d970_62a0, 20_000);
    let sink = (Stag(0xa4f6_2900), 0x5606_0b00_c960, 20_000);
    let ends = hear("large_read", &[source], &[sink]);
    assert!(ends[1].memory[0].starts_with(b"rdma-ping-0: ABCD"));
    assert_eq!(ends[1].reads_done.len(), 1);
}

#[test]
fn sends_with_pads() {
    let ends = hear("sends_of_different_sizes", &[], &[]);
    assert_eq!((ends[0].sends.len(), ends[1].sends.len()), (10, 10));
}

#[test]
fn older_and_newer_set_ups() {
    let ends = hear("rping_revision_1", &[], &[]);
    assert_eq!(ends[1].sends.len(), 1);
    let said = conversation("rping_peer_to_peer");
    let (ours, theirs) = agree(&said[0].1, &said[1].1);
    assert_eq!(ours.unwrap().rtr, Some(Rtr::Write));
    assert_eq!(theirs.unwrap().rtr, Some(Rtr::Write));
    let ends = hear("rping_peer_to_peer", &[], &[]);
    assert_eq!(ends[1].sends.len(), 1);
}

#[test]
fn private_data_and_a_refusal() {
    let said = conversation("private_data");
    assert!(agree(&said[0].1, &said[1].1).0.is_some());
    let said = conversation("declined");
    assert_eq!(agree(&said[0].1, &said[1].1), (None, None));
}
