//! What the kernel connection of an attached socket shows: its end, bells, and bytes that are none. Called by whoever has
//! asked the kernel, or slept in it.
//!
//! The rule: bytes beyond the bells that the peer has counted went round the library, and the stream follows them.

use super::{Leg, Phase, Socket, coarse, demote, seats, wired};
use crate::epoll::registered;
use crate::epoll::set::Set;
use std::sync::atomic::Ordering;
use transport::clock;
use transport::sys::net;

/// How often (µs) a program that only polls has the kernel connection looked at.
const CHECK_US: u64 = 10_000;

/// Bells that may lie unread on a watched connection. Fewer than the kernel sends before it waits for an acknowledgement (4
/// with the meanest of its congestion controls): unread ones are acknowledged 40 ms later, and the next would be held up for
/// as long.
const BELLS: u64 = 3;

/// Whether it is time to look at the kernel connection again.
pub(crate) fn is_due(s: &Socket) -> bool {
    let now = coarse(clock::ticks());
    let due = now.wrapping_sub(s.checked.load(Ordering::Relaxed)) > coarse(clock::us(CHECK_US));
    if due {
        s.checked.store(now, Ordering::Relaxed);
    }
    due
}

/// Looks whether the kernel connection has ended, or carries bytes that are not bells. True if
/// something is new.
pub(crate) fn check_kernel(s: &'static Socket, fd: i32) -> bool {
    if s.is_shared() {
        seats::unshare(s);
    }
    let bits = net::ready_now(fd, libc::POLLIN | libc::POLLRDHUP);
    kernel_shows(s, fd, bits)
}

/// After a sleep on a connection that this side has shut in the kernel, where only errors show: looks now and then.
pub(crate) fn check_shut(s: &'static Socket, fd: i32) {
    if s.woken_hard.load(Ordering::Acquire) && s.phase() == Phase::Attached && is_due(s) {
        check_kernel(s, fd);
    }
}

/// Where this side has shut its receiving in the kernel, as for a socket that is watched, the peer's end looks there like its own.
/// The connection's state tells them apart.
fn ends_behind_own(s: &Socket, fd: i32, bits: i16) -> bool {
    bits & libc::POLLRDHUP != 0
        && s.woken_hard.load(Ordering::Acquire)
        && s.phase() == Phase::Attached
        && !s.is_over()
        && net::has_peer_ended(fd)
}

/// Takes in what poll(2) says of the kernel connection of an attached socket. True if it is news.
pub(crate) fn kernel_shows(s: &'static Socket, fd: i32, bits: i16) -> bool {
    kernel_shows_to(s, fd, bits, None, false)
}

/// As [`kernel_shows`], after a sleep that began with no bell there (`wait::prepare`): a bell explains it, and the kernel is not
/// asked what else lies there. That shows at the next sleep, which takes the bells first.
pub(crate) fn woken(s: &'static Socket, fd: i32, bits: i16) -> bool {
    kernel_shows_to(s, fd, bits, None, true)
}

/// As [`kernel_shows`], told to a thread that is counted asleep on this set, and about to look.
pub(crate) fn kernel_shows_to(
    s: &'static Socket,
    fd: i32,
    bits: i16,
    looks: Option<&'static Set>,
    explained: bool,
) -> bool {
    if bits != 0 && wired::is_wired(s) {
        s.kernel_news.tell();
    }
    if s.shows_end(bits) || ends_behind_own(s, fd, bits) {
        return !s.over.swap(true, Ordering::AcqRel);
    }
    if bits & libc::POLLIN != 0 {
        s.kernel_news.tell();
    }
    if bits & libc::POLLIN != 0
        && s.phase() == Phase::Attached
        && s.rx_leg() != Leg::Last
        && let Some(p) = s.segment()
    {
        let Ok(mut rx) = s.rx.lock() else {
            return false;
        };
        if !s.is_here(fd) {
            return false;
        }
        // (a program that has read its first message, and sends since, has not looked whether another follows)
        rx.pass_first(p);
        s.mirror_rx(&rx);
        if rx.leg() != Leg::Fast {
            return false;
        }
        if explained && rx.bells_outstanding(p) > 0 {
            return false;
        }
        let unread = net::unread(fd) as u64;
        let bells = rx.bells_outstanding(p);
        // Watchers are told of each bell as it comes, so bells may lie; now and then they are cleared
        // away, unless somebody who sleeps in a call of its own may still have to see one. (Sets are made to look.)
        let take = s.sleepers() == 0 && (BELLS..=bells).contains(&unread);
        if take {
            rx.take_bells(p, fd, usize::MAX);
        }
        drop(rx);
        if take {
            // One of them may have been for a set that has not looked yet.
            let alone = looks.filter(|set| set.has_one_sleeper());
            registered::kick_others(s, alone.map_or(std::ptr::null(), std::ptr::from_ref));
        }
        if unread > bells {
            demote::went_round(s, fd);
            return true;
        }
    }
    false
}
