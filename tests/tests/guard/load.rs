//! A reader in another process, at work while the program does to its messages whatever comes to mind: no
//! byte that is written after a message was sent reaches it.

use crate::Test;
use crate::guard::{self, Lane, Refusal};
use crate::host::{PAGE, Random, ended, unread};
use std::ffi::c_void;
use transport::direct::far::FarEnd;
use transport::direct::policy::Touch;

pub(crate) const TESTS: &[Test] = &[
    ("load_measured", || load(Touch::Measured, 1)),
    ("load_copying", || load(Touch::Copy, 2)),
    ("load_waiting", || load(Touch::Wait, 3)),
    ("load_in_a_storm_of_signals", storm),
];

const MESSAGES: u64 = 1500;

/// Message `i`: how long it is, and its bytes.
fn message(i: u64, seed: u64) -> (usize, Random) {
    let mut r = Random::new(seed * 1_000_003 + i);
    let len = 6 * PAGE + r.below(150 * PAGE);
    (len, r)
}

/// Reads and compares everything. Whatever it does in its own time makes the sender meet it at other points.
fn reader(far: &FarEnd, seed: u64) {
    let mut pace = Random::new(seed);
    let (mut got, mut wanted) = (vec![0u8; 160 * PAGE], vec![0u8; 160 * PAGE]);
    for i in 0..MESSAGES {
        let (len, mut bytes) = message(i, seed);
        bytes.fill(&mut wanted[..len]);
        let mut done = 0;
        while done < len {
            // SAFETY: the rest of the vector.
            match unsafe {
                far.read(
                    got[done..].as_mut_ptr(),
                    (len - done).min(1 + pace.below(60 * PAGE)),
                )
            } {
                Ok(n) => done += n,
                Err(_) => std::thread::yield_now(),
            }
            if pace.below(50) == 0 {
                std::thread::sleep(std::time::Duration::from_micros(300));
            }
        }
        let wrong = (0..len).find(|&at| got[at] != wanted[at]);
        assert_eq!(wrong, None, "message {i} of {len} bytes");
    }
}

fn load(touch: Touch, seed: u64) {
    guard::set_touch(touch);
    let lane = Lane::new().unwrap();
    // SAFETY: no pointers.
    let parent = unsafe { libc::getpid() };
    // SAFETY: one thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        reader(
            &FarEnd::fetch(parent as u32, lane.far_fd(), || true).unwrap(),
            seed,
        );
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let mut r = Random::new(seed + 77);
    let mut blocks: Vec<*mut u8> = vec![std::ptr::null_mut(); 6];
    for i in 0..MESSAGES {
        let (len, mut bytes) = message(i, seed);
        let slot = r.below(blocks.len());
        if blocks[slot].is_null() {
            // SAFETY: room for the longest.
            blocks[slot] = unsafe { libc::malloc(160 * PAGE).cast() };
        }
        // SAFETY: the block.
        let block = unsafe { std::slice::from_raw_parts_mut(blocks[slot], 160 * PAGE) };
        let from = r.below(2 * PAGE);
        bytes.fill(&mut block[from..from + len]);
        // (as much as the lane holds in one piece: what does not fit is the library's business)
        while unread(&lane) + len > 190 * PAGE {
            std::thread::yield_now();
        }
        loop {
            // SAFETY: the block.
            match unsafe { lane.send(block[from..].as_ptr(), len) } {
                Ok(n) => break assert_eq!(n, len),
                Err(why) => assert_eq!(why, Refusal::Full),
            }
            std::thread::yield_now();
        }
        match r.below(6) {
            0 => block.fill(i as u8),
            1 => (0..20).for_each(|_| block[r.below(160 * PAGE)] ^= 1),
            2 => {
                // SAFETY: the block, which is not used again.
                unsafe { libc::free(blocks[slot].cast::<c_void>()) };
                blocks[slot] = std::ptr::null_mut();
            }
            3 => {
                // SAFETY: a part of the block.
                let n = unsafe { libc::getrandom(block[from..].as_mut_ptr().cast(), 3 * PAGE, 0) };
                assert!(n > 0);
            }
            4 => std::thread::sleep(std::time::Duration::from_micros(50)),
            _ => {}
        }
    }
    assert_eq!(ended(child), "exit 0");
}

extern "C" fn nothing(_: i32) {}

/// Handlers that interrupt everything, the guard's own work included, and return by libc's own system call.
fn storm() {
    // SAFETY: a handler that does nothing; the process itself; one thread.
    let (parent, child) = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
        (libc::getpid(), libc::fork())
    };
    if child == 0 {
        // SAFETY: no pointers.
        unsafe {
            while libc::kill(parent, libc::SIGUSR1) == 0 && libc::getppid() == parent {
                libc::usleep(30);
            }
            libc::_exit(0);
        }
    }
    load(Touch::Copy, 4);
    // SAFETY: our own child.
    unsafe { libc::kill(child, libc::SIGKILL) };
    assert_eq!(ended(child), "signal 9");
}
