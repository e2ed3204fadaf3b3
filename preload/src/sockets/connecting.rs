//! Connects: before one it is looked up who listens there and what may carry the connection, after it that is kept until the
//! connection's first use ([`super::engage`]).
//!
//! Called by the hook of connect(2), around the kernel's own. Rule: what a server is expected for here is taken back if the
//! connect fails.

use super::{Phase, Socket, Way};
use crate::epoll::registered;
use crate::world::{self, World};
use crate::{mapper, rules};
use flowctl::Terms;
use std::sync::atomic::Ordering;
use transport::reason::Reason;
use transport::rules::Iwarp;
use transport::sys::net;

/// The targets of connections that are to ask for software iWARP; the second if the port mapper there accepts.
const WIRED: u32 = u32::MAX;
const IF_MAPPED: u32 = u32::MAX - 1;
/// As these, and an RDMA adapter may move them.
const RIDES: u32 = u32::MAX - 2;
const RIDES_IF_MAPPED: u32 = u32::MAX - 3;

/// A non-listening socket was connected, or began to be.
pub(crate) fn prepare(s: &'static Socket, address: &net::Endpoint) -> Result<u32, Reason> {
    let settings = world::settings();
    let plan = rules::connect_wanted(address);
    let between_hosts = |why| match plan.iwarp {
        Iwarp::Never => Err(why),
        Iwarp::IfMapped => {
            mapper::asked(address);
            Ok(if plan.rides {
                RIDES_IF_MAPPED
            } else {
                IF_MAPPED
            })
        }
        Iwarp::Always => Ok(if plan.rides { RIDES } else { WIRED }),
    };
    if let Err(why) = plan.shm
        && !rules::are_there()
    {
        s.record.set_peer(address);
        return between_hosts(why); // as for every connect of this process
    }
    let mut w = world::lock();
    let World { targets, diag, .. } = &mut *w;
    let targets = targets.get_or_insert_default();
    let region = Terms::region(settings.buf);
    s.record.set_peer(address);
    // A connect that was left by a jump, or by the end of its thread, has expected something.
    if let Way::Client {
        target,
        expected: true,
        ..
    } = super::demote::way(s)
    {
        targets.expect(target, -1);
        // SAFETY: under the registry lock.
        unsafe { *s.way.get() = Way::None };
    }
    let found = plan
        .shm
        .and_then(|()| targets.resolve(address, diag, settings.peer_users, region));
    let target = match found {
        Ok(target) => target,
        // (a peer on this host that has no shared memory to offer is a plain one)
        Err(why) if plan.shm.is_ok() && why != Reason::PeerRemote => return Err(why),
        Err(why) => {
            drop(w);
            return between_hosts(why);
        }
    };
    targets.expect(target, 1);
    // SAFETY: under the registry lock.
    unsafe {
        *s.way.get() = Way::Client {
            target,
            ticket: None,
            expected: true,
        }
    };
    Ok(target)
}

/// Nobody listened when [`prepare`] looked, and yet the kernel has let this connect in: at an address of this host the server has
/// begun to listen in between. It is looked up once more; what a listener accepts in its first moments waits for that.
#[inline]
pub(crate) fn looked_again(
    s: &'static Socket,
    fd: i32,
    found: Result<u32, Reason>,
    ok: bool,
) -> Result<u32, Reason> {
    if !ok || found != Err(Reason::PeerRemote) || s.phase() != Phase::Idle {
        return found;
    }
    let (_, peer) = s.record.names();
    if !net::is_here(fd, &peer) {
        return found;
    }
    world::lock().targets().forget_plain(&peer);
    prepare(s, &peer)
}

/// The outcome of a connect that [`prepare`] prepared.
pub(crate) fn done(s: &'static Socket, target: Result<u32, Reason>, ok: bool) {
    if s.phase() != Phase::Idle {
        return; // somebody else's connect on the same socket was faster
    }
    match target {
        Ok(RIDES_IF_MAPPED..) if !ok => {
            if matches!(target, Ok(IF_MAPPED | RIDES_IF_MAPPED)) {
                mapper::not_there(&s.record.names().1);
            }
        }
        Ok(target) if ok => {
            if target >= RIDES_IF_MAPPED {
                let _w = world::lock();
                let mapped = matches!(target, IF_MAPPED | RIDES_IF_MAPPED);
                let rides = matches!(target, RIDES | RIDES_IF_MAPPED);
                // SAFETY: under the registry lock.
                unsafe { *s.way.get() = Way::Caller { mapped, rides } };
            }
            s.record.role.store(1, Ordering::Relaxed);
            s.record.set_kernel(Reason::Undecided);
            s.set_phase(Phase::Fresh);
            if target >= RIDES_IF_MAPPED {
                registered::calls(s);
            }
        }
        Ok(target) => {
            let mut w = world::lock();
            w.targets().expect(target, -1);
            // SAFETY: under the registry lock.
            unsafe { *s.way.get() = Way::None };
        }
        Err(why) if ok => {
            s.record.role.store(1, Ordering::Relaxed);
            s.record.set_kernel(why);
            s.set_phase(Phase::Plain);
        }
        Err(_) => {
            let (_, peer) = s.record.names();
            world::lock().targets().forget_plain(&peer);
        }
    }
}
