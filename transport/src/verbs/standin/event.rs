//! The peer's event: an eventfd of another process, as a descriptor of this one.

use crate::sys::fd::{self, Fd, as_fd};
use crate::syscall;

/// Another process's event, as a descriptor of this one.
pub(super) fn event_of(pid: u32, event: u64) -> Option<Fd> {
    // SAFETY: no pointers.
    unsafe {
        let process = Fd::own(as_fd(syscall!(pidfd_open, pid, 0).ok()?));
        let far = syscall!(pidfd_getfd, process.raw(), event, 0).ok()?;
        fd::in_reserve(Fd::own(as_fd(far)).raw()).ok()
    }
}

/// Wakes whoever sleeps on it. Whether this process has the descriptor.
pub(super) fn signal(event: &Fd) -> bool {
    let one = 1u64;
    // SAFETY: eight readable octets.
    unsafe { syscall!(write, event.raw(), &raw const one, 8) }.is_ok()
}
