//! epoll_ctl: the kernel does it first, so errors are the kernel's; then it is noted for descriptors
//! that may one day be attached.

use super::entry::{Asked, ET, EXCLUSIVE, Entry, ONESHOT, Subject};
use super::registered;
use super::set::{COMING, Set, TAG, TAG_MASK, tag};
use crate::sockets::ready::has_untold_reset;
use crate::sockets::{Phase, Socket, residual};
use crate::table::{self, Entry as Known};
use crate::{real, world};
use std::sync::atomic::Ordering;
use transport::sys::{Errno, Result};

/// What a registration would be noted for.
fn subject(fd: i32) -> Option<Subject> {
    match table::find(fd) {
        Known::Socket(s)
            if !matches!(s.phase(), Phase::Plain | Phase::Listening)
                || residual::left(s) > 0
                || has_untold_reset(s) =>
        {
            Some(Subject::Socket(s, s.generation.load(Ordering::Acquire)))
        }
        Known::Set(inner) => Some(Subject::Set(inner)),
        _ => None,
    }
}

/// epoll_ctl on a set of the program.
///
/// # Safety
/// `event` is the program's pointer; null or readable.
pub(crate) unsafe fn ctl(
    set: &'static Set,
    ep: i32,
    op: i32,
    fd: i32,
    event: *mut libc::epoll_event,
) -> Result<usize> {
    // SAFETY: the program's arguments.
    let kernel = || real::result(unsafe { real::epoll_ctl(ep, op, fd, event) } as isize);
    set.settle_inherited();
    if event.is_null() && op != libc::EPOLL_CTL_DEL {
        return kernel();
    }
    match op {
        libc::EPOLL_CTL_ADD => {
            // SAFETY: not null; the program's.
            let ev = unsafe { event.read_unaligned() };
            set.keep_plain(fd);
            let Some(subject) = subject(fd) else {
                let _adding = set.adding();
                return noting_edges(set, ev.events, other(set, op, fd, ev, kernel));
            };
            let _adding = set.adding();
            if let Subject::Socket(s, _) = subject {
                match registered::unpark(set, fd, s, ev.events, ev.u64) {
                    Some(true) => return Ok(0),
                    Some(false) => return Err(Errno(refused(ev.events))),
                    None => {}
                }
            }
            let mut w = world::lock();
            // (not in a handler that has interrupted a holder of the set's lock: nothing could be noted then)
            let managed = matches!(subject, Subject::Socket(s, _) if registered::is_to_be_managed(s, ev.events))
                && set.lock().is_some();
            if managed {
                set.kernel_says(op, fd, ev.events, TAG | COMING as u64)?;
            } else {
                kernel()?;
            }
            if let Some(l) = set.lock()
                && let Some(stale) = l.index_of(fd)
            {
                drop(l);
                let _ = stale;
                registered::remove(&mut w, set, fd); // closed by something we did not see
            }
            match subject {
                Subject::Socket(s, _) => {
                    registered::add(&mut w, set, s, fd, (ev.events, ev.u64), managed);
                }
                _ => add_set(set, subject, fd, ev),
            }
            Ok(0)
        }
        libc::EPOLL_CTL_MOD => {
            // SAFETY: not null; the program's.
            let ev = unsafe { event.read_unaligned() };
            modify(set, fd, ev, kernel)
        }
        libc::EPOLL_CTL_DEL => {
            if let Some(s) = table::socket(fd) {
                match registered::park(set, fd, s) {
                    Some(true) => return Ok(0),
                    Some(false) => return Err(Errno(libc::ENOENT)),
                    None => {}
                }
            }
            let known = set.lock().is_some_and(|l| l.index_of(fd).is_some());
            if !known {
                return kernel();
            }
            let mut w = world::lock();
            kernel()?;
            registered::remove(&mut w, set, fd);
            Ok(0)
        }
        _ => kernel(),
    }
}

/// What adding what is there already is told: the kernel looks at what is to go with EPOLLEXCLUSIVE first.
const fn refused(events: u32) -> i32 {
    const WITH_EXCLUSIVE: u32 = EXCLUSIVE
        | ET
        | (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP | libc::EPOLLWAKEUP)
            .cast_unsigned();
    if events & EXCLUSIVE != 0 && events & !WITH_EXCLUSIVE != 0 {
        libc::EINVAL
    } else {
        libc::EEXIST
    }
}

/// A set inside a set: ours from the start, since only we know whether it is ready.
fn add_set(set: &'static Set, subject: Subject, fd: i32, ev: libc::epoll_event) {
    if let Some(mut l) = set.lock() {
        let mut e = Entry::new(subject, fd, ev.events, ev.u64);
        e.asked = Asked::Ours;
        set.engage(&mut e);
        let index = l.insert(e);
        let events = libc::EPOLLIN.cast_unsigned() | ET;
        let tag = l.tag(index);
        set.kernel(libc::EPOLL_CTL_MOD, fd, events, tag);
        l.heat(index);
        if let Some(e) = l.entry(index) {
            set.kick_for_other(e);
        }
    }
}

/// Notes a registration that the kernel tells of once only, and that is not known here, or goes to the program as it is.
fn note_edges(set: &Set, events: u32) {
    if events & (ET | ONESHOT) != 0 {
        set.edgy.store(true, Ordering::Relaxed);
    }
}

/// As [`note_edges`], if the kernel has taken it.
fn noting_edges(set: &Set, events: u32, done: Result<usize>) -> Result<usize> {
    if done.is_ok() {
        note_edges(set, events);
    }
    done
}

/// A registration that only the kernel knows, unless its data would be taken for one of our tags.
fn other(
    set: &'static Set,
    op: i32,
    fd: i32,
    ev: libc::epoll_event,
    kernel: impl Fn() -> Result<usize>,
) -> Result<usize> {
    let data = ev.u64;
    if data & TAG_MASK != TAG {
        return kernel();
    }
    let _w = world::lock();
    let mut l = set.lock().ok_or(Errno::AGAIN)?;
    let mut e = Entry::new(Subject::Other, fd, ev.events, data);
    e.asked = Asked::Ours;
    let index = l.insert(e);
    let tag = l.tag(index);
    if set.kernel(op, fd, ev.events, tag) {
        if let Some(e) = l.entry(index) {
            set.engage(e);
        }
        return Ok(0);
    }
    l.remove(index);
    drop(l);
    kernel()
}

fn modify(
    set: &'static Set,
    fd: i32,
    ev: libc::epoll_event,
    kernel: impl Fn() -> Result<usize>,
) -> Result<usize> {
    let (events, data) = (ev.events, ev.u64);
    let Some(mut l) = set.lock() else {
        note_edges(set, events);
        return kernel();
    };
    let Some(index) = l.index_of(fd) else {
        drop(l);
        let _adding = set.adding();
        let done = if data & TAG_MASK == TAG {
            other(set, libc::EPOLL_CTL_MOD, fd, ev, kernel)
        } else {
            kernel()
        };
        return noting_edges(set, events, done);
    };
    let Some(e) = l.entry(index) else {
        return kernel();
    };
    let stale = match e.subject {
        Subject::Socket(..) => !is_same(e, fd),
        Subject::Set(inner) => !table::set(fd).is_some_and(|s| std::ptr::eq(s, inner)),
        Subject::Other => false,
    };
    if stale {
        note_edges(set, events);
        return kernel();
    }
    match e.subject {
        Subject::Socket(..) if e.parked => Err(Errno(libc::ENOENT)),
        Subject::Set(_) => {
            e.modify(events, data);
            set.kick_for_other(e);
            l.heat(index);
            Ok(0)
        }
        Subject::Socket(..) if e.is_managed() => {
            if (events | e.events) & EXCLUSIVE != 0 {
                return Err(Errno::INVAL);
            }
            e.modify(events, data);
            registered::modified(set, &mut l, index);
            Ok(0)
        }
        Subject::Other => {
            note_edges(set, events);
            if set.kernel(libc::EPOLL_CTL_MOD, fd, events, tag(index, e.turn)) {
                e.modify(events, data);
                return Ok(0);
            }
            kernel()
        }
        Subject::Socket(s, _) if registered::is_to_be_held(set, s, e.events | events) => {
            registered::hold(set, &mut l, index, (events, data))
        }
        _ => {
            kernel()?;
            e.modify(events, data);
            if e.is_counted() {
                set.kick_for_other(e);
                l.heat(index);
            }
            Ok(0)
        }
    }
}

fn is_same(e: &Entry, fd: i32) -> bool {
    let known: Option<&'static Socket> = table::socket(fd);
    matches!((e.socket(), known), (Some(a), Some(b)) if std::ptr::eq(a, b))
}
