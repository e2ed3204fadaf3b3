//! What each thread is counted for while it waits: as a user of a socket that may be closed meanwhile,
//! as asleep on a connection or a set. A thread may leave a wait without coming back through it (it is
//! cancelled, or jumps out of a handler), so the counts are kept beside it, in a log of its own, and
//! taken back then: at the jump, at its next wait, or when the thread ends.
//!
//! A frame of the stack that is gone is known by its address: the stack grows down, so whoever waits now
//! at a higher or the same address has left it. On the alternate stack of a handler addresses say
//! nothing about the other.
//!
//! Called by everything that waits. The log is touched inside a critical section only.

use super::Socket;
use super::{close, lock};
use crate::epoll::set::Set;
use crate::signals::thread::{Thread, enter, here, leave};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use transport::syscall;

/// What a thread is counted for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// Inside a call on the socket: `waiters`.
    Inside(&'static Socket),
    /// Asleep in the kernel on its connection: `sleepers`.
    Asleep(&'static Socket),
    /// Asleep where `rouse` wakes: `roomers`.
    ForRoom(&'static Socket),
    /// Inside a send whose buffer is advertised: then the advert is its own.
    Advertised(&'static Socket),
    /// Asleep on an epoll set: its `waiters`.
    InSet(&'static Set),
}

impl What {
    fn count(self) {
        match self {
            Self::Inside(s) => _ = s.waiters.fetch_add(1, Ordering::SeqCst),
            Self::Asleep(s) => s.falls_asleep(),
            Self::ForRoom(s) => s.begins_to_room(),
            Self::Advertised(_) => {}
            Self::InSet(set) => _ = set.waiters.fetch_add(1, Ordering::SeqCst),
        }
    }

    fn uncount(self) {
        match self {
            Self::Inside(s) => close::leave(s),
            Self::Asleep(s) => s.wakes_up(),
            Self::ForRoom(s) => s.ends_to_room(),
            Self::Advertised(s) => super::large::abandon(s),
            Self::InSet(set) => _ = set.waiters.fetch_sub(1, Ordering::SeqCst),
        }
    }

    /// Of a socket that may be closed while somebody sleeps on it, which it.
    fn generation(self) -> u32 {
        match self {
            Self::Inside(s) | Self::Asleep(s) | Self::ForRoom(s) | Self::Advertised(s) => {
                s.generation.load(Ordering::Acquire)
            }
            Self::InSet(_) => 0,
        }
    }
}

#[derive(Debug)]
struct Entry {
    what: What,
    generation: u32,
    /// The stack pointer of the call that waits.
    at: usize,
}

impl Entry {
    /// Takes the count back.
    fn leave(&self) {
        // (if the socket is another connection's by now, that began with no count)
        if matches!(self.what, What::Inside(_)) || self.what.generation() == self.generation {
            self.what.uncount();
        }
    }
}

/// A thread's log.
#[derive(Debug, Default)]
pub(crate) struct Log(Vec<Entry>);

/// Ends the log with its thread.
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Once, at start: keys made that early need no memory of the program's.
pub(crate) fn init() {
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: the destructor lives for ever.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } == 0 {
        KEY.store(key, Ordering::Relaxed);
    }
}

unsafe extern "C" fn thread_ends(log: *mut c_void) {
    let t = here();
    while leave_last_if(t, |_| true) {}
    enter();
    t.log.store(ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: made by `push`, and nobody else's.
    drop(unsafe { Box::from_raw(log.cast::<Log>()) });
    leave();
}

/// In a child after fork, where every count has begun anew: the one thread there may be in a handler
/// that interrupted a wait.
pub(crate) fn in_child() {
    // SAFETY: this thread's own log.
    if let Some(log) = unsafe { here().log.load(Ordering::Relaxed).as_ref() } {
        for e in &log.0 {
            if e.what.generation() == e.generation {
                e.what.count();
            }
        }
    }
}

fn push(t: &Thread, e: Entry) {
    enter();
    let mut log = t.log.load(Ordering::Relaxed);
    if log.is_null() {
        log = Box::into_raw(Box::default());
        t.log.store(log, Ordering::Relaxed);
        // SAFETY: a key of ours; the log is a box, as its destructor expects.
        unsafe { libc::pthread_setspecific(KEY.load(Ordering::Relaxed), log.cast()) };
    }
    e.what.count();
    // SAFETY: this thread's own, inside a critical section.
    unsafe { &mut (*log).0 }.push(e);
    t.counted.fetch_add(1, Ordering::Relaxed);
    leave();
}

/// Takes the last entry off the log, if it is one of those,
/// and takes its count back, in one critical section: a handler put off until its end may jump away. False
/// if it is not.
fn leave_last_if(t: &Thread, which: impl Fn(&Entry) -> bool) -> bool {
    enter();
    // SAFETY: null or this thread's own, inside a critical section.
    let log = unsafe { t.log.load(Ordering::Relaxed).as_mut() };
    let e = log.and_then(|log| log.0.pop_if(|e| which(e)));
    if let Some(e) = &e {
        t.counted.fetch_sub(1, Ordering::Relaxed);
        e.leave();
    }
    leave();
    e.is_some()
}

/// Whether this thread is on, or `at` is in, the alternate stack of its handlers.
fn is_alternate(at: Option<usize>) -> bool {
    // SAFETY: all-zero is a valid stack_t.
    let mut stack: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is valid; nothing is changed.
    if unsafe { syscall!(sigaltstack, 0, &raw mut stack) }.is_err() {
        return false;
    }
    match at {
        None => stack.ss_flags & libc::SS_ONSTACK != 0,
        Some(at) => {
            stack.ss_flags & libc::SS_DISABLE == 0
                && at.wrapping_sub(stack.ss_sp.addr()) < stack.ss_size
        }
    }
}

/// Leaves the frames that are no more, all of them up to this address.
#[cold]
fn leave_gone(t: &Thread, at: usize) {
    while leave_last_if(t, |e| e.at <= at) {}
}

/// This thread jumps to where the stack ends at `to`.
#[cfg(target_arch = "x86_64")]
pub(crate) fn jumps(to: usize) {
    if !is_alternate(Some(to)) {
        // What it jumps to is a frame that lives.
        leave_gone(here(), to - 1);
    }
}

/// How often this thread itself is counted as asleep where `rouse` wakes: it is in a handler that came in its sleep.
pub(crate) fn own_rooms(s: &Socket) -> u32 {
    let t = here();
    if t.counted.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    enter();
    // SAFETY: null or this thread's own, inside a critical section.
    let own = unsafe { t.log.load(Ordering::Relaxed).as_ref() }.map_or(0, |log| {
        let is_own = |e: &&Entry| matches!(e.what, What::ForRoom(of) if ptr::eq(of, s));
        log.0.iter().filter(is_own).count()
    });
    leave();
    u32::try_from(own).unwrap_or(u32::MAX)
}

/// This thread ends a call on, or closes, something: what it left without a word is over.
pub(crate) fn settle() {
    let t = here();
    if t.counted.load(Ordering::Relaxed) != 0 {
        let at = frame();
        if !is_alternate(None) {
            leave_gone(t, at);
        }
    }
}

/// Where the stack is, in a function of its own so that equal calls see equal addresses.
#[inline(never)]
fn frame() -> usize {
    let here = 0u8;
    std::hint::black_box(&raw const here).addr()
}

/// Whether a call for so many bytes is to be counted before it begins: its copy takes so long that another thread may well
/// close the descriptor under it, and as in the kernel the call goes on. (Counting costs as much as a small copy.)
#[inline]
pub(super) fn takes_long(len: usize) -> bool {
    len >= LONG && !lock::is_single_threaded()
}

/// A copy of so many bytes takes a few microseconds.
const LONG: usize = 65_536;

/// What one call is counted for; all of it is taken back with this.
#[derive(Debug)]
pub(crate) struct Counting {
    len: u32,
    at: usize,
}

impl Counting {
    /// At the beginning of a call that may wait. Always the outermost of its hook.
    #[inline(never)]
    pub(crate) fn begin() -> Self {
        let t = here();
        let at = frame();
        if t.counted.load(Ordering::Relaxed) != 0 && !is_alternate(None) {
            leave_gone(t, at);
        }
        Self {
            len: t.counted.load(Ordering::Relaxed),
            at,
        }
    }

    /// For a part of such a call.
    pub(crate) fn more() -> Self {
        let t = here();
        enter();
        // SAFETY: null or this thread's own, inside a critical section.
        let log = unsafe { t.log.load(Ordering::Relaxed).as_ref() };
        let at = log.and_then(|log| log.0.last()).map_or(0, |e| e.at);
        leave();
        Self {
            len: t.counted.load(Ordering::Relaxed),
            at,
        }
    }

    pub(crate) fn add(&self, what: What) {
        let generation = what.generation();
        let at = self.at;
        push(
            here(),
            Entry {
                what,
                generation,
                at,
            },
        );
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let t = here();
        while t.counted.load(Ordering::Relaxed) > self.len && leave_last_if(t, |_| true) {}
    }
}
