//! What is ready in a set: a look at the hot entries in user space, and a look at the kernel's list, which
//! holds the program's own registrations as well as our bells.
//!
//! Called by `wait`. The rule: a call reports an entry once, whoever tells of it first, and sockets are
//! brought up to date outside the set's lock.

use super::entry::{Asked, Subject};
use super::hot;
use super::out::Out;
use super::set::{Inner, OTHERS, RING, Set, TAG, TAG_MASK, WAKING, index_of_tag, is_of};
use crate::real;
use crate::sockets::{Socket, operator, ready, rouse, shows, wired};
use std::ops::Range;
use std::sync::atomic::Ordering;
use transport::sys::{Errno, Result};

/// Events handled of one look at the kernel, beyond which it is asked again.
const BATCH: usize = 64;
/// Of these, under the set's lock at a time. (What they are told of stands on the stack, of which a handler may have 8 KiB.)
const PART: usize = 16;

/// What a look at the kernel's events has come upon.
#[derive(Default)]
struct Found {
    /// Streams, or sets around them.
    ours: bool,
    others: bool,
    look_again: bool,
}

/// Sockets that have to be brought up to date, outside the set's lock.
type Unsettled = [Option<(&'static Socket, i32)>; 16];

/// Reports what is ready among the hot entries.
pub(super) fn from_user(set: &'static Set, out: &mut Out, call: u32) {
    look_while(set, out, call, false);
}

/// As [`from_user`]; `spinning`: there is nothing else to do.
pub(super) fn look_while(set: &'static Set, out: &mut Out, call: u32, spinning: bool) {
    for _ in 0..4 {
        let mut unsettled: Unsettled = [None; 16];
        let mut n = 0;
        let mut again = false;
        let stale = {
            let Some(mut l) = set.lock() else { return };
            look(
                set,
                &mut l,
                out,
                call,
                spinning,
                &mut unsettled,
                &mut n,
                &mut again,
            )
        };
        if stale {
            rouse::heard(set);
        }
        if n == 0 && !again {
            return;
        }
        for (s, fd) in unsettled.into_iter().flatten() {
            ready::settle(s, fd);
        }
    }
}

/// One look. True if another process has sent a socket back to the kernel that is still ours in here.
/// `again`: one that was about to be left to its bell has something after all.
#[allow(clippy::too_many_arguments)] // one thing after the other
fn look(
    set: &Set,
    l: &mut Inner,
    out: &mut Out,
    call: u32,
    spinning: bool,
    unsettled: &mut Unsettled,
    n: &mut usize,
    again: &mut bool,
) -> bool {
    let mut stale = false;
    let mut by_kernel = false;
    l.hear();
    let len = l.hot.len();
    // Begin elsewhere each time, so that a small array serves everyone.
    let start = if len > out.room { l.next % len } else { 0 };
    let (patience, weight) = (hot::Patience::of(set, l), hot::weight(len, spinning));
    let mut tired = false;
    for turn in 0..len {
        let Some(&index) = l.hot.get((start + turn) % len) else {
            continue;
        };
        let Some(e) = l.entry(index) else { continue };
        if e.is_quiet() {
            e.idle = e.idle.saturating_add(weight);
            tired |= hot::is_tiring(e, patience);
            continue;
        }
        by_kernel |= e.is_managed() && e.socket().is_some_and(wired::tells_by_kernel);
        if let Some(s) = e.socket()
            && ready::is_unsettled(s)
        {
            if let Some(slot) = unsettled.get_mut(*n) {
                *slot = Some((s, e.number(s)));
                *n += 1;
            }
            continue;
        }
        if e.is_stale() {
            stale = true;
            continue;
        }
        let user = e.is_managed() || matches!(e.subject, Subject::Set(_));
        let told_by_kernel = e.managed_in == call && out.holds(e.data);
        if !user || e.reported_in == call || told_by_kernel {
            continue;
        }
        if out.is_full() {
            break;
        }
        match e.report() {
            Some(events) => {
                e.idle = 0;
                e.reported_in = call;
                let (data, s) = (e.data, e.socket());
                out.push_ours(events, data, s);
                l.trial.told();
                l.next = start + turn + 1;
            }
            None => {
                e.idle = e.idle.saturating_add(weight);
                tired |= hot::is_tiring(e, patience);
                if let Subject::Set(inner) = e.subject {
                    inner.unsettled(&mut |s, fd| {
                        if let Some(slot) = unsettled.get_mut(*n) {
                            *slot = Some((s, fd));
                            *n += 1;
                        }
                    });
                }
            }
        }
    }
    l.by_kernel = by_kernel;
    if tired {
        *again = hot::cool(l, patience);
    }
    stale
}

/// Asks the kernel, for `ns` or without end, and reports what is not ours; what is ours is looked at.
pub(super) fn from_kernel(
    set: &'static Set,
    ep: i32,
    out: &mut Out,
    ns: Option<u64>,
    mask: *const libc::sigset_t,
    call: u32,
) -> Result<()> {
    out.asked = true;
    let room = (out.room - out.n).min(BATCH);
    if room == 0 {
        return Ok(());
    }
    let at = out.end();
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
    let r = if ns == Some(0) && mask.is_null() {
        // SAFETY: as above. Not a cancellation point, and cheaper.
        unsafe { transport::syscall!(epoll_pwait, ep, at, room, 0, 0, 8) }
    } else {
        let errno = real::errno();
        match real::result(kernel_wait(ep, at, room as i32, ns, mask) as isize) {
            Err(Errno::INTR) if operator::knocked(errno) => Ok(0),
            r => r,
        }
    };
    // (who sleeps is counted, and a look in passing is not)
    translate_to(set, at, r?.min(room), out, call, ns != Some(0));
    Ok(())
}

/// Passes on what the kernel has told of the program's own registrations, and looks at ours. The events
/// lie in the program's array, at or behind where `out` goes on.
pub(super) fn translate(
    set: &'static Set,
    at: *mut libc::epoll_event,
    n: usize,
    out: &mut Out,
    call: u32,
) {
    translate_to(set, at, n, out, call, false);
}

/// As [`translate`]; `asleep`: this thread is counted among the set's sleepers, and about to look.
fn translate_to(
    set: &'static Set,
    at: *mut libc::epoll_event,
    n: usize,
    out: &mut Out,
    call: u32,
    asleep: bool,
) {
    let mut found = Found::default();
    for first in (0..n).step_by(PART) {
        let part = first..n.min(first + PART);
        if !take_part(set, at, part, out, call, asleep, &mut found) {
            return;
        }
    }
    if found.others {
        rouse::heard(set);
    }
    if found.ours || found.others || found.look_again {
        from_user(set, out, call);
    }
}

/// Some of the events of [`translate_to`]. False if the set cannot be looked at: this thread has it.
#[inline(never)]
fn take_part(
    set: &'static Set,
    at: *mut libc::epoll_event,
    part: Range<usize>,
    out: &mut Out,
    call: u32,
    asleep: bool,
    found: &mut Found,
) -> bool {
    let mut ours = [None; PART];
    let mut count = 0;
    {
        let Some(mut l) = set.lock() else {
            return false;
        };
        for i in part {
            // SAFETY: the kernel filled this many entries.
            let ev = unsafe { at.add(i).read_unaligned() };
            let (events, data) = (ev.events, ev.u64);
            let tagged = data & TAG_MASK == TAG;
            let index = if tagged {
                index_of_tag(data)
            } else if let Some(index) = l.orphan(data) {
                index
            } else {
                out.told = true;
                out.push(events, data);
                continue;
            };
            found.others |= index == OTHERS;
            found.look_again |= index == WAKING;
            let Some(e) = l.entry(index) else { continue };
            if tagged && (data & RING != 0 && !e.has_ring() || !is_of(e, data)) {
                continue; // it stood for another
            }
            if e.is_disabled() && !e.is_managed() {
                continue; // (`registered::detached`)
            }
            if e.reported_in == call && matches!(e.subject, Subject::Set(_)) {
                continue; // (it is not new once more)
            }
            e.stir(events);
            if matches!(e.subject, Subject::Other) {
                let data = e.data;
                out.told = true;
                out.push(events, data);
                continue;
            }
            if e.asked == Asked::Beside {
                found.look_again = true; // (what the kernel says of it is for the program, and no news of a stream of ours)
            } else if let Some(slot) = ours.get_mut(count) {
                #[allow(clippy::cast_possible_truncation)]
                let bits = if !tagged || data & RING == 0 {
                    (events & 0x7fff) as u16
                } else {
                    0
                };
                let bits = bits.cast_signed();
                // (said under the lock, under which the entry of a socket that is closed goes)
                if let Some(s) = e.socket().filter(|s| s.shows_end(bits)) {
                    s.over.store(true, Ordering::Release);
                }
                found.ours = true;
                *slot = e.socket().map(|s| (s, e.number(s), bits));
                count += 1;
            }
            l.heat(index);
        }
    }
    for (s, fd, bits) in ours.into_iter().take(count).flatten() {
        // (unless it was closed meanwhile)
        shows::kernel_shows_to(s, fd, bits, Some(set).filter(|_| asleep), false);
    }
    true
}

/// Waits in the kernel, through libc where a mask or the time-out allows it.
pub(super) fn kernel_wait(
    ep: i32,
    events: *mut libc::epoll_event,
    n: i32,
    ns: Option<u64>,
    mask: *const libc::sigset_t,
) -> i32 {
    // SAFETY: the array is the program's, the mask too or null.
    unsafe {
        match ns {
            None => real::epoll_pwait(ep, events, n, -1, mask),
            Some(0) => real::epoll_pwait(ep, events, n, 0, mask),
            Some(ns) if ns % 1_000_000 == 0 && ns / 1_000_000 <= 0x7fff_ffff => {
                #[allow(clippy::cast_possible_truncation)]
                let ms = (ns / 1_000_000) as i32;
                real::epoll_pwait(ep, events, n, ms, mask)
            }
            Some(ns) => {
                let t = libc::timespec {
                    tv_sec: (ns / 1_000_000_000).cast_signed(),
                    tv_nsec: (ns % 1_000_000_000).cast_signed(),
                };
                real::epoll_pwait2(ep, events, n, &raw const t, mask)
            }
        }
    }
}
