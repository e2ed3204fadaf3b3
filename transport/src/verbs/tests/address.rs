//! Addresses in octets, and the choice of a device's entry for a local address.

use crate::verbs::address::{Address, Iwarp, Kind, LEN, Pair, gid_of};
use crate::verbs::device::{Chosen, choose};
use crate::verbs::ffi::types::{GID_ROCE_V1, GID_ROCE_V2, Gid, GidEntry};
use proptest::prelude::*;
use std::net::IpAddr;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn roce() -> Pair {
    Pair {
        kind: Kind::Roce,
        mtu: 3,
        qpn: 0x12_3456,
        psn: 0xfe_dcba,
        gid: gid_of(&ip("10.77.0.1")),
        takes: false,
    }
}

fn iwarp() -> Iwarp {
    Iwarp {
        ip: gid_of(&ip("10.77.0.1")),
        port: Some(0x1234),
        secret: 0x0102_0304_0506_0708,
    }
}

#[test]
fn the_octets_are_these() {
    let octets = [
        1, 1, 3, 0, 0, 0x12, 0x34, 0x56, 0, 0xfe, 0xdc, 0xba, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0xff, 0xff, 10, 77, 0, 1,
    ];
    let roce = Address::Pair(roce());
    assert_eq!(roce.to_bytes(), octets);
    assert_eq!(Address::from_bytes(&octets), Some(roce));
    let octets = [
        1, 4, 0, 0, 0x12, 0x34, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff,
        0xff, 10, 77, 0, 1,
    ];
    let iwarp = Address::Iwarp(iwarp());
    assert_eq!(iwarp.to_bytes(), octets);
    assert_eq!(Address::from_bytes(&octets), Some(iwarp));
}

#[test]
fn what_no_queue_pair_can_have_is_no_address() {
    let wrong: [fn(&mut Pair); 7] = [
        |a| a.qpn = 1,
        |a| a.qpn = 1 << 24,
        |a| a.psn = 1 << 24,
        |a| a.mtu = 0,
        |a| a.mtu = 6,
        |a| a.gid = gid_of(&ip("224.0.0.1")),
        |a| a.gid = [0; 16],
    ];
    for wrong in wrong {
        let mut address = roce();
        wrong(&mut address);
        assert_eq!(
            Address::from_bytes(&Address::Pair(address).to_bytes()),
            None,
            "{address:?}"
        );
    }
    // The version, the kind, and what is not used.
    for at in [0, 1, 3, 12, 13, 14, 15] {
        let mut octets = Address::Pair(roce()).to_bytes();
        octets[at] ^= 0x40;
        assert_eq!(Address::from_bytes(&octets), None, "octet {at}");
    }
    let wrong: [fn(&mut Iwarp); 4] = [
        |a| a.port = None, // (who does not listen has no secret)
        |a| a.ip = [0; 16],
        |a| a.ip = gid_of(&ip("255.255.255.255")),
        |a| a.ip = gid_of(&ip("ff02::1")),
    ];
    for wrong in wrong {
        let mut end = iwarp();
        wrong(&mut end);
        let octets = Address::Iwarp(end).to_bytes();
        assert_eq!(Address::from_bytes(&octets), None, "{end:?}");
    }
    for at in [0, 1, 2, 3, 6, 7] {
        let mut octets = Address::Iwarp(iwarp()).to_bytes();
        octets[at] ^= 0x40;
        assert_eq!(Address::from_bytes(&octets), None, "octet {at}");
    }
}

proptest! {
    #[test]
    fn whatever_is_taken_says_the_same_again(octets in prop::array::uniform32(any::<u8>()), head in any::<bool>()) {
        let mut octets: [u8; LEN] = octets;
        if head {
            // Most would not get past these.
            let possible = Address::Pair(roce()).to_bytes();
            octets[..5].copy_from_slice(&possible[..5]);
            octets[8] = 0;
            octets[12..16].fill(0);
        }
        if let Some(address) = Address::from_bytes(&octets) {
            prop_assert_eq!(address.to_bytes(), octets);
        }
    }
}

#[test]
fn a_peer_is_found_at_its_own_address_only() {
    for own in [Address::Pair(roce()), Address::Iwarp(iwarp())] {
        assert!(own.is_of(&ip("10.77.0.1"), |_| None));
        assert!(own.is_of(&ip("::ffff:10.77.0.1"), |_| None));
        assert!(!own.is_of(&ip("10.77.0.2"), |_| None));
    }
    let v6 = Address::Pair(Pair {
        gid: gid_of(&ip("fd00::2")),
        ..roce()
    });
    assert!(v6.is_of(&ip("fd00::2"), |_| None));
    assert!(!v6.is_of(&ip("fd00::3"), |_| None));
}

#[test]
fn the_entry_for_a_local_address_is_of_the_newer_version() {
    let entry = |gid: &str, gid_index, port_num, gid_type| GidEntry {
        gid: Gid(gid_of(&ip(gid))),
        gid_index,
        port_num,
        gid_type,
        ndev_ifindex: 2,
    };
    let table = [
        entry("fe80::1", 0, 1, GID_ROCE_V1),
        entry("fe80::1", 1, 1, GID_ROCE_V2),
        entry("10.77.0.1", 2, 2, GID_ROCE_V1),
        entry("10.77.0.1", 3, 2, GID_ROCE_V2),
        entry("10.77.0.3", 4, 1, GID_ROCE_V1),
        entry("10.77.0.4", 300, 1, GID_ROCE_V2),
        entry("10.77.0.5", 5, 1, 0),
    ];
    let chosen = |at: &str| choose(&table, &gid_of(&ip(at)));
    let is = |port, index, kind| Some(Chosen { port, index, kind });
    assert_eq!(chosen("10.77.0.1"), is(2, 3, Kind::Roce));
    assert_eq!(chosen("fe80::1"), is(1, 1, Kind::Roce));
    assert_eq!(chosen("10.77.0.3"), is(1, 4, Kind::RoceV1));
    for none in ["10.77.0.2", "10.77.0.4", "10.77.0.5"] {
        assert_eq!(chosen(none), None, "{none}");
    }
}
