//! Message identifiers: which messages there are, and what is the same for all messages of a kind.

use super::Violation;

/// What a message is: the first byte of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mid {
    Hello = 0x00,
    HelloAck = 0x01,
    DisConn = 0x02,
    AbortConn = 0x03,
    SendSm = 0x04,
    RdmaWrCompl = 0x05,
    RdmaRdCompl = 0x06,
    ModeChange = 0x07,
    SrcAvailCancel = 0x08,
    SinkAvailCancel = 0x09,
    SinkCancelAck = 0x0A,
    ChRcvBuf = 0x0B,
    ChRcvBufAck = 0x0C,
    SuspComm = 0x0D,
    SuspCommAck = 0x0E,
    /// Of the numbers that are left for experiments: the sender's direction goes on with plain bytes.
    Plain = 0x40,
    /// Also: the sender has a ring; it agrees to one; its octets go by the ring from here on.
    RingOffer = 0x41,
    RingAnswer = 0x42,
    RingBegin = 0x43,
    /// Also: the peer is to end its direction, and to wait then; it does; its own bytes, which nobody has read.
    TakeBack = 0x44,
    PlainLater = 0x45,
    GivenBack = 0x46,
    /// Also: the buffer that was advertised last is not to be read any more.
    Withdraw = 0x47,
    /// Also: so many bytes were taken out of the receive buffer; the sender's direction is not packetized any more; it has no
    /// room left; nothing waits there any more.
    Taken = 0x48,
    Released = 0x49,
    Starved = 0x4A,
    Cleared = 0x4B,
    /// Also: what was not read of the buffer that was lent last comes otherwise.
    Recall = 0x4C,
    SinkAvail = 0xFD,
    SrcAvail = 0xFE,
    Data = 0xFF,
}

/// Octets by which a side says where its ring is.
pub const RING_TERMS: usize = 48;

impl Mid {
    pub const ALL: [Self; 31] = [
        Self::Hello,
        Self::HelloAck,
        Self::DisConn,
        Self::AbortConn,
        Self::SendSm,
        Self::RdmaWrCompl,
        Self::RdmaRdCompl,
        Self::ModeChange,
        Self::SrcAvailCancel,
        Self::SinkAvailCancel,
        Self::SinkCancelAck,
        Self::ChRcvBuf,
        Self::ChRcvBufAck,
        Self::SuspComm,
        Self::SuspCommAck,
        Self::Plain,
        Self::RingOffer,
        Self::RingAnswer,
        Self::RingBegin,
        Self::TakeBack,
        Self::PlainLater,
        Self::GivenBack,
        Self::Withdraw,
        Self::Taken,
        Self::Released,
        Self::Starved,
        Self::Cleared,
        Self::Recall,
        Self::SinkAvail,
        Self::SrcAvail,
        Self::Data,
    ];

    /// The message that a byte stands for.
    ///
    /// # Errors
    /// It stands for none.
    pub fn from_byte(byte: u8) -> Result<Self, Violation> {
        let found = Self::ALL.into_iter().find(|&mid| mid as u8 == byte);
        found.ok_or(match byte {
            0x40..=0x7F => Violation::ExperimentalMid,
            _ => Violation::ReservedMid,
        })
    }

    /// Bytes of the extended header (Hello and HelloAck: as over iWARP).
    #[must_use]
    pub const fn extended(self) -> usize {
        match self {
            Self::Hello | Self::SrcAvail => 16,
            Self::HelloAck => 12,
            Self::RingOffer | Self::RingAnswer => RING_TERMS,
            Self::RdmaWrCompl
            | Self::RdmaRdCompl
            | Self::ModeChange
            | Self::ChRcvBuf
            | Self::ChRcvBufAck
            | Self::Recall => 4,
            Self::SuspComm | Self::Taken => 8,
            Self::SinkAvail => 20,
            _ => 0,
        }
    }

    /// Whether payload may follow.
    #[must_use]
    pub const fn takes_payload(self) -> bool {
        matches!(
            self,
            Self::Data | Self::SrcAvail | Self::SinkAvail | Self::GivenBack
        )
    }
}
