//! Syscall user dispatch: what a system call costs while nothing is trapped, and while it is. Called by
//! `guard` last, as it stays set up.

use crate::stats::Spread;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

static SELECTOR: AtomicU8 = AtomicU8::new(0);

/// Lets the call through, and has it made again.
#[cfg(target_arch = "x86_64")]
extern "C" fn trapped(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    SELECTOR.store(0, Ordering::Relaxed);
    let context: *mut libc::ucontext_t = context.cast();
    // SAFETY: the kernel's context. The instruction is two bytes long.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] -= 2 };
}

#[cfg(not(target_arch = "x86_64"))]
extern "C" fn trapped(_: i32, _: *mut libc::siginfo_t, _: *mut c_void) {
    SELECTOR.store(0, Ordering::Relaxed);
}

/// Nanoseconds for one call, over and over.
fn cost(reps: usize, trap: bool) -> Spread {
    const CALLS: u32 = 200;
    let sample = || {
        let start = Instant::now();
        for _ in 0..CALLS {
            SELECTOR.store(u8::from(trap), Ordering::Relaxed);
            // SAFETY: no pointers.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    };
    let samples: Vec<f64> = (0..reps.max(1)).map(|_| sample()).collect();
    Spread::of(&samples).unwrap_or_default()
}

/// Plain, with dispatch set up, trapped.
pub(super) fn measure(reps: usize) -> anyhow::Result<(Spread, Spread, Spread)> {
    const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;
    let plain = cost(reps, false);
    // SAFETY: a handler that makes no call; the selector lives for ever.
    let set = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = trapped as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut());
        libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, SELECTOR.as_ptr())
    };
    anyhow::ensure!(set == 0, "the kernel has no syscall user dispatch");
    Ok((
        plain,
        cost(reps, false),
        cost(reps, cfg!(target_arch = "x86_64")),
    ))
}
