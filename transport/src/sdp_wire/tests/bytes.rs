//! What the bytes are: both ways, against bytes that others made and against a reader that is a list of offsets.

use super::super::hello::{self, Hello, HelloAck, Side};
use super::super::hello_ib;
use super::super::message::{Advert, Half, Message};
use super::super::mid::Mid;
use super::super::mode::Mode;
use super::super::received::Received;
use super::{SIZES, field, header, vector};
use crate::sdp_wire::header::Header;
use proptest::prelude::*;
use std::net::IpAddr;

/// The bytes of a whole message.
fn whole(header: &Header, message: &Message<'_>) -> Vec<u8> {
    let mut out = message.head(header).unwrap().as_ref().to_vec();
    out.extend_from_slice(message.payload());
    out
}

const ADVERT: Advert = Advert {
    len: 65536,
    stag: 0x0a01,
    address: 0x7f00_0000_1000,
};

#[test]
fn every_vector_is_made_and_read() {
    let second = Advert {
        stag: 0x0b02,
        address: 0x7f00_0000_2000,
        ..ADVERT
    };
    let data = |payload, urgent| Message::Data { payload, urgent };
    let mut oob = header(8, 4, 5);
    oob.urgent_pending = true;
    let change = |half, mode| Message::ModeChange { half, mode };
    let table: &[(&str, Header, Message<'_>)] = &[
        ("sdp_data_empty_credit", header(8, 3, 5), data(b"", false)),
        ("sdp_data_oob", oob, data(b"abc!", true)),
        ("sdp_data_in_fpdu", header(64, 0, 0), data(b"hello", false)),
        (
            "sdp_srcavail",
            header(8, 5, 5),
            Message::SrcAvail {
                advert: ADVERT,
                payload: b"AAAA",
            },
        ),
        (
            "sdp_sinkavail",
            header(8, 6, 5),
            Message::SinkAvail {
                advert: second,
                non_discards: 2,
                payload: b"",
            },
        ),
        (
            "sdp_rdmawrcompl",
            header(8, 7, 6),
            Message::RdmaWrCompl {
                len: 65536,
                pipelined: false,
            },
        ),
        (
            "sdp_rdmardcompl",
            header(8, 8, 6),
            Message::RdmaRdCompl {
                len: 65532,
                pipelined: false,
            },
        ),
        (
            "sdp_rdmardcompl_in_fpdu",
            header(60, 7, 9),
            Message::RdmaRdCompl {
                len: 4096,
                pipelined: true,
            },
        ),
        (
            "sdp_modechange_pipe",
            header(8, 9, 6),
            change(Half::Receive, Mode::Pipelined),
        ),
        (
            "sdp_modechange_comb_s1",
            header(8, 10, 6),
            change(Half::Send, Mode::Combined),
        ),
        ("sdp_sendsm", header(8, 11, 7), Message::SendSm),
        (
            "sdp_chrcvbuf",
            header(8, 12, 7),
            Message::ChRcvBuf { size: 65536 },
        ),
        (
            "sdp_suspcomm",
            header(8, 13, 7),
            Message::SuspComm { port: 9000 },
        ),
    ];
    for (name, header, message) in table {
        let bytes = vector(name);
        assert_eq!(whole(header, message), bytes, "{name}");
        let read = Received::new(&bytes).check(&SIZES);
        assert_eq!(read, Ok((*header, *message)), "{name}");
    }
}

fn side() -> Side {
    Side {
        minor: 1,
        flow: 0,
        bufs: 8,
        max_adverts: 8,
        receive_size: 8192,
        ord: 4,
        ird: 4,
    }
}

#[test]
fn hello_is_as_the_vectors() {
    let hello = Hello {
        side: side(),
        wanted_size: 8192,
    };
    assert_eq!(hello.encode().to_vec(), vector("sdp_hello_iwarp"));
    assert_eq!(Hello::decode(&vector("sdp_hello_iwarp")), Ok(hello));
    let ack = HelloAck { side: side() };
    assert_eq!(ack.encode().to_vec(), vector("sdp_helloack_iwarp"));
    assert_eq!(HelloAck::decode(&vector("sdp_helloack_iwarp")), Ok(ack));
    let ib = hello_ib::Hello {
        version: (2, 2),
        bufs: 64,
        max_adverts: 1,
        wanted_size: 32768,
        receive_size: 32768,
        port: 8080,
        source: "192.0.2.1".parse().unwrap(),
        destination: "192.0.2.2".parse().unwrap(),
    };
    assert_eq!(ib.encode().to_vec(), vector("sdp_hello_ib"));
    assert_eq!(hello_ib::Hello::decode(&vector("sdp_hello_ib")), Ok(ib));
}

#[test]
fn reserved_bits_are_not_looked_at() {
    let mut bytes = vector("sdp_data_empty_credit");
    bytes[1] = 0b1111_1100;
    assert!(Received::new(&bytes).check(&SIZES).is_ok());
    let mut bytes = vector("sdp_modechange_pipe");
    bytes[16] |= 0x0f;
    bytes[17..].fill(0xff);
    assert_eq!(
        Received::new(&bytes).check(&SIZES).unwrap().1,
        Message::ModeChange {
            half: Half::Receive,
            mode: Mode::Pipelined
        }
    );
    let mut bytes = vector("sdp_hello_iwarp");
    (bytes[1], bytes[17]) = (0xf8, 0xff);
    bytes[12..16].fill(7);
    assert!(Hello::decode(&bytes).is_ok(), "flags, reserved, MSeqAck");
}

#[test]
fn events_are_solicited_as_the_draft_says() {
    let data = |urgent| Message::Data {
        payload: b"x",
        urgent,
    };
    assert!(data(true).is_solicited(false) && data(false).is_solicited(true));
    assert!(!data(false).is_solicited(false));
    for message in [
        Message::SendSm,
        Message::AbortConn,
        Message::SuspComm { port: 1 },
        Message::SinkCancelAck,
    ] {
        assert!(message.is_solicited(false), "{message:?}");
    }
    let srcavail = Message::SrcAvail {
        advert: ADVERT,
        payload: b"",
    };
    for message in [Message::DisConn, srcavail, Message::ChRcvBuf { size: 37 }] {
        assert!(!message.is_solicited(true), "{message:?}");
    }
}

/// Any message with fields that are allowed, over some payload.
fn message(
    kind: usize,
    [a, b, c]: [u32; 3],
    address: u64,
    flag: bool,
    payload: &[u8],
) -> Message<'_> {
    let len = (a % (1 << 31))
        .max(SIZES.peer + 1)
        .max(payload.len() as u32);
    let advert = Advert {
        len,
        stag: b,
        address,
    };
    let size = 37 + a % ((1 << 31) - 37);
    let urgent = flag && !payload.is_empty();
    let half = if flag { Half::Send } else { Half::Receive };
    match kind {
        0 => Message::SrcAvail { advert, payload },
        1 => Message::SinkAvail {
            advert,
            non_discards: c,
            payload,
        },
        2 => Message::RdmaWrCompl {
            len: a,
            pipelined: flag,
        },
        3 => Message::RdmaRdCompl {
            len: a,
            pipelined: flag,
        },
        4 => Message::SendSm,
        5 => Message::SrcAvailCancel,
        6 => Message::SinkAvailCancel,
        7 => Message::SinkCancelAck,
        8 => Message::ModeChange {
            half,
            mode: [Mode::Buffered, Mode::Combined, Mode::Pipelined][b as usize % 3],
        },
        9 => Message::ChRcvBuf { size },
        10 => Message::ChRcvBufAck { size },
        11 => Message::SuspComm {
            port: (a % 65535 + 1) as u16,
        },
        12 => Message::SuspCommAck,
        13 => Message::DisConn,
        14 => Message::AbortConn,
        15 => Message::Taken { bytes: address },
        16 => Message::Released,
        17 => Message::Starved,
        18 => Message::Cleared,
        19 => Message::Recall { bytes: a },
        _ => Message::Data { payload, urgent },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn what_is_sent_is_what_is_read(
        kind in 0..21usize, words in any::<[u32; 3]>(), address in any::<u64>(), flag in any::<bool>(),
        payload in proptest::collection::vec(any::<u8>(), 0..80), head in any::<(u16, u32, u32, bool)>(),
    ) {
        let message = message(kind, words, address, flag, &payload);
        let header = Header { urgent_pending: head.3, ..header(head.0, head.1, head.2) };
        let bytes = whole(&header, &message);
        prop_assert_eq!(Received::new(&bytes).check(&SIZES), Ok((header, message)));
        // What the layouts say, by offsets.
        prop_assert_eq!(u64::from(message.mid() as u8), field(&bytes, 0, 1));
        prop_assert_eq!(u64::from(header.urgent_pending), field(&bytes, 1, 1) >> 1 & 1);
        prop_assert_eq!(u64::from(head.0), field(&bytes, 2, 2));
        prop_assert_eq!(bytes.len() as u64, field(&bytes, 4, 4));
        prop_assert_eq!((u64::from(head.1), u64::from(head.2)), (field(&bytes, 8, 4), field(&bytes, 12, 4)));
        let pres = field(&bytes, 1, 1) & 1 != 0;
        let pipe = field(&bytes, 1, 1) & 4 != 0;
        prop_assert_eq!(field(&bytes, 1, 1) >> 3, 0);
        let behind = |extended: usize| &bytes[16 + extended..];
        match message {
            Message::Data { payload, urgent } => {
                prop_assert_eq!((behind(0), pres), (payload, urgent));
            }
            Message::SrcAvail { advert, payload } => {
                let read = (field(&bytes, 16, 4), field(&bytes, 20, 4), field(&bytes, 24, 8));
                prop_assert_eq!(read, (advert.len.into(), advert.stag.into(), advert.address));
                prop_assert_eq!(behind(16), payload);
            }
            Message::SinkAvail { advert, non_discards, payload } => {
                let read = (field(&bytes, 16, 4), field(&bytes, 20, 4), field(&bytes, 24, 8));
                prop_assert_eq!(read, (advert.len.into(), advert.stag.into(), advert.address));
                prop_assert_eq!(field(&bytes, 32, 4), u64::from(non_discards));
                prop_assert_eq!(behind(20), payload);
            }
            Message::RdmaWrCompl { len, pipelined } | Message::RdmaRdCompl { len, pipelined } => {
                prop_assert_eq!((field(&bytes, 16, 4), pipe), (len.into(), pipelined));
            }
            Message::ModeChange { half, mode } => {
                let expected = u64::from(half == Half::Send) << 3 | mode as u64;
                prop_assert_eq!(field(&bytes, 16, 4), expected << 28);
            }
            Message::ChRcvBuf { size } | Message::ChRcvBufAck { size } => {
                prop_assert_eq!(field(&bytes, 16, 4), u64::from(size));
            }
            Message::SuspComm { port } => {
                prop_assert_eq!((field(&bytes, 16, 6), field(&bytes, 22, 2)), (1, port.into()));
            }
            Message::Taken { bytes: taken } => {
                prop_assert_eq!((field(&bytes, 16, 8), bytes.len()), (taken, 24));
            }
            Message::Recall { bytes: read } => {
                prop_assert_eq!((field(&bytes, 16, 4), bytes.len()), (read.into(), 20));
            }
            _ => prop_assert_eq!(bytes.len(), 16),
        }
        let is_urgent = matches!(message, Message::Data { urgent: true, .. });
        prop_assert_eq!(pres, is_urgent);
        prop_assert!(!pipe || matches!(message.mid(), Mid::RdmaWrCompl | Mid::RdmaRdCompl));
    }

    #[test]
    fn hello_comes_back(
        bufs in 3..=u16::MAX, most in 1..=u16::MAX, size in 37..=1u32 << 31, wanted in 0..=1u32 << 31,
        ord in 1..=u16::MAX, ird in 1..=u16::MAX, minor in 0..16u8, port in any::<u16>(),
        v6 in any::<[[u8; 16]; 2]>(), v4 in any::<[[u8; 4]; 2]>(), is_v4 in any::<bool>(), major in 1..3u8,
        flow in any::<u8>(),
    ) {
        let side = Side { minor, flow, bufs, max_adverts: most, receive_size: size, ord, ird };
        let hello = Hello { side, wanted_size: wanted };
        let bytes = hello.encode();
        prop_assert_eq!(Hello::decode(&bytes), Ok(hello));
        prop_assert_eq!((bytes.len(), field(&bytes, 4, 4)), (hello::HELLO, 32));
        prop_assert_eq!((field(&bytes, 18, 2), field(&bytes, 20, 4)), (most.into(), wanted.into()));
        prop_assert_eq!(field(&bytes, 17, 1), flow.into());
        prop_assert_eq!((field(&bytes, 24, 4), field(&bytes, 28, 2)), (size.into(), ord.into()));
        let ack = HelloAck { side };
        let bytes = ack.encode();
        prop_assert_eq!(HelloAck::decode(&bytes), Ok(ack));
        prop_assert_eq!((field(&bytes, 20, 4), field(&bytes, 26, 2)), (size.into(), ird.into()));
        let [source, destination]: [IpAddr; 2] = if is_v4 { v4.map(IpAddr::from) } else { v6.map(IpAddr::from) };
        let max_adverts = (most as u8).max(1);
        let ib = hello_ib::Hello {
            version: (major, minor), bufs, max_adverts, wanted_size: wanted, receive_size: size, port,
            source, destination,
        };
        let bytes = ib.encode();
        prop_assert_eq!(hello_ib::Hello::decode(&bytes), Ok(ib));
        prop_assert_eq!((bytes.len(), field(&bytes, 28, 2)), (92, port.into()));
        let ack = hello_ib::HelloAck { version: (major, minor), bufs, max_adverts, receive_size: size };
        let bytes = ack.encode();
        prop_assert_eq!(hello_ib::HelloAck::decode(&bytes), Ok(ack));
        prop_assert_eq!((bytes.len(), field(&bytes, 19, 1)), (196, max_adverts.into()));
    }

    /// Random bytes, and bytes that are nearly right; what is taken for a message is that message.
    #[test]
    fn no_bytes_do_harm(mut bytes in proptest::collection::vec(any::<u8>(), 0..64), mid in any::<u8>(), fit in any::<bool>()) {
        if fit && bytes.len() >= 16 {
            let len = bytes.len() as u8;
            bytes[0] = if mid < 0x20 { 0x40 + mid % 11 } else if mid < 0x80 { mid % 0x10 } else { 0xfd + mid % 3 };
            bytes[4..8].copy_from_slice(&[0, 0, 0, len]);
        }
        if let Ok((header, message)) = Received::new(&bytes).check(&SIZES) {
            let again = whole(&header, &message);
            prop_assert_eq!(Received::new(&again).check(&SIZES), Ok((header, message)));
        }
        let _ = (Hello::decode(&bytes), HelloAck::decode(&bytes));
        let _ = (hello_ib::Hello::decode(&bytes), hello_ib::HelloAck::decode(&bytes));
    }
}
