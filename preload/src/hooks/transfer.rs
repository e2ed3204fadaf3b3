//! sendfile and the aio family: bytes that move between a descriptor and something that is
//! not the program's memory.
//!
//! sendfile reads the file for us and sends what it read. For the others the kernel itself has to have the
//! stream, so it goes back there first.

use super::splice::splice;
use super::{MOST, count_sent};
use crate::probe::{Access, is_good};
use crate::real::{self, other, ret, set_errno};
use crate::sockets::demote::{Unread, demote};
use crate::sockets::{Socket, mapped, send};
use crate::table;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use transport::direct::policy;
use transport::reason::Reason;
use transport::sys::Errno;
use transport::sys::fd::Fd;
use transport::syscall;

/// What a descriptor stands for, as sendfile sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// With this size; 0 if it has none.
    File(u64),
    /// Some can be sent, some not: the kernel knows.
    Device,
    Pipe,
    /// Nothing that it takes from.
    Other,
}

fn kind(fd: i32) -> Kind {
    let mut st = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `st` is writable memory of the size that fstat fills.
    let r = unsafe { syscall!(fstat, fd, st.as_mut_ptr()) };
    // SAFETY: zeroed, then filled by the kernel.
    let st = unsafe { st.assume_init() };
    match (r, st.st_mode & libc::S_IFMT) {
        (Ok(_), libc::S_IFREG) => Kind::File(st.st_size.cast_unsigned()),
        (Ok(_), libc::S_IFBLK) => Kind::File(0),
        (Ok(_), libc::S_IFCHR) => Kind::Device,
        (Ok(_), libc::S_IFIFO) => Kind::Pipe,
        _ => Kind::Other,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(out: c_int, from: c_int, offset: *mut i64, n: usize) -> isize {
    // SAFETY: the program's arguments, passed on.
    let kernel = |n: usize| unsafe { real::sendfile(out, from, offset, n) };
    // (out of a stream the kernel moves bytes to a pipe, as splice does, and to nothing else)
    if table::called(from).is_some() && offset.is_null() && kind(out) == Kind::Pipe {
        // SAFETY: no pointers.
        return unsafe { splice(from, null_mut(), out, null_mut(), n, 0) };
    }
    let Some(s) = table::called(out) else {
        return kernel(n);
    };
    if n.cast_signed() < 0 {
        return kernel(n); // (it is refused)
    }
    let size = match kind(from) {
        Kind::File(size) if !super::is_kernels(s, out) => size,
        Kind::Device => {
            to_kernel(out, Reason::Splice); // (which it is, in the kernel)
            return count_sent(s, kernel(n));
        }
        _ => return count_sent(s, kernel(n)),
    };
    if !offset.is_null() && !is_good(offset.cast(), 8, Access::Write) {
        set_errno(libc::EFAULT);
        return -1;
    }
    let fill = |at: *mut u8, len: usize| {
        if offset.is_null() {
            // SAFETY: `at` is memory of ours with `len` bytes.
            return unsafe { syscall!(read, from, at, len) };
        }
        // SAFETY: the program's offset.
        let position = unsafe { offset.read_unaligned() };
        // SAFETY: `at` is memory of ours with `len` bytes.
        let r = unsafe { syscall!(pread64, from, at, len, position) };
        if let Ok(n) = r {
            // SAFETY: the program's offset.
            unsafe { offset.write_unaligned(position + n.cast_signed() as i64) };
        }
        r
    };
    let put_back = |n: usize| {
        let n = n.cast_signed() as i64;
        if offset.is_null() {
            // SAFETY: no pointers.
            let _ = unsafe { syscall!(lseek, from, -n, libc::SEEK_CUR) };
        } else {
            // SAFETY: the program's offset, which `fill` has written.
            unsafe { offset.write_unaligned(offset.read_unaligned() - n) };
        }
    };
    if size == 0 && n > 0 && is_read_only_by_read(from) {
        set_errno(libc::EINVAL);
        return -1;
    }
    let by_kernel = |_fd: i32, n: usize| real::result(kernel(n));
    // The kernel reads first, and does not ask after the socket where there is nothing.
    if send::may_fail(s) && is_at_end(from, offset) {
        return 0;
    }
    let n = n.min(MOST);
    let straight = if n < policy::large() {
        0
    } else {
        // SAFETY: the program's offset, or null.
        unsafe { send_mapped(s, out, from, offset, size, n) }
    };
    if straight == n {
        return n.cast_signed();
    }
    match send::send_from(s, out, n - straight, fill, Some(put_back), by_kernel) {
        Err(_) if straight > 0 => straight.cast_signed(),
        sent => ret(sent.map(|n| straight + n)),
    }
}

/// Whether the kernel can send nothing from the file, as from many in /proc. (Not asked of files elsewhere: some there are read only once.)
#[cold]
fn is_read_only_by_read(from: c_int) -> bool {
    const PROC: i64 = libc::PROC_SUPER_MAGIC;
    let mut system = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `system` is writable memory of the size that fstatfs fills.
    let r = unsafe { syscall!(fstatfs, from, system.as_mut_ptr()) };
    // SAFETY: zeroed, then filled by the kernel.
    if r.is_err() || unsafe { system.assume_init() }.f_type != PROC {
        return false;
    }
    let mut ends = [-1; 2];
    // SAFETY: room for two descriptors.
    if unsafe { syscall!(pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC) }.is_err() {
        return false;
    }
    let [_reads, writes] = ends.map(Fd::own);
    let mut position = 0i64;
    // SAFETY: a position of ours, which spares the file's own.
    let r = unsafe { syscall!(sendfile, writes.raw(), from, &raw mut position, 1) };
    r == Err(Errno::INVAL)
}

/// Whether the file has nothing more to send. (Its size does not tell: that of a file in /proc is 0.)
#[cold]
fn is_at_end(from: c_int, offset: *const i64) -> bool {
    let position = if offset.is_null() {
        // SAFETY: no pointers.
        unsafe { syscall!(lseek, from, 0, libc::SEEK_CUR) }
    } else if is_good(offset.cast(), 8, Access::Read) {
        // SAFETY: probed.
        Ok(unsafe { offset.read_unaligned() }.cast_unsigned() as usize)
    } else {
        return false;
    };
    let mut byte = 0u8;
    // SAFETY: one writable byte.
    let read = |at: usize| unsafe { syscall!(pread64, from, &raw mut byte, 1, at) };
    position.and_then(read) == Ok(0)
}

/// Sends what can go straight to the reader, and moves the file's position or the program's offset on.
///
/// # Safety
/// `offset` is null or the program's offset, which was probed.
#[cold]
unsafe fn send_mapped(
    s: &'static Socket,
    out: c_int,
    from: c_int,
    offset: *mut i64,
    size: u64,
    n: usize,
) -> usize {
    let position = if offset.is_null() {
        // SAFETY: no pointers.
        match unsafe { syscall!(lseek, from, 0, libc::SEEK_CUR) } {
            Ok(position) => position as u64,
            Err(_) => return 0,
        }
    } else {
        // SAFETY: the caller's promise.
        unsafe { offset.read_unaligned() }.cast_unsigned()
    };
    let sent = mapped::send(s, out, from, size, position, n);
    if sent > 0 {
        let after = (position + sent as u64).cast_signed();
        if offset.is_null() {
            // SAFETY: no pointers.
            let _ = unsafe { syscall!(lseek, from, after, libc::SEEK_SET) };
        } else {
            // SAFETY: the caller's promise.
            unsafe { offset.write_unaligned(after) };
        }
    }
    sent
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(out: c_int, from: c_int, offset: *mut i64, n: usize) -> isize {
    // SAFETY: an alias: off_t has 64 bits.
    unsafe { sendfile(out, from, offset, n) }
}

/// The kernel moves bytes between the descriptor and something else: the stream has to be its own.
pub(super) fn to_kernel(fd: c_int, why: Reason) {
    if let Some(s) = table::socket(fd) {
        demote(s, fd, why, Unread::GiveBack);
    }
}

/// The stream that a `struct aiocb` of the program's names has to be the kernel's.
fn drive_by_kernel(block: *const c_void) {
    if is_good(block.cast(), 4, Access::Read) {
        // SAFETY: probed; the first member is the descriptor.
        let fd = unsafe { block.cast::<c_int>().read_unaligned() };
        if let Some(s) = table::socket(fd) {
            // (whoever does it reads round the library for certain)
            demote(s, fd, Reason::AsyncIo, Unread::Ask);
        }
    }
}

/// aio_read and aio_write, of one control block.
macro_rules! aio {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(block: *mut c_void) -> c_int {
            drive_by_kernel(block);
            let next = other::$name.get();
            if next.is_null() {
                set_errno(libc::ENOSYS);
                return -1;
            }
            // SAFETY: libc's function of this name and signature.
            unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> c_int>(next)(block) }
        }
    )*};
}

aio! { aio_read aio_write aio_read64 aio_write64 }

/// lio_listio: a list of such blocks.
macro_rules! lio {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(mode: c_int, list: *const *mut c_void, n: c_int, event: *mut c_void) -> c_int {
            let count = usize::try_from(n).unwrap_or(0);
            if is_good(list.cast(), count * size_of::<usize>(), Access::Read) {
                for i in 0..count {
                    // SAFETY: probed.
                    drive_by_kernel(unsafe { *list.add(i) });
                }
            }
            let next = other::$name.get();
            if next.is_null() {
                set_errno(libc::ENOSYS);
                return -1;
            }
            // SAFETY: libc's function of this name and signature.
            unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int, *const *mut c_void, c_int, *mut c_void) -> c_int>(next)(mode, list, n, event)
            }
        }
    )*};
}

lio! { lio_listio lio_listio64 }

/// Where the descriptor stands in a `struct iocb` (linux/aio_abi.h), in bytes.
const IOCB_FD: usize = 20;

/// Native aio (io_submit(2), by syscall(2)): the streams that the control blocks name have to be the kernel's. (The function of that
/// name is libaio's, and no name that libc does not have is taken here.)
pub(super) fn before_submit(n: usize, list: *const *const c_void) {
    if !is_good(
        list.cast(),
        n.min(MOST_BLOCKS) * size_of::<usize>(),
        Access::Read,
    ) {
        return;
    }
    for i in 0..n.min(MOST_BLOCKS) {
        // SAFETY: probed.
        let block = unsafe { list.add(i).read_unaligned() };
        drive_by_kernel(block.wrapping_byte_add(IOCB_FD));
    }
}

/// More than a context takes at a time (/proc/sys/fs/aio-max-nr).
const MOST_BLOCKS: usize = 1 << 16;
