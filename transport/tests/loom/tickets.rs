//! Tickets: a set that sleeps on two connections is woken whatever comes by either, though it is rung once for both, and so is a
//! thread that sleeps in a call on one of them.

use super::bell::Line;
use super::check;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use std::sync::Arc;
use transport::doorbell::{self, By, DATA, Rung, Ticket};

/// What comes by one connection.
struct Connection {
    armed: AtomicU64,
    produced: AtomicU64,
}

/// Two connections between one process that publishes and one that sleeps; the kernel's set, and the kernel connection of the
/// first one.
struct World {
    connections: [Connection; 2],
    rung: Rung,
    set: Line,
    call: Line,
}

/// When the publisher reads whom its bell wakes.
#[derive(Clone, Copy, PartialEq)]
enum Reads {
    BeforeTheBell,
    AfterTheBell,
}

impl World {
    fn new() -> Arc<Self> {
        let connection = || Connection {
            armed: AtomicU64::new(0),
            produced: AtomicU64::new(0),
        };
        Arc::new(Self {
            connections: [connection(), connection()],
            rung: Rung::new(),
            set: Line::new(),
            call: Line::new(),
        })
    }

    fn publish(&self, on: usize, value: u64, reads: Reads) {
        let c = &self.connections[on];
        c.produced.store(value, Ordering::Release);
        if doorbell::must_ring(
            &c.armed,
            DATA,
            |by| matches!(by, By::Ticket(t) if self.rung.has(0, t)),
        ) {
            let ticket = || match doorbell::by(&c.armed) {
                Some(By::Ticket(t)) => Some(t),
                _ => None,
            };
            let before = ticket();
            self.set.ring();
            self.call.ring();
            let ticket = match reads {
                Reads::BeforeTheBell => before,
                Reads::AfterTheBell => ticket(),
            };
            if let Some(t) = ticket {
                self.rung.note(0, t);
            }
        }
    }

    fn seen(&self) -> [u64; 2] {
        [0, 1].map(|i| self.connections[i].produced.load(Ordering::Acquire))
    }

    /// A wait on the set that ends short of sleeping: what had come to its ears by then, or nothing if all has come.
    fn fall_asleep(&self, draw: &mut impl FnMut() -> Ticket, last: [u64; 2]) -> Option<u32> {
        loop {
            let seen = self.seen();
            if seen == last {
                return None;
            }
            let heard = self.set.rung();
            let ticket = draw();
            for c in &self.connections {
                while !doorbell::wish_by(&c.armed, DATA, By::Ticket(ticket)) {}
            }
            fence(Ordering::SeqCst);
            if self.seen() == seen {
                return Some(heard);
            }
            for c in &self.connections {
                doorbell::disarm_by(&c.armed);
            }
        }
    }

    /// Waits until all has come, by a ticket of its own for each try to sleep.
    fn wait(&self, last: [u64; 2]) {
        let mut number = 0;
        self.wait_by(last, || {
            number += 1;
            Ticket::new(number).unwrap()
        });
    }

    fn wait_by(&self, last: [u64; 2], mut draw: impl FnMut() -> Ticket) {
        while let Some(heard) = self.fall_asleep(&mut draw, last) {
            self.set.sleep(heard);
            for c in &self.connections {
                doorbell::disarm_by(&c.armed);
            }
        }
    }
}

fn one_publisher(reads: Reads, values: &'static [(usize, u64)]) {
    check(3, move || {
        let w = World::new();
        let mut last = [0; 2];
        for &(on, value) in values {
            last[on] = value;
        }
        let sleeper = {
            let w = w.clone();
            thread::spawn(move || w.wait(last))
        };
        for &(on, value) in values {
            w.publish(on, value, reads);
        }
        sleeper.join().unwrap();
    });
}

#[test]
fn a_set_is_woken_by_either_connection() {
    one_publisher(Reads::BeforeTheBell, &[(0, 1), (1, 1)]);
    one_publisher(Reads::BeforeTheBell, &[(0, 1), (1, 1), (0, 2)]);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_ticket_read_after_the_bell_may_be_the_next_sleeps() {
    one_publisher(Reads::AfterTheBell, &[(0, 1), (1, 1)]);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_ticket_is_good_for_one_sleep() {
    check(3, || {
        let w = World::new();
        let sleeper = {
            let w = w.clone();
            thread::spawn(move || w.wait_by([1, 1], || Ticket::new(1).unwrap()))
        };
        w.publish(0, 1, Reads::BeforeTheBell);
        w.publish(1, 1, Reads::BeforeTheBell);
        sleeper.join().unwrap();
    });
}

#[test]
fn two_threads_of_one_process_publish() {
    check(2, || {
        let w = World::new();
        let sleeper = {
            let w = w.clone();
            thread::spawn(move || w.wait([1, 1]))
        };
        let other = {
            let w = w.clone();
            thread::spawn(move || w.publish(1, 1, Reads::BeforeTheBell))
        };
        w.publish(0, 1, Reads::BeforeTheBell);
        for thread in [sleeper, other] {
            thread.join().unwrap();
        }
    });
}

/// Who sleeps in a call has a wish of its own, and its bell is its connection's.
#[test]
fn a_call_beside_the_set_is_woken() {
    check(2, || {
        let w = World::new();
        let set = {
            let w = w.clone();
            thread::spawn(move || w.wait([1, 1]))
        };
        let call = {
            let w = w.clone();
            thread::spawn(move || {
                let c = &w.connections[1];
                while c.produced.load(Ordering::Acquire) == 0 {
                    let heard = w.call.rung();
                    doorbell::arm(&c.armed, DATA);
                    if c.produced.load(Ordering::Acquire) == 0 {
                        w.call.sleep(heard);
                    }
                }
            })
        };
        w.publish(0, 1, Reads::BeforeTheBell);
        w.publish(1, 1, Reads::BeforeTheBell);
        for thread in [set, call] {
            thread.join().unwrap();
        }
    });
}

/// A wish with a ticket takes none without one away, and the other way round.
#[test]
fn wishes_with_and_without_a_ticket_stand_side_by_side() {
    check(4, || {
        let armed = Arc::new(AtomicU64::new(0));
        let call = {
            let armed = armed.clone();
            thread::spawn(move || doorbell::arm(&armed, DATA))
        };
        let ticket = By::Ticket(Ticket::new(1).unwrap());
        assert!(doorbell::wish_by(&armed, DATA, ticket));
        doorbell::disarm_by(&armed);
        call.join().unwrap();
        assert_eq!(doorbell::armed(&armed), DATA);
        assert!(doorbell::must_ring(&armed, DATA, |_| true));
    });
}
