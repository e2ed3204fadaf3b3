//! The messages of SDP: bytes that others made, a way to make and read them that knows nothing of the codec, each
//! rule broken, random bytes; and the rules that count, walked at random.

mod bytes;
mod rules;
mod violations;

use super::header::{Header, Seq};
use super::received::Sizes;

/// Sizes under which every message of the tests fits.
pub(super) const SIZES: Sizes = Sizes {
    own: 1 << 20,
    peer: 4096,
};

pub(super) fn header(bufs: u16, number: u32, acknowledged: u32) -> Header {
    Header {
        bufs,
        number: Seq(number),
        acknowledged: Seq(acknowledged),
        urgent_pending: false,
    }
}

/// A message made field by field: the Len is right.
pub(super) fn made(mid: u8, flags: u8, [bufs, number, ack]: [u32; 3], behind: &[&[u8]]) -> Vec<u8> {
    let mut out = vec![mid, flags, (bufs >> 8) as u8, bufs as u8];
    let len: usize = 16 + behind.iter().map(|b| b.len()).sum::<usize>();
    for n in [len as u32, number, ack] {
        for shift in [24, 16, 8, 0] {
            out.push((n >> shift) as u8);
        }
    }
    behind.iter().for_each(|b| out.extend_from_slice(b));
    out
}

/// The number that lies in these bytes of a message.
pub(super) fn field(bytes: &[u8], at: usize, len: usize) -> u64 {
    let mut n = 0;
    for i in 0..len {
        n = n * 256 + u64::from(bytes[at + i]);
    }
    n
}

/// The bytes of the vectors, by name.
pub(super) fn vector(name: &str) -> Vec<u8> {
    let file = include_str!("../../../tests/vectors/sdp.txt");
    let mut lines = file.lines().filter_map(|l| l.split_once(' '));
    let (_, hex) = lines.find(|(n, _)| *n == name).unwrap();
    let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|p| digit(p[0]) * 16 + digit(p[1])).collect()
}
