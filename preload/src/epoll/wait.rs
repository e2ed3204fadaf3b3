//! epoll_wait on a set with attached sockets: what is ready in user space and what is ready in the
//! kernel (`look`), each getting its turn; then a short busy look; then sleep in the kernel, armed.

use super::look::{from_kernel, from_user, kernel_wait, look_while, translate};
use super::out::Out;
use super::registered;
use super::set::{Set, TAG, TAG_MASK};
use super::ticket::{self, Taker};
use super::{callers, hot};
use crate::real;
use crate::signals::since::{self, Hold, Since};
use crate::sockets::counted::{Counting, What};
use crate::sockets::spin;
use crate::sockets::{idle, operator, parked, stalled};
use std::sync::atomic::Ordering;
use transport::clock;
use transport::sys::{Errno, Result, barrier};

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
    callers::attend(set);
    registered::await_joined();
    // SAFETY: the caller's promise.
    let mut out = unsafe { Out::new(events, room) };
    let call_on = |out: &mut Out, until: Until| {
        let r = run(set, ep, out, until, mask);
        if r.is_err() {
            ticket::disturb(set, Taker::Wait); // (it may have taken events before)
        }
        Some(r)
    };
    if set.is_engaged() {
        return call_on(&mut out, until);
    }
    let begun = clock::monotonic_ns();
    let ns = match until {
        Until::Ever => None,
        Until::For(ns) => Some(ns),
    };
    // (what becomes ours during the sleep is wished for by whoever makes it so, for those that are counted)
    let counting = (ns != Some(0)).then(Counting::begin);
    if let Some(c) = &counting {
        c.add(What::InSet(set));
        if set.is_engaged() {
            drop(counting);
            return call_on(&mut out, until);
        }
    }
    let r = operator::patiently(ns, |ns| kernel_wait(ep, events, max, ns, mask));
    drop(counting);
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
        Ok((call, _)) => call,
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
    call_on(&mut out, until)
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
    let (call, by_kernel) = begin(set)?;
    let turn = if out.room < FEW { 2 } else { KERNEL_TURN };
    // (what it tells of ours is looked at at once; a program's own events may fill the array, so not in every call)
    let told_first = by_kernel && out.room >= FEW && call % KERNEL_TURN != 1;
    let kernel_first = told_first || call % turn == 0;
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
        parked::before_wait();
        parked::attend();
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

/// The number of the call, and whether the kernel tells of some of what is looked at.
fn begin(set: &'static Set) -> Result<(u32, bool)> {
    // In a handler that interrupted this very set: nothing can be said, as after a signal.
    let mut l = set.lock().ok_or(Errno::INTR)?;
    hot::begin(&mut l);
    Ok((l.next_call(), l.by_kernel))
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
        look_while(set, out, call, true);
        let due = turn.is_multiple_of(4) && turn >= spin::PAUSES;
        if out.n == 0 && (due || set.lock().is_some_and(|l| l.by_kernel)) {
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
    let ticket = ticket::arm(set);
    from_user(set, out, call);
    let begun = clock::ticks();
    let r = if out.n > 0 {
        Ok(())
    } else {
        // A nap that ends early is a sleep that is looked after and begun again.
        let nap = parked::nap(left.unwrap_or(u64::MAX))
            .min(ticket::nap(ticket))
            .min(stalled::nap_among_others())
            .min(idle::nap());
        let nap = Some(nap).filter(|&ns| ns != u64::MAX);
        spin::end_turn();
        // (epoll_wait is never restarted)
        if mask.is_null() {
            since::sleep(since, |mask| from_kernel(set, ep, out, nap, mask, call))
        } else {
            from_kernel(set, ep, out, nap, mask, call)
        }
    };
    drop(counting);
    let slept = clock::ticks() - begun;
    let by_itself = ticket::is_nap(ticket, slept);
    if !by_itself {
        set.budget.learn(slept);
    }
    ticket::note_nap(set, by_itself);
    hot::disarm(set, ticket);
    r?;
    from_user(set, out, call);
    Ok(out.n > 0)
}

/// Ends the call, with the events in order. While other threads sleep on the set, what is handed to this
/// one stays armed for them.
fn finish(set: &'static Set, out: &mut Out, call: u32) -> Result<usize> {
    out.put_in_order();
    ticket::disturb(set, Taker::Wait);
    if out.n > 0
        && set.waiters.load(Ordering::SeqCst) > 0
        && let Some(mut l) = set.lock()
    {
        let (mut new, mut left) = (false, out.is_full());
        for at in 0..l.hot.len() {
            let Some(&i) = l.hot.get(at) else { continue };
            let Some(e) = l.entry(i) else { continue };
            if e.reported_in == call {
                new |= e.wish();
            } else if left && e.is_ready() {
                // (what there was no room for here is somebody else's, and what told of it may have been taken by this call)
                set.kick(e, i);
                left = false;
            }
        }
        if new {
            barrier::heavy();
        }
    }
    Ok(out.n)
}
