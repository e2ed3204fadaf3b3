//! Copies straight between the memory of this process and of another: what stands for RDMA Read and RDMA
//! Write between two programs of one host. The kernel checks that this process may look into the other
//! one (ptrace access: same user, dumpable, what Yama and the namespaces say).

use super::fd::{Fd, as_fd};
use super::{Errno, Result, net};
use crate::syscall;

const fn iovec(at: usize, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::without_provenance_mut(at),
        iov_len: len,
    }
}

/// A word of the other process's that shows that it is the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Where it lies there.
    pub at: u64,
    /// What it holds.
    pub value: u64,
}

fn at(a: u64) -> Result<usize> {
    usize::try_from(a).map_err(|_| Errno::FAULT)
}

/// Copies `len` bytes at `from` in process `pid` to `to`, and the proof after them. True if all of them were
/// there and the proof holds: a process that has died or executed another program meanwhile has lost it.
///
/// # Errors
/// EPERM, ESRCH, EFAULT, ENOSYS: what the kernel says.
///
/// # Safety
/// `to` is writable for `len` bytes, or a pointer of the program that the kernel checks.
pub unsafe fn pull(pid: u32, from: u64, to: *mut u8, len: usize, proof: Proof) -> Result<bool> {
    let mut found = 0u64;
    let local = [
        iovec(to.addr(), len),
        iovec((&raw mut found).expose_provenance(), size_of::<u64>()),
    ];
    let remote = [
        iovec(at(from)?, len),
        iovec(at(proof.at)?, size_of::<u64>()),
    ];
    // SAFETY: valid vectors; the caller's promise for the first, and the second pair is a word of ours.
    let copied = unsafe {
        syscall!(
            process_vm_readv,
            pid,
            local.as_ptr(),
            2,
            remote.as_ptr(),
            2,
            0
        )
    }?;
    // SAFETY: a live local; read afresh, since the kernel wrote it behind the compiler's back.
    let found = unsafe { (&raw const found).read_volatile() };
    Ok(copied == len + size_of::<u64>() && found == proof.value)
}

/// Copies `len` bytes at `from` to `to` in process `pid`: before them a byte to `knock`, and after all of them
/// the byte `mark` to `mark_at`. If the knock finds no place, as in a process that has executed another
/// program, nothing is copied. True if everything was.
///
/// # Errors
/// As [`pull`].
///
/// # Safety
/// `from` is readable for `len` bytes, or a pointer of the program that the kernel checks.
pub unsafe fn push(
    pid: u32,
    (from, len): (*const u8, usize),
    to: u64,
    knock: u64,
    (mark, mark_at): (u8, u64),
) -> Result<bool> {
    let local = [
        iovec((&raw const mark).expose_provenance(), 1),
        iovec(from.addr(), len),
        iovec((&raw const mark).expose_provenance(), 1),
    ];
    let remote = [
        iovec(at(knock)?, 1),
        iovec(at(to)?, len),
        iovec(at(mark_at)?, 1),
    ];
    // SAFETY: valid vectors, the caller's promise; the kernel copies in their order and ends at the first
    // that it cannot.
    let copied = unsafe {
        syscall!(
            process_vm_writev,
            pid,
            local.as_ptr(),
            3,
            remote.as_ptr(),
            3,
            0
        )
    }?;
    Ok(copied == len + 2)
}

/// Copies `len` bytes at `from` in process `pid` to `to`. How many were there.
///
/// # Errors
/// As [`pull`].
///
/// # Safety
/// `to` is writable for `len` bytes.
pub unsafe fn read(pid: u32, from: u64, to: *mut u8, len: usize) -> Result<usize> {
    let (local, remote) = (iovec(to.expose_provenance(), len), iovec(at(from)?, len));
    let (local, remote) = (&raw const local, &raw const remote);
    // SAFETY: vectors of one each; the caller's promise.
    unsafe { syscall!(process_vm_readv, pid, local, 1, remote, 1, 0) }
}

/// Copies `len` bytes at `from` to `to` in process `pid`. How many found room.
///
/// # Errors
/// As [`pull`].
///
/// # Safety
/// `from` is readable for `len` bytes.
pub unsafe fn write(pid: u32, from: *const u8, to: u64, len: usize) -> Result<usize> {
    let (local, remote) = (iovec(from.expose_provenance(), len), iovec(at(to)?, len));
    let (local, remote) = (&raw const local, &raw const remote);
    // SAFETY: vectors of one each; the caller's promise.
    unsafe { syscall!(process_vm_writev, pid, local, 1, remote, 1, 0) }
}

/// Whether no thread of the process runs any more. One that has died and that its parent has not waited for
/// keeps its number, so kill(2) does not tell.
#[must_use]
pub fn is_over(pid: u32) -> bool {
    const GONE: Errno = Errno(libc::ESRCH);
    // SAFETY: no pointers.
    let opened = unsafe { syscall!(pidfd_open, pid, 0) };
    match opened {
        Ok(fd) => {
            let process = Fd::own(as_fd(fd));
            net::ready_now(process.raw(), libc::POLLIN) != 0
        }
        Err(GONE) => true,
        Err(_) => {
            // No descriptor to be had, or an old kernel.
            // SAFETY: no pointers; signal 0 only asks.
            let asked = unsafe { syscall!(kill, pid, 0) };
            asked == Err(GONE)
        }
    }
}
