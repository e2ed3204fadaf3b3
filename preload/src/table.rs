//! Descriptor number to what the library knows of it. A miss, which is every descriptor that is not a
//! TCP socket, costs one load and a comparison.
//!
//! The entries are words in a mapping reserved once and filled lazily by the kernel; numbers beyond it
//! are never followed (kernel TCP). An entry is written under the registry lock, read without any: what
//! it points to is never freed, only used again.
//!
//! While a thread closes a number, or puts another connection under it, the number stands for nothing here but still for the kernel's
//! socket, whose bytes are not the program's: calls that move bytes wait for that moment to be over ([`called`]).

use crate::epoll::set::Set;
use crate::signals;
use crate::sockets::{Socket, lock};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use transport::sys::mem::Mapping;
use transport::sys::{time, yield_core};

/// Numbers followed at most, and with little address space.
const SIZES: [usize; 2] = [1 << 20, 1 << 16];

static BASE: AtomicPtr<AtomicUsize> = AtomicPtr::new(std::ptr::null_mut());
static LEN: AtomicUsize = AtomicUsize::new(0);

const TAG: usize = 0b111;
const SOCKET: usize = 0;
const SET: usize = 1;
const HIDDEN: usize = 2;
/// Beside it the pointer of the thread that closes the number.
const PARTING: usize = 3;

/// What a number stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    /// Not ours.
    None,
    Socket(&'static Socket),
    Set(&'static Set),
    /// One of the library's own descriptors: the program does not have it.
    Hidden,
}

/// Makes the table. Without memory for it everything stays on kernel TCP.
pub(crate) fn init() {
    for size in SIZES {
        if let Ok(mapping) = Mapping::private(size * size_of::<AtomicUsize>()) {
            mapping.advise(libc::MADV_DONTDUMP);
            BASE.store(mapping.leak().cast().as_ptr(), Ordering::Release);
            LEN.store(size, Ordering::Release);
            return;
        }
    }
}

#[inline]
fn slot(fd: i32) -> Option<&'static AtomicUsize> {
    let at = fd.cast_unsigned() as usize;
    if at < LEN.load(Ordering::Relaxed) {
        // SAFETY: inside the table, which is never unmapped.
        Some(unsafe { &*BASE.load(Ordering::Relaxed).add(at) })
    } else {
        None
    }
}

#[inline]
fn decode(word: usize) -> Entry {
    if word == 0 {
        return Entry::None;
    }
    // SAFETY: words are written by `put_socket` and `put_set` only, from references that live for ever.
    unsafe {
        match word & TAG {
            SOCKET => Entry::Socket(&*std::ptr::with_exposed_provenance::<Socket>(word)),
            SET => Entry::Set(&*std::ptr::with_exposed_provenance::<Set>(word & !TAG)),
            PARTING => Entry::None,
            _ => Entry::Hidden,
        }
    }
}

/// What a number stands for.
#[inline]
pub(crate) fn find(fd: i32) -> Entry {
    slot(fd).map_or(Entry::None, |s| decode(s.load(Ordering::Acquire)))
}

/// The socket behind a number, if it is one of ours.
#[inline]
pub(crate) fn socket(fd: i32) -> Option<&'static Socket> {
    let word = slot(fd)?.load(Ordering::Acquire);
    if word == 0 || word & TAG != SOCKET {
        return None;
    }
    // SAFETY: as in `decode`.
    Some(unsafe { &*std::ptr::with_exposed_provenance::<Socket>(word) })
}

/// [`socket`], for a call that moves bytes and is the kernel's if there is none: by then the kernel has closed what stood there.
#[inline]
pub(crate) fn called(fd: i32) -> Option<&'static Socket> {
    let word = slot(fd)?.load(Ordering::Acquire);
    if word == 0 {
        return None;
    }
    match word & TAG {
        // SAFETY: as in `decode`.
        SOCKET => Some(unsafe { &*std::ptr::with_exposed_provenance::<Socket>(word) }),
        PARTING => await_parted(fd),
        _ => None,
    }
}

/// Turns of waiting, at first without a nap: half a second in all. A close that takes longer lingers in the kernel, which
/// has taken the number back at its beginning (or its thread was cancelled, or is another process's since a fork).
const TURNS: u32 = 6000;
const SHORT: u32 = 1000;

#[cold]
fn await_parted(fd: i32) -> Option<&'static Socket> {
    let slot = slot(fd)?;
    for turn in 0..TURNS {
        let word = slot.load(Ordering::Acquire);
        // (a handler of the very thread does not wait for it)
        if word & TAG != PARTING || word == parting() || signals::is_sandboxed() {
            return socket(fd);
        }
        match turn {
            0..SHORT => yield_core(),
            _ => drop(time::nap(50)),
        }
        if turn + 1 == TURNS {
            let _ = slot.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
    socket(fd)
}

/// What stands for a number that this thread closes.
fn parting() -> usize {
    let thread = usize::try_from(lock::thread()).unwrap_or(0);
    thread & !TAG | PARTING
}

/// The epoll set behind a number, if it is one.
#[inline]
pub(crate) fn set(fd: i32) -> Option<&'static Set> {
    match find(fd) {
        Entry::Set(s) => Some(s),
        _ => None,
    }
}

/// Whether the number is a descriptor of the library's own.
pub(crate) fn is_hidden(fd: i32) -> bool {
    matches!(find(fd), Entry::Hidden)
}

/// Whether a number can be followed.
pub(crate) fn can_hold(fd: i32) -> bool {
    slot(fd).is_some()
}

pub(crate) fn put_socket(fd: i32, s: &'static Socket) {
    if let Some(slot) = slot(fd) {
        note(fd);
        slot.store(std::ptr::from_ref(s).expose_provenance(), Ordering::Release);
    }
}

pub(crate) fn put_set(fd: i32, s: &'static Set) {
    if let Some(slot) = slot(fd) {
        note(fd);
        slot.store(
            std::ptr::from_ref(s).expose_provenance() | SET,
            Ordering::Release,
        );
    }
}

/// Marks or unmarks a number as the library's own.
pub(crate) fn observe_hidden(fd: i32, hidden: bool) {
    if let Some(slot) = slot(fd) {
        if hidden {
            note(fd);
            slot.store(HIDDEN, Ordering::Release);
        } else if slot.load(Ordering::Relaxed) & TAG == HIDDEN {
            slot.store(0, Ordering::Release);
        }
    }
}

/// Forgets what a number stood for and returns it.
pub(crate) fn clear(fd: i32) -> Entry {
    slot(fd).map_or(Entry::None, |s| decode(s.swap(0, Ordering::AcqRel)))
}

/// [`clear`], by who closes the number next and says then that it [`is_parted`].
pub(crate) fn begin_to_part(fd: i32) -> Entry {
    slot(fd).map_or(Entry::None, |s| decode(s.swap(parting(), Ordering::AcqRel)))
}

/// The number that this thread has closed, or put something else under, is as the kernel has it.
pub(crate) fn is_parted(fd: i32) {
    if let Some(slot) = slot(fd) {
        let _ = slot.compare_exchange(parting(), 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Calls `each` for every number in a range that is known, in order.
pub(crate) fn each(first: u32, last: u32, mut each: impl FnMut(i32, Entry)) {
    let end = (last as usize)
        .saturating_add(1)
        .min(HIGHEST.load(Ordering::Relaxed) + 1);
    let end = end.min(LEN.load(Ordering::Relaxed));
    for at in first as usize..end {
        let Ok(fd) = i32::try_from(at) else { return };
        match find(fd) {
            Entry::None => {}
            entry => each(fd, entry),
        }
    }
}

static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Remembers the highest number in use, so that walks are short. Called with every number put.
pub(crate) fn note(fd: i32) {
    HIGHEST.fetch_max(fd.cast_unsigned() as usize, Ordering::Relaxed);
}
