//! poll and select over any mix of descriptors. Without an attached socket (or a set that has some)
//! among them the call is the kernel's alone.
//!
//! Ours are looked at in user space and taken out of what the kernel is asked, except for the sleep,
//! where the kernel watches their connection for a bell.

use crate::epoll::registered;
use crate::epoll::set::Set;
use crate::real;
use crate::signals::since::{self, Hold, Since};
use crate::sockets::counted::{Counting, What};
use crate::sockets::spin;
use crate::sockets::wait::{ROOM_NAP_NS, prepare};
use crate::sockets::{Phase, Socket, operator, parked, ready, recv, rouse};
use crate::table::{self, Entry};
use std::sync::atomic::Ordering;
use transport::clock;
use transport::doorbell;
use transport::provider::Provider;
use transport::sys::mem::Mapping;
use transport::sys::{self, Result};

/// What polling threads have found about sharing their cores.
static COMPANY: spin::Company = spin::Company::new();

/// Descriptors handled without memory of our own.
const INLINE: usize = 64;

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

/// How long to wait: `None` without end, else nanoseconds.
pub(crate) type Time = Option<u64>;

/// A copy of the program's array to ask the kernel with.
struct Copy {
    inline: [libc::pollfd; INLINE],
    mapped: Option<Mapping>,
    len: usize,
}

impl Copy {
    fn new(len: usize) -> Option<Self> {
        let inline = [libc::pollfd {
            fd: -1,
            events: 0,
            revents: 0,
        }; INLINE];
        let mapped = if len > INLINE {
            Some(Mapping::private(len * size_of::<libc::pollfd>()).ok()?)
        } else {
            None
        };
        Some(Self {
            inline,
            mapped,
            len,
        })
    }

    fn slice(&mut self) -> &mut [libc::pollfd] {
        match &self.mapped {
            // SAFETY: the mapping has room for `len` entries, and any bytes are a pollfd.
            Some(m) => unsafe {
                std::slice::from_raw_parts_mut(m.base().cast().as_ptr(), self.len)
            },
            None => self.inline.get_mut(..self.len).unwrap_or(&mut []),
        }
    }
}

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
    if fds.is_null() || n == 0 || n > 1 << 20 {
        return None;
    }
    // SAFETY: the caller's promise.
    let all = unsafe { std::slice::from_raw_parts_mut(fds, n) };
    // A candidate's first use may be a wait: let it take its step.
    for p in all.iter() {
        if let Some(s) = table::socket(p.fd) {
            crate::sockets::engage::step(s, p.fd);
        }
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
    // One more than the program has, for the event of `rouse`.
    let mut copy = Copy::new(all.len() + 1).ok_or(sys::Errno::NOMEM)?;
    let deadline = time.map(|ns| clock::monotonic_ns().saturating_add(ns));
    for p in all.iter_mut() {
        p.revents = 0;
    }
    let mut n = look(all, false);
    // (The look may have sent one back to the kernel, that stands here twice.)
    if has_foreign(all) || !mask.is_null() {
        ask(all, &mut copy, Some(0), mask)?;
        n = told(all);
    }
    if n > 0 {
        return Ok(n);
    }
    n = look(all, true);
    if n > 0 || time == Some(0) {
        return Ok(n);
    }
    loop {
        operator::attend();
        // One that has gone back to the kernel meanwhile is among the others now.
        let foreign = has_foreign(all);
        n = spin(all, &mut copy, foreign, since, deadline);
        if n > 0 && !foreign && has_foreign(all) {
            n = ask(all, &mut copy, Some(0), std::ptr::null())?;
        }
        if n > 0 {
            return Ok(n);
        }
        let left = deadline.map(|d| d.saturating_sub(clock::monotonic_ns()));
        n = sleep(all, &mut copy, left, since, mask)?;
        if n > 0 || left == Some(0) {
            return Ok(n);
        }
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
                let bits = ready::bits(s, p.fd, p.events, fresh);
                if bits & p.events != 0 {
                    // What poll has shown a set shows too, even if the bell for it is still under way.
                    registered::kick_others(s, std::ptr::null());
                }
                bits
            }
            Ours::Set(set) => {
                if set.has_ready() {
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

/// Asks the kernel about the others.
fn ask(
    all: &mut [libc::pollfd],
    copy: &mut Copy,
    time: Time,
    mask: *const libc::sigset_t,
) -> Result<usize> {
    let slice = copy.slice();
    if let Some(last) = slice.last_mut() {
        last.fd = -1;
    }
    for (to, p) in slice.iter_mut().zip(all.iter()) {
        *to = libc::pollfd { revents: 0, ..*p };
        if ours(p.fd).is_some() {
            to.fd = -1;
        }
    }
    kernel(slice, time, mask)?;
    for (from, p) in slice.iter().zip(all.iter_mut()) {
        if from.fd >= 0 {
            p.revents = from.revents;
        }
    }
    Ok(told(all))
}

fn kernel(fds: &mut [libc::pollfd], time: Time, mask: *const libc::sigset_t) -> Result<usize> {
    let t = time.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000).cast_signed(),
        tv_nsec: (ns % 1_000_000_000).cast_signed(),
    });
    let t = t.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the slice, a timespec or null, the program's mask or null.
    let r = unsafe { real::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, t, mask) };
    real::result(r as isize)
}

fn spin(
    all: &mut [libc::pollfd],
    copy: &mut Copy,
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
        if n == 0 && foreign && turn.is_multiple_of(8) {
            n = ask(all, copy, Some(0), std::ptr::null()).unwrap_or(0);
        }
        n > 0
    };
    let late = || deadline.is_some_and(|d| clock::monotonic_ns() >= d);
    spin::spin(budget.unwrap_or(0), &COMPANY, since, look, late);
    n
}

/// How long (ns) to sleep at most on a connection whose receiving half is shut in the kernel, where no
/// bell can wake.
const SHUT_SLICE: u64 = 1_000_000;

/// The sockets that this thread is counted asleep on, by place in the program's array: whatever becomes
/// of the descriptors meanwhile, these are the ones to leave.
struct Asleep {
    inline: [Option<&'static Socket>; INLINE],
    mapped: Option<Mapping>,
    len: usize,
}

impl Asleep {
    fn new(len: usize) -> Option<Self> {
        let mapped = if len > INLINE {
            // Null, which a fresh mapping is full of, is `None`.
            Some(Mapping::private(len * size_of::<Option<&'static Socket>>()).ok()?)
        } else {
            None
        };
        Some(Self {
            inline: [None; INLINE],
            mapped,
            len,
        })
    }

    fn slice(&mut self) -> &mut [Option<&'static Socket>] {
        match &self.mapped {
            // SAFETY: the mapping has room for `len` entries, each null or stored by `sleep`.
            Some(m) => unsafe {
                std::slice::from_raw_parts_mut(m.base().cast().as_ptr(), self.len)
            },
            None => self.inline.get_mut(..self.len).unwrap_or(&mut []),
        }
    }

    /// Whether each descriptor still is what it was when the sleep was prepared: attached, or not.
    fn holds(&mut self, all: &[libc::pollfd]) -> bool {
        self.slice().iter().zip(all).all(|(counted, p)| {
            let now = match ours(p.fd) {
                Some(Ours::Socket(s)) if s.phase() == Phase::Attached => Some(s),
                _ => None,
            };
            counted.map(std::ptr::from_ref) == now.map(std::ptr::from_ref)
        })
    }
}

/// Sleeps: ours are armed, and watched for a bell by the kernel.
fn sleep(
    all: &mut [libc::pollfd],
    copy: &mut Copy,
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
    for ((to, p), counted) in slice.iter_mut().zip(all.iter()).zip(asleep.slice()) {
        *to = libc::pollfd { revents: 0, ..*p };
        match ours(p.fd) {
            Some(Ours::Socket(s)) if s.phase() == Phase::Attached => {
                to.events = libc::POLLIN | libc::POLLRDHUP | libc::POLLPRI;
                if s.woken_hard.load(Ordering::Acquire) {
                    to.events = 0;
                    time = Some(time.unwrap_or(u64::MAX).min(SHUT_SLICE));
                }
                if ready::wishes(p.events) & doorbell::SPACE != 0
                    && s.tx_leg() != transport::sdp::Leg::Fast
                {
                    to.events |= libc::POLLOUT;
                }
                quiet &= prepare(s, p.fd, &counting);
                if !quiet {
                    break;
                }
                *counted = Some(s);
                counting.add(What::ForRoom(s));
                event = event.or_else(rouse::event);
                if let Some(p2) = s.segment() {
                    p2.arm(ready::wishes(p.events));
                }
            }
            Some(Ours::Set(set)) if set.wish_all() => sys::barrier::heavy(),
            _ => {}
        }
    }
    if let Some(last) = slice.last_mut() {
        *last = libc::pollfd {
            fd: event.unwrap_or(-1),
            events: libc::POLLIN,
            revents: 0,
        };
    }
    let begun = clock::ticks();
    let errno = real::errno();
    let mut r = Ok(0);
    let mut n = 0;
    if quiet {
        n = look(all, false);
        // The look may have attached or demoted one: then the kernel would watch for the wrong thing.
        quiet = n > 0 || asleep.holds(all);
        if n == 0 && quiet {
            // A nap that ends early is a sleep that is looked after and begun again.
            let most = if event.is_some() {
                ROOM_NAP_NS
            } else {
                u64::MAX
            };
            let nap = parked::nap(time.unwrap_or(u64::MAX)).min(most);
            let nap = Some(nap).filter(|&ns| ns != u64::MAX);
            // (poll and select are never restarted)
            r = if mask.is_null() {
                since::sleep(since, |mask| kernel(slice, nap, mask))
            } else {
                kernel(slice, nap, mask)
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
        r => r?,
    };
    if n > 0 || !quiet {
        return Ok(n);
    }
    // What the kernel said: of the others as it is; of ours it is a hint to look.
    let slice = copy.slice();
    for (from, p) in slice.iter().zip(all.iter_mut()) {
        match ours(p.fd) {
            Some(Ours::Socket(s)) if s.phase() == Phase::Attached => {
                if from.revents != 0 {
                    recv::kernel_shows(s, p.fd, from.revents);
                }
            }
            Some(_) => {}
            None => {
                p.revents =
                    from.revents & (p.events | libc::POLLERR | libc::POLLHUP | libc::POLLNVAL);
            }
        }
    }
    look(all, false);
    Ok(told(all))
}

/// select(2) by way of [`poll`]. `None`: the kernel alone serves this call.
///
/// # Safety
/// The sets are null or writable for `n` bits, as select wants them.
pub(crate) unsafe fn select(
    n: i32,
    sets: [*mut libc::fd_set; 3],
    time: Time,
    mask: *const libc::sigset_t,
) -> Option<Result<usize>> {
    const WORD: usize = 64;
    let n = usize::try_from(n).ok().filter(|&n| n > 0 && n <= 1 << 16)?;
    let word = |set: *mut libc::fd_set, i: usize| -> u64 {
        if set.is_null() {
            return 0;
        }
        // SAFETY: word `i` is within `n` bits, by the loops below.
        unsafe { set.cast::<u64>().add(i).read_unaligned() }
    };
    let words = n.div_ceil(WORD);
    let mut wanted = 0;
    let mut any = false;
    let [reads, writes, excepts] = sets;
    let each_wanted = |f: &mut dyn FnMut(i32, i16)| {
        for i in 0..words {
            let (r, w, x) = (word(reads, i), word(writes, i), word(excepts, i));
            let mut left = r | w | x;
            while left != 0 {
                let bit = left.trailing_zeros() as usize;
                left &= left - 1;
                if i * WORD + bit >= n {
                    break;
                }
                let has = |set: u64, bits: i16| if set >> bit & 1 == 1 { bits } else { 0 };
                let events = has(r, libc::POLLIN | libc::POLLRDNORM)
                    | has(w, libc::POLLOUT | libc::POLLWRNORM)
                    | has(x, libc::POLLPRI);
                let Ok(fd) = i32::try_from(i * WORD + bit) else {
                    return;
                };
                f(fd, events);
            }
        }
    };
    each_wanted(&mut |fd, _| {
        wanted += 1;
        if let Some(s) = table::socket(fd) {
            crate::sockets::engage::step(s, fd);
        }
        any |= ours(fd).is_some();
    });
    if !any {
        return None;
    }
    let mut copy = Copy::new(wanted)?;
    let fds = copy.slice();
    let mut at = 0;
    each_wanted(&mut |fd, events| {
        if let Some(p) = fds.get_mut(at) {
            *p = libc::pollfd {
                fd,
                events,
                revents: 0,
            };
            at += 1;
        }
    });
    let r = run(fds, time, mask);
    if r.is_err() {
        return Some(r);
    }
    if fds.iter().any(|p| p.revents & libc::POLLNVAL != 0) {
        return Some(Err(sys::Errno::BADF));
    }
    for set in sets.into_iter().filter(|s| !s.is_null()) {
        for i in 0..words {
            // SAFETY: as in `word`.
            unsafe { set.cast::<u64>().add(i).write_unaligned(0) };
        }
    }
    let mut bits = 0;
    for p in fds.iter() {
        let fd = p.fd.cast_unsigned() as usize;
        let mut put = |set: *mut libc::fd_set, asked: i16, shown: i16| {
            if !set.is_null() && p.events & asked != 0 && p.revents & shown != 0 {
                // SAFETY: `fd` is below `n`.
                unsafe {
                    let w = set.cast::<u64>().add(fd / WORD);
                    w.write_unaligned(w.read_unaligned() | 1 << (fd % WORD));
                }
                bits += 1;
            }
        };
        put(
            reads,
            libc::POLLIN,
            libc::POLLIN | libc::POLLRDNORM | libc::POLLHUP | libc::POLLERR,
        );
        put(
            writes,
            libc::POLLOUT,
            libc::POLLOUT | libc::POLLWRNORM | libc::POLLERR,
        );
        put(excepts, libc::POLLPRI, libc::POLLPRI);
    }
    Some(Ok(bits))
}
