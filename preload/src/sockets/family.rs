//! The processes that fork has made of one: who they are to each other, and which of them live. Used for
//! streams that several of them hold.
//!
//! A *member* is a number that is never given out again; its low bits, which a lock can hold, are its *name*,
//! different for all that live. Each living member keeps a record lock on the byte of its name in a memory
//! file that all have inherited. The kernel drops it when the process ends,
//! however it ends, and says who holds it whatever PID namespace the asker lives in: process ids would
//! be mistaken for one another there, and are used again.

use crate::signals;
use crate::sockets::lock;
use crate::sockets::residual::Parted;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use transport::clock;
use transport::sys::fd::Fd;
use transport::sys::mem::{Mapping, memory_file};
use transport::syscall;

/// The first process.
const ROOT: u32 = 1;

/// Bits of a name.
const NAME_BITS: u32 = 20;

/// What a member is called where there is little room.
pub(crate) const fn name(member: u32) -> u32 {
    member & ((1 << NAME_BITS) - 1)
}

/// How long (µs) a child may take from fork to its first instruction of ours. One that was killed on
/// that way is given up then.
const BIRTH_US: u64 = 10_000_000;

/// Bytes of shared memory that a family can use beside its streams: what is kept of them.
const ROOM: usize = 1 << 28;

/// This process.
static ME: AtomicU32 = AtomicU32::new(ROOT);
/// The file whose bytes are locked; -1 before the first fork that needs it.
static LOCKS: AtomicI32 = AtomicI32::new(-1);
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());
/// The first byte of [`ROOM`], and the file that it lies in, so that a program which a member becomes can have
/// a part of it; -1 if it lies in none. Nothing but [`memory`] is in there: that program may have fewer
/// rights.
static BASE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static FILE: AtomicI32 = AtomicI32::new(-1);

/// The memory that all members share.
#[repr(C)]
struct Shared {
    /// The member number given out last.
    last: AtomicU32,
    /// When one of them last forked, in ticks.
    forked: AtomicU64,
    /// Bytes of [`ROOM`] that are in use.
    used: AtomicUsize,
    parted: Parted,
}

/// Bytes kept of shared streams, for members that are passed one of them again.
pub(crate) fn parted() -> Option<&'static Parted> {
    shared().map(|s| &s.parted)
}

fn shared() -> Option<&'static Shared> {
    // SAFETY: null, or a mapping that is never unmapped; zero is a valid value.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

/// This process's number.
#[inline]
pub(crate) fn me() -> u32 {
    ME.load(Ordering::Relaxed)
}

/// The memory, made if it is not there: not in a sandbox, which may kill for it. Under the registry lock.
fn made() -> Option<&'static Shared> {
    if let Some(made) = shared() {
        return Some(made);
    }
    if signals::is_sandboxed() {
        return None;
    }
    let m = Mapping::family(size_of::<Shared>()).ok()?;
    let (room, file) = match memory_file(c"shunt-family-memory", ROOM) {
        Ok(f) => (Mapping::shared(&f, 0, ROOM).ok()?, f.hide().leak()),
        Err(_) => (Mapping::family(ROOM).ok()?, -1),
    };
    room.advise(libc::MADV_DONTDUMP);
    let at: *mut Shared = m.leak().cast().as_ptr();
    // SAFETY: fresh memory of that size.
    unsafe { (*at).last.store(me(), Ordering::Relaxed) };
    BASE.store(room.leak().as_ptr(), Ordering::Release);
    FILE.store(file, Ordering::Relaxed);
    SHARED.store(at, Ordering::Release);
    shared()
}

/// Whether all that is needed for that is there, since a child was expected before.
pub(crate) fn is_ready() -> bool {
    shared().is_some() && LOCKS.load(Ordering::Relaxed) >= 0
}

/// Makes ready for a child that will hold streams of this process. Its number; `None` where that cannot
/// be had. Before fork, under the registry lock.
pub(crate) fn expect_child() -> Option<u32> {
    let shared = made()?;
    if LOCKS.load(Ordering::Relaxed) < 0 {
        LOCKS.store(
            memory_file(c"shunt-family", 0).ok()?.hide().leak(),
            Ordering::Relaxed,
        );
        if !lock_byte(me()) {
            drop(Fd::own(LOCKS.swap(-1, Ordering::Relaxed)));
            return None;
        }
    }
    shared.forked.store(clock::ticks(), Ordering::SeqCst);
    // (a name in use is passed over, and 0 is nobody's)
    for _ in 0..NAMES_TRIED {
        let child = shared.last.fetch_add(1, Ordering::AcqRel) + 1;
        if child >= 1 << 30 {
            return None;
        }
        if name(child) != 0 && !is_alive(child) {
            return Some(child);
        }
    }
    None
}

/// Names in use that may be passed over for a child.
const NAMES_TRIED: u32 = 4096;

/// In a child after fork: takes on the number that was given to it.
pub(crate) fn be_born(child: u32) {
    ME.store(child, Ordering::Relaxed);
    lock::name_process(child);
    lock_byte(child);
}

/// In a child after fork that shares no stream with its parent: the record lock by which its number is
/// seen to live is the parent's. It starts a file of its own when it needs one.
pub(crate) fn part() {
    let locks = LOCKS.swap(-1, Ordering::Relaxed);
    if locks >= 0 {
        drop(Fd::own(locks));
    }
}

/// Whether a child may still be on its way into life.
pub(crate) fn may_be_born() -> bool {
    shared().is_some_and(|s| {
        let forked = s.forked.load(Ordering::SeqCst);
        clock::ticks().saturating_sub(forked) < clock::us(BIRTH_US)
    })
}

fn record(member: u32) -> libc::flock {
    // SAFETY: all-zero is a valid flock.
    let mut l: libc::flock = unsafe { std::mem::zeroed() };
    l.l_type = libc::F_WRLCK as i16;
    l.l_whence = libc::SEEK_SET as i16;
    l.l_start = i64::from(name(member));
    l.l_len = 1;
    l
}

fn lock_byte(member: u32) -> bool {
    let l = record(member);
    let fd = LOCKS.load(Ordering::Relaxed);
    // SAFETY: a valid flock.
    unsafe { syscall!(fcntl, fd, libc::F_SETLK, &raw const l) }.is_ok()
}

/// Whether a member lives. In doubt it does.
pub(crate) fn is_alive(member: u32) -> bool {
    if name(member) == name(me()) {
        return true;
    }
    let mut l = record(member);
    let fd = LOCKS.load(Ordering::Relaxed);
    // SAFETY: a valid flock, for the kernel to fill.
    let asked = unsafe { syscall!(fcntl, fd, libc::F_GETLK, &raw mut l) };
    asked.is_err() || l.l_type != libc::F_UNLCK as i16
}

/// Memory that every member sees at the same address, for good. `None` once it is used up. Under the
/// registry lock.
pub(crate) fn memory(len: usize) -> Option<*mut u8> {
    let shared = made()?;
    let base = BASE.load(Ordering::Acquire);
    let len = len.checked_next_multiple_of(64)?;
    let at = shared
        .used
        .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |at| {
            at.checked_add(len).filter(|&end| end <= ROOM)
        })
        .ok()?;
    // SAFETY: inside the mapping, by the check above.
    Some(unsafe { base.add(at) })
}

/// Memory that [`memory`] has given out is not needed any more: what fills pages of it goes, and is zero for whoever looks at it
/// all the same. Its addresses stay used.
pub(crate) fn give_back(at: *const u8, len: usize) {
    const PAGE: usize = 4096;
    let base = BASE.load(Ordering::Acquire).addr();
    let begin = at.addr();
    let is_there = base != 0 && begin >= base && begin.saturating_add(len) <= base + ROOM;
    let (first, last) = (begin.next_multiple_of(PAGE), (begin + len) & !(PAGE - 1));
    if is_there && first < last {
        // SAFETY: whole pages of what was given out and is nobody's any more.
        let _ = unsafe { syscall!(madvise, first, last - first, libc::MADV_REMOVE) };
    }
}

/// The file in which an address of [`memory`] lies, and where.
pub(crate) fn place(at: *const u8) -> Option<(i32, usize)> {
    let base = BASE.load(Ordering::Acquire).addr();
    let file = FILE.load(Ordering::Relaxed);
    let offset = at.addr().checked_sub(base)?;
    (base != 0 && file >= 0 && offset < ROOM).then_some((file, offset))
}
