//! A peer that speaks iWARP and breaks its rules, one after the other, against an unmodified program: the program's read is told of a
//! reset, or of what was said well and an end; it never waits for ever, never ends, and its memory stays what it is.

use shunt_tests::apps::{LONG, Stage, have};
use shunt_tests::sys::wait::eventually;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::Duration;
use transport::iwarp::mpa::Crc;
use transport::wire::Flow;
use transport::wire::set_up::{Asker, LONGEST, Reply, Want};

/// Reads each connection to its end by a thread of its own, and notes how that was. The last one is served well.
const VICTIM: &str = r#"
import os, socket, threading
lis = socket.create_server(("127.0.0.1", 0))
results = open("results", "a")
def hwm(): return int(next(l for l in open("/proc/self/status") if l.startswith("VmRSS")).split()[1])
def serve(c, number):
    got = b""
    try:
        while True:
            data = c.recv(65536)
            if not data: how = "end"; break
            got = (got + data)[:8]
            if data == b"M": c.sendall(b"heard")
            if data == b"much":
                c.sendall(bytes(64 << 20))
            if data == b"last":
                c.sendall(b"served"); os.close(lis.detach()); how = "last"; break
    except OSError as e: how = type(e).__name__
    c.close()
    results.write("%d %s %s %d\n" % (number, how, got.hex(), hwm())); results.flush()
with open("port.new", "w") as f: f.write(str(lis.getsockname()[1]))
os.rename("port.new", "port")
number, threads = 0, []
while not os.path.exists("over"):
    c, _ = lis.accept()
    t = threading.Thread(target=serve, args=[c, number]); t.start(); threads.append(t)
    number += 1
for t in threads: t.join()
"#;

/// A peer, set up as it should be.
struct Peer {
    stream: TcpStream,
    /// Of the last Send, and of the last message.
    number: u32,
    message: u32,
}

fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let len = u16::try_from(ulpdu.len()).unwrap();
    let mut out = [&len.to_be_bytes()[..], ulpdu].concat();
    out.resize(out.len().next_multiple_of(4), 0);
    let mut crc = Crc::new();
    crc.update(&out);
    out.extend(crc.field());
    out
}

fn tagged(rdmap: u8, stag: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
    let head = [
        &[0xc1, rdmap][..],
        &stag.to_be_bytes(),
        &offset.to_be_bytes(),
    ];
    [&head.concat()[..], payload].concat()
}

fn untagged(
    control: u8,
    rdmap: u8,
    queue: u32,
    number: u32,
    offset: u32,
    payload: &[u8],
) -> Vec<u8> {
    let words = [0, queue, number, offset].map(u32::to_be_bytes).concat();
    [&[control, rdmap][..], &words, payload].concat()
}

/// SDP's header in front of the rest of a message.
fn sdp(mid: u8, number: u32, acknowledged: u32, rest: &[u8]) -> Vec<u8> {
    let len = u32::try_from(16 + rest.len()).unwrap();
    let words = [len, number, acknowledged].map(u32::to_be_bytes).concat();
    [&[mid, 0, 0x80, 0][..], &words, rest].concat()
}

const LAST: u8 = 0x41;
const MORE: u8 = 0x01;
const SEND: u8 = 0x43;
const WRITE: u8 = 0x40;
const DATA: u8 = 0xff;

impl Peer {
    fn bare(port: u16) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
    }

    fn new(port: u16) -> Self {
        let mut stream = Self::bare(port);
        let want = Want {
            crc: true,
            buffers: (65536, 32768),
            adverts: None,
            flow: Flow {
                packetized: false,
                answers: false,
                buffer: 0,
                own: 0,
            },
        };
        let mut out = [0; LONGEST];
        let (asker, len) = Asker::ask(want, &mut out).unwrap();
        stream.write_all(&out[..len]).unwrap();
        let mut heard = Vec::new();
        loop {
            let mut octet = [0];
            stream
                .read_exact(&mut octet)
                .expect("no answer to the request");
            heard.push(octet[0]);
            match asker.hear(&heard) {
                Reply::Partial => {}
                Reply::Agreed(..) => break,
                other => panic!("not taken: {other:?}"),
            }
        }
        let mut peer = Self {
            stream,
            number: 0,
            message: 0,
        };
        peer.put(&fpdu(&tagged(WRITE, 0, 0, b""))); // ("ready to receive")
        peer.say(DATA, b"hi");
        peer
    }

    /// Who has reset the connection already does not take the rest.
    fn put(&mut self, octets: &[u8]) {
        let _ = self.stream.write_all(octets);
    }

    fn ulpdu(&mut self, ulpdu: &[u8]) {
        self.put(&fpdu(ulpdu));
    }

    fn next(&mut self) -> (u32, u32) {
        self.number += 1;
        self.message += 1;
        (self.number, self.message)
    }

    /// A message as it should be.
    fn message(&mut self, mid: u8, rest: &[u8]) -> Vec<u8> {
        let (number, message) = self.next();
        fpdu(&untagged(
            LAST,
            SEND,
            0,
            number,
            0,
            &sdp(mid, message, 0, rest),
        ))
    }

    fn say(&mut self, mid: u8, rest: &[u8]) {
        let message = self.message(mid, rest);
        self.put(&message);
    }

    /// Many alike, in large writes.
    fn flood(&mut self, times: usize, mid: u8, rest: &[u8]) {
        for _ in 0..times / 100 {
            let some: Vec<u8> = (0..100).flat_map(|_| self.message(mid, rest)).collect();
            self.put(&some);
        }
    }
}

/// How the program has to be told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// A reset, with nothing else behind what was said well.
    Reset,
    /// An end of file.
    End,
    /// Either.
    Any,
}

type Breach = fn(&mut Peer);

#[rustfmt::skip]
const BREACHES: &[(&str, Told, Breach)] = &[
    ("nothing wrong", Told::End, |p| p.say(0x02, b"")),
    ("no DisConn", Told::End, |_| {}),
    // MPA
    ("a sum that is wrong", Told::Reset, |p| {
        let mut m = p.message(DATA, b"bad"); let at = m.len() - 1; m[at] ^= 1; p.put(&m);
    }),
    ("an octet changed on its way", Told::Reset, |p| {
        let mut m = p.message(DATA, b"bad"); m[37] ^= 0x20; p.put(&m);
    }),
    ("an FPDU of nothing", Told::Reset, |p| p.ulpdu(b"")),
    ("an FPDU of one octet", Told::Reset, |p| p.ulpdu(&[LAST])),
    ("the longest FPDU, of ones", Told::Reset, |p| p.put(&[0xff; 70_000])),
    ("half an FPDU and an end", Told::Reset, |p| { let m = p.message(DATA, &[7; 900]); p.put(&m[..400]); }),
    ("one octet of an FPDU and an end", Told::Reset, |p| p.put(&[0])),
    // DDP
    ("another version of DDP", Told::Reset, |p| p.ulpdu(&untagged(0x42, SEND, 0, 2, 0, &sdp(DATA, 2, 0, b"x")))),
    ("a message left out", Told::Reset, |p| p.ulpdu(&untagged(LAST, SEND, 0, 3, 0, &sdp(DATA, 2, 0, b"x")))),
    ("a message twice", Told::Reset, |p| p.ulpdu(&untagged(LAST, SEND, 0, 1, 0, &sdp(DATA, 2, 0, b"x")))),
    ("a queue that is not there", Told::Reset, |p| p.ulpdu(&untagged(LAST, SEND, 7, 2, 0, &sdp(DATA, 2, 0, b"x")))),
    ("a message that begins in its middle", Told::Reset, |p| p.ulpdu(&untagged(LAST, SEND, 0, 2, 40, &sdp(DATA, 2, 0, b"x")))),
    ("an offset at the end of all", Told::Reset, |p| p.ulpdu(&untagged(LAST, SEND, 0, 2, u32::MAX, b"x"))),
    ("a message that never ends", Told::Reset, |p| {
        let head = [&[DATA, 0, 0x80, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0][..], &[1; 1000]].concat();
        p.ulpdu(&untagged(MORE, SEND, 0, 2, 0, &head));
        for i in 0..200 { p.ulpdu(&untagged(MORE, SEND, 0, 2, 1016 + i * 1000, &[1; 1000])); }
    }),
    ("segments of nothing, for ever", Told::Any, |p| {
        let head = [&[DATA, 0, 0x80, 0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0][..], &[1; 100]].concat();
        p.ulpdu(&untagged(MORE, SEND, 0, 2, 0, &head));
        let none: Vec<u8> = (0..1000).flat_map(|_| fpdu(&untagged(MORE, SEND, 0, 2, 116, b""))).collect();
        for _ in 0..50 { p.put(&none); }
    }),
    // Tagged: memory that nobody gave
    ("a Write to an STag that nobody gave", Told::Reset, |p| p.ulpdu(&tagged(WRITE, 0x0102_0304, 0, &[9; 64]))),
    ("a Write to the STag 0", Told::Reset, |p| p.ulpdu(&tagged(WRITE, 0, 0x7fff_0000_0000, &[9; 64]))),
    ("a Write that wraps", Told::Reset, |p| p.ulpdu(&tagged(WRITE, 1, u64::MAX - 3, &[9; 64]))),
    ("an answer that nobody asked for", Told::Reset, |p| p.ulpdu(&tagged(0x42, 1, 0, &[9; 64]))),
    ("a Read of memory that was never advertised", Told::Reset, |p| {
        let words = [&1u32.to_be_bytes()[..], &0u64.to_be_bytes(), &4096u32.to_be_bytes(), &1u32.to_be_bytes(), &0x7fff_0000_0000u64.to_be_bytes()];
        p.ulpdu(&untagged(LAST, 0x41, 1, 1, 0, &words.concat()));
    }),
    ("a Read Request that is cut", Told::Reset, |p| p.ulpdu(&untagged(LAST, 0x41, 1, 1, 0, &[0; 20]))),
    // RDMAP
    ("another version of RDMAP", Told::Reset, |p| p.ulpdu(&untagged(LAST, 0x83, 0, 2, 0, &sdp(DATA, 2, 0, b"x")))),
    ("an operation that does not exist", Told::Reset, |p| p.ulpdu(&untagged(LAST, 0x4b, 0, 2, 0, &sdp(DATA, 2, 0, b"x")))),
    ("a Send that ends a region", Told::Reset, |p| p.ulpdu(&untagged(LAST, 0x44, 0, 2, 0, &sdp(DATA, 2, 0, b"x")))),
    ("a Terminate", Told::Reset, |p| p.ulpdu(&untagged(LAST, 0x47, 2, 1, 0, &[0x10, 0, 0, 0]))),
    ("a Terminate of nothing", Told::Reset, |p| p.ulpdu(&untagged(LAST, 0x47, 2, 1, 0, b""))),
    // SDP
    ("no header", Told::Reset, |p| p.ulpdu(&untagged(LAST, SEND, 0, 2, 0, &[DATA, 0, 0, 1]))),
    ("a length that is not its own", Told::Reset, |p| {
        let mut m = sdp(DATA, 2, 0, b"x"); m[7] += 1; p.ulpdu(&untagged(LAST, SEND, 0, 2, 0, &m));
    }),
    ("a number left out", Told::Reset, |p| p.ulpdu(&untagged(LAST, SEND, 0, 2, 0, &sdp(DATA, 3, 0, b"x")))),
    ("an acknowledgement of what was never sent", Told::Reset, |p| p.ulpdu(&untagged(LAST, SEND, 0, 2, 0, &sdp(DATA, 2, 500, b"x")))),
    ("a Hello, again", Told::Reset, |p| p.say(0x00, &[1; 16])),
    ("a HelloAck", Told::Reset, |p| p.say(0x01, &[1; 12])),
    ("a message that does not exist", Told::Reset, |p| p.say(0x77, b"")),
    ("one that may never", Told::Reset, |p| p.say(0x90, b"")),
    ("a payload where none is", Told::Reset, |p| p.say(0x02, b"x")),
    ("data behind the end", Told::Any, |p| { p.say(0x02, b""); p.say(DATA, b"x"); }),
    ("AbortConn", Told::Reset, |p| p.say(0x03, b"")),
    ("the end of a read that was not", Told::Reset, |p| p.say(0x06, &[0, 0, 1, 0])),
    ("the end of a write that was not", Told::Reset, |p| p.say(0x05, &[0, 0, 1, 0])),
    ("SendSm of nothing", Told::Reset, |p| p.say(0x04, b"")),
    ("an advert of nothing", Told::Reset, |p| p.say(0xfe, &[0; 16])),
    ("two adverts", Told::Any, |p| {
        let advert = [&(1u32 << 20).to_be_bytes()[..], &9u32.to_be_bytes(), &0u64.to_be_bytes()].concat();
        for _ in 0..2 { p.say(0xfe, &[&advert[..], b"first"].concat()); }
    }),
    ("adverts taken back twice", Told::Any, |p| { p.say(0x47, b""); p.say(0x47, b""); p.say(0x08, b""); p.say(0x08, b""); }),
    ("room of a scheme that was not agreed", Told::Reset, |p| p.say(0x48, &[0, 0, 0, 0, 0, 1, 0, 0])),
    ("Starved without one", Told::Reset, |p| p.say(0x4a, b"")),
    ("Cleared without one", Told::Reset, |p| p.say(0x4b, b"")),
    ("bytes that come back unasked", Told::Reset, |p| p.say(0x46, b"back")),
    ("a ring that begins without one", Told::Reset, |p| p.say(0x43, b"")),
    ("an offer of a ring of ones", Told::End, |p| { p.say(0x41, &[0xff; 48]); p.say(DATA, b"x"); p.say(0x02, b""); }),
    ("an answer to no offer", Told::Any, |p| { p.say(0x42, &[0xff; 48]); p.say(DATA, b"x"); p.say(0x02, b""); }),
    // Much of it
    ("messages of nothing", Told::End, |p| p.flood(100_000, DATA, b"")),
    ("questions whose answers nobody reads", Told::Any, |p| p.flood(100_000, 0x0d, &[0, 0, 0, 0, 0, 1, 0, 80])),
    ("offers of rings", Told::Any, |p| p.flood(20_000, 0x41, &[0xff; 48])),
    ("adverts of sinks", Told::Any, |p| p.flood(20_000, 0xfd, &[0, 1, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
    ("asks for much and reads nothing", Told::Any, |p| { p.say(DATA, b"much"); std::thread::sleep(Duration::from_millis(300)); }),
];

/// What was noted of a connection: how it ended, what came first, and the memory of the process (KiB).
fn result(folder: &Path, number: usize) -> Option<(String, String, u64)> {
    let all = std::fs::read_to_string(folder.join("results")).unwrap_or_default();
    let whole = all.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().find_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let is_it = words.first().and_then(|w| w.parse().ok()) == Some(number);
        is_it.then(|| (words[1].into(), words[2].into(), words[3].parse().unwrap()))
    })
}

/// More memory (KiB) than this no peer of one at a time may make a process take.
const MOST: u64 = 32 * 1024;

#[test]
fn whatever_a_peer_does_the_program_is_told_and_goes_on() {
    if !have(&["python3"]) {
        return;
    }
    let mut stage = Stage::new(true);
    stage.file("victim.py", VICTIM.as_bytes());
    let rules = stage.file("rules", b"use iwarp listen * *:*\n");
    let start = stage.launch("python3").args(["victim.py"]);
    let mut victim = start.env("SHUNT_RULES", rules).start();
    let folder = stage.folder.path("");
    let mut port = 0;
    let up = eventually(|| {
        let text = std::fs::read_to_string(folder.join("port")).unwrap_or_default();
        port = text.parse().unwrap_or(0);
        port != 0
    });
    assert!(up);
    // Octets one by one, and requests that lie, of peers that stay until the end: they keep nobody.
    let mut slow = Vec::new();
    for octets in [
        &b"MPA ID Req Fr"[..],
        b"M",
        b"MPA ID Req Frame\x40\x02\xff\xff",
    ] {
        let mut stream = Peer::bare(port);
        for octet in octets {
            stream.write_all(&[*octet]).unwrap();
        }
        if octets == b"M" {
            // (a beginning of a request that nothing follows is the program's: it may be all that a peer says before it is answered)
            let mut heard = [0; 5];
            stream.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"heard");
        }
        slow.push(stream);
    }
    let (mut before, mut otherwise) = (None, Vec::new());
    for (i, (name, told, breach)) in BREACHES.iter().enumerate() {
        let mut peer = Peer::new(port);
        breach(&mut peer);
        let _ = peer.stream.shutdown(Shutdown::Write);
        let number = slow.len() + i;
        if *name == "asks for much and reads nothing" {
            drop(peer); // (it has the program wait for room)
        } else {
            // (until the program has ended it, or the peer is reset)
            let mut rest = [0; 65536];
            while matches!(peer.stream.read(&mut rest), Ok(1..)) {}
        }
        let mut found = None;
        let ended = eventually(|| {
            found = result(&folder, number);
            found.is_some()
        });
        assert!(ended && victim.running(), "{name}: the program is not told");
        let (how, got, memory) = found.unwrap();
        let is = match how.as_str() {
            "end" => Told::End,
            "ConnectionResetError" | "BrokenPipeError" => Told::Reset,
            how => panic!("{name}: {how}"),
        };
        if *told != Told::Any && *told != is {
            otherwise.push(format!("{name}: {how}"));
        }
        // (what was said well comes first, if the breach was not seen with it)
        assert!(got.is_empty() || got.starts_with("6869"), "{name}: {got}");
        let first = *before.get_or_insert(memory);
        assert!(
            memory < first + MOST,
            "{name}: {memory} KiB, {first} before"
        );
    }
    assert!(otherwise.is_empty(), "{otherwise:#?}");
    drop(slow);
    for (number, first) in ["4d50412049442052", "4d", "4d50412049442052"]
        .iter()
        .enumerate()
    {
        let ended = || result(&folder, number).is_some_and(|r| r.0 == "end" && r.1 == *first);
        assert!(eventually(ended), "{number}: {:?}", result(&folder, number));
    }
    std::fs::write(folder.join("over"), "").unwrap();
    let mut peer = Peer::new(port);
    let answer = {
        std::thread::sleep(Duration::from_millis(50)); // (a read of its own)
        peer.say(DATA, b"last");
        let mut heard = Vec::new();
        let _ = peer.stream.read_to_end(&mut heard);
        heard
    };
    assert!(answer.windows(6).any(|w| w == b"served"), "{answer:?}");
    let outcome = victim.finish(LONG);
    outcome.expect_ok("the victim");
    let report = &outcome.report;
    let iwarp = report.connections().filter(|c| c.transport == "iwarp");
    assert!(iwarp.count() > BREACHES.len(), "they were all on iWARP");
}
