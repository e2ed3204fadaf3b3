//! Bytes that came in one message of the transport, until they are checked.

use super::fields::Reader;
use super::header::{HEADER, Header, OOB_PRES, REQ_PIPE, Written};
use super::message::{Advert, Half, Message, SERVICE};
use super::mid::{Mid, RING_TERMS};
use super::mode::Mode;
use super::{LARGEST_BUFFER, Violation, buffer_size};

/// One message as it came. Nothing of it is believed.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Its beginning, headers at least.
    front: &'a [u8],
    /// Bytes of all of it.
    total: usize,
}

/// Bytes of the longest headers.
pub const FRONT: usize = HEADER + RING_TERMS;

/// What a message is checked against.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bytes of this side's receive buffers, as the peer knows them.
    pub own: u32,
    /// Bytes of the peer's receive buffers.
    pub peer: u32,
}

impl<'a> Received<'a> {
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self {
            front: bytes,
            total: bytes.len(),
        }
    }

    /// One of `total` bytes of which only the beginning is here: as many as headers can have, or all. The payload
    /// of the message is then what is here of it.
    #[must_use]
    pub const fn begun(front: &'a [u8], total: usize) -> Self {
        Self { front, total }
    }

    /// The message, if it is one by all rules that need no memory of earlier ones; those are
    /// [`super::sequence`]'s, [`super::stale`]'s and [`super::mode`]'s.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn check(self, sizes: &Sizes) -> Result<(Header, Message<'a>), Violation> {
        let mut from = Reader::new(self.front);
        let written = Written::read(&mut from).ok_or(Violation::Short)?;
        if u32::try_from(self.total) != Ok(written.len) {
            return Err(Violation::Length);
        }
        if written.len > sizes.own {
            return Err(Violation::TooLarge);
        }
        let mid = Mid::from_byte(written.mid)?;
        if matches!(mid, Mid::Hello | Mid::HelloAck) {
            return Err(Violation::Unexpected);
        }
        let head = HEADER + mid.extended();
        let payload = self.front.get(head..).ok_or(Violation::ExtendedHeader)?;
        let payload_len = self.total.saturating_sub(head);
        if !mid.takes_payload() && payload_len > 0 {
            return Err(Violation::Payload);
        }
        let urgent = written.flags & OOB_PRES != 0;
        if urgent && mid != Mid::Data {
            return Err(Violation::UrgentOutsideData);
        }
        if urgent && payload_len == 0 {
            return Err(Violation::UrgentWithoutPayload);
        }
        let pipelined = written.flags & REQ_PIPE != 0;
        let message = match mid {
            Mid::Data => Message::Data { payload, urgent },
            Mid::SrcAvail => {
                let advert = advert(&mut from)?;
                if payload_len as u64 > u64::from(advert.len) {
                    return Err(Violation::AdvertPayload);
                }
                Message::SrcAvail { advert, payload }
            }
            Mid::SinkAvail => {
                let advert = advert(&mut from)?;
                if advert.len <= sizes.peer {
                    return Err(Violation::SmallAdvert);
                }
                Message::SinkAvail {
                    advert,
                    non_discards: word(&mut from)?,
                    payload,
                }
            }
            Mid::RdmaWrCompl => Message::RdmaWrCompl {
                len: word(&mut from)?,
                pipelined,
            },
            Mid::RdmaRdCompl => Message::RdmaRdCompl {
                len: word(&mut from)?,
                pipelined,
            },
            Mid::ModeChange => mode_change(&mut from)?,
            Mid::ChRcvBuf => Message::ChRcvBuf {
                size: buffer_size(word(&mut from)?)?,
            },
            Mid::ChRcvBufAck => Message::ChRcvBufAck {
                size: buffer_size(word(&mut from)?)?,
            },
            Mid::SuspComm => susp_comm(&mut from)?,
            Mid::SendSm => Message::SendSm,
            Mid::SrcAvailCancel => Message::SrcAvailCancel,
            Mid::SinkAvailCancel => Message::SinkAvailCancel,
            Mid::SinkCancelAck => Message::SinkCancelAck,
            Mid::SuspCommAck => Message::SuspCommAck,
            Mid::Plain => Message::Plain,
            Mid::RingOffer => Message::RingOffer {
                terms: from.take().ok_or(Violation::ExtendedHeader)?,
            },
            Mid::RingAnswer => Message::RingAnswer {
                terms: from.take().ok_or(Violation::ExtendedHeader)?,
            },
            Mid::RingBegin => Message::RingBegin,
            Mid::TakeBack => Message::TakeBack,
            Mid::PlainLater => Message::PlainLater,
            Mid::GivenBack => Message::GivenBack { payload },
            Mid::Withdraw => Message::Withdraw,
            Mid::Taken => Message::Taken {
                bytes: from.u64().ok_or(Violation::ExtendedHeader)?,
            },
            Mid::Released => Message::Released,
            Mid::Starved => Message::Starved,
            Mid::Cleared => Message::Cleared,
            Mid::Recall => Message::Recall {
                bytes: word(&mut from)?,
            },
            Mid::DisConn => Message::DisConn,
            Mid::AbortConn => Message::AbortConn,
            Mid::Hello | Mid::HelloAck => return Err(Violation::Unexpected),
        };
        Ok((written.header, message))
    }
}

fn word(from: &mut Reader<'_>) -> Result<u32, Violation> {
    from.u32().ok_or(Violation::ExtendedHeader)
}

fn advert(from: &mut Reader<'_>) -> Result<Advert, Violation> {
    let advert = Advert {
        len: word(from)?,
        stag: word(from)?,
        address: from.u64().ok_or(Violation::ExtendedHeader)?,
    };
    if advert.len == 0 || advert.len > LARGEST_BUFFER {
        return Err(Violation::AdvertLength);
    }
    Ok(advert)
}

fn mode_change<'a>(from: &mut Reader<'_>) -> Result<Message<'a>, Violation> {
    let byte = from.u8().ok_or(Violation::ExtendedHeader)?;
    let half = if byte & 1 << 7 != 0 {
        Half::Send
    } else {
        Half::Receive
    };
    let mode = match byte >> 4 & 0b111 {
        0 => Mode::Buffered,
        1 => Mode::Combined,
        2 => Mode::Pipelined,
        _ => return Err(Violation::Mode),
    };
    Ok(Message::ModeChange { half, mode })
}

fn susp_comm<'a>(from: &mut Reader<'_>) -> Result<Message<'a>, Violation> {
    if from.take() != Some(SERVICE) {
        return Err(Violation::Service);
    }
    match from.u16() {
        Some(port) if port != 0 => Ok(Message::SuspComm { port }),
        _ => Err(Violation::Port),
    }
}
