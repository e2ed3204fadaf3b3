//! Making, naming and ending connections, and their options.

use crate::real::{self, set_errno};
use crate::sockets::demote::{Unread, attend, demote};
use crate::sockets::ending::{Ending, ending, settle_both_shut};
use crate::sockets::{
    Phase, Socket, Way, accept, close, engage, operator, options, parked, recv, rouse, send,
};
use crate::world::World;
use crate::{table, world};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use transport::reason::Reason;
use transport::rendezvous::server::Family;
use transport::sys::net::Endpoint;

/// ioctl(2): whether the reader has come to urgent data.
const SIOCATMARK: u64 = 0x8905;

/// Notes a descriptor that has just been made: whatever its number stood for is gone.
pub(super) fn made(fd: c_int) -> c_int {
    if fd >= 0 && !matches!(table::find(fd), table::Entry::None | table::Entry::Hidden) {
        let e = real::errno();
        close::forget(fd);
        set_errno(e);
    }
    fd
}

/// Whether a descriptor can be followed.
fn can_follow(fd: c_int) -> bool {
    table::can_hold(fd) && world::is_ready()
}

/// Starts to follow a TCP socket.
pub(super) fn follow(w: &mut World, fd: c_int, nonblock: bool) -> Option<&'static Socket> {
    let s = w.pool.take()?;
    s.nonblock.store(nonblock, Ordering::Relaxed);
    s.record.fd.store(fd.cast_unsigned(), Ordering::Relaxed);
    table::put_socket(fd, s);
    Some(s)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the program's arguments, passed on.
    let fd = made(unsafe { real::socket(family, kind, protocol) });
    let stream = kind & 0xf == libc::SOCK_STREAM;
    let tcp = matches!(family, libc::AF_INET | libc::AF_INET6)
        && matches!(protocol, 0 | libc::IPPROTO_TCP);
    if fd >= 0 && stream && tcp && can_follow(fd) {
        let e = real::errno();
        follow(&mut world::lock(), fd, kind & libc::SOCK_NONBLOCK != 0);
        set_errno(e);
    }
    fd
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn socketpair(
    family: c_int,
    kind: c_int,
    protocol: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: the program's arguments, passed on.
    let r = unsafe { real::socketpair(family, kind, protocol, out) };
    if r == 0 {
        // SAFETY: the kernel has just written both.
        unsafe {
            made(*out);
            made(*out.add(1));
        }
    }
    r
}

/// Nothing to note: a name changes nothing before the socket listens or connects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(
    fd: c_int,
    addr: *const libc::sockaddr,
    len: libc::socklen_t,
) -> c_int {
    // SAFETY: the program's arguments, passed on.
    unsafe { real::bind(fd, addr, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: the program's arguments, passed on.
    let r = unsafe { real::listen(fd, backlog) };
    if r == 0
        && let Some(s) = table::socket(fd)
        && s.phase() == Phase::Idle
    {
        let e = real::errno();
        listening(s, fd);
        set_errno(e);
    }
    r
}

/// Puts up the board of a listener.
fn listening(s: &'static Socket, fd: c_int) {
    let mut w = world::lock();
    let family = if world::settings().shm {
        Family::open(fd).ok()
    } else {
        None
    };
    let index = family.and_then(|f| {
        let free = w.families.iter().position(Option::is_none);
        let index = free.unwrap_or(w.families.len());
        match w.families.get_mut(index) {
            Some(slot) => *slot = Some(f),
            None => w.families.push(Some(f)),
        }
        u32::try_from(index).ok()
    });
    // SAFETY: under the registry lock.
    unsafe { *s.way.get() = Way::Listener { family: index } };
    s.set_phase(Phase::Listening);
}

/// Room for the other end's address, where the program does not ask for it.
struct Caller {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl Caller {
    const fn new() -> Self {
        Self {
            // SAFETY: all-zero is a valid sockaddr_storage.
            storage: unsafe { std::mem::zeroed() },
            len: 128, // its size
        }
    }
}

/// accept, by `kernel`, which is told where the other end's address shall go: to the program, if it
/// asks, else to us, since it costs next to nothing here and a call later.
///
/// # Safety
/// `addr` and `len` are the program's, for the kernel to check.
unsafe fn accept_by(
    fd: c_int,
    addr: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
    nonblock: bool,
    mut kernel: impl FnMut(*mut libc::sockaddr, *mut libc::socklen_t) -> c_int,
) -> c_int {
    use crate::probe::{Access, is_good};
    let Some(l) = table::socket(fd) else {
        return made(operator::patiently(None, |_| kernel(addr, len)));
    };
    let mut own = Caller::new();
    let (addr, len) = if addr.is_null() {
        ((&raw mut own.storage).cast(), &raw mut own.len)
    } else {
        (addr, len)
    };
    // SAFETY: probed, or ours.
    let room = is_good(len.cast(), 4, Access::Read).then(|| unsafe { len.read_unaligned() });
    let new = match accept::waiting(l, fd, || kernel(addr, len)) {
        Ok(new) => new,
        Err(e) => {
            set_errno(e.0);
            return -1;
        }
    };
    if new < 0 {
        return new;
    }
    made(new);
    if can_follow(new) {
        let e = real::errno();
        let peer = room.and_then(|room| {
            // SAFETY: the kernel has just written both, the address no longer than the room for it.
            unsafe { Endpoint::from_raw(addr, room.min(len.read_unaligned()) as usize) }
        });
        let mut w = world::lock();
        if let Some(s) = follow(&mut w, new, nonblock) {
            accept::begin(&mut w, l, s, peer);
        }
        drop(w);
        set_errno(e);
    }
    new
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(
    fd: c_int,
    addr: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
) -> c_int {
    parked::let_go();
    // SAFETY: the program's arguments, passed on.
    super::threads::may_cancel(|| unsafe {
        accept_by(fd, addr, len, false, |a, n| real::accept(fd, a, n))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    addr: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
    flags: c_int,
) -> c_int {
    parked::let_go();
    let nonblock = flags & libc::SOCK_NONBLOCK != 0;
    // SAFETY: the program's arguments, passed on.
    super::threads::may_cancel(|| unsafe {
        accept_by(fd, addr, len, nonblock, |a, n| {
            real::accept4(fd, a, n, flags)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(
    fd: c_int,
    addr: *const libc::sockaddr,
    len: libc::socklen_t,
) -> c_int {
    parked::let_go();
    // SAFETY: the program's arguments, passed on.
    let kernel = || unsafe { real::connect(fd, addr, len) };
    let Some(s) = table::socket(fd) else {
        return kernel();
    };
    if s.phase() != Phase::Idle {
        return kernel();
    }
    let readable = crate::probe::is_good(addr.cast(), len as usize, crate::probe::Access::Read);
    // SAFETY: probed.
    let Some(address) = readable
        .then(|| unsafe { Endpoint::from_raw(addr, len as usize) })
        .flatten()
    else {
        return kernel();
    };
    super::threads::may_cancel(|| {
        let target = if is_driven(fd) {
            Err(Reason::AsyncIo)
        } else {
            engage::connecting(s, &address)
        };
        let r = kernel();
        let e = real::errno();
        let begun = r == 0 || matches!(e, libc::EINPROGRESS | libc::EINTR);
        engage::connected(s, target, begun);
        set_errno(e);
        r
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __connect(
    fd: c_int,
    addr: *const libc::sockaddr,
    len: libc::socklen_t,
) -> c_int {
    // SAFETY: an alias.
    unsafe { connect(fd, addr, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    // SAFETY: the program's arguments, passed on.
    let kernel = |how: c_int| unsafe { real::shutdown(fd, how) };
    let Some(s) = table::socket(fd) else {
        return kernel(how);
    };
    if !matches!(s.phase(), Phase::Attached | Phase::Announced) {
        if s.phase() == Phase::Fresh {
            // The kernel's FIN would come before bytes of a fast leg: stay.
            demote(s, fd, Reason::Undecided, Unread::Keep);
        }
        return kernel(how);
    }
    engage::step(s, fd);
    if s.phase() == Phase::Announced {
        demote(s, fd, Reason::PeerSilent, Unread::Keep);
        if s.phase() != Phase::Attached {
            return kernel(how);
        }
    }
    // Where the other end is back on the kernel already, a word in the segment would not be read.
    attend(s, fd);
    if s.phase() != Phase::Attached {
        return kernel(how);
    }
    if s.segment().is_some_and(|p| ending(s, p) == Ending::Reset) {
        return kernel(how); // it knows of the reset, and says that there is no connection
    }
    match how {
        libc::SHUT_RD => {
            s.rx_shut.swap(true, Ordering::SeqCst);
            // A kernel half that is shut shows readable for ever, and no bell can wake anybody there any
            // more: it is shut only for those who already sleep on it, or where the kernel's word counts.
            recv::check_kernel(s, fd);
            let watched = s.set_count.load(Ordering::Acquire) > 0;
            if s.sleepers() == 0 && !watched && !s.is_over() {
                return 0;
            }
            s.woken_hard.store(true, Ordering::Release);
            kernel(libc::SHUT_RD)
        }
        libc::SHUT_WR => {
            s.tx_shut.store(true, Ordering::Release);
            // While the fast leg is open the kernel's half stays open too: it carries our bells.
            if s.fin_sent.load(Ordering::Acquire) {
                return kernel(libc::SHUT_WR);
            }
            let shut = send::finish(s, fd);
            wake_senders(s, fd);
            if let Some(p) = s.segment() {
                settle_both_shut(s, p, fd);
            }
            match shut {
                Ok(true) => {
                    // It may have gone back while the word was written: one of the two sees the other.
                    fence(Ordering::SeqCst);
                    attend(s, fd);
                    0
                }
                _ => kernel(libc::SHUT_WR),
            }
        }
        libc::SHUT_RDWR => {
            s.rx_shut.store(true, Ordering::Release);
            s.tx_shut.store(true, Ordering::Release);
            s.woken_hard.store(true, Ordering::Release);
            let _ = send::finish(s, fd);
            kernel(libc::SHUT_RDWR)
        }
        _ => kernel(how),
    }
}

/// Threads that sleep for room have to notice that there will be none. Without an event for them they
/// sleep on the kernel connection alone, which only its end wakes.
fn wake_senders(s: &'static Socket, fd: c_int) {
    rouse::all(s);
    if rouse::event().is_none() && s.sleepers() > 0 {
        s.woken_hard.store(true, Ordering::Release);
        // SAFETY: no pointers.
        let _ = unsafe { transport::syscall!(shutdown, fd, libc::SHUT_RD) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut libc::socklen_t,
) -> c_int {
    // The descriptor is the kernel's own connection: nearly every answer is right as it is.
    // SAFETY: the program's arguments, passed on.
    let r = unsafe { real::getsockopt(fd, level, name, value, len) };
    let ours = matches!(
        (level, name),
        (libc::SOL_SOCKET, libc::SO_ERROR | libc::SO_RCVLOWAT)
            | (libc::IPPROTO_TCP, libc::TCP_NODELAY | libc::TCP_CORK)
    );
    if r == 0
        && ours
        && let Some(s) = table::socket(fd)
        // SAFETY: the kernel has just written both.
        && unsafe { len.read_unaligned() } == 4
    {
        let at: *mut c_int = value.cast();
        // SAFETY: as above.
        unsafe { at.write_unaligned(options::correct(s, level, name, at.read_unaligned())) };
    }
    r
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: libc::socklen_t,
) -> c_int {
    // SAFETY: the program's arguments, passed on.
    let r = unsafe { real::setsockopt(fd, level, name, value, len) };
    if r == 0
        && let Some(s) = table::socket(fd)
    {
        // SAFETY: the kernel has just read that much there.
        let value = (len >= 4).then(|| unsafe { value.cast::<c_int>().read_unaligned() });
        options::was_set(s, fd, level, name, value);
    }
    r
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: usize, arg: usize) -> c_int {
    // SAFETY: the program's arguments, passed on.
    let kernel = || unsafe { real::ioctl(fd, request, arg) };
    let Some(s) = table::socket(fd) else {
        return kernel();
    };
    let at: *mut c_int = std::ptr::with_exposed_provenance_mut(arg);
    let writable = || crate::probe::is_good(at.cast(), 4, crate::probe::Access::Write);
    match request as u64 {
        libc::FIONBIO => {
            let r = kernel();
            if r == 0 {
                // SAFETY: the kernel has just read it.
                s.nonblock
                    .store(unsafe { at.read_unaligned() } != 0, Ordering::Relaxed);
            }
            r
        }
        libc::FIONREAD
            if matches!(s.phase(), Phase::Attached | Phase::Announced | Phase::Plain)
                && writable() =>
        {
            engage::step(s, fd);
            let n = options::unread(s, fd);
            // SAFETY: probed.
            unsafe { at.write_unaligned(c_int::try_from(n).unwrap_or(c_int::MAX)) };
            0
        }
        libc::TIOCOUTQ => match options::unsent(s) {
            Some(n) if writable() => {
                // SAFETY: probed.
                unsafe { at.write_unaligned(c_int::try_from(n).unwrap_or(c_int::MAX)) };
                0
            }
            _ => kernel(),
        },
        SIOCATMARK if writable() => {
            crate::sockets::demote::attend(s, fd);
            if !options::is_before_kernel(s) {
                return kernel();
            }
            // The mark, if there is one, is further on.
            // SAFETY: probed.
            unsafe { at.write_unaligned(0) };
            0
        }
        libc::FIOASYNC => {
            drive(s, fd);
            kernel()
        }
        _ => kernel(),
    }
}

/// fcntl, with its third argument as a word: right on every Linux this builds for, and never looked at
/// for commands that have none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, cmd: c_int, arg: usize) -> c_int {
    if table::is_hidden(fd) {
        set_errno(libc::EBADF);
        return -1;
    }
    // SAFETY: the program's arguments, passed on.
    let r = unsafe { real::fcntl(fd, cmd, arg) };
    if r < 0 {
        return r;
    }
    match cmd {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => super::fds::duplicated(fd, r),
        libc::F_SETFL => {
            if let Some(s) = table::socket(fd) {
                let nonblock = arg & libc::O_NONBLOCK.cast_unsigned() as usize != 0;
                s.nonblock.store(nonblock, Ordering::Relaxed);
                if arg & libc::O_ASYNC.cast_unsigned() as usize != 0 {
                    drive(s, fd);
                }
            }
        }
        _ => {}
    }
    r
}

/// Some socket was made to tell of arrivals by signals (O_ASYNC) before it was connected.
static DRIVEN: AtomicBool = AtomicBool::new(false);

/// The kernel sends a signal for what arrives on this socket, so that has to arrive by the kernel.
fn drive(s: &'static Socket, fd: c_int) {
    if s.phase() == Phase::Idle {
        DRIVEN.store(true, Ordering::Relaxed);
    }
    demote(s, fd, Reason::AsyncIo, Unread::GiveBack);
}

fn is_driven(fd: c_int) -> bool {
    // SAFETY: no pointers.
    let flags = || unsafe { transport::syscall!(fcntl, fd, libc::F_GETFL) };
    DRIVEN.load(Ordering::Relaxed)
        && flags().is_ok_and(|f| f & libc::O_ASYNC.cast_unsigned() as usize != 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, cmd: c_int, arg: usize) -> c_int {
    // SAFETY: an alias.
    unsafe { fcntl(fd, cmd, arg) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __fcntl(fd: c_int, cmd: c_int, arg: usize) -> c_int {
    // SAFETY: an alias.
    unsafe { fcntl(fd, cmd, arg) }
}
