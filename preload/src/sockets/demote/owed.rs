//! What the peer has asked back and the kernel has no room for yet: it is owed, and goes by the kernel before all that follows.
//!
//! The rule: a stream that owes stays attached, as only its segment has those bytes.

use super::{Unread, become_plain, demote_held, finish_if_over};
use crate::sockets::{Phase, Socket, parked};
use crate::world::World;
use std::sync::atomic::Ordering;
use transport::clock;
use transport::provider::Provider;
use transport::reason::Reason;
use transport::sdp::{Leg, Tx};
use transport::sys::{self, Errno, Result, net};

/// How long (µs) it is waited for with the registry lock held.
const SETTLE_US: u64 = 100_000;

/// How much (bytes) is owed by the kernel, and keeps the stream from being its.
pub(super) fn owed(s: &Socket) -> u64 {
    if s.phase() != Phase::Attached || s.tx_leg() != Leg::Last {
        return 0;
    }
    s.tx.lock().map_or(0, |tx| tx.owed())
}

/// What is owed does not go, and nobody is left who would send it.
pub(super) fn give_up(w: &mut World, s: &'static Socket, fd: i32, why: Reason) {
    s.broken.store(true, Ordering::Release);
    net::disconnect(fd); // a reset, never a gap
    become_plain(w, s, fd, why);
}

/// [`demote_held`] of what must be the kernel's now.
pub(crate) fn demote_at_once(
    w: &mut World,
    s: &'static Socket,
    fd: i32,
    why: Reason,
    unread: Unread,
) {
    let begun = clock::ticks();
    loop {
        demote_held(w, s, fd, why, unread);
        if owed(s) == 0 {
            return;
        }
        if clock::ticks() - begun > clock::us(SETTLE_US) {
            return give_up(w, s, fd, why);
        }
        sys::yield_core();
    }
}

/// Sends what is owed, as far as the kernel has room now. False if it has none for all of it.
pub(super) fn settle(s: &Socket, p: &impl Provider, tx: &mut Tx, fd: i32) -> bool {
    is_paid(s, fd, settle_alone(s, p, tx, fd))
}

/// [`Tx::settle`] outside of [`super::cut`]. Who dies between a byte of it and the count of that leaves a stream that nobody can go on
/// with: a reset, never a byte twice.
///
/// # Errors
/// As there; PIPE of such a one.
pub(in crate::sockets) fn settle_alone(
    s: &Socket,
    p: &impl Provider,
    tx: &mut Tx,
    fd: i32,
) -> Result<()> {
    if !tx.owes() {
        return Ok(());
    }
    if s.begin_leaving() {
        return Err(Errno::PIPE);
    }
    let sent = tx.settle(p, fd);
    s.end_leaving();
    sent
}

/// What came of sending what is owed: false while there is no room for all of it.
fn is_paid(s: &Socket, fd: i32, sent: Result<()>) -> bool {
    match sent {
        Err(Errno::AGAIN) => false,
        Err(Errno::PIPE) => {
            // The kernel was told of the end, and takes no more of what belongs before it.
            s.broken.store(true, Ordering::Release);
            net::disconnect(fd); // a reset, never a gap
            true
        }
        _ => true,
    }
}

/// Sends what is owed in the middle of [`super::cut`]. True once all has gone; else it is remembered.
pub(super) fn pay(s: &'static Socket, p: &impl Provider, tx: &mut Tx, fd: i32) -> bool {
    let paid = is_paid(s, fd, tx.settle(p, fd));
    s.mirror_tx(tx);
    if paid {
        settled(s, fd);
    } else if parked::keep(s, fd) {
        parked::keep_awake();
    }
    paid
}

/// All that was owed has gone by the kernel.
pub(super) fn settled(s: &Socket, fd: i32) {
    if s.tx_shut.load(Ordering::Acquire) {
        // What was a word in the segment has to be a FIN now.
        s.fin_sent.store(true, Ordering::Release);
        // SAFETY: no pointers.
        let _ = unsafe { transport::syscall!(shutdown, fd, libc::SHUT_WR) };
    }
}

/// Sends more of what is owed by the kernel, which had no room for all of it. True if it still has not.
#[cold]
pub(in crate::sockets) fn go_on_settling(s: &'static Socket, fd: i32) -> bool {
    let (Phase::Attached, Some(p)) = (s.phase(), s.segment()) else {
        return false;
    };
    {
        let Ok(mut tx) = s.tx.lock() else { return true };
        if tx.leg() != Leg::Last || !tx.owes() {
            return false;
        }
        if !settle(s, p, &mut tx, fd) {
            return true;
        }
        s.mirror_tx(&tx);
    }
    settled(s, fd);
    finish_if_over(s, fd, Reason::PeerDemoted);
    false
}
