//! The ends of a connection in RDMA mode: a half is shut, the socket is closed, or it goes back to plain bytes.
//!
//! Going back is said in each direction by the side that sends there (`Plain`, transport::sdp_wire), at the byte where
//! it is; the peer follows. Until it has, what it sends is framed. Who needs the kernel connection as it is waits for
//! that, for a bounded time; after it the stream is reset, never wrong.

use super::super::demote::become_plain;
use super::super::{Phase, Socket, residual};
use super::{io, mover, opening, raising, riding, wire};
use crate::world::{self, World};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use transport::clock;
use transport::reason::Reason;
use transport::sdp::Walk;
use transport::sys::fd::{Fd, as_fd};
use transport::sys::{net, time};
use transport::wire::{State, Wire};

/// How long (µs) to wait for a peer to go back to plain bytes.
const FOLLOW_US: u64 = 3_000_000;

/// Waits until `done`, looking again and again. False if that took too long.
fn wait_until(most_us: u64, mut done: impl FnMut() -> bool) -> bool {
    let begun = clock::ticks();
    while !done() {
        if clock::ticks() - begun > clock::us(most_us) {
            return false;
        }
        let _ = time::nap(100);
    }
    true
}

/// The program shuts a half. What the kernel is to be told of it, if anything.
pub(crate) fn shut(s: &'static Socket, fd: i32, how: i32) -> Option<i32> {
    opening::step(s, fd);
    let Some(wire) = wire(s) else {
        return Some(how);
    };
    if !matches!(how, libc::SHUT_RD | libc::SHUT_WR | libc::SHUT_RDWR) {
        return Some(how); // it is told so
    }
    if how != libc::SHUT_RD && !s.tx_shut.swap(true, Ordering::AcqRel) {
        io::available(s, fd); // (credits may lie there)
        if is_peer_gone(fd) {
            return Some(how); // what this side would say would be answered with a reset
        }
        let plain = s.tx.lock().is_ok_and(|_tx| {
            // SAFETY: the lock is held.
            let out = unsafe { wire.out() };
            let _ = out.finish(&wire.common, fd);
            out.is_plain()
        });
        if plain {
            return Some(how);
        }
        net::push(fd);
        io::note_pending(s, fd);
    }
    if how != libc::SHUT_WR {
        s.rx_shut.store(true, Ordering::Release);
    }
    let both = s.rx_shut.load(Ordering::Acquire) && s.tx_shut.load(Ordering::Acquire);
    if both && !io::is_under_way(s) {
        // Nothing is to come and nothing to go: what comes all the same is answered as the kernel answers it.
        s.fin_sent.store(true, Ordering::Release);
        s.woken_hard.store(true, Ordering::Release);
        shut_here(s, wire);
        return Some(libc::SHUT_RDWR);
    }
    if how != libc::SHUT_WR {
        super::super::rouse::all(s);
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

/// The kernel connection is shut by this side.
fn shut_here(s: &Socket, wire: &Wire) {
    if let Ok(_rx) = s.rx.lock() {
        // SAFETY: the lock is held.
        unsafe { wire.incoming() }.shut();
    }
}

/// Whether the peer's kernel has ended the connection, in its direction at least: a peer does so when it closes.
fn is_peer_gone(fd: i32) -> bool {
    net::ready_now(fd, libc::POLLRDHUP) & (libc::POLLRDHUP | libc::POLLERR) != 0
}

/// How the receiving direction stands.
fn state(s: &Socket) -> Option<State> {
    let wire = wire(s)?;
    let _rx = s.rx.lock().ok()?;
    // SAFETY: the lock is held while it is looked at.
    Some(unsafe { wire.incoming() }.state())
}

/// Whether the stream was reset, and everything before that has been read.
pub(crate) fn is_reset(s: &Socket) -> bool {
    state(s) == Some(State::Reset)
}

/// Whether nothing more will come.
pub(crate) fn is_ended(s: &Socket) -> bool {
    matches!(state(s), Some(State::Eof | State::Reset))
}

/// Once both directions have ended the kernel connection can end as TCP's would.
pub(super) fn settle_both_shut(s: &'static Socket, fd: i32) {
    if s.tx_shut.load(Ordering::Acquire) && !s.fin_sent.load(Ordering::Acquire) {
        let over = state(s) == Some(State::Eof)
            && wire(s).is_some_and(|wire| {
                s.tx.lock()
                    // SAFETY: the lock is held while it is looked at.
                    .is_ok_and(|_tx| unsafe { wire.out() }.is_finished(&wire.common))
            });
        if over && !s.fin_sent.swap(true, Ordering::AcqRel) {
            // SAFETY: no pointers.
            let _ = unsafe { transport::syscall!(shutdown, fd, libc::SHUT_WR) };
        }
    }
}

/// The last descriptor is about to be closed: the last words. The kernel's close comes after.
pub(crate) fn begin_to_close(s: &'static Socket, fd: i32) {
    let Some(wire) = wire(s) else {
        return opening::swallow(fd);
    };
    if s.linger_zero.load(Ordering::Acquire) {
        return net::reset_on_close(fd);
    }
    // What the program has not read makes it a reset, what is only SDP's own does not.
    let unread = s.phase() == Phase::Wired
        && s.rx.lock().is_ok_and(|_rx| {
            // SAFETY: the lock is held.
            let incoming = unsafe { wire.incoming() };
            let readable = incoming.is_readable(&wire.common, fd);
            readable && (incoming.held() > 0 || incoming.is_in_body())
        });
    if unread {
        return net::reset_on_close(fd);
    }
    if s.has_others() || is_peer_gone(fd) {
        return;
    }
    let Ok(tx) = s.tx.lock() else { return };
    // SAFETY: the lock is held.
    let out = unsafe { wire.out() };
    if out.finish(&wire.common, fd).is_err() || !out.is_under_way(&wire.common) {
        return;
    }
    // The kernel's close leaves what it has to the kernel; what it has not goes on here. (Under the lock: who sends asks
    // there whose the state is.)
    // SAFETY: no pointers.
    let copy = unsafe { transport::syscall!(fcntl, fd, libc::F_DUPFD_CLOEXEC, 0) };
    let at = copy
        .is_ok()
        .then(|| s.wire.swap(std::ptr::null_mut(), Ordering::AcqRel));
    drop(tx);
    if let (Ok(copy), Some(at)) = (copy, at.and_then(NonNull::new)) {
        mover::take_over(Fd::own(as_fd(copy)).hide(), at);
    }
}

/// The socket is done with: its state goes.
pub(crate) fn let_go(s: &Socket) {
    let tx = s.tx.lock();
    let at = s.wire.swap(std::ptr::null_mut(), Ordering::AcqRel);
    drop(tx);
    if let Some(at) = NonNull::new(at) {
        // SAFETY: as below.
        raising::drop_of(unsafe { at.as_ref() });
        // SAFETY: taken out by whoever gets here first.
        unsafe { Wire::release(at) };
    }
}

/// The peer goes on with plain bytes: so does this side.
pub(super) fn follow_to_plain(s: &'static Socket, fd: i32, wire: &'static Wire) {
    riding::end(s, fd);
    let plain = s.tx.lock().is_ok_and(|_tx| {
        // SAFETY: the lock is held. (What fails shows by the next call.)
        let gone = unsafe { wire.out().go_plain(&wire.common, fd) };
        gone == Ok(true)
    });
    if plain && s.tx_shut.load(Ordering::Acquire) && !s.fin_sent.swap(true, Ordering::AcqRel) {
        // SAFETY: no pointers.
        let _ = unsafe { transport::syscall!(shutdown, fd, libc::SHUT_WR) };
    }
}

/// Whether nothing of RDMA mode is left.
fn is_all_plain(s: &'static Socket, fd: i32, wire: &'static Wire) -> bool {
    follow_to_plain(s, fd, wire);
    let out =
        s.tx.lock()
            // SAFETY: the lock is held while it is looked at.
            .is_ok_and(|_tx| unsafe { wire.out() }.is_plain());
    out && s.rx.lock().is_ok_and(|_rx| {
        // SAFETY: as above.
        let incoming = unsafe { wire.incoming() };
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
    let held = |s: &Socket| {
        s.rx.lock()
            // SAFETY: the lock is held while it is looked at.
            .is_ok_and(|_rx| unsafe { wire.incoming() }.held() > 0)
    };
    if s.phase() == Phase::Wired && is_all_plain(s, fd, wire) && !held(s) {
        let mut w = world::lock();
        if s.phase() == Phase::Wired {
            let was = s.record.transport.load(Ordering::Relaxed) != 0;
            let why = if was {
                Reason::PeerDemoted
            } else {
                Reason::PeerPlain
            };
            become_plain(&mut w, s, fd, why);
        }
    }
}

/// The program, or one that it starts, will use the kernel connection as it is: RDMA mode ends in both directions, and
/// what was received is kept where it is found. With the registry lock held.
pub(crate) fn demote(w: &mut World, s: &'static Socket, fd: i32, why: Reason) {
    let Some(wire) = wire(s) else {
        return demote_unasked(w, s, fd, why);
    };
    if why == Reason::UrgentData && s.phase() == Phase::Wired {
        // It is sent beside the stream, so only what goes from here has to be plain.
        wait_until(FOLLOW_US, || {
            follow_to_plain(s, fd, wire);
            s.tx.lock()
                // SAFETY: the lock is held while it is looked at.
                .is_ok_and(|_tx| unsafe { wire.out() }.is_plain())
        });
        return;
    }
    let mut kept = Vec::new();
    let mut part = vec![0; 64 * 1024];
    let mut rung = false;
    let ended = wait_until(FOLLOW_US, || {
        if s.phase() == Phase::Opening {
            opening::hear_closing(s, fd, wire);
            return false;
        }
        let plain = is_all_plain(s, fd, wire);
        rung = rung || plain || ring(s, fd, wire);
        let Ok(_rx) = s.rx.lock() else { return true };
        // SAFETY: the lock is held.
        let incoming = unsafe { wire.incoming() };
        // (no more than is here: of plain bytes the rest is the kernel's)
        while incoming.held() > 0 {
            let want = part.len().min(incoming.held());
            let mut walk = Walk::one(part.as_mut_ptr(), want);
            // SAFETY: our own buffer.
            let n = unsafe { incoming.read(&wire.common, fd, &mut walk, false) };
            kept.extend_from_slice(part.get(..n).unwrap_or_default());
            if n == 0 {
                break;
            }
        }
        // (a peer that has said DisConn says Plain all the same, and then ends its direction in the kernel)
        plain && incoming.held() == 0 || incoming.state() == State::Reset || incoming.is_over()
    });
    if !ended || !residual::keep(s, fd, &kept) {
        s.broken.store(true, Ordering::Release);
        net::disconnect(fd); // a reset, never a gap
    }
    become_plain(w, s, fd, why);
}

/// Rings the peer, whose program may be elsewhere for long: by an urgent byte, behind the last frame from here. True
/// once that has gone.
fn ring(s: &Socket, fd: i32, wire: &'static Wire) -> bool {
    let plain =
        s.tx.lock()
            // SAFETY: the lock is held while it is looked at.
            .is_ok_and(|_tx| unsafe { wire.out() }.is_plain());
    let flags = libc::MSG_OOB | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: one readable byte.
    plain && unsafe { net::send(fd, [0u8].as_ptr(), 1, flags) }.is_ok()
}

/// A server that may be asked yet, and from now on cannot answer.
fn demote_unasked(w: &mut World, s: &'static Socket, fd: i32, why: Reason) {
    // The request may be under way: who asks does so at once.
    wait_until(UNASKED_US, || net::unread(fd) > 0);
    opening::decline(w, s, fd, why);
}

/// How long (µs) to wait for a request that may be under way.
const UNASKED_US: u64 = 20_000;
