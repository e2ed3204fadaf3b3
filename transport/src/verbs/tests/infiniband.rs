//! InfiniBand ports: which one an address is at, by made-up trees of interfaces; what the way to a peer is; and that the stand-in
//! refuses or loses what a device and a subnet would.

use crate::verbs::address::{Address, Fabric, Kind, LAST_LID, Pair};
use crate::verbs::device::{choose_port, infiniband_port};
use crate::verbs::ffi::types::{
    GID_IB, GID_ROCE_V2, Gid, GidEntry, LINK_ETHERNET, LINK_INFINIBAND, NEEDS_GRH, PortAttr,
};
use crate::verbs::infiniband::{Interface, interface, partition};
use crate::verbs::route::Here;
use crate::verbs::standin::port;
use std::fs;
use std::path::PathBuf;

/// A folder that goes with the test.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shunt-ipoib-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn put(&self, interface: &str, file: &str, text: &str) {
        let folder = self.0.join(interface);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(file), text).unwrap();
    }

    fn look(&self, name: &str) -> Option<Interface> {
        let mut octets = [0; 16];
        octets[..name.len()].copy_from_slice(name.as_bytes());
        interface(self.0.to_str().unwrap(), &octets)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const HARDWARE: &str = "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0d:5b:41\n";
const GID: [u8; 16] = [
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x02, 0xc9, 0x03, 0x00, 0x0d, 0x5b, 0x41,
];

#[test]
fn an_ipoib_interface_names_its_port_and_partition() {
    let tree = Tree::new("names");
    for (name, pkey) in [("ib0", "0xffff\n"), ("ib0.8005", "0x8005\n")] {
        tree.put(name, "type", "32\n");
        tree.put(name, "address", HARDWARE);
        tree.put(name, "pkey", pkey);
    }
    let of = |pkey| Some(Interface { gid: GID, pkey });
    assert_eq!(tree.look("ib0"), of(0xffff));
    assert_eq!(tree.look("ib0.8005"), of(0x8005));
    assert_eq!(tree.look("ib1"), None);
}

#[test]
fn what_is_no_ipoib_interface_has_no_port() {
    let tree = Tree::new("none");
    // Ethernet; a bond, which has no partition; addresses that are cut, too long or no address; a key that is none.
    let long = format!("{}:00\n", HARDWARE.trim_end());
    let cases = [
        ("eth0", "1\n", HARDWARE, Some("0xffff\n")),
        ("bond0", "32\n", HARDWARE, None),
        ("cut", "32\n", &HARDWARE[..56], Some("0xffff\n")),
        ("long", "32\n", &long, Some("0xffff\n")),
        ("odd", "32\n", "80:00:zz\n", Some("0xffff\n")),
        ("empty", "32\n", "", Some("0xffff\n")),
        ("keyless", "32\n", HARDWARE, Some("0x8000\n")),
        ("wide", "32\n", HARDWARE, Some("0x1ffff\n")),
        ("word", "32\n", HARDWARE, Some("all\n")),
    ];
    for (name, kind, address, pkey) in cases {
        tree.put(name, "type", kind);
        tree.put(name, "address", address);
        if let Some(pkey) = pkey {
            tree.put(name, "pkey", pkey);
        }
        assert_eq!(tree.look(name), None, "{name}");
    }
    // They are none for that reason alone.
    tree.put("bond0", "pkey", "0xffff\n");
    assert!(tree.look("bond0").is_some());
}

#[test]
fn a_partition_is_found_whatever_membership_the_interface_says() {
    let of = |table: &[u16], key| partition(table.iter().copied(), key);
    assert_eq!(of(&[0xffff, 0x8005], 0x8005), Some((1, 0x8005)));
    assert_eq!(of(&[0x7fff], 0xffff), Some((0, 0x7fff)));
    assert_eq!(of(&[0x0005, 0x8005, 0x8005], 0x8005), Some((1, 0x8005)));
    assert_eq!(of(&[0x8005, 0x0005], 0x0005), Some((0, 0x8005)));
    assert_eq!(of(&[0xffff, 0], 0x8005), None);
    assert_eq!(of(&[], 0xffff), None);
}

#[test]
fn the_port_is_the_one_with_the_gid() {
    let entry = |gid, gid_index, port_num, gid_type| GidEntry {
        gid: Gid(gid),
        gid_index,
        port_num,
        gid_type,
        ndev_ifindex: 0,
    };
    let mut other = GID;
    other[15] ^= 1;
    let table = [
        entry(GID, 0, 1, GID_ROCE_V2),
        entry(other, 0, 1, GID_IB),
        entry(GID, 3, 2, GID_IB),
    ];
    assert_eq!(choose_port(&table, &GID), Some((2, 3)));
    assert_eq!(choose_port(&table, &other), Some((1, 0)));
    assert_eq!(choose_port(&table[..2], &GID), None);

    let of = Interface {
        gid: GID,
        pkey: 0x8005,
    };
    let attr = PortAttr {
        lid: 0x1234,
        link_layer: LINK_INFINIBAND,
        ..PortAttr::default()
    };
    let (here, index) = infiniband_port(&attr, &of, (2, 3), Some((1, 0x0005))).unwrap();
    let fabric = Fabric {
        lid: 0x1234,
        pkey: 0x0005,
    };
    assert_eq!(here.kind, Kind::Infiniband(fabric));
    assert_eq!((here.port, here.gid_index, index), (2, 3, 1));
    assert!(here.gid == GID && !here.needs_gid);
    let wants = PortAttr {
        flags: NEEDS_GRH,
        ..attr
    };
    let (here, _) = infiniband_port(&wants, &of, (2, 3), Some((1, 0x8005))).unwrap();
    assert!(here.needs_gid);
    let ethernet = PortAttr {
        link_layer: LINK_ETHERNET,
        ..attr
    };
    let multicast = PortAttr {
        lid: LAST_LID + 1,
        ..attr
    };
    for (port, found) in [
        (&ethernet, Some((1, 0x8005))),
        (&multicast, Some((1, 0x8005))),
        (&attr, None),
    ] {
        assert!(infiniband_port(port, &of, (2, 3), found).is_none());
    }
}

fn peer(lid: u16, pkey: u16, gid: [u8; 16]) -> Pair {
    Pair {
        kind: Kind::Infiniband(Fabric { lid, pkey }),
        mtu: 5,
        qpn: 0x12_3456,
        psn: 1,
        gid,
        takes: false,
    }
}

fn here(lid: u16, pkey: u16) -> Here {
    Here {
        kind: Kind::Infiniband(Fabric { lid, pkey }),
        gid: GID,
        port: 2,
        gid_index: 3,
        needs_gid: false,
    }
}

#[test]
fn within_a_subnet_the_lid_leads_to_the_peer() {
    let mut far = GID;
    far[15] = 0x99;
    let attr = here(7, 0xffff).to(&peer(0x321, 0xffff, far)).unwrap();
    assert_eq!((attr.is_global, attr.dlid, attr.port_num), (0, 0x321, 2));
    assert_eq!((attr.sl, attr.src_path_bits), (0, 0));
    assert_eq!(attr.grh.dgid, Gid([0; 16]));
    // By the GIDs too where a port has no LID, or wants them.
    let wants = Here {
        needs_gid: true,
        ..here(7, 0xffff)
    };
    for (own, lid) in [
        (wants, 0x321),
        (here(0, 0xffff), 0x321),
        (here(7, 0xffff), 0),
    ] {
        let attr = own.to(&peer(lid, 0xffff, far)).unwrap();
        assert_eq!((attr.is_global, attr.dlid), (1, lid));
        assert_eq!((attr.grh.dgid, attr.grh.sgid_index), (Gid(far), 3));
        assert!(attr.grh.hop_limit > 1);
    }
}

#[test]
fn there_is_no_way_to_other_subnets_partitions_and_kinds() {
    let well = peer(9, 0xffff, GID);
    assert!(here(7, 0xffff).to(&well).is_ok());
    assert!(here(7, 0x7fff).to(&well).is_ok()); // (a limited member and a full one)
    let mut elsewhere = GID;
    elsewhere[7] = 1;
    let roce = Pair {
        kind: Kind::Roce,
        ..well
    };
    for (own, peer) in [
        (here(7, 0xffff), peer(9, 0xffff, elsewhere)),
        (here(7, 0xffff), peer(9, 0x8005, GID)),
        (here(7, 0x7fff), peer(9, 0x7fff, GID)), // (two limited ones)
        (here(7, 0xffff), roce),
    ] {
        assert!(own.to(&peer).is_err(), "{own:?} {peer:?}");
    }
    let own = Here {
        kind: Kind::Roce,
        ..here(7, 0xffff)
    };
    assert!(own.to(&roce).is_ok());
    assert!(own.to(&well).is_err());
}

#[test]
fn the_octets_of_a_port_are_these_and_what_none_can_have_is_refused() {
    let whole = Address::Pair(peer(0x321, 0x8005, GID));
    let octets = whole.to_bytes();
    let head = [
        1, 5, 5, 0, 0, 0x12, 0x34, 0x56, 0, 0, 0, 1, 0x03, 0x21, 0x80, 0x05,
    ];
    assert_eq!(octets[..16], head);
    assert_eq!(octets[16..], GID);
    assert_eq!(Address::from_bytes(&octets), Some(whole));
    let mut multicast = GID;
    multicast[0] = 0xff;
    let mut bare = GID;
    bare[..8].fill(0);
    let mut nobody = GID;
    nobody[8..].fill(0);
    for wrong in [
        peer(LAST_LID + 1, 0xffff, GID),
        peer(7, 0, GID),
        peer(7, 0x8000, GID),
        peer(7, 0xffff, multicast),
        peer(7, 0xffff, bare),
        peer(7, 0xffff, nobody),
    ] {
        let octets = Address::Pair(wrong).to_bytes();
        assert_eq!(Address::from_bytes(&octets), None, "{wrong:?}");
    }
    // No other kind has anything there.
    let mut roce = octets;
    roce[1] = 1;
    assert_eq!(Address::from_bytes(&roce), None);
}

#[test]
fn a_peer_is_at_the_port_that_the_kernel_knows_it_by() {
    let whole = Address::Pair(peer(7, 0xffff, GID));
    let ip = "10.0.0.2".parse().unwrap();
    let mut other = GID;
    other[15] ^= 1;
    assert!(whole.is_of(&ip, |asked| (*asked == ip).then_some(GID)));
    assert!(!whole.is_of(&ip, |_| Some(other)));
    assert!(!whole.is_of(&ip, |_| None));
}

#[test]
fn the_stand_in_takes_what_leads_to_the_peer_only() {
    let (a, b) = ((1234, 0x7f12_3456_7000), (1235, 0x5500_0000_0040));
    let (_, _, own) = port::infiniband(a.0, a.1).unwrap();
    let (kind, gid, _) = port::infiniband(b.0, b.1).unwrap();
    let own = own.unwrap();
    let Kind::Infiniband(fabric) = kind else {
        panic!("{kind:?}");
    };
    assert!(port::infiniband(b.0, b.1 + 8).is_none());
    let well = peer(fabric.lid, fabric.pkey, gid);
    assert_eq!(port::reach(Some(&own), &well), Ok(b));
    // Nothing arrives at another LID, by another partition, or by GIDs in a subnet of LIDs.
    let (_, far, _) = port::infiniband(1236, b.1).unwrap();
    let astray = peer(fabric.lid, fabric.pkey, far);
    assert_eq!(port::reach(Some(&own), &astray), Ok((0, b.1)));
    let attr = own.0.to(&well).unwrap();
    assert!(port::takes(&attr, own.1).is_ok() && port::arrives(&attr, own.1, b.0, fabric));
    assert!(own.1 != 0 && !port::arrives(&attr, 0, b.0, fabric));
    let mut global = attr;
    (global.is_global, global.grh.sgid_index) = (1, 0);
    assert!(port::takes(&global, own.1).is_ok() && !port::arrives(&global, own.1, b.0, fabric));
    // And a device does not take these.
    let wrong: [fn(&mut crate::verbs::ffi::types::AhAttr); 5] = [
        |attr| attr.port_num = 2,
        |attr| attr.dlid = 0,
        |attr| attr.dlid = LAST_LID + 1,
        |attr| attr.is_global = 2,
        |attr| (attr.is_global, attr.grh.sgid_index) = (1, 5),
    ];
    for wrong in wrong {
        let mut attr = attr;
        wrong(&mut attr);
        assert!(port::takes(&attr, own.1).is_err(), "{attr:?}");
    }
    assert!(port::takes(&attr, 3).is_err());
}
