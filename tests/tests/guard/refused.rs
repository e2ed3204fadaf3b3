//! Memory, and processes, with which it is not tried: each with its reason.

use crate::Test;
use crate::guard::{self, Lane, Refusal};
use crate::host::{MIB, PAGE, Wire, filled, in_child, map, map_as};
use crate::signals::guarded::REFUSES;
use std::sync::atomic::Ordering;
use transport::direct::far::FarEnd;

pub(crate) const TESTS: &[Test] = &[
    ("shared_memory", shared),
    ("private_file", private_file),
    ("read_only_data", read_only),
    ("code", code),
    ("large_pages_of_their_own", hugetlb),
    ("the_stack", stack),
    ("the_stack_of_handlers", alternate),
    ("a_coroutines_stack", coroutine),
    ("unmapped_memory", unmapped),
    ("neighbours_of_another_kind", neighbours),
    ("too_small", small),
    ("second_thread", second_thread),
    ("blocked_signals", blocked),
    ("handler_taken_away", taken),
    ("inherited_sandbox", sandbox),
    ("far_end_that_is_none", no_far_end),
];

const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

#[track_caller]
fn refused(buffer: &[u8], why: Refusal) {
    assert_eq!(Wire::new().send(buffer), Err(why));
    assert!(!guard::is_live());
}

fn shared() {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    refused(map_as(MIB, BOTH, flags, -1), Refusal::Mapping);
    // SAFETY: a memory file, seen twice.
    let fd = unsafe {
        let fd = libc::memfd_create(c"twice".as_ptr(), 0);
        libc::ftruncate(fd, MIB as i64);
        fd
    };
    refused(map_as(MIB, BOTH, libc::MAP_SHARED, fd), Refusal::Mapping);
    // Of which somebody else could still change what has not been written here.
    refused(map_as(MIB, BOTH, libc::MAP_PRIVATE, fd), Refusal::Mapping);
}

fn private_file() {
    let path = std::env::current_exe().unwrap();
    let file = std::fs::File::open(path).unwrap();
    use std::os::fd::AsRawFd;
    refused(
        map_as(40 * PAGE, BOTH, libc::MAP_PRIVATE, file.as_raw_fd()),
        Refusal::Mapping,
    );
}

fn read_only() {
    static DATA: [u8; 64 * PAGE] = [7; 64 * PAGE];
    refused(&DATA, Refusal::Mapping);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    refused(map_as(MIB, libc::PROT_READ, flags, -1), Refusal::Mapping);
}

fn code() {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    refused(
        map_as(MIB, BOTH | libc::PROT_EXEC, flags, -1),
        Refusal::Mapping,
    );
}

fn hugetlb() {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 4 * MIB, BOTH, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return; // the machine has none to give
    }
    // SAFETY: the mapping.
    refused(
        unsafe { std::slice::from_raw_parts(at.cast(), 2 * MIB) },
        Refusal::Mapping,
    );
}

#[inline(never)]
fn stack() {
    let buffer = [1u8; 64 * PAGE];
    refused(std::hint::black_box(&buffer), Refusal::Stack);
}

fn alternate() {
    let area = map(64 * PAGE);
    let stack = libc::stack_t {
        ss_sp: area[8 * PAGE..].as_mut_ptr().cast(),
        ss_flags: 0,
        ss_size: 16 * PAGE,
    };
    // SAFETY: memory that lives on.
    let r = unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) };
    assert_eq!(r, 0);
    refused(area, Refusal::Stack);
    let wire = Wire::new();
    assert_eq!(wire.send(&area[32 * PAGE..]), Ok(32 * PAGE));
}

/// A program that runs on memory of its own making: any memory may be a stack there.
fn coroutine() {
    static mut BUFFER: &[u8] = &[];
    static mut BACK: std::mem::MaybeUninit<libc::ucontext_t> = std::mem::MaybeUninit::uninit();
    static mut THERE: std::mem::MaybeUninit<libc::ucontext_t> = std::mem::MaybeUninit::uninit();
    extern "C" fn run() {
        // SAFETY: set before.
        refused(unsafe { BUFFER }, Refusal::Stack);
    }
    let area = map(64 * PAGE);
    // SAFETY: one thread, one context.
    unsafe {
        BUFFER = filled(32 * PAGE);
        let (there, back) = ((&raw mut THERE).cast(), (&raw mut BACK).cast());
        libc::getcontext(there);
        (*there).uc_stack.ss_sp = area.as_mut_ptr().cast();
        (*there).uc_stack.ss_size = area.len();
        (*there).uc_link = back;
        libc::makecontext(there, run, 0);
        assert_eq!(libc::swapcontext(back, there), 0);
    }
}

fn unmapped() {
    let area = map(64 * PAGE);
    // SAFETY: the test's own mapping.
    unsafe { libc::munmap(area[32 * PAGE..].as_mut_ptr().cast(), 8 * PAGE) };
    refused(area, Refusal::Mapping);
}

fn neighbours() {
    let area = map(64 * PAGE);
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: in the test's own mapping.
    unsafe {
        libc::mmap(
            area[32 * PAGE..].as_mut_ptr().cast(),
            8 * PAGE,
            BOTH,
            flags,
            -1,
            0,
        );
    }
    refused(area, Refusal::Mapping);
    // Alike, but not one mapping.
    // SAFETY: in the test's own mapping.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        libc::mmap(
            area[32 * PAGE..].as_mut_ptr().cast(),
            8 * PAGE,
            BOTH,
            flags,
            -1,
            0,
        );
        libc::madvise(
            area[34 * PAGE..].as_mut_ptr().cast(),
            PAGE,
            libc::MADV_DONTFORK,
        );
    }
    let wire = Wire::new();
    let sent = wire.send_all(area);
    area.fill(1);
    wire.expect(&sent);
}

fn small() {
    let buffer = filled(64 * PAGE);
    refused(&buffer[1..4 * PAGE + 1], Refusal::Small);
    refused(&buffer[..0], Refusal::Small);
    refused(&buffer[10..20], Refusal::Small);
}

fn second_thread() {
    let wire = Wire::new();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| assert_eq!(Lane::new().err(), Some(Refusal::Threads)));
        other.join().unwrap();
    });
    drop(wire);
}

fn blocked() {
    let buffer = filled(64 * PAGE);
    for signal in [libc::SIGSEGV, libc::SIGSYS] {
        // SAFETY: a set of one.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut set, signal);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            refused(buffer, Refusal::Signals);
            libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        }
    }
    assert_eq!(Wire::new().send(buffer), Ok(buffer.len()));
}

fn taken() {
    let buffer = filled(64 * PAGE);
    let wire = Wire::new();
    let sent = wire.send_all(buffer);
    wire.expect(&sent);
    REFUSES.store(true, Ordering::Relaxed);
    assert_eq!(wire.send(buffer), Err(Refusal::Signals));
}

/// A filter that allows everything: one that does not might kill for a call that only we make.
fn sandbox() {
    let allow = libc::sock_filter {
        code: 6,
        jt: 0,
        jf: 0,
        k: 0x7fff_0000,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: (&raw const allow).cast_mut(),
    };
    // SAFETY: a filter of one instruction.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program), 0);
    }
    assert_eq!(Lane::new().err(), Some(Refusal::Sandbox));
    // And one that comes while something is protected.
    let ending = in_child(|| assert_eq!(Lane::new().err(), Some(Refusal::Sandbox)));
    assert_eq!(ending, "exit 0");
}

/// What a peer says is its end may be anything.
fn no_far_end() {
    // SAFETY: no pointers but ours.
    unsafe {
        let me = libc::getpid() as u32;
        let mut ends = [0; 2];
        libc::pipe(ends.as_mut_ptr());
        assert!(
            FarEnd::fetch(me, ends[1], || true).is_err(),
            "the wrong end"
        );
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
        assert!(FarEnd::fetch(me, socket, || true).is_err());
        assert!(FarEnd::fetch(me, 12345, || true).is_err());
        assert!(FarEnd::fetch(0x3fff_ffff, 0, || true).is_err());
        // One that waits, empty: reading it does not.
        let far = FarEnd::fetch(me, ends[0], || true).unwrap();
        let mut byte = 0u8;
        assert_eq!(
            far.read(&raw mut byte, 1),
            Err(transport::sys::Errno::AGAIN)
        );
    }
}
