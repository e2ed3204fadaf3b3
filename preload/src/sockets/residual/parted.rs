//! Kept bytes whose socket is closed here and may come back by another name (SCM_RIGHTS): found again by the socket's number in the
//! kernel.
//!
//! Called by `residual`.

use super::{Residual, family, is_due, retire};
use crate::sockets::Socket;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Such bytes; the oldest make room.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Parted {
    next: AtomicUsize,
    inodes: [AtomicU64; PARTED],
    bytes: [AtomicPtr<Residual>; PARTED],
}

const PARTED: usize = 32;

/// Those of sockets that were closed here. What is kept while several hold a stream stands in the family's.
pub(super) static OWN: Parted = Parted {
    next: AtomicUsize::new(0),
    inodes: [const { AtomicU64::new(0) }; PARTED],
    bytes: [const { AtomicPtr::new(std::ptr::null_mut()) }; PARTED],
};

impl Parted {
    pub(super) fn note(&self, r: *mut Residual) {
        // (the record knows its socket; a sandbox may kill for asking)
        // SAFETY: null, or memory that is never unmapped while a socket refers to it.
        let inode = unsafe { r.as_ref() }.map_or(0, |r| r.inode);
        if inode == 0 {
            return;
        }
        let at = self.next.fetch_add(1, Ordering::AcqRel) % PARTED;
        if let (Some(number), Some(bytes)) = (self.inodes.get(at), self.bytes.get(at)) {
            number.store(0, Ordering::Release);
            let oldest = bytes.swap(r, Ordering::AcqRel);
            number.store(inode, Ordering::Release);
            if oldest != r {
                retire(oldest);
            }
        }
    }

    pub(super) fn forget(&self, r: *mut Residual) {
        let (done, lost) = (Ordering::AcqRel, Ordering::Relaxed);
        for bytes in &self.bytes {
            let _ = bytes.compare_exchange(r, std::ptr::null_mut(), done, lost);
        }
    }

    pub(super) fn find(&self, inode: u64) -> Option<&'static Residual> {
        let both = self.inodes.iter().zip(&self.bytes);
        let bytes = both.filter(|(number, _)| number.load(Ordering::Acquire) == inode);
        // SAFETY: null, or memory that is never unmapped, at the same address in the whole family.
        let found = bytes.filter_map(|(_, b)| unsafe { b.load(Ordering::Acquire).as_ref() });
        found
            .filter(|r| matches!(r.here(), Ok(Some(r)) if r.left() > 0 || r.is_untold()))
            .last()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next.load(Ordering::Acquire) == 0
    }
}

/// The last descriptor of the socket is closed here. Another process may pass it back. Under the registry
/// lock.
pub(crate) fn part(s: &Socket) {
    if is_due(s) {
        OWN.note(s.residual.load(Ordering::Acquire));
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
        r.go_on_as(s);
        s.residual
            .store(std::ptr::from_ref(r).cast_mut(), Ordering::Release);
    }
}
