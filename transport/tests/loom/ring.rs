//! The ring protocol: `flowctl::packetized` over shared words and memory that loom watches. Each cell of
//! the ring stands for `CELL` bytes; loom reports two threads in one cell at a time.

use super::check;
use flowctl::packetized::{Receiver, Sender, WARM};
use flowctl::{Piece, Receiver as _, Sender as _, Untrusted};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;

/// Bytes of the stream that one cell stands for.
const CELL: usize = 2048;

/// One direction as it lies in a segment.
struct Direction {
    produced: AtomicU64,
    origin: AtomicU64,
    consumed: AtomicU64,
    ring: Vec<UnsafeCell<u8>>,
}

// SAFETY: the protocol keeps the two threads out of each other's cells, which is what is checked.
unsafe impl Sync for Direction {}
// SAFETY: as above.
unsafe impl Send for Direction {}

impl Direction {
    fn new(size: usize) -> Arc<Self> {
        Arc::new(Self {
            produced: AtomicU64::new(0),
            origin: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
            ring: (0..size / CELL).map(|_| UnsafeCell::new(0)).collect(),
        })
    }

    fn cells(&self, piece: Piece) -> &[UnsafeCell<u8>] {
        assert!(
            piece.offset.is_multiple_of(CELL) && piece.len.is_multiple_of(CELL),
            "whole cells only"
        );
        &self.ring[piece.offset / CELL..(piece.offset + piece.len) / CELL]
    }
}

/// Sends messages of the given numbers of cells, as `sdp::Tx::put` does: several pieces may go before
/// their words are published.
fn send(d: &Direction, size: usize, messages: &[usize]) -> Moves {
    let mut tx = Sender::new(size, size);
    let mut next = 0u8;
    let mut moves = Moves { warm: false };
    for &cells in messages {
        let mut left = cells * CELL;
        while left > 0 {
            let consumed = d.consumed.load(Ordering::Acquire);
            tx.granted(Untrusted::new(consumed)).unwrap();
            let piece = tx.place(left);
            if piece.len == 0 {
                thread::yield_now();
                continue;
            }
            for cell in d.cells(piece) {
                next += 1;
                // SAFETY: free room of the ring is this thread's alone; loom checks it.
                cell.with_mut(|byte| unsafe { *byte = next });
            }
            left -= piece.len;
            let words = tx.commit(piece.len);
            moves.warm |= words.origin >= WARM;
            d.origin.store(words.origin, Ordering::Relaxed);
            d.produced.store(words.produced, Ordering::Release);
        }
    }
    moves
}

/// Whether the sender started over at the ring's beginning.
struct Moves {
    warm: bool,
}

/// Reads until all has come, as `sdp::Rx::read` does.
fn receive(d: &Direction, size: usize, cells: usize, most: usize, eager: bool) {
    let mut rx = Receiver::new(size, size);
    let mut next = 0u8;
    while rx.consumed() < (cells * CELL) as u64 {
        let produced = Untrusted::new(d.produced.load(Ordering::Acquire));
        let origin = Untrusted::new(d.origin.load(Ordering::Relaxed));
        rx.announced(produced, origin).unwrap();
        let mut piece = rx.next(0);
        piece.len = piece.len.min(most * CELL);
        if piece.len == 0 {
            if let Some(consumed) = rx.grant(true) {
                d.consumed.store(consumed, Ordering::Release);
            }
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
        if let Some(consumed) = rx.grant(eager) {
            d.consumed.store(consumed, Ordering::Release);
        }
    }
    assert_eq!(usize::from(next), cells);
}

/// Runs the two halves against each other; returns through `warm` whether any run started over warm.
fn run(
    preemptions: usize,
    size: usize,
    messages: &'static [usize],
    most: usize,
    eager: bool,
) -> bool {
    let warm = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = warm.clone();
    check(preemptions, move || {
        let d = Direction::new(size);
        let reader = {
            let d = d.clone();
            let cells = messages.iter().sum();
            thread::spawn(move || receive(&d, size, cells, most, eager))
        };
        if send(&d, size, messages).warm {
            seen.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        reader.join().unwrap();
    });
    warm.load(std::sync::atomic::Ordering::Relaxed)
}

#[test]
fn bytes_are_exact_round_a_full_ring() {
    run(3, 4096, &[2, 1, 1], 1, true);
}

#[test]
fn an_origin_that_moves_is_never_read_wrongly() {
    assert!(
        run(3, 8192, &[2, 2, 1], 2, true),
        "no run started over warm"
    );
}

/// After a start in the middle of the ring the position of a byte no longer follows from its number
/// alone: reader and sender have to agree on the origin.
#[test]
fn an_origin_that_moves_off_a_multiple_of_the_ring() {
    assert!(
        run(3, 8192, &[3, 2, 1], 4, true),
        "no run started over warm"
    );
}

#[test]
fn lazy_grants_never_stall_the_sender() {
    run(3, 8192, &[3, 3], 4, false);
}

/// The control: a sender that believes in more room than there is meets the reader in a cell.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_sender_that_ignores_the_grants_is_caught() {
    check(3, || {
        let size = 4096;
        let d = Direction::new(size);
        let reader = {
            let d = d.clone();
            thread::spawn(move || receive(&d, size, 2, 1, true))
        };
        send(&d, size, &[2]);
        // SAFETY: not safe, and loom is to say so.
        d.ring[0].with_mut(|byte| unsafe { *byte = 0 });
        reader.join().unwrap();
    });
}
