//! Waiting where large messages come and go (`transport::direct`). A reader looks for a while with its buffer
//! posted, so that what comes goes straight there; a sender that has to wait for the reader anyway waits
//! with its buffer advertised.
//!
//! Called by `recv` and `send`. Rules:
//! - A buffer is posted only under the receiving lock, so that no handler of the program runs and nobody else
//!   reads while the peer may write to it.
//! - A buffer is advertised only while its sender is in its call: a handler that interrupts the sleep, a jump
//!   out of it and the thread's end hide it first.

use super::counted::{Counting, What};
use super::ending::is_gone;
use super::send::is_over;
use super::wait::{Wait, Want, may_go};
use super::{Phase, Socket, cancel, held, parked, spin};
use crate::signals::since::Since;
use crate::signals::thread::{Thread, here};
use std::ptr;
use std::sync::atomic::Ordering;
use transport::clock;
use transport::direct::Direct;
use transport::direct::choice::Way;
use transport::direct::policy;
use transport::provider::Provider;
use transport::sdp::Walk;
use transport::sdp::rx::Awaited;
use transport::shm::layout::FIN_NONE;
use transport::sys::{self, Errno, Result};

/// Looks for something to come. Under the receiving lock.
pub(super) fn linger(s: &'static Socket, p: &impl Provider) {
    let look = |_| p.pending().is_some() || may_go(s, Want::Data);
    spin::spin(s.budget.us(), &s.company, Since::now(), look, || false);
}

/// Bytes that take longer to copy than a sender takes to wake up and do half of it.
pub(super) const WAKES: usize = 512 * 1024;

/// A read begins, of much: a sender that sleeps until its buffer is taken may as well help.
#[inline]
pub(super) fn call_sender(s: &'static Socket, p: &impl Provider, fd: i32) {
    if p.has_adverts()
        && p.pending().is_some_and(|next| next.left >= WAKES as u64)
        && !spin::is_hogged()
        && !is_gone(s, p)
        && p.must_ring(transport::doorbell::TAKEN)
        && let Ok(mut tx) = s.tx.lock()
    {
        tx.ring(p, s.live_fd(fd));
    }
}

/// How long (µs) the peer may have a buffer of its own advertised, while this side waits with one, before
/// this side takes it that both wait for the other to read.
const CROSSED_US: u64 = 100;

/// How long (ns) a sleep may be at once.
pub(super) fn nap(want: Want, s: &Socket) -> u64 {
    match (want, s.segment()) {
        (Want::Taken, Some(p)) => clock::ns(p.longest_wait(false)),
        _ => u64::MAX,
    }
}

/// A large send begins, of so many bytes. True if it is to wait for the reader.
#[cold]
pub(super) fn begins(s: &Socket, len: usize) -> bool {
    let Some(p) = s.segment().filter(|_| s.phase() == Phase::Attached) else {
        return false;
    };
    p.begin(len);
    p.way() == Way::Direct && p.reaches().is_ok() && !s.is_shared()
}

/// How long (µs) a read that may not wait does so for a sender that is about to copy, once an advert.
const COPIES_US: u64 = 20_000;

/// A read has found nothing: whether there is something after all, from a sender that has just taken its
/// buffer back and is about to copy what it held. Readiness has told of those bytes. Who may wait has
/// better ways to, and from then on they count as not there.
pub(super) fn comes_by_ring(s: &Socket, waits: bool) -> bool {
    let begun = clock::ticks();
    let most = if waits { 0 } else { clock::us(COPIES_US) };
    loop {
        let Some(p) = s.segment().filter(|_| s.phase() == Phase::Attached) else {
            return false;
        };
        if p.taken_back().is_none() {
            return parked::has_news(s, p); // all of it may have come since, and the next buffer with it
        }
        let over = clock::ticks() - begun >= most || p.finished() != FIN_NONE || s.is_over();
        match s.rx.lock().map(|mut rx| rx.awaits_copy(p, over)) {
            Ok(Awaited::There) => return true,
            Ok(Awaited::Soon) if !over => sys::yield_core(),
            _ => return parked::has_news(s, p),
        }
    }
}

/// A read has found less than it has room for: whether what is missing was shown already, by a sender that has taken its
/// buffer back since, and is there now. Waits for it.
pub(super) fn was_being_copied(s: &Socket) -> bool {
    s.segment().is_some_and(|p| p.taken_back().is_some()) && comes_by_ring(s, false)
}

/// Bytes in the ring, before any that a sender may take back. Where there are only such, they are asked for
/// through the ring; `None` if they do not come soon.
pub(super) fn in_ring(s: &'static Socket, p: &impl Provider, fd: i32) -> Option<usize> {
    let shown = || Some(s.rx.lock().ok()?.shown(p)).filter(|&n| n > 0);
    was_being_copied(s);
    if shown().is_some() || p.pending().is_none() {
        return shown();
    }
    p.ask_small();
    if p.must_ring(transport::doorbell::TAKEN)
        && let Ok(mut tx) = s.tx.lock()
    {
        tx.ring(p, s.live_fd(fd));
    }
    comes_by_ring(s, false);
    shown()
}

/// Sends the walk's next buffer, if it is large, by waiting until the reader has taken it. False if that
/// cannot be, or did not come to its end: then the rest goes through the ring. `wait` is the whole call's: its
/// time-out counts from the first wait of any kind.
///
/// # Errors
/// As [`Wait::wait`]; what was taken is walked over.
pub(super) fn await_taken(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    wait: &mut Wait,
) -> Result<bool> {
    if walk.left() < policy::large() || s.phase() != Phase::Attached {
        return Ok(false);
    }
    let counting = Counting::more();
    let comes = {
        let (Some(p), Ok(mut tx)) = (s.segment(), s.tx.lock()) else {
            return Ok(false);
        };
        if is_over(walk, wait.since()) {
            return Ok(false);
        }
        held::lift(walk);
        let Some(comes) = tx.advertise(p, s.live_fd(fd), walk) else {
            return Ok(false);
        };
        here()
            .advert
            .store(ptr::from_ref(s).cast_mut(), Ordering::Relaxed);
        counting.add(What::Advertised(s));
        comes
    };
    let partial = walk.done() > 0;
    let since = wait.since();
    let wanted_before = wait.turn_to(Want::Taken);
    let waited = cancel::guarded(|| wait_taken(s, fd, partial, comes, wait));
    wait.turn_to(wanted_before);
    let wanted = policy::stage(walk.chunk().1);
    let taken = {
        let Ok(mut tx) = s.tx.lock() else {
            return Err(Errno::AGAIN);
        };
        let p = s.segment().filter(|_| s.phase() == Phase::Attached);
        here().advert.store(ptr::null_mut(), Ordering::Relaxed);
        tx.collect(p, walk)
    };
    drop(counting);
    waited?;
    if walk.done() > 0 && since.any() {
        return Err(Errno::INTR); // a call that has sent something is not restarted
    }
    Ok(taken == wanted)
}

/// The reader may have left during the wait: a kernel would have had in its buffers what fits there before.
///
/// # Safety
/// The walk's buffers are readable, by this process too (not a mapped file, which may be cut).
pub(super) unsafe fn put_late(s: &Socket, fd: i32, walk: &mut Walk, since: Since) {
    if let Some(p) = s.segment()
        && s.phase() == Phase::Attached
        && is_gone(s, p)
        && let Ok(mut tx) = s.tx.lock()
        && !is_over(walk, since)
    {
        // SAFETY: the caller's promise.
        let _ = unsafe { tx.put_late(p, s.live_fd(fd), walk) };
    }
}

/// Waits until the reader is done with what this thread has advertised, or is not worth waiting for. `comes`:
/// it was woken up for it.
fn wait_taken(
    s: &'static Socket,
    fd: i32,
    partial: bool,
    comes: bool,
    wait: &mut Wait,
) -> Result<()> {
    let begun = clock::ticks();
    let mut crossed = 0;
    while let Some(p) = s.segment()
        && !(s.phase() != Phase::Attached || p.stopped() || p.is_taken())
    {
        let now = clock::ticks();
        if now - begun > p.longest_wait(comes) {
            p.wait_in_vain(now - begun);
            break;
        }
        if p.has_adverts() && p.pending().is_some() {
            crossed = if crossed == 0 { now } else { crossed };
            if now - crossed > clock::us(CROSSED_US) {
                break;
            }
            help(s);
            sys::yield_core();
            continue;
        }
        crossed = 0;
        if may_go(s, Want::Taken) {
            break;
        }
        wait.wait(s, fd, partial)?;
    }
    Ok(())
}

/// Copies a part of what this thread has advertised, if the reader is at it.
pub(super) fn help(s: &Socket) {
    if let Some(p) = s.segment()
        && s.phase() == Phase::Attached
        && let Ok(tx) = s.tx.lock()
    {
        tx.help(p);
    }
}

/// Before a handler runs: what it writes to an advertised buffer must not reach the reader.
#[inline]
pub(crate) fn hide(t: &Thread) {
    let s = t.advert.load(Ordering::Relaxed);
    // SAFETY: null, or a socket, which lives for ever.
    if let Some(s) = unsafe { s.as_ref() }
        && let Some(p) = s.segment()
        && s.phase() == Phase::Attached
    {
        p.hide();
    }
}

/// The thread has left its call without coming back through it.
#[cold]
pub(super) fn abandon(s: &'static Socket) {
    let mine = &here().advert;
    if !ptr::eq(mine.load(Ordering::Relaxed), s) {
        return;
    }
    mine.store(ptr::null_mut(), Ordering::Relaxed);
    if let Ok(mut tx) = s.tx.lock() {
        tx.abandon(s.segment().filter(|_| s.phase() == Phase::Attached));
    }
}
