//! How much of a stream is where: what can be read, and what of the sent is on its way yet. The kernel alone does not know either, but
//! where the stream is its own.
//!
//! Called by the hooks of FIONREAD and its kin, and of messages that tell it beside.

use super::{Phase, Socket, large, parked, residual, wired};
use crate::epoll::registered;
use transport::direct::Direct;
use transport::provider::{End, Provider};
use transport::sdp::Leg;
use transport::sys::net;

/// What FIONREAD says: bytes that the next reads get whatever happens. A sender's buffer, which may be
/// taken back yet, is asked for through the ring.
pub(crate) fn countable(s: &'static Socket, fd: i32) -> usize {
    if s.phase() == Phase::Attached
        && let Some(p) = s.segment()
        && p.has_adverts()
        && p.stated(End::Fast).is_none()
        && let Some(n) = large::in_ring(s, p, fd)
    {
        return n;
    }
    let n = unread(s, fd);
    if n >= wired::MUCH && wired::is_wired(s) {
        // There may be more, which nobody can count before it is taken out of its frames. Programs that wait for edges read as
        // much as they were told and no further (nginx), so what lies behind that is one more edge.
        registered::tell_again(s);
    }
    n
}

/// Bytes that can be read now.
pub(crate) fn unread(s: &'static Socket, fd: i32) -> usize {
    if wired::is_wired(s) {
        return wired::available(s, fd);
    }
    let kept = residual::left(s);
    let (Phase::Attached, Some(p)) = (s.phase(), s.segment()) else {
        return kept + net::unread(fd);
    };
    let Ok(mut rx) = s.rx.lock() else { return 0 };
    let mut ring = rx.available(p).unwrap_or(0);
    if ring == 0 && rx.leg() == Leg::Fast && parked::has_news(s, p) {
        parked::pull(s, p, &mut rx); // (who asks for this alone waits as well)
        ring = rx.available(p).unwrap_or(0);
    }
    match rx.leg() {
        Leg::Fast if p.stated(End::Fast).is_none() => ring,
        _ => kept + ring + not_bells(|| net::unread(fd), || rx.bells_outstanding(p)),
    }
}

/// Looks at the kernel between two at the bells, where more of them come all the time.
const LOOKS: u32 = 4;

/// Bytes on the kernel connection that are no bells. A bell is counted before it is sent, so those that are here are among the ones counted
/// behind the look at the kernel, and one that comes between an earlier count and that look would be taken for a byte of the stream. One that
/// was counted since that look is not here, so it is looked again.
fn not_bells(kernel: impl Fn() -> usize, bells: impl Fn() -> u64) -> usize {
    let (mut before, mut looks) = (bells(), 0);
    loop {
        let here = kernel();
        let counted = bells();
        looks += 1;
        if counted == before || looks == LOOKS {
            return here.saturating_sub(usize::try_from(counted).unwrap_or(usize::MAX));
        }
        before = counted;
    }
}

/// Whether bytes of the fast leg lie before whatever the kernel connection has.
pub(crate) fn is_before_kernel(s: &Socket) -> bool {
    if wired::is_wired(s) {
        return wired::is_before_kernel(s);
    }
    let fast = s.phase() == Phase::Attached
        && s.segment().is_some_and(|p| {
            s.rx.lock()
                .is_ok_and(|mut rx| rx.available(p).unwrap_or(0) > 0)
        });
    fast || residual::left(s) > 0
}

/// Bytes sent that the peer's host has not acknowledged (SIOCOUTQ): of the buffer, half counts as the
/// receiver's, where bytes are acknowledged unread, and half as the sender's.
pub(crate) fn unsent(s: &Socket, fd: i32) -> Option<usize> {
    if wired::is_wired(s) {
        return Some(wired::unsent(s) + net::unsent(fd));
    }
    let p = s
        .segment()
        .filter(|_| s.phase() == Phase::Attached && s.tx_leg() == Leg::Fast)?;
    let tx = s.tx.lock().ok()?;
    usize::try_from(tx.unread(p).saturating_sub(tx.limit() / 2)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A byte of the stream lies there; after `after` of the looks (at bells, at the kernel, at bells and so on) the peer counts a bell, and
    /// its byte comes so many looks later. What is counted.
    fn counted(after: u32, later: u32, again: bool) -> usize {
        let (looks, rung, here) = (Cell::new(0), Cell::new(0u64), Cell::new(1usize));
        let pass = || {
            let n = looks.get();
            let is = |at| n == at || again && n > at;
            rung.set(rung.get() + u64::from(is(after)));
            here.set(here.get() + usize::from(is(after + later)));
            looks.set(n + 1);
        };
        let kernel = || {
            pass();
            here.get()
        };
        let bells = || {
            pass();
            rung.get()
        };
        not_bells(kernel, bells)
    }

    #[test]
    fn a_bell_that_comes_between_two_looks_is_no_byte_of_the_stream() {
        for after in 0..8 {
            assert_eq!(counted(after, 0, false), 1, "{after}");
            for later in 1..8 {
                assert!(counted(after, later, false) <= 1, "{after} {later}");
                assert!(counted(after, later, true) <= 1, "{after} {later}");
            }
        }
    }
}
