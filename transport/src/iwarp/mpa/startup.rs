//! The two frames of the set-up: MPA Request and MPA Reply (RFC 5044 section 7.1.1), revision 1, and revision 2 with the
//! numbers of RDMA Reads and the kinds of "ready to receive" in front of the private data (RFC 6581). Neither has CRC or
//! markers. This file owns the format; [`setup`](super::setup) owns what follows from it.

use crate::iwarp::NoRoom;

/// Octets of a frame without private data.
pub const HEADER: usize = 20;
/// The most private data, octets; with [`Depths`] in front four less are the upper layer's.
pub const MOST_PRIVATE: usize = 512;
/// The most octets of a frame.
pub const LARGEST: usize = HEADER + MOST_PRIVATE;
/// A number of Reads that says: the upper layers agree on it themselves (RFC 6581).
pub const BY_UPPER_LAYER: u16 = 0x3fff;

const KEY: usize = 16;
const REQUEST: [u8; KEY] = *b"MPA ID Req Frame";
const REPLY: [u8; KEY] = *b"MPA ID Rep Frame";
const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;
const DEPTHS: usize = 4;
const PEER_TO_PEER: u16 = 0x8000;
const RTR_FPDU: u16 = 0x4000;
const RTR_WRITE: u16 = 0x8000;
const RTR_READ: u16 = 0x4000;

/// Which of the two frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Request,
    Reply,
}

impl Kind {
    const fn key(self) -> &'static [u8; KEY] {
        match self {
            Self::Request => &REQUEST,
            Self::Reply => &REPLY,
        }
    }
}

/// What an initiator sends first, with nothing to say yet, so that the responder may send (RFC 6581, "RTR").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rtr {
    /// An FPDU without a ULPDU.
    Fpdu,
    /// An RDMA Write of no octets.
    Write,
    /// An RDMA Read of no octets.
    Read,
}

/// Some of the kinds of [`Rtr`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RtrSet {
    pub fpdu: bool,
    pub write: bool,
    pub read: bool,
}

impl RtrSet {
    /// None: the initiator has something to say, and says it first.
    pub const NONE: Self = Self {
        fpdu: false,
        write: false,
        read: false,
    };

    /// One kind only.
    #[must_use]
    pub const fn only(kind: Rtr) -> Self {
        Self {
            fpdu: matches!(kind, Rtr::Fpdu),
            write: matches!(kind, Rtr::Write),
            read: matches!(kind, Rtr::Read),
        }
    }

    /// What is in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            fpdu: self.fpdu && other.fpdu,
            write: self.write && other.write,
            read: self.read && other.read,
        }
    }

    /// The kind to be used: the Write if it is there, since it costs neither end anything.
    #[must_use]
    pub const fn choose(self) -> Option<Rtr> {
        match self {
            Self { write: true, .. } => Some(Rtr::Write),
            Self { read: true, .. } => Some(Rtr::Read),
            Self { fpdu: true, .. } => Some(Rtr::Fpdu),
            _ => None,
        }
    }
}

/// What the enhanced set-up adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depths {
    /// Reads that the sender of the frame answers at a time, or [`BY_UPPER_LAYER`].
    pub ird: u16,
    /// Reads that it wants to have outstanding, or [`BY_UPPER_LAYER`].
    pub ord: u16,
    /// A "ready to receive" is wanted: either side may speak first above.
    pub peer_to_peer: bool,
    /// Its kinds.
    pub rtr: RtrSet,
}

impl Depths {
    fn write(self) -> [u8; DEPTHS] {
        let flag = |yes: bool, flag: u16| if yes { flag } else { 0 };
        let ird = self.ird & BY_UPPER_LAYER
            | flag(self.peer_to_peer, PEER_TO_PEER)
            | flag(self.rtr.fpdu, RTR_FPDU);
        let ord = self.ord & BY_UPPER_LAYER
            | flag(self.rtr.write, RTR_WRITE)
            | flag(self.rtr.read, RTR_READ);
        let ([a, b], [c, d]) = (ird.to_be_bytes(), ord.to_be_bytes());
        [a, b, c, d]
    }

    const fn read([a, b, c, d]: [u8; DEPTHS]) -> Self {
        let (ird, ord) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Self {
            ird: ird & BY_UPPER_LAYER,
            ord: ord & BY_UPPER_LAYER,
            peer_to_peer: ird & PEER_TO_PEER != 0,
            rtr: RtrSet {
                fpdu: ird & RTR_FPDU != 0,
                write: ord & RTR_WRITE != 0,
                read: ord & RTR_READ != 0,
            },
        }
    }
}

/// Not a frame, or none that this end can go on with: the TCP connection is to be closed, or, if MPA was only tried, what came
/// is somebody's plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The key is not the one of an MPA frame: the first octet that differs decides.
    Key,
    /// The peer believes to be in the same role.
    Role,
    /// A revision that this end does not speak.
    Revision(u8),
    /// More than [`MOST_PRIVATE`] octets.
    TooLong(u16),
    /// Enhanced, and too short for it.
    TooShort,
}

/// A frame as it stands on the wire. One that was read is the peer's word; the format has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub kind: Kind,
    /// Its sender wants markers in what it receives.
    pub markers: bool,
    /// Its sender wants CRCs.
    pub crc: bool,
    /// Reply only: declined.
    pub reject: bool,
    /// 1 or 2.
    pub revision: u8,
    /// Revision 2 only.
    pub depths: Option<Depths>,
    /// The upper layer's private data.
    pub private: &'a [u8],
}

/// What a look at the stream found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read<'a> {
    /// So far it may be a frame; it takes at least this many octets, those seen included.
    Partial(usize),
    /// A frame, and its octets in the stream.
    Whole(Frame<'a>, usize),
}

impl<'a> Frame<'a> {
    /// Reads a frame of this kind from the front of `bytes`.
    ///
    /// # Errors
    /// See [`Malformed`].
    pub fn read(kind: Kind, bytes: &'a [u8]) -> Result<Read<'a>, Malformed> {
        let seen = bytes.get(..KEY).unwrap_or(bytes);
        if !kind.key().starts_with(seen) {
            let other = match kind {
                Kind::Request => &REPLY,
                Kind::Reply => &REQUEST,
            };
            return Err(if seen == other {
                Malformed::Role
            } else {
                Malformed::Key
            });
        }
        let Some(([.., flags, revision, high, low], rest)) = bytes.split_first_chunk::<HEADER>()
        else {
            return Ok(Read::Partial(HEADER));
        };
        if !(1..=2).contains(revision) {
            return Err(Malformed::Revision(*revision));
        }
        let length = u16::from_be_bytes([*high, *low]);
        let len = usize::from(length);
        if len > MOST_PRIVATE {
            return Err(Malformed::TooLong(length));
        }
        let enhanced = *revision == 2 && flags & ENHANCED != 0;
        if enhanced && len < DEPTHS {
            return Err(Malformed::TooShort);
        }
        let Some(mut private) = rest.get(..len) else {
            return Ok(Read::Partial(HEADER + len));
        };
        let mut depths = None;
        if enhanced && let Some((words, rest)) = private.split_first_chunk::<DEPTHS>() {
            (depths, private) = (Some(Depths::read(*words)), rest);
        }
        let frame = Self {
            kind,
            markers: flags & MARKERS != 0,
            crc: flags & CRC != 0,
            reject: kind == Kind::Reply && flags & REJECT != 0,
            revision: *revision,
            depths,
            private,
        };
        Ok(Read::Whole(frame, HEADER + len))
    }

    /// Octets on the wire.
    #[must_use]
    pub const fn len(&self) -> usize {
        let depths = if self.depths.is_some() { DEPTHS } else { 0 };
        HEADER + depths + self.private.len()
    }

    /// Never.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes it to the beginning of `out`; returns how many octets.
    ///
    /// # Errors
    /// [`NoRoom`] if `out` is too short or there is too much private data.
    pub fn write(&self, out: &mut [u8]) -> Result<usize, NoRoom> {
        let total = self.len();
        let out = out.get_mut(..total).ok_or(NoRoom)?;
        if total > LARGEST {
            return Err(NoRoom);
        }
        let flag = |yes: bool, flag: u8| if yes { flag } else { 0 };
        let flags = flag(self.markers, MARKERS)
            | flag(self.crc, CRC)
            | flag(self.reject, REJECT)
            | flag(self.depths.is_some(), ENHANCED);
        let length = u16::try_from(total - HEADER).map_err(|_| NoRoom)?;
        let (header, mut rest) = out.split_first_chunk_mut::<HEADER>().ok_or(NoRoom)?;
        let (key, tail) = header.split_first_chunk_mut::<KEY>().ok_or(NoRoom)?;
        let [high, low] = length.to_be_bytes();
        *key = *self.kind.key();
        tail.copy_from_slice(&[flags, self.revision, high, low]);
        if let Some(depths) = self.depths {
            let (words, after) = rest.split_first_chunk_mut::<DEPTHS>().ok_or(NoRoom)?;
            *words = depths.write();
            rest = after;
        }
        rest.copy_from_slice(self.private);
        Ok(total)
    }
}
