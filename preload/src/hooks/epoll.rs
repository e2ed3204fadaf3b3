//! epoll: sets that are followed from when they are made, what is put in them, and the wait.
//!
//! A set with nothing of ours is the kernel's alone. Time-outs keep their unit down to nanoseconds.

use super::conn::{can_follow, made};
use super::threads::may_cancel;
use super::waiting::{fail, from_ms, from_timespec, to_ms};
use crate::epoll::set::{Set, TAG, TAG_MASK};
use crate::epoll::{ctl, wait};
use crate::probe::{Access, is_good};
use crate::real::{self, ret_int, set_errno};
use crate::sockets::operator::patiently;
use crate::{signals, table, world};
use std::ffi::c_int;

/// Starts to follow an epoll set.
fn made_set(fd: c_int) -> c_int {
    made(fd);
    if fd >= 0 && can_follow(fd) {
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
    // SAFETY: the program's argument, passed on.
    made_set(unsafe { real::epoll_create(size) })
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

/// epoll_wait(2) itself, where a sandbox may not know epoll_pwait, which is the same without a mask. `None`: the set is not
/// the kernel's alone, or has said nothing that is for the program.
unsafe fn wait_by_its_name(
    ep: c_int,
    events: *mut libc::epoll_event,
    n: c_int,
    ms: c_int,
) -> Option<c_int> {
    let set = table::set(ep);
    if set.is_some_and(Set::is_engaged) {
        return None;
    }
    // SAFETY: the program's arguments, passed on.
    let r = unsafe { real::epoll_wait(ep, events, n, ms) };
    if set.is_none() || r <= 0 {
        return Some(r);
    }
    // (registrations that have fired once, and are silent until the program modifies them)
    let mut kept = 0;
    for at in 0..r.cast_unsigned() as usize {
        // SAFETY: the kernel has filled so many entries.
        unsafe {
            let event = events.add(at).read_unaligned();
            if event.u64 & TAG_MASK != TAG {
                events.add(kept).write_unaligned(event);
                kept += 1;
            }
        }
    }
    c_int::try_from(kept).ok().filter(|kept| *kept > 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(
    ep: c_int,
    events: *mut libc::epoll_event,
    n: c_int,
    ms: c_int,
) -> c_int {
    if signals::is_sandboxed()
        // SAFETY: the program's arguments, passed on.
        && let Some(r) = unsafe { wait_by_its_name(ep, events, n, ms) }
    {
        return r;
    }
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
