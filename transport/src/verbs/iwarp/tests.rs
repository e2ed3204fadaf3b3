//! The ledger of work and words.

use crate::verbs::ledger::{Ledger, RESERVE};
use crate::verbs::message::Message;
use crate::verbs::{DEPTH, Done, ENDED, INLINE, Operation, TELLS, Work};

fn work(id: u64, tell: Option<u32>, signaled: bool) -> Work {
    Work {
        operation: Operation::Write,
        local: std::ptr::null_mut(),
        len: 0,
        lkey: 0,
        remote: 0,
        rkey: 0,
        signaled,
        tell,
        id,
    }
}

fn take(ledger: &mut Ledger, id: u64, tell: Option<u32>) -> bool {
    ledger
        .take(work(id, tell, true), [0; INLINE as usize])
        .is_ok()
}

/// Gives all to the adapter that can be: their numbers.
fn give(ledger: &mut Ledger) -> Vec<u64> {
    let ready: Vec<u64> = ledger.ready().map(|held| held.number).collect();
    ledger.given(ready.len());
    ready
}

fn done(ledger: &mut Ledger) -> Vec<Done> {
    let mut all = vec![Done::default(); 1024];
    let n = ledger.hand_out(&mut all);
    all.truncate(n);
    all
}

#[test]
fn a_completion_tells_of_all_before_it() {
    let mut ledger = Ledger::new();
    for id in 0..DEPTH as u64 {
        assert!(take(&mut ledger, id, None));
    }
    assert!(!take(&mut ledger, 99, None), "more than may be outstanding");
    let numbers = give(&mut ledger);
    ledger.completed(numbers[9], 0);
    let told = done(&mut ledger);
    assert_eq!(told.len(), 1);
    assert!(told[0].ok && told[0].id == 9);
    for id in 0..10 {
        assert!(take(&mut ledger, 100 + id, None), "room for what has ended");
    }
    assert!(!take(&mut ledger, 99, None));
}

#[test]
fn what_tells_waits_for_room_and_what_is_behind_it_too() {
    let mut ledger = Ledger::new();
    for i in 0..TELLS as u64 {
        assert!(take(&mut ledger, i, Some(0)));
        let given = give(&mut ledger);
        ledger.completed(*given.last().unwrap(), 0);
        done(&mut ledger);
    }
    assert!(take(&mut ledger, 1000, Some(1)));
    assert!(take(&mut ledger, 1001, None));
    assert_eq!(give(&mut ledger).len(), 0);
    assert!(ledger.hear(Some(Message::Credits(1))));
    assert_eq!(give(&mut ledger).len(), 2, "one word, and what tells none");
    assert!(take(&mut ledger, 1002, Some(1)));
    assert_eq!(give(&mut ledger).len(), 0);
    assert!(
        !ledger.hear(Some(Message::Credits(TELLS as u32 + 1))),
        "more room than there ever was"
    );
    assert!(!ledger.hear(None), "what nobody says");
}

#[test]
fn a_peer_that_tells_more_than_it_may_is_found_out() {
    let mut ledger = Ledger::new();
    for i in 0..TELLS as u32 {
        assert!(ledger.hear(Some(Message::Word(i))));
    }
    assert!(!ledger.hear(Some(Message::Word(0))));
    assert_eq!(ledger.take_back(), None, "none was polled");
    let mut some = [Done::default(); TELLS / 2];
    assert_eq!(ledger.hand_out(&mut some), TELLS / 2);
    assert_eq!(ledger.take_back(), Some(Message::Credits(TELLS as u32 / 2)));
    for i in 0..TELLS as u32 / 2 {
        assert!(ledger.hear(Some(Message::Word(i))));
    }
    assert!(!ledger.hear(Some(Message::Word(0))));
}

#[test]
fn two_ends_that_only_tell_never_run_out_of_receives() {
    // One end tells whenever it can, the other polls in pieces of all sizes and says so: receives that are not posted anew.
    for piece in [1, 7, TELLS / 4, TELLS] {
        let (mut from, mut to) = (Ledger::new(), Ledger::new());
        let mut on_the_way: Vec<Message> = Vec::new();
        let mut told = 0;
        for id in 0..4000 {
            if take(&mut from, id, Some(0)) {
                let given = give(&mut from);
                for number in given {
                    assert!(to.hear(Some(Message::Word(0))), "a word without a receive");
                    from.completed(number, 0);
                    told += 1;
                }
                done(&mut from);
            }
            let mut some = vec![Done::default(); piece];
            to.hand_out(&mut some);
            on_the_way.extend(to.take_back());
            assert!(on_the_way.len() < RESERVE);
            if id % 50 == 49 {
                on_the_way
                    .drain(..)
                    .for_each(|credits| assert!(from.hear(Some(credits))));
                give(&mut from).into_iter().for_each(|number| {
                    assert!(to.hear(Some(Message::Word(0))));
                    from.completed(number, 0);
                    told += 1;
                });
                done(&mut from);
            }
        }
        assert!(told > 1000, "{told}");
    }
}

#[test]
fn all_that_is_under_way_ends_with_the_connection() {
    let mut ledger = Ledger::new();
    assert!(take(&mut ledger, 1, None) && take(&mut ledger, 2, None));
    let numbers = give(&mut ledger);
    assert!(take(&mut ledger, 3, None));
    ledger.completed(numbers[0], 12);
    let ids: Vec<(u64, bool, u32)> = done(&mut ledger)
        .iter()
        .map(|d| (d.id, d.ok, d.status))
        .collect();
    assert_eq!(ids, [(1, false, 12), (2, false, 5), (3, false, 5)]);
    assert!(take(&mut ledger, 4, Some(1)));
    let last = done(&mut ledger);
    assert!(last.len() == 1 && last[0].id == 4 && !last[0].ok);
    ledger.completed(numbers[1], 5);
    ledger.end();
    assert!(done(&mut ledger).is_empty(), "said twice");
}

#[test]
fn an_end_that_nothing_was_under_way_for_is_told_too() {
    let mut ledger = Ledger::new();
    assert!(take(&mut ledger, 1, None));
    let numbers = give(&mut ledger);
    ledger.completed(numbers[0], 0);
    ledger.end();
    let ids: Vec<(u64, bool)> = done(&mut ledger).iter().map(|d| (d.id, d.ok)).collect();
    assert_eq!(ids, [(1, true), (ENDED, false)]);
}
