//! Receiving on a socket that is not plain. Called by the hooks of read, recv and their kin.

mod look;

pub(crate) use look::upkeep;
pub(super) use look::{kernel_once, serve, told_by_kernel};

use super::counted::{Counting, What, takes_long};
use super::ending::{Ending, cut_error, ending, reset_error, settle_both_shut, tell_reset};
use super::peek::{goes_on_elsewhere, grows, offset, peek_on};
use super::shows::{check_kernel, is_due};
use super::wait::{self, Wait, Want};
use super::{Phase, Socket, demote, large, options, parked, quick, residual, wired};
use crate::signals::since::Since;
use look::{Inside, look, once};
use std::sync::atomic::Ordering;
use transport::direct::Direct as _;
use transport::direct::policy;
use transport::provider::{End, Provider};
use transport::record;
use transport::sdp::rx::How;
use transport::sdp::{Got, Leg, Walk};
use transport::sys::{Errno, Result, net};

/// Flags of calls that ask for something else than the stream's next bytes. Of all others a TCP socket's reader has a use for a few, which
/// are served here, and passes over the rest.
pub(crate) const APART: i32 = libc::MSG_OOB | libc::MSG_ERRQUEUE;

/// How often a call looks again because bytes may have come as it looked.
const LOOKS: u32 = 64;

/// Receives into the program's buffers.
///
/// # Safety
/// The walk's buffers are writable.
#[inline]
pub(crate) unsafe fn recv(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    flags: i32,
) -> Result<usize> {
    let waits = flags & libc::MSG_DONTWAIT == 0 && !s.nonblock.load(Ordering::Relaxed);
    let how = How {
        peek: flags & libc::MSG_PEEK != 0,
        discard: flags & libc::MSG_TRUNC != 0,
        lingers: waits && walk.left() >= policy::large(),
        waits,
        whole: flags & libc::MSG_WAITALL != 0 && flags & libc::MSG_PEEK == 0,
        resumes: false,
        far: None,
    };
    let since = Since::now();
    parked::let_go();
    // The common case, once: attached and something there.
    if s.phase() == Phase::Attached
        && !takes_long(walk.left())
        && let Some(&p) = s.segment()
    {
        let generation = s.generation.load(Ordering::Acquire);
        let (to, room) = walk.chunk();
        // (a large buffer is shown to the sender first)
        if waits
            && !how.lingers
            && room == walk.left()
            // SAFETY: the caller's promise.
            && let Some(n) = unsafe { quick::take_soon(s, p, fd, to, room, flags) }
        {
            walk.advance(n);
            return Ok(n);
        }
        let p = s
            .segment()
            .filter(|_| s.generation.load(Ordering::Acquire) == generation);
        let Some(p) = p else {
            // SAFETY: the caller's promise.
            return unsafe { rest(s, fd, walk, flags, how, None, since) }; // closed since
        };
        // SAFETY: the caller's promise.
        let got = match unsafe { once(s, p, fd, walk, how, Inside::No) } {
            // SAFETY: as above.
            Err(Errno(libc::EBADF)) => unsafe {
                return rest(s, fd, walk, flags, how, None, since); // closed since, or about to be
            },
            got => got?,
        };
        if let Got::Bytes(n) = got
            && (flags & libc::MSG_WAITALL == 0 || walk.left() == 0)
            && (n as u64 >= u64::from(s.lowat.load(Ordering::Relaxed)) || walk.left() == 0)
            && (walk.left() == 0 || (p.stated(End::Fast).is_none() && p.taken_back().is_none()))
        {
            return Ok(counted(s, n, how));
        }
        // (nothing, on a connection that is over, has to be looked at with that in mind)
        let got = (got != Got::Empty || !s.is_over()).then_some(got);
        // SAFETY: the caller's promise.
        return unsafe { rest(s, fd, walk, flags, how, got, since) };
    }
    // SAFETY: the caller's promise.
    unsafe { rest(s, fd, walk, flags, how, None, since) }
}

#[inline]
fn counted(s: &Socket, n: usize, how: How) -> usize {
    if !how.peek && n > 0 {
        if s.starving.load(Ordering::Relaxed) != 0 || s.pulls.load(Ordering::Relaxed) != 0 {
            parked::was_fed(s);
        }
        count(s, n);
    }
    n
}

#[inline]
pub(super) fn count(s: &Socket, n: usize) {
    record::add(&s.record.bytes_received, n as u64);
    record::add(&s.record.messages_received, 1);
}

/// Everything but the common case. The socket lives at least as long as this call, even if the program
/// closes it meanwhile.
#[cold]
unsafe fn rest(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    flags: i32,
    how: How,
    first: Option<Got>,
    since: Since,
) -> Result<usize> {
    let counting = Counting::begin();
    counting.add(What::Inside(s));
    if !s.stays(fd) {
        return Err(Errno(libc::EBADF)); // closed since it was looked up
    }
    // SAFETY: the caller's promise.
    unsafe { inside(s, fd, walk, flags, how, first, since) }
}

unsafe fn inside(
    s: &'static Socket,
    fd: i32,
    walk: &mut Walk,
    flags: i32,
    how: How,
    first: Option<Got>,
    since: Since,
) -> Result<usize> {
    let dont_wait = flags & libc::MSG_DONTWAIT != 0 || s.nonblock.load(Ordering::Relaxed);
    let lowat = s.lowat.load(Ordering::Relaxed) as usize;
    let target = if flags & libc::MSG_WAITALL != 0 {
        walk.left() + walk.done()
    } else {
        lowat
    };
    let target = target.min(walk.left() + walk.done()).max(1);
    let peek_all = how.peek && flags & libc::MSG_WAITALL != 0;
    let mut wait = Wait::new(Want::Data, since);
    let mut next = first;
    let mut looks = 0;
    let done = |walk: &Walk| Ok(counted(s, walk.done(), how));
    loop {
        let fd = s.live_fd(fd);
        let got = match next.take() {
            Some(got) => got,
            // SAFETY: the caller's promise.
            None => match unsafe { look(s, fd, walk, flags, how) } {
                Ok(got) => got,
                Err(_) if walk.done() > 0 && !how.peek => return done(walk),
                Err(e) => return Err(e),
            },
        };
        match got {
            Got::Bytes(n) => {
                if how.peek && walk.left() > 0 && goes_on_elsewhere(s, fd) {
                    peek_on(s, fd, walk, how.discard);
                }
                let whole = walk.left() == 0 || walk.done() >= target;
                if whole || (how.peek && !peek_all) {
                    let goes_on = n > 0 && walk.left() > 0 && !how.peek;
                    if goes_on && large::was_being_copied(s) {
                        // Shown before, and the sender is in the middle of copying them.
                        // SAFETY: the caller's promise.
                        let _ = unsafe { look(s, fd, walk, flags, how) };
                    } else if goes_on && goes_on_elsewhere(s, fd) {
                        // The next bytes may be there already, on the leg that follows.
                        // SAFETY: the caller's promise.
                        if matches!(unsafe { look(s, fd, walk, flags, how) }, Ok(Got::Kernel))
                            && net::unread(fd) > 0
                        {
                            // SAFETY: as above.
                            let _ = unsafe { kernel_once(s, fd, walk, flags, how) };
                        }
                    }
                    return done(walk);
                }
                if how.peek {
                    // All of it is wanted, and none taken: wait until it is there, then look again.
                    let offset = offset(s, fd);
                    let had = offset.unwrap_or(walk.done());
                    if dont_wait || !grows(s, fd, had as u64) {
                        return done(walk);
                    }
                    if offset.is_none() {
                        walk.rewind(); // (else what was looked at is behind)
                    }
                    continue;
                }
                if n > 0 {
                    continue;
                }
            }
            Got::Eof => {
                // (an end that the kernel says only because its error was taken before, or that the peer said since)
                if s.is_over() && cut_error(s).is_some() {
                    return end_by_reset(s, fd, walk, how);
                }
                if s.phase() == Phase::Attached
                    && let Some(p) = s.segment()
                {
                    if !s.is_over() {
                        check_kernel(s, fd); // (a peer that has said its end may be gone since, which its sender is to know)
                    }
                    // The kernel's end of the first leg, of a peer that left bytes of the fast one unread: it knew of no reset.
                    if s.rx_leg() == Leg::First
                        && ending(s, p, fd) == Ending::Reset
                        && reset_error(s, p) != Errno::PIPE
                    {
                        return end_by_reset(s, fd, walk, how);
                    }
                    if walk.done() == 0
                        && let Some(e) = options::take_error_of_shut(s, fd)
                    {
                        return Err(e);
                    }
                    settle_both_shut(s, p, fd);
                }
                if !how.peek {
                    s.eof_told.store(true, Ordering::Release);
                }
                return done(walk);
            }
            Got::Reset => return end_by_reset(s, fd, walk, how),
            Got::Broken => {
                demote::broken(s, fd);
                return end_by_reset(s, fd, walk, how);
            }
            Got::Kernel => {
                demote::attend(s, fd);
                demote::finish_if_over(s, fd, transport::reason::Reason::PeerDemoted);
                if s.phase() == Phase::Attached {
                    // This side still sends on its fast leg, but receives by the kernel.
                    // SAFETY: the caller's promise.
                    next = Some(unsafe { kernel_once(s, fd, walk, flags, how) }?);
                    if matches!(next, Some(Got::Empty)) {
                        next = None;
                        if ends_at_mark(s, fd, walk, how) {
                            return done(walk);
                        }
                        if dont_wait {
                            return if walk.done() > 0 {
                                done(walk)
                            } else {
                                Err(Errno::AGAIN)
                            };
                        }
                        if let Err(e) = wait.wait(s, fd, walk.done() > 0) {
                            return if walk.done() > 0 { done(walk) } else { Err(e) };
                        }
                    }
                }
                continue;
            }
            Got::Empty if ends_at_mark(s, fd, walk, how) => return done(walk),
            Got::Empty => {}
        }
        if s.rx_shut.load(Ordering::Acquire) {
            // (a reset comes first, as in the kernel)
            if !s.is_over() && check_kernel(s, fd) {
                continue;
            }
            return done(walk);
        }
        if looks < LOOKS && !(dont_wait && walk.done() > 0) {
            looks += 1;
            if large::comes_by_ring(s, !dont_wait && !how.peek) {
                continue;
            }
        }
        if dont_wait {
            if walk.done() > 0 {
                return done(walk);
            }
            if is_due(s) && check_kernel(s, fd) {
                continue;
            }
            return Err(Errno::AGAIN);
        }
        if how.peek
            && let Some(offset) = offset(s, fd)
        {
            // (what is kept is there, and is not what is waited for)
            if grows(s, fd, offset as u64) {
                continue;
            }
            if net::ready_now(fd, libc::POLLRDHUP) != 0 {
                return done(walk);
            }
            let timed = net::timeout(fd, libc::SO_RCVTIMEO) > 0;
            return Err(if timed { Errno::AGAIN } else { Errno::INTR });
        }
        let waited = if how.peek && wait::may_go(s, Want::Data) {
            wait.wait_for_lender(s, fd, walk.done() > 0)
        } else {
            wait.wait(s, fd, walk.done() > 0)
        };
        if let Err(e) = waited {
            return if walk.done() > 0 { done(walk) } else { Err(e) };
        }
        // What was waited for is there, as a rule, and all that is asked for.
        let (to, room) = walk.chunk();
        if target == 1 && walk.done() == 0 && room == walk.left() && parked::is_idle() {
            // (the number may have been closed and be another's by now)
            let fd = s.live_fd(fd);
            // SAFETY: the caller's promise.
            if let Some(n) = unsafe { quick::take(s, fd, to, room, flags) } {
                walk.advance(n);
                return Ok(n);
            }
        }
    }
}

/// Whether a call that waits for all of its bytes has some, and the next is an urgent one of the program's: as in the kernel
/// it ends there. (Where bytes go by us the kernel has no urgent ones, or ours.)
fn ends_at_mark(s: &Socket, fd: i32, walk: &Walk, how: How) -> bool {
    if !how.whole || walk.done() == 0 {
        return false;
    }
    let by_kernel = match s.phase() {
        Phase::Opening | Phase::Wired => wired::is_past_mode(s),
        Phase::Attached => s.rx_leg() != Leg::Fast,
        _ => true,
    };
    by_kernel && residual::left(s) == 0 && net::at_mark(fd)
}

fn end_by_reset(s: &Socket, fd: i32, walk: &Walk, how: How) -> Result<usize> {
    s.over.store(true, Ordering::Release);
    if walk.done() > 0 {
        return Ok(counted(s, walk.done(), how));
    }
    // (after the end of file the kernel reads no more than that, whatever else comes)
    if !residual::tell(s) || s.eof_told.load(Ordering::Acquire) {
        return Ok(0);
    }
    let error = match s.segment() {
        Some(p) => Some(reset_error(s, p)).filter(|&e| e != Errno::PIPE),
        None => Some(wired::error(s)),
    };
    Err(tell_reset(error.unwrap_or(Errno::CONNRESET), fd))
}
