//! shutdown: one half of a connection ends, or both.
//!
//! The kernel's half is shut only where that cannot cut off what the library still has under way: our
//! bells travel on it, and nobody can be woken on a half that is shut.

use crate::epoll::registered;
use crate::real;
use crate::sockets::demote::{Unread, attend, demote};
use crate::sockets::ending::{Ending, end_put_off, ending, settle_both_shut};
use crate::sockets::ready::{self, Ask};
use crate::sockets::{Phase, Socket, engage, rouse, send, shows, wired};
use crate::table;
use std::ffi::c_int;
use std::sync::atomic::{Ordering, fence};
use transport::provider::Provider;
use transport::reason::Reason;
use transport::sdp::{Leg, Tx};
use transport::shm::layout::FIN_NONE;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    // SAFETY: the program's arguments, passed on.
    let kernel = |how: c_int| unsafe { real::shutdown(fd, how) };
    let Some(s) = table::called(fd) else {
        return kernel(how);
    };
    let over = have_both_ended(s) || is_reset(s, fd);
    let (first, e) = (!s.tx_shut.load(Ordering::Acquire), real::errno());
    let mut r = shut(s, fd, how, kernel);
    if r < 0 && how == libc::SHUT_WR && first && s.fin_sent.load(Ordering::Acquire) {
        // A thread that followed the peer meanwhile has told the kernel of this end, and the peer has ended too: there was a
        // connection when this began.
        real::set_errno(e);
        r = 0;
    }
    if over && r == 0 {
        real::set_errno(libc::ENOTCONN);
        r = -1;
    }
    let known = r == 0 || real::errno() == libc::ENOTCONN;
    if known && matches!(s.phase(), Phase::Attached | Phase::Wired) {
        registered::shut(s);
    }
    r
}

/// Whether both ends have said their last: nothing is connected then. The kernel hears of it only as each of them goes on, and of
/// the peer's end perhaps much later.
fn have_both_ended(s: &Socket) -> bool {
    s.phase() == Phase::Attached
        && s.tx_shut.load(Ordering::Acquire)
        && s.segment().is_some_and(|p| p.finished() != FIN_NONE)
        && s.tx.lock().is_ok_and(|tx| tx.is_finished())
}

/// Whether it hangs up though this side has not ended: what was sent behind the peer's end was answered with a reset. (The kernel may
/// not have taken that in, or not as one.)
fn is_reset(s: &'static Socket, fd: c_int) -> bool {
    matches!(s.phase(), Phase::Attached | Phase::Wired)
        && !s.tx_shut.load(Ordering::Acquire)
        && ready::bits(s, fd, 0, Ask::Needed) & libc::POLLHUP != 0
}

/// Shuts it, whichever way the stream goes; `kernel` is the kernel's shutdown.
fn shut(s: &'static Socket, fd: c_int, how: c_int, kernel: impl Fn(c_int) -> c_int) -> c_int {
    if wired::is_wired(s) {
        return wired::shut(s, fd, how).map_or(0, kernel);
    }
    if !matches!(s.phase(), Phase::Attached | Phase::Announced) {
        if s.phase() == Phase::Fresh {
            // The kernel's FIN would come before bytes of a fast leg: stay.
            demote(s, fd, Reason::Undecided, Unread::Keep);
        }
        return kernel(how);
    }
    engage::step(s, fd);
    if s.phase() == Phase::Announced {
        demote(s, fd, Reason::PeerSilent, Unread::Keep);
        if s.phase() != Phase::Attached {
            return kernel(how);
        }
    }
    // Where the other end is back on the kernel already, a word in the segment would not be read.
    attend(s, fd);
    if s.phase() != Phase::Attached {
        return kernel(how);
    }
    end_put_off(s, fd);
    if s.segment()
        .is_some_and(|p| ending(s, p, fd) == Ending::Reset)
    {
        return kernel(how); // it knows of the reset, and says that there is no connection
    }
    match with_earlier(s, how) {
        libc::SHUT_RD => {
            s.rx_shut.swap(true, Ordering::SeqCst);
            if let Some(p) = s.segment() {
                p.rouse_own();
            }
            // A kernel half that is shut shows readable for ever, and no bell can wake anybody there any
            // more: it is shut only for those who already sleep on it, or where the kernel's word counts.
            shows::check_kernel(s, fd);
            let watched = s.set_count.load(Ordering::Acquire) > 0;
            if s.sleepers() == 0 && !watched && !s.is_over() {
                return 0;
            }
            s.woken_hard.store(true, Ordering::Release);
            kernel(libc::SHUT_RD)
        }
        libc::SHUT_WR => {
            s.tx_shut.store(true, Ordering::Release);
            // While the fast leg is open the kernel's half stays open too: it carries our bells.
            if s.fin_sent.load(Ordering::Acquire) {
                return kernel(libc::SHUT_WR);
            }
            let shut = send::finish(s, fd);
            wake_senders(s, fd);
            if shut == Ok(false) && owes(s) {
                return 0;
            }
            if let Some(p) = s.segment() {
                settle_both_shut(s, p, fd);
            }
            if shut == Ok(true) {
                // It may have gone back while the word was written: one of the two sees the other.
                fence(Ordering::SeqCst);
                attend(s, fd);
                return 0;
            }
            kernel(libc::SHUT_WR)
        }
        libc::SHUT_RDWR => {
            s.rx_shut.store(true, Ordering::Release);
            let first = !s.tx_shut.swap(true, Ordering::AcqRel);
            s.woken_hard.store(true, Ordering::Release);
            let e = real::errno();
            let told = send::finish(s, fd) == Ok(true) && first;
            let r = kernel(if owes(s) {
                libc::SHUT_RD
            } else {
                libc::SHUT_RDWR
            });
            attend(s, fd); // (what is just given back goes, and the end behind it)
            if told && r < 0 {
                // The peer has heard the word already, and has closed: there was a connection when this began.
                real::set_errno(e);
                return 0;
            }
            r
        }
        _ => kernel(how),
    }
}

/// Whether the kernel has yet to be given what the peer has given back, or is just giving back: the end follows that (`demote`).
fn owes(s: &Socket) -> bool {
    let asks = |tx: &Tx| tx.leg() == Leg::Fast && s.segment().is_some_and(Provider::stopped);
    s.tx.lock().is_ok_and(|tx| tx.owes() || asks(&tx))
}

/// With the half that was shut before, if this is the other one: an end that neither sends nor receives any more
/// answers data with a reset, whichever half was first, and the kernel does so only once its own are shut.
fn with_earlier(s: &Socket, how: c_int) -> c_int {
    let before = match how {
        libc::SHUT_RD => &s.tx_shut,
        libc::SHUT_WR => &s.rx_shut,
        _ => return how,
    };
    if before.load(Ordering::Acquire) {
        libc::SHUT_RDWR
    } else {
        how
    }
}

/// Threads that sleep for room have to notice that there will be none. Without an event for them they
/// sleep on the kernel connection alone, which only its end wakes.
fn wake_senders(s: &'static Socket, fd: c_int) {
    rouse::all(s);
    if rouse::event().is_none() && s.sleepers() > 0 {
        s.woken_hard.store(true, Ordering::Release);
        // SAFETY: no pointers.
        let _ = unsafe { transport::syscall!(shutdown, fd, libc::SHUT_RD) };
    }
}
