//! Boards: a set with a seat, which wishes once and looks at the marks alone, hears of whatever comes by either of its connections,
//! and is woken if it sleeps. A lost mark or wake-up shows as a deadlock, which loom reports.

use super::bell::Line;
use super::check;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;
use std::sync::Arc;
use transport::board::{Board, News, Place};
use transport::doorbell::{self, By, DATA, Rung, Seat, Ticket};

const SEAT: Seat = Seat { at: 0, turn: 1 };

/// What comes by one connection.
struct Connection {
    armed: AtomicU64,
    produced: AtomicU64,
}

/// Two connections of one arena between one process that publishes and one whose set watches.
struct World {
    connections: [Connection; 2],
    board: Board,
    rung: Rung,
    set: Line,
    call: Line,
}

/// What whoever sleeps does last.
#[derive(Clone, Copy, PartialEq)]
enum Last {
    /// Looks at the marks, with the ticket on the seat.
    Looks,
    /// Puts the ticket there.
    Seats,
}

impl World {
    fn new() -> Arc<Self> {
        let connection = || Connection {
            armed: AtomicU64::new(0),
            produced: AtomicU64::new(0),
        };
        let zero = || AtomicU64::new(0);
        let place = || Place {
            turn: AtomicU32::new(1),
            ticket: zero(),
        };
        let w = Self {
            connections: [connection(), connection()],
            board: Board {
                news: News([zero(), zero(), zero(), zero()]),
                turns: AtomicU32::new(1),
                seats: [place()],
            },
            rung: Rung::new(),
            set: Line::new(),
            call: Line::new(),
        };
        Arc::new(w)
    }

    /// As the shared-memory provider does.
    fn publish(&self, on: usize, value: u64) {
        let c = &self.connections[on];
        c.produced.store(value, Ordering::Release);
        let is_rung = |t: Option<Ticket>| t.is_none_or(|t| self.rung.has(0, t));
        let told = |by| match by {
            By::Ticket(t) => self.rung.has(0, t),
            By::Seat(seat) => is_rung(self.board.mark(on as u8, seat)),
        };
        if doorbell::must_ring(&c.armed, DATA, told) {
            let sleeps_by = self.board.sleeps_by(SEAT);
            self.set.ring();
            self.call.ring();
            if let Some(t) = sleeps_by {
                self.rung.note(0, t);
            }
        }
    }

    /// Looks at what is marked.
    fn hear(&self, seen: &mut [u64; 2]) {
        let marks = self.board.take(0, 3);
        for (i, seen) in seen.iter_mut().enumerate() {
            if marks >> i & 1 != 0 {
                *seen = self.connections[i].produced.load(Ordering::Acquire);
            }
        }
    }

    /// Waits until all has come. Posts both connections first.
    fn wait(&self, last: [u64; 2], order: Last) {
        for c in &self.connections {
            while !doorbell::wish_by(&c.armed, DATA, By::Seat(SEAT)) {}
        }
        fence(Ordering::SeqCst);
        let mut seen = [0, 1].map(|i| self.connections[i].produced.load(Ordering::Acquire));
        let mut number = 0;
        while seen != last {
            let heard = self.set.rung();
            number += 1;
            let before = seen;
            if order == Last::Seats {
                self.hear(&mut seen);
            }
            self.board.seat(SEAT, Ticket::new(number));
            if order == Last::Looks {
                self.hear(&mut seen);
            }
            if seen == before {
                self.set.sleep(heard);
            }
            self.board.seat(SEAT, None);
            self.hear(&mut seen);
        }
    }
}

fn one_publisher(order: Last, values: &'static [(usize, u64)]) {
    check(3, move || {
        let w = World::new();
        let mut last = [0; 2];
        for &(on, value) in values {
            last[on] = value;
        }
        let watcher = {
            let w = w.clone();
            thread::spawn(move || w.wait(last, order))
        };
        for &(on, value) in values {
            w.publish(on, value);
        }
        watcher.join().unwrap();
    });
}

#[test]
fn a_set_hears_of_either_connection() {
    one_publisher(Last::Looks, &[(0, 1), (1, 1)]);
    one_publisher(Last::Looks, &[(0, 1), (1, 1), (0, 2)]);
}

#[test]
#[should_panic(expected = "deadlock")]
fn who_sleeps_looks_at_the_marks_last() {
    one_publisher(Last::Seats, &[(0, 1), (1, 1)]);
}

#[test]
fn two_threads_of_one_process_mark() {
    check(2, || {
        let w = World::new();
        let watcher = {
            let w = w.clone();
            thread::spawn(move || w.wait([1, 1], Last::Looks))
        };
        let other = {
            let w = w.clone();
            thread::spawn(move || w.publish(1, 1))
        };
        w.publish(0, 1);
        for thread in [watcher, other] {
            thread.join().unwrap();
        }
    });
}

/// Who sleeps in a call on a posted connection is rung, though the set is awake.
#[test]
fn a_call_on_a_posted_connection_is_rung() {
    check(2, || {
        let w = World::new();
        let call = {
            let w = w.clone();
            thread::spawn(move || {
                let c = &w.connections[0];
                while c.produced.load(Ordering::Acquire) == 0 {
                    let heard = w.call.rung();
                    doorbell::arm(&c.armed, DATA);
                    if c.produced.load(Ordering::Acquire) == 0 {
                        w.call.sleep(heard);
                    }
                }
            })
        };
        let watcher = {
            let w = w.clone();
            thread::spawn(move || w.wait([1, 0], Last::Looks))
        };
        w.publish(0, 1);
        for thread in [watcher, call] {
            thread.join().unwrap();
        }
    });
}

/// A wish may outlive its set: who has the seat by then is not counted as rung by a bell that it does not hear.
#[test]
fn whoever_sits_there_now_is_not_rung_by_an_old_wish() {
    check(3, || {
        let w = World::new();
        w.board.seat(SEAT, None);
        let other = {
            let w = w.clone();
            thread::spawn(move || {
                w.board.stand_up(SEAT);
                let seat = w.board.sit_down().unwrap();
                w.board.seat(seat, Ticket::new(7));
            })
        };
        assert_eq!(w.board.mark(0, SEAT), None);
        other.join().unwrap();
        assert_eq!(w.board.mark(0, SEAT), None);
    });
}

/// What a set takes back leaves no wish by the seat.
#[test]
fn a_set_that_leaves_the_board_is_not_marked() {
    check(4, || {
        let armed = Arc::new(AtomicU64::new(0));
        let call = {
            let armed = armed.clone();
            thread::spawn(move || doorbell::arm(&armed, DATA))
        };
        assert!(doorbell::wish_by(&armed, DATA, By::Seat(SEAT)));
        doorbell::disarm_by(&armed);
        call.join().unwrap();
        assert_eq!(doorbell::by(&armed), None);
        assert_eq!(doorbell::armed(&armed), DATA);
    });
}
