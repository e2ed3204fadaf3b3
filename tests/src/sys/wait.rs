//! Readiness calls, with results in a form that can be printed and compared.

use super::{Fd, Ret, call};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Event bits by name. poll and epoll share these values on Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Events(pub u32);

impl fmt::Display for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: &[(u32, &str)] = &[
            (0x001, "IN"),
            (0x002, "PRI"),
            (0x004, "OUT"),
            (0x008, "ERR"),
            (0x010, "HUP"),
            (0x020, "NVAL"),
            (0x040, "RDNORM"),
            (0x080, "RDBAND"),
            (0x100, "WRNORM"),
            (0x200, "WRBAND"),
            (0x2000, "RDHUP"),
        ];
        let mut rest = self.0;
        let mut words = Vec::new();
        for (bit, name) in NAMES {
            if rest & bit != 0 {
                words.push((*name).to_string());
                rest &= !bit;
            }
        }
        if rest != 0 {
            words.push(format!("{rest:#x}"));
        }
        f.write_str(if words.is_empty() { "-" } else { "" })?;
        f.write_str(&words.join("+"))
    }
}

fn to_timespec(timeout: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: i64::from(timeout.subsec_nanos()),
    }
}

pub fn sigset(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: sigemptyset fills the whole set and sigaddset gets valid numbers.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for s in signals {
            libc::sigaddset(&raw mut set, *s);
        }
        set
    }
}

fn entries(list: &[(Fd, i16)]) -> Vec<libc::pollfd> {
    list.iter()
        .map(|(fd, events)| libc::pollfd {
            fd: *fd,
            events: *events,
            revents: 0,
        })
        .collect()
}

fn show_poll(r: Ret, list: &[libc::pollfd]) -> String {
    let words: Vec<_> = list
        .iter()
        .map(|p| Events(u32::from(p.revents.cast_unsigned())).to_string())
        .collect();
    format!("{r} [{}]", words.join(" "))
}

/// poll, shown as `count [revents revents ...]` in the order given.
pub fn poll(list: &[(Fd, i16)], timeout: i32) -> String {
    let mut all = entries(list);
    let r = call!(libc::poll(all.as_mut_ptr(), all.len() as u64, timeout));
    show_poll(r, &all)
}

pub fn ppoll(list: &[(Fd, i16)], timeout: Option<Duration>, mask: Option<&[i32]>) -> String {
    let mut all = entries(list);
    let time = timeout.map(to_timespec);
    let set = mask.map(sigset);
    let time_ptr = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    let set_ptr = set.as_ref().map_or(ptr::null(), ptr::from_ref);
    let r = call!(libc::ppoll(
        all.as_mut_ptr(),
        all.len() as u64,
        time_ptr,
        set_ptr
    ));
    show_poll(r, &all)
}

fn fill(fds: &[Fd]) -> libc::fd_set {
    // SAFETY: FD_ZERO fills the set; the cases keep descriptors below FD_SETSIZE.
    unsafe {
        let mut set: libc::fd_set = std::mem::zeroed();
        libc::FD_ZERO(&raw mut set);
        for fd in fds {
            libc::FD_SET(*fd, &raw mut set);
        }
        set
    }
}

fn kept(fds: &[Fd], set: &libc::fd_set) -> String {
    let words: Vec<_> = fds
        .iter()
        .enumerate()
        // SAFETY: same descriptors as were put in.
        .filter(|(_, fd)| unsafe { libc::FD_ISSET(**fd, set) })
        .map(|(i, _)| i.to_string())
        .collect();
    words.join(",")
}

/// The three descriptor lists of a select call.
#[derive(Debug, Clone, Copy)]
pub struct Select<'a> {
    pub read: &'a [Fd],
    pub write: &'a [Fd],
    pub except: &'a [Fd],
}

impl Select<'_> {
    fn top(&self) -> Fd {
        let all = self.read.iter().chain(self.write).chain(self.except);
        all.max().map_or(0, |fd| fd + 1)
    }

    fn sets(&self) -> [libc::fd_set; 3] {
        [fill(self.read), fill(self.write), fill(self.except)]
    }

    fn show(&self, r: Ret, sets: &[libc::fd_set; 3]) -> String {
        if r.0 < 0 {
            return r.to_string();
        }
        format!(
            "{r} r[{}] w[{}] e[{}]",
            kept(self.read, &sets[0]),
            kept(self.write, &sets[1]),
            kept(self.except, &sets[2])
        )
    }

    /// select, shown as the positions that stayed in each list.
    pub fn select(&self, timeout: Option<Duration>) -> String {
        let [mut r, mut w, mut e] = self.sets();
        let mut time = timeout.map(|t| libc::timeval {
            tv_sec: t.as_secs() as i64,
            tv_usec: i64::from(t.subsec_micros()),
        });
        let time_ptr = time.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        let top = self.top();
        let got = call!(libc::select(
            top, &raw mut r, &raw mut w, &raw mut e, time_ptr
        ));
        self.show(got, &[r, w, e])
    }

    pub fn pselect(&self, timeout: Option<Duration>, mask: Option<&[i32]>) -> String {
        let [mut r, mut w, mut e] = self.sets();
        let time = timeout.map(to_timespec);
        let set = mask.map(sigset);
        let time_ptr = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        let set_ptr = set.as_ref().map_or(ptr::null(), ptr::from_ref);
        let (rp, wp, ep) = (&raw mut r, &raw mut w, &raw mut e);
        let got = call!(libc::pselect(self.top(), rp, wp, ep, time_ptr, set_ptr));
        self.show(got, &[r, w, e])
    }
}

pub fn epoll() -> Fd {
    call!(libc::epoll_create1(libc::EPOLL_CLOEXEC)).fd()
}

pub fn epoll_ctl(set: Fd, op: i32, fd: Fd, events: i32, data: u64) -> Ret {
    let mut event = libc::epoll_event {
        events: events.cast_unsigned(),
        u64: data,
    };
    call!(libc::epoll_ctl(set, op, fd, &raw mut event))
}

pub fn add(set: Fd, fd: Fd, events: i32, data: u64) -> Ret {
    epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, events, data)
}

pub fn modify(set: Fd, fd: Fd, events: i32, data: u64) -> Ret {
    epoll_ctl(set, libc::EPOLL_CTL_MOD, fd, events, data)
}

pub fn delete(set: Fd, fd: Fd) -> Ret {
    call!(libc::epoll_ctl(
        set,
        libc::EPOLL_CTL_DEL,
        fd,
        ptr::null_mut()
    ))
}

/// What an epoll wait returned, sorted by the data word.
#[derive(Debug)]
pub struct Woken {
    pub ret: Ret,
    pub list: Vec<(u64, Events)>,
}

impl fmt::Display for Woken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ret)?;
        for (data, events) in &self.list {
            write!(f, " {data:#x}:{events}")?;
        }
        Ok(())
    }
}

fn woken(r: Ret, buf: &[libc::epoll_event]) -> Woken {
    let count = usize::try_from(r.0).unwrap_or(0);
    let mut list: Vec<_> = buf[..count]
        .iter()
        .map(|e| (e.u64, Events(e.events)))
        .collect();
    list.sort_by_key(|(data, _)| *data);
    Woken { ret: r, list }
}

fn room(max: usize) -> Vec<libc::epoll_event> {
    vec![libc::epoll_event { events: 0, u64: 0 }; max]
}

pub fn epoll_wait(set: Fd, max: usize, timeout: i32) -> Woken {
    let mut buf = room(max);
    let r = call!(libc::epoll_wait(set, buf.as_mut_ptr(), max as i32, timeout));
    woken(r, &buf)
}

/// The data words of what an epoll wait told, in its order.
pub fn epoll_wait_in_order(set: Fd, max: usize, timeout: i32) -> Vec<usize> {
    let mut buf = room(max);
    let r = call!(libc::epoll_wait(set, buf.as_mut_ptr(), max as i32, timeout));
    buf[..r.ok()].iter().map(|e| e.u64 as usize).collect()
}

pub fn epoll_pwait(set: Fd, max: usize, timeout: i32, mask: &[i32]) -> Woken {
    let mut buf = room(max);
    let mask = sigset(mask);
    let at = &raw const mask;
    let r = call!(libc::epoll_pwait(
        set,
        buf.as_mut_ptr(),
        max as i32,
        timeout,
        at
    ));
    woken(r, &buf)
}

unsafe extern "C" {
    fn epoll_pwait2(
        set: i32,
        events: *mut libc::epoll_event,
        max: i32,
        timeout: *const libc::timespec,
        mask: *const libc::sigset_t,
    ) -> i32;
}

pub fn epoll_wait2(set: Fd, max: usize, timeout: Option<Duration>) -> Woken {
    let mut buf = room(max);
    let time = timeout.map(to_timespec);
    let time_ptr = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    let r = call!(epoll_pwait2(
        set,
        buf.as_mut_ptr(),
        max as i32,
        time_ptr,
        ptr::null()
    ));
    woken(r, &buf)
}

/// How long a step that must come may take before the run counts as stuck.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until `done` says so; returns whether it ever did.
pub fn eventually(mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    loop {
        if done() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until so much can be read, or no more comes for a while.
pub fn wait_arrived(fd: Fd, all: i32) {
    let (mut most, mut grown) = (0, Instant::now());
    while most < all && grown.elapsed() < Duration::from_millis(60) {
        std::thread::sleep(Duration::from_millis(1));
        let queued = super::net::queued(fd);
        if queued > most {
            (most, grown) = (queued, Instant::now());
        }
    }
}

/// Waits until one of these events shows on the descriptor; panics if it never does.
#[track_caller]
pub fn wait_for(fd: Fd, events: i16) {
    let mut one = entries(&[(fd, events)]);
    let r = call!(libc::poll(one.as_mut_ptr(), 1, PATIENCE.as_millis() as i32));
    assert!(r.0 == 1, "no event on descriptor {fd}: {r}");
    if one[0].revents & libc::POLLERR != 0 {
        settle_reset(fd);
    }
}

/// The kernel takes a reset in three steps, the error, the state and both halves' ends, and a poll on another
/// processor sees what lies between them. The wait is bounded: there are errors that end nothing.
fn settle_reset(fd: Fd) {
    const ALL: i16 = libc::POLLHUP | libc::POLLRDHUP;
    let deadline = Instant::now() + millis(300);
    loop {
        let mut one = entries(&[(fd, libc::POLLRDHUP)]);
        call!(libc::poll(one.as_mut_ptr(), 1, 0));
        if one[0].revents & ALL == ALL || Instant::now() >= deadline {
            return;
        }
        std::thread::sleep(millis(1));
    }
}

/// Waits until this many bytes can be read, without reading them.
#[track_caller]
pub fn wait_queued(fd: Fd, want: i32) {
    let enough = eventually(|| super::net::queued(fd) >= want);
    assert!(enough, "{} of {want} bytes queued", super::net::queued(fd));
}

pub fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Waits for one descriptor to have something to read, with nothing to be let go of: a handler may leave by a
/// jump.
pub fn poll_one(fd: Fd) -> Ret {
    let mut one = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    call!(libc::poll(&raw mut one, 1, -1))
}

/// [`poll_one`] by select.
pub fn select_one(fd: Fd) -> Ret {
    // SAFETY: all zeroes is an empty set.
    let mut set: libc::fd_set = unsafe { std::mem::zeroed() };
    // SAFETY: a small descriptor and a valid set.
    unsafe { libc::FD_SET(fd, &raw mut set) };
    let none = std::ptr::null_mut();
    call!(libc::select(
        fd + 1,
        &raw mut set,
        none,
        none,
        std::ptr::null_mut()
    ))
}

/// [`poll_one`] by a set that is made at the first call, for the descriptor of that call.
pub fn epoll_one(fd: Fd) -> Ret {
    static SET: AtomicI32 = AtomicI32::new(-1);
    if SET.load(SeqCst) < 0 {
        SET.store(epoll(), SeqCst);
        add(SET.load(SeqCst), fd, libc::EPOLLIN, 1).ok();
    }
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    call!(libc::epoll_wait(SET.load(SeqCst), &raw mut event, 1, -1))
}
