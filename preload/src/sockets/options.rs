//! Options and controls of a socket whose answer the kernel alone does not know: sizes of what is
//! unread, the low-water mark, non-blocking mode, and options that send the stream back to the kernel.

use super::demote::{Unread, demote};
use super::{Phase, Socket, residual};
use std::sync::atomic::Ordering;
use transport::reason::Reason;
use transport::sdp::Leg;
use transport::sys::net;

/// Bytes that the program can read now (FIONREAD).
pub(crate) fn unread(s: &Socket, fd: i32) -> usize {
    let kept = residual::left(s);
    let (Phase::Attached, Some(p)) = (s.phase(), s.segment()) else {
        return kept + net::unread(fd);
    };
    let Ok(mut rx) = s.rx.lock() else { return 0 };
    let ring = rx.available(p).unwrap_or(0);
    let bells = usize::try_from(rx.bells_outstanding(p)).unwrap_or(0);
    match rx.leg() {
        Leg::Fast => ring,
        _ => ring + net::unread(fd).saturating_sub(bells),
    }
}

/// Bytes sent that the peer's host has not acknowledged (SIOCOUTQ): on the segment none ever are, they
/// lie with the receiver as soon as they are sent.
pub(crate) fn unsent(s: &Socket) -> Option<usize> {
    (s.phase() == Phase::Attached && s.tx_leg() == Leg::Fast).then_some(0)
}

/// Takes note of an option that the program has set, and that the kernel has accepted.
pub(crate) fn was_set(s: &'static Socket, fd: i32, level: i32, name: i32) {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => {
            let n = net::option(fd, level, name).unwrap_or(1);
            s.lowat.store(n.max(1).cast_unsigned(), Ordering::Relaxed);
        }
        _ if kernel_only(level, name) => demote(s, fd, Reason::SocketOption, Unread::GiveBack),
        _ => {}
    }
}

/// Options that make the kernel treat the stream in ways that only it can.
fn kernel_only(level: i32, name: i32) -> bool {
    const TCP_REPAIR: i32 = 19;
    const TCP_ULP: i32 = 31;
    match level {
        libc::IPPROTO_TCP => matches!(name, TCP_REPAIR | TCP_ULP | libc::TCP_MD5SIG),
        libc::SOL_SOCKET => {
            matches!(name, libc::SO_PEEK_OFF | libc::SO_ZEROCOPY | libc::SO_TIMESTAMPING)
        }
        _ => false,
    }
}
