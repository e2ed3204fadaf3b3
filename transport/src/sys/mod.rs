//! System calls, issued directly. Owns every `syscall` instruction of the project.
//!
//! libc's wrappers are what `preload` interposes; calling them from inside would come back in through
//! our own hooks (and `nix` calls them, which is why it is not used here). Results are `Result<usize,
//! Errno>`; the thread's `errno` is never touched.

pub mod barrier;
pub mod copy;
pub mod diag;
pub mod fd;
pub mod kept;
pub mod listing;
pub mod load;
pub mod mem;
pub mod net;
pub mod noted;
pub mod process;
pub mod retired;
pub mod rings;
pub mod rtnetlink;
pub mod runs;
pub mod section;
pub mod time;
pub mod udp;
pub mod unix;
pub mod vm;

use std::fmt;

pub use syscalls::Sysno;

/// A kernel error number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    pub const AGAIN: Self = Self(libc::EAGAIN);
    pub const INTR: Self = Self(libc::EINTR);
    pub const PIPE: Self = Self(libc::EPIPE);
    pub const CONNRESET: Self = Self(libc::ECONNRESET);
    pub const BADF: Self = Self(libc::EBADF);
    pub const INVAL: Self = Self(libc::EINVAL);
    pub const FAULT: Self = Self(libc::EFAULT);
    pub const NOMEM: Self = Self(libc::ENOMEM);

    /// In one byte, as every connection keeps some: all of Linux's numbers for sockets fit; 0 is none.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)]
    pub const fn in_byte(self) -> u8 {
        if self.0 > 0 && self.0 < u8::MAX as i32 {
            self.0 as u8
        } else {
            libc::EIO as u8
        }
    }

    /// From [`Self::in_byte`], or 0.
    #[must_use]
    pub const fn of_byte(byte: u8) -> Option<Self> {
        if byte == 0 {
            None
        } else {
            Some(Self(byte as i32))
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "errno {}", self.0)
    }
}

/// What a system call gave.
pub type Result<T, E = Errno> = std::result::Result<T, E>;

/// Issues a system call with the arguments as given.
///
/// # Safety
/// As for the system call itself: pointers among the arguments must be valid for what it does, or be
/// pointers of the program that the kernel checks (it answers EFAULT).
#[inline]
pub unsafe fn call(nr: Sysno, args: [usize; 6]) -> Result<usize> {
    let [a, b, c, d, e, f] = args;
    // SAFETY: passed on to the caller of this function.
    let r = unsafe { syscalls::raw_syscall!(nr, a, b, c, d, e, f) };
    check(r)
}

/// Splits a raw kernel result.
#[inline]
pub fn check(r: usize) -> Result<usize> {
    let signed = r.cast_signed();
    if (-4095..0).contains(&signed) {
        #[allow(clippy::cast_possible_truncation)]
        Err(Errno(-signed as i32))
    } else {
        Ok(r)
    }
}

/// `syscall!(nr, args…)`: [`call`] with fewer than six arguments, each as a word.
#[macro_export]
macro_rules! syscall {
    ($nr:ident $(, $arg:expr)* $(,)?) => {
        $crate::sys::call($crate::sys::Sysno::$nr, $crate::words!($($arg),*))
    };
}

/// Pads up to six arguments with zeros.
#[doc(hidden)]
#[macro_export]
macro_rules! words {
    () => { [0, 0, 0, 0, 0, 0] };
    ($a:expr) => { [$a as usize, 0, 0, 0, 0, 0] };
    ($a:expr, $b:expr) => { [$a as usize, $b as usize, 0, 0, 0, 0] };
    ($a:expr, $b:expr, $c:expr) => { [$a as usize, $b as usize, $c as usize, 0, 0, 0] };
    ($a:expr, $b:expr, $c:expr, $d:expr) => {
        [$a as usize, $b as usize, $c as usize, $d as usize, 0, 0]
    };
    ($a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => {
        [$a as usize, $b as usize, $c as usize, $d as usize, $e as usize, 0]
    };
    ($a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => {
        [$a as usize, $b as usize, $c as usize, $d as usize, $e as usize, $f as usize]
    };
}

/// libc's function of this name, past a program that has its own of it: that may not have begun yet (a sanitizer's). Null if there is
/// none.
#[must_use]
pub fn libcs(name: &std::ffi::CStr) -> *mut std::ffi::c_void {
    // SAFETY: a lookup by C string.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// The effective user id of this process.
pub fn euid() -> u32 {
    // SAFETY: takes no pointer.
    let r = unsafe { syscall!(geteuid) };
    #[allow(clippy::cast_possible_truncation)]
    r.map_or(u32::MAX, |v| v as u32)
}

/// The id of this process, asked of the kernel each time.
pub fn pid() -> i32 {
    // SAFETY: takes no pointer.
    let r = unsafe { syscall!(getpid) };
    #[allow(clippy::cast_possible_truncation)]
    r.map_or(0, |v| v as i32)
}

/// The path of the file that this process executes; nothing where /proc does not tell.
#[must_use]
pub fn executable() -> Option<Vec<u8>> {
    let mut path = vec![0u8; 4096];
    let link = c"/proc/self/exe".as_ptr();
    // SAFETY: a C string, and room for its length.
    let n = unsafe {
        syscall!(
            readlinkat,
            libc::AT_FDCWD,
            link,
            path.as_mut_ptr(),
            path.len()
        )
    };
    path.truncate(n.ok()?);
    Some(path)
}

/// The core that the calling thread is on, just now. A number of no meaning where nobody says.
#[inline]
#[must_use]
pub fn core() -> usize {
    // SAFETY: takes no argument. (Of libc's functions none is asked more often, and none interposed.)
    let core = unsafe { libc::sched_getcpu() };
    core.cast_unsigned() as usize
}

/// Lets another runnable thread have this core.
#[inline]
pub fn yield_core() {
    // SAFETY: takes no pointer.
    let _ = unsafe { syscall!(sched_yield) };
}
