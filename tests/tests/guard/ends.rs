//! The process ends, forks or becomes another while something has not been read.

use crate::Test;
use crate::guard::{self, Lane};
use crate::host::{MIB, PAGE, Random, Wire, ended, filled, in_child, map_as};
use std::sync::atomic::{AtomicI32, Ordering};
use transport::direct::far::FarEnd;

pub(crate) const TESTS: &[Test] = &[
    ("exit_with_messages_unread", || outlives(leave)),
    ("killed_with_messages_unread", || outlives(kill)),
    ("crash_with_messages_unread", || outlives(crash)),
    ("exec_with_messages_unread", || outlives(exec)),
    ("lane_given_up_with_messages_unread", given_up),
    ("settled_lane", settled),
    ("fork", fork),
    ("vfork_and_spawn", spawn),
    ("thread_begins", thread_begins),
    ("fault_of_the_programs_own", own_fault),
    ("core_and_debugger_see_the_memory", seen_from_outside),
];

fn leave() {
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

fn kill() {
    // SAFETY: no pointers.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

fn crash() {
    // SAFETY: it is not.
    unsafe { std::ptr::without_provenance_mut::<u8>(16).write_volatile(1) };
}

fn exec() {
    let args = [c"true".as_ptr(), std::ptr::null()];
    // SAFETY: two C strings.
    unsafe { libc::execv(c"/bin/true".as_ptr(), args.as_ptr()) };
}

/// The sender ends as it likes; the reader, another process that has fetched its end, gets everything.
fn outlives(end: fn()) {
    const LEN: usize = MIB - 5 * PAGE + 123;
    let page = map_as(
        PAGE,
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        -1,
    );
    // SAFETY: shared words, zero at first.
    let (fd, fetched) = unsafe {
        let at: *mut AtomicI32 = page.as_mut_ptr().cast();
        (&*at, &*at.add(1))
    };
    // SAFETY: one thread.
    let sender = unsafe { libc::fork() };
    if sender == 0 {
        let lane = Lane::new().unwrap();
        fd.store(lane.far_fd(), Ordering::SeqCst);
        while fetched.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let buffer = filled(LEN);
        // SAFETY: the buffer.
        assert_eq!(unsafe { lane.send(buffer.as_ptr(), LEN) }, Ok(LEN));
        buffer[PAGE * 7] ^= 1;
        end();
        loop {
            std::hint::spin_loop();
        }
    }
    while fd.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let far = FarEnd::fetch(sender as u32, fd.load(Ordering::SeqCst), || true).unwrap();
    fetched.store(1, Ordering::SeqCst);
    let ending = ended(sender);
    assert!(
        ["exit 0", "signal 9", "signal 11"].contains(&ending.as_str()),
        "{ending}"
    );
    let (mut got, mut done) = (vec![0u8; LEN], 0);
    while done < LEN {
        // SAFETY: the rest of the vector.
        done += unsafe { far.read(got[done..].as_mut_ptr(), LEN - done) }.unwrap();
    }
    let mut expected = vec![0; LEN];
    Random::new(LEN as u64).fill(&mut expected);
    assert!(got == expected);
}

fn given_up() {
    let buffer = filled(20 * PAGE);
    let wire = Wire::new();
    let sent = wire.send_all(buffer);
    let Wire { lane, .. } = &wire;
    // SAFETY: no pointers.
    let far = FarEnd::fetch(unsafe { libc::getpid() } as u32, lane.far_fd(), || true).unwrap();
    drop(wire);
    assert!(!guard::is_live());
    buffer.fill(1);
    let mut got = vec![0u8; sent.len()];
    // SAFETY: the vector.
    let read = unsafe { far.read(got.as_mut_ptr(), got.len()) };
    assert_eq!(read, Ok(sent.len()));
    assert!(got == sent);
    // Nothing of it is left: as many lanes as one likes, one after the other.
    for _ in 0..200 {
        let wire = Wire::new();
        let sent = wire.send_all(buffer);
        wire.expect(&sent);
    }
}

fn settled() {
    let (a, b) = (Wire::new(), Wire::new());
    let (x, y) = (filled(20 * PAGE), filled(20 * PAGE));
    let (sent_a, sent_b) = (a.send_all(x), b.send_all(y));
    a.lane.settle();
    assert!(guard::is_live(), "the other is not concerned");
    b.lane.settle();
    assert!(!guard::is_live());
    x.fill(0);
    y.fill(0);
    a.expect(&sent_a);
    b.expect(&sent_b);
}

extern "C" fn before() {
    guard::lift_all();
}

extern "C" fn in_new_child() {
    guard::in_child();
}

fn fork() {
    // SAFETY: two handlers that live for ever.
    unsafe { libc::pthread_atfork(Some(before), None, Some(in_new_child)) };
    let wire = Wire::new();
    let buffer = filled(20 * PAGE);
    let sent = wire.send_all(buffer);
    let ending = in_child(|| {
        assert!(!guard::is_live());
        buffer.fill(2);
        // Its parent's lane is not the child's; one of its own is.
        assert_eq!(wire.send(buffer), Err(guard::Refusal::Forked));
        let own = Wire::new();
        let sent = own.send_all(buffer);
        buffer.fill(3);
        own.expect(&sent);
    });
    assert_eq!(ending, "exit 0");
    assert!(*buffer == *sent);
    buffer.fill(1);
    wire.expect(&sent);
    let sent = wire.send_all(buffer);
    buffer.fill(2);
    wire.expect(&sent);
}

fn spawn() {
    let wire = Wire::new();
    let buffer = filled(20 * PAGE);
    let sent = wire.send_all(buffer);
    assert!(
        std::process::Command::new("/bin/true")
            .status()
            .unwrap()
            .success()
    );
    buffer.fill(1);
    wire.expect(&sent);
    let sent = wire.send_all(buffer);
    // SAFETY: a C string.
    assert_eq!(unsafe { libc::system(c"exit 3".as_ptr()) }, 3 << 8);
    buffer.fill(2);
    wire.expect(&sent);
}

/// A thread that begins finds nothing protected, and nothing is while there is one.
fn thread_begins() {
    let wire = Wire::new();
    let buffer = filled(20 * PAGE);
    let sent = wire.send_all(buffer);
    let end = AtomicI32::new(0);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            assert!(!guard::is_live());
            while end.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
        });
        buffer.fill(1);
        assert_eq!(wire.send(buffer), Err(guard::Refusal::Threads));
        end.store(1, Ordering::SeqCst);
        other.join().unwrap();
    });
    wire.expect(&sent);
    // (it is gone from libc before it is from the kernel)
    while wire.send(buffer) == Err(guard::Refusal::Threads) {
        std::thread::yield_now();
    }
    assert!(guard::is_live());
}

/// Faults that are the program's stay so, while something is protected.
fn own_fault() {
    let ending = in_child(|| {
        let wire = Wire::new();
        wire.send_all(filled(20 * PAGE));
        crash();
    });
    assert_eq!(ending, "signal 11");
    let ending = in_child(|| {
        let wire = Wire::new();
        wire.send_all(filled(20 * PAGE));
        // Readable memory that is not the guard's.
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        map_as(PAGE, libc::PROT_READ, flags, -1)[0] = 1;
    });
    assert_eq!(ending, "signal 11");
}

/// Protected pages can be read as ever: a debugger, and whoever writes the core file, see them.
fn seen_from_outside() {
    let wire = Wire::new();
    let buffer = filled(20 * PAGE);
    let sent = wire.send_all(buffer);
    // SAFETY: the process itself.
    let (me, at) = (unsafe { libc::getpid() }, buffer.as_mut_ptr());
    // SAFETY: one thread; libc's handlers are passed by, so that it stays protected here.
    let child = unsafe { libc::syscall(libc::SYS_getpid) };
    assert_eq!(child, me.into());
    let mut seen = vec![0u8; buffer.len()];
    let to = libc::iovec {
        iov_base: seen.as_mut_ptr().cast(),
        iov_len: seen.len(),
    };
    let from = libc::iovec {
        iov_base: at.cast(),
        iov_len: seen.len(),
    };
    // SAFETY: one vector each.
    let n = unsafe {
        transport::syscall!(
            process_vm_readv,
            me,
            &raw const to,
            1,
            &raw const from,
            1,
            0
        )
    };
    assert_eq!(n, Ok(seen.len()));
    assert!(seen == sent && guard::is_live());
    wire.expect(&sent);
}
