//! pidfd_getfd(2): a duplicate of what some process has by a number. Of this process itself, it is one more name for what is known here; so it is
//! if another process, which shares it by fork, has it too.

use super::fds::{arrived, duplicated, made_standard};
use crate::real::{self, set_errno};
use crate::table::{self, Entry};
use crate::{signals, world};
use std::ffi::c_int;
use transport::sys::{net, process};
use transport::syscall;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pidfd_getfd(process: c_int, number: c_int, flags: u32) -> c_int {
    // SAFETY: no pointers.
    let new = real::ret_int(unsafe { syscall!(pidfd_getfd, process, number, flags) });
    if new >= 0 {
        let e = real::errno();
        match known(process, number, new) {
            Some(old) => {
                duplicated(old, new);
                made_standard(new);
            }
            None => arrived(new),
        }
        set_errno(e);
    }
    new
}

/// A number of this process's own that stands for the same as `new`. (A sandbox may kill for the questions.)
fn known(process: c_int, number: c_int, new: c_int) -> Option<c_int> {
    if !world::is_ready() || signals::is_sandboxed() {
        return None;
    }
    if matches!(table::find(number), Entry::Set(_)) && process::is_own(process) {
        return Some(number);
    }
    if net::option(new, libc::SOL_SOCKET, libc::SO_PROTOCOL) != Ok(libc::IPPROTO_TCP) {
        return None;
    }
    let cookie = net::cookie(new).ok()?;
    let is_it = |fd: c_int| fd != new && net::cookie(fd) == Ok(cookie);
    if table::socket(number).is_some() && is_it(number) {
        return Some(number);
    }
    let mut found = None;
    table::each(0, u32::MAX, |fd, entry| {
        if found.is_none() && matches!(entry, Entry::Socket(_)) && is_it(fd) {
            found = Some(fd);
        }
    });
    found
}
