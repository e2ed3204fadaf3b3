//! What two ends say to each other, in turns: the initiator acts first, then the responder. Every octet that arrives is
//! compared, and every octet round it. `tests/rdma/siw_peer.c` follows the same script: whoever changes one changes the
//! other.

use transport::iwarp::ddp::{Rights, Stag};
use transport::iwarp::mpa::setup::Role;
use transport::iwarp::rdmap::{ReadRequest, SendKind};

use super::end::{End, Ending, Registered};
use super::pattern::{UNTOUCHED, check, octets};
use super::setup::Options;

/// Octets of messages: empty, one octet, less than a word, a word, pads of all lengths, about a page, and several FPDUs.
const SIZES: [usize; 9] = [0, 1, 3, 4, 1025, 4095, 4096, 20_000, 100_000];
/// Octets of the window that the peer reads and writes; what is written is checked in its lower half.
pub const WINDOW: usize = 256 << 10;
const HALF: usize = WINDOW / 2;
/// Octets of the region that the peer may read and end.
pub const SPARE: usize = 4096;
const MAGIC: u32 = 0x5349_5731;
/// Tags of the patterns, one for each step; a turn adds 100.
const SENDS: u32 = 1000;
const WRITES: u32 = 2000;
const READS: u32 = 3000;
const BOTH: u32 = 4000;
const INVALIDATE: u32 = 5000;
const BYE: u32 = 6000;
/// Sizes of Reads that are outstanding at the same time.
const AT_ONCE: [usize; 4] = [4096, 20_000, 0, 100_000];

/// A region of the peer's.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    pub stag: Stag,
    pub base: u64,
}

/// An end that has said hello.
#[derive(Debug)]
pub struct Actor {
    pub end: End,
    role: Role,
    /// The peer is siw.
    pub siw: bool,
    seed: u32,
    window: Registered,
    spare: Registered,
    sink: Registered,
    /// The peer's regions.
    pub their_window: Remote,
    pub their_spare: Remote,
}

const READ: Rights = Rights {
    read: true,
    ..Rights::NONE
};

impl Actor {
    /// Makes regions known to each other. `first` speaks first: the initiator, or, where it has said that it is ready to
    /// receive, the responder.
    ///
    /// # Panics
    /// If the peer says anything else.
    #[must_use]
    pub fn hello(mut end: End, options: &Options, first: Role, seed: u32) -> Self {
        let role = options.role;
        let window = Rights {
            write: true,
            ..READ
        };
        let window = end.register(WINDOW, window, seed.rotate_left(7));
        let spare = Rights {
            invalidate: true,
            ..READ
        };
        let spare = end.register(SPARE, spare, seed.rotate_left(13));
        let sink = Rights {
            sink: true,
            ..Rights::NONE
        };
        let sink = end.register(WINDOW, sink, seed.rotate_left(19));
        let mut own = MAGIC.to_be_bytes().to_vec();
        for region in [window, spare] {
            own.extend(region.stag.0.to_be_bytes());
            own.extend(region.base.to_be_bytes());
        }
        if role == first {
            end.wait_for_turn();
            end.send(SendKind::default(), &own);
        }
        let said = end.receive().bytes;
        if role != first {
            end.send(SendKind::default(), &own);
        }
        assert_eq!(said.len(), own.len(), "octets of the peer's hello");
        assert_eq!(said[..4], own[..4], "the peer's hello");
        let remote = |at: usize| Remote {
            stag: Stag(u32::from_be_bytes(*said[at..].first_chunk().unwrap())),
            base: u64::from_be_bytes(*said[at + 4..].first_chunk().unwrap()),
        };
        Self {
            end,
            role,
            siw: options.siw,
            seed,
            window,
            spare,
            sink,
            their_window: remote(4),
            their_spare: remote(16),
        }
    }

    /// Where answers to Reads go: STag and tagged offset.
    #[must_use]
    pub const fn sink(&self) -> (Stag, u64) {
        (self.sink.stag, self.sink.base)
    }

    /// Everything; the connection is closed then.
    ///
    /// # Panics
    /// At the first thing that is not as it should be.
    pub fn follow(&mut self) {
        for (turn, role) in (0..).zip([Role::Initiator, Role::Responder]) {
            let acts = self.role == role;
            let tag = 100 * turn;
            self.sends(acts, SENDS + tag);
            self.writes(acts, WRITES + tag);
            self.reads(acts, READS + tag);
            self.invalidate(acts, INVALIDATE + tag);
        }
        self.both();
        self.bye();
    }

    fn pattern(&self, tag: u32, len: usize) -> Vec<u8> {
        octets(self.seed, tag, len)
    }

    /// A short Send that says how far this end is.
    fn say(&mut self, tag: u32) {
        self.end.send(SendKind::default(), &tag.to_be_bytes());
    }

    fn hear(&mut self, tag: u32) {
        check("a step", &self.end.receive().bytes, &tag.to_be_bytes());
    }

    fn sends(&mut self, acts: bool, tag: u32) {
        for (tag, len) in (tag..).zip(SIZES) {
            let bytes = self.pattern(tag, len);
            let kind = SendKind {
                solicited: tag % 2 == 1,
                invalidate: None,
            };
            if acts {
                self.end.send(kind, &bytes);
                self.hear(tag);
            } else {
                let received = self.end.receive();
                check("a Send", &received.bytes, &bytes);
                assert_eq!(received.solicited, kind.solicited, "Send {tag}");
                assert_eq!(received.invalidated, None, "Send {tag}");
                self.say(tag);
            }
        }
    }

    fn writes(&mut self, acts: bool, tag: u32) {
        for (tag, len) in (tag..).zip(SIZES) {
            let bytes = self.pattern(tag, len);
            let from = 61 + 7 * (tag % 100) as usize;
            if acts {
                self.hear(tag);
                let Remote { stag, base } = self.their_window;
                self.end.write(stag, base + from as u64, &bytes);
                self.say(tag);
            } else {
                let window = self.window;
                self.end.bytes(&window)[..HALF].fill(UNTOUCHED);
                self.say(tag);
                self.hear(tag);
                self.check_written(from, &bytes);
            }
        }
    }

    /// Nothing but these octets has been written to the lower half of the window.
    fn check_written(&mut self, from: usize, bytes: &[u8]) {
        let mut expected = vec![UNTOUCHED; HALF];
        expected[from..from + bytes.len()].copy_from_slice(bytes);
        let window = self.window;
        check("a Write", &self.end.bytes(&window)[..HALF], &expected);
    }

    fn reads(&mut self, acts: bool, tag: u32) {
        if !acts {
            let (window, bytes) = (self.window, self.pattern(tag, WINDOW));
            self.end.bytes(&window).copy_from_slice(&bytes);
            self.say(tag);
            self.hear(tag);
            return;
        }
        self.hear(tag);
        let theirs = self.pattern(tag, WINDOW);
        for (index, len) in SIZES.iter().enumerate() {
            self.read_and_check(&theirs, &[(61 + 8191 * index, 17 * index, *len)]);
        }
        let mut to = 0;
        // siw (Linux 6.12) answers an empty Read that has waited behind another one with as many octets as that one had
        // (siw_activate_tx leaves the length of the last answer where siw_qp_sq_proc_tx takes it from). That is no answer to
        // it (RFC 5040 section 5.2.1), and our end says so; nothing to be had here.
        let shortest = usize::from(self.siw);
        let at_once = AT_ONCE.map(|len| {
            let len = len.max(shortest);
            to += len + 5;
            (to + 3, to - len, len)
        });
        self.read_and_check(&theirs, &at_once);
        self.say(tag);
    }

    /// Reads from, to, so many octets of the peer's window, which has these, all at once.
    fn read_and_check(&mut self, theirs: &[u8], reads: &[(usize, usize, usize)]) {
        let sink = self.sink;
        let mut expected = vec![UNTOUCHED; WINDOW];
        self.end.bytes(&sink).fill(UNTOUCHED);
        for &(from, to, len) in reads {
            self.end.read(ReadRequest {
                sink: sink.stag,
                sink_offset: sink.base + to as u64,
                len: u32::try_from(len).unwrap(),
                source: self.their_window.stag,
                source_offset: self.their_window.base + from as u64,
            });
            expected[to..to + len].copy_from_slice(&theirs[from..from + len]);
        }
        self.end.wait_for_reads(reads.len());
        check("a Read", self.end.bytes(&sink), &expected);
    }

    /// A Send that ends the other's spare region.
    fn invalidate(&mut self, acts: bool, tag: u32) {
        let solicited = tag != INVALIDATE;
        let kind = |stag| SendKind {
            solicited,
            invalidate: Some(stag),
        };
        if acts {
            self.end
                .send(kind(self.their_spare.stag), &tag.to_be_bytes());
            self.hear(tag);
        } else {
            let received = self.end.receive();
            check(
                "a Send with Invalidate",
                &received.bytes,
                &tag.to_be_bytes(),
            );
            assert_eq!(received.invalidated, Some(self.spare.stag));
            assert_eq!(received.solicited, solicited);
            self.say(tag);
        }
    }

    /// Both at once: a Write, a Read and a Send, in both directions.
    fn both(&mut self) {
        let (own, theirs) = match self.role {
            Role::Initiator => (BOTH, BOTH + 100),
            Role::Responder => (BOTH + 100, BOTH),
        };
        let window = self.window;
        let upper = self.pattern(own, HALF);
        let (low, high) = self.end.bytes(&window).split_at_mut(HALF);
        low.fill(UNTOUCHED);
        high.copy_from_slice(&upper);
        if self.role == Role::Initiator {
            self.say(BOTH);
            self.hear(BOTH);
        } else {
            self.hear(BOTH);
            self.say(BOTH);
        }
        let (len, at) = (100_000, 9);
        let Remote { stag, base } = self.their_window;
        let written = self.pattern(own + 1, len);
        self.end.write(stag, base + at as u64, &written);
        let sink = self.sink;
        self.end.read(ReadRequest {
            sink: sink.stag,
            sink_offset: sink.base,
            len: u32::try_from(len).unwrap(),
            source: stag,
            source_offset: base + (HALF + at) as u64,
        });
        let sent = self.pattern(own + 2, 4096);
        self.end.send(SendKind::default(), &sent);
        self.end.wait_for_reads(1);
        let expected = self.pattern(theirs, HALF);
        let read = &self.end.bytes(&sink)[..len];
        check("the Read", read, &expected[at..at + len]);
        let received = self.end.receive();
        check("the Send", &received.bytes, &self.pattern(theirs + 2, 4096));
        let written = self.pattern(theirs + 1, len);
        self.check_written(at, &written);
    }

    /// The last words; then both close, and neither has anything to complain about.
    fn bye(&mut self) {
        if self.role == Role::Initiator {
            self.say(BYE);
            self.hear(BYE);
            self.end.close();
            assert_eq!(self.end.wait_for_end(), Ending::Closed);
        } else {
            self.hear(BYE);
            self.say(BYE);
            assert_eq!(self.end.wait_for_end(), Ending::Closed);
            self.end.close();
        }
    }
}
