//! The sleep of a poll: ours are armed and counted, and the kernel watches their connections for a bell
//! together with the program's other descriptors.
//!
//! Called by `poll`'s loop once neither a look nor a spin has found anything. The rule: whatever is
//! counted asleep is left again, even if the descriptors stand for something else by then.

use super::array::Array;
use super::{Ours, Time, ask, has_foreign, kernel, look, most, ours, told};
use crate::real;
use crate::signals::since::{self, Since};
use crate::sockets::counted::{Counting, What};
use crate::sockets::seats::SHARED_NAP_NS;
use crate::sockets::spin;
use crate::sockets::wait::{Want, prepare, room_nap};
use crate::sockets::{
    Phase, Socket, fences, idle, operator, parked, ready, recv, rouse, shows, stalled, wired,
};
use std::sync::atomic::Ordering;
use transport::clock;
use transport::doorbell;
use transport::provider::Provider;
use transport::sys::{self, Result};

/// How long (ns) to sleep at most on a connection whose receiving half is shut in the kernel, where no
/// bell can wake.
const SHUT_SLICE: u64 = 1_000_000;

/// How long (ns) to sleep at most on a ring for whose event there is no place.
const NEW_NS: u64 = 1_000_000;

const fn readable(fd: i32) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// The sockets that this thread is counted asleep on, by place in the program's array: whatever becomes
/// of the descriptors meanwhile, these are the ones to leave.
type Asleep = Array<Option<&'static Socket>>;

/// Whether each descriptor still is what it was when the sleep was prepared: attached, or not.
fn holds(asleep: &mut Asleep, all: &[libc::pollfd]) -> bool {
    asleep.slice().iter().zip(all).all(|(counted, p)| {
        let now = match ours(p.fd) {
            Some(Ours::Socket(s)) if s.phase().is_fast() => Some(s),
            _ => None,
        };
        counted.map(std::ptr::from_ref) == now.map(std::ptr::from_ref)
    })
}

/// Whether the kernel watches for room where that is with the kernel, and for the peer's word where it is not: a look may have taken
/// in what decides that.
fn watches(slice: &[libc::pollfd], all: &[libc::pollfd]) -> bool {
    slice.iter().zip(all).all(|(to, p)| match ours(p.fd) {
        Some(Ours::Socket(s))
            if wired::is_wired(s) && ready::wishes(p.events) & doorbell::SPACE != 0 =>
        {
            (to.events & libc::POLLOUT != 0) == (wired::event(s, Want::Room) == libc::POLLOUT)
        }
        _ => true,
    })
}

/// Sleeps: ours are armed, and watched for a bell by the kernel.
pub(super) fn sleep(
    all: &mut [libc::pollfd],
    copy: &mut Array<libc::pollfd>,
    time: Time,
    since: Since,
    mask: *const libc::sigset_t,
) -> Result<usize> {
    let slice = copy.slice();
    let mut asleep = Asleep::new(all.len()).ok_or(sys::Errno::NOMEM)?;
    let counting = Counting::begin();
    let mut quiet = true;
    let mut time = time;
    let mut event = None;
    let (slice, behind) = slice.split_at_mut(all.len());
    // For the events of rings; the last is for `rouse`'s.
    let (last, rings) = behind.split_last_mut().ok_or(sys::Errno::NOMEM)?;
    rings.fill(readable(-1));
    let mut rings = rings.iter_mut();
    for ((to, p), counted) in slice.iter_mut().zip(all.iter()).zip(asleep.slice()) {
        *to = libc::pollfd { revents: 0, ..*p };
        match ours(p.fd) {
            Some(Ours::Socket(s)) if s.phase().is_fast() => {
                to.events = libc::POLLIN | libc::POLLRDHUP | libc::POLLPRI;
                let wired = wired::is_wired(s);
                if s.woken_hard.load(Ordering::Acquire) {
                    to.events = 0;
                    time = Some(time.unwrap_or(u64::MAX).min(SHUT_SLICE));
                }
                if ready::wishes(p.events) & doorbell::SPACE != 0
                    && s.tx_leg() != transport::sdp::Leg::Fast
                    && (!wired || wired::event(s, Want::Room) == libc::POLLOUT)
                {
                    to.events |= libc::POLLOUT;
                }
                if wired {
                    let wishes = ready::wishes(p.events);
                    let mut nap = wired::before_sleep(s, p.fd, wishes, wired::Sleeper::Call);
                    if wishes & doorbell::SPACE != 0 && s.phase() == Phase::Opening {
                        nap = nap.min(wired::nap(s, Want::Room));
                    }
                    if let Some(fd) = wired::ring_event(s) {
                        match rings.next() {
                            Some(place) => *place = readable(fd),
                            None => nap = nap.min(NEW_NS), // (it has just come up)
                        }
                    }
                    if nap < u64::MAX {
                        time = Some(time.unwrap_or(u64::MAX).min(nap));
                    }
                    counting.add(What::Asleep(s));
                } else {
                    quiet &= prepare(s, p.fd, &counting);
                }
                if !quiet {
                    break;
                }
                if s.is_shared() && !wired {
                    // (as in a blocking call: what one that was killed owed the peer)
                    recv::upkeep(s, p.fd);
                    time = Some(time.unwrap_or(u64::MAX).min(SHARED_NAP_NS));
                }
                *counted = Some(s);
                counting.add(What::ForRoom(s));
                event = event.or_else(rouse::event);
                if let Some(p2) = s.segment() {
                    fences::pace(s, p2);
                    p2.arm(ready::wishes(p.events));
                }
            }
            Some(Ours::Set(set)) if set.wish_all() => sys::barrier::heavy(),
            // (the offer may be answered during the sleep, and bytes follow at once)
            Some(Ours::Socket(s)) if s.phase() == Phase::Announced => {
                if let Some(p2) = s.segment() {
                    fences::pace(s, p2);
                    p2.arm(ready::wishes(p.events));
                }
            }
            _ => {}
        }
    }
    *last = readable(event.unwrap_or(-1));
    let begun = clock::ticks();
    let errno = real::errno();
    let mut r = Ok(0);
    let mut n = 0;
    // Together with the library's own they were too many for poll(2): what the others have is to be asked for once more.
    let mut is_refused = false;
    if quiet {
        n = look(all, false);
        // The look may have attached or demoted one: then the kernel would watch for the wrong thing.
        quiet = n > 0 || holds(&mut asleep, all) && watches(slice, all);
        if n == 0 && quiet {
            // A nap that ends early is a sleep that is looked after and begun again.
            let most = if event.is_some() {
                room_nap()
            } else {
                u64::MAX
            };
            let nap = parked::nap(time.unwrap_or(u64::MAX))
                .min(most)
                .min(stalled::nap())
                .min(idle::nap());
            let nap = Some(nap).filter(|&ns| ns != u64::MAX);
            // (poll and select are never restarted)
            let every = trimmed(copy.slice());
            is_refused = most::is_too_many(every.len());
            spin::end_turn();
            r = if mask.is_null() {
                since::sleep(since, |mask| kernel(every, nap, mask))
            } else {
                kernel(every, nap, mask)
            };
        }
    }
    let slept = clock::ticks() - begun;
    drop(counting);
    for s in asleep.slice().iter().flatten() {
        s.budget.learn(slept);
    }
    match r {
        Err(sys::Errno::INTR) if operator::knocked(errno) => return Ok(0),
        Err(sys::Errno::BADF) if is_refused => 0, // (one that was closed meanwhile)
        r => r?,
    };
    if n > 0 || !quiet {
        return Ok(n);
    }
    // What the kernel said: of the others as it is; of ours it is a hint to look.
    let slice = copy.slice();
    for (from, p) in slice.iter().zip(all.iter_mut()) {
        match ours(p.fd) {
            Some(Ours::Socket(s)) if s.phase().is_fast() => {
                if from.revents != 0 {
                    shows::woken(s, p.fd, from.revents);
                }
                shows::check_shut(s, p.fd);
            }
            Some(_) => {}
            None => {
                p.revents =
                    from.revents & (p.events | libc::POLLERR | libc::POLLHUP | libc::POLLNVAL);
            }
        }
    }
    look(all, false);
    if is_refused && has_foreign(all) {
        return ask(all, copy, Some(0), std::ptr::null());
    }
    Ok(told(all))
}

/// Without those at the end that are nothing.
fn trimmed(fds: &mut [libc::pollfd]) -> &mut [libc::pollfd] {
    let len = fds.iter().rposition(|p| p.fd >= 0).map_or(0, |at| at + 1);
    fds.get_mut(..len).unwrap_or(&mut [])
}
