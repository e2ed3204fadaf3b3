//! The doorbell: nobody sleeps through a published word, and a wish is answered by one ring at most.
//! A lost wake-up shows as a deadlock, which loom reports.

use super::check;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;
use transport::doorbell::{self, DATA, SPACE};

/// The kernel connection as far as bells go: bytes that lie there wake whoever waits for one it has not
/// seen. To have seen all bytes before going to sleep is what taking the bells off comes to.
pub(super) struct Line {
    bells: Mutex<u32>,
    came: Condvar,
}

impl Line {
    pub(super) fn new() -> Self {
        Self {
            bells: Mutex::new(0),
            came: Condvar::new(),
        }
    }

    pub(super) fn ring(&self) {
        *self.bells.lock().unwrap() += 1;
        self.came.notify_all();
    }

    pub(super) fn rung(&self) -> u32 {
        *self.bells.lock().unwrap()
    }

    pub(super) fn sleep(&self, seen: u32) {
        let mut bells = self.bells.lock().unwrap();
        while *bells == seen {
            bells = self.came.wait(bells).unwrap();
        }
    }
}

/// One side's wishes, the words that the other side publishes, and the line between them.
struct Pair {
    armed: AtomicU64,
    produced: AtomicU64,
    consumed: AtomicU64,
    line: Line,
    armings: std::sync::atomic::AtomicU32,
}

impl Pair {
    fn new(armed: u32) -> Arc<Self> {
        Arc::new(Self {
            armed: AtomicU64::new(armed.into()),
            produced: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
            line: Line::new(),
            armings: std::sync::atomic::AtomicU32::new(armed.count_ones()),
        })
    }

    fn word(&self, what: u32) -> &AtomicU64 {
        if what == DATA {
            &self.produced
        } else {
            &self.consumed
        }
    }

    /// The publisher's side of one step, with the test for a wish to be used.
    fn publish(&self, what: u32, value: u64, must_ring: fn(&AtomicU64, u32) -> bool) {
        self.word(what).store(value, Ordering::Release);
        if must_ring(&self.armed, what) {
            self.line.ring();
        }
    }

    /// The sleeper: waits until the word has reached `last`, as a blocking call does.
    fn await_word(&self, what: u32, last: u64) {
        while let Some(asleep) = self.fall_asleep(what, last, true) {
            self.line.sleep(asleep.bells);
        }
    }

    /// Goes through all a sleeper does until it would block. Nothing if the word has reached `last`.
    fn fall_asleep(&self, what: u32, last: u64, look_again: bool) -> Option<Asleep> {
        loop {
            let seen = self.word(what).load(Ordering::Acquire);
            if seen == last {
                return None;
            }
            let bells = self.line.rung();
            self.armings
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            doorbell::arm(&self.armed, what);
            if !look_again || self.word(what).load(Ordering::Acquire) == seen {
                return Some(Asleep { bells });
            }
        }
    }

    fn assert_one_ring_each(&self) {
        let armings = self.armings.load(std::sync::atomic::Ordering::Relaxed);
        assert!(self.line.rung() <= armings, "rung without a wish");
    }
}

/// A thread that blocks until there are more bells than this.
struct Asleep {
    bells: u32,
}

/// What `must_ring` would be without its fence.
fn must_ring_unfenced(armed: &AtomicU64, what: u32) -> bool {
    let what = u64::from(what);
    armed.load(Ordering::Relaxed) & what != 0
        && armed.fetch_and(!what, Ordering::AcqRel) & what != 0
}

/// Where no set sleeps by a ticket.
fn must_ring(armed: &AtomicU64, what: u32) -> bool {
    doorbell::must_ring(armed, what, |_| false)
}

/// One publisher in this thread, one sleeper in another, `rounds` words.
fn one_sleeper(rounds: u64) {
    let pair = Pair::new(0);
    let sleeper = {
        let pair = pair.clone();
        thread::spawn(move || pair.await_word(DATA, rounds))
    };
    for value in 1..=rounds {
        pair.publish(DATA, value, must_ring);
    }
    sleeper.join().unwrap();
    pair.assert_one_ring_each();
}

#[test]
fn a_sleeper_is_woken_whatever_the_order() {
    check(5, || one_sleeper(1));
}

#[test]
fn a_sleeper_is_woken_in_every_round() {
    check(3, || one_sleeper(3));
}

/// One word and one sleeper that stops short of blocking: is it left asleep when all is over?
fn left_asleep(must_ring: fn(&AtomicU64, u32) -> bool, look_again: bool) {
    check(5, move || {
        let pair = Pair::new(0);
        let sleeper = {
            let pair = pair.clone();
            thread::spawn(move || pair.fall_asleep(DATA, 1, look_again))
        };
        pair.publish(DATA, 1, must_ring);
        if let Some(asleep) = sleeper.join().unwrap() {
            assert!(pair.line.rung() > asleep.bells, "a wake-up was lost");
        }
    });
}

#[test]
fn nobody_is_left_asleep() {
    left_asleep(must_ring, true);
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn without_the_publishers_fence_a_wake_up_is_lost() {
    left_asleep(must_ring_unfenced, true);
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn without_the_second_look_a_wake_up_is_lost() {
    left_asleep(must_ring, false);
}

/// A reader and a writer of one side sleep on one line; the peer's two threads publish one word each.
#[test]
fn two_wishes_share_one_word_and_one_line() {
    check(2, || {
        let pair = Pair::new(0);
        let sleepers = [(DATA, 1), (SPACE, 1)].map(|(what, last)| {
            let pair = pair.clone();
            thread::spawn(move || pair.await_word(what, last))
        });
        let reader = {
            let pair = pair.clone();
            thread::spawn(move || pair.publish(SPACE, 1, must_ring))
        };
        pair.publish(DATA, 1, must_ring);
        reader.join().unwrap();
        for s in sleepers {
            s.join().unwrap();
        }
        pair.assert_one_ring_each();
    });
}

/// The same with one publisher that serves both wishes, twice each.
#[test]
fn two_wishes_are_served_round_after_round() {
    check(2, || {
        let pair = Pair::new(0);
        let sleepers = [DATA, SPACE].map(|what| {
            let pair = pair.clone();
            thread::spawn(move || pair.await_word(what, 2))
        });
        for value in 1..=2 {
            pair.publish(DATA, value, must_ring);
            pair.publish(SPACE, value, must_ring);
        }
        for s in sleepers {
            s.join().unwrap();
        }
        pair.assert_one_ring_each();
    });
}

#[test]
fn of_two_publishers_one_rings() {
    check(5, || {
        let armed = Arc::new(AtomicU64::new((DATA | SPACE).into()));
        let other = {
            let armed = armed.clone();
            thread::spawn(move || must_ring(&armed, DATA))
        };
        let here = must_ring(&armed, DATA);
        assert!(here != other.join().unwrap(), "one wish, one ring");
        assert_eq!(doorbell::armed(&armed), SPACE, "the other wish stands");
    });
}

/// A sleeper that found something after all takes its wish back while the publisher may be about to
/// ring: the wish of the other kind survives, and there is one ring at most.
#[test]
fn a_wish_taken_back_takes_no_other_with_it() {
    check(5, || {
        let pair = Pair::new(SPACE);
        let sleeper = {
            let pair = pair.clone();
            thread::spawn(move || {
                doorbell::arm(&pair.armed, DATA);
                doorbell::disarm(&pair.armed, DATA);
            })
        };
        pair.publish(DATA, 1, must_ring);
        sleeper.join().unwrap();
        assert!(pair.line.rung() <= 1);
        assert_eq!(doorbell::armed(&pair.armed), SPACE);
    });
}
