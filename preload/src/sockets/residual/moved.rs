//! Records that have gone to a file ([`Residual::here`]) for the sake of others that are passed the connection: where that file is
//! mapped in this process.
//!
//! Called by `residual`. Each process that held the record looks the file up once, at its first use of it. Rule: a place is
//! filled with the mapping first and named last, so that nobody finds half of it; two threads that look at once map it twice.

use super::{BEGIN, Residual, note_mapped, retire};
use crate::signals;
use std::sync::atomic::{AtomicPtr, Ordering};
use transport::sys::mem::Mapping;
use transport::sys::noted::{self, Name};
use transport::sys::{Errno, Result};

struct Place {
    /// The record that has gone there. (Addresses of records are never used again, but for mappings of their own.)
    from: AtomicPtr<Residual>,
    to: AtomicPtr<Residual>,
}

const NONE: *mut Residual = std::ptr::null_mut();

/// One that finds no place is looked up at each use.
static PLACES: [Place; 64] = [const {
    Place {
        from: AtomicPtr::new(NONE),
        to: AtomicPtr::new(NONE),
    }
}; 64];

/// Where the record goes on; null if nobody has left anything of it.
///
/// # Errors
/// The file is not to be had here.
pub(super) fn find(from: &Residual) -> Result<*mut Residual> {
    let own = std::ptr::from_ref(from).cast_mut();
    let known = PLACES
        .iter()
        .find(|p| p.from.load(Ordering::Acquire) == own)
        .map(|p| p.to.load(Ordering::Acquire))
        .filter(|to| !to.is_null());
    known.map_or_else(|| look_up(from), Ok)
}

#[cold]
fn look_up(from: &Residual) -> Result<*mut Residual> {
    if signals::is_sandboxed() {
        return Err(Errno(libc::EPERM));
    }
    let name = Name::of(from.cookie.load(Ordering::Acquire));
    let (file, size) = match noted::find(name) {
        Err(Errno(libc::ENOENT)) => return Ok(NONE),
        found => found?,
    };
    let m = Mapping::shared(&file, 0, size)?;
    if !super::is_of(&m, from.inode) {
        return Ok(NONE);
    }
    sweep();
    let to = m.leak().as_ptr().cast::<Residual>();
    note(from, to);
    Ok(to)
}

/// The record has gone there, which is mapped here.
pub(super) fn note(from: &Residual, to: *mut Residual) {
    note_mapped(to);
    let own = std::ptr::from_ref(from).cast_mut();
    let (done, lost) = (Ordering::AcqRel, Ordering::Relaxed);
    let free = |p: &&Place| p.to.compare_exchange(NONE, to, done, lost).is_ok();
    if let Some(place) = PLACES.iter().find(free) {
        place.from.store(own, Ordering::Release);
    }
}

/// The record is done with, and what it has gone to.
pub(super) fn forget(from: *mut Residual) {
    for place in &PLACES {
        if place.from.load(Ordering::Acquire) == from {
            give_up(place);
        }
    }
}

/// What others have read to its end goes.
fn sweep() {
    for place in &PLACES {
        // SAFETY: null, or a mapping that stays while it stands in its place, and for a while after.
        let to = unsafe { place.to.load(Ordering::Acquire).as_ref() };
        let is_named = !place.from.load(Ordering::Acquire).is_null();
        if is_named && to.is_some_and(|to| to.at.load(Ordering::Acquire) == BEGIN + to.len) {
            give_up(place);
        }
    }
}

fn give_up(place: &Place) {
    place.from.store(NONE, Ordering::Release);
    let to = place.to.swap(NONE, Ordering::AcqRel);
    if !to.is_null() {
        retire(to);
    }
}
