//! What becomes of a socket's registrations as it goes through its life: offered, attached, back on the
//! kernel, closed; and how the program's own calls (`ctl`) change them. Called with the registry lock held,
//! but for what says otherwise.
//!
//! Rule: the kernel's registration and ours change together, under the set's lock.

mod keeping;
mod telling;

pub(crate) use keeping::{park, unpark};
pub(crate) use telling::{kick_others, kick_owed, shut, tell_again, tell_of_data};

use super::callers;
use super::entry::{Asked, EXCLUSIVE, Entry, ONESHOT, Subject};
use super::set::{Locked, Membership, RING, Set, tag};
use super::ticket::{self, Taker};
use super::waking::wish_for_sleepers;
use crate::sockets::{Phase, Socket, ready, residual, wired};
use crate::world::World;
use keeping::forget_parked;
use std::sync::atomic::{AtomicBool, Ordering};
use transport::sys::{Errno, Result};

/// A socket is about to be attached, by a thread that has the registry lock, and sets that hold it may still have the program's own
/// registration in the kernel: there a bell looks like data.
static JOINING: AtomicBool = AtomicBool::new(false);

/// From before the peer may ring until the socket's registrations are ours. Under the registry lock.
pub(crate) struct Joining(());

impl Joining {
    pub(crate) fn begin() -> Self {
        JOINING.store(true, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        JOINING.store(false, Ordering::Release);
    }
}

/// Waits until no socket is half attached: a thread that has read what the peer rang for must not be told of the bell.
#[inline]
pub(super) fn await_joined() {
    if JOINING.load(Ordering::Acquire) {
        drop(crate::world::lock());
    }
}

/// A socket has been offered: sets that hold it watch for the answer.
pub(crate) fn announced(_w: &mut World, s: &'static Socket) {
    // SAFETY: under the registry lock.
    for m in unsafe { &*s.sets.get() } {
        if let Some(mut l) = m.set.lock() {
            let first = l.entry(m.index).is_some_and(|e| m.set.engage(e));
            l.heat(m.index);
            if let Some(e) = l.entry(m.index) {
                m.set.kick_for_new(e, first); // (the answer comes in memory, for which nobody has wished)
            }
        }
    }
}

/// A socket is attached: its registrations become ours.
pub(crate) fn attached(_w: &mut World, s: &'static Socket) {
    // SAFETY: under the registry lock.
    for m in unsafe { &*s.sets.get() } {
        manage(m);
    }
}

/// A socket that sets hold already is connected, or begins to be, and is to ask for software iWARP at its first use.
pub(crate) fn calls(s: &'static Socket) {
    if s.set_count.load(Ordering::Acquire) > 0 {
        let w = crate::world::lock();
        if callers::is_one(&w, s) {
            // SAFETY: under the registry lock.
            for m in unsafe { &*s.sets.get() } {
                callers::note(m.set, m.index);
            }
        }
    }
}

/// Makes one registration ours.
pub(crate) fn manage(m: &Membership) {
    let Some(mut l) = m.set.lock() else { return };
    let call = l.calls;
    let Some(e) = l.entry(m.index) else { return };
    let before = std::mem::replace(&mut e.asked, Asked::Ours);
    match before {
        Asked::Ours | Asked::OutOfReach => return,
        Asked::Beside => {}
        Asked::Programs => e.managed_in = call,
    }
    let tag = tag(m.index, e.turn);
    let first = e.is_counted() || m.set.engage(e);
    let sleepers = !m.set.is_ours_alone() && (first || m.set.waiters.load(Ordering::SeqCst) > 0);
    let events = if sleepers {
        wish_for_sleepers(e);
        Set::rousing(e)
    } else {
        e.kernel_events()
    };
    let changed = m.set.change(e, events, tag);
    if !changed && before == Asked::Programs {
        l.orphans += 1;
        if let Some(e) = l.entry(m.index) {
            e.orphan = true;
        }
    }
    watch_ring(m.set, &mut l, m.index, true);
    l.order(m.index);
    l.heat(m.index);
}

/// The octets of a socket may come by a ring now: its sets watch what that wakes by.
pub(crate) fn rides(_w: &mut World, s: &'static Socket) {
    // SAFETY: under the registry lock.
    for m in unsafe { &*s.sets.get() } {
        if let Some(mut l) = m.set.lock() {
            watch_ring(m.set, &mut l, m.index, true);
            l.heat(m.index);
            if let Some(e) = l.entry(m.index) {
                m.set.kick(e, m.index);
            }
        }
    }
}

/// Has the kernel watch the event of an entry's ring for us too, or not any more.
fn watch_ring(set: &'static Set, l: &mut Locked, index: usize, on: bool) {
    if let Some(e) = l.entry(index)
        && e.is_managed()
        && let Some(event) = e.socket().and_then(wired::ring_event)
    {
        if on {
            let edges = (libc::EPOLLIN | libc::EPOLLET).cast_unsigned();
            let tag = RING | tag(index, e.turn);
            // (for an entry that it has heard of, by this name or by another, the kernel says that it is there)
            e.set_unwatched(!set.kernel_has(event, edges, tag));
        } else {
            set.kernel(libc::EPOLL_CTL_DEL, event, 0, 0);
        }
    }
}

/// A socket is on kernel TCP for good: its registrations are the program's own again.
pub(crate) fn detached(_w: &mut World, s: &'static Socket, _fd: i32) {
    // SAFETY: under the registry lock.
    for m in unsafe { &*s.sets.get() } {
        let Some(mut l) = m.set.lock() else { continue };
        let Some(e) = l.entry(m.index) else { continue };
        let was_posted = e.is_posted();
        e.disarm_by();
        l.boards.leave(m.index);
        let Some(e) = l.entry(m.index) else { continue };
        let in_reach = e.is_in_reach();
        let is_ours = residual::left(s) > 0 || ready::is_broken(s);
        if e.is_managed() && (!in_reach || !e.parked && is_ours) {
            // The kernel does not know of bytes that are kept here, nor of a reset that it has told the library: until those are
            // read, and behind a reset, the entry is looked at by us, and the kernel asked for what the program asked for.
            e.fresh = true;
            e.asked = if in_reach && m.set.ask_beside_us(e, m.index) {
                Asked::Beside
            } else {
                Asked::OutOfReach
            };
            l.heat(m.index);
            ticket::disturb_held(m.set, &mut l, Taker::Change);
            continue;
        }
        let was_hot = e.is_hot() || was_posted;
        m.set.disengage(e);
        if std::mem::replace(&mut e.asked, Asked::Programs) != Asked::Programs {
            // The kernel tells of errors and of the end unasked, and an entry that has fired once is not to: that goes
            // to us, who pass nothing of it on, until the program modifies it.
            let silent = tag(m.index, e.turn);
            let data = if e.is_disabled() { silent } else { e.data };
            let (fd, events) = (e.fd, e.program_events());
            if std::mem::take(&mut e.parked) {
                // (nobody has it from here on: it comes back as the kernel's own)
                m.set.kernel(libc::EPOLL_CTL_DEL, fd, 0, 0);
            } else {
                m.set.change(e, events, data);
            }
        }
        l.hot.retain(|&i| i != m.index);
        if was_hot {
            ticket::disturb_held(m.set, &mut l, Taker::Change);
        }
    }
}

/// The last descriptor of a socket is gone: the kernel drops its registrations, and so do we.
pub(crate) fn closed(_w: &mut World, s: &'static Socket) {
    // SAFETY: under the registry lock.
    let sets = std::mem::take(unsafe { &mut *s.sets.get() });
    s.set_count.store(0, Ordering::Release);
    s.watch_seat();
    for m in sets {
        let Some(mut l) = m.set.lock() else { continue };
        if let Some(mut e) = l.remove(m.index) {
            if e.is_hot() || e.is_posted() {
                ticket::disturb_held(m.set, &mut l, Taker::Change);
            }
            m.set.disengage(&mut e);
        }
    }
}

/// Whether a registration of a socket has our tag from the start. One that is told once is: whether the kernel has told it cannot be
/// found out and changed in one, and another thread may be on its way with the event.
pub(super) fn is_to_be_managed(s: &Socket, events: u32) -> bool {
    let phase = s.phase();
    // (what is exclusive is asked for anew where it becomes ours, and is never told once)
    phase == Phase::Plain || events & EXCLUSIVE == 0 && (phase.is_fast() || events & ONESHOT != 0)
}

/// Likewise of one that is the program's own and is modified, to be told once from now on.
pub(super) fn is_to_be_held(set: &Set, s: &Socket, events: u32) -> bool {
    let may_be_ours = !matches!(s.phase(), Phase::Plain | Phase::Listening);
    let passed_on = set.passed_on.load(Ordering::Acquire);
    events & ONESHOT != 0 && events & EXCLUSIVE == 0 && may_be_ours && !passed_on
}

/// Modifies such a one.
pub(super) fn hold(
    set: &'static Set,
    l: &mut Locked,
    index: usize,
    (events, data): (u32, u64),
) -> Result<usize> {
    let tag = l.tag(index);
    let e = l.entry(index).ok_or(Errno(libc::ENOENT))?;
    let mut held = Entry::new(e.subject, e.fd, events, data);
    held.asked = Asked::Beside;
    set.kernel_says(libc::EPOLL_CTL_MOD, e.fd, held.events_beside(), tag)?;
    e.modify(events, data);
    e.asked = Asked::Beside;
    set.engage(e);
    l.heat(index);
    Ok(0)
}

/// Adds a registration of a socket, which the kernel has already: with our tag (`managed`) or the program's data.
pub(crate) fn add(
    w: &mut World,
    set: &'static Set,
    s: &'static Socket,
    fd: i32,
    (events, data): (u32, u64),
    managed: bool,
) {
    forget_parked(w, s, set);
    let subject = Subject::Socket(s, s.generation.load(Ordering::Acquire));
    let Some(mut l) = set.lock() else { return };
    let index = l.insert(Entry::new(subject, fd, events, data));
    let phase = s.phase();
    let announced = phase == Phase::Announced;
    if managed || announced {
        let first = l.entry(index).is_some_and(|e| set.engage(e));
        if announced || phase == Phase::Plain {
            l.heat(index); // (bytes of a plain one may be kept here: see `detached`)
        }
        if managed
            && !phase.is_fast()
            && let Some(e) = l.entry(index)
        {
            e.asked = Asked::Beside;
            set.ask_beside_us(e, index);
        }
        if let Some(e) = l.entry(index).filter(|_| announced) {
            set.kick_for_new(e, first); // (as in `announced`)
        }
    }
    drop(l);
    let m = Membership { set, index };
    // SAFETY: under the registry lock.
    let sets = unsafe { &mut *s.sets.get() };
    if sets.is_empty() {
        sets.reserve_exact(1); // nearly every socket is in one set, and there may be very many
    }
    sets.push(m);
    s.set_count.fetch_add(1, Ordering::AcqRel);
    s.watch_seat();
    if s.is_shared() {
        set.hear_others();
    }
    if phase.is_fast() {
        manage(&m);
    } else if callers::is_one(w, s) {
        callers::note(set, index);
    }
}

/// Removes a registration of a socket; the kernel's is gone already.
pub(crate) fn remove(_w: &mut World, set: &'static Set, fd: i32) {
    let Some(mut l) = set.lock() else { return };
    let Some(index) = l.index_of(fd) else { return };
    watch_ring(set, &mut l, index, false);
    let Some(mut e) = l.remove(index) else { return };
    let was_posted = e.is_posted();
    e.disarm_by();
    if e.is_hot() || was_posted {
        ticket::disturb_held(set, &mut l, Taker::Change);
    }
    drop(l);
    set.disengage(&mut e);
    if let Some(s) = e.socket() {
        // SAFETY: under the registry lock.
        let sets = unsafe { &mut *s.sets.get() };
        sets.retain(|m| !(std::ptr::eq(m.set, set) && m.index == index));
        s.set_count.fetch_sub(1, Ordering::AcqRel);
        s.watch_seat();
        // By another name it may be in the set still; the ring's event was theirs together.
        for m in sets.iter().filter(|m| std::ptr::eq(m.set, set)) {
            if let Some(mut l) = set.lock()
                && l.entry(m.index).is_some_and(|e| e.asked == Asked::Ours)
            {
                watch_ring(set, &mut l, m.index, true);
                modified(set, &mut l, m.index);
            }
        }
    }
}

/// A modified entry may be ready already: somebody asleep has to look.
pub(crate) fn modified(set: &'static Set, l: &mut Locked, index: usize) {
    l.changes += 1;
    l.heat(index);
    if let Some(e) = l.entry(index) {
        set.kick(e, index);
    }
}

/// A descriptor of the set is closed; with the last one everything in it goes.
pub(crate) fn release(_w: &mut World, set: &'static Set) {
    if set.refs.fetch_sub(1, Ordering::AcqRel) > 1 {
        return;
    }
    let Some(mut l) = set.lock() else { return };
    let inner = std::mem::take(&mut *l);
    drop(l);
    set.engaged.store(0, Ordering::Release);
    for (index, mut e) in inner.entries.into_iter().enumerate() {
        if let Some(e) = &mut e {
            e.disarm_by();
        }
        if let Some(s) = e.as_ref().and_then(Entry::socket) {
            // SAFETY: under the registry lock.
            unsafe { &mut *s.sets.get() }
                .retain(|m| !(std::ptr::eq(m.set, set) && m.index == index));
            s.set_count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
