//! Receiving and sending on a connection in RDMA mode. One attempt each; the loops around them, with their waits and
//! time-outs, are `recv`'s and `send`'s.

use super::super::send::is_over;
use super::super::{Phase, Socket, options, parked, rouse};
use super::waiting::{await_answer, is_waiting, note_pending, serve_due, settle_held, unsent};
use super::{bell, ending, is_current, leaving, mover, number, opening, parting, riding, wire};
use crate::epoll::registered;
use crate::signals::since::Since;
use crate::signals::thread::Section;
use std::sync::atomic::Ordering;
use transport::reason::Reason;
use transport::record::{BY_SENDS, BY_WRITES};
use transport::sdp::rx::How;
use transport::sdp::{Got, Walk};
use transport::sys::{Errno, Result, net, time};
use transport::wire::{Sent, State, Wire};

/// One look for something to read. `None`: the connection is not one of these any more, look elsewhere.
///
/// # Errors
/// As recv(2).
///
/// # Safety
/// The walk's buffers are writable.
pub(crate) unsafe fn receive(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    how: How,
) -> Result<Option<Got>> {
    opening::step(s, fd);
    let (Phase::Wired, Some(wire)) = (s.phase(), wire(s)) else {
        return Ok((s.phase() == Phase::Opening).then_some(Got::Empty));
    };
    let (n, state, leaves, took) = {
        let Ok(_rx) = s.rx.lock() else {
            return Err(Errno::AGAIN);
        };
        if !is_current(s, wire) {
            return Ok(None);
        }
        if leaving::is_under_way(s, fd, wire) {
            return Ok(Some(Got::Empty)); // (what comes next is with whoever does that)
        }
        let fd = s.live_fd(fd);
        // SAFETY: the lock is held.
        let mut incoming = unsafe { wire.incoming() };
        if incoming.is_by_ring() {
            riding::note(s);
        }
        if walk.left() == 0 && incoming.available(&wire.common, fd) > 0 {
            return Ok(Some(Got::Bytes(0))); // nothing is wanted, and there is something
        }
        if !how.peek {
            wire.common.note_read();
            if !incoming.is_by_ring() {
                bell::note_read();
            }
        }
        let before = incoming.octets();
        // (who waits next sleeps on the kernel connection too, if it comes to that)
        let by_ring = incoming.is_by_ring();
        let patient = by_ring && how.waits;
        let news = patient && s.kernel_news.take();
        incoming.be_patient(patient && !news);
        let told = s.kernel_news.told().filter(|_| !s.is_shared());
        incoming.take_empty();
        // SAFETY: the caller's promise.
        let n = unsafe {
            if how.peek {
                incoming.peek(&wire.common, fd, walk, how.discard)
            } else {
                incoming.read(&wire.common, fd, walk, how.discard)
            }
        };
        if n == 0 && how.waits && !how.peek && incoming.state() == State::Open {
            incoming.advertise(&wire.common, walk.left());
        }
        if let Some(told) = told
            && incoming.take_empty()
        {
            s.kernel_news.forget(told);
        }
        let heard = incoming.be_patient(false);
        if news && !heard {
            s.kernel_news.tell();
        }
        let leaves = s.sleepers() > 0 && incoming.has(&wire.common, 1);
        let took = incoming.octets() != before && incoming.held() > 0;
        (n, incoming.state(), leaves, took)
    };
    after(s, fd, wire, state);
    if leaves {
        rouse::sleepers(s); // the kernel has nothing to tell them of
    }
    if took && s.set_count.load(Ordering::Acquire) > 0 {
        registered::kick_others(s, std::ptr::null()); // nor the sets
    }
    if n > 0 {
        return Ok(Some(Got::Bytes(n)));
    }
    Ok(Some(match state {
        State::Open => Got::Empty,
        State::Eof => {
            ending::settle_both_shut(s, fd);
            Got::Eof
        }
        State::Reset => Got::Reset,
        State::Plain => {
            ending::settle_plain(s, fd);
            if s.phase() != Phase::Wired {
                return Ok(None);
            }
            Got::Empty
        }
    }))
}

/// What has to be done after octets were looked at: what the peer is owed, and what it may have broken.
pub(super) fn after(s: &'static Socket, fd: i32, wire: &'static Wire, state: State) {
    if state == State::Reset {
        let terminate =
            s.rx.lock()
                .ok()
                // SAFETY: the lock is held while it is looked at.
                .and_then(|_rx| unsafe { wire.incoming() }.take_terminate());
        if let Some(segment) = terminate {
            if let Ok(_tx) = s.tx.lock() {
                // SAFETY: the lock is held.
                unsafe { wire.out().terminate(&wire.common, fd, &segment) };
            }
            s.record.set_demoted(Reason::PeerBroke);
            // Gracefully, so that it arrives (RFC 5040 section 6.2.1).
            // SAFETY: no pointers.
            let _ = unsafe { transport::syscall!(shutdown, fd, libc::SHUT_WR) };
        }
    }
    if wire.common.due.load(Ordering::Acquire) {
        serve_due(s, fd);
    }
    if wire.common.adverts.take_news() && s.sleepers() > 0 {
        rouse::sleepers(s); // one of them may have advertised its buffer
    }
    riding::settle(s, fd, wire);
    if wire.common.to_plain.load(Ordering::Acquire) {
        let waited = is_waiting(s);
        ending::follow_to_plain(s, fd, wire);
        if waited || is_waiting(s) {
            // What comes back is taken in whatever the program does; and who waits for room is told.
            parked::note(s, fd);
            mover::wake();
        }
    }
}

/// Whether it is worth looking for data for a while before the thread sleeps: not for who only receives, where each look
/// is a system call and nobody waits for what it does then.
pub(crate) fn is_worth_looking(s: &Socket) -> bool {
    let sent = s.record.messages_sent.load(Ordering::Relaxed);
    wire(s).is_none_or(|wire| wire.common.has_answered(sent))
}

/// A sleep of a program that only reads took this long (ticks).
pub(crate) fn note_sleep(s: &Socket, slept: u64) {
    if let Some(wire) = wire(s) {
        wire.common.note_sleep(slept);
    }
}

/// Whether more of a stream comes soon by itself.
pub(crate) fn flows(s: &Socket) -> bool {
    wire(s).is_some_and(|wire| wire.common.flows() && wire.common.ring.get().is_none())
}

/// Whether something can be read, as far as what is here tells.
pub(crate) fn has_something(s: &Socket) -> bool {
    wire(s).is_some_and(|wire| {
        s.rx.lock()
            // SAFETY: the lock is held while it is looked at.
            .is_ok_and(|_rx| unsafe { wire.incoming() }.has(&wire.common, 1))
    })
}

/// Octets that were taken from the kernel in all.
pub(crate) fn taken(s: &Socket) -> u64 {
    wire(s).map_or(0, |wire| {
        s.rx.lock().map_or(0, |_rx| {
            // SAFETY: the lock is held while it is looked at.
            unsafe { wire.incoming() }.octets()
        })
    })
}

/// Whether what is read next are plain bytes, all of them with the kernel.
pub(crate) fn is_past_mode(s: &Socket) -> bool {
    wire(s).is_some_and(|wire| {
        s.rx.lock().is_ok_and(|_rx| {
            // SAFETY: the lock is held while it is looked at.
            let incoming = unsafe { wire.incoming() };
            incoming.is_past_mode() && incoming.held() == 0
        })
    })
}

/// Sends what can be sent now, after a step of the connection's (`engage::step`). `None`: no room; [`Socket::hungry`] then says whether it is the peer that has to say
/// something first.
///
/// # Errors
/// As send(2); SIGPIPE has been raised, if it was to be.
///
/// # Safety
/// The walk's buffers are readable.
pub(crate) unsafe fn send(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    flags: i32,
    since: Since,
) -> Result<Option<usize>> {
    let Some(wire) = wire(s) else {
        if s.phase() == Phase::Opening && walk.left() > 0 {
            s.record.set_kernel(Reason::Declined); // (see `opening`)
        }
        return Ok(Some(0)); // before anybody has asked, or the kernel's: it goes as it is
    };
    if walk.left() == 0 {
        return Ok(Some(0));
    }
    if ending::is_untold(s, wire) {
        // (as below: behind what went in this call it is the next that tells)
        return Err(match walk.done() {
            0 => told(s, Errno::CONNRESET, flags),
            _ => Errno::CONNRESET,
        });
    }
    if wire.common.to_plain.load(Ordering::Acquire) {
        // (who is woken for room that others have used up at once comes by nowhere else)
        ending::follow_to_plain(s, fd, wire);
    }
    let waits = flags & libc::MSG_DONTWAIT == 0 && !s.nonblock.load(Ordering::Relaxed);
    for turn in 0..2 {
        let whole = Section::enter(); // (who leaves by a jump leaves nothing that nobody looks after)
        let (sent, rode) = {
            let Ok(_tx) = s.tx.lock() else {
                return Err(Errno::AGAIN);
            };
            if is_over(walk, since) || !is_current(s, wire) {
                return Ok(Some(0)); // the caller asks too, and ends the call
            }
            let fd = s.live_fd(fd);
            let rode = wire.common.ring.get().is_some();
            // SAFETY: the lock is held, and the caller's promise.
            let mut out = unsafe { wire.out() };
            out.be_waiting(waits);
            // SAFETY: as above.
            let sent = unsafe { out.send(&wire.common, fd, walk, flags & libc::MSG_MORE) };
            if out.is_by_ring() {
                riding::note(s);
            }
            (sent, rode)
        };
        if !matches!(sent, Ok(Sent::Bytes(_))) {
            drop(whole);
        }
        match sent {
            Ok(Sent::Bytes(n)) => {
                s.hungry.store(false, Ordering::Relaxed);
                if waits {
                    await_answer(s, fd, wire);
                }
                note_pending(s, fd);
                settle_held(s, fd, wire);
                riding::consider(s, wire);
                return Ok(Some(n));
            }
            Ok(Sent::Full) => {
                // (by a ring it is the peer that says when there is room; and if that has ended it says the rest)
                riding::settle(s, fd, wire);
                let hungry = riding::awaits_peer(s, wire);
                s.hungry.store(hungry, Ordering::Relaxed);
                // (one that came to its end meanwhile may have been settled since, and be gone: the kernel has room then)
                if rode && turn == 0 {
                    available(s, fd);
                    continue;
                }
                return Ok(None);
            }
            Ok(Sent::NoCredit) if turn == 0 && s.phase() == Phase::Wired => {
                available(s, fd); // what it grants may lie behind bytes that nobody has read
            }
            // (nobody grants any more)
            Ok(Sent::NoCredit) if ending::has_failed(s) && walk.done() > 0 => {
                return Err(Errno::PIPE);
            }
            Ok(Sent::NoCredit) if ending::has_failed(s) => {
                return Err(told(s, Errno::PIPE, flags));
            }
            Ok(Sent::NoCredit) => {
                if let Some(n) = park(s, fd, wire, walk, since) {
                    return Ok(Some(n));
                }
                break;
            }
            // What went is told now, the error by the next call.
            Err(e) if walk.done() > 0 => return Err(e),
            Err(e) => return Err(told(s, e, flags)),
        }
    }
    s.hungry.store(true, Ordering::Relaxed);
    note_pending(s, fd); // (who lacks the peer's word for long goes on without)
    Ok(None)
}

/// The end of what a call has sent in several parts is not kept back for an acknowledgement of its beginning.
pub(crate) fn hurry(s: &'static Socket, fd: i32) {
    if let Some(wire) = wire(s)
        && let Ok(_tx) = s.tx.lock()
    {
        // SAFETY: the lock is held.
        unsafe { wire.out() }.hurry(number(s, fd));
    }
}

/// What a call that sends is told of a failure: of a reset once, by whichever call is the next, and behind an end of file that the peer
/// has said it is a broken pipe. (A read or a send of ours may have taken the error from the kernel, and there may be bytes that were
/// received before.) SIGPIPE is raised, if it is to be.
#[cold]
fn told(s: &Socket, e: Errno, flags: i32) -> Errno {
    let unread = || ending::has_failed(s) || ending::has_died_unread(s);
    let failed = e == Errno::CONNRESET || e == Errno::PIPE && unread();
    let first = failed && !s.reset_told.swap(true, Ordering::AcqRel);
    // (the kernel's end of a peer that has died is none that it has said)
    if first && (!ending::is_aborted(s) || ending::has_died_unread(s)) {
        return ending::error(s);
    }
    let e = if failed { Errno::PIPE } else { e };
    if e == Errno::PIPE && !parting::outlives() && flags & libc::MSG_NOSIGNAL == 0 {
        time::raise(libc::SIGPIPE);
    }
    e
}

/// What a send of nothing is told.
#[cold]
pub(crate) fn error_of_nothing(s: &'static Socket, fd: i32, flags: i32) -> Option<Errno> {
    if s.tx_shut.load(Ordering::Acquire) {
        return Some(options::take_error(s, fd).unwrap_or_else(|| told(s, Errno::PIPE, flags)));
    }
    let quiet = flags & libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: no octets.
    let said = unsafe { net::send(fd, std::ptr::null(), 0, quiet) };
    said.err().map(|e| told(s, e, flags))
}

/// What cannot go now of a direction that is packetized waits here, if somebody will look after it. How many bytes.
fn park(
    s: &'static Socket,
    fd: i32,
    wire: &'static Wire,
    walk: &mut Walk,
    since: Since,
) -> Option<usize> {
    let _whole = Section::enter(); // as above
    let parked = {
        let Ok(_tx) = s.tx.lock() else { return None };
        if is_over(walk, since) || !is_current(s, wire) {
            return None;
        }
        // SAFETY: the lock is held.
        let mut out = unsafe { wire.out() };
        if !out.is_packetized() || !mover::is_there() || !parked::keep(s, fd) {
            return None;
        }
        // SAFETY: the lock is held, and the caller's promise.
        let n = unsafe { out.park(&wire.common, walk) };
        // (for who waits for room again)
        s.hungry
            .store(!out.has_credit(&wire.common), Ordering::Relaxed);
        n
    };
    if parked == 0 {
        return None;
    }
    note_pending(s, fd);
    Some(parked)
}

/// How many bytes [`take`] takes now; nothing if there is no room.
///
/// # Errors
/// As send(2): the kernel shows room where there is nobody to send to.
pub(crate) fn room(s: &'static Socket, fd: i32) -> Result<Option<usize>> {
    opening::step(s, fd);
    let Some(wire) = wire(s) else {
        return Ok(None);
    };
    if ending::is_untold(s, wire) {
        return Err(told(s, Errno::CONNRESET, 0)); // (a sendfile that has sent some takes it with it, as the kernel's does)
    }
    let may = || {
        let Ok(_tx) = s.tx.lock() else {
            return Ok(None);
        };
        let fd = s.live_fd(fd);
        // SAFETY: the lock is held while it is looked at.
        let mut out = unsafe { wire.out() };
        out.flush_all(&wire.common, fd)?;
        let settled = out.settle_adverts(&wire.common, fd)?;
        out.seek_room(&wire.common, fd)?;
        Ok((settled && out.may_take(&wire.common)).then(|| out.takes(&wire.common)))
    };
    let may = || may().map_err(|e| told(s, e, 0));
    let free = s.phase() == Phase::Opening
        || if riding::is_sending(s, wire) {
            riding::has_room(wire)
        } else {
            net::ready_now(fd, libc::POLLOUT) & libc::POLLOUT != 0
        };
    let hungry = !free && riding::awaits_peer(s, wire);
    s.hungry.store(hungry, Ordering::Relaxed);
    if !free {
        riding::settle(s, fd, wire);
        return Ok(None);
    }
    if let Some(room) = may()? {
        return Ok(Some(room));
    }
    available(s, fd); // what grants it may lie behind bytes that nobody has read
    let room = may()?;
    let hungry = room.is_none() && unsent(s) == 0;
    s.hungry.store(hungry, Ordering::Relaxed);
    Ok(room)
}

/// Sends bytes that cannot be given back, after [`room`] has said so.
///
/// # Errors
/// As send(2).
///
/// # Safety
/// The walk's buffers are readable.
pub(crate) unsafe fn take(s: &'static Socket, fd: i32, walk: &mut Walk) -> Result<()> {
    let Some(wire) = wire(s) else {
        return Err(Errno::AGAIN);
    };
    let Ok(tx) = s.tx.lock() else {
        return Err(Errno::AGAIN);
    };
    if !is_current(s, wire) {
        return Err(Errno::AGAIN);
    }
    // SAFETY: the lock is held, and the caller's promise.
    let sent = unsafe { wire.out().take(&wire.common, number(s, fd), walk) };
    drop(tx);
    note_pending(s, fd);
    sent.map(|_| ()).map_err(|e| told(s, e, 0))
}

/// Bytes that can be read now, as far as this side has room for them.
pub(crate) fn available(s: &'static Socket, fd: i32) -> usize {
    opening::step(s, fd);
    let Some(wire) = wire(s) else {
        return if s.phase() == Phase::Opening {
            0
        } else {
            net::unread(fd)
        };
    };
    available_on(s, fd, wire)
}

pub(super) fn available_on(s: &'static Socket, fd: i32, wire: &'static Wire) -> usize {
    if s.phase() == Phase::Opening {
        return 0; // what comes first is the answer, which is heard and not read
    }
    let (n, state, leaves, came) = {
        let Ok(_rx) = s.rx.lock() else { return 0 };
        let fd = number(s, fd);
        if !is_current(s, wire) {
            return net::unread(fd);
        }
        if leaving::is_under_way(s, fd, wire) {
            return 0; // as above
        }
        // SAFETY: the lock is held.
        let mut incoming = unsafe { wire.incoming() };
        let before = incoming.octets();
        let n = incoming.available(&wire.common, fd);
        let came = n > 0 && incoming.octets() != before;
        (n, incoming.state(), s.sleepers() > 0 && n > 0, came)
    };
    after(s, fd, wire, state);
    if leaves {
        rouse::sleepers(s); // the kernel has nothing to tell them of
    }
    if came && s.set_count.load(Ordering::Acquire) > 0 {
        registered::kick_others(s, std::ptr::null()); // nor the sets
    }
    n
}

/// Brings the record up to date with what was counted.
pub(crate) fn note(s: &Socket) {
    let Some(wire) = wire(s) else { return };
    let mut advertised = 0;
    if let Ok(_tx) = s.tx.lock() {
        // SAFETY: the lock is held while it is looked at.
        let out = unsafe { wire.out() };
        let (messages, starved) = out.counts();
        let (window, updates) = out.window();
        let window = u32::try_from(window).unwrap_or(u32::MAX);
        let peak = if starved > 0 { window } else { 0 };
        if window > 0 {
            s.record.reserved.store(window, Ordering::Relaxed); // (else it is a ring's, if there is one)
        }
        s.record.peak_used.store(peak, Ordering::Relaxed);
        s.record.updates.store(updates, Ordering::Relaxed);
        let (read, written) = out.advertised();
        advertised += read + written;
        s.record.wire_messages.store(messages, Ordering::Relaxed);
        let operation = match out.by_adapter() {
            [0, 0] => 0,
            [writes, sends] if sends > writes => BY_SENDS,
            _ => BY_WRITES,
        };
        s.record.operation.store(operation, Ordering::Relaxed);
        s.record.no_credit.store(starved, Ordering::Relaxed);
    }
    if let Ok(_rx) = s.rx.lock() {
        // SAFETY: as above.
        advertised += unsafe { wire.incoming() }.read_bytes();
    }
    let zcopy = &s.record.zcopy_bytes;
    zcopy.fetch_max(advertised, Ordering::Relaxed);
}
