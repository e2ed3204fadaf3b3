//! The structures of libibverbs by which a device is asked for more than its ports: those in front of a context, where the library adds new
//! functions, and what one of them fills. As `types`, and compared with the header by the same test.

use super::types::{Context, Opaque};
use std::ffi::c_int;

/// What a context's `abi_compat` is where there is an [`Extended`] around it: a pointer to the octet before the first.
pub(in crate::verbs) const IS_EXTENDED: usize = usize::MAX;

/// `struct ibv_context`.
#[repr(C)]
pub(in crate::verbs) struct WholeContext {
    pub context: Context,
    pub num_comp_vectors: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub abi_compat: *mut Opaque,
}

/// `struct verbs_context`, from what is called on: it grows at its beginning.
#[repr(C)]
pub(in crate::verbs) struct Extended {
    pub query_device_ex: Option<
        unsafe extern "C" fn(*mut Context, *const Opaque, *mut DeviceAttrEx, usize) -> c_int,
    >,
    pub between: [*mut Opaque; 11],
    /// Octets of the whole, as the library has it.
    pub sz: usize,
    pub context: WholeContext,
}

/// `struct ibv_device_attr_ex`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct DeviceAttrEx {
    pub first: [u32; 58],
    pub comp_mask: u32,
    pub odp_general: u64,
    pub odp_rc: u32,
    pub rest: [u32; 37],
}

impl DeviceAttrEx {
    pub(in crate::verbs) const NONE: Self = Self {
        first: [0; 58],
        comp_mask: 0,
        odp_general: 0,
        odp_rc: 0,
        rest: [0; 37],
    };
}

/// `enum ibv_odp_general_caps`.
pub(in crate::verbs) const ODP_SUPPORT: u64 = 1;
/// `enum ibv_odp_transport_cap_bits`: RDMA Reads.
pub(in crate::verbs) const ODP_SUPPORT_READ: u32 = 1 << 3;
