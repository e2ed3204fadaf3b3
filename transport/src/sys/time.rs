//! Waiting that involves no descriptor, and signals around it.

use super::{Errno, Result};
use crate::syscall;
use std::sync::atomic::AtomicU32;

/// Sleeps while `*word == expected`, until woken.
pub fn futex_wait(word: &AtomicU32, expected: u32) {
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word outlives the call; no timeout is given.
    let _ = unsafe { syscall!(futex, word.as_ptr(), op, expected, 0) };
}

/// Wakes up to `n` sleepers on the word.
pub fn futex_wake(word: &AtomicU32, n: i32) {
    let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word outlives the call.
    let _ = unsafe { syscall!(futex, word.as_ptr(), op, n) };
}

/// Sleeps while `*word == expected`, until [`futex_rouse`], also by another process that shares the word, or for so many
/// nanoseconds. False: that long has passed, or the kernel refuses.
///
/// # Errors
/// EINTR if a handler ran.
pub fn futex_nap(word: &AtomicU32, expected: u32, ns: u64) -> Result<bool> {
    let most = libc::timespec {
        tv_sec: (ns / 1_000_000_000).cast_signed(),
        tv_nsec: (ns % 1_000_000_000).cast_signed(),
    };
    // SAFETY: the word outlives the call, and the time-out is readable.
    let r = unsafe {
        syscall!(
            futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &raw const most
        )
    };
    match r {
        Ok(_) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::INTR) => Err(Errno::INTR),
        Err(_) => Ok(false), // (or there is none to be had)
    }
}

/// Wakes all that nap on the word.
pub fn futex_rouse(word: &AtomicU32) {
    // SAFETY: the word outlives the call.
    let _ = unsafe { syscall!(futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Sleeps for `us` microseconds.
///
/// # Errors
/// EINTR if a signal cut it short.
pub fn nap(us: u64) -> Result<()> {
    #[allow(clippy::cast_possible_wrap)]
    let ts = libc::timespec {
        tv_sec: (us / 1_000_000) as i64,
        tv_nsec: (us % 1_000_000 * 1000) as i64,
    };
    // SAFETY: `ts` is readable; no remainder is asked for.
    unsafe { syscall!(nanosleep, &raw const ts, 0) }.map(drop)
}

/// From now on this thread's naps end when they are over, not when it suits the kernel (which may take 50 µs longer).
pub fn be_punctual() {
    // SAFETY: no pointers.
    let _ = unsafe { syscall!(prctl, libc::PR_SET_TIMERSLACK, 1) };
}

/// The kernel's signal set: 64 bits on every Linux that Shunt builds for.
pub type SigSet = u64;

/// This thread's signal mask.
#[must_use]
pub fn mask() -> SigSet {
    let mut now: SigSet = 0;
    // SAFETY: as below; nothing is changed.
    let _ = unsafe { syscall!(rt_sigprocmask, libc::SIG_BLOCK, 0, &raw mut now, 8) };
    now
}

/// Replaces this thread's signal mask and returns the one before.
pub fn set_mask(mask: SigSet) -> SigSet {
    let mut old: SigSet = 0;
    // SAFETY: both words are valid; 8 is the size of the kernel's set.
    let _ = unsafe {
        syscall!(
            rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            &raw mut old,
            8
        )
    };
    old
}

/// Signals that are waiting to be delivered to this thread.
#[must_use]
pub fn pending() -> SigSet {
    let mut set: SigSet = 0;
    // SAFETY: the word is valid; 8 is the size of the kernel's set.
    let _ = unsafe { syscall!(rt_sigpending, &raw mut set, 8) };
    set
}

/// The kernel's view of a signal's disposition: (handler address, flags).
///
/// # Errors
/// EINVAL for no such signal.
pub fn disposition(signal: i32) -> Result<(usize, u64)> {
    // struct kernel_sigaction: handler, flags, restorer, mask.
    let mut action = [0u64; 4];
    // SAFETY: the array has the kernel's size for the old action; no new one is given.
    unsafe { syscall!(rt_sigaction, signal, 0, action.as_mut_ptr(), 8) }?;
    let [handler, flags, ..] = action;
    #[allow(clippy::cast_possible_truncation)]
    Ok((handler as usize, flags))
}

/// Whether every signal that the program handles restarts system calls. A call that was interrupted
/// by one of them goes on then; by which one cannot be known afterwards.
#[must_use]
pub fn all_restart() -> bool {
    // (faults interrupt no call, and runtimes watch for them)
    const FAULTS: [i32; 5] = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
    ];
    (1..=64)
        .filter(|s| !FAULTS.contains(s))
        .all(|signal| match disposition(signal) {
            Ok((handler, flags)) => {
                handler == libc::SIG_DFL
                    || handler == libc::SIG_IGN
                    || flags & libc::SA_RESTART.cast_unsigned() as u64 != 0
            }
            Err(_) => true,
        })
}

/// Sends a signal to this very thread, as the kernel does for SIGPIPE.
pub fn raise(signal: i32) {
    // SAFETY: no pointers.
    unsafe {
        let tid = syscall!(gettid).unwrap_or(0);
        let _ = syscall!(tgkill, super::pid(), tid, signal);
    }
}

/// How often the calling thread has had to make way for another, in the middle of its work.
pub fn switches() -> u64 {
    // SAFETY: all of it is plain data, for which zeros are values.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one rusage there.
    let r = unsafe { syscall!(getrusage, libc::RUSAGE_THREAD, &raw mut usage) };
    r.map_or(0, |_| usage.ru_nivcsw.cast_unsigned())
}

/// How long (ns) the calling thread has had a core so far.
pub fn on_core() -> Option<u64> {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec there.
    let r = unsafe { syscall!(clock_gettime, libc::CLOCK_THREAD_CPUTIME_ID, &raw mut ts) };
    r.ok()?;
    Some(ts.tv_sec.cast_unsigned() * 1_000_000_000 + ts.tv_nsec.cast_unsigned())
}
