//! How many threads want to run on this machine, by the kernel's count, and on how many cores.
//!
//! Called by `preload::sockets::spin`, now and then. No memory is taken.

use super::fd;
use crate::syscall;
use std::sync::atomic::{AtomicI32, Ordering};

/// Threads that run or could, of all processes. `None` where /proc does not tell.
#[must_use]
pub fn runnable() -> Option<u32> {
    let mut text = [0u8; 64];
    let (at, room) = (text.as_mut_ptr(), text.len());
    // SAFETY: room for as many bytes.
    let n = unsafe { syscall!(pread64, file()?, at, room, 0) }.ok()?;
    of_line(text.get(..n)?)
}

/// /proc/loadavg, opened once: another thread must not meet a number of ours at any moment.
fn file() -> Option<i32> {
    static FILE: AtomicI32 = AtomicI32::new(-1);
    let known = FILE.load(Ordering::Acquire);
    if known >= 0 {
        return Some(known);
    }
    // (not by the last number that the program has left)
    let file = fd::in_reserve(fd::open(c"/proc/loadavg", 0).ok()?.raw()).ok()?;
    let (done, lost) = (Ordering::AcqRel, Ordering::Acquire);
    match FILE.compare_exchange(-1, file.raw(), done, lost) {
        Ok(_) => Some(file.leak()),
        Err(faster) => Some(faster),
    }
}

/// Cores that are there for them.
#[must_use]
pub fn cores() -> u32 {
    // SAFETY: asks for a number.
    let n = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(n).unwrap_or(1).max(1)
}

/// The first number of the fourth word (`running/all`).
fn of_line(line: &[u8]) -> Option<u32> {
    let word = line.split(|&b| b == b' ').nth(3)?;
    let number = word.split(|&b| b == b'/').next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{of_line, runnable};

    #[test]
    fn the_line_is_read() {
        assert_eq!(of_line(b"0.69 1.51 1.76 33/412 10422\n"), Some(33));
        assert_eq!(of_line(b"0.69 1.51 1.76 x/412 10422\n"), None);
        assert_eq!(of_line(b"0.69 1.51"), None);
        assert_eq!(of_line(b""), None);
    }

    #[test]
    fn at_least_this_thread_runs() {
        assert!(runnable().is_some_and(|n| n >= 1));
    }
}
