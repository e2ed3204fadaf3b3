//! What most calls of `recv`, `read`, `send` and `write` are: bytes that are there, and room that is. Such a call is
//! served here, in one piece; whatever needs a second look goes the general way (`io`), as if nothing had been tried.
//!
//! Nothing here waits, allocates, asks the kernel (but for a bell), or has an error to tell.

use super::{MOST, threads};
use crate::probe::{Access, is_known};
use crate::sockets::{Socket, parked, quick};
use std::ffi::{c_int, c_void};

/// Whether calls may be quick now: nobody cancels threads, nothing is parked, held in place, or asked for.
#[inline(always)]
fn is_quiet() -> bool {
    !threads::cancels() && parked::is_idle()
}

/// Receives into a buffer what the ring holds. `None`, and nothing done, if there is more to it.
///
/// # Safety
/// The program's buffer, or what it takes for one.
#[inline(always)]
pub(super) unsafe fn take(
    s: &'static Socket,
    fd: c_int,
    buf: *mut c_void,
    n: usize,
    flags: c_int,
) -> Option<isize> {
    if n > MOST || !is_known(buf.cast(), n, Access::Write) || !is_quiet() {
        return None;
    }
    // SAFETY: probed.
    unsafe { quick::take(s, fd, buf.cast(), n, flags) }.map(usize::cast_signed)
}

/// Sends all of a small buffer. `None`, and nothing done, if there is more to it.
///
/// # Safety
/// As above.
#[inline(always)]
pub(super) unsafe fn give(
    s: &'static Socket,
    fd: c_int,
    buf: *const c_void,
    n: usize,
    flags: c_int,
) -> Option<isize> {
    if !is_known(buf.cast(), n, Access::Read) || !is_quiet() {
        return None;
    }
    // SAFETY: probed.
    unsafe { quick::give(s, fd, buf.cast(), n, flags) }.then_some(n.cast_signed())
}
