//! Sockets: the calls on the program's kernel connection, and the options that the library reads and sets
//! there.
//!
//! Pointers into the program's memory are passed to the kernel as they came; it answers EFAULT.

mod endpoint;
mod press;
mod receipt;
pub mod select;

pub use endpoint::{Endpoint, is_here, local, peer};
pub use press::press;
pub use receipt::Receipt;

use super::fd::{Fd, as_fd};
use super::{Errno, Result};
use crate::syscall;
use std::ptr;

/// Receives into `len` bytes at `buf`.
///
/// # Safety
/// `buf` is the program's pointer, or valid for `len` bytes of writing.
///
/// # Errors
/// As recv(2).
#[inline]
pub unsafe fn recv(fd: i32, buf: *mut u8, len: usize, flags: i32) -> Result<usize> {
    // SAFETY: see the function's contract.
    unsafe { syscall!(recvfrom, fd, buf, len, flags, 0, 0) }
}

/// The urgent byte that waits to be read, which stays.
#[must_use]
pub fn urgent(fd: i32) -> Option<u8> {
    let mut byte = 0;
    let flags = libc::MSG_OOB | libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: one writable byte.
    let n = unsafe { recv(fd, &raw mut byte, 1, flags) }.ok()?;
    (n == 1).then_some(byte)
}

/// Sends `len` bytes at `buf`.
///
/// # Safety
/// `buf` is the program's pointer, or valid for `len` bytes of reading.
///
/// # Errors
/// As send(2).
#[inline]
pub unsafe fn send(fd: i32, buf: *const u8, len: usize, flags: i32) -> Result<usize> {
    // SAFETY: see the function's contract.
    unsafe { syscall!(sendto, fd, buf, len, flags, 0, 0) }
}

/// recvmsg(2) on an array of buffers.
///
/// # Safety
/// `iov` has `count` entries; their pointers are the program's.
///
/// # Errors
/// As recvmsg(2).
pub unsafe fn recv_vec(fd: i32, iov: *mut libc::iovec, count: usize, flags: i32) -> Result<usize> {
    let mut msg = vec_msg(iov, count);
    // SAFETY: `msg` describes the caller's array.
    unsafe { syscall!(recvmsg, fd, &raw mut msg, flags) }
}

/// sendmsg(2) on an array of buffers.
///
/// # Safety
/// `iov` has `count` entries; their pointers are the program's.
///
/// # Errors
/// As sendmsg(2).
pub unsafe fn send_vec(fd: i32, iov: *mut libc::iovec, count: usize, flags: i32) -> Result<usize> {
    let msg = vec_msg(iov, count);
    // SAFETY: `msg` describes the caller's array.
    unsafe { syscall!(sendmsg, fd, &raw const msg, flags) }
}

pub(super) fn vec_msg(iov: *mut libc::iovec, count: usize) -> libc::msghdr {
    // SAFETY: an all-zero msghdr is valid: no name, no control.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = iov;
    msg.msg_iovlen = count;
    msg
}

/// Throws away up to `len` received bytes without copying them.
///
/// # Errors
/// As recv(2).
pub fn discard(fd: i32, len: usize) -> Result<usize> {
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    // SAFETY: with MSG_TRUNC the kernel writes nothing to a TCP reader's buffer.
    unsafe { recv(fd, ptr::null_mut(), len, flags) }
}

/// Looks at what has come on a connection and takes nothing, an error neither, which is the program's: how many octets of it are in
/// `space`, and whether nothing more can come behind what is here.
#[must_use]
pub fn peek(fd: i32, space: &mut [u8]) -> (usize, bool) {
    let ends = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
    // (what has come by the end is all that comes: that is asked first)
    let shown = ready_now(fd, libc::POLLIN | libc::POLLRDHUP);
    let over = shown & ends != 0;
    // (bytes may be fewer than the kernel wakes for, and behind an urgent one it counts none)
    if unread(fd) == 0 && (over || shown & libc::POLLIN == 0) {
        return (0, over);
    }
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: the slice is writable.
    let came = unsafe { recv(fd, space.as_mut_ptr(), space.len(), flags) };
    (came.unwrap_or(0), over)
}

/// Bytes that the kernel holds for the reader of this socket.
#[must_use]
pub fn unread(fd: i32) -> usize {
    let mut n: i32 = 0;
    // SAFETY: FIONREAD writes one int.
    let r = unsafe { syscall!(ioctl, fd, libc::FIONREAD, &raw mut n) };
    if r.is_ok() {
        usize::try_from(n).unwrap_or(0)
    } else {
        0
    }
}

/// Whether the next byte of this socket's reader is an urgent one.
#[must_use]
pub fn at_mark(fd: i32) -> bool {
    const SIOCATMARK: u32 = 0x8905;
    let mut at: i32 = 0;
    // SAFETY: SIOCATMARK writes one int.
    let r = unsafe { syscall!(ioctl, fd, SIOCATMARK, &raw mut at) };
    r.is_ok() && at != 0
}

/// Takes this urgent byte if it is the next of what has come, and nothing behind it: a connection that is closed with it unread is reset,
/// though it counts as nothing (FIONREAD).
pub fn take_mark(fd: i32, byte: u8) {
    if urgent(fd) != Some(byte) || !at_mark(fd) {
        return;
    }
    let inline = |on: bool| set(fd, libc::SOL_SOCKET, libc::SO_OOBINLINE, &i32::from(on));
    inline(true); // (otherwise a call steps over it, to a byte that is somebody's)
    let _ = discard(fd, 1);
    inline(false);
}

/// Whether a call that has bytes already may take more: there are some, or the end, and no urgent one comes first (which a
/// call of its own would step over).
#[must_use]
pub fn goes_on(fd: i32) -> bool {
    let ends = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
    // (what has come by the end is all that comes: that is asked first)
    let over = ready_now(fd, libc::POLLIN | libc::POLLRDHUP) & ends != 0;
    (unread(fd) > 0 || over) && !at_mark(fd)
}

/// Whether an error waits on the socket and nothing before it: whoever receives now, be it only to look, takes the error
/// that the program is to get.
#[must_use]
pub fn has_only_error(fd: i32) -> bool {
    ready_now(fd, 0) & libc::POLLERR != 0 && unread(fd) == 0
}

/// Bytes that the kernel has not been told of as received (SIOCOUTQ).
#[must_use]
pub fn unsent(fd: i32) -> usize {
    let mut n: i32 = 0;
    // SAFETY: TIOCOUTQ writes one int.
    let r = unsafe { syscall!(ioctl, fd, libc::TIOCOUTQ, &raw mut n) };
    r.map_or(0, |_| usize::try_from(n).unwrap_or(0))
}

/// Bytes of those that it has not sent yet (SIOCOUTQNSD).
fn kept_back(fd: i32) -> Option<usize> {
    const SIOCOUTQNSD: u64 = 0x894b;
    let mut n: i32 = 0;
    // SAFETY: SIOCOUTQNSD writes one int.
    unsafe { syscall!(ioctl, fd, SIOCOUTQNSD, &raw mut n) }.ok()?;
    usize::try_from(n).ok()
}

/// Whether the kernel keeps none of what it was given: all is under way, or has come.
#[must_use]
pub fn is_all_under_way(fd: i32) -> bool {
    kept_back(fd) == Some(0)
}

/// Whether some of what it has sent has not been acknowledged, and may have to go again.
#[must_use]
pub fn is_any_under_way(fd: i32) -> bool {
    let unsent = unsent(fd); // (before: what is acknowledged meanwhile counts as under way)
    unsent > 0 && kept_back(fd).is_none_or(|kept| unsent > kept)
}

/// Whether the connection is no more, in either direction.
#[must_use]
pub fn is_dead(fd: i32) -> bool {
    ready_now(fd, 0) & (libc::POLLERR | libc::POLLHUP) != 0
}

/// Whether the other end has ended its direction of a TCP connection, or all of it, by the connection's state, which this end's own
/// shutdown does not hide. (poll(2) shows both alike.)
#[must_use]
pub fn has_peer_ended(fd: i32) -> bool {
    const TIME_WAIT: u8 = 6;
    const CLOSE_WAIT: u8 = 8;
    const LAST_ACK: u8 = 9;
    const CLOSING: u8 = 11;
    let ended = [TIME_WAIT, CLOSE, CLOSE_WAIT, LAST_ACK, CLOSING];
    state(fd).is_some_and(|state| ended.contains(&state))
}

/// Whether the connection is no more: reset, given up, or ended by both.
#[must_use]
pub fn is_closed(fd: i32) -> bool {
    state(fd) == Some(CLOSE)
}

/// Whether the other end's kernel has acknowledged the end of this one's direction, or all is over.
#[must_use]
pub fn is_end_heard(fd: i32) -> bool {
    const FIN_WAIT2: u8 = 5;
    const TIME_WAIT: u8 = 6;
    state(fd).is_some_and(|state| [FIN_WAIT2, TIME_WAIT, CLOSE].contains(&state))
}

/// The state of a TCP connection that is none.
const CLOSE: u8 = 7;

/// The state of a TCP connection, in the numbers of TCP_INFO.
fn state(fd: i32) -> Option<u8> {
    let mut state = 0u8; // (the first field; the kernel writes no more than there is room for)
    // SAFETY: an integer.
    let r = unsafe { get(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut state) };
    r.is_ok().then_some(state)
}

/// What a descriptor is ready for now, in poll(2) bits, out of `events` (plus ERR, HUP, NVAL).
#[must_use]
pub fn ready_now(fd: i32, events: i16) -> i16 {
    let mut p = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    let none = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: one pollfd, one timespec, no mask.
    match unsafe { syscall!(ppoll, &raw mut p, 1, &raw const none, 0, 8) } {
        Ok(_) => p.revents,
        Err(Errno::INVAL) => {
            let mut all = [p];
            let _ = select::instead(&mut all, Some(none), ptr::null());
            all[0].revents
        }
        Err(_) => 0,
    }
}

/// Waits until there is something to read, for so many microseconds at most; less if a signal comes.
pub fn await_input(fd: i32, us: u64) {
    let mut p = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let time = libc::timespec {
        tv_sec: i64::try_from(us / 1_000_000).unwrap_or(i64::MAX),
        tv_nsec: (us % 1_000_000).cast_signed() * 1000,
    };
    // SAFETY: one pollfd, one timespec, no mask.
    let waited = unsafe { syscall!(ppoll, &raw mut p, 1, &raw const time, 0, 8) };
    if waited == Err(Errno::INVAL) {
        let _ = select::instead(&mut [p], Some(time), ptr::null());
    }
}

/// getsockopt(2) of an option that is a `T`.
///
/// # Safety
/// Any bytes are a `T`.
pub(super) unsafe fn get<T>(fd: i32, level: i32, name: i32, value: &mut T) -> Result<()> {
    #[allow(clippy::cast_possible_truncation)]
    let mut len = size_of::<T>() as libc::socklen_t;
    let value = ptr::from_mut(value);
    // SAFETY: both out-parameters are valid.
    unsafe { syscall!(getsockopt, fd, level, name, value, &raw mut len) }.map(drop)
}

/// setsockopt(2) of an option that is a `T`, where nothing depends on its success.
fn set<T>(fd: i32, level: i32, name: i32, value: &T) {
    let value = ptr::from_ref(value);
    // SAFETY: the option value is valid for its size.
    let _ = unsafe { syscall!(setsockopt, fd, level, name, value, size_of::<T>()) };
}

/// A socket option that is an int.
///
/// # Errors
/// As getsockopt(2).
pub fn option(fd: i32, level: i32, name: i32) -> Result<i32> {
    let mut v: i32 = 0;
    // SAFETY: an integer.
    unsafe { get(fd, level, name, &mut v) }?;
    Ok(v)
}

/// What the kernel calls a socket, and no other as long as it runs (`SO_COOKIE`, Linux 4.12).
///
/// # Errors
/// ENOTSOCK, ENOPROTOOPT and the like.
pub fn cookie(fd: i32) -> Result<u64> {
    let mut v: u64 = 0;
    // SAFETY: an integer.
    unsafe { get(fd, libc::SOL_SOCKET, libc::SO_COOKIE, &mut v) }?;
    Ok(v)
}

/// Sends what the kernel keeps back because it is little and more of the like has not been acknowledged (Nagle's
/// algorithm, RFC 1122 section 4.2.3.4), which the end of a stream must not wait for. The option stays as it was.
pub fn push(fd: i32) {
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_NODELAY);
    if option(fd, level, name) == Ok(0) {
        set(fd, level, name, &1i32); // (tcp(7): setting it sends what waits)
        set(fd, level, name, &0i32);
    }
}

/// Sends what the kernel keeps back, for whatever reason: MSG_MORE too.
pub fn uncork(fd: i32) {
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_NODELAY);
    if option(fd, level, name) == Ok(0) {
        return push(fd);
    }
    set(fd, level, name, &1i32); // (as in `push`: it is on already)
}

/// Whether the program has the kernel wait for more (TCP_CORK).
#[must_use]
pub fn is_corked(fd: i32) -> bool {
    option(fd, libc::IPPROTO_TCP, libc::TCP_CORK) == Ok(1)
}

/// Acknowledges what has come, now (TCP_QUICKACK, tcp(7)).
pub fn acknowledge(fd: i32) {
    set(fd, libc::IPPROTO_TCP, libc::TCP_QUICKACK, &1i32);
}

/// Whether calls on the descriptor do not wait.
#[must_use]
pub fn is_nonblocking(fd: i32) -> bool {
    // SAFETY: no pointers.
    unsafe { syscall!(fcntl, fd, libc::F_GETFL) }
        .is_ok_and(|flags| flags & libc::O_NONBLOCK.cast_unsigned() as usize != 0)
}

/// A socket time-out in nanoseconds; 0 for none.
#[must_use]
pub fn timeout(fd: i32, name: i32) -> u64 {
    let mut tv = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    // SAFETY: integers.
    if unsafe { get(fd, libc::SOL_SOCKET, name, &mut tv) }.is_err() {
        return 0;
    }
    let secs = u64::try_from(tv.tv_sec).unwrap_or(0);
    let micros = u64::try_from(tv.tv_usec).unwrap_or(0);
    secs.saturating_mul(1_000_000_000)
        .saturating_add(micros * 1000)
}

/// Makes close send a reset.
pub fn reset_on_close(fd: i32) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    set(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger);
}

/// Whether close would reset the connection (SO_LINGER with 0 seconds).
#[must_use]
pub fn lingers_zero(fd: i32) -> bool {
    let mut linger = libc::linger {
        l_onoff: 0,
        l_linger: 0,
    };
    // SAFETY: integers.
    let r = unsafe { get(fd, libc::SOL_SOCKET, libc::SO_LINGER, &mut linger) };
    r.is_ok() && linger.l_onoff != 0 && linger.l_linger == 0
}

/// Makes the kernel wake sleepers for every byte, whatever low-water mark the program has set.
pub fn wake_at_once(fd: i32) {
    set_lowat(fd, 1);
}

/// Sets the kernel's low-water mark.
pub fn set_lowat(fd: i32, bytes: i32) {
    set(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &bytes);
}

/// Sets where the next look begins that leaves bytes where they are (`SO_PEEK_OFF`).
pub fn set_peek_offset(fd: i32, offset: usize) {
    let offset = i32::try_from(offset).unwrap_or(i32::MAX);
    set(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, &offset);
}

/// Sets an int option of TCP.
pub fn set_tcp(fd: i32, name: i32, value: bool) {
    set(fd, libc::IPPROTO_TCP, name, &i32::from(value));
}

/// Resets a connection.
pub fn disconnect(fd: i32) {
    // SAFETY: all-zero is an address of family AF_UNSPEC.
    let nowhere: libc::sockaddr = unsafe { std::mem::zeroed() };
    // SAFETY: the address is valid for its size.
    let _ = unsafe { syscall!(connect, fd, &raw const nowhere, size_of::<libc::sockaddr>()) };
}

/// Creates a socket of our own: non-blocking, close-on-exec.
///
/// # Errors
/// As socket(2).
pub fn socket(family: i32, kind: i32, protocol: i32) -> Result<Fd> {
    let kind = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    unsafe { syscall!(socket, family, kind, protocol) }.map(|r| Fd::own(as_fd(r)))
}
