//! What the guard asks of the library's signals: its own handler for two of them.

pub(crate) mod guarded {
    use crate::guard;
    use std::ffi::{c_int, c_void};
    use std::sync::atomic::{AtomicBool, Ordering};
    use transport::syscall;

    std::arch::global_asm!(
        ".text",
        ".type shunt_test_return, @function",
        "shunt_test_return: mov rax, 15",
        "syscall",
        ".size shunt_test_return, . - shunt_test_return",
    );

    unsafe extern "C" {
        fn shunt_test_return();
    }

    /// Stands for a program whose handler cannot be had.
    pub(crate) static REFUSES: AtomicBool = AtomicBool::new(false);

    /// Another signal's handler comes between a fault and ours.
    pub(crate) static LIFTS_FIRST: AtomicBool = AtomicBool::new(false);

    /// Faults that were not the guard's end the process, as by default.
    unsafe extern "C" fn arrive(signal: c_int, info: *const libc::siginfo_t, context: *mut c_void) {
        if LIFTS_FIRST.load(Ordering::Relaxed) {
            guard::lift_all();
        }
        // SAFETY: the kernel's arguments.
        if !unsafe { guard::serve(signal, info, context) } {
            // SAFETY: no pointers but none.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }

    pub(crate) fn arm() -> bool {
        const FLAGS: usize =
            0x0400_0000 | (libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART) as usize;
        let action = [
            arrive as *const () as usize,
            FLAGS,
            shunt_test_return as *const () as usize,
            0,
        ];
        [libc::SIGSEGV, libc::SIGSYS].iter().all(|signal| {
            // SAFETY: the kernel's structure.
            unsafe { syscall!(rt_sigaction, *signal, action.as_ptr(), 0, 8) }.is_ok()
        })
    }

    pub(crate) fn stand() -> bool {
        !REFUSES.load(Ordering::Relaxed)
    }
}
