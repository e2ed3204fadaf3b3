//! How two ends of an iWARP connection find each other by rdma_cm (rdma_cm(7)): the end that offers listens at a port of its
//! own address, which it tells with a secret; the other one resolves that and connects to it, with the secret as its private
//! data. Whoever comes without it is refused. Neither waits: the event channel is looked at now and then
//! ([`Meeting::go_on`]).
//!
//! Used by one thread at a time. Rules:
//! - The queue pair is not made by librdmacm, whose devices do not survive fork; it is named by its number.
//! - librdmacm opens devices itself and keeps them. Their descriptors are moved out of the program's range, unless the
//!   program had the library before.

use super::super::Side;
use super::super::address::{Iwarp, gid_of};
use super::super::ffi::cm_types::{CmEvent, CmId, ConnParam, EventChannel, PS_TCP, event};
use super::super::ffi::{self, Cm};
use super::super::lock::Lock;
use crate::sys::fd::Fd;
use crate::sys::{Errno, Result, udp};
use crate::syscall;
use std::net::{IpAddr, Ipv6Addr};
use std::ptr::{self, NonNull};

/// How long (ms) the neighbour and the way to it may take to be found. A TCP connection goes there already.
const RESOLVE_MS: i32 = 1_000;
/// Requests that may wait to be looked at.
const BACKLOG: i32 = 4;
/// How often another port is tried: the manager's are not the kernel's, which may have given one to a program.
const TRIES: u32 = 4;
/// Reads under way at once, each way.
const READS: u8 = 1;
/// Octets of a secret.
const SECRET: usize = 8;
/// Events looked at in one go.
const EVENTS: u32 = 8;

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It is to listen, or to connect: nothing has been asked for.
    Bound,
    Listens,
    /// Looks for who connects.
    Awaits,
    Resolves,
    Routes,
    /// To be called: by who may wait.
    Ready,
    /// The request is on its way, or its answer.
    Calls,
    Met,
}

/// What the caller has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Wait,
    /// [`Meeting::caller`] is to call, on a thread that may wait.
    Call,
    /// They are connected.
    Met,
}

#[derive(Debug)]
pub(super) struct Meeting {
    library: &'static Cm,
    step: Step,
    own: Iwarp,
    /// What the peer wants to hear.
    theirs: u64,
    // (in this order: ids go before their channel)
    id: Id,
    channel: Channel,
}

// SAFETY: librdmacm may be called from any thread (rdma_cm(7)).
unsafe impl Send for Meeting {}

#[derive(Debug)]
struct Id {
    library: &'static Cm,
    at: NonNull<CmId>,
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: ours, and all of its events were acknowledged.
        unsafe { (self.library.destroy_id)(self.at.as_ptr()) };
    }
}

#[derive(Debug)]
struct Channel {
    library: &'static Cm,
    at: NonNull<EventChannel>,
}

impl Channel {
    fn new(library: &'static Cm) -> Option<Self> {
        // SAFETY: no arguments.
        let at = NonNull::new(unsafe { (library.create_event_channel)() })?;
        let made = Self { library, at };
        // SAFETY: just made, and nobody else knows of it.
        let channel = unsafe { &mut *at.as_ptr() };
        channel.fd = Fd::own(channel.fd).hide_within().leak();
        // SAFETY: no pointers.
        unsafe { syscall!(fcntl, made.fd(), libc::F_SETFL, libc::O_NONBLOCK) }.ok()?;
        Some(made)
    }

    const fn fd(&self) -> i32 {
        // SAFETY: it lives until it is dropped, and the number does not change.
        unsafe { self.at.as_ref() }.fd
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
struct Event {
    kind: i32,
    is_well: bool,
    id: NonNull<CmId>,
    secret: Option<[u8; SECRET]>,
}

impl Meeting {
    /// At the iWARP device that this local address goes by; none if there is none.
    pub(super) fn bind(ip: &IpAddr, side: Side) -> Option<Self> {
        let library = ffi::cm()?;
        // (an address that is one on each link needs the link's number, which the peer does not have)
        if matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()) {
            return None;
        }
        let channel = Channel::new(library)?;
        for _ in 0..TRIES {
            let id = Id::new(library, &channel)?;
            id.bind(ip)?;
            let (port, secret) = match side {
                Side::Answers => (None, 0),
                // SAFETY: an id that is bound.
                Side::Offers => match unsafe { (library.listen)(id.at.as_ptr(), BACKLOG) } {
                    // SAFETY: as above.
                    0 => match u16::from_be(unsafe { (library.get_src_port)(id.at.as_ptr()) }) {
                        0 => continue,
                        port => (Some(port), udp::random().ok()?),
                    },
                    _ => continue,
                },
            };
            let own = Iwarp {
                ip: gid_of(ip),
                port,
                secret,
            };
            return Some(Self {
                library,
                step: if port.is_some() {
                    Step::Listens
                } else {
                    Step::Bound
                },
                own,
                theirs: 0,
                id,
                channel,
            });
        }
        None
    }

    pub(super) const fn own(&self) -> Iwarp {
        self.own
    }

    /// The name of the device, and its port.
    pub(super) fn device(&self) -> Option<([i8; 64], u8)> {
        // SAFETY: an id that is bound has a device, which stays as long.
        let id = unsafe { self.id.at.as_ref() };
        // SAFETY: as above.
        let device = unsafe { id.verbs.as_ref()?.device.as_ref() }?;
        Some((device.name, id.port_num))
    }

    /// Begins to connect to this peer.
    ///
    /// # Errors
    /// EINVAL: both listen, or neither, or it has begun. What librdmacm says.
    pub(super) fn begin(&mut self, peer: &Iwarp) -> Result<()> {
        match (self.step, peer.port) {
            (Step::Listens, None) => self.step = Step::Awaits,
            (Step::Bound, Some(port)) => {
                let mut to = socket_address(&peer.ip, port);
                // SAFETY: an id that is bound, and a socket address.
                check(unsafe {
                    (self.library.resolve_addr)(
                        self.id.at.as_ptr(),
                        ptr::null_mut(),
                        (&raw mut to).cast(),
                        RESOLVE_MS,
                    )
                })?;
                self.theirs = peer.secret;
                self.step = Step::Resolves;
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    /// Goes as far as it can, with this queue pair.
    ///
    /// # Errors
    /// They will not meet.
    pub(super) fn go_on(&mut self, qpn: u32) -> Result<Next> {
        for _ in 0..EVENTS {
            match self.step {
                Step::Ready => {
                    self.step = Step::Calls;
                    return Ok(Next::Call);
                }
                Step::Met => return Ok(Next::Met),
                _ => {}
            }
            match self.next_event()? {
                None => break,
                Some(event) => self.take(event, qpn)?,
            }
        }
        Ok(Next::Wait)
    }

    fn take(&mut self, news: Event, qpn: u32) -> Result<()> {
        if news.kind == event::CONNECT_REQUEST {
            let caller = Id {
                library: self.library,
                at: news.id,
            };
            return self.consider(caller, &news, qpn);
        }
        if news.id != self.id.at {
            return Ok(()); // (of one that has gone meanwhile)
        }
        match (self.step, news.kind) {
            _ if !news.is_well => Err(Errno(libc::ECONNREFUSED)),
            (Step::Resolves, event::ADDR_RESOLVED) => {
                self.step = Step::Routes;
                // SAFETY: an id whose address is resolved.
                check(unsafe { (self.library.resolve_route)(self.id.at.as_ptr(), RESOLVE_MS) })
            }
            (Step::Routes, event::ROUTE_RESOLVED) => {
                self.step = Step::Ready;
                Ok(())
            }
            (Step::Calls, event::ESTABLISHED) => {
                self.step = Step::Met;
                Ok(())
            }
            // (all others are bad news)
            _ => Err(Errno(libc::ECONNREFUSED)),
        }
    }

    /// Somebody has come.
    fn consider(&mut self, caller: Id, news: &Event, qpn: u32) -> Result<()> {
        let at = caller.at.as_ptr();
        if self.step != Step::Awaits || news.secret != Some(self.own.secret.to_be_bytes()) {
            // SAFETY: an id that waits for that; no private data.
            unsafe { (self.library.reject)(at, ptr::null(), 0) };
            return Ok(());
        }
        let mut param = parameters(qpn, &[]);
        // SAFETY: as above, and a queue pair of the device that it has come by.
        check(unsafe { (self.library.accept)(at, &raw mut param) })?;
        self.id = caller; // nobody listens any more
        self.step = Step::Calls;
        Ok(())
    }

    fn next_event(&self) -> Result<Option<Event>> {
        let mut at: *mut CmEvent = ptr::null_mut();
        // SAFETY: an open channel, which does not block, and room for a pointer.
        let r = unsafe { (self.library.get_cm_event)(self.channel.at.as_ptr(), &raw mut at) };
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

    /// What calls.
    pub(super) const fn caller(&self) -> Caller {
        Caller {
            library: self.library,
            id: self.id.at,
            secret: self.theirs.to_be_bytes(),
        }
    }

    /// That of its events.
    pub(super) const fn descriptor(&self) -> i32 {
        self.channel.fd()
    }
}

/// Asks the peer for the connection, and may wait for its host: siw does, until there is a TCP connection.
#[derive(Debug)]
pub(super) struct Caller {
    library: &'static Cm,
    id: NonNull<CmId>,
    secret: [u8; SECRET],
}

impl Caller {
    /// # Errors
    /// What librdmacm says.
    ///
    /// # Safety
    /// The meeting that it is of, and the queue pair, are there until it returns.
    pub(super) unsafe fn call(&self, qpn: u32) -> Result<()> {
        let mut param = parameters(qpn, &self.secret);
        // SAFETY: an id whose route is resolved; the secret lives as long as `self`.
        check(unsafe { (self.library.connect)(self.id.as_ptr(), &raw mut param) })
    }
}

impl Id {
    fn new(library: &'static Cm, channel: &Channel) -> Option<Self> {
        let mut at: *mut CmId = ptr::null_mut();
        // SAFETY: an open channel, and room for a pointer; no context.
        let r = unsafe {
            (library.create_id)(channel.at.as_ptr(), &raw mut at, ptr::null_mut(), PS_TCP)
        };
        let at = NonNull::new(at).filter(|_| r == 0)?;
        Some(Self { library, at })
    }

    fn bind(&self, ip: &IpAddr) -> Option<()> {
        let mut from = socket_address(&gid_of(ip), 0);
        // SAFETY: a fresh id and a socket address.
        let r = unsafe { (self.library.bind_addr)(self.at.as_ptr(), (&raw mut from).cast()) };
        if r == 0 && !ffi::is_cm_shared() {
            self.hide_device();
        }
        (r == 0).then_some(())
    }

    /// Moves the descriptors of a device that librdmacm has just opened out of the program's range.
    fn hide_device(&self) {
        static HIDDEN: Lock<Vec<(usize, i32)>> = Lock::new(Vec::new());
        // SAFETY: an id that is bound; its device is used by this library's threads only.
        let Some(context) = (unsafe { self.at.as_ref().verbs.as_mut() }) else {
            return;
        };
        let at = ptr::from_ref(context).addr();
        HIDDEN.with(|hidden| {
            if !hidden.contains(&(at, context.cmd_fd)) {
                context.cmd_fd = Fd::own(context.cmd_fd).hide_within().leak();
                context.async_fd = Fd::own(context.async_fd).hide_within().leak();
                hidden.push((at, context.cmd_fd));
            }
        });
    }
}

/// What either end asks for. (The adapter has no "receiver not ready", and repeats nothing.)
const fn parameters(qpn: u32, private: &[u8]) -> ConnParam {
    ConnParam {
        private_data: private.as_ptr().cast(),
        #[allow(clippy::cast_possible_truncation, reason = "a secret")]
        private_data_len: private.len() as u8,
        responder_resources: READS,
        initiator_depth: READS,
        flow_control: 0,
        retry_count: 0,
        rnr_retry_count: 0,
        srq: 0,
        qp_num: qpn,
    }
}

/// The socket address of an address whose IPv4 ones are mapped.
fn socket_address(ip: &[u8; 16], port: u16) -> libc::sockaddr_storage {
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
fn check(r: i32) -> Result<()> {
    if r == 0 { Ok(()) } else { Err(ffi::last()) }
}
