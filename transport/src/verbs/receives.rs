//! The receives of queue pairs over RoCE. They take no octets: each stands for a Write of the peer's that tells a word, or for a
//! message. So it does not matter whose they are, and all queue pairs of a device draw from one queue (a shared receive
//! queue, ibv_create_srq(3)): a thousand connections have as many receives as one.
//!
//! - How many a queue pair can have drawn and not polled its peer counts (`ledger`), so no completion queue overflows.
//! - The queue is filled again as words are polled, by whoever polls: until the device takes no more, which also makes up
//!   for those that others have drawn and do not poll; and now and then by [`Shared::fill`]. If it runs dry all the same,
//!   the peers' adapters are told "receiver not ready" and ask again.
//! - Where the peer sends octets (the credit scheme) a queue pair has receives of its own with memory, [`Slots`]: words and messages
//!   draw on these as well, and theirs are posted again at once. There are as many as may be under way or unread together.
//! - Where a device has none, or no room for one, each queue pair has receives of its own, for all that its peer may tell.

use super::TELLS;
use super::device::Device;
use super::ffi::types::{Context, Opaque, Qp, RecvWr, Sge, SrqAttr, SrqInitAttr};
use super::ledger::RESERVE;
use super::{DEPTH, RECEIVES, ffi};
use crate::sys::{Errno, Result};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// The id of every receive: no work request of ours has it.
pub(super) const RECEIVE: u64 = u64::MAX;

/// Receives of a device's queue, and of a queue pair's own.
const SHARED: u32 = 1024;
const OWN: u32 = (TELLS + RESERVE) as u32;
/// How many lack before they are posted anew.
const LACKING: u32 = DEPTH as u32;
/// Posted in one call.
const AT_ONCE: usize = 16;

const NOTHING: RecvWr = RecvWr {
    wr_id: RECEIVE,
    next: ptr::null_mut(),
    sg_list: ptr::null_mut(),
    num_sge: 0,
};

/// A device's queue. Never given back, as the device.
#[derive(Debug)]
pub(super) struct Shared {
    context: NonNull<Context>,
    queue: NonNull<Opaque>,
    /// As many as the device has made room for.
    room: u32,
    /// Receives that were polled and are not posted anew.
    lacks: AtomicU32,
}

// SAFETY: libibverbs may be called from any thread, posting too (verbs(7)).
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// A queue of this device, filled; none if it has none, or no room.
    pub(super) fn new(device: &Device) -> Option<&'static Self> {
        let mut attr = SrqInitAttr {
            srq_context: ptr::null_mut(),
            attr: SrqAttr {
                max_wr: SHARED,
                max_sge: 1,
                srq_limit: 0,
            },
        };
        // SAFETY: an open device's domain; what is granted is written back.
        let made = unsafe { (device.library.create_srq)(device.pd.as_ptr(), &raw mut attr) };
        let shared: &'static Self = Box::leak(Box::new(Self {
            context: device.context,
            queue: NonNull::new(made)?,
            room: attr.attr.max_wr.max(SHARED),
            lacks: AtomicU32::new(0),
        }));
        shared.fill();
        Some(shared)
    }

    pub(super) const fn as_ptr(&self) -> *mut Opaque {
        self.queue.as_ptr()
    }

    /// Posts as many as the queue takes.
    pub(super) fn fill(&self) {
        self.lacks.store(0, Ordering::Relaxed);
        // SAFETY: a device is never closed; its table of functions does not change.
        let Some(post) = unsafe { self.context.as_ref() }.ops.post_srq_recv else {
            return;
        };
        // (others may be polling meanwhile: no more than once through)
        for _ in 0..=self.room / AT_ONCE as u32 {
            // SAFETY: a queue of this device's.
            if post_some(AT_ONCE, |first, bad| unsafe {
                post(self.as_ptr(), first, bad)
            })
            .is_err()
            {
                return; // full
            }
        }
    }

    fn polled(&self, n: u32) {
        if self.lacks.fetch_add(n, Ordering::Relaxed) + n >= LACKING {
            self.fill();
        }
    }
}

/// The ids of receives with memory begin with this one, their slots behind it: no work request has so many before it.
const FIRST_SLOT: u64 = 1 << 63;

/// The slot of a receive with this id, if it has one.
pub(super) fn slot_of(id: u64) -> Option<u32> {
    let slot = u32::try_from(id.checked_sub(FIRST_SLOT)?).ok()?;
    ((slot as usize) < RECEIVES).then_some(slot)
}

/// The memory of receives: [`RECEIVES`] of so many octets, one behind the other, registered under this key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots {
    pub(super) base: NonNull<u8>,
    pub(super) size: u32,
    pub(super) lkey: u32,
}

impl Slots {
    /// Posts receives with the memory of these.
    pub(super) fn post(&self, qp: NonNull<Qp>, slots: &mut dyn Iterator<Item = u32>) -> Result<()> {
        // SAFETY: a queue pair of a device, which is never closed; its table of functions does not change.
        let post = unsafe { (*qp.as_ref().context).ops.post_recv }.ok_or(Errno(libc::ENOTSUP))?;
        loop {
            let mut pieces = [Sge::default(); AT_ONCE];
            let mut requests = [NOTHING; AT_ONCE];
            let mut n = 0;
            for ((slot, piece), request) in slots.take(AT_ONCE).zip(&mut pieces).zip(&mut requests)
            {
                let at = self.base.as_ptr().expose_provenance() as u64;
                *piece = Sge {
                    addr: at + u64::from(slot) * u64::from(self.size),
                    length: self.size,
                    lkey: self.lkey,
                };
                request.wr_id = FIRST_SLOT + u64::from(slot);
                (request.sg_list, request.num_sge) = (piece, 1);
                n += 1;
            }
            if n == 0 {
                return Ok(());
            }
            let first = link(&mut requests, n);
            let mut bad = ptr::null_mut();
            // SAFETY: a queue pair of its caller's, and a list of requests of one piece each that lives until it returns.
            ffi::check(unsafe { post(qp.as_ptr(), first, &raw mut bad) })?;
        }
    }
}

/// Those of one queue pair.
#[derive(Debug)]
pub(super) enum Receives {
    Slots(Slots),
    Shared(&'static Shared),
    /// With how many were polled and are not posted anew.
    Own(AtomicU32),
}

impl Receives {
    /// The device's, or none yet of its own.
    pub(super) fn of(device: &Device, slots: Option<Slots>) -> Self {
        if let Some(slots) = slots {
            return Self::Slots(slots);
        }
        match device.receives() {
            Some(shared) => Self::Shared(shared),
            None => Self::Own(AtomicU32::new(OWN)),
        }
    }

    /// The queue for a queue pair, and how many it has of its own.
    pub(super) const fn queue(&self) -> (*mut Opaque, u32) {
        match self {
            Self::Shared(shared) => (shared.as_ptr(), 0),
            Self::Own(_) => (ptr::null_mut(), OWN),
            Self::Slots(_) => (ptr::null_mut(), RECEIVES as u32),
        }
    }

    /// This queue pair's completions of so many were polled. (What fails shows by its work.)
    pub(super) fn polled(&self, qp: NonNull<Qp>, n: u32) {
        match self {
            Self::Shared(shared) => shared.polled(n),
            Self::Own(lacks) if lacks.fetch_add(n, Ordering::AcqRel) + n >= LACKING => {
                let _ = self.post(qp);
            }
            Self::Own(_) | Self::Slots(_) => {}
        }
    }

    /// Those with memory.
    pub(super) const fn slots(&self) -> Option<&Slots> {
        match self {
            Self::Slots(slots) => Some(slots),
            Self::Shared(_) | Self::Own(_) => None,
        }
    }

    /// Posts those of its own that lack; of those with memory all, once.
    pub(super) fn post(&self, qp: NonNull<Qp>) -> Result<()> {
        let lacks = match self {
            Self::Slots(slots) => return slots.post(qp, &mut (0..RECEIVES as u32)),
            Self::Shared(_) => return Ok(()),
            Self::Own(lacks) => lacks,
        };
        // SAFETY: a queue pair of a device, which is never closed; its table of functions does not change.
        let post = unsafe { (*qp.as_ref().context).ops.post_recv }.ok_or(Errno(libc::ENOTSUP))?;
        let mut left = lacks.swap(0, Ordering::AcqRel) as usize;
        while left > 0 {
            let n = left.min(AT_ONCE);
            // SAFETY: a queue pair of its caller's.
            let posted = post_some(n, |first, bad| unsafe { post(qp.as_ptr(), first, bad) });
            if posted.is_err() {
                lacks.fetch_add(u32::try_from(left).unwrap_or(0), Ordering::AcqRel);
                return posted;
            }
            left -= n;
        }
        Ok(())
    }
}

/// Posts so many, [`AT_ONCE`] at most, by this call, which takes a list that lives until it returns.
fn post_some(n: usize, post: impl Fn(*mut RecvWr, *mut *mut RecvWr) -> i32) -> Result<()> {
    let mut requests = [NOTHING; AT_ONCE];
    let mut bad = ptr::null_mut();
    ffi::check(post(link(&mut requests, n), &raw mut bad))
}

/// Has each of the first so many point to the one behind. The first; they must not move from here on.
fn link(requests: &mut [RecvWr; AT_ONCE], n: usize) -> *mut RecvWr {
    let mut next: *mut RecvWr = ptr::null_mut();
    for request in requests.iter_mut().take(n).rev() {
        request.next = next;
        next = request;
    }
    next
}
