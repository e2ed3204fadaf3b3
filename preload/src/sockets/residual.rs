//! Bytes that were received on the fast leg when it was cut off, and that the program has not read.
//! They are read before anything on the kernel connection. The memory is shared with children of fork, and
//! with the programs that they become (`handover`), so that each byte is taken once.

use super::{Socket, family};
use crate::epoll::registered;
use crate::world;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use transport::sdp::Walk;
use transport::sys::{self, mem::Mapping};

/// What a record begins with, when found in a file by another program.
const MAGIC: u64 = u64::from_le_bytes(*b"shuntkp2");

/// A shared buffer that is only ever read off.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Residual {
    magic: u64,
    /// The connection whose bytes these are, as the kernel numbers it.
    inode: u64,
    len: usize,
    /// Bytes that were read. Whoever reads moves it on once he has copied them, if nobody else has: one that is killed
    /// on the way has taken nothing, and keeps nobody waiting.
    at: AtomicUsize,
}

/// Whether anything was ever kept in this process, or in one that it was forked from.
static ANY: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_any() -> bool {
    ANY.load(Ordering::Relaxed) || family::parted().is_some_and(|p| !p.is_empty())
}

/// Bytes whose socket may come back by another name (SCM_RIGHTS), by the socket's number in the kernel.
/// The oldest makes room.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Parted {
    next: AtomicUsize,
    inodes: [AtomicU64; PARTED],
    bytes: [AtomicPtr<Residual>; PARTED],
}

const PARTED: usize = 32;

/// Those of sockets that were closed here. What is kept while several hold a stream stands in the family's.
static OWN: Parted = Parted {
    next: AtomicUsize::new(0),
    inodes: [const { AtomicU64::new(0) }; PARTED],
    bytes: [const { AtomicPtr::new(std::ptr::null_mut()) }; PARTED],
};

impl Parted {
    fn note(&self, fd: i32, r: *mut Residual) {
        let Ok(inode) = sys::fd::inode(fd) else {
            return;
        };
        let at = self.next.fetch_add(1, Ordering::AcqRel) % PARTED;
        if let (Some(number), Some(bytes)) = (self.inodes.get(at), self.bytes.get(at)) {
            number.store(0, Ordering::Release);
            bytes.store(r, Ordering::Release);
            number.store(inode, Ordering::Release);
        }
    }

    fn find(&self, inode: u64) -> Option<&'static Residual> {
        let both = self.inodes.iter().zip(&self.bytes);
        let bytes = both.filter(|(number, _)| number.load(Ordering::Acquire) == inode);
        // SAFETY: null, or memory that is never unmapped, at the same address in the whole family.
        let found = bytes.filter_map(|(_, b)| unsafe { b.load(Ordering::Acquire).as_ref() });
        found
            .filter(|r| r.at.load(Ordering::Acquire) < r.len)
            .last()
    }

    fn is_empty(&self) -> bool {
        self.next.load(Ordering::Acquire) == 0
    }
}

/// The last descriptor of the socket is closed here. Another process may pass it back. Under the registry
/// lock.
pub(crate) fn part(s: &Socket, fd: i32) {
    if left(s) > 0 {
        OWN.note(fd, s.residual.load(Ordering::Acquire));
    }
}

/// Whether bytes of the socket with this number are left, though it is not known here.
pub(crate) fn is_parted(inode: u64) -> bool {
    find_parted(inode).is_some()
}

fn find_parted(inode: u64) -> Option<&'static Residual> {
    OWN.find(inode)
        .or_else(|| family::parted().and_then(|p| p.find(inode)))
}

/// The socket is back: it reads those bytes first. Under the registry lock.
pub(crate) fn rejoin(s: &Socket, inode: u64) {
    if let Some(r) = find_parted(inode) {
        s.residual
            .store(std::ptr::from_ref(r).cast_mut(), Ordering::Release);
    }
}

/// Keeps `bytes` for the socket. False if there is no memory for them. Under the registry lock.
pub(crate) fn keep(s: &Socket, fd: i32, bytes: &[u8]) -> bool {
    if bytes.is_empty() {
        return true;
    }
    let len = size_of::<Residual>() + bytes.len();
    let mut at = family::memory(len); // the others have to see it too, where they are
    if at.is_none() && !s.is_shared() {
        at = Mapping::family(len).ok().map(|m| m.leak().as_ptr());
    }
    let Some(r) = at.map(<*mut u8>::cast::<Residual>) else {
        return false;
    };
    // SAFETY: fresh zeroed memory of that size; nobody else sees it before the store below.
    unsafe {
        (*r).magic = MAGIC;
        (*r).inode = sys::fd::inode(fd).unwrap_or(0);
        (*r).len = bytes.len();
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), r.add(1).cast::<u8>(), bytes.len());
    }
    ANY.store(true, Ordering::Relaxed);
    s.residual.store(r, Ordering::Release);
    if s.is_shared()
        && let Some(parted) = family::parted()
    {
        parted.note(fd, r);
    }
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
    let fits = room
        .checked_sub(size_of::<Residual>())
        .is_some_and(|most| record.len <= most);
    if record.magic != MAGIC || record.inode != inode || inode == 0 || !fits {
        return false;
    }
    ANY.store(true, Ordering::Relaxed);
    s.residual.store(r, Ordering::Release);
    true
}

/// The record of what is left for the socket, and its size.
pub(crate) fn record(s: &Socket) -> Option<(*const Residual, usize)> {
    let at = s.residual.load(Ordering::Acquire);
    // SAFETY: the memory is never unmapped while the socket refers to it.
    let len = unsafe { at.as_ref() }?.len;
    (left(s) > 0).then_some((at.cast_const(), size_of::<Residual>() + len))
}

/// Nobody is to read them any more: the program has ended the connection.
pub(crate) fn drop_all(s: &Socket) {
    let at = s.residual.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null, or memory that is never unmapped while a socket refers to it.
    if let Some(r) = unsafe { at.as_ref() } {
        r.at.store(r.len, Ordering::Release); // (for others that hold it)
    }
}

/// Bytes left.
pub(crate) fn left(s: &Socket) -> usize {
    // SAFETY: the memory is never unmapped while the socket refers to it.
    unsafe { s.residual.load(Ordering::Acquire).as_ref() }
        .map_or(0, |r| r.len.saturating_sub(r.at.load(Ordering::Acquire)))
}

/// Reads into the program's buffers. `None` once nothing is left.
pub(crate) fn read(s: &Socket, walk: &mut Walk, peek: bool, discard: bool) -> Option<usize> {
    let at = s.residual.load(Ordering::Acquire);
    // SAFETY: as above.
    let r = unsafe { at.as_ref() }?;
    loop {
        let from = r.at.load(Ordering::Acquire).min(r.len);
        let mut part = walk.part(walk.left().min(r.len - from));
        while part.left() > 0 {
            let (to, n) = part.chunk();
            let bytes = at
                .wrapping_add(1)
                .cast::<u8>()
                .wrapping_add(from + part.done());
            if !discard {
                // SAFETY: inside the buffer; `to` is the program's, checked by the hook.
                unsafe { std::ptr::copy_nonoverlapping(bytes, to, n) };
            }
            part.advance(n);
        }
        let n = part.done();
        let to = if peek { from } else { from + n };
        if r.at
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            continue; // others have read those
        }
        walk.skip(n);
        if to == r.len {
            s.residual.store(std::ptr::null_mut(), Ordering::Release);
        }
        return (n > 0).then_some(n);
    }
}

/// Some have been taken. Sets that look for the sake of these bytes leave the rest to the kernel once all have.
pub(crate) fn taken(s: &'static Socket, fd: i32) {
    if s.set_count.load(Ordering::Acquire) > 0 && left(s) == 0 {
        registered::detached(&mut world::lock(), s, fd);
    }
}
