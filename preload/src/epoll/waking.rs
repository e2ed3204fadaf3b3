//! Waking a thread that sleeps in the kernel on a set, or on a set or poll around it: something has changed that the kernel does not
//! tell of.
//!
//! Called by whoever changes an entry, or takes in what has come for its socket. Two ways: a registration of ours is asked for
//! writability, which the kernel grants an idle connection at once; and where that may be full, an event is armed that is always
//! readable.
//!
//! The rule: who sleeps has wished for what it knew of. What is changed meanwhile is wished for by whoever changes it, since another thread
//! that only looks (a wait of no time) may take the event and leave the sleeper where it is.

use super::entry::{Asked, Entry, ONESHOT};
use super::set::{Set, TAG, WAKING, tag};
use crate::sockets::{Phase, Socket, rouse};
use crate::table;
use std::sync::atomic::Ordering;
use transport::sys::{barrier, net};

impl Set {
    /// Whether anybody may sleep on it.
    fn has_sleepers(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0 || self.around.load(Ordering::SeqCst)
    }

    /// Makes a thread that sleeps on this set look at an entry.
    pub(super) fn kick(&self, e: &mut Entry, index: usize) {
        let phase = e.socket().map(|s| s.phase());
        if matches!(e.asked, Asked::Beside | Asked::OutOfReach) {
            if !self.ask_beside_us(e, index) && self.has_sleepers() {
                self.wake();
            }
            return;
        }
        if e.asked == Asked::Ours && self.has_sleepers() {
            wish_for_sleepers(e);
            // (its own octets fill a connection in RDMA mode)
            let full = phase == Some(Phase::Wired) && net::ready_now(e.fd, libc::POLLOUT) == 0;
            if !(full && self.wake()) {
                self.rouse(e, index);
            }
        }
    }

    /// The same of what has no registration of ours that could be asked: a set in this one, a socket whose server has not
    /// answered, which it does in memory.
    pub(super) fn kick_for_other(&self, e: &mut Entry) {
        if self.has_sleepers() {
            wish_for_sleepers(e);
            self.wake();
        }
    }

    /// The same where the set has just got something of ours, its `first` perhaps.
    pub(super) fn kick_for_new(&self, e: &mut Entry, first: bool) {
        if !self.is_ours_alone() && (first || self.has_sleepers()) {
            wish_for_sleepers(e);
            self.wake();
        }
    }

    /// As [`Self::kick`], whoever sleeps. False if nobody will be woken, as far as the kernel says.
    pub(super) fn rouse(&self, e: &Entry, index: usize) -> bool {
        // The number may be another's by now, who may be in the set too.
        let named = |s: &Socket| table::socket(e.fd).is_some_and(|x| std::ptr::eq(x, s));
        if !e.socket().is_some_and(named) {
            return false;
        }
        self.kernel(
            libc::EPOLL_CTL_MOD,
            e.fd,
            Self::rousing(e),
            tag(index, e.turn),
        )
    }

    /// What wakes a sleeper by being asked for: writability, which the kernel always grants an idle connection, is an
    /// event.
    pub(super) fn rousing(e: &Entry) -> u32 {
        e.kernel_events() | libc::EPOLLOUT.cast_unsigned()
    }

    /// Wakes one that sleeps, whatever the connections are like. False if that cannot be. (A set that was passed on would tell
    /// others of it, who know nothing of that.)
    fn wake(&self) -> bool {
        let Some(event) = rouse::always().filter(|_| !self.passed_on.load(Ordering::Acquire))
        else {
            return false;
        };
        let events = libc::EPOLLIN.cast_unsigned() | ONESHOT;
        let arm = |op| self.kernel(op, event, events, TAG | WAKING as u64);
        arm(libc::EPOLL_CTL_MOD) || arm(libc::EPOLL_CTL_ADD)
    }
}

/// Before they are woken: who looks after that, in their place too, finds what has come before.
pub(super) fn wish_for_sleepers(e: &mut Entry) {
    if e.wish() {
        barrier::heavy();
    }
}
