//! SIGSEGV: a write to a page that is protected is served, everything else is the program's.
//!
//! Another signal may come between the fault and its handler, and what the program's handler for that was
//! given is the page without protection: the fault is over then, and nobody's.

use super::{State, maps, trap, with};
use std::ffi::c_void;

/// The page is there, but not for this.
const SEGV_ACCERR: i32 = 2;

/// Whether it was a write.
#[cfg(target_arch = "x86_64")]
unsafe fn is_write(context: *mut c_void) -> bool {
    const WRITE: i64 = 2;
    let context: *const libc::ucontext_t = context.cast();
    // SAFETY: the kernel's context.
    let error = unsafe { &*context }
        .uc_mcontext
        .gregs
        .get(libc::REG_ERR as usize);
    error.is_some_and(|e| e & WRITE != 0)
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn is_write(_: *mut c_void) -> bool {
    false // nothing is ever protected there
}

/// False if the fault is the program's own.
///
/// # Safety
/// The arguments are the kernel's.
pub(super) unsafe fn serve(info: *const libc::siginfo_t, context: *mut c_void) -> bool {
    if !trap::is_armed() {
        return false;
    }
    // SAFETY: the kernel's details; the address is there for faults, and for others the code differs.
    let (code, at) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // SAFETY: the kernel's context.
    code == SEGV_ACCERR
        && unsafe { is_write(context) }
        && with(|state| state.touched(at) || state.is_over(at))
}

impl State {
    /// Whether the page was protected a moment ago, and can be written now.
    fn is_over(&self, at: usize) -> bool {
        self.lifted.contains(&at) && maps::find(at, &mut []).is_ok_and(|m| m.is_writable())
    }
}
