//! poll and select over any mix of descriptors. Without an attached socket (or a set that has some)
//! among them the call is the kernel's alone.
//!
//! Ours are looked at in user space and taken out of what the kernel is asked, except for the sleep,
//! where the kernel watches their connection for a bell.
//!
//! Called by the hooks, with arrays that they have probed. Here: whose a descriptor is, the looks, the
//! spin, and the order of them.

mod array;
mod most;
mod select;
mod sleep;
mod width;

pub(crate) use most::limited;
pub(crate) use select::select;
pub(crate) use width::{forked, had, width};

use crate::epoll::set::Set;
use crate::epoll::{callers, registered};
use crate::real;
use crate::signals::since::{Hold, Since};
use crate::sockets::ready::{self, Ask};
use crate::sockets::{Phase, Socket, engage, napping, parked, shows, spin, wired};
use crate::table::{self, Entry};
use array::Array;
use sleep::sleep;
use transport::clock;
use transport::doorbell;
use transport::sys::{self, Result, net};

/// What polling threads have found about sharing their cores.
static COMPANY: spin::Company = spin::Company::new();

/// Looks at ours between two questions to the kernel about the others.
const ASKS: u32 = 16;

/// One of the program's descriptors that the kernel alone cannot answer for.
enum Ours {
    Socket(&'static Socket),
    Set(&'static Set),
}

fn ours(fd: i32) -> Option<Ours> {
    match table::find(fd) {
        Entry::Socket(s) if ready::is_ours(s) => Some(Ours::Socket(s)),
        Entry::Set(set) if set.is_engaged() => Some(Ours::Set(set)),
        _ => None,
    }
}

/// The step of a candidate whose first use may be the wait, or of those in a set.
fn first_use(fd: i32, events: i16) {
    const DATA: i16 = libc::POLLIN | libc::POLLRDNORM | libc::POLLRDHUP;
    match table::find(fd) {
        Entry::Socket(s) if events & DATA == 0 => engage::step_for_room(s, fd),
        Entry::Socket(s) => engage::step(s, fd),
        Entry::Set(set) => callers::attend(set),
        _ => {}
    }
}

/// How long to wait: `None` without end, else nanoseconds.
pub(crate) type Time = Option<u64>;

/// poll(2). `None`: the kernel alone serves this call.
///
/// # Safety
/// `fds` is writable for `n` entries; `mask` is null or a signal set.
pub(crate) unsafe fn poll(
    fds: *mut libc::pollfd,
    n: usize,
    time: Time,
    mask: *const libc::sigset_t,
) -> Option<Result<usize>> {
    if fds.is_null() || n == 0 || n > 1 << 20 || most::is_too_many(n) {
        return None;
    }
    // SAFETY: the caller's promise.
    let all = unsafe { std::slice::from_raw_parts_mut(fds, n) };
    engage::step_of_connected();
    // A candidate's first use may be a wait: let it take its step.
    for p in all.iter() {
        first_use(p.fd, p.events);
    }
    if !all.iter().any(|p| ours(p.fd).is_some()) {
        return None;
    }
    Some(run(all, time, mask))
}

fn run(all: &mut [libc::pollfd], time: Time, mask: *const libc::sigset_t) -> Result<usize> {
    let since = Since::now();
    // With a mask of the program's own that decides what may interrupt, and the kernel alone applies it.
    let _hold = (!mask.is_null()).then(Hold::new);
    parked::let_go();
    // More than the program has: for the events of rings, and of `rouse`.
    let ring = |p: &&libc::pollfd| table::socket(p.fd).and_then(wired::ring_event).is_some();
    let rings = all.iter().filter(ring).count();
    let mut copy = Array::new(all.len() + rings + 1).ok_or(sys::Errno::NOMEM)?;
    let deadline = time.map(|ns| clock::monotonic_ns().saturating_add(ns));
    for p in all.iter_mut() {
        p.revents = 0;
    }
    let mut n = look(all, false);
    if n > 0 {
        n = freshen(all);
    }
    // (The look may have sent one back to the kernel, that stands here twice.)
    // As in the kernel, a signal that the mask lets in interrupts where nothing is ready.
    let mask_now = if n > 0 { std::ptr::null() } else { mask };
    if has_foreign(all) || !mask_now.is_null() {
        match ask(all, &mut copy, Some(0), mask_now) {
            Ok(found) => n = found,
            Err(e) if n == 0 && look(all, true) == 0 => return Err(e),
            Err(_) => n = told(all),
        }
    }
    if n > 0 {
        return Ok(n);
    }
    if time == Some(0) {
        return Ok(look(all, true));
    }
    let mut asked = false;
    loop {
        parked::before_wait();
        parked::attend();
        // One that has gone back to the kernel meanwhile is among the others now.
        let foreign = has_foreign(all);
        n = spin(all, &mut copy, foreign, since, deadline);
        if n > 0 && !foreign && has_foreign(all) {
            n = ask(all, &mut copy, Some(0), std::ptr::null())?;
        }
        if n == 0 && !asked {
            // (after the spin: what the kernel has to say of ours is the end, or an error)
            n = look(all, true);
            asked = true;
        }
        if n > 0 {
            return Ok(n);
        }
        let left = || deadline.map(|d| d.saturating_sub(clock::monotonic_ns()));
        // (not once the time is over: whatever ends naps must not keep it from being told)
        if mask.is_null() && left() != Some(0) && nap(all, left(), since, &mut n)? {
            if n > 0 {
                return Ok(n); // (the spin would not look once a handler has run)
            }
            continue;
        }
        let left = left();
        n = sleep(all, &mut copy, left, since, mask)?;
        if n > 0 || left == Some(0) {
            return Ok(n);
        }
    }
}

/// The first part of the sleep, where one socket's data is all that is waited for. True: look again, unless `n` have something
/// to report.
fn nap(all: &mut [libc::pollfd], left: Time, since: Since, n: &mut usize) -> Result<bool> {
    let [p] = all else {
        return Ok(false);
    };
    match ours(p.fd) {
        Some(Ours::Socket(s)) if ready::wishes(p.events) == doorbell::DATA => {
            napping::in_poll(s, left, since, || {
                *n = look(std::slice::from_mut(p), false);
                *n > 0
            })
        }
        _ => Ok(false),
    }
}

fn has_foreign(all: &[libc::pollfd]) -> bool {
    all.iter().any(|p| p.fd >= 0 && ours(p.fd).is_none())
}

/// How many have something to report. A look may move one from ours to the others, where it is asked
/// about again.
fn told(all: &[libc::pollfd]) -> usize {
    all.iter().filter(|p| p.revents != 0).count()
}

/// Looks at ours. Counts those with something to report; with `fresh` the kernel side too.
fn look(all: &mut [libc::pollfd], fresh: bool) -> usize {
    let mut n = 0;
    for p in all.iter_mut() {
        let Some(ours) = ours(p.fd) else { continue };
        let bits = match ours {
            Ours::Socket(s) => {
                if ready::is_unsettled(s) {
                    ready::settle(s, p.fd);
                }
                let ask = if fresh { Ask::Fresh } else { Ask::Needed };
                let bits = ready::bits(s, p.fd, p.events, ask);
                if bits & p.events != 0 {
                    // What poll has shown a set shows too, even if the bell for it is still under way.
                    registered::kick_others(s, std::ptr::null());
                }
                bits
            }
            Ours::Set(set) => {
                if set.has_ready_settled() {
                    libc::POLLIN | libc::POLLRDNORM
                } else {
                    0
                }
            }
        };
        p.revents = bits & (p.events | libc::POLLERR | libc::POLLHUP);
        n += usize::from(p.revents != 0);
    }
    n
}

/// Something is ready, so this call ends without a question to the kernel, as the next may: now and then it is asked about ours all
/// the same, since only it tells of a peer that was killed.
fn freshen(all: &mut [libc::pollfd]) -> usize {
    for p in all.iter_mut() {
        if table::socket(p.fd).is_some_and(|s| s.phase() == Phase::Attached && shows::is_due(s)) {
            look(std::slice::from_mut(p), true);
        }
    }
    told(all)
}

/// Asks the kernel about the others.
fn ask(
    all: &mut [libc::pollfd],
    copy: &mut Array<libc::pollfd>,
    time: Time,
    mask: *const libc::sigset_t,
) -> Result<usize> {
    let slice = copy.slice();
    for behind in slice.iter_mut().skip(all.len()) {
        behind.fd = -1;
    }
    for (to, p) in slice.iter_mut().zip(all.iter()) {
        *to = libc::pollfd { revents: 0, ..*p };
        if ours(p.fd).is_some() {
            to.fd = -1;
        }
    }
    // (without those behind, as there may be no more of them than the program has)
    let (slice, _) = slice.split_at_mut(all.len());
    kernel(slice, time, mask)?;
    for (from, p) in slice.iter().zip(all.iter_mut()) {
        if from.fd >= 0 {
            p.revents = from.revents;
        }
    }
    Ok(told(all))
}

/// ppoll(2), or what comes near it where that takes so many no more (select's own may be more than the process may open, and a
/// sleep has the library's besides).
fn kernel(fds: &mut [libc::pollfd], time: Time, mask: *const libc::sigset_t) -> Result<usize> {
    let t = time.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000).cast_signed(),
        tv_nsec: (ns % 1_000_000_000).cast_signed(),
    });
    let at = t.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the slice, a timespec or null, the program's mask or null.
    let r = unsafe { real::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, at, mask) };
    net::select::where_refused(real::result(r as isize), fds, t, mask)
}

fn spin(
    all: &mut [libc::pollfd],
    copy: &mut Array<libc::pollfd>,
    foreign: bool,
    since: Since,
    deadline: Option<u64>,
) -> usize {
    let budget = all
        .iter()
        .filter_map(|p| table::socket(p.fd))
        .map(|s| s.budget.us())
        .max();
    let mut n = 0;
    let look = |turn: u32| {
        n = look(all, false);
        if n == 0 && foreign && turn % ASKS == ASKS - 1 {
            n = ask(all, copy, Some(0), std::ptr::null()).unwrap_or(0);
        }
        n > 0
    };
    let late = || deadline.is_some_and(|d| clock::monotonic_ns() >= d);
    spin::spin(budget.unwrap_or(0), &COMPANY, since, look, late);
    n
}
