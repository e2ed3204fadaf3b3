//! One measurement: messages are framed into a buffer like a socket's and taken apart again, on one core and with nothing else in
//! between: no system call, no TCP, no other process. What is counted is the CPU time of this thread.

use std::io::IoSlice;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use transport::iwarp::NoRoom;
use transport::iwarp::ddp::{Regions, StreamId};
use transport::iwarp::mpa::setup::Role;
use transport::iwarp::mpa::{Deframer, Found, Framer, Parts, Vector, generic};
use transport::iwarp::rdmap::{Event, SendKind, Settings, Stream};

use super::way::{Framing, Way};
use crate::sys;

/// The SDP header in front of every message, octets.
const BSDH: usize = 16;
/// What is framed before it is taken apart: about what a socket buffer holds.
const BATCH: usize = 256 << 10;
/// Where messages lie that were not touched lately: more than any cache.
const FRESH: usize = 64 << 20;
/// The most entries of one list, as of one vectored write (UIO_MAXIOV).
const ENTRIES: usize = 1024;

/// Whether a program uses the same buffer for message after message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Memory {
    /// It lies in the cache.
    Same,
    /// It does not.
    Fresh,
}

impl Memory {
    pub(super) const ALL: [Self; 2] = [Self::Same, Self::Fresh];

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Same => "same buffer",
            Self::Fresh => "buffers outside the cache",
        }
    }
}

/// What one repetition gave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// CPU time of a message on either side, ns. The receiver of a way without one: 0.
    pub send_ns: f64,
    pub receive_ns: f64,
    /// How often each octet of payload was copied, on either side.
    pub send_copies: f64,
    pub receive_copies: f64,
    /// Entries of the list for an adapter, a message.
    pub entries: f64,
}

pub(super) struct Lab {
    source: Vec<u8>,
    sink: Vec<u8>,
    wire: Vec<u8>,
    scratch: Vec<u8>,
    emss: usize,
}

enum Sender {
    One(Framer),
    Generic(generic::Sender),
}

impl Sender {
    fn frame(
        &mut self,
        head: &[u8],
        payload: &mut Parts<'_>,
        len: usize,
        out: &mut [u8],
    ) -> Result<usize, NoRoom> {
        match self {
            Self::One(framer) => framer.frame(head, payload, len, out),
            Self::Generic(sender) => sender.frame(head, payload, len, out),
        }
    }
}

fn stream(role: Role) -> Stream {
    Stream::new(&Settings {
        id: StreamId(0),
        role,
        ird: 1,
        ord: 1,
        rtr: None,
        receive_size: u32::MAX,
        receive_buffers: u32::MAX,
    })
}

/// Where message number `n` of `size` octets lies.
fn place(memory: Memory, size: usize, n: usize) -> usize {
    match memory {
        Memory::Same => 0,
        Memory::Fresh => n % (FRESH / size) * size,
    }
}

impl Lab {
    pub(super) fn new(emss: usize, largest: usize) -> Self {
        let room = FRESH.max(largest);
        Self {
            source: (0..room).map(|at| ((at * 31) >> 3) as u8).collect(),
            // Touched: the first round must not pay for page faults.
            sink: vec![1; room],
            // A batch, or one message, and what framing adds.
            wire: vec![0; 2 * BATCH.max(largest) + (1 << 20)],
            scratch: vec![0; 1 << 20],
            emss,
        }
    }

    /// Messages of `size` octets for about `limit`.
    pub(super) fn measure(
        &mut self,
        way: Way,
        memory: Memory,
        size: usize,
        limit: Duration,
    ) -> anyhow::Result<Sample> {
        match way.framing {
            Framing::InPlace => self.list(way, memory, size, limit),
            Framing::Integrated | Framing::Generic => self.copy(way, memory, size, limit),
        }
    }

    fn copy(
        &mut self,
        way: Way,
        memory: Memory,
        size: usize,
        limit: Duration,
    ) -> anyhow::Result<Sample> {
        let mut sender = match way.framing {
            Framing::Generic => Sender::Generic(generic::Sender::new(way.wanted(), way.crc)),
            _ => Sender::One(Framer::new(way.wanted(), way.crc)),
        };
        let mut deframer = Deframer::new(way.wanted(), way.crc);
        let mut strip = (way.framing == Framing::Generic).then(generic::Receiver::new);
        let (mut from, mut to) = (stream(Role::Initiator), stream(Role::Responder));
        let mut regions = Regions::<()>::new(0);
        let batch = (BATCH / (size + 64)).max(1);
        let mulpdu = way.mulpdu(self.emss);
        let (mut sending, mut receiving) = (Duration::ZERO, Duration::ZERO);
        let (mut sent, mut received, mut stripped) = (0, 0, 0);
        let header = [0xff; BSDH];
        while sending + receiving < limit {
            let start = sys::thread_time();
            let mut used = 0;
            for _ in 0..batch {
                let at = place(memory, size, sent);
                let payload = [&header, &self.source[at..at + size]].map(IoSlice::new);
                let mut parts = Parts::many(&payload);
                let mut message = from
                    .send(SendKind::default(), (BSDH + size) as u32)
                    .map_err(|error| anyhow::anyhow!("{error:?}"))?;
                while let Some(segment) = message.segment(mulpdu) {
                    used += sender
                        .frame(
                            segment.head.bytes(),
                            &mut parts,
                            segment.len as usize,
                            &mut self.wire[used..],
                        )
                        .map_err(|error| anyhow::anyhow!("{error:?}"))?;
                }
                sent += 1;
            }
            let middle = sys::thread_time();
            sending += middle.saturating_sub(start);
            let mut rest = &self.wire[..used];
            while !rest.is_empty() {
                let found = deframer.look(rest);
                let Found::Whole { ulpdu, wire } =
                    found.map_err(|error| anyhow::anyhow!("{error:?}"))?
                else {
                    anyhow::bail!("a frame was cut");
                };
                let event = to.receive(ulpdu, &mut regions);
                let Event::Send {
                    offset,
                    payload,
                    last,
                    ..
                } = event.map_err(|breach| anyhow::anyhow!("{breach:?}"))?
                else {
                    anyhow::bail!("not a Send");
                };
                // The header is the upper layer's; what follows goes to the program.
                let skipped = BSDH.saturating_sub(offset as usize);
                let payload = payload.skip(skipped);
                let at = place(memory, size, received) + offset as usize + skipped - BSDH;
                let room = &mut self.sink[at..at + payload.len()];
                match &mut strip {
                    Some(strip) => {
                        if payload.whole().is_none() {
                            stripped += payload.len();
                        }
                        room.copy_from_slice(strip.strip(&payload));
                    }
                    None => {
                        payload.copy_to(room);
                    }
                }
                received += usize::from(last);
                rest = &rest[wire..];
            }
            receiving += sys::thread_time().saturating_sub(middle);
        }
        ensure!(
            sent == received,
            "{sent} messages sent, {received} received"
        );
        for n in sent.saturating_sub(batch)..sent {
            let at = place(memory, size, n);
            ensure!(
                self.sink[at..at + size] == self.source[at..at + size],
                "message {n} differs"
            );
        }
        let octets = (sent * size) as f64;
        let send_copies = match &sender {
            Sender::One(_) => 1.0,
            Sender::Generic(generic) => generic.copied() as f64 / octets,
        };
        Ok(Sample {
            send_ns: sending.as_nanos() as f64 / sent as f64,
            receive_ns: receiving.as_nanos() as f64 / sent as f64,
            send_copies,
            receive_copies: 1.0 + stripped as f64 / octets,
            entries: 0.0,
        })
    }

    /// Only lists what an adapter would gather.
    fn list(
        &mut self,
        way: Way,
        memory: Memory,
        size: usize,
        limit: Duration,
    ) -> anyhow::Result<Sample> {
        let mut framer = Framer::new(way.wanted(), way.crc);
        let mut from = stream(Role::Initiator);
        let mulpdu = way.mulpdu(self.emss);
        let batch = (BATCH / (size + 64)).clamp(1, ENTRIES);
        let (mut sending, mut sent, mut entries) = (Duration::ZERO, 0, 0);
        let header = [0xff; BSDH];
        while sending < limit {
            let payloads: Vec<[IoSlice<'_>; 2]> = (sent..sent + batch)
                .map(|n| {
                    let at = place(memory, size, n);
                    [&header, &self.source[at..at + size]].map(IoSlice::new)
                })
                .collect();
            let start = sys::thread_time();
            let mut vector = Vector::<ENTRIES>::new(&mut self.scratch);
            for payload in &payloads {
                let mut parts = Parts::many(payload);
                let mut message = from
                    .send(SendKind::default(), (BSDH + size) as u32)
                    .map_err(|error| anyhow::anyhow!("{error:?}"))?;
                while let Some(segment) = message.segment(mulpdu) {
                    let (head, len) = (segment.head.bytes(), segment.len as usize);
                    if framer.frame_in_place(head, &mut parts, len, &mut vector) == Err(NoRoom) {
                        entries += std::hint::black_box(vector.slices()).len();
                        vector = Vector::new(&mut self.scratch);
                        framer
                            .frame_in_place(head, &mut parts, len, &mut vector)
                            .ok()
                            .context("a list is too small for one frame")?;
                    }
                }
            }
            entries += std::hint::black_box(vector.slices()).len();
            sending += sys::thread_time().saturating_sub(start);
            sent += batch;
        }
        Ok(Sample {
            send_ns: sending.as_nanos() as f64 / sent as f64,
            receive_ns: 0.0,
            send_copies: 0.0,
            receive_copies: 0.0,
            entries: entries as f64 / sent as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_carries_every_size() {
        let sizes = [1, 100, 5000, 200_000];
        let mut lab = Lab::new(8960, 200_000);
        for way in Way::ALL {
            for size in sizes {
                let limit = Duration::from_micros(1);
                let sample = lab.measure(way, Memory::Fresh, size, limit).unwrap();
                let copies = (sample.send_copies, sample.receive_copies);
                match (way.framing, way.markers) {
                    (Framing::InPlace, _) => assert_eq!(copies, (0.0, 0.0)),
                    (Framing::Generic, true) if size > 5000 => {
                        assert!(copies.0 > 2.0 && copies.1 > 1.9, "{copies:?}");
                    }
                    (Framing::Integrated, _) => assert_eq!(copies, (1.0, 1.0)),
                    _ => {}
                }
            }
        }
    }
}
