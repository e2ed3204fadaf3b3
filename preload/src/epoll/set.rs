//! An epoll set of the program: its registrations of TCP sockets and of other sets. Registrations of
//! any other descriptor are the kernel's alone and not known here.
//!
//! A socket's registration is the program's own in the kernel until the socket is attached; then it is
//! replaced by ours ("managed"): edge-triggered, for bells and the end, with a tag for data. Managed
//! entries that saw traffic lately are *hot*, looked at in user space; the others are armed and cost
//! nothing until the peer rings.
//!
//! Locks: the registry lock before a set's lock; nothing that takes the registry lock under a set's.

use super::board::Boards;
use super::entry::{EXCLUSIVE, Entry, Heed};
use super::trial::Trial;
use crate::sockets::lock::{self, SpinLock};
use crate::sockets::order::Rank;
use crate::sockets::spin::{Budget, Company};
use std::cell::UnsafeCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use transport::provider::Provider as _;
use transport::sys::{Errno, Result};

/// A socket's place in a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Membership {
    pub(crate) set: &'static Set,
    pub(crate) index: usize,
}

/// What marks our own `data` in the kernel: the highest 27 bits. A program's data that looks the same is
/// given a tag of its own. The next 12 say which entry it was of those that have had the number: what a thread has taken from the
/// kernel may be of one that was closed since, and another that has its number by now is not to hear of it.
pub(crate) const TAG: u64 = (0x5c1f_a3e9 << 32) & TAG_MASK;
pub(crate) const TAG_MASK: u64 = !0 << (TURN_SHIFT + 12);
const TURN_SHIFT: u32 = 25;
const TURN_MASK: u64 = 0xfff;
/// Beside the number of an entry: it is the event of its ring that tells, which may outlive the entry.
pub(crate) const RING: u64 = 1 << 24;

/// The `data` of an entry of ours.
pub(super) const fn tag(index: usize, turn: u16) -> u64 {
    TAG | (turn as u64 & TURN_MASK) << TURN_SHIFT | index as u64
}

/// The number of the entry that such data are of.
#[allow(clippy::cast_possible_truncation)]
pub(super) const fn index_of_tag(data: u64) -> usize {
    (data & (RING - 1)) as usize
}

/// Whether it is this entry, and not an earlier one.
pub(super) const fn is_of(e: &Entry, data: u64) -> bool {
    data & RING != 0 || (data >> TURN_SHIFT) & TURN_MASK == e.turn as u64 & TURN_MASK
}

/// The index of the event by which other processes are heard (`rouse`): no set has as many entries.
pub(crate) const OTHERS: usize = 0xff_ffff;
/// Likewise of what wakes a sleeper ([`Set::wake`]).
pub(super) const WAKING: usize = OTHERS - 1;
/// Likewise of a registration that is being made, until it is known what the kernel is asked for it: what it tells until then it tells
/// again.
pub(super) const COMING: usize = OTHERS - 2;

#[derive(Debug, Default)]
pub(crate) struct Inner {
    /// Registrations whose descriptor was closed while another stands for the socket: the kernel's is
    /// still the program's own and cannot be changed.
    pub(crate) orphans: usize,
    pub(super) entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    /// (Of half words: there are as many as there are connections.)
    pub(super) by_fd: BTreeMap<i32, u32>,
    pub(crate) hot: Vec<usize>,
    pub(crate) calls: u32,
    /// Among the hot ones, as of the last look, are some of which the kernel tells: to ask it once is cheaper than to ask it about each.
    pub(super) by_kernel: bool,
    /// Where those are heard of that are posted.
    pub(super) boards: Boards,
    /// Sleeps by a ticket in a row that ended by themselves.
    pub(super) quiet: u32,
    /// How patient it is with the hot ones, where they are many.
    pub(super) trial: Trial,
    /// Where among the hot ones the next call begins, if the program's array is smaller.
    pub(crate) next: usize,
    /// Those that ask at their first use, which a wait is ([`super::callers`]).
    pub(super) callers: VecDeque<usize>,
    /// The only entry so far that is ours: its peer need not say when it puts.
    alone: Option<usize>,
    /// The number of the last ticket; 0: none was drawn in this process.
    pub(super) tickets: u64,
    /// That of the last entry, of all that there have been.
    turn: u16,
    /// How often an entry that is ours was modified.
    pub(super) changes: u64,
}

/// An epoll set.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Set {
    pub(super) lock: SpinLock,
    inner: UnsafeCell<Inner>,
    pub(crate) fd: AtomicI32,
    pub(super) refs: AtomicU32,
    /// Entries that have to be looked at in user space: announced or attached sockets, other sets.
    pub(super) engaged: AtomicU32,
    /// Some of its sockets may be to ask at their first use ([`super::callers`]).
    pub(super) callers: AtomicBool,
    /// Threads asleep in the kernel on this set.
    pub(crate) waiters: AtomicU32,
    /// The ticket by which one of them sleeps ([`super::ticket`]), or 0.
    pub(super) ticket: AtomicU64,
    /// Others have looked at it from around, by a poll or another set.
    pub(super) around: AtomicBool,
    /// Sleeps without tickets still to come, since several threads have asked for its events at once.
    pub(super) crowded: AtomicU32,
    /// Longest busy look before a sleep, as learnt (µs).
    pub(crate) budget: Budget,
    pub(crate) company: Company,
    /// Something that is not known here is registered with the kernel, which tells of it once only: nobody but the program's own
    /// wait may ask for it.
    pub(crate) edgy: AtomicBool,
    /// Threads that are about to register something, which is not known here yet.
    pub(super) adding: AtomicU32,
    /// Other processes are heard.
    pub(super) hears: AtomicBool,
    /// Made before this process was forked: its kernel half is the parent's too.
    pub(super) inherited: AtomicBool,
    /// Another process may have it: since a fork, or passed on.
    is_others_too: AtomicBool,
    /// Passed to another process, which asks the kernel alone: nothing in here can be ours.
    pub(super) passed_on: AtomicBool,
}

// SAFETY: the inner part is reached under the lock.
unsafe impl Sync for Set {}

impl Set {
    /// A set for a new epoll descriptor. Never freed, like everything the table points to.
    pub(crate) fn create(fd: i32) -> &'static Self {
        Box::leak(Box::new(Self {
            lock: SpinLock::new(Rank::Set),
            inner: UnsafeCell::new(Inner::default()),
            fd: AtomicI32::new(fd),
            refs: AtomicU32::new(1),
            engaged: AtomicU32::new(0),
            callers: AtomicBool::new(false),
            waiters: AtomicU32::new(0),
            ticket: AtomicU64::new(0),
            around: AtomicBool::new(false),
            crowded: AtomicU32::new(0),
            budget: Budget::new(),
            company: Company::new(),
            edgy: AtomicBool::new(false),
            adding: AtomicU32::new(0),
            hears: AtomicBool::new(false),
            inherited: AtomicBool::new(false),
            is_others_too: AtomicBool::new(false),
            passed_on: AtomicBool::new(false),
        }))
    }

    /// In a child after fork, where no other thread exists.
    pub(crate) fn reset(&self) {
        self.lock.reset();
        self.adding.store(0, Ordering::Relaxed);
        self.waiters.store(0, Ordering::Relaxed);
        self.ticket.store(0, Ordering::Relaxed);
        self.crowded.store(0, Ordering::Relaxed);
        // SAFETY: no other thread exists, and none held the lock.
        let inner = unsafe { &mut *self.inner.get() };
        inner.tickets = 0;
        inner.forget_boards();
        self.inherited.store(self.is_engaged(), Ordering::Relaxed);
    }

    /// Its last descriptor is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.refs.load(Ordering::Acquire) == 0
    }

    pub(crate) fn share(&self) {
        self.refs.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes the set's lock; `None` in a handler that interrupted a holder.
    pub(crate) fn lock(&'static self) -> Option<Locked> {
        self.lock.try_acquire().ok()?;
        Some(Locked { of: self })
    }

    /// Whether this thread, which is counted, is the only one that sleeps on it, by whatever way.
    pub(crate) fn has_one_sleeper(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) == 1 && !self.around.load(Ordering::SeqCst)
    }

    /// From now on an entry has to be looked at in user space, and calls on the set are ours. Whether it is the first of them.
    pub(super) fn engage(&self, e: &mut Entry) -> bool {
        if e.is_counted() {
            return false;
        }
        e.heed = Heed::Bell;
        self.engaged.fetch_add(1, Ordering::SeqCst) == 0
    }

    /// It has not any more, or has left the set.
    pub(super) fn disengage(&self, e: &mut Entry) {
        if std::mem::replace(&mut e.heed, Heed::None) != Heed::None {
            self.engaged.fetch_sub(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn is_engaged(&self) -> bool {
        self.engaged.load(Ordering::SeqCst) > 0
    }

    /// From before the program's registration is made until it is known here.
    pub(super) fn adding(&self) -> Adding<'_> {
        self.adding.fetch_add(1, Ordering::SeqCst);
        Adding(self)
    }

    /// Registers an entry that the kernel tells of, but not to the program: what the program asked for, with our tag.
    /// False if it cannot be changed.
    pub(super) fn ask_beside_us(&self, e: &Entry, index: usize) -> bool {
        self.change(e, e.events_beside(), tag(index, e.turn))
    }

    /// Changes what the kernel is asked for an entry. False if it cannot be.
    pub(super) fn change(&self, e: &Entry, events: u32, data: u64) -> bool {
        if !e.is_in_reach() {
            return false; // (it would be another's that is changed)
        }
        if e.events & EXCLUSIVE == 0 {
            return self.kernel(libc::EPOLL_CTL_MOD, e.fd, events, data);
        }
        // (the kernel does not modify exclusive registrations)
        self.kernel(libc::EPOLL_CTL_DEL, e.fd, 0, 0)
            && self.kernel(libc::EPOLL_CTL_ADD, e.fd, events, data)
    }

    /// Whether nobody but the calling thread can wait on this set.
    pub(super) fn is_ours_alone(&self) -> bool {
        lock::is_single_threaded() && !self.is_others_too.load(Ordering::Relaxed)
    }

    /// Another process may have it from now on.
    pub(crate) fn note_others(&self) {
        self.is_others_too.store(true, Ordering::Relaxed);
    }

    /// Changes the kernel's registration. False if it refuses.
    pub(crate) fn kernel(&self, op: i32, fd: i32, events: u32, data: u64) -> bool {
        self.kernel_says(op, fd, events, data).is_ok()
    }

    /// As [`Self::kernel`], with its answer.
    pub(super) fn kernel_says(&self, op: i32, fd: i32, events: u32, data: u64) -> Result<usize> {
        let mut ev = libc::epoll_event { events, u64: data };
        let ep = self.fd.load(Ordering::Relaxed);
        // SAFETY: `ev` is valid; the descriptors are the program's.
        unsafe { transport::syscall!(epoll_ctl, ep, op, fd, &raw mut ev) }
    }

    /// Has the kernel watch a descriptor too. False if it does not.
    pub(crate) fn kernel_has(&self, fd: i32, events: u32, data: u64) -> bool {
        let added = self.kernel_says(libc::EPOLL_CTL_ADD, fd, events, data);
        matches!(added, Ok(_) | Err(Errno(libc::EEXIST)))
    }
}

/// See [`Set::adding`].
pub(super) struct Adding<'a>(&'a Set);

impl Drop for Adding<'_> {
    fn drop(&mut self) {
        self.0.adding.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A locked set.
pub(crate) struct Locked {
    of: &'static Set,
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.of.lock.release();
    }
}

impl Deref for Locked {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        // SAFETY: the lock is held.
        unsafe { &*self.of.inner.get() }
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Inner {
        // SAFETY: the lock is held.
        unsafe { &mut *self.of.inner.get() }
    }
}

impl Inner {
    pub(crate) fn entry(&mut self, index: usize) -> Option<&mut Entry> {
        self.entries.get_mut(index)?.as_mut()
    }

    /// The `data` of an entry.
    pub(super) fn tag(&mut self, index: usize) -> u64 {
        tag(index, self.entry(index).map_or(0, |e| e.turn))
    }

    /// The orphan with these data, if there is one.
    pub(crate) fn orphan(&mut self, data: u64) -> Option<usize> {
        if self.orphans == 0 {
            return None;
        }
        self.entries
            .iter()
            .position(|e| e.as_ref().is_some_and(|e| e.orphan && e.data == data))
    }

    /// A number for one more call on the set, never 0.
    pub(crate) fn next_call(&mut self) -> u32 {
        self.calls = self.calls.wrapping_add(1);
        if self.calls == 0 {
            // What was noted 4 billion calls ago must not be taken for this call's.
            for e in self.entries.iter_mut().flatten() {
                (e.reported_in, e.managed_in) = (0, 0);
            }
            self.calls = 1;
        }
        self.calls
    }

    pub(crate) fn index_of(&self, fd: i32) -> Option<usize> {
        self.by_fd.get(&fd).map(|&index| index as usize)
    }

    pub(crate) fn insert(&mut self, mut e: Entry) -> usize {
        let fd = e.fd;
        self.turn = self.turn.wrapping_add(1);
        e.turn = self.turn;
        let index = if let Some(i) = self.free.pop() {
            if let Some(slot) = self.entries.get_mut(i) {
                *slot = Some(e);
            }
            i
        } else {
            self.entries.push(Some(e));
            self.entries.len() - 1
        };
        #[allow(clippy::cast_possible_truncation)] // there are no more than descriptors
        self.by_fd.insert(fd, index as u32);
        index
    }

    pub(crate) fn remove(&mut self, index: usize) -> Option<Entry> {
        let e = self.entries.get_mut(index)?.take()?;
        if self.index_of(e.fd) == Some(index) {
            self.by_fd.remove(&e.fd);
        }
        self.hot.retain(|&i| i != index);
        self.callers.retain(|&i| i != index);
        self.boards.leave(index);
        self.free.push(index);
        self.orphans -= usize::from(e.orphan);
        Some(e)
    }

    /// Whether there are entries that only their bells tell of.
    pub(crate) fn has_cold(&self) -> bool {
        self.hot.len() < self.by_fd.len()
    }

    /// An entry has become ours. With several in a set what came first has to be known.
    pub(super) fn order(&mut self, index: usize) {
        if self.by_fd.len() == 1 {
            self.alone = Some(index);
            return;
        }
        for i in [self.alone.take(), Some(index)].into_iter().flatten() {
            if let Some(p) = self.entry(i).and_then(|e| e.socket()?.segment()) {
                p.ask_times();
            }
        }
    }

    /// Has the next look include an entry, unless it is the kernel's alone.
    pub(crate) fn heat(&mut self, index: usize) {
        if let Some(e) = self.entry(index)
            && e.is_counted()
            && !std::mem::replace(&mut e.heed, Heed::Asked).is_hot()
        {
            self.hot.push(index);
        }
    }
}
