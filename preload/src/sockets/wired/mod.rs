//! Connections that are carried by software iWARP (`transport::wire`): how they come to be, and what the calls on them
//! do. The kernel connection of the program is the iWARP stream, so it goes on to say when there is room, when
//! something has come and when all is over; here is what stands in between.
//!
//! | module | what |
//! |---|---|
//! | `opening` | asking and being asked, at the first use of a connection |
//! | `io` | receiving and sending |
//! | `waiting` | what waits here to go |
//! | `mover` | a thread for what the kernel did not take at once |
//! | `turns` | its turns, which the end of the process waits for |
//! | `bell` | what that thread sleeps on |
//! | `overdue` | what was accepted and is not used, where that thread answers |
//! | `riding`, `raising`, `connecting` | a ring of an RDMA adapter under the connection: what calls do beside, and how it is made |
//! | `ready` | what the socket is ready for |
//! | `ending` | shutdown, close, and following a peer back to plain bytes |
//! | `farewell` | both directions are shut, and the peer may just be saying something |
//! | `leaving` | the way back to plain bytes, with what was not read |
//!
//! Called by the modules beside it, which own the loops and the waiting. Rules:
//! - [`Phase::Opening`] is a connection of which it is not known yet how it goes on: a client that has asked, or a
//!   server that may be asked. [`Phase::Wired`] is one in RDMA mode, in both directions or what is left of them.
//! - The halves of a `Wire` are used under the stream's locks, one at a time, or both in the order sending, receiving.

mod bell;
mod connecting;
mod ending;
mod farewell;
mod io;
mod leaving;
pub(crate) mod mover;
mod opening;
pub(crate) mod overdue;
pub(crate) mod parting;
mod raising;
mod ready;
mod resting;
mod riding;
mod turns;
mod waiting;

pub(crate) use ending::{
    begin_to_close, ending, error, has_failed, hear, is_aborted, is_end_awaited, leave, let_go,
    shut,
};
pub(crate) use io::{
    available, error_of_nothing, flows, hurry, is_past_mode, is_worth_looking, note, note_sleep,
    receive, room, send, take, taken,
};
pub(crate) use leaving::{
    Held, await_others, before_demote, demote, forget_ring_of_plain, leave_all,
};
pub(crate) use opening::{ask, begin_as_server, is_accepted, is_named_at, is_wanted_at};
pub(crate) use opening::{begin_inherited, is_unasked, is_unread, may_be_asked, step};
pub(crate) use ready::{
    bits, edge, event, is_before_kernel, is_still, is_unsettled, nap, settle, tells_by_kernel,
};
pub(crate) use riding::{Sleeper, before_sleep, end as end_ring, event as ring_event, may_go};
pub(crate) use waiting::{
    GATHERING_US, await_answers, await_gone, find_asking, gather, is_gathering, is_resting, post,
    release, seek_room, unsent,
};

use super::{Phase, Socket};
use std::sync::atomic::Ordering;
pub(crate) use transport::wire::MUCH;
use transport::wire::Wire;

/// The connection's state, once it has any.
pub(super) fn wire(s: &Socket) -> Option<&'static Wire> {
    // SAFETY: null, or memory whose addresses stay valid for whoever was on the way to look.
    unsafe { s.wire.load(Ordering::Acquire).as_ref() }
}

/// From now on several processes hold the connection, or one alone again. Under both locks.
pub(super) fn share(s: &Socket, on: bool) {
    if let Some(wire) = wire(s) {
        let fd = s.own_fd(s.record.fd.load(Ordering::Relaxed).cast_signed());
        if on {
            // (one that the mover has made since the fork began: [`raising`])
            // SAFETY: the locks are held.
            unsafe { wire.end_ring() };
        }
        if on && fd >= 0 {
            // What is parked goes: nobody would look after it. (What fails shows by the next call.)
            // SAFETY: the locks are held.
            let mut out = unsafe { wire.out() };
            let _ = out.release(&wire.common, fd);
            let _ = out.clear(&wire.common, fd);
        }
        // SAFETY: as above.
        unsafe { wire.share(on) };
    }
}

/// Whether this is still the connection's state, and it is in RDMA mode or on its way there. Who takes octets from the
/// kernel, or bytes from the program, asks under the lock of that half: another thread may have found that plain bytes
/// follow, and from then on they are the kernel's.
#[inline]
fn is_current(s: &Socket, wire: &Wire) -> bool {
    is_wired(s) && is_own(s, wire)
}

/// Whether this is still the connection's state, and this process holds the connection. One that has closed what others go on with
/// has no number for it any more, and what a look by the old one finds is not to be noted in the state that is theirs too.
#[inline]
fn is_own(s: &Socket, wire: &Wire) -> bool {
    let has_closed = || s.refs.load(Ordering::Acquire) == 0 && s.shadow.load(Ordering::Acquire) < 0;
    std::ptr::eq(s.wire.load(Ordering::Acquire), wire) && !(s.is_shared() && has_closed())
}

/// A thread of the program leaves by `pthread_exit`: if it is the first, the process lives until its last thread ends,
/// which must not be ours.
pub(crate) fn leaving() {
    // SAFETY: no pointers.
    let thread = || unsafe { transport::syscall!(gettid) }.map_or(0, transport::sys::fd::as_fd);
    if thread() == transport::sys::pid() {
        mover::end();
    }
}

/// The descriptor to use under a lock of the socket: what was named before may have been closed since, and be another
/// connection's by now (whoever closes it waits for the locks). While the last is being closed it is the one that is named.
fn number(s: &Socket, fd: i32) -> i32 {
    let named = s.live_fd(fd);
    if named != fd || s.is_own(fd) || s.refs.load(Ordering::Acquire) == 0 {
        return named;
    }
    Some(s.own_fd(fd)).filter(|&own| own >= 0).unwrap_or(named)
}

/// Whether both directions go by a ring, and the kernel connection says nothing meanwhile.
pub(crate) fn is_apart(s: &Socket) -> bool {
    wire(s).is_some_and(riding::is_apart)
}

/// Whether anything has been asked or agreed.
pub(crate) fn has_begun(s: &Socket) -> bool {
    !s.wire.load(Ordering::Acquire).is_null()
}

/// Whether the socket is one of these.
#[inline]
pub(crate) fn is_wired(s: &Socket) -> bool {
    matches!(s.phase(), Phase::Opening | Phase::Wired)
}
