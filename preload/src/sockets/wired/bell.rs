//! What the mover sleeps on: an event of our own, and every connection in RDMA mode, whose peer rings by one urgent byte, the
//! one thing that shows apart from the stream (the kernel keeps it out of that). Of one that rides on a ring the kernel is to tell the end
//! too, since who sends by the ring does not ask it.
//!
//! The kernel wakes up whoever sleeps on a connection for any byte that comes, and finds only then that it is not an urgent
//! one. Where much comes that would be a second thread's wake-up beside the reader's each time, so the program's reads are
//! counted ([`note_read`]), and while they are many the mover sleeps on its event alone and looks for urgent bytes now and
//! then.
//!
//! Used by `mover`, and by whoever reads (`io`).

use super::super::Socket;
use super::riding;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use transport::clock;
use transport::sys::fd::{Fd, as_fd};
use transport::sys::net;
use transport::sys::time;

/// The epoll set of the connections, and in that the event.
static SET: AtomicI32 = AtomicI32::new(-1);
static EVENT: AtomicI32 = AtomicI32::new(-1);

/// The program's reads; each time so many have been, the clock is looked at, and where they took no longer than this (µs)
/// they are many.
static READS: AtomicU32 = AtomicU32::new(0);
const SOME: u32 = 32;
const SOME_US: u64 = 32_000;
/// When that was last, in ticks.
static LOOKED: AtomicU64 = AtomicU64::new(0);
/// They are many.
static BUSY: AtomicBool = AtomicBool::new(false);
/// How long (ms) an urgent byte may be overlooked then; after so many pauses with fewer reads than that they are not many
/// any more.
const PAUSE_MS: u32 = 2;
const FEW: u32 = 2;
const QUIET: u32 = 5;

/// Connections that can have been rung at once.
pub(super) const RUNG: usize = 16;

/// Makes both. False if that cannot be had.
pub(super) fn prepare() -> bool {
    if SET.load(Ordering::Acquire) >= 0 {
        return is_prepared();
    }
    let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
    // SAFETY: no pointers.
    let made = unsafe {
        (
            transport::syscall!(epoll_create1, libc::EPOLL_CLOEXEC),
            transport::syscall!(eventfd2, 0, flags),
        )
    };
    let (Ok(set), Ok(event)) = made else {
        return false;
    };
    let (set, event) = (Fd::own(as_fd(set)).hide(), Fd::own(as_fd(event)).hide());
    let (op, events) = (libc::EPOLL_CTL_ADD, libc::EPOLLIN);
    if !control(set.raw(), op, event.raw(), events, 0) {
        return false;
    }
    let mine = set.raw();
    if SET
        .compare_exchange(-1, mine, Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
    {
        EVENT.store(event.leak(), Ordering::Release);
        let _ = set.leak();
    }
    is_prepared()
}

/// Whoever makes the set has the event at hand.
fn is_prepared() -> bool {
    for _ in 0..1000 {
        if EVENT.load(Ordering::Acquire) >= 0 {
            return true;
        }
        let _ = time::nap(10);
    }
    false
}

fn control(set: i32, op: i32, fd: i32, events: i32, data: u64) -> bool {
    let mut event = libc::epoll_event {
        events: (events | libc::EPOLLET).cast_unsigned(),
        u64: data,
    };
    // SAFETY: the event is valid.
    unsafe { transport::syscall!(epoll_ctl, set, op, fd, &raw mut event) }.is_ok()
}

/// This connection's peer may ring; where it has a ring by now, it tells of the end too.
pub(super) fn watch(s: &'static Socket, fd: i32) {
    let at = ptr::from_ref(s).expose_provenance() as u64;
    let end = if riding::rides(s) {
        libc::EPOLLRDHUP
    } else {
        0
    };
    let (set, events) = (SET.load(Ordering::Acquire), libc::EPOLLPRI | end);
    let has = |op| control(set, op, fd, events, at);
    let _ = has(libc::EPOLL_CTL_ADD) || has(libc::EPOLL_CTL_MOD);
}

/// The program is about to close this connection by this number. The kernel holds a file while it looks at it for a set, and
/// who held it last closes it once he is back from the kernel: the mover, which may sleep on there for ever, while the peer
/// waits for the end of the stream. It is looked at no more when this is over.
///
/// Whether it was watched by that number.
pub(super) fn unwatch(fd: i32) -> bool {
    let (set, op) = (SET.load(Ordering::Acquire), libc::EPOLL_CTL_DEL);
    // SAFETY: no event is needed.
    set >= 0 && unsafe { transport::syscall!(epoll_ctl, set, op, fd, 0) }.is_ok()
}

/// The program reads what has come.
#[inline]
pub(super) fn note_read() {
    // (a read that is not counted does not matter)
    let reads = READS.load(Ordering::Relaxed).wrapping_add(1);
    READS.store(reads, Ordering::Relaxed);
    if reads.is_multiple_of(SOME) {
        look_at_clock();
    }
}

#[cold]
fn look_at_clock() {
    let now = clock::ticks();
    let took = now.wrapping_sub(LOOKED.swap(now, Ordering::Relaxed));
    if took < clock::us(SOME_US)
        && !BUSY.load(Ordering::Relaxed)
        && EVENT.load(Ordering::Acquire) >= 0
        && !BUSY.swap(true, Ordering::SeqCst)
    {
        ring(); // it sleeps on the connections
    }
}

/// Wakes the mover up.
pub(super) fn ring() {
    let one = 1u64;
    let event = EVENT.load(Ordering::Acquire);
    // SAFETY: eight readable bytes.
    let _ = unsafe { transport::syscall!(write, event, &raw const one, 8) };
}

/// Sleeps so long (ms; -1: for ever) or until there is something to do, and says who was rung.
pub(super) fn sleep(timeout: i32) -> [Option<&'static Socket>; RUNG] {
    if timeout == 0 || !BUSY.load(Ordering::SeqCst) {
        return look(timeout).0;
    }
    let (mut quiet, mut slept) = (0, 0);
    loop {
        let before = READS.load(Ordering::Relaxed);
        net::await_input(EVENT.load(Ordering::Acquire), 1000 * u64::from(PAUSE_MS));
        let (found, any) = look(0);
        slept += PAUSE_MS.cast_signed();
        if any || (timeout > 0 && slept >= timeout) {
            return found;
        }
        let few = READS.load(Ordering::Relaxed).wrapping_sub(before) < FEW;
        quiet = if few { quiet + 1 } else { 0 };
        if quiet == QUIET {
            BUSY.store(false, Ordering::SeqCst);
            return look(timeout).0;
        }
    }
}

/// Looks who was rung, for so long; and whether anything was there.
fn look(timeout: i32) -> ([Option<&'static Socket>; RUNG], bool) {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; RUNG];
    let set = SET.load(Ordering::Acquire);
    // SAFETY: room for so many events, no mask.
    let n =
        unsafe { transport::syscall!(epoll_pwait, set, events.as_mut_ptr(), RUNG, timeout, 0, 8) };
    let mut rung = [None; RUNG];
    for (event, slot) in events.iter().take(n.unwrap_or(0)).zip(&mut rung) {
        let at = usize::try_from(event.u64).unwrap_or(0);
        // SAFETY: null, or a socket, which is never freed.
        let s = unsafe { ptr::with_exposed_provenance::<Socket>(at).as_ref() };
        // (of errors and ends the kernel tells everybody who watches; they are the program's to hear)
        let urgent = event.events & libc::EPOLLPRI.cast_unsigned() != 0;
        let failed = event.events & (libc::EPOLLERR | libc::EPOLLHUP).cast_unsigned() != 0;
        let ended = event.events & libc::EPOLLRDHUP.cast_unsigned() != 0;
        if (failed || ended)
            && let Some(s) = s
        {
            riding::note_end(s);
        }
        if at != 0 && (!urgent || failed) {
            continue;
        }
        if at == 0 {
            let mut count = 0u64;
            let event = EVENT.load(Ordering::Acquire);
            // SAFETY: eight writable bytes.
            let _ = unsafe { transport::syscall!(read, event, &raw mut count, 8) };
        }
        *slot = s;
    }
    (rung, n.unwrap_or(0) > 0)
}

/// In a child after fork: these are its parent's.
pub(super) fn in_child() {
    BUSY.store(false, Ordering::SeqCst);
    for own in [&SET, &EVENT] {
        let fd = own.swap(-1, Ordering::SeqCst);
        if fd >= 0 {
            drop(Fd::own(fd));
        }
    }
}
