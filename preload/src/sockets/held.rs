//! Large messages that stay in the program's memory after `send` (`SHUNT_ZCOPY=async`): what this process has of a
//! connection's lanes, the one that it sends by and the reading end of the other's.
//!
//! Called by `send` and, when a socket ends or goes back to the kernel, by `close` and `demote`. Rules:
//! - A message is held only if the guard admits it, and the other end has fetched the lane. Everything else
//!   goes another way at once; nothing waits here.
//! - A stream that several processes hold is copied.

use super::ending::is_gone;
use super::{Phase, Socket, demote, parked};
use crate::guard::{self, Lane, Refusal};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use transport::direct::far::Far;
use transport::direct::{self, Direct};
use transport::reason::Reason;
use transport::sdp::{Leg, Walk};
use transport::sys::fd::inode;

/// One process's part. Made at the first use, under either lock of the stream, and gone under both.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    /// Under the sending lock.
    own: UnsafeCell<Option<Lane>>,
    /// No lane can be had for this connection.
    barred: AtomicBool,
    /// Under the receiving lock.
    far: Far,
}

/// The socket's, under a lock of its stream.
fn of(s: &Socket) -> &Lanes {
    let place = &s.lanes;
    let mut at = place.load(Ordering::Acquire);
    if at.is_null() {
        let new = Box::into_raw(Box::default());
        let (null, order) = (std::ptr::null_mut(), Ordering::AcqRel);
        at = match place.compare_exchange(null, new, order, Ordering::Acquire) {
            Ok(_) => new,
            Err(other) => {
                // SAFETY: made above, and seen by nobody.
                drop(unsafe { Box::from_raw(new) });
                other
            }
        };
    }
    // SAFETY: not given back before both locks are held.
    unsafe { &*at }
}

/// Where large messages come: the reading end of the other's lane, or the place for it. Under the receiving
/// lock.
#[inline]
pub(super) fn far<'a>(s: &'a Socket, p: &impl Direct) -> Option<&'a Far> {
    p.has_adverts().then(|| &of(s).far)
}

/// Holds the walk's next buffers, as far as that is possible. What is left goes another way: with a false answer
/// through the ring, without waiting for the reader. It has only just been offered the lane, or the ring has
/// room (a reader that was waited for would have to read all that is held first).
///
/// # Safety
/// The walk's buffers are readable.
#[cold]
pub(super) unsafe fn hold(s: &'static Socket, fd: i32, walk: &mut Walk) -> bool {
    let (Phase::Attached, Some(p)) = (s.phase(), s.segment()) else {
        return true;
    };
    let able = !s.tx_shut.load(Ordering::Relaxed)
        && !s.is_shared()
        && !is_gone(s, p)
        && p.reaches().is_ok();
    let Some(mut tx) = able.then(|| s.tx.lock().ok()).flatten() else {
        return true;
    };
    if tx.leg() != Leg::Fast {
        return true;
    }
    let lanes = of(s);
    // SAFETY: under the sending lock.
    let own = unsafe { &mut *lanes.own.get() };
    let Some(lane) = usable(s, p, lanes, own) else {
        return p.lane() != direct::Lane::Offered;
    };
    let mut refused = None;
    let put = |from, len| {
        // SAFETY: the caller's promise.
        let sent = unsafe { lane.send(from, len) };
        sent.unwrap_or_else(|why| {
            refused = Some(why);
            0
        })
    };
    // SAFETY: the caller's promise.
    let held = unsafe { tx.hold(p, fd, walk, put) };
    s.mirror_tx(&tx);
    if held.is_err() {
        drop(tx);
        demote::broken(s, fd);
        return true;
    }
    let parks = tx.is_parked();
    let waits = tx.room(p).map_or(true, |room| walk.left() > room);
    drop(tx);
    if parks {
        parked::note(s, fd);
    }
    let why = refused.unwrap_or(Refusal::Full);
    note(s, why);
    waits || !matches!(why, Refusal::Full | Refusal::Small)
}

/// The lane, once the other end has it; made and offered to it at first.
fn usable<'a>(
    s: &Socket,
    p: &impl Direct,
    lanes: &Lanes,
    own: &'a mut Option<Lane>,
) -> Option<&'a Lane> {
    if own.as_ref().is_some_and(|lane| !lane.is_own()) {
        *own = None; // the parent's
    }
    if own.is_none() {
        if !lanes.barred.load(Ordering::Relaxed) {
            *own = offer(s, p, lanes);
        }
        return None;
    }
    match p.lane() {
        direct::Lane::Fetched => own.as_ref(),
        direct::Lane::Refused | direct::Lane::None => {
            *own = None;
            bar(s, lanes);
            None
        }
        direct::Lane::Offered => None,
    }
}

fn offer(s: &Socket, p: &impl Direct, lanes: &Lanes) -> Option<Lane> {
    let made = Lane::new().and_then(|lane| {
        let pipe = inode(lane.far_fd()).map_err(|_| Refusal::Full)?;
        p.offer_lane(lane.far_fd(), pipe);
        Ok(lane)
    });
    match made {
        Ok(lane) => Some(lane),
        Err(Refusal::Full) => {
            bar(s, lanes);
            None
        }
        Err(why) => {
            note(s, why);
            None
        }
    }
}

fn bar(s: &Socket, lanes: &Lanes) {
    lanes.barred.store(true, Ordering::Relaxed);
    record(s, Reason::ZcopyPipes);
}

fn note(s: &Socket, why: Refusal) {
    if let Some(why) = reason(why) {
        record(s, why);
    }
}

fn record(s: &Socket, why: Reason) {
    s.record
        .zcopy_reason
        .fetch_max(why as u8, Ordering::Relaxed);
}

/// What the report says of it: nothing of what is in the nature of a message, or passes by.
fn reason(why: Refusal) -> Option<Reason> {
    match why {
        Refusal::Small | Refusal::Full | Refusal::Forked => None,
        Refusal::Threads => Some(Reason::ZcopyThreads),
        Refusal::Signals => Some(Reason::ZcopySignals),
        Refusal::Sandbox => Some(Reason::ZcopySandbox),
        Refusal::Kernel => Some(Reason::ZcopyKernel),
        Refusal::Stack | Refusal::Mapping | Refusal::Protection => Some(Reason::ZcopyMemory),
    }
}

/// The connection is done with its fast legs, or this process with the connection. What the other end has not read
/// it has the pipe of.
pub(super) fn let_go(s: &Socket) {
    if s.lanes.load(Ordering::Acquire).is_null() {
        return;
    }
    let (Ok(_tx), Ok(_rx)) = (s.tx.lock(), s.rx.lock()) else {
        return;
    };
    let at = s.lanes.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if !at.is_null() {
        // SAFETY: made by `of`; under both locks nobody uses it.
        drop(unsafe { Box::from_raw(at) });
    }
}

/// Before the walk's next buffer is advertised by its address: none of it is held, as held memory gets new frames,
/// which are empty for a moment.
pub(super) fn lift(walk: &mut Walk) {
    if guard::is_live() {
        let (at, len) = walk.chunk();
        guard::before_write(at, len);
    }
}
