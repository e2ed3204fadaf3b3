//! Addresses of adapters from a peer: none, or one that reads the same once it is written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transport::verbs::Address;

fuzz_target!(|octets: [u8; 32]| {
    if let Some(address) = Address::from_bytes(&octets) {
        assert_eq!(address.to_bytes(), octets);
        if let Address::Pair(pair) = address {
            assert!((2..1 << 24).contains(&pair.qpn) && pair.psn < 1 << 24);
        }
    }
});
