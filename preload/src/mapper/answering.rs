//! The server's side. A listener whose connections may use iWARP gets a mark (`transport::mapping::mark`), by which
//! whoever answers for this host knows it. The first process that has such a listener answers: it takes the UDP
//! port, and a thread of ours sleeps there. Where another process has the port already, nothing more is done; it is
//! tried again when this process listens anew, and at an accept, not more often than [`AGAIN_US`]. So if the process
//! that answers ends, the next that is connected to takes its place.
//!
//! The thread holds no lock while it sleeps.
//!
//! After fork the child has neither thread nor port, but the marks of the listeners that it has inherited.

use super::is_over;
use crate::sockets::lock::Slow;
use crate::world;
use crate::{rules, service};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use transport::mapping::mark::Mark;
use transport::mapping::service::Service;
use transport::rules::Iwarp;
use transport::sys::fd::{self, Fd, as_fd};
use transport::sys::time;
use transport::{clock, syscall};

/// How often (µs) a port that another process has is tried again.
const AGAIN_US: u64 = 1_000_000;
/// Listeners marked at most.
const MARKS: usize = 1024;
/// Naps (of 50 µs) that somebody who is just starting or ending the thread is waited for: it may be this very thread,
/// which a handler has interrupted.
const PATIENCE: u32 = 2000;

#[derive(Debug)]
struct Answering {
    /// The listeners of this process that are marked.
    marks: Vec<Mark>,
    /// The thread, and what it works on.
    thread: Option<Thread>,
}

#[derive(Debug)]
struct Thread {
    service: Service,
    /// Wakes it when it is to end.
    wake: Fd,
    ending: bool,
    /// Once it has begun.
    name: Option<libc::pthread_t>,
}

// SAFETY: a thread's name is a number to everybody but libc.
unsafe impl Send for Thread {}

static ANSWERING: Slow<Answering> = Slow::new(
    crate::sockets::order::Rank::Answering,
    Answering {
        marks: Vec::new(),
        thread: None,
    },
);
/// The signal mask while fork is under way.
static MASK: AtomicU64 = AtomicU64::new(0);

/// When (in ticks) the port is to be tried: there are marks, and no thread of this process. 0 for never.
static DUE: AtomicU64 = AtomicU64::new(0);

/// A socket of the program has begun to listen.
pub(crate) fn listening(fd: i32) {
    if rules::listen_wanted(fd).iwarp == Iwarp::Never || is_over() || world::is_foreign() {
        return;
    }
    let mut a = ANSWERING.lock();
    if a.marks.len() < MARKS
        && let Ok(mark) = Mark::put_up(fd)
    {
        a.marks.push(mark);
    }
    drop(a);
    take_over();
}

/// The program is about to close its last descriptor of a listener.
pub(crate) fn closed(fd: i32) {
    let Ok(inode) = fd::inode(fd) else { return };
    let mut a = ANSWERING.lock();
    if a.marks.iter().any(|m| m.listener() == inode)
        && let Some(thread) = &mut a.thread
    {
        // A server that takes one connection closes its listener at once: who made that one has asked before.
        thread.service.serve();
    }
    a.marks.retain(|m| m.listener() != inode);
    if a.marks.is_empty() {
        DUE.store(0, Ordering::Relaxed);
    }
}

/// The program accepts: answers for this host if nobody does. One load, mostly.
#[inline]
pub(crate) fn attend() {
    let due = DUE.load(Ordering::Relaxed);
    if due != 0 && clock::ticks() >= due {
        attend_now();
    }
}

#[cold]
fn attend_now() {
    if !is_over() && !world::is_foreign() {
        take_over();
    }
}

/// Answers for this host from now on, unless somebody does.
fn take_over() {
    let mut a = ANSWERING.lock();
    if a.marks.is_empty() || a.thread.is_some() {
        return;
    }
    DUE.store(later(), Ordering::Relaxed);
    let Ok(service) = Service::open() else { return };
    // SAFETY: no pointers.
    let event = unsafe { syscall!(eventfd2, 0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    let Ok(wake) = event.map(|r| Fd::own(as_fd(r)).hide()) else {
        return;
    };
    let ends = [service.raw(), wake.raw()];
    a.thread = Some(Thread {
        service,
        wake,
        ending: false,
        name: None,
    });
    DUE.store(0, Ordering::Relaxed);
    // (not under the lock: libc takes memory from the program's allocator, whose locks fork may have taken before
    // it waits for this one)
    drop(a);
    let name = start(ends);
    let mut a = ANSWERING.lock();
    match (&mut a.thread, name) {
        (Some(thread), Some(_)) => thread.name = name,
        (thread, _) => {
            *thread = None;
            DUE.store(later(), Ordering::Relaxed);
        }
    }
}

fn later() -> u64 {
    clock::ticks() + clock::us(AGAIN_US)
}

/// Starts the thread.
fn start([port, wake]: [i32; 2]) -> Option<libc::pthread_t> {
    let both = u64::from(port.cast_unsigned()) << 32 | u64::from(wake.cast_unsigned());
    let argument = ptr::without_provenance_mut::<c_void>(usize::try_from(both).ok()?);
    service::start(answer, argument)
}

/// The thread.
extern "C" fn answer(argument: *mut c_void) -> *mut c_void {
    let both = argument.addr() as u64;
    let end = |word: u64| libc::pollfd {
        fd: i32::try_from(word & 0xffff_ffff).unwrap_or(-1),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut ends = [end(both >> 32), end(both)];
    service::name(c"shunt-portmap");
    loop {
        // SAFETY: two descriptors, no time, no mask.
        let _ = unsafe { syscall!(ppoll, ends.as_mut_ptr(), ends.len(), 0, 0, 8) };
        let mut a = ANSWERING.lock();
        match &mut a.thread {
            Some(thread) if !thread.ending => drop(thread.service.serve()),
            _ => return ptr::null_mut(),
        }
    }
}

/// Ends the thread, and waits until it is gone.
pub(super) fn stop() {
    DUE.store(0, Ordering::Relaxed);
    let mut patience = 0..PATIENCE;
    let name = loop {
        if patience.next().is_none() {
            return;
        }
        let mut a = ANSWERING.lock();
        let Some(thread) = &mut a.thread else { return };
        let (Some(name), false) = (thread.name, thread.ending) else {
            // Somebody is just starting it, or ending it.
            drop(a);
            let _ = time::nap(50);
            continue;
        };
        thread.ending = true;
        let one = 1u64;
        // SAFETY: eight readable bytes.
        let _ = unsafe { syscall!(write, thread.wake.raw(), &raw const one, 8) };
        break name;
    };
    // SAFETY: a thread that was made to be joined, by the only one who has set `ending`.
    unsafe { libc::pthread_join(name, ptr::null_mut()) };
    ANSWERING.lock().thread = None;
}

pub(super) fn hold() {
    MASK.store(ANSWERING.hold(), Ordering::Relaxed);
}

pub(super) fn let_go() {
    ANSWERING.let_go(MASK.load(Ordering::Relaxed));
}

/// In a child after fork, while held: the thread is the parent's, and so is the port, which must not stay taken when
/// the parent ends. The listeners are the child's as well, and their marks.
pub(super) fn in_child() {
    // SAFETY: held since before the fork, and there is no other thread.
    let a = unsafe { ANSWERING.held() };
    a.thread = None;
    let due = if a.marks.is_empty() { 0 } else { later() };
    DUE.store(due, Ordering::Relaxed);
}
