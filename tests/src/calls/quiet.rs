//! Waits until the kernel has delivered what was sent, by bare system calls: the library sees nothing of it, but for the first bytes of a
//! connection between hosts.

use crate::sys::Fd;
use std::arch::asm;
use std::time::{Duration, Instant};

/// A system call that no hook sees.
pub(crate) fn bare(nr: i64, a: usize, b: usize, c: usize) -> i64 {
    let r: i64;
    // SAFETY: the calls below write to the locals that they are given and nowhere else.
    unsafe {
        asm!("syscall", inlateout("rax") nr => r, in("rdi") a, in("rsi") b, in("rdx") c,
            lateout("rcx") _, lateout("r11") _);
    }
    r
}

fn until(limit: u64, mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_millis(limit);
    while !done() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_micros(30));
    }
    true
}

/// What this end has sent by the kernel has been acknowledged.
pub fn sent(fd: Fd, limit: u64) {
    until(limit, || {
        let mut left = 0i32;
        let r = bare(
            libc::SYS_ioctl,
            fd as usize,
            libc::TIOCOUTQ as usize,
            (&raw mut left).addr(),
        );
        r < 0 || left == 0
    });
}

/// The kernel connection shows the peer's end.
pub fn ended(fd: Fd, limit: u64) {
    until(limit, || {
        let mut p = libc::pollfd {
            fd,
            events: libc::POLLRDHUP,
            revents: 0,
        };
        bare(libc::SYS_poll, (&raw mut p).addr(), 1, 0) != 0
    });
}

/// So many bytes can be read, as the library says: a look that it sees. Between hosts that is how the first bytes of a connection come, also
/// for a program that has heard by other ways that they were sent. (A client asks first, and its server answers at a call of its
/// program's.)
pub fn come(fd: Fd, bytes: usize, limit: u64) -> bool {
    until(limit, || {
        let mut here = 0i32;
        // SAFETY: the number is writable.
        let r = unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut here) };
        r < 0 || here as usize >= bytes
    })
}
