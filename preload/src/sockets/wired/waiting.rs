//! What waits here to go: for more of its kind, for the kernel's room, for the peer's credit or word.

use super::super::{Phase, Socket, parked, rouse, spin};
use super::io::{after, available_on};
use super::{ending, farewell, is_current, is_wired, mover, number, opening, riding, wire};
use crate::epoll::registered;
use crate::signals::since::Since;
use crate::world;
use std::sync::atomic::{AtomicU32, Ordering};
use transport::clock;
use transport::sdp::Walk;
use transport::sys::{diag, net, time};
use transport::wire::{AGE_US, GATHERED, Gathered, In, Return, State, Wire};

/// Moves what waits to go, at any call of the library: see `parked`. True if something still waits.
pub(crate) fn post(s: &'static Socket) -> bool {
    // The program may close it meanwhile, and the socket and the number be another connection's: the number belongs to this
    // state if that is current after the look for it, and it is used under a lock of it.
    let Some(wire) = wire(s) else { return false };
    let fd = s.own_fd(s.parked_fd.load(Ordering::Relaxed));
    if fd < 0 || !is_current(s, wire) {
        return false;
    }
    if s.phase() == Phase::Opening {
        opening::hear(s, fd, wire);
    }
    let mut new = false;
    if is_current(s, wire) {
        if !wire.common.heard.load(Ordering::Acquire) {
            available_on(s, fd, wire); // what waits may go once the peer has been heard
            new = wire.common.heard.load(Ordering::Acquire);
        }
        for _ in 0..TURNS {
            if !wire.common.is_returning(Return::Waits) {
                break;
            }
            available_on(s, fd, wire); // what comes back, and the end of the peer's direction behind it
            if net::unread(fd) == 0 {
                break;
            }
        }
        if wire.common.is_returning(Return::Whole) {
            registered::kick_others(s, std::ptr::null());
        }
        riding::settle(s, fd, wire);
    }
    let cramped = is_cramped(s, wire) || is_lacking(wire);
    serve_due_on(s, fd, wire);
    if lacks_credit(s) && take_in(s, fd, wire) {
        serve_due_on(s, fd, wire); // what it grants lay among what nobody has read
    }
    if is_stalled(wire) {
        release(s);
        serve_due_on(s, fd, wire);
    }
    if new || cramped && !is_cramped(s, wire) && !is_lacking(wire) {
        // (the kernel has nothing to tell those of who wait for room)
        registered::kick_others(s, std::ptr::null());
        if s.sleepers() > 0 {
            rouse::sleepers(s);
        }
    }
    if !is_current(s, wire) {
        return false;
    }
    if s.tx_shut.load(Ordering::Acquire) {
        if wire.common.to_plain.load(Ordering::Acquire) {
            ending::follow_to_plain(s, fd, wire); // (the kernel's end comes behind what was still plain to go)
        }
        ending::settle_both_shut(s, fd);
        farewell::go_on(s, fd, wire);
    }
    let waits = waits(s, fd);
    if waits {
        parked::note(s, fd);
    }
    waits
}

/// Whether something waits to go, and can go yet.
pub(super) fn waits(s: &Socket, fd: i32) -> bool {
    is_pending(s) && !is_lost(s, fd) && !is_reset(s)
}

/// Whether the peer's direction is at its end by a reset, or broken: nobody takes what waits here.
fn is_reset(s: &Socket) -> bool {
    wire(s).is_some_and(|wire| {
        s.rx.lock_soon()
            // SAFETY: the lock is held while it is looked at.
            .is_ok_and(|_rx| unsafe { wire.incoming() }.state() == State::Reset)
    })
}

/// Whether something waits to go, or for the peer's answer.
fn is_pending(s: &Socket) -> bool {
    is_wired(s)
        && (unsent(s) > 0
            || is_unsettled(s)
            || is_waiting(s)
            || wire(s).is_some_and(is_lacking)
            || s.tx_shut.load(Ordering::Acquire) && is_under_way(s))
}

/// Whether the kernel connection is over in both directions: what waits here goes nowhere any more, and is not to keep anybody awake.
/// (By a ring it may go all the same, while the kernel still has farewells to say.)
fn is_lost(s: &Socket, fd: i32) -> bool {
    let fd = s.live_fd(fd);
    net::ready_now(fd, 0) & libc::POLLHUP != 0
        && (!riding::rides(s) || diag::carried(fd).is_some_and(|now| !now.connected))
}

/// Looks for what comes back, in one go.
const TURNS: u32 = 64;

/// Whether a ring has ended and what was put there is not on its way again.
pub(super) fn is_unsettled(s: &Socket) -> bool {
    let Some(wire) = wire(s) else { return false };
    // SAFETY: the lock is held while it is looked at.
    s.tx.lock()
        .is_ok_and(|_tx| unsafe { wire.out() }.is_unsettled())
}

/// Whether the peer has something to give back first.
pub(super) fn is_waiting(s: &Socket) -> bool {
    wire(s).is_some_and(|wire| wire.common.is_returning(Return::Waits))
}

/// Takes in what the kernel has, if nobody sleeps there who would miss that it came. Who is about to is counted before
/// he looks here for the last time, under the same lock. Whether anything had come: only then are those woken who wait for it in
/// epoll, as this is called again and again while something waits.
pub(super) fn take_in(s: &'static Socket, fd: i32, wire: &'static Wire) -> bool {
    let (came, state) = {
        let Ok(_rx) = s.rx.lock() else { return false };
        if s.sleepers() > 0 && s.is_shared() {
            let _ = s.has_others(); // (those who were killed asleep are not counted any more)
        }
        if s.sleepers() > 0 || s.phase() == Phase::Opening || !is_current(s, wire) {
            return false;
        }
        // SAFETY: the lock is held.
        let mut incoming = unsafe { wire.incoming() };
        let here = |incoming: &In| (incoming.octets(), incoming.held(), incoming.state());
        let before = here(&incoming);
        incoming.available(&wire.common, number(s, fd)); // (not one that was closed since, and is another's)
        (here(&incoming) != before, incoming.state())
    };
    after(s, fd, wire, state);
    if came {
        registered::kick_others(s, std::ptr::null());
    }
    came
}

/// Whether something waits for the peer's word, not for the kernel.
pub(super) fn lacks_credit(s: &Socket) -> bool {
    s.phase() == Phase::Wired
        && wire(s).is_some_and(|wire| {
            s.tx.lock().is_ok_and(|_tx| {
                // SAFETY: the lock is held while it is looked at.
                let mut out = unsafe { wire.out() };
                let ends = out.is_finishing(&wire.common); // (as lacking as what is sent, and not noted so)
                let wants = out.pending() > 0 || is_lacking(wire) || ends;
                wants && !out.is_plain() && !out.has_credit(&wire.common)
            })
        })
}

/// Remembers a socket that has something left to send.
pub(super) fn note_pending(s: &'static Socket, fd: i32) {
    if is_pending(s) {
        parked::note(s, fd);
        mover::wake();
        if !mover::is_there() {
            parked::keep_awake();
        }
    }
}

/// What a call has taken to go with others goes at once where nobody would look after it.
pub(super) fn settle_held(s: &'static Socket, fd: i32, wire: &'static Wire) {
    if wire.common.gathered_since().is_some() && !(mover::is_there() && parked::keep(s, fd)) {
        serve_due_on(s, fd, wire);
    }
}

/// A call is about to sleep for room: the peer is asked for it, as another thread may have used up what it has answered.
pub(crate) fn seek_room(s: &'static Socket, fd: i32) {
    let Some(wire) = wire(s) else { return };
    let Ok(_tx) = s.tx.lock() else { return };
    // SAFETY: the lock is held.
    let mut out = unsafe { wire.out() };
    if !out.is_plain() && !out.has_credit(&wire.common) {
        let _ = out.seek_room(&wire.common, number(s, fd)); // (what fails shows by the next step)
    }
}

/// Waits for a while until the kernel has taken what the call has sent, or the peer has answered: who waits in its
/// sends expects that it goes whatever the program does next. The mover goes on with what is left then.
pub(crate) fn await_gone(s: &'static Socket, fd: i32, since: Since) {
    let begun = clock::ticks();
    let fd = number(s, fd);
    let mut opens = false;
    while is_wired(s) && is_awaited(s) && !since.any() {
        opens = s.phase() == Phase::Opening;
        let vain = if opens {
            VAIN.load(Ordering::Relaxed)
        } else {
            0
        };
        if clock::ticks() - begun > clock::us(GONE_US >> vain) {
            if opens {
                VAIN.store((vain + 1).min(VAIN_MOST), Ordering::Relaxed);
            }
            return;
        }
        if !riding::rest(s, fd) {
            let event = if s.phase() == Phase::Opening || lacks_credit(s) {
                libc::POLLIN
            } else {
                libc::POLLOUT
            };
            if net::ready_now(fd, event) == 0 {
                if opens {
                    net::await_input(fd, LOOK_US); // (a nap takes longer than its time)
                } else {
                    let _ = time::nap(20);
                }
            }
        }
        post(s);
    }
    if opens {
        VAIN.store(0, Ordering::Relaxed);
    }
}

/// What a call that waits has sent was taken before the server has answered: the answer is waited for at once, for a moment. As a rule
/// it comes then, and what was taken goes with it, so that the mover's thread need not be woken for each connection. In the
/// caller's section: no handler leaves by a jump before somebody looks after what was taken.
pub(super) fn await_answer(s: &'static Socket, fd: i32, wire: &'static Wire) {
    if s.phase() != Phase::Opening {
        return;
    }
    static BUDGET: spin::Budget = spin::Budget::new();
    let number = number(s, fd);
    let look = |turn: u32| {
        (turn % 16 == 15 || turn >= spin::PAUSES) && net::ready_now(number, libc::POLLIN) != 0
    };
    if !spin::spin(BUDGET.us(), &s.company, Since::now(), look, || false) {
        let most = GONE_US >> VAIN.load(Ordering::Relaxed);
        let begun = clock::ticks();
        spin::end_turn();
        net::await_input(number, most.min(SOON_US));
        BUDGET.learn(clock::ticks() - begun);
    }
    opening::hear(s, fd, wire);
}

/// How long (µs) that moment is: as a server of the same site takes that is not busy.
const SOON_US: u64 = 1_000;
/// How often (µs) it is looked whether another thread has taken the answer, which shows by nothing.
const LOOK_US: u64 = 200;
/// How long (µs) a call waits for that in all.
const GONE_US: u64 = 20_000;
/// How many such waits in a row no server has answered: a program that sends on many connections before they are accepted is not
/// held up by each. Half as long for each, so often at most.
static VAIN: AtomicU32 = AtomicU32::new(0);
const VAIN_MOST: u32 = 8;

/// Whether so much is parked that a program is told that there is no room.
fn is_cramped(s: &Socket, wire: &Wire) -> bool {
    wire.common.words.parked_since().is_some()
        && s.tx.lock().is_ok_and(|_tx| {
            // SAFETY: the lock is held while it is looked at.
            unsafe { wire.out() }.is_roomy_to_park(&wire.common) == Some(false)
        })
}

/// Whether a send has found that the peer, which keeps few receive buffers, has none left.
pub(super) fn is_lacking(wire: &Wire) -> bool {
    wire.common.words.lacking_since().is_some()
}

/// Since when, in ticks, something is parked, or a send lacks a receive buffer of the peer's.
pub(super) fn out_of_room_since(wire: &Wire) -> Option<u64> {
    let words = &wire.common.words;
    words.parked_since().or_else(|| words.lacking_since())
}

/// How long (µs) nothing of what is parked, or is to be sent, may have found room: the peer does not read, and there are programs
/// that write all before either end reads, since the kernel has some MiB for them. From then on the kernel's buffers are the limit.
const STALLED_US: u64 = 1_000_000;

fn is_stalled(wire: &Wire) -> bool {
    let since = out_of_room_since(wire);
    since.is_some_and(|since| clock::ticks().wrapping_sub(since) > clock::us(STALLED_US))
}

/// Whether bytes are parked, or a receive buffer is lacking, for no more than so many microseconds yet: that is left to the
/// program's own calls.
pub(crate) fn is_resting(s: &Socket, us: u64) -> bool {
    wire(s)
        .and_then(out_of_room_since)
        .is_some_and(|since| clock::ticks().wrapping_sub(since) < clock::us(us))
}

/// The program may be about to end, or to be another one: what is parked goes whether the peer has room or not. Whether the peer was
/// asked for room.
pub(crate) fn release(s: &'static Socket) -> bool {
    let Some(wire) = wire(s).filter(|wire| out_of_room_since(wire).is_some()) else {
        return false;
    };
    let fd = s.own_fd(s.parked_fd.load(Ordering::Relaxed));
    if fd < 0 || s.phase() != Phase::Wired {
        return false;
    }
    if let Ok(_tx) = s.tx.lock_soon()
        && is_current(s, wire)
    {
        // SAFETY: the lock is held. (What fails shows by the next call.)
        let _ = unsafe { wire.out() }.release(&wire.common, number(s, fd));
    }
    is_asking(wire)
}

/// The same once all that was parked has gone: the peer hears that an end from here on loses nothing.
pub(super) fn clear(s: &'static Socket) {
    let fd = s.own_fd(s.record.fd.load(Ordering::Relaxed).cast_signed());
    let Some(wire) = wire(s).filter(|_| fd >= 0 && s.phase() == Phase::Wired) else {
        return;
    };
    if !ending::is_peer_gone(fd)
        && let Ok(_tx) = s.tx.lock_soon()
        && is_current(s, wire)
    {
        // SAFETY: the lock is held. (What fails shows by the next call.)
        let _ = unsafe { wire.out() }.clear(&wire.common, number(s, fd));
    }
}

/// How long (µs) a process that ends without closing waits for what its peers answer.
const ANSWER_US: u64 = 1_000_000;

/// Whether the peer was asked for room, or for receive buffers, and will answer.
fn is_asking(wire: &Wire) -> bool {
    wire.common.words.is_asked() || wire.common.are_slots_asked()
}

/// Adds those that have asked their peers, which they may do before they are out of room, or by another thread.
pub(crate) fn find_asking(asking: &mut [Option<&'static Socket>]) {
    let known = |asking: &[Option<&Socket>], s: &Socket| {
        asking.iter().flatten().any(|&other| std::ptr::eq(other, s))
    };
    world::lock().pool.each(|s| {
        if is_wired(s)
            && wire(s).is_some_and(is_asking)
            && !known(asking, s)
            && let Some(place) = asking.iter_mut().find(|place| place.is_none())
        {
            *place = Some(s);
        }
    });
}

/// Waits until the peers have answered who was out of room: an answer that finds nobody would be answered with a reset.
pub(crate) fn await_answers(asked: &[Option<&'static Socket>]) {
    let begun = clock::ticks();
    for &s in asked.iter().flatten() {
        while wire(s).is_some_and(is_asking) && clock::ticks() - begun < clock::us(ANSWER_US) {
            let fd = s.own_fd(s.record.fd.load(Ordering::Relaxed).cast_signed());
            if fd < 0 || s.phase() != Phase::Wired || ending::is_peer_gone(fd) {
                break;
            }
            post(s);
            if let Some(wire) = wire(s) {
                take_in(s, fd, wire);
            }
            let _ = time::nap(200);
        }
    }
}

/// Whether octets wait for the kernel or the peer, and the call waits with them: not for what is parked.
fn is_awaited(s: &Socket) -> bool {
    wire(s).is_some_and(|wire| wire.common.words.parked_since().is_none()) && is_stuck(s)
}

/// Whether octets wait for the kernel or the peer.
pub(super) fn is_stuck(s: &Socket) -> bool {
    wire(s).is_some_and(|wire| {
        s.tx.lock()
            // SAFETY: the lock is held while it is looked at.
            .is_ok_and(|_tx| unsafe { wire.out() }.is_stuck(&wire.common))
    })
}

/// Takes a small message that is to go with those around it (`transport::wire::Out::gather`), without a system call.
/// False: it is to be sent. Streams that several processes hold do not gather: each of them could end.
///
/// # Safety
/// The walk's buffers are readable.
#[inline]
pub(crate) unsafe fn gather(s: &'static Socket, fd: i32, walk: &mut Walk, flags: i32) -> bool {
    let Some(wire) = wire(s).filter(|wire| wire.common.may_gather()) else {
        return false;
    };
    let plainly = flags & !(libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) == 0;
    if !plainly
        || walk.left() == 0
        || walk.left() > GATHERED
        || s.is_shared()
        || s.tx_shut.load(Ordering::Relaxed)
        || s.broken.load(Ordering::Relaxed)
        || !mover::is_there()
    {
        return false;
    }
    let gathered = {
        let Ok(_tx) = s.tx.lock() else { return false };
        // It may have been closed since: then its state is another's (`ending::begin_to_close`).
        if !is_current(s, wire) || s.phase() != Phase::Wired {
            return false;
        }
        // SAFETY: the lock is held, and the caller's promise.
        unsafe { wire.out().gather(&wire.common, walk) }
    };
    if gathered == Gathered::First {
        if parked::keep(s, fd) {
            mover::wake();
        } else {
            serve_due(s, fd); // nobody would look after it
        }
    }
    gathered != Gathered::No
}

/// Whether all that waits on this connection are messages that go together, for no more than `us` microseconds yet.
pub(crate) fn is_gathering(s: &Socket, us: u64) -> bool {
    wire(s)
        .and_then(|wire| wire.common.gathered_since())
        .is_some_and(|since| clock::ticks().wrapping_sub(since) < clock::us(us))
}

/// How long (µs) the program's other calls leave such messages.
pub(crate) const GATHERING_US: u64 = AGE_US;

/// Says what the peer is owed.
pub(crate) fn serve_due(s: &'static Socket, fd: i32) {
    if let Some(wire) = wire(s) {
        serve_due_on(s, fd, wire);
    }
}

pub(super) fn serve_due_on(s: &'static Socket, fd: i32, wire: &'static Wire) {
    if s.phase() != Phase::Wired {
        return;
    }
    let stuck = {
        // (who has it may have been stopped: then it is still due when somebody looks next)
        let Ok(_tx) = s.tx.lock_soon() else { return };
        if !is_current(s, wire) {
            return;
        }
        // SAFETY: the lock is held.
        let mut out = unsafe { wire.out() };
        if let Err(e) = out.serve(&wire.common, number(s, fd)) {
            wire.common.fail(e); // the program's next call tells
        }
        (out.is_stuck(&wire.common) || out.parked() > 0) && !is_lost(s, fd)
    };
    if stuck {
        note_pending(s, fd); // a program that only reads does not come by here again
    }
}

/// Whether something has not reached the kernel, or the peer's memory.
pub(super) fn is_under_way(s: &Socket) -> bool {
    let Some(wire) = wire(s) else { return false };
    // SAFETY: the lock is held while it is looked at.
    s.tx.lock()
        .is_ok_and(|_tx| unsafe { wire.out() }.is_under_way(&wire.common))
}

/// Whether the kernel has a part of an FPDU, and the rest waits here.
pub(super) fn is_cut(s: &Socket) -> bool {
    let Some(wire) = wire(s) else { return false };
    // SAFETY: the lock is held while it is looked at.
    s.tx.lock().is_ok_and(|_tx| unsafe { wire.out() }.is_cut())
}

/// Octets that the kernel has not taken yet.
pub(crate) fn unsent(s: &Socket) -> usize {
    let Some(wire) = wire(s) else { return 0 };
    // SAFETY: the lock is held while it is looked at.
    s.tx.lock().map_or(0, |_tx| unsafe { wire.out() }.pending())
}
