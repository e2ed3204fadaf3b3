//! The client's side. A connect to a peer that the rules let use iWARP if its port mapper accepts sends the question, and
//! goes on; when the connection is first used, the handshake has taken about as long as the answer. Silence means
//! kernel TCP for this connection; an answer that comes later is for the next.
//!
//! The request says that the client will come from the port of the question's own socket: the port of the connection
//! is not known before the kernel has begun to connect. An acceptance that names another address or port than was
//! asked for is taken for a denial: no connection goes elsewhere than the program said.

use super::is_over;
use crate::sockets::lock::Slow;
use crate::world;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use transport::clock;
use transport::mapping::link::ToMapper;
use transport::port_mapper::asker::Timing;
use transport::port_mapper::questions::{Holds, Questions, Verdict};
use transport::sys::net::{self, Endpoint};
use transport::sys::udp;

/// A request is sent three times: silence after 140 ms.
const TIMING: Timing = Timing {
    first_us: 20_000,
    requests: 3,
};

const HOLDS: Holds = Holds {
    denied_us: 2_000_000,
    silent_us: 10_000_000,
    once_us: 1_000_000,
    patience_us: 2_000,
};

static QUESTIONS: Slow<Questions<ToMapper>> = Slow::new(
    crate::sockets::order::Rank::Asking,
    Questions::new(TIMING, HOLDS),
);
/// The signal mask while fork is under way.
static MASK: AtomicU64 = AtomicU64::new(0);

/// The peer as it is asked about. (The kernel takes the address of all zeros for this host.)
fn service(peer: &Endpoint) -> Option<SocketAddr> {
    let ip = match peer.std().ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let askable = peer.port != 0 && !ip.is_multicast() && ip != IpAddr::V4(Ipv4Addr::BROADCAST);
    askable.then(|| SocketAddr::new(ip, peer.port))
}

fn now() -> u64 {
    clock::monotonic_ns() / 1000
}

/// The program connects to a peer whose port mapper has to accept before it is asked for iWARP: asks that, unless
/// the answer is known or on its way.
pub(crate) fn asked(peer: &Endpoint) {
    if is_over() || world::is_foreign() {
        return;
    }
    let Some(service) = service(peer) else { return };
    ask(&mut QUESTIONS.lock(), service, now());
}

fn ask(questions: &mut Questions<ToMapper>, service: SocketAddr, now: u64) {
    if !questions.is_wanted(service, now) {
        return;
    }
    let way = ToMapper::open(service).and_then(|way| Ok((way, udp::random()?)));
    match way {
        Ok(((link, from), handle)) => questions.ask(service, from, handle, link, now),
        Err(_) => questions.note_silent(service, now),
    }
}

/// What is known of a peer that was [`asked`], when the connection to it is there and about to be used. Waits for an
/// answer that is on its way for no longer than `wait_us` microseconds, and all who wait for the same answer for no
/// longer than two milliseconds together. Nothing: kernel TCP for this connection. An acceptance for a single
/// connection is given out once. Asks where nothing is known, or was asked before the peer may have been there.
pub(crate) fn verdict(peer: &Endpoint, wait_us: u64) -> Option<Verdict> {
    if is_over() || world::is_foreign() {
        return None;
    }
    let service = service(peer)?;
    let end = now().saturating_add(wait_us);
    loop {
        let mut questions = QUESTIONS.lock();
        let now = now();
        let known = questions.verdict(service, now);
        if known.is_some() {
            return known;
        }
        ask(&mut questions, service, now);
        let (link, us) = questions.patience(service, end.saturating_sub(now))?;
        let coming = link.raw();
        drop(questions);
        // (its number may be another's by now, which cuts the wait short at worst)
        net::await_input(coming, us);
    }
}

/// The peer did not take iWARP, whatever its port mapper said: it is not asked again for a while.
pub(crate) fn refused(peer: &Endpoint) {
    if let Some(service) = service(peer) {
        QUESTIONS.lock().note_refused(service, now());
    }
}

/// Nobody was there to connect to: the peer is asked anew at the next try.
pub(crate) fn not_there(peer: &Endpoint) {
    if let Some(service) = service(peer) {
        QUESTIONS.lock().forget(service);
    }
}

pub(super) fn hold() {
    MASK.store(QUESTIONS.hold(), Ordering::Relaxed);
}

pub(super) fn let_go() {
    QUESTIONS.let_go(MASK.load(Ordering::Relaxed));
}

/// In a child after fork, while held: what comes by the parent's sockets is the parent's.
pub(super) fn in_child() {
    // SAFETY: held since before the fork, and there is no other thread.
    unsafe { QUESTIONS.held() }.part();
}
