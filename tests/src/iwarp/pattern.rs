//! Octets that depend on the run, on what they are for, and on their place. `tests/rdma/siw_peer.c` has the same.

/// What memory holds that nothing has been written to.
pub const UNTOUCHED: u8 = 0xee;

/// The first `len` octets of what `tag` names.
///
/// # Panics
/// If they are too many for a `u32`.
#[must_use]
pub fn octets(seed: u32, tag: u32, len: usize) -> Vec<u8> {
    let sum = seed.wrapping_add(tag.wrapping_mul(0x0100_0193));
    let octet = |place: u32| {
        sum.wrapping_add(place)
            .wrapping_mul(0x9e37_79b1)
            .to_be_bytes()[0]
    };
    (0..u32::try_from(len).unwrap()).map(octet).collect()
}

/// Checks that `bytes` are `expected`, and says where they are not.
///
/// # Panics
/// If they are not.
pub fn check(what: &str, bytes: &[u8], expected: &[u8]) {
    assert_eq!(bytes.len(), expected.len(), "{what}: octets");
    if bytes == expected {
        return;
    }
    let pairs = bytes.iter().zip(expected);
    let wrong = pairs.filter(|(is, ought)| is != ought).count();
    let first = bytes
        .iter()
        .zip(expected)
        .position(|(is, ought)| is != ought);
    panic!("{what}: {wrong} wrong octets, the first at {first:?}");
}
