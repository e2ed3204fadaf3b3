//! libibverbs and librdmacm, each looked for at its first use. Nothing is linked: where one is not installed there is no
//! device that needs it, and that is all. Their functions are taken in the versions that `types` and `cm_types` describe.
//!
//! Written by hand, since both crates that bind libibverbs would cost every program that Shunt is loaded into: one links
//! it, so that no program at all starts where it is missing; the other opens three libraries in a constructor.
//!
//! Rule: these are control calls, on a thread of the library's own; those that go through the device's own table (post,
//! poll, notify) are the only ones for every thread.

pub(super) mod cm_types;
pub(super) mod on_demand_types;
pub(super) mod types;

use crate::sys::Errno;
use cm_types::{CmEvent, CmId, ConnParam, EventChannel};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::{mem, ptr};
use types::{
    CompChannel, Context, Cq, Device, GidEntry, Mr, Opaque, Pd, PortAttr, Qp, QpAttr, QpInitAttr,
    SrqInitAttr,
};

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, symbol: *const c_char, version: *const c_char) -> *mut c_void;
}

/// Of what has not changed since.
const OLDEST: &CStr = c"IBVERBS_1.0";
const FIRST: &CStr = c"IBVERBS_1.1";
/// Since rdma-core 32.
const GID_TABLE: &CStr = c"IBVERBS_1.11";
const CM: &CStr = c"RDMACM_1.0";

macro_rules! library {
    ($library:ident $file:ident $($name:ident: fn($($arg:ty),*) -> $ret:ty, $symbol:literal, $version:expr;)*) => {
        /// The functions that are used of it.
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $library {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) -> $ret,)*
        }

        impl $library {
            fn open() -> Option<Self> {
                let how = libc::RTLD_NOW | libc::RTLD_LOCAL;
                // SAFETY: loading it runs nothing but its own constructor, which takes note of environment variables.
                let handle = unsafe { libc::dlopen($file.as_ptr(), how) };
                if handle.is_null() {
                    return None;
                }
                Some(Self {
                    $($name: {
                        // SAFETY: an open library, C strings.
                        let found = unsafe { dlvsym(handle, $symbol.as_ptr(), CStr::as_ptr($version)) };
                        if found.is_null() {
                            return None;
                        }
                        // SAFETY: a function of this name and version has this type.
                        unsafe {
                            mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> $ret>(found)
                        }
                    },)*
                })
            }
        }
    };
}

const VERBS_FILE: &CStr = c"libibverbs.so.1";
const CM_FILE: &CStr = c"librdmacm.so.1";

library! {
    Library VERBS_FILE
    get_device_list: fn(*mut c_int) -> *mut *mut Device, c"ibv_get_device_list", FIRST;
    free_device_list: fn(*mut *mut Device) -> (), c"ibv_free_device_list", FIRST;
    open_device: fn(*mut Device) -> *mut Context, c"ibv_open_device", FIRST;
    close_device: fn(*mut Context) -> c_int, c"ibv_close_device", FIRST;
    query_port: fn(*mut Context, u8, *mut PortAttr) -> c_int, c"ibv_query_port", FIRST;
    query_gid_table: fn(*mut Context, *mut GidEntry, usize, u32, usize) -> isize,
        c"_ibv_query_gid_table", GID_TABLE;
    query_pkey: fn(*mut Context, u8, c_int, *mut u16) -> c_int, c"ibv_query_pkey", FIRST;
    alloc_pd: fn(*mut Context) -> *mut Pd, c"ibv_alloc_pd", FIRST;
    reg_mr: fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr, c"ibv_reg_mr", FIRST;
    dereg_mr: fn(*mut Mr) -> c_int, c"ibv_dereg_mr", FIRST;
    create_comp_channel: fn(*mut Context) -> *mut CompChannel, c"ibv_create_comp_channel", OLDEST;
    destroy_comp_channel: fn(*mut CompChannel) -> c_int, c"ibv_destroy_comp_channel", OLDEST;
    create_cq: fn(*mut Context, c_int, *mut Opaque, *mut CompChannel, c_int) -> *mut Cq,
        c"ibv_create_cq", FIRST;
    ack_cq_events: fn(*mut Cq, c_uint) -> (), c"ibv_ack_cq_events", FIRST;
    destroy_cq: fn(*mut Cq) -> c_int, c"ibv_destroy_cq", FIRST;
    create_srq: fn(*mut Pd, *mut SrqInitAttr) -> *mut Opaque, c"ibv_create_srq", FIRST;
    create_qp: fn(*mut Pd, *mut QpInitAttr) -> *mut Qp, c"ibv_create_qp", FIRST;
    modify_qp: fn(*mut Qp, *mut QpAttr, c_int) -> c_int, c"ibv_modify_qp", FIRST;
    destroy_qp: fn(*mut Qp) -> c_int, c"ibv_destroy_qp", FIRST;
}

library! {
    Cm CM_FILE
    create_event_channel: fn() -> *mut EventChannel, c"rdma_create_event_channel", CM;
    destroy_event_channel: fn(*mut EventChannel) -> (), c"rdma_destroy_event_channel", CM;
    create_id: fn(*mut EventChannel, *mut *mut CmId, *mut Opaque, c_int) -> c_int, c"rdma_create_id", CM;
    destroy_id: fn(*mut CmId) -> c_int, c"rdma_destroy_id", CM;
    bind_addr: fn(*mut CmId, *mut libc::sockaddr) -> c_int, c"rdma_bind_addr", CM;
    listen: fn(*mut CmId, c_int) -> c_int, c"rdma_listen", CM;
    get_src_port: fn(*mut CmId) -> u16, c"rdma_get_src_port", CM;
    resolve_addr: fn(*mut CmId, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int,
        c"rdma_resolve_addr", CM;
    resolve_route: fn(*mut CmId, c_int) -> c_int, c"rdma_resolve_route", CM;
    connect: fn(*mut CmId, *mut ConnParam) -> c_int, c"rdma_connect", CM;
    accept: fn(*mut CmId, *mut ConnParam) -> c_int, c"rdma_accept", CM;
    reject: fn(*mut CmId, *const c_void, u8) -> c_int, c"rdma_reject", CM;
    get_cm_event: fn(*mut EventChannel, *mut *mut CmEvent) -> c_int, c"rdma_get_cm_event", CM;
    ack_cm_event: fn(*mut CmEvent) -> c_int, c"rdma_ack_cm_event", CM;
}

/// A library once it has been looked for. No lock that a child of fork could inherit: whoever comes first looks.
struct Once<T: 'static> {
    found: AtomicPtr<T>,
    missing: AtomicBool,
}

impl<T> Once<T> {
    const fn new() -> Self {
        Self {
            found: AtomicPtr::new(ptr::null_mut()),
            missing: AtomicBool::new(false),
        }
    }

    fn get(&self, open: impl FnOnce() -> Option<T>) -> Option<&'static T> {
        // SAFETY: null, or what was leaked below.
        let found = unsafe { self.found.load(Ordering::Acquire).as_ref() };
        if found.is_some() || self.missing.load(Ordering::Relaxed) {
            return found;
        }
        let Some(library) = open() else {
            self.missing.store(true, Ordering::Relaxed);
            return None;
        };
        let library: &'static T = Box::leak(Box::new(library));
        self.found
            .store(ptr::from_ref(library).cast_mut(), Ordering::Release);
        Some(library)
    }
}

/// libibverbs; nothing where it is missing, or older than 2020.
pub(super) fn library() -> Option<&'static Library> {
    static ONCE: Once<Library> = Once::new();
    ONCE.get(Library::open)
}

/// librdmacm; nothing where it is missing.
pub(super) fn cm() -> Option<&'static Cm> {
    static ONCE: Once<Cm> = Once::new();
    ONCE.get(|| {
        let how = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NOLOAD;
        // SAFETY: a C string; nothing is loaded.
        let before = unsafe { libc::dlopen(CM_FILE.as_ptr(), how) };
        CM_IS_SHARED.store(!before.is_null(), Ordering::Relaxed);
        Cm::open()
    })
}

static CM_IS_SHARED: AtomicBool = AtomicBool::new(false);

/// Whether the program had librdmacm before, and may use the devices that it has opened.
pub(super) fn is_cm_shared() -> bool {
    CM_IS_SHARED.load(Ordering::Relaxed)
}

/// What a function returned that returns 0 or an error number.
pub(super) fn check(r: c_int) -> Result<(), Errno> {
    match r {
        0 => Ok(()),
        r if r > 0 => Err(Errno(r)),
        _ => Err(last()),
    }
}

/// The error of a function that returned no object.
pub(super) fn last() -> Errno {
    let e = std::io::Error::last_os_error().raw_os_error();
    Errno(e.filter(|e| *e > 0).unwrap_or(libc::EIO))
}

/// The error in a count that may be minus an error number.
pub(super) fn error(n: isize) -> Errno {
    Errno(i32::try_from(n.unsigned_abs()).unwrap_or(libc::EIO))
}
