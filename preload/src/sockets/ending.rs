//! How an attached connection ends, as TCP would have shown it: end of file, or reset.

use super::lock::is_single_threaded;
use super::{Phase, Socket, cut};
use std::sync::atomic::Ordering;
use transport::provider::{End, Provider};
use transport::sdp::{Ended, Leg, Tx};
use transport::shm::layout::{FIN_ABORTED, FIN_CLOSED, FIN_NONE, FIN_RESET, FIN_SHUT};
use transport::shm::segment::Segment;
use transport::sys::{Errno, net};

/// What follows the last byte that the peer has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// More may come.
    Open,
    Eof,
    Reset,
}

/// Looks at what the peer has said, and at whether it is still there.
pub(crate) fn ending(s: &Socket, p: &Segment, fd: i32) -> Ending {
    if s.broken.load(Ordering::Acquire) {
        return Ending::Reset;
    }
    match p.finished() {
        FIN_RESET | FIN_ABORTED => Ending::Reset,
        FIN_NONE if !s.is_over() => Ending::Open,
        _ if s.is_over() => {
            let tx = s.tx.lock();
            tx.map_or(Ending::Eof, |mut tx| ending_with(s, &mut tx, p, fd))
        }
        _ => Ending::Eof,
    }
}

/// [`ending`], with the sending lock held.
pub(crate) fn ending_with(s: &Socket, tx: &mut Tx, p: &Segment, fd: i32) -> Ending {
    match p.finished() {
        FIN_RESET | FIN_ABORTED => Ending::Reset,
        FIN_NONE if !s.is_over() => Ending::Open,
        _ if cut::error(s, tx, p, fd).is_some() => Ending::Reset,
        // It died; with bytes of ours unread the kernel would have answered with a reset. (One that sends
        // by the kernel may just have shut its half there, and so may one that has heard of the end of ours.)
        fin @ (FIN_NONE | FIN_SHUT)
            if s.is_over()
                && p.stated(End::Fast).is_none()
                && (fin == FIN_NONE || !s.tx_shut.load(Ordering::Acquire))
                && tx.was_left_unread(p)
                && !tx.was_put_behind_end() =>
        {
            Ending::Reset
        }
        _ => Ending::Eof,
    }
}

/// What a call is told of a reset, once: behind an end of file that the peer had said before, EPIPE; no read is told then.
pub(crate) fn reset_error(s: &Socket, p: &impl Provider) -> Errno {
    reset_error_of(p, || cut_error(s))
}

/// What a call is told of a reset for the first time: the kernel may have an error of its own for it, and would tell that once more,
/// to whoever asks next.
pub(crate) fn tell_reset(error: Errno, fd: i32) -> Errno {
    let waits = net::option(fd, libc::SOL_SOCKET, libc::SO_ERROR);
    of_both(error, Errno(waits.unwrap_or(0)))
}

/// What a reset is told as, where it was found to be this, and the kernel has said that.
pub(crate) fn of_both(found: Errno, kernels: Errno) -> Errno {
    if found == Errno::CONNRESET && Ended::is_said_by(kernels) {
        kernels
    } else {
        found
    }
}

/// The error that the kernel connection was cut with, if somebody has cut it and that is known.
pub(crate) fn cut_error(s: &Socket) -> Option<Errno> {
    s.tx.lock().ok().and_then(|tx| cut::known(&tx))
}

/// [`reset_error`], with the sending lock held.
pub(crate) fn reset_error_with(tx: &Tx, p: &impl Provider) -> Errno {
    reset_error_of(p, || cut::known(tx))
}

fn reset_error_of(p: &impl Provider, cut: impl FnOnce() -> Option<Errno>) -> Errno {
    cut().unwrap_or(match p.finished() {
        FIN_ABORTED | FIN_SHUT => Errno::PIPE,
        _ => Errno::CONNRESET,
    })
}

/// Whether the other end has said that it sends no more, and this one has not: a reset is a broken pipe then.
pub(crate) fn ends_first(s: &Socket) -> bool {
    !s.tx_shut.load(Ordering::Acquire)
        && s.segment()
            .is_some_and(|p| matches!(p.finished(), FIN_SHUT | FIN_CLOSED))
}

/// Whether the other end has no more use for what this side sends.
pub(crate) fn is_gone(s: &Socket, p: &impl Provider) -> bool {
    s.is_over() || matches!(p.finished(), FIN_RESET | FIN_ABORTED | FIN_CLOSED)
}

/// Whether an error of the kernel connection can be the answer to data, sent by the kernel to an end that
/// was shut: bells alone, which are answered too, make none.
pub(crate) fn was_answered(s: &Socket, p: &impl Provider) -> bool {
    s.sent_late.load(Ordering::Acquire) || p.stated(End::Fast).is_some()
}

/// Once both directions are shut nobody rings any more, and the kernel connection can end as TCP's
/// would. Where the other end is closed already that can wait for the close here, which nobody else waits for: it
/// answers with a reset, and spares the other's port its minute in TIME_WAIT ([`end_put_off`]).
pub(crate) fn settle_both_shut(s: &Socket, p: &impl Provider, fd: i32) {
    let fin = p.finished();
    let closes_next = fin == FIN_CLOSED && is_single_threaded() && !s.is_shared();
    if s.tx_shut.load(Ordering::Acquire) && (fin != FIN_NONE || s.is_over()) && !closes_next {
        end_by_kernel(s, p, fd);
    }
}

/// What [`settle_both_shut`] has put off is done, before a call that would tell the difference.
#[inline]
pub(crate) fn end_put_off(s: &Socket, fd: i32) {
    if s.phase() == Phase::Attached
        && s.tx_shut.load(Ordering::Acquire)
        && let Some(p) = s.segment()
        && p.finished() == FIN_CLOSED
    {
        end_by_kernel(s, p, fd);
    }
}

/// What the peer has asked back goes before the end, and `demote` tells the kernel of it behind that.
fn end_by_kernel(s: &Socket, p: &impl Provider, fd: i32) {
    if s.fin_sent.load(Ordering::Acquire) {
        return;
    }
    let Ok(tx) = s.tx.lock() else { return };
    let is_asked = tx.leg() == Leg::Fast && p.stopped();
    if !is_asked && !tx.owes() && !s.fin_sent.swap(true, Ordering::AcqRel) {
        // SAFETY: no pointers.
        let _ = unsafe { transport::syscall!(shutdown, fd, libc::SHUT_WR) };
    }
}
