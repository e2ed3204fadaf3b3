//! An operator's request to go back to kernel TCP (`shunt demote`), as the process sees it. The command
//! writes the request into the page that `shunt stat` reads, and then the word looked at here; whoever
//! may do that is the kernel's to say (it is what a debugger needs). The streams go back by the one way
//! there is (`demote`), in a thread of the program that is in a call of the library anyway.
//!
//! A thread that sleeps in such a call would not look. The command ends the sleep (as a signal without a
//! handler would), having noted in the page which thread that is: [`knocked`] tells such an end from a
//! signal's, and the call goes on where it was. Nothing is kept ready for that: no descriptor, no
//! thread, no shorter sleep.

use super::demote::{Unread, begin_many, demote_held};
use super::lock::thread;
use super::{Phase, Socket};
use crate::table::{self, Entry};
use crate::{real, world};
use std::sync::atomic::{AtomicPtr, Ordering};
use transport::clock;
use transport::reason::Reason;
use transport::stat::{Attention, Directory};

/// Not 0: there may be a request. Written from outside, by its address.
static ATTENTION: Attention = Attention::new(0);

static DIRECTORY: AtomicPtr<Directory> = AtomicPtr::new(std::ptr::null_mut());

/// A recvfrom of one byte with these flags is a sleep of the library; the kernel ignores the second one
/// there. The command knows the sleep by them.
pub(crate) const SLEEP: i32 = libc::MSG_PEEK | libc::MSG_CMSG_CLOEXEC;

/// Where the command finds [`ATTENTION`].
pub(crate) fn attention() -> u64 {
    (&raw const ATTENTION).expose_provenance() as u64
}

/// The page is there.
pub(crate) fn publish(directory: *mut Directory) {
    DIRECTORY.store(directory, Ordering::Release);
}

fn directory() -> Option<&'static Directory> {
    // SAFETY: null, or the page, which lives for ever; what changes in it are atomics.
    unsafe { DIRECTORY.load(Ordering::Acquire).as_ref() }
}

/// In a child after fork: what was asked was asked of the parent.
pub(crate) fn restart() {
    ATTENTION.store(0, Ordering::Relaxed);
    if let Some(d) = directory() {
        d.forget();
    }
}

/// Carries out a request, if there is one. One load if not. True if something was looked at, so that
/// what the caller knew may be out of date. No lock is held by the caller.
#[inline]
pub(crate) fn attend() -> bool {
    is_wanted() && serve()
}

/// Whether an operator may have asked for something.
#[inline]
pub(super) fn is_wanted() -> bool {
    ATTENTION.load(Ordering::Relaxed) != 0
}

#[cold]
fn serve() -> bool {
    // In a child that borrows this memory: the parent's next call will do.
    if world::is_foreign() {
        return false;
    }
    ATTENTION.store(0, Ordering::SeqCst);
    let Some((d, request)) = directory().and_then(|d| Some((d, d.request()?))) else {
        return false;
    };
    let mut streams: Vec<(&'static Socket, i32)> = Vec::new();
    let (first, last) = match request.fd {
        None => (0, u32::MAX),
        Some(fd) => (fd.cast_unsigned(), fd.cast_unsigned()),
    };
    table::each(first, last, |fd, entry| {
        if let Entry::Socket(s) = entry
            && s.phase() == Phase::Attached
        {
            streams.push((s, fd));
        }
    });
    begin_many();
    let (mut done, mut left) = (0, 0);
    for (s, fd) in streams {
        let mut w = world::lock();
        // It may have been closed since, or be an alias of one that was just here.
        let same = table::socket(fd).is_some_and(|now| std::ptr::eq(now, s));
        if !same || s.phase() != Phase::Attached {
            continue;
        }
        demote_held(&mut w, s, fd, Reason::Operator, Unread::Keep);
        if s.phase() == Phase::Attached {
            left += 1; // a handler that interrupted a call on this very stream
        } else {
            done += 1;
        }
    }
    if left == 0 {
        d.answer(request, done);
    } else {
        ATTENTION.store(1, Ordering::Release);
    }
    true
}

/// Whether the sleep of this thread that has just failed with EINTR was ended by the command, not by a
/// signal. Asked once for each such sleep. Puts `errno` back to what it was before: some programs look at
/// it after a call that succeeded.
#[cold]
pub(crate) fn knocked(before: i32) -> bool {
    let knocked = took_knock();
    if knocked {
        real::set_errno(before);
    }
    knocked
}

fn took_knock() -> bool {
    directory().is_some_and(|d| d.take_knock(thread()))
}

/// A call that is the kernel's alone, made again if its sleep was ended by the command. It is told how
/// much of its time (ns) is left; `None` is without end.
pub(crate) fn patiently(time: Option<u64>, mut call: impl FnMut(Option<u64>) -> i32) -> i32 {
    let deadline = time.map(|ns| match ns {
        0 => 0,
        ns => clock::monotonic_ns().saturating_add(ns),
    });
    let mut left = time;
    let before = real::errno();
    loop {
        let r = call(left);
        if !(r < 0 && real::errno() == libc::EINTR && knocked(before)) {
            return r;
        }
        attend();
        left = deadline.map(|d| d.saturating_sub(clock::monotonic_ns()));
    }
}
