//! The program has shut both directions, behind much that has not reached the peer. The kernel answers whatever comes from here on with
//! a reset, which drops the rest; but words of RDMA mode may come that the peer says before it hears of the end (for room, of a ring).
//! So the kernel's sending half is shut first, and its receiving half once the peer's kernel has acknowledged that: a peer says
//! nothing from there on. Bytes of the stream that come meanwhile are answered as the kernel would have answered them.
//!
//! Begun by shutdown (`ending`), and gone on with by whoever moves what waits (`waiting::post`), until it is done.

use super::super::parked;
use super::super::{Phase, Socket, rouse};
use super::ending::{has_unread, is_far, is_peer_gone, shut_here};
use super::{is_current, mover, number, waiting};
use crate::epoll::registered;
use std::sync::atomic::Ordering;
use transport::sys::{Errno, net};
use transport::wire::Wire;

/// Octets. With no more than that on their way to a peer on this host all has reached its kernel, or is just about to, and it hears of
/// the end with its next look.
const MUCH: usize = 4096;

/// Both directions are shut, and nothing waits here. What the kernel is to be told of it, if anything yet.
pub(super) fn begin(s: &'static Socket, fd: i32, wire: &'static Wire) -> Option<i32> {
    s.fin_sent.store(true, Ordering::Release);
    let unsent = net::unsent(fd);
    let much = unsent > MUCH || unsent > 0 && is_far(s);
    if much && mover::is_there() && !has_unread(s, wire, fd) {
        rouse::all(s);
        // (who sleeps in the kernel on this very socket hears of it only there)
        let waits = s.sleepers() == 0 && parked::keep(s, fd);
        // SAFETY: no pointers.
        if waits && unsafe { transport::syscall!(shutdown, fd, libc::SHUT_WR) }.is_ok() {
            if let Ok(_rx) = s.rx.lock() {
                // SAFETY: the lock is held.
                unsafe { wire.incoming() }.expect_none();
            }
            mover::wake();
            return None;
        }
    }
    // Nothing is to come and nothing to go: what comes all the same is answered as the kernel answers it.
    s.woken_hard.store(true, Ordering::Release);
    shut_here(s, wire);
    Some(libc::SHUT_RDWR)
}

/// Goes on with it, if the program has shut both directions.
pub(super) fn go_on(s: &'static Socket, fd: i32, wire: &'static Wire) {
    let shuts = s.rx_shut.load(Ordering::Acquire) && s.tx_shut.load(Ordering::Acquire);
    if s.phase() != Phase::Wired || !shuts || s.woken_hard.load(Ordering::Acquire) {
        return;
    }
    if !s.fin_sent.load(Ordering::Acquire) {
        if !waiting::is_under_way(s) && begin(s, fd, wire).is_some() {
            // SAFETY: no pointers.
            let _ = unsafe { transport::syscall!(shutdown, fd, libc::SHUT_RDWR) };
        }
        return;
    }
    let ends = {
        let Ok(_rx) = s.rx.lock_soon() else {
            let _ = parked::keep(s, fd);
            return;
        };
        if !is_current(s, wire) {
            return;
        }
        let fd = number(s, fd);
        // SAFETY: the lock is held.
        let mut incoming = unsafe { wire.incoming() };
        let gone = is_peer_gone(fd);
        let late = !gone && incoming.is_late(&wire.common, fd);
        let ends = late || gone || net::is_end_heard(fd);
        if ends {
            s.woken_hard.store(true, Ordering::Release);
            incoming.shut();
        }
        if late {
            incoming.drop_late();
            net::disconnect(fd);
            let _ = net::option(fd, libc::SOL_SOCKET, libc::SO_ERROR); // (it is told from here)
            wire.common.fail(Errno::CONNRESET);
        } else if ends {
            // SAFETY: no pointers.
            let _ = unsafe { transport::syscall!(shutdown, fd, libc::SHUT_RD) };
        }
        ends
    };
    if ends {
        registered::kick_others(s, std::ptr::null());
    } else {
        let _ = parked::keep(s, fd);
    }
}
