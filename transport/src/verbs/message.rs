//! What one queue pair says to the other beside the octets that it writes: a word, or how many words more it may tell. Pure.
//!
//! Over RoCE a word goes with a Write, and a number of words with a Send, as immediate data. Over iWARP both go by Sends:
//!
//! | octets | meaning |
//! |---|---|
//! | 4 | a word |
//! | 8 | 1, and for how many words that were polled there is room again; 0: a greeting |

#![forbid(unsafe_code)]

/// Octets of the longest one.
pub(super) const LONGEST: usize = 8;

const CREDITS: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Word(u32),
    Credits(u32),
}

impl Message {
    /// Its octets, and how many.
    pub(super) const fn octets(self) -> ([u8; LONGEST], u32) {
        match self {
            Self::Word(word) => (((word as u64) << 32).to_be_bytes(), 4),
            Self::Credits(n) => (((CREDITS as u64) << 32 | n as u64).to_be_bytes(), 8),
        }
    }

    /// What so many octets say, if it is anything.
    pub(super) fn of(octets: [u8; LONGEST], len: u32) -> Option<Self> {
        let [a, b, c, d, e, f, g, h] = octets;
        let first = u32::from_be_bytes([a, b, c, d]);
        match (len, first) {
            (4, word) => Some(Self::Word(word)),
            (8, CREDITS) => Some(Self::Credits(u32::from_be_bytes([e, f, g, h]))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        for message in [
            Message::Word(0),
            Message::Word(0x8000_0001),
            Message::Credits(0),
            Message::Credits(64),
        ] {
            let (octets, len) = message.octets();
            assert_eq!(Message::of(octets, len), Some(message));
        }
        for (octets, len) in [([0; 8], 8), ([0xff; 8], 8), ([0; 8], 0), ([0; 8], 5)] {
            assert_eq!(Message::of(octets, len), None);
        }
    }
}
