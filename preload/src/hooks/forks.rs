//! Ways to fork that libc's own handlers (pthread_atfork) do not see: `_Fork`, `clone`, and syscall(2) with
//! either. A child with memory of its own is one all the same; one that shares its parent's memory
//! is a thread, or borrows it until it executes something (`world::is_foreign`).

use crate::fork;
use crate::real::{other, set_errno};
use crate::sockets::wired;
use crate::world;
use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a child made with these flags has memory and descriptors of its own.
const fn is_fork(flags: usize) -> bool {
    let shared = (libc::CLONE_VM | libc::CLONE_FILES).cast_unsigned() as usize;
    flags & shared == 0
}

/// Another process may have this one's table of descriptors.
static SHARES_FILES: AtomicBool = AtomicBool::new(false);

/// Whether a process that was made here may have the same table.
pub(super) fn may_share_files() -> bool {
    SHARES_FILES.load(Ordering::Relaxed)
}

/// A child is made with these flags, round libc's threads and forks.
fn note_files(flags: usize) {
    if flags & libc::CLONE_FILES.cast_unsigned() as usize != 0 {
        SHARES_FILES.store(true, Ordering::Relaxed);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> c_int {
    let next = other::_Fork.get();
    if next.is_null() {
        set_errno(libc::ENOSYS);
        return -1;
    }
    // SAFETY: libc's function of this name and signature.
    let kernel =
        || unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(next)() };
    fork::around(kernel)
}

type Start = unsafe extern "C" fn(*mut c_void) -> c_int;

/// What the child of `clone` is to run, on the parent's stack, which it has a copy of.
struct Child {
    start: Start,
    argument: *mut c_void,
}

unsafe extern "C" fn begin(child: *mut c_void) -> c_int {
    fork::in_child();
    // SAFETY: made by `clone` below, and copied with its stack.
    let Child { start, argument } = unsafe { child.cast::<Child>().read() };
    // SAFETY: the program's function and argument.
    let status = unsafe { start(argument) };
    // What follows ends this thread, and with it the process unless it has others, which must not be ours.
    if !crate::world::is_foreign() {
        wired::parting::at_exit(false);
    }
    crate::mapper::leaving();
    wired::leaving();
    status
}

/// clone(2) as libc has it, with its variadic arguments as words: in the registers, and the last on the
/// stack, where it is passed on whatever it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    start: Option<Start>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: usize,
    tls: usize,
    child_tid: usize,
) -> c_int {
    type Clone = unsafe extern "C" fn(
        Option<Start>,
        *mut c_void,
        c_int,
        *mut c_void,
        usize,
        usize,
        usize,
    ) -> c_int;
    world::parts();
    note_files(flags.cast_unsigned() as usize);
    let next = other::clone.get();
    if next.is_null() {
        set_errno(libc::ENOSYS);
        return -1;
    }
    // SAFETY: libc's function of this name; what it does not look at does not matter.
    let next = unsafe { std::mem::transmute::<*mut c_void, Clone>(next) };
    let own = is_fork(flags.cast_unsigned() as usize) && !stack.is_null();
    let Some(function) = start.filter(|_| own) else {
        // SAFETY: the program's arguments, passed on.
        return unsafe { next(start, stack, flags, argument, parent_tid, tls, child_tid) };
    };
    let mut child = Child {
        start: function,
        argument,
    };
    fork::before_fork();
    // SAFETY: the program's arguments, with a function of ours before its own.
    let r = unsafe {
        next(
            Some(begin),
            stack,
            flags,
            (&raw mut child).cast(),
            parent_tid,
            tls,
            child_tid,
        )
    };
    fork::in_parent();
    r
}

/// syscall(2): a fork that is to be served here. `kernel` makes the call.
pub(super) fn serve(
    nr: c_long,
    flags: usize,
    stack: usize,
    kernel: impl FnOnce() -> c_long,
) -> c_long {
    #[cfg(target_arch = "x86_64")]
    let plain = nr == libc::SYS_fork;
    #[cfg(not(target_arch = "x86_64"))]
    let plain = false;
    // (a child on a stack of its own does not come back here)
    if plain || (nr == libc::SYS_clone && is_fork(flags) && stack == 0) {
        return fork::around(kernel);
    }
    #[cfg(target_arch = "x86_64")]
    let borrows = nr == libc::SYS_vfork;
    #[cfg(not(target_arch = "x86_64"))]
    let borrows = false;
    if borrows || matches!(nr, libc::SYS_clone | libc::SYS_clone3) {
        world::parts();
        // (what clone3 is told stands in memory)
        note_files(if nr == libc::SYS_clone3 { !0 } else { flags });
    }
    kernel()
}
