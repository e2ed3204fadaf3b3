//! Functions that set signal handlers: all of them are sigaction here, as they are in libc, so that the
//! library knows every handler (`crate::signals`).

use crate::probe::{Access, is_good};
use crate::real::set_errno;
use crate::signals;
use std::ffi::{c_int, c_long, c_void};

fn is_signal(signal: c_int) -> bool {
    (1..=64).contains(&signal)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let size = size_of::<libc::sigaction>();
    let readable = new.is_null() || is_good(new.cast(), size, Access::Read);
    let writable = old.is_null() || is_good(old.cast(), size, Access::Write);
    if !readable || !writable {
        set_errno(libc::EFAULT);
        return -1;
    }
    // SAFETY: the program's arguments, probed.
    unsafe { signals::sigaction(signal, new, old) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: an alias.
    unsafe { sigaction(signal, new, old) }
}

/// syscall(SYS_rt_sigaction, …). `None`: the kernel refuses it.
///
/// # Safety
/// The words are the program's arguments for this call.
pub(super) unsafe fn raw(signal: c_int, new: usize, old: usize, set: usize) -> Option<c_long> {
    let (new, old): (*const signals::Raw, *mut signals::Raw) = (
        std::ptr::with_exposed_provenance(new),
        std::ptr::with_exposed_provenance_mut(old),
    );
    let size = size_of::<signals::Raw>();
    let readable = new.is_null() || is_good(new.cast(), size, Access::Read);
    let writable = old.is_null() || is_good(old.cast(), size, Access::Write);
    if set != 8 || !readable || !writable {
        return None;
    }
    // SAFETY: probed.
    let r = unsafe { signals::raw_sigaction(signal, new, old) };
    Some(crate::real::ret(r) as c_long)
}

/// sigaction for functions that take and give a handler alone.
fn simple(
    signal: c_int,
    handler: libc::sighandler_t,
    flags: c_int,
    masked: bool,
) -> libc::sighandler_t {
    if handler == libc::SIG_ERR || !is_signal(signal) {
        set_errno(libc::EINVAL);
        return libc::SIG_ERR;
    }
    // SAFETY: all-zero is a valid sigaction; both structures are valid.
    unsafe {
        let (mut new, mut old): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
        new.sa_sigaction = handler;
        new.sa_flags = flags;
        if masked {
            libc::sigaddset(&raw mut new.sa_mask, signal);
        }
        if signals::sigaction(signal, &raw const new, &raw mut old) < 0 {
            return libc::SIG_ERR;
        }
        old.sa_sigaction
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    let flags = if is_signal(signal) {
        signals::usual_flags(signal)
    } else {
        0
    };
    simple(signal, handler, flags, true)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsd_signal(
    number: c_int,
    handler: libc::sighandler_t,
) -> libc::sighandler_t {
    // SAFETY: an alias.
    unsafe { signal(number, handler) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssignal(number: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: an alias.
    unsafe { signal(number, handler) }
}

/// Once, and not held back meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysv_signal(
    signal: c_int,
    handler: libc::sighandler_t,
) -> libc::sighandler_t {
    simple(
        signal,
        handler,
        libc::SA_RESETHAND | libc::SA_NODEFER,
        false,
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sysv_signal(
    signal: c_int,
    handler: libc::sighandler_t,
) -> libc::sighandler_t {
    // SAFETY: an alias.
    unsafe { sysv_signal(signal, handler) }
}

/// System V's, which holds and lets go as well.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigset(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    const HOLD: libc::sighandler_t = 2;
    if handler == libc::SIG_ERR || !is_signal(signal) {
        set_errno(libc::EINVAL);
        return libc::SIG_ERR;
    }
    // SAFETY: all-zero is a valid sigaction and an empty set; all structures are valid.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        let (mut set, mut was): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigaddset(&raw mut set, signal);
        let (new, how) = if handler == HOLD {
            (None, libc::SIG_BLOCK)
        } else {
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = handler;
            (Some(new), libc::SIG_UNBLOCK)
        };
        let new = new.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        if signals::sigaction(signal, new, &raw mut before) < 0
            || libc::sigprocmask(how, &raw const set, &raw mut was) < 0
        {
            return libc::SIG_ERR;
        }
        if libc::sigismember(&raw const was, signal) == 1 {
            return HOLD;
        }
        before.sa_sigaction
    }
}

/// Whether calls are interrupted by this signal, for handlers that are set and for those that signal(3)
/// will set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    // SAFETY: all-zero is a valid sigaction; the structure is valid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if signals::sigaction(signal, std::ptr::null(), &raw mut action) < 0 {
            return -1;
        }
        signals::interrupts(signal, interrupts != 0);
        if interrupts != 0 {
            action.sa_flags &= !libc::SA_RESTART;
        } else {
            action.sa_flags |= libc::SA_RESTART;
        }
        signals::sigaction(signal, &raw const action, std::ptr::null_mut())
    }
}

/// The oldest's structure.
#[repr(C)]
struct Vec {
    handler: usize,
    mask: c_int,
    flags: c_int,
}

impl Vec {
    const ON_STACK: c_int = 1;
    const INTERRUPT: c_int = 2;
    const RESET: c_int = 4;
}

/// The oldest of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigvec(signal: c_int, new: *const c_void, old: *mut c_void) -> c_int {
    let (new, old): (*const Vec, *mut Vec) = (new.cast(), old.cast());
    let readable = new.is_null() || is_good(new.cast(), size_of::<Vec>(), Access::Read);
    let writable = old.is_null() || is_good(old.cast(), size_of::<Vec>(), Access::Write);
    if !readable || !writable {
        set_errno(libc::EFAULT);
        return -1;
    }
    // SAFETY: all-zero is a valid sigaction; the program's structures were probed.
    unsafe {
        let (mut next, mut before): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
        if let Some(new) = new.as_ref() {
            next.sa_sigaction = new.handler;
            (&raw mut next.sa_mask)
                .cast::<u64>()
                .write(u64::from(new.mask.cast_unsigned()));
            let flag = |bit, flag| if new.flags & bit != 0 { flag } else { 0 };
            next.sa_flags = flag(Vec::ON_STACK, libc::SA_ONSTACK)
                | flag(Vec::RESET, libc::SA_RESETHAND)
                | (libc::SA_RESTART ^ flag(Vec::INTERRUPT, libc::SA_RESTART));
        }
        let set = if new.is_null() {
            std::ptr::null()
        } else {
            &raw const next
        };
        if signals::sigaction(signal, set, &raw mut before) < 0 {
            return -1;
        }
        if !old.is_null() {
            let flag = |flag, bit| if before.sa_flags & flag != 0 { bit } else { 0 };
            old.write(Vec {
                handler: before.sa_sigaction,
                mask: (&raw const before.sa_mask).cast::<c_int>().read(),
                flags: flag(libc::SA_ONSTACK, Vec::ON_STACK)
                    | flag(libc::SA_RESETHAND, Vec::RESET)
                    | (Vec::INTERRUPT ^ flag(libc::SA_RESTART, Vec::INTERRUPT)),
            });
        }
        0
    }
}
