//! Tickets (`transport::doorbell`): a thread that sleeps on a set alone is rung once for all of its connections. Called by
//! `wait`, and by whoever may come between that one bell and its sleeper.
//!
//! The rule: while a thread sleeps by a ticket, a bell on any entry of the set has to wake it. Who else may take such a
//! bell away (a wait on the same set, a look by a set around it, an entry that leaves the set, a fork) wakes the sleeper
//! instead ([`disturb`]); it looks at everything and draws another ticket. Whoever takes bells off a connection has the
//! connection's sets look anyway (`registered::kick_others`).

use super::entry::Asked;
use super::hot;
use super::set::{Inner, Locked, Set};
use crate::world;
use std::sync::atomic::Ordering;
use transport::clock;
use transport::doorbell::Ticket;
use transport::sys::{barrier, net, udp};

/// How long (ns) a sleep by a ticket lasts at most before everything is looked at once more: what nobody has thought of costs a
/// moment then, and not a stream. (Entries that stay idle are left to bells of their own after some of these.)
const NAP_NS: u64 = 100_000_000;

/// Whether a sleep that took so long (ticks) was ended by that.
pub(super) fn is_nap(ticket: Option<Ticket>, slept: u64) -> bool {
    nap(ticket) == NAP_NS && slept >= clock::us(NAP_NS / 1000)
}

/// [`NAP_NS`] for a sleep by this ticket; not where tests want to see what nobody has thought of.
pub(super) fn nap(ticket: Option<Ticket>) -> u64 {
    if ticket.is_some() && world::settings().naps {
        NAP_NS
    } else {
        u64::MAX
    }
}

/// After how many of these in a row posted entries are left to bells of their own too.
const QUIET: u32 = 20;

/// A sleep has ended, by itself or by a bell.
pub(super) fn note_nap(set: &'static Set, by_itself: bool) {
    let Some(mut l) = set.lock() else { return };
    l.quiet = if by_itself { l.quiet + 1 } else { 0 };
    if l.quiet > QUIET {
        l.quiet = 0;
        l.rest();
    }
}

/// Entries that are tried before the sleeper is left to that.
const TRIES: usize = 8;

/// For how many sleeps a set that several threads have used at once is without tickets.
const CROWDED: u32 = 1000;

/// Who may have taken a bell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    /// Another thread that asks the kernel for the set's events. Where there is one there will be again: for a while
    /// every connection has bells of its own.
    Wait,
    /// A change of the set.
    Change,
}

/// Before a sleep on the set, whose thread is counted among the waiters: wishes to be rung for every hot entry. The
/// ticket, if there is one.
pub(super) fn arm(set: &'static Set) -> Option<Ticket> {
    let mut l = set.lock()?;
    if set.waiters.load(Ordering::SeqCst) > 1 {
        set.crowded.store(CROWDED, Ordering::SeqCst);
    }
    let crowded = set.crowded.load(Ordering::SeqCst);
    let ticket = if crowded == 0 && l.hot.len() + l.boards.posted() > 1 {
        draw(&mut l)
    } else {
        set.crowded
            .store(crowded.saturating_sub(1), Ordering::SeqCst);
        None
    };
    if let Some(t) = ticket {
        set.ticket.store(t.number(), Ordering::SeqCst);
    } else {
        l.leave_boards();
    }
    let patience = hot::Patience::of(set, &l).asleep();
    let (mut new, mut used) = (false, false);
    for at in 0..l.hot.len() {
        if let Some(&i) = l.hot.get(at)
            && let Some(e) = l.entry(i)
        {
            if e.is_posted() {
                continue; // (heard of by the board)
            }
            // One that is about to be left to its bell needs one of its own.
            let by = ticket.filter(|_| e.idle < patience.with(e));
            if let Some(t) = by
                && e.wish_by(t)
            {
                used = true;
                new |= e.owes_barrier();
            } else {
                new |= e.wish();
            }
        }
    }
    used |= l.boards.posted() > 0;
    l.boards.seat(ticket);
    let ticket = match ticket {
        Some(t) if !used => {
            over(set, &l, t);
            None
        }
        ticket => ticket,
    };
    drop(l);
    if new {
        barrier::heavy();
    }
    ticket
}

/// The ticket is not slept on any more. Under the set's lock.
pub(super) fn over(set: &Set, l: &Inner, ticket: Ticket) {
    l.boards.seat(None);
    // (another thread may sleep on it by now)
    let _ = set
        .ticket
        .compare_exchange(ticket.number(), 0, Ordering::SeqCst, Ordering::SeqCst);
}

/// Somebody may have taken a bell that was to wake a thread that sleeps by a ticket: it is woken.
pub(crate) fn disturb(set: &'static Set, who: Taker) {
    if set.ticket.load(Ordering::SeqCst) != 0
        && let Some(mut l) = set.lock()
    {
        disturb_held(set, &mut l, who);
    }
}

/// As [`disturb`], of a set that is locked.
pub(super) fn disturb_held(set: &Set, l: &mut Locked, who: Taker) {
    // (a thread that has jumped out of its sleep has left the ticket)
    if set.ticket.load(Ordering::SeqCst) == 0 || set.waiters.load(Ordering::SeqCst) == 0 {
        return;
    }
    if who == Taker::Wait {
        set.crowded.store(CROWDED, Ordering::SeqCst);
    }
    // Any entry of ours will do whose descriptor is still the socket's and has room, which is what the event tells of.
    let hot = l.hot.iter().copied();
    let some: Vec<usize> = hot.chain(l.boards.entries()).collect();
    let mut tries = 0;
    for i in some {
        if let Some(e) = l.entry(i)
            && e.asked == Asked::Ours
            && tries < TRIES
            && e.socket().is_some_and(|s| s.phase().is_fast())
        {
            tries += 1;
            if net::ready_now(e.fd, libc::POLLOUT) & libc::POLLOUT != 0 && set.rouse(e, i) {
                return;
            }
        }
    }
}

/// A number that no sleep has had. Sets begin anywhere, and so does a child's copy of a set.
fn draw(l: &mut Inner) -> Option<Ticket> {
    if l.tickets == 0 {
        l.tickets = udp::random().ok()?;
    }
    l.tickets = l.tickets.wrapping_add(1);
    Ticket::new(l.tickets)
}
