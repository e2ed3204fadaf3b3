//! Large messages from one side to the other: the client sends, the server waits in recv with a buffer as large as the
//! message. Called by `prog::main`; `zcopy` starts it.
//!
//! What the sender does to its buffer decides what a way of carrying is worth, so it is an option (`BufferUse`). Only
//! what follows the warm-up is timed: the client waits until the server has all of it. The client prints when it began,
//! the server when it had the last byte, both by the clock of the machine; each prints the CPU time of its part.

use std::io;
use std::net::Shutdown;
use std::time::Duration;

use anyhow::ensure;
use serde_json::json;

use super::overlap::compute;
use super::payload::Pattern;
use super::socket::Setup;
use super::{Length, Messages};
use crate::stats::percentile;
use crate::sys;

/// What becomes of the buffers between two messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BufferUse {
    /// The same buffers again and again, never written between
    Reused,
    /// The sender rewrites its buffer before each message
    Dirty,
    /// Both sides walk over 64 MiB or more
    Walk,
    /// The sender rewrites its buffer, and the receiver reads all that it got
    Used,
}

/// How much memory a walk covers at least.
const WALK: usize = 64 << 20;
const PAGE: usize = 4096;

#[derive(Clone, Copy, clap::Args)]
struct Work {
    #[command(flatten)]
    setup: Setup,
    /// Bytes of one message
    #[arg(long, default_value_t = 1 << 20)]
    size: usize,
    #[arg(long, value_enum, default_value = "reused")]
    buffer: BufferUse,
    /// Messages before those that are timed
    #[arg(long, default_value_t = 16)]
    warm_up: u64,
    /// The server answers each message with one byte, for which the client waits
    #[arg(long)]
    answer: bool,
    /// Check every byte
    #[arg(long)]
    verify: bool,
}

#[derive(clap::Args)]
pub(crate) struct Server {
    #[command(flatten)]
    work: Work,
}

#[derive(clap::Args)]
pub(crate) struct Client {
    #[command(flatten)]
    work: Work,
    #[command(flatten)]
    length: Length,
    /// Nanoseconds of computation between the messages
    #[arg(long, default_value_t = 0)]
    compute_ns: u64,
    /// The computation begins by writing to every page of the buffer that has just been sent
    #[arg(long, conflicts_with = "verify")]
    touch: bool,
    /// Do not begin before this moment (CLOCK_MONOTONIC, ns): several clients begin together
    #[arg(long, default_value_t = 0)]
    start_at: u64,
}

/// The buffers of one side, in memory that begins on a page.
struct Buffers {
    memory: Vec<u8>,
    start: usize,
    size: usize,
    count: usize,
}

impl Buffers {
    /// Written once, so that no page is missing later.
    fn new(work: &Work) -> Self {
        let count = match work.buffer {
            BufferUse::Walk => (WALK / work.size.max(1)).max(2),
            _ => 1,
        };
        let memory = vec![1; work.size * count + PAGE];
        Self {
            start: memory.as_ptr().align_offset(PAGE),
            memory,
            size: work.size,
            count,
        }
    }

    /// The buffer of the message with this number.
    fn of(&mut self, number: u64) -> &mut [u8] {
        let at = self.start + self.slot(number) * self.size;
        &mut self.memory[at..at + self.size]
    }

    fn slot(&self, number: u64) -> usize {
        (number % self.count as u64) as usize
    }

    /// What message `number` holds, as a place in the pattern: a buffer that is not rewritten holds the same as before.
    fn place(&self, usage: BufferUse, number: u64) -> u64 {
        match usage {
            BufferUse::Reused | BufferUse::Walk => (self.slot(number) * self.size) as u64,
            BufferUse::Dirty | BufferUse::Used => number * self.size as u64,
        }
    }
}

/// The pattern that is sent and checked, if it is.
fn pattern(work: &Work) -> Option<Pattern> {
    work.verify.then(|| Pattern::new(work.size))
}

pub(super) fn serve(args: &Server) -> anyhow::Result<()> {
    let work = args.work;
    let (mut buffers, pattern) = (Buffers::new(&work), pattern(&work));
    let messages = Messages::new(work.setup.listen()?.accept()?.0, false)?;
    let (mut number, mut cpu, mut sum) = (0_u64, Duration::ZERO, 0_u64);
    let mut ended = sys::monotonic_ns();
    loop {
        if number == work.warm_up {
            messages.send(&[1])?;
            cpu = sys::cpu_time();
        }
        let buffer = buffers.of(number);
        if !messages.receive(buffer)? {
            break;
        }
        if work.buffer == BufferUse::Used {
            sum = sum.wrapping_add(read_all(buffer));
        }
        if work.answer {
            messages.send(&[2])?;
        }
        ended = sys::monotonic_ns();
        if let Some(pattern) = &pattern {
            let place = buffers.place(work.buffer, number);
            pattern.check(buffers.of(number), place)?;
        }
        number += 1;
    }
    let cpu = sys::cpu_time() - cpu;
    ensure!(number > work.warm_up, "nothing came after the warm-up");
    super::print(&json!({
        "prog": "bulk-server", "messages": number - work.warm_up, "ended_ns": ended, "cpu_ns": cpu.as_nanos() as u64,
        "verified": work.verify, "sum": std::hint::black_box(sum),
    }));
    Ok(())
}

/// Reads every byte, as fast as the machine can.
fn read_all(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_ne_bytes(*word));
    words.fold(rest.len() as u64, u64::wrapping_add)
}

/// The client's side of the connection.
struct Sender<'a> {
    args: &'a Client,
    messages: Messages,
    buffers: Buffers,
    pattern: Option<Pattern>,
    number: u64,
}

impl Sender<'_> {
    fn new(args: &Client) -> io::Result<Sender<'_>> {
        let (mut buffers, pattern) = (Buffers::new(&args.work), pattern(&args.work));
        if let Some(pattern) = &pattern {
            for number in 0..buffers.count as u64 {
                let place = buffers.place(args.work.buffer, number);
                let size = buffers.size;
                buffers.of(number).copy_from_slice(pattern.at(place, size));
            }
        }
        Ok(Sender {
            args,
            messages: Messages::new(args.work.setup.connect()?, false)?,
            buffers,
            pattern,
            number: 0,
        })
    }

    /// Rewrites the buffer of the next message, if this sender does; whether it did.
    fn prepare(&mut self) -> bool {
        let usage = self.args.work.buffer;
        if !matches!(usage, BufferUse::Dirty | BufferUse::Used) {
            return false;
        }
        let (place, size) = (self.buffers.place(usage, self.number), self.args.work.size);
        let buffer = self.buffers.of(self.number);
        match &self.pattern {
            Some(pattern) => buffer.copy_from_slice(pattern.at(place, size)),
            None => buffer.fill(self.number as u8),
        }
        true
    }

    /// Sends it, and waits for the answer if there is one.
    fn send(&mut self) -> io::Result<()> {
        self.messages.send(self.buffers.of(self.number))?;
        if self.args.work.answer {
            self.wait()?;
        }
        self.number += 1;
        Ok(())
    }

    /// Waits for one byte.
    fn wait(&self) -> io::Result<()> {
        match self.messages.receive(&mut [0])? {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Computes for as long as was asked, and returns the time that took on the wall. What writing to the buffer takes
    /// comes on top: it is what the way of sending costs.
    fn compute(&mut self) -> Duration {
        if self.args.touch {
            let value = self.number as u8;
            for page in self.buffers.of(self.number - 1).chunks_mut(PAGE) {
                page[0] = value;
            }
        }
        compute(self.args.compute_ns)
    }
}

pub(super) fn drive(args: &Client) -> anyhow::Result<()> {
    // Large enough for any run, and filled: a page fault is not part of a message.
    const SAMPLES: usize = 1 << 18;
    let mut sender = Sender::new(args)?;
    for _ in 0..args.work.warm_up {
        sender.prepare();
        sender.send()?;
    }
    sender.wait()?;
    let mut samples = vec![1_u32; SAMPLES];
    while let Some(left @ 1..) = args.start_at.checked_sub(sys::monotonic_ns()) {
        std::thread::sleep(Duration::from_nanos(left));
    }
    let (cpu, started) = (sys::cpu_time(), sys::monotonic_ns());
    let length = (args.length.seconds * 1e9) as u64;
    let end = started.max(args.start_at) + length;
    let (mut count, mut now, mut computed) = (0, started, Duration::ZERO);
    // One message alone would be timed together with waking up for it.
    while count < args.length.count && (count < 2 || now < end) {
        // Between the messages, so that all of it lies in the time until the last has arrived.
        if count > 0 && (args.compute_ns > 0 || args.touch) {
            computed += sender.compute();
            now = sys::monotonic_ns();
        }
        // Reading the clock must not be part of what a small message costs: once, where nothing lies between.
        let before = if sender.prepare() {
            sys::monotonic_ns()
        } else {
            now
        };
        sender.send()?;
        now = sys::monotonic_ns();
        samples[count as usize % SAMPLES] = u32::try_from(now - before).unwrap_or(u32::MAX);
        count += 1;
    }
    // What was begun and not finished when send returned belongs to it: until the server has everything.
    sender.messages.shutdown(Shutdown::Write)?;
    ensure!(
        !sender.messages.receive(&mut [0])?,
        "a byte that nobody sent"
    );
    let cpu = sys::cpu_time() - cpu;
    samples.truncate(usize::try_from(count).unwrap_or(SAMPLES));
    let [p50, p99] = [0.5, 0.99].map(|share| percentile(&mut samples, share));
    super::print(&json!({
        "prog": "bulk-client", "messages": count, "bytes": count * args.work.size as u64, "started_ns": started,
        "cpu_ns": cpu.as_nanos() as u64, "p50_ns": p50, "p99_ns": p99, "computed_ns": computed.as_nanos() as u64,
    }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffers(size: usize, count: usize) -> Buffers {
        let memory = vec![0; size * count + PAGE];
        Buffers {
            start: memory.as_ptr().align_offset(PAGE),
            memory,
            size,
            count,
        }
    }

    #[test]
    fn buffers_begin_on_a_page_and_a_walk_comes_back() {
        let mut walk = buffers(PAGE, 3);
        let places: Vec<usize> = (0..4).map(|n| walk.of(n).as_ptr().addr()).collect();
        assert!(places.iter().all(|place| place % PAGE == 0));
        assert_eq!(places[1] - places[0], PAGE);
        assert_eq!(places[3], places[0]);
    }

    #[test]
    fn what_is_rewritten_goes_on_and_what_is_not_stays() {
        let one = buffers(100, 1);
        assert_eq!(one.place(BufferUse::Reused, 7), 0);
        assert_eq!(one.place(BufferUse::Dirty, 7), 700);
        assert_eq!(buffers(100, 5).place(BufferUse::Walk, 7), 200);
    }

    #[test]
    fn every_byte_is_read() {
        let mut bytes = [0_u8; 21];
        assert_eq!(read_all(&bytes), 5);
        bytes[8] = 1;
        assert_ne!(read_all(&bytes), 5);
    }
}
