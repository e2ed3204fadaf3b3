//! Calls by which a program becomes another user. A listener is its maker's: whoever is asked to believe its board (`rendezvous`)
//! looks whether that is the same user's. So what is to have one gets it before the program is somebody else.

use crate::real::{Next, other, set_errno};
use crate::sockets::listener;
use libc::uid_t;
use std::ffi::{c_int, c_void};

/// libc's function.
fn next(of: &Next) -> Option<*mut c_void> {
    listener::before_other_user();
    let next = of.get();
    if next.is_null() {
        set_errno(libc::ENOSYS);
        return None;
    }
    Some(next)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setuid(user: uid_t) -> c_int {
    // SAFETY: libc has it, with this signature.
    next(&other::setuid).map_or(-1, |f| unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(uid_t) -> c_int>(f)(user)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn seteuid(user: uid_t) -> c_int {
    // SAFETY: libc has it, with this signature.
    next(&other::seteuid).map_or(-1, |f| unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(uid_t) -> c_int>(f)(user)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setreuid(real: uid_t, effective: uid_t) -> c_int {
    // SAFETY: libc has it, with this signature.
    next(&other::setreuid).map_or(-1, |f| unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(uid_t, uid_t) -> c_int>(f)(
            real, effective,
        )
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int {
    // SAFETY: libc has it, with this signature.
    next(&other::setresuid).map_or(-1, |f| unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(uid_t, uid_t, uid_t) -> c_int>(f)(
            real, effective, saved,
        )
    })
}
