//! The rules that count: credits and numbers, stale adverts, modes.

use super::super::header::Seq;
use super::super::message::{Advert, Half, Message};
use super::super::mode::{End, Mode, Modes};
use super::super::sequence::{Sequence, credits};
use super::super::{Violation, header::Header, stale};
use super::header;
use proptest::prelude::*;
use std::collections::VecDeque;

#[test]
fn numbers_go_round() {
    let last = Seq(u32::MAX);
    assert_eq!((last.next(), Seq(0).previous()), (Seq(0), last));
    assert_eq!(Seq(2).since(Seq(u32::MAX - 1)), 4);
    assert!(Seq(1).has_reached(last) && !last.has_reached(Seq(1)));
    assert!(Seq(5).has_reached(Seq(5)));
}

/// Rows of free buffers, last number sent, number acknowledged, credits.
#[test]
fn credits_are_as_the_vectors() {
    for (bufs, sent, acknowledged, expected) in [
        (8, 0, 0, 8),
        (8, 7, 3, 4),
        (8, 2, u32::MAX - 1, 4),
        (3, 5, 3, 1),
        (3, 6, 3, 0),
        (3, 9, 3, 0),
    ] {
        assert_eq!(credits(bufs, Seq(sent), Seq(acknowledged)), expected);
    }
    // The first message has number 1: one that is on its way is not taken for one that has arrived.
    let mut side = Sequence::new(8, 8);
    assert_eq!(side.send(true, false).unwrap().number, Seq(1));
    assert_eq!(side.credits(), 7);
}

#[test]
fn two_credits_are_kept() {
    let mut side = Sequence::new(8, 3);
    assert!(side.send(true, false).is_some());
    assert!(side.send(true, false).is_none() && side.credits() == 2);
    assert!(side.send(false, false).is_some(), "control may go");
    assert!(
        side.credits() == 1 && side.send(false, false).is_none(),
        "nothing to hand out"
    );
    side.post(1);
    let update = side.send(false, false).unwrap();
    assert_eq!((update.bufs, side.credits()), (9, 0));
    side.post(100);
    assert!(side.send(false, false).is_none(), "silence");
}

#[test]
fn headers_are_checked_against_what_was() {
    let mut side = Sequence::new(3, 8);
    for _ in 0..2 {
        side.send(true, false).unwrap();
    }
    let broken = |h: Header| side.clone().receive(&h).err();
    assert_eq!(broken(header(8, 1, 2)), None);
    assert_eq!(broken(header(8, 2, 0)), Some(Violation::Sequence));
    assert_eq!(broken(header(8, 0, 0)), Some(Violation::Sequence));
    assert_eq!(broken(header(8, 1, 3)), Some(Violation::Acknowledgement));
    assert_eq!(
        broken(header(8, 1, u32::MAX)),
        Some(Violation::Acknowledgement)
    );
    side.receive(&header(8, 1, 2)).unwrap();
    assert!(side.is_acknowledged(Seq(2)) && !side.is_acknowledged(Seq(3)));
    let back = side.clone().receive(&header(8, 2, 1)).err();
    assert_eq!(back, Some(Violation::Acknowledgement));
    side.receive(&header(8, 2, 2)).unwrap();
    side.receive(&header(8, 3, 2)).unwrap();
    assert_eq!(side.receive(&header(8, 4, 2)), Err(Violation::Overrun));
    side.post(1);
    assert_eq!(side.receive(&header(8, 4, 2)), Ok(()));
}

#[test]
fn a_peer_that_runs_dry_is_told() {
    let mut side = Sequence::new(3, 8);
    side.receive(&header(8, 1, 0)).unwrap();
    side.post(1);
    assert!(!side.is_update_due(), "it has 2");
    side.receive(&header(8, 2, 0)).unwrap();
    side.post(1);
    assert!(side.is_update_due(), "it has 1");
    let update = side.send(false, false).unwrap();
    assert_eq!((update.acknowledged, update.bufs), (Seq(2), 3));
    assert!(!side.is_update_due() && !side.has_more_to_tell());
}

#[test]
fn a_cancel_is_acknowledged_only_with_the_answer() {
    let mut side = Sequence::new(8, 8);
    side.receive(&header(8, 1, 0)).unwrap();
    side.receive(&header(8, 2, 0)).unwrap();
    side.hold_before(Seq(2));
    side.receive(&header(8, 3, 0)).unwrap();
    let held = side.send(false, false).unwrap();
    assert_eq!((held.acknowledged, held.bufs), (Seq(1), 5));
    // A buffer more does not show: the peer takes what is not acknowledged off.
    let mut fresh = Sequence::new(8, 8);
    fresh.receive(&header(8, 1, 0)).unwrap();
    fresh.hold_before(Seq(1));
    fresh.post(1);
    assert!(!fresh.has_more_to_tell());
    fresh.release();
    assert!(fresh.has_more_to_tell());
    side.release();
    assert_eq!(side.send(false, false).unwrap().acknowledged, Seq(3));
}

#[test]
fn stale_adverts_are_dropped_as_the_vector_says() {
    let mut source = stale::Source::default();
    source.payload_sent();
    source.payload_sent();
    let used: Vec<_> = [0, 0, 0].iter().map(|&n| source.counts(n)).collect();
    assert_eq!(used, [Ok(false), Ok(false), Ok(true)]);
    assert_eq!(source.counts(1), Err(Violation::NonDiscards));
    assert_eq!(source.counts(0), Ok(true));
}

#[test]
fn only_four_changes_of_mode_are_legal() {
    let all = [Mode::Buffered, Mode::Combined, Mode::Pipelined];
    let legal = [
        (End::Source, Mode::Combined, Mode::Buffered),
        (End::Source, Mode::Combined, Mode::Pipelined),
        (End::Source, Mode::Pipelined, Mode::Combined),
        (End::Sink, Mode::Buffered, Mode::Combined),
    ];
    for by in [End::Source, End::Sink] {
        for from in all {
            for to in all {
                let expected = if from == to {
                    Err(Violation::SameMode)
                } else if legal.contains(&(by, from, to)) {
                    Ok(to)
                } else {
                    Err(Violation::Transition)
                };
                assert_eq!(from.changed(to, by), expected, "{by:?} {from:?} {to:?}");
            }
        }
    }
}

#[test]
fn both_sides_hold_the_same_modes() {
    let (mut one, mut other) = (Modes::default(), Modes::default());
    for (by_one, half, mode) in [
        (true, Half::Send, Mode::Pipelined),
        (false, Half::Send, Mode::Buffered),
        (true, Half::Receive, Mode::Combined),
        (true, Half::Send, Mode::Combined),
    ] {
        let (from, to) = if by_one {
            (&mut one, &mut other)
        } else {
            (&mut other, &mut one)
        };
        let message = from.change(half, mode).unwrap();
        to.received(&message).unwrap();
        assert_eq!((one.send, one.receive), (other.receive, other.send));
    }
    assert_eq!(
        one.change(Half::Receive, Mode::Pipelined),
        Err(Violation::Transition)
    );
    let same = Message::ModeChange {
        half: Half::Receive,
        mode: Mode::Combined,
    };
    assert_eq!(one.received(&same), Err(Violation::SameMode));
}

#[test]
fn the_payload_of_an_advert_follows_the_mode() {
    let advert = Advert {
        len: 9,
        stag: 1,
        address: 0,
    };
    for (mode, empty, some) in [
        (Mode::Combined, false, true),
        (Mode::Pipelined, true, false),
        (Mode::Buffered, false, false),
    ] {
        let mut modes = Modes {
            send: Mode::Combined,
            receive: mode,
        };
        let mut takes = |payload| {
            modes
                .received(&Message::SrcAvail { advert, payload })
                .is_ok()
        };
        assert_eq!((takes(b""), takes(b"x")), (empty, some), "{mode:?}");
    }
}

/// Two sides and what is on its way between them.
struct Pair {
    sides: [Sequence; 2],
    under_way: [VecDeque<Header>; 2],
    /// Buffers that have been used and not posted again.
    used: [u32; 2],
}

impl Pair {
    fn send(&mut self, from: usize, payload: bool) {
        if let Some(header) = self.sides[from].send(payload, false) {
            self.under_way[1 - from].push_back(header);
        }
    }

    fn deliver(&mut self, to: usize) {
        if let Some(header) = self.under_way[to].pop_front() {
            self.sides[to].receive(&header).unwrap();
            self.used[to] += 1;
        }
    }

    fn post(&mut self, at: usize) {
        self.sides[at].post(std::mem::take(&mut self.used[at]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    /// Who keeps to the rules never breaks one for the other, and the two never starve each other of updates.
    #[test]
    fn two_sides_that_keep_the_rules_agree(
        bufs in [3..9u16, 3..9u16], first in prop_oneof![any::<u32>(), u32::MAX - 40..=u32::MAX], steps in proptest::collection::vec((0..5u8, 0..2usize), 1..200),
    ) {
        let mut pair = Pair {
            sides: [Sequence::new(bufs[0], bufs[1]), Sequence::new(bufs[1], bufs[0])],
            under_way: [VecDeque::new(), VecDeque::new()],
            used: [0, 0],
        };
        for side in &mut pair.sides {
            side.renumber(first);
        }
        for (what, at) in steps {
            match what {
                0 => pair.send(at, true),
                1 => pair.send(at, false),
                2 => pair.post(at),
                _ => pair.deliver(at),
            }
        }
        // All that is under way arrives, buffers are posted again, updates go where they are due.
        for _ in 0..100 {
            for at in [0, 1] {
                while !pair.under_way[at].is_empty() {
                    pair.deliver(at);
                }
                pair.post(at);
                if pair.sides[at].is_update_due() {
                    pair.send(at, false);
                }
            }
        }
        prop_assert!(pair.under_way.iter().all(VecDeque::is_empty), "updates answer each other for ever");
        for side in pair.sides {
            prop_assert!(side.credits() >= 2, "{side:?}");
        }
    }
}
