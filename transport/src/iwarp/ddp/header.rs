//! The headers of DDP segments (RFC 5041 section 4). A header that was read is the peer's word: only its version has
//! been checked.

use super::{Stag, TAGGED, UNTAGGED, VERSION};

const T: u8 = 0x80;
const L: u8 = 0x40;
const DV: u8 = 0x03;

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    Tagged(Tagged),
    Untagged(Untagged),
}

/// The header of a segment for a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// The last segment of its message.
    pub last: bool,
    /// The octet that is the upper layer's.
    pub upper: u8,
    pub stag: Stag,
    /// The tagged offset (TO), octets.
    pub offset: u64,
}

/// The header of a segment for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untagged {
    /// The last segment of its message.
    pub last: bool,
    /// The five octets that are the upper layer's: one, and four.
    pub upper: u8,
    pub upper_word: u32,
    /// The queue number (QN).
    pub queue: u32,
    /// The message sequence number (MSN): 1 for the first message of a queue.
    pub message: u32,
    /// The message offset (MO), octets.
    pub offset: u32,
}

/// Why there is no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Fewer octets than the header has.
    Short,
    /// Another version of DDP.
    Version { tagged: bool },
}

impl Header {
    /// Reads the header at the front of a segment. Reserved bits are not looked at.
    ///
    /// # Errors
    /// See [`Unreadable`].
    pub fn read(segment: &[u8]) -> Result<Self, Unreadable> {
        let [control, upper, ..] = *segment else {
            return Err(Unreadable::Short);
        };
        let (tagged, last) = (control & T != 0, control & L != 0);
        if control & DV != VERSION {
            return Err(Unreadable::Version { tagged });
        }
        let header = if tagged {
            Self::read_tagged(segment, last, upper)
        } else {
            Self::read_untagged(segment, last, upper)
        };
        header.ok_or(Unreadable::Short)
    }

    fn read_tagged(segment: &[u8], last: bool, upper: u8) -> Option<Self> {
        let header = segment.first_chunk::<TAGGED>()?;
        let (stag, offset) = header.get(2..)?.split_first_chunk()?;
        Some(Self::Tagged(Tagged {
            last,
            upper,
            stag: Stag(u32::from_be_bytes(*stag)),
            offset: u64::from_be_bytes(*offset.first_chunk()?),
        }))
    }

    fn read_untagged(segment: &[u8], last: bool, upper: u8) -> Option<Self> {
        let header = segment.first_chunk::<UNTAGGED>()?;
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_be_bytes(*header.get(at..)?.first_chunk()?))
        };
        Some(Self::Untagged(Untagged {
            last,
            upper,
            upper_word: word(2)?,
            queue: word(6)?,
            message: word(10)?,
            offset: word(14)?,
        }))
    }

    /// Its octets on the wire.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Tagged(_) => TAGGED,
            Self::Untagged(_) => UNTAGGED,
        }
    }

    /// The octet that is the upper layer's.
    #[must_use]
    pub const fn upper(&self) -> u8 {
        match self {
            Self::Tagged(header) => header.upper,
            Self::Untagged(header) => header.upper,
        }
    }

    /// Hands its octets to `put`, in order.
    pub fn write(&self, mut put: impl FnMut(&[u8])) {
        let control = |tagged: u8, last: bool| tagged | if last { L } else { 0 } | VERSION;
        match self {
            Self::Tagged(header) => {
                put(&[control(T, header.last), header.upper]);
                put(&header.stag.0.to_be_bytes());
                put(&header.offset.to_be_bytes());
            }
            Self::Untagged(header) => {
                put(&[control(0, header.last), header.upper]);
                put(&header.upper_word.to_be_bytes());
                put(&header.queue.to_be_bytes());
                put(&header.message.to_be_bytes());
                put(&header.offset.to_be_bytes());
            }
        }
    }
}

/// The octets of a header as they came, for a Terminate that tells of them; nothing has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawHeader {
    bytes: [u8; UNTAGGED],
    len: usize,
}

impl RawHeader {
    /// The octets that a header has, tagged or not; `None` if there are fewer.
    #[must_use]
    pub fn read(segment: &[u8]) -> Option<Self> {
        let tagged = segment.first()? & T != 0;
        let len = if tagged { TAGGED } else { UNTAGGED };
        let mut bytes = [0; UNTAGGED];
        bytes.get_mut(..len)?.copy_from_slice(segment.get(..len)?);
        Some(Self { bytes, len })
    }

    /// Its octets.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}
