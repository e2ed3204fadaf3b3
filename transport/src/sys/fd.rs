//! Descriptors of our own: they close themselves, without passing through an interposed `close`, and
//! live above the numbers that the program uses.

use super::{Result, mem};
use crate::syscall;
use std::ffi::CStr;
use std::sync::OnceLock;

/// Told of every descriptor that is hidden (true) or closed (false), so that the library can keep the
/// program's hands off them.
static OBSERVER: OnceLock<fn(i32, bool)> = OnceLock::new();

/// Installs the observer of hidden descriptors. Once, at start.
pub fn observe(observer: fn(i32, bool)) {
    let _ = OBSERVER.set(observer);
}

fn tell(fd: i32, hidden: bool) {
    if let Some(observer) = OBSERVER.get() {
        observer(fd, hidden);
    }
}

/// No hidden descriptor needs a higher number than this, and how many there may be.
const HIGHEST: u64 = 4096;
const ROOM: u64 = 512;

/// An owned descriptor.
#[derive(Debug)]
pub struct Fd(i32);

impl Fd {
    /// Takes ownership of a raw descriptor number.
    #[must_use]
    pub const fn own(raw: i32) -> Self {
        Self(raw)
    }

    /// The number, for a system call.
    #[must_use]
    pub const fn raw(&self) -> i32 {
        self.0
    }

    /// Gives the number up without closing it.
    #[must_use]
    pub fn leak(self) -> i32 {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }

    /// Moves the descriptor out of the range of numbers that the program's own descriptors use, so that
    /// the program neither runs out of numbers sooner nor meets ours: just above the soft limit if the
    /// hard one has room (a descriptor stays open above a limit that is lowered again), else near the
    /// top. Never very high: a process's table grows with its highest number, and fork copies it.
    /// Kept where it is if nothing works.
    #[must_use]
    pub fn hide(self) -> Self {
        let Some((soft, hard)) = mem::rlimit(libc::RLIMIT_NOFILE) else {
            return self;
        };
        // Beyond the hard limit too, where this process may.
        let wide = (soft + ROOM, hard.max(soft + ROOM));
        let raised = soft < HIGHEST + ROOM && mem::set_rlimit(libc::RLIMIT_NOFILE, wide).is_ok();
        let low = if raised { soft } else { within(soft) };
        let hidden = self.duplicate(low);
        if raised {
            let _ = mem::set_rlimit(libc::RLIMIT_NOFILE, (soft, hard));
        }
        tell(hidden.0, true);
        hidden
    }

    /// [`Self::hide`] by a thread of which the program does not know, which must not touch the limits even for a
    /// moment: near the top of the range.
    #[must_use]
    pub fn hide_within(self) -> Self {
        let Some((soft, _)) = mem::rlimit(libc::RLIMIT_NOFILE) else {
            return self;
        };
        let hidden = self.duplicate(within(soft));
        tell(hidden.0, true);
        hidden
    }

    /// The same under another number, no lower than this; itself if that does not work.
    fn duplicate(self, low: u64) -> Self {
        // SAFETY: no pointers.
        let high = unsafe { syscall!(fcntl, self.0, libc::F_DUPFD_CLOEXEC, low) };
        match high {
            Ok(high) => Self(as_fd(high)),
            Err(_) => self,
        }
    }
}

/// For as long as this lives the process may have more descriptors, where the kernel allows that: for what the library makes, and
/// hides at once, while the program has used up all its numbers. Not by a thread of which the program does not know.
#[derive(Debug)]
pub struct Room(Option<(u64, u64)>);

impl Room {
    /// Until it is dropped.
    #[must_use]
    pub fn make() -> Self {
        let limit = mem::rlimit(libc::RLIMIT_NOFILE).filter(|&(soft, _)| soft < HIGHEST + ROOM);
        Self(limit.filter(|&(soft, hard)| {
            let wide = (soft + ROOM, hard.max(soft + ROOM));
            mem::set_rlimit(libc::RLIMIT_NOFILE, wide).is_ok()
        }))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(limit) = self.0 {
            let _ = mem::set_rlimit(libc::RLIMIT_NOFILE, limit);
        }
    }
}

/// Has the process's table made as large as hidden descriptors need it, while there is one thread: with several the kernel waits for
/// all cores before it uses a larger one, 10 ms in the program's first connection. Not where system calls are filtered.
pub fn prepare() {
    // SAFETY: no pointers.
    let filtered = unsafe { syscall!(prctl, libc::PR_GET_SECCOMP, 0, 0, 0, 0) };
    if filtered != Ok(0) {
        return;
    }
    for fd in 0..3 {
        // SAFETY: no pointers.
        if let Ok(copy) = unsafe { syscall!(fcntl, fd, libc::F_DUPFD_CLOEXEC, 0) } {
            drop(Fd(as_fd(copy)).hide());
            return;
        }
    }
}

/// Where hidden descriptors begin where the limit cannot be passed.
fn within(soft: u64) -> u64 {
    if soft >= HIGHEST + ROOM {
        HIGHEST
    } else {
        soft.saturating_sub(soft / 8).max(3)
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        tell(self.0, false);
        close(self.0);
    }
}

/// Closes a descriptor with the bare system call.
pub fn close(fd: i32) {
    // SAFETY: no pointers.
    let _ = unsafe { syscall!(close, fd) };
}

/// A system call's result as a descriptor number.
#[allow(clippy::cast_possible_truncation)]
#[must_use]
pub const fn as_fd(r: usize) -> i32 {
    r as i32
}

/// The inode number of what a descriptor refers to: for a socket, its identity.
///
/// # Errors
/// EBADF and the like.
pub fn inode(fd: i32) -> Result<u64> {
    Ok(stat(fd)?.st_ino)
}

/// Whether a descriptor refers to a regular file.
///
/// # Errors
/// As fstat(2).
pub fn is_regular(fd: i32) -> Result<bool> {
    Ok(stat(fd)?.st_mode & libc::S_IFMT == libc::S_IFREG)
}

/// Opens a file for reading, with these flags besides.
///
/// # Errors
/// As open(2).
pub fn open(path: &CStr, flags: i32) -> Result<Fd> {
    let flags = flags | libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a C string.
    let fd = unsafe { syscall!(openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) }?;
    Ok(Fd::own(as_fd(fd)))
}

/// A hidden descriptor of the same, among the numbers that the library may have where it must not touch the limits: an eighth of
/// the program's. For what there may be very many of, and can be done without.
///
/// # Errors
/// EMFILE: they are all in use.
pub fn in_reserve(fd: i32) -> Result<Fd> {
    let reserved = another(fd)?;
    tell(reserved.0, true);
    Ok(reserved)
}

/// Another descriptor of the same, near the top of the range: it stays what it is, whatever the program does with its own.
///
/// # Errors
/// As fcntl(2).
pub fn another(fd: i32) -> Result<Fd> {
    let low = mem::rlimit(libc::RLIMIT_NOFILE).map_or(3, |(soft, _)| within(soft));
    // SAFETY: no pointers.
    let fd = unsafe { syscall!(fcntl, fd, libc::F_DUPFD_CLOEXEC, low) }?;
    Ok(Fd::own(as_fd(fd)))
}

/// What kind of thing a descriptor refers to (`S_IFREG` and the like); `None` if it is not open.
#[must_use]
pub fn kind(fd: i32) -> Option<u32> {
    stat(fd).ok().map(|st| st.st_mode & libc::S_IFMT)
}

pub(super) fn stat(fd: i32) -> Result<libc::stat> {
    let mut st = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `st` is writable memory of the size that fstat fills.
    unsafe { syscall!(fstat, fd, st.as_mut_ptr()) }?;
    // SAFETY: zeroed, then filled by the kernel; every bit pattern is a valid `stat`.
    Ok(unsafe { st.assume_init() })
}
