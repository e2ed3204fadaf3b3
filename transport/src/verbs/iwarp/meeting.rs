//! How two ends of an iWARP connection find each other by rdma_cm (rdma_cm(7)): the end that offers listens at a port of its
//! own address, which it tells with a secret; the other one resolves that and connects to it, with the secret as its private
//! data. Whoever comes without it is refused. Neither waits: the event channel is looked at now and then
//! ([`Meeting::go_on`]).
//!
//! Used by one thread at a time. Rule: the queue pair is not made by librdmacm, whose devices do not survive fork; it is named by
//! its number.

use super::super::Side;
use super::super::address::{Iwarp, gid_of};
use super::super::ffi::cm_types::{CmId, ConnParam, event};
use super::super::ffi::{self, Cm};
use super::manager::{Channel, Event, Id, SECRET, check, socket_address};
use crate::sys::{Errno, Result, udp};
use std::net::IpAddr;
use std::ptr::{self, NonNull};

/// How long (ms) the neighbour and the way to it may take to be found. A TCP connection goes there already.
const RESOLVE_MS: i32 = 1_000;
/// Requests that may wait to be looked at.
const BACKLOG: i32 = 4;
/// How often another port is tried: the manager's are not the kernel's, which may have given one to a program.
const TRIES: u32 = 4;
/// Reads under way at once, each way.
const READS: u8 = 1;
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
            match self.channel.next_event()? {
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
