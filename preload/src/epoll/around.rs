//! A set as seen from around: by another set that it is in, or by a poll on it. Both ask whether something in it is ready,
//! without a wait of their own on it, and wish to be woken by its sockets.
//!
//! Called by `entry` and `poll`. The rule: a look takes no lock but those of the sets, an outer one before an inner, and takes from
//! the kernel's list only what the set can tell again.

use super::entry::{Asked, Entry, Subject};
use super::set::{RING, Set, TAG, TAG_MASK, index_of_tag, is_of};
use super::ticket::{self, Taker};
use crate::sockets::ready::{self, Ask};
use crate::sockets::{Socket, wired};
use std::sync::atomic::Ordering;

/// Looks at a set whose sockets have to be brought up to date in between.
const TURNS: u32 = 4;

impl Set {
    /// Whether something in this set is ready (asked by a set or poll around it). Takes no lock but
    /// this set's.
    pub(crate) fn has_ready(&'static self) -> bool {
        self.note_around();
        if self.has_ready_user() {
            return true;
        }
        let fd = self.fd.load(Ordering::Relaxed);
        if transport::sys::net::ready_now(fd, libc::POLLIN) == 0 {
            return false;
        }
        // The kernel's word may stem from a bell alone, or from what a registration of ours that is silent does not show. What it
        // tells of level-triggered registrations it tells again; with others of the program's own in the set its word has to do: too
        // much at times, never too little.
        !self.is_engaged() || self.harvest(fd) || self.has_ready_user()
    }

    /// It is looked at from around: none of its entries stays posted.
    fn note_around(&'static self) {
        if !self.around.swap(true, Ordering::SeqCst)
            && let Some(mut l) = self.lock()
            && l.boards.posted() > 0
        {
            l.leave_boards();
            ticket::disturb_held(self, &mut l, Taker::Change);
        }
    }

    fn has_ready_user(&'static self) -> bool {
        let Some(mut l) = self.lock() else {
            return false;
        };
        let asleep = self.waiters.load(Ordering::SeqCst) > 0;
        for at in 0..l.hot.len() {
            let Some(&i) = l.hot.get(at) else { continue };
            let Some(e) = l.entry(i) else { continue };
            let taken = |e: &Entry| e.socket().filter(|_| asleep).map(wired::taken);
            let before = taken(e);
            let ready = e.is_ready();
            if taken(e) != before {
                self.kick(e, i); // (the kernel has nothing to tell of it to who sleeps on this one, and is just being woken)
            }
            if ready {
                return true;
            }
        }
        false
    }

    /// Something that changes with whatever arrives in this set, or in sets in it, without a word of the kernel's: an edge-triggered set
    /// around it is told of each. Takes no locks but those of the sets.
    pub(super) fn edge(&'static self) -> u64 {
        self.note_around();
        let Some(mut l) = self.lock() else { return 0 };
        let mut sum = l.changes;
        for at in 0..l.hot.len() {
            let Some(&i) = l.hot.get(at) else { continue };
            let Some(e) = l.entry(i) else { continue };
            let edge = match e.subject {
                Subject::Set(inner) => inner.edge(),
                _ => e.socket().map_or(0, |s| {
                    ready::edge(s, e.number(s), e.asks_for_data(), Ask::Told)
                }),
            };
            sum = sum.wrapping_add(edge);
        }
        sum
    }

    /// Names the sockets in this set, and in sets in it, that have to be brought up to date before it is known whether
    /// they are ready. Takes no locks but those of the sets.
    pub(crate) fn unsettled(&'static self, found: &mut dyn FnMut(&'static Socket, i32)) {
        self.note_around();
        let Some(mut l) = self.lock() else { return };
        for at in 0..l.hot.len() {
            let Some(&i) = l.hot.get(at) else { continue };
            let Some(e) = l.entry(i) else { continue };
            match e.subject {
                Subject::Set(inner) => inner.unsettled(found),
                _ => {
                    if let Some(s) = e.socket().filter(|s| ready::is_unsettled(s)) {
                        found(s, e.number(s));
                    }
                }
            }
        }
    }

    /// [`Self::has_ready`] of one that nothing is locked around: brings its sockets up to date where they are not.
    pub(crate) fn has_ready_settled(&'static self) -> bool {
        for _ in 0..TURNS {
            if self.has_ready() {
                return true;
            }
            let mut all = Vec::new();
            self.unsettled(&mut |s, fd| all.push((s, fd)));
            if all.is_empty() {
                return false;
            }
            for (s, fd) in all {
                ready::settle(s, fd);
            }
        }
        self.has_ready()
    }

    /// Takes our own events off the kernel's list. True if there are others, or would be lost by that.
    fn harvest(&'static self, ep: i32) -> bool {
        // (under the lock under which registrations become the program's own again)
        let Some(mut l) = self.lock() else {
            return true;
        };
        let lost = |e: &Entry| e.is_kernels_edge();
        if self.edgy.load(Ordering::Relaxed)
            || self.adding.load(Ordering::SeqCst) > 0
            || l.entries.iter().flatten().any(lost)
        {
            return true;
        }
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        // SAFETY: room for as many events; no mask.
        let n = unsafe {
            transport::syscall!(epoll_pwait, ep, events.as_mut_ptr(), events.len(), 0, 0, 8)
        };
        ticket::disturb_held(self, &mut l, Taker::Wait);
        let mut others = false;
        for ev in events.iter().take(n.unwrap_or(0)) {
            let (bits, data) = (ev.events, ev.u64);
            if data & TAG_MASK != TAG {
                others = true;
                continue;
            }
            let index = index_of_tag(data);
            let Some(e) = l.entry(index) else { continue };
            if data & RING != 0 && !e.has_ring() || !is_of(e, data) {
                continue; // it stood for another
            }
            e.stir(bits);
            if matches!(e.subject, Subject::Other) {
                others = true;
                continue;
            }
            if let Some(s) = e
                .socket()
                .filter(|_| data & RING == 0 && e.asked == Asked::Ours)
            {
                s.note_kernel(bits);
            }
            if self.waiters.load(Ordering::SeqCst) > 0 {
                self.kick(e, index); // (whose event it was, before it has got a core)
            }
            l.heat(index);
        }
        others
    }

    /// Arms every hot entry: somebody is about to sleep on a set or poll around this one. True if a
    /// barrier is due.
    pub(crate) fn wish_all(&'static self) -> bool {
        self.note_around();
        let Some(mut l) = self.lock() else {
            return false;
        };
        let mut new = false;
        for at in 0..l.hot.len() {
            if let Some(&i) = l.hot.get(at)
                && let Some(e) = l.entry(i)
            {
                new |= e.wish();
            }
        }
        new
    }

    /// Whether nothing is sure to wake for something in it, as of its last wish: so it is not for who sleeps around it. (Such entries stay
    /// hot.)
    pub(super) fn is_unsure(&'static self) -> bool {
        let Some(mut l) = self.lock() else {
            return false;
        };
        (0..l.hot.len()).any(|at| {
            let index = l.hot.get(at).copied();
            index
                .and_then(|i| l.entry(i))
                .is_some_and(|e| e.is_unsure())
        })
    }
}
