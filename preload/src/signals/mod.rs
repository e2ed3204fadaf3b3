//! What the library does about signals.
//!
//! The program's handlers never run while their thread is inside a critical section of the library:
//! the kernel is given a handler of ours for each (`arrive`), which calls the program's or puts the
//! signal off until the section ends (`thread`). What the program sees of its handlers is what it set
//! (`actions`). Calls that wait ask `since` whether one has run.
//!
//! The report of a process that a signal ends: with SHUNT_REPORT set, the signals whose default ends a
//! program get a handler that writes the report and then lets the default happen. The program sees the
//! default, and its own handlers replace ours.
//!
//! Called by the hooks of sigaction and its kin, by the locks, and by everything that waits.

mod actions;
mod arrive;
pub(crate) mod guarded;
pub(crate) mod since;
pub(crate) mod thread;

use crate::real::{other, result};
use crate::{report, world};
use actions::Pair;
pub(crate) use actions::{ends, ends_at_once};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use transport::sys::time;
use transport::{sys, syscall};

/// A handler is, or was, in place that may interrupt a call.
static HANDLERS: AtomicBool = AtomicBool::new(false);

/// System calls may be forbidden: nothing is put off any more, since that takes one.
static SANDBOXED: AtomicBool = AtomicBool::new(false);

const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// No fault comes from in here, and a blocked one kills.
const FAULTS: u64 = bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGFPE)
    | bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGSYS);

/// The two by which libc cancels a thread and has each of them change its user. Their handlers are libc's, which looks when they matter;
/// and a thread that leaves a call by which it may be cancelled waits for the one that is on its way.
const LIBCS: u64 = bit(32) | bit(33);

/// The mask that holds everything back that can be.
const HELD: u64 = !(FAULTS | LIBCS | bit(libc::SIGKILL) | bit(libc::SIGSTOP));

/// Whether a handler may interrupt a call.
#[inline]
pub(crate) fn may_interrupt() -> bool {
    HANDLERS.load(Ordering::Relaxed)
}

/// A handler is about to be set.
fn expect(signal: c_int) {
    if bit(signal) & FAULTS == 0 {
        HANDLERS.store(true, Ordering::SeqCst);
    }
}

/// The program limits its system calls. (Its report is written, so nothing is to be done at its end.)
pub(crate) fn sandboxed() {
    let watched = ENDING.map(|signal| is_watched(signal) && ends(signal));
    SANDBOXED.store(true, Ordering::SeqCst);
    for (signal, _) in ENDING.into_iter().zip(watched).filter(|(_, is)| *is) {
        kernel_default(signal);
    }
}

pub(crate) fn is_sandboxed() -> bool {
    SANDBOXED.load(Ordering::Relaxed)
}

const ENDING: [c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

fn is_watched(signal: c_int) -> bool {
    world::settings().report.is_some() && !is_sandboxed() && ENDING.contains(&signal)
}

/// What is done about an ending signal that the program does not handle.
extern "C" fn ended(signal: c_int) {
    if !world::is_foreign() {
        crate::sockets::wired::parting::at_signal();
        report::write();
    }
    kernel_default(signal);
    time::raise(signal);
}

/// struct kernel_sigaction.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

impl Raw {
    const EMPTY: Self = Self {
        handler: 0,
        flags: 0,
        restorer: 0,
        mask: 0,
    };

    #[allow(clippy::cast_possible_truncation)]
    const fn pair(&self) -> Pair {
        (self.handler, self.flags as c_int)
    }

    const fn set(&mut self, (handler, flags): Pair) {
        // SA_RESTORER is the kernel's business, and its flags are a word.
        const RESTORER: u64 = 0x0400_0000;
        self.flags = (self.flags & RESTORER) | flags.cast_unsigned() as u64;
        self.handler = handler;
    }
}

/// rt_sigaction(2). Either may be null.
unsafe fn kernel_action(signal: c_int, new: *const Raw, old: *mut Raw) -> sys::Result<usize> {
    // SAFETY: the caller's structures; 8 is the size of the kernel's set.
    unsafe { syscall!(rt_sigaction, signal, new, old, 8) }
}

/// The default, as SA_RESETHAND has it: the rest of the action stays.
fn kernel_default(signal: c_int) {
    kernel_set(signal, libc::SIG_DFL);
}

/// Nobody is to hear of it any more.
pub(crate) fn ignore(signal: c_int) {
    kernel_set(signal, libc::SIG_IGN);
}

fn kernel_set(signal: c_int, handler: usize) {
    let mut action = Raw::EMPTY;
    // SAFETY: the structure is valid.
    unsafe {
        if kernel_action(signal, std::ptr::null(), &raw mut action).is_ok() {
            action.handler = handler;
            let _ = kernel_action(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Takes over the handlers of those who were here before, and puts ours in place for the report.
pub(crate) fn init() {
    crate::sockets::counted::init();
    for signal in 1..=64 {
        let watched = is_watched(signal);
        let Ok((handler, _)) = time::disposition(signal) else {
            continue;
        };
        if handler == libc::SIG_IGN || (handler == libc::SIG_DFL && !watched) {
            continue;
        }
        // SAFETY: all-zero is a valid sigaction; both are valid.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if next(signal, std::ptr::null(), &raw mut action) == 0 {
                sigaction(signal, &raw const action, std::ptr::null_mut());
            }
        }
    }
}

/// In a child after fork.
pub(crate) fn in_child() {
    actions::in_child();
    crate::sockets::counted::in_child();
}

type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

/// libc's sigaction.
unsafe fn next(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let at = other::sigaction.get();
    if at.is_null() {
        crate::real::set_errno(libc::ENOSYS);
        return -1;
    }
    // SAFETY: libc's function of this name and signature.
    unsafe { std::mem::transmute::<*mut c_void, Sigaction>(at)(signal, new, old) }
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
    let mut ours = unsafe { new.as_ref() }.copied();
    // SAFETY: all-zero is a valid sigaction.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    let pair = ours.map(|a| {
        (
            a.sa_sigaction,
            a.sa_flags | guarded::added(signal, a.sa_sigaction),
        )
    });
    let wanted = ours.map(|a| a.sa_mask);
    let shown = actions::change(signal, pair, |pair| {
        if let (Some(a), Some(pair)) = (&mut ours, pair) {
            (a.sa_sigaction, a.sa_flags) = pair;
        }
        let new = ours.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: null or our own structures.
        result(unsafe { next(signal, new, &raw mut before) } as isize)?;
        Ok((before.sa_sigaction, before.sa_flags))
    });
    let Ok(shown) = shown else {
        return -1; // errno is libc's
    };
    (before.sa_sigaction, before.sa_flags) = shown;
    // SAFETY: the kernel's set is the first word.
    let first = |set: &libc::sigset_t| unsafe { std::ptr::from_ref(set).cast::<u64>().read() };
    // (the program's structure may be the one that `old` is)
    if let Some(mask) = guarded::complete(signal, wanted.as_ref().map(first)) {
        // SAFETY: as above.
        unsafe { (&raw mut before.sa_mask).cast::<u64>().write(mask) };
    }
    if !old.is_null() {
        // SAFETY: the program's structure.
        unsafe { old.write(before) };
    }
    0
}

/// syscall(SYS_rt_sigaction, …), its structures those of the kernel.
///
/// # Safety
/// Both are null or good for it.
pub(crate) unsafe fn raw_sigaction(
    signal: c_int,
    new: *const Raw,
    old: *mut Raw,
) -> sys::Result<usize> {
    // SAFETY: null or the program's structure.
    let mut ours = (!new.is_null()).then(|| unsafe { new.read_unaligned() });
    let mut before = Raw::EMPTY;
    let pair = ours.as_ref().map(Raw::pair);
    let shown = actions::change(signal, pair, |pair| {
        if let (Some(a), Some(pair)) = (&mut ours, pair) {
            a.set(pair);
        }
        let new = ours.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: null or our own structures.
        unsafe { kernel_action(signal, new, &raw mut before) }?;
        Ok(before.pair())
    })?;
    before.set(shown);
    if guarded::is_served(signal) && before.handler == libc::SIG_DFL {
        before.flags = shown.1.cast_unsigned().into();
        before.restorer = 0;
    }
    if let Some(mask) = guarded::complete(signal, ours.as_ref().map(|a| a.mask)) {
        before.mask = mask;
    }
    if !old.is_null() {
        // SAFETY: the program's structure.
        unsafe { old.write_unaligned(before) };
    }
    Ok(0)
}

/// Signals for which siginterrupt(3) has asked that signal(3) sets no SA_RESTART.
static INTERRUPTS: AtomicU64 = AtomicU64::new(0);

/// Notes what siginterrupt(3) asks for.
pub(crate) fn interrupts(signal: c_int, yes: bool) {
    if yes {
        INTERRUPTS.fetch_or(bit(signal), Ordering::Relaxed);
    } else {
        INTERRUPTS.fetch_and(!bit(signal), Ordering::Relaxed);
    }
}

/// The flags that signal(3) sets.
pub(crate) fn usual_flags(signal: c_int) -> c_int {
    if INTERRUPTS.load(Ordering::Relaxed) & bit(signal) != 0 {
        0
    } else {
        libc::SA_RESTART
    }
}
