//! How many system calls this process makes, counted by the kernel: all threads, those that the library starts too. Called by
//! `wire` and the plain programs. Where the kernel does not let us count there is no number, never a guess.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Where the kernel says by which number it counts what.
const PLACE: &str = "/sys/kernel/tracing";

/// PERF_TYPE_TRACEPOINT, the first published size of perf_event_attr(2), and its bit for threads to come.
const TRACEPOINT: u64 = 2;
const SIZE: u64 = 64;
const INHERIT: u64 = 1 << 1;
/// PERF_FLAG_FD_CLOEXEC.
const CLOEXEC: libc::c_ulong = 1 << 3;

/// A count that has begun.
pub(crate) struct Calls(Option<OwnedFd>);

impl Calls {
    /// Counts the kernel's events of this number, which [`event`] has found; nothing without.
    pub(crate) fn begin(event: Option<u64>) -> Self {
        Self(event.and_then(open))
    }

    /// Since it began.
    pub(crate) fn so_far(&self) -> Option<u64> {
        let mut count = 0_u64;
        let length = size_of_val(&count);
        let fd = self.0.as_ref()?.as_raw_fd();
        // SAFETY: so many bytes are writable there.
        let read = unsafe { libc::read(fd, (&raw mut count).cast(), length) };
        (read == length as isize).then_some(count)
    }
}

/// By which number the kernel counts the beginnings of system calls.
///
/// # Errors
/// The folder that says so is not there, and may not be mounted.
pub(crate) fn event() -> io::Result<u64> {
    // (where it is not mounted, a thread mounts it for itself alone)
    let mounted = || std::thread::spawn(|| mount().and_then(|()| said())).join();
    said().or_else(|_| mounted().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())))
}

fn said() -> io::Result<u64> {
    let said = fs::read_to_string(format!("{PLACE}/events/raw_syscalls/sys_enter/id"))?;
    said.trim().parse().map_err(io::Error::other)
}

fn mount() -> io::Result<()> {
    let done = |result: i32| match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    let at = CString::new(PLACE)?;
    // SAFETY: strings that end and outlive the calls; it concerns this thread alone, which shares its mounts with nobody
    // from the first call on.
    unsafe {
        done(libc::unshare(libc::CLONE_NEWNS | libc::CLONE_FS))?;
        let (none, private) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
        done(libc::mount(none, c"/".as_ptr(), none, private, none.cast()))?;
        let kind = c"tracefs".as_ptr();
        done(libc::mount(kind, at.as_ptr(), kind, 0, none.cast()))
    }
}

/// Opens the count of events of this number for this process.
fn open(number: u64) -> Option<OwnedFd> {
    // type and size; which; then period, what to sample, how to read: nothing of that; flags.
    let attributes: [u64; SIZE as usize / 8] =
        [TRACEPOINT | SIZE << 32, number, 0, 0, 0, INHERIT, 0, 0];
    // SAFETY: the attributes are as long as they say, and outlive the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            0,
            -1,
            -1,
            CLOEXEC,
        )
    };
    let fd = i32::try_from(fd).ok().filter(|&fd| fd >= 0)?;
    // SAFETY: new, and owned by nobody else.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_all_threads_count() {
        let calls = Calls::begin(event().ok());
        let Some(before) = calls.so_far() else {
            println!("SKIPPED: the kernel does not let us count here");
            return;
        };
        let many = || (0..1000).for_each(|_| std::thread::yield_now());
        many();
        std::thread::spawn(many).join().unwrap();
        let made = calls.so_far().unwrap() - before;
        assert!((2000..3000).contains(&made), "{made}");
    }
}
