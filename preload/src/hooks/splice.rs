//! splice. An unnamed pipe into an attached socket is read into what the socket sends, and what the socket has received is written into
//! a pipe; a pipe with a name has to be the kernel's to read, so there the stream goes back first. (tee takes pipes only.)
//!
//! Rule: what was taken out of a pipe cannot be put back, so no more is taken than there is room for; what a pipe has no room for
//! is still in the stream.

use super::transfer::to_kernel;
use super::{MOST, is_kernels};
use crate::real::{self, ret};
use crate::signals::since::Since;
use crate::sockets::{Socket, engage, recv, residual, send};
use crate::table;
use std::ffi::c_int;
use std::sync::atomic::Ordering;
use transport::clock;
use transport::reason::Reason;
use transport::sdp::Walk;
use transport::sys::{Errno, Result, net, time};
use transport::syscall;

/// All flags that the kernel knows; with others it refuses the call.
const FLAGS: u32 =
    libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;

/// How a pipe was opened, by the flags of open(2). `None`: it is none.
fn pipe_mode(fd: c_int) -> Option<c_int> {
    let mut st = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `st` is writable memory of the size that fstat fills.
    unsafe { syscall!(fstat, fd, st.as_mut_ptr()) }.ok()?;
    // SAFETY: zeroed, then filled by the kernel.
    let kind = unsafe { st.assume_init() }.st_mode & libc::S_IFMT;
    // SAFETY: no pointers.
    let flags = unsafe { syscall!(fcntl, fd, libc::F_GETFL) }.ok()?;
    (kind == libc::S_IFIFO).then_some(c_int::try_from(flags).ok()?)
}

/// Waits until the pipe has something, outside any lock. How much; 0 at its end.
fn await_pipe(pipe: c_int, waits: bool, since: Since) -> Result<usize> {
    loop {
        let there = net::unread(pipe);
        if there > 0 {
            return Ok(there);
        }
        // (bytes may have come between the two questions)
        if await_events(pipe, libc::POLLIN, waits, since)? & libc::POLLIN == 0
            && net::unread(pipe) == 0
        {
            return Ok(0);
        }
    }
}

/// Waits until the pipe shows this, or its other end's end, outside any lock.
fn await_events(pipe: c_int, events: i16, waits: bool, since: Since) -> Result<i16> {
    loop {
        let mut entry = libc::pollfd {
            fd: pipe,
            events,
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
            Ok(_) => return Ok(entry.revents),
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
fn pipe_to(
    s: &'static Socket,
    pipe: c_int,
    to: c_int,
    n: usize,
    flags: u32,
    waits: bool,
) -> Result<usize> {
    let since = Since::now();
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
    let there = residual::read(s, &mut walk, Some(0), false).filter(|&n| n > 0)?;
    if flags & libc::SPLICE_F_NONBLOCK != 0
        && net::ready_now(to, libc::POLLOUT) & libc::POLLOUT == 0
    {
        return Some(Err(Errno::AGAIN));
    }
    // SAFETY: the buffer holds that many bytes.
    let r = unsafe { syscall!(write, to, buf.as_ptr(), there) };
    if let Ok(written) = r {
        let mut walk = Walk::one(buf.as_mut_ptr(), written);
        residual::read(s, &mut walk, None, true);
        residual::taken(s, from);
    }
    Some(r)
}

/// From a connection whose bytes are not the kernel's alone into a pipe, by a copy: what frames them has to be taken off, or they lie
/// in shared memory. `None` if it is not one.
fn splice_out(
    s: &'static Socket,
    from: c_int,
    to: c_int,
    n: usize,
    waits: bool,
) -> Option<Result<usize>> {
    engage::step(s, from);
    if is_kernels(s, from) {
        return None;
    }
    // As much as goes into the pipe at once; a part of it may.
    let mut buf = vec![0u8; n.min(PIPE)];
    let since = Since::now();
    loop {
        // (as in the kernel, the pipe comes first)
        if let Err(e) = await_events(to, libc::POLLOUT, waits, since) {
            return Some(Err(e));
        }
        // SAFETY: the buffer is that long.
        let look = |buf: &mut [u8], how: i32| unsafe {
            let mut walk = Walk::one(buf.as_mut_ptr(), buf.len());
            recv::recv(s, from, &mut walk, libc::MSG_PEEK | how)
        };
        // What is there will do, however little it is.
        let there = match look(&mut buf, libc::MSG_DONTWAIT) {
            Err(Errno::AGAIN) if !s.nonblock.load(Ordering::Relaxed) => look(&mut buf, 0),
            r => r,
        };
        let bytes = match there {
            Ok(n) => buf.get(..n).unwrap_or_default(),
            Err(e) => return Some(Err(e)),
        };
        if bytes.is_empty() {
            return Some(Ok(0));
        }
        match write_pipe(to, bytes) {
            Err(Errno::AGAIN) if waits => {} // (somebody else has filled it)
            Ok(written) => {
                pass_over(s, from, buf.get_mut(..written).unwrap_or_default());
                return Some(Ok(written));
            }
            r => return Some(r),
        }
    }
}

/// How long (µs) what has been seen may take to come again, where another process has had the peer take it back meanwhile; and how
/// often that is looked for.
const AGAIN_US: u64 = 3_000_000;
const LOOK_US: u64 = 100;

/// Takes as much as this off the stream, which has gone on already: however it lies by now, here or with the kernel.
fn pass_over(s: &'static Socket, from: c_int, mut seen: &mut [u8]) {
    let begun = clock::ticks();
    while !seen.is_empty() {
        let mut walk = Walk::one(seen.as_mut_ptr(), seen.len());
        let how = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: nothing is written.
        match unsafe { recv::recv(s, from, &mut walk, how) } {
            Ok(n @ 1..) => seen = seen.get_mut(n..).unwrap_or_default(),
            Err(Errno::AGAIN | Errno::INTR) if clock::ticks() - begun < clock::us(AGAIN_US) => {
                let _ = time::nap(LOOK_US);
            }
            _ => return,
        }
    }
}

/// Writes what the pipe has room for, without waiting for more.
fn write_pipe(pipe: c_int, bytes: &[u8]) -> Result<usize> {
    let put = |len: usize, flags: c_int| {
        let piece = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: len,
        };
        // SAFETY: one vector of readable memory; -1 is "no position", as in `read_pipe`.
        unsafe { syscall!(pwritev2, pipe, &raw const piece, 1, -1isize, -1isize, flags) }
    };
    match put(bytes.len(), libc::RWF_NOWAIT) {
        // A pipe with a name knows of no such thing. It has room for so much, as it has said.
        Err(Errno(libc::EOPNOTSUPP)) => put(bytes.len().min(libc::PIPE_BUF), 0),
        r => r,
    }
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
    // SAFETY: the program's arguments, passed on.
    let kernel = || unsafe { real::splice(from, off_in, to, off_out, n, flags) };
    let (source, sink) = (table::called(from), table::called(to));
    // What the kernel refuses whatever it finds, or has nothing to do for, changes nothing.
    let refused = n == 0 || flags & !FLAGS != 0 || !off_in.is_null() || !off_out.is_null();
    let pipe = match (source, sink) {
        (None, Some(_)) => from,
        (Some(_), None) => to,
        _ => return kernel(),
    };
    let is_open = |mode: c_int| {
        mode & libc::O_ACCMODE
            != if pipe == from {
                libc::O_WRONLY
            } else {
                libc::O_RDONLY
            }
    };
    let Some(mode) = pipe_mode(pipe).filter(|mode| !refused && is_open(*mode)) else {
        return kernel();
    };
    let waits = flags & libc::SPLICE_F_NONBLOCK == 0 && mode & libc::O_NONBLOCK == 0;
    if let Some(s) = sink.filter(|s| !is_kernels(s, to)) {
        engage::step(s, to);
        if s.phase().is_fast() {
            match pipe_to(s, from, to, n.min(MOST), flags, waits) {
                // A pipe with a name cannot be read without waiting; nothing has gone.
                Err(Errno(libc::EOPNOTSUPP)) => {}
                r => return ret(r),
            }
        }
    }
    if let Some(s) = source
        && let Some(r) = splice_out(s, from, to, n.min(MOST), waits)
    {
        return ret(r);
    }
    to_kernel(to, Reason::Splice);
    if let Some(s) = source
        && let Some(r) = splice_kept(s, from, to, n, flags)
    {
        return ret(r);
    }
    kernel()
}
