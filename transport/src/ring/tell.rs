//! What one side tells the other with a work request: the immediate data of an RDMA Write, 32 bits. Pure.
//!
//! | bits | meaning |
//! |---|---|
//! | 31 | 0: octets were put to the incoming ring, behind those of before; 1: octets were taken from the sender's |
//! | 0 to 30 | how many |

#![forbid(unsafe_code)]

/// A word of the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tell {
    Put(u32),
    Taken(u32),
}

const TAKEN: u32 = 1 << 31;

impl Tell {
    pub(super) const fn to_word(self) -> u32 {
        match self {
            Self::Put(n) => n & !TAKEN,
            Self::Taken(n) => n | TAKEN,
        }
    }

    pub(super) const fn from_word(word: u32) -> Self {
        if word & TAKEN == 0 {
            Self::Put(word)
        } else {
            Self::Taken(word & !TAKEN)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_heard() {
        for n in [0, 1, 65_536, TAKEN - 1] {
            for tell in [Tell::Put(n), Tell::Taken(n)] {
                assert_eq!(Tell::from_word(tell.to_word()), tell);
            }
        }
    }
}
