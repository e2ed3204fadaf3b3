//! One end of a stream with memory: what the layer above `transport::iwarp` does, with nothing but a TCP connection.
//!
//! A thread writes what is queued, so that an end that sends much still reads; everything else happens where an end waits
//! for something. Reads of the peer are answered as they come.

mod receive;
mod writer;

use std::collections::VecDeque;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use transport::iwarp::ddp::{Message, Region, Regions, Rights, Segment, Stag, StreamId};
use transport::iwarp::mpa::setup::{Role, Terms};
use transport::iwarp::mpa::{Deframer, Framer, Inbox, Markers, Parts, Rtr};
use transport::iwarp::rdmap::{
    Foreseen, ReadRequest, Refused, SendKind, Settings, Stream, Terminate, Violation,
};

use super::setup::{Options, limits};

/// Octets of each buffer for Sends, and how many of them wait.
pub const BUFFER: usize = 128 << 10;
pub const BUFFERS: u32 = 8;
/// The longest silence, which under emulation may last.
const PATIENCE: Duration = Duration::from_secs(20);
const ID: StreamId = StreamId(1);

/// A Send that has come.
#[derive(Debug, PartialEq, Eq)]
pub struct Received {
    pub bytes: Vec<u8>,
    pub solicited: bool,
    pub invalidated: Option<Stag>,
}

/// A region of this end, as the peer has to name it.
#[derive(Clone, Copy, Debug)]
pub struct Registered {
    pub stag: Stag,
    pub base: u64,
    /// Its index.
    pub memory: usize,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The peer closed the connection and had nothing more to say.
    Closed,
    /// The peer threw the connection away.
    Reset,
    /// The peer's Terminate.
    Terminated(Option<Terminate>),
    /// What this end found, and told the peer.
    Broken(Violation),
}

#[derive(Debug)]
pub struct End {
    stream: Stream,
    regions: Regions<usize>,
    memory: Vec<Vec<u8>>,
    framer: Framer,
    inbox: Inbox,
    tcp: TcpStream,
    out: Option<mpsc::Sender<Vec<u8>>>,
    writer: Option<JoinHandle<()>>,
    mulpdu: usize,
    direct: bool,
    /// Each Send that was taken makes room for another one.
    pub reposts: bool,
    sends: VecDeque<Received>,
    reads_done: usize,
    /// The first answer is that of the Read which said "ready to receive".
    rtr_read: bool,
    part: Vec<u8>,
    /// Where the payload goes that is read round the inbox, and how many octets of it are there.
    target: Option<(Foreseen<usize>, usize)>,
    /// Payloads, or rests of them, that were read straight to their place.
    pub bypassed: usize,
    ending: Option<Ending>,
}

impl End {
    /// An end of a stream that has just been agreed on.
    ///
    /// # Panics
    /// If the connection cannot be used.
    #[must_use]
    pub fn new(tcp: TcpStream, options: &Options, terms: &Terms) -> Self {
        let buffer = u32::try_from(BUFFER).unwrap();
        let mut stream = Stream::new(&Settings::new(ID, terms, limits(), buffer));
        stream.post(BUFFERS);
        tcp.set_nodelay(true).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        let (out, queued) = mpsc::channel::<Vec<u8>>();
        let mut sink = tcp.try_clone().unwrap();
        let whole_trailers = options.siw && terms.crc;
        let writer = std::thread::spawn(move || {
            while let Ok(bytes) = queued.recv() {
                let written = if whole_trailers {
                    writer::write_for_siw(&mut sink, &bytes)
                } else {
                    sink.write_all(&bytes)
                };
                if written.is_err() {
                    return;
                }
            }
            sink.shutdown(Shutdown::Write).ok();
        });
        let mut end = Self {
            stream,
            regions: Regions::new(16),
            memory: Vec::new(),
            framer: Framer::new(Markers::wanted(terms.send_markers), terms.crc),
            inbox: Inbox::new(
                Deframer::new(Markers::wanted(terms.receive_markers), terms.crc),
                0,
            ),
            tcp,
            out: Some(out),
            writer: Some(writer),
            mulpdu: options.mulpdu,
            direct: options.direct,
            reposts: true,
            sends: VecDeque::new(),
            reads_done: 0,
            rtr_read: terms.role == Role::Initiator && terms.rtr == Some(Rtr::Read),
            part: Vec::new(),
            target: None,
            bypassed: 0,
            ending: None,
        };
        if let Some(segment) = end.stream.rtr() {
            end.put(segment.head.bytes(), &[]);
        }
        end
    }

    /// A region of `len` octets.
    ///
    /// # Panics
    /// If there are too many.
    pub fn register(&mut self, len: usize, rights: Rights, random: u32) -> Registered {
        let memory = self.memory.len();
        // Not a round number, so that a base that is forgotten somewhere is noticed.
        let base = 0x10_0000_0003 * (memory as u64 + 1);
        let region = Region {
            stream: ID,
            base,
            len: len as u64,
            rights,
            memory,
        };
        self.memory.push(vec![0; len]);
        let stag = self.regions.register(region, random).unwrap();
        Registered { stag, base, memory }
    }

    /// The octets of a region.
    pub fn bytes(&mut self, region: &Registered) -> &mut [u8] {
        &mut self.memory[region.memory]
    }

    /// Puts one FPDU in the queue, whatever is in it.
    ///
    /// # Panics
    /// If it is too large.
    pub fn put(&mut self, head: &[u8], payload: &[u8]) {
        let bytes = self.fpdu(head, payload);
        self.put_octets(bytes);
    }

    /// One FPDU.
    ///
    /// # Panics
    /// If it is too large.
    pub fn fpdu(&mut self, head: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; self.framer.wire_len(head.len() + payload.len())];
        let mut parts = Parts::one(payload);
        let framed = self
            .framer
            .frame(head, &mut parts, payload.len(), &mut bytes);
        assert_eq!(framed, Ok(bytes.len()));
        bytes
    }

    /// Puts octets in the queue. If the peer has gone, it will be noticed where this end reads.
    pub fn put_octets(&mut self, bytes: Vec<u8>) {
        if let Some(out) = &self.out {
            out.send(bytes).ok();
        }
    }

    fn put_segment(&mut self, segment: &Segment, payload: &[u8]) {
        let from = segment.from as usize;
        let payload = &payload[from..from + segment.len as usize];
        self.put(segment.head.bytes(), payload);
    }

    fn put_all(&mut self, mut message: Message, payload: &[u8]) {
        while let Some(segment) = message.segment(self.mulpdu) {
            self.put_segment(&segment, payload);
        }
    }

    /// A Send.
    ///
    /// # Panics
    /// If it may not be sent.
    pub fn send(&mut self, kind: SendKind, payload: &[u8]) {
        let message = self.send_message(kind, payload.len());
        self.put_all(message, payload);
    }

    /// A Send whose segments the caller puts.
    ///
    /// # Panics
    /// If it may not be sent.
    pub fn send_message(&mut self, kind: SendKind, len: usize) -> Message {
        let len = u32::try_from(len).unwrap();
        self.stream.send(kind, len).unwrap()
    }

    /// A Write.
    ///
    /// # Panics
    /// If it may not be sent.
    pub fn write(&mut self, stag: Stag, offset: u64, payload: &[u8]) {
        let len = u32::try_from(payload.len()).unwrap();
        let message = self.stream.write(stag, offset, len).unwrap();
        self.put_all(message, payload);
    }

    /// A Read, once the peer can answer one more; [`wait_for_reads`](Self::wait_for_reads) waits for the answer.
    ///
    /// # Panics
    /// If it may not be sent.
    pub fn read(&mut self, request: ReadRequest) {
        loop {
            match self.stream.read(request) {
                Ok(segment) => return self.put_segment(&segment, &[]),
                Err(refused) => assert_eq!(refused, Refused::TooManyReads),
            }
            assert_eq!(self.ending, None, "the stream ended early");
            self.progress();
        }
    }

    /// Waits until this end may send: a responder must hear something first.
    ///
    /// # Panics
    /// If the stream ends first.
    pub fn wait_for_turn(&mut self) {
        while self.stream.may_send().is_err() {
            assert_eq!(self.ending, None, "the stream ended early");
            self.progress();
        }
    }

    /// The next Send of the peer's.
    ///
    /// # Panics
    /// If the stream ends first.
    pub fn receive(&mut self) -> Received {
        loop {
            if let Some(received) = self.sends.pop_front() {
                if self.reposts {
                    self.stream.post(1);
                }
                return received;
            }
            assert_eq!(self.ending, None, "the stream ended early");
            self.progress();
        }
    }

    /// Waits until so many Reads of this end have been answered since the last time.
    ///
    /// # Panics
    /// If the stream ends first.
    pub fn wait_for_reads(&mut self, number: usize) {
        while self.reads_done < number {
            assert_eq!(self.ending, None, "the stream ended early");
            self.progress();
        }
        self.reads_done -= number;
        assert_eq!(self.reads_done, 0, "answers to Reads that nobody asked for");
    }

    /// Waits for the end of the stream.
    pub fn wait_for_end(&mut self) -> Ending {
        loop {
            if let Some(ending) = self.ending {
                return ending;
            }
            self.progress();
        }
    }

    /// Sends what is queued and then the end of the stream.
    ///
    /// # Panics
    /// If the writer did.
    pub fn close(&mut self) {
        self.out = None;
        if let Some(writer) = self.writer.take() {
            writer.join().unwrap();
        }
    }
}
