//! The Base Sockets Direct Header: 16 bytes in front of every message.
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 1 | MID | what the message is |
//! | 1 | 1 | Flags | bit 0 OOB_PRES, 1 OOB_PEND, 2 REQ_PIPE; the others 0, not looked at |
//! | 2 | 2 | Bufs | receive buffers that the sender has posted and that nothing has come for |
//! | 4 | 4 | Len | bytes of the message: header, extended header and payload |
//! | 8 | 4 | MSeq | number of the message |
//! | 12 | 4 | MSeqAck | number of the last message that the sender has received |

use super::fields::{Reader, Writer};
use super::mid::Mid;

/// Bytes of the header.
pub const HEADER: usize = 16;

pub(super) const OOB_PRES: u8 = 1 << 0;
pub(super) const OOB_PEND: u8 = 1 << 1;
pub(super) const REQ_PIPE: u8 = 1 << 2;

/// The number of a message. They go round: what is later is so by less than half of all numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Seq(pub u32);

impl Seq {
    /// The number behind this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// The number in front of this one.
    #[must_use]
    pub const fn previous(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }

    /// How many messages there were from that one to this one.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Whether this one is the same or later (RFC 1982; the draft's own difference is ambiguous).
    #[must_use]
    pub const fn has_reached(self, other: Self) -> bool {
        self.since(other) < 1 << 31
    }
}

/// What every message tells besides what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bufs.
    pub bufs: u16,
    /// MSeq.
    pub number: Seq,
    /// MSeqAck.
    pub acknowledged: Seq,
    /// OOB_PEND: an urgent byte is coming, within 65,535 bytes of the stream.
    pub urgent_pending: bool,
}

/// The header as the peer wrote it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) mid: u8,
    pub(super) flags: u8,
    pub(super) len: u32,
    pub(super) header: Header,
}

impl Written {
    pub(super) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let (mid, flags, bufs) = (from.u8()?, from.u8()?, from.u16()?);
        let (len, number, acknowledged) = (from.u32()?, from.u32()?, from.u32()?);
        Some(Self {
            mid,
            flags,
            len,
            header: Header {
                bufs,
                number: Seq(number),
                acknowledged: Seq(acknowledged),
                urgent_pending: flags & OOB_PEND != 0,
            },
        })
    }
}

impl Header {
    /// The bytes of the header of a Data message, `total` bytes long with its payload.
    pub fn write_data(&self, total: u32, out: &mut [u8; HEADER]) {
        let written: Writer<HEADER> = self.write(Mid::Data, 0, total);
        *out = written.whole();
    }

    /// The header's bytes.
    pub(super) fn write<const N: usize>(&self, mid: Mid, flags: u8, len: u32) -> Writer<N> {
        let pending = if self.urgent_pending { OOB_PEND } else { 0 };
        Writer::new()
            .put(&[mid as u8, flags | pending])
            .put(&self.bufs.to_be_bytes())
            .put(&len.to_be_bytes())
            .put(&self.number.0.to_be_bytes())
            .put(&self.acknowledged.0.to_be_bytes())
    }
}
