//! Both halves against a model: a queue of the bytes that are on their way.

use super::{Receiver, Sender, WARM};
use crate::{Receiver as _, Sender as _, Untrusted, Violation};
use proptest::prelude::*;

extern crate std;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    Recv(usize),
    Announce,
    Grant(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0usize..9000).prop_map(Step::Send),
        3 => (0usize..9000).prop_map(Step::Recv),
        2 => Just(Step::Announce),
        2 => any::<bool>().prop_map(Step::Grant),
    ];
    prop::collection::vec(step, 1..400)
}

/// Runs the steps with the control words delivered late, at each `Announce` and `Grant`.
fn run(size: usize, limit: usize, steps: &[Step]) {
    let mut tx = Sender::new(size, limit);
    let mut rx = Receiver::new(size, limit);
    let mut ring = vec![0u8; size];
    let mut flying: VecDeque<u8> = VecDeque::new();
    let mut words = None;
    let mut next = 0u8;
    for step in steps {
        match *step {
            Step::Send(want) => {
                let piece = tx.place(want);
                assert!(piece.len <= want && piece.len <= tx.room());
                assert!(piece.offset + piece.len <= size);
                for i in 0..piece.len {
                    ring[piece.offset + i] = next;
                    flying.push_back(next);
                    next = next.wrapping_mul(31).wrapping_add(7);
                }
                words = Some(tx.commit(piece.len));
                assert!(
                    flying.len() <= limit.clamp(1, size),
                    "the receiver was overrun"
                );
            }
            Step::Announce => {
                if let Some(w) = words {
                    rx.announced(Untrusted::new(w.produced), Untrusted::new(w.origin))
                        .expect("an honest sender is never a violation");
                }
            }
            Step::Recv(want) => {
                let piece = rx.next(0);
                let n = piece.len.min(want);
                for i in 0..n {
                    assert_eq!(Some(ring[piece.offset + i]), flying.pop_front());
                }
                rx.consume(n);
            }
            Step::Grant(eager) => {
                if let Some(consumed) = rx.grant(eager) {
                    tx.granted(Untrusted::new(consumed))
                        .expect("an honest grant");
                }
            }
        }
    }
    // Whatever happened, a full exchange of words always frees the whole ring: nothing stalls for good.
    let w = tx.commit(0);
    rx.announced(Untrusted::new(w.produced), Untrusted::new(w.origin))
        .expect("honest");
    while rx.available() > 0 {
        let piece = rx.next(0);
        for i in 0..piece.len {
            assert_eq!(Some(ring[piece.offset + i]), flying.pop_front());
        }
        rx.consume(piece.len);
    }
    assert!(flying.is_empty());
    if let Some(consumed) = rx.grant(true) {
        tx.granted(Untrusted::new(consumed)).expect("honest");
    }
    assert_eq!(tx.room(), limit.clamp(1, size));
}

proptest! {
    #[test]
    fn bytes_arrive_exact_and_in_order(
        size in prop_oneof![Just(4096usize), Just(8192), Just(65536)],
        limit in 1usize..70000,
        steps in steps(),
    ) {
        run(size, limit, &steps);
    }

    #[test]
    fn a_lying_receiver_is_caught(claim in any::<u64>()) {
        let mut tx = Sender::new(4096, 4096);
        let _ = tx.commit(100);
        let r = tx.granted(Untrusted::new(claim));
        prop_assert_eq!(r.is_ok(), claim <= 100);
    }

    #[test]
    fn a_lying_sender_never_points_outside(produced in any::<u64>(), origin in any::<u64>(), skip in 0usize..8192) {
        let mut rx = Receiver::new(4096, 4096);
        if rx.announced(Untrusted::new(produced), Untrusted::new(origin)).is_ok() {
            prop_assert!(rx.available() <= 4096);
            let p = rx.next(skip);
            prop_assert!(p.offset + p.len <= 4096);
        }
    }
}

#[test]
fn an_empty_ring_starts_over_warm() {
    let mut tx = Sender::new(65536, 65536);
    let mut rx = Receiver::new(65536, 65536);
    for _ in 0..1000 {
        let piece = tx.place(64);
        assert!(piece.offset < WARM as usize + 64);
        let w = tx.commit(piece.len);
        rx.announced(Untrusted::new(w.produced), Untrusted::new(w.origin))
            .expect("honest");
        assert_eq!(rx.next(0), piece);
        rx.consume(64);
        let consumed = rx.grant(true).expect("something is owed");
        tx.granted(Untrusted::new(consumed)).expect("honest");
    }
}

#[test]
fn counters_never_run_backwards() {
    let mut rx = Receiver::new(4096, 4096);
    rx.announced(Untrusted::new(100), Untrusted::new(0))
        .expect("honest");
    assert_eq!(
        rx.announced(Untrusted::new(99), Untrusted::new(0)),
        Err(Violation)
    );
    assert_eq!(
        rx.announced(Untrusted::new(4097), Untrusted::new(0)),
        Err(Violation)
    );
}
