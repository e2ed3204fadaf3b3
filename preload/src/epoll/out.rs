//! The program's array of events, as `wait` fills it, and the order of what stands in it.
//!
//! The kernel tells of connections in the order in which they became ready, and programs rely on it: a
//! client that unsubscribes on one connection and publishes on another has the server hear it in that
//! order. Peers of a set with several connections say when they put; events are put in that order
//! before they are handed over.

use crate::sockets::Socket;
use transport::provider::Provider;

/// Events of one answer that are put in order.
const ORDERED: usize = 32;

/// The program's array and how much of it is filled.
pub(super) struct Out {
    at: *mut libc::epoll_event,
    pub(super) room: usize,
    pub(super) n: usize,
    /// The kernel has been asked during this call.
    pub(super) asked: bool,
    /// It has told of the program's own registrations, and would tell of them again.
    pub(super) told: bool,
    /// Sockets whose events stand at these places.
    ours: [Option<(&'static Socket, usize)>; ORDERED],
    count: usize,
}

impl Out {
    /// # Safety
    /// `at` is writable for `room` entries while this lives.
    pub(super) const unsafe fn new(at: *mut libc::epoll_event, room: usize) -> Self {
        Self {
            at,
            room,
            n: 0,
            asked: false,
            told: false,
            ours: [None; ORDERED],
            count: 0,
        }
    }

    pub(super) const fn is_full(&self) -> bool {
        self.n == self.room
    }

    /// Where the next event will stand.
    pub(super) const fn end(&self) -> *mut libc::epoll_event {
        // SAFETY: at most one past the program's array.
        unsafe { self.at.add(self.n) }
    }

    fn get(&self, i: usize) -> libc::epoll_event {
        // SAFETY: called for places below `n`, which have been written.
        unsafe { self.at.add(i).read_unaligned() }
    }

    fn set(&mut self, i: usize, event: libc::epoll_event) {
        // SAFETY: called for places below `room`, which the program gave.
        unsafe { self.at.add(i).write_unaligned(event) };
    }

    /// Whether an event with these data is among what is to be told.
    pub(super) fn holds(&self, data: u64) -> bool {
        (0..self.n).any(|i| self.get(i).u64 == data)
    }

    pub(super) fn push(&mut self, events: u32, data: u64) {
        if !self.is_full() {
            self.set(self.n, libc::epoll_event { events, u64: data });
            self.n += 1;
        }
    }

    /// An event of a socket that is looked at here.
    pub(super) fn push_ours(&mut self, events: u32, data: u64, s: Option<&'static Socket>) {
        if let Some(s) = s
            && !self.is_full()
            && let Some(slot) = self.ours.get_mut(self.count)
        {
            *slot = Some((s, self.n));
            self.count += 1;
        }
        self.push(events, data);
    }

    /// Puts events in the order in which their peers have put, as far as those say. The others stay
    /// where they are.
    pub(super) fn put_in_order(&mut self) {
        if self.count > 1 {
            self.sort();
        }
    }

    #[inline(never)]
    fn sort(&mut self) {
        let mut list = [(0u64, 0usize); ORDERED];
        let mut n = 0;
        for (s, place) in self.ours.iter().take(self.count).flatten() {
            let at = s.segment().map_or(0, Provider::put_at);
            if at != 0
                && let Some(slot) = list.get_mut(n)
            {
                *slot = (at, *place);
                n += 1;
            }
        }
        let Some(list) = list.get_mut(..n) else {
            return;
        };
        if list.is_sorted() {
            return;
        }
        let mut places = [0usize; ORDERED];
        for (slot, (_, place)) in places.iter_mut().zip(list.iter()) {
            *slot = *place; // ascending, as they were pushed
        }
        list.sort_unstable();
        let none = libc::epoll_event { events: 0, u64: 0 };
        let mut moved = [none; ORDERED];
        for (slot, (_, place)) in moved.iter_mut().zip(list.iter()) {
            *slot = self.get(*place);
        }
        for (event, place) in moved.into_iter().zip(places).take(n) {
            self.set(place, event);
        }
    }
}
