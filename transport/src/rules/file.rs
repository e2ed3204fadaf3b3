//! Reading the file. Only a regular one of sensible size: a program must not wait at a pipe, nor fill its
//! memory, because of a setting.

use crate::sys::fd::{self, Fd};
use crate::sys::{Errno, Result};
use crate::syscall;
use std::ffi::CString;
use std::fmt;

/// Bytes that a file may have.
const MOST: usize = 1 << 20;

/// Why there are no rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// What the kernel says.
    Failed(Errno),
    NotAFile,
    TooLarge,
}

impl From<Errno> for Unreadable {
    fn from(e: Errno) -> Self {
        Self::Failed(e)
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(e) => {
                let text = std::io::Error::from_raw_os_error(e.0).to_string();
                let words = text.split(" (os error").next().unwrap_or_default();
                write!(f, "{words}")
            }
            Self::NotAFile => write!(f, "not a regular file"),
            Self::TooLarge => write!(f, "larger than {MOST} bytes"),
        }
    }
}

/// The content of a file of rules.
///
/// # Errors
/// It cannot be read, or is none.
pub fn read(name: &[u8]) -> Result<Vec<u8>, Unreadable> {
    let name = CString::new(name).map_err(|_| Errno(libc::ENOENT))?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: a C string.
    let fd = unsafe { syscall!(openat, libc::AT_FDCWD, name.as_ptr(), flags) }?;
    let fd = Fd::own(fd::as_fd(fd));
    if !fd::is_regular(fd.raw())? {
        return Err(Unreadable::NotAFile);
    }
    let mut content = Vec::new();
    let mut piece = [0u8; 4096];
    loop {
        // SAFETY: writable for its length.
        let n = unsafe { syscall!(read, fd.raw(), piece.as_mut_ptr(), piece.len()) };
        match n {
            Ok(0) => return Ok(content),
            Ok(n) => content.extend_from_slice(piece.get(..n).unwrap_or_default()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        if content.len() > MOST {
            return Err(Unreadable::TooLarge);
        }
    }
}
