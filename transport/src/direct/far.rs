//! The reading end of a *lane*: a pipe that holds a sender's messages by reference to its pages, in the hands of
//! the process that reads them. Owned by the receiving socket, one for each process that holds it; used
//! under the receiving lock.
//!
//! What comes out of it is the peer's bytes, whatever the peer does to the pipe; and nothing here waits,
//! whatever it has set. The bytes live as long as the pipe: the sender's death takes nothing away.

use crate::sys::fd::{Fd, as_fd, inode};
use crate::sys::{Errno, Result};
use crate::syscall;
use std::sync::atomic::{AtomicI32, Ordering};

/// Bytes that are thrown away at once.
const DISCARD: usize = 16 * 1024;
const PAGE: usize = 4096;

/// A reading end.
#[derive(Debug)]
pub struct FarEnd(Fd);

impl FarEnd {
    /// Takes the reading end `fd` of the process `pid`, if that is one. `is_peer` is asked while the number of
    /// the process cannot become another's unnoticed.
    ///
    /// # Errors
    /// ESRCH, EPERM as for ptrace(2), EBADF; EINVAL if it is not a pipe to be read from.
    pub fn fetch(pid: u32, fd: i32, is_peer: impl FnOnce() -> bool) -> Result<Self> {
        // SAFETY: no pointers.
        let far = unsafe {
            let process = Fd::own(as_fd(syscall!(pidfd_open, pid, 0)?));
            if !is_peer() {
                return Err(Errno(libc::ESRCH));
            }
            Fd::own(as_fd(syscall!(pidfd_getfd, process.raw(), fd, 0)?)).hide()
        };
        // SAFETY: all-zero is a valid stat, and the kernel fills it in.
        let mode = unsafe {
            let mut st: libc::stat = std::mem::zeroed();
            syscall!(fstat, far.raw(), &raw mut st)?;
            st.st_mode
        };
        // SAFETY: no pointers.
        let flags = unsafe { syscall!(fcntl, far.raw(), libc::F_GETFL) }?;
        #[allow(clippy::cast_sign_loss)]
        let reads = flags & libc::O_ACCMODE as usize == libc::O_RDONLY as usize;
        if mode & libc::S_IFMT != libc::S_IFIFO || !reads {
            return Err(Errno::INVAL);
        }
        Ok(Self(far))
    }

    /// Reads what is there, without waiting whatever the peer has set.
    ///
    /// # Errors
    /// EAGAIN if nothing is there, though the peer says so.
    ///
    /// # Safety
    /// The memory is writable, or a pointer of the program that the kernel checks.
    pub unsafe fn read(&self, to: *mut u8, len: usize) -> Result<usize> {
        // SAFETY: passed on to the caller.
        unsafe { read(self.0.raw(), to, len) }
    }
}

/// Reads from a pipe without waiting.
///
/// # Safety
/// As [`FarEnd::read`].
unsafe fn read(pipe: i32, to: *mut u8, len: usize) -> Result<usize> {
    const NOWAIT: i32 = 8;
    let part = libc::iovec {
        iov_base: to.cast(),
        iov_len: len,
    };
    // SAFETY: the caller's buffer; an offset of -1 (both words) is the file's own.
    unsafe {
        syscall!(
            preadv2,
            pipe,
            &raw const part,
            1,
            usize::MAX,
            usize::MAX,
            NOWAIT
        )
    }
}

/// The place for one.
#[derive(Debug)]
pub struct Far(AtomicI32);

impl Far {
    /// Without.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicI32::new(-1))
    }

    fn fd(&self) -> Option<i32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&fd| fd >= 0)
    }

    /// Whether there is one.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.fd().is_some()
    }

    /// Puts one here that has to be the pipe of this number, still empty, instead of what was here.
    ///
    /// # Errors
    /// EINVAL if it is another, or the kernel cannot read from it without waiting.
    pub fn put(&self, end: FarEnd, pipe: u64) -> Result<()> {
        let mut byte = 0u8;
        // SAFETY: a local.
        let empty = unsafe { end.read(&raw mut byte, 1) } == Err(Errno::AGAIN);
        if !empty || inode(end.0.raw())? != pipe {
            return Err(Errno::INVAL);
        }
        self.close();
        self.0.store(end.0.leak(), Ordering::Relaxed);
        Ok(())
    }

    /// Bytes that it holds, by the kernel's word.
    #[must_use]
    pub fn unread(&self) -> u64 {
        let mut unread: i32 = 0;
        // SAFETY: an int is written.
        let said = self
            .fd()
            .map(|fd| unsafe { syscall!(ioctl, fd, libc::FIONREAD, &raw mut unread) });
        if matches!(said, Some(Ok(_))) {
            u64::from(unread.cast_unsigned())
        } else {
            0
        }
    }

    /// Closes it.
    pub fn close(&self) {
        let fd = self.0.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            drop(Fd::own(fd));
        }
    }

    /// Reads at most `len` bytes to `to`, or throws them away.
    ///
    /// # Errors
    /// EAGAIN if nothing is there; EBADF without an end.
    ///
    /// # Safety
    /// As [`FarEnd::read`].
    pub unsafe fn take(&self, to: Option<*mut u8>, len: usize) -> Result<usize> {
        let fd = self.fd().ok_or(Errno(libc::EBADF))?;
        if let Some(to) = to {
            // SAFETY: passed on to the caller.
            return unsafe { read(fd, to, len) };
        }
        let mut away = [0u8; DISCARD];
        // SAFETY: a local buffer.
        unsafe { read(fd, away.as_mut_ptr(), len.min(DISCARD)) }
    }

    /// What it holds, up to about `len` bytes, to be looked at.
    ///
    /// # Errors
    /// EBADF without an end; EMFILE, ENFILE, EPERM: no pipe for it.
    pub fn look(&self, len: usize) -> Result<Look> {
        let fd = self.fd().ok_or(Errno(libc::EBADF))?;
        let mut ends = [0i32; 2];
        // SAFETY: two ints are written.
        unsafe { syscall!(pipe2, ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) }?;
        let [from, to] = ends.map(Fd::own);
        // (ragged ends have buffers of their own)
        let size = (len / PAGE + 4) * PAGE;
        // SAFETY: no pointers.
        unsafe {
            // (what does not fit is not seen)
            let _ = syscall!(
                fcntl,
                to.raw(),
                libc::F_SETPIPE_SZ,
                size.next_power_of_two()
            );
            syscall!(tee, fd, to.raw(), len, libc::SPLICE_F_NONBLOCK)?;
        }
        Ok(Look(from))
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.close();
    }
}

impl Default for Far {
    fn default() -> Self {
        Self::new()
    }
}

/// A copy of the beginning of what a lane holds.
#[derive(Debug)]
pub struct Look(Fd);

impl Look {
    /// Reads on.
    ///
    /// # Errors
    /// EAGAIN at the end.
    ///
    /// # Safety
    /// As [`FarEnd::read`].
    pub unsafe fn read(&self, to: *mut u8, len: usize) -> Result<usize> {
        // SAFETY: passed on to the caller.
        unsafe { read(self.0.raw(), to, len) }
    }
}
