//! What rings take of memory that is registered: who grows, who rests, who makes way for whom. Called by `raising`, on the mover's thread.
//!
//! The rule: a ring ends only where its octets can go on by the kernel connection, and the side that has connected decides.

use super::super::super::Socket;
use super::super::resting::{self, Pulse};
use super::super::riding;
use super::CONNECTED;
use super::lists::{LISTS, Rider};
use crate::epoll::registered;
use std::sync::atomic::Ordering;
use transport::clock;
use transport::reason::Reason;
use transport::record::Transport;
use transport::ring::Ring;

/// For the report.
pub(super) fn note_size(s: &Socket, ring: &Ring) {
    let size = u32::try_from(ring.size()).unwrap_or(u32::MAX);
    s.record.reserved.store(size, Ordering::Relaxed);
}

/// The connection stays on iWARP; the record says so, if it is for want of room.
pub(super) fn lacks_room(s: &Socket, lacks: bool) {
    if lacks && s.record.transport.load(Ordering::Relaxed) == Transport::Iwarp as u8 {
        let why = Reason::AdapterRoom as u8;
        s.record.reason.store(why, Ordering::Relaxed);
    }
}

/// There was no ring for this one: if others have some, one of which is idle, that is given back, and this side tries again if
/// it is the one that offers.
pub(super) fn make_room(s: &'static Socket) {
    let mut idle = Vec::new();
    {
        let (mut lists, now) = (LISTS.lock(), clock::ticks());
        if lists.riders.is_empty() && lists.retired.is_empty() {
            return; // no adapter
        }
        for ridden in &mut lists.riders {
            // SAFETY: a ring of a list is there until this thread takes it down.
            let since = ridden.pulse.take(unsafe { ridden.ring.as_ref() }, now);
            if Pulse::is_enough_for_room(since) {
                idle.push((since, ridden.rider));
            }
        }
        if s.record.role.load(Ordering::Relaxed) == CONNECTED {
            lists.try_again(s);
        }
    }
    idle.sort_unstable_by_key(|&(since, _)| std::cmp::Reverse(since));
    idle.into_iter().find(|&(_, rider)| rest(rider));
}

/// Of those whose other end this side has connected to, which decides: all whose rings are so.
fn those(is_so: impl Fn(&mut Pulse, &Ring) -> bool) -> Vec<Rider> {
    let mut found = Vec::new();
    for ridden in &mut LISTS.lock().riders {
        // SAFETY: as above.
        let so = is_so(&mut ridden.pulse, unsafe { ridden.ring.as_ref() });
        if so && ridden.rider.socket.record.role.load(Ordering::Relaxed) == CONNECTED {
            found.push(ridden.rider);
        }
    }
    found
}

/// Those whose rings have carried nothing for long: they are given back.
pub(super) fn idle(now: u64) -> Vec<Rider> {
    those(|pulse, ring| Pulse::is_long(pulse.take(ring, now)))
}

/// Those that are full, and nobody reads: they end.
pub(super) fn stuck(now: u64) -> Vec<Rider> {
    those(|pulse, ring| Pulse::is_stuck(pulse.take(ring, now), ring))
}

/// Those that so much goes by that a larger ring is worth its memory, once.
pub(super) fn cramped(now: u64) -> Vec<Rider> {
    those(|pulse, ring| pulse.is_much(ring, now))
}

/// Has the kernel connection take the place of this one's ring, wherever that is: it holds more.
pub(super) fn unblock(rider: Rider) {
    if let Some((wire, fd)) = rider.wire() {
        let riding = &wire.common.ring;
        riding::end_at_will(rider.socket, fd, wire, || riding.begin_rest());
    }
}

/// Has a large ring take the place of this one's: it ends wherever it is, and the next is offered at once.
pub(super) fn grow(rider: Rider) {
    let Some((wire, fd)) = rider.wire() else {
        return;
    };
    let riding = &wire.common.ring;
    if riding.is_large()
        || !riding
            .get()
            .is_some_and(|ring| ring.is_up() && !ring.is_over())
    {
        return;
    }
    riding::end_at_will(rider.socket, fd, wire, || {
        riding.set_large(true);
        riding.begin_growth();
    });
}

/// Gives the ring of this one back, if that can be done now. Whether it is.
pub(super) fn rest(rider: Rider) -> bool {
    let Some((wire, fd)) = rider.wire() else {
        return false;
    };
    let Some(ring) = wire.common.ring.get() else {
        return false;
    };
    // (words of the peer's, which no call of the program's has taken in)
    if ring.available() > 0 && rider.socket.sleepers() == 0 {
        super::super::io::available(rider.socket, fd);
        registered::kick_others(rider.socket, std::ptr::null());
    }
    let riding = &wire.common.ring;
    resting::may_rest(ring) && riding::end_at_will(rider.socket, fd, wire, || riding.begin_rest())
}
