//! The program writes to what it has sent.

use crate::Test;
use crate::guard;
use crate::host::{MIB, PAGE, Random, Wire, ended, filled, in_child, map};
use crate::signals::guarded::LIFTS_FIRST;
use std::sync::atomic::Ordering;
use transport::direct::policy::Touch;

pub(crate) const TESTS: &[Test] = &[
    ("write_at_once", write_at_once),
    ("write_at_random", write_at_random),
    ("write_before_the_reader_and_after", write_before_and_after),
    ("pages_shared_by_two_buffers", pages_shared),
    ("one_buffer_on_two_lanes", two_lanes),
    ("many_pieces_cut_up", many_pieces),
    ("several_in_flight", several_in_flight),
    ("lane_is_full", lane_is_full),
    ("what_was_read_is_free_again", read_is_free),
    ("reader_that_never_reads", reader_that_never_reads),
    ("reader_that_reads_while_the_writer_waits", waits_for_reader),
    ("locked_memory", locked_memory),
    ("fault_that_is_over_when_it_is_heard", fault_is_over),
];

fn write_at_once() {
    let wire = Wire::new();
    let buffer = filled(MIB - 2 * PAGE);
    for round in 0..4u8 {
        let sent = wire.send_all(buffer);
        buffer.fill(round);
        assert!(buffer.iter().all(|b| *b == round));
        wire.expect(&sent);
    }
}

/// Every alignment, many sizes; single bytes and runs.
fn write_at_random() {
    let wire = Wire::new();
    let mut r = Random::new(7);
    let area = filled(600 << 10);
    for _ in 0..200 {
        let from = r.below(2 * PAGE);
        let len = 5 * PAGE + r.below(500 << 10);
        let sent = wire.send_all(&area[from..from + len]);
        let mut ours = area.to_vec();
        for _ in 0..r.below(20) {
            let at = r.below(area.len());
            let most = 1 << r.below(18);
            let n = 1 + r.below((area.len() - at).min(most));
            let byte = r.next() as u8;
            area[at..at + n].fill(byte);
            ours[at..at + n].fill(byte);
        }
        assert!(*area == *ours);
        wire.expect(&sent);
        assert!(*area == *ours);
    }
}

/// The reader is in the middle when the program writes, behind it and ahead of it.
fn write_before_and_after() {
    let wire = Wire::new();
    let buffer = filled(100 * PAGE);
    for touch in [Touch::Copy, Touch::Measured] {
        guard::set_touch(touch);
        let sent = wire.send_all(buffer);
        let first = wire.read(40 * PAGE + 17);
        buffer[PAGE] ^= 1;
        buffer[90 * PAGE] ^= 1;
        let second = wire.read(sent.len() - first.len());
        assert!([first, second].concat() == sent);
    }
}

fn pages_shared() {
    let (a, b) = (Wire::new(), Wire::new());
    let area = filled(64 * PAGE);
    for offset in [0, 1, 100, PAGE - 1, PAGE, 3 * PAGE + 5] {
        let first = a.send_all(&area[..32 * PAGE + 77]);
        let second = b.send_all(&area[20 * PAGE + offset..]);
        for at in [
            0,
            19 * PAGE,
            25 * PAGE + 3,
            32 * PAGE + 76,
            32 * PAGE + 77,
            60 * PAGE,
        ] {
            area[at] ^= 0xff;
        }
        a.expect(&first);
        area.iter_mut().for_each(|b| *b = b.wrapping_add(1));
        b.expect(&second);
    }
}

fn two_lanes() {
    let (a, b) = (Wire::new(), Wire::new());
    let buffer = filled(50 * PAGE);
    let sent = a.send_all(buffer);
    b.send_all(buffer);
    // Once one has read, it is still protected for the other.
    a.expect(&sent);
    guard::reap();
    assert!(guard::is_live());
    buffer.fill(9);
    b.expect(&sent);
    // The same on one lane, twice.
    let sent = a.send_all(buffer);
    a.send_all(buffer);
    buffer.fill(10);
    a.expect_part(&sent);
    buffer.fill(11);
    a.expect(&sent);
}

impl Wire {
    fn expect_part(&self, sent: &[u8]) {
        assert!(self.read(sent.len()) == sent);
    }
}

/// More cuts than there is room to note: whole pieces are lifted then, and nothing is lost.
fn many_pieces() {
    guard::set_touch(Touch::Copy);
    let wires: Vec<Wire> = (0..8).map(|_| Wire::new()).collect();
    let buffer = filled(230 * PAGE);
    let sent = buffer.to_vec();
    for _ in 0..2 {
        for wire in &wires {
            let part = &buffer[..115 * PAGE];
            assert_eq!(wire.send(part), Ok(part.len()));
        }
    }
    let mut r = Random::new(3);
    for _ in 0..300 {
        buffer[r.below(sent.len())] ^= 1;
    }
    for wire in &wires {
        wire.expect_part(&sent[..115 * PAGE]);
        wire.expect(&sent[..115 * PAGE]);
    }
}

fn several_in_flight() {
    let wire = Wire::new();
    let buffers: Vec<_> = (0..6).map(|i| filled((20 + i) * PAGE + i * 100)).collect();
    let sent: Vec<_> = buffers.iter().map(|b| wire.send_all(b)).collect();
    for buffer in buffers {
        buffer.fill(0);
    }
    wire.expect(&sent.concat());
}

fn lane_is_full() {
    let wire = Wire::new();
    let buffer = filled(2 * MIB + 100);
    let taken = wire.send(&buffer[50..]).unwrap();
    assert!(taken < buffer.len() && taken > MIB / 2, "{taken}");
    let sent = buffer[50..50 + taken].to_vec();
    assert_eq!(wire.send(buffer), Err(guard::Refusal::Full));
    buffer.fill(1);
    wire.expect(&sent);
    // Ten times round: what has been read makes room.
    for _ in 0..10 {
        let n = wire.send(buffer).unwrap();
        assert!(wire.read(n).iter().all(|b| *b == 1));
    }
    guard::reap();
    assert!(!guard::is_live());
}

fn read_is_free() {
    let wire = Wire::new();
    let buffer = filled(64 * PAGE);
    let sent = wire.send_all(buffer);
    wire.expect(&sent);
    guard::reap();
    assert!(!guard::is_live());
    // Writable again without a fault: a handler for faults would be missed here.
    // SAFETY: no pointers.
    unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
    buffer.fill(5);
}

/// It is dead, or stopped: whoever writes goes on all the same.
fn reader_that_never_reads() {
    guard::set_touch(Touch::Wait);
    let wire = Wire::new();
    let buffer = filled(40 * PAGE);
    let sent = wire.send_all(buffer);
    buffer[0] ^= 1;
    guard::set_touch(Touch::Copy);
    buffer.fill(3);
    wire.expect(&sent);
}

/// The pages are the program's own again once they have been read: none is copied.
fn waits_for_reader() {
    guard::set_touch(Touch::Wait);
    let wire = Wire::new();
    let buffer = filled(200 * PAGE);
    let shared = crate::host::map_as(
        PAGE,
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        -1,
    );
    let go = std::sync::atomic::AtomicPtr::new(shared.as_mut_ptr());
    // The reader, in another process: reads when it is told to.
    // SAFETY: one thread.
    let reader = unsafe { libc::fork() };
    if reader == 0 {
        let at = go.load(std::sync::atomic::Ordering::SeqCst);
        // SAFETY: the shared page.
        while unsafe { at.read_volatile() } == 0 {
            std::hint::spin_loop();
        }
        let got = wire.read(buffer.len());
        let mut expected = map(buffer.len()).to_vec();
        Random::new(buffer.len() as u64).fill(&mut expected);
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(got != expected)) };
    }
    for _ in 0..1 {
        wire.send_all(buffer);
        // SAFETY: the shared page.
        unsafe {
            go.load(std::sync::atomic::Ordering::SeqCst)
                .write_volatile(1)
        };
        buffer.fill(0xaa);
    }
    assert_eq!(ended(reader), "exit 0");
    assert_eq!(in_child(|| ()), "exit 0");
}

fn locked_memory() {
    let wire = Wire::new();
    let buffer = filled(8 * PAGE);
    // SAFETY: the buffer.
    if unsafe { libc::mlock(buffer.as_ptr().cast(), buffer.len()) } != 0 {
        return; // not allowed to
    }
    let sent = wire.send_all(buffer);
    buffer.fill(1);
    wire.expect(&sent);
}

/// As when a signal comes between: the page is the program's own by the time that the fault is looked at.
fn fault_is_over() {
    let wire = Wire::new();
    let buffer = filled(40 * PAGE);
    let sent = wire.send_all(buffer);
    LIFTS_FIRST.store(true, Ordering::Relaxed);
    buffer[7 * PAGE] ^= 1;
    assert!(!guard::is_live());
    wire.expect(&sent);
}
