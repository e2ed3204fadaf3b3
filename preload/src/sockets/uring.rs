//! io_uring. What a program reads and writes by such a ring goes round the library, so the streams of a process that has one
//! are the kernel's (reason `async_io`).
//!
//! A ring that is set up by syscall(2) is seen at once (`hooks::process`). liburing makes its system calls itself; what it
//! leaves is a descriptor, which is looked for where connections begin: at each in a program that is linked with liburing,
//! at the 1st, 2nd, 4th and so on in others, which may contain a copy. One that is set up after that is not seen.

use crate::world;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use transport::sys::listing;

/// This process has one, or had.
static USED: AtomicBool = AtomicBool::new(false);
/// liburing is there.
static LINKED: AtomicBool = AtomicBool::new(false);
/// Connections that have begun.
static BEGUN: AtomicU32 = AtomicU32::new(0);

/// Rings are made early: so many of the lowest descriptors are looked at.
const LOWEST: usize = 256;

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
    let mut found = false;
    // SAFETY: calls the function above for each object, with a pointer that is good meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(is_it), (&raw mut found).cast()) };
    LINKED.store(found, Ordering::Relaxed);
}

/// The process has set one up.
pub(crate) fn note() {
    USED.store(true, Ordering::Relaxed);
}

/// Whether it is known to have one.
pub(crate) fn is_used() -> bool {
    USED.load(Ordering::Relaxed)
}

/// A connection begins: looks for one, if it is time to. Whether that has just been found.
pub(crate) fn is_found() -> bool {
    if is_used() {
        return false;
    }
    let nth = BEGUN.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    let due = LINKED.load(Ordering::Relaxed) || nth.is_power_of_two();
    let found = due && !world::is_foreign() && listing::any(b"anon_inode:[io_uring]", LOWEST);
    if found {
        note();
    }
    found
}
