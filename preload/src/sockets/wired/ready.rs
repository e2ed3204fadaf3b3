//! What a connection in RDMA mode is ready for, in poll(2) bits.
//!
//! Rule: [`bits`] may be asked with a set's lock held, so nothing here takes the registry lock. What needs that is said
//! by [`is_unsettled`], and done by [`settle`] first.

use super::super::ready::{Ask, kernel_now};
use super::super::{Phase, Socket, rouse, wait};
use super::waiting::{is_lacking, note_pending, out_of_room_since};
use super::{ending, io, is_current, leaving, mover, number, opening, riding, wire};
use std::sync::atomic::Ordering;
use transport::sys::net;
use transport::wire::{In, PATIENCE_US, State};

const IN: i16 = libc::POLLIN | libc::POLLRDNORM;
const OUT: i16 = libc::POLLOUT | libc::POLLWRNORM;

/// Whether the socket's state is out of date: an answer or a request has come, or RDMA mode is over.
pub(crate) fn is_unsettled(s: &'static Socket) -> bool {
    if s.phase() == Phase::Opening {
        let fd = s.own_fd(s.record.fd.load(Ordering::Relaxed).cast_signed());
        return net::ready_now(fd, libc::POLLIN) != 0;
    }
    wire(s).is_some_and(|wire| {
        wire.common.to_plain.load(Ordering::Acquire) && ending::is_past(s, wire)
    })
}

/// Whether a set hears by the kernel's events of all that a look with this wish would ask the kernel for. (Those on connections
/// that other processes hold too may go to them.)
fn is_told(s: &Socket, want: i16) -> bool {
    want & OUT == 0 && s.phase() == Phase::Wired && !s.is_shared()
}

/// Whether it is the kernel that tells of what comes.
pub(crate) fn tells_by_kernel(s: &Socket) -> bool {
    s.phase() == Phase::Wired && wire(s).is_some_and(|wire| !riding::is_apart(wire))
}

/// Whether nothing is to be looked after: the kernel has told of nothing, and neither end waits for the other's word.
pub(crate) fn is_still(s: &Socket) -> bool {
    !s.kernel_news.are_any()
        && !s.is_shared()
        && !s.hungry.load(Ordering::Relaxed)
        && wire(s).is_some_and(|wire| {
            wire.common.ring.get().is_none()
                && !wire.common.due.load(Ordering::Acquire)
                && !wire.common.to_plain.load(Ordering::Acquire)
                && !wire.common.failed.load(Ordering::Acquire)
                && out_of_room_since(wire).is_none()
        })
}

/// Brings it up to date. Takes the registry lock.
pub(crate) fn settle(s: &'static Socket, fd: i32) {
    let fd = s.own_fd(fd);
    opening::step(s, fd);
    // (not one that has only just agreed: settling would ask the peer to leave RDMA mode)
    if s.phase() == Phase::Wired && is_unsettled(s) {
        ending::settle_plain(s, fd);
    }
}

/// The bits that hold now; those of writing only if `want` has them. Where both directions go by a ring the kernel has nothing
/// to say but news; elsewhere who takes in its events ([`Ask::Told`]) hears of all but of room by them.
pub(crate) fn bits(s: &'static Socket, fd: i32, want: i16, ask: Ask) -> i16 {
    let fd = s.own_fd(fd);
    let Some(wire) = wire(s) else {
        let kernel = net::ready_now(fd, OUT | libc::POLLRDHUP);
        return if s.phase() == Phase::Opening {
            kernel & !IN
        } else {
            net::ready_now(fd, want | IN | OUT | libc::POLLRDHUP)
        };
    };
    let told = s.kernel_news.told();
    let by_news = riding::is_apart(wire) || ask == Ask::Told && is_told(s, want);
    let kernel = if by_news && told.is_none() && ask != Ask::Fresh {
        0 // it has said all it has
    } else {
        let all = IN | OUT | libc::POLLRDHUP | libc::POLLPRI;
        let kernel = kernel_now(s, fd, all);
        match told {
            None if kernel & !OUT != 0 || ask == Ask::Fresh => s.kernel_news.tell(),
            Some(told) if kernel & !OUT == 0 && ask != Ask::Fresh && by_news => {
                s.kernel_news.forget(told);
            }
            _ => {}
        }
        kernel
    };
    let half = s.woken_hard.load(Ordering::Acquire);
    let mut b = kernel & (libc::POLLERR | libc::POLLHUP);
    if want & OUT != 0 {
        b |= writable(s, fd, kernel);
        if is_lacking(wire) && mover::is_there() {
            note_pending(s, fd); // (as a send does; that needs no lock of ours where the thread is there)
        }
    }
    let lacks_room = want & OUT != 0 && b & OUT == 0;
    if s.phase() == Phase::Opening {
        return b;
    }
    if kernel & libc::POLLRDHUP != 0 && !half {
        b |= libc::POLLRDHUP | IN;
    }
    let asleep = s.sleepers() > 0;
    let (mut aborted, mut failed) = (false, false);
    let (readable, end, state, took) = {
        let Ok(_rx) = s.rx.lock() else { return b };
        if !is_current(s, wire) {
            return net::ready_now(fd, want | IN | OUT | libc::POLLRDHUP);
        }
        if leaving::is_under_way(s, fd, wire) {
            return b & !IN; // (what can be read is with whoever does that)
        }
        // SAFETY: the lock is held.
        let mut incoming = unsafe { wire.incoming() };
        // (in RDMA mode it may be the library's own word)
        if kernel & want & libc::POLLPRI != 0 && (incoming.is_past_mode() || !leaving::has_rung(fd))
        {
            b |= libc::POLLPRI;
        }
        let lowat = s.lowat.load(Ordering::Relaxed) as usize;
        let comes = kernel & !(OUT | libc::POLLPRI) != 0;
        let octets = incoming.octets();
        if asleep && rouse::known().is_none() {
            // Who sleeps in the kernel on this very socket is woken by what lies there: it is left where it is.
            let readable = incoming.has(&wire.common, lowat) || kernel & libc::POLLIN != 0;
            (readable, false, State::Open, false)
        } else {
            let readable = if comes || incoming.has_octets(&wire.common) == Some(true) {
                let readable = incoming.is_readable(&wire.common, fd);
                if lacks_room && incoming.has_end() {
                    incoming.look_for_plain(&wire.common, fd); // the peer's credits come behind its end too
                }
                readable
            } else {
                incoming.has(&wire.common, 1) // (the kernel has been asked already)
            };
            // (the end may lie behind bytes that have not been read, here or, if that was not asked in vain, in the kernel)
            let looks = lowat > 1 || want & libc::POLLRDHUP != 0;
            let ends = kernel & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0;
            let asks = ends || comes && !incoming.is_drained() || incoming.is_by_ring();
            let available = |incoming: &mut In| {
                if asks {
                    incoming.available(&wire.common, fd)
                } else {
                    incoming.available_here(&wire.common)
                }
            };
            let enough = !looks || available(&mut incoming) >= lowat;
            let end = incoming.has_end();
            let took = asleep && incoming.octets() != octets;
            aborted = incoming.is_aborted(&wire.common);
            failed = incoming.has_failed(&wire.common);
            (readable && (enough || end), end, incoming.state(), took)
        }
    };
    if took {
        rouse::sleepers(s); // the kernel has nothing to tell them of
    }
    io::after(s, fd, wire, state);
    if lacks_room {
        b |= writable(s, fd, kernel); // what has come may grant it
    }
    if state == State::Plain {
        // (what it showed before may have been the word that has just been taken)
        b |= net::ready_now(fd, IN | libc::POLLRDHUP) & (IN | libc::POLLRDHUP);
    }
    let rx_shut = s.rx_shut.load(Ordering::Acquire);
    let tx_shut = s.tx_shut.load(Ordering::Acquire);
    if readable && state != State::Plain || end || rx_shut {
        b |= IN;
    }
    if end || rx_shut {
        ending::settle_both_shut(s, fd);
        b |= libc::POLLRDHUP;
        if tx_shut {
            b |= libc::POLLHUP;
        }
    }
    if tx_shut {
        b |= OUT;
    }
    if state == State::Reset {
        b |= OUT | libc::POLLHUP | libc::POLLRDHUP | IN;
    }
    if failed {
        b |= OUT | libc::POLLHUP;
    }
    if failed && !(aborted && tx_shut) && !s.reset_told.load(Ordering::Acquire) {
        b |= libc::POLLERR;
    }
    if aborted && tx_shut {
        b &= !libc::POLLERR; // (both ends had ended before: the kernel's error is about the library's words alone)
    }
    b
}

/// How long (ns) a sleep may be at once: whoever reads takes all that has come from the kernel, which others that sleep
/// there are not told of. So does whoever takes the answer that a client waits for with more than it can keep here: it wakes that one, but
/// by an event that all share, which may be taken back before it has got a core.
pub(crate) fn nap(s: &Socket, want: wait::Want) -> u64 {
    let room = !matches!(want, wait::Want::Data);
    let asks = room && s.phase() == Phase::Opening && wire(s).is_some();
    let several = asks || s.is_shared() || s.waiters.load(Ordering::Relaxed) > 1;
    if room && wire(s).is_some_and(|wire| wire.common.adverts.were_made()) {
        PATIENCE_US * 1000 // (another's send may have taken back what this one waits for)
    } else if super::is_wired(s) && several {
        SEVERAL_NS
    } else {
        u64::MAX
    }
}

const SEVERAL_NS: u64 = 10_000_000;

/// Something that changes with every event that edge-triggered watchers must be told of.
pub(crate) fn edge(s: &Socket, fd: i32, data: bool, ask: Ask) -> u64 {
    let Some(wire) = wire(s) else { return 0 };
    // (news are forgotten once the kernel has nothing)
    let asks = ask != Ask::Told || s.is_shared() || s.kernel_news.are_any();
    let (arrived, end, aborted) = s.rx.lock().map_or((0, false, false), |_rx| {
        // SAFETY: the lock is held while it is looked at.
        let incoming = unsafe { wire.incoming() };
        let here = if asks {
            net::unread(s.own_fd(fd)) as u64
        } else {
            0
        };
        (
            incoming.octets() + here + riding::arrived(wire),
            incoming.has_end() || incoming.has_failed(&wire.common),
            incoming.is_aborted(&wire.common),
        )
    });
    let shut = u64::from(s.rx_shut.load(Ordering::Relaxed));
    let reset = u64::from(aborted);
    let arrived = if data { arrived } else { 0 };
    arrived.wrapping_mul(8) ^ u64::from(end) ^ shut << 1 ^ reset << 2
}

/// Whether bytes lie here that come before whatever the kernel has.
pub(crate) fn is_before_kernel(s: &Socket) -> bool {
    wire(s).is_some_and(|wire| {
        s.rx.lock()
            // SAFETY: the lock is held while it is looked at.
            .is_ok_and(|_rx| unsafe { wire.incoming() }.held() > 0)
    })
}

/// The bits of writing, of those that the kernel shows.
fn writable(s: &Socket, fd: i32, kernel: i16) -> i16 {
    let Some(wire) = wire(s) else { return 0 };
    let Ok(_tx) = s.tx.lock_soon() else {
        return kernel & OUT;
    };
    // SAFETY: the lock is held while it is looked at.
    let mut out = unsafe { wire.out() };
    if out.is_too_early(&wire.common) {
        return if out.is_roomy(&wire.common) { OUT } else { 0 };
    }
    if out.is_packetized() && !out.has_credit(&wire.common) {
        let _ = out.seek_room(&wire.common, number(s, fd)); // (before anything can be parked)
    }
    if out.is_packetized() && out.is_roomy_to_park(&wire.common).is_some() {
        if out.parked() > 0 {
            let _ = out.flush_all(&wire.common, number(s, fd)); // (what fails shows by the next call)
        }
        let lacks = !out.has_credit(&wire.common);
        s.hungry.store(lacks && out.parked() > 0, Ordering::Relaxed);
        if lacks {
            let roomy = out.is_roomy_to_park(&wire.common) == Some(true);
            return if roomy { OUT } else { 0 };
        }
    }
    if out.is_roomy_behind_ring(&wire.common) {
        return OUT;
    }
    if out.is_by_ring() {
        // (what waits here, as a wish for credits may, goes by nobody else's doing where the program only polls)
        if out.pending() > 0 {
            let _ = out.flush_all(&wire.common, number(s, fd)); // (what fails shows by the next call)
        }
        if !out.has_credit(&wire.common) {
            let _ = out.seek_room(&wire.common, number(s, fd));
        }
        return if out.pending() == 0 && riding::has_room(wire) && out.has_credit(&wire.common) {
            OUT
        } else {
            0
        };
    }
    if out.is_unsettled() {
        return 0; // the peer says first how much it has
    }
    if out.is_plain() || out.has_credit(&wire.common) {
        s.hungry.store(false, Ordering::Relaxed); // (it is the kernel's room that lacks from here on, whatever a send lacked)
        return kernel & OUT;
    }
    let _ = out.seek_room(&wire.common, number(s, fd));
    0
}

/// What to wait for in the kernel, where `want` is waited for: a sender that lacks the peer's word waits for that.
pub(crate) fn event(s: &Socket, want: wait::Want) -> i16 {
    match want {
        wait::Want::Data => libc::POLLIN,
        _ if wire(s).is_some_and(|wire| riding::is_sending(s, wire)) => libc::POLLIN,
        _ if s.hungry.load(Ordering::Relaxed) => libc::POLLIN,
        _ => libc::POLLOUT,
    }
}
