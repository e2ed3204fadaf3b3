//! Registrations that the program has deleted, kept in case that they come back: event loops delete and add for every message.

use super::super::entry::{ALWAYS, Asked, ET, EXCLUSIVE};
use super::super::set::{Membership, Set};
use super::{modified, remove};
use crate::sockets::{Socket, wired};
use crate::table;
use crate::world::World;

/// A socket is added to a set: others that keep a registration of it in case that it comes back have waited in vain, and
/// would count as watching it.
pub(super) fn forget_parked(w: &mut World, s: &'static Socket, except: *const Set) {
    if !wired::is_wired(s) {
        return; // (only the event of a ring cares how many there are)
    }
    let parked = |m: &Membership| {
        let mut l = m.set.lock()?;
        let e = l.entry(m.index)?;
        let gone = e.parked && !std::ptr::eq(m.set, except);
        gone.then_some((m.set, e.fd))
    };
    // SAFETY: under the registry lock.
    while let Some((set, fd)) = unsafe { &*s.sets.get() }.iter().find_map(parked) {
        // (unless the number is another's by now, which may be in the set too)
        if table::socket(fd).is_some_and(|x| std::ptr::eq(x, s)) {
            set.kernel(libc::EPOLL_CTL_DEL, fd, 0, 0);
        }
        remove(w, set, fd);
    }
}

/// Deletes a registration that is ours in the kernel without going there. False if it is not.
pub(crate) fn park(set: &'static Set, fd: i32, s: &'static Socket) -> Option<bool> {
    let mut l = set.lock()?;
    let index = l.index_of(fd)?;
    let e = l.entry(index)?;
    let ours = e.asked == Asked::Ours
        && s.phase().is_fast()
        && e.events & EXCLUSIVE == 0
        && e.socket().is_some_and(|x| std::ptr::eq(x, s));
    if !ours {
        return None;
    }
    Some(!std::mem::replace(&mut e.parked, true))
}

/// What may stand beside EPOLLEXCLUSIVE.
const WITH_EXCLUSIVE: u32 =
    EXCLUSIVE | ET | ALWAYS | (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLWAKEUP).cast_unsigned();

/// Adds again what was parked. `Some(false)`: it is there already.
pub(crate) fn unpark(
    set: &'static Set,
    fd: i32,
    s: &'static Socket,
    events: u32,
    data: u64,
) -> Option<bool> {
    if events & EXCLUSIVE != 0 && events & !WITH_EXCLUSIVE != 0 {
        return None; // which the kernel refuses, before it looks whether it is there
    }
    let mut l = set.lock()?;
    let index = l.index_of(fd)?;
    let e = l.entry(index)?;
    let same = e.socket().is_some_and(|x| std::ptr::eq(x, s));
    if e.parked && (events & EXCLUSIVE != 0 || !same) {
        // The kernel's registration is in the way of one that it has to make itself.
        set.kernel(libc::EPOLL_CTL_DEL, fd, 0, 0);
        return None;
    }
    if !e.is_managed() || !same {
        return None;
    }
    if !std::mem::take(&mut e.parked) {
        return Some(false);
    }
    e.modify(events, data);
    modified(set, &mut l, index);
    Some(true)
}
