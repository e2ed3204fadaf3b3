//! Sets and other processes: sockets in a set that others hold too since a fork, and sets that a parent and
//! its child both have.

use super::entry::Entry;
use super::set::{OTHERS, Set, TAG};
use super::ticket::{self, Taker};
use crate::sockets::demote::{Unread, demote};
use crate::sockets::{Socket, rouse};
use crate::table;
use std::sync::atomic::Ordering;
use transport::reason::Reason;

impl Set {
    /// From now on other processes that hold sockets of this set are heard. Under the registry lock.
    pub(crate) fn hear_others(&'static self) {
        if let Some(event) = rouse::for_sets()
            && self.lock().is_some_and(|l| !l.by_fd.is_empty())
            && !self.hears.swap(true, Ordering::AcqRel)
        {
            let events = libc::EPOLLIN.cast_unsigned() | super::entry::ET;
            self.kernel(libc::EPOLL_CTL_ADD, event, events, TAG | OTHERS as u64);
        }
    }

    /// Before a fork: what is posted is heard of by one process only.
    pub(crate) fn part_with_child(&'static self) {
        if let Some(mut l) = self.lock()
            && l.boards.posted() > 0
        {
            l.leave_boards();
            ticket::disturb_held(self, &mut l, Taker::Change);
        }
    }

    /// Sockets in here that other processes hold too, or held when they sent them back to the kernel.
    pub(crate) fn shared_sockets(&'static self) -> Vec<(&'static Socket, i32)> {
        let Some(l) = self.lock() else {
            return Vec::new();
        };
        let is_meant = |e: &Entry, s: &Socket| s.is_shared() || e.is_stale();
        let entries = l.entries.iter().flatten();
        entries
            .filter(|e| e.is_counted())
            .filter_map(|e| Some((e, e.socket().filter(|s| is_meant(e, s))?)))
            .map(|(e, s)| (s, e.number(s)))
            .collect()
    }

    /// Has the next look include a socket.
    pub(crate) fn heat_socket(&'static self, s: &'static Socket) {
        if let Some(mut l) = self.lock() {
            let same = |e: &Option<Entry>| {
                e.as_ref()
                    .and_then(Entry::socket)
                    .is_some_and(|x| std::ptr::eq(x, s))
            };
            if let Some(index) = l.entries.iter().position(same) {
                l.heat(index);
            }
        }
    }

    /// Before a call on the set: one that a parent uses too is the kernel's alone. Two processes
    /// would otherwise each know half of what the kernel has been asked.
    #[inline]
    pub(crate) fn settle_inherited(&'static self) {
        if self.inherited.load(Ordering::Relaxed) {
            self.leave_to_kernel();
        }
    }

    /// The set's descriptor goes to another process: all sockets in it go back to the kernel, and those that
    /// are added later.
    pub(crate) fn pass_on(&'static self) {
        self.note_others();
        self.passed_on.store(true, Ordering::Release);
        let sockets: Vec<(&'static Socket, i32)> = self.lock().map_or_else(Vec::new, |l| {
            let entries = l.entries.iter().flatten();
            let sockets = entries.filter_map(|e| Some((e, e.socket()?)));
            sockets.map(|(e, s)| (s, e.number(s))).collect()
        });
        for (s, fd) in sockets {
            demote(s, fd, Reason::Passed, Unread::GiveBack);
        }
    }

    /// Before a socket is added: one in a set that was passed on is the kernel's before the kernel can tell
    /// the other process of it, by a tag that only this one knows.
    pub(super) fn keep_plain(&self, fd: i32) {
        if self.passed_on.load(Ordering::Acquire)
            && let Some(s) = table::socket(fd)
        {
            demote(s, fd, Reason::Passed, Unread::GiveBack);
        }
    }

    #[cold]
    fn leave_to_kernel(&'static self) {
        self.inherited.store(false, Ordering::Relaxed);
        for (s, fd) in self.shared_sockets() {
            if s.has_others() {
                demote(s, fd, Reason::Forked, Unread::Keep);
            }
        }
    }
}
