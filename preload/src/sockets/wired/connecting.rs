//! Rings whose adapters are connecting them to the peers': iWARP's take a few exchanges for that, which nobody waits for. All
//! of it is done by the mover's thread ([`super::raising`]), a step at each of its turns.

use super::super::lock::Slow;
use super::raising::{self, HURRY_US, LOOK_MS, Rider};
use super::riding;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use transport::clock;
use transport::ring::Ring;
use transport::verbs::Side;
use transport::wire::Due;

/// How long (µs) it may take: the side that has been offered a ring, and the other, which begins later.
const ANSWERS_US: u64 = 3_000_000;
const OFFERS_US: u64 = 5_000_000;
/// How often (ms) one is looked at that takes longer than [`HURRY_US`].
const SLOW_MS: i32 = 10;

static LIST: Slow<Vec<Connecting>> = Slow::new(crate::sockets::order::Rank::Connecting, Vec::new());
static MASK: AtomicU64 = AtomicU64::new(0);

/// A ring that is being connected, and since when.
#[derive(Clone, Copy)]
struct Connecting {
    rider: Rider,
    ring: NonNull<Ring>,
    side: Side,
    since: u64,
}

// SAFETY: the rings of the list are this process's, and used by its mover's thread alone.
unsafe impl Send for Connecting {}

/// How long (ms) the thread may sleep, if there are any.
pub(super) fn patience() -> Option<i32> {
    let list = LIST.lock();
    let old = clock::ticks().saturating_sub(clock::us(HURRY_US));
    let is_new = list.iter().any(|one| one.since > old);
    (!list.is_empty()).then_some(if is_new { LOOK_MS } else { SLOW_MS })
}

/// A ring whose adapter has begun. The side that has offered says that it begins once that is done.
pub(super) fn begin(rider: Rider, ring: &Ring, side: Side) {
    go_on(Connecting {
        rider,
        ring: NonNull::from(ring),
        side,
        since: clock::ticks(),
    });
}

/// A turn of the thread.
pub(super) fn work() {
    let all = std::mem::take(&mut *LIST.lock());
    all.into_iter().for_each(go_on);
}

/// Goes on with one. Where it fails at the side that has been offered it, the ring stays, ended, until the other has said that it begins,
/// which it may have done by then, or that it will not ([`raising::withdraw`]).
fn go_on(one: Connecting) {
    let Connecting {
        rider, ring, side, ..
    } = one;
    let Some((wire, fd)) = rider.wire() else {
        return;
    };
    if !rider.has_ring(ring) {
        // (that of another offer is that one's to speak of)
        let riding = &wire.common.ring;
        if side == Side::Offers && riding.get().is_none() && !riding.awaits_answer() {
            raising::withdraw(rider.socket, fd, wire);
        }
        return;
    }
    // SAFETY: a ring of a connection is there until this thread takes it down.
    let ring = unsafe { ring.as_ref() };
    if ring.is_over() {
        if side == Side::Offers {
            raising::withdraw(rider.socket, fd, wire);
        }
        return;
    }
    let most = match side {
        Side::Answers => ANSWERS_US,
        Side::Offers => OFFERS_US,
    };
    match ring.is_connected() {
        Ok(true) if side == Side::Offers => {
            ring.expect(); // its peer answers a beginning with one
            wire.common.ring.want(Due::SayBegin);
            super::waiting::serve_due(rider.socket, fd);
        }
        Ok(true) => {}
        Ok(false) if clock::ticks() - one.since < clock::us(most) => LIST.lock().push(one),
        _ => {
            riding::end(rider.socket, fd);
            if side == Side::Offers {
                raising::withdraw(rider.socket, fd, wire);
            }
        }
    }
}

/// Before fork: nobody is in the list while it is copied.
pub(super) fn before_fork() {
    MASK.store(LIST.hold(), Ordering::Relaxed);
}

/// After it, in the parent; and in the child once [`in_child`] is done.
pub(super) fn let_go() {
    LIST.let_go(MASK.load(Ordering::Relaxed));
}

/// In a child: the rings are the parent's.
pub(super) fn in_child() {
    // SAFETY: held since before the fork, and there is no other thread.
    unsafe { LIST.held() }.clear();
}
