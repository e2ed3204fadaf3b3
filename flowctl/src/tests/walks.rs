//! Random walks of both ends, every pair of schemes.

use super::model::Pair;
use super::std::vec::Vec;
use super::terms;
use crate::{Scheme, Terms};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    More(usize),
    Pull,
    Recv(usize),
    Update,
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        4 => (1usize..6000).prop_map(Step::Send),
        4 => (1usize..200).prop_map(Step::Send),
        2 => (1usize..3000).prop_map(Step::More),
        1 => Just(Step::Pull),
        4 => (1usize..9000).prop_map(Step::Recv),
        2 => (1usize..200).prop_map(Step::Recv),
        2 => Just(Step::Update),
        1 => Just(Step::Wait),
    ];
    prop::collection::vec((0usize..2, step), 1..400)
}

fn any_terms(region: usize) -> impl Strategy<Value = Terms> {
    let half = region as u64 / 2;
    (
        prop_oneof![
            Just(Scheme::Credit),
            Just(Scheme::Packetized),
            Just(Scheme::Nic)
        ],
        1..=half,
        0..=half,
        prop_oneof![2u32..5, 2u32..40],
        1u32..3000,
        1u32..3000,
    )
        .prop_map(move |(scheme, buffer, own, slots, slot, window)| {
            let terms = Terms {
                scheme,
                buffer,
                own,
                slots,
                slot,
                window,
            };
            terms.cut(region, u64::MAX)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn bytes_are_exact_and_nothing_stalls(
        steps in steps(),
        a in any_terms(8192),
        b in any_terms(8192),
    ) {
        let mut pair = Pair::new(8192, [a, b]);
        for (who, step) in steps {
            match step {
                Step::Send(n) => { pair.send(who, n); }
                Step::More(n) => { pair.send_more(who, n, true); }
                Step::Pull => pair.pull(who),
                Step::Recv(n) => { pair.recv(who, n); }
                Step::Update => if pair.is_due(who) { pair.update(who); },
                Step::Wait => { pair.wait(who); }
            }
        }
        let mut left = pair.fork();
        left.lose(0);
        left.lose(1);
        pair.finish();
    }
}

/// What is withheld is not for the receiver before the next word, and all of it is then.
#[test]
fn what_is_withheld_waits_for_what_follows() {
    for scheme in Scheme::ALL {
        let t = terms(scheme, 4096, 8, 1024, 512);
        let mut pair = Pair::new(16384, [t, t]);
        for round in 0..50 {
            assert_eq!(pair.send_more(0, 100, true), 100);
            assert_eq!(pair.recv(1, 1000), 0, "{scheme:?} {round}");
            assert_eq!(pair.send_more(0, 200, true), 200);
            assert_eq!(pair.recv(1, 1000), 0, "{scheme:?} {round}");
            if round % 3 == 0 {
                pair.pull(1);
                assert_eq!(pair.recv(1, 1000), 300, "{scheme:?} {round}");
            }
            assert_eq!(pair.send(0, 50), 50);
            let rest = if round % 3 == 0 { 50 } else { 350 };
            assert_eq!(pair.recv(1, 1000), rest, "{scheme:?} {round}");
            if pair.is_due(1) {
                pair.update(1);
            }
        }
        pair.finish();
    }
}

/// Much traffic one way, read in pieces, with grants as late as they may be.
#[test]
fn a_stream_never_stalls() {
    for scheme in Scheme::ALL {
        for window in [1, 100, 4096] {
            let t = terms(scheme, 4096, 4, 1024, window);
            let mut pair = Pair::new(16384, [t, t]);
            let (mut sent, mut idle) = (0, 0);
            while sent < 200_000 {
                let n = pair.send(0, 700);
                sent += n;
                idle = if n == 0 { idle + 1 } else { 0 };
                assert!(idle < 100, "{scheme:?} stalls after {sent}");
                if n < 700 {
                    pair.wait(0);
                    pair.recv(1, 1500);
                    if pair.is_due(1) {
                        pair.update(1);
                    }
                }
            }
            pair.finish();
        }
    }
}
