//! Connections that end after a message or two: a client of many threads that makes one for each request.
//!
//! Moving to shared memory costs both ends about what a request costs the kernel. It pays where servers answer an
//! announcement at once, since nobody sleeps then; where they do not, and connection after connection has ended so soon, the
//! next is announced only if it lasts. Until then it is the kernel's, counted, and its server goes on to look for it without
//! system calls.
//!
//! Rules: who is announced late loses nothing but the first messages' speed; every connection that is waited for again, at
//! times (`rendezvous`: `pass`), is announced at once, and one that lasts ends the habit. Called by `engage` and `close`.

use super::{Phase, Socket, Way};
use crate::world::World;
use std::sync::atomic::Ordering;
use transport::reason::Reason;
use transport::record::Record;
use transport::rendezvous::client::Targets;
use transport::rendezvous::server::Family;
use transport::sys::net;

/// What a brief connection carries at most: messages this way, messages that way, bytes both ways.
const SENT: u64 = 2;
const RECEIVED: u64 = 8;
const BYTES: u64 = 16 << 10;

/// A server looks at one in so many messages whether it has been announced: at the first, and when it begins to last.
const LOOK_EVERY: u64 = 4;

/// Whether what a connection has carried so far is what brief ones carry. One more message is under way.
fn is_brief(r: &Record, more: u64) -> bool {
    let [sent, received, out, into] = [
        &r.messages_sent,
        &r.messages_received,
        &r.bytes_sent,
        &r.bytes_received,
    ]
    .map(|n| n.load(Ordering::Relaxed));
    sent + more <= SENT && received <= RECEIVED && out + into <= BYTES
}

/// Whether it is to be announced, or to be looked for, later, if at all. Before a call on it, without a lock.
#[inline]
pub(super) fn waits(s: &Socket) -> bool {
    let r = &s.record;
    if r.role.load(Ordering::Relaxed) == 1 {
        return s.is_brief() && is_brief(r, 1);
    }
    let messages =
        r.messages_sent.load(Ordering::Relaxed) + r.messages_received.load(Ordering::Relaxed);
    s.budget.is_closed() && !messages.is_multiple_of(LOOK_EVERY)
}

/// A connection to a target is on its way.
pub(super) fn expect(targets: &mut Targets, s: &Socket, target: u32) {
    let brief = targets.defers(target);
    s.set_brief(brief);
    if brief {
        s.budget.close();
    } else {
        targets.expect(target, 1);
    }
}

/// It will not be announced any more.
pub(super) fn unexpect(targets: &Targets, s: &Socket, target: u32) {
    if !s.set_brief(false) {
        targets.expect(target, -1);
    }
}

/// It has lasted, if it was a brief one so far, and is announced now.
pub(super) fn lasts(w: &mut World, s: &Socket, target: u32) {
    if s.set_brief(false) {
        s.budget.reopen();
        w.targets().expect(target, 1);
    }
}

/// A server has looked for an announcement: of a brief connection, so far, or not. Nobody spins for those.
pub(super) fn note(s: &Socket, brief: bool) {
    if brief {
        s.budget.close();
    } else {
        s.budget.reopen();
    }
}

/// A connection ends: what it has carried says what the next to its target will. Why it has stayed on the kernel is known now.
pub(super) fn ended(w: &mut World, s: &Socket, fd: i32) {
    if !s.record.has_carried() {
        return;
    }
    match super::demote::way(s) {
        Way::Client { target, .. } => {
            let port = || net::local(fd).map(|l| l.port);
            w.targets().ended(target, is_brief(&s.record, 0), port);
            if s.is_brief() {
                s.record.set_kernel(Reason::Brief);
            }
        }
        Way::Server { family, .. } if s.phase() == Phase::Fresh => {
            if let Some(why) = w.family(family).and_then(Family::why_unknown) {
                s.record.set_kernel(why);
            }
        }
        _ => {}
    }
}
