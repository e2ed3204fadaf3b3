//! Accepting: the looks before the sleep, and what is known of a connection from the start.
//!
//! A server that answers short connections spends most of its time being woken, so a blocking accept
//! looks for a while before it sleeps, like any other wait here. Called by the hooks of accept.

use super::spin;
use super::{Phase, Socket, Way, apart, operator, options, wired};
use crate::real;
use crate::signals::since::Since;
use crate::world::{self, World};
use std::sync::atomic::Ordering;
use transport::clock;
use transport::reason::Reason;
use transport::sys::net::{self, Endpoint};
use transport::sys::{Errno, Result};

/// Accepts by `kernel`, after the looks if the call may block. What the program's handlers have done `since` the call began ends it as
/// it would have ended the kernel's sleep: a server that is told to stop would sleep on.
pub(crate) fn waiting(
    l: &Socket,
    fd: i32,
    since: Since,
    mut kernel: impl FnMut() -> i32,
) -> Result<i32> {
    let mut kernel = || operator::patiently(None, |_| kernel());
    let budget = l.budget.us();
    let blocks = l.phase() == Phase::Listening && !l.nonblock.load(Ordering::Relaxed);
    // (looks are calls that a sandbox may not know)
    if !blocks || crate::signals::is_sandboxed() {
        return Ok(kernel());
    }
    let ready = || net::ready_now(fd, libc::POLLIN) != 0;
    // (a call with a time-out is never restarted)
    let ended =
        || since.any() && (since.any_hard() || net::timeout(fd, libc::SO_RCVTIMEO) > 0) && !ready();
    if budget == 0 || spin::is_hogged() {
        return if ended() {
            Err(Errno::INTR)
        } else {
            Ok(kernel())
        };
    }
    if spin::spin(budget, &l.company, since, |_| ready(), || false) {
        return Ok(kernel());
    }
    let begun = clock::ticks();
    if ended() {
        return Err(Errno::INTR);
    }
    let new = kernel();
    let e = real::errno();
    l.budget.learn(clock::ticks() - begun);
    real::set_errno(e);
    Ok(new)
}

/// A listener as a call on it begins. The program may close it under the sleep, which the kernel ends with one more connection: its place
/// may be another socket's by then.
pub(crate) struct Lis {
    of: &'static Socket,
    generation: u32,
    way: Way,
}

impl Lis {
    pub(crate) fn of(l: &'static Socket) -> Self {
        let _w = world::lock();
        Self {
            of: l,
            generation: l.generation.load(Ordering::Acquire),
            // SAFETY: under the registry lock.
            way: unsafe { *l.way.get() },
        }
    }

    /// The socket, if it has not been closed. Under the registry lock.
    fn here(&self) -> Option<&'static Socket> {
        let here = self.of.generation.load(Ordering::Acquire) == self.generation;
        here.then_some(self.of)
    }
}

/// What a connection inherits from the listener `l`.
fn inherit(s: &Socket, l: &Socket) {
    s.lowat
        .store(l.lowat.load(Ordering::Relaxed), Ordering::Relaxed);
    for (mine, theirs) in [
        (&s.linger_zero, &l.linger_zero),
        (&s.nodelay, &l.nodelay),
        (&s.cork, &l.cork),
    ] {
        mine.store(theirs.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    s.tells
        .store(l.tells.load(Ordering::Relaxed), Ordering::Relaxed);
    for (mine, theirs) in [(&s.sndbuf, &l.sndbuf), (&s.rcvbuf, &l.rcvbuf)] {
        mine.store(theirs.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Takes in a connection that was accepted from `l` as `fd`: what it inherits, and whether anybody with Shunt
/// can be at its other end.
pub(crate) fn begin(w: &mut World, l: &Lis, s: &'static Socket, fd: i32, peer: Option<Endpoint>) {
    s.record.role.store(2, Ordering::Relaxed);
    let here = l.here();
    match here {
        Some(l) => inherit(s, l),
        None => options::take_over(s, fd),
    }
    if let Some(peer) = peer {
        s.record.set_peer(&peer);
    }
    // SAFETY: under the registry lock.
    let way = here.map_or(l.way, |l| unsafe { *l.way.get() });
    let why = match way {
        Way::Listener {
            wired: true,
            rides,
            family,
        } if wired::may_be_asked(s, family.is_ok(), peer) => {
            // SAFETY: under the registry lock.
            unsafe { *s.way.get() = Way::Callee { rides } };
            if apart::reason().is_some() || crate::signals::is_sandboxed() {
                s.decline();
            }
            return wired::begin_as_server(s);
        }
        Way::Listener { .. } if crate::signals::is_sandboxed() => Reason::Seccomp,
        // (the board of one that is closed is down, and its number another's; a client that asks on the connection itself asks all the same)
        Way::Listener {
            family: Ok(family), ..
        } if here.is_some() => {
            if let Some(why) = apart::reason() {
                why
            } else if let Some(f) = w.family(family)
                && !f.hears_nobody()
            {
                f.enter();
                // SAFETY: under the registry lock.
                unsafe {
                    *s.way.get() = Way::Server {
                        family,
                        claim: None,
                        looks: 0,
                        owner: None,
                    }
                };
                s.record.set_kernel(Reason::Undecided);
                s.set_phase(Phase::Fresh);
                return;
            } else {
                Reason::PeerPlain
            }
        }
        Way::Listener {
            family: Err(why), ..
        } => why,
        _ => {
            let asked = world::settings().transport;
            asked
                .shm(Reason::TransportTcp)
                .err()
                .unwrap_or(Reason::NotListened)
        }
    };
    s.record.set_kernel(why);
    s.set_phase(Phase::Plain);
}
