//! Whether the program's memory can be touched, so that a bad pointer gives EFAULT, as from the kernel,
//! and not a crash in here.
//!
//! What no program can have (the first pages, the kernel's half) is refused at once. Other pages are
//! asked of the kernel the first time they are seen; a small table remembers those that were good, until
//! the program unmaps, protects or cuts something (`hooks::memory`). A page that goes some other way and is
//! used again is not noticed: that program would crash here where the kernel would have said EFAULT.

use crate::{guard, signals};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use transport::syscall;

const PAGE: usize = 4096;
const LOWEST: usize = 65536;
const HIGHEST: usize = 0x7fff_ffff_f000;
/// Places for pages (a power of two): a program of many threads has a few on each one's stack. A page has two of them.
const REMEMBERED: usize = 1024;

static READABLE: [AtomicUsize; REMEMBERED] = [const { AtomicUsize::new(0) }; REMEMBERED];
static WRITABLE: [AtomicUsize; REMEMBERED] = [const { AtomicUsize::new(0) }; REMEMBERED];

/// Whether there is anything in the tables.
static ANY: AtomicBool = AtomicBool::new(false);

/// What is to be done with the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The two places of a page, the newer one first.
#[inline]
fn places(page: usize, access: Access) -> Option<(&'static AtomicUsize, &'static AtomicUsize)> {
    let table = if access == Access::Read {
        &READABLE
    } else {
        &WRITABLE
    };
    // (stacks lie at equal distances: the upper bits of a product with an odd number tell them apart)
    let at = page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - REMEMBERED.ilog2());
    Some((table.get(at & !1)?, table.get(at | 1)?))
}

#[inline]
fn is_remembered(page: usize, access: Access) -> bool {
    places(page, access).is_some_and(|(newer, older)| {
        newer.load(Ordering::Relaxed) == page || older.load(Ordering::Relaxed) == page
    })
}

#[inline]
fn page_is_good(page: usize, access: Access) -> bool {
    is_remembered(page, access) || ask(page, access)
}

#[cold]
fn ask(page: usize, access: Access) -> bool {
    // A sandbox may kill for a question. All connections are the kernel's there, and it looks for itself.
    if signals::is_sandboxed() {
        return true;
    }
    let at = page * PAGE;
    let good = match access {
        // The kernel reads eight bytes of a signal set there, and then refuses the bogus `how`.
        Access::Read => {
            // SAFETY: the kernel checks the address; nothing is changed.
            let r = unsafe { syscall!(rt_sigprocmask, 1000, at, 0, 8) };
            r != Err(transport::sys::Errno::FAULT)
        }
        // A wake-up operation that ors 0 into the word: proves that it can be written, changes nothing.
        Access::Write => {
            let word = AtomicU32::new(0);
            let op = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
            let or_zero = libc::FUTEX_OP_OR << 28;
            // SAFETY: the kernel checks the address; nothing is changed.
            let r = unsafe { syscall!(futex, word.as_ptr(), op, 0, 0, at, or_zero) };
            r != Err(transport::sys::Errno::FAULT)
        }
    };
    if good && let Some((newer, older)) = places(page, access) {
        older.store(newer.load(Ordering::Relaxed), Ordering::Relaxed);
        newer.store(page, Ordering::Relaxed);
        ANY.store(true, Ordering::Relaxed);
    }
    good
}

/// Some page may be gone: all are asked for anew.
pub(crate) fn forget() {
    if ANY.load(Ordering::Relaxed) {
        ANY.store(false, Ordering::Relaxed);
        for slot in READABLE.iter().chain(&WRITABLE) {
            slot.store(0, Ordering::Relaxed);
        }
    }
}

/// Whether `len` bytes at `at` can be touched: the first and the last page are asked for, which is what
/// programs get wrong.
#[inline]
pub(crate) fn is_good(at: *const u8, len: usize, access: Access) -> bool {
    if len == 0 {
        return true;
    }
    let first = at.addr();
    let Some(last) = first.checked_add(len - 1) else {
        return false;
    };
    if first < LOWEST || last >= HIGHEST {
        return false;
    }
    if access == Access::Write {
        guard::before_write(at, len);
    }
    page_is_good(first / PAGE, access)
        && (last / PAGE == first / PAGE || page_is_good(last / PAGE, access))
}

/// Whether a buffer lies where a program can have memory at all, which the kernel asks of each of several before it does
/// anything.
pub(crate) fn is_address(at: *const u8, len: usize) -> bool {
    let end = at.addr().checked_add(len);
    len == 0 || end.is_some_and(|end| end <= HIGHEST)
}

/// How far a buffer that is not good can be touched from its beginning on. Not looked for beyond [`PREFIX`].
#[cold]
pub(crate) fn prefix(at: *const u8, len: usize, access: Access) -> usize {
    let first = at.addr();
    let mut good = 0;
    while good < len.min(PREFIX) && is_good(at.wrapping_add(good), 1, access) {
        good += PAGE - (first + good) % PAGE;
    }
    good.min(len)
}

/// Octets of a buffer that are looked at where its end is bad: a program that names a length beyond its buffer, or beyond all
/// memory, is given what there is.
pub(crate) const PREFIX: usize = 64 * 1024;

/// Whether it is known without asking that `len` bytes at `at` can be touched. (The caller sees to messages that are held
/// in place.)
#[inline]
pub(crate) fn is_known(at: *const u8, len: usize, access: Access) -> bool {
    let is_known = |page: usize| is_remembered(page, access);
    let first = at.addr();
    let last = first.wrapping_add(len).wrapping_sub(1);
    // (page 0 is what an empty place of the table says)
    last >= first
        && first / PAGE > 0
        && is_known(first / PAGE)
        && (last / PAGE == first / PAGE || is_known(last / PAGE))
}

/// Reads memory of which nothing is known, page by page: each is asked for once in a row.
#[derive(Debug)]
pub(crate) struct Pages {
    /// The page asked for last; none at first.
    good: usize,
}

impl Pages {
    pub(crate) const fn new() -> Self {
        Self { good: usize::MAX }
    }

    fn can_read(&mut self, at: usize) -> bool {
        let page = at / PAGE;
        if page != self.good {
            if !(LOWEST..HIGHEST).contains(&at) || !ask(page, Access::Read) {
                return false;
            }
            self.good = page;
        }
        true
    }

    pub(crate) fn byte(&mut self, at: *const u8) -> Option<u8> {
        // SAFETY: in a page that the kernel has just read.
        self.can_read(at.addr()).then(|| unsafe { at.read() })
    }

    /// A word of any alignment.
    pub(crate) fn word<T>(&mut self, at: *const *const T) -> Option<*const T> {
        let last = at.addr().wrapping_add(size_of::<usize>() - 1);
        (self.can_read(at.addr()) && self.can_read(last)).then(|| {
            // SAFETY: in pages that the kernel has just read.
            unsafe { at.read_unaligned() }
        })
    }
}
