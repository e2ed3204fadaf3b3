//! How a TCP connection becomes an iWARP stream: MPA Request and Reply (RFC 5044; enhanced: RFC 6581), with private data that
//! both ends check.

use std::io::{Read, Write};
use std::net::TcpStream;

use transport::iwarp::mpa::setup::{
    Answer, Heard, Initiator, ReadLimits, Reads, Responder, Role, Terms, Wants,
};
use transport::iwarp::mpa::startup::LARGEST;
use transport::iwarp::mpa::{RtrSet, mulpdu};

/// Private data: what the initiator says in front of the seed, and what the responder says.
const ASKS: &[u8; 8] = b"interop?";
const ANSWERS: &[u8; 8] = b"interop!";
/// Reads at a time, each way, where nothing else is said.
pub const DEPTH: u16 = 4;

/// What one end wants.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub role: Role,
    pub crc: bool,
    pub markers: bool,
    /// The enhanced set-up, which is revision 2.
    pub enhanced: bool,
    /// Kinds of "ready to receive" that it can do.
    pub rtr: RtrSet,
    /// Reads that it can do at a time, each way.
    pub depth: u16,
    /// The largest ULPDU to be sent, octets.
    pub mulpdu: usize,
    /// Reads payloads straight to their place where that can be.
    pub direct: bool,
    /// The peer is Linux's siw, some of whose errors are known.
    pub siw: bool,
}

impl Options {
    /// An end that wants CRCs and the enhanced set-up, on Ethernet.
    #[must_use]
    pub const fn new(role: Role) -> Self {
        Self {
            role,
            crc: true,
            markers: false,
            enhanced: true,
            rtr: RtrSet::NONE,
            depth: DEPTH,
            mulpdu: mulpdu(1448, false),
            direct: false,
            siw: false,
        }
    }

    const fn wants(&self) -> Wants {
        let reads = Reads {
            ird: self.depth,
            ord: self.depth,
            least_ord: 1,
            rtr: self.rtr,
        };
        Wants {
            markers: self.markers,
            crc: self.crc,
            reads: if self.enhanced { Some(reads) } else { None },
        }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub enum SetUp {
    /// The terms, and the seed of the patterns.
    Open(Terms, u32),
    /// The responder said no.
    Rejected,
    /// The peer closed the connection instead of an answer.
    Closed,
}

/// The numbers of Reads where the set-up said nothing of them.
#[must_use]
pub const fn limits() -> ReadLimits {
    ReadLimits {
        ird: DEPTH,
        ord: DEPTH,
    }
}

fn private(words: [u8; 8], seed: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&words);
    bytes[8..].copy_from_slice(&seed.to_be_bytes());
    bytes
}

/// Reads a frame, and not an octet more: what follows belongs to the new mode. `None`: the peer has closed.
fn hear<T>(tcp: &mut TcpStream, mut look: impl FnMut(&[u8]) -> Result<T, usize>) -> Option<T> {
    let mut bytes = Vec::new();
    loop {
        let need = match look(&bytes) {
            Ok(found) => return Some(found),
            Err(need) => need,
        };
        let from = bytes.len();
        bytes.resize(need, 0);
        if tcp.read_exact(&mut bytes[from..]).is_err() {
            return None;
        }
    }
}

/// Sets up a stream. `seed` is the initiator's.
///
/// # Panics
/// If the peer says anything that it must not.
pub fn set_up(tcp: &mut TcpStream, options: &Options, seed: u32) -> SetUp {
    let mut out = [0; LARGEST];
    match options.role {
        Role::Initiator => {
            let data = private(*ASKS, seed);
            let (initiator, len) = Initiator::ask(options.wants(), &data, &mut out).unwrap();
            tcp.write_all(&out[..len]).unwrap();
            let heard = hear(tcp, |bytes| match initiator.hear(bytes).unwrap() {
                Heard::Partial(need) => Err(need),
                Heard::Whole { what, private, .. } => Ok((what, private.to_vec())),
            });
            match heard {
                None => SetUp::Closed,
                Some((Answer::Rejected, _)) => SetUp::Rejected,
                Some((Answer::Accepted(terms), said)) => {
                    assert_eq!(
                        said,
                        private(*ANSWERS, seed),
                        "the responder's private data"
                    );
                    SetUp::Open(terms, seed)
                }
            }
        }
        Role::Responder => {
            let heard = hear(tcp, |bytes| match Responder::hear(bytes).unwrap() {
                Heard::Partial(need) => Err(need),
                Heard::Whole { what, private, .. } => Ok((what, private.to_vec())),
            });
            let Some((responder, said)) = heard else {
                return SetUp::Closed;
            };
            let seed = said
                .last_chunk()
                .map_or(0, |seed| u32::from_be_bytes(*seed));
            assert_eq!(said, private(*ASKS, seed), "the initiator's private data");
            let data = private(*ANSWERS, seed);
            let accepted = responder.accept(options.wants(), &data, &mut out);
            let (terms, len) = accepted.unwrap();
            tcp.write_all(&out[..len]).unwrap();
            SetUp::Open(terms, seed)
        }
    }
}
