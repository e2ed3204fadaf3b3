//! The Terminate message (RFC 5040 section 4.8): what ended the stream, and the headers of the segment in question.

use super::read::{READ_REQUEST, ReadRequest};
use super::violation::{Includes, Violation};
use crate::iwarp::ddp::{self, Head, RawHeader};

const M: u32 = 1 << 15;
const D: u32 = 1 << 14;
const R: u32 = 1 << 13;

/// The most octets of a Terminate header: control, segment length, untagged DDP header, Read Request.
pub(super) const LARGEST: usize = 4 + 2 + ddp::UNTAGGED + READ_REQUEST;

/// What this end has found: the first of its kind, and the last thing it says on the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breach {
    pub violation: Violation,
    /// Octets of the segment in question, and its header.
    pub segment: Option<(u16, RawHeader)>,
    /// The Read Request in question, as far as it had not been answered.
    pub read: Option<ReadRequest>,
}

impl Breach {
    /// One that no segment is the reason of.
    #[must_use]
    pub const fn new(violation: Violation) -> Self {
        Self {
            violation,
            segment: None,
            read: None,
        }
    }

    /// Puts the Terminate header behind the DDP header that is in `head`.
    pub(super) fn write(&self, head: &mut Head) {
        let (layer, kind, code) = self.violation.numbers();
        let includes = self.violation.includes();
        let segment = self.segment.filter(|_| includes != Includes::Nothing);
        let read = self.read.filter(|_| includes == Includes::DdpAndRead);
        let flag = |yes: bool, flag: u32| if yes { flag } else { 0 };
        let control = u32::from(layer) << 28
            | u32::from(kind) << 24
            | u32::from(code) << 16
            | flag(segment.is_some(), M | D)
            | flag(read.is_some(), R);
        head.put(&control.to_be_bytes());
        if let Some((len, header)) = segment {
            head.put(&len.to_be_bytes());
            head.put(header.bytes());
        }
        if let Some(read) = read {
            read.write(|bytes| head.put(bytes));
        }
    }
}

/// What the peer has found. Its numbers are the peer's word; nothing here depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate {
    pub layer: u8,
    pub kind: u8,
    pub code: u8,
    /// Octets of the segment in question.
    pub segment_len: Option<u16>,
    /// Its header, as it was sent.
    pub header: Option<RawHeader>,
    /// The Read Request in question.
    pub read: Option<ReadRequest>,
}

impl Terminate {
    /// Reads the payload of a Terminate; `None` if it is none.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (control, mut rest) = bytes.split_first_chunk::<4>()?;
        let control = u32::from_be_bytes(*control);
        let [top, code, ..] = control.to_be_bytes();
        let mut terminate = Self {
            layer: top >> 4,
            kind: top & 0xf,
            code,
            segment_len: None,
            header: None,
            read: None,
        };
        if control & (M | D) != 0 {
            let (len, after) = rest.split_first_chunk::<2>()?;
            terminate.segment_len = (control & M != 0).then(|| u16::from_be_bytes(*len));
            rest = after;
        }
        if control & D != 0 {
            let header = RawHeader::read(rest)?;
            rest = rest.get(header.bytes().len()..)?;
            terminate.header = Some(header);
        }
        if control & R != 0 {
            terminate.read = ReadRequest::read(rest.first_chunk::<READ_REQUEST>()?);
        }
        Some(terminate)
    }

    /// What it says, if the numbers are known ones.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        Violation::from_numbers(self.layer, self.kind, self.code)
    }
}
