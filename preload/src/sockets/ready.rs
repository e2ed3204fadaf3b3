//! What a socket is ready for, in poll(2) bits: the one place that answers it, for poll, select and
//! epoll alike. Looks only; nothing is taken or changed but what has been learnt of the kernel side.

use super::ending::{Ending, ending, settle_both_shut, was_answered};
use super::{Phase, Socket, engage, parked, residual, shows, wired};
use flowctl::{Inbox as _, Queued, Word};
use std::sync::atomic::Ordering;
use transport::clock;
use transport::direct::Direct;
use transport::provider::{End, Provider};
use transport::sdp::Leg;
use transport::shm::layout::FIN_NONE;
use transport::shm::segment::Segment;
use transport::sys::{net, yield_core};

const IN: i16 = libc::POLLIN | libc::POLLRDNORM;
const OUT: i16 = libc::POLLOUT | libc::POLLWRNORM;

/// Whether readiness of this socket has to be found out here: the kernel alone does not know.
#[inline]
pub(crate) fn is_ours(s: &Socket) -> bool {
    match s.phase() {
        Phase::Attached => true,
        Phase::Announced | Phase::Opening | Phase::Wired => true,
        // (also once it is told of: nothing comes any more, and what a set has told of it is not to be the kernel's to tell anew)
        Phase::Plain => !s.residual.load(Ordering::Relaxed).is_null() || is_broken(s),
        _ => false,
    }
}

/// Whether a plain socket was reset, which the kernel tells nobody any more.
#[inline]
pub(crate) fn is_broken(s: &Socket) -> bool {
    s.phase() == Phase::Plain && s.broken.load(Ordering::Relaxed)
}

/// Likewise, and nobody has told the program.
#[inline]
pub(crate) fn has_untold_reset(s: &Socket) -> bool {
    is_broken(s) && !residual::is_told(s)
}

/// Whether nothing has happened that a reader would be told of: a few loads, for walks over many.
#[inline]
pub(crate) fn is_quiet(s: &Socket) -> bool {
    let Some(p) = s.segment() else { return false };
    s.phase() == Phase::Attached
        && s.rx_leg() == Leg::Fast
        && !parked::has_news(s, p)
        && p.finished() == FIN_NONE
        && p.stated(End::Fast).is_none()
        && !s.is_over()
        && !s.rx_shut.load(Ordering::Relaxed)
        && !s.tx_shut.load(Ordering::Relaxed)
        && !s.broken.load(Ordering::Relaxed)
        && !(p.stopped() && s.tx_leg() == Leg::Fast)
}

/// Whether the socket's state is out of date: the server has answered, or the peer has gone back to the
/// kernel. Then [`settle`] comes before any look.
#[inline]
pub(crate) fn is_unsettled(s: &'static Socket) -> bool {
    match s.phase() {
        Phase::Opening | Phase::Wired => wired::is_unsettled(s),
        Phase::Announced => engage::is_answered(s),
        Phase::Attached => s.segment().is_some_and(|p| {
            s.is_torn()
                || (p.stopped() && s.tx_leg() == Leg::Fast)
                || (s.rx_leg() == Leg::Fast
                    && p.stated(End::Fast) == Some(s.rx_at.load(Ordering::Relaxed))
                    && p.pending().is_none())
        }),
        _ => false,
    }
}

/// Brings the socket's state up to date. Takes the registry lock.
#[cold]
pub(crate) fn settle(s: &'static Socket, fd: i32) {
    if wired::is_wired(s) {
        return wired::settle(s, fd);
    }
    engage::step(s, fd);
    super::demote::attend(s, fd);
}

/// Where a look at a socket asks the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Wherever it has the answer, and where the stream is wholly on the segment too, for the end of the connection.
    Fresh,
    /// Wherever it has the answer.
    Needed,
    /// There, but not where it tells of all that is new by an event, and has not: who looks takes those events in.
    Told,
}

/// The bits that hold now; those of writing only if `want` has them.
pub(crate) fn bits(s: &'static Socket, fd: i32, want: i16, ask: Ask) -> i16 {
    if wired::is_wired(s) {
        return wired::bits(s, fd, want, ask);
    }
    let fresh = ask == Ask::Fresh;
    if s.phase() != Phase::Attached {
        let mut b = net::ready_now(fd, IN | OUT | libc::POLLPRI | libc::POLLRDHUP);
        let kept = residual::left(s);
        if kept > 0 {
            let enough = kept + net::unread(fd) >= s.lowat.load(Ordering::Relaxed) as usize;
            let ended = b & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0;
            b = if enough || ended { b | IN } else { b & !IN };
        }
        if has_untold_reset(s) {
            b |= libc::POLLERR;
        }
        return b;
    }
    let Some(p) = s.segment() else { return 0 };
    if fresh {
        shows::check_kernel(s, fd);
    }
    // A peer that has gone back to the kernel ends there, whatever it put before lies here unread. (Told to sets under their locks.)
    let ends = p
        .stated(End::Fast)
        .map_or(0, |_| kernel_now(s, fd, libc::POLLRDHUP));
    if s.shows_end(ends) {
        s.over.store(true, Ordering::Release);
    }
    let over = s.is_over();
    let fin = p.finished();
    let end = ending(s, p, fd);
    settle_both_shut(s, p, fd);
    let mut b = 0;
    if can_read(s, p, fd, fresh) || over || fin != FIN_NONE || s.rx_shut.load(Ordering::Acquire) {
        b |= IN;
    }
    if want & OUT != 0 && (over || can_write(s, p, fd)) || s.tx_shut.load(Ordering::Acquire) {
        b |= OUT;
    }
    if want & libc::POLLPRI != 0 && p.stated(End::Fast).is_some() {
        b |= net::ready_now(fd, libc::POLLPRI) & libc::POLLPRI; // urgent data comes by the kernel only
    }
    let heard_end = over || fin != FIN_NONE || s.rx_shut.load(Ordering::Acquire);
    if heard_end {
        b |= libc::POLLRDHUP;
        if s.tx_shut.load(Ordering::Acquire) {
            b |= libc::POLLHUP;
        }
    }
    if end == Ending::Reset {
        b |= IN | OUT | libc::POLLRDHUP | libc::POLLHUP;
        if !s.reset_told.load(Ordering::Acquire) {
            b |= libc::POLLERR;
        }
    } else if s.shows_end(ends) && ends & libc::POLLHUP != 0 {
        b |= OUT | ends & (libc::POLLHUP | libc::POLLERR);
    } else if s.sent_late.load(Ordering::Acquire)
        || (s.woken_hard.load(Ordering::Acquire) && s.tx_shut.load(Ordering::Acquire))
    {
        // What we sent to a closed end was answered, by the kernel; or what came to ours.
        let told = kernel_now(s, fd, 0) & (libc::POLLERR | libc::POLLHUP);
        b |= if was_answered(s, p) {
            told
        } else {
            told & !libc::POLLERR
        };
    }
    b
}

/// How long (µs) the end of a connection may come after its error.
const END_US: u64 = 5_000;

/// What the kernel says now. It shows a reset's error an instant before the end, while another core closes the connection, and
/// wakes nobody until both are there; looks as close together as ours would tell of one without the other.
pub(crate) fn kernel_now(s: &Socket, fd: i32, events: i16) -> i16 {
    let mut b = net::ready_now(fd, events);
    if b & (libc::POLLERR | libc::POLLHUP) == libc::POLLERR
        && !s.error_alone.load(Ordering::Relaxed)
    {
        let begun = clock::ticks();
        while b & (libc::POLLERR | libc::POLLHUP) == libc::POLLERR {
            if clock::ticks() - begun > clock::us(END_US) {
                s.error_alone.store(true, Ordering::Relaxed); // (its error queue has something)
                break;
            }
            yield_core();
            b = net::ready_now(fd, events);
        }
    }
    b
}

/// Whether enough bytes for SO_RCVLOWAT are there.
fn can_read(s: &Socket, p: &impl Provider, fd: i32, fresh: bool) -> bool {
    match s.rx_leg() {
        Leg::Fast => {
            if p.stated(End::Fast)
                .is_some_and(|end| end == s.rx_at.load(Ordering::Relaxed))
                && p.pending().is_none()
            {
                return has_data_behind_bells(s, p, fd);
            }
            let lowat = s.lowat.load(Ordering::Relaxed);
            if lowat <= 1 {
                return parked::has_news(s, p);
            }
            s.rx.lock()
                .is_ok_and(|mut rx| rx.available(p).map_or(true, |n| n >= lowat as usize))
        }
        Leg::First => {
            let Ok(rx) = s.rx.lock() else { return false };
            let taken = rx.kernel_bytes();
            drop(rx);
            let is_over = || p.stated(End::Kernel) == Some(taken);
            let has_next = || {
                // Perhaps the fast leg is over as well, without a byte on it.
                parked::has_news(s, p)
                    || p.pending().is_some()
                    || (p.stated(End::Fast) == Some(0) && has_data_behind_bells(s, p, fd))
            };
            if is_over() {
                return has_next();
            }
            // Whoever watches the connection says when there is something to look at.
            let told = s.kernel_news.told();
            if !fresh && told.is_none() {
                return false;
            }
            let found = net::unread(fd) > 0 || net::ready_now(fd, libc::POLLRDHUP) != 0;
            match told {
                None if found => s.kernel_news.tell(),
                Some(told) if !found => s.kernel_news.forget(told),
                _ => {}
            }
            // (the leg may have ended since, and what was found be a bell)
            found && (!is_over() || has_next())
        }
        // (what was kept as it went back to the kernel, and owes yet)
        Leg::Last => residual::left(s) > 0 || has_data_behind_bells(s, p, fd),
    }
}

fn has_data_behind_bells(s: &Socket, p: &impl Provider, fd: i32) -> bool {
    s.rx.lock()
        .is_ok_and(|rx| net::unread(fd) as u64 > rx.bells_outstanding(p))
        || net::ready_now(fd, libc::POLLRDHUP) & (libc::POLLRDHUP | libc::POLLHUP) != 0
}

/// Whether there is room for a send.
pub(crate) fn can_write(s: &Socket, p: &impl Provider, fd: i32) -> bool {
    if s.tx_leg() == Leg::Fast && !p.stopped() {
        s.tx.lock_soon()
            .is_ok_and(|mut tx| tx.is_writable(p).unwrap_or(true))
    } else {
        net::ready_now(fd, libc::POLLOUT) & libc::POLLOUT != 0
    }
}

/// Whether a look without an edge would find nothing to do either: a few loads.
pub(crate) fn is_still(s: &Socket) -> bool {
    s.phase() == Phase::Wired && wired::is_still(s)
}

/// Something that changes with every event that edge-triggered watchers must be told of: bytes
/// arrived, if they ask for those (`data`); the end was heard.
pub(crate) fn edge(s: &Socket, fd: i32, data: bool, ask: Ask) -> u64 {
    if s.phase() == Phase::Wired {
        return wired::edge(s, fd, data, ask);
    }
    let Some(p) = s.segment() else { return 0 };
    let arrived = if data { arrived(s, p, fd) } else { 0 };
    let ended = match ending(s, p, fd) {
        Ending::Open => u64::from(s.rx_shut.load(Ordering::Relaxed)),
        Ending::Eof => 2 + u64::from(s.sent_late.load(Ordering::Relaxed)),
        Ending::Reset => 4,
    };
    arrived.wrapping_mul(8) ^ ended
}

/// What grows with whatever arrives.
fn arrived(s: &Socket, p: &Segment, fd: i32) -> u64 {
    // (what was pulled has arrived before it is told of)
    let read = s.rx_at.load(Ordering::Relaxed);
    let mut arrived = p.told(Word::Produced).as_hearsay().max(read);
    if s.pulls.load(Ordering::Relaxed) != 0 {
        arrived = arrived.max(Queued::read(p).end);
    }
    arrived = arrived.wrapping_add(p.adverts());
    // (where the fast leg is over the stream is not the kernel's before the last bell has come, and what the peer asked back has gone)
    if s.rx_leg() != Leg::Fast
        && let Ok(rx) = s.rx.lock()
    {
        let here = (net::unread(fd) as u64).saturating_sub(rx.bells_outstanding(p));
        return arrived.wrapping_add(rx.kernel_bytes()).wrapping_add(here);
    }
    arrived.wrapping_add(s.rx_kernel.load(Ordering::Relaxed))
}

/// Wishes of the doorbell that fit these poll bits.
pub(crate) fn wishes(events: i16) -> u32 {
    let data = if events & (IN | libc::POLLRDHUP) != 0 {
        transport::doorbell::DATA
    } else {
        0
    };
    let room = if events & OUT != 0 {
        transport::doorbell::SPACE
    } else {
        0
    };
    data | room
}
