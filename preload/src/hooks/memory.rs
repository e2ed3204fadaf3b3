//! Memory that goes away: what `probe` remembers as good is forgotten, so that a send from it says EFAULT, as
//! by the kernel, and does not crash in here. Called by the program; each call goes straight to the kernel, past
//! the guard's trap, so what is held there (`guard`) is lifted here.
//!
//! The allocator's own calls do not come here, and need not: no program may use what it has freed.

use crate::real::{ret_int, set_errno};
use crate::{guard, probe};
use std::ffi::{c_int, c_void};
use std::ptr;
use transport::sys::Result;
use transport::syscall;

/// Nothing of these pages is held any more.
fn lift(at: *mut c_void, len: usize) {
    guard::before_write(at.cast(), len);
}

fn told(r: Result<usize>) -> c_int {
    probe::forget();
    ret_int(r)
}

fn address(r: Result<usize>) -> *mut c_void {
    match r {
        Ok(at) => ptr::with_exposed_provenance_mut(at),
        Err(e) => {
            set_errno(e.0);
            libc::MAP_FAILED
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
    lift(at, len);
    // SAFETY: the program's arguments, passed on.
    told(unsafe { syscall!(munmap, at, len) })
}

/// What is mapped anew may lie where the allocator has given memory back, and pages of it that no program can touch, or that lie
/// behind the end of a file, are told from those that were good there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    off: i64,
) -> *mut c_void {
    if flags & libc::MAP_FIXED != 0 {
        lift(at, len);
    }
    // SAFETY: the program's arguments, passed on.
    let r = unsafe { syscall!(mmap, at, len, prot, flags, fd, off) };
    let plain = libc::PROT_READ | libc::PROT_WRITE;
    if prot & plain != plain || flags & libc::MAP_ANONYMOUS == 0 {
        probe::forget();
    }
    address(r)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    at: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    off: i64,
) -> *mut c_void {
    // SAFETY: an alias.
    unsafe { mmap(at, len, prot, flags, fd, off) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(at: *mut c_void, len: usize, prot: c_int) -> c_int {
    lift(at, len);
    // SAFETY: the program's arguments, passed on.
    told(unsafe { syscall!(mprotect, at, len, prot) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate(fd: c_int, len: i64) -> c_int {
    // SAFETY: no pointers.
    told(unsafe { syscall!(ftruncate, fd, len) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate64(fd: c_int, len: i64) -> c_int {
    // SAFETY: an alias.
    unsafe { ftruncate(fd, len) }
}

/// (Variadic in C: the new address comes as any fifth argument does.)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    at: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    lift(at, old);
    if flags & libc::MREMAP_FIXED != 0 {
        lift(to, new);
    }
    // SAFETY: the program's arguments, passed on.
    let r = unsafe { syscall!(mremap, at, old, new, flags, to) };
    probe::forget();
    address(r)
}
