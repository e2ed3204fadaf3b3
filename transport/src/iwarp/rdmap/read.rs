//! The header of a Read Request (RFC 5040 section 4.4). One that was received is the peer's word.

use crate::iwarp::ddp::Stag;

/// Octets of the header, which is all that a Read Request carries.
pub const READ_REQUEST: usize = 28;

/// Which octets are to be read, and where the answer is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The region of the end that asks, and the tagged offset in it.
    pub sink: Stag,
    pub sink_offset: u64,
    /// Octets.
    pub len: u32,
    /// The region of the end that answers, and the tagged offset in it.
    pub source: Stag,
    pub source_offset: u64,
}

impl ReadRequest {
    pub(super) fn read(bytes: &[u8; READ_REQUEST]) -> Option<Self> {
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
        };
        let long = |at: usize| -> Option<u64> {
            Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
        };
        Some(Self {
            sink: Stag(word(0)?),
            sink_offset: long(4)?,
            len: word(12)?,
            source: Stag(word(16)?),
            source_offset: long(20)?,
        })
    }

    /// Hands its octets to `put`, in order.
    pub(super) fn write(&self, mut put: impl FnMut(&[u8])) {
        put(&self.sink.0.to_be_bytes());
        put(&self.sink_offset.to_be_bytes());
        put(&self.len.to_be_bytes());
        put(&self.source.0.to_be_bytes());
        put(&self.source_offset.to_be_bytes());
    }

    /// Its octets.
    #[must_use]
    pub fn octets(&self) -> [u8; READ_REQUEST] {
        let mut octets = [0; READ_REQUEST];
        let mut at = 0;
        self.write(|bytes| {
            if let Some(place) = octets.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
            at += bytes.len();
        });
        octets
    }

    /// What is left of it after `octets`: this is what a Terminate tells of a Read that was under way (RFC 5040 section
    /// 4.8).
    #[must_use]
    pub const fn after(self, octets: u32) -> Self {
        Self {
            sink_offset: self.sink_offset.wrapping_add(octets as u64),
            source_offset: self.source_offset.wrapping_add(octets as u64),
            len: self.len.saturating_sub(octets),
            ..self
        }
    }
}
