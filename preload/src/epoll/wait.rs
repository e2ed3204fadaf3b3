//! epoll_wait on a set with attached sockets: what is ready in user space and what is ready in the
//! kernel, each getting its turn; then a short busy look; then sleep in the kernel, armed.

use super::entry::Subject;
use super::hot;
use super::out::Out;
use super::set::{Inner, OTHERS, Set, TAG, TAG_MASK, kernel_wait};
use crate::real;
use crate::signals::since::{self, Hold, Since};
use crate::sockets::counted::{Counting, What};
use crate::sockets::spin;
use crate::sockets::{Socket, operator, parked, ready, recv, rouse};
use std::sync::atomic::Ordering;
use transport::clock;
use transport::sys::{Errno, Result, barrier};

/// Events handled of one look at the kernel, beyond which it is asked again.
const BATCH: usize = 64;
/// In how many calls the kernel is asked first, so that a full array serves its events too.
const KERNEL_TURN: u32 = 8;
/// Room for fewer than this is soon full: then it is every other call.
const FEW: usize = 8;

/// How long to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    Ever,
    /// Nanoseconds from now.
    For(u64),
}

/// epoll_wait. `None`: the set has nothing of ours, the kernel alone serves it.
///
/// # Safety
/// `events` is writable for `max` entries; `mask` is null or a signal set.
pub(crate) unsafe fn wait(
    set: &'static Set,
    ep: i32,
    events: *mut libc::epoll_event,
    max: i32,
    until: Until,
    mask: *const libc::sigset_t,
) -> Option<Result<usize>> {
    if max <= 0 || events.is_null() {
        return None;
    }
    let room = usize::try_from(max).ok()?;
    set.settle_inherited();
    // SAFETY: the caller's promise.
    let mut out = unsafe { Out::new(events, room) };
    if set.is_engaged() {
        return Some(run(set, ep, &mut out, until, mask));
    }
    let begun = clock::monotonic_ns();
    let ns = match until {
        Until::Ever => None,
        Until::For(ns) => Some(ns),
    };
    let r = operator::patiently(ns, |ns| kernel_wait(ep, events, max, ns, mask));
    let n = match real::result(r as isize) {
        Ok(n) => n,
        Err(e) => return Some(Err(e)),
    };
    // A socket may have been attached while we slept: then the kernel has told us, not the program.
    // SAFETY: the kernel filled this many entries.
    let ours = |i: usize| unsafe { events.add(i).read_unaligned() }.u64 & TAG_MASK == TAG;
    if n == 0 || !(0..n).any(ours) {
        return Some(Ok(n));
    }
    let call = match begin(set) {
        Ok(call) => call,
        Err(e) => return Some(Err(e)),
    };
    translate(set, events, n, &mut out, call);
    if out.n > 0 {
        return Some(finish(set, &mut out, call));
    }
    let until = match until {
        Until::Ever => Until::Ever,
        Until::For(ns) => Until::For(ns.saturating_sub(clock::monotonic_ns() - begun)),
    };
    Some(run(set, ep, &mut out, until, mask))
}

fn run(
    set: &'static Set,
    ep: i32,
    out: &mut Out,
    until: Until,
    mask: *const libc::sigset_t,
) -> Result<usize> {
    let since = Since::now();
    // With a mask of the program's own that decides what may interrupt, and the kernel alone applies it.
    let _hold = (!mask.is_null()).then(Hold::new);
    parked::let_go();
    let call = begin(set)?;
    let turn = if out.room < FEW { 2 } else { KERNEL_TURN };
    let kernel_first = call % turn == 0;
    if kernel_first {
        from_kernel(set, ep, out, Some(0), mask, call)?;
    }
    from_user(set, out, call);
    if out.n > 0 {
        if !kernel_first && !out.is_full() {
            let _ = from_kernel(set, ep, out, Some(0), std::ptr::null(), call);
        }
        return finish(set, out, call);
    }
    let deadline = match until {
        Until::Ever => None,
        Until::For(0) => {
            from_kernel(set, ep, out, Some(0), mask, call)?;
            return finish(set, out, call);
        }
        Until::For(ns) => Some(clock::monotonic_ns().saturating_add(ns)),
    };
    loop {
        operator::attend();
        if spin(set, ep, out, mask, call, since, deadline)? {
            // What the kernel had all along belongs to the same answer, and so does what came before.
            let cold = set.lock().is_some_and(|l| l.has_cold());
            if (!out.asked || cold && !out.told) && !out.is_full() {
                let _ = from_kernel(set, ep, out, Some(0), std::ptr::null(), call);
            }
            return finish(set, out, call);
        }
        let left = deadline.map(|d| d.saturating_sub(clock::monotonic_ns()));
        if sleep(set, ep, out, left, mask, call, since)? || left == Some(0) {
            return finish(set, out, call);
        }
    }
}

fn begin(set: &'static Set) -> Result<u32> {
    // In a handler that interrupted this very set: nothing can be said, as after a signal.
    let mut l = set.lock().ok_or(Errno::INTR)?;
    Ok(l.next_call())
}

/// Sockets that have to be brought up to date, outside the set's lock.
type Unsettled = [Option<(&'static Socket, i32)>; 16];

/// Reports what is ready among the hot entries.
fn from_user(set: &'static Set, out: &mut Out, call: u32) {
    for _ in 0..4 {
        let mut unsettled: Unsettled = [None; 16];
        let mut n = 0;
        let stale = {
            let Some(mut l) = set.lock() else { return };
            look(&mut l, out, call, &mut unsettled, &mut n)
        };
        if stale {
            rouse::heard(set);
        }
        if n == 0 {
            return;
        }
        for (s, fd) in unsettled.into_iter().flatten() {
            ready::settle(s, fd);
        }
    }
}

/// One look. True if another process has sent a socket back to the kernel that is still ours in here.
fn look(l: &mut Inner, out: &mut Out, call: u32, unsettled: &mut Unsettled, n: &mut usize) -> bool {
    let mut stale = false;
    let len = l.hot.len();
    // Begin elsewhere each time, so that a small array serves everyone.
    let start = if len > out.room { l.next % len } else { 0 };
    let (patience, mut tired) = (hot::patience(len), false);
    for turn in 0..len {
        let Some(&index) = l.hot.get((start + turn) % len) else {
            continue;
        };
        let Some(e) = l.entry(index) else { continue };
        if e.is_quiet() {
            e.idle += 1;
            tired |= hot::is_tiring(e, patience);
            continue;
        }
        if let Some(s) = e.socket()
            && ready::is_unsettled(s)
        {
            if let Some(slot) = unsettled.get_mut(*n) {
                *slot = Some((s, e.fd));
                *n += 1;
            }
            continue;
        }
        if e.managed && e.socket().is_some_and(|s| !ready::is_ours(s)) {
            stale = true;
            continue;
        }
        let user = e.managed || matches!(e.subject, Subject::Set(_));
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
                l.next = start + turn + 1;
            }
            None => {
                e.idle += 1;
                tired |= hot::is_tiring(e, patience);
            }
        }
    }
    if tired {
        hot::cool(l, patience);
    }
    stale
}

/// Asks the kernel, for `ns` or without end, and reports what is not ours; what is ours is looked at.
fn from_kernel(
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
    translate(set, at, r?.min(room), out, call);
    Ok(())
}

/// Passes on what the kernel has told of the program's own registrations, and looks at ours. The events
/// lie in the program's array, at or behind where `out` goes on.
fn translate(set: &'static Set, at: *mut libc::epoll_event, n: usize, out: &mut Out, call: u32) {
    let mut ours: [(Option<&'static Socket>, i32, i16); BATCH] = [(None, -1, 0); BATCH];
    let mut count = 0;
    let mut others = false;
    {
        let Some(mut l) = set.lock() else { return };
        for i in 0..n {
            // SAFETY: the kernel filled this many entries.
            let ev = unsafe { at.add(i).read_unaligned() };
            let (events, data) = (ev.events, ev.u64);
            #[allow(clippy::cast_possible_truncation)]
            let index = if data & TAG_MASK == TAG {
                (data & !TAG_MASK) as usize
            } else if let Some(index) = l.orphan(data) {
                index
            } else {
                out.told = true;
                out.push(events, data);
                continue;
            };
            others |= index == OTHERS;
            let Some(e) = l.entry(index) else { continue };
            e.stir();
            if matches!(e.subject, Subject::Other) {
                let data = e.data;
                out.told = true;
                out.push(events, data);
                continue;
            }
            if let Some(slot) = ours.get_mut(count) {
                #[allow(clippy::cast_possible_truncation)]
                let bits = (events & 0x7fff) as u16;
                *slot = (e.socket(), e.fd, bits.cast_signed());
                count += 1;
            }
            l.heat(index);
        }
    }
    for (s, fd, bits) in ours.into_iter().take(count) {
        if let Some(s) = s {
            recv::kernel_shows(s, fd, bits);
        }
    }
    if others {
        rouse::heard(set);
    }
    if count > 0 || others {
        from_user(set, out, call);
    }
}

/// Looks for a while. True once there is something to report.
fn spin(
    set: &'static Set,
    ep: i32,
    out: &mut Out,
    mask: *const libc::sigset_t,
    call: u32,
    since: Since,
    deadline: Option<u64>,
) -> Result<bool> {
    if set.lock().is_none_or(|l| l.hot.is_empty()) {
        return Ok(false);
    }
    if !mask.is_null() {
        // The program's own mask decides what may interrupt: let the kernel look with it.
        from_kernel(set, ep, out, Some(0), mask, call)?;
        if out.n > 0 {
            return Ok(true);
        }
    }
    let look = |turn: u32| {
        from_user(set, out, call);
        if out.n == 0 && turn.is_multiple_of(4) && turn >= spin::PAUSES {
            let _ = from_kernel(set, ep, out, Some(0), std::ptr::null(), call);
        }
        out.n > 0
    };
    let late = || deadline.is_some_and(|d| clock::monotonic_ns() >= d);
    let budget = set.budget.us();
    Ok(spin::spin(budget, &set.company, since, look, late))
}

/// Sleeps in the kernel. True if there is something to report, or the time is over.
fn sleep(
    set: &'static Set,
    ep: i32,
    out: &mut Out,
    left: Option<u64>,
    mask: *const libc::sigset_t,
    call: u32,
    since: Since,
) -> Result<bool> {
    let counting = Counting::begin();
    counting.add(What::InSet(set));
    arm(set);
    from_user(set, out, call);
    let begun = clock::ticks();
    let r = if out.n > 0 {
        Ok(())
    } else {
        // A nap that ends early is a sleep that is looked after and begun again.
        let nap = parked::nap(left.unwrap_or(u64::MAX));
        let nap = Some(nap).filter(|&ns| ns != u64::MAX);
        // (epoll_wait is never restarted)
        if mask.is_null() {
            since::sleep(since, |mask| from_kernel(set, ep, out, nap, mask, call))
        } else {
            from_kernel(set, ep, out, nap, mask, call)
        }
    };
    drop(counting);
    set.budget.learn(clock::ticks() - begun);
    hot::disarm(set);
    r?;
    from_user(set, out, call);
    Ok(out.n > 0)
}

fn arm(set: &'static Set) {
    if set.wish_all() {
        barrier::heavy();
    }
}

/// Ends the call, with the events in order. While other threads sleep on the set, what is handed to this
/// one stays armed for them.
fn finish(set: &'static Set, out: &mut Out, call: u32) -> Result<usize> {
    out.put_in_order();
    if out.n > 0
        && set.waiters.load(Ordering::SeqCst) > 0
        && let Some(mut l) = set.lock()
    {
        let mut new = false;
        for at in 0..l.hot.len() {
            if let Some(&i) = l.hot.get(at)
                && let Some(e) = l.entry(i)
                && e.reported_in == call
            {
                new |= e.wish();
            }
        }
        if new {
            barrier::heavy();
        }
    }
    Ok(out.n)
}
