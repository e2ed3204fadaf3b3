//! epoll: sets that are followed from when they are made, what is put in them, and the wait.
//!
//! A set with nothing of ours is the kernel's alone. Time-outs keep their unit down to nanoseconds.

use super::conn::made;
use super::threads::may_cancel;
use super::waiting::{fail, from_ms, from_timespec, to_ms};
use crate::epoll::set::Set;
use crate::epoll::{ctl, wait};
use crate::probe::{Access, is_good};
use crate::real::{self, ret_int, set_errno};
use crate::sockets::operator::patiently;
use crate::{table, world};
use std::ffi::c_int;

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
