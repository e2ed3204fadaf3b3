//! The handler that the kernel has for every signal that the program handles. It calls the program's,
//! at once, with the same arguments, unless the thread is inside a critical section of the library:
//! then the signal is given back to the kernel, blocked, and delivered anew where the section ends.
//!
//! Nothing here waits, allocates or touches errno. Faults are never put off: their handler has to run
//! where they are.

use super::{FAULTS, actions, is_sandboxed, thread};
use crate::guard;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;
use transport::sys::{self, time};
use transport::syscall;

type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// What stands in the kernel as the handler.
pub(super) fn address() -> usize {
    (arrive as Handler) as *const () as usize
}

/// The flags that go with it: everything as asked, but the details are always wanted, and a handler
/// that is for once is taken out by us, since a signal may come here twice before it is heard.
pub(super) const fn flags(flags: c_int) -> c_int {
    (flags | libc::SA_SIGINFO) & !libc::SA_RESETHAND
}

/// The first word of the mask that comes back when the handler returns: all that the kernel looks at.
unsafe fn mask_of(context: *mut c_void) -> *mut u64 {
    let context: *mut libc::ucontext_t = context.cast();
    // SAFETY: the kernel's context, by the caller.
    unsafe { (&raw mut (*context).uc_sigmask).cast() }
}

/// Whether a signal has to be heard where it is: a fault, or abort's.
unsafe fn is_urgent(signal: c_int, info: *const libc::siginfo_t) -> bool {
    let bit = 1u64 << (signal - 1);
    // SAFETY: the kernel's details, by the caller.
    bit & FAULTS != 0 || (signal == libc::SIGABRT && unsafe { (*info).si_code } == libc::SI_TKILL)
}

/// Gives the signal back to the kernel, for later. False if the kernel has no room for it.
unsafe fn put_off(
    t: &thread::Thread,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) -> bool {
    let before = time::set_mask(super::HELD);
    // SAFETY: the details are as the kernel gave them; to itself a process may send any.
    let sent = unsafe {
        syscall!(gettid).and_then(|tid| syscall!(rt_tgsigqueueinfo, sys::pid(), tid, signal, info))
    };
    if sent.is_err() {
        time::set_mask(before);
        return false;
    }
    // SAFETY: the kernel's context. Of several that lie on one another the outermost, whose mask is the
    // program's, comes here last.
    unsafe {
        let mask = mask_of(context);
        t.put_off(*mask);
        *mask = super::HELD;
    }
    true
}

unsafe extern "C" fn arrive(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's arguments.
    unsafe { arrived(signal, info, context) };
    if !matches!(signal, libc::SIGSEGV | libc::SIGSYS) {
        // SAFETY: this frame is over.
        unsafe { guard::return_from(context) };
    }
}

unsafe fn arrived(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's arguments.
    if unsafe { guard::serve(signal, info, context) } {
        return;
    }
    let t = thread::here();
    let depth = t.depth();
    // SAFETY: the kernel's arguments.
    let later = || unsafe { !is_urgent(signal, info) && put_off(t, signal, info, context) };
    if depth != 0 && !is_sandboxed() && later() {
        return;
    }
    let action = actions::now(signal)
        .filter(|a| a.flags & libc::SA_RESETHAND == 0 || actions::is_taken(signal, a));
    let Some(action) = action else {
        return time::raise(signal); // by default, once this returns
    };
    // A sleep of ours holds everything back but what the program lets through: as it was before it.
    // SAFETY: the kernel's context.
    unsafe {
        let mask = mask_of(context);
        if t.holds.load(Ordering::Relaxed) != 0 && *mask == super::HELD {
            *mask = t.held.load(Ordering::Relaxed);
            t.holds.store(0, Ordering::Relaxed);
        }
    }
    crate::sockets::large::hide(t);
    // A handler may block faults, jump, fork: it finds all memory as it is without us.
    guard::lift_all();
    let hard = u64::from(action.flags & libc::SA_RESTART == 0) << 32;
    t.ran.fetch_add(1 | hard, Ordering::Relaxed);
    // SAFETY: the program's handler; one that was set without SA_SIGINFO does not look at the others.
    let handler: Handler = unsafe { std::mem::transmute(action.handler) };
    if depth != 0 {
        t.set_depth(0);
        // SAFETY: the kernel's arguments.
        unsafe { handler(signal, info, context) };
        return t.set_depth(depth);
    }
    // SAFETY: the kernel's arguments.
    unsafe { handler(signal, info, context) }
}
