//! A queue pair of the reliable connected kind with its completion queue (InfiniBand Architecture, volume 1, chapter 10;
//! ibv_modify_qp(3) for the states), and the channel that says when there is something in that (ibv_get_cq_event(3)).
//!
//! What is posted to it and what it says, as it is; what that means for the work that it came of is [`Ledger`]'s. The peer hears of
//! words by Writes with immediate data, and of how many were polled by Sends of nothing with some; both draw on [`Receives`].
//!
//! The completion queue is the connection's own: it is what wakes whoever sleeps on that connection, and no thread of the
//! library stands between. (With one of a process, or a thread, each word would wake all who sleep, or somebody would have to pass it on.)
//!
//! Rule: as a [`Carrier`] it is called by one thread at a time.

use super::address::Pair;
use super::channel::Channel;
use super::counted::{Carrier, Look};
use super::device::{Device, Port};
use super::ffi::types::{
    Context, Cq, QPT_RC, Qp, QpAttr, QpCap, QpInitAttr, SEND_INLINE, SEND_SIGNALED, SEND_SOLICITED,
    SendWr, Sge, WC_RECV, WC_RECV_RDMA_WITH_IMM, WC_WITH_IMM, WR_RDMA_READ, WR_RDMA_WRITE,
    WR_RDMA_WRITE_WITH_IMM, WR_SEND, WR_SEND_WITH_IMM, Wc, access, mask, state,
};
use super::ledger::{Held, Ledger, RESERVE};
use super::message::Message;
use super::receives::{RECEIVE, Receives, Slots, slot_of};
use super::{Address, BATCH, DEPTH, INLINE, Landed, Operation, TELLS, ffi};
use crate::sys::{Errno, Result};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// How long an acknowledgement may take: 4.096 µs times two to this power, 134 ms.
const TIMEOUT: u8 = 15;
/// How often a packet without one is sent again. With [`TIMEOUT`]: a link that is down is told after about a second
/// (devices may take up to four times their time-outs). Not 7, which for Linux's software RoCE is "for ever".
const RETRIES: u8 = 6;
/// Where it [insists](super::insist).
const MOST_RETRIES: u8 = 7;
/// "As often as it takes": a receiver that is not ready is one whose program is elsewhere. That is flow control, as the
/// adapters do it.
const RNR_RETRIES: u8 = 7;
/// Where octets go by Sends there is a receive for each: none is to be asked for again.
const NO_RETRIES: u8 = 0;
/// 0.64 ms, as encoded.
const MIN_RNR_TIMER: u8 = 12;
/// Reads under way at once, each way.
const READS: u8 = 1;

/// Completions taken in one go.
const TAKEN: usize = 16;

#[derive(Debug)]
pub(super) struct QueuePair {
    port: Port,
    channel: Channel,
    cq: NonNull<Cq>,
    qp: NonNull<Qp>,
    address: Pair,
    receives: Receives,
    /// Events that were read and have to be acknowledged in the end.
    events: AtomicU32,
}

// SAFETY: libibverbs may be called from any thread, posting and polling too (verbs(7)).
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// A queue pair at a port, not connected. With `slots` its peer sends octets into these.
    ///
    /// # Errors
    /// ENOMEM and the like, ENOTSUP where a device has no inline data.
    pub(super) fn new(port: Port, slots: Option<Slots>) -> Result<Self> {
        let device = port.device;
        let psn = super::random().ok_or(Errno::AGAIN)? & super::address::BITS_24;
        let channel = Channel::new(device)?;
        let cq = completion_queue(device, &channel)?;
        let receives = Receives::of(device, slots);
        let (qp, granted) = match create(device, cq, &receives) {
            Ok(made) => made,
            Err(e) => {
                // SAFETY: just made, nothing refers to it.
                unsafe { (device.library.destroy_cq)(cq.as_ptr()) };
                return Err(e);
            }
        };
        // SAFETY: a queue pair lives until it is destroyed, and this is not changed.
        let qpn = unsafe { (*qp.as_ptr()).qp_num };
        let made = Self {
            port,
            channel,
            cq,
            qp,
            address: Pair {
                kind: port.here.kind,
                mtu: port.mtu,
                qpn,
                psn,
                gid: port.here.gid,
                takes: slots.is_some(),
            },
            receives,
            events: AtomicU32::new(0),
        };
        if granted.max_inline_data < INLINE {
            return Err(Errno(libc::ENOTSUP));
        }
        made.modify(
            QpAttr {
                qp_state: state::INIT,
                port_num: port.here.port,
                pkey_index: port.pkey_index,
                qp_access_flags: access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_READ,
                ..QpAttr::default()
            },
            mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::ACCESS_FLAGS,
        )?;
        made.receives.post(made.qp)?;
        Ok(made)
    }

    pub(super) const fn port(&self) -> Port {
        self.port
    }

    pub(super) const fn event(&self) -> i32 {
        self.channel.fd()
    }

    /// As [`super::Adapter::arm`].
    pub(super) fn arm(&self) -> Result<()> {
        let Some(notify) = self.context().ops.req_notify_cq else {
            return Err(Errno(libc::ENOTSUP));
        };
        // (what the peer tells is solicited; what fails always counts)
        // SAFETY: a completion queue of ours.
        ffi::check(unsafe { notify(self.cq.as_ptr(), 1) })
    }

    /// As [`super::Adapter::take_event`].
    pub(super) fn take_event(&self) -> bool {
        let taken = self.channel.take_event();
        if taken {
            self.events.fetch_add(1, Ordering::AcqRel);
        }
        taken
    }

    fn modify(&self, mut attr: QpAttr, mask: i32) -> Result<()> {
        let library = self.port.device.library;
        // SAFETY: a queue pair of ours; `attr` is readable.
        ffi::check(unsafe { (library.modify_qp)(self.qp.as_ptr(), &raw mut attr, mask) })
    }

    pub(super) const fn address(&self) -> Address {
        Address::Pair(self.address)
    }

    /// As [`super::Adapter::connect`].
    pub(super) fn connect(&self, peer: &Address) -> Result<()> {
        let Address::Pair(peer) = peer else {
            return Err(Errno::INVAL);
        };
        let route = self.port.here.to(peer)?;
        self.modify(
            QpAttr {
                qp_state: state::RTR,
                ah_attr: route,
                path_mtu: self.address.mtu.min(peer.mtu).into(),
                dest_qp_num: peer.qpn,
                rq_psn: peer.psn,
                max_dest_rd_atomic: READS,
                min_rnr_timer: MIN_RNR_TIMER,
                ..QpAttr::default()
            },
            mask::STATE
                | mask::AV
                | mask::PATH_MTU
                | mask::DEST_QPN
                | mask::RQ_PSN
                | mask::MAX_DEST_RD_ATOMIC
                | mask::MIN_RNR_TIMER,
        )?;
        self.modify(
            QpAttr {
                qp_state: state::RTS,
                timeout: TIMEOUT,
                retry_cnt: if super::insists() {
                    MOST_RETRIES
                } else {
                    RETRIES
                },
                rnr_retry: if peer.takes { NO_RETRIES } else { RNR_RETRIES },
                sq_psn: self.address.psn,
                max_rd_atomic: READS,
                ..QpAttr::default()
            },
            mask::STATE
                | mask::TIMEOUT
                | mask::RETRY_CNT
                | mask::RNR_RETRY
                | mask::SQ_PSN
                | mask::MAX_QP_RD_ATOMIC,
        )
    }

    fn context(&self) -> &Context {
        // SAFETY: a device is never closed; its table of functions does not change.
        unsafe { self.port.device.context.as_ref() }
    }

    /// Octets of the longest message.
    pub(super) const fn longest(&self) -> u32 {
        self.port.longest
    }

    /// Posts these, the first of which points to the next.
    ///
    /// # Safety
    /// Of one piece each at most, all of which stay until it returns; their memory is as [`super::Adapter::post`] wants it.
    unsafe fn post(&self, first: *mut SendWr) -> Result<()> {
        let post = self.context().ops.post_send.ok_or(Errno(libc::ENOTSUP))?;
        let mut bad = ptr::null_mut();
        // SAFETY: the caller's promise.
        ffi::check(unsafe { post(self.qp.as_ptr(), first, &raw mut bad) })
    }

    /// As [`super::Adapter::receive`].
    pub(super) fn receive(&self, slots: &mut dyn Iterator<Item = u32>) -> Result<()> {
        let memory = self.receives.slots().ok_or(Errno(libc::ENOTSUP))?;
        memory.post(self.qp, slots)
    }

    /// A receive with memory has ended.
    fn received(&self, ledger: &mut Ledger, wc: &Wc, slot: u32) -> Look {
        if wc.status != 0 {
            return Look::Well; // (as those without)
        }
        if wc.opcode == WC_RECV && wc.wc_flags & WC_WITH_IMM == 0 {
            ledger.land(Landed {
                slot,
                len: wc.byte_len,
            });
            return Look::Well;
        }
        let again = self.receive(&mut std::iter::once(slot));
        match ledger.hear(heard(wc)) && again.is_ok() {
            true => Look::Well,
            false => Look::Ended,
        }
    }

    /// As [`super::Adapter::fail`].
    pub(super) fn fail(&self) {
        let attr = QpAttr {
            qp_state: state::ERR,
            ..QpAttr::default()
        };
        // A device that has been removed carries nothing out either.
        let _ = self.modify(attr, mask::STATE);
    }
}

impl Carrier for QueuePair {
    unsafe fn pump(&self, ledger: &mut Ledger) -> Look {
        while !ledger.has_ended() {
            let mut pieces = [Sge::default(); BATCH];
            let mut requests = [SendWr::EMPTY; BATCH];
            let mut n = 0;
            for ((held, piece), request) in ledger.ready().zip(&mut pieces).zip(&mut requests) {
                (*piece, *request) = describe(held);
                request.sg_list = piece;
                n += 1;
            }
            if n == 0 {
                return Look::Well;
            }
            let mut next: *mut SendWr = ptr::null_mut();
            for request in requests.iter_mut().take(n).rev() {
                request.next = next;
                next = request;
            }
            // SAFETY: they and what goes inline, which lies in the ledger, stay; the caller's promise for the rest.
            if unsafe { self.post(next) }.is_err() {
                return Look::Ended;
            }
            ledger.given(n);
        }
        Look::Ended
    }

    fn take_in(&self, ledger: &mut Ledger) -> Look {
        let Some(poll) = self.context().ops.poll_cq else {
            return Look::Ended;
        };
        let (mut look, mut received) = (Look::Well, 0);
        loop {
            let mut taken = [Wc::default(); TAKEN];
            // SAFETY: room for as many.
            let n = unsafe { poll(self.cq.as_ptr(), count(TAKEN), taken.as_mut_ptr()) };
            let n = usize::try_from(n).unwrap_or(0).min(TAKEN);
            for wc in taken.iter().take(n) {
                let well = wc.status == 0;
                match wc.wr_id {
                    // (those that nothing came for end with the queue pair: its work says so)
                    RECEIVE if !well => {}
                    RECEIVE => {
                        received += 1;
                        if !ledger.hear(heard(wc)) {
                            look = Look::Ended;
                        }
                    }
                    id if let Some(slot) = slot_of(id) => {
                        if self.received(ledger, wc, slot) == Look::Ended {
                            look = Look::Ended;
                        }
                    }
                    OWN if well => {}
                    OWN => look = Look::Ended,
                    number => ledger.completed(number, wc.status.unsigned_abs()),
                }
            }
            if n < TAKEN || !ledger.has_room(TAKEN) {
                break;
            }
        }
        if received > 0 {
            self.receives.polled(self.qp, received);
        }
        look
    }

    fn say(&self, message: Message) -> Look {
        let Message::Credits(n) = message else {
            return Look::Well; // (words go with Writes)
        };
        let mut request = SendWr {
            wr_id: OWN,
            opcode: WR_SEND_WITH_IMM,
            send_flags: SEND_SIGNALED | SEND_SOLICITED,
            imm_data: n.to_be(),
            num_sge: 0,
            ..SendWr::EMPTY
        };
        // SAFETY: one, without octets.
        match unsafe { self.post(&raw mut request) } {
            Ok(()) => Look::Well,
            Err(_) => Look::Ended,
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let library = self.port.device.library;
        // SAFETY: both are ours; the queue pair goes before what it refers to.
        unsafe {
            (library.destroy_qp)(self.qp.as_ptr());
            // It waits for events that were read and not acknowledged.
            (library.ack_cq_events)(self.cq.as_ptr(), self.events.load(Ordering::Acquire));
            (library.destroy_cq)(self.cq.as_ptr());
        }
    }
}

/// The number of a message of our own: neither work nor a receive has it.
const OWN: u64 = RECEIVE - 1;

fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(0)
}

/// What the peer has said, if it is anything.
const fn heard(wc: &Wc) -> Option<Message> {
    match wc.opcode {
        WC_RECV_RDMA_WITH_IMM => Some(Message::Word(u32::from_be(wc.imm_data))),
        WC_RECV => Some(Message::Credits(u32::from_be(wc.imm_data))),
        _ => None,
    }
}

/// The structures for a work request, not linked yet.
fn describe(held: &Held) -> (Sge, SendWr) {
    let work = &held.work;
    let signaled = if work.signaled { SEND_SIGNALED } else { 0 };
    let (write, solicited) = match work.tell {
        Some(_) => (WR_RDMA_WRITE_WITH_IMM, SEND_SOLICITED),
        None => (WR_RDMA_WRITE, 0),
    };
    let (opcode, inline) = match work.operation {
        Operation::Write => (write, 0),
        Operation::WriteInline if work.len > 0 => (write, SEND_INLINE),
        Operation::WriteInline => (write, 0),
        Operation::Read => (WR_RDMA_READ, 0),
        // (no word: octets are what wakes)
        Operation::Send => (WR_SEND, SEND_SOLICITED),
    };
    let (from, lkey) = match work.operation {
        Operation::WriteInline => (held.inline.as_ptr(), 0),
        _ => (work.local.cast_const(), work.lkey),
    };
    (
        Sge {
            addr: from.expose_provenance() as u64,
            length: work.len,
            lkey,
        },
        SendWr {
            wr_id: held.number,
            opcode,
            send_flags: signaled | inline | solicited,
            imm_data: work.tell.unwrap_or(0).to_be(),
            num_sge: i32::from(work.len > 0),
            remote_addr: work.remote,
            rkey: work.rkey,
            ..SendWr::EMPTY
        },
    )
}

/// Work and messages of our own that can be outstanding, and what the peer may have said that is not polled. Work that goes
/// wrong tells even if it is not signaled.
const SENDS: u32 = (DEPTH + RESERVE) as u32;
const SAID: u32 = (TELLS + RESERVE) as u32;

fn completion_queue(device: &Device, channel: &Channel) -> Result<NonNull<Cq>> {
    let (context, none) = (device.context.as_ptr(), ptr::null_mut());
    let room = (SENDS + SAID).cast_signed();
    // SAFETY: an open device and a channel of it; no context.
    let cq = unsafe { (device.library.create_cq)(context, room, none, channel.as_ptr(), 0) };
    NonNull::new(cq).ok_or_else(ffi::last)
}

fn create(device: &Device, cq: NonNull<Cq>, receives: &Receives) -> Result<(NonNull<Qp>, QpCap)> {
    let (srq, own) = receives.queue();
    let mut attr = QpInitAttr {
        qp_context: ptr::null_mut(),
        send_cq: cq.as_ptr(),
        recv_cq: cq.as_ptr(),
        srq,
        cap: QpCap {
            max_send_wr: SENDS,
            max_recv_wr: own,
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
