//! Taking in what has come, and what a peer that may have closed has left on its way, before anything is said to it
//! ([`super::drawing`] says for how long).

use super::super::ending::{is_near, is_peer_gone};
use super::Leaving;
use super::drawing::{Drawing, Seen};
use super::giving::Giving;
use crate::signals::is_sandboxed;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use transport::ring::Ring;
use transport::sdp::Walk;
use transport::sys::diag::{Diag, Owner};
use transport::sys::net;
use transport::wire::{In, Return, State, Wire};

/// What a peer that may have closed has left on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnItsWay {
    Unknown,
    Drawn(Drawing),
    Here,
}

impl Leaving {
    /// Whether what a peer that has closed has left on its way is here. Before this side says anything.
    pub(super) fn is_all_here(&mut self, part: &mut [u8]) -> bool {
        loop {
            let mut drawing = match self.coming {
                OnItsWay::Here => return true,
                OnItsWay::Drawn(drawing) => drawing,
                OnItsWay::Unknown => match Drawing::begin(self.fd, self.seen().octets) {
                    Some(drawing) => drawing,
                    None => {
                        self.coming = OnItsWay::Here;
                        return true;
                    }
                },
            };
            let ended = self.take_in(part);
            let mut seen = self.seen();
            seen.ended |= ended;
            let next = drawing.go_on(seen, || self.socket_of_peer());
            self.coming = match next {
                ControlFlow::Break(()) => OnItsWay::Here,
                ControlFlow::Continue(_) => OnItsWay::Drawn(drawing),
            };
            if next == ControlFlow::Continue(false) {
                return false;
            }
        }
    }

    /// Whether nothing can be said any more, and nothing comes: the peer's process has ended, perhaps while it was asked. All that it has sent
    /// lies here.
    pub(super) fn is_dead(&mut self, part: &mut [u8]) -> bool {
        if net::ready_now(self.fd, 0) & libc::POLLHUP == 0 {
            return false;
        }
        let mut was = (self.seen().octets, self.kept.len());
        loop {
            self.take_in(part);
            let now = (self.seen().octets, self.kept.len());
            if now == was {
                return true;
            }
            was = now;
        }
    }

    /// What the kernel says of the peer's socket, if that is on this host and its end is not here yet.
    fn socket_of_peer(&self) -> Option<Owner> {
        // (a sandbox may kill for the question)
        if is_sandboxed() || is_peer_gone(self.fd) || !is_near(self.fd) {
            return None;
        }
        let (peer, own) = (net::peer(self.fd)?, net::local(self.fd)?);
        // (not kept: many connections may be left together, and each would have a descriptor)
        Diag::open().ok()?.find(&peer, &own).ok()
    }

    /// How the receiving direction stands.
    fn seen(&self) -> Seen {
        let (mut octets, mut said) = (0, false);
        let ended = self.look(|incoming, _, _| {
            (octets, said) = (incoming.octets(), incoming.has_end());
            incoming.is_over() || incoming.is_past_mode()
        });
        Seen {
            octets,
            ended,
            said,
        }
    }

    /// Takes what has come. True if nothing more can: the stream is over.
    pub(super) fn take_in(&mut self, part: &mut [u8]) -> bool {
        let Ok(_rx) = self.s.rx.lock() else {
            return true;
        };
        // SAFETY: the lock is held.
        let mut incoming = unsafe { self.wire.incoming() };
        let of = (self.wire, self.fd);
        self.spares = self.spares && !self.is_to_take(&mut incoming);
        if self.spares {
            return is_over(&incoming, self.wire);
        }
        let asked = self.giving != Giving::Wanted; // (the sooner its last word is read)
        // (without memory it is here still, and lacks in the end)
        let _ = drain_all(&mut incoming, of, asked, part, &mut self.kept);
        is_over(&incoming, self.wire)
    }
}

/// Whether the stream is over: nothing of it is to come, and nothing that goes has to become plain before. (A peer that has said DisConn says
/// Plain all the same. One that has said that, or is to behind what it gives back, may have ended its direction in the kernel, and reads on.)
pub(super) fn is_over(incoming: &In, wire: &Wire) -> bool {
    let goes_on = incoming.is_past_mode() || wire.common.is_returning(Return::Waits);
    incoming.state() == State::Reset || incoming.is_over() && !goes_on
}

impl Leaving {
    /// Whether to take out of the stream what has come: once something has that may be the peer's answer, or, before it is asked, there is no
    /// more room for what comes.
    fn is_to_take(&self, incoming: &mut In) -> bool {
        let before = incoming.octets();
        let come = before + net::unread(self.fd) as u64;
        match self.giving {
            Giving::Wanted => {
                incoming.available(&self.wire.common, self.fd);
                incoming.octets() == before && come > before
            }
            // (a peer that has been answered may have begun to send by its ring, which it says behind what lies here, and answers nothing
            // before it hears this side's word for that)
            Giving::Asked => {
                let ring = self.wire.common.ring.get();
                let asked_at = self.wire.common.asked_at.load(Ordering::Acquire);
                come > asked_at || ring.is_some_and(Ring::is_expected)
            }
            Giving::Gives(_) | Giving::No => true,
        }
    }
}

/// Reads what has come, frame by frame, up to the end of RDMA mode; of one that does not know yet that it is to end no more than so much
/// in one go, since what is drawn from it has to find room in the kernels again. False if there is no memory for what is here.
pub(super) fn drain_all(
    incoming: &mut In,
    (wire, fd): (&Wire, i32),
    ends: bool,
    part: &mut [u8],
    kept: &mut Vec<u8>,
) -> bool {
    let at_once = if ends { 4 * 1024 * 1024 } else { 64 * 1024 };
    let begun = kept.len();
    loop {
        let before = kept.len();
        incoming.look_for_plain(&wire.common, fd);
        if !drain(incoming, wire, fd, part, kept) {
            return false;
        }
        // (behind the end of RDMA mode only what is here already, so that one who goes on sending keeps nobody)
        let enough = before - begun > at_once && !incoming.is_over();
        if kept.len() == before || enough || incoming.is_past_mode() {
            return true;
        }
    }
}

/// Reads what is here, and no more: of plain bytes the rest is the kernel's. False without memory for it.
fn drain(incoming: &mut In, wire: &Wire, fd: i32, part: &mut [u8], kept: &mut Vec<u8>) -> bool {
    while incoming.held() > 0 {
        let want = part.len().min(incoming.held());
        if kept.try_reserve(want).is_err() && kept.try_reserve_exact(want).is_err() {
            return false;
        }
        let mut walk = Walk::one(part.as_mut_ptr(), want);
        // SAFETY: our own buffer.
        let n = unsafe { incoming.read(&wire.common, fd, &mut walk, false) };
        kept.extend_from_slice(part.get(..n).unwrap_or_default());
        if n == 0 {
            break;
        }
    }
    true
}
