//! The frames that set a connection up: MPA Request and Reply (enhanced, RFC 6581) with SDP's Hello and HelloAck as
//! their private data. Pure; whoever calls reads and writes the connection.
//!
//! The initiator always sends a "ready to receive" (an RDMA Write of nothing), so that either side of the stream may
//! speak first. Markers are not asked for: nothing here needs them to find its way. A request without a Hello that
//! holds is declined with the reject bit, and so is one by a program that has spoken already. Each side's Hello says what it
//! knows of packetized directions (`window`).

use super::adverts::READS;
use super::window::Flow;
use super::{Agreed, RECEIVE_SIZE, Windows};
use crate::iwarp::NoRoom;
use crate::iwarp::mpa::setup::{self, Answer, Fault, Heard, Initiator, Reads, Responder, Wants};
use crate::iwarp::mpa::startup::LARGEST;
use crate::iwarp::mpa::{Malformed, Rtr, RtrSet};
use crate::sdp_wire::hello::{Hello, HelloAck, MINOR, Side};
use flowctl::{Scheme, Terms};

/// Octets of the longest frame.
pub const LONGEST: usize = LARGEST;

/// Messages under way that nobody counts: where no slots are kept, the connection itself is the limit.
pub(super) const MANY: u16 = 32_768;
/// Slots are at least so many, of so many bytes.
const FEWEST: u16 = 4;
const SMALLEST: u32 = 256;

/// What this side wants.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// CRCs in both directions.
    pub crc: bool,
    /// Receive buffers: bytes of each, and how many. With few of them they are the flow control.
    pub buffers: (u32, u16),
    /// From how many bytes on this side advertises its buffers, if it does.
    pub adverts: Option<usize>,
    /// What is packetized.
    pub flow: Flow,
}

impl Want {
    /// By these settings.
    #[must_use]
    pub fn new(terms: &Terms, crc: bool, adverts: Option<usize>) -> Self {
        let buffers = if terms.scheme == Scheme::Credit {
            let size = terms.slot;
            let count = u16::try_from(terms.slots).unwrap_or(u16::MAX);
            (size.clamp(SMALLEST, RECEIVE_SIZE), count.max(FEWEST))
        } else {
            (RECEIVE_SIZE, MANY)
        };
        Self {
            crc,
            buffers,
            adverts,
            flow: Flow::new(terms),
        }
    }

    /// The same, facing a side that says this of itself: who is asked by one that keeps slots keeps as many, by any other none.
    fn facing(mut self, peer: &Side) -> Self {
        let said = Flow::read(peer.flow);
        self.flow.answers = said.is_some();
        self.buffers = match said {
            Some((false, _)) if peer.bufs < MANY => {
                let size = peer.receive_size.clamp(SMALLEST, RECEIVE_SIZE);
                (size, peer.bufs.max(FEWEST))
            }
            _ => (RECEIVE_SIZE, MANY),
        };
        self
    }

    fn agreed(&self, mpa: setup::Terms, peer: &Side) -> Agreed {
        let (sends, receives) = self.flow.agreed(peer.flow);
        // (slots are credit's flow control, and count whatever else is said)
        let sends = sends.filter(|_| peer.bufs >= MANY);
        let receives = receives.filter(|_| self.buffers.1 >= MANY);
        let knows = Flow::read(peer.flow).is_some() && self.flow.byte() != 0; // (each of the other)
        Agreed {
            mpa,
            own: self.buffers,
            adverts: self.adverts,
            peer: (peer.receive_size, peer.bufs),
            windows: Windows {
                sends: sends.map(|window| (window, self.flow.own)),
                receives,
                keeps: self.buffers.1 < MANY && knows,
                slots: peer.bufs < MANY,
                releases: peer.bufs < MANY && knows,
            },
        }
    }

    const fn mpa(&self) -> Wants {
        Wants {
            markers: false,
            crc: self.crc,
            reads: Some(Reads {
                ird: READS,
                ord: READS,
                least_ord: 0,
                rtr: RtrSet::only(Rtr::Write),
            }),
        }
    }

    fn side(&self) -> Side {
        Side {
            minor: MINOR,
            flow: self.flow.byte(),
            bufs: self.buffers.1,
            max_adverts: 2, // (one of a source, one of a sink)
            receive_size: self.buffers.0,
            ord: READS,
            ird: READS,
        }
    }
}

/// What has come of what the other side sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Not everything yet.
    Partial,
    /// Both go on in RDMA mode, behind so many octets.
    Agreed(Agreed, usize),
    /// Both go on with plain bytes, behind so many octets.
    Declined(usize),
    /// No answer at all: these are plain bytes, from the first on.
    Foreign,
}

/// The side that asks, waiting.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    initiator: Initiator,
    want: Want,
}

impl Asker {
    /// Writes the request; returns how many octets it has.
    ///
    /// # Errors
    /// [`NoRoom`] if `out` is shorter than [`LONGEST`].
    pub fn ask(want: Want, out: &mut [u8]) -> Result<(Self, usize), NoRoom> {
        let hello = Hello {
            side: want.side(),
            wanted_size: RECEIVE_SIZE,
        };
        let (initiator, len) = Initiator::ask(want.mpa(), &hello.encode(), out)?;
        Ok((Self { initiator, want }, len))
    }

    /// Looks at what has come since.
    #[must_use]
    pub fn hear(&self, bytes: &[u8]) -> Reply {
        match self.initiator.hear(bytes) {
            Ok(Heard::Partial(_)) => Reply::Partial,
            Ok(Heard::Whole {
                what: Answer::Rejected,
                used,
                ..
            }) => Reply::Declined(used),
            Ok(Heard::Whole {
                what: Answer::Accepted(mpa),
                private,
                used,
            }) => match HelloAck::decode(private) {
                Ok(HelloAck { side }) => Reply::Agreed(self.want.agreed(mpa, &side), used),
                // It is in RDMA mode, and speaks something else there: nothing can follow.
                Err(_) => Reply::Foreign,
            },
            Err(_) => crossed(bytes),
        }
    }
}

/// A request in place of an answer: both have connected to each other at once, and each declines so what the other has asked.
fn crossed(bytes: &[u8]) -> Reply {
    match Responder::hear(bytes) {
        Ok(Heard::Partial(_)) => Reply::Partial,
        Ok(Heard::Whole { used, .. }) => Reply::Declined(used),
        Err(_) => Reply::Foreign,
    }
}

/// What the side that was asked says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not everything has come yet; whatever it is, it is no request yet that could be answered.
    Partial,
    /// Send the frame; both go on in RDMA mode. So many octets were the request.
    Agreed {
        agreed: Agreed,
        used: usize,
        reply: usize,
    },
    /// Send the frame; both go on with plain bytes.
    Declined { used: usize, reply: usize },
    /// No request: plain bytes, from the first on.
    Foreign,
}

/// Looks at what has come to a side that may be asked, and writes the answer to `out` ([`LONGEST`]). With `declines`
/// a request is declined whatever it says.
#[must_use]
pub fn answer(bytes: &[u8], want: Want, declines: bool, out: &mut [u8]) -> Verdict {
    let (responder, private, used) = match Responder::hear(bytes) {
        Ok(Heard::Partial(_)) => return Verdict::Partial,
        Ok(Heard::Whole {
            what,
            private,
            used,
        }) => (what, private, used),
        Err(Fault::Malformed(Malformed::Key)) => return Verdict::Foreign,
        Err(_) => return Verdict::Foreign,
    };
    if !declines
        && let Ok(hello) = Hello::decode(private)
        && let want = want.facing(&hello.side)
        && let ack = (HelloAck { side: want.side() }).encode()
        && let Ok((mpa, reply)) = responder.accept(want.mpa(), &ack, out)
        && mpa.rtr.is_some()
    {
        let agreed = want.agreed(mpa, &hello.side);
        return Verdict::Agreed {
            agreed,
            used,
            reply,
        };
    }
    match responder.reject(want.mpa(), &[], out) {
        Ok(reply) => Verdict::Declined { used, reply },
        Err(NoRoom) => Verdict::Foreign,
    }
}
