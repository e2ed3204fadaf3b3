//! The way back to kernel TCP, at any byte, from either side.
//!
//! [`demote`] needs nothing of the peer: this side ends its own fast leg at the byte where it is, stops
//! the peer's, waits until the peer is not in the middle of a put, and takes what lies in the ring for
//! itself. The peer finds its leg stopped at its next call and goes on by the kernel.

mod owed;

pub(crate) use owed::demote_at_once;
pub(super) use owed::{go_on_settling, settle_alone};

use super::{Phase, Socket, Way, residual};
use crate::epoll::registered;
use crate::world::{self, World};
use owed::{give_up, owed, pay, settled};
use std::sync::atomic::{AtomicU64, Ordering};
use transport::clock;
use transport::direct::Direct;
use transport::doorbell;
use transport::provider::{End, Provider};
use transport::reason::Reason;
use transport::sdp::{Leg, Rx};
use transport::shm::layout::FIN_SHUT;
use transport::sys::{self, net, time};

/// How long (µs) a peer may be in the middle of a put before it is not waited for any more. A put is a copy
/// of at most a buffer; the rest is for a peer that was preempted.
const PUT_US: u64 = 2_000_000;

/// How long (µs) to wait for a peer to take bytes back. One that is asleep or looking hears at once; one
/// that computes does not.
const GIVE_BACK_US: u64 = 30_000;
/// The same of one that was asleep and has been rung: it comes as soon as it gets a core.
const ASLEEP_US: u64 = 300_000;
/// How long (µs) to wait in vain for the peers of many streams together, and then for each.
const IN_VAIN_US: u64 = 100_000;
const HEARING_US: u64 = 500;
/// How long (µs) bytes that the peer asked back are waited for while the kernel takes none of them.
const STILL_US: u64 = 3_000_000;

/// How long (µs) threads that were woken on the connection may take to leave it.
const LEAVE_US: u64 = 20_000;

/// What is to happen to bytes that were received and not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// The program will go on reading through the library: they are kept here.
    Keep,
    /// The program, or one that it starts, may read round the library: the peer is asked to send them
    /// again by the kernel. One that does not hear us in time is not waited for; then they are kept.
    GiveBack,
    /// Whoever goes on reads round the library for certain: the peer stays asked, and sends them when it hears.
    Ask,
}

/// Leaves the connection on kernel TCP for good. The rendezvous is let go of.
pub(crate) fn become_plain(w: &mut World, s: &'static Socket, fd: i32, why: Reason) {
    let was = s.phase();
    if matches!(was, Phase::Plain | Phase::Idle | Phase::Listening) {
        return;
    }
    if was == Phase::Announced && !super::close::withdraw(w, s) {
        return; // the server has just said yes; the caller's next step attaches
    }
    go_plain(w, s, fd, why, was);
}

/// [`become_plain`] from that phase on, which the caller may have ended already, under a lock under which nobody could
/// take what is the kernel's from now on.
pub(crate) fn go_plain(w: &mut World, s: &'static Socket, fd: i32, why: Reason, was: Phase) {
    let lowat = s.lowat.load(Ordering::Relaxed).cast_signed();
    if lowat > 1 && was != Phase::Fresh {
        net::set_lowat(fd, lowat);
    }
    if was == Phase::Attached {
        super::options::restore_delays(s, fd);
    }
    if was.is_fast() && s.rx_shut.load(Ordering::Acquire) && !s.woken_hard.load(Ordering::Acquire) {
        end_receiving(s, fd); // what was this side's own knowledge has to be the kernel's now
    }
    if was.is_fast() {
        // (the peer's last word of the fast path, alone: its program's next small message would wait for the delay of that, by Nagle's
        // algorithm)
        net::acknowledge(fd);
    }
    s.note_direct();
    if was == Phase::Fresh {
        super::close::unexpect(w, s); // servers would go on looking for its announcement
    }
    s.set_phase(Phase::Plain);
    let carried = s.record.transport.load(Ordering::Relaxed) != 0;
    if was == Phase::Attached || (was == Phase::Wired && carried) {
        s.record.set_demoted(why);
    } else {
        s.record.set_kernel(why);
    }
    // (sets of other processes hear of it by nothing else: what the kernel told of it they have heard)
    if was == Phase::Attached || was.is_fast() && s.is_shared() {
        super::rouse::all(s);
    }
    // Whoever is at the segment now leaves it before it is another connection's; whoever comes later
    // sees the phase.
    drop(s.tx.lock());
    drop(s.rx.lock());
    super::held::let_go(s);
    if !s.has_others() {
        super::close::let_go(w, s); // (the last of several does it at the end)
    }
    registered::detached(w, s, fd);
}

/// Moves a socket to kernel TCP now, whatever it is doing.
pub(crate) fn demote(s: &'static Socket, fd: i32, why: Reason, unread: Unread) {
    begin_many();
    demote_one_of_many(s, fd, why, unread);
}

/// [`demote`] in a walk over many, after [`begin_many`].
pub(crate) fn demote_one_of_many(s: &'static Socket, fd: i32, why: Reason, unread: Unread) {
    super::wired::before_demote(s, fd, why);
    let (mut left, mut moved) = (u64::MAX, clock::ticks());
    loop {
        let mut w = world::lock();
        demote_held(&mut w, s, fd, why, unread);
        let owed = owed(s);
        if owed == 0 {
            return;
        }
        if owed < left {
            (left, moved) = (owed, clock::ticks());
        } else if clock::ticks() - moved > clock::us(STILL_US) {
            // (others who hold the stream go on with it: what is owed goes before all that they send)
            if !s.is_shared() {
                give_up(&mut w, s, fd, why);
            }
            return;
        }
        // The peer may owe as much, and wait for the same: whoever reads here is to go on.
        drop(w);
        let _ = time::nap(OWED_NAP_US);
    }
}

/// How often (µs) the kernel is offered what is owed.
const OWED_NAP_US: u64 = 500;

/// [`demote`] with the registry lock held. Where the peer has asked back more than the kernel has room for the stream stays
/// attached yet: what is owed goes with this process's next calls.
pub(crate) fn demote_held(w: &mut World, s: &'static Socket, fd: i32, why: Reason, unread: Unread) {
    match s.phase() {
        Phase::Fresh => become_plain(w, s, fd, why),
        Phase::Announced => {
            become_plain(w, s, fd, why);
            if s.phase() == Phase::Announced
                && let Some(segment) = s.segment().copied()
            {
                // The server has agreed meanwhile: join, so as to part in order.
                let Ok(mut tx) = s.tx.lock() else { return };
                if tx.leg() == Leg::First {
                    tx.attach(&segment, fd, &s.terms());
                }
                drop(tx);
                s.record.set_transport(transport::record::Transport::Shm);
                s.note_scheme();
                s.set_phase(Phase::Attached);
                cut(w, s, fd, why, unread);
            }
        }
        Phase::Attached => cut(w, s, fd, why, unread),
        Phase::Opening | Phase::Wired => super::wired::demote(w, s, fd, why, unread),
        _ => {}
    }
}

/// Whether what the peer gives back would follow what is unread by then: on the first leg that lies on the kernel
/// connection, where a bell behind it would be taken for a byte.
fn can_follow_kernel(s: &Socket, p: &impl Provider, rx: &mut Rx) -> bool {
    // (one whose peer has sent nothing by the kernel is over, though nobody may have looked yet)
    rx.pass_first(p);
    if rx.leg() == Leg::First {
        // (a bell comes of a put, and is counted within it)
        p.disarm(doorbell::DATA);
        p.disarm_by();
        wait_for_put(p);
        return s.sleepers() == 0 && rx.bells_outstanding(p) == 0;
    }
    rx.leg() == Leg::Fast
}

/// Threads of this process that sleep on the connection are woken by bells, which [`cut`] takes: those
/// whose bell has come leave first.
fn let_sleepers_leave(s: &Socket, p: &impl Provider) {
    let begun = clock::ticks();
    while s.sleepers() > 0
        && s.rx.lock().is_ok_and(|rx| rx.bells_outstanding(p) > 0)
        && clock::ticks() - begun < clock::us(LEAVE_US)
    {
        sys::yield_core();
    }
}

/// The peer was stopped in the middle of a put, or the one of its processes that made it has died: whoever
/// goes on there finds the leg stopped, and sends all that was not read, by the kernel, whenever that is.
fn asks_all_back(p: &impl Provider, rx: &Rx) -> bool {
    if rx.leg() != Leg::Fast {
        return false;
    }
    p.stop_peer(Some(rx.fast_bytes()));
    // (it may have gone on just before)
    p.stated(End::Fast).is_none() || !p.cancel_give_back()
}

fn wait_for_put(p: &impl Provider) {
    let begun = clock::ticks();
    while p.peer_is_putting() && clock::ticks() - begun < clock::us(PUT_US) {
        sys::yield_core();
    }
}

fn cut(w: &mut World, s: &'static Socket, fd: i32, why: Reason, unread: Unread) {
    let Some(p) = s.segment() else { return };
    // With others asleep on it nothing more may come before they have heard of what came. (A peer that is to give back must
    // not be stopped before it can be told so: it would follow at once, and could not any more. What it gives back comes by the
    // kernel, which wakes them.)
    if s.sleepers() > 0 {
        if unread == Unread::Keep {
            p.stop_peer(None);
            wait_for_put(p);
        }
        let_sleepers_leave(s, p);
    }
    let (Ok(mut tx), Ok(mut rx)) = (s.tx.lock(), s.rx.lock()) else {
        return;
    };
    if s.phase() != Phase::Attached {
        return; // another process that holds it was faster
    }
    if s.begin_leaving() {
        s.broken.store(true, Ordering::Release); // (one that has died was before)
    }
    // The peer may have gone first and asked for its unread bytes: once plain, nothing would send them.
    if p.stopped() {
        tx.end_fast(p, fd);
    }
    if tx.owes() && !pay(s, p, &mut tx, fd) {
        return s.end_leaving();
    }
    if tx.leg() == Leg::Last && rx.leg() == Leg::Last && rx.bells_outstanding(p) == 0 {
        s.end_leaving();
        drop((tx, rx));
        return become_plain(w, s, fd, why); // (it was as far before, and owed)
    }
    let closed = tx.is_finished();
    // A peer that may have shut its kernel half can send nothing again.
    let heard = !closed && !super::ending::is_gone(s, p);
    // (nor one that has followed already, and may have sent by the kernel since)
    let heard = heard && p.stated(End::Fast).is_none();
    let give_back = (unread != Unread::Keep && heard && can_follow_kernel(s, p, &mut rx))
        .then(|| rx.fast_bytes());
    // Stop the peer, and ring it: a sender asleep for room must notice, and bytes given back must go. (Who naps is woken by that.)
    let naps = p.peer_naps();
    p.stop_peer(give_back);
    // What it withholds is unread too: it is given back or kept, as the rest, never both.
    rx.release();
    // (A peer that wished for nothing may still sleep on it, for its end; one that is gone would answer. Where
    // the kernel connection has failed a bell would be told of it, in the program's place.)
    let failed = net::ready_now(fd, 0) & libc::POLLERR != 0;
    let gone = failed || super::ending::is_gone(s, p);
    let asks = give_back.is_some() && rx.available(p).is_ok_and(|n| n > 0);
    let asleep = !gone && tx.rings(p, doorbell::DATA | doorbell::SPACE | doorbell::TAKEN);
    // (nor one whose process ends)
    let parts = p.peer_parts();
    let asleep = asleep && !parts;
    if asleep || asks && !gone && !parts {
        tx.end_fast_ringing(p, fd);
    } else {
        tx.end_fast(p, fd);
    }
    wait_for_put(p);
    let stuck = p.peer_is_putting();
    // (what is in a lane is here already, between those bytes)
    let holds = p.ahead().any(|a| a.lane != 0);
    let given = if stuck {
        // (nor would the other end send again what is in a lane, and may not have told of all of it)
        let lane = p.fetched();
        !lane && asks_all_back(p, &rx) || {
            s.broken.store(true, Ordering::Release); // what it is putting would be lost
            false
        }
    } else {
        give_back.is_some()
            && rx.available(p).is_ok_and(|n| n > 0)
            && if holds {
                !p.cancel_give_back()
            } else {
                is_given_back(p, asleep || naps) || unread == Unread::Ask || !p.cancel_give_back()
            }
    };
    let first = rx.leg() == Leg::First;
    // (what the peer sent by the kernel and has not come yet, where that is known)
    let to_come = p
        .stated(End::Kernel)
        .filter(|_| first)
        .map_or(0, |end| end.saturating_sub(rx.kernel_bytes()))
        .saturating_sub(net::unread(fd) as u64);
    let stays = if given && !stuck && first {
        if rx.bells_outstanding(p) > 0 {
            s.broken.store(true, Ordering::Release); // it would be taken for a byte
        }
        rx.leave_rest_to_kernel();
        Ok(true)
    } else {
        rx.leave_in_kernel(p)
    };
    let all_here = !given && (stays != Ok(true) || to_come == 0);
    match if stays == Ok(true) {
        Ok(Vec::new())
    } else {
        rx.gather(p, fd, super::held::far(s, p))
    } {
        Ok(bytes) if !given => {
            if !residual::keep(s, fd, &bytes) {
                s.broken.store(true, Ordering::Release);
            }
        }
        Ok(_) => {}
        Err(_) => s.broken.store(true, Ordering::Release),
    }
    // Every bell that was counted has been sent, and loopback has delivered it.
    let begun = clock::ticks();
    while !rx.take_bells(p, fd, usize::MAX) && clock::ticks() - begun < clock::us(100_000) {
        sys::yield_core();
    }
    // What it sends once more is on its way: who saw it readable finds it readable.
    let begun = clock::ticks();
    while given
        && !stuck
        && net::unread(fd) == 0
        && clock::ticks() - begun < clock::us(GIVE_BACK_US)
    {
        sys::yield_core();
    }
    s.mirror_rx(&rx);
    s.mirror_tx(&tx);
    // (the peer may have gone at the same time, and have asked for its own)
    let owes = tx.owes() && !pay(s, p, &mut tx, fd);
    s.end_leaving();
    drop((tx, rx));
    if p.finished() == FIN_SHUT && all_here {
        end_receiving(s, fd); // (until the peer follows, which may be much later, the kernel does not know)
    }
    if owes && !s.broken.load(Ordering::Acquire) {
        return;
    }
    if closed {
        // SAFETY: no pointers.
        let _ = unsafe { transport::syscall!(shutdown, fd, libc::SHUT_WR) };
    }
    if s.broken.load(Ordering::Acquire) {
        net::disconnect(fd); // a reset, never a gap
    }
    become_plain(w, s, fd, why);
}

/// Ticks waited in vain for peers since [`begin_many`].
static IN_VAIN: AtomicU64 = AtomicU64::new(0);

/// Many streams are about to be demoted one after the other: their peers share one patience.
pub(crate) fn begin_many() {
    IN_VAIN.store(0, Ordering::Relaxed);
}

/// Waits for the peer to take on what it was asked to send again. Once others have been waited for in
/// vain for long, only as long as one that hears takes.
fn is_given_back(p: &impl Provider, asleep: bool) -> bool {
    let (patience, in_vain) = if asleep {
        (ASLEEP_US, ASLEEP_US)
    } else {
        (GIVE_BACK_US, IN_VAIN_US)
    };
    let spent = IN_VAIN.load(Ordering::Relaxed) > clock::us(in_vain);
    let limit = clock::us(if spent { HEARING_US } else { patience });
    let begun = clock::ticks();
    while !p.gave_back() {
        let waited = clock::ticks() - begun;
        if waited > limit {
            IN_VAIN.fetch_add(waited, Ordering::Relaxed);
            return false;
        }
        sys::yield_core();
    }
    true
}

/// Notices that the peer has gone back to the kernel, and follows. Cheap when it has not.
#[inline]
pub(crate) fn attend(s: &'static Socket, fd: i32) {
    if s.phase() == Phase::Attached && super::ready::is_unsettled(s) {
        follow(s, fd);
    }
}

#[cold]
fn follow(s: &'static Socket, fd: i32) {
    let Some(p) = s.segment() else { return };
    let took_bells = s.rx.lock().is_ok_and(|mut rx| {
        let bells = rx.bells_taken();
        rx.advance(p, fd);
        s.mirror_rx(&rx);
        rx.bells_taken() != bells
    });
    if took_bells {
        registered::kick_others(s, std::ptr::null());
    }
    if s.tx.lock().is_ok_and(|_tx| s.is_torn()) {
        return broken(s, fd);
    }
    if p.stopped()
        && let Ok(mut tx) = s.tx.lock()
    {
        tx.end_fast(p, fd);
        let begun = clock::ticks();
        while !owed::settle(s, p, &mut tx, fd) && clock::ticks() - begun < clock::us(PUT_US / 10) {
            sys::yield_core();
        }
        s.mirror_tx(&tx);
        if tx.owes() {
            drop(tx);
            super::parked::note(s, fd);
            super::parked::keep_awake();
            return;
        }
        settled(s, fd);
    }
    finish_if_over(s, fd, Reason::PeerDemoted);
}

/// Once both directions are on their last leg with nothing owed, the connection is plain.
pub(crate) fn finish_if_over(s: &'static Socket, fd: i32, why: Reason) {
    {
        let (Ok(tx), Ok(rx)) = (s.tx.lock(), s.rx.lock()) else {
            return;
        };
        let Some(p) = s.segment() else { return };
        // Somebody else may have been here, and have let go of the segment.
        if s.phase() != Phase::Attached {
            return;
        }
        if tx.leg() != Leg::Last
            || rx.leg() != Leg::Last
            || tx.owes()
            || rx.bells_outstanding(p) > 0
            || s.is_torn()
        {
            return;
        }
    }
    let mut w = world::lock();
    if s.phase() != Phase::Attached {
        return;
    }
    let said = s
        .segment()
        .is_some_and(|p| p.finished() == FIN_SHUT && !p.gave_back());
    if said || s.eof_told.load(Ordering::Acquire) {
        end_receiving(s, fd); // (the kernel may hear of it from the peer only later, and who was told is told the same again)
    }
    become_plain(&mut w, s, fd, why);
}

/// What is read ends with what the kernel has, as after a FIN: the peer has ended its direction, by a word in the segment, or this side has
/// shut it.
fn end_receiving(s: &Socket, fd: i32) {
    // (Who still looks at the segment is to know whose doing the end is that the kernel shows: a peer that had died would have left
    // unread what was sent last.)
    s.woken_hard.store(true, Ordering::Release);
    // SAFETY: no pointers.
    let _ = unsafe { transport::syscall!(shutdown, fd, libc::SHUT_RD) };
}

/// The peer wrote what it never may: reset this connection, nothing else.
#[cold]
pub(crate) fn broken(s: &'static Socket, fd: i32) {
    if s.broken.swap(true, Ordering::AcqRel) {
        return;
    }
    s.record.set_demoted(Reason::PeerBroke);
    net::disconnect(fd);
}

/// Bytes came on the kernel connection that the peer's library did not send: its program, or a child of
/// it, writes round it. Both directions go on by the kernel.
#[cold]
pub(crate) fn went_round(s: &'static Socket, fd: i32) {
    demote(s, fd, Reason::PeerWentRound, Unread::Keep);
}

/// The socket's way, for callers that only look. Under the registry lock.
pub(crate) fn way(s: &Socket) -> Way {
    // SAFETY: under the registry lock, by the caller.
    unsafe { *s.way.get() }
}
