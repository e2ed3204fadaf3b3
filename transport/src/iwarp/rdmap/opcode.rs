//! The control octet of RDMAP: version and operation (RFC 5040 section 4.1).

use super::queue;
use crate::iwarp::ddp::Stag;

const VERSION: u8 = 1;
const VERSION_SHIFT: u8 = 6;
const OPCODE: u8 = 0x0f;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    Write,
    ReadRequest,
    ReadResponse,
    Send { solicited: bool, invalidate: bool },
    Terminate,
}

/// Why a control octet cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    Version,
    Opcode,
}

impl Opcode {
    /// Reads a control octet. Reserved bits are not looked at.
    pub(super) const fn read(control: u8) -> Result<Self, Unknown> {
        if control >> VERSION_SHIFT != VERSION {
            return Err(Unknown::Version);
        }
        Ok(match control & OPCODE {
            0 => Self::Write,
            1 => Self::ReadRequest,
            2 => Self::ReadResponse,
            3 => Self::send(false, false),
            4 => Self::send(false, true),
            5 => Self::send(true, false),
            6 => Self::send(true, true),
            7 => Self::Terminate,
            _ => return Err(Unknown::Opcode),
        })
    }

    const fn send(solicited: bool, invalidate: bool) -> Self {
        Self::Send {
            solicited,
            invalidate,
        }
    }

    /// The control octet.
    #[must_use]
    pub const fn control(self) -> u8 {
        let opcode = match self {
            Self::Write => 0,
            Self::ReadRequest => 1,
            Self::ReadResponse => 2,
            Self::Send {
                solicited,
                invalidate,
            } => 3 + if solicited { 2 } else { 0 } + if invalidate { 1 } else { 0 },
            Self::Terminate => 7,
        };
        VERSION << VERSION_SHIFT | opcode
    }

    /// The queue of its messages; `None`: tagged.
    #[must_use]
    pub const fn queue(self) -> Option<u32> {
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::Send { .. } => Some(queue::SEND),
            Self::ReadRequest => Some(queue::READ),
            Self::Terminate => Some(queue::TERMINATE),
        }
    }
}

/// The four kinds of Send (RFC 5040 section 5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendKind {
    /// The receiver may wake somebody for it ("Solicited Event").
    pub solicited: bool,
    /// A region of the receiver that ends with it.
    pub invalidate: Option<Stag>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets() {
        for octet in 0..=u8::MAX {
            match Opcode::read(octet) {
                Ok(opcode) => assert_eq!(opcode.control(), octet & 0xcf),
                Err(Unknown::Version) => assert_ne!(octet >> 6, 1),
                Err(Unknown::Opcode) => assert!(octet >> 6 == 1 && octet & 0xf > 7),
            }
        }
    }
}
