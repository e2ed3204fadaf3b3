//! Bytes that were received on the fast leg when it was cut off, and that the program has not read.
//! They are read before anything on the kernel connection. The memory is shared with children of fork, and
//! with the programs that they become (`handover`), so that each byte is taken once; with others that are passed the
//! connection it is a file (`forwarded`).

mod mapped;
mod moved;
mod parted;
mod reset;

pub(crate) use parted::{Parted, is_parted, part, rejoin};
pub(crate) use reset::{is_told, note_behind as reset_behind, tell};
pub(super) use reset::{
    is_untold as is_reset_untold, keep as keep_reset, keep_alone as keep_reset_alone,
};

use super::{Socket, family, ready};
use crate::epoll::registered;
use crate::{signals, world};
use mapped::{note_mapped, retire};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use transport::sdp::Walk;
use transport::sys::noted::{self, Name};
use transport::sys::{self, Result, mem::Mapping};

/// What a record begins with, when found in a file by another program.
const MAGIC: u64 = u64::from_le_bytes(*b"shuntkp4");

/// A shared buffer that is only ever read off.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Residual {
    magic: u64,
    /// The connection whose bytes these are, as the kernel numbers it.
    inode: u64,
    /// What the file is called by that others find it by (`forwarded`), which this is or has gone to; 0 if there is none.
    cookie: AtomicU64,
    len: usize,
    /// [`BEGIN`] and the bytes that were read. Whoever reads moves it on once he has copied them, if nobody else has: one that
    /// is killed on the way has taken nothing, and keeps nobody waiting. Or [`MOVED`].
    at: AtomicUsize,
    /// The connection was reset behind these bytes, of which the kernel has told the library: it tells nobody else ([`reset`]).
    resets: AtomicU32,
}

/// The position of the first byte. (Memory that was given back is zero: who was on his way to it takes nothing there.)
const BEGIN: usize = 1;

/// The position in a record that has gone to a file: all who held it go on there ([`Residual::here`]).
const MOVED: usize = usize::MAX;

impl Residual {
    /// Whether it is one, is of the connection that is numbered so, and lies in so many bytes.
    fn fits(&self, room: usize, inode: u64) -> bool {
        let most = room.checked_sub(size_of::<Self>());
        let is_whole = most.is_some_and(|most| self.len <= most);
        self.magic == MAGIC && self.inode == inode && inode != 0 && is_whole
    }

    /// Bytes that were read.
    fn taken(&self) -> usize {
        let at = self.at.load(Ordering::Acquire);
        at.checked_sub(BEGIN).map_or(self.len, |n| n.min(self.len))
    }

    fn left(&self) -> usize {
        self.len - self.taken()
    }

    /// Its last byte was had here: nobody need find it any more.
    fn unname(&self) {
        let cookie = self.cookie.load(Ordering::Acquire);
        // (a sandbox may kill for it: such a file goes when it is old)
        if cookie != 0 && !signals::is_sandboxed() {
            noted::remove(Name::of(cookie));
        }
    }

    /// The record itself, or where it has gone to. `None`: there nothing is left of it.
    ///
    /// # Errors
    /// That is not to be had here.
    fn here(&self) -> Result<Option<&Self>> {
        if self.at.load(Ordering::Acquire) != MOVED {
            return Ok(Some(self));
        }
        let to = moved::find(self)?;
        // SAFETY: null, or a mapping of a record, which stays for those who are on their way to it.
        Ok(unsafe { to.as_ref() })
    }

    /// Takes all that is left, for whoever is to keep it elsewhere: where it begins.
    fn take_all(&self) -> usize {
        loop {
            let from = self.taken();
            let (was, now) = (BEGIN + from, BEGIN + self.len);
            let (done, lost) = (Ordering::AcqRel, Ordering::Relaxed);
            if from == self.len || self.at.compare_exchange(was, now, done, lost).is_ok() {
                return from;
            }
        }
    }
}

/// Whether anything was ever kept in this process, or in one that it was forked from.
static ANY: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_any() -> bool {
    ANY.load(Ordering::Relaxed) || family::parted().is_some_and(|p| !p.is_empty())
}

/// Keeps `bytes` for the socket. False if there is no memory for them. Under the registry lock.
pub(crate) fn keep(s: &Socket, fd: i32, bytes: &[u8]) -> bool {
    bytes.is_empty() || keep_record(s, fd, bytes)
}

/// Makes a record of them, where there are none too.
fn keep_record(s: &Socket, fd: i32, bytes: &[u8]) -> bool {
    let len = size_of::<Residual>() + bytes.len();
    // (the others have to see it too, where they are, and a program that this one becomes)
    let among_family = family::memory(len).map(<*mut u8>::cast::<Residual>);
    let apart = || {
        let m = Mapping::family(len).ok().filter(|_| !s.is_shared())?;
        let r = m.leak().as_ptr().cast::<Residual>();
        note_mapped(r);
        Some(r)
    };
    let Some(r) = among_family.or_else(apart) else {
        return false;
    };
    // SAFETY: fresh zeroed memory of that size; nobody else sees it before the store below.
    unsafe { fill(r, fd, bytes) };
    ANY.store(true, Ordering::Relaxed);
    s.residual.store(r, Ordering::Release);
    if s.is_shared()
        && let Some(parted) = family::parted()
    {
        parted.note(r);
    }
    true
}

/// Makes a record of these bytes.
///
/// # Safety
/// `r` is writable memory for it, aligned, and nobody else's yet.
unsafe fn fill(r: *mut Residual, fd: i32, bytes: &[u8]) {
    // SAFETY: the caller's promise.
    unsafe {
        (*r).magic = MAGIC;
        (*r).inode = sys::fd::inode(fd).unwrap_or(0);
        (*r).len = bytes.len();
        (*r).at = AtomicUsize::new(BEGIN);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), r.add(1).cast::<u8>(), bytes.len());
    }
}

/// Moves what is left for the socket into this memory, a file that others find by the cookie. All who hold the connection go on
/// there. Under the registry lock, and the lock of the receiving direction, which no other process has meanwhile. False if it has gone
/// to a file already.
pub(super) fn move_to(s: &Socket, fd: i32, m: Mapping, cookie: u64) -> bool {
    let old = s.residual.load(Ordering::Acquire);
    // SAFETY: null, or memory that is not unmapped while the socket refers to it.
    let Some(record) = (unsafe { old.as_ref() }) else {
        return true;
    };
    let r = m.base().as_ptr().cast::<Residual>();
    record.cookie.store(cookie, Ordering::Release);
    loop {
        let was = record.at.load(Ordering::Acquire);
        if was == MOVED {
            return false;
        }
        let from = record.taken();
        let n = (record.len - from).min(m.len().saturating_sub(size_of::<Residual>()));
        let bytes = old.wrapping_add(1).cast::<u8>().wrapping_add(from);
        // SAFETY: the record's bytes lie behind it; `r` is a mapping that has room for them, and that nobody was told of.
        unsafe {
            fill(r, fd, std::slice::from_raw_parts(bytes, n));
            (*r).cookie = AtomicU64::new(cookie);
            (*r).resets = record.resets.load(Ordering::Acquire).into();
        }
        let (done, lost) = (Ordering::AcqRel, Ordering::Relaxed);
        if record.at.compare_exchange(was, MOVED, done, lost).is_ok() {
            break; // (else others have read meanwhile)
        }
    }
    let _ = m.leak();
    if s.is_shared() {
        moved::note(record, r);
    } else {
        note_mapped(r);
        s.residual.store(r, Ordering::Release);
        retire(old);
    }
    true
}

/// Whether what is left for the socket is in a file already that others find by the cookie.
pub(super) fn is_left_as(s: &Socket, cookie: u64) -> bool {
    // SAFETY: null, or memory that is not unmapped while the socket refers to it.
    unsafe { s.residual.load(Ordering::Acquire).as_ref() }
        .is_some_and(|r| r.cookie.load(Ordering::Acquire) == cookie)
}

/// Bytes of a record of so many.
pub(super) const fn size(bytes: usize) -> usize {
    size_of::<Residual>() + bytes
}

/// Whether another process has left something of this connection in this mapping.
pub(super) fn is_of(m: &Mapping, inode: u64) -> bool {
    let at = m.base().cast::<Residual>();
    // SAFETY: a mapping is aligned to pages, and this one is long enough.
    m.len() >= size_of::<Residual>() && unsafe { at.as_ref() }.fits(m.len(), inode)
}

/// The socket reads what another process has left of it in this mapping, together with that process. False if it is nothing of
/// this connection's.
pub(crate) fn join(s: &Socket, m: Mapping, inode: u64) -> bool {
    let (r, room) = (m.base().as_ptr().cast::<Residual>(), m.len());
    // SAFETY: a mapping is aligned to pages, and is not unmapped while it is `m`'s or, below, in use.
    if room < size_of::<Residual>() || !unsafe { adopt(r, room, s, inode) } {
        return false;
    }
    let _ = m.leak();
    note_mapped(r);
    true
}

/// The socket takes over a record that another program has left, `room` bytes at most. False if it is none,
/// or is another connection's.
///
/// # Safety
/// `r` is aligned memory of that size that stays mapped; other processes may change it.
pub(crate) unsafe fn adopt(r: *mut Residual, room: usize, s: &Socket, inode: u64) -> bool {
    // SAFETY: as above; nothing but the position changes once it is made.
    let record = unsafe { &*r };
    if !record.fits(room, inode) {
        return false;
    }
    record.go_on_as(s);
    ANY.store(true, Ordering::Relaxed);
    s.residual.store(r, Ordering::Release);
    true
}

/// The record of what is left for the socket, and its size.
pub(crate) fn record(s: &Socket) -> Option<(*const Residual, usize)> {
    let at = s.residual.load(Ordering::Acquire);
    // SAFETY: the memory is never unmapped while the socket refers to it.
    let r = unsafe { at.as_ref() }?;
    is_due(s).then_some((at.cast_const(), size_of::<Residual>() + r.len))
}

/// What the file is called in which what is left for the socket lies, if it lies in one that others find.
pub(crate) fn named(s: &Socket) -> Option<u64> {
    // SAFETY: as above.
    let r = unsafe { s.residual.load(Ordering::Acquire).as_ref() }?;
    let cookie = r.cookie.load(Ordering::Acquire);
    (cookie != 0 && is_due(s)).then_some(cookie)
}

/// Nobody is to read them any more: the program has ended the connection.
pub(crate) fn drop_all(s: &Socket) {
    let at = s.residual.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null, or memory that is never unmapped while a socket refers to it.
    if let Some(r) = unsafe { at.as_ref() } {
        // (for others that hold it)
        if let Ok(Some(r)) = r.here()
            && (r.take_all() < r.len || r.len == 0)
        {
            r.unname();
        }
        retire(at);
    }
}

/// Bytes left.
pub(crate) fn left(s: &Socket) -> usize {
    let at = s.residual.load(Ordering::Acquire);
    // SAFETY: the memory is never unmapped while the socket refers to it.
    let Some(r) = (unsafe { at.as_ref() }) else {
        return 0;
    };
    match r.here() {
        Ok(Some(here)) => here.left(),
        Ok(None) => {
            forget(s, at);
            0
        }
        Err(_) => 1, // (whoever reads is told)
    }
}

/// Whether whoever has the connection too, or is passed it, has anything to find here: bytes, or a reset that nobody was told.
pub(crate) fn is_due(s: &Socket) -> bool {
    // SAFETY: as above.
    let record = || unsafe { s.residual.load(Ordering::Acquire).as_ref() };
    left(s) > 0 || record().is_some_and(|r| matches!(r.here(), Ok(Some(r)) if r.is_untold()))
}

/// Nothing is left of the record: the socket has none any more.
fn forget(s: &Socket, at: *mut Residual) {
    if is_told(s) {
        s.reset_told.store(true, Ordering::Release); // (the record alone knew)
    }
    let (done, lost) = (Ordering::AcqRel, Ordering::Relaxed);
    let none = std::ptr::null_mut();
    if s.residual.compare_exchange(at, none, done, lost).is_ok() {
        retire(at);
    }
}

/// Reads into the program's buffers; with `peek` leaves all there, and begins so far behind the first. `None` once nothing is left.
pub(crate) fn read(
    s: &Socket,
    walk: &mut Walk,
    peek: Option<usize>,
    discard: bool,
) -> Option<usize> {
    let at = s.residual.load(Ordering::Acquire);
    // SAFETY: as above.
    let first = unsafe { at.as_ref() }?;
    loop {
        let r = match first.here() {
            Ok(Some(r)) => r,
            Ok(None) => {
                forget(s, at);
                return None;
            }
            Err(_) => {
                s.broken.store(true, Ordering::Release); // a reset, never a gap
                forget(s, at);
                return None;
            }
        };
        let from = r.taken();
        let begins = from + peek.unwrap_or(0).min(r.len - from);
        let mut part = walk.part(walk.left().min(r.len - begins));
        while part.left() > 0 {
            let (to, n) = part.chunk();
            let bytes = std::ptr::from_ref(r)
                .wrapping_add(1)
                .cast::<u8>()
                .wrapping_add(begins + part.done());
            if !discard {
                // SAFETY: inside the buffer; `to` is the program's, checked by the hook.
                unsafe { std::ptr::copy_nonoverlapping(bytes, to, n) };
            }
            part.advance(n);
        }
        let n = part.done();
        let to = if peek.is_some() { from } else { from + n };
        let (was, now) = (BEGIN + from, BEGIN + to);
        let (done, lost) = (Ordering::AcqRel, Ordering::Relaxed);
        if r.at.compare_exchange(was, now, done, lost).is_err() {
            if matches!(first.here(), Ok(r) if r.is_none_or(|r| r.left() == 0)) {
                return None;
            }
            continue; // others have read those, or it has gone to a file
        }
        walk.skip(n);
        if to == r.len && !r.is_untold() {
            // (where others have had the last of it, another file may be called so by now)
            if n > 0 || r.len == 0 {
                r.unname();
            }
            forget(s, at);
        }
        return (n > 0 || from < r.len).then_some(n); // (who wants nothing hears that there is something)
    }
}

/// Some have been taken. Sets that look for the sake of these bytes leave the rest to the kernel once all have, unless a reset is behind
/// them, of which it knows nothing.
pub(crate) fn taken(s: &'static Socket, fd: i32) {
    if s.set_count.load(Ordering::Acquire) > 0 && left(s) == 0 && !ready::is_broken(s) {
        registered::detached(&mut world::lock(), s, fd);
    }
}
