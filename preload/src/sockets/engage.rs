//! How a connection moves onto the segment. Called before each call on a socket that is not decided.
//!
//! Nothing is done at connect or accept: a connection that never carries a byte costs nothing. At its
//! first use the client announces it and the server looks for the announcement; whoever finds the other
//! willing opens its fast leg. Until then bytes go by the kernel, counted.

use super::demote::become_plain;
use super::{Phase, Socket, Way, fences, options, seats, wired};
use crate::epoll::registered::{self, Joining};
use crate::world::{self, World};
use flowctl::Terms;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use transport::clock;
use transport::doorbell;
use transport::provider::Provider;
use transport::reason::Reason;
use transport::record::Transport;
use transport::rendezvous::client::Targets;
use transport::rendezvous::server::{Family, Look};
use transport::shm::segment::Segment;
use transport::sys::diag::{self, Carried};
use transport::sys::net;

/// Looks that a server takes for an announcement, and how long (µs) it does, before it holds the client
/// for plain: one that polls looks thousands of times before a client has begun.
const LOOKS: u32 = 1000;
const LOOK_US: u64 = 1_000_000;
/// Calls that a client makes on an offered connection before it takes the offer back.
const OFFERS: u32 = 100_000;
/// And before it asks again for an answer; then after twice as many.
const REMINDED: u64 = 4;

/// How long (µs) a first send waits for a prompt server.
const ANSWER_US: u64 = 8;

/// Takes the next step, if there is one to take.
#[inline]
pub(crate) fn step(s: &'static Socket, fd: i32) {
    match s.phase() {
        Phase::Fresh => first_use(s, fd),
        Phase::Announced if is_answered(s) => answered(s),
        Phase::Opening => wired::step(s, fd),
        _ => {}
    }
}

/// A client's connection that its program has waited for to be connected, and not used yet. (One: others ask when they are used.)
static CONNECTED: AtomicPtr<Socket> = AtomicPtr::new(ptr::null_mut());

/// [`step`] of a wait for room alone. A client does not ask for software iWARP in it: a program that waits until it is connected may pass
/// the connection to another process right then (FTP servers do), which could not go before the server has answered; and that may
/// accept it only afterwards. It asks when it sends or waits for what comes, or in the program's next poll or select, whatever that is for
/// ([`step_of_connected`]): a server that goes to the kernel before it says its first words waits for the request.
pub(crate) fn step_for_room(s: &'static Socket, fd: i32) {
    let calls = s.phase() == Phase::Fresh && {
        let _w = world::lock();
        matches!(super::demote::way(s), Way::Caller { .. })
    };
    if calls {
        CONNECTED.store(ptr::from_ref(s).cast_mut(), Ordering::Release);
    } else {
        step(s, fd);
    }
}

/// A wait begins, of poll or select. One load if there is nothing.
#[inline]
pub(crate) fn step_of_connected() {
    if !CONNECTED.load(Ordering::Relaxed).is_null() {
        // SAFETY: null, or a socket, which is never freed.
        let s = unsafe { CONNECTED.swap(ptr::null_mut(), Ordering::AcqRel).as_ref() };
        if let Some(s) = s.filter(|s| s.phase() == Phase::Fresh) {
            let fd = s.record.fd.load(Ordering::Relaxed).cast_signed();
            if s.is_own(fd) {
                step(s, fd);
            }
        }
    }
}

/// Whether the server has said yes to an announced connection. One load.
#[inline]
pub(crate) fn is_answered(s: &Socket) -> bool {
    // SAFETY: null, or a word of an arena that this process keeps mapped.
    unsafe { s.answer_at.load(Ordering::Acquire).as_ref() }
        .is_some_and(|w| w.load(Ordering::Acquire) == s.answer_yes())
}

/// A look for the client's announcement by a server that waits for its first bytes anyway: saying yes
/// takes about as long as they do. Costs no system call while there is none.
#[cold]
pub(crate) fn glance(s: &'static Socket, fd: i32) {
    let mut w = world::lock();
    let fd = s.live_fd(fd);
    if s.phase() == Phase::Fresh
        && s.is_here(fd)
        && is_ours_alone(s)
        && let Way::Server {
            family,
            looks,
            owner,
            ..
        } = super::demote::way(s)
        && w.family(family).is_some_and(|f| f.may_find())
    {
        look(&mut w, s, fd, (family, looks, owner));
    }
}

#[cold]
fn first_use(s: &'static Socket, fd: i32) {
    let mut w = world::lock();
    let mut accepted = None;
    if matches!(super::demote::way(s), Way::Caller { mapped: true, .. }) {
        drop(w); // this may wait for a moment, which nobody else is to
        accepted = wired::is_accepted(fd);
        w = world::lock();
    }
    // (the number may be another connection's since the call looked it up)
    let fd = s.live_fd(fd);
    if s.phase() != Phase::Fresh || !s.is_here(fd) || !is_ours_alone(s) {
        return;
    }
    // SAFETY: under the registry lock.
    match unsafe { *s.way.get() } {
        Way::Client { target, .. } => announce(&mut w, s, fd, target),
        Way::Inherited => find_server(&mut w, s, fd),
        Way::Caller { mapped: true, .. } if accepted.is_none() => {} // not connected yet
        Way::Caller { rides, .. } => wired::ask(&mut w, s, fd, accepted, rides),
        Way::Server {
            family,
            looks,
            owner,
            ..
        } => look(&mut w, s, fd, (family, looks, owner)),
        _ => become_plain(&mut w, s, fd, Reason::NotListened),
    }
}

/// Whether no other process holds the connection: what is mapped for it from now on would be mapped in
/// this one only. Until then bytes go by the kernel, counted by all. A parent that serves by children
/// closes its own descriptor at once.
fn is_ours_alone(s: &Socket) -> bool {
    if !s.is_shared() {
        return true;
    }
    seats::unshare(s);
    !s.is_shared()
}

/// A client's connection that was made before this process was forked: the server is looked up anew.
fn find_server(w: &mut World, s: &'static Socket, fd: i32) {
    let settings = world::settings();
    let found = net::peer(fd).ok_or(Reason::PeerGone).and_then(|peer| {
        let World { targets, diag, .. } = w;
        let region = Terms::region(settings.buf);
        let targets = targets.get_or_insert_default();
        targets.resolve(&peer, diag, settings.peer_users, region)
    });
    match found {
        Ok(target) => {
            w.targets().expect(target, 1);
            // SAFETY: under the registry lock.
            unsafe {
                *s.way.get() = Way::Client {
                    target,
                    ticket: None,
                    expected: true,
                }
            };
            announce(w, s, fd, target);
        }
        Err(why) => become_plain(w, s, fd, why),
    }
}

/// Whether the library has counted every byte that the kernel has carried, as `first` says, which has
/// just been asked; if not, something went round it and the legs would not join.
fn is_counted(s: &Socket, fd: i32, first: &Carried) -> bool {
    let (Ok(tx), Ok(rx)) = (s.tx.lock(), s.rx.lock()) else {
        return false;
    };
    if tx.kernel_bytes() != first.sent {
        return false;
    }
    // What has arrived has been read, or lies in the kernel, or somebody else has taken it. All that
    // has arrived was read here: nothing is left for the other two.
    if rx.kernel_bytes() == first.received {
        return true;
    }
    let arrived = rx.kernel_bytes() + net::unread(fd) as u64;
    // More may have arrived between the two looks.
    arrived == first.received
        || diag::carried(fd).is_some_and(|now| (first.received..=now.received).contains(&arrived))
}

fn announce(w: &mut World, s: &'static Socket, fd: i32, target: u32) {
    let settings = world::settings();
    let Some(carried) = diag::carried(fd) else {
        return become_plain(w, s, fd, Reason::Uncounted);
    };
    if !carried.connected {
        return; // not yet
    }
    let (_, named) = s.record.names();
    let peer = if named.is_specified() {
        Some(named)
    } else {
        net::peer(fd)
    };
    let (Some(local), Some(peer)) = (net::local(fd), peer) else {
        return;
    };
    let tuple = (local, peer);
    s.record.set_names(&local, &peer);
    if !Targets::is_local(&w.diag, &tuple) {
        w.targets().set_plain(&peer, Reason::PeerRemote);
        return become_plain(w, s, fd, Reason::PeerRemote);
    }
    if options::needs_kernel(s) {
        return become_plain(w, s, fd, Reason::SocketOption);
    }
    if !is_counted(s, fd, &carried) {
        return become_plain(w, s, fd, Reason::Uncounted);
    }
    // From the announcement on the server may ring: whoever reads meanwhile has to know the segment.
    let Ok(rx) = s.rx.lock() else {
        return;
    };
    let region = Terms::region(settings.buf);
    let receive = u64::from(s.rcvbuf.load(Ordering::Relaxed));
    let (ticket, segment) = match w.targets().announce(target, &tuple, region, receive) {
        Ok(found) => found,
        Err(why) => {
            drop(rx);
            return become_plain(w, s, fd, why);
        }
    };
    let Some(state) = w.targets().state_word(&ticket) else {
        return;
    };
    segment.state_barriers(fences::are_frequent());
    if can_rest(s) {
        segment.disarm(doorbell::DATA);
    }
    // SAFETY: the phase is Fresh, and this thread alone changes it, under the registry lock.
    unsafe {
        s.set_segment(Some(segment));
        *s.way.get() = Way::Client {
            target,
            ticket: Some(ticket),
            expected: false,
        };
    }
    s.answer_open.store(ticket.word, Ordering::Relaxed);
    s.answer_at
        .store(state.cast_mut().cast::<AtomicU32>(), Ordering::Release);
    s.set_phase(Phase::Announced);
    drop(rx);
    w.targets().expect(target, -1);
    registered::announced(w, s);
}

fn look(
    w: &mut World,
    s: &'static Socket,
    fd: i32,
    (family, looks, mut owner): (u32, u32, Option<u32>),
) {
    let settings = world::settings();
    if w.family(family).is_some_and(Family::hears_nobody) {
        return become_plain(w, s, fd, Reason::PeerPlain);
    }
    let (mut local, mut peer) = s.record.names();
    if local.port == 0 {
        let bound = w.family(family).and_then(|f| f.address());
        let known = peer.is_specified().then_some(peer);
        (local, peer) = match (
            bound.or_else(|| net::local(fd)),
            known.or_else(|| net::peer(fd)),
        ) {
            (Some(l), Some(p)) => (l, p),
            _ => return become_plain(w, s, fd, Reason::PeerGone),
        };
        s.record.set_names(&local, &peer);
    }
    let World { families, diag, .. } = w;
    let Some(Some(f)) = families.get_mut(family as usize) else {
        return become_plain(w, s, fd, Reason::NotListened);
    };
    let claim = match f.look(&(peer, local), &mut owner, diag, settings.peer_users) {
        Look::Found(claim) => claim,
        Look::Later if looks < LOOKS || s.looks_for() < clock::us(LOOK_US) => {
            // SAFETY: under the registry lock.
            unsafe {
                *s.way.get() = Way::Server {
                    family,
                    claim: None,
                    looks: looks.saturating_add(1),
                    owner,
                }
            };
            return;
        }
        Look::Later => return become_plain(w, s, fd, Reason::PeerSilent),
        Look::Never(why) => return become_plain(w, s, fd, why),
    };
    if options::needs_kernel(s) {
        return become_plain(w, s, fd, Reason::SocketOption);
    }
    let carried = diag::carried(fd);
    if carried.is_some_and(|c| !c.connected) {
        // (the client has reset it, and may have connected by the same addresses again)
        f.put_back(&claim);
        return become_plain(w, s, fd, Reason::PeerGone);
    }
    if !carried.is_some_and(|c| is_counted(s, fd, &c)) {
        return become_plain(w, s, fd, Reason::Uncounted);
    }
    let joining = Joining::begin();
    // From the claim on the client may ring: as in `announce`.
    let Ok(rx) = s.rx.lock() else {
        return;
    };
    let receive = u64::from(s.rcvbuf.load(Ordering::Relaxed));
    match f.claim(&claim, receive, can_rest(s)) {
        Ok(segment) => {
            segment.state_barriers(fences::are_frequent());
            // SAFETY: as in `announce`.
            unsafe {
                s.set_segment(Some(segment));
                *s.way.get() = Way::Server {
                    family,
                    claim: Some(claim),
                    looks,
                    owner,
                };
            }
            drop(rx);
            attach(w, s, &segment);
        }
        Err(why) => {
            drop(rx);
            become_plain(w, s, fd, why);
        }
    }
    drop(joining);
}

/// A connection ends that was not decided, as a young listener's may not be: why it has stayed on the kernel is known by now.
pub(super) fn ended(w: &mut World, s: &Socket) {
    // (another connection may have its place before the next wait)
    let own = ptr::from_ref(s).cast_mut();
    let (yes, no) = (Ordering::AcqRel, Ordering::Relaxed);
    let _ = CONNECTED.compare_exchange(own, ptr::null_mut(), yes, no);
    if s.phase() == Phase::Fresh
        && s.record.has_carried()
        && let Way::Server { family, .. } = super::demote::way(s)
        && w.family(family).is_some_and(|f| f.expects_nobody())
    {
        s.record.set_kernel(Reason::PeerPlain);
    }
}

/// Whether nobody can be asleep on the connection: the only thread is here. A segment begins with the
/// wish for a bell, for whoever sleeps in the kernel when it comes into use; where that is nobody the
/// wish can rest: most short connections need no bell at all then.
pub(super) fn can_rest(s: &Socket) -> bool {
    super::lock::is_single_threaded() && !s.is_shared() && s.set_count.load(Ordering::Relaxed) == 0
}

/// A client's first send, of a connection that has just been announced: where servers have said yes at
/// once of late, saying it takes no longer than the kernel would take for the bytes. Others are not
/// waited for.
pub(crate) fn await_answer(s: &'static Socket) {
    if s.record.messages_sent.load(Ordering::Relaxed) > 0 {
        return;
    }
    let mut w = world::lock();
    let Way::Client { target, .. } = super::demote::way(s) else {
        return;
    };
    if !w.targets().is_prompt(target) {
        return;
    }
    drop(w);
    let begun = clock::ticks();
    let most = clock::us(ANSWER_US);
    while !is_answered(s) && clock::ticks() - begun < most {
        std::hint::spin_loop();
    }
    let in_time = is_answered(s);
    world::lock().targets().note_prompt(target, in_time);
    if in_time {
        answered(s);
    }
}

#[cold]
fn answered(s: &'static Socket) {
    let mut w = world::lock();
    if s.phase() != Phase::Announced {
        return;
    }
    if let Way::Client {
        ticket: Some(ticket),
        ..
    } = super::demote::way(s)
    {
        let _ = w.targets().is_claimed(&ticket);
    }
    if let Some(segment) = s.segment().copied() {
        attach(&mut w, s, &segment);
    }
}

/// Opens the fast leg of this side's sending.
pub(super) fn attach(w: &mut World, s: &'static Socket, segment: &Segment) {
    let joining = Joining::begin();
    if can_rest(s) {
        segment.disarm(doorbell::DATA);
    }
    {
        let (Ok(mut tx), Ok(rx)) = (s.tx.lock(), s.rx.lock()) else {
            return;
        };
        if tx.leg() == transport::sdp::Leg::First {
            tx.attach(segment, s.own_fd(-1), &s.terms()); // (unless another process that holds it was faster)
        }
        rx.note_first(segment);
        s.mirror_tx(&tx);
        s.mirror_rx(&rx);
    }
    s.record.set_transport(Transport::Shm);
    s.note_scheme();
    s.set_phase(Phase::Attached);
    registered::attached(w, s);
    drop(joining);
}

/// Asks again for an answer to an offer that has stood for many calls, and takes it back once it has stood for too long.
pub(crate) fn give_up_if_silent(s: &'static Socket, fd: i32, calls: u64) {
    if calls >= REMINDED && calls.is_power_of_two() {
        remind(s);
    }
    if calls < u64::from(OFFERS) {
        return;
    }
    let mut w = world::lock();
    if s.phase() == Phase::Announced && super::close::withdraw(&mut w, s) {
        become_plain(&mut w, s, fd, Reason::PeerSilent);
    }
}

/// Leaves another notice where the last has been borne for long enough: the server's process that has accepted this connection may
/// have been born after the others got theirs, and have heard of nobody.
fn remind(s: &Socket) {
    let settings = world::settings();
    let mut w = world::lock();
    if s.phase() == Phase::Announced {
        let (_, peer) = s.record.names();
        let World { targets, diag, .. } = &mut *w;
        let region = Terms::region(settings.buf);
        let targets = targets.get_or_insert_default();
        let _ = targets.resolve(&peer, diag, settings.peer_users, region);
    }
}
