//! Limits of address space. The library reserves much more of it than it uses, which a program that limits itself (vsftpd does,
//! to 200 MB) does not know of: what is mapped here comes on top of the limit that it sets, and it is told what it has set.
//!
//! Rule: nothing is allowed that the kernel does not allow this process: where its hard limit leaves no room, what room there is
//! is used.

use crate::poll;
use crate::probe::{Access, is_good};
use crate::real::{self, ret_int, set_errno};
use crate::world;
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU64, Ordering};
use transport::sys::mem::{limit_space, mapped, rlimit, set_rlimit};
use transport::sys::{Errno, Result};

const NONE: u64 = libc::RLIM_INFINITY;

/// By how much the kernel's limits, the soft and the hard one, are above what the program has set.
struct Above([AtomicU64; 2]);

static SPACE: Above = Above([AtomicU64::new(0), AtomicU64::new(0)]);
static DATA: Above = Above([AtomicU64::new(0), AtomicU64::new(0)]);

/// The limits that count what is mapped here, and how much that is.
fn counted(what: c_int) -> Option<(&'static Above, u64)> {
    let (space, data) = mapped();
    match what.cast_unsigned() {
        libc::RLIMIT_AS => Some((&SPACE, space)),
        libc::RLIMIT_DATA => Some((&DATA, data)),
        _ => None,
    }
}

/// A limit that much higher; one that is none stays so.
const fn raised(limit: u64, by: u64) -> u64 {
    match limit {
        NONE => NONE,
        limit => {
            let sum = limit.saturating_add(by);
            if sum == NONE { NONE - 1 } else { sum }
        }
    }
}

/// What the program has set, by what the kernel has.
fn told(above: &Above, (soft, hard): (u64, u64)) -> libc::rlimit {
    let [s, h] = above.0.each_ref().map(|a| a.load(Ordering::Relaxed));
    let less = |limit: u64, by: u64| match limit {
        NONE => NONE,
        // (one that somebody else has set is told as it is)
        limit => limit.checked_sub(by).filter(|&l| l > 0).unwrap_or(limit),
    };
    libc::rlimit {
        rlim_cur: less(soft, s),
        rlim_max: less(hard, h),
    }
}

/// Sets what the kernel has, by what the program sets.
fn set(what: c_int, above: &Above, by: u64, new: libc::rlimit) -> Result<()> {
    let what = what.cast_unsigned();
    if new.rlim_cur > new.rlim_max {
        return Err(Errno::INVAL);
    }
    let mut want = (raised(new.rlim_cur, by), raised(new.rlim_max, by));
    let mut done = set_rlimit(what, want);
    if done == Err(Errno(libc::EPERM))
        && let Some((_, hard)) = rlimit(what)
        && new.rlim_max <= told(above, (0, hard)).rlim_max
    {
        want = (want.0.min(hard), hard);
        done = set_rlimit(what, want);
    }
    done?;
    for (above, (kernel, own)) in above
        .0
        .iter()
        .zip([(want.0, new.rlim_cur), (want.1, new.rlim_max)])
    {
        above.store(kernel.saturating_sub(own), Ordering::Relaxed);
    }
    if what == libc::RLIMIT_AS {
        limit_space(new.rlim_cur);
    }
    Ok(())
}

/// `new` and `old` as in prlimit(2), of this process.
///
/// # Safety
/// Each is null or the program's, of which nothing is known.
unsafe fn change(what: c_int, new: *const libc::rlimit, old: *mut libc::rlimit) -> Option<c_int> {
    let (above, by) = counted(what)?;
    if world::is_foreign() {
        return None; // the limits of a child that borrows this memory, and becomes another program
    }
    let size = size_of::<libc::rlimit>();
    let readable = new.is_null() || is_good(new.cast(), size, Access::Read);
    let writable = old.is_null() || is_good(old.cast(), size, Access::Write);
    if !readable || !writable {
        set_errno(libc::EFAULT);
        return Some(-1);
    }
    let was = told(above, rlimit(what.cast_unsigned())?);
    if !new.is_null() {
        // SAFETY: probed.
        let new = unsafe { new.read() };
        if let Err(e) = set(what, above, by, new) {
            return Some(ret_int(Err(e)));
        }
    }
    if !old.is_null() {
        // SAFETY: probed.
        unsafe { old.write(was) };
    }
    Some(0)
}

/// The soft limits as the program has set them, for as long as this lives: what it becomes maps what it maps itself. (The hard
/// ones could not be raised again if it becomes nothing.)
pub(super) struct AsSet([Option<(c_int, u64, u64)>; 2]);

impl AsSet {
    pub(super) fn now() -> Self {
        let kinds = [libc::RLIMIT_AS, libc::RLIMIT_DATA].map(c_uint::cast_signed);
        Self(kinds.map(|what| {
            let (above, _) = counted(what).filter(|_| !world::is_foreign())?;
            let kernel = rlimit(what.cast_unsigned())?;
            let own = told(above, kernel).rlim_cur;
            (own < kernel.0).then(|| {
                let _ = set_rlimit(what.cast_unsigned(), (own, kernel.1));
                (what, kernel.0, kernel.1)
            })
        }))
    }
}

impl Drop for AsSet {
    fn drop(&mut self) {
        for (what, soft, hard) in self.0.iter().flatten() {
            let _ = set_rlimit(what.cast_unsigned(), (*soft, *hard));
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(
    process: libc::pid_t,
    what: c_int,
    new: *const libc::rlimit,
    old: *mut libc::rlimit,
) -> c_int {
    let own = process == 0 || process == transport::sys::pid();
    // SAFETY: the program's arguments.
    if own && let Some(r) = unsafe { change(what, new, old) } {
        return r;
    }
    // SAFETY: the program's arguments, passed on.
    let r = unsafe { real::prlimit64(process, what, new, old) };
    if own && what.cast_unsigned() == libc::RLIMIT_NOFILE && !new.is_null() {
        poll::limited();
    }
    r
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit64(
    process: libc::pid_t,
    what: c_int,
    new: *const libc::rlimit,
    old: *mut libc::rlimit,
) -> c_int {
    // SAFETY: an alias.
    unsafe { prlimit(process, what, new, old) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(what: c_int, new: *const libc::rlimit) -> c_int {
    if new.is_null() {
        set_errno(libc::EFAULT);
        return -1;
    }
    // SAFETY: the program's arguments.
    unsafe { prlimit(0, what, new, std::ptr::null_mut()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit64(what: c_int, new: *const libc::rlimit) -> c_int {
    // SAFETY: an alias.
    unsafe { setrlimit(what, new) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrlimit(what: c_int, old: *mut libc::rlimit) -> c_int {
    // SAFETY: the program's arguments.
    unsafe { prlimit(0, what, std::ptr::null(), old) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrlimit64(what: c_int, old: *mut libc::rlimit) -> c_int {
    // SAFETY: an alias.
    unsafe { getrlimit(what, old) }
}
