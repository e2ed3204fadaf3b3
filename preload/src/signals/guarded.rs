//! SIGSEGV and SIGSYS once messages are held where they are (`crate::guard`): the kernel has our handler
//! for both, whatever the program has set, and the program sees and gets what it has set.
//!
//! Our handler returns by instructions of our own: libc's would be a trapped system call, in the middle
//! of serving one.

use super::{Raw, kernel_action, kernel_default};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use transport::sys::time;

/// Both are served.
static ARMED: AtomicBool = AtomicBool::new(false);

/// The mask that the program has asked for with SIGSYS, where the kernel has none.
static MASK: AtomicU64 = AtomicU64::new(0);

const RESTORER: u64 = 0x0400_0000;

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.shunt_return,\"ax\",@progbits",
    ".hidden shunt_return",
    ".globl shunt_return",
    ".type shunt_return, @function",
    // (debuggers know the frame of a handler by these two instructions)
    "shunt_return: mov rax, {nr}",
    "syscall",
    ".size shunt_return, . - shunt_return",
    ".popsection",
    nr = const libc::SYS_rt_sigreturn,
);

#[cfg(target_arch = "x86_64")]
fn restorer() -> usize {
    unsafe extern "C" {
        fn shunt_return();
    }
    shunt_return as *const () as usize
}

#[cfg(not(target_arch = "x86_64"))]
fn restorer() -> usize {
    0
}

/// Whether the program's wish for this signal is kept apart from what the kernel has.
pub(super) fn is_served(signal: c_int) -> bool {
    ARMED.load(Ordering::Relaxed) && matches!(signal, libc::SIGSEGV | libc::SIGSYS)
}

/// What stands for the program's default.
pub(super) fn default_action() -> usize {
    by_default as *const () as usize
}

/// What libc's sigaction would have left in the flags of a default, for the program to see.
pub(super) fn added(signal: c_int, handler: usize) -> c_int {
    if is_served(signal) && handler == libc::SIG_DFL {
        RESTORER as c_int
    } else {
        0
    }
}

/// The flags that the kernel has with it: a call that is made in the handler is interrupted as it was.
pub(super) const FLAGS: c_int = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART;

/// The program has set something for one of the two that cannot be served beside us.
pub(super) fn gives_way(signal: c_int, handler: usize) -> bool {
    handler == libc::SIG_IGN || (signal == libc::SIGSYS && handler != libc::SIG_DFL)
}

/// The program's own: nothing is held any more, and both signals are left alone.
pub(super) fn leave() {
    crate::guard::forbid();
    ARMED.store(false, Ordering::Relaxed);
}

extern "C" fn by_default(signal: c_int, info: *const libc::siginfo_t, _: *mut c_void) {
    kernel_default(signal);
    // A fault happens again when this returns, with its own details; what was sent is sent again.
    // SAFETY: the kernel's details.
    if signal != libc::SIGSEGV || unsafe { (*info).si_code } <= 0 {
        time::raise(signal);
    }
}

/// After a change: the kernel has the restorer, and for SIGSYS no mask. `mask` is the one that was set;
/// what is returned is the one that the program had.
pub(super) fn complete(signal: c_int, mask: Option<u64>) -> Option<u64> {
    if !is_served(signal) {
        return None;
    }
    let mut action = Raw::EMPTY;
    // SAFETY: the structure is valid.
    if mask.is_some() && unsafe { kernel_action(signal, std::ptr::null(), &raw mut action) }.is_ok()
    {
        action.restorer = restorer();
        action.flags |= RESTORER;
        if signal == libc::SIGSYS {
            action.mask = 0;
        }
        // SAFETY: as above.
        let _ = unsafe { kernel_action(signal, &raw const action, std::ptr::null_mut()) };
    }
    if signal != libc::SIGSYS {
        return None;
    }
    Some(match mask {
        Some(mask) => MASK.swap(mask, Ordering::Relaxed),
        None => MASK.load(Ordering::Relaxed),
    })
}

/// Puts ours in place for both, unless the program has something there that cannot be served.
pub(crate) fn arm() -> bool {
    if ARMED.load(Ordering::Relaxed) {
        return stand();
    }
    let both = [libc::SIGSEGV, libc::SIGSYS];
    let mut set = [Raw::EMPTY; 2];
    // SAFETY: the structures are valid.
    unsafe {
        for (signal, action) in both.into_iter().zip(&mut set) {
            let had = super::raw_sigaction(signal, std::ptr::null(), action);
            if had.is_err() || gives_way(signal, action.handler) {
                return false;
            }
        }
        ARMED.store(true, Ordering::Relaxed);
        for (signal, action) in both.into_iter().zip(&set) {
            let _ = super::raw_sigaction(signal, action, std::ptr::null_mut());
        }
    }
    stand()
}

/// Whether the kernel still has ours for both: nobody has gone round the library.
pub(crate) fn stand() -> bool {
    ARMED.load(Ordering::Relaxed)
        && [libc::SIGSEGV, libc::SIGSYS].into_iter().all(|signal| {
            let mut action = Raw::EMPTY;
            // SAFETY: the structure is valid.
            let r = unsafe { kernel_action(signal, std::ptr::null(), &raw mut action) };
            r.is_ok() && action.handler == super::arrive::address() && action.restorer == restorer()
        })
}
