//! What goes over the kernel connection while the stream itself goes by the ring: the word that ends it.
//! Pure.
//!
//! | octets | meaning |
//! |---|---|
//! | `01` | look: a word follows. It is sent as an urgent byte, and stands in the stream where the reader has it so |
//! | `02` and eight octets, the most significant first | the ring is over for whoever says this, who has received so many octets by it; behind this, the kernel connection carries the stream |

#![forbid(unsafe_code)]

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Octets that were received by the ring: from there on they are to be sent again.
    Over(u64),
}

/// The urgent byte that goes in front of an [`Record::Over`].
pub const KNOCK: u8 = 1;
const OVER: u8 = 2;

/// Octets of the longest record.
pub const LONGEST: usize = 9;

impl Record {
    /// Its octets, and how many of them there are.
    #[must_use]
    pub fn octets(self) -> ([u8; LONGEST], usize) {
        let mut out = [0; LONGEST];
        match self {
            Self::Over(at) => {
                let (first, rest) = out.split_at_mut(1);
                first.copy_from_slice(&[OVER]);
                rest.copy_from_slice(&at.to_be_bytes());
                (out, LONGEST)
            }
        }
    }
}

/// What came of a piece of octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It was all used, and held nothing to be done yet.
    Nothing,
    /// So many octets of it were used; the ring is over for the peer, who has received so many by it.
    Over { used: usize, received: u64 },
    /// No record begins so.
    Foreign,
}

/// Follows records that come in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reader {
    /// Octets of an `Over` that have come, and what they say so far; none between records.
    begun: Option<(u8, u64)>,
}

impl Reader {
    /// Between records.
    #[must_use]
    pub const fn new() -> Self {
        Self { begun: None }
    }

    /// Takes the next octets of the connection.
    #[must_use]
    pub fn hear(&mut self, octets: &[u8]) -> Heard {
        for (i, &octet) in octets.iter().enumerate() {
            self.begun = match (self.begun, octet) {
                (None, KNOCK) => None,
                (None, OVER) => Some((0, 0)),
                (None, _) => return Heard::Foreign,
                (Some((n, value)), octet) => {
                    let value = value << 8 | u64::from(octet);
                    if n == 7 {
                        self.begun = None;
                        return Heard::Over {
                            used: i + 1,
                            received: value,
                        };
                    }
                    Some((n + 1, value))
                }
            };
        }
        Heard::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_change_nothing(knocks in 0usize..20, at: u64, behind: Vec<u8>, cut in 1usize..9) {
            let mut all = vec![KNOCK; knocks];
            let (over, len) = Record::Over(at).octets();
            all.extend_from_slice(&over[..len]);
            let end = all.len();
            all.extend_from_slice(&behind);
            let mut reader = Reader::default();
            let mut done = 0;
            for piece in all.chunks(cut) {
                match reader.hear(piece) {
                    Heard::Nothing => done += piece.len(),
                    Heard::Over { used, received } => {
                        prop_assert_eq!((done + used, received), (end, at));
                        return Ok(());
                    }
                    Heard::Foreign => prop_assert!(false),
                }
            }
            prop_assert!(false, "not found");
        }
    }

    #[test]
    fn what_is_no_record_is_told() {
        assert_eq!(Reader::default().hear(&[KNOCK, 7]), Heard::Foreign);
        assert_eq!(Reader::default().hear(&[0]), Heard::Foreign);
    }
}
