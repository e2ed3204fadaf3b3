//! One end of a stream with memory, for tests: does what the layer above would do.

use crate::iwarp::ddp::{Message, Region, Regions, Rights, Segment, Stag, StreamId};
use crate::iwarp::mpa::setup::Role;
use crate::iwarp::mpa::{Deframer, Framer, Inbox, Markers, Parts, Rtr};
use crate::iwarp::rdmap::{
    Breach, Event, Foreseen, ReadRequest, SendKind, Settings, Stream, TaggedKind, Terminate,
};

/// What a connection is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Towards the initiator, towards the responder.
    pub markers: [bool; 2],
    pub crc: bool,
    pub mulpdu: usize,
    pub depth: u16,
    pub rtr: Option<Rtr>,
}

pub(super) const PLAIN: Line = Line {
    markers: [false; 2],
    crc: true,
    mulpdu: 1442,
    depth: 2,
    rtr: None,
};

pub(super) const ID: StreamId = StreamId(5);
pub(super) const BUFFER: u32 = 4096;
pub(super) const ALL: Rights = Rights {
    read: true,
    write: true,
    sink: true,
    invalidate: true,
};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub bytes: Vec<u8>,
    pub solicited: bool,
    pub invalidated: Option<Stag>,
}

pub(super) struct End {
    pub stream: Stream,
    pub regions: Regions<usize>,
    pub memory: Vec<Vec<u8>>,
    pub sends: Vec<Received>,
    pub reads_done: Vec<ReadRequest>,
    pub breach: Option<Breach>,
    pub terminated: Option<Option<Terminate>>,
    /// What is to be sent.
    pub out: Vec<u8>,
    part: Vec<u8>,
    framer: Framer,
    inbox: Inbox,
    mulpdu: usize,
    /// Answers Reads by itself.
    pub answers: bool,
    /// Reads payloads straight to their place where that can be.
    pub direct: bool,
    /// Where, and how many octets of it are there.
    target: Option<(Foreseen<usize>, usize)>,
    pub bypassed: usize,
}

impl End {
    pub(super) fn new(role: Role, line: Line) -> Self {
        let [to_initiator, to_responder] = line.markers.map(Markers::wanted);
        let (sent, received) = match role {
            Role::Initiator => (to_responder, to_initiator),
            Role::Responder => (to_initiator, to_responder),
        };
        Self {
            stream: Stream::new(&Settings {
                id: ID,
                role,
                ird: line.depth,
                ord: line.depth,
                rtr: line.rtr,
                receive_size: BUFFER,
                receive_buffers: 3,
            }),
            regions: Regions::new(16),
            memory: Vec::new(),
            sends: Vec::new(),
            reads_done: Vec::new(),
            breach: None,
            terminated: None,
            out: Vec::new(),
            part: Vec::new(),
            framer: Framer::new(sent, line.crc),
            inbox: Inbox::new(Deframer::new(received, line.crc), 0),
            mulpdu: line.mulpdu,
            answers: true,
            direct: false,
            target: None,
            bypassed: 0,
        }
    }

    /// A region at `base` with these octets.
    pub(super) fn register(
        &mut self,
        bytes: Vec<u8>,
        base: u64,
        rights: Rights,
        random: u32,
    ) -> Stag {
        let region = Region {
            stream: ID,
            base,
            len: bytes.len() as u64,
            rights,
            memory: self.memory.len(),
        };
        self.memory.push(bytes);
        self.regions.register(region, random).unwrap()
    }

    pub(super) fn put(&mut self, segment: &Segment, payload: &[u8]) {
        let payload = &payload[segment.from as usize..][..segment.len as usize];
        let head = segment.head.bytes();
        let at = self.out.len();
        self.out
            .resize(at + self.framer.wire_len(head.len() + payload.len()), 0);
        let (len, out) = (payload.len(), &mut self.out[at..]);
        self.framer
            .frame(head, &mut Parts::one(payload), len, out)
            .unwrap();
    }

    pub(super) fn put_all(&mut self, mut message: Message, payload: &[u8]) {
        while let Some(segment) = message.segment(self.mulpdu) {
            assert!(segment.head.bytes().len() + segment.len as usize <= self.mulpdu);
            self.put(&segment, payload);
        }
    }

    pub(super) fn send(&mut self, kind: SendKind, payload: &[u8]) {
        let message = self.stream.send(kind, payload.len() as u32).unwrap();
        self.put_all(message, payload);
    }

    pub(super) fn write(&mut self, stag: Stag, offset: u64, payload: &[u8]) {
        let message = self
            .stream
            .write(stag, offset, payload.len() as u32)
            .unwrap();
        self.put_all(message, payload);
    }

    pub(super) fn read(&mut self, request: ReadRequest) {
        let segment = self.stream.read(request).unwrap();
        self.put(&segment, &[]);
    }

    /// Octets of the stream have come.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        loop {
            let straight = bytes.len().min(self.inbox.left());
            if straight > 0 {
                self.put_in_place(&bytes[..straight]);
                self.inbox.placed(&bytes[..straight]);
            }
            bytes = &bytes[straight..];
            let taken = self.inbox.put(bytes);
            bytes = &bytes[taken..];
            while self.step() {
                if self.answers {
                    self.answer();
                }
            }
            if self.direct {
                self.go_round();
            }
            if bytes.is_empty() {
                return;
            }
            assert!(straight + taken > 0 || self.breach.is_some());
            if self.breach.is_some() {
                return;
            }
        }
    }

    /// Lets the rest of a payload go round the inbox.
    fn go_round(&mut self) {
        let Some((front, len)) = self.inbox.partial() else {
            return;
        };
        let Some((foreseen, header)) = self.stream.foresee(front, len, &self.regions) else {
            return;
        };
        let arrived = front[header..].to_vec();
        self.target = Some((foreseen, 0));
        self.put_in_place(&arrived);
        assert_eq!(
            self.inbox.bypass(header),
            Some(len - header - arrived.len())
        );
        assert_eq!(self.inbox.bypass(header), None);
        self.bypassed += 1;
    }

    fn put_in_place(&mut self, bytes: &[u8]) {
        let (foreseen, there) = self.target.as_mut().unwrap();
        match foreseen {
            Foreseen::Tagged { memory, offset } => {
                let at = *offset as usize + *there;
                self.memory[*memory][at..at + bytes.len()].copy_from_slice(bytes);
            }
            Foreseen::Send { offset, .. } => {
                assert_eq!(self.part.len(), *offset as usize + *there);
                self.part.extend(bytes);
            }
        }
        *there += bytes.len();
    }

    /// Answers all Reads there are.
    pub(super) fn answer(&mut self) {
        while let Ok(message) = self.stream.answer() {
            let (_, source) = self.stream.to_answer(0, &self.regions).unwrap().unwrap();
            let bytes = source.map_or(Vec::new(), |(memory, from)| {
                self.memory[memory][from as usize..][..message.len() as usize].to_vec()
            });
            self.put_all(message, &bytes);
            self.stream.answered();
        }
    }

    fn fails(&mut self, breach: Breach) {
        assert_eq!(self.breach, None, "the first breach only");
        self.breach = Some(breach);
        if let Some(segment) = self.stream.terminate(&breach) {
            self.put(&segment, &[]);
        }
    }

    fn step(&mut self) -> bool {
        let event = match self.inbox.next() {
            Ok(None) => return false,
            Ok(Some(ulpdu)) => self.stream.receive(ulpdu, &mut self.regions),
            Err(_) if self.breach.is_some() => return false,
            Err(error) => Err(self.stream.fail(error.into())),
        };
        match event {
            Err(breach) => {
                self.fails(breach);
                return true;
            }
            Ok(Event::Nothing | Event::ReadRequest) => {}
            Ok(Event::Tagged {
                place,
                payload,
                kind,
                last,
            }) => {
                assert_eq!(place.is_some(), !payload.is_empty());
                if payload.is_in_place() {
                    let foreseen =
                        place.map(|(memory, offset)| Foreseen::Tagged { memory, offset });
                    assert_eq!(
                        self.target.take(),
                        foreseen.map(|place| (place, payload.len()))
                    );
                } else if let Some((memory, from)) = place {
                    let room = &mut self.memory[memory][from as usize..][..payload.len()];
                    assert_eq!(payload.copy_to(room), payload.len());
                }
                if let (TaggedKind::ReadResponse(request), true) = (kind, last) {
                    self.reads_done.push(request);
                }
            }
            Ok(Event::Send {
                message,
                offset,
                payload,
                solicited,
                invalidated,
                last,
                ..
            }) => {
                if payload.is_in_place() {
                    let foreseen = Foreseen::Send { message, offset };
                    assert_eq!(self.target.take(), Some((foreseen, payload.len())));
                } else {
                    assert_eq!(offset as usize, self.part.len());
                    self.part.extend(payload.pieces().flatten());
                }
                assert!(self.part.len() <= BUFFER as usize);
                if last {
                    self.stream.post(1);
                    self.sends.push(Received {
                        bytes: std::mem::take(&mut self.part),
                        solicited,
                        invalidated: invalidated.map(|(stag, _)| stag),
                    });
                }
            }
            Ok(Event::Terminated(said)) => self.terminated = Some(said),
        }
        true
    }
}

/// Both ends, the responder having heard from the initiator.
pub(super) fn pair(line: Line) -> [End; 2] {
    [Role::Initiator, Role::Responder].map(|role| End::new(role, line))
}

/// Carries octets both ways until there are none, in pieces of these sizes.
pub(super) fn run(ends: &mut [End; 2], pieces: &[usize]) {
    let mut sizes = pieces.iter().cycle();
    while ends.iter().any(|end| !end.out.is_empty()) {
        for (from, to) in [(0, 1), (1, 0)] {
            let bytes = std::mem::take(&mut ends[from].out);
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                ends[to].feed(now);
                rest = later;
            }
        }
    }
}
