//! Naps: who naps on the word is woken by whatever was published before or after it decided to. A lost wake-up shows as a
//! deadlock, which loom reports. (A real nap ends by itself too; here it does not.)

use super::check;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;
use transport::doorbell;

/// A futex as the kernel has it: the word is compared under the lock of who waits for it.
struct Side {
    napping: AtomicU32,
    produced: AtomicU64,
    queue: Mutex<()>,
    woken: Condvar,
}

impl Side {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            napping: AtomicU32::new(0),
            produced: AtomicU64::new(0),
            queue: Mutex::new(()),
            woken: Condvar::new(),
        })
    }

    fn publish(&self, value: u64, fenced: bool) {
        self.produced.store(value, Ordering::Release);
        if fenced {
            fence(Ordering::SeqCst);
        }
        if doorbell::naps(&self.napping) {
            let _queue = self.queue.lock().unwrap();
            self.woken.notify_all();
        }
    }

    fn await_value(&self, last: u64, looks_again: bool) {
        loop {
            if self.produced.load(Ordering::Acquire) == last {
                return;
            }
            doorbell::lie_down(&self.napping);
            fence(Ordering::SeqCst);
            if looks_again && self.produced.load(Ordering::Acquire) == last {
                self.napping.store(0, Ordering::Relaxed);
                return;
            }
            let mut queue = self.queue.lock().unwrap();
            while self.napping.load(Ordering::SeqCst) == 1 {
                queue = self.woken.wait(queue).unwrap();
            }
            drop(queue);
            self.napping.store(0, Ordering::Relaxed);
        }
    }
}

fn one(values: u64, fenced: bool, looks_again: bool) {
    let side = Side::new();
    let sleeper = {
        let side = side.clone();
        thread::spawn(move || side.await_value(values, looks_again))
    };
    for value in 1..=values {
        side.publish(value, fenced);
    }
    sleeper.join().unwrap();
}

#[test]
fn a_nap_is_ended_whatever_the_order() {
    check(4, || one(1, true, true));
}

#[test]
fn a_nap_is_ended_in_every_round() {
    check(3, || one(3, true, true));
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_publishers_fence_one_naps_on() {
    check(4, || one(1, false, true));
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_second_look_one_naps_on() {
    check(4, || one(1, true, false));
}
