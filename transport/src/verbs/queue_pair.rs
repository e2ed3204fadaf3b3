//! A queue pair of the reliable connected kind with its completion queue (InfiniBand Architecture, volume 1, chapter 10;
//! ibv_modify_qp(3) for the states).
//!
//! It has no receive queue to speak of: what is above uses RDMA Write and Read only.

use super::address::Kind;
use super::device::{Device, Port};
use super::ffi::types::{
    AhAttr, Context, Cq, Gid, GlobalRoute, QPT_RC, Qp, QpAttr, QpCap, QpInitAttr, SEND_INLINE,
    SEND_SIGNALED, SendWr, Sge, WR_RDMA_READ, WR_RDMA_WRITE, Wc, access, mask, state,
};
use super::{Address, BATCH, DEPTH, Done, INLINE, Operation, Work, ffi};
use crate::sys::{Errno, Result};
use std::ptr::{self, NonNull};

/// How long an acknowledgement may take: 4.096 µs times two to this power, 134 ms.
const TIMEOUT: u8 = 15;
/// How often a packet without one is sent again. With [`TIMEOUT`]: a link that is down is told after about a second
/// (devices may take up to four times their time-outs). Not 7, which for Linux's software RoCE is "for ever".
const RETRIES: u8 = 6;
/// "As often as it takes": a receiver that is not ready. No operation of ours needs one that is.
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
    cq: NonNull<Cq>,
    qp: NonNull<Qp>,
    address: Address,
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
        let cq = completion_queue(device)?;
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
            cq,
            qp,
            address: Address {
                kind: port.kind,
                mtu: port.mtu,
                qpn,
                psn,
                gid: port.gid,
            },
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
        Ok(made)
    }

    fn modify(&self, mut attr: QpAttr, mask: i32) -> Result<()> {
        let library = self.port.device.library;
        // SAFETY: a queue pair of ours; `attr` is readable.
        ffi::check(unsafe { (library.modify_qp)(self.qp.as_ptr(), &raw mut attr, mask) })
    }

    pub(super) const fn address(&self) -> Address {
        self.address
    }

    /// As [`super::Adapter::connect`].
    pub(super) fn connect(&self, peer: &Address) -> Result<()> {
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
                retry_cnt: RETRIES,
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
        let mut requests = [EMPTY; BATCH];
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
        let mut taken = [Wc::default(); TAKEN];
        let room = done.len().min(TAKEN);
        let most = i32::try_from(room).unwrap_or(0);
        // SAFETY: room for as many.
        let n = unsafe { poll(self.cq.as_ptr(), most, taken.as_mut_ptr()) };
        let n = usize::try_from(n).unwrap_or(0).min(room);
        for (done, wc) in done.iter_mut().zip(taken.iter().take(n)) {
            *done = Done {
                id: wc.wr_id,
                ok: wc.status == 0,
                status: wc.status.unsigned_abs(),
            };
        }
        n
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
            (library.destroy_cq)(self.cq.as_ptr());
        }
    }
}

const EMPTY: SendWr = SendWr {
    wr_id: 0,
    next: ptr::null_mut(),
    sg_list: ptr::null_mut(),
    num_sge: 1,
    opcode: WR_RDMA_WRITE,
    send_flags: 0,
    imm_data: 0,
    remote_addr: 0,
    rkey: 0,
    rest: [0; 9],
};

/// The structures for a work request, not linked yet.
fn describe(work: &Work) -> (Sge, SendWr) {
    let signaled = if work.signaled { SEND_SIGNALED } else { 0 };
    let (opcode, inline) = match work.operation {
        Operation::Write => (EMPTY.opcode, 0),
        Operation::WriteInline => (EMPTY.opcode, SEND_INLINE),
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
            send_flags: signaled | inline,
            remote_addr: work.remote,
            rkey: work.rkey,
            ..EMPTY
        },
    )
}

/// Room for all that can be outstanding: work that goes wrong tells even if it is not signaled.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
const ROOM: i32 = DEPTH as i32;

fn completion_queue(device: &Device) -> Result<NonNull<Cq>> {
    let none = ptr::null_mut();
    // SAFETY: an open device; no context, no channel.
    let cq = unsafe { (device.library.create_cq)(device.context.as_ptr(), ROOM, none, none, 0) };
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
            // None would do, but not for every driver.
            max_recv_wr: 1,
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
