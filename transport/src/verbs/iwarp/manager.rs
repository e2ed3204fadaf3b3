//! What librdmacm makes: event channels and their events, and ids.
//!
//! Used by `meeting`, on one thread at a time. Rules:
//! - Descriptors are out of the program's range, and never closed by an interposed function. librdmacm opens devices itself and
//!   keeps them: theirs are moved, too, unless the program had the library before.
//! - An id goes before its channel, with all of its events acknowledged.

use super::super::address::gid_of;
use super::super::ffi::cm_types::{CmEvent, CmId, EventChannel, PS_TCP};
use super::super::ffi::{self, Cm};
use crate::sys::fd::{self, Fd};
use crate::sys::{Errno, Result};
use crate::syscall;
use std::net::{IpAddr, Ipv6Addr};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Octets of a secret.
pub(super) const SECRET: usize = 8;

#[derive(Debug)]
pub(super) struct Id {
    pub(super) library: &'static Cm,
    pub(super) at: NonNull<CmId>,
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: ours, and all of its events were acknowledged.
        unsafe { (self.library.destroy_id)(self.at.as_ptr()) };
    }
}

#[derive(Debug)]
pub(super) struct Channel {
    library: &'static Cm,
    at: NonNull<EventChannel>,
}

impl Channel {
    pub(super) fn new(library: &'static Cm) -> Option<Self> {
        // SAFETY: no arguments.
        let at = NonNull::new(unsafe { (library.create_event_channel)() })?;
        let made = Self { library, at };
        let reserved = fd::in_reserve(made.fd()).ok()?;
        fd::close(made.fd());
        // SAFETY: just made, and nobody else knows of it.
        unsafe { (*at.as_ptr()).fd = reserved.leak() };
        // SAFETY: no pointers.
        unsafe { syscall!(fcntl, made.fd(), libc::F_SETFL, libc::O_NONBLOCK) }.ok()?;
        Some(made)
    }

    pub(super) const fn fd(&self) -> i32 {
        // SAFETY: it lives until it is dropped, and the number does not change.
        unsafe { self.at.as_ref() }.fd
    }

    /// The next one, acknowledged; nothing if there is none.
    ///
    /// # Errors
    /// What librdmacm says.
    pub(super) fn next_event(&self) -> Result<Option<Event>> {
        let mut at: *mut CmEvent = ptr::null_mut();
        // SAFETY: an open channel, which does not block, and room for a pointer.
        let r = unsafe { (self.library.get_cm_event)(self.at.as_ptr(), &raw mut at) };
        if r != 0 {
            return match ffi::last() {
                Errno::AGAIN => Ok(None),
                e => Err(e),
            };
        }
        // SAFETY: an event, which is there until it is acknowledged.
        let news = unsafe { at.as_ref() }.ok_or(Errno(libc::EIO))?;
        let data = news.conn.private_data.cast::<[u8; SECRET]>();
        let has = usize::from(news.conn.private_data_len) >= SECRET && !data.is_null();
        let event = NonNull::new(news.id).map(|id| Event {
            kind: news.event,
            is_well: news.status == 0,
            id,
            // SAFETY: so many octets are there.
            secret: has.then(|| unsafe { data.read_unaligned() }),
        });
        // SAFETY: once.
        unsafe { (self.library.ack_cm_event)(at) };
        event.map(Some).ok_or(Errno(libc::EIO))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // (the library would close it by an interposed function)
        drop(Fd::own(self.fd()));
        // SAFETY: ours; what refers to it has gone.
        unsafe {
            (*self.at.as_ptr()).fd = -1;
            (self.library.destroy_event_channel)(self.at.as_ptr());
        }
    }
}

/// An event, as far as it is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) kind: i32,
    pub(super) is_well: bool,
    pub(super) id: NonNull<CmId>,
    /// The first octets that the peer has sent with it.
    pub(super) secret: Option<[u8; SECRET]>,
}

impl Id {
    pub(super) fn new(library: &'static Cm, channel: &Channel) -> Option<Self> {
        let mut at: *mut CmId = ptr::null_mut();
        // SAFETY: an open channel, and room for a pointer; no context.
        let r = unsafe {
            (library.create_id)(channel.at.as_ptr(), &raw mut at, ptr::null_mut(), PS_TCP)
        };
        let at = NonNull::new(at).filter(|_| r == 0)?;
        Some(Self { library, at })
    }

    /// Gives it a local address, and so a device.
    pub(super) fn bind(&self, ip: &IpAddr) -> Option<()> {
        let mut from = socket_address(&gid_of(ip), 0);
        // SAFETY: a fresh id and a socket address.
        let r = unsafe { (self.library.bind_addr)(self.at.as_ptr(), (&raw mut from).cast()) };
        if r == 0 && !ffi::is_cm_shared() {
            self.hide_device();
        }
        (r == 0).then_some(())
    }

    /// Moves the descriptors of a device that librdmacm has just opened out of the program's range. (No lock that a child of
    /// fork could inherit.)
    fn hide_device(&self) {
        static HIDDEN: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];
        // SAFETY: an id that is bound; its device is used by this library's threads only.
        let Some(context) = (unsafe { self.at.as_ref().verbs.as_mut() }) else {
            return;
        };
        let at = ptr::from_ref(context).addr();
        if HIDDEN.iter().any(|one| one.load(Ordering::Acquire) == at) {
            return;
        }
        let take = |one: &AtomicUsize| {
            one.compare_exchange(0, at, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        };
        if HIDDEN.iter().any(take) {
            context.cmd_fd = Fd::own(context.cmd_fd).hide_within().leak();
            context.async_fd = Fd::own(context.async_fd).hide_within().leak();
        }
    }
}

/// The socket address of an address whose IPv4 ones are mapped.
pub(super) fn socket_address(ip: &[u8; 16], port: u16) -> libc::sockaddr_storage {
    // SAFETY: all zeros is one.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let ip = Ipv6Addr::from(*ip);
    let at = &raw mut storage;
    // SAFETY: the storage has room for either, and its alignment.
    unsafe {
        if let Some(v4) = ip.to_ipv4_mapped() {
            let to = at.cast::<libc::sockaddr_in>();
            (*to).sin_family = libc::AF_INET as libc::sa_family_t;
            (*to).sin_port = port.to_be();
            (*to).sin_addr.s_addr = u32::from_ne_bytes(v4.octets());
        } else {
            let to = at.cast::<libc::sockaddr_in6>();
            (*to).sin6_family = libc::AF_INET6 as libc::sa_family_t;
            (*to).sin6_port = port.to_be();
            (*to).sin6_addr.s6_addr = ip.octets();
        }
    }
    storage
}

/// What a function of librdmacm returned: 0, or -1 with the error where errors are.
pub(super) fn check(r: i32) -> Result<()> {
    if r == 0 { Ok(()) } else { Err(ffi::last()) }
}
