//! Memory that a device reaches on demand: a registration that pins nothing (IBV_ACCESS_ON_DEMAND). Where the adapter comes to a page, the
//! kernel says which one lies there by then, and takes that back before it puts another there: for munmap(2), mremap(2), MADV_DONTNEED, fork
//! and copies on write alike. So such a registration never means an old page, and may outlast the call that made it ([`Kept`]).
//!
//! - Kept is what this side's own Reads put octets into. It gives the peer no right whatsoever, so nobody gets at the program's memory
//!   by it but this side, for as long as a call has named it.
//! - A page that is not there when the adapter comes is an error of its queue pair: the ring ends, and the kernel carries on.
//!
//! Rules: a device is asked whether it does that, and its word is not enough: it is tried once ([`super::trial`]), when somebody could have used
//! it, by the thread that makes the control calls. Whose registrations fail repeatedly is not believed any longer. All of it is the device's, so of one process: a child of fork has opened its own.

use super::Access;
use super::device::Port;
use super::ffi::on_demand_types::{
    DeviceAttrEx, Extended, IS_EXTENDED, ODP_SUPPORT, ODP_SUPPORT_READ, WholeContext,
};
use super::ffi::types::Context;
use super::kept::{Bounds, Kept, Range};
use super::lock::Lock;
use super::region::Region;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What is kept of each device. (For the kernel a page of it is 16 octets.)
const BOUNDS: Bounds = Bounds {
    count: 256,
    bytes: 512 << 20,
};

/// Failures of what is kept after which none is.
const FAILURES: u32 = 8;

/// Says that it does not, or has not proved it; or says that it does, and was not tried; or is to be; or has proved it.
const NO: u32 = 0;
const UNTRIED: u32 = 1;
const WANTED: u32 = 2;
const YES: u32 = 3;

/// A device's.
#[derive(Debug)]
pub(super) struct OnDemand {
    state: AtomicU32,
    /// By which port it is to be tried.
    port: Lock<Option<Port>>,
    failures: AtomicU32,
    kept: Lock<Kept<Region>>,
}

impl OnDemand {
    /// What this device says of itself.
    ///
    /// # Safety
    /// An open device.
    pub(super) unsafe fn of(context: NonNull<Context>) -> Self {
        // SAFETY: the caller's promise.
        let says = unsafe { says_so(context) };
        Self {
            state: AtomicU32::new(if says { UNTRIED } else { NO }),
            port: Lock::new(None),
            failures: AtomicU32::new(0),
            kept: Lock::new(Kept::new(BOUNDS)),
        }
    }

    /// Whether registrations are kept. If that is not known yet it will be, by way of this port.
    pub(super) fn is_on(&self, port: Port) -> bool {
        match self.state.load(Ordering::Acquire) {
            YES => true,
            UNTRIED => {
                self.port.with(|wanted| *wanted = Some(port));
                let (yes, no) = (Ordering::AcqRel, Ordering::Relaxed);
                let _ = self.state.compare_exchange(UNTRIED, WANTED, yes, no);
                false
            }
            _ => false,
        }
    }

    /// By which port it is to be tried, if it is.
    pub(super) fn wanted(&self) -> Option<Port> {
        let is_wanted = self.state.load(Ordering::Acquire) == WANTED;
        self.port.with(|port| port.take_if(|_| is_wanted))
    }

    /// It was.
    pub(super) fn tried(&self, proves: bool) {
        let state = if proves { YES } else { NO };
        self.state.store(state, Ordering::Release);
    }

    /// One that is kept and has this.
    pub(super) fn find(&self, range: Range) -> Option<Arc<Region>> {
        self.kept.with(|kept| kept.find(range, Access::Takes))
    }

    /// Keeps this one. What is to be given back for it, by the thread that registers.
    #[must_use]
    pub(super) fn keep(&self, range: Range, region: Arc<Region>) -> Vec<Arc<Region>> {
        self.kept
            .with(|kept| kept.keep(range, Access::Takes, region))
    }

    /// Work with this one has failed. What is to be given back, as above.
    #[must_use]
    pub(super) fn failed(&self, region: &Arc<Region>) -> Vec<Arc<Region>> {
        if self.failures.fetch_add(1, Ordering::AcqRel) + 1 < FAILURES {
            let gone = self.kept.with(|kept| kept.drop_one(region));
            return gone.into_iter().collect();
        }
        self.end()
    }

    /// None is kept any more. As above.
    #[must_use]
    pub(super) fn end(&self) -> Vec<Arc<Region>> {
        self.state.store(NO, Ordering::Release);
        self.kept.with(Kept::drop_all)
    }
}

/// Whether the device says that it reaches memory on demand, with what it is used for here.
///
/// # Safety
/// An open device.
unsafe fn says_so(context: NonNull<Context>) -> bool {
    let inner = offset_of!(Extended, context);
    // SAFETY: a context of the library's, as a whole; what lies in front of it is looked at only where it says that there is something.
    let extended = unsafe {
        let whole = context.as_ptr().cast::<WholeContext>();
        if (*whole).abi_compat.addr() != IS_EXTENDED {
            return false;
        }
        whole.byte_sub(inner).cast::<Extended>()
    };
    // SAFETY: what says how much there is lies right in front of the context.
    let query = unsafe {
        if (*extended).sz < size_of::<Extended>() {
            return false;
        }
        (*extended).query_device_ex
    };
    let mut attr = DeviceAttrEx::NONE;
    // SAFETY: an open device; no input; `attr` has the size that is named.
    let asked = query.map(|query| unsafe {
        let none = std::ptr::null();
        query(context.as_ptr(), none, &raw mut attr, size_of_val(&attr))
    });
    asked == Some(0) && attr.odp_general & ODP_SUPPORT != 0 && attr.odp_rc & ODP_SUPPORT_READ != 0
}
