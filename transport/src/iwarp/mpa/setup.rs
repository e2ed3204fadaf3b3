//! How a connection gets into RDMA mode: the initiator asks, the responder answers, and from then on both directions carry
//! FPDUs. Who is which is agreed elsewhere; it need not be who connected.
//!
//! ```text
//! Initiator::ask ── Request ──► Responder::hear ──► accept ── Reply ──► Initiator::hear: Accepted
//!                                              └──► reject ── Reply ──► Initiator::hear: Rejected
//! ```
//!
//! After a rejection both ends go on with plain bytes on the same connection (RFC 5044 section 7.1.2). After a
//! [`Fault`] the connection is to be closed, with one exception that is the upper layer's to make: octets that are not
//! a frame at all ([`Malformed::Key`]) may be plain bytes of a peer that does not speak MPA. Waiting for a frame needs a
//! time-out, which is the caller's.

use super::startup::{BY_UPPER_LAYER, Depths, Frame, Kind, Malformed, Read, Rtr, RtrSet};
use crate::iwarp::NoRoom;

/// What one end wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wants {
    /// Markers in what it receives.
    pub markers: bool,
    /// CRCs, in both directions. Only an operator's wish is a reason to go without (RFC 5044 section 4.4).
    pub crc: bool,
    /// The enhanced set-up; without it the upper layers agree on the numbers of Reads.
    pub reads: Option<Reads>,
}

/// What one end wants of the enhanced set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    /// Reads that it answers at a time.
    pub ird: u16,
    /// Reads that it would have outstanding.
    pub ord: u16,
    /// The fewest of them that it can do with.
    pub least_ord: u16,
    /// Kinds of "ready to receive" that it can send or take. An initiator that gives none speaks first.
    pub rtr: RtrSet,
}

/// How many Reads one end has to do with at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// Of the peer's, which it answers.
    pub ird: u16,
    /// Of its own, which it waits for.
    pub ord: u16,
}

/// What both ends have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    pub role: Role,
    /// Markers in what this end sends, and in what it receives.
    pub send_markers: bool,
    pub receive_markers: bool,
    pub crc: bool,
    /// If that was agreed here.
    pub reads: Option<ReadLimits>,
    /// What the initiator sends before anything else.
    pub rtr: Option<Rtr>,
}

/// Which end of the set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Initiator,
    Responder,
}

/// Why there is no RDMA mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// RFC 5044 section 8, code 4.
    Malformed(Malformed),
    /// The Reply is of another revision than the Request, or lacks what that asked for: code 4.
    Mismatch,
    /// Too few Reads for one of both: RFC 6581, code 6.
    InsufficientIrd,
    /// No kind of "ready to receive" that both have: RFC 6581, code 7.
    NoMatchingRtr,
    /// The buffer for the answer is too short, or there is too much private data.
    NoRoom,
}

impl From<Malformed> for Fault {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<NoRoom> for Fault {
    fn from(_: NoRoom) -> Self {
        Self::NoRoom
    }
}

/// The end that asks, waiting for the answer.
#[derive(Clone, Copy, Debug)]
pub struct Initiator {
    wants: Wants,
}

/// What the initiator hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard<'b, T> {
    /// Not everything yet: it takes at least this many octets, those seen included.
    Partial(usize),
    /// A frame, its private data, and its octets in the stream; what follows belongs to the new mode.
    Whole {
        what: T,
        private: &'b [u8],
        used: usize,
    },
}

/// What the responder said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Accepted(Terms),
    Rejected,
}

impl Initiator {
    /// Writes the Request to `out`; returns how many octets.
    ///
    /// # Errors
    /// [`NoRoom`] if `out` is too short or there is too much private data.
    pub fn ask(wants: Wants, private: &[u8], out: &mut [u8]) -> Result<(Self, usize), NoRoom> {
        let frame = Frame {
            kind: Kind::Request,
            markers: wants.markers,
            crc: wants.crc,
            reject: false,
            revision: wants.revision(),
            depths: wants.reads.map(|reads| Depths {
                ird: reads.ird,
                ord: reads.ord,
                peer_to_peer: reads.rtr != RtrSet::NONE,
                rtr: reads.rtr,
            }),
            private,
        };
        let len = frame.write(out)?;
        Ok((Self { wants }, len))
    }

    /// Looks at what has arrived since the Request.
    ///
    /// # Errors
    /// See [`Fault`].
    pub fn hear<'b>(&self, bytes: &'b [u8]) -> Result<Heard<'b, Answer>, Fault> {
        let (frame, used) = match Frame::read(Kind::Reply, bytes)? {
            Read::Partial(need) => return Ok(Heard::Partial(need)),
            Read::Whole(frame, used) => (frame, used),
        };
        let what = if frame.reject {
            Answer::Rejected
        } else {
            Answer::Accepted(self.agree(&frame)?)
        };
        let private = frame.private;
        Ok(Heard::Whole {
            what,
            private,
            used,
        })
    }

    fn agree(&self, reply: &Frame<'_>) -> Result<Terms, Fault> {
        if reply.revision != self.wants.revision() {
            return Err(Fault::Mismatch);
        }
        let (mut limits, mut rtr) = (None, None);
        if let Some(own) = self.wants.reads {
            let peer = reply.depths.ok_or(Fault::Mismatch)?;
            let agreed = own.limits(peer)?;
            limits = Some(agreed);
            if peer.ord != BY_UPPER_LAYER && peer.ord > own.ird {
                return Err(Fault::InsufficientIrd);
            }
            if own.rtr != RtrSet::NONE {
                if !peer.peer_to_peer {
                    return Err(Fault::NoMatchingRtr);
                }
                rtr = Some(own.kind(peer.rtr, agreed.ord)?);
            }
        }
        Ok(Terms {
            role: Role::Initiator,
            send_markers: reply.markers,
            receive_markers: self.wants.markers,
            crc: self.wants.crc || reply.crc,
            reads: limits,
            rtr,
        })
    }
}

/// The end that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Responder {
    markers: bool,
    crc: bool,
    revision: u8,
    depths: Option<Depths>,
}

impl Responder {
    /// Looks at what has arrived.
    ///
    /// # Errors
    /// [`Fault::Malformed`].
    pub fn hear(bytes: &[u8]) -> Result<Heard<'_, Self>, Fault> {
        match Frame::read(Kind::Request, bytes)? {
            Read::Partial(need) => Ok(Heard::Partial(need)),
            Read::Whole(frame, used) => Ok(Heard::Whole {
                what: Self {
                    markers: frame.markers,
                    crc: frame.crc,
                    revision: frame.revision,
                    depths: frame.depths,
                },
                private: frame.private,
                used,
            }),
        }
    }

    /// Says yes: writes the Reply to `out`. This end takes FPDUs from now on, and sends none before it has received one
    /// (the stream sees to that).
    ///
    /// # Errors
    /// [`Fault::InsufficientIrd`] or [`Fault::NoMatchingRtr`] if the ends do not fit together: say no instead.
    /// [`Fault::NoRoom`].
    pub fn accept(
        &self,
        wants: Wants,
        private: &[u8],
        out: &mut [u8],
    ) -> Result<(Terms, usize), Fault> {
        let (mut limits, mut rtr, mut depths) = (None, None, None);
        if let Some(peer) = self.depths {
            // Who asks for the enhanced set-up gets it; an end with no numbers of its own takes the peer's.
            let own = wants.reads.unwrap_or(Reads {
                ird: BY_UPPER_LAYER,
                ord: BY_UPPER_LAYER,
                least_ord: 0,
                rtr: RtrSet::NONE,
            });
            let agreed = own.limits(peer)?;
            limits = wants.reads.map(|_| agreed);
            if peer.peer_to_peer {
                rtr = Some(own.kind(peer.rtr, agreed.ird)?);
            }
            depths = Some(Depths {
                ird: agreed.ird,
                ord: agreed.ord,
                peer_to_peer: rtr.is_some(),
                rtr: rtr.map_or(RtrSet::NONE, RtrSet::only),
            });
        }
        let len = self.reply(wants, depths, false, private).write(out)?;
        let terms = Terms {
            role: Role::Responder,
            send_markers: self.markers,
            receive_markers: wants.markers,
            crc: wants.crc || self.crc,
            reads: limits,
            rtr,
        };
        Ok((terms, len))
    }

    /// Says no: writes the Reply to `out`; both go on with plain bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if `out` is too short or there is too much private data.
    pub fn reject(&self, wants: Wants, private: &[u8], out: &mut [u8]) -> Result<usize, NoRoom> {
        let depths = self.depths.map(|_| Depths {
            ird: wants.reads.map_or(0, |own| own.ird),
            ord: wants.reads.map_or(0, |own| own.ord),
            peer_to_peer: false,
            rtr: RtrSet::NONE,
        });
        self.reply(wants, depths, true, private).write(out)
    }

    const fn reply<'a>(
        &self,
        wants: Wants,
        depths: Option<Depths>,
        reject: bool,
        private: &'a [u8],
    ) -> Frame<'a> {
        Frame {
            kind: Kind::Reply,
            markers: wants.markers,
            crc: wants.crc || self.crc,
            reject,
            revision: self.revision,
            depths,
            private,
        }
    }
}

impl Wants {
    const fn revision(&self) -> u8 {
        if self.reads.is_some() { 2 } else { 1 }
    }
}

impl Reads {
    /// The limits of this end against what the peer said of its own: neither end asks for more than the other answers.
    fn limits(self, peer: Depths) -> Result<ReadLimits, Fault> {
        let fitting = |own: u16, peer: u16| {
            if peer == BY_UPPER_LAYER {
                own
            } else {
                own.min(peer)
            }
        };
        let ord = fitting(self.ord, peer.ird);
        if ord < self.least_ord {
            return Err(Fault::InsufficientIrd);
        }
        let ird = fitting(self.ird, peer.ord);
        Ok(ReadLimits { ird, ord })
    }

    /// The kind of "ready to receive", where the initiator may have so many Reads outstanding.
    fn kind(self, peer: RtrSet, initiators_ord: u16) -> Result<Rtr, Fault> {
        let mut both = self.rtr.and(peer);
        both.read &= initiators_ord > 0;
        both.choose().ok_or(Fault::NoMatchingRtr)
    }
}
