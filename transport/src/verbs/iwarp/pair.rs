//! A queue pair of an iWARP device: what is posted to it and what it says, as it is. What that means for the work that
//! it came of is [`Ledger`]'s.
//!
//! - Receives have room for the longest [`Message`].
//! - Sends and receives have a completion queue each. Only the one of receives has an event, for whatever is in it: siw
//!   tells of no solicited ones. A connection that ends shows there, since all receives end with it.
//!
//! Rule: as a [`Carrier`] it is called by one thread at a time.

use super::super::channel::Channel;
use super::super::counted::{Carrier, Look};
use super::super::device::Device;
use super::super::ffi;
use super::super::ffi::types::{
    Context, Cq, QPT_RC, Qp, QpAttr, QpCap, QpInitAttr, RecvWr, Sge, WC_RECV, Wc, access, mask,
    state,
};
use super::super::ledger::{Ledger, RESERVE};
use super::super::message::{LONGEST, Message};
use super::super::region::Region;
use super::super::{BATCH, DEPTH, INLINE, TELLS};
use super::chain::Chain;
use crate::sys::mem::Mapping;
use crate::sys::{Errno, Result};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// Receives that are posted.
const RECEIVES: usize = TELLS + RESERVE;
/// Octets of what they are written to.
const SLOTS: usize = (RECEIVES * LONGEST).next_multiple_of(4096);
/// A Write and its Send for each work request, and messages of our own.
const SENDS: usize = 2 * DEPTH + 2 * RESERVE;
/// Completions taken in one go.
const TAKEN: usize = 16;
/// The number of a message of our own: no work request has it.
const OWN: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Pair {
    device: &'static Device,
    qp: NonNull<Qp>,
    sends: NonNull<Cq>,
    receives: NonNull<Cq>,
    channel: Channel,
    /// Events that were read and have to be acknowledged in the end.
    events: AtomicU32,
    // (in this order: the memory goes last)
    region: Region,
    slots: Mapping,
}

// SAFETY: libibverbs may be called from any thread, posting and polling too (verbs(7)).
unsafe impl Send for Pair {}
// SAFETY: as above.
unsafe impl Sync for Pair {}

impl Pair {
    /// A queue pair of this device, not connected.
    ///
    /// # Errors
    /// ENOMEM and the like, ENOTSUP where a device has no inline data.
    pub(super) fn new(device: &'static Device) -> Result<Self> {
        let slots = Mapping::family(SLOTS)?;
        // SAFETY: the memory goes after the registration, and is only read as memory that others write.
        let region = unsafe { Region::register(device, slots.base(), SLOTS) }?;
        let channel = Channel::new(device)?;
        let sends = completion_queue(device, SENDS, None)?;
        let made = completion_queue(device, RECEIVES, Some(&channel)).and_then(|receives| {
            create(device, sends, receives)
                .map(|made| (receives, made))
                // SAFETY: just made, nothing refers to it.
                .inspect_err(|_| _ = unsafe { (device.library.destroy_cq)(receives.as_ptr()) })
        });
        let (receives, (qp, granted)) = made
            // SAFETY: as above.
            .inspect_err(|_| _ = unsafe { (device.library.destroy_cq)(sends.as_ptr()) })?;
        let made = Self {
            device,
            qp,
            sends,
            receives,
            channel,
            events: AtomicU32::new(0),
            region,
            slots,
        };
        if granted.max_inline_data < INLINE {
            return Err(Errno(libc::ENOTSUP));
        }
        made.modify(
            QpAttr {
                qp_state: state::INIT,
                qp_access_flags: access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_READ,
                ..QpAttr::default()
            },
            mask::STATE | mask::ACCESS_FLAGS,
        )?;
        let mut all = 0..RECEIVES;
        while !all.is_empty() {
            let some = all.by_ref().take(TAKEN);
            let mut slots = [0; TAKEN];
            let mut n = 0;
            for (place, slot) in slots.iter_mut().zip(some) {
                *place = slot as u64;
                n += 1;
            }
            made.post_receives(slots.get(..n).unwrap_or_default())?;
        }
        Ok(made)
    }

    pub(super) const fn number(&self) -> u32 {
        // SAFETY: a queue pair lives until it is destroyed, and this is not changed.
        unsafe { self.qp.as_ref() }.qp_num
    }

    pub(super) const fn event(&self) -> i32 {
        self.channel.fd()
    }

    /// As [`super::super::Adapter::arm`].
    pub(super) fn arm(&self) -> Result<()> {
        let Some(notify) = self.context().ops.req_notify_cq else {
            return Err(Errno(libc::ENOTSUP));
        };
        // SAFETY: a completion queue of ours.
        ffi::check(unsafe { notify(self.receives.as_ptr(), 0) })
    }

    /// As [`super::super::Adapter::take_event`].
    pub(super) fn take_event(&self) -> bool {
        let taken = self.channel.take_event();
        if taken {
            self.events.fetch_add(1, Ordering::AcqRel);
        }
        taken
    }

    /// As [`super::super::Adapter::fail`].
    pub(super) fn fail(&self) {
        let attr = QpAttr {
            qp_state: state::ERR,
            ..QpAttr::default()
        };
        // A device that has been removed carries nothing out either.
        let _ = self.modify(attr, mask::STATE);
    }

    fn modify(&self, mut attr: QpAttr, mask: i32) -> Result<()> {
        // SAFETY: a queue pair of ours; `attr` is readable.
        ffi::check(unsafe {
            (self.device.library.modify_qp)(self.qp.as_ptr(), &raw mut attr, mask)
        })
    }

    fn context(&self) -> &Context {
        // SAFETY: a device is never closed; its table of functions does not change.
        unsafe { self.device.context.as_ref() }
    }

    /// # Safety
    /// The memory of all requests is as [`super::super::Adapter::post`] wants it.
    unsafe fn post(&self, chain: &mut Chain) -> Result<()> {
        let Some(post) = self.context().ops.post_send else {
            return Err(Errno(libc::ENOTSUP));
        };
        let first = chain.link();
        let mut bad = ptr::null_mut();
        // SAFETY: a list of requests of one piece each, all of which live until the call returns; the caller's promise
        // for the memory.
        ffi::check(unsafe { post(self.qp.as_ptr(), first, &raw mut bad) })
    }

    fn take_receives(&self, ledger: &mut Ledger) -> Look {
        let mut taken = [Wc::default(); TAKEN];
        loop {
            let n = self.poll(self.receives, &mut taken);
            let (mut again, mut used) = ([0; TAKEN], 0);
            for (wc, again) in taken.iter().take(n).zip(&mut again) {
                // (all end with the connection)
                if wc.status != 0 || wc.opcode != WC_RECV {
                    return Look::Ended;
                }
                let message = Message::of(self.slot(wc.wr_id), wc.byte_len);
                if !ledger.hear(message) {
                    return Look::Ended;
                }
                *again = wc.wr_id;
                used += 1;
            }
            let again = again.get(..used).unwrap_or_default();
            if !again.is_empty() && self.post_receives(again).is_err() {
                return Look::Ended;
            }
            if n < TAKEN || !ledger.has_room(TAKEN) {
                return Look::Well;
            }
        }
    }

    fn poll(&self, cq: NonNull<Cq>, taken: &mut [Wc; TAKEN]) -> usize {
        let Some(poll) = self.context().ops.poll_cq else {
            return 0;
        };
        // SAFETY: a completion queue of ours, room for as many.
        let n = unsafe { poll(cq.as_ptr(), count(TAKEN), taken.as_mut_ptr()) };
        usize::try_from(n).unwrap_or(0).min(TAKEN)
    }

    /// Where a receive is written to.
    fn place(&self, slot: u64) -> *mut u8 {
        let slot = usize::try_from(slot).unwrap_or(0) % RECEIVES;
        // SAFETY: within the mapping.
        unsafe { self.slots.base().as_ptr().add(slot * LONGEST) }
    }

    /// What a receive was written.
    fn slot(&self, slot: u64) -> [u8; LONGEST] {
        // SAFETY: aligned and within the mapping; the adapter has ended writing there.
        let octets = unsafe { self.place(slot).cast::<u64>().read_volatile() };
        octets.to_ne_bytes()
    }

    /// Posts receives for these slots, [`TAKEN`] of them at most.
    fn post_receives(&self, slots: &[u64]) -> Result<()> {
        let Some(post) = self.context().ops.post_recv else {
            return Err(Errno(libc::ENOTSUP));
        };
        let mut pieces = [Sge::default(); TAKEN];
        let mut requests = [NOTHING; TAKEN];
        let mut next: *mut RecvWr = ptr::null_mut();
        for ((slot, piece), request) in slots.iter().zip(&mut pieces).zip(&mut requests).rev() {
            *piece = Sge {
                addr: self.place(*slot).expose_provenance() as u64,
                length: LONGEST as u32,
                lkey: self.region.lkey(),
            };
            request.wr_id = *slot;
            request.sg_list = piece;
            request.next = next;
            next = request;
        }
        let mut bad = ptr::null_mut();
        // SAFETY: a list of requests of one piece each, which lives until the call returns.
        ffi::check(unsafe { post(self.qp.as_ptr(), next, &raw mut bad) })
    }
}

impl Carrier for Pair {
    unsafe fn pump(&self, ledger: &mut Ledger) -> Look {
        while !ledger.has_ended() {
            let mut chain = Chain::new();
            let mut n = 0;
            for held in ledger.ready().take(BATCH) {
                chain.add(held);
                n += 1;
            }
            if n == 0 {
                return Look::Well;
            }
            // SAFETY: the caller's promise; what goes inline lies in the ledger and the chain.
            if unsafe { self.post(&mut chain) }.is_err() {
                return Look::Ended;
            }
            ledger.given(n);
        }
        Look::Ended
    }

    fn say(&self, message: Message) -> Look {
        let mut chain = Chain::new();
        chain.send(message, OWN, true);
        // SAFETY: octets of the chain, inline.
        match unsafe { self.post(&mut chain) } {
            Ok(()) => Look::Well,
            Err(_) => Look::Ended,
        }
    }

    fn take_in(&self, ledger: &mut Ledger) -> Look {
        let heard = self.take_receives(ledger);
        let mut taken = [Wc::default(); TAKEN];
        loop {
            let n = self.poll(self.sends, &mut taken);
            for wc in taken.iter().take(n) {
                if wc.wr_id != OWN {
                    ledger.completed(wc.wr_id, wc.status.unsigned_abs());
                } else if wc.status != 0 {
                    return Look::Ended;
                }
            }
            if n < TAKEN || !ledger.has_room(TAKEN) {
                return heard;
            }
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let library = self.device.library;
        // SAFETY: all are ours; the queue pair goes before what it refers to.
        unsafe {
            (library.destroy_qp)(self.qp.as_ptr());
            // It waits for events that were read and not acknowledged.
            (library.ack_cq_events)(self.receives.as_ptr(), self.events.load(Ordering::Acquire));
            (library.destroy_cq)(self.receives.as_ptr());
            (library.destroy_cq)(self.sends.as_ptr());
        }
    }
}

const NOTHING: RecvWr = RecvWr {
    wr_id: 0,
    next: ptr::null_mut(),
    sg_list: ptr::null_mut(),
    num_sge: 1,
};

fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(0)
}

fn completion_queue(
    device: &Device,
    room: usize,
    channel: Option<&Channel>,
) -> Result<NonNull<Cq>> {
    let (context, none) = (device.context.as_ptr(), ptr::null_mut());
    let channel = channel.map_or(ptr::null_mut(), Channel::as_ptr);
    // SAFETY: an open device and perhaps a channel of it; no context.
    let cq = unsafe { (device.library.create_cq)(context, count(room), none, channel, 0) };
    NonNull::new(cq).ok_or_else(ffi::last)
}

fn create(
    device: &Device,
    sends: NonNull<Cq>,
    receives: NonNull<Cq>,
) -> Result<(NonNull<Qp>, QpCap)> {
    let mut attr = QpInitAttr {
        qp_context: ptr::null_mut(),
        send_cq: sends.as_ptr(),
        recv_cq: receives.as_ptr(),
        srq: ptr::null_mut(),
        cap: QpCap {
            max_send_wr: SENDS as u32,
            max_recv_wr: RECEIVES as u32,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: INLINE,
        },
        qp_type: QPT_RC,
        sq_sig_all: 0,
    };
    // SAFETY: an open device's domain; what is granted is written back.
    let qp = unsafe { (device.library.create_qp)(device.pd.as_ptr(), &raw mut attr) };
    Ok((NonNull::new(qp).ok_or_else(ffi::last)?, attr.cap))
}
