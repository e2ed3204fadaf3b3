//! A payload whose bytes tell their place in the stream. Called by `prog::stream` when it is asked to verify.

/// Fills `bytes` with what belongs at `at`.
pub(super) fn fill(bytes: &mut [u8], at: u64) {
    for (byte, place) in bytes.iter_mut().zip(at..) {
        *byte = byte_at(place);
    }
}

/// The place of the first wrong byte in `bytes`, which start at `at`.
pub(super) fn first_wrong(bytes: &[u8], at: u64) -> Option<u64> {
    bytes
        .iter()
        .zip(at..)
        .find_map(|(byte, place)| (*byte != byte_at(place)).then_some(place))
}

/// Changes with every byte, and differs between blocks, pages and rings' laps.
fn byte_at(place: u64) -> u8 {
    (place ^ (place >> 8) ^ (place >> 16).wrapping_mul(0x9d) ^ (place >> 24).wrapping_mul(0x4b))
        as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_filled_is_right() {
        let mut bytes = vec![0; 70_000];
        fill(&mut bytes, 123_456_789);
        assert_eq!(first_wrong(&bytes, 123_456_789), None);
    }

    #[test]
    fn lost_doubled_and_swapped_bytes_are_found() {
        let mut bytes = vec![0; 70_000];
        fill(&mut bytes, 0);
        assert_eq!(first_wrong(&bytes[1..], 0), Some(0));
        assert!(first_wrong(&bytes[65_536..], 0).is_some());
        bytes.swap(4096, 4097);
        assert_eq!(first_wrong(&bytes, 0), Some(4096));
    }
}
