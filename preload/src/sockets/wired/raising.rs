//! Makes, connects and takes down rings: what takes as long as an adapter does. All of it is done by the mover's thread,
//! which looks at the adapters now and then, too: one that has failed while the program was elsewhere ends its ring. What
//! takes as long as the peer does is begun, and gone on with at later turns ([`connecting`]).
//!
//! The side that connected offers, as soon as the connection is worth it (`riding`); and again some time after a ring
//! has failed or found no room. Rings that nothing goes by are given back (`resting`), and small ones that much goes by make way
//! for large ones.

mod lists;
mod sizes;

pub(super) use lists::{Rider, before_fork, in_child, in_parent};

use super::super::Socket;
use super::resting::Pulse;
use super::{bell, connecting, mover, number, riding, wire};
use crate::epoll::registered;
use crate::world;
use lists::{LISTS, Old, Ridden, due_again, is_busy};
use sizes::{cramped, grow, idle, lacks_room, make_room, note_size, rest, stuck, unblock};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use transport::clock;
use transport::ring::{RING, Ring, SMALL, Terms};
use transport::sys::net;
use transport::verbs::Side;
use transport::wire::{Due, Return, Wire};

/// How long (µs) a ring that nobody uses any more is kept for threads that are on their way out of it.
const GRACE_US: u64 = 500_000;
/// How many are taken down in one turn: that of many takes long, and addresses of only so many stay valid for those threads
/// (`sys::retired::retire_at`).
const CLOSED_AT_ONCE: usize = 32;
/// How long (µs) an offer or its answer is looked for every [`LOOK_MS`], where the program may not read.
pub(super) const HURRY_US: u64 = 100_000;
/// How often (ms) adapters are looked at, and words of a peer that are due.
const WATCH_MS: i32 = 100;
pub(super) const LOOK_MS: i32 = 1;

/// How long (ms) it may sleep; for ever: -1.
pub(super) fn patience() -> i32 {
    match is_busy() {
        false => -1,
        true if LATE.load(Ordering::Relaxed) || !LISTS.lock().awaited.is_empty() => LOOK_MS,
        true => connecting::patience().unwrap_or(WATCH_MS),
    }
}

/// A connection is worth a ring: the side that has connected offers one, the other looks for that.
pub(super) fn begin(s: &'static Socket) {
    {
        let mut lists = LISTS.lock();
        let until = clock::ticks() + clock::us(HURRY_US);
        lists.awaited.push((Rider::new(s), until));
        lists.count();
    }
    if s.record.role.load(Ordering::Relaxed) == CONNECTED {
        want(s);
    } else {
        mover::wake();
    }
}

/// `Record::role` of the side that has connected.
pub(super) const CONNECTED: u8 = 1;

/// Something of this connection's ring is due.
pub(super) fn want(s: &'static Socket) {
    {
        let mut lists = LISTS.lock();
        if lists.wanted.iter().any(|r| r.is(s)) {
            return;
        }
        lists.wanted.push(Rider::new(s));
        lists.count();
    }
    mover::wake();
}

/// The connection has no ring any more: it is taken down with the next turn. Another is offered once what comes is worth it,
/// or after a while if this one has failed.
pub(super) fn retired(s: &'static Socket) {
    let connected = s.record.role.load(Ordering::Relaxed) == CONNECTED;
    if let Some(riding) = wire(s).map(|w| &w.common.ring) {
        let (rested, grows) = (riding.has_rested(), riding.is_growing());
        riding.note_carried(riding::carried(s));
        if grows && connected {
            begin(s);
        } else if rested || !connected {
            riding.begin_later();
        } else if riding.is_wanted() {
            LISTS.lock().try_again(s);
        }
    }
    mover::wake();
}

/// A connection's state goes, and with it its ring.
pub(super) fn drop_of(wire: &Wire) {
    if let Some(ring) = wire.common.ring.get() {
        ring.end();
        let _ = wire.common.ring.take();
        mover::wake();
    }
}

/// A turn of the mover's thread.
pub(super) fn work() {
    if !is_busy() {
        return;
    }
    let now = clock::ticks();
    let wanted = std::mem::take(&mut LISTS.lock().wanted);
    for rider in wanted {
        serve(rider);
        transport::verbs::replenish(); // (many take long)
    }
    for rider in due_again(now) {
        serve(rider);
    }
    connecting::work();
    transport::verbs::replenish();
    let awaited = LISTS.lock().awaited.clone();
    for (rider, _) in &awaited {
        if let Some((_, fd)) = rider.wire() {
            hear(rider.socket, fd);
        }
    }
    // (riders are many, and turns too while rings are made: going through them takes a small part of the time)
    let begun = clock::ticks();
    let late = begun < NEXT.load(Ordering::Relaxed);
    LATE.store(late, Ordering::Relaxed);
    if !late {
        watch(now);
        let took = clock::ticks() - begun;
        let pause = (9 * took).min(clock::us(WATCH_MS as u64 * 1000));
        NEXT.store(begun + took + pause, Ordering::Relaxed);
    }
}

/// When (ticks) to go through those with a ring again, and whether it was too early for that.
static NEXT: AtomicU64 = AtomicU64::new(0);
static LATE: AtomicBool = AtomicBool::new(false);

/// Goes through those with a ring, and takes down what is done with.
fn watch(now: u64) {
    let riders = LISTS.lock().riders.clone();
    for Ridden { rider, .. } in &riders {
        if let Some((wire, fd)) = rider.wire()
            && let Some(ring) = wire.common.ring.get()
        {
            ring.reap();
            if !ring.is_over() {
                hear(rider.socket, fd); // perhaps the peer's is over
            }
            riding::settle(rider.socket, fd, wire);
        }
    }
    for rider in idle(now) {
        rest(rider);
    }
    for rider in cramped(now) {
        grow(rider);
    }
    stuck(now).into_iter().for_each(unblock);
    let (mut old, mut left) = (Vec::new(), Vec::new());
    let lingering = mover::rings_of_lingering();
    let now = clock::ticks(); // (what came before may have taken long, and these have their time from here)
    {
        let mut lists = LISTS.lock();
        let late = now.saturating_sub(clock::us(GRACE_US));
        // (another process that holds the connection may have taken the ring from it: the adapter is this one's)
        let mut gone = Vec::new();
        lists.riders.retain(|ridden| {
            let keep = ridden.rider.has_ring(ridden.ring);
            if !keep {
                gone.push((Old(ridden.ring), now));
                left.push(ridden.rider);
            }
            keep
        });
        lists.awaited.retain(|(rider, until)| {
            let up = |(wire, _): (&Wire, i32)| wire.common.ring.get().is_some_and(Ring::is_up);
            *until > now && rider.wire().is_some_and(|at| !up(at))
        });
        lists.retired.append(&mut gone);
        lists.retired.retain(|(ring, since)| {
            // (a connection that the program has closed may have something to send by it yet)
            let used = *since > late || lingering.contains(&ring.0);
            let keep = used || old.len() >= CLOSED_AT_ONCE;
            if !keep {
                old.push(ring.0);
            }
            keep
        });
        lists.count();
    }
    for rider in left {
        if rider.wire().is_some() {
            registered::kick_others(rider.socket, std::ptr::null()); // the kernel says from here on when there is room
        }
    }
    for ring in old {
        // SAFETY: taken out of its connection, and out of the list, once; whoever was on the way to look has left.
        unsafe { Ring::close(ring) };
    }
}

/// Takes in what a peer says, if nobody sleeps on the connection itself: who does is woken by that, and would not be if
/// it were taken here.
fn hear(s: &'static Socket, fd: i32) {
    if s.sleepers() == 0 && net::unread(fd) > 0 {
        super::io::available(s, fd);
        registered::kick_others(s, std::ptr::null());
    }
}

/// Does what is due for one.
fn serve(rider: Rider) {
    let Some((wire, fd)) = rider.wire() else {
        return;
    };
    let (s, riding) = (rider.socket, &wire.common.ring);
    if s.is_shared() {
        decline(s, fd, wire);
    } else if riding.done(Due::Offered) {
        if let Some(old) = riding.get() {
            old.expect_no_more(); // it was never begun there, and will not be
            old.end();
            riding::settle(s, fd, wire);
        }
        if riding.peer().is_some() {
            let ring = accept(rider, wire, fd);
            riding.set_own(ring.map(|r| r.terms()).as_ref());
            riding.want(Due::SayAnswer);
        }
    } else if riding.done(Due::Answered) {
        riding.note_answer();
        let connected = riding
            .get()
            .is_some_and(|ring| peer_of(wire, fd).is_some_and(|peer| ring.connect(&peer).is_ok()));
        match riding.get().filter(|_| connected) {
            Some(ring) => {
                note_size(s, ring);
                connecting::begin(rider, ring, Side::Offers);
            }
            None => {
                let lacks = riding.peer().is_none();
                lacks_room(s, lacks);
                riding::end(s, fd);
                // (also where it has none: it may have answered before, and taken that back, which this word ends there)
                withdraw(s, fd, wire);
            }
        }
    } else if riding.get().is_none()
        && riding.is_wanted()
        && !riding.awaits_answer()
        && !wire.common.is_finished()
        && !super::ending::is_peer_gone(fd)
    {
        // (not to a peer that has said its last word, and may be gone before it reads this)
        let size = if riding.is_large() { RING } else { SMALL };
        let Some(ring) = open(rider, fd, Side::Offers, size) else {
            return;
        };
        // SAFETY: just made.
        riding.set_own(Some(&unsafe { ring.as_ref() }.terms()));
        if attach(s, fd, wire, ring) {
            riding.await_answer();
            riding.want(Due::SayOffer);
        } else {
            LISTS.lock().try_again(s);
        }
    }
    super::waiting::serve_due(s, fd);
}

/// No ring is to come of what the peer has said: the stream is shared, or goes back to the kernel.
pub(super) fn decline(s: &'static Socket, fd: i32, wire: &'static Wire) {
    let riding = &wire.common.ring;
    if riding.done(Due::Offered) && riding.peer().is_some() {
        riding.set_own(None);
        riding.want(Due::SayAnswer);
    }
    if riding.done(Due::Answered) {
        riding.note_answer();
        riding::end(s, fd);
        withdraw(s, fd, wire);
    }
}

/// Says to the side that has been offered a ring, and has made its own, that this one will not begin: an offer without terms.
/// Only that word, or the beginning, ends what is there for it, so no beginning comes to a side that has no ring.
pub(super) fn withdraw(s: &'static Socket, fd: i32, wire: &Wire) {
    wire.common.ring.set_own(None);
    wire.common.ring.want(Due::SayOffer);
    super::waiting::serve_due(s, fd);
}

/// A ring of an adapter that serves the connection's own address, of this size or a small one. It is listed: whatever becomes of it, it is taken
/// down once the connection does not have it.
fn open(rider: Rider, fd: i32, side: Side, size: usize) -> Option<NonNull<Ring>> {
    let local = std::net::Ipv6Addr::from(net::local(fd)?.ip).to_canonical();
    // (the credit scheme: what comes is sent, into receives of this side's)
    let slots = rider.wire()?.0.common.keeps_slots();
    let open = |size| Ring::open(&local, side, size, slots);
    let small = || (size > SMALL).then(|| open(SMALL))?;
    let Some(ring) = open(size).or_else(small) else {
        lacks_room(rider.socket, transport::verbs::lacks_room(&local));
        make_room(rider.socket);
        return None;
    };
    let pulse = Pulse::new();
    LISTS.lock().riders.push(Ridden { rider, ring, pulse });
    Some(ring)
}

/// A ring that is connected to the one that was offered.
fn accept(rider: Rider, wire: &'static Wire, fd: i32) -> Option<&'static Ring> {
    let riding = &wire.common.ring;
    if !riding.is_wanted() || riding.get().is_some() {
        return None;
    }
    let peer = peer_of(wire, fd)?;
    let ring = open(rider, fd, Side::Answers, peer.ring as usize)?;
    // SAFETY: just made; this thread takes it down, not before it is the connection's no more.
    let made: &'static Ring = unsafe { ring.as_ref() };
    made.connect(&peer).ok()?;
    made.expect(); // (or it could be over, and taken, before the peer begins)
    attach(rider.socket, fd, wire, ring).then(|| {
        note_size(rider.socket, made);
        connecting::begin(rider, made, Side::Answers);
        made
    })
}

/// What the peer has said of its ring, if that is where the peer is.
fn peer_of(wire: &Wire, fd: i32) -> Option<Terms> {
    let terms = wire.common.ring.peer()?;
    let peer = std::net::Ipv6Addr::from(net::peer(fd)?.ip).to_canonical();
    let local = std::net::Ipv6Addr::from(net::local(fd)?.ip).to_canonical();
    transport::verbs::is_of(&terms.address, &peer, &local).then_some(terms)
}

/// The connection has this ring from now on, unless several processes hold it by now: the adapter is this one's. (A fork shares a
/// stream under the same locks, and ends the ring that it has then: [`super::share`].) Nor while somebody keeps the registry, who may
/// be waiting for what this thread is to answer.
fn attach(s: &'static Socket, fd: i32, wire: &'static Wire, ring: NonNull<Ring>) -> bool {
    let Some(mut w) = world::lock_soon() else {
        return false;
    };
    {
        let (Ok(_tx), Ok(_rx)) = (s.tx.lock(), s.rx.lock()) else {
            return false;
        };
        // (nor one of a stream that goes back to plain bytes by now, or whose peer has ended its direction at this side's wish: the word
        // that is waited for would have come before)
        let ends = wire.common.to_plain.load(Ordering::Acquire)
            || wire.common.is_returning(Return::Awaited)
            || wire.common.is_returning(Return::Stands);
        if s.is_shared() || ends {
            return false;
        }
        wire.common.ring.set(ring);
        bell::watch(s, number(s, fd));
    }
    registered::rides(&mut w, s);
    true
}
