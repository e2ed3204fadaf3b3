//! The report of a process that a signal ends: with SHUNT_REPORT set, the signals whose default ends a
//! program get a handler that writes the report and then lets the default happen. The program sees the
//! default, and its own handlers replace ours.

use crate::real::other;
use crate::{report, world};
use std::ffi::{c_int, c_void};

const ENDING: [c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

unsafe fn next(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let at = other::sigaction.get();
    if at.is_null() {
        crate::real::set_errno(libc::ENOSYS);
        return -1;
    }
    // SAFETY: libc's function of this name and signature.
    unsafe { std::mem::transmute::<*mut c_void, Sigaction>(at)(signal, new, old) }
}

extern "C" fn ended(signal: c_int) {
    report::write();
    // SAFETY: all-zero is the default action.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        next(signal, &raw const default, std::ptr::null_mut());
    }
    transport::sys::time::raise(signal);
}

fn ours() -> libc::sighandler_t {
    (ended as extern "C" fn(c_int)) as *const () as libc::sighandler_t
}

fn our_action() -> libc::sigaction {
    // SAFETY: all-zero is a valid sigaction.
    let mut a: libc::sigaction = unsafe { std::mem::zeroed() };
    a.sa_sigaction = ours();
    a.sa_flags = libc::SA_RESTART;
    a
}

pub(crate) fn is_watched(signal: c_int) -> bool {
    world::settings().report.is_some() && ENDING.contains(&signal)
}

/// Puts the handlers in place where the program starts with the default.
pub(crate) fn init() {
    for signal in ENDING {
        // SAFETY: all-zero is a valid sigaction.
        let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
        let new = our_action();
        // SAFETY: both structures are valid.
        unsafe {
            if is_watched(signal)
                && next(signal, std::ptr::null(), &raw mut old) == 0
                && old.sa_sigaction == libc::SIG_DFL
            {
                next(signal, &raw const new, std::ptr::null_mut());
            }
        }
    }
}

/// sigaction(2) as the program sees it.
///
/// # Safety
/// As for sigaction(2).
pub(crate) unsafe fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if !is_watched(signal) {
        // SAFETY: the program's arguments.
        return unsafe { next(signal, new, old) };
    }
    // SAFETY: null or the program's structure.
    let to_default = unsafe { new.as_ref() }.is_some_and(|a| a.sa_sigaction == libc::SIG_DFL);
    let replacement = our_action();
    let new = if to_default {
        &raw const replacement
    } else {
        new
    };
    // SAFETY: the program's arguments, or our own structure.
    let r = unsafe { next(signal, new, old) };
    if r == 0
        // SAFETY: null, or filled by libc.
        && let Some(o) = unsafe { old.as_mut() }
        && o.sa_sigaction == ours()
    {
        // SAFETY: all-zero is the default action.
        *o = unsafe { std::mem::zeroed() };
    }
    r
}
