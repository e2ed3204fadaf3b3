//! Large messages between the two sides of one segment, in one process: whatever the sizes and alignments, whoever
//! copies, whoever gives up, both sides come to the same count, what arrived is what was sent although its
//! sender spoils it at once, and nothing else of the reader's memory is written.

use super::claims::Claim;
use super::far::Far;
use super::policy::{self, Mode};
use super::{Direct, reach};
use crate::provider::Provider;
use crate::shm::segment::Segment;
use crate::shm::tests::Joined;
use proptest::prelude::*;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Around the buffers, to see what is written there.
const EDGE: usize = 64;
const AROUND: u8 = 0xaa;
const SPOILT: u8 = 0xee;

/// One message.
#[derive(Clone, Debug)]
struct Message {
    len: usize,
    /// Where the buffers begin in a page.
    from: usize,
    to: usize,
    /// What the reader has room for at a time.
    room: usize,
    /// The source waits with its buffer advertised, or delivers to a posted one only.
    waits: bool,
    /// The source ends the advert after so many looks, whatever has arrived.
    patience: u32,
    /// How long the sink leaves its buffer posted before it pulls itself.
    looks: u32,
}

fn message() -> impl Strategy<Value = Message> {
    let size = prop_oneof![
        1..5000usize,
        5000..300_000usize,
        Just(65_536),
        Just(262_144)
    ];
    (
        size,
        0..4096usize,
        0..4096usize,
        1..400_000usize,
        any::<bool>(),
        0..3000u32,
        0..2000u32,
    )
        .prop_map(|(len, from, to, room, waits, patience, looks)| Message {
            len,
            from,
            to,
            room,
            waits,
            patience,
            looks,
        })
}

fn byte(message: usize, i: usize) -> u8 {
    (i.wrapping_mul(131) ^ i >> 8 ^ message.wrapping_mul(77)) as u8 & 0x7f
}

/// The source's side of all messages; how much of each went.
fn send(p: &Segment, messages: &[Message], turn: &Turn) -> Vec<usize> {
    let mut sent = Vec::new();
    for (i, m) in messages.iter().enumerate() {
        let mut memory = vec![AROUND; m.len + m.from + EDGE];
        let buf = &mut memory[m.from..m.from + m.len];
        for (k, b) in buf.iter_mut().enumerate() {
            *b = byte(i, k);
        }
        p.foretell(true);
        let arrived = if m.waits {
            assert!(p.advertise(0, buf.as_ptr(), m.len));
            turn.begin(i);
            let mut looks = 0;
            while !p.is_taken() && looks < m.patience {
                // SAFETY: the buffer lives until the advert is concluded.
                unsafe { p.help() };
                looks += 1;
            }
            p.conclude()
        } else {
            turn.begin(i);
            let mut arrived = 0;
            for _ in 0..m.patience {
                // (what the reader has room for, once)
                if p.awaited(0) > 0 {
                    // SAFETY: the buffer lives.
                    arrived = unsafe { p.deliver(0, buf.as_ptr(), m.len) };
                    break;
                }
                std::hint::spin_loop();
            }
            arrived
        };
        buf.fill(SPOILT);
        assert!(arrived <= m.len);
        sent.push(arrived);
        turn.end(i);
    }
    sent
}

/// The sink's side: what came of each message.
fn receive(p: &Segment, messages: &[Message], turn: &Turn) -> Vec<usize> {
    let mut received = Vec::new();
    let _frees = Frees(turn);
    for (i, m) in messages.iter().enumerate() {
        turn.await_begin(i);
        let mut got = Vec::new();
        loop {
            let over = turn.is_over(i);
            let mut memory = vec![AROUND; m.to + m.room + EDGE];
            let to = memory[m.to..].as_mut_ptr();
            p.post(0, to, m.room);
            for _ in 0..m.looks {
                std::hint::spin_loop();
            }
            // What was pushed before the buffer is taken back is in this buffer, and in no other: it is
            // received into it (as `sdp::rx::large` does).
            let (mut n, mut vain) = (0, 0);
            while n < m.room && vain < 2 {
                // SAFETY: the memory has that much room behind its beginning.
                let got = unsafe { p.receive(0, Some(to.wrapping_add(n)), m.room - n) };
                n += got;
                p.withdraw();
                vain = if got > 0 { 0 } else { vain + 1 };
                if p.pending().is_none() {
                    break;
                }
            }
            assert!(n <= m.room);
            assert!(
                memory[..m.to].iter().all(|&b| b == AROUND),
                "before the buffer"
            );
            assert!(
                memory[m.to + m.room..].iter().all(|&b| b == AROUND),
                "behind it"
            );
            got.extend_from_slice(&memory[m.to..m.to + n]);
            if over && n == 0 {
                break;
            }
        }
        for (k, &b) in got.iter().enumerate() {
            assert_eq!(b, byte(i, k), "message {i} at {k} of {}", got.len());
        }
        received.push(got.len());
        turn.noted(i);
    }
    received
}

/// Which message is on its way; the ring would say that by its position.
struct Turn {
    begun: Vec<AtomicBool>,
    over: Vec<AtomicBool>,
    noted: Vec<AtomicBool>,
}

/// A sink that fails keeps nobody.
struct Frees<'a>(&'a Turn);

impl Drop for Frees<'_> {
    fn drop(&mut self) {
        for noted in &self.0.noted {
            noted.store(true, Ordering::Release);
        }
    }
}

impl Turn {
    fn new(n: usize) -> Self {
        let flags = || (0..n).map(|_| AtomicBool::new(false)).collect();
        Self {
            begun: flags(),
            over: flags(),
            noted: flags(),
        }
    }

    fn begin(&self, i: usize) {
        self.begun[i].store(true, Ordering::Release);
    }

    /// The source is done; the next one begins once the sink has seen that.
    fn end(&self, i: usize) {
        self.over[i].store(true, Ordering::Release);
        while !self.noted[i].load(Ordering::Acquire) {
            thread::yield_now();
        }
    }

    fn await_begin(&self, i: usize) {
        while !self.begun[i].load(Ordering::Acquire) {
            thread::yield_now();
        }
    }

    fn is_over(&self, i: usize) -> bool {
        self.over[i].load(Ordering::Acquire)
    }

    fn noted(&self, i: usize) {
        self.noted[i].store(true, Ordering::Release);
    }
}

/// Two sides that may look into each other's memory.
fn sides(joined: &Joined) -> (Segment, Segment) {
    reach::set_pid(std::process::id().cast_signed());
    policy::set(Mode::Sync, 4096); // (for all tests of the process: what others put is shorter)
    let (mut source, mut sink) = joined.sides(1);
    for side in [&mut source, &mut sink] {
        side.set_peer_user(crate::sys::euid());
        side.settle_in();
    }
    assert!(source.reaches().is_ok() && sink.reaches().is_ok());
    (source, sink)
}

/// A reader dies after so many whole chunks, in the middle of the next if `amid`; another reads on. What the source
/// counts as arrived is what the dead had received and what the other reads, and that is at its place.
fn dies_after(chunks: u64, amid: bool) {
    let joined = Joined::new(4096);
    let (source, sink) = sides(&joined);
    let bytes: Vec<u8> = (0..700_000).map(|i| byte(0, i)).collect();
    assert!(source.advertise(0, bytes.as_ptr(), bytes.len()));
    let (number, _) = sink.pass_adverts();
    let claims = super::source::claims(sink.peer(), sink.mine(), number);
    let total = bytes.len() as u64;
    let mut dead = 0;
    for _ in 0..chunks {
        if let Claim::Chunk(c) = claims.claim_to_pull(total, |left| policy::chunk(total, left)) {
            assert!(claims.pulled(c, true));
            dead += c.len;
        }
    }
    let began = amid
        && matches!(
            claims.claim_to_pull(total, |left| policy::chunk(total, left)),
            Claim::Chunk(_)
        );
    sink.bury_reader();
    let mut rest = vec![0u8; bytes.len()];
    let mut got = 0;
    while sink.pending().is_some() {
        let to = Some(rest[got..].as_mut_ptr());
        // SAFETY: the memory has that much room.
        let n = unsafe { sink.receive(0, to, 50_000.min(bytes.len() - got)) };
        assert!(n > 0, "nothing of what is said to be left");
        got += n;
    }
    assert!(source.is_taken());
    let arrived = source.conclude();
    assert_eq!(arrived, dead as usize + got, "after {chunks} {amid}");
    assert_eq!(arrived == bytes.len(), !began);
    assert!(rest[..got] == bytes[dead as usize..arrived]);
    assert!(!sink.looks_large() || sink.pending().is_none());
    // (and the next is whole)
    assert!(source.advertise(0, bytes.as_ptr(), 5000));
    // SAFETY: as above.
    let n = unsafe { sink.receive(0, Some(rest.as_mut_ptr()), 5000) };
    assert_eq!((n, source.conclude()), (5000, 5000));
}

#[test]
fn a_reader_dies_and_another_reads_on() {
    for chunks in 0..40 {
        dies_after(chunks, false);
        dies_after(chunks, true);
    }
}

/// A reader has taken so many bytes out of the lane and dies before it says so.
#[test]
fn a_reader_of_a_lane_dies_and_another_reads_on() {
    for taken in [0, 1, 2999, 3000, 3001, 7000] {
        let joined = Joined::new(4096);
        let (source, sink) = sides(&joined);
        let (from, to) = std::io::pipe().unwrap();
        let pipe = crate::sys::fd::inode(from.as_raw_fd()).unwrap();
        source.offer_lane(from.as_raw_fd(), pipe);
        let far = Far::new();
        sink.fetch(&far);
        assert!(sink.fetched());
        let bytes: Vec<u8> = (0..7000).map(|i| byte(0, i)).collect();
        for (at, part) in [(0, &bytes[..3000]), (0, &bytes[3000..])] {
            (&to).write_all(part).unwrap();
            source.hold(at, part.len());
        }
        let mut away = vec![0u8; taken];
        assert_eq!(
            // SAFETY: the memory has that much room.
            unsafe { far.take(Some(away.as_mut_ptr()), taken.min(3000)) },
            Ok(taken.min(3000))
        );
        if taken > 3000 {
            // (one advert at a time: the first was noted)
            assert!(sink.bury_reader_of_lane(&far));
            assert_eq!(
                // SAFETY: as above.
                unsafe { far.take(Some(away.as_mut_ptr()), taken - 3000) },
                Ok(taken - 3000)
            );
        }
        assert!(source.enter());
        assert!(!sink.bury_reader_of_lane(&far), "in the middle of a put");
        source.leave();
        assert!(sink.bury_reader_of_lane(&far));
        let mut rest = vec![0u8; 7000 - taken];
        let mut got = 0;
        while sink.pending().is_some() {
            let at = rest[got..].as_mut_ptr();
            // SAFETY: as above.
            let n = unsafe { sink.receive_held(0, Some(at), rest.len() - got, &far) };
            got += n.expect("the lane holds what is said");
        }
        assert_eq!(got, rest.len(), "after {taken}");
        assert!(rest == bytes[taken..]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_arrived_is_what_was_sent(messages in prop::collection::vec(message(), 1..24)) {
        let joined = Joined::new(4096);
        let (source, sink) = sides(&joined);
        let turn = Turn::new(messages.len());
        let (sent, received) = thread::scope(|scope| {
            let sender = scope.spawn(|| send(&source, &messages, &turn));
            let received = receive(&sink, &messages, &turn);
            (sender.join().unwrap(), received)
        });
        prop_assert_eq!(&sent, &received);
        prop_assert!(joined.is_untouched(0) && joined.is_untouched(2));
        prop_assert_eq!(source.moved() as usize, sent.iter().sum::<usize>());
    }
}
