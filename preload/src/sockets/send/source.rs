//! Sending from a source that fills the buffer itself: sendfile and splice. Called by their hooks.
//!
//! The rule: no byte that was read is lost. What finds no room goes back to where it came from; a source that takes nothing back (a
//! pipe) is read only as far as there is room.

use super::spare::{PIECE, Spare};
use super::{How, Said, Step, before_kernel, drive, has_more, kernel_said, moved, send};
use crate::signals::since::Since;
use crate::sockets::ending::is_gone;
use crate::sockets::{Phase, Socket, cut, demote, engage, wired};
use std::sync::atomic::Ordering;
use transport::clock;
use transport::sdp::{Leg, Put, Walk};
use transport::sys::{Errno, Result, net, time};

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
        |fd, walk, _, since| {
            engage::step(s, fd);
            demote::attend(s, fd);
            match s.phase() {
                Phase::Attached => {}
                Phase::Plain => return moved(walk, by_kernel(fd, walk.left())),
                Phase::Opening | Phase::Wired if wired::has_begun(s) => {
                    return match put_back.as_mut() {
                        Some(put_back) if s.phase() == Phase::Wired => {
                            wire_piece(s, fd, walk, &mut fill, put_back, since)
                        }
                        put_back => wire_little(s, fd, walk, &mut fill, put_back),
                    };
                }
                // The kernel's own sendfile does not count for us: leave the first leg by copying a little.
                _ => return copy_little(s, fd, walk, &mut fill, put_back.as_mut()),
            }
            let (Some(p), Ok(mut tx)) = (s.segment(), s.tx.lock()) else {
                return Err(Errno::AGAIN);
            };
            let fd = s.live_fd(fd);
            let cut = cut::error(s, &mut tx, p, fd).is_some();
            if is_gone(s, p) && !cut {
                tx.end_fast(p, fd);
            }
            if tx.leg() == Leg::Last || cut {
                let ending = before_kernel(s, &mut tx, fd, walk.done() > 0, false)?;
                drop(tx);
                let sent = by_kernel(fd, walk.left());
                return match kernel_said(s, ending, sent, false)? {
                    Said::Sent(n) => moved(walk, Ok(n)),
                    Said::NoRoom => Ok(Step::NoRoom),
                    Said::Taken => {
                        let n = take_in_vain(&mut fill, walk.left());
                        moved(walk, n)
                    }
                };
            }
            if walk.left() == 0 {
                return Ok(Step::End);
            }
            let put = tx.fill(p, fd, walk.left(), has_more(s, 0), &mut fill);
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

/// Takes a piece of what nobody will read. (A frame of its own: a program's stacks may be as small as 16 KiB.)
#[cold]
#[inline(never)]
fn take_in_vain(
    fill: &mut impl FnMut(*mut u8, usize) -> Result<usize>,
    most: usize,
) -> Result<usize> {
    let mut buf = [0u8; 4096];
    fill(buf.as_mut_ptr(), most.min(buf.len()))
}

/// A piece of a file to a connection on software iWARP. What finds no room goes back.
fn wire_piece(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    fill: &mut impl FnMut(*mut u8, usize) -> Result<usize>,
    put_back: &mut impl FnMut(usize),
    since: Since,
) -> Result<Step> {
    if wired::room(s, fd)?.is_none() {
        return Ok(Step::NoRoom); // (nothing is read in vain)
    }
    let mut buf = Spare::take()?;
    let n = fill(buf.at(), walk.left().min(PIECE))?;
    if n == 0 {
        return Ok(Step::End);
    }
    let mut piece = Walk::one(buf.at(), n);
    // SAFETY: the buffer holds that many bytes. (Nothing of it is advertised: who does not wait never is.)
    let sent = unsafe { wired::send(s, fd, &mut piece, libc::MSG_DONTWAIT, since) };
    let is_first = walk.done() == 0;
    if piece.left() > 0 {
        put_back(piece.left());
    }
    walk.skip(piece.done());
    if piece.done() > 0 {
        if walk.left() == 0 && !is_first {
            wired::hurry(s, fd);
        }
        return Ok(Step::Moved);
    }
    Ok(match sent? {
        None => Step::NoRoom,
        Some(_) => Step::Moved, // it is no such connection any more
    })
}

/// A piece of what takes nothing back, or before the peer has answered: no more is read than is taken.
fn wire_little(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    fill: &mut impl FnMut(*mut u8, usize) -> Result<usize>,
    put_back: Option<&mut impl FnMut(usize)>,
) -> Result<Step> {
    let Some(room) = wired::room(s, fd)? else {
        return Ok(Step::NoRoom);
    };
    let mut buf = Spare::take()?;
    let n = fill(buf.at(), walk.left().min(room).min(PIECE))?;
    if n == 0 {
        return Ok(Step::End);
    }
    let mut piece = Walk::one(buf.at(), n);
    // SAFETY: the buffer holds that many bytes.
    let taken = unsafe { wired::take(s, fd, &mut piece) };
    if let Err(e) = taken
        && e != Errno::AGAIN
    {
        // (what a pipe gave is lost with the stream)
        if let Some(put_back) = put_back {
            put_back(piece.left());
        }
        walk.skip(piece.done());
        return Err(e);
    }
    let back = give_back(s, fd, &mut piece, put_back);
    let is_first = walk.done() == 0;
    walk.skip(piece.done());
    if walk.left() == 0 && !is_first {
        wired::hurry(s, fd);
    }
    back.map(|()| Step::Moved) // (or it is no such connection any more)
}

/// What the kernel's own sendfile hands over at once (a pipe's sixteen pages): a peer that resets is heard of between two.
const LITTLE: usize = 65536;

fn copy_little(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    fill: &mut impl FnMut(*mut u8, usize) -> Result<usize>,
    put_back: Option<&mut impl FnMut(usize)>,
) -> Result<Step> {
    let room = put_back.as_ref().map_or_else(|| sure_room(fd), |_| LITTLE);
    if room == 0 {
        return Ok(Step::NoRoom);
    }
    let mut buf = Spare::take()?;
    let n = fill(buf.at(), walk.left().min(LITTLE).min(room).min(PIECE))?;
    if n == 0 {
        return Ok(Step::End);
    }
    let mut piece = Walk::one(buf.at(), n);
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
