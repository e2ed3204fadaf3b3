//! A program is started: all that it would inherit is left to the kernel first. The peers share one patience, so that many that do not
//! answer (stopped, or behind a link that is down) cost no more time than one.
//!
//! Rule: a connection that somebody goes on with by the library, this process or another, outlives a peer that does not answer: it stays in
//! RDMA mode ([`Leaving::let_be`]), and the new program does not get it. One that only the new program would have is reset.
//!
//! Called by `hooks::exec`, with no lock held.

use super::super::super::demote::Unread;
use super::super::super::{Phase, Socket};
use super::super::{opening, wire};
use super::{
    FOLLOW_MOST_US, FOLLOW_US, Leaving, PART, Quiet, await_answer, before_demote, unasked_us,
    wait_until,
};
use crate::world::{self, World};
use transport::clock;
use transport::reason::Reason;
use transport::sys::net;

/// How long (µs) a peer is waited for before the next is asked.
const FIRST_US: u64 = 2000;
/// How long (µs) all of them are then, where somebody goes on with each.
const GOES_ON_US: u64 = 1_000_000;

/// A stream, and a descriptor that stands for it.
pub(crate) type Held = (&'static Socket, i32);

/// Leaves these streams to the kernel. `goes_on`: somebody beside the new program holds it. Those that the new program is not to get.
pub(crate) fn leave_all(all: &[Held], goes_on: impl Fn(&Socket) -> bool) -> Vec<Held> {
    let mut first: Vec<Held> = Vec::new();
    for &(s, fd) in all {
        if !first.iter().any(|&(other, _)| std::ptr::eq(other, s)) {
            first.push((s, fd));
        }
    }
    for &(s, fd) in &first {
        if !goes_on(s) {
            before_demote(s, fd, Reason::Exec);
        } else if let Some(wire) = wire(s) {
            await_answer(s, fd, wire); // (whoever does not use it yet may have made it for that program)
        }
    }
    await_requests(&first);
    let mut w = world::lock();
    let mut part = vec![0; PART];
    let mut late = Vec::new();
    for (s, fd) in first {
        if !s.is_own(fd) {
            continue; // (another thread has closed it meanwhile)
        }
        let Some(wire) = wire(s) else {
            leave_unasked(&mut w, s, fd, goes_on(s));
            continue;
        };
        let mut leaving = Leaving::begin(s, fd, wire, Unread::GiveBack);
        leaving.goes_on = goes_on(s);
        leaving.spares = leaving.goes_on;
        let mut whole = None;
        let most = if leaving.is_silent() { 0 } else { FIRST_US };
        wait_until(most, || {
            whole = leaving.turn(&mut part);
            whole.is_some()
        });
        if whole.is_some() {
            leaving.close(&mut w, whole, Reason::Exec);
        } else {
            late.push(leaving);
        }
    }
    if !late.is_empty() {
        let begun = clock::ticks();
        let mut quiet = Quiet::begin();
        wait_until(FOLLOW_MOST_US, || {
            late = turn_all(std::mem::take(&mut late), &mut w, &mut part);
            let may_end = clock::ticks() - begun > clock::us(GOES_ON_US);
            // (who was waited for in vain before, and has said nothing since, is not again)
            // (who held it beside the new program may have closed it since)
            let is_let_be =
                |l: &Leaving| goes_on(l.s) && l.can_be_let_be() && (may_end || l.is_silent());
            late.iter().all(is_let_be)
                || quiet.lasts(late.iter().map(Leaving::moved).sum()) > clock::us(FOLLOW_US)
        });
    }
    let mut kept = Vec::new();
    for leaving in late {
        let s = leaving.s;
        if goes_on(s) && leaving.let_be() {
            kept.extend(all.iter().filter(|(o, _)| std::ptr::eq(*o, s)));
        } else {
            leaving.close(&mut w, None, Reason::Exec);
        }
    }
    kept
}

/// Who may be asked yet may have been by now: waits for all of these requests together.
fn await_requests(all: &[Held]) {
    // (once: one that declines by now was waited for before)
    let unasked = |&&(s, _): &&Held| wire(s).is_none() && !s.declines();
    let Some(most) = all
        .iter()
        .filter(unasked)
        .map(|&(_, fd)| unasked_us(fd))
        .max()
    else {
        return;
    };
    let has_come = |&(_, fd): &Held| net::ready_now(fd, libc::POLLIN) != 0;
    wait_until(most, || all.iter().filter(unasked).all(has_come));
}

/// A server that has not been asked. Whoever goes on with the library answers whenever it is, as the new program does, which is told of it
/// (`handover`): neither wants that any more.
fn leave_unasked(w: &mut World, s: &'static Socket, fd: i32, goes_on: bool) {
    if s.phase() != Phase::Opening {
        return; // (it was closed meanwhile, or its peer has gone back)
    }
    if net::ready_now(fd, libc::POLLIN) == 0 {
        if goes_on {
            s.hand_on();
        } else {
            s.decline();
        }
    } else {
        opening::decline(w, s, fd, Reason::Exec);
    }
}

/// One turn of each. Those that are not over.
fn turn_all(all: Vec<Leaving>, w: &mut World, part: &mut [u8]) -> Vec<Leaving> {
    let mut late = Vec::new();
    for mut leaving in all {
        let whole = leaving.turn(part);
        if whole.is_some() {
            leaving.close(w, whole, Reason::Exec);
        } else {
            late.push(leaving);
        }
    }
    late
}
