//! How a socket becomes a listener that clients with the library find: its board.
//!
//! - By listen(2), of a socket that this program has made.
//! - One that another has made, and left to this program by exec (a new version of a server that takes over, systemd's sockets)
//!   or passed to it: noted when it comes ([`note`], [`note_all`]), and a listener like any other as soon as the program shows
//!   that it is the one that serves ([`serve`]): it listens, asks for an option or sets one, accepts. A shell on the way has it
//!   too, and must not take what the server needs.
//!
//! Called by the hooks of listen, accept, getsockopt and setsockopt, of what brings descriptors, and by the constructor.

use super::{Phase, Socket, Way, options, wired};
use crate::world::{self, World};
use crate::{mapper, real, rules, table};
use std::sync::atomic::{AtomicBool, Ordering};
use transport::reason::Reason;
use transport::rendezvous::server::Family;
use transport::sys::{self, net};

/// Numbers that a new program looks at.
const NUMBERS: i32 = 128;

/// There may be some that are noted, and do not serve yet.
static ANY: AtomicBool = AtomicBool::new(false);

/// Puts up the board of a listener, or says why it has none. Not for longer than that under the registry lock: what a program
/// has put under listen(2) may want that.
pub(crate) fn put_up(w: &mut World, fd: i32) -> Result<u32, Reason> {
    let family = rules::listen(fd).and_then(|()| Family::open(fd))?;
    let free = w.families.iter().position(Option::is_none);
    let index = free.unwrap_or(w.families.len());
    match w.families.get_mut(index) {
        Some(slot) => *slot = Some(family),
        None => w.families.push(Some(family)),
    }
    u32::try_from(index).map_err(|_| Reason::NoMemory)
}

/// Whether what a listener accepts may ask for software iWARP.
pub(crate) fn is_wired(l: &Socket) -> bool {
    let _w = world::lock();
    // SAFETY: under the registry lock.
    matches!(unsafe { *l.way.get() }, Way::Listener { wired: true, .. })
}

/// Takes down one that was put up for nothing.
pub(crate) fn take_down(w: &mut World, family: u32) {
    if let Some(slot) = w.families.get_mut(family as usize)
        && let Some(mut unused) = slot.take()
    {
        unused.part();
    }
}

/// A socket listens. Under the registry lock.
pub(crate) fn listens(s: &Socket, fd: i32, family: Result<u32, Reason>) {
    // SAFETY: under the registry lock.
    unsafe {
        *s.way.get() = Way::Listener {
            family,
            wired: wired::is_wanted_at(fd),
            rides: rules::listen_wanted(fd).rides,
        }
    };
    s.set_phase(Phase::Listening);
}

/// There may be some that have a board before they listen.
static EARLY: AtomicBool = AtomicBool::new(false);

/// Notes the listeners that this program has begun with.
pub(crate) fn note_all() {
    for fd in 0..NUMBERS {
        note(fd);
    }
}

/// Notes a descriptor that has come from elsewhere, if it is a listener. Nothing is done for it yet.
pub(crate) fn note(fd: i32) {
    if !table::can_hold(fd)
        || crate::signals::is_sandboxed()
        || table::socket(fd).is_some()
        || !is_listener(fd)
    {
        return;
    }
    let mut w = world::lock();
    if let Some(s) = w.pool.take() {
        s.nonblock.store(net::is_nonblocking(fd), Ordering::Relaxed);
        s.record.fd.store(fd.cast_unsigned(), Ordering::Relaxed);
        table::put_socket(fd, s);
        ANY.store(true, Ordering::Relaxed);
    }
}

/// The program is about to listen on a socket that the library knows nothing of: another program has made it, and given it its
/// address perhaps. It is taken on as one of this program's.
#[cold]
pub(crate) fn take_on(fd: i32) {
    let off = world::is_foreign() || !world::is_ready() || crate::signals::is_sandboxed();
    if off || !table::can_hold(fd) || !is_tcp(fd) {
        return;
    }
    let mut w = world::lock();
    if table::socket(fd).is_none()
        && let Some(s) = w.pool.take()
    {
        s.nonblock.store(net::is_nonblocking(fd), Ordering::Relaxed);
        s.record.fd.store(fd.cast_unsigned(), Ordering::Relaxed);
        options::take_over(s, fd);
        table::put_socket(fd, s);
    }
}

/// The program may be another user in a moment. What has an address and may be listened on gets its board now, and listeners that
/// were noted are served: who is about to have fewer rights serves. Only root can become anybody.
pub(crate) fn before_other_user() {
    if world::is_foreign()
        || !world::is_ready()
        || crate::signals::is_sandboxed()
        || sys::euid() != 0
    {
        return;
    }
    let e = real::errno();
    table::each(0, u32::MAX, |fd, entry| {
        if let table::Entry::Socket(s) = entry
            && s.phase() == Phase::Idle
        {
            if is_listener(fd) {
                serve(s, fd);
            } else if net::local(fd).is_some_and(|at| at.port != 0) && net::peer(fd).is_none() {
                put_up_early(s, fd);
            }
        }
    });
    real::set_errno(e);
}

/// Puts up the board of a socket that is bound, and does not listen yet.
fn put_up_early(s: &'static Socket, fd: i32) {
    let mut w = world::lock();
    // SAFETY: under the registry lock.
    let way = unsafe { &mut *s.way.get() };
    if s.phase() == Phase::Idle && matches!(way, Way::None) {
        EARLY.store(true, Ordering::Relaxed);
        *way = Way::Listener {
            family: put_up(&mut w, fd),
            wired: wired::is_wanted_at(fd),
            rides: rules::listen_wanted(fd).rides,
        };
    }
}

/// A socket that got a board before it listens is connected.
pub(crate) fn is_none(s: &Socket) {
    if let Some(Ok(unused)) = early(s) {
        take_down(&mut world::lock(), unused);
    }
}

/// The board that a socket got before it listens; taken.
pub(crate) fn early(s: &Socket) -> Option<Result<u32, Reason>> {
    if !EARLY.load(Ordering::Relaxed) {
        return None;
    }
    let _w = world::lock();
    // SAFETY: under the registry lock.
    let way = unsafe { &mut *s.way.get() };
    match *way {
        Way::Listener { family, .. } if s.phase() == Phase::Idle => {
            *way = Way::None;
            Some(family)
        }
        _ => None,
    }
}

/// Whether it is a listener of TCP.
fn is_listener(fd: i32) -> bool {
    net::option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN).is_ok_and(|v| v != 0) && is_tcp(fd)
}

fn is_tcp(fd: i32) -> bool {
    let is = |name| net::option(fd, libc::SOL_SOCKET, name);
    is(libc::SO_DOMAIN).is_ok_and(|v| matches!(v, libc::AF_INET | libc::AF_INET6))
        && is(libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP)
}

/// The program does something with this descriptor. One load, mostly.
#[inline]
pub(crate) fn touched(fd: i32) {
    if ANY.load(Ordering::Relaxed)
        && let Some(s) = table::socket(fd)
        && s.phase() == Phase::Idle
    {
        serve(s, fd);
    }
}

/// The program does something with a socket that has never listened or been connected as far as the library has seen: if it is
/// a listener that was noted, it is one like any other from now on.
#[cold]
pub(crate) fn serve(s: &'static Socket, fd: i32) {
    if world::is_foreign() || crate::signals::is_sandboxed() || !is_listener(fd) {
        return;
    }
    let e = real::errno();
    mapper::listening(fd);
    let mut w = world::lock();
    // (another thread may have been faster)
    if s.phase() == Phase::Idle {
        options::take_over(s, fd);
        let family = put_up(&mut w, fd);
        listens(s, fd, family);
    }
    drop(w);
    real::set_errno(e);
}
