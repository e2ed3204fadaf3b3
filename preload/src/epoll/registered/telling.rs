//! What has become of a socket elsewhere is told to the sets that hold it.

use super::super::entry::Entry;
use super::super::set::Set;
use crate::sockets::lock::SlowHeld;
use crate::sockets::ready::{self, Ask};
use crate::sockets::wired::{self, mover};
use crate::sockets::{Phase, Socket, rouse};
use crate::world::{self, World};
use std::sync::atomic::{AtomicBool, Ordering};

/// Bells of this socket have been taken off by somebody: whoever sleeps on a set that holds it may have
/// been waiting for one of them.
pub(crate) fn kick_others(s: &'static Socket, except: *const Set) {
    rouse::sets_of_others(s);
    if s.set_count.load(Ordering::Acquire) == 0 {
        return;
    }
    if let Some(w) = registry() {
        kick(&w, s, except);
    }
}

/// The library's own thread has found the registry taken where sets were to be told.
static OWED: AtomicBool = AtomicBool::new(false);

/// The registry, unless this is the library's own thread and somebody keeps it who may be waiting for what that answers: then the sets
/// are told later ([`kick_owed`]).
fn registry() -> Option<SlowHeld<'static, World>> {
    if !mover::is_here() {
        return Some(world::lock());
    }
    let w = world::lock_soon();
    if w.is_none() {
        OWED.store(true, Ordering::Relaxed);
    }
    w
}

/// The library's own thread tells sets what it could not before. Whether it is to try again.
pub(crate) fn kick_owed() -> bool {
    if OWED.load(Ordering::Relaxed)
        && let Some(w) = world::lock_soon()
    {
        OWED.store(false, Ordering::Relaxed);
        w.pool.each(|s| {
            if wired::is_wired(s) {
                kick(&w, s, std::ptr::null());
            }
        });
    }
    OWED.load(Ordering::Relaxed)
}

fn kick(_w: &World, s: &'static Socket, except: *const Set) {
    // SAFETY: under the registry lock.
    for m in unsafe { &*s.sets.get() } {
        if !std::ptr::eq(m.set, except)
            && let Some(mut l) = m.set.lock()
            // (one that is the program's own is not counted as looked at by us)
            && l.entry(m.index).is_some_and(|e| {
                // (what has left the segment is registered anew, silent or not)
                e.is_counted() && (s.phase() != Phase::Attached || e.waits_for_bells())
            })
        {
            l.heat(m.index);
            if let Some(e) = l.entry(m.index) {
                m.set.kick(e, m.index);
            }
        }
    }
}

/// The program has shut a half of the socket, or both: the kernel tells edge-triggered sets of each such call, whatever has
/// changed by it.
pub(crate) fn shut(s: &'static Socket) {
    rouse::sets_of_others(s);
    tell_again(s);
}

/// Edge-triggered sets are told of the socket once more, if there is anything to tell.
pub(crate) fn tell_again(s: &'static Socket) {
    tell_those(s, |_| true);
}

/// As [`tell_again`], of bytes that can be read, if there are any: those that ask for such.
pub(crate) fn tell_of_data(s: &'static Socket, fd: i32) {
    if s.set_count.load(Ordering::Acquire) > 0
        && ready::is_ours(s)
        && ready::bits(s, fd, libc::POLLIN, Ask::Needed) & libc::POLLIN != 0
    {
        tell_those(s, Entry::asks_for_data);
    }
}

fn tell_those(s: &'static Socket, which: impl Fn(&Entry) -> bool) {
    if s.set_count.load(Ordering::Acquire) == 0 {
        return;
    }
    let _w = crate::world::lock();
    // SAFETY: under the registry lock.
    for m in unsafe { &*s.sets.get() } {
        let Some(mut l) = m.set.lock() else { continue };
        if let Some(e) = l.entry(m.index).filter(|e| e.is_counted() && which(e)) {
            e.stir_anew();
            l.heat(m.index);
        }
        if let Some(e) = l.entry(m.index).filter(|e| which(e)) {
            m.set.kick(e, m.index);
        }
    }
}
