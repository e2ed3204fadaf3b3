//! A stream that several processes share, one of which is killed in the middle of a call, at any look at a shared
//! word: what it had put or read is gone or not, the next goes on from there, and the peer gets the bytes that count,
//! in order, from a side that it has no reason to call a liar.

use super::super::Shareable;
use super::super::journal::Place;
use super::side::{Connection, Side};
use super::{How, Watched, two_terms};
use crate::provider::Provider;
use flowctl::any::{Receiver, Sender};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What a side does next; where it says so, killed after so many looks.
#[derive(Clone, Debug)]
enum Step {
    Write(usize, Option<usize>),
    Read(usize, Option<usize>),
    Arm(u32),
    /// Waits inside the library, which hands back what was read.
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    let dies = || prop::option::weighted(0.3, 0usize..24);
    prop_oneof![
        4 => ((1usize..6000), dies()).prop_map(|(n, at)| Step::Write(n, at)),
        4 => ((1usize..6000), dies()).prop_map(|(n, at)| Step::Read(n, at)),
        1 => (1u32..4).prop_map(Step::Arm),
        1 => Just(Step::Wait),
    ]
}

/// Two sides that are shared and on their fast legs.
fn shared(terms: [flowctl::Terms; 2]) -> Connection {
    let mut c = Connection::new(4096, terms);
    for i in [1, 0] {
        c.sides[i].attach();
    }
    for side in &mut c.sides {
        let p = side.p;
        side.read(&p, 0, How::default());
        let tx: &'static mut Place<Sender> = Box::leak(Box::new(Place::uninit()));
        let rx: &'static mut Place<Receiver> = Box::leak(Box::new(Place::uninit()));
        side.tx.share(Some(tx));
        side.rx.share(Some(rx));
    }
    c
}

/// Does something as a process that is killed at that look, if it comes to it. Whether it was.
fn killed(side: &mut Side, at: usize, what: impl FnOnce(&mut Side, &Watched<fn()>)) -> bool {
    struct Killed;
    let watched: Watched<fn()> = Watched::new(side.p, at, || resume_unwind(Box::new(Killed)));
    let died = catch_unwind(AssertUnwindSafe(|| what(side, &watched)));
    if let Err(payload) = died {
        if !payload.is::<Killed>() {
            resume_unwind(payload);
        }
        return true;
    }
    false
}

fn act(side: &mut Side, step: &Step) {
    let p = side.p;
    let mut died = false;
    match *step {
        Step::Write(n, None) => side.write(n),
        Step::Read(n, None) => {
            side.read(&p, n, How::default());
        }
        Step::Write(n, Some(at)) => died = killed(side, at, |side, p| side.write_through(p, n)),
        Step::Read(n, Some(at)) => {
            died = killed(side, at, |side, p| {
                side.read(p, n, How::default());
            });
        }
        Step::Arm(what) => p.arm(what),
        Step::Wait => side.wait(),
    }
    if died {
        // The locks of both halves are found orphaned, at the worst.
        side.tx.recover();
        side.rx.recover();
        side.sent = side.tx.fast_bytes();
        side.got = side.rx.fast_bytes();
    }
    // (as the locks are let go of)
    side.tx.note();
    side.rx.note();
}

fn finish(c: &mut Connection) {
    for round in 0..2 {
        for _ in 0..2000 {
            let [a, b] = &mut c.sides;
            for side in [&mut *a, &mut *b] {
                act(side, &Step::Wait);
                while {
                    let before = side.got;
                    act(side, &Step::Read(5000, None));
                    side.got > before
                } {}
            }
            if a.got == b.sent && b.got == a.sent {
                break;
            }
        }
        // What the dead had put and not told of goes with the next byte.
        if round == 0 {
            c.sides
                .iter_mut()
                .for_each(|side| act(side, &Step::Write(1, None)));
        }
    }
    all_arrived(c);
}

fn all_arrived(c: &Connection) {
    let [a, b] = &c.sides;
    assert_eq!(
        (a.got, b.got),
        (b.sent, a.sent),
        "what arrived, and what was sent"
    );
}

/// Both go back to the kernel, where a bell that was counted and never sent would be a byte that is lost.
fn go_back(c: &mut Connection, first: usize) {
    c.sides[first].cut(false);
    c.sides.iter_mut().for_each(Side::follow);
    for side in &mut c.sides {
        side.write(100);
    }
    for _ in 0..100 {
        for side in &mut c.sides {
            let p = side.p;
            side.follow();
            side.read(&p, 100, How::default());
        }
        let [a, b] = &c.sides;
        if a.got == b.sent && b.got == a.sent {
            break;
        }
    }
    all_arrived(c);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    #[test]
    fn one_of_several_may_be_killed_anywhere(
        terms in two_terms(),
        steps in prop::collection::vec((any::<bool>(), step()), 1..80),
        first in 0..2usize,
    ) {
        let mut c = shared(terms);
        for (who, step) in &steps {
            act(&mut c.sides[usize::from(*who)], step);
        }
        finish(&mut c);
        go_back(&mut c, first);
    }
}
