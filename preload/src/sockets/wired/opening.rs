//! How a connection gets into RDMA mode. A client asks at its first use, on the connection itself; a server looks at
//! the first octets that come.
//!
//! Rules:
//! - What a client sends before it has been answered is taken, up to a bound, and goes out once it is known how.
//! - A server whose program has sent anything has declined: it swallows the request and says nothing of it, and the
//!   client takes whatever is no answer for the program's bytes.

use super::super::demote::become_plain;
use super::super::{Phase, Socket, Way, coarse, options, parked, rouse, seats};
use super::{is_current, mover, number, overdue, wire};
use crate::epoll::registered;
use crate::world::{self, World};
use crate::{mapper, rules};
use flowctl::Scheme;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use transport::clock;
use transport::direct::policy::Mode;
use transport::reason::Reason;
use transport::record::Transport;
use transport::rules::Iwarp;
use transport::sdp::Ended;
use transport::sys::diag;
use transport::sys::net::{self, Endpoint};
use transport::sys::time;
use transport::sys::{Errno, Result};
use transport::wire::set_up::{self, Asker, LONGEST, Want};
use transport::wire::{Heard, Wire};

/// How long (µs) a first use waits for the port mapper's answer. The question was sent before the handshake began; a busy host
/// may let its answer wait for a core.
const ANSWER_US: u64 = 5_000;

/// How long (µs) the rest of a request may take to come behind its first octets.
const REST_US: u64 = 200_000;
/// The same of an answer, which a slow way may have parted: what has come of it would be taken for the program's bytes.
const REST_OF_ANSWER_US: u64 = 3_000_000;
/// How often (µs) that is looked for.
const LOOK_US: u64 = 1_000;

/// How long (µs) a child waits for the parent to close its descriptor of a connection that the child serves.
const PARENT_US: u64 = 10_000;

/// Whether what this listener accepts may be asked.
pub(crate) fn is_wanted_at(fd: i32) -> bool {
    rules::listen_wanted(fd).iwarp != Iwarp::Never
}

/// Whether a rule says that whoever connects to what this TCP connection was accepted from asks without having been told
/// that it may.
pub(crate) fn is_named_at(fd: i32) -> bool {
    rules::listen_wanted(fd).iwarp == Iwarp::Always
        && net::option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP)
}

/// Whether a connection that was accepted comes from another host, as far as addresses tell.
fn is_remote(fd: i32, peer: Option<Endpoint>) -> bool {
    peer.is_none_or(|peer| {
        !peer.is_loopback() && net::local(fd).is_none_or(|local| local.ip != peer.ip)
    })
}

/// A connection was accepted from a listener that may be asked for software iWARP, and perhaps for shared memory.
/// Whether the other end may ask for the former.
pub(crate) fn may_be_asked(s: &Socket, has_board: bool, peer: Option<Endpoint>) -> bool {
    #[allow(clippy::cast_possible_wrap)]
    let fd = s.record.fd.load(Ordering::Relaxed) as i32;
    !has_board || is_remote(fd, peer)
}

/// What this side wants. Where octets are to go by an adapter, which has sums of its own, ours are made only if a person
/// says so.
fn want(rides: bool) -> Want {
    let settings = world::settings();
    // (what goes by the kernel is copied by it in any case: adverts gain nothing here, so a person has to ask for them)
    let adverts = matches!(settings.zcopy, Mode::Sync | Mode::Async).then_some(settings.zcopy_min);
    Want::new(&settings.terms, settings.crc.unwrap_or(!rides), adverts)
}

fn set_wire(s: &Socket, at: NonNull<Wire>) {
    s.wire.store(at.as_ptr(), Ordering::Release);
}

/// Whether there has ever been one that the other end may ask.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether this process has accepted any such connection.
pub(super) fn has_begun() -> bool {
    BEGUN.load(Ordering::Relaxed)
}

/// A connection was accepted that the other end may want to move. Under the registry lock; [`overdue::attend`] is to follow.
pub(crate) fn begin_as_server(s: &'static Socket) {
    BEGUN.store(true, Ordering::Relaxed);
    s.record.set_kernel(Reason::Undecided);
    s.set_phase(Phase::Opening);
    overdue::note(s);
}

/// A connection has come with this program that nobody had asked to move when it was started: a request that comes yet is declined. `handed`:
/// others may hold it too. Under the registry lock.
pub(crate) fn begin_inherited(s: &'static Socket, fd: i32, handed: bool) {
    let Some(peer) = net::peer(fd) else { return };
    s.record.begin(fd, 2, Reason::Undecided);
    s.record.set_peer(&peer);
    // SAFETY: under the registry lock.
    unsafe { *s.way.get() = Way::Passed };
    if handed {
        s.hand_on();
    }
    s.decline();
    begin_as_server(s);
}

/// Whether a program that is about to be started is to be told of this connection, since it may be asked yet; and whether others hold that
/// too.
pub(crate) fn is_unasked(s: &Socket) -> Option<bool> {
    let is = s.phase() == Phase::Opening
        && wire(s).is_none()
        && s.declines()
        && !s.tx_shut.load(Ordering::Acquire);
    is.then(|| s.is_handed())
}

/// Whether the other end of a connection may have a request to make yet: it is there, and all that it has said lies here. (That is asked in
/// this order, since more may come meanwhile; and the kernel counts an end as an octet.)
pub(crate) fn is_unread(fd: i32) -> bool {
    net::peer(fd).is_some()
        && diag::carried(fd).is_some_and(|c| c.received <= net::unread(fd) as u64 + 1)
}

/// What has gone by a connection that others may have used too, or this program round the library: whether the other end has said more than
/// lies here, so that no request can come, and whether anything was sent.
fn used_elsewhere(s: &Socket, fd: i32) -> (bool, bool) {
    let is_ours = !s.declines() && super::super::demote::way(s) != Way::Passed;
    if is_ours || crate::signals::is_sandboxed() {
        return (false, false);
    }
    diag::carried(fd).map_or((false, false), |c| {
        (c.received > net::unread(fd) as u64 + 1, c.sent > 0)
    })
}

/// Takes a request out of the stream. Another process that holds the connection may be about the same: whoever comes second finds nothing. If
/// it finds what the other end has said since the connection is reset, never a gap.
fn take_out(fd: i32, request: &[u8]) -> bool {
    let mut took = [0; LONGEST];
    // SAFETY: the buffer is as long as any request.
    let n = unsafe {
        net::recv(
            fd,
            took.as_mut_ptr(),
            request.len().min(LONGEST),
            libc::MSG_DONTWAIT,
        )
    };
    let took = took.get(..n.unwrap_or(0)).unwrap_or_default();
    if took != request && !took.is_empty() {
        net::disconnect(fd);
    }
    took == request
}

/// Whether the port mapper of the other host has accepted, where that has to be so; not known before the connection
/// is there.
pub(crate) fn is_accepted(fd: i32) -> Option<bool> {
    let peer = net::peer(fd)?;
    Some(mapper::verdict(&peer, ANSWER_US) == Some(mapper::Verdict::Accepted))
}

/// A request that nobody has looked at would make the kernel's end of the connection a reset. Whether nothing else had come
/// either.
pub(super) fn swallow(fd: i32) -> bool {
    let (mut came, mut reply) = ([0; LONGEST], [0; LONGEST]);
    let (n, _) = net::peek(fd, &mut came);
    let came = came.get(..n).unwrap_or_default();
    match set_up::answer(came, want(false), true, &mut reply) {
        set_up::Verdict::Declined { used, .. } => {
            let _ = net::discard(fd, used);
            used == n
        }
        _ => n == 0,
    }
}

/// A client's first use of its connection: asks, if it is connected. Under the registry lock.
#[cold]
pub(crate) fn ask(w: &mut World, s: &'static Socket, fd: i32, accepted: Option<bool>, rides: bool) {
    let Some(carried) = diag::carried(fd) else {
        return become_plain(w, s, fd, Reason::Uncounted);
    };
    if !carried.connected {
        return; // not yet
    }
    if carried.sent > 0 {
        return become_plain(w, s, fd, Reason::Uncounted);
    }
    if carried.received > 0 {
        // It spoke first. (Who has connected to this side at the same time may have asked.)
        return decline(w, s, fd, Reason::PeerPlain);
    }
    if options::needs_kernel(s) {
        return become_plain(w, s, fd, Reason::SocketOption);
    }
    let (Some(local), Some(peer)) = (net::local(fd), net::peer(fd)) else {
        return become_plain(w, s, fd, Reason::PeerGone);
    };
    s.record.set_names(&local, &peer);
    if local == peer {
        return become_plain(w, s, fd, Reason::PeerPlain); // connected to itself: it would read the request
    }
    if accepted == Some(false) {
        return become_plain(w, s, fd, Reason::NotMapped);
    }
    let mut request = [0; LONGEST];
    let Ok((asker, len)) = Asker::ask(want(rides), &mut request) else {
        return become_plain(w, s, fd, Reason::NoMemory);
    };
    let Ok(at) = Wire::asking(Some(asker)) else {
        return become_plain(w, s, fd, Reason::NoMemory);
    };
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let rx = s.rx.lock();
    // (An error is for the program, which the kernel tells of it once. And a server that has closed already would answer with a reset,
    // where the program is to find an end.)
    let sent = if net::ready_now(fd, libc::POLLRDHUP) == 0 {
        // SAFETY: the buffer is that long.
        unsafe { net::send(fd, request.as_ptr(), len, flags) }
    } else {
        Ok(0)
    };
    if let Err(e) = sent
        && Ended::is_said_by(e)
    {
        fail(s, at, e);
        drop(rx);
        return registered::attached(w, s);
    }
    if sent != Ok(len) {
        // SAFETY: nobody has seen it.
        unsafe { Wire::release(at) };
        drop(rx);
        if matches!(sent, Ok(1..)) {
            net::disconnect(fd); // a part of a request is worse than none
        }
        return become_plain(w, s, fd, Reason::PeerGone);
    }
    let_pass(fd);
    // SAFETY: nobody else has it yet.
    let riding = &unsafe { at.as_ref() }.common.ring;
    riding.allow(rides);
    riding.let_offer();
    set_wire(s, at);
    s.set_phase(Phase::Opening);
    drop(rx);
    registered::attached(w, s);
}

/// The program's cork keeps back what the program says, which waits for the set-up in any case: not the word of the set-up that was sent just
/// now, for which the peer waits. The kernel keeps back what is sent from here on.
fn let_pass(fd: i32) {
    if net::is_corked(fd) {
        net::uncork(fd);
    }
}

/// Answers a request, on a connection by which nothing has gone yet.
fn answer(fd: i32, octets: &[u8]) -> Result<usize> {
    let said = net::press(fd, octets); // (it fits an empty connection)
    let_pass(fd);
    said
}

/// A send of the library's met this error, which the kernel tells once: the connection goes on with plain bytes, and the program's
/// next call is told. Under the lock of the receiving direction; nobody has `at` yet.
fn fail(s: &Socket, at: NonNull<Wire>, e: Errno) {
    // SAFETY: the caller's promise.
    unsafe { at.as_ref().fail(e) };
    s.record.set_kernel(Reason::PeerGone);
    set_wire(s, at);
    s.set_phase(Phase::Wired);
}

/// Takes the next step of an opening connection, if there is one to take. Cheap when there is none but for one
/// system call.
pub(crate) fn step(s: &'static Socket, fd: i32) {
    if s.phase() != Phase::Opening {
        return;
    }
    match wire(s) {
        Some(wire) => hear(s, fd, wire),
        None => look(s, fd, || true),
    }
}

/// A client looks for the answer.
pub(super) fn hear(s: &'static Socket, fd: i32, wire: &'static Wire) {
    let (heard, full) = hear_alone(s, fd, wire);
    match heard {
        Heard::Nothing => {}
        Heard::Part => await_more(LOOK_US / 8), // (nothing else is to be done here as a rule)
        Heard::Agreed => {
            mover::watch(s, fd);
            wire.common.ring.begin_later();
            registered::kick_others(s, std::ptr::null());
        }
        Heard::Declined => {
            super::ending::settle_plain(s, fd);
            registered::kick_others(s, std::ptr::null());
        }
    }
    // (Who sleeps for data is told by the kernel: of the answer, and of what is behind it, which has been left there. All who
    // sleep on any connection are woken by this, and each answer of a server's that is at work would be one herd.)
    if heard == Heard::Declined && s.sleepers() > 0 || heard == Heard::Agreed && full {
        rouse::sleepers(s);
    }
}

/// [`hear`] without a word to those who watch the socket.
pub(super) fn hear_closing(s: &'static Socket, fd: i32, wire: &'static Wire) -> Heard {
    hear_alone(s, fd, wire).0
}

/// What was heard, and whether a sender may have been waiting for it because there was no room here for more.
fn hear_alone(s: &'static Socket, fd: i32, wire: &'static Wire) -> (Heard, bool) {
    let nothing = (Heard::Nothing, false);
    let (Ok(_tx), Ok(_rx)) = (s.tx.lock(), s.rx.lock()) else {
        return nothing;
    };
    // (the mover may be late: by now the socket may be another connection's)
    if s.phase() != Phase::Opening || !is_current(s, wire) {
        return nothing;
    }
    let fd = number(s, fd);
    // SAFETY: both locks are held.
    let full = unsafe { !wire.out().is_roomy(&wire.common) };
    // SAFETY: as above.
    let mut heard = unsafe { wire.hear(fd, false) };
    if heard == Heard::Part && is_late(s, REST_OF_ANSWER_US) {
        // SAFETY: as above.
        heard = unsafe { wire.hear(fd, true) };
    }
    if matches!(heard, Heard::Nothing | Heard::Part) {
        return (heard, false);
    }
    s.starving.store(0, Ordering::Relaxed);
    if heard == Heard::Agreed {
        // SAFETY: as above.
        attached(s, unsafe { wire.out() }.scheme());
    } else {
        let (_, peer) = s.record.names();
        mapper::refused(&peer);
        s.record.set_kernel(Reason::PeerPlain);
        // SAFETY: as above.
        if unsafe { wire.out() }.pending() == 0 {
            forget_reset_behind_end(wire, fd);
        }
    }
    s.set_phase(Phase::Wired);
    // SAFETY: as above.
    if let Err(e) = unsafe { wire.out().serve(&wire.common, fd) } {
        wire.common.fail(e); // the kernel says so once, and the program's next call tells
    }
    (heard, full)
}

/// A request that meets a peer's end on its way is answered with a reset behind that, which nothing that the program has said has caused:
/// it is to find the end alone. (A reset without an end may be somebody's wish.)
fn forget_reset_behind_end(wire: &Wire, fd: i32) {
    let has_ended = || diag::carried(fd).is_some_and(|c| c.received > 0); // (the kernel counts an end as an octet)
    if net::has_only_error(fd)
        && has_ended()
        && let Ok(e @ 1..) = net::option(fd, libc::SOL_SOCKET, libc::SO_ERROR)
        && e != libc::EPIPE
    {
        wire.common.fail(Errno(e)); // told from here
    }
}

/// A server that has not been asked will not agree any more.
pub(super) fn decline(w: &mut World, s: &'static Socket, fd: i32, why: Reason) {
    let spoke = has_spoken(s);
    let Ok(rx) = s.rx.lock() else { return };
    let (over, said) = used_elsewhere(s, fd);
    let spoke = spoke || said;
    let mut came = [0; LONGEST];
    let (n, _) = net::peek(fd, &mut came);
    let mut reply = [0; LONGEST];
    let came = came.get(..n).unwrap_or_default();
    if let set_up::Verdict::Declined { used, reply: len } =
        set_up::answer(came, want(false), true, &mut reply)
        && !over
        && take_out(fd, came.get(..used).unwrap_or_default())
    {
        // (where the peer has gone an answer would be told so, in the program's place)
        if !spoke && !net::has_only_error(fd) {
            let _ = answer(fd, reply.get(..len).unwrap_or_default());
        }
    }
    drop(rx);
    become_plain(w, s, fd, why);
}

fn attached(s: &Socket, scheme: Scheme) {
    s.record.set_transport(Transport::Iwarp);
    s.record.flow.store(scheme as u8, Ordering::Relaxed);
}

/// Whether the program has sent anything yet.
fn has_spoken(s: &Socket) -> bool {
    s.tx.lock().is_ok_and(|tx| tx.kernel_bytes() > 0)
}

/// Whether what may be the beginning of a request, or an answer, is none: either is sent whole, and the rest has had its time (µs).
fn is_late(s: &Socket, most: u64) -> bool {
    let now = coarse(clock::ticks()).max(1);
    let since = match s.starving.load(Ordering::Relaxed) {
        0 => {
            s.starving.store(now, Ordering::Relaxed);
            now
        }
        since => since,
    };
    let over = now.wrapping_sub(since) > coarse(clock::us(most));
    if !over {
        parked::look_soon(); // (what is here already wakes no set that it has woken)
    }
    over
}

/// A moment for more of what may be a request, or an answer: no sleep on the connection waits for it, since something lies there. One for all
/// connections, so that an event loop with many of them stands still no longer than with one, and so long (µs) after each for the rest.
fn await_more(apart: u64) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    if clock::ticks().wrapping_sub(LAST.load(Ordering::Relaxed)) >= clock::us(apart) {
        let _ = time::nap(LOOK_US);
        LAST.store(clock::ticks(), Ordering::Relaxed);
    }
}

/// Whether no other process holds the connection: what is mapped for it now is mapped in this one only. A parent that
/// serves by children closes its own descriptor at once, so it is given a moment.
fn is_ours_alone(s: &Socket) -> bool {
    let begun = clock::ticks();
    while s.is_shared() {
        seats::unshare(s);
        if s.is_shared() {
            if clock::ticks() - begun > clock::us(PARENT_US) {
                return false;
            }
            let _ = time::nap(50);
        }
    }
    true
}

/// A server looks at what has come first, if this holds under the registry lock.
pub(super) fn look(s: &'static Socket, fd: i32, holds: impl FnOnce() -> bool) {
    let alone = !s.is_shared() || (net::unread(fd) > 0 && is_ours_alone(s));
    let mut w = world::lock();
    if !holds() {
        return;
    }
    let spoke = has_spoken(s);
    let Ok(rx) = s.rx.lock() else { return };
    if s.phase() != Phase::Opening || wire(s).is_some() {
        return;
    }
    let (past, said) = used_elsewhere(s, fd);
    if past {
        drop(rx);
        return become_plain(&mut w, s, fd, Reason::Declined);
    }
    let spoke = spoke || said;
    let mut came = [0; LONGEST];
    let (n, over) = net::peek(fd, &mut came);
    if n == 0 {
        drop(rx);
        if over {
            become_plain(&mut w, s, fd, Reason::PeerPlain); // whatever it is, the kernel tells it
        }
        return;
    }
    let way = super::super::demote::way(s);
    let passed = matches!(way, Way::Passed);
    let rides = matches!(way, Way::Callee { rides: true });
    let declines = s.declines() || options::needs_kernel(s);
    let unfit = passed || spoke || !alone || s.is_shared() || declines;
    let mut reply = [0; LONGEST];
    let came = came.get(..n).unwrap_or_default();
    let (used, len, agreed) = match set_up::answer(came, want(rides), unfit, &mut reply) {
        set_up::Verdict::Partial if !(over || is_late(s, REST_US)) => {
            drop(rx);
            drop(w);
            await_more(LOOK_US);
            return;
        }
        set_up::Verdict::Partial | set_up::Verdict::Foreign => {
            drop(rx);
            s.starving.store(0, Ordering::Relaxed);
            return become_plain(&mut w, s, fd, Reason::PeerPlain);
        }
        set_up::Verdict::Declined { used, reply } => (used, reply, None),
        set_up::Verdict::Agreed {
            agreed,
            used,
            reply,
        } => (used, reply, Some(agreed)),
    };
    if !take_out(fd, came.get(..used).unwrap_or_default()) {
        drop(rx);
        return become_plain(&mut w, s, fd, Reason::Declined);
    }
    if net::has_only_error(fd) {
        drop(rx);
        return become_plain(&mut w, s, fd, Reason::PeerGone); // whatever it is, the kernel tells it
    }
    let wire = agreed.map(|agreed| Wire::agreed(&agreed));
    let (wire, len) = match wire {
        Some(Ok(at)) => (Some(at), len),
        // Without memory it is as if it had been declined; the answer is to say so.
        Some(Err(_)) => match set_up::answer(came, want(false), true, &mut reply) {
            set_up::Verdict::Declined { reply, .. } => (None, reply),
            _ => (None, 0),
        },
        None => (None, len),
    };
    let said = match reply.get(..len).filter(|_| !spoke) {
        Some(reply) => answer(fd, reply),
        None => Ok(0),
    };
    let Some(wire) = wire else {
        if let Err(e) = said
            && Ended::is_said_by(e)
            && let Ok(at) = Wire::asking(None)
        {
            fail(s, at, e);
            drop(rx);
            return registered::attached(&mut w, s);
        }
        drop(rx);
        let why = if passed {
            Reason::Passed
        } else {
            Reason::Declined
        };
        return become_plain(&mut w, s, fd, why);
    };
    if let (Some(local), Some(peer)) = (net::local(fd), net::peer(fd)) {
        s.record.set_names(&local, &peer);
    }
    if let Way::Callee { rides } = super::super::demote::way(s) {
        // SAFETY: nobody else has it yet.
        let riding = &unsafe { wire.as_ref() }.common.ring;
        riding.allow(rides);
        riding.begin_later();
    }
    if let Err(e) = said {
        // SAFETY: nobody else has it yet.
        unsafe { wire.as_ref() }.common.fail(e);
    }
    // SAFETY: nobody else has it yet.
    let scheme = unsafe { wire.as_ref().out() }.scheme();
    set_wire(s, wire);
    attached(s, scheme);
    s.set_phase(Phase::Wired);
    drop(rx);
    registered::attached(&mut w, s);
    drop(w);
    mover::watch(s, fd);
}
