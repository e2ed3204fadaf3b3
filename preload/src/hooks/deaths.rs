//! Calls by which a program ends or stops itself, or others that it works with: what waits in the library to go together
//! with what follows (`sockets::parked`) goes before, as it would have gone on kernel TCP.

use crate::real::{self, other};
use crate::signals;
use crate::sockets::wired::parting;
use crate::sockets::{cut, parked};
use std::ffi::{c_int, c_void};
use transport::sys::{self, time};
use transport::syscall;

/// What comes before a signal. (Signal 0 only asks who is there.)
fn before(signal: c_int, own: impl FnOnce() -> bool) {
    if signal != 0 {
        parked::before_death(own);
    }
}

/// This signal, to this thread or the whole process, comes next. If it ends that for certain, the peers are told. (The first process of a
/// PID namespace survives what nobody there handles.)
fn dies_by(signal: c_int) {
    if signals::ends_at_once(signal) && sys::pid() != 1 {
        cut::die_all();
        parting::say_end();
    }
}

/// Whether this process is of that group.
fn is_own_group(group: libc::pid_t) -> bool {
    // SAFETY: no pointers.
    group == 0
        || unsafe { syscall!(getpgid, 0) }.is_ok_and(|own| own == group.cast_unsigned() as usize)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn kill(pid: libc::pid_t, signal: c_int) -> c_int {
    before(signal, || {
        (pid <= 0 || pid == sys::pid()) && signals::ends(signal)
    });
    // (to all processes: not to this one)
    if pid == sys::pid() || pid == 0 || pid < -1 && is_own_group(pid.saturating_neg()) {
        dies_by(signal);
    }
    // SAFETY: the program's arguments, passed on.
    unsafe { real::kill(pid, signal) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn tgkill(process: libc::pid_t, thread: libc::pid_t, signal: c_int) -> c_int {
    before(signal, || process == sys::pid() && signals::ends(signal));
    // SAFETY: the program's arguments, passed on.
    unsafe { real::tgkill(process, thread, signal) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn killpg(group: libc::pid_t, signal: c_int) -> c_int {
    before(signal, || signals::ends(signal));
    if group >= 0 && is_own_group(group) {
        dies_by(signal);
    }
    let next = other::killpg.get();
    if next.is_null() {
        // SAFETY: the program's arguments, passed on.
        return unsafe { real::kill(-group, signal) };
    }
    // SAFETY: libc has it, with this signature.
    unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(libc::pid_t, c_int) -> c_int>(next)(
            group, signal,
        )
    }
}

/// What is asked of libc by name only, where it has it; else "no such call".
macro_rules! ends_by {
    ($next:expr, $otherwise:expr, fn($($arg:ident: $type:ty),*)) => {{
        let next = $next.get();
        if next.is_null() {
            return $otherwise;
        }
        // SAFETY: libc has it, with this signature; the program's arguments, passed on.
        unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(next)($($arg),*)
        }
    }};
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_kill(thread: libc::pthread_t, signal: c_int) -> c_int {
    before(signal, || signals::ends_at_once(signal));
    ends_by!(
        other::pthread_kill,
        libc::ENOSYS,
        fn(thread: libc::pthread_t, signal: c_int)
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigqueue(
    thread: libc::pthread_t,
    signal: c_int,
    value: libc::sigval,
) -> c_int {
    before(signal, || signals::ends_at_once(signal));
    ends_by!(
        other::pthread_sigqueue,
        libc::ENOSYS,
        fn(thread: libc::pthread_t, signal: c_int, value: libc::sigval)
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigqueue(pid: libc::pid_t, signal: c_int, value: libc::sigval) -> c_int {
    before(signal, || {
        pid == sys::pid() && signals::ends_at_once(signal)
    });
    if pid == sys::pid() {
        dies_by(signal);
    }
    ends_by!(
        other::sigqueue,
        -1,
        fn(pid: libc::pid_t, signal: c_int, value: libc::sigval)
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn raise(signal: c_int) -> c_int {
    before(signal, || signals::ends(signal));
    dies_by(signal);
    let next = other::raise.get();
    if next.is_null() {
        time::raise(signal);
        return 0;
    }
    // SAFETY: libc has it, with this signature.
    unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> c_int>(next)(signal)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn abort() -> ! {
    parked::before_death(|| true);
    dies_by(libc::SIGABRT); // (if it is not held off, which abort ends; then nobody is told)
    let next = other::abort.get();
    if next.is_null() {
        time::raise(libc::SIGABRT);
        loop {
            // SAFETY: ends the process.
            let _ = unsafe { syscall!(exit_group, 127) };
        }
    }
    // SAFETY: libc has it, with this signature.
    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> !>(next)() }
}
