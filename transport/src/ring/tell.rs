//! What one side tells the other with a work request: the immediate data of an RDMA Write, 32 bits. Pure.
//!
//! | bits 31, 30 | the others |
//! |---|---|
//! | 0 0 | so many octets were put to the incoming ring, behind those of before |
//! | 1 0 | so many octets were taken from the sender's; where it sends into slots, so many of these (credits) |
//! | 0 1 | of a buffer that the receiver of this lends (`lending`): what its sender does with it ([`Said`]) |
//! | 1 1 | of a buffer that the sender of this lends: up to where it may be read now |
//!
//! A buffer that is lent: bits 29 to 24 its number, 23 and 22 what is said, 21 to 0 bytes from its beginning.

#![forbid(unsafe_code)]

/// A word of the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tell {
    Put(u32),
    Taken(u32),
    Borrower(Loan),
    Lender(Loan),
}

/// What a borrower says of what is lent to it: each with the bytes that it has read so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Nothing more is read until it is asked for.
    Idles,
    /// It asks for more.
    Wants,
    /// It will not ask: the rest is to come otherwise.
    Declines,
}

/// Of a buffer that is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loan {
    pub(super) number: u32,
    pub(super) said: Said,
    pub(super) bytes: u32,
}

/// Bytes of the longest buffer that can be lent, and numbers that they have: 1 and up to this.
pub(super) const MOST: u32 = (1 << 22) - 1;
const NUMBERS: u32 = 63;

const KIND: u32 = 0b11 << 30;
const TAKEN: u32 = 0b10 << 30;
const BORROWER: u32 = 0b01 << 30;

/// The number of the next buffer.
pub(super) const fn next(number: u32) -> u32 {
    number % NUMBERS + 1
}

/// And of the one before.
pub(super) const fn before(number: u32) -> u32 {
    (number + NUMBERS - 2) % NUMBERS + 1
}

impl Loan {
    const fn bits(self) -> u32 {
        let said = match self.said {
            Said::Idles => 0,
            Said::Wants => 1,
            Said::Declines => 2,
        };
        (self.number & NUMBERS) << 24 | said << 22 | self.bytes & MOST
    }

    const fn from_bits(word: u32) -> Self {
        Self {
            number: word >> 24 & NUMBERS,
            said: match word >> 22 & 3 {
                0 => Said::Idles,
                1 => Said::Wants,
                _ => Said::Declines,
            },
            bytes: word & MOST,
        }
    }
}

impl Tell {
    pub(super) const fn to_word(self) -> u32 {
        match self {
            Self::Put(n) => n & !KIND,
            Self::Taken(n) => n & !KIND | TAKEN,
            Self::Borrower(loan) => loan.bits() | BORROWER,
            Self::Lender(loan) => loan.bits() | KIND,
        }
    }

    pub(super) const fn from_word(word: u32) -> Self {
        match word & KIND {
            0 => Self::Put(word),
            TAKEN => Self::Taken(word & !KIND),
            BORROWER => Self::Borrower(Loan::from_bits(word)),
            _ => Self::Lender(Loan::from_bits(word)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_heard() {
        for n in [0, 1, 65_536, !KIND] {
            for tell in [Tell::Put(n), Tell::Taken(n)] {
                assert_eq!(Tell::from_word(tell.to_word()), tell);
            }
        }
        let mut number = 0;
        for _ in 0..200 {
            number = next(number);
            assert!((1..=NUMBERS).contains(&number));
            assert_eq!(next(before(number)), number);
            for said in [Said::Idles, Said::Wants, Said::Declines] {
                for bytes in [0, 1, 160 << 10, MOST] {
                    let loan = Loan {
                        number,
                        said,
                        bytes,
                    };
                    for tell in [Tell::Borrower(loan), Tell::Lender(loan)] {
                        assert_eq!(Tell::from_word(tell.to_word()), tell);
                    }
                }
            }
        }
    }
}
