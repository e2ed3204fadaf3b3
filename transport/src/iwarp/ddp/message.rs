//! Cutting a message into segments no larger than the MULPDU (RFC 5041 section 5.2).

use super::{Header, Tagged, Untagged};

/// The most octets that stand in front of a payload: an untagged header, and a Read Request or Terminate behind it.
const MOST: usize = 72;

/// Where a message goes, and what every segment says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// The header of the first segment; offsets count from there.
    Tagged(Tagged),
    Untagged(Untagged),
}

/// A message that is being sent: gives its segments, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    address: Address,
    len: u32,
    sent: u32,
    ended: bool,
}

/// One segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// What stands in front of the payload.
    pub head: Head,
    /// Where the payload lies in the message, octets.
    pub from: u32,
    pub len: u32,
    pub last: bool,
}

impl Message {
    /// A message of `len` octets, none of them sent.
    #[must_use]
    pub const fn new(address: Address, len: u32) -> Self {
        Self {
            address,
            len,
            sent: 0,
            ended: false,
        }
    }

    /// Octets of the whole message.
    #[expect(clippy::len_without_is_empty, reason = "an empty message is sent too")]
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Octets that segments have been given for.
    #[must_use]
    pub const fn sent(&self) -> u32 {
        self.sent
    }

    /// Whether the last segment has been given.
    #[must_use]
    pub const fn ended(&self) -> bool {
        self.ended
    }

    /// The next segment; header and payload are at most `mulpdu` octets. A message without octets has one segment.
    pub fn segment(&mut self, mulpdu: usize) -> Option<Segment> {
        if self.ended {
            return None;
        }
        let header = match self.address {
            Address::Tagged(header) => Header::Tagged(header),
            Address::Untagged(header) => Header::Untagged(header),
        };
        let room = u32::try_from(mulpdu.saturating_sub(header.len()).max(1)).unwrap_or(u32::MAX);
        let left = self.len - self.sent;
        let (from, len, last) = (self.sent, left.min(room), left <= room);
        let header = match header {
            Header::Tagged(header) => Header::Tagged(Tagged {
                last,
                // Never past the end: whoever made the message has checked.
                offset: header.offset.wrapping_add(u64::from(from)),
                ..header
            }),
            Header::Untagged(header) => Header::Untagged(Untagged {
                last,
                offset: from,
                ..header
            }),
        };
        self.sent += len;
        self.ended = last;
        let mut head = Head::default();
        header.write(|bytes| head.put(bytes));
        Some(Segment {
            head,
            from,
            len,
            last,
        })
    }
}

/// What stands in front of the payload of a segment: the DDP header, and an RDMAP header if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    bytes: [u8; MOST],
    len: usize,
}

impl Default for Head {
    fn default() -> Self {
        Self {
            bytes: [0; MOST],
            len: 0,
        }
    }
}

impl Head {
    /// Its octets.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Goes on with these octets; there is room for all headers that exist.
    pub(in crate::iwarp) fn put(&mut self, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            place.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iwarp::ddp::Stag;

    fn cuts(mut message: Message, mulpdu: usize) -> Vec<(Header, u32, bool)> {
        std::iter::from_fn(|| message.segment(mulpdu))
            .map(|segment| {
                let header = Header::read(segment.head.bytes()).unwrap();
                (header, segment.len, segment.last)
            })
            .collect()
    }

    /// The two examples of RFC 5041 section 5.2.
    #[test]
    fn published_examples() {
        let untagged = Address::Untagged(Untagged {
            last: false,
            upper: 0x43,
            upper_word: 0,
            queue: 0,
            message: 1,
            offset: 0,
        });
        let offsets: Vec<_> = cuts(Message::new(untagged, 2048), 1500)
            .into_iter()
            .map(|(header, len, last)| match header {
                Header::Untagged(header) => (header.offset, len, last, header.last),
                Header::Tagged(_) => panic!(),
            })
            .collect();
        assert_eq!(offsets, [(0, 1482, false, false), (1482, 566, true, true)]);
        let tagged = Address::Tagged(Tagged {
            last: false,
            upper: 0x40,
            stag: Stag(7),
            offset: 16384,
        });
        let offsets: Vec<_> = cuts(Message::new(tagged, 2048), 1500)
            .into_iter()
            .map(|(header, len, last)| match header {
                Header::Tagged(header) => (header.offset, len, last, header.last),
                Header::Untagged(_) => panic!(),
            })
            .collect();
        assert_eq!(
            offsets,
            [(16384, 1486, false, false), (17870, 562, true, true)]
        );
    }

    #[test]
    fn an_empty_message_has_one_segment() {
        let address = Address::Tagged(Tagged {
            last: false,
            upper: 0x40,
            stag: Stag(0),
            offset: 0,
        });
        let cuts = cuts(Message::new(address, 0), 1500);
        assert_eq!(cuts.len(), 1);
        assert_eq!((cuts[0].1, cuts[0].2), (0, true));
    }
}
