//! The bounded whole: every interleaving of both ends' steps on small connections, none of which may
//! end with bytes left, an update that cannot go, or a program that waits for ever.

use super::model::Pair;
use super::std::collections::HashSet;
use super::std::format;
use super::std::hash::{DefaultHasher, Hash as _, Hasher as _};
use super::std::vec;
use super::terms;
use crate::{Receiver as _, Scheme, Sender as _, Terms};

/// What a side has yet to send and to read.
#[derive(Clone, Copy, Debug)]
struct Plan {
    send: usize,
    read: usize,
    /// Bytes a call.
    size: usize,
}

/// A state by what decides about the future: not by what was counted for the report.
fn key(pair: &Pair, plans: [Plan; 2]) -> (u64, u64) {
    let mut text = format!("{plans:?}");
    for side in &pair.sides {
        let whole = format!("{:?}{:?}{:?}", side.tx, side.rx, side.wire.mine);
        let (before, counts) = whole
            .split_once("counts: Counts {")
            .expect("a sender counts");
        let (_, after) = counts.split_once('}').expect("counts end");
        text.push_str(before);
        text.push_str(after);
    }
    let hash = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        text.hash(&mut hasher);
        hasher.finish()
    };
    (hash(0), hash(1))
}

/// Walks over all states. A step is one call of one side, or its due update, which may come at any time
/// later, or the program's long stay in the library. Returns how many states there are.
fn explore(terms: [Terms; 2], plans: [Plan; 2]) -> usize {
    let mut seen = HashSet::new();
    let mut open = vec![(Pair::new(1024, terms), plans)];
    while let Some((pair, plans)) = open.pop() {
        let mut moved = false;
        for who in [0, 1] {
            let mut step = |next: Pair, plans: [Plan; 2], did: bool| {
                if did {
                    moved = true;
                }
                if seen.insert(key(&next, plans)) {
                    open.push((next, plans));
                }
            };
            let plan = plans[who];
            if plan.send > 0 {
                let mut next = pair.fork();
                let n = next.send(who, plan.size.min(plan.send));
                let mut left = plans;
                left[who].send -= n;
                step(next, left, n > 0);
            }
            if plan.read > 0 {
                let mut next = pair.fork();
                let n = next.recv(who, plan.size.min(plan.read));
                let mut left = plans;
                left[who].read -= n;
                step(next, left, n > 0);
            }
            if pair.is_due(who) {
                let mut next = pair.fork();
                let did = next.update(who);
                step(next, plans, did);
            }
            if pair.sides[who].tx.is_parked() {
                let mut next = pair.fork();
                let did = next.wait(who);
                step(next, plans, did);
            }
        }
        if !moved {
            // Nobody can go on: then all is done. (Steps that move nothing but hand back were pushed
            // above, so a state from which only those lead on is judged at its successors.)
            let last = pair.fork();
            let mut probe = last.fork();
            let mut again = false;
            for who in [0, 1] {
                probe.recv(who, 1);
                again |= probe.is_due(who) && probe.update(who);
                again |= plans[who].send > 0 && probe.send(who, 1) > 0;
            }
            let done = plans.iter().all(|p| p.send == 0 && p.read == 0);
            assert!(done || again, "stuck: {plans:?} {:#?}", last.sides);
            if done {
                for side in &last.sides {
                    assert!(side.flying.is_empty() && side.rx.available() == 0);
                }
            }
        }
    }
    seen.len()
}

fn plans(messages: usize, size: usize) -> [Plan; 2] {
    let plan = Plan {
        send: messages * size,
        read: messages * size,
        size,
    };
    [plan, plan]
}

#[test]
fn credit_both_ways_with_few_credits() {
    for (slots, messages) in [(2, 4), (3, 4), (4, 5)] {
        let t = terms(Scheme::Credit, 64, slots, 8, 8);
        let states = explore([t, t], plans(messages, 3));
        assert!(states > 500, "{slots} slots: only {states} states");
    }
}

#[test]
fn credit_with_a_different_number_each_way() {
    let a = terms(Scheme::Credit, 64, 2, 8, 8);
    let b = terms(Scheme::Credit, 64, 4, 8, 8);
    assert!(explore([a, b], plans(4, 3)) > 500);
}

#[test]
fn packetized_and_nic_in_small_buffers() {
    for scheme in [Scheme::Packetized, Scheme::Nic] {
        for window in [1, 4] {
            let mut t = terms(scheme, 4, 1, 8, window);
            t.own = 3;
            let states = explore([t, t], plans(3, 3));
            assert!(states > 200, "{scheme:?}: only {states} states");
        }
    }
}

#[test]
fn schemes_mixed() {
    for a in Scheme::ALL {
        for b in Scheme::ALL {
            if a == b {
                continue;
            }
            let (mut ta, mut tb) = (terms(a, 6, 2, 3, 3), terms(b, 6, 2, 3, 3));
            (ta.own, tb.own) = (3, 3);
            let states = explore([ta, tb], plans(3, 3));
            assert!(states > 200, "{a:?} {b:?}: only {states} states");
        }
    }
}
