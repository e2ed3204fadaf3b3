//! io_uring. What a program reads and writes by such a ring goes round the library, so the streams of a process that may use
//! one for its sockets are the kernel's (reason `async_io`). One that is used for files (databases do that) changes nothing:
//! what a ring was used for stands in its queue (`transport::sys::rings`).
//!
//! A ring that is set up by syscall(2) is seen at once (`hooks::process`). liburing makes its system calls itself; what it
//! leaves is a descriptor, which is looked for where connections begin: at each in a program that is linked with liburing, as
//! long as there is none, and at the 1st, 2nd, 4th and so on and every 64th in all, where one may have changed its use (fewer,
//! where connections come so fast that looking would take more than one part in 250 of the time). One that is set up, or turned
//! to sockets, after that is not seen.

use crate::world;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use transport::clock;
use transport::sys;
use transport::sys::rings::{self, Use};

/// What this process has is not for files only, or not yet known to be.
static USED: AtomicBool = AtomicBool::new(false);
/// There are some, all of them for files.
static FOR_FILES: AtomicBool = AtomicBool::new(false);
/// One is for sockets: nothing changes that.
static FOR_SOCKETS: AtomicBool = AtomicBool::new(false);
/// liburing is there.
static LINKED: AtomicBool = AtomicBool::new(false);
/// Connections that have begun.
static BEGUN: AtomicU32 = AtomicU32::new(0);
/// Until then (ticks) the last look is enough for one that is only a matter of counting.
static RESTS_UNTIL: AtomicU64 = AtomicU64::new(0);

/// Rings are made early: so many of the lowest descriptors are looked at.
const LOWEST: usize = 256;
/// One in so many connections looks whether they are for files still.
const AGAIN: u32 = 64;
/// Looking takes at most one part in so many of the time.
const SHARE: u64 = 250;

/// Once, by the constructor.
pub(crate) fn init() {
    unsafe extern "C" fn is_it(
        info: *mut libc::dl_phdr_info,
        _: usize,
        found: *mut libc::c_void,
    ) -> i32 {
        // SAFETY: the loader's, with a name that is null or a C string; `found` is ours.
        unsafe {
            let name = (*info).dlpi_name;
            let name = (!name.is_null()).then(|| std::ffi::CStr::from_ptr(name).to_bytes());
            let it = name.is_some_and(|n| n.windows(11).any(|part| part == b"/liburing.s"));
            *found.cast::<bool>() |= it;
        }
        0
    }
    type Each = unsafe extern "C" fn(
        unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut libc::c_void) -> i32,
        *mut libc::c_void,
    ) -> i32;
    let each = sys::libcs(c"dl_iterate_phdr");
    if each.is_null() {
        return;
    }
    let mut found = false;
    // SAFETY: libc's function has this type; it calls the one above for each object, with a pointer that is good meanwhile.
    unsafe { std::mem::transmute::<*mut libc::c_void, Each>(each)(is_it, (&raw mut found).cast()) };
    LINKED.store(found, Ordering::Relaxed);
}

/// The process has set one up.
pub(crate) fn note() {
    USED.store(true, Ordering::Relaxed);
}

/// Whether it may have one for its sockets.
pub(crate) fn is_used() -> bool {
    USED.load(Ordering::Relaxed)
}

/// A connection begins: looks what rings there are and what they are for, if it is time to. Whether streams that are off the
/// kernel have to go back there now.
pub(crate) fn is_found() -> bool {
    if FOR_SOCKETS.load(Ordering::Relaxed) {
        return false;
    }
    let nth = BEGUN.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    let new = LINKED.load(Ordering::Relaxed) && !FOR_FILES.load(Ordering::Relaxed);
    let begins = clock::ticks();
    let again = || nth.is_multiple_of(AGAIN) && begins >= RESTS_UNTIL.load(Ordering::Relaxed);
    if !(new || nth.is_power_of_two() || again()) || world::is_foreign() {
        return false;
    }
    let used_for = rings::used_for(LOWEST);
    let took = clock::ticks().saturating_sub(begins);
    RESTS_UNTIL.store(begins + SHARE * took, Ordering::Relaxed);
    FOR_FILES.store(used_for == Use::Files, Ordering::Relaxed);
    match used_for {
        Use::None => false, // (of one that was set up by syscall(2) no more is known)
        Use::Files => {
            USED.store(false, Ordering::Relaxed);
            false
        }
        Use::Nothing => !USED.swap(true, Ordering::Relaxed),
        Use::Sockets => {
            FOR_SOCKETS.store(true, Ordering::Relaxed);
            !USED.swap(true, Ordering::Relaxed)
        }
    }
}
