//! A payload whose bytes tell their place in the stream. Called by the programs that verify what they receive.
//!
//! Filling and checking must cost less than carrying, or they would be what is measured: so the stream repeats a noise
//! that was made before, of a length that is prime. Bytes that were lost, doubled or moved by a message, a page, a slot
//! or a whole ring no longer fit, since none of these is a multiple of the noise's length.

/// Prime, next below 64 KiB: small enough to stay in the cache beside the buffers.
const PERIOD: usize = 65_521;

/// The noise, repeated far enough that any stretch of `longest` bytes lies in one piece.
pub(super) struct Pattern(Vec<u8>);

impl Pattern {
    pub(super) fn new(longest: usize) -> Self {
        let noise = std::iter::successors(Some(0x9e37_79b9_7f4a_7c15_u64), |&state| {
            let state = state ^ (state << 13);
            let state = state ^ (state >> 7);
            Some(state ^ (state << 17))
        });
        let once: Vec<u8> = noise
            .map(|state| (state >> 32) as u8)
            .take(PERIOD)
            .collect();
        Self(
            once.iter()
                .copied()
                .cycle()
                .take(PERIOD + longest)
                .collect(),
        )
    }

    /// What belongs at `place`.
    pub(super) fn at(&self, place: u64, length: usize) -> &[u8] {
        let start = (place % PERIOD as u64) as usize;
        &self.0[start..start + length]
    }

    /// The place of the first wrong byte in `bytes`, which start at `place`.
    pub(super) fn check(&self, bytes: &[u8], place: u64) -> Result<(), Wrong> {
        let right = self.at(place, bytes.len());
        if bytes == right {
            return Ok(());
        }
        let first = bytes
            .iter()
            .zip(right)
            .take_while(|(got, right)| got == right);
        Err(Wrong(place + first.count() as u64))
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong(u64);

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "byte {} of the stream is wrong", self.0)
    }
}

impl std::error::Error for Wrong {}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: u64 = 123_456_789;

    #[test]
    fn what_was_sent_is_right() {
        let pattern = Pattern::new(70_000);
        let mut stream = pattern.at(PLACE, 1000).to_vec();
        stream.extend(pattern.at(PLACE + 1000, 70_000));
        assert_eq!(pattern.check(&stream[..70_000], PLACE), Ok(()));
    }

    #[test]
    fn lost_doubled_and_swapped_bytes_are_found() {
        let pattern = Pattern::new(70_000);
        let mut bytes = pattern.at(0, 70_000).to_vec();
        for lost in [1, 64, 1024, 4096, 8192, 65_536] {
            assert!(pattern.check(&bytes[lost..], 0).is_err());
        }
        assert_ne!(bytes[4096], bytes[4099]);
        bytes.swap(4096, 4099);
        assert_eq!(pattern.check(&bytes, 0), Err(Wrong(4096)));
    }
}
