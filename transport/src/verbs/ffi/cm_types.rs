//! The structures of librdmacm that are used, as `rdma/rdma_cma.h` has them (rdma-core 44). A test compares them with the
//! header.

use super::types::{Context, Opaque};
use std::ffi::c_int;

/// `struct rdma_event_channel`.
#[repr(C)]
pub(in crate::verbs) struct EventChannel {
    pub fd: c_int,
}

/// `struct rdma_cm_id`, up to what is looked at.
#[repr(C)]
pub(in crate::verbs) struct CmId {
    pub verbs: *mut Context,
    pub channel: *mut EventChannel,
    pub context: *mut Opaque,
    pub qp: *mut Opaque,
    /// `struct rdma_route`: two addresses of 128 octets, two GIDs with a key, a pointer and a number.
    pub route: [u64; 39],
    pub ps: c_int,
    pub port_num: u8,
}

/// `struct rdma_conn_param`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct ConnParam {
    pub private_data: *const Opaque,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

/// `struct rdma_cm_event`, with the member `conn` of its union. It is the library's own, and longer than this.
#[repr(C)]
pub(in crate::verbs) struct CmEvent {
    pub id: *mut CmId,
    pub listen_id: *mut CmId,
    pub event: c_int,
    pub status: c_int,
    pub conn: ConnParam,
}

/// `enum rdma_port_space`: connections, as TCP's.
pub(in crate::verbs) const PS_TCP: c_int = 0x0106;

/// `enum rdma_cm_event_type`: those that are good news.
pub(in crate::verbs) mod event {
    use std::ffi::c_int;
    pub(in crate::verbs) const ADDR_RESOLVED: c_int = 0;
    pub(in crate::verbs) const ROUTE_RESOLVED: c_int = 2;
    pub(in crate::verbs) const CONNECT_REQUEST: c_int = 4;
    pub(in crate::verbs) const ESTABLISHED: c_int = 9;
}
