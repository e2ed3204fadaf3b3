//! What the bytes are.

use super::super::message::{Kind, LONG, Lifetime, Malformed, Message, PmTime};
use super::{at, request, vector};
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const HANDLE: u64 = 0x1122_3344_5566_7788;

#[test]
fn every_vector_is_made_and_read() {
    let request = request(HANDLE);
    let mapped = |kind| Message {
        service: at("192.0.2.2:40080"),
        ..request.with(kind)
    };
    let deny = Message {
        service: at("192.0.2.2:0"),
        ..request.with(Kind::Deny)
    };
    for (name, message) in [
        ("pm_req", request),
        ("pm_accept", mapped(Kind::Accept(PmTime(4)))),
        ("pm_ack", mapped(Kind::Ack)),
        ("pm_deny", deny),
    ] {
        assert_eq!(message.encode().as_ref(), vector(name), "{name}");
        assert_eq!(Message::decode(&vector(name)), Ok(message), "{name}");
    }
}

#[test]
fn times_are_quarters_then_seconds() {
    for (byte, meaning) in [
        (0, Lifetime::Once),
        (1, Lifetime::For(Duration::from_millis(250))),
        (4, Lifetime::For(Duration::from_secs(1))),
        (127, Lifetime::For(Duration::from_millis(31_750))),
        (128, Lifetime::For(Duration::from_secs(128))),
        (254, Lifetime::For(Duration::from_secs(254))),
        (255, Lifetime::Forever),
    ] {
        assert_eq!(PmTime(byte).lifetime(), meaning);
    }
    for (ms, byte) in [
        (0, 0),
        (249, 0),
        (250, 1),
        (60_000, 127),
        (200_500, 200),
        (1_000_000, 254),
    ] {
        assert_eq!(
            PmTime::at_most(Duration::from_millis(ms)),
            PmTime(byte),
            "{ms}"
        );
    }
}

#[test]
fn each_fault_is_named() {
    let changed = |name: &str, changes: &[(usize, u8)]| {
        let mut bytes = vector(name);
        changes.iter().for_each(|&(at, value)| bytes[at] = value);
        Message::decode(&bytes).err()
    };
    for first in [0x44, 0x84, 0xc4] {
        assert_eq!(changed("pm_req", &[(0, first)]), Some(Malformed::Version));
    }
    for first in [0x00, 0x05, 0x07, 0x0f] {
        assert_eq!(changed("pm_req", &[(0, first)]), Some(Malformed::IpVersion));
    }
    assert_eq!(changed("pm_req", &[(5, 0)]), Some(Malformed::Port));
    assert_eq!(changed("pm_req", &[(6, 0), (7, 0)]), Some(Malformed::Port));
    assert_eq!(changed("pm_deny", &[(6, 0), (7, 0)]), Some(Malformed::Port));
    for address in [16, 32] {
        for (from, what) in [(0, 0u8), (224, 0), (255, 255)] {
            let changes: Vec<_> = (0..4)
                .map(|i| (address + i, if i == 0 { from } else { what }))
                .collect();
            assert_eq!(
                changed("pm_accept", &changes),
                Some(Malformed::Address),
                "{from}"
            );
        }
    }
    let good = vector("pm_req");
    for len in (0..48).chain(49..64) {
        let mut bytes = good.clone();
        bytes.resize(len, 0);
        assert_eq!(Message::decode(&bytes), Err(Malformed::Length), "{len}");
    }
    // Not looked at: reserved bytes, PmTime of others, what is behind an IPv4 address.
    assert_eq!(
        changed("pm_req", &[(1, 9), (2, 9), (3, 9), (20, 9), (47, 9)]),
        None
    );
}

#[test]
fn long_requests_tell_where_the_client_will_come_from() {
    let mapped = Some(at("192.0.2.1:50001"));
    let long = Message {
        mapped,
        ..request(HANDLE)
    };
    let bytes = long.encode();
    assert_eq!(bytes.as_ref().len(), LONG);
    assert_eq!(
        (&bytes.as_ref()[2..4], &bytes.as_ref()[48..52]),
        (&[0xc3, 0x51][..], &[192, 0, 2, 1][..])
    );
    assert_eq!(Message::decode(bytes.as_ref()), Ok(long));
    let mut bytes = bytes.as_ref().to_vec();
    bytes[0] = 0x14;
    assert_eq!(
        Message::decode(&bytes),
        Err(Malformed::Length),
        "only requests"
    );
    (bytes[0], bytes[2], bytes[3]) = (0x04, 0, 0);
    assert_eq!(Message::decode(&bytes), Err(Malformed::Port));
    bytes[3] = 1;
    bytes[48..].fill(0);
    assert_eq!(Message::decode(&bytes), Err(Malformed::Address));
}

fn host(v4: bool, bits: u128) -> IpAddr {
    // (unicast: the first byte is neither 0 nor that of groups)
    let [first, rest @ ..] = bits.to_be_bytes();
    let first = first % 200 + 1;
    if v4 {
        IpAddr::from([first, rest[0], rest[1], rest[2]])
    } else {
        let mut all = bits.to_be_bytes();
        all[0] = first;
        IpAddr::from(all)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn what_is_sent_is_what_is_read(
        v4 in any::<bool>(), hosts in any::<[u128; 3]>(), ports in [1..=u16::MAX, 1..=u16::MAX, 1..=u16::MAX],
        handle in any::<u64>(), kind in 0..4u8, time in any::<u8>(), long in any::<bool>(),
    ) {
        let end = |i: usize| SocketAddr::new(host(v4, hosts[i]), ports[i]);
        let kinds = [Kind::Request, Kind::Accept(PmTime(time)), Kind::Ack, Kind::Deny];
        let message = Message {
            kind: kinds[usize::from(kind)],
            client: end(0),
            service: end(1),
            handle,
            mapped: (long && kind == 0).then(|| end(2)),
        };
        let encoded = message.encode();
        let bytes = encoded.as_ref();
        prop_assert_eq!(Message::decode(bytes), Ok(message));
        // By offsets.
        let number = |at: usize, len: usize| bytes[at..at + len].iter().fold(0u64, |n, &b| n << 8 | u64::from(b));
        prop_assert_eq!((bytes[0] >> 6, bytes[0] >> 4 & 3, bytes[0] & 15), (0, kind, if v4 { 4 } else { 6 }));
        prop_assert_eq!(bytes[1], if kind == 1 { time } else { 0 });
        prop_assert_eq!((number(4, 2), number(6, 2)), (ports[1].into(), ports[0].into()));
        prop_assert_eq!(number(8, 8), handle);
        for (at, i) in [(16, 0), (32, 1)] {
            match end(i).ip() {
                IpAddr::V4(ip) => {
                    prop_assert_eq!(&bytes[at..at + 4], ip.octets());
                    prop_assert_eq!(&bytes[at + 4..at + 16], [0; 12]);
                }
                IpAddr::V6(ip) => prop_assert_eq!(&bytes[at..at + 16], ip.octets()),
            }
        }
    }

    #[test]
    fn no_bytes_do_harm(mut bytes in proptest::collection::vec(any::<u8>(), 0..70), fit in 0..3u8) {
        match fit {
            0 => {}
            1 => bytes.resize(48, 7),
            _ => bytes.resize(64, 7),
        }
        if fit > 0 {
            bytes[0] &= 0x37;
        }
        if let Ok(message) = Message::decode(&bytes) {
            prop_assert_eq!(Message::decode(message.encode().as_ref()), Ok(message));
        }
    }
}
