//! Options and controls of a socket whose answer the kernel alone does not know: sizes of what is
//! unread, the low-water mark, non-blocking mode, and options that send the stream back to the kernel.

use super::demote::{Unread, demote};
use super::ending::{Ending, ending, ends_first, of_both, reset_error, was_answered};
use super::ready::has_untold_reset;
use super::{Phase, Socket, cut, residual, wired};
use crate::epoll::registered;
use crate::{real, table};
use libc::{SO_RCVBUF, SO_RCVBUFFORCE, SO_SNDBUF, SO_SNDBUFFORCE};
use std::sync::atomic::Ordering;
use transport::provider::Provider;
use transport::reason::Reason;
use transport::sdp::Leg;
use transport::shm::layout::FIN_NONE;
use transport::sys::{Errno, net};

/// `SO_RCVTIMEO_NEW` and `SO_SNDTIMEO_NEW` (asm-generic/socket.h).
const RCVTIMEO_NEW: i32 = 66;
const SNDTIMEO_NEW: i32 = 67;

/// `SO_TIMESTAMP_NEW` and its kin (likewise, for times of 64 bits).
const TIMESTAMP_NEW: i32 = 63;
const TIMESTAMPNS_NEW: i32 = 64;
const TIMESTAMPING_NEW: i32 = 65;

/// Linux's uapi/linux/tcp.h: recvmsg is to say how much is left, in a control message of the same number.
pub(crate) const TCP_INQ: i32 = 36;

/// Likewise: pages of what has come are put where the program has mapped the socket.
pub(crate) const TCP_ZEROCOPY_RECEIVE: i32 = 35;

/// Gives the kernel back what the program has set.
pub(crate) fn restore_delays(s: &Socket, fd: i32) {
    if !s.nodelay.load(Ordering::Relaxed) {
        net::set_tcp(fd, libc::TCP_NODELAY, false);
    }
    if s.cork.load(Ordering::Relaxed) {
        net::set_tcp(fd, libc::TCP_CORK, true);
    }
}

pub(crate) const fn is_time_out(level: i32, name: i32) -> bool {
    let is_one = matches!(
        name,
        libc::SO_RCVTIMEO | libc::SO_SNDTIMEO | RCVTIMEO_NEW | SNDTIMEO_NEW
    );
    level == libc::SOL_SOCKET && is_one
}

/// Takes note of an option that the program has set, and that the kernel has accepted.
/// `value` is what the kernel has read of it, where that is an int; of a time-out, whether that is less than nothing.
pub(crate) fn was_set(s: &'static Socket, fd: i32, level: i32, name: i32, value: Option<i32>) {
    let is_on = value.is_some_and(|v| v != 0);
    match (level, name) {
        // Noted from the start: the first bell changes what the kernel has (`transport::sdp::Tx`).
        (libc::IPPROTO_TCP, libc::TCP_NODELAY | libc::TCP_CORK) => {
            let cork = name == libc::TCP_CORK;
            if cork { &s.cork } else { &s.nodelay }.store(is_on, Ordering::Relaxed);
            if s.phase() == Phase::Attached {
                if is_on == cork {
                    net::set_tcp(fd, name, !cork);
                } else {
                    tell_withheld(s, fd);
                }
            }
        }
        _ if is_time_out(level, name) => {
            let of_reads = matches!(name, libc::SO_RCVTIMEO | RCVTIMEO_NEW);
            super::timing::note(s, of_reads, value == Some(-1));
        }
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            s.linger_zero
                .store(net::lingers_zero(fd), Ordering::Relaxed);
        }
        (libc::SOL_SOCKET, SO_SNDBUF | SO_SNDBUFFORCE) => {
            let own = size(fd, SO_SNDBUF);
            s.sndbuf.store(own, Ordering::Relaxed);
            if s.phase() == Phase::Attached
                && let Ok(mut tx) = s.tx.lock()
            {
                tx.resize(own as usize);
            }
        }
        (libc::SOL_SOCKET, SO_RCVBUF | SO_RCVBUFFORCE) => {
            s.rcvbuf.store(size(fd, SO_RCVBUF), Ordering::Relaxed);
        }
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => {
            let n = net::option(fd, level, name).unwrap_or(1);
            s.lowat.store(n.max(1).cast_unsigned(), Ordering::Relaxed);
            let whole = s.rx_leg() == Leg::Fast;
            match s.phase() {
                Phase::Attached if whole => net::wake_at_once(fd), // a bell is one byte
                Phase::Opening | Phase::Wired => net::wake_at_once(fd), // whose bytes are not the stream's
                Phase::Announced | Phase::Attached if n > 1 => {
                    demote(s, fd, Reason::SocketOption, Unread::Keep);
                }
                _ => {}
            }
            // The kernel tells whoever watches for data of what is enough now, each time.
            registered::tell_of_data(s, fd);
        }
        (libc::IPPROTO_TCP, TCP_INQ) => tell(s, TELLS_LEFT, is_on),
        (
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMP | libc::SO_TIMESTAMPNS | TIMESTAMP_NEW | TIMESTAMPNS_NEW,
        ) => tell(s, TELLS_WHEN, is_on),
        (libc::SOL_SOCKET, libc::SO_PEEK_OFF) => tell(s, PEEKS_FROM, value.is_some_and(|v| v >= 0)),
        _ if kernel_only(level, name) => demote(s, fd, Reason::SocketOption, Unread::GiveBack),
        _ => {}
    }
}

/// The program has taken the cork off, or wants no delay: what it has sent so far goes.
fn tell_withheld(s: &'static Socket, fd: i32) {
    if let Some(p) = s.segment()
        && let Ok(mut tx) = s.tx.lock()
    {
        tx.tell_withheld(p, s.live_fd(fd));
    }
}

/// TCP_INQ: how much is left. SO_TIMESTAMP: when it came, for which the stream goes back to the kernel once somebody looks.
pub(crate) const TELLS_LEFT: u8 = 1;
pub(crate) const TELLS_WHEN: u8 = 2;
/// SO_PEEK_OFF, beside them as a connection has it from its listener too: the stream is the kernel's.
pub(crate) const PEEKS_FROM: u8 = 4;

/// What another program has set for a connection with bytes that are kept.
pub(crate) fn take_over_kept(s: &Socket, fd: i32) {
    let option = |name| net::option(fd, libc::SOL_SOCKET, name).ok();
    let lowat = option(libc::SO_RCVLOWAT).unwrap_or(1);
    s.lowat
        .store(lowat.max(1).cast_unsigned(), Ordering::Relaxed);
    let offset = option(libc::SO_PEEK_OFF);
    tell(s, PEEKS_FROM, offset.is_some_and(|v| v >= 0));
}

/// Whether something is set that only the kernel can do: with half of the stream there and half in a segment, nobody could say when the
/// low-water mark is reached.
pub(crate) fn needs_kernel(s: &Socket) -> bool {
    s.lowat.load(Ordering::Relaxed) > 1 || s.tells.load(Ordering::Relaxed) & PEEKS_FROM != 0
}

fn tell(s: &Socket, what: u8, on: bool) {
    if on {
        s.tells.fetch_or(what, Ordering::Relaxed);
    } else {
        s.tells.fetch_and(!what, Ordering::Relaxed);
    }
}

/// A recvmsg with room for control data: whoever has asked for the time at which each message came, which only the kernel
/// knows, is served by it from here. (Programs set that and read without such room, iperf for one.)
pub(crate) fn before_control(s: &'static Socket, fd: i32) {
    if s.tells.load(Ordering::Relaxed) & TELLS_WHEN != 0 && s.phase() != Phase::Plain {
        demote(s, fd, Reason::SocketOption, Unread::GiveBack);
    }
}

/// The program is about to have the kernel map what has come: that is the kernel's to give.
#[cold]
pub(crate) fn before_zero_copy(fd: i32) {
    let is_ours = |s: &&Socket| !matches!(s.phase(), Phase::Idle | Phase::Listening | Phase::Plain);
    if let Some(s) = table::socket(fd).filter(is_ours) {
        let e = real::errno();
        demote(s, fd, Reason::SocketOption, Unread::GiveBack);
        real::set_errno(e);
    }
}

/// Takes over what others have set for a listener that this program was left: connections that it accepts inherit that.
pub(crate) fn take_over(s: &'static Socket, fd: i32) {
    let tcp = [libc::TCP_NODELAY, libc::TCP_CORK, TCP_INQ];
    let socket = [
        libc::SO_LINGER,
        libc::SO_RCVLOWAT,
        libc::SO_PEEK_OFF,
        libc::SO_TIMESTAMP,
        libc::SO_TIMESTAMPNS,
    ];
    let all = tcp.map(|name| (libc::IPPROTO_TCP, name));
    let all = all
        .into_iter()
        .chain(socket.map(|name| (libc::SOL_SOCKET, name)));
    for (level, name) in all {
        was_set(s, fd, level, name, net::option(fd, level, name).ok());
    }
    // (sizes that the kernel has chosen are none of the program's: socket(7), SO_BUF_LOCK)
    let locks = net::option(fd, libc::SOL_SOCKET, SO_BUF_LOCK).unwrap_or(0);
    for (bit, name) in [(1, SO_SNDBUF), (2, SO_RCVBUF)] {
        if locks & bit != 0 {
            was_set(s, fd, libc::SOL_SOCKET, name, None);
        }
    }
}

/// `SO_BUF_LOCK` of `asm-generic/socket.h`.
const SO_BUF_LOCK: i32 = 72;

/// The size of a buffer as the program has set it: the kernel doubles it for its own needs.
fn size(fd: i32, name: i32) -> u32 {
    let doubled = net::option(fd, libc::SOL_SOCKET, name).unwrap_or(0);
    doubled.max(2).cast_unsigned() / 2
}

/// What an option holds, where the kernel's answer is not what the program has set or would see.
pub(crate) fn correct(s: &'static Socket, fd: i32, level: i32, name: i32, value: i32) -> i32 {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => s.lowat.load(Ordering::Relaxed).cast_signed(),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) if s.phase() == Phase::Attached => {
            i32::from(s.nodelay.load(Ordering::Relaxed))
        }
        (libc::IPPROTO_TCP, libc::TCP_CORK) if s.phase() == Phase::Attached => {
            i32::from(s.cork.load(Ordering::Relaxed))
        }
        (libc::SOL_SOCKET, libc::SO_ERROR) if s.phase() == Phase::Attached => {
            if value != 0 {
                cut::take_waiting(s, Errno(value));
            }
            let reset = s.segment().filter(|p| ending(s, p, fd) == Ending::Reset);
            if s.reset_told.load(Ordering::Acquire) || !(reset.is_some() || value != 0) {
                return 0;
            }
            // A reset that bells alone have caused is none.
            if reset.is_none() && !s.segment().is_some_and(|p| was_answered(s, p)) {
                return 0;
            }
            s.reset_told.store(true, Ordering::Release);
            match reset {
                Some(p) => of_both(reset_error(s, p), Errno(value)).0,
                None if value == libc::ECONNRESET && ends_first(s) => libc::EPIPE, // (as `send` tells it)
                None => value,
            }
        }
        (libc::SOL_SOCKET, libc::SO_ERROR) if s.phase() == Phase::Wired => {
            // (a read or a send of ours may have taken it from the kernel)
            if value != 0 {
                wired::hear(s); // (whether the peer had ended before)
            }
            let aborted = wired::is_aborted(s);
            let reset = value != 0 || wired::has_failed(s);
            if !reset || s.reset_told.swap(true, Ordering::AcqRel) {
                return 0;
            }
            match value {
                _ if aborted => libc::EPIPE,
                0 => wired::error(s).0,
                told => told,
            }
        }
        (libc::SOL_SOCKET, libc::SO_ERROR) if has_untold_reset(s) && residual::tell(s) => {
            of_both(Errno::CONNRESET, Errno(value)).0
        }
        _ => value,
    }
}

/// The state of the connection as TCP_INFO has it: where an end is a word in the segment, or in a message, the kernel does not
/// know of it.
pub(crate) fn state(s: &'static Socket, fd: i32, kernels: u8) -> u8 {
    const ESTABLISHED: u8 = 1;
    const FIN_WAIT1: u8 = 4;
    const FIN_WAIT2: u8 = 5;
    const CLOSE: u8 = 7;
    const CLOSE_WAIT: u8 = 8;
    if !s.phase().is_fast() || kernels == CLOSE {
        return kernels;
    }
    if wired::is_wired(s) {
        wired::available(s, fd);
    }
    let theirs = theirs(s, fd);
    let ours = s.tx_shut.load(Ordering::Acquire);
    match (ours, theirs) {
        // (who has shut its own receiving half reads an end there, whatever the peer does)
        (true, Ending::Eof)
            if matches!(kernels, FIN_WAIT1 | FIN_WAIT2) && wired::is_end_awaited(s) =>
        {
            kernels
        }
        (_, Ending::Reset) | (true, Ending::Eof) => CLOSE,
        (false, Ending::Eof) => CLOSE_WAIT,
        (true, Ending::Open) if kernels == ESTABLISHED => FIN_WAIT2,
        // (what is unread comes before the peer's end, which its kernel has told)
        (true, Ending::Open) if kernels == CLOSE_WAIT => CLOSE,
        (_, Ending::Open) => kernels,
    }
}

/// What follows the last byte that the peer has sent.
fn theirs(s: &Socket, fd: i32) -> Ending {
    if wired::is_wired(s) {
        wired::ending(s)
    } else {
        s.segment().map_or(Ending::Open, |p| ending(s, p, fd))
    }
}

/// Whether the peer has ended its direction.
pub(crate) fn has_ended(s: &Socket, fd: i32) -> bool {
    theirs(s, fd) != Ending::Open
}

/// Whether an error may wait to be told: there is none while the peer goes on, but where data of the peer's may have come for an
/// end that has shut both its halves.
pub(crate) fn may_have_error(s: &Socket, fd: i32) -> bool {
    has_shut_both(s) || has_ended(s, fd)
}

/// Whether the program has shut both halves, and they are so in the kernel, which answers data with a reset then.
fn has_shut_both(s: &Socket) -> bool {
    s.woken_hard.load(Ordering::Acquire) && s.tx_shut.load(Ordering::Acquire)
}

/// Takes the error that data for an end which has shut both halves has left: readers are told before the end of file, unless it
/// is the peer's.
pub(crate) fn take_error_of_shut(s: &'static Socket, fd: i32) -> Option<Errno> {
    let open = s.segment().is_some_and(|p| p.finished() == FIN_NONE);
    (open && has_shut_both(s))
        .then(|| take_error(s, fd))
        .flatten()
}

/// Takes the error that waits to be told, as SO_ERROR does.
pub(crate) fn take_error(s: &'static Socket, fd: i32) -> Option<Errno> {
    let value = net::option(fd, libc::SOL_SOCKET, libc::SO_ERROR).unwrap_or(0);
    let e = correct(s, fd, libc::SOL_SOCKET, libc::SO_ERROR, value);
    (e != 0).then_some(Errno(e))
}

/// Options that make the kernel treat the stream in ways that only it can.
/// Before such an option is set: one that changes what becomes of the library's own octets, as long as there are any (they would be
/// filtered out, or told of on the error queue), finds a stream of the kernel's.
pub(crate) fn before_set(s: &'static Socket, fd: i32, level: i32, name: i32) {
    let touches = matches!(
        name,
        libc::SO_PEEK_OFF
            | libc::SO_TIMESTAMPING
            | TIMESTAMPING_NEW
            | libc::SO_ATTACH_FILTER
            | libc::SO_ATTACH_BPF
    );
    if level == libc::SOL_SOCKET && touches {
        demote(s, fd, Reason::SocketOption, Unread::GiveBack);
    }
}

fn kernel_only(level: i32, name: i32) -> bool {
    const TCP_REPAIR: i32 = 19;
    const TCP_ULP: i32 = 31;
    level == libc::IPPROTO_TCP && matches!(name, TCP_REPAIR | TCP_ULP | libc::TCP_MD5SIG)
}
