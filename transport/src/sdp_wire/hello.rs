//! Hello and HelloAck as over iWARP: 32 and 28 bytes. They go as private data of the MPA request and reply, and
//! take no receive buffer; their message number is 0, so that of the first message behind them is 1.
//!
//! | offset behind the header | Hello | HelloAck |
//! |---|---|---|
//! | 0 | major version (upper 4 bits), minor | the same |
//! | 1 | flow control of Shunt's own, 0 without | the same |
//! | 2 | MaxAdverts, 2 bytes | MaxAdverts, 2 bytes |
//! | 4 | DesRemRcvSz, 4 bytes: wish | ActRcvSz, 4 bytes |
//! | 8 | LocalRcvSz, 4 bytes | LocORD, 2 bytes; LocIRD, 2 bytes |
//! | 12 | LocORD, 2 bytes; LocIRD, 2 bytes | |

use super::fields::{Reader, Writer};
use super::header::{HEADER, Header, Seq, Written};
use super::mid::Mid;
use super::{FEWEST_BUFFERS, LARGEST_BUFFER, Violation, buffer_size};

/// The version that is spoken here. Of minor versions the smaller one of the two holds.
pub const MAJOR: u8 = 1;
pub const MINOR: u8 = 1;

/// Bytes of a Hello.
pub const HELLO: usize = HEADER + 16;
/// Bytes of a HelloAck.
pub const HELLO_ACK: usize = HEADER + 12;

/// What each side says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Minor version.
    pub minor: u8,
    /// What this side says of flow control that is Shunt's own (`wire::window`), in a byte that SDP reserves and nobody else
    /// looks at. 0: nothing.
    pub flow: u8,
    /// Receive buffers that are posted; 3 or more.
    pub bufs: u16,
    /// Adverts that may stand towards this side at a time, those of sources and of sinks together; 1 or more.
    pub max_adverts: u16,
    /// Bytes of each receive buffer; 37 to 2^31.
    pub receive_size: u32,
    /// RDMA Reads that it may have outstanding; 1 or more.
    pub ord: u16,
    /// RDMA Reads that it answers at a time; 1 or more.
    pub ird: u16,
}

/// The first message of the side that connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    pub side: Side,
    /// Bytes that the receive buffers of the other side shall have; a wish.
    pub wanted_size: u32,
}

/// The answer of the side that accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloAck {
    pub side: Side,
}

/// Reads the header of a message that sets the connection up.
pub(super) fn opening(
    bytes: &[u8],
    mid: Mid,
    len: usize,
) -> Result<(Header, Reader<'_>), Violation> {
    let mut from = Reader::new(bytes);
    let written = Written::read(&mut from).ok_or(Violation::Short)?;
    let header = written.header;
    if Mid::from_byte(written.mid)? != mid {
        return Err(Violation::Unexpected);
    }
    if bytes.len() != len || u32::try_from(len) != Ok(written.len) {
        return Err(Violation::Length);
    }
    if written.flags & 0b11 != 0 {
        return Err(Violation::HelloFlags);
    }
    if header.number != Seq(0) {
        return Err(Violation::HelloSequence);
    }
    if header.bufs < FEWEST_BUFFERS {
        return Err(Violation::FewBuffers);
    }
    Ok((header, from))
}

/// The header of a message that sets the connection up.
pub(super) fn open<const N: usize>(mid: Mid, bufs: u16) -> Writer<N> {
    let header = Header {
        bufs,
        number: Seq(0),
        acknowledged: Seq(0),
        urgent_pending: false,
    };
    header.write(mid, 0, u32::try_from(N).unwrap_or(u32::MAX))
}

impl Hello {
    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO] {
        let s = &self.side;
        open(Mid::Hello, s.bufs)
            .put(&[MAJOR << 4 | s.minor & 0xf, s.flow])
            .put(&s.max_adverts.to_be_bytes())
            .put(&self.wanted_size.to_be_bytes())
            .put(&s.receive_size.to_be_bytes())
            .put(&s.ord.to_be_bytes())
            .put(&s.ird.to_be_bytes())
            .whole()
    }

    /// Reads and checks what a peer sent.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn decode(bytes: &[u8]) -> Result<Self, Violation> {
        let (header, mut from) = opening(bytes, Mid::Hello, HELLO)?;
        let beginning = beginning(&mut from)?;
        let wanted_size = from.u32().ok_or(Violation::ExtendedHeader)?;
        if wanted_size > LARGEST_BUFFER {
            return Err(Violation::BufferSize);
        }
        let side = end(from, header.bufs, &beginning)?;
        Ok(Self { side, wanted_size })
    }
}

impl HelloAck {
    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_ACK] {
        let s = &self.side;
        open(Mid::HelloAck, s.bufs)
            .put(&[MAJOR << 4 | s.minor & 0xf, s.flow])
            .put(&s.max_adverts.to_be_bytes())
            .put(&s.receive_size.to_be_bytes())
            .put(&s.ord.to_be_bytes())
            .put(&s.ird.to_be_bytes())
            .whole()
    }

    /// Reads and checks what a peer sent.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn decode(bytes: &[u8]) -> Result<Self, Violation> {
        let (header, mut from) = opening(bytes, Mid::HelloAck, HELLO_ACK)?;
        let beginning = beginning(&mut from)?;
        let side = end(from, header.bufs, &beginning)?;
        Ok(Self { side })
    }
}

/// What both messages begin with.
struct Beginning {
    minor: u8,
    flow: u8,
    max_adverts: u16,
}

fn beginning(from: &mut Reader<'_>) -> Result<Beginning, Violation> {
    let version = from.u8().ok_or(Violation::ExtendedHeader)?;
    if version >> 4 != MAJOR {
        return Err(Violation::Version);
    }
    let flow = from.u8().ok_or(Violation::ExtendedHeader)?;
    match from.u16() {
        Some(0) => Err(Violation::MaxAdverts),
        Some(max_adverts) => Ok(Beginning {
            minor: version & 0xf,
            flow,
            max_adverts,
        }),
        None => Err(Violation::ExtendedHeader),
    }
}

/// What both messages end with.
fn end(mut from: Reader<'_>, bufs: u16, beginning: &Beginning) -> Result<Side, Violation> {
    let receive_size = buffer_size(from.u32().ok_or(Violation::ExtendedHeader)?)?;
    let ord = from.u16().ok_or(Violation::ExtendedHeader)?;
    let ird = from.u16().ok_or(Violation::ExtendedHeader)?;
    if ord == 0 {
        return Err(Violation::Ord);
    }
    if ird == 0 {
        return Err(Violation::Ird);
    }
    Ok(Side {
        minor: beginning.minor,
        flow: beginning.flow,
        bufs,
        max_adverts: beginning.max_adverts,
        receive_size,
        ord,
        ird,
    })
}
