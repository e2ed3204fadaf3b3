//! A queue pair of the reliable connected kind with its completion queue (InfiniBand Architecture, volume 1, chapter 10;
//! ibv_modify_qp(3) for the states), and the channel that says when there is something in that (ibv_get_cq_event(3)).
//!
//! Receives take no octets: each stands for a Write of the peer's that tells a word. They are posted anew, some at a time,
//! as they are polled. Where they run out, the peer's adapter is told "receiver not ready" and asks again.

use super::address::{Kind, Pair};
use super::channel::Channel;
use super::device::{Device, Port};
use super::ffi::types::{
    AhAttr, Context, Cq, Gid, GlobalRoute, QPT_RC, Qp, QpAttr, QpCap, QpInitAttr, RecvWr,
    SEND_INLINE, SEND_SIGNALED, SEND_SOLICITED, SendWr, Sge, WC_RECV_RDMA_WITH_IMM, WR_RDMA_READ,
    WR_RDMA_WRITE, WR_RDMA_WRITE_WITH_IMM, Wc, access, mask, state,
};
use super::{Address, BATCH, DEPTH, Done, INLINE, Operation, TELLS, Work, ffi};
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
/// 0.64 ms, as encoded.
const MIN_RNR_TIMER: u8 = 12;
const HOPS: u8 = 64;
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
    /// Receives that were polled and are not posted anew.
    lacks: AtomicU32,
    /// Events that were read and have to be acknowledged in the end.
    events: AtomicU32,
}

// SAFETY: libibverbs may be called from any thread, posting and polling too (verbs(7)).
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// A queue pair at a port, not connected.
    ///
    /// # Errors
    /// ENOMEM and the like, ENOTSUP where a device has no inline data.
    pub(super) fn new(port: Port) -> Result<Self> {
        let device = port.device;
        let psn = super::random().ok_or(Errno::AGAIN)? & super::address::BITS_24;
        let channel = Channel::new(device)?;
        let cq = completion_queue(device, &channel)?;
        let (qp, granted) = match create(device, cq) {
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
                kind: port.kind,
                mtu: port.mtu,
                qpn,
                psn,
                gid: port.gid,
            },
            lacks: AtomicU32::new(RECEIVES),
            events: AtomicU32::new(0),
        };
        if granted.max_inline_data < INLINE {
            return Err(Errno(libc::ENOTSUP));
        }
        made.modify(
            QpAttr {
                qp_state: state::INIT,
                port_num: port.number,
                qp_access_flags: access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_READ,
                ..QpAttr::default()
            },
            mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::ACCESS_FLAGS,
        )?;
        made.post_receives()?;
        Ok(made)
    }

    /// Posts receives anew for all that lack.
    fn post_receives(&self) -> Result<()> {
        let Some(post) = self.context().ops.post_recv else {
            return Err(Errno(libc::ENOTSUP));
        };
        let mut lacks = self.lacks.swap(0, Ordering::AcqRel);
        while lacks > 0 {
            let mut requests = [NOTHING; RECEIVES_AT_ONCE];
            let n = lacks.min(RECEIVES_AT_ONCE as u32);
            let mut next: *mut RecvWr = ptr::null_mut();
            for request in requests.iter_mut().take(n as usize).rev() {
                request.next = next;
                next = request;
            }
            let mut bad = ptr::null_mut();
            // SAFETY: a list of requests without pieces, which lives until the call returns.
            let posted = ffi::check(unsafe { post(self.qp.as_ptr(), next, &raw mut bad) });
            if posted.is_err() {
                self.lacks.fetch_add(lacks, Ordering::AcqRel);
                return posted;
            }
            lacks -= n;
        }
        Ok(())
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
        let route = match (self.address.kind, peer.kind) {
            (Kind::Roce, Kind::Roce) | (Kind::RoceV1, Kind::RoceV1) => AhAttr {
                grh: GlobalRoute {
                    dgid: Gid(peer.gid),
                    sgid_index: self.port.gid_index,
                    hop_limit: HOPS,
                    ..GlobalRoute::default()
                },
                is_global: 1,
                port_num: self.port.number,
                ..AhAttr::default()
            },
            _ => return Err(Errno::INVAL),
        };
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
                rnr_retry: RNR_RETRIES,
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

    /// As [`super::Adapter::post`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn post(&self, work: &[Work]) -> Result<()> {
        super::check(work, self.port.longest)?;
        let (Some(post), false) = (self.context().ops.post_send, work.is_empty()) else {
            return Ok(());
        };
        let mut pieces = [Sge::default(); BATCH];
        let mut requests = [SendWr::EMPTY; BATCH];
        let mut next: *mut SendWr = ptr::null_mut();
        // From the last to the first, each pointing to the one behind.
        for ((work, piece), request) in work.iter().zip(&mut pieces).zip(&mut requests).rev() {
            (*piece, *request) = describe(work);
            request.sg_list = piece;
            request.next = next;
            next = request;
        }
        let mut bad = ptr::null_mut();
        // SAFETY: a list of requests of one piece each, all of which live until the call returns; the caller's promise
        // for the memory.
        ffi::check(unsafe { post(self.qp.as_ptr(), next, &raw mut bad) })
    }

    /// As [`super::Adapter::poll`].
    pub(super) fn poll(&self, done: &mut [Done]) -> usize {
        let Some(poll) = self.context().ops.poll_cq else {
            return 0;
        };
        let (mut filled, mut told) = (0, 0);
        while let Some(room) = done.get_mut(filled..).filter(|room| !room.is_empty()) {
            let mut taken = [Wc::default(); TAKEN];
            let most = room.len().min(TAKEN);
            // SAFETY: room for as many.
            let n = unsafe { poll(self.cq.as_ptr(), count(most), taken.as_mut_ptr()) };
            let n = usize::try_from(n).unwrap_or(0).min(most);
            // (receives that nothing came for end with the queue pair: its work says so)
            let words = taken
                .iter()
                .take(n)
                .filter(|wc| wc.wr_id != RECEIVE || wc.status == 0);
            for (to, wc) in room.iter_mut().zip(words) {
                *to = describe_done(wc);
                told += u32::from(to.told.is_some());
                filled += 1;
            }
            if n < most {
                break;
            }
        }
        if told > 0 && self.lacks.fetch_add(told, Ordering::AcqRel) + told >= RECEIVES / 4 {
            // (what fails shows by the queue pair's work)
            let _ = self.post_receives();
        }
        filled
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

/// Receives that are posted at most.
const RECEIVES: u32 = TELLS as u32;
/// Of them in one call.
const RECEIVES_AT_ONCE: usize = 16;

/// The id of every receive: no work request of ours has it.
const RECEIVE: u64 = u64::MAX;

const NOTHING: RecvWr = RecvWr {
    wr_id: RECEIVE,
    next: ptr::null_mut(),
    sg_list: ptr::null_mut(),
    num_sge: 0,
};

fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(0)
}

/// What a completion says.
fn describe_done(wc: &Wc) -> Done {
    let ok = wc.status == 0;
    let tells = ok && wc.opcode == WC_RECV_RDMA_WITH_IMM;
    Done {
        id: if tells { 0 } else { wc.wr_id },
        told: tells.then(|| u32::from_be(wc.imm_data)),
        ok,
        status: wc.status.unsigned_abs(),
    }
}

/// The structures for a work request, not linked yet.
fn describe(work: &Work) -> (Sge, SendWr) {
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
    };
    (
        Sge {
            addr: work.local.expose_provenance() as u64,
            length: work.len,
            lkey: work.lkey,
        },
        SendWr {
            wr_id: work.id,
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

/// Room for all that can be outstanding: work that goes wrong tells even if it is not signaled.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
const ROOM: i32 = DEPTH as i32;

fn completion_queue(device: &Device, channel: &Channel) -> Result<NonNull<Cq>> {
    let (context, none) = (device.context.as_ptr(), ptr::null_mut());
    let room = ROOM + RECEIVES.cast_signed();
    // SAFETY: an open device and a channel of it; no context.
    let cq = unsafe { (device.library.create_cq)(context, room, none, channel.as_ptr(), 0) };
    NonNull::new(cq).ok_or_else(ffi::last)
}

fn create(device: &Device, cq: NonNull<Cq>) -> Result<(NonNull<Qp>, QpCap)> {
    let mut attr = QpInitAttr {
        qp_context: ptr::null_mut(),
        send_cq: cq.as_ptr(),
        recv_cq: cq.as_ptr(),
        srq: ptr::null_mut(),
        cap: QpCap {
            max_send_wr: ROOM.unsigned_abs(),
            max_recv_wr: RECEIVES,
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
