//! An epoll set of the program: its registrations of TCP sockets and of other sets. Registrations of
//! any other descriptor are the kernel's alone and not known here.
//!
//! A socket's registration is the program's own in the kernel until the socket is attached; then it is
//! replaced by ours ("managed"): edge-triggered, for bells and the end, with a tag for data. Managed
//! entries that saw traffic lately are *hot*, looked at in user space; the others are armed and cost
//! nothing until the peer rings.
//!
//! Locks: the registry lock before a set's lock; nothing that takes the registry lock under a set's.

use super::entry::{EXCLUSIVE, Entry, ONESHOT, Subject};
use crate::real;
use crate::sockets::demote::{Unread, demote};
use crate::sockets::lock::SpinLock;
use crate::sockets::spin::{Budget, Company};
use crate::sockets::{Phase, Socket, residual, rouse};
use crate::world::World;
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use transport::provider::Provider as _;
use transport::reason::Reason;
use transport::sys::fd::{Fd, as_fd};

/// A socket's place in a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Membership {
    pub(crate) set: &'static Set,
    pub(crate) index: usize,
}

/// What marks our own `data` in the kernel: the high half. A program's data that looks the same is
/// given a tag of its own.
pub(crate) const TAG: u64 = 0x5c1f_a3e9 << 32;
pub(crate) const TAG_MASK: u64 = 0xffff_ffff << 32;

/// The index of the event by which other processes are heard (`rouse`).
pub(crate) const OTHERS: usize = 0xffff_ffff;

/// The bits of a registration that are not events.
const ET_ONESHOT_WAKEUP: u32 = 0xf000_0000;

#[derive(Debug, Default)]
pub(crate) struct Inner {
    /// Registrations whose descriptor was closed while another stands for the socket: the kernel's is
    /// still the program's own and cannot be changed.
    pub(crate) orphans: usize,
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    /// (Of half words: there are as many as there are connections.)
    by_fd: BTreeMap<i32, u32>,
    pub(crate) hot: Vec<usize>,
    pub(crate) calls: u32,
    /// Where among the hot ones the next call begins, if the program's array is smaller.
    pub(crate) next: usize,
    /// The only entry so far that is ours: its peer need not say when it puts.
    alone: Option<usize>,
}

/// An epoll set.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Set {
    lock: SpinLock,
    inner: UnsafeCell<Inner>,
    pub(crate) fd: AtomicI32,
    refs: AtomicU32,
    /// Entries that have to be looked at in user space: announced or attached sockets, other sets.
    pub(crate) engaged: AtomicU32,
    /// Threads asleep in the kernel on this set.
    pub(crate) waiters: AtomicU32,
    /// Longest busy look before a sleep, as learnt (µs).
    pub(crate) budget: Budget,
    pub(crate) company: Company,
    /// Something is registered with the kernel that it tells of once only: nobody but the program's own
    /// wait may ask for it.
    pub(crate) edgy: AtomicBool,
    /// Other processes are heard.
    hears: AtomicBool,
    /// Made before this process was forked: its kernel half is the parent's too.
    inherited: AtomicBool,
}

// SAFETY: the inner part is reached under the lock.
unsafe impl Sync for Set {}

impl Set {
    /// A set for a new epoll descriptor. Never freed, like everything the table points to.
    pub(crate) fn create(fd: i32) -> &'static Self {
        Box::leak(Box::new(Self {
            lock: SpinLock::new(),
            inner: UnsafeCell::new(Inner::default()),
            fd: AtomicI32::new(fd),
            refs: AtomicU32::new(1),
            engaged: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            budget: Budget::new(),
            company: Company::new(),
            edgy: AtomicBool::new(false),
            hears: AtomicBool::new(false),
            inherited: AtomicBool::new(false),
        }))
    }

    /// In a child after fork, where no other thread exists.
    pub(crate) fn reset(&self) {
        self.lock.reset();
        self.waiters.store(0, Ordering::Relaxed);
        self.inherited.store(self.is_engaged(), Ordering::Relaxed);
    }

    /// From now on other processes that hold sockets of this set are heard. Under the registry lock.
    pub(crate) fn hear_others(&'static self) {
        if let Some(event) = rouse::for_sets()
            && self.lock.try_acquire().is_ok_and(|()| {
                let l = Locked { of: self };
                !l.by_fd.is_empty()
            })
            && !self.hears.swap(true, Ordering::AcqRel)
        {
            let events = libc::EPOLLIN.cast_unsigned() | super::entry::ET;
            self.kernel(libc::EPOLL_CTL_ADD, event, events, TAG | OTHERS as u64);
        }
    }

    /// Attached sockets in here that other processes hold too.
    pub(crate) fn shared_sockets(&'static self) -> Vec<(&'static Socket, i32)> {
        let Some(l) = self.lock() else {
            return Vec::new();
        };
        let entries = l.entries.iter().flatten();
        entries
            .filter(|e| e.managed || e.hot)
            .filter_map(|e| Some((e.socket().filter(|s| s.is_shared())?, e.fd)))
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

    #[cold]
    fn leave_to_kernel(&'static self) {
        self.inherited.store(false, Ordering::Relaxed);
        for (s, fd) in self.shared_sockets() {
            if s.has_others() {
                demote(s, fd, Reason::Forked, Unread::Keep);
            }
        }
    }

    pub(crate) fn share(&self) {
        self.refs.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes the set's lock; `None` in a handler that interrupted a holder.
    pub(crate) fn lock(&'static self) -> Option<Locked> {
        self.lock.try_acquire().ok()?;
        Some(Locked { of: self })
    }

    pub(crate) fn is_engaged(&self) -> bool {
        self.engaged.load(Ordering::Acquire) > 0
    }

    /// Whether something in this set is ready (asked by a set or poll around it). Takes no lock but
    /// this set's.
    pub(crate) fn has_ready(&'static self) -> bool {
        if self.has_ready_user() {
            return true;
        }
        let fd = self.fd.load(Ordering::Relaxed);
        if transport::sys::net::ready_now(fd, libc::POLLIN) == 0 {
            return false;
        }
        // The kernel's word may stem from a bell alone. What it tells of level-triggered registrations
        // it tells again; with others in the set its word has to do: too much at times, never too little.
        if !self.is_engaged() || self.edgy.load(Ordering::Relaxed) {
            return true;
        }
        self.harvest(fd) || self.has_ready_user()
    }

    fn has_ready_user(&'static self) -> bool {
        let Some(mut l) = self.lock() else {
            return false;
        };
        for at in 0..l.hot.len() {
            if let Some(&i) = l.hot.get(at)
                && l.entry(i).is_some_and(Entry::is_ready)
            {
                return true;
            }
        }
        false
    }

    /// Takes our own events off the kernel's list. True if there are others.
    fn harvest(&'static self, ep: i32) -> bool {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        // SAFETY: room for as many events; no mask.
        let n = unsafe {
            transport::syscall!(epoll_pwait, ep, events.as_mut_ptr(), events.len(), 0, 0, 8)
        };
        let Some(mut l) = self.lock() else {
            return true;
        };
        let mut others = false;
        for ev in events.iter().take(n.unwrap_or(0)) {
            let (bits, data) = (ev.events, ev.u64);
            if data & TAG_MASK != TAG {
                others = true;
                continue;
            }
            #[allow(clippy::cast_possible_truncation)]
            let index = (data & !TAG_MASK) as usize;
            if let Some(e) = l.entry(index) {
                e.stir();
                others |= matches!(e.subject, Subject::Other);
                if let Some(s) = e.socket() {
                    s.note_kernel(bits);
                }
            }
            l.heat(index);
        }
        others
    }

    /// Arms every hot entry: somebody is about to sleep on a set or poll around this one. True if a
    /// barrier is due.
    pub(crate) fn wish_all(&'static self) -> bool {
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

    /// Whether a ONESHOT registration that is still the program's own has fired: the kernel then shows
    /// it without events (`/proc/self/fdinfo`).
    fn has_fired(&self, fd: i32) -> bool {
        let path = format!("/proc/self/fdinfo/{}\0", self.fd.load(Ordering::Relaxed));
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: the path ends in NUL.
        let opened = unsafe { transport::syscall!(openat, libc::AT_FDCWD, path.as_ptr(), flags) };
        let Ok(info) = opened.map(|r| Fd::own(as_fd(r))) else {
            return false;
        };
        let mut buf = vec![0u8; 64 * 1024];
        // SAFETY: writable for its length.
        let n = unsafe { transport::syscall!(read, info.raw(), buf.as_mut_ptr(), buf.len()) };
        let text = String::from_utf8_lossy(buf.get(..n.unwrap_or(0)).unwrap_or(&[])).into_owned();
        let mine = |line: &&str| {
            let mut words = line.split_whitespace();
            words.next() == Some("tfd:") && words.next() == Some(fd.to_string().as_str())
        };
        let events = text.lines().find(mine).and_then(|line| {
            let (_, rest) = line.split_once("events:")?;
            u32::from_str_radix(rest.split_whitespace().next()?, 16).ok()
        });
        events.is_some_and(|e| e & !(ET_ONESHOT_WAKEUP) == 0)
    }

    /// Registers a plain socket's entry that we look at too: what the program asked for, with our tag.
    fn ask_beside_us(&self, e: &Entry, index: usize) {
        let events = e.program_events() & !ONESHOT;
        self.kernel(libc::EPOLL_CTL_MOD, e.fd, events, TAG | index as u64);
    }

    /// Makes a thread that sleeps in the kernel on this set look at an entry.
    fn kick(&self, e: &Entry, index: usize) {
        if e.managed && e.socket().is_some_and(|s| s.phase() == Phase::Plain) {
            return self.ask_beside_us(e, index);
        }
        if self.waiters.load(Ordering::Acquire) > 0 && e.managed {
            self.rouse(e, index);
        }
    }

    fn rouse(&self, e: &Entry, index: usize) {
        // Asking for writability, which the kernel always grants an idle connection, is an event.
        let events = Entry::kernel_events() | libc::EPOLLOUT.cast_unsigned();
        self.kernel(libc::EPOLL_CTL_MOD, e.fd, events, TAG | index as u64);
    }

    /// Changes the kernel's registration.
    pub(crate) fn kernel(&self, op: i32, fd: i32, events: u32, data: u64) -> bool {
        let mut ev = libc::epoll_event { events, u64: data };
        let ep = self.fd.load(Ordering::Relaxed);
        // SAFETY: `ev` is valid; the descriptors are the program's.
        unsafe { transport::syscall!(epoll_ctl, ep, op, fd, &raw mut ev) }.is_ok()
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

    pub(crate) fn insert(&mut self, e: Entry) -> usize {
        let fd = e.fd;
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
        self.free.push(index);
        self.orphans -= usize::from(e.orphan);
        Some(e)
    }

    /// Whether there are entries that only their bells tell of.
    pub(crate) fn has_cold(&self) -> bool {
        self.hot.len() < self.by_fd.len()
    }

    /// An entry has become ours. With several in a set what came first has to be known.
    fn order(&mut self, index: usize) {
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

    pub(crate) fn heat(&mut self, index: usize) {
        if let Some(e) = self.entry(index)
            && !e.hot
        {
            e.hot = true;
            self.hot.push(index);
        }
    }
}

/// A socket has been offered: sets that hold it watch for the answer.
pub(crate) fn announced(_w: &mut World, s: &'static Socket) {
    // SAFETY: under the registry lock.
    for m in unsafe { &*s.sets.get() } {
        if let Some(mut l) = m.set.lock() {
            m.set.engaged.fetch_add(1, Ordering::AcqRel);
            l.heat(m.index);
        }
    }
}

/// A socket is attached: its registrations become ours.
pub(crate) fn attached(_w: &mut World, s: &'static Socket) {
    // SAFETY: under the registry lock.
    for m in unsafe { &*s.sets.get() } {
        manage(m);
    }
}

/// Makes one registration ours.
pub(crate) fn manage(m: &Membership) {
    let Some(mut l) = m.set.lock() else { return };
    let call = l.calls;
    let Some(e) = l.entry(m.index) else { return };
    if e.managed {
        return;
    }
    e.managed_in = call;
    if e.events & ONESHOT != 0 && m.set.has_fired(e.fd) {
        e.disable();
    }
    let (fd, exclusive) = (e.fd, e.events & EXCLUSIVE != 0);
    e.managed = true;
    let counted = e.hot;
    let (events, tag) = (Entry::kernel_events(), TAG | m.index as u64);
    let changed = if exclusive {
        // The kernel does not modify exclusive registrations.
        m.set.kernel(libc::EPOLL_CTL_DEL, fd, 0, 0)
            && m.set.kernel(libc::EPOLL_CTL_ADD, fd, events, tag)
    } else {
        m.set.kernel(libc::EPOLL_CTL_MOD, fd, events, tag)
    };
    if !changed {
        l.orphans += 1;
        if let Some(e) = l.entry(m.index) {
            e.orphan = true;
        }
    }
    // Who waits on a set that had nothing of ours is not counted among its waiters.
    l.order(m.index);
    let first = !counted && m.set.engaged.fetch_add(1, Ordering::AcqRel) == 0;
    l.heat(m.index);
    if let Some(e) = l.entry(m.index) {
        if first {
            m.set.rouse(e, m.index);
        } else {
            m.set.kick(e, m.index);
        }
    }
}

/// A socket is on kernel TCP for good: its registrations are the program's own again.
pub(crate) fn detached(_w: &mut World, s: &'static Socket, _fd: i32) {
    // SAFETY: under the registry lock.
    for m in unsafe { &*s.sets.get() } {
        let Some(mut l) = m.set.lock() else { continue };
        let Some(e) = l.entry(m.index) else { continue };
        if e.managed && !e.parked && e.events & EXCLUSIVE == 0 && residual::left(s) > 0 {
            // The kernel does not know of bytes that are kept here: until they are read the entry is
            // looked at by us, and the kernel asked for what the program asked for.
            e.fresh = true;
            m.set.ask_beside_us(e, m.index);
            l.heat(m.index);
            continue;
        }
        let was_hot = std::mem::take(&mut e.hot);
        let engaged = was_hot || e.managed;
        if std::mem::take(&mut e.managed) {
            let (fd, events, data) = (e.fd, e.program_events(), e.data);
            if e.parked {
                m.set.kernel(libc::EPOLL_CTL_DEL, fd, 0, 0);
            } else if events & EXCLUSIVE != 0 {
                m.set.kernel(libc::EPOLL_CTL_DEL, fd, 0, 0);
                m.set.kernel(libc::EPOLL_CTL_ADD, fd, events, data);
            } else {
                m.set.kernel(libc::EPOLL_CTL_MOD, fd, events, data);
            }
        }
        l.hot.retain(|&i| i != m.index);
        if engaged {
            m.set.engaged.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// The last descriptor of a socket is gone: the kernel drops its registrations, and so do we.
pub(crate) fn closed(_w: &mut World, s: &'static Socket) {
    // SAFETY: under the registry lock.
    let sets = std::mem::take(unsafe { &mut *s.sets.get() });
    s.set_count.store(0, Ordering::Release);
    s.watch_seat();
    for m in sets {
        let Some(mut l) = m.set.lock() else { continue };
        if let Some(e) = l.remove(m.index)
            && (e.managed || e.hot)
        {
            m.set.engaged.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Adds a registration of a socket.
pub(crate) fn add(
    _w: &mut World,
    set: &'static Set,
    s: &'static Socket,
    fd: i32,
    events: u32,
    data: u64,
) {
    let subject = Subject::Socket(s, s.generation.load(Ordering::Acquire));
    let Some(mut l) = set.lock() else { return };
    let index = l.insert(Entry::new(subject, fd, events, data));
    let phase = s.phase();
    let keeps = phase == Phase::Plain && events & EXCLUSIVE == 0; // bytes: see `detached`
    if keeps && let Some(e) = l.entry(index) {
        e.managed = true;
        e.fresh = true;
        set.ask_beside_us(e, index);
    }
    if keeps || phase == Phase::Announced {
        set.engaged.fetch_add(1, Ordering::AcqRel);
        l.heat(index);
    }
    drop(l);
    let m = Membership { set, index };
    // SAFETY: under the registry lock.
    let sets = unsafe { &mut *s.sets.get() };
    if sets.is_empty() {
        sets.reserve_exact(1); // nearly every socket is in one set, and there may be very many
    }
    sets.push(m);
    s.set_count.fetch_add(1, Ordering::AcqRel);
    s.watch_seat();
    if s.is_shared() {
        set.hear_others();
    }
    if phase == Phase::Attached {
        manage(&m);
    }
}

/// Removes a registration of a socket; the kernel's is gone already.
pub(crate) fn remove(_w: &mut World, set: &'static Set, fd: i32) {
    let Some(mut l) = set.lock() else { return };
    let Some(index) = l.index_of(fd) else { return };
    let Some(e) = l.remove(index) else { return };
    drop(l);
    if e.managed || e.hot || matches!(e.subject, Subject::Set(_)) {
        set.engaged.fetch_sub(1, Ordering::AcqRel);
    }
    if let Some(s) = e.socket() {
        // SAFETY: under the registry lock.
        unsafe { &mut *s.sets.get() }.retain(|m| !(std::ptr::eq(m.set, set) && m.index == index));
        s.set_count.fetch_sub(1, Ordering::AcqRel);
        s.watch_seat();
    }
}

/// Deletes a registration that is ours in the kernel without going there. False if it is not.
pub(crate) fn park(set: &'static Set, fd: i32, s: &'static Socket) -> Option<bool> {
    let mut l = set.lock()?;
    let index = l.index_of(fd)?;
    let e = l.entry(index)?;
    let ours = e.managed
        && s.phase() == Phase::Attached
        && e.events & EXCLUSIVE == 0
        && e.socket().is_some_and(|x| std::ptr::eq(x, s));
    if !ours {
        return None;
    }
    Some(!std::mem::replace(&mut e.parked, true))
}

/// Adds again what was parked. `Some(false)`: it is there already.
pub(crate) fn unpark(
    set: &'static Set,
    fd: i32,
    s: &'static Socket,
    events: u32,
    data: u64,
) -> Option<bool> {
    let mut l = set.lock()?;
    let index = l.index_of(fd)?;
    let e = l.entry(index)?;
    let same = e.socket().is_some_and(|x| std::ptr::eq(x, s));
    if e.parked && (events & EXCLUSIVE != 0 || !same) {
        // The kernel's registration is in the way of one that it has to make itself.
        set.kernel(libc::EPOLL_CTL_DEL, fd, 0, 0);
        return None;
    }
    if !e.managed || !same {
        return None;
    }
    if !std::mem::take(&mut e.parked) {
        return Some(false);
    }
    e.modify(events, data);
    modified(set, &mut l, index);
    Some(true)
}

/// A modified entry may be ready already: somebody asleep has to look.
pub(crate) fn modified(set: &'static Set, l: &mut Locked, index: usize) {
    l.heat(index);
    if let Some(e) = l.entry(index) {
        set.kick(e, index);
    }
}

/// Bells of this socket have been taken off by somebody: whoever sleeps on a set that holds it may have
/// been waiting for one of them.
pub(crate) fn kick_others(s: &'static Socket, except: *const Set) {
    rouse::sets_of_others(s);
    if s.set_count.load(Ordering::Acquire) == 0 {
        return;
    }
    let w = crate::world::lock();
    // SAFETY: under the registry lock.
    for m in unsafe { &*s.sets.get() } {
        if !std::ptr::eq(m.set, except)
            && let Some(mut l) = m.set.lock()
        {
            l.heat(m.index);
            if let Some(e) = l.entry(m.index) {
                m.set.kick(e, m.index);
            }
        }
    }
    drop(w);
}

/// A descriptor of the set is closed; with the last one everything in it goes.
pub(crate) fn release(_w: &mut World, set: &'static Set) {
    if set.refs.fetch_sub(1, Ordering::AcqRel) > 1 {
        return;
    }
    let Some(mut l) = set.lock() else { return };
    let inner = std::mem::take(&mut *l);
    drop(l);
    set.engaged.store(0, Ordering::Release);
    for (index, e) in inner.entries.into_iter().enumerate() {
        if let Some(s) = e.as_ref().and_then(Entry::socket) {
            // SAFETY: under the registry lock.
            unsafe { &mut *s.sets.get() }
                .retain(|m| !(std::ptr::eq(m.set, set) && m.index == index));
            s.set_count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Waits in the kernel, through libc where a mask or the time-out allows it.
pub(crate) fn kernel_wait(
    ep: i32,
    events: *mut libc::epoll_event,
    n: i32,
    ns: Option<u64>,
    mask: *const libc::sigset_t,
) -> i32 {
    // SAFETY: the array is the program's, the mask too or null.
    unsafe {
        match ns {
            None => real::epoll_pwait(ep, events, n, -1, mask),
            Some(0) => real::epoll_pwait(ep, events, n, 0, mask),
            Some(ns) if ns % 1_000_000 == 0 && ns / 1_000_000 <= 0x7fff_ffff => {
                #[allow(clippy::cast_possible_truncation)]
                let ms = (ns / 1_000_000) as i32;
                real::epoll_pwait(ep, events, n, ms, mask)
            }
            Some(ns) => {
                let t = libc::timespec {
                    tv_sec: (ns / 1_000_000_000).cast_signed(),
                    tv_nsec: (ns % 1_000_000_000).cast_signed(),
                };
                real::epoll_pwait2(ep, events, n, &raw const t, mask)
            }
        }
    }
}
