//! Sending on a socket that is not plain. Called by the hooks of write, send and their kin.

use super::counted::{Counting, What, takes_long};
use super::ending::{Ending, ending_with, is_gone, reset_error};
use super::shows::{check_kernel, is_due};
use super::wait::{Wait, Want};
use super::{Phase, Socket, demote, engage, held, large, operator, parked, stalled, wired};
use crate::signals::since::Since;
use std::sync::atomic::Ordering;
use transport::clock;
use transport::direct::policy::{self, Mode};
use transport::record;
use transport::sdp::{Leg, Put, Tx, Walk};
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
        && tx.leg() == Leg::Fast
        && !is_over(walk, since)
    {
        // SAFETY: the caller's promise.
        let put = unsafe { tx.put(p, fd, walk) };
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
    if s.record.messages_sent.load(Ordering::Relaxed) & 3 == 3 && is_due(s) {
        check_kernel(s, fd);
        operator::attend();
    }
    counted(s, n)
}

#[inline]
fn dont_wait(s: &Socket, flags: i32) -> bool {
    flags & libc::MSG_DONTWAIT != 0 || s.nonblock.load(Ordering::Relaxed)
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

/// Sends from a source that fills the buffer itself (a file). `fill` is given memory; `put_back` takes as
/// many of the bytes that it gave last as found no room; a source without it (a pipe) is read only as far as there
/// will be room.
pub(crate) fn send_from(
    s: &'static Socket,
    fd: i32,
    want: usize,
    mut fill: impl FnMut(*mut u8, usize) -> Result<usize>,
    mut put_back: Option<impl FnMut(usize)>,
    mut by_kernel: impl FnMut(i32, usize) -> Result<usize>,
) -> Result<usize> {
    // (a walk over no memory: it only counts, and there is nothing in it to advertise)
    let mut walk = Walk::one(std::ptr::null_mut(), want);
    drive(
        s,
        fd,
        &mut walk,
        How::default(),
        Since::now(),
        |fd, walk, _, _| {
            engage::step(s, fd);
            demote::attend(s, fd);
            match s.phase() {
                Phase::Attached => {}
                Phase::Plain => return moved(walk, by_kernel(fd, walk.left())),
                Phase::Opening | Phase::Wired if wired::has_begun(s) => {
                    return wire_little(s, fd, walk, &mut fill, put_back.as_mut());
                }
                // The kernel's own sendfile does not count for us: leave the first leg by copying a little.
                _ => return copy_little(s, fd, walk, &mut fill, put_back.as_mut()),
            }
            let (Some(p), Ok(mut tx)) = (s.segment(), s.tx.lock()) else {
                return Err(Errno::AGAIN);
            };
            let fd = s.live_fd(fd);
            let gone = is_gone(s, p);
            if gone {
                tx.end_fast(p);
            }
            if tx.leg() == Leg::Last {
                drop(tx);
                s.sent_late.store(gone, Ordering::Release);
                return moved(walk, by_kernel(fd, walk.left()));
            }
            if walk.left() == 0 {
                return Ok(Step::End);
            }
            let put = tx.fill(p, fd, walk.left(), &mut fill);
            tx.post(p, fd);
            s.mirror_tx(&tx);
            drop(tx);
            match put? {
                Put::Bytes(0) => Ok(Step::NoRoom),
                Put::Bytes(n) => moved(walk, Ok(n)),
                Put::Ended => Ok(Step::Moved),
                Put::Nothing => Ok(Step::End),
            }
        },
    )
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

/// A piece of a file to a connection on software iWARP: no more is read than is taken.
fn wire_little(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    fill: &mut impl FnMut(*mut u8, usize) -> Result<usize>,
    put_back: Option<&mut impl FnMut(usize)>,
) -> Result<Step> {
    let Some(room) = wired::room(s, fd) else {
        return Ok(Step::NoRoom);
    };
    let mut buf = vec![0u8; walk.left().min(room)];
    let n = fill(buf.as_mut_ptr(), buf.len())?;
    if n == 0 {
        return Ok(Step::End);
    }
    let mut piece = Walk::one(buf.as_mut_ptr(), n);
    // SAFETY: the buffer holds that many bytes.
    let taken = unsafe { wired::take(s, fd, &mut piece) };
    let back = give_back(s, fd, &mut piece, put_back);
    walk.skip(piece.done());
    back?;
    match taken {
        // (it is no such connection any more)
        Err(Errno::AGAIN) | Ok(()) => Ok(Step::Moved),
        Err(e) => Err(e),
    }
}

fn copy_little(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    fill: &mut impl FnMut(*mut u8, usize) -> Result<usize>,
    put_back: Option<&mut impl FnMut(usize)>,
) -> Result<Step> {
    let mut buf = [0u8; 16384];
    let most = if put_back.is_some() {
        buf.len()
    } else {
        sure_room(fd)
    };
    if most == 0 {
        return Ok(Step::NoRoom);
    }
    let want = walk.left().min(buf.len()).min(most);
    let n = fill(buf.as_mut_ptr(), want)?;
    if n == 0 {
        return Ok(Step::End);
    }
    let mut piece = Walk::one(buf.as_mut_ptr(), n);
    let sent = match s.tx.lock() {
        Ok(tx) if tx.leg() == Leg::Fast => {
            // A read on another thread has agreed since: what goes by the kernel now would be taken for bells.
            drop(tx);
            let back = give_back(s, fd, &mut piece, put_back);
            walk.skip(piece.done());
            return back.map(|()| Step::Moved);
        }
        Ok(mut tx) => tx.write_kernel(s.segment(), s.live_fd(fd), &mut piece, 0),
        Err(_) => Err(Errno::AGAIN),
    };
    // A buffer may have room for a part only, and who could make more may be this very thread.
    let back = give_back(s, fd, &mut piece, put_back);
    if piece.done() == 0 {
        return moved(walk, sent);
    }
    walk.skip(piece.done());
    back.map(|()| Step::Moved)
}

/// Bytes that the kernel connection surely takes whole. It says that there is room once a third of its buffer is free,
/// and what it keeps of a byte may be two.
fn sure_room(fd: i32) -> usize {
    if net::ready_now(fd, libc::POLLOUT) & libc::POLLOUT == 0 {
        return 0;
    }
    let buffer = net::option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF).unwrap_or(0);
    (usize::try_from(buffer).unwrap_or(0) / 8).max(512)
}

/// How long (µs) bytes that cannot be put back may take to go, where another thread has used up the room that there was.
const INSIST_US: u64 = 1_000_000;

/// What found no room goes back, or in a moment: it is never lost.
fn give_back(
    s: &'static Socket,
    fd: i32,
    piece: &mut Walk,
    put_back: Option<&mut impl FnMut(usize)>,
) -> Result<()> {
    if piece.left() == 0 {
        return Ok(());
    }
    if let Some(put_back) = put_back {
        put_back(piece.left());
        return Ok(());
    }
    let begun = clock::ticks();
    while piece.left() > 0 {
        // (a walk of its own: what one that has moved is told of an error is how far it came)
        let mut part = piece.part(piece.left());
        // SAFETY: the piece is a buffer of the caller's.
        let sent = unsafe { send(s, fd, &mut part, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
        piece.skip(part.done());
        let over = clock::ticks() - begun > clock::us(INSIST_US);
        match sent {
            Ok(1..) => {}
            Ok(_) | Err(Errno::AGAIN) if !over => drop(time::nap(50)),
            failed => {
                s.broken.store(true, Ordering::Release);
                net::disconnect(fd); // a reset, never a gap
                return failed.and(Err(Errno::CONNRESET));
            }
        }
    }
    Ok(())
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
        if is_gone(s, p) {
            // The other end is gone; the kernel knows what that means for a sender.
            tx.end_fast(p);
            s.mirror_tx(&tx);
        }
        if tx.leg() == Leg::Fast {
            let (_, next) = walk.chunk();
            let waits = !copies && walk.left() >= policy::large();
            // SAFETY: the caller's promise.
            let put = unsafe {
                if waits && next >= policy::large() {
                    Ok(tx.put_direct(p, walk))
                } else if waits {
                    // A small piece before a large one.
                    let mut piece = walk.part(next);
                    let put = tx.put(p, fd, &mut piece);
                    walk.skip(piece.done());
                    put
                } else {
                    tx.put(p, fd, walk)
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
    // Before both have agreed the kernel's word is all there is.
    let p = s.segment().filter(|_| s.phase() == Phase::Attached);
    // A peer that died with bytes unread: the kernel saw no more than an orderly end.
    if let Some(p) = p
        && ending_with(s, tx, p) == Ending::Reset
        && !s.broken.load(Ordering::Acquire)
    {
        if walk.done() > 0 {
            return Err(Errno::CONNRESET); // what was sent is told now, and the error by the next call
        }
        let mut error = Errno::PIPE;
        if !s.reset_told.swap(true, Ordering::AcqRel) {
            // The kernel may have it too, and would tell it once more, to whoever asks next.
            let _ = net::option(fd, libc::SOL_SOCKET, libc::SO_ERROR);
            error = reset_error(p);
        }
        if error == Errno::PIPE && flags & libc::MSG_NOSIGNAL == 0 {
            time::raise(libc::SIGPIPE);
        }
        return Err(error);
    }
    match tx.write_kernel(p, fd, walk, flags) {
        Ok(_) => {
            s.sent_late
                .store(p.is_some_and(|p| is_gone(s, p)), Ordering::Release);
            Ok(Step::Moved)
        }
        Err(Errno::AGAIN) => Ok(Step::NoRoom),
        Err(Errno::CONNRESET) if s.reset_told.load(Ordering::Acquire) => {
            if flags & libc::MSG_NOSIGNAL == 0 {
                time::raise(libc::SIGPIPE);
            }
            Err(Errno::PIPE)
        }
        // A dead peer that had read everything has sent a FIN, after which one send still succeeds; that
        // its kernel connection was reset is the doing of bells it had not taken.
        Err(Errno::CONNRESET)
            if p.is_some_and(|p| ending_with(s, tx, p) == Ending::Eof)
                && !s.sent_late.swap(true, Ordering::AcqRel) =>
        {
            let left = walk.left();
            walk.skip(left);
            Ok(Step::Moved)
        }
        Err(e) => {
            if e == Errno::CONNRESET {
                s.reset_told.store(true, Ordering::Release);
            }
            if e == Errno::PIPE {
                super::wired::mover::outlives();
            }
            Err(e)
        }
    }
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
