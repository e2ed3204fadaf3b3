//! The end of a socket: the last descriptor is closed, or its number is used for something else.
//!
//! [`forget`] does everything but the kernel's close, which the caller does next: what the peer has to
//! know is in the segment before the kernel's FIN wakes it. While another process holds the stream there is
//! nothing to tell: the peer hears of the end from the last one, by the segment or, if that died, by the
//! kernel.

use super::{Phase, Socket, Way, apart, cut, demote};
use crate::epoll::registered;
use crate::table::{self, Entry};
use crate::world::{self, World};
use std::sync::atomic::{Ordering, fence};
use transport::clock;
use transport::provider::Provider;
use transport::sdp::Leg;
use transport::shm::layout::{FIN_ABORTED, FIN_CLOSED, FIN_NONE, FIN_RESET, State, generation};
use transport::sys::diag;
use transport::sys::fd::{Fd, as_fd};
use transport::sys::{Errno, net, time};

/// Forgets what a descriptor number stands for, which is closed or replaced next, or has been.
pub(crate) fn forget(fd: i32) {
    forget_by(fd, table::clear);
}

/// Forgets what a descriptor number stands for, before `close` closes or replaces it: calls of other threads by it that are the kernel's
/// wait until that is done.
pub(crate) fn forget_and<R>(fd: i32, close: impl FnOnce() -> R) -> R {
    forget_by(fd, table::begin_to_part);
    let r = close();
    table::is_parted(fd);
    r
}

fn forget_by(fd: i32, clear: impl FnOnce(i32) -> Entry) {
    match table::find(fd) {
        // (what is not the process's to close it still has)
        Entry::Socket(_) | Entry::Set(_) if apart::is_own() || world::is_foreign() => {}
        Entry::Socket(s) => forget_socket(s, fd, clear),
        Entry::Set(_) => {
            let mut w = world::lock();
            if let Entry::Set(s) = table::clear(fd) {
                registered::release(&mut w, s);
            }
        }
        Entry::None | Entry::Hidden => {}
    }
}

fn forget_socket(s: &'static Socket, fd: i32, clear: impl FnOnce(i32) -> Entry) {
    super::counted::settle();
    let mut w = world::lock();
    // Somebody else may have been faster.
    if !matches!(table::find(fd), Entry::Socket(found) if std::ptr::eq(found, s)) {
        return;
    }
    clear(fd);
    fence(Ordering::SeqCst); // (pairs with that in `Socket::stays`)
    let last = s.refs.fetch_sub(1, Ordering::AcqRel) == 1;
    super::wired::mover::closes(s, fd, last);
    let inside = || s.waiters.load(Ordering::Acquire) > 0;
    if inside() && s.shadow.load(Ordering::Acquire) < 0 {
        // Threads are inside, perhaps by this number: as in the kernel, the connection lives until they
        // have left. They go on with a hidden descriptor; the last one out ends it (`leave`).
        // SAFETY: no pointers.
        if let Ok(r) = unsafe { transport::syscall!(fcntl, fd, libc::F_DUPFD_CLOEXEC, 0) } {
            let hidden = Fd::own(as_fd(r)).hide().leak();
            s.shadow.store(hidden, Ordering::Release);
        }
    }
    // (it may be there since another of its numbers was closed)
    if s.shadow.load(Ordering::Acquire) >= 0 {
        // Who is at the kernel connection by the old number has left it then, and who comes next finds the new one
        // under the lock (`live_fd`): the number may be another connection's in a moment. (Another process that has a lock
        // may have been stopped, and has its own number.)
        drop(s.tx.lock_soon());
        drop(s.rx.lock_soon());
        if inside() {
            // (poll(2) looks the number up at each wake, and what stands there by then keeps it asleep)
            super::rouse::sleepers(s);
            return;
        }
        // (the last one out, who may be on his way, finds nothing left to do)
        drop(Fd::own(s.shadow.swap(-1, Ordering::AcqRel)));
    }
    if last {
        super::residual::part(s);
        finish(&mut w, s, fd);
    } else {
        await_mover(s);
    }
}

/// Nor may the library's own thread be at it by a number that is about to be closed. (Who gets a lock after that asks which is left.)
fn await_mover(s: &Socket) {
    if super::wired::has_begun(s) {
        drop(s.tx.lock_soon());
        drop(s.rx.lock_soon());
    }
}

/// A waiter has left; the last one out of a closed socket ends it.
pub(crate) fn leave(s: &'static Socket) {
    if s.waiters.fetch_sub(1, Ordering::AcqRel) == 1 && s.shadow.load(Ordering::Acquire) >= 0 {
        let mut w = world::lock();
        if s.waiters.load(Ordering::Acquire) > 0 {
            return; // somebody has come in by another number
        }
        let shadow = s.shadow.swap(-1, Ordering::AcqRel);
        if shadow >= 0 {
            if s.refs.load(Ordering::Acquire) == 0 {
                finish(&mut w, s, shadow);
            }
            drop(Fd::own(shadow));
        }
    }
}

/// This process is done with a stream: tells the peer, and gives everything back, if no other holds it.
/// The kernel connection is closed by the caller, after.
fn finish(w: &mut World, s: &'static Socket, fd: i32) {
    sweep(w);
    super::held::let_go(s);
    leave_stream(w, s, fd);
}

fn leave_stream(w: &mut World, s: &'static Socket, fd: i32) {
    let Some(seats) = s.seats() else {
        return end(w, s, fd);
    };
    let seat = s.seat();
    if seats.begin_to_leave(seat) && !s.ended.swap(true, Ordering::AcqRel) {
        end(w, s, fd);
    } else {
        await_mover(s);
        part(w, s);
    }
    // Not before: whoever made the stream uses its place again once nobody has a seat.
    seats.leave(seat);
}

/// Others go on with the stream. What the rendezvous has lent for it is given back when they are done, by
/// the process that made it; so is its place in memory.
fn part(w: &mut World, s: &'static Socket) {
    registered::closed(w, s);
    // (whoever goes on with it reports it; here it counts if this process has used it)
    if s.record.role.load(Ordering::Relaxed) != 0 && s.record.has_carried() {
        s.note_flow();
        w.report.get_or_insert_default().add(&s.record);
    }
    super::wired::leave(s);
    if w.pool.is_maker(s) {
        linger(w, s);
    } else {
        let_go_for(w, s, false);
        w.pool.give(s);
    }
}

/// Keeps the place of a stream that this process has made for those who are still at it.
fn linger(w: &mut World, s: &'static Socket) {
    s.record.live.store(0, Ordering::Relaxed);
    w.lingering.push(s);
}

/// Gives back what lingers for others that have gone meanwhile.
pub(crate) fn sweep(w: &mut World) {
    for s in std::mem::take(&mut w.lingering) {
        if s.seats().is_some_and(|s| s.has_others(None)) {
            w.lingering.push(s);
            continue;
        }
        let last = !s.ended.swap(true, Ordering::AcqRel);
        if last
            && matches!(super::demote::way(s), Way::Client { .. })
            && s.phase() == Phase::Announced
        {
            withdraw(w, s);
        }
        let_go_for(w, s, last);
        unexpect(w, s);
        w.pool.give(s);
    }
}

/// A client that never announced the connection will not any more.
pub(super) fn unexpect(w: &mut World, s: &Socket) {
    if matches!(s.phase(), Phase::Fresh | Phase::Idle)
        && let Way::Client {
            target,
            expected: true,
            ..
        } = super::demote::way(s)
    {
        w.targets().expect(target, -1);
        // SAFETY: under the registry lock.
        unsafe { *s.way.get() = Way::None };
    }
}

/// A connection that never was, as came out after connect, which did not wait: what is remembered of who is there says nothing
/// of the next.
fn note_absence(w: &mut World, s: &Socket, fd: i32) {
    let mapped = matches!(super::demote::way(s), Way::Caller { mapped: true, .. });
    let asked = s.phase() == Phase::Fresh && mapped;
    if crate::signals::is_sandboxed() {
        return;
    }
    let plain = s.phase() == Phase::Plain && s.record.role.load(Ordering::Relaxed) == 1;
    if (asked || plain)
        && !s.record.has_carried()
        && !diag::carried(fd).is_some_and(|now| now.connected)
    {
        let (_, peer) = s.record.names();
        if asked {
            crate::mapper::not_there(&peer);
        } else {
            w.targets().forget_plain(&peer);
        }
    }
}

/// The last of those who held it ends the stream.
fn end(w: &mut World, s: &'static Socket, fd: i32) {
    note_absence(w, s, fd);
    if s.phase() == Phase::Announced
        && !withdraw(w, s)
        && let Some(p) = s.segment().copied()
    {
        // Agreed, and this side has sent nothing since; it may have read what the server has put, all of
        // it or not. Join, so as to part in order.
        super::engage::attach(w, s, &p);
    }
    if s.phase() == Phase::Attached {
        say_goodbye(s, fd);
    }
    if super::wired::is_wired(s) {
        super::wired::begin_to_close(s, fd);
    }
    super::wired::forget_ring_of_plain(s, fd);
    super::wired::let_go(s);
    // (what the segment has counted, as long as it is there)
    s.note_direct();
    if s.record.role.load(Ordering::Relaxed) != 0 {
        s.note_flow();
    }
    super::engage::ended(w, s);
    let_go(w, s);
    registered::closed(w, s);
    unexpect(w, s);
    if s.record.role.load(Ordering::Relaxed) != 0 {
        w.report.get_or_insert_default().add(&s.record);
    }
    if let Way::Listener { .. } = super::demote::way(s) {
        crate::mapper::closed(fd);
    }
    if let Way::Listener { family: Ok(f), .. } = super::demote::way(s)
        && let Some(slot) = w.families.get_mut(f as usize)
    {
        if let Some(family) = slot {
            family.part();
        }
        drop_family_if_done(w, f);
    }
    if w.pool.is_maker(s) && s.has_others() {
        linger(w, s); // another is on its way out
    } else {
        w.pool.give(s);
    }
}

/// The last words in the segment: end of file, or reset if something was left unread.
fn say_goodbye(s: &Socket, fd: i32) {
    let Some(p) = s.segment() else { return };
    // (the other end may have asked for what it has not read since this program last called)
    if s.tx_leg() == Leg::Fast
        && p.stopped()
        && let Ok(mut tx) = s.tx.lock()
    {
        tx.end_fast(p, fd);
        s.mirror_tx(&tx);
    }
    if s.tx_leg() == Leg::Last {
        settle(s, p, fd);
    }
    let (Ok(mut tx), Ok(mut rx)) = (s.tx.lock(), s.rx.lock()) else {
        return;
    };
    let ring = rx.available(p).is_ok_and(|n| n > 0);
    let in_kernel = || net::unread(fd) as u64 > rx.bells_outstanding(p);
    let unread = ring
        || match rx.leg() {
            Leg::First => net::unread(fd) > 0 && !only_bells(&rx, p, fd),
            Leg::Fast => p.stated(transport::provider::End::Fast).is_some() && in_kernel(),
            Leg::Last => in_kernel(),
        };
    // Once both ends have said their last nothing that is left unread makes it a reset.
    let over = tx.is_finished() && p.finished() != FIN_NONE;
    if !over && (unread || s.linger_zero.load(Ordering::Acquire) || s.is_torn()) {
        let had_ended = tx.is_finished();
        tx.finish(p, if had_ended { FIN_ABORTED } else { FIN_RESET });
        net::reset_on_close(fd);
    } else if cut::error(s, &mut tx, p, fd).is_some() {
        tx.finish(p, FIN_RESET); // (the other end may not have looked yet)
    } else {
        tx.finish(p, FIN_CLOSED);
        if p.finished() == FIN_CLOSED && tx.leg() == Leg::Fast {
            // The other end is closed too, having read everything: nobody is left to tell a reset from
            // an end, and a reset spares the kernel half of its farewells.
            net::reset_on_close(fd);
            return;
        }
        // Bells left unread would turn the kernel's FIN into a reset.
        rx.take_bells(p, fd, usize::MAX);
    }
}

/// What the peer has given back goes before the end; if its program leaves no room for it for long, a reset does.
fn settle(s: &Socket, p: &impl Provider, fd: i32) {
    let begun = clock::ticks();
    while let Ok(mut tx) = s.tx.lock()
        && tx.owes()
    {
        let sent = demote::settle_alone(s, p, &mut tx, fd);
        drop(tx);
        if sent == Err(Errno::AGAIN) && clock::ticks() - begun < clock::us(SETTLE_US) {
            let _ = time::nap(500);
        } else if sent.is_err() {
            net::reset_on_close(fd);
            return;
        }
    }
}

/// How long (µs) a close may wait for the kernel's room for what is owed.
const SETTLE_US: u64 = 3_000_000;

/// On the first leg, whether all data has been read and only bells are left.
fn only_bells(rx: &transport::sdp::Rx, p: &impl Provider, fd: i32) -> bool {
    p.stated(transport::provider::End::Kernel) == Some(rx.kernel_bytes())
        && net::discard(fd, usize::MAX >> 1).is_ok()
}

/// A family goes with the last connection after its listener.
fn drop_family_if_done(w: &mut World, index: u32) {
    if let Some(slot) = w.families.get_mut(index as usize)
        && slot
            .as_ref()
            .is_some_and(transport::rendezvous::server::Family::is_done)
    {
        *slot = None;
    }
}

/// Takes a standing offer back. False if the server has said yes.
pub(crate) fn withdraw(w: &mut World, s: &Socket) -> bool {
    if matches!(super::demote::way(s), Way::Inherited) {
        return withdraw_inherited(s);
    }
    let Way::Client {
        target,
        ticket: Some(ticket),
        ..
    } = super::demote::way(s)
    else {
        return true;
    };
    let taken = w.targets().withdraw(&ticket);
    if taken {
        // SAFETY: under the registry lock.
        unsafe {
            *s.way.get() = Way::Client {
                target,
                ticket: None,
                expected: false,
            }
        };
    }
    taken
}

/// [`withdraw`] of an offer that a parent has made: the same word, found without its slot.
fn withdraw_inherited(s: &Socket) -> bool {
    let open = s.answer_open.load(Ordering::Relaxed);
    // SAFETY: null, or a word of an arena that this process keeps mapped.
    let Some(word) = (unsafe { s.answer_at.load(Ordering::Acquire).as_ref() }) else {
        return true;
    };
    let free = State::Free.word(generation(open));
    match word.compare_exchange(open, free, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => true,
        Err(now) => now != s.answer_yes(),
    }
}

/// Lets go of the segment, if one is held.
pub(crate) fn let_go(w: &mut World, s: &Socket) {
    let_go_for(w, s, true);
}

/// [`let_go`]; with `last` the server's side is done with the segment, else only this process is.
fn let_go_for(w: &mut World, s: &Socket, last: bool) {
    match super::demote::way(s) {
        Way::Client {
            target,
            ticket: Some(ticket),
            ..
        } => {
            w.targets().rest(&ticket);
            // SAFETY: under the registry lock.
            unsafe {
                *s.way.get() = Way::Client {
                    target,
                    ticket: None,
                    expected: false,
                }
            };
        }
        Way::Server { family, claim, .. } => {
            if let Some(f) = w.family(family) {
                if let Some(claim) = claim {
                    f.release(&claim, last);
                }
                f.leave();
            }
            drop_family_if_done(w, family);
            // SAFETY: under the registry lock.
            unsafe { *s.way.get() = Way::None };
        }
        _ => {}
    }
}
