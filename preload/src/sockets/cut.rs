//! A kernel connection that is over without a word of the peer's: whether the peer's process died, or somebody has cut the
//! connection between two that live (`ss -K`, a firewall that answers with a reset, TCP_USER_TIMEOUT). To a reader the first
//! is an end of file, or a reset if it left bytes of ours unread; the second is an error, and must not look as if the
//! stream were complete.
//!
//! Called by `ending`, and around exec. Rules:
//! - A process that dies leaves bells unread, and the kernel resets for those as for data. So a reset alone says nothing, and
//!   the process is looked at: it counts as alive only where that is certain.
//! - Once answered the question is not asked again: what the program has been told stays true.

use super::{Phase, Socket, demote, ready};
use crate::signals::is_sandboxed;
use crate::{table, world};
use std::sync::atomic::Ordering;
use transport::clock;
use transport::provider::{End, Provider as _};
use transport::reason::Reason;
use transport::sdp::{Leg, Tx, Verdict};
use transport::shm::layout::{FIN_NONE, FIN_RESET};
use transport::shm::segment::Segment;
use transport::sys::process::Fate;
use transport::sys::{Errno, net, time};

/// The error of a connection that was cut, if it was: of one that is over, and of whose end the peer has said nothing.
#[inline]
pub(super) fn error(s: &Socket, tx: &mut Tx, p: &Segment, fd: i32) -> Option<Errno> {
    if !s.is_over() {
        return None;
    }
    if tx.ended.verdict() == Verdict::Unasked && p.finished() == FIN_NONE {
        ask(s, tx, p, fd);
    }
    known(tx)
}

/// [`take`] of what SO_ERROR said.
pub(super) fn take_waiting(s: &Socket, e: Errno) {
    if let Ok(mut tx) = s.tx.lock() {
        told_by_option(s, &mut tx, e);
    }
}

fn told_by_option(s: &Socket, tx: &mut Tx, e: Errno) {
    if s.sent_late.load(Ordering::Acquire) {
        return tx.ended.take(e); // (what went by the kernel was answered)
    }
    tx.ended.take_waiting(e);
    if tx.was_put_behind_end() {
        s.sent_late.store(true, Ordering::Release);
    }
}

/// An error of the kernel connection was taken by a call of ours, which holds no lock: the kernel tells it once.
pub(super) fn take(s: &Socket, e: Errno) {
    if let Ok(mut tx) = s.tx.lock() {
        tx.ended.take(e);
    }
}

/// Of a connection for which [`error`] was asked.
pub(super) fn known(tx: &Tx) -> Option<Errno> {
    (tx.ended.verdict() == Verdict::Cut).then(|| tx.ended.taken().unwrap_or(Errno::CONNRESET))
}

/// Whether the peer has died and the kernel's word of that was taken by a call of ours, so that it tells a sender nothing.
pub(super) fn is_dead_unheard(tx: &Tx) -> bool {
    tx.ended.verdict() == Verdict::Died && tx.ended.taken().is_some()
}

/// Asks the kernel, unless it cannot be said yet, or the kernel itself tells whoever asks.
#[cold]
fn ask(s: &Socket, tx: &mut Tx, p: &Segment, fd: i32) {
    if p.stated(End::Fast).is_some() || is_sandboxed() {
        return;
    }
    let fd = s.live_fd(fd);
    // (a reset's error shows before its end does)
    let shown = ready::kernel_now(s, fd, libc::POLLRDHUP);
    if shown & libc::POLLHUP != 0 && net::is_closed(fd) {
        let verdict = of_reset(s, tx, p, fd);
        tx.ended.judge(verdict);
    } else if shown & libc::POLLRDHUP != 0 && !s.woken_hard.load(Ordering::Acquire) {
        tx.ended.judge(Verdict::Died);
    }
}

/// The kernel connection was reset, by whomever.
fn of_reset(s: &Socket, tx: &mut Tx, p: &Segment, fd: i32) -> Verdict {
    // (the order of these two locks)
    if let Some(e) = s.rx.lock().ok().and_then(|rx| rx.taken_error()) {
        tx.ended.take(e);
    }
    if tx.ended.taken().is_none() {
        let waits = net::option(fd, libc::SOL_SOCKET, libc::SO_ERROR);
        told_by_option(s, tx, Errno(waits.unwrap_or(0)));
    }
    match tx.ended.taken() {
        // This side's own end was cut, of which the other may never hear.
        Some(e) if e != Errno::CONNRESET => {
            if !tx.is_finished() {
                p.finish(FIN_RESET);
            }
            Verdict::Cut
        }
        // (nor is what the program has been told already taken back)
        _ if s.reset_told.load(Ordering::Acquire) => Verdict::Cut,
        _ if p.fate_of_peer() == Fate::Lives => Verdict::Cut,
        _ => Verdict::Died,
    }
}

/// This process ends, or is about to become another program: what that is not to have the kernel closes on the way, as if the process had
/// died, and it may live on. So it says no more that it lives. (What the new program is to have is kernel TCP's by now.) And the kernel takes
/// a while: who goes back to it meanwhile does not ring, as what comes and is not read makes the end a reset. One who is just ringing
/// is heard first, for a bounded time.
pub(crate) fn before_end() {
    each_own(Segment::part);
    let begun = clock::ticks();
    while is_any_rung() && clock::ticks() - begun < clock::us(RUNG_US) {
        let _ = time::nap(100);
    }
}

/// This process is killed by what this thread does next. It may be a handler that has interrupted who holds a lock: one that is held
/// is not waited for. The end is said to the kernel, unless bytes lie here unread, so that a reset for a bell that comes behind is none for a reader.
pub(crate) fn die_all() {
    if world::is_foreign() {
        return;
    }
    let begun = clock::ticks();
    while is_any_dying_rung() && clock::ticks() - begun < clock::us(RUNG_US) {
        let _ = time::nap(100);
    }
    each_to_die(|s, _, fd| {
        if ready::is_quiet(s) {
            // SAFETY: no pointers.
            let _ = unsafe { transport::syscall!(shutdown, fd, libc::SHUT_WR) };
        }
    });
}

/// Says that the process ends, and takes bells. Whether more are to come.
fn is_any_dying_rung() -> bool {
    let mut any = false;
    each_to_die(|s, p, fd| {
        p.part();
        any |= !s.rx.is_held() && is_rung(s, p, fd);
    });
    any
}

fn each_to_die(mut each: impl FnMut(&'static Socket, &Segment, i32)) {
    table::each(0, u32::MAX, |fd, entry| {
        if let table::Entry::Socket(s) = entry
            && s.phase() == Phase::Attached
            && !s.is_shared()
            && let Some(p) = s.segment()
        {
            each(s, p, fd);
        }
    });
}

/// How long (µs) a peer that has stopped this side may take to ring and be done.
const RUNG_US: u64 = 10_000;

/// Takes in what peers that have gone back to the kernel have said, and bells for what has been read. Whether there is more to come.
fn is_any_rung() -> bool {
    let mut any = false;
    table::each(0, u32::MAX, |fd, entry| {
        if let table::Entry::Socket(s) = entry
            && !s.is_shared()
        {
            demote::attend(s, fd);
            // (the segment of one that is the kernel's by now may be mapped no more)
            let Some(p) = s.segment().filter(|_| s.phase() == Phase::Attached) else {
                return;
            };
            any |= is_rung(s, p, fd);
            if p.stopped() {
                demote::finish_if_over(s, fd, Reason::PeerDemoted);
                let attached = s.phase() == Phase::Attached && !s.is_over();
                any |= attached && p.finished() == FIN_NONE;
            }
        }
    });
    any
}

/// Whether bells are to come for what has been read. (Those for what has not may lie there: the end is a reset all the same.)
fn is_rung(s: &Socket, p: &Segment, fd: i32) -> bool {
    s.rx.lock_soon().is_ok_and(|mut rx| {
        let read = s.phase() == Phase::Attached
            && !s.is_over()
            && match rx.leg() {
                Leg::First => false,
                Leg::Fast => rx.available(p) == Ok(0),
                Leg::Last => true,
            };
        let rung = read && rx.bells_outstanding(p) > 0;
        let left = rung && !rx.take_bells(p, fd, usize::MAX);
        s.mirror_rx(&rx);
        left
    })
}

/// It has not become one.
pub(crate) fn go_on() {
    if !is_sandboxed() {
        each_own(Segment::own);
    }
}

fn each_own(say: impl Fn(&Segment)) {
    world::lock().pool.each(|s| {
        if matches!(s.phase(), Phase::Announced | Phase::Attached)
            && !s.is_shared()
            && let Some(p) = s.segment()
        {
            say(p);
        }
    });
}
