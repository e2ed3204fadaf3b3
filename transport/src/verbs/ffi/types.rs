//! The structures of libibverbs that are used, as `infiniband/verbs.h` has them (rdma-core 44; the library promises not
//! to change what exists). A test compares them with the header. Whatever is only passed on is a pointer to [`Opaque`].

#![allow(
    clippy::pub_underscore_fields,
    reason = "room that is the library's own"
)]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// What only the library looks into.
pub(in crate::verbs) type Opaque = c_void;

/// `enum ibv_transport_type`: InfiniBand's transport, which RoCE has too.
pub(in crate::verbs) const TRANSPORT_IB: c_int = 0;
/// And iWARP's.
pub(in crate::verbs) const TRANSPORT_IWARP: c_int = 1;

/// `struct ibv_device`.
#[repr(C)]
pub(in crate::verbs) struct Device {
    pub ops: [*mut Opaque; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
}

/// `struct ibv_context_ops`, up to what is called.
#[repr(C)]
pub(in crate::verbs) struct Ops {
    pub first: [*mut Opaque; 11],
    pub poll_cq: Option<unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(*mut Cq, c_int) -> c_int>,
    pub middle: [*mut Opaque; 7],
    pub post_srq_recv:
        Option<unsafe extern "C" fn(*mut Opaque, *mut RecvWr, *mut *mut RecvWr) -> c_int>,
    pub behind: [*mut Opaque; 4],
    pub post_send: Option<unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int>,
    pub post_recv: Option<unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int>,
    pub last: [*mut Opaque; 5],
}

/// `struct ibv_context`, up to what is looked at.
#[repr(C)]
pub(in crate::verbs) struct Context {
    pub device: *mut Device,
    pub ops: Ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
}

/// `struct ibv_pd`.
#[repr(C)]
pub(in crate::verbs) struct Pd {
    pub context: *mut Context,
    pub handle: u32,
}

/// `struct ibv_mr`.
#[repr(C)]
pub(in crate::verbs) struct Mr {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub addr: *mut Opaque,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// `struct ibv_cq`, up to what is looked at.
#[repr(C)]
pub(in crate::verbs) struct Cq {
    pub context: *mut Context,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(in crate::verbs) struct CompChannel {
    pub context: *mut Context,
    pub fd: c_int,
    pub refcnt: c_int,
}

/// `struct ibv_qp`, up to what is looked at.
#[repr(C)]
pub(in crate::verbs) struct Qp {
    pub context: *mut Context,
    pub qp_context: *mut Opaque,
    pub pd: *mut Pd,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut Opaque,
    pub handle: u32,
    pub qp_num: u32,
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::verbs) struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// `struct ibv_srq_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::verbs) struct SrqAttr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}

/// `struct ibv_srq_init_attr`.
#[repr(C)]
pub(in crate::verbs) struct SrqInitAttr {
    pub srq_context: *mut Opaque,
    pub attr: SrqAttr,
}

/// `enum ibv_qp_type`: reliable connected.
pub(in crate::verbs) const QPT_RC: c_int = 2;

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(in crate::verbs) struct QpInitAttr {
    pub qp_context: *mut Opaque,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut Opaque,
    pub cap: QpCap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
}

/// `enum ibv_qp_state`.
pub(in crate::verbs) mod state {
    use std::ffi::c_int;
    pub(in crate::verbs) const INIT: c_int = 1;
    pub(in crate::verbs) const RTR: c_int = 2;
    pub(in crate::verbs) const RTS: c_int = 3;
    pub(in crate::verbs) const ERR: c_int = 6;
}

/// `enum ibv_qp_attr_mask`.
pub(in crate::verbs) mod mask {
    use std::ffi::c_int;
    pub(in crate::verbs) const STATE: c_int = 1;
    pub(in crate::verbs) const ACCESS_FLAGS: c_int = 1 << 3;
    pub(in crate::verbs) const PKEY_INDEX: c_int = 1 << 4;
    pub(in crate::verbs) const PORT: c_int = 1 << 5;
    pub(in crate::verbs) const AV: c_int = 1 << 7;
    pub(in crate::verbs) const PATH_MTU: c_int = 1 << 8;
    pub(in crate::verbs) const TIMEOUT: c_int = 1 << 9;
    pub(in crate::verbs) const RETRY_CNT: c_int = 1 << 10;
    pub(in crate::verbs) const RNR_RETRY: c_int = 1 << 11;
    pub(in crate::verbs) const RQ_PSN: c_int = 1 << 12;
    pub(in crate::verbs) const MAX_QP_RD_ATOMIC: c_int = 1 << 13;
    pub(in crate::verbs) const MIN_RNR_TIMER: c_int = 1 << 15;
    pub(in crate::verbs) const SQ_PSN: c_int = 1 << 16;
    pub(in crate::verbs) const MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
    pub(in crate::verbs) const DEST_QPN: c_int = 1 << 20;
}

/// `enum ibv_access_flags`.
pub(in crate::verbs) mod access {
    use std::ffi::c_int;
    pub(in crate::verbs) const LOCAL_WRITE: c_int = 1;
    pub(in crate::verbs) const REMOTE_WRITE: c_int = 1 << 1;
    pub(in crate::verbs) const REMOTE_READ: c_int = 1 << 2;
    pub(in crate::verbs) const ON_DEMAND: c_int = 1 << 6;
}

/// `union ibv_gid`, aligned as its numbers.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::verbs) struct Gid(pub [u8; 16]);

/// `struct ibv_global_route`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::verbs) struct GlobalRoute {
    pub dgid: Gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

/// `struct ibv_ah_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::verbs) struct AhAttr {
    pub grh: GlobalRoute,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::verbs) struct QpAttr {
    pub qp_state: c_int,
    pub cur_qp_state: c_int,
    pub path_mtu: c_int,
    pub path_mig_state: c_int,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_int,
    pub cap: QpCap,
    pub ah_attr: AhAttr,
    pub alt_ah_attr: AhAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::verbs) struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// `enum ibv_wr_opcode`.
pub(in crate::verbs) const WR_RDMA_WRITE: c_int = 0;
pub(in crate::verbs) const WR_RDMA_WRITE_WITH_IMM: c_int = 1;
pub(in crate::verbs) const WR_SEND: c_int = 2;
pub(in crate::verbs) const WR_SEND_WITH_IMM: c_int = 3;
pub(in crate::verbs) const WR_RDMA_READ: c_int = 4;
/// `enum ibv_send_flags`.
pub(in crate::verbs) const SEND_SIGNALED: c_uint = 1 << 1;
pub(in crate::verbs) const SEND_SOLICITED: c_uint = 1 << 2;
pub(in crate::verbs) const SEND_INLINE: c_uint = 1 << 3;

/// `struct ibv_send_wr`, with the member `rdma` of its union.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct SendWr {
    pub wr_id: u64,
    pub next: *mut Self,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: c_int,
    pub send_flags: c_uint,
    pub imm_data: u32,
    pub remote_addr: u64,
    pub rkey: u32,
    /// The rest of the unions.
    pub rest: [u64; 9],
}

impl SendWr {
    /// An RDMA Write of nothing, with one piece to be named.
    pub(in crate::verbs) const EMPTY: Self = Self {
        wr_id: 0,
        next: std::ptr::null_mut(),
        sg_list: std::ptr::null_mut(),
        num_sge: 1,
        opcode: WR_RDMA_WRITE,
        send_flags: 0,
        imm_data: 0,
        remote_addr: 0,
        rkey: 0,
        rest: [0; 9],
    };
}

/// `struct ibv_recv_wr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct RecvWr {
    pub wr_id: u64,
    pub next: *mut Self,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}

/// `enum ibv_wc_opcode`: all that ends a receive, and the one that comes of a Write with immediate data.
pub(in crate::verbs) const WC_RECV: c_int = 1 << 7;
/// Of a completion's flags: it came with immediate data.
pub(in crate::verbs) const WC_WITH_IMM: c_uint = 1 << 1;
pub(in crate::verbs) const WC_RECV_RDMA_WITH_IMM: c_int = WC_RECV + 1;

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::verbs) struct Wc {
    pub wr_id: u64,
    pub status: c_int,
    pub opcode: c_int,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// `enum ibv_port_state`.
pub(in crate::verbs) const PORT_ACTIVE: c_int = 4;
/// The link layer of an InfiniBand port; and what those say that have none to say.
pub(in crate::verbs) const LINK_INFINIBAND: u8 = 1;
pub(in crate::verbs) const LINK_UNSPECIFIED: u8 = 0;
/// Of a port's flags: no packets without a global route.
pub(in crate::verbs) const NEEDS_GRH: u8 = 1;
/// The link layer of a RoCE port.
pub(in crate::verbs) const LINK_ETHERNET: u8 = 2;

/// `struct ibv_port_attr`. The function that has its name fills an older, shorter one of the same beginning.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::verbs) struct PortAttr {
    pub state: c_int,
    pub max_mtu: c_int,
    pub active_mtu: c_int,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
}

/// `enum ibv_gid_type`.
pub(in crate::verbs) const GID_IB: u32 = 0;
pub(in crate::verbs) const GID_ROCE_V1: u32 = 1;
pub(in crate::verbs) const GID_ROCE_V2: u32 = 2;

/// `struct ibv_gid_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::verbs) struct GidEntry {
    pub gid: Gid,
    pub gid_index: u32,
    pub port_num: u32,
    pub gid_type: u32,
    pub ndev_ifindex: u32,
}
