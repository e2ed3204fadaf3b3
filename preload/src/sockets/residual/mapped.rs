//! Where the memory of a record comes from, and how it goes: the family's, or a mapping of its own.
//!
//! Called by `residual`.

use super::parted::OWN;
use super::{Residual, family, moved};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Records that are mappings of their own here, which go once they are empty. One that finds no place stays.
static MAPPED: [AtomicPtr<Residual>; 128] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 128];

/// `r` is a mapping of its own.
pub(super) fn note_mapped(r: *mut Residual) {
    let none = std::ptr::null_mut();
    let (done, lost) = (Ordering::AcqRel, Ordering::Relaxed);
    let _ = MAPPED
        .iter()
        .any(|place| place.compare_exchange(none, r, done, lost).is_ok());
}

/// Nobody here has a use for it any more.
pub(super) fn retire(r: *mut Residual) {
    let none = std::ptr::null_mut();
    let (done, lost) = (Ordering::AcqRel, Ordering::Relaxed);
    OWN.forget(r);
    moved::forget(r);
    let was_mapped = MAPPED
        .iter()
        .any(|place| place.compare_exchange(r, none, done, lost).is_ok());
    // SAFETY: null, or a record that nobody but its users has given back yet.
    let Some(len) = (unsafe { r.as_ref() }).map(|r| size_of::<Residual>() + r.len) else {
        return;
    };
    if was_mapped && let Some(base) = std::ptr::NonNull::new(r.cast::<u8>()) {
        // SAFETY: the whole of a mapping; whoever was on his way to it finds that nothing is left.
        unsafe { transport::sys::retired::retire_at(base, len) };
    } else if !was_mapped {
        // (others may read yet what the record says of a reset)
        family::give_back(r.wrapping_add(1).cast(), len - size_of::<Residual>());
    }
}
