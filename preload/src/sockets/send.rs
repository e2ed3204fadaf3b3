//! Sending on a socket that is not plain. Called by the hooks of write, send and their kin.

mod source;
mod spare;

pub(crate) use source::send_from;

use super::counted::{Counting, What, takes_long};
use super::ending::{Ending, ending_with, ends_first, is_gone, reset_error_with, tell_reset};
use super::shows::{check_kernel, is_due};
use super::wait::{Wait, Want};
use super::{
    Phase, Socket, cut, demote, engage, held, large, operator, parked, ready, residual, stalled,
    wired,
};
use crate::signals::since::Since;
use std::sync::atomic::Ordering;
use transport::direct::policy::{self, Mode};
use transport::provider::{End, Provider as _};
use transport::record;
use transport::sdp::{Leg, Put, Tx, Walk};
use transport::shm::layout::FIN_NONE;
use transport::sys::{Errno, Result, net, time};

/// Flags that are served here; any other goes to the kernel.
pub(crate) const FLAGS: i32 = libc::MSG_DONTWAIT
    | libc::MSG_NOSIGNAL
    | libc::MSG_MORE
    | libc::MSG_EOR
    | libc::MSG_CONFIRM
    | libc::MSG_DONTROUTE
    // Says nothing to a sender, but some programs use the same flags for both.
    | libc::MSG_WAITALL;

/// Sends the program's buffers.
///
/// # Safety
/// The walk's buffers are readable.
#[inline]
pub(crate) unsafe fn send(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    flags: i32,
) -> Result<usize> {
    let since = Since::now();
    let is_large = walk.left() >= policy::large();
    let mut may_wait = is_large;
    if is_large && policy::mode() == Mode::Async {
        // SAFETY: the caller's promise.
        may_wait = unsafe { held::hold(s, fd, walk) };
        if walk.left() == 0 {
            return Ok(whole(s, fd, walk.done()));
        }
    }
    let waits = may_wait && large::begins(s, walk.left()) && !dont_wait(s, flags);
    let staged = may_wait && policy::mode() == Mode::Auto;
    if s.phase() == Phase::Attached
        && !waits
        && !takes_long(walk.left())
        && !s.tx_shut.load(Ordering::Relaxed)
        && let Some(p) = s.segment()
        && !is_gone(s, p)
        && let Ok(mut tx) = s.tx.lock()
        && s.is_here(fd)
        && let Some(p) = s.segment()
        && tx.leg() == Leg::Fast
        && !is_over(walk, since)
    {
        // SAFETY: the caller's promise.
        let put = unsafe { tx.put(p, fd, walk, has_more(s, flags)) };
        let parks = tx.is_parked();
        drop(tx);
        if parks {
            parked::note(s, fd);
        }
        if matches!(put, Ok(Put::Bytes(_))) && walk.left() == 0 {
            return Ok(whole(s, fd, walk.done()));
        }
        if put.is_err() {
            demote::broken(s, fd);
        }
    }
    // SAFETY: the caller's promise.
    if s.phase() == Phase::Wired && unsafe { wired::gather(s, fd, walk, flags) } {
        return Ok(counted(s, walk.done()));
    }
    // SAFETY: the caller's promise.
    unsafe { rest(s, fd, walk, how(flags, waits, staged), since) }
}

/// All of it has gone at once.
#[inline]
pub(super) fn whole(s: &'static Socket, fd: i32, n: usize) -> usize {
    // A peer that died while it was awake shows only in the kernel. (Reading the clock costs as
    // much as the rest of a small send: now and then.)
    if s.record.messages_sent.load(Ordering::Relaxed) & 3 == 3 && is_due(s) && s.is_here(fd) {
        check_kernel(s, fd);
        operator::attend();
    }
    counted(s, n)
}

#[inline]
fn dont_wait(s: &Socket, flags: i32) -> bool {
    flags & libc::MSG_DONTWAIT != 0 || s.nonblock.load(Ordering::Relaxed)
}

/// Whether the program has said that it has more to say.
#[inline]
fn has_more(s: &Socket, flags: i32) -> bool {
    flags & libc::MSG_MORE != 0 || s.cork.load(Ordering::Relaxed)
}

#[inline]
fn counted(s: &Socket, n: usize) -> usize {
    if n > 0 {
        record::add(&s.record.bytes_sent, n as u64);
        record::add(&s.record.messages_sent, 1);
    }
    n
}

/// Part of the call's bytes have gone and a handler has run since: it may have written to the buffer, so what
/// follows is another call's. Asked under the sending lock, where no handler runs between the answer and the copy.
#[inline]
pub(super) fn is_over(walk: &Walk, since: Since) -> bool {
    walk.done() > 0 && since.any()
}

/// How to send.
#[derive(Clone, Copy, Debug, Default)]
struct How {
    flags: i32,
    /// No SIGPIPE.
    quiet: bool,
    /// A large message waits for the reader.
    waits: bool,
    /// It chooses its way anew after each part.
    staged: bool,
}

const fn how(flags: i32, waits: bool, staged: bool) -> How {
    How {
        flags,
        quiet: flags & libc::MSG_NOSIGNAL != 0,
        waits,
        staged,
    }
}

/// What a step of sending came to.
enum Step {
    Moved,
    NoRoom,
    End,
}

#[cold]
unsafe fn rest(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    how: How,
    since: Since,
) -> Result<usize> {
    // SAFETY: the caller's promise.
    let step = |fd: i32, walk: &mut Walk, copies, since| unsafe {
        once(s, fd, walk, how.flags, copies, since)
    };
    drive(s, fd, walk, how, since, step)
}

fn moved(walk: &mut Walk, n: Result<usize>) -> Result<Step> {
    match n {
        Ok(0) => Ok(Step::End),
        Ok(n) => {
            walk.skip(n);
            Ok(Step::Moved)
        }
        Err(Errno::AGAIN) => Ok(Step::NoRoom),
        Err(e) => Err(e),
    }
}

/// The loop around steps: waits, time-outs, the end. `copies`: nothing of the walk can be advertised.
fn drive(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    how: How,
    since: Since,
    step: impl FnMut(i32, &mut Walk, bool, Since) -> Result<Step>,
) -> Result<usize> {
    // The socket lives at least as long as this call, even if the program closes it meanwhile.
    let counting = Counting::begin();
    counting.add(What::Inside(s));
    if !s.stays(fd) {
        return Err(Errno(libc::EBADF)); // closed since it was looked up
    }
    inside(s, fd, walk, how, step, since)
}

fn inside(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    how: How,
    mut step: impl FnMut(i32, &mut Walk, bool, Since) -> Result<Step>,
    since: Since,
) -> Result<usize> {
    let dont_wait = dont_wait(s, how.flags);
    let mut wait = Wait::new(Want::Room, since);
    let mut copies = !how.waits;
    let mut begun = (how.staged && !dont_wait).then_some(walk.done());
    let end = |walk: &Walk, e: Option<Errno>| match e {
        Some(e) if walk.done() == 0 => Err(e),
        _ => {
            if !dont_wait && wired::is_wired(s) {
                wired::await_gone(s, fd, since);
            }
            Ok(counted(s, walk.done()))
        }
    };
    loop {
        let fd = s.live_fd(fd);
        if is_over(walk, wait.since()) {
            return end(walk, None);
        }
        if let Some(at) = begun
            && walk.done() - at >= policy::stage(walk.left() + walk.done() - at)
            && walk.left() >= policy::large()
        {
            begun = Some(walk.done());
            copies = !large::begins(s, walk.left());
        }
        if s.tx_shut.load(Ordering::Acquire) || s.broken.load(Ordering::Acquire) {
            if walk.done() > 0 {
                return end(walk, None);
            }
            // As in the kernel, an error that waits to be told is told now, and is over with that.
            let e = super::options::take_error(s, fd).unwrap_or(Errno::PIPE);
            if e == Errno::PIPE && !how.quiet {
                time::raise(libc::SIGPIPE);
            }
            return Err(e);
        }
        match step(fd, walk, copies, wait.since()) {
            Ok(Step::End) => return end(walk, None),
            Ok(Step::Moved) if walk.left() == 0 => return end(walk, None),
            Ok(Step::Moved) => continue,
            Ok(Step::NoRoom) => {}
            Err(e) => return end(walk, Some(e)),
        }
        s.no_room.fetch_add(1, Ordering::Relaxed);
        s.note_flow();
        stalled::note(s, fd);
        if dont_wait {
            if stalled::attend() && s.phase() != Phase::Attached {
                continue;
            }
            if walk.done() == 0 && is_due(s) && check_kernel(s, fd) {
                continue;
            }
            return end(walk, Some(Errno::AGAIN));
        }
        let (_, next) = walk.chunk();
        if !copies && next >= policy::large() {
            let since = wait.since();
            let taken = large::await_taken(s, fd, walk, &mut wait);
            if taken.is_ok() {
                // SAFETY: what waits for its reader is the program's memory, not a file's walk.
                unsafe { large::put_late(s, fd, walk, since) };
            }
            match taken {
                Ok(_) if walk.left() == 0 => return end(walk, None),
                Ok(whole) => {
                    copies = !whole;
                    begun = begun.filter(|_| whole);
                    continue;
                }
                // Nobody took it before a handler ran: a kernel would have had in its buffers what fits there.
                Err(Errno::INTR) if walk.done() == 0 => {
                    let put = step(fd, walk, true, wait.since());
                    let moved = matches!(put, Ok(Step::Moved)) && walk.done() > 0;
                    return end(walk, (!moved).then_some(Errno::INTR));
                }
                // Nobody took it within the socket's time-out: what has room beside is sent all the same.
                Err(Errno::AGAIN) => {
                    (copies, begun) = (true, None);
                    continue;
                }
                Err(e) => return end(walk, Some(e)),
            }
        }
        if let Err(e) = wait.wait(s, fd, walk.done() > 0) {
            return end(walk, Some(e));
        }
    }
}

/// One attempt, on whatever leg the stream is on.
unsafe fn once(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    flags: i32,
    copies: bool,
    since: Since,
) -> Result<Step> {
    engage::step(s, fd);
    if s.phase() == Phase::Announced {
        engage::await_answer(s);
    }
    if wired::is_wired(s) {
        // SAFETY: the caller's promise.
        match unsafe { wired::send(s, fd, walk, flags, since) }? {
            None => return Ok(Step::NoRoom),
            Some(0) => {} // the program speaks first, or it is the kernel's
            Some(_) => return Ok(Step::Moved),
        }
    }
    demote::attend(s, fd);
    let Ok(mut tx) = s.tx.lock() else {
        return Err(Errno::AGAIN);
    };
    let fd = s.live_fd(fd);
    if is_over(walk, since) {
        return Ok(Step::End);
    }
    if let Some(p) = s.segment()
        && s.phase() == Phase::Attached
    {
        let cut = cut::error(s, &mut tx, p, fd).is_some();
        if is_gone(s, p) && !cut {
            // The other end is gone; the kernel knows what that means for a sender.
            tx.end_fast(p, fd);
            s.mirror_tx(&tx);
        }
        if tx.leg() == Leg::Fast && !cut {
            let (_, next) = walk.chunk();
            let waits = !copies && walk.left() >= policy::large();
            // SAFETY: the caller's promise.
            let put = unsafe {
                if waits && next >= policy::large() {
                    Ok(tx.put_direct(p, fd, walk))
                } else if waits {
                    // A small piece before a large one.
                    let mut piece = walk.part(next);
                    let put = tx.put(p, fd, &mut piece, false);
                    walk.skip(piece.done());
                    put
                } else {
                    tx.put(p, fd, walk, has_more(s, flags))
                }
            };
            let parks = tx.is_parked();
            s.mirror_tx(&tx);
            drop(tx);
            if parks {
                parked::note(s, fd);
            }
            return match put {
                Ok(Put::Bytes(0)) if walk.left() > 0 => Ok(Step::NoRoom),
                Ok(_) => Ok(Step::Moved),
                Err(_) => {
                    demote::broken(s, fd);
                    Err(Errno::CONNRESET)
                }
            };
        }
    }
    by_kernel(s, &mut tx, fd, walk, flags)
}

fn by_kernel(s: &Socket, tx: &mut Tx, fd: i32, walk: &mut Walk, flags: i32) -> Result<Step> {
    let quiet = flags & libc::MSG_NOSIGNAL != 0;
    let ending = before_kernel(s, tx, fd, walk.done() > 0, quiet)?;
    if ending == Some(Ending::Eof)
        && !s.sent_late.load(Ordering::Acquire)
        && (cut::is_dead_unheard(tx) || is_closed_there(s, fd))
        && !s.sent_late.swap(true, Ordering::AcqRel)
    {
        let left = walk.left();
        walk.skip(left);
        return Ok(Step::Moved);
    }
    if is_told_first(fd, walk) {
        return Err(Errno::CONNRESET);
    }
    // Before both have agreed the kernel's word is all there is.
    let p = s.segment().filter(|_| s.phase() == Phase::Attached);
    let settled = p.map_or(Ok(()), |p| demote::settle_alone(s, p, tx, fd));
    let sent = settled.and_then(|()| tx.write_kernel(p, fd, walk, flags));
    kernel_said(s, ending, sent, quiet).map(|sent| match sent {
        Said::Sent(_) => Step::Moved,
        Said::NoRoom => Step::NoRoom,
        Said::Taken => {
            let left = walk.left();
            walk.skip(left);
            Step::Moved
        }
    })
}

/// Whether the kernel connection is over in both directions, of which this side has shut neither: a reset, for bells that the peer had
/// not taken. (Behind the peer's end of file the kernel tells a sender of one at once.)
fn is_closed_there(s: &Socket, fd: i32) -> bool {
    !s.tx_shut.load(Ordering::Acquire) && net::ready_now(fd, 0) & libc::POLLHUP != 0
}

/// Before the kernel is to send: what the peer's end has left to be told instead. Else that end, where the connection is
/// attached.
fn before_kernel(
    s: &Socket,
    tx: &mut Tx,
    fd: i32,
    has_moved: bool,
    quiet: bool,
) -> Result<Option<Ending>> {
    let Some(p) = s.segment().filter(|_| s.phase() == Phase::Attached) else {
        if has_moved || !ready::has_untold_reset(s) || !residual::tell(s) {
            return Ok(None);
        }
        return Err(tell_reset(Errno::CONNRESET, fd));
    };
    let ending = ending_with(s, tx, p, fd);
    // (a peer that is back on the kernel has taken its bells, and ends there: what the kernel says of that is the peer's doing)
    if ending == Ending::Eof && p.finished() == FIN_NONE && p.stated(End::Fast).is_some() {
        return Ok(None);
    }
    // A peer that died with bytes unread: the kernel saw no more than an orderly end.
    if ending != Ending::Reset || s.broken.load(Ordering::Acquire) {
        return Ok(Some(ending));
    }
    if has_moved {
        return Err(Errno::CONNRESET); // what was sent is told now, and the error by the next call
    }
    let mut error = Errno::PIPE;
    if !s.reset_told.swap(true, Ordering::AcqRel) {
        error = tell_reset(reset_error_with(tx, p), fd);
    }
    if error == Errno::PIPE && !quiet {
        time::raise(libc::SIGPIPE);
    }
    Err(error)
}

/// What the kernel has said to a send, as the program is to hear it.
enum Said {
    Sent(usize),
    NoRoom,
    /// All of it counts as sent.
    Taken,
}

/// After the kernel was to send, with what [`before_kernel`] has said.
fn kernel_said(
    s: &Socket,
    ending: Option<Ending>,
    sent: Result<usize>,
    quiet: bool,
) -> Result<Said> {
    match sent {
        Ok(n) => {
            if n == 0 {
                return Ok(Said::Sent(0));
            }
            let late = s
                .segment()
                .is_some_and(|p| ending.is_some() && is_gone(s, p));
            s.sent_late.store(late, Ordering::Release);
            Ok(Said::Sent(n))
        }
        Err(Errno::AGAIN) => Ok(Said::NoRoom),
        Err(Errno::CONNRESET) if s.reset_told.load(Ordering::Acquire) => {
            if !quiet {
                time::raise(libc::SIGPIPE);
            }
            Err(Errno::PIPE)
        }
        // A dead peer that had read everything has sent a FIN, after which one send still succeeds; that
        // its kernel connection was reset is the doing of bells it had not taken.
        Err(Errno::CONNRESET)
            if ending == Some(Ending::Eof) && !s.sent_late.swap(true, Ordering::AcqRel) =>
        {
            Ok(Said::Taken)
        }
        // Behind the peer's end the kernel tells of a reset as of a broken pipe. (It may not have heard of that end yet when what was
        // answered so was sent.)
        Err(Errno::CONNRESET) if ending == Some(Ending::Eof) && ends_first(s) => {
            s.reset_told.store(true, Ordering::Release);
            if !quiet {
                time::raise(libc::SIGPIPE);
            }
            Err(Errno::PIPE)
        }
        Err(e) => {
            if e == Errno::CONNRESET {
                s.reset_told.store(true, Ordering::Release);
            }
            if e == Errno::PIPE {
                super::wired::parting::outlives();
            }
            Err(e)
        }
    }
}

/// Whether the call has sent something and the kernel has an error by now: as in the kernel what has gone is told, and the error
/// stays for whoever asks next. (Writing would take it away, and the next send would be a broken pipe, with its signal.)
fn is_told_first(fd: i32, walk: &Walk) -> bool {
    const BOTH: i16 = libc::POLLERR | libc::POLLHUP;
    walk.done() > 0 && net::ready_now(fd, 0) & BOTH == BOTH
}

/// Whether a send may fail at once, as far as this side knows without a look.
pub(crate) fn may_fail(s: &Socket) -> bool {
    s.tx_shut.load(Ordering::Acquire)
        || s.broken.load(Ordering::Acquire)
        || s.segment().is_some_and(|p| is_gone(s, p))
        || wired::has_failed(s)
}

/// Whether a peer would have to be told of this socket's end of sending in the segment.
pub(crate) fn finish(s: &'static Socket, fd: i32) -> Result<bool> {
    let Some(p) = s.segment() else {
        return Ok(false);
    };
    let Ok(mut tx) = s.tx.lock() else {
        return Err(Errno::AGAIN);
    };
    if tx.leg() != Leg::Fast {
        return Ok(false);
    }
    // To an end that will not receive either the peer sends as to one that is closed: by the kernel,
    // which answers with a reset.
    let fin = if s.rx_shut.load(Ordering::Acquire) {
        transport::shm::layout::FIN_CLOSED
    } else {
        transport::shm::layout::FIN_SHUT
    };
    tx.finish(p, fin);
    if tx.rings(p, transport::doorbell::DATA) {
        tx.ring(p, fd);
    }
    Ok(true)
}
