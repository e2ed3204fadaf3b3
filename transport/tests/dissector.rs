//! A dissector that nobody here wrote reads what Shunt frames: tshark has to find every frame, with its markers and a good sum,
//! and nothing malformed. Skipped, with a line that says so, where there is no tshark.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::process::Command;

use transport::iwarp::ddp::{Message, Segment, Stag, StreamId};
use transport::iwarp::mpa::setup::{Answer, Heard, Initiator, ReadLimits, Responder, Terms, Wants};
use transport::iwarp::mpa::{Framer, Markers, Parts};
use transport::iwarp::rdmap::{ReadRequest, SendKind, Settings, Stream, Violation};

/// A TCP connection between two hosts that are not there, as a capture file.
struct Capture {
    file: Vec<u8>,
    /// The next sequence number of each side.
    next: [u32; 2],
}

impl Capture {
    fn new() -> Self {
        // Little-endian, version 2.4, packets up to 256 KiB, link type 101: bare IP.
        let words = [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 1 << 18, 101];
        let mut capture = Self {
            file: words.map(u32::to_le_bytes).concat(),
            next: [1000, 2000],
        };
        capture.packet(0, 0x02, &[]);
        capture.packet(1, 0x12, &[]);
        capture.packet(0, 0x10, &[]);
        capture
    }

    fn packet(&mut self, from: usize, flags: u8, payload: &[u8]) {
        let to = 1 - from;
        let ports = [40_000_u16, 5001];
        let hosts = [[192, 0, 2, 1], [192, 0, 2, 2]];
        let len = u16::try_from(40 + payload.len()).unwrap();
        let mut packet = vec![0x45, 0];
        packet.extend(len.to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        packet.extend([hosts[from], hosts[to]].concat());
        packet.extend([ports[from].to_be_bytes(), ports[to].to_be_bytes()].concat());
        packet.extend([self.next[from].to_be_bytes(), self.next[to].to_be_bytes()].concat());
        packet.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend(payload);
        let size = u32::try_from(packet.len()).unwrap().to_le_bytes();
        self.file.extend([[0; 4], [0; 4], size, size].concat());
        self.file.extend(packet);
        let opens = u32::from(flags & 0x02 != 0);
        self.next[from] += u32::try_from(payload.len()).unwrap() + opens;
    }

    /// Octets of the stream, in one segment.
    fn send(&mut self, from: usize, octets: &[u8]) {
        self.packet(from, 0x18, octets);
    }
}

/// One side in RDMA mode, and what it has framed.
struct Side {
    stream: Stream,
    framer: Framer,
    frames: Vec<Vec<u8>>,
}

impl Side {
    fn new(terms: &Terms) -> Self {
        let settings = Settings::new(StreamId(0), terms, ReadLimits { ird: 4, ord: 4 }, 8192);
        Self {
            stream: Stream::new(&settings),
            framer: Framer::new(Markers::wanted(terms.send_markers), terms.crc),
            frames: Vec::new(),
        }
    }

    fn put(&mut self, segment: &Segment, payload: &[u8]) {
        let payload = &payload[segment.from as usize..][..segment.len as usize];
        let head = segment.head.bytes();
        let mut out = vec![0; self.framer.wire_len(head.len() + payload.len())];
        let mut parts = Parts::one(payload);
        self.framer
            .frame(head, &mut parts, payload.len(), &mut out)
            .unwrap();
        self.frames.push(out);
    }

    fn put_all(&mut self, mut message: Message, payload: &[u8]) {
        while let Some(segment) = message.segment(1442) {
            self.put(&segment, payload);
        }
    }
}

/// What tshark says of a capture.
fn dissect(file: &Path, options: &[&str]) -> String {
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(file).arg("-n").args(options);
    // They guess by payloads.
    for other in ["rpcordma", "iser", "smb_direct"] {
        tshark.args(["--disable-protocol", other]);
    }
    let output = tshark.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// All values of a field, in order.
fn values(file: &Path, field: &str) -> Vec<u64> {
    let text = dissect(file, &["-T", "fields", "-E", "aggregator=,", "-e", field]);
    let words = text.split([',', '\n']).filter(|word| !word.is_empty());
    words
        .map(|word| match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
            None => word.parse().unwrap(),
        })
        .collect()
}

fn conversation(markers: bool, crc: bool, together: bool) {
    // tshark knows revision 1.
    let wants = Wants {
        markers,
        crc,
        reads: None,
    };
    let mut capture = Capture::new();
    let mut out = [0; 600];
    let (initiator, len) = Initiator::ask(wants, b"private", &mut out).unwrap();
    capture.send(0, &out[..len]);
    let Ok(Heard::Whole { what, .. }) = Responder::hear(&out[..len]) else {
        panic!("not a Request");
    };
    let (_, len) = what.accept(wants, b"", &mut out).unwrap();
    capture.send(1, &out[..len]);
    let Ok(Heard::Whole {
        what: Answer::Accepted(ours),
        ..
    }) = initiator.hear(&out[..len])
    else {
        panic!("not accepted");
    };

    let bytes: Vec<u8> = (0..6000_u32).map(|at| (at * 7) as u8).collect();
    let mut first = Side::new(&ours);
    for (size, kind) in [
        (0, SendKind::default()),
        (
            1,
            SendKind {
                solicited: true,
                invalidate: None,
            },
        ),
        (
            500,
            SendKind {
                solicited: false,
                invalidate: Some(Stag(0x1234)),
            },
        ),
        (
            3000,
            SendKind {
                solicited: true,
                invalidate: Some(Stag(0x5678)),
            },
        ),
    ] {
        let message = first.stream.send(kind, size).unwrap();
        first.put_all(message, &bytes);
    }
    let message = first.stream.write(Stag(0xabcd), 1 << 40, 6000).unwrap();
    first.put_all(message, &bytes);
    let read = ReadRequest {
        sink: Stag(1),
        sink_offset: 2,
        len: 3,
        source: Stag(4),
        source_offset: 5,
    };
    let request = first.stream.read(read).unwrap();
    first.put(&request, &[]);
    let breach = first.stream.fail(Violation::Crc);
    let last = first.stream.terminate(&breach).unwrap();
    first.put(&last, &[]);
    if together {
        capture.send(0, &first.frames.concat());
    } else {
        first.frames.iter().for_each(|frame| capture.send(0, frame));
    }

    let name = format!(
        "shunt-dissector-{}-{markers}-{crc}-{together}.pcap",
        std::process::id()
    );
    let path = std::env::temp_dir().join(name);
    fs::write(&path, &capture.file).unwrap();
    let opcodes = [3, 5, 4, 6, 6, 6, 0, 0, 0, 0, 0, 1, 7];
    assert_eq!(values(&path, "iwarp_rdma.opcode"), opcodes);
    let lengths = [
        18, 19, 518, 1442, 1442, 170, 1442, 1442, 1442, 1442, 302, 46, 22,
    ];
    assert_eq!(values(&path, "iwarp_mpa.ulpdulength"), lengths);
    assert_eq!(values(&path, "iwarp_ddp.msn"), [1, 2, 3, 4, 4, 4, 1, 1]);
    assert_eq!(
        values(&path, "iwarp_ddp.mo"),
        [0, 0, 0, 0, 1424, 2848, 0, 0]
    );
    assert_eq!(
        values(&path, "iwarp_rdma.inval_stag"),
        [0x1234, 0x5678, 0x5678, 0x5678]
    );
    let found = values(&path, "iwarp_mpa.marker_fpduptr").len();
    assert_eq!(
        found,
        if markers {
            first.frames.concat().len().div_ceil(512)
        } else {
            0
        }
    );
    let text = dissect(&path, &["-V"]);
    assert!(!text.contains("Malformed"), "{text}");
    assert!(text.contains("MPA CRC Error (0x02)"), "{text}");
    let good = text.matches("(Good CRC32)").count();
    assert_eq!(good, if crc { first.frames.len() } else { 0 }, "{text}");
    fs::remove_file(&path).unwrap();
}

#[test]
fn tshark_reads_everything() {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("skipped: tshark is not there");
        return;
    }
    // Several frames with markers in one segment are more than it can read.
    for (markers, crc, together) in [
        (false, true, false),
        (false, true, true),
        (true, true, false),
        (false, false, true),
    ] {
        conversation(markers, crc, together);
    }
}
