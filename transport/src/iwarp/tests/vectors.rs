//! Published octets, and others that neither this decoder nor this encoder made: read by the decoder under test and by the one
//! apart, and written once more by the encoder.

use super::{lines, reference, unhex};
use crate::iwarp::ddp::{Header, RawHeader, Stag, StreamId};
use crate::iwarp::mpa::setup::Role;
use crate::iwarp::mpa::startup::Read;
use crate::iwarp::mpa::{
    Deframer, Depths, Found, Frame, Framer, Kind, Markers, Parts, Rtr, RtrSet, mulpdu,
};
use crate::iwarp::rdmap::{
    Breach, ReadRequest, Refused, SendKind, Settings, Stream, Terminate, Violation,
};

fn vector(name: &str) -> Vec<u8> {
    let lines = lines("iwarp.txt");
    let found = lines
        .iter()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    unhex(found.unwrap())
}

/// The ULPDUs of a vector, after both decoders have agreed on them.
fn ulpdus(name: &str, markers: Markers, position: usize, crc: bool) -> Vec<Vec<u8>> {
    let stream = vector(name);
    let mut deframer = Deframer::new(markers, crc);
    let (mut rest, mut found) = (&stream[..], Vec::new());
    while !rest.is_empty() {
        let Found::Whole { ulpdu, wire } = deframer.look(rest).unwrap() else {
            panic!("{name} is cut");
        };
        found.push(ulpdu.pieces().collect::<Vec<_>>().concat());
        rest = &rest[wire..];
    }
    let apart = reference::ulpdus(&stream, position, markers.any(), crc);
    assert_eq!(Ok(&found), apart.as_ref(), "{name}");
    // And written once more.
    let mut framer = Framer::new(markers, crc);
    let mut out = vec![0; stream.len()];
    let mut at = 0;
    for ulpdu in &found {
        at += framer
            .frame(&[], &mut Parts::one(ulpdu), ulpdu.len(), &mut out[at..])
            .unwrap();
    }
    assert_eq!(out, stream, "{name}");
    found
}

fn stream(role: Role, rtr: Option<Rtr>) -> Stream {
    Stream::new(&Settings {
        id: StreamId(0),
        role,
        ird: 16,
        ord: 8,
        rtr,
        receive_size: 4096,
        receive_buffers: 8,
    })
}

fn initiator() -> Stream {
    stream(Role::Initiator, None)
}

#[test]
fn figures_of_rfc_5044() {
    let first = &ulpdus("rfc5044_fig5", Markers::ON, 0, true)[0];
    let mut sender = initiator();
    let payload = [0; 24];
    for (number, ulpdu) in [
        (1, first),
        (
            2,
            &ulpdus("rfc5044_fig6", Markers::at(0x1ec), 0x1ec, true)[0],
        ),
    ] {
        let mut message = sender.send(SendKind::default(), 24).unwrap();
        let head = message.segment(1442).unwrap().head;
        assert_eq!([head.bytes(), &payload].concat(), *ulpdu);
        assert_eq!(reference::segment(ulpdu).message, number);
    }
}

#[test]
fn sends() {
    for (name, crc) in [
        ("send_sdp_data_hello", true),
        ("send_sdp_data_hello_nocrc", false),
    ] {
        let ulpdu = &ulpdus(name, Markers::OFF, 0, crc)[0];
        assert_eq!(ulpdu.len(), 39);
        assert!(ulpdu.ends_with(b"hello"));
        let head = initiator()
            .send(SendKind::default(), 21)
            .unwrap()
            .segment(99);
        assert_eq!(head.unwrap().head.bytes(), &ulpdu[..18]);
    }
    let ulpdu = &ulpdus("send_se_inval_rdmardcompl", Markers::OFF, 0, true)[0];
    let kind = SendKind {
        solicited: true,
        invalidate: Some(Stag(0xa01)),
    };
    let mut sender = initiator();
    for _ in 1..8 {
        sender.send(SendKind::default(), 1).unwrap();
    }
    let head = sender.send(kind, 20).unwrap().segment(99).unwrap().head;
    assert_eq!(head.bytes(), &ulpdu[..18]);
}

#[test]
fn markers_within_between_and_before_the_sum() {
    let write = &ulpdus("rdma_write_600_markers", Markers::ON, 0, true)[0];
    let head = initiator()
        .write(Stag(0xa01), 0x1000, 600)
        .unwrap()
        .segment(1442)
        .unwrap();
    let payload: Vec<u8> = (0..600_u32).map(|at| at as u8).collect();
    assert_eq!([head.head.bytes(), &payload].concat(), *write);
    assert_eq!(
        ulpdus("marker_between_fpdus", Markers::ON, 0, true).len(),
        2
    );
    assert_eq!(ulpdus("marker_before_crc", Markers::ON, 0, true).len(), 1);
    let three = ulpdus("three_fpdu_stream", Markers::ON, 0, true);
    assert_eq!(
        three.iter().map(Vec::len).collect::<Vec<_>>(),
        [19, 718, 1418]
    );
    for (number, ulpdu) in (1..).zip(&three) {
        let segment = reference::segment(ulpdu);
        assert_eq!((segment.message, segment.last), (number, true));
        let octets = (number - 1..).map(|octet| octet as u8);
        assert!(
            segment
                .payload
                .iter()
                .copied()
                .eq(octets.take(segment.payload.len()))
        );
    }
}

const READ: ReadRequest = ReadRequest {
    sink: Stag(0xb02),
    sink_offset: 0x2000,
    len: 4096,
    source: Stag(0xa01),
    source_offset: 0x1000,
};

#[test]
fn reads() {
    let request = &ulpdus("rdma_read_request", Markers::OFF, 0, true)[0];
    assert_eq!(initiator().read(READ).unwrap().head.bytes(), request);
    let response = &ulpdus("rdma_read_response_16", Markers::OFF, 0, true)[0];
    let segment = reference::segment(response);
    assert_eq!(
        (segment.opcode, segment.stag, segment.offset),
        (2, 0xb02, 0x2000)
    );
    assert!(matches!(Header::read(response), Ok(Header::Tagged(header)) if header.last));
}

#[test]
fn terminate() {
    let ulpdu = &ulpdus("terminate_invalid_stag", Markers::OFF, 0, true)[0];
    let offending = unhex("c140deadbeef0000000000000010");
    let header = RawHeader::read(&offending).unwrap();
    let breach = Breach {
        violation: Violation::TaggedInvalidStag,
        segment: Some((114, header)),
        read: None,
    };
    let mut sender = initiator();
    let _ = sender.fail(breach.violation);
    let segment = sender.terminate(&breach).unwrap();
    assert_eq!(segment.head.bytes(), ulpdu);
    assert_eq!(sender.terminate(&breach), None, "a second one");
    assert_eq!(sender.send(SendKind::default(), 1), Err(Refused::Ended));
    let apart = reference::terminated(&ulpdu[18..]);
    assert_eq!(apart.numbers, (1, 1, 0));
    assert_eq!(
        (apart.segment_len, apart.header),
        (Some(114), Some(offending))
    );
    // Read back by the receiver.
    let mut receiver = initiator();
    let fpdu = vector("terminate_invalid_stag");
    let mut deframer = Deframer::new(Markers::OFF, true);
    let Ok(Found::Whole { ulpdu, .. }) = deframer.look(&fpdu) else {
        panic!();
    };
    let event = receiver
        .receive(ulpdu, &mut crate::iwarp::ddp::Regions::<()>::new(0))
        .unwrap();
    let crate::iwarp::rdmap::Event::Terminated(Some(Terminate {
        segment_len,
        header: told,
        ..
    })) = event
    else {
        panic!("{event:?}");
    };
    assert_eq!((segment_len, told), (Some(114), Some(header)));
    assert!(receiver.is_ended());
}

#[test]
fn ready_to_receive() {
    let ulpdu = &ulpdus("mpa_rtr_zero_write", Markers::OFF, 0, true)[0];
    let mut sender = stream(Role::Initiator, Some(Rtr::Write));
    assert_eq!(sender.send(SendKind::default(), 1), Err(Refused::RtrFirst));
    assert_eq!(sender.rtr().unwrap().head.bytes(), ulpdu);
    assert_eq!(sender.rtr(), None);
    assert!(sender.send(SendKind::default(), 1).is_ok());
}

#[test]
fn set_up_frames() {
    let request = |revision, markers, crc| Frame {
        kind: Kind::Request,
        markers,
        crc,
        reject: false,
        revision,
        depths: None,
        private: &[],
    };
    let rtr = RtrSet {
        write: true,
        ..RtrSet::NONE
    };
    let cases = [
        ("mpa_req_rev1_crc", request(1, false, true)),
        (
            "mpa_req_rev1_markers_crc_pd",
            Frame {
                private: b"ping",
                ..request(1, true, true)
            },
        ),
        (
            "mpa_rep_rev1_reject",
            Frame {
                kind: Kind::Reply,
                reject: true,
                ..request(1, false, true)
            },
        ),
        (
            "mpa_req_rev2_p2p",
            Frame {
                depths: Some(Depths {
                    ird: 16,
                    ord: 8,
                    peer_to_peer: true,
                    rtr: RtrSet { read: true, ..rtr },
                }),
                ..request(2, false, true)
            },
        ),
        (
            "mpa_rep_rev2_p2p",
            Frame {
                kind: Kind::Reply,
                depths: Some(Depths {
                    ird: 8,
                    ord: 16,
                    peer_to_peer: true,
                    rtr,
                }),
                ..request(2, false, true)
            },
        ),
    ];
    for (name, frame) in cases {
        let octets = vector(name);
        let read = Frame::read(frame.kind, &octets);
        assert_eq!(read, Ok(Read::Whole(frame, octets.len())), "{name}");
        let mut out = [0; 100];
        let len = frame.write(&mut out).unwrap();
        assert_eq!(out[..len], octets, "{name}");
        for cut in 0..octets.len() {
            let part = Frame::read(frame.kind, &octets[..cut]);
            assert!(
                matches!(part, Ok(Read::Partial(need)) if need > cut),
                "{name} {cut}"
            );
        }
    }
}

/// RFC 5044 section 4.5, and its limits.
#[test]
fn largest_ulpdus() {
    let cases = [
        (536, 522, 530),
        (1448, 1430, 1442),
        (1460, 1442, 1454),
        (8948, 8870, 8942),
        (8960, 8882, 8954),
        (32741, 32478, 32734),
        (65483, 64768, 64768),
        (0, 128, 128),
        (140, 130, 134),
    ];
    for (emss, with, without) in cases {
        assert_eq!(
            (mulpdu(emss, true), mulpdu(emss, false)),
            (with, without),
            "{emss}"
        );
        // It fits, wherever the markers stand (but for the smallest).
        for position in (0..512).step_by(4).filter(|_| emss > 200) {
            let framer = Framer::new(Markers::at(position), true);
            assert!(framer.wire_len(with) <= emss, "{emss} at {position}");
        }
    }
}
