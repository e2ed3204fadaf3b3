//! How a sender is stopped: `Provider::{enter, leave, stop_peer, peer_is_putting, stopped, give_back}` of
//! the shared-memory provider, on words that loom watches. Once the one that stops has seen the sender
//! idle, nothing more is put, and what is asked back is known to whoever knows of the stop.
//!
//! Loom takes a sequentially consistent access for an acquiring or releasing one. In the language an
//! exchange and a load that are both sequentially consistent stay in order; the model says so with a
//! fence between them.

use super::check;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;
use std::sync::Arc;

const UNSTATED: u64 = u64::MAX;

/// The words of one sender, and the ring it puts into.
struct Gate {
    putting: AtomicU32,
    stop: AtomicU32,
    give_back: AtomicU64,
    produced: AtomicU64,
    bells: AtomicU64,
    ring: UnsafeCell<u64>,
}

// SAFETY: the gate keeps the two threads apart, which is what is checked.
unsafe impl Sync for Gate {}
// SAFETY: as above.
unsafe impl Send for Gate {}

/// How the words are accessed: as they are, or with one rule broken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Right,
    EnterUnordered,
    StopUnordered,
}

impl Gate {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            putting: AtomicU32::new(0),
            stop: AtomicU32::new(0),
            give_back: AtomicU64::new(UNSTATED),
            produced: AtomicU64::new(0),
            bells: AtomicU64::new(0),
            ring: UnsafeCell::new(0),
        })
    }

    fn enter(&self, order: Order) -> bool {
        self.putting.swap(1, Ordering::SeqCst);
        if order != Order::EnterUnordered {
            fence(Ordering::SeqCst);
        }
        if self.stop.load(Ordering::SeqCst) == 0 {
            return true;
        }
        self.putting.store(0, Ordering::Release);
        false
    }

    fn leave(&self) {
        self.putting.store(0, Ordering::Release);
    }

    fn stop_peer(&self, give_back: u64, order: Order) {
        self.give_back.store(give_back, Ordering::SeqCst);
        self.stop.store(1, Ordering::SeqCst);
        if order != Order::StopUnordered {
            fence(Ordering::SeqCst);
        }
    }

    /// Puts and publishes `n` times, counting a bell each time, until stopped.
    fn put(&self, n: u64, order: Order) {
        for i in 1..=n {
            if !self.enter(order) {
                return;
            }
            // SAFETY: whoever has entered has the ring; loom checks it.
            self.ring.with_mut(|at| unsafe { *at = i });
            self.produced.store(i, Ordering::Release);
            self.bells.store(i, Ordering::SeqCst);
            self.leave();
        }
    }

    /// Stops the sender, waits until it is idle, and gathers what was put.
    fn cut(&self, order: Order) -> u64 {
        self.stop_peer(UNSTATED, order);
        while self.putting.load(Ordering::SeqCst) != 0 {
            thread::yield_now();
        }
        let produced = self.produced.load(Ordering::Acquire);
        // SAFETY: a stopped and idle sender stays out of the ring; loom checks it.
        assert_eq!(self.ring.with(|at| unsafe { *at }), produced);
        assert_eq!(
            self.bells.load(Ordering::SeqCst),
            produced,
            "every bell is known"
        );
        produced
    }
}

fn run(preemptions: usize, puts: u64, order: Order) {
    check(preemptions, move || {
        let gate = Gate::new();
        let sender = {
            let gate = gate.clone();
            thread::spawn(move || gate.put(puts, order))
        };
        let gathered = gate.cut(order);
        sender.join().unwrap();
        assert_eq!(
            gate.produced.load(Ordering::Acquire),
            gathered,
            "put after it was idle"
        );
    });
}

#[test]
fn nothing_is_put_once_a_stopped_sender_was_seen_idle() {
    run(4, 2, Order::Right);
}

#[test]
fn nothing_is_put_in_later_rounds_either() {
    run(3, 4, Order::Right);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn an_entry_without_order_is_caught() {
    run(3, 2, Order::EnterUnordered);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_stop_without_order_is_caught() {
    run(3, 2, Order::StopUnordered);
}

/// A sender that learns of the stop between two puts, by a plain look, ends its leg at once and must
/// find there what is asked back.
fn ask_back(look: Ordering) {
    check(5, move || {
        let gate = Gate::new();
        let peer = {
            let gate = gate.clone();
            thread::spawn(move || gate.stop_peer(7, Order::Right))
        };
        if gate.stop.load(look) != 0 {
            assert_eq!(
                gate.give_back.load(Ordering::Acquire),
                7,
                "asked back and not known"
            );
        }
        peer.join().unwrap();
    });
}

#[test]
fn what_is_asked_back_is_known_with_the_stop() {
    ask_back(Ordering::Acquire);
}

#[test]
#[should_panic(expected = "asked back and not known")]
fn a_relaxed_look_at_the_stop_would_not_know() {
    ask_back(Ordering::Relaxed);
}
