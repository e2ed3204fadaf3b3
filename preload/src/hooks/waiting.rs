//! poll and select. Time-outs keep their unit down to nanoseconds.
//!
//! A call with nothing of ours in it is the next library's; it is made again, with what is left of its
//! time, where an operator's request has ended its sleep.

use super::threads::may_cancel;
use crate::poll as engine;
use crate::probe::{Access, is_good};
use crate::real::{self, other, ret_int, set_errno};
use crate::signals;
use crate::sockets::operator::patiently;
use std::ffi::{c_int, c_void};

const MS: u64 = 1_000_000;

pub(super) fn from_ms(ms: c_int) -> engine::Time {
    u64::try_from(ms).ok().map(|ms| ms * MS)
}

/// A program's timespec; `Err` for one that the kernel refuses.
pub(super) unsafe fn from_timespec(t: *const libc::timespec) -> Result<engine::Time, c_int> {
    if t.is_null() {
        return Ok(None);
    }
    if !is_good(t.cast(), size_of::<libc::timespec>(), Access::Read) {
        return Err(libc::EFAULT);
    }
    // SAFETY: probed.
    let t = unsafe { t.read_unaligned() };
    if t.tv_sec < 0 || !(0..1_000_000_000).contains(&t.tv_nsec) {
        return Err(libc::EINVAL);
    }
    Ok(Some(
        t.tv_sec.cast_unsigned().saturating_mul(1_000_000_000) + t.tv_nsec.cast_unsigned(),
    ))
}

/// Not less than that.
pub(super) fn to_ms(ns: u64) -> c_int {
    c_int::try_from(ns.div_ceil(MS)).unwrap_or(c_int::MAX)
}

pub(super) fn to_timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000).cast_signed(),
        tv_nsec: (ns % 1_000_000_000).cast_signed(),
    }
}

pub(super) fn fail(e: c_int) -> c_int {
    set_errno(e);
    -1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(fds: *mut libc::pollfd, n: libc::nfds_t, ms: c_int) -> c_int {
    let count = n as usize;
    if is_good(fds.cast(), count.saturating_mul(8), Access::Write) {
        // SAFETY: probed.
        if let Some(r) =
            // SAFETY: as above.
            may_cancel(|| unsafe { engine::poll(fds, count, from_ms(ms), std::ptr::null()) })
        {
            return ret_int(r);
        }
    }
    // In a sandbox ppoll may not be known.
    if signals::is_sandboxed() {
        // SAFETY: the program's arguments, passed on.
        return unsafe { real::poll(fds, n, ms) };
    }
    // SAFETY: the program's arguments, passed on.
    unsafe { poll_by_kernel(fds, n, from_ms(ms), std::ptr::null()) }
}

/// ppoll of nothing that is ours.
///
/// # Safety
/// The arguments are the program's, for the kernel to check.
unsafe fn poll_by_kernel(
    fds: *mut libc::pollfd,
    n: libc::nfds_t,
    time: engine::Time,
    mask: *const libc::sigset_t,
) -> c_int {
    patiently(time, |left| {
        let t = left.map(to_timespec);
        let t = t.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the caller's promise.
        unsafe { real::ppoll(fds, n, t, mask) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __poll(fds: *mut libc::pollfd, n: libc::nfds_t, ms: c_int) -> c_int {
    // SAFETY: an alias.
    unsafe { poll(fds, n, ms) }
}

unsafe extern "C" {
    fn __chk_fail() -> !;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __poll_chk(
    fds: *mut libc::pollfd,
    n: libc::nfds_t,
    ms: c_int,
    size: usize,
) -> c_int {
    if size / size_of::<libc::pollfd>() < n as usize {
        // SAFETY: ends the program, as fortified programs expect.
        unsafe { __chk_fail() }
    }
    // SAFETY: an alias.
    unsafe { poll(fds, n, ms) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    fds: *mut libc::pollfd,
    n: libc::nfds_t,
    t: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    let count = n as usize;
    // SAFETY: probed inside.
    let time = unsafe { from_timespec(t) };
    if let Ok(time) = time
        && is_good(fds.cast(), count.saturating_mul(8), Access::Write)
    {
        // SAFETY: probed.
        if let Some(r) = may_cancel(|| unsafe { engine::poll(fds, count, time, mask) }) {
            return ret_int(r);
        }
    }
    // SAFETY: the program's arguments, passed on.
    unsafe {
        match time {
            Ok(time) => poll_by_kernel(fds, n, time, mask),
            Err(_) => real::ppoll(fds, n, t, mask),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __ppoll_chk(
    fds: *mut libc::pollfd,
    n: libc::nfds_t,
    t: *const libc::timespec,
    mask: *const libc::sigset_t,
    size: usize,
) -> c_int {
    if size / size_of::<libc::pollfd>() < n as usize {
        // SAFETY: as in `__poll_chk`.
        unsafe { __chk_fail() }
    }
    // SAFETY: an alias.
    unsafe { ppoll(fds, n, t, mask) }
}

type Select = unsafe extern "C" fn(
    c_int,
    *mut libc::fd_set,
    *mut libc::fd_set,
    *mut libc::fd_set,
    *mut libc::timeval,
) -> c_int;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn select(
    n: c_int,
    r: *mut libc::fd_set,
    w: *mut libc::fd_set,
    x: *mut libc::fd_set,
    t: *mut libc::timeval,
) -> c_int {
    let n = engine::width(n, [r, w, x]);
    let time = if t.is_null() {
        Some(None)
    } else if is_good(t.cast(), size_of::<libc::timeval>(), Access::Write) {
        // SAFETY: probed.
        let v = unsafe { t.read_unaligned() };
        (v.tv_sec >= 0 && v.tv_usec >= 0).then(|| {
            Some(
                v.tv_sec.cast_unsigned().saturating_mul(1_000_000_000)
                    + v.tv_usec.cast_unsigned() * 1000,
            )
        })
    } else {
        None
    };
    if let Some(time) = time {
        let begun = transport::clock::monotonic_ns();
        // SAFETY: the program's sets; probed, and looked at within `n` bits.
        if let Some(out) =
            // SAFETY: as above.
            may_cancel(|| unsafe { engine::select(n, [r, w, x], time, std::ptr::null()) })
        {
            if let Some(ns) = time {
                // Linux's select says how much time was left.
                let left = ns.saturating_sub(transport::clock::monotonic_ns() - begun);
                let v = libc::timeval {
                    tv_sec: (left / 1_000_000_000).cast_signed(),
                    tv_usec: (left % 1_000_000_000 / 1000).cast_signed(),
                };
                // SAFETY: probed.
                unsafe { t.write_unaligned(v) };
            }
            return ret_int(out);
        }
    }
    let next = other::select.get();
    if next.is_null() {
        // SAFETY: the program's arguments, passed on.
        return ret_int(unsafe { transport::syscall!(select, n, r, w, x, t) });
    }
    // SAFETY: libc's function of this name and signature.
    let next = unsafe { std::mem::transmute::<*mut c_void, Select>(next) };
    // An end of the sleep leaves in `t` what is left.
    // SAFETY: the program's arguments, passed on.
    patiently(None, |_| unsafe { next(n, r, w, x, t) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __select(
    n: c_int,
    r: *mut libc::fd_set,
    w: *mut libc::fd_set,
    x: *mut libc::fd_set,
    t: *mut libc::timeval,
) -> c_int {
    // SAFETY: an alias.
    unsafe { select(n, r, w, x, t) }
}

type Pselect = unsafe extern "C" fn(
    c_int,
    *mut libc::fd_set,
    *mut libc::fd_set,
    *mut libc::fd_set,
    *const libc::timespec,
    *const libc::sigset_t,
) -> c_int;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pselect(
    n: c_int,
    r: *mut libc::fd_set,
    w: *mut libc::fd_set,
    x: *mut libc::fd_set,
    t: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    let n = engine::width(n, [r, w, x]);
    // SAFETY: probed inside.
    let time = unsafe { from_timespec(t) };
    if let Ok(time) = time {
        // SAFETY: the program's sets; probed, and looked at within `n` bits.
        if let Some(out) = may_cancel(|| unsafe { engine::select(n, [r, w, x], time, mask) }) {
            return ret_int(out);
        }
    }
    let next = other::pselect.get();
    if next.is_null() {
        return fail(libc::ENOSYS);
    }
    // SAFETY: libc's function of this name and signature.
    let next = unsafe { std::mem::transmute::<*mut c_void, Pselect>(next) };
    let Ok(time) = time else {
        // SAFETY: the program's arguments, passed on.
        return unsafe { next(n, r, w, x, t, mask) };
    };
    patiently(time, |left| {
        let t = left.map(to_timespec);
        let t = t.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the program's arguments, passed on.
        unsafe { next(n, r, w, x, t, mask) }
    })
}
