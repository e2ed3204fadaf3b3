//! Threads of the library's own inside the program. Rule: one is libc's (`pthread_create`), so that a change of the
//! process's user reaches it too, and runs nothing of the program: all signals are blocked but the two that libc
//! itself needs.

use std::ffi::{CStr, c_void};
use std::ptr;
use transport::sys::time;
use transport::syscall;

/// Room for a thread's stack, beside what libc needs there for thread-local memory.
const STACK: usize = 256 << 10;
/// libc's own signals, by which it changes users in all threads and cancels them.
const LIBC_SIGNALS: u64 = 0b11 << 31;

/// What a thread runs.
pub(crate) type Routine = extern "C" fn(*mut c_void) -> *mut c_void;

/// Starts a thread. Its name, to be joined by. Not under a lock: libc takes memory from the program's allocator, whose
/// locks fork may have taken before it waits for ours.
pub(crate) fn start(routine: Routine, argument: *mut c_void) -> Option<libc::pthread_t> {
    // SAFETY: all of it is plain data, for which zeros are values; initialised below.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    let mut name: libc::pthread_t = 0;
    let before = time::set_mask(!LIBC_SIGNALS);
    // SAFETY: the attributes are initialised before they are used and destroyed after; the routine lives for ever.
    let made = unsafe {
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK);
        let mut made =
            libc::pthread_create(&raw mut name, &raw const attributes, routine, argument);
        if made == libc::EINVAL {
            // A program with much thread-local memory.
            made = libc::pthread_create(&raw mut name, ptr::null(), routine, argument);
        }
        libc::pthread_attr_destroy(&raw mut attributes);
        made
    };
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
