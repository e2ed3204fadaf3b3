//! CRC32C, as iSCSI digests have it (RFC 5044 section 4.4). The sum itself is `crc_fast`'s, which uses what the processor
//! has. This file owns the running sum.

use crc_fast::{CrcAlgorithm, Digest};

/// A sum that is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crc(u32);

impl Crc {
    /// The sum of nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(u32::MAX)
    }

    /// Goes on with these octets.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(self.0));
        digest.update(bytes);
        #[expect(clippy::cast_possible_truncation, reason = "a sum of 32 bits")]
        let sum = digest.finalize() as u32;
        self.0 = !sum;
    }

    /// The four octets of the CRC field: the least significant first.
    #[must_use]
    pub const fn field(self) -> [u8; 4] {
        (!self.0).to_le_bytes()
    }
}

impl Default for Crc {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::Crc;

    /// RFC 3720 appendix B.4.
    #[test]
    fn published_sums() {
        let up: Vec<u8> = (0..32).collect();
        let down: Vec<u8> = (0..32).rev().collect();
        let cases: [(&[u8], [u8; 4]); 5] = [
            (b"123456789", [0x83, 0x92, 0x06, 0xe3]),
            (&[0; 32], [0xaa, 0x36, 0x91, 0x8a]),
            (&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
            (&up, [0x4e, 0x79, 0xdd, 0x46]),
            (&down, [0x5c, 0xdb, 0x3f, 0x11]),
        ];
        for (bytes, field) in cases {
            for cut in 0..=bytes.len() {
                let mut crc = Crc::new();
                crc.update(&bytes[..cut]);
                crc.update(&bytes[cut..]);
                assert_eq!(crc.field(), field, "{bytes:x?} cut at {cut}");
            }
        }
    }
}
