//! What a connection in RDMA mode is ready for, in poll(2) bits.

use super::super::{Phase, Socket, wait};
use super::{ending, io, opening, wire};
use std::sync::atomic::Ordering;
use transport::sys::net;
use transport::wire::State;

const IN: i16 = libc::POLLIN | libc::POLLRDNORM;
const OUT: i16 = libc::POLLOUT | libc::POLLWRNORM;

/// The bits that hold now; those of writing only if `want` has them.
pub(crate) fn bits(s: &'static Socket, fd: i32, want: i16) -> i16 {
    opening::step(s, fd);
    let Some(wire) = wire(s) else {
        let kernel = net::ready_now(fd, OUT | libc::POLLRDHUP);
        return if s.phase() == Phase::Opening {
            kernel & !IN
        } else {
            net::ready_now(fd, want | IN | OUT | libc::POLLRDHUP)
        };
    };
    let mut b = 0;
    if want & OUT != 0 {
        b |= writable(s, fd) | (net::ready_now(fd, 0) & libc::POLLERR);
    }
    if s.phase() == Phase::Opening {
        return b;
    }
    // Who sleeps in the kernel on this very socket is woken by what lies there: it is left where it is.
    let (readable, state) = if s.sleepers() > 0 {
        (net::ready_now(fd, libc::POLLIN) != 0, State::Open)
    } else {
        let Ok(_rx) = s.rx.lock() else { return b };
        // SAFETY: the lock is held.
        let incoming = unsafe { wire.incoming() };
        let lowat = s.lowat.load(Ordering::Relaxed) as usize;
        let some = incoming.is_readable(&wire.common, fd);
        let enough = lowat <= 1
            || incoming.available(&wire.common, fd) >= lowat
            || incoming.state() != State::Open;
        (some && enough, incoming.state())
    };
    io::after(s, fd, wire, state);
    if state == State::Plain {
        ending::settle_plain(s, fd);
        if s.phase() != Phase::Wired {
            return net::ready_now(fd, want | IN | libc::POLLRDHUP);
        }
        b |= net::ready_now(fd, libc::POLLIN | libc::POLLRDHUP);
    }
    let ended = matches!(state, State::Eof | State::Reset);
    let rx_shut = s.rx_shut.load(Ordering::Acquire);
    let tx_shut = s.tx_shut.load(Ordering::Acquire);
    if readable && state != State::Plain || ended || rx_shut {
        b |= IN;
    }
    if ended || rx_shut {
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
        b |= OUT | libc::POLLHUP;
        if !s.reset_told.load(Ordering::Acquire) {
            b |= libc::POLLERR;
        }
    }
    b
}

/// Whether something could be sent.
fn writable(s: &Socket, fd: i32) -> i16 {
    let Some(wire) = wire(s) else { return 0 };
    let (roomy, early) = s.tx.lock_soon().map_or((true, false), |_tx| {
        // SAFETY: the lock is held while it is looked at.
        let out = unsafe { wire.out() };
        let early = s.phase() == Phase::Opening;
        let roomy = out.is_roomy() && (early || out.is_plain() || out.has_credit(&wire.common));
        (roomy || out.pending() > 0 && !early, early)
    });
    if roomy && early {
        return OUT;
    }
    if roomy {
        net::ready_now(fd, libc::POLLOUT) & OUT
    } else {
        0
    }
}

/// What to wait for in the kernel, where `want` is waited for: a sender that lacks the peer's word waits for that.
pub(crate) fn event(s: &Socket, want: wait::Want) -> i16 {
    match want {
        wait::Want::Data => libc::POLLIN,
        _ if s.hungry.load(Ordering::Relaxed) => libc::POLLIN,
        _ => libc::POLLOUT,
    }
}
