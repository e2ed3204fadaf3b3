//! The messages of a connection that has been set up, with their extended headers.
//!
//! | extended header | layout, in bytes |
//! |---|---|
//! | SrcAvail | Len 4, STag 4, address 8 |
//! | SinkAvail | Len 4, STag 4, address 8, NonDiscards 4 |
//! | RdmaWrCompl, RdmaRdCompl | Len 4: bytes moved |
//! | ModeChange | first byte: bit 7 S, bits 6 to 4 mode; rest 0 |
//! | ChRcvBuf, ChRcvBufAck | size 4 |
//! | SuspComm | 0x00000000, 0x0001, TCP port 2 |
//! | Taken | bytes 8 |
//! | Recall | bytes 4 |
//!
//! Payload is not copied: [`Message::head`] gives what goes in front of it.

use super::fields::Writer;
use super::header::{HEADER, Header, OOB_PRES, REQ_PIPE};
use super::mid::{Mid, RING_TERMS};
use super::mode::Mode;

/// Bytes of the longest head: SinkAvail's.
const LONGEST: usize = HEADER + RING_TERMS;

/// A buffer of the sender's that the other side may read, or write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advert {
    /// Bytes of the whole buffer, also of what is sent with the advert as payload.
    pub len: u32,
    pub stag: u32,
    pub address: u64,
}

/// A direction of the stream, as seen by the side that is spoken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    Send,
    Receive,
}

/// A message. Names and roles are SDP's: the source is who sends in a direction, the sink who receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Bytes of the stream; with none, an update of credits. `urgent`: the last byte is the urgent one.
    Data {
        payload: &'a [u8],
        urgent: bool,
    },
    /// Source: this buffer may be read. In combined mode with the beginning of the buffer.
    SrcAvail {
        advert: Advert,
        payload: &'a [u8],
    },
    /// Sink: this buffer may be written to. Payload is data of the direction from the sink to the source.
    SinkAvail {
        advert: Advert,
        non_discards: u32,
        payload: &'a [u8],
    },
    /// Source: so many bytes were written to the oldest buffer that the sink advertises. `pipelined`: the
    /// source wishes that mode for the opposite direction, whose sink it is.
    RdmaWrCompl {
        len: u32,
        pipelined: bool,
    },
    /// Sink: so many bytes were read from the oldest buffer that the source advertises. `pipelined`: the sink
    /// wishes that mode for this direction.
    RdmaRdCompl {
        len: u32,
        pipelined: bool,
    },
    /// Sink: the rest of the oldest advertised buffer shall come as Data.
    SendSm,
    SrcAvailCancel,
    SinkAvailCancel,
    SinkCancelAck,
    /// The receiver's half changes to this mode.
    ModeChange {
        half: Half,
        mode: Mode,
    },
    /// The size that the receiver's receive buffers shall have, in bytes.
    ChRcvBuf {
        size: u32,
    },
    /// The size that the sender's receive buffers have now, in bytes.
    ChRcvBufAck {
        size: u32,
    },
    /// Connect anew to this port: the socket goes on in another process there.
    SuspComm {
        port: u16,
    },
    SuspCommAck,
    /// This was the last message of the sender's direction: RDMA mode ends here, and what follows on the
    /// connection are the bytes of the stream. The other side does the same. (Shunt's own.)
    Plain,
    /// The sender has a ring for an adapter to move the stream by, of which these octets say where it is, and asks
    /// for the peer's. (Shunt's own, as are the next two.)
    RingOffer {
        terms: [u8; RING_TERMS],
    },
    /// The peer's ring; octets of zero if it has none.
    RingAnswer {
        terms: [u8; RING_TERMS],
    },
    /// Behind this message the octets of the sender's direction go by the ring.
    RingBegin,
    /// The receiver is to end RDMA mode in its direction, and to send nothing there until the sender has ended it in the
    /// other: what the sender has received and its program has not read comes back first. (Shunt's own, as are the
    /// next two.)
    TakeBack,
    /// As `Plain`, but the bytes of the stream follow only once the other side has said `Plain`.
    PlainLater,
    /// Bytes of the receiver's own, to be sent once more in front of all that it has not sent yet.
    GivenBack {
        payload: &'a [u8],
    },
    /// Source: what was not read yet of the buffer that it has advertised last comes as Data. A Read of it that was
    /// not answered before this message is not answered any more. (Shunt's own: SrcAvailCancel waits for the sink's word, and
    /// so for a program that may be elsewhere.)
    Withdraw,
    /// Sink: so many bytes of this direction in all were taken out of its receive buffer: the answer to Starved. (Shunt's own, as are the
    /// next three: where a direction is packetized, `flowctl::packetized`.)
    Taken {
        bytes: u64,
    },
    /// Source: from here on its direction is not packetized any more; the sink may have no room for what follows.
    Released,
    /// Source: its receive buffer is full, as far as it knows, and it has more to send.
    Starved,
    /// Source: of what its program has sent since it was starved nothing waits there any more. An end between the two may have lost some.
    Cleared,
    /// Source: of the buffer that it has lent by its ring last, the sink has read so many bytes as far as it was told; those behind
    /// follow as Data, of which it leaves out what it has read besides. (Shunt's own.)
    Recall {
        bytes: u32,
    },
    /// Nothing more comes from here.
    DisConn,
    /// After a DisConn: the stream ends with a reset all the same.
    AbortConn,
}

/// The bytes of a message in front of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head(Writer<LONGEST>);

impl AsRef<[u8]> for Head {
    fn as_ref(&self) -> &[u8] {
        self.0.written()
    }
}

impl<'a> Message<'a> {
    /// What the message is.
    #[must_use]
    pub const fn mid(&self) -> Mid {
        match self {
            Self::Data { .. } => Mid::Data,
            Self::SrcAvail { .. } => Mid::SrcAvail,
            Self::SinkAvail { .. } => Mid::SinkAvail,
            Self::RdmaWrCompl { .. } => Mid::RdmaWrCompl,
            Self::RdmaRdCompl { .. } => Mid::RdmaRdCompl,
            Self::SendSm => Mid::SendSm,
            Self::SrcAvailCancel => Mid::SrcAvailCancel,
            Self::SinkAvailCancel => Mid::SinkAvailCancel,
            Self::SinkCancelAck => Mid::SinkCancelAck,
            Self::ModeChange { .. } => Mid::ModeChange,
            Self::ChRcvBuf { .. } => Mid::ChRcvBuf,
            Self::ChRcvBufAck { .. } => Mid::ChRcvBufAck,
            Self::SuspComm { .. } => Mid::SuspComm,
            Self::SuspCommAck => Mid::SuspCommAck,
            Self::Plain => Mid::Plain,
            Self::RingOffer { .. } => Mid::RingOffer,
            Self::RingAnswer { .. } => Mid::RingAnswer,
            Self::RingBegin => Mid::RingBegin,
            Self::TakeBack => Mid::TakeBack,
            Self::PlainLater => Mid::PlainLater,
            Self::GivenBack { .. } => Mid::GivenBack,
            Self::Withdraw => Mid::Withdraw,
            Self::Taken { .. } => Mid::Taken,
            Self::Released => Mid::Released,
            Self::Starved => Mid::Starved,
            Self::Cleared => Mid::Cleared,
            Self::Recall { .. } => Mid::Recall,
            Self::DisConn => Mid::DisConn,
            Self::AbortConn => Mid::AbortConn,
        }
    }

    /// The bytes of the stream that it carries.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        match self {
            Self::Data { payload, .. }
            | Self::SrcAvail { payload, .. }
            | Self::SinkAvail { payload, .. }
            | Self::GivenBack { payload } => payload,
            _ => &[],
        }
    }

    /// Whether it goes as a Send with Solicited Event, which wakes whoever waits for an answer: by the draft
    /// never otherwise, and no other message so. `urgent_pending`: its header says OOB_PEND. (The draft does not
    /// class SinkAvail; it asks for nothing that is waited for, like SrcAvail.)
    #[must_use]
    pub const fn is_solicited(&self, urgent_pending: bool) -> bool {
        match self {
            Self::Data { urgent, .. } => *urgent || urgent_pending,
            Self::AbortConn
            | Self::SuspComm { .. }
            | Self::SuspCommAck
            | Self::Plain
            | Self::RingOffer { .. }
            | Self::RingAnswer { .. }
            | Self::RingBegin
            | Self::TakeBack
            | Self::PlainLater
            | Self::GivenBack { .. }
            | Self::Withdraw
            | Self::Recall { .. }
            | Self::Taken { .. }
            | Self::SendSm
            | Self::SrcAvailCancel
            | Self::SinkAvailCancel
            | Self::RdmaWrCompl { .. }
            | Self::RdmaRdCompl { .. }
            | Self::SinkCancelAck => true,
            Self::DisConn
            | Self::Released
            | Self::Starved
            | Self::Cleared
            | Self::SrcAvail { .. }
            | Self::SinkAvail { .. }
            | Self::ModeChange { .. }
            | Self::ChRcvBuf { .. }
            | Self::ChRcvBufAck { .. } => false,
        }
    }

    /// Bytes of the whole message; nothing if there are more than its header can say.
    #[must_use]
    pub fn total_len(&self) -> Option<u32> {
        let head = HEADER + self.mid().extended();
        u32::try_from(head.checked_add(self.payload().len())?).ok()
    }

    /// What goes in front of the payload; nothing if that is longer than a header can say.
    #[must_use]
    pub fn head(&self, header: &Header) -> Option<Head> {
        let flags = match self {
            Self::Data { urgent: true, .. } => OOB_PRES,
            Self::RdmaWrCompl { pipelined, .. } | Self::RdmaRdCompl { pipelined, .. }
                if *pipelined =>
            {
                REQ_PIPE
            }
            _ => 0,
        };
        let out = header.write(self.mid(), flags, self.total_len()?);
        Some(Head(match self {
            Self::SrcAvail { advert, .. } => advert.write(out),
            Self::SinkAvail {
                advert,
                non_discards,
                ..
            } => advert.write(out).put(&non_discards.to_be_bytes()),
            Self::RdmaWrCompl { len, .. } | Self::RdmaRdCompl { len, .. } => {
                out.put(&len.to_be_bytes())
            }
            Self::ModeChange { half, mode } => {
                let half = match half {
                    Half::Send => 1 << 7,
                    Half::Receive => 0,
                };
                out.put(&[half | (*mode as u8) << 4, 0, 0, 0])
            }
            Self::ChRcvBuf { size } | Self::ChRcvBufAck { size } => out.put(&size.to_be_bytes()),
            Self::RingOffer { terms } | Self::RingAnswer { terms } => out.put(terms),
            Self::Taken { bytes } => out.put(&bytes.to_be_bytes()),
            Self::Recall { bytes } => out.put(&bytes.to_be_bytes()),
            Self::SuspComm { port } => out.put(&SERVICE).put(&port.to_be_bytes()),
            _ => out,
        }))
    }
}

/// What is in front of the port in SuspComm: the service identifiers of SDP ports.
pub(super) const SERVICE: [u8; 6] = [0, 0, 0, 0, 0, 1];

impl Advert {
    fn write(&self, out: Writer<LONGEST>) -> Writer<LONGEST> {
        out.put(&self.len.to_be_bytes())
            .put(&self.stag.to_be_bytes())
            .put(&self.address.to_be_bytes())
    }
}
