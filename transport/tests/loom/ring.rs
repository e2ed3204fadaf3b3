//! The words and the memory of a direction, under loom: each scheme of `flowctl` over shared words and
//! memory that loom watches. Each cell stands for `CELL` bytes; loom reports two threads in one cell at
//! a time.

use super::check;
use flowctl::any::{Receiver, Sender};
use flowctl::packetized::WARM;
use flowctl::{
    Back, Granted, Inbox, Note, Notes, Outbox, Piece, Receiver as _, Scheme, Sender as _, Terms,
    Untrusted, Word,
};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;

/// Bytes of the stream that one cell stands for.
const CELL: usize = 2048;

/// One direction as it lies in a segment.
struct Direction {
    terms: Terms,
    words: [AtomicU64; 8],
    backs: [AtomicU64; 5],
    headers: Vec<AtomicU32>,
    region: Vec<UnsafeCell<u8>>,
}

// SAFETY: the protocol keeps the two threads out of each other's cells, which is what is checked.
unsafe impl Sync for Direction {}
// SAFETY: as above.
unsafe impl Send for Direction {}

/// Notes belong to one side, here to the reader, which acknowledges by itself.
impl Notes for Direction {
    fn note(&self, _: Note, _: u64) {}
    fn noted(&self, _: Note) -> u64 {
        0
    }
}

impl Outbox for Direction {
    fn tell(&self, word: Word, value: u64) {
        self.words[word as usize].store(value, Ordering::Release);
    }
    fn handed_back(&self, back: Back) -> Untrusted<u64> {
        Untrusted::new(self.backs[back as usize].load(Ordering::Acquire))
    }
    fn write_header(&self, offset: usize, len: u32) {
        self.headers[offset / Terms::stride(CELL)].store(len, Ordering::Relaxed);
    }
    fn read_header(&self, offset: usize) -> Untrusted<u32> {
        Inbox::header(self, offset)
    }
}

impl Inbox for Direction {
    fn told(&self, word: Word) -> Untrusted<u64> {
        Untrusted::new(self.words[word as usize].load(Ordering::Acquire))
    }
    fn hand_back(&self, back: Back, value: u64) {
        self.backs[back as usize].store(value, Ordering::Release);
    }
    fn header(&self, offset: usize) -> Untrusted<u32> {
        let at = offset / Terms::stride(CELL);
        Untrusted::new(self.headers[at].load(Ordering::Relaxed))
    }
}

impl Direction {
    /// A region whose halves have this many bytes each, of which so much is the sender's own.
    fn new(scheme: Scheme, half: usize, own: usize) -> Arc<Self> {
        let advertised = (half / CELL) as u64;
        let d = Self {
            terms: Terms {
                scheme,
                buffer: half as u64,
                own: own as u64,
                slots: 2,
                slot: CELL as u32,
                window: CELL as u32,
            },
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            backs: std::array::from_fn(|i| {
                AtomicU64::new(if i == Back::Advertised as usize {
                    advertised
                } else {
                    0
                })
            }),
            headers: (0..4).map(|_| AtomicU32::new(0)).collect(),
            region: (0..2 * half / CELL).map(|_| UnsafeCell::new(0)).collect(),
        };
        Arc::new(d)
    }

    fn size(&self) -> usize {
        self.region.len() * CELL
    }

    fn cells(&self, piece: Piece) -> &[UnsafeCell<u8>] {
        if self.terms.scheme == Scheme::Credit {
            assert!(piece.len <= CELL);
            return &self.region[piece.offset / Terms::stride(CELL)..][..piece.len / CELL];
        }
        assert!(
            piece.offset.is_multiple_of(CELL) && piece.len.is_multiple_of(CELL),
            "whole cells only"
        );
        &self.region[piece.offset / CELL..(piece.offset + piece.len) / CELL]
    }
}

/// Sends messages of the given numbers of cells, as `sdp::Tx::put` does: several pieces may go before
/// they are told of. At the end it waits in the library. Returns whether the sender started over at the
/// buffer's beginning.
fn send(d: &Direction, messages: &[usize]) -> bool {
    let mut tx = Sender::new(d.size(), &d.terms);
    let mut next = 0u8;
    let mut warm = false;
    for &cells in messages {
        let mut left = cells * CELL;
        while left > 0 {
            tx.granted(d).unwrap();
            tx.post(false, d);
            let piece = tx.place(left);
            if piece.len == 0 {
                tx.post(true, d);
                thread::yield_now();
                continue;
            }
            for cell in d.cells(piece) {
                next += 1;
                // SAFETY: free room is this thread's alone; loom checks it.
                cell.with_mut(|byte| unsafe { *byte = next });
            }
            left -= piece.len;
            tx.commit(piece.len, d);
            tx.publish(d);
            warm |= d.words[Word::Origin as usize].load(Ordering::Relaxed) >= WARM;
        }
    }
    tx.post(true, d);
    warm
}

/// Reads until all has come, as `sdp::Rx::read` does.
fn receive(d: &Direction, cells: usize, most: usize, eager: bool) {
    let mut rx = Receiver::new(d.size(), &d.terms);
    let mut next = 0u8;
    let (mut read, mut freed) = (0, 0);
    while rx.consumed() < (cells * CELL) as u64 {
        rx.announced(d).unwrap();
        let mut piece = rx.next(d).unwrap();
        piece.len = piece.len.min(most * CELL);
        if piece.len == 0 {
            rx.grant(true, d);
            thread::yield_now();
            continue;
        }
        for cell in d.cells(piece) {
            next += 1;
            // SAFETY: announced bytes are this thread's alone; loom checks it.
            let byte = cell.with(|byte| unsafe { *byte });
            assert_eq!(byte, next, "exact and in order");
        }
        rx.consume(piece.len);
        read += 1;
        if rx.grant(eager, d) == Granted::UpdateDue && freed != read {
            freed = read;
            d.hand_back(Back::Acknowledged, freed);
        }
    }
    assert_eq!(usize::from(next), cells);
}

/// Runs the two halves against each other; returns whether any run started over warm.
fn run(
    preemptions: usize,
    (scheme, half, own): (Scheme, usize, usize),
    messages: &'static [usize],
    most: usize,
    eager: bool,
) -> bool {
    let warm = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = warm.clone();
    check(preemptions, move || {
        let d = Direction::new(scheme, half, own);
        let reader = {
            let d = d.clone();
            let cells = messages.iter().sum();
            thread::spawn(move || receive(&d, cells, most, eager))
        };
        if send(&d, messages) {
            seen.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        reader.join().unwrap();
    });
    warm.load(std::sync::atomic::Ordering::Relaxed)
}

const SMALL: (Scheme, usize, usize) = (Scheme::Packetized, 4096, 0);
const LARGE: (Scheme, usize, usize) = (Scheme::Packetized, 8192, 0);

#[test]
fn bytes_are_exact_round_a_full_ring() {
    run(2, SMALL, &[2, 1, 1], 1, true);
}

#[test]
fn an_origin_that_moves_is_never_read_wrongly() {
    assert!(
        run(2, LARGE, &[2, 2, 1], 2, true),
        "no run started over warm"
    );
}

/// After a start in the middle of the ring the position of a byte no longer follows from its number
/// alone: reader and sender have to agree on the origin.
#[test]
fn an_origin_that_moves_off_a_multiple_of_the_ring() {
    assert!(
        run(2, LARGE, &[3, 2, 1], 4, true),
        "no run started over warm"
    );
}

#[test]
fn lazy_grants_never_stall_the_sender() {
    run(2, LARGE, &[3, 3], 4, false);
}

/// Out of room, into the sender's own buffer, and back to the ring once that is empty.
#[test]
fn bytes_are_exact_through_the_own_buffer() {
    run(2, (Scheme::Packetized, 2048, 2048), &[1, 1, 1], 1, true);
}

#[test]
fn segments_are_pulled_and_the_ring_goes_on() {
    run(2, (Scheme::Nic, 4096, 4096), &[1, 1, 1], 1, true);
}

#[test]
fn slots_are_used_again_once_freed() {
    run(2, (Scheme::Credit, 4096, 0), &[1, 2, 1], 1, true);
}

/// The control: a sender that believes in more room than there is meets the reader in a cell.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_sender_that_ignores_the_grants_is_caught() {
    check(3, || {
        let d = Direction::new(Scheme::Packetized, 4096, 0);
        let reader = {
            let d = d.clone();
            thread::spawn(move || receive(&d, 2, 1, true))
        };
        send(&d, &[2]);
        // SAFETY: not safe, and loom is to say so.
        d.region[0].with_mut(|byte| unsafe { *byte = 0 });
        reader.join().unwrap();
    });
}
