//! The ends of a connection in RDMA mode: a half is shut, the socket is closed, or it goes back to plain bytes.
//!
//! Going back is said in each direction by the side that sends there (`Plain`, transport::sdp_wire), at the byte where
//! it is; the peer follows. Until it has, what it sends is framed. Who needs the kernel connection as it is: `leaving`.

use super::super::demote::go_plain;
use super::super::ending::Ending;
use super::super::{Phase, Socket, rouse, seats};
use super::{
    farewell, io, is_current, is_own, leaving, mover, number, opening, raising, riding, waiting,
    wire,
};
use crate::world;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use transport::reason::Reason;
use transport::ring::Ring;
use transport::sys::fd::{Fd, as_fd};
use transport::sys::{Errno, net};
use transport::wire::{Out, Return, State, Wire};

/// Octets that a kernel has room for in any case.
const LITTLE: usize = 4096;
/// Bytes. A connection on this host that has sent no more has none in this side's kernel, whether the peer reads or not.
const MUCH: u64 = 32 * 1024;

/// The program shuts a half. What the kernel is to be told of it, if anything.
pub(crate) fn shut(s: &'static Socket, fd: i32, how: i32) -> Option<i32> {
    opening::step(s, fd);
    let Some(wire) = wire(s) else {
        let ends = matches!(how, libc::SHUT_WR | libc::SHUT_RDWR);
        if ends && refuse(s) {
            return shut(s, fd, how); // it was asked just now
        }
        return Some(how);
    };
    if !matches!(how, libc::SHUT_RD | libc::SHUT_WR | libc::SHUT_RDWR) {
        return Some(how); // it is told so
    }
    // (who goes back to plain bytes has what was not read, and words to say yet: he tells the kernel of the end)
    let leaves = leaving::is_under_way(s, fd, wire);
    let both = s.tx_shut.load(Ordering::Acquire) && state(s) == Some(State::Eof);
    if both && !leaves || has_failed(s) {
        return Some(how); // the kernel knows, and says that there is no connection
    }
    if how != libc::SHUT_RD && !s.tx_shut.swap(true, Ordering::AcqRel) {
        io::available(s, fd); // (credits may lie there)
        if is_peer_deaf(wire, fd) && !waiting::is_under_way(s) {
            return by_kernel(s, how); // what this side would say would be answered with a reset
        }
        let plain = s.tx.lock().is_ok_and(|_tx| {
            // SAFETY: the lock is held.
            let mut out = unsafe { wire.out() };
            let _ = out.finish(&wire.common, fd);
            out.is_plain()
        });
        if plain {
            return by_kernel(s, how);
        }
        net::push(fd);
        waiting::note_pending(s, fd);
        rouse::all(s); // (who waits for room is told that there is nowhere to send any more)
    }
    if how != libc::SHUT_WR {
        s.rx_shut.store(true, Ordering::Release);
    }
    let both = s.rx_shut.load(Ordering::Acquire) && s.tx_shut.load(Ordering::Acquire);
    if both && !leaves && !waiting::is_under_way(s) {
        return farewell::begin(s, fd, wire); // nothing is to come, and nothing to go
    }
    if how != libc::SHUT_WR {
        rouse::all(s);
        // Who sleeps in the kernel on this very socket hears it there only; for the others it stays open, since the
        // peer's own words come that way.
        if s.sleepers() > 0 && s.phase() == Phase::Wired {
            s.woken_hard.store(true, Ordering::Release);
            shut_here(s, wire);
            return Some(libc::SHUT_RD);
        }
    }
    settle_both_shut(s, fd);
    None
}

/// The kernel is told of this, unless whoever has gone back to plain bytes meanwhile has told it of this side's end: it would say that
/// there is no connection any more, if the peer has ended too.
fn by_kernel(s: &Socket, how: i32) -> Option<i32> {
    let told = s.fin_sent.swap(true, Ordering::AcqRel);
    match how {
        libc::SHUT_WR if told => None,
        libc::SHUT_RDWR if told => Some(libc::SHUT_RD),
        _ => Some(how),
    }
}

/// The end of file is about to be said before this side was asked: nothing can be answered any more. Whether it has been, by
/// another thread.
fn refuse(s: &Socket) -> bool {
    s.rx.lock().is_ok_and(|_rx| {
        s.decline();
        wire(s).is_some()
    })
}

/// The kernel connection is shut by this side.
pub(super) fn shut_here(s: &Socket, wire: &Wire) {
    if let Ok(_rx) = s.rx.lock() {
        // SAFETY: the lock is held.
        unsafe { wire.incoming() }.shut();
    }
}

/// Whether the peer's kernel has ended the connection, in its direction at least: a peer does so when it closes.
pub(super) fn is_peer_gone(fd: i32) -> bool {
    net::ready_now(fd, libc::POLLRDHUP) & (libc::POLLRDHUP | libc::POLLERR) != 0
}

/// Whether that is the end of a peer that hears nothing any more, as one that closes in RDMA mode. One that goes back to plain bytes may
/// have ended its direction only, as any program does, and what it has given back is yet to come to it.
pub(super) fn is_peer_deaf(wire: &Wire, fd: i32) -> bool {
    is_peer_gone(fd) && !wire.common.to_plain.load(Ordering::Acquire)
}

/// How the receiving direction stands.
fn state(s: &Socket) -> Option<State> {
    let wire = wire(s)?;
    let _rx = s.rx.lock().ok()?;
    // SAFETY: the lock is held while it is looked at.
    Some(unsafe { wire.incoming() }.state())
}

/// Whether the connection has failed, whatever has come before that and was not read. (Once both directions have ended there is nothing
/// left to fail.)
pub(crate) fn has_failed(s: &Socket) -> bool {
    wire(s).is_some_and(|wire| {
        s.rx.lock().is_ok_and(|_rx| {
            // SAFETY: the lock is held while it is looked at.
            let incoming = unsafe { wire.incoming() };
            let over = incoming.is_aborted(&wire.common) && s.tx_shut.load(Ordering::Acquire);
            incoming.has_failed(&wire.common) && !over
        })
    })
}

/// Whether the peer has ended without a word, with some of what was put in its ring not taken for certain: the kernel connection, which has not
/// carried that, knows of no reset.
pub(super) fn has_died_unread(s: &Socket) -> bool {
    wire(s).is_some_and(|wire| {
        let common = &wire.common;
        let left = common.ring.has_left() || common.ring.get().is_some_and(Ring::is_much_left);
        left && !common.is_finished() && !s.tx_shut.load(Ordering::Acquire)
    })
}

/// Whether it has failed, and the program has not been told.
pub(super) fn is_untold(s: &Socket, wire: &Wire) -> bool {
    wire.common.failed.load(Ordering::Acquire) && !s.reset_told.load(Ordering::Acquire)
}

/// What a call is told of a connection that has failed.
pub(crate) fn error(s: &Socket) -> Errno {
    wire(s).map_or(Errno::CONNRESET, |wire| wire.common.error())
}

/// Takes in what has come.
pub(crate) fn hear(s: &'static Socket) {
    let fd = s.own_fd(-1);
    if fd >= 0 {
        io::available(s, fd);
    }
}

/// Whether the connection failed behind the end of file that the peer had said, while this side still sent: no read is told of
/// that, a send EPIPE.
pub(crate) fn is_aborted(s: &Socket) -> bool {
    let Some(wire) = wire(s).filter(|_| !s.tx_shut.load(Ordering::Acquire)) else {
        return false;
    };
    // SAFETY: the lock is held while it is looked at.
    s.rx.lock()
        .is_ok_and(|_rx| unsafe { wire.incoming() }.is_aborted(&wire.common))
}

/// What follows the last byte that the peer has sent, as far as has been looked.
pub(crate) fn ending(s: &Socket) -> Ending {
    match state(s) {
        Some(State::Reset) => Ending::Reset,
        Some(State::Eof) => Ending::Eof,
        _ => Ending::Open,
    }
}

/// Whether the peer has not said the end of its direction yet.
pub(crate) fn is_end_awaited(s: &Socket) -> bool {
    wire(s).is_some_and(|wire| !wire.common.is_finished())
}

/// Once both directions have ended the kernel connection can end as TCP's would.
pub(super) fn settle_both_shut(s: &'static Socket, fd: i32) {
    if !s.tx_shut.load(Ordering::Acquire)
        || s.fin_sent.load(Ordering::Acquire)
        || state(s) != Some(State::Eof)
    {
        return;
    }
    let (Some(wire), Ok(_tx)) = (wire(s), s.tx.lock()) else {
        return;
    };
    // (while it leaves the end is with whoever has taken out what comes before it)
    let over = is_own(s, wire)
        && !leaving::is_under_way(s, fd, wire)
        // SAFETY: the lock is held while it is looked at.
        && unsafe { wire.out() }.is_finished(&wire.common);
    if over && !s.fin_sent.swap(true, Ordering::AcqRel) {
        // SAFETY: no pointers.
        let _ = unsafe { transport::syscall!(shutdown, number(s, fd), libc::SHUT_WR) };
    }
}

/// Whether the program leaves bytes that it has not read: they make the end a reset, what is only SDP's own does not, and
/// is taken from the kernel.
pub(super) fn has_unread(s: &Socket, wire: &Wire, fd: i32) -> bool {
    s.phase() == Phase::Wired
        && s.rx.lock().is_ok_and(|_rx| {
            // SAFETY: the lock is held.
            let mut incoming = unsafe { wire.incoming() };
            let readable = incoming.is_readable(&wire.common, fd);
            leaving::forget_ring(&incoming, fd);
            readable && incoming.has_bytes(fd)
        })
}

/// The process is about to end with this connection open (or to become another program, which may fail). True if the
/// kernel's end would come too early yet: see [`is_lasting`].
pub(super) fn is_parting(s: &Socket, fd: i32, ends: bool) -> bool {
    let Some(wire) = wire(s) else {
        return false;
    };
    // (one that has rung has said why, which nobody may have read)
    let answered = wire.common.is_answered();
    if fd < 0 || s.phase() != Phase::Wired || s.is_shared() || is_peer_gone(fd) {
        return false;
    }
    let unsent = net::unsent(fd);
    if unsent > 0 {
        net::push(fd); // (as in `begin_to_close`; what the peer says just now would have the kernel drop it)
    }
    // (the peer's own end, unread, is enough for the kernel to answer with a reset)
    if !answered && !ends && !wire.common.to_plain.load(Ordering::Acquire) {
        return false;
    }
    if has_unread(s, wire, fd) {
        if ends {
            net::reset_on_close(fd);
        }
        return false;
    }
    // (what little has gone from here to a peer on this host is there, whenever it acknowledges that; the end goes behind it)
    let is_there = || unsent <= LITTLE && is_near(fd) && net::is_all_under_way(fd);
    answered && unsent > 0 && !(ends && is_there())
}

/// Whether the peer is on this host: nothing is lost on the way to it, nor comes in another order.
pub(super) fn is_near(fd: i32) -> bool {
    net::peer(fd).is_some_and(|peer| net::is_here(fd, &peer))
}

/// Whether the peer is on another host, by the addresses with which RDMA mode began: what it says there (to go back to plain bytes) may
/// cross this side's last octets and its end.
pub(super) fn is_far(s: &Socket) -> bool {
    let (own, peer) = s.record.names();
    own.ip != peer.ip && !peer.is_loopback()
}

/// The process ends, and nothing waits to go any more: ends this direction in the kernel, so that a reset behind that is no reader's
/// loss: the peer may still be saying something that nobody waits for. Whether it is sure to have heard of the end only when it has
/// ended too, or when its kernel has acknowledged that.
pub(super) fn ends_first(s: &Socket, fd: i32) -> bool {
    let may = fd >= 0
        && s.phase() == Phase::Wired
        && !s.is_shared()
        && !s.has_others()
        && !s.linger_zero.load(Ordering::Acquire)
        && may_hear(s, fd);
    if may && !s.fin_sent.swap(true, Ordering::AcqRel) {
        // SAFETY: no pointers.
        let _ = unsafe { transport::syscall!(shutdown, fd, libc::SHUT_WR) };
    }
    may && (is_far(s) || wire(s).is_some_and(is_to_hear))
}

/// Takes in what the peer has said. Whether there may be more: neither has it ended, nor does it say what makes the end a
/// reset anyway.
pub(super) fn may_hear(s: &Socket, fd: i32) -> bool {
    let Some(wire) = wire(s).filter(|_| fd >= 0 && !is_peer_gone(fd)) else {
        return false;
    };
    let unread = has_unread(s, wire, fd);
    if unread {
        net::reset_on_close(fd);
    }
    !unread
}

/// A connection ends that nobody has asked to move, or whose request was not looked at. A request that comes between here
/// and the kernel's close makes a reset of that: the end of file is said first, so that the peer's program reads that.
fn end_unasked(s: &Socket, fd: i32) {
    if s.is_handed() {
        return; // (another program may just begin to use it)
    }
    let nothing_left = opening::swallow(fd);
    if nothing_left && !s.has_others() && !s.linger_zero.load(Ordering::Acquire) {
        // SAFETY: no pointers.
        let _ = unsafe { transport::syscall!(shutdown, fd, libc::SHUT_WR) };
        opening::swallow(fd);
    }
}

/// The process ends, now, with this connection open.
pub(super) fn end_with_process(s: &Socket) {
    if s.phase() != Phase::Opening || wire(s).is_some() || s.has_others() {
        return;
    }
    let fd = s.own_fd(-1);
    if fd >= 0 {
        end_unasked(s, fd);
    }
}

/// The last descriptor is about to be closed: the last words. The kernel's close comes after.
pub(crate) fn begin_to_close(s: &'static Socket, fd: i32) {
    let Some(wire) = wire(s) else {
        return end_unasked(s, fd);
    };
    io::note(s); // (the counts are there as long as the state is)
    if s.linger_zero.load(Ordering::Acquire) {
        return abort(s, wire, fd);
    }
    if has_unread(s, wire, fd) {
        return net::reset_on_close(fd);
    }
    if s.has_others() || is_peer_deaf(wire, fd) {
        return;
    }
    if s.is_shared() {
        seats::unshare(s); // it goes on without its locks
    }
    let Ok(tx) = s.tx.lock() else { return };
    // SAFETY: the lock is held.
    let mut out = unsafe { wire.out() };
    // (an end of which the peer may have something to say is waited for; what its program sends is to be answered at once)
    let is_far = is_far(s);
    let silent = || !may_speak(wire, is_far) && net::is_all_under_way(fd);
    let answered = wire.common.is_answered() && !silent();
    let finished = if answered {
        out.finish(&wire.common, fd)
    } else {
        out.finish_and_close(&wire.common, fd)
    };
    let has_connected = s.record.role.load(Ordering::Relaxed) == raising::CONNECTED;
    let answers = !has_connected && wire.common.ring.is_wanted();
    let lacks = answers && may_lack(wire);
    let hears = || is_lasting(wire, &out, fd) || is_to_hear(wire);
    let lasts = out.is_under_way(&wire.common) || answered && hears() || lacks;
    if finished.is_err() {
        return;
    }
    drop(out);
    if !lasts {
        let much = s.record.bytes_sent.load(Ordering::Relaxed) > MUCH;
        if is_far || much || wire.common.is_answered() {
            end_here(s, fd); // (a word that is here before the kernel's close would take the place of the end)
        }
        let loses = is_far && net::unsent(fd) > 0 || much && !net::is_all_under_way(fd);
        // (a close that waits for the peer by the program's wish, SO_LINGER, has to be the last one)
        if loses && net::option(fd, libc::SOL_SOCKET, libc::SO_LINGER) == Ok(0) {
            hand_over(s, tx, fd, mover::End::Said { is_far });
        }
        return;
    }
    // (the kernel's close would send what is kept back for an acknowledgement, which may take 40 ms, and does not come yet)
    net::uncork(fd);
    // The kernel's close leaves what it has to the kernel; what it has not goes on here.
    hand_over(s, tx, fd, mover::End::Orderly { answers, is_far });
}

/// Whether the peer may have a word for a side that has ended which must not be answered with a reset. On this host, where all that was sent is
/// there, none without a ring, or talk of one: it offers none to who has ended, and an offer that crosses the end costs it nothing.
pub(super) fn may_speak(wire: &Wire, is_far: bool) -> bool {
    let common = &wire.common;
    is_far && common.is_answered() || common.ring.is_agreed_on() || common.is_answered_beside_ring()
}

/// Ends this direction in the kernel, if nobody has.
fn end_here(s: &Socket, fd: i32) {
    if !s.fin_sent.swap(true, Ordering::AcqRel) {
        // SAFETY: no pointers.
        let _ = unsafe { transport::syscall!(shutdown, fd, libc::SHUT_WR) };
    }
}

/// An aborting close (SO_LINGER with 0 seconds): the peer reads what the kernel would have sent by now, then a reset. What
/// was sent before the peer had answered goes as soon as it has; what its window has no room for is dropped.
fn abort(s: &'static Socket, wire: &'static Wire, fd: i32) {
    net::reset_on_close(fd);
    if s.has_others() || s.is_shared() || is_peer_gone(fd) {
        return;
    }
    opening::hear_closing(s, fd, wire);
    let Ok(tx) = s.tx.lock() else { return };
    // SAFETY: the lock is held.
    let mut out = unsafe { wire.out() };
    let flushed = out.flush_all(&wire.common, fd);
    net::push(fd);
    if flushed.is_ok() && out.is_under_way(&wire.common) && out.is_too_early(&wire.common) {
        drop(out);
        hand_over(s, tx, fd, mover::End::Aborting);
    }
}

/// The mover goes on with the connection, by a descriptor of its own, and ends it so. Under the lock of the sending
/// direction: who sends asks there whose the state is.
fn hand_over(s: &Socket, tx: impl Sized, fd: i32, end: mover::End) {
    // SAFETY: no pointers.
    let copy = unsafe { transport::syscall!(fcntl, fd, libc::F_DUPFD_CLOEXEC, 0) };
    let at = copy
        .is_ok()
        .then(|| s.wire.swap(std::ptr::null_mut(), Ordering::AcqRel));
    drop(tx);
    drop(s.rx.lock()); // (nor is anybody at what is received by the number, or finds the state, from here on)
    if let (Ok(copy), Some(at)) = (copy, at.and_then(NonNull::new)) {
        mover::take_over(Fd::own(as_fd(copy)).hide(), at, end);
    }
}

/// Whether something has not gone: to the kernel, or to the peer's if that may still have something to say.
pub(super) fn is_lasting(wire: &Wire, out: &Out, fd: i32) -> bool {
    out.is_under_way(&wire.common) || wire.common.is_answered() && net::unsent(fd) > 0
}

/// Whether the peer may yet say, by the kernel connection, that its ring is over and that it lacks some of what was put there: then
/// somebody has to be here who sends that again. Only the side that has connected ends a ring that works.
pub(super) fn may_lack(wire: &Wire) -> bool {
    let ring = wire.common.ring.get();
    ring.is_some_and(|ring| !ring.is_over() && !ring.is_all_taken())
}

/// Whether the peer, which has not ended its direction, is to hear of the end before the connection closes.
pub(super) fn is_to_hear(wire: &Wire) -> bool {
    wire.common.is_answered() && !wire.common.is_finished()
}

/// The socket is done with: its state goes.
pub(crate) fn let_go(s: &Socket) {
    io::note(s);
    let carried = s.record.transport.load(Ordering::Relaxed) != 0;
    if carried && s.phase() == Phase::Wired && io::is_past_mode(s) {
        s.record.set_demoted(Reason::PeerDemoted); // and the end came before this side had followed
    }
    let tx = s.tx.lock();
    let at = s.wire.swap(std::ptr::null_mut(), Ordering::AcqRel);
    drop(tx);
    drop(s.rx.lock()); // (as above)
    if let Some(at) = NonNull::new(at) {
        // SAFETY: as below.
        raising::drop_of(unsafe { at.as_ref() });
        // SAFETY: taken out by whoever gets here first.
        unsafe { Wire::release(at) };
    }
}

/// This process is done with the socket's state, with which others go on: they have it mapped themselves. (It was mapped here before
/// they came: nobody makes one while others hold the connection.)
pub(crate) fn leave(s: &Socket) {
    if let Some(at) = NonNull::new(s.wire.load(Ordering::Acquire)) {
        // SAFETY: the socket's, which no thread of this process is inside of any more, nor comes to.
        unsafe { Wire::leave(at) };
    }
}

/// The peer goes on with plain bytes: so does this side, unless somebody has that in hand already.
pub(super) fn follow_to_plain(s: &'static Socket, fd: i32, wire: &'static Wire) {
    follow(s, fd, wire, || !leaving::is_under_way(s, fd, wire));
}

/// The same if this holds under the lock under which it is said.
fn follow(s: &'static Socket, fd: i32, wire: &'static Wire, holds: impl FnOnce() -> bool) {
    riding::end(s, fd);
    resume(s, fd, wire);
    let Ok(_tx) = s.tx.lock() else { return };
    if !is_own(s, wire) || !holds() {
        return;
    }
    let fd = number(s, fd);
    // SAFETY: the lock is held. (What fails shows by the next call.)
    let gone = unsafe { wire.out().go_plain(&wire.common, fd) };
    if gone == Ok(true)
        && s.tx_shut.load(Ordering::Acquire)
        && !s.fin_sent.swap(true, Ordering::AcqRel)
    {
        // SAFETY: no pointers.
        let _ = unsafe { transport::syscall!(shutdown, fd, libc::SHUT_WR) };
    }
}

/// Passes on what the peer gives back, if this side waits for that.
fn resume(s: &'static Socket, fd: i32, wire: &'static Wire) {
    if !wire.common.is_returning(Return::Waits) {
        return;
    }
    let (Ok(tx), Ok(rx)) = (s.tx.lock(), s.rx.lock()) else {
        return;
    };
    // SAFETY: both locks are held. (What fails shows by the next call.)
    let resumed = is_own(s, wire) && unsafe { wire.resume(number(s, fd)) } == Ok(true);
    drop((tx, rx));
    if resumed && s.sleepers() > 0 {
        rouse::sleepers(s); // there is room, which the kernel does not tell of
    }
}

/// Whether nothing of RDMA mode is left. It is ended, if this holds under the lock under which that is said.
pub(super) fn is_all_plain(
    s: &'static Socket,
    fd: i32,
    wire: &'static Wire,
    holds: impl FnOnce() -> bool,
) -> bool {
    follow(s, fd, wire, holds);
    let out =
        s.tx.lock()
            // SAFETY: the lock is held while it is looked at.
            .is_ok_and(|_tx| unsafe { wire.out() }.is_plain());
    out && s.rx.lock().is_ok_and(|_rx| {
        if !is_current(s, wire) {
            return false;
        }
        // SAFETY: as above.
        let mut incoming = unsafe { wire.incoming() };
        incoming.look_for_plain(&wire.common, fd);
        incoming.is_past_mode()
    })
}

/// Whether nothing of RDMA mode is left in either direction, as far as has been looked.
pub(super) fn is_past(s: &Socket, wire: &'static Wire) -> bool {
    let out =
        s.tx.lock()
            // SAFETY: the lock is held while it is looked at.
            .is_ok_and(|_tx| unsafe { wire.out() }.is_plain());
    out && state(s) == Some(State::Plain)
}

/// If nothing of RDMA mode is left, and nothing of it unread, the connection is a plain one from now on.
pub(super) fn settle_plain(s: &'static Socket, fd: i32) {
    let Some(wire) = wire(s) else { return };
    if s.phase() == Phase::Wired
        && is_all_plain(s, fd, wire, || !leaving::is_under_way(s, fd, wire))
    {
        let mut w = world::lock();
        let was = s.record.transport.load(Ordering::Relaxed) != 0;
        let why = if was {
            Reason::PeerDemoted
        } else {
            Reason::PeerPlain
        };
        if end_mode(s, fd, wire) {
            go_plain(&mut w, s, fd, why, Phase::Wired);
        }
    }
}

/// Ends RDMA mode, if nothing of it is left and nothing that nobody has read. From here on whoever reads does
/// so from the kernel, and whoever sends to it: it is decided under the locks under which the kernel's bytes are taken and
/// the program's, as another thread may take some for this connection's until then. Under the registry lock.
fn end_mode(s: &Socket, fd: i32, wire: &Wire) -> bool {
    let (Ok(_tx), Ok(_rx)) = (s.tx.lock(), s.rx.lock()) else {
        return false;
    };
    let ends = is_current(s, wire)
        && s.phase() == Phase::Wired
        && !leaving::is_under_way(s, fd, wire)
        && !is_untold(s, wire)
        // SAFETY: both locks are held while it is looked at.
        && unsafe { wire.out().is_plain() && wire.incoming().held() == 0 };
    if ends {
        s.set_phase(Phase::Plain);
    }
    ends
}
