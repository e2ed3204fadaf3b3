//! splice and tee. An unnamed pipe into an attached socket is read into what the socket sends; for anything else the
//! kernel itself has to have the stream, so that goes back there first.
//!
//! Rule: what was taken out of a pipe cannot be put back, so no more is taken than there is room for.

use super::transfer::to_kernel;
use super::{MOST, is_kernels};
use crate::real::{self, ret};
use crate::signals::since::Since;
use crate::sockets::{Socket, engage, recv, residual, send, wired};
use crate::table;
use std::ffi::c_int;
use transport::reason::Reason;
use transport::sdp::Walk;
use transport::sys::{Errno, Result, net};
use transport::syscall;

/// All flags that the kernel knows; with others it refuses the call.
const FLAGS: u32 =
    libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;

fn is_pipe(fd: c_int) -> bool {
    let mut st = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `st` is writable memory of the size that fstat fills.
    let r = unsafe { syscall!(fstat, fd, st.as_mut_ptr()) };
    // SAFETY: zeroed, then filled by the kernel.
    r.is_ok() && unsafe { st.assume_init() }.st_mode & libc::S_IFMT == libc::S_IFIFO
}

/// Waits until the pipe has something, outside any lock. How much; 0 at its end.
fn await_pipe(pipe: c_int, waits: bool, since: Since) -> Result<usize> {
    loop {
        let there = net::unread(pipe);
        if there > 0 {
            return Ok(there);
        }
        let mut entry = libc::pollfd {
            fd: pipe,
            events: libc::POLLIN,
            revents: 0,
        };
        let none = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let time = if waits {
            std::ptr::null()
        } else {
            &raw const none
        };
        // SAFETY: one entry, a time or null, no mask.
        let r = unsafe { real::ppoll(&raw mut entry, 1, time, std::ptr::null()) };
        match real::result(r as isize) {
            Err(Errno::INTR) if since.any_hard() => return Err(Errno::INTR),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
            Ok(0) => return Err(Errno::AGAIN),
            // (bytes may have come between the two questions)
            Ok(_) if entry.revents & libc::POLLIN == 0 && net::unread(pipe) == 0 => return Ok(0),
            Ok(_) => {}
        }
    }
}

/// Reads what the pipe has, without waiting for more.
fn read_pipe(pipe: c_int, at: *mut u8, len: usize) -> Result<usize> {
    let piece = libc::iovec {
        iov_base: at.cast(),
        iov_len: len,
    };
    // SAFETY: one vector of memory of ours; -1 is "no position", which takes two words on some machines.
    unsafe {
        syscall!(
            preadv2,
            pipe,
            &raw const piece,
            1,
            -1isize,
            -1isize,
            libc::RWF_NOWAIT
        )
    }
}

/// From a pipe to an attached socket.
fn pipe_to(s: &'static Socket, pipe: c_int, to: c_int, n: usize, flags: u32) -> Result<usize> {
    let since = Since::now();
    let waits = flags & libc::SPLICE_F_NONBLOCK == 0 && !net::is_nonblocking(pipe);
    loop {
        let there = await_pipe(pipe, waits, since)?;
        if there == 0 {
            return Ok(0);
        }
        let by_kernel = |fd: i32, n: usize| {
            let null = std::ptr::null_mut();
            // SAFETY: no positions, so no pointers.
            real::result(unsafe { real::splice(pipe, null, fd, null, n, flags) })
        };
        let mut empty = false;
        let fill = |at: *mut u8, len: usize| {
            let r = read_pipe(pipe, at, len);
            empty |= r == Err(Errno::AGAIN);
            r
        };
        let sent = send::send_from(s, to, n.min(there), fill, None::<fn(usize)>, by_kernel);
        // Somebody else has emptied the pipe meanwhile.
        if sent == Err(Errno::AGAIN) && empty {
            continue;
        }
        return sent;
    }
}

/// Bytes that were received before the stream was the kernel's go into the pipe by a copy. `None` if
/// there are none.
fn splice_kept(
    s: &'static Socket,
    from: c_int,
    to: c_int,
    n: usize,
    flags: u32,
) -> Option<Result<usize>> {
    let mut buf = [0u8; 4096];
    let n = n.min(buf.len());
    let mut walk = Walk::one(buf.as_mut_ptr(), n);
    let there = residual::read(s, &mut walk, true, false).filter(|&n| n > 0)?;
    if flags & libc::SPLICE_F_NONBLOCK != 0
        && net::ready_now(to, libc::POLLOUT) & libc::POLLOUT == 0
    {
        return Some(Err(Errno::AGAIN));
    }
    // SAFETY: the buffer holds that many bytes.
    let r = unsafe { syscall!(write, to, buf.as_ptr(), there) };
    if let Ok(written) = r {
        let mut walk = Walk::one(buf.as_mut_ptr(), written);
        residual::read(s, &mut walk, false, true);
        residual::taken(s, from);
    }
    Some(r)
}

/// From a connection on software iWARP into a pipe, by a copy: what frames the bytes has to be taken off. `None` if it
/// is not one.
fn splice_wired(
    s: &'static Socket,
    from: c_int,
    to: c_int,
    n: usize,
    flags: u32,
) -> Option<Result<usize>> {
    engage::step(s, from);
    if !wired::is_wired(s) {
        return None;
    }
    let dont_wait = flags & libc::SPLICE_F_NONBLOCK != 0;
    if dont_wait && net::ready_now(to, libc::POLLOUT) & libc::POLLOUT == 0 {
        return Some(Err(Errno::AGAIN));
    }
    // As much as goes into the pipe at once; a part of it may.
    let mut buf = vec![0u8; n.min(PIPE)];
    let waits = if dont_wait { libc::MSG_DONTWAIT } else { 0 };
    let mut walk = Walk::one(buf.as_mut_ptr(), buf.len());
    // SAFETY: the buffer is that long.
    let there = match unsafe { recv::recv(s, from, &mut walk, libc::MSG_PEEK | waits) } {
        Ok(0) => return Some(Ok(0)),
        Ok(there) => there,
        Err(e) => return Some(Err(e)),
    };
    // SAFETY: the buffer holds that many bytes.
    let written = unsafe { syscall!(write, to, buf.as_ptr(), there) };
    if let Ok(written) = written {
        let mut walk = Walk::one(buf.as_mut_ptr(), written);
        // SAFETY: as above.
        let _ = unsafe { recv::recv(s, from, &mut walk, libc::MSG_DONTWAIT) };
    }
    Some(written)
}

/// Bytes that go into a pipe at once: what one holds.
const PIPE: usize = 64 * 1024;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn splice(
    from: c_int,
    off_in: *mut i64,
    to: c_int,
    off_out: *mut i64,
    n: usize,
    flags: u32,
) -> isize {
    if let Some(s) = table::socket(to)
        && off_in.is_null()
        && off_out.is_null()
        && n > 0
        && flags & !FLAGS == 0
        && !is_kernels(s, to)
        && is_pipe(from)
    {
        engage::step(s, to);
        if s.phase().is_fast() {
            match pipe_to(s, from, to, n.min(MOST), flags) {
                // A pipe with a name cannot be read without waiting; nothing has gone.
                Err(Errno(libc::EOPNOTSUPP)) => {}
                r => return ret(r),
            }
        }
    }
    if let Some(s) = table::socket(from)
        && off_in.is_null()
        && off_out.is_null()
        && n > 0
        && is_pipe(to)
        && let Some(r) = splice_wired(s, from, to, n.min(MOST), flags)
    {
        return ret(r);
    }
    if !is_pipe(from) && !is_pipe(to) {
        // SAFETY: the program's arguments, passed on: the kernel refuses them, and nothing has to change for that.
        return unsafe { real::splice(from, off_in, to, off_out, n, flags) };
    }
    to_kernel(from, Reason::Splice);
    to_kernel(to, Reason::Splice);
    if let Some(s) = table::socket(from)
        && off_in.is_null()
        && let Some(r) = splice_kept(s, from, to, n, flags)
    {
        return ret(r);
    }
    // SAFETY: the program's arguments, passed on.
    unsafe { real::splice(from, off_in, to, off_out, n, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn tee(from: c_int, to: c_int, n: usize, flags: u32) -> isize {
    to_kernel(from, Reason::Splice);
    to_kernel(to, Reason::Splice);
    // SAFETY: the program's arguments, passed on.
    unsafe { real::tee(from, to, n, flags) }
}
