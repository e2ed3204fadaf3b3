//! poll, select and epoll. Time-outs keep their unit down to nanoseconds.

use super::conn::made;
use super::threads::may_cancel;
use crate::epoll::set::Set;
use crate::epoll::{ctl, wait};
use crate::probe::{Access, is_good};
use crate::real::{self, other, ret_int, set_errno};
use crate::sockets::operator::patiently;
use crate::{poll as engine, table, world};
use std::ffi::{c_int, c_void};

const MS: u64 = 1_000_000;

fn from_ms(ms: c_int) -> engine::Time {
    u64::try_from(ms).ok().map(|ms| ms * MS)
}

/// A program's timespec; `Err` for one that the kernel refuses.
unsafe fn from_timespec(t: *const libc::timespec) -> Result<engine::Time, c_int> {
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
fn to_ms(ns: u64) -> c_int {
    c_int::try_from(ns.div_ceil(MS)).unwrap_or(c_int::MAX)
}

fn to_timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000).cast_signed(),
        tv_nsec: (ns % 1_000_000_000).cast_signed(),
    }
}

fn fail(e: c_int) -> c_int {
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
        // SAFETY: the program's sets; looked at within `n` bits.
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
    // SAFETY: probed inside.
    let time = unsafe { from_timespec(t) };
    if let Ok(time) = time {
        // SAFETY: the program's sets; looked at within `n` bits.
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

/// Starts to follow an epoll set.
fn made_set(fd: c_int) -> c_int {
    made(fd);
    if fd >= 0 && table::can_hold(fd) && world::is_ready() {
        let e = real::errno();
        let mut w = world::lock();
        let set = Set::create(fd);
        w.sets.push(set);
        table::put_set(fd, set);
        drop(w);
        set_errno(e);
    }
    fd
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the program's argument, passed on.
    made_set(unsafe { real::epoll_create1(flags) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    if size <= 0 {
        return fail(libc::EINVAL);
    }
    // SAFETY: without flags the two calls are one.
    made_set(unsafe { real::epoll_create1(0) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    ep: c_int,
    op: c_int,
    fd: c_int,
    event: *mut libc::epoll_event,
) -> c_int {
    if table::is_hidden(fd) {
        return fail(libc::EBADF);
    }
    match table::set(ep) {
        Some(set) if event.is_null() || is_good(event.cast(), 12, Access::Read) => {
            // SAFETY: probed.
            ret_int(unsafe { ctl::ctl(set, ep, op, fd, event) })
        }
        // SAFETY: the program's arguments, passed on.
        _ => unsafe { real::epoll_ctl(ep, op, fd, event) },
    }
}

unsafe fn epoll(
    ep: c_int,
    events: *mut libc::epoll_event,
    n: c_int,
    until: wait::Until,
    mask: *const libc::sigset_t,
) -> Option<c_int> {
    let set = table::set(ep)?;
    if n <= 0 {
        return None;
    }
    let bytes = usize::try_from(n)
        .ok()?
        .saturating_mul(size_of::<libc::epoll_event>());
    if !is_good(events.cast(), bytes, Access::Write) {
        if !set.is_engaged() {
            return None;
        }
        // As in the kernel, that shows only if there is something to report.
        let mut one = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: one entry.
        let r = may_cancel(|| unsafe { wait::wait(set, ep, &raw mut one, 1, until, mask) })?;
        return Some(match r {
            Ok(1..) => fail(libc::EFAULT),
            r => ret_int(r),
        });
    }
    // SAFETY: probed.
    may_cancel(|| unsafe { wait::wait(set, ep, events, n, until, mask) }).map(ret_int)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(
    ep: c_int,
    events: *mut libc::epoll_event,
    n: c_int,
    ms: c_int,
) -> c_int {
    // SAFETY: epoll_pwait without a mask.
    unsafe { epoll_pwait(ep, events, n, ms, std::ptr::null()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(
    ep: c_int,
    events: *mut libc::epoll_event,
    n: c_int,
    ms: c_int,
    mask: *const libc::sigset_t,
) -> c_int {
    let until = from_ms(ms).map_or(wait::Until::Ever, wait::Until::For);
    // SAFETY: the program's arguments, probed inside.
    if let Some(r) = unsafe { epoll(ep, events, n, until, mask) } {
        return r;
    }
    // SAFETY: the program's arguments, passed on.
    patiently(from_ms(ms), |left| unsafe {
        real::epoll_pwait(ep, events, n, left.map_or(-1, to_ms), mask)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait2(
    ep: c_int,
    events: *mut libc::epoll_event,
    n: c_int,
    t: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    // SAFETY: probed inside.
    if let Ok(time) = unsafe { from_timespec(t) } {
        let until = time.map_or(wait::Until::Ever, wait::Until::For);
        // SAFETY: the program's arguments, probed inside.
        if let Some(r) = unsafe { epoll(ep, events, n, until, mask) } {
            return r;
        }
    }
    // SAFETY: the program's arguments, passed on.
    unsafe { real::epoll_pwait2(ep, events, n, t, mask) }
}
