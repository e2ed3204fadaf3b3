//! Making, naming, accepting and connecting sockets.
//!
//! Here descriptors begin to be followed: a TCP socket that was made or accepted gets its entry in the
//! table, a listener its board, a connecting one its target. The rule: whatever the kernel says is the
//! program's answer, and `errno` is as the kernel left it.

use crate::real::{self, set_errno};
use crate::signals::since::Since;
use crate::sockets::demote::{Unread, demote};
use crate::sockets::{
    Phase, Socket, accept, apart, close, connecting, listener, operator, parked, residual, wired,
};
use crate::world::World;
use crate::{mapper, poll, signals, table, world};
use std::ffi::c_int;
use std::sync::atomic::Ordering;
use transport::reason::Reason;
use transport::sys::net::{self, Endpoint};

/// Notes a descriptor that has just been made: whatever its number stood for is gone.
pub(super) fn made(fd: c_int) -> c_int {
    poll::had(fd);
    if fd >= 0 && !matches!(table::find(fd), table::Entry::None | table::Entry::Hidden) {
        let e = real::errno();
        close::forget(fd);
        set_errno(e);
    }
    fd
}

/// Whether a descriptor can be followed. In a sandbox none that is new: what that takes may kill the program. Nor one that the process
/// does not have, but this thread.
pub(super) fn can_follow(fd: c_int) -> bool {
    table::can_hold(fd) && world::is_ready() && !signals::is_sandboxed() && !apart::is_own()
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
    let kernel = || unsafe { real::listen(fd, backlog) };
    if table::socket(fd).is_none() {
        let e = real::errno();
        listener::take_on(fd);
        set_errno(e);
    }
    listener::touched(fd);
    let is_idle = |s: &&Socket| s.phase() == Phase::Idle && !signals::is_sandboxed();
    let Some(s) = table::socket(fd).filter(is_idle) else {
        return kernel();
    };
    // A client may find the listener as soon as the kernel has it, and takes one without a board, or a mark, for plain. (Where it
    // listens is not known before if the kernel is to choose the port.)
    let bound = net::local(fd).is_some_and(|at| at.port != 0);
    if bound {
        mapper::listening(fd);
    }
    let early =
        listener::early(s).or_else(|| bound.then(|| listener::put_up(&mut world::lock(), fd)));
    let r = kernel();
    let e = real::errno();
    let mut w = world::lock();
    if r == 0 && is_idle(&s) {
        let family = early.unwrap_or_else(|| listener::put_up(&mut w, fd));
        listener::listens(s, fd, family);
    } else if let Some(Ok(unused)) = early {
        listener::take_down(&mut w, unused); // it failed, or another thread was faster
    }
    drop(w);
    match r {
        0 if !bound => mapper::listening(fd),
        0 => {}
        _ if bound => mapper::closed(fd),
        _ => {}
    }
    set_errno(e);
    r
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

/// A connection was accepted from a listener that another program has made and left to this one (by exec). A rule that names
/// iWARP lets clients ask all the same, and what they ask is not for the program to see.
fn take_in_unlisted(new: c_int, nonblock: bool) {
    if new < 0 || !table::can_hold(new) || !world::is_ready() || !wired::is_named_at(new) {
        return;
    }
    let e = real::errno();
    let mut w = world::lock();
    if let Some(s) = follow(&mut w, new, nonblock) {
        s.record.role.store(2, Ordering::Relaxed);
        if let Some(peer) = net::peer(new) {
            s.record.set_peer(&peer);
        }
        wired::begin_as_server(s);
    }
    drop(w);
    wired::overdue::attend();
    set_errno(e);
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
    since: Since,
    mut kernel: impl FnMut(*mut libc::sockaddr, *mut libc::socklen_t) -> c_int,
) -> c_int {
    use crate::probe::{Access, is_good};
    // (in a sandbox only what may be asked for software iWARP by clients that do not know: the question is not for the program)
    let is_followed = |l: &&Socket| !signals::is_sandboxed() || listener::is_wired(l);
    let Some(l) = table::socket(fd).filter(is_followed) else {
        let new = made(operator::patiently(None, |_| kernel(addr, len)));
        take_in_unlisted(new, nonblock);
        return new;
    };
    if l.phase() == Phase::Idle {
        listener::serve(l, fd);
    }
    mapper::attend();
    let lis = accept::Lis::of(l);
    let mut own = Caller::new();
    let (addr, len) = if addr.is_null() {
        ((&raw mut own.storage).cast(), &raw mut own.len)
    } else {
        (addr, len)
    };
    // SAFETY: probed, or ours.
    let room = is_good(len.cast(), 4, Access::Read).then(|| unsafe { len.read_unaligned() });
    let new = match accept::waiting(l, fd, since, || kernel(addr, len)) {
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
    if table::can_hold(new) && world::is_ready() && !apart::is_own() {
        let e = real::errno();
        if !signals::is_sandboxed() {
            super::process::goes_round();
        }
        let peer = room.and_then(|room| {
            // SAFETY: the kernel has just written both, the address no longer than the room for it.
            unsafe { Endpoint::from_raw(addr, room.min(len.read_unaligned()) as usize) }
        });
        let mut w = world::lock();
        if let Some(s) = follow(&mut w, new, nonblock) {
            accept::begin(&mut w, &lis, s, new, peer);
        }
        drop(w);
        wired::overdue::attend();
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
    let since = Since::now();
    parked::let_go();
    // SAFETY: the program's arguments, passed on.
    super::threads::may_cancel(|| unsafe {
        accept_by(fd, addr, len, false, since, |a, n| real::accept(fd, a, n))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    addr: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
    flags: c_int,
) -> c_int {
    let since = Since::now();
    parked::let_go();
    let nonblock = flags & libc::SOCK_NONBLOCK != 0;
    // SAFETY: the program's arguments, passed on.
    super::threads::may_cancel(|| unsafe {
        accept_by(fd, addr, len, nonblock, since, |a, n| {
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
    let readable = crate::probe::is_good(addr.cast(), len as usize, crate::probe::Access::Read);
    // SAFETY: probed.
    let family = || unsafe { addr.cast::<libc::sa_family_t>().read_unaligned() };
    if readable && len >= 2 && c_int::from(family()) == libc::AF_UNSPEC {
        return disconnect(s, fd, kernel);
    }
    if s.phase() != Phase::Idle || signals::is_sandboxed() {
        return kernel();
    }
    // SAFETY: probed.
    let Some(address) = readable
        .then(|| unsafe { Endpoint::from_raw(addr, len as usize) })
        .flatten()
    else {
        return kernel();
    };
    listener::is_none(s);
    super::threads::may_cancel(|| {
        let driven = super::control::is_driven(fd).then_some(Reason::AsyncIo);
        let target = match driven.or_else(super::process::goes_round) {
            Some(why) => Err(why),
            None => connecting::prepare(s, &address),
        };
        let r = kernel();
        let e = real::errno();
        let begun = r == 0 || matches!(e, libc::EINPROGRESS | libc::EINTR);
        let target = connecting::looked_again(s, fd, target, begun);
        connecting::done(s, target, begun);
        set_errno(e);
        r
    })
}

/// connect to nothing: the kernel resets the connection, and forgets what was not read. The socket is as one that has just been made.
/// (Where it has other names, or is watched, whatever it is used for after that is the kernel's.)
fn disconnect(s: &'static Socket, fd: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    let was = s.phase();
    if matches!(was, Phase::Idle | Phase::Listening) {
        return kernel();
    }
    let e = real::errno();
    if was != Phase::Plain {
        demote(s, fd, Reason::SocketOption, Unread::Keep);
    }
    residual::drop_all(s);
    s.eof_told.store(false, Ordering::Release);
    set_errno(e);
    let r = kernel();
    let alone = s.refs.load(Ordering::Acquire) == 1
        && s.waiters.load(Ordering::Acquire) == 0
        && s.set_count.load(Ordering::Acquire) == 0
        && !s.is_shared();
    if r == 0 && alone && s.phase() == Phase::Plain && can_follow(fd) {
        close::forget(fd);
        listener::take_on(fd);
        set_errno(e);
    }
    r
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
