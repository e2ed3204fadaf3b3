//! What has to be done first of all when a thread is cancelled in a sleep of ours: before the program's own
//! cleanup, which may write to the buffer of the call, or free it.
//!
//! Called by `large`. The functions are those behind pthread_cleanup_push(3) as programs were compiled with
//! before there were exceptions: a list beside the stack, walked as the frames are left. Where libc has
//! none, the end of the thread (`counted`) does it.

use super::large;
use crate::real::other;
use crate::signals::thread::here;
use std::ffi::{c_int, c_void};

/// Room for libc's entry: a function, its argument, a word of the thread's, the entry before.
type Entry = [usize; 8];

type Push = unsafe extern "C" fn(*mut Entry, unsafe extern "C" fn(*mut c_void), *mut c_void);
type Pop = unsafe extern "C" fn(*mut Entry, c_int);

unsafe extern "C" fn hide(_: *mut c_void) {
    large::hide(here());
}

/// Waits; cancelled meanwhile, the thread hides what it has advertised before it does anything else.
#[inline(never)]
pub(super) fn guarded<T>(wait: impl FnOnce() -> T) -> T {
    let (push, pop) = (
        other::_pthread_cleanup_push.get(),
        other::_pthread_cleanup_pop.get(),
    );
    if push.is_null() || pop.is_null() {
        return wait();
    }
    // SAFETY: libc's functions of these names and signatures.
    let (push, pop) = unsafe {
        (
            std::mem::transmute::<*mut c_void, Push>(push),
            std::mem::transmute::<*mut c_void, Pop>(pop),
        )
    };
    let mut entry: Entry = [0; 8];
    // SAFETY: the entry stays where it is until it is taken off the list.
    unsafe { push(&raw mut entry, hide, std::ptr::null_mut()) };
    let r = wait();
    // SAFETY: as above; 0: not to be called.
    unsafe { pop(&raw mut entry, 0) };
    r
}
