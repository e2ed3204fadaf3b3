//! What the library does about signals.
//!
//! Whether any handler can run: only then does the registry lock have to hold signals back, at two
//! system calls each time. A program starts without handlers, and every function that sets one is
//! hooked, so the first is noticed. Handlers of faults do not count: no fault comes from in here.
//!
//! The report of a process that a signal ends: with SHUNT_REPORT set, the signals whose default ends a
//! program get a handler that writes the report and then lets the default happen. The program sees the
//! default, and its own handlers replace ours.

use crate::real::other;
use crate::{report, world};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// A handler is, or was, in place that may call what is hooked.
static HANDLERS: AtomicBool = AtomicBool::new(false);

/// An ending signal that came while its thread held the registry lock.
static LATER: AtomicI32 = AtomicI32::new(0);

const FAULTS: [c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Whether a handler may interrupt a hook and call another.
#[inline]
pub(crate) fn may_interrupt() -> bool {
    HANDLERS.load(Ordering::SeqCst)
}

/// Before a handler is put in place. Whoever holds the registry lock without having held signals back
/// is let out first.
pub(crate) fn expect_handlers() {
    if !HANDLERS.swap(true, Ordering::SeqCst) && world::is_ready() {
        drop(world::lock());
    }
}

fn expect(signal: c_int, handler: libc::sighandler_t) {
    if !matches!(handler, libc::SIG_DFL | libc::SIG_IGN) && !FAULTS.contains(&signal) {
        expect_handlers();
    }
}

/// What an ending signal wanted, if it came while the registry lock was held.
#[inline]
pub(crate) fn end_if_due() {
    let signal = LATER.load(Ordering::Relaxed);
    if signal != 0 {
        LATER.store(0, Ordering::Relaxed);
        transport::sys::time::raise(signal);
    }
}

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
    if world::raw().is_mine() {
        return LATER.store(signal, Ordering::Relaxed);
    }
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

/// Puts the handlers in place where the program starts with the default, and looks whether somebody was
/// here before.
pub(crate) fn init() {
    for signal in 1..=64 {
        if let Ok((handler, _)) = transport::sys::time::disposition(signal) {
            expect(signal, handler);
        }
    }
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

/// Before signal(3) and its kin.
pub(crate) fn before_signal(signal: c_int, handler: libc::sighandler_t) {
    expect(signal, handler);
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
    // SAFETY: null or the program's structure.
    if let Some(new) = unsafe { new.as_ref() } {
        expect(signal, new.sa_sigaction);
    }
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
