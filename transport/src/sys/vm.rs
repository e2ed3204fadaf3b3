//! Copies straight between the memory of this process and of another: what stands for RDMA Read and RDMA
//! Write between two programs of one host. The kernel checks that this process may look into the other
//! one (ptrace access: same user, dumpable, what Yama and the namespaces say).

use super::{Errno, Result};
use crate::syscall;

const fn iovec(at: usize, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::without_provenance_mut(at),
        iov_len: len,
    }
}

/// Copies `len` bytes at `from` in process `pid` to `to`. Returns how many could be: fewer if a page on
/// either side is not there.
///
/// # Errors
/// EPERM, ESRCH, EFAULT, ENOSYS: what the kernel says.
///
/// # Safety
/// `to` is writable for `len` bytes, or a pointer of the program that the kernel checks.
pub unsafe fn pull(pid: u32, from: u64, to: *mut u8, len: usize) -> Result<usize> {
    let local = iovec(to.addr(), len);
    let remote = iovec(usize::try_from(from).map_err(|_| Errno::FAULT)?, len);
    // SAFETY: two valid vectors; the caller's promise for the first, and the second is another
    // process's to lose.
    unsafe {
        syscall!(
            process_vm_readv,
            pid,
            &raw const local,
            1,
            &raw const remote,
            1,
            0
        )
    }
}

/// Copies `len` bytes at `from` to `to` in process `pid`, and after all of them the byte `mark` to
/// `mark_at` there. Returns how many bytes were copied, the mark included.
///
/// # Errors
/// As [`pull`].
///
/// # Safety
/// `from` is readable for `len` bytes, or a pointer of the program that the kernel checks.
pub unsafe fn push(
    pid: u32,
    from: *const u8,
    len: usize,
    to: u64,
    mark: u8,
    mark_at: u64,
) -> Result<usize> {
    let local = [iovec(from.addr(), len), iovec((&raw const mark).addr(), 1)];
    let at = |a: u64| usize::try_from(a).map_err(|_| Errno::FAULT);
    let remote = [iovec(at(to)?, len), iovec(at(mark_at)?, 1)];
    // SAFETY: valid vectors, the caller's promise; the kernel copies in their order.
    unsafe {
        syscall!(
            process_vm_writev,
            pid,
            local.as_ptr(),
            2,
            remote.as_ptr(),
            2,
            0
        )
    }
}
