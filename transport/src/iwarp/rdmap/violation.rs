//! Everything that ends a stream, with the numbers that a Terminate has for it: layer, error type, error code (RFC 5040
//! section 4.8, figure 9; RFC 5041 section 7.2; RFC 5044 section 8; RFC 6581), and the headers that go back with
//! it (RFC 5040, figure 10).

use crate::iwarp::ddp::{QueueError, RegionError};
use crate::iwarp::mpa;

/// What was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// This end cannot go on, and nobody else is at fault.
    LocalCatastrophic,
    SourceInvalidStag,
    SourceBounds,
    SourceRights,
    SourceNotThisStream,
    SourceWrap,
    /// A Send wants to end a region that it must not.
    CannotInvalidate,
    ProtectionUnspecified,
    RdmapVersion,
    /// An operation that does not exist, or is not due, or is in the wrong place.
    UnexpectedOpcode,
    /// Nonsense that has no code of its own: a segment without room for its headers.
    StreamCatastrophic,
    GlobalCatastrophic,
    InvalidateOperation,
    OperationUnspecified,
    DdpCatastrophic,
    TaggedInvalidStag,
    TaggedBounds,
    TaggedNotThisStream,
    TaggedWrap,
    TaggedVersion,
    UntaggedQueue,
    UntaggedNoBuffer,
    UntaggedNumber,
    UntaggedOffset,
    UntaggedTooLong,
    UntaggedVersion,
    ConnectionLost,
    Crc,
    Marker,
    Startup,
    MpaCatastrophic,
    InsufficientIrd,
    NoMatchingRtr,
}

/// Which headers of the segment in question a Terminate carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Includes {
    Nothing,
    /// Segment length and DDP header.
    Ddp,
    /// Those, and the header of the Read Request, if it was one.
    DdpAndRead,
}

impl Violation {
    /// All of them.
    pub const ALL: [Self; 33] = [
        Self::LocalCatastrophic,
        Self::SourceInvalidStag,
        Self::SourceBounds,
        Self::SourceRights,
        Self::SourceNotThisStream,
        Self::SourceWrap,
        Self::CannotInvalidate,
        Self::ProtectionUnspecified,
        Self::RdmapVersion,
        Self::UnexpectedOpcode,
        Self::StreamCatastrophic,
        Self::GlobalCatastrophic,
        Self::InvalidateOperation,
        Self::OperationUnspecified,
        Self::DdpCatastrophic,
        Self::TaggedInvalidStag,
        Self::TaggedBounds,
        Self::TaggedNotThisStream,
        Self::TaggedWrap,
        Self::TaggedVersion,
        Self::UntaggedQueue,
        Self::UntaggedNoBuffer,
        Self::UntaggedNumber,
        Self::UntaggedOffset,
        Self::UntaggedTooLong,
        Self::UntaggedVersion,
        Self::ConnectionLost,
        Self::Crc,
        Self::Marker,
        Self::Startup,
        Self::MpaCatastrophic,
        Self::InsufficientIrd,
        Self::NoMatchingRtr,
    ];

    /// Layer (0 RDMAP, 1 DDP, 2 MPA), error type and error code.
    #[must_use]
    pub const fn numbers(self) -> (u8, u8, u8) {
        match self {
            // RFC 5040 figure 9.
            Self::LocalCatastrophic => (0, 0, 0x00),
            Self::SourceInvalidStag => (0, 1, 0x00),
            Self::SourceBounds => (0, 1, 0x01),
            Self::SourceRights => (0, 1, 0x02),
            Self::SourceNotThisStream => (0, 1, 0x03),
            Self::SourceWrap => (0, 1, 0x04),
            Self::CannotInvalidate => (0, 1, 0x09),
            Self::ProtectionUnspecified => (0, 1, 0xff),
            Self::RdmapVersion => (0, 2, 0x05),
            Self::UnexpectedOpcode => (0, 2, 0x06),
            Self::StreamCatastrophic => (0, 2, 0x07),
            Self::GlobalCatastrophic => (0, 2, 0x08),
            Self::InvalidateOperation => (0, 2, 0x09),
            Self::OperationUnspecified => (0, 2, 0xff),
            // RFC 5041 section 7.2.
            Self::DdpCatastrophic => (1, 0, 0x00),
            Self::TaggedInvalidStag => (1, 1, 0x00),
            Self::TaggedBounds => (1, 1, 0x01),
            Self::TaggedNotThisStream => (1, 1, 0x02),
            Self::TaggedWrap => (1, 1, 0x03),
            Self::TaggedVersion => (1, 1, 0x04),
            Self::UntaggedQueue => (1, 2, 0x01),
            Self::UntaggedNoBuffer => (1, 2, 0x02),
            Self::UntaggedNumber => (1, 2, 0x03),
            Self::UntaggedOffset => (1, 2, 0x04),
            Self::UntaggedTooLong => (1, 2, 0x05),
            Self::UntaggedVersion => (1, 2, 0x06),
            // RFC 5044 section 8.
            Self::ConnectionLost => (2, 0, 0x01),
            Self::Crc => (2, 0, 0x02),
            Self::Marker => (2, 0, 0x03),
            Self::Startup => (2, 0, 0x04),
            // RFC 6581.
            Self::MpaCatastrophic => (2, 0, 0x05),
            Self::InsufficientIrd => (2, 0, 0x06),
            Self::NoMatchingRtr => (2, 0, 0x07),
        }
    }

    /// The violation that a Terminate names, if it is a known one.
    #[must_use]
    pub fn from_numbers(layer: u8, kind: u8, code: u8) -> Option<Self> {
        // A local catastrophic error may have any code.
        let code = if (layer, kind) == (0, 0) { 0 } else { code };
        let known = |violation: &Self| violation.numbers() == (layer, kind, code);
        Self::ALL.into_iter().find(known)
    }

    /// What a Terminate carries besides the numbers, where it is at hand (RFC 5040 figure 10).
    #[must_use]
    pub const fn includes(self) -> Includes {
        match self.numbers() {
            (0 | 1, 0, _) | (2, ..) => Includes::Nothing,
            (0, 1, _) => Includes::DdpAndRead,
            _ => Includes::Ddp,
        }
    }

    /// A tagged segment has no place. RFC 5041 has no code for missing rights: what may not be written is no valid STag for it.
    pub(super) const fn of_tagged(error: RegionError) -> Self {
        match error {
            RegionError::InvalidStag | RegionError::Rights => Self::TaggedInvalidStag,
            RegionError::NotThisStream => Self::TaggedNotThisStream,
            RegionError::Bounds => Self::TaggedBounds,
            RegionError::Wrap => Self::TaggedWrap,
        }
    }

    /// A Read Request asks for what it must not.
    pub(super) const fn of_source(error: RegionError) -> Self {
        match error {
            RegionError::InvalidStag => Self::SourceInvalidStag,
            RegionError::NotThisStream => Self::SourceNotThisStream,
            RegionError::Bounds => Self::SourceBounds,
            RegionError::Wrap => Self::SourceWrap,
            RegionError::Rights => Self::SourceRights,
        }
    }
}

impl From<QueueError> for Violation {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::NoBuffer => Self::UntaggedNoBuffer,
            QueueError::Number => Self::UntaggedNumber,
            QueueError::Offset => Self::UntaggedOffset,
            QueueError::TooLong => Self::UntaggedTooLong,
            QueueError::Upper => Self::UnexpectedOpcode,
        }
    }
}

impl From<mpa::Error> for Violation {
    fn from(error: mpa::Error) -> Self {
        match error {
            mpa::Error::Crc => Self::Crc,
            mpa::Error::Marker => Self::Marker,
        }
    }
}

impl Violation {
    /// What a failed set-up is called where it is reported. None of them is sent while there is no RDMA mode: the
    /// connection is closed (RFC 5044 section 8, code 4).
    #[must_use]
    pub const fn of_setup(fault: mpa::setup::Fault) -> Self {
        use mpa::setup::Fault;
        match fault {
            Fault::Malformed(_) | Fault::Mismatch => Self::Startup,
            Fault::InsufficientIrd => Self::InsufficientIrd,
            Fault::NoMatchingRtr => Self::NoMatchingRtr,
            Fault::NoRoom => Self::MpaCatastrophic,
        }
    }
}
