//! Threads of the library's own inside the program. Rule: one is libc's (`pthread_create`), so that a change of the
//! process's user reaches it too, and runs nothing of the program: all signals are blocked but the two that libc
//! itself needs.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use transport::sys::{self, time};
use transport::syscall;

/// Room for a thread's stack, beside what libc needs there for thread-local memory.
const STACK: usize = 256 << 10;
/// libc's own signals, by which it changes users in all threads and cancels them.
const LIBC_SIGNALS: u64 = 0b11 << 31;

/// How many there are in this process.
static THERE: AtomicU32 = AtomicU32::new(0);

/// Whether the program has no thread but the calling one: all others are the library's own.
pub(crate) fn is_program_alone() -> bool {
    // SAFETY: plain data, for which zeros are values.
    let mut s: libc::stat = unsafe { std::mem::zeroed() };
    let tasks = c"/proc/self/task".as_ptr();
    // SAFETY: a C string, and room for the answer.
    let asked = unsafe { syscall!(newfstatat, libc::AT_FDCWD, tasks, &raw mut s, 0) };
    // (a folder's links are its own two, and here one for each thread)
    asked.is_ok() && s.st_nlink == (3 + THERE.load(Ordering::SeqCst)).into()
}

/// In a child after fork, which has none.
pub(crate) fn in_child() {
    THERE.store(0, Ordering::SeqCst);
}

/// What a thread runs.
pub(crate) type Routine = extern "C" fn(*mut c_void) -> *mut c_void;

/// What a thread is to do, and whether it has begun.
struct Start {
    routine: Routine,
    argument: *mut c_void,
    begun: AtomicBool,
}

extern "C" fn begin(start: *mut c_void) -> *mut c_void {
    // SAFETY: `start` below waits, with it on its stack, until this has said that it has begun.
    let start = unsafe { &*start.cast_const().cast::<Start>() };
    let (routine, argument) = (start.routine, start.argument);
    THERE.fetch_add(1, Ordering::SeqCst);
    start.begun.store(true, Ordering::Release);
    let r = routine(argument);
    THERE.fetch_sub(1, Ordering::SeqCst);
    r
}

/// Turns of the core after which who waits for a thread to begin naps, and for how long (µs).
const TURNS: u32 = 100;
const NAP_US: u64 = 50;

/// Starts a thread, and waits until it has begun. Its name, to be joined by. Not under a lock: libc takes memory from the program's
/// allocator, whose locks fork may have taken before it waits for ours.
///
/// (A child that is forked round libc, by clone(2), has a copy of libc's list of threads. One that had not begun by then never
/// does there, and setuid and the like, which wait for all of them to have begun, would wait for ever.)
pub(crate) fn start(routine: Routine, argument: *mut c_void) -> Option<libc::pthread_t> {
    // SAFETY: all of it is plain data, for which zeros are values; initialised below.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    let mut name: libc::pthread_t = 0;
    let start = Start {
        routine,
        argument,
        begun: AtomicBool::new(false),
    };
    let argument = (&raw const start).cast_mut().cast();
    let before = time::set_mask(!LIBC_SIGNALS);
    // SAFETY: the attributes are initialised before they are used and destroyed after; the argument stays until the thread has it.
    let made = unsafe {
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK);
        let mut made = libc::pthread_create(&raw mut name, &raw const attributes, begin, argument);
        if made == libc::EINVAL {
            // A program with much thread-local memory.
            made = libc::pthread_create(&raw mut name, ptr::null(), begin, argument);
        }
        libc::pthread_attr_destroy(&raw mut attributes);
        made
    };
    let mut turns = 0;
    while made == 0 && !start.begun.load(Ordering::Acquire) {
        turns += 1;
        if turns > TURNS {
            let _ = time::nap(NAP_US);
        } else {
            sys::yield_core();
        }
    }
    time::set_mask(before);
    (made == 0).then_some(name)
}

/// Starts one that nobody joins. Whether it could.
pub(crate) fn start_alone(routine: Routine, argument: *mut c_void) -> bool {
    start(routine, argument)
        // SAFETY: just made, and joined by nobody.
        .inspect(|name| _ = unsafe { libc::pthread_detach(*name) })
        .is_some()
}

/// Names the calling thread, for people who look at the process.
pub(crate) fn name(text: &CStr) {
    // SAFETY: a C string.
    let _ = unsafe { syscall!(prctl, libc::PR_SET_NAME, text.as_ptr()) };
}
