//! Memory of the program's that is registered with a stand-in for a while: a table that the peer looks at from outside.
//!
//! Who takes an entry away waits until the peer is not at work, as who shuts the door does: nothing of it is copied after.
//!
//! What is copied lies at the addresses by then, as with adapters that reach memory on demand. So one of that kind (`on_demand`) keeps
//! registrations for its own Reads, few, as real ones do many.

use super::Door;
use crate::sys::vm;
use crate::verbs::kept::{Bounds, Kept, Range};
use crate::verbs::lock::Lock;
use crate::verbs::{Access, Registered};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Registrations of one queue pair at a time.
const ENTRIES: usize = 8;

/// One of them.
#[derive(Debug)]
#[repr(C)]
struct Entry {
    /// 0: none. Written last.
    key: AtomicU64,
    base: AtomicU64,
    len: AtomicU64,
    /// What it is for.
    access: AtomicU64,
}

/// See the module.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Guests([Entry; ENTRIES]);

/// [`Entry`] as read from outside.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Seen {
    key: u64,
    base: u64,
    len: u64,
    access: u64,
}

const _: () = assert!(size_of::<Seen>() == size_of::<Entry>());

const fn number(access: Access) -> u64 {
    match access {
        Access::Lends => 1,
        Access::Takes => 2,
    }
}

impl Guests {
    pub(super) const fn new() -> Self {
        Self(
            [const {
                Entry {
                    key: AtomicU64::new(0),
                    base: AtomicU64::new(0),
                    len: AtomicU64::new(0),
                    access: AtomicU64::new(0),
                }
            }; ENTRIES],
        )
    }

    /// Where memory is registered under this key for this.
    pub(super) fn find(&self, key: u32, access: Access) -> Option<(u64, u64)> {
        let of = |entry: &Entry| Seen {
            key: entry.key.load(Ordering::Acquire),
            base: entry.base.load(Ordering::Relaxed),
            len: entry.len.load(Ordering::Relaxed),
            access: entry.access.load(Ordering::Relaxed),
        };
        chosen(&self.0.each_ref().map(of), key, access)
    }

    /// The same of the peer's, which lie at this address there.
    pub(super) fn find_far(pid: u32, at: u64, key: u32, access: Access) -> Option<(u64, u64)> {
        let mut seen = [Seen::default(); ENTRIES];
        // SAFETY: `seen` is writable for its size, and plain numbers.
        let n = unsafe { vm::read(pid, at, seen.as_mut_ptr().cast(), size_of_val(&seen)) };
        if n == Ok(size_of_val(&seen)) {
            chosen(&seen, key, access)
        } else {
            None
        }
    }
}

fn chosen(entries: &[Seen; ENTRIES], key: u32, access: Access) -> Option<(u64, u64)> {
    let mut entries = entries.iter();
    let found = entries.find(|e| e.key == u64::from(key) && e.access == number(access))?;
    (key != 0).then_some((found.base, found.len))
}

/// Those that are kept: fewer than there is room for.
pub(super) const BOUNDS: Bounds = Bounds {
    count: 4,
    bytes: 12 << 20,
};
const _: () = assert!(BOUNDS.count < ENTRIES);

/// One registration.
#[derive(Debug)]
pub(super) struct Guest {
    door: &'static Door,
    place: usize,
    key: u32,
}

/// One that others have as well, or will.
#[derive(Debug)]
struct Shared(Arc<Guest>);

/// Registers memory; none if there is no room.
pub(super) fn register(
    door: &'static Door,
    memory: NonNull<u8>,
    len: usize,
    access: Access,
) -> Option<Box<dyn Registered>> {
    let range = Range::new(memory.as_ptr().expose_provenance(), len)?;
    Some(Box::new(Guest::new(door, range, access)?))
}

/// The same for this side's own Reads, by one that is kept or is from here on.
pub(super) fn register_kept(
    door: &'static Door,
    kept: &Lock<Kept<Guest>>,
    memory: NonNull<u8>,
    len: usize,
) -> Option<Box<dyn Registered>> {
    let range = Range::new(memory.as_ptr().expose_provenance(), len)?;
    let guest = kept.with(|kept| {
        if let Some(found) = kept.find(range, Access::Takes) {
            return Some(found);
        }
        let range = range.widened().unwrap_or(range);
        let made = Arc::new(Guest::new(door, range, Access::Takes)?);
        drop(kept.keep(range, Access::Takes, Arc::clone(&made)));
        Some(made)
    })?;
    Some(Box::new(Shared(guest)))
}

impl Guest {
    fn new(door: &'static Door, range: Range, access: Access) -> Option<Self> {
        let key = crate::verbs::random()? | 1;
        let place = door.guests.0.iter().position(|entry| {
            // (taken, and not for anybody to find yet)
            let taken =
                entry
                    .access
                    .compare_exchange(0, u64::MAX, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        })?;
        let entry = door.guests.0.get(place)?;
        entry.base.store(range.from as u64, Ordering::Relaxed);
        entry.len.store(range.len() as u64, Ordering::Relaxed);
        entry.access.store(number(access), Ordering::Relaxed);
        entry.key.store(key.into(), Ordering::SeqCst);
        Some(Self { door, place, key })
    }
}

impl Registered for Shared {
    fn lkey(&self) -> u32 {
        self.0.key
    }

    fn rkey(&self) -> u32 {
        0
    }
}

impl Registered for Guest {
    fn lkey(&self) -> u32 {
        self.key
    }

    fn rkey(&self) -> u32 {
        self.key
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Some(entry) = self.door.guests.0.get(self.place) {
            entry.key.store(0, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            self.door.rest();
            entry.access.store(0, Ordering::Release);
        }
    }
}
