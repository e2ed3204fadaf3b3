//! Waiting in a blocking call: a short busy look, then looks between which others may run, then sleep
//! in the kernel on the socket itself, which a bell, data or the peer's end makes readable.
//!
//! Rules:
//! - Asleep only after arming and looking once more (`transport::doorbell`).
//! - The sleep is libc's own `recv` with MSG_PEEK where that will do, `ppoll` otherwise: both are
//!   cancellation points.
//! - A handler that runs from the beginning of the call on ends it as the kernel would (`signals::since`);
//!   once the program has handlers the sleep is a `ppoll`, which lets signals through as it begins.
//! - No lock is held across a sleep, and what is counted for it is counted in `counted`: the thread may
//!   not come back.

use super::counted::{Counting, What};
use super::spin;
use super::{
    Phase, Socket, cut, engage, fences, idle, large, napping, operator, parked, recv, seats, shows,
    stalled, timing, wired,
};
use crate::real;
use crate::signals::may_interrupt;
use crate::signals::since::{self, Since};
use crate::world;
use std::sync::atomic::Ordering;
use transport::clock;
use transport::direct::Direct;
use transport::doorbell;
use transport::provider::{End, Provider};
use transport::sdp::Leg;
use transport::shm::layout::FIN_NONE;
use transport::sys::net::select;
use transport::sys::{self, Errno, Result, net, time};

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    Data,
    Room,
    /// That the peer is done with an advertised buffer.
    Taken,
}

/// One blocking call's waiting.
#[derive(Debug)]
pub(crate) struct Wait {
    want: Want,
    /// Absolute, in monotonic nanoseconds; 0 for none, unread until the first sleep.
    deadline: Option<u64>,
    /// The beginning of the call, or its last restart.
    since: Since,
    /// It has waited for more of a stream already.
    napped: bool,
}

/// Whether there may be something to do, without any lock or system call.
#[inline]
pub(crate) fn may_go(s: &Socket, want: Want) -> bool {
    let shut = match want {
        Want::Room | Want::Taken => &s.tx_shut,
        Want::Data => &s.rx_shut,
    };
    if shut.load(Ordering::Relaxed) || s.is_over() || s.broken.load(Ordering::Relaxed) {
        return true;
    }
    let Some(p) = s.segment() else {
        return wired::may_go(s, want);
    };
    match (want, s.phase()) {
        (_, Phase::Announced) => engage::is_answered(s),
        (Want::Data, Phase::Attached) => match s.rx_leg() {
            Leg::Fast => {
                parked::has_news(s, p)
                    || p.finished() != FIN_NONE
                    || p.stated(End::Fast).is_some()
                    || (p.stopped() && s.tx_leg() == Leg::Fast)
            }
            Leg::First => p
                .stated(End::Kernel)
                .is_some_and(|end| s.rx.lock().is_ok_and(|rx| rx.kernel_bytes() == end)),
            Leg::Last => false,
        },
        // (of what is owed there too)
        (Want::Room, Phase::Attached) if s.tx_leg() == Leg::Last => false,
        (Want::Room, Phase::Attached) => {
            p.stopped()
                || s.tx
                    .lock()
                    .is_ok_and(|mut tx| tx.room(p).map_or(true, |room| room > 0))
        }
        (Want::Taken, Phase::Attached) => {
            p.stopped() || p.is_taken() || (p.has_adverts() && p.pending().is_some())
        }
        (Want::Taken, _) => true,
        // On the kernel: it alone knows.
        _ => false,
    }
}

/// Whether looks have to ask the kernel: the direction is on a kernel leg.
fn by_kernel(s: &Socket, want: Want) -> bool {
    s.phase() != Phase::Attached
        || match want {
            Want::Data => s.rx_leg() != Leg::Fast,
            Want::Room | Want::Taken => s.tx_leg() != Leg::Fast,
        }
}

fn kernel_event(s: &Socket, want: Want) -> i16 {
    if wired::is_wired(s) {
        return wired::event(s, want);
    }
    match want {
        Want::Data => libc::POLLIN,
        Want::Room | Want::Taken => libc::POLLOUT,
    }
}

/// One look of a spin.
fn look(s: &'static Socket, fd: i32, want: Want, ask_kernel: bool) -> bool {
    if s.phase() == Phase::Fresh {
        engage::glance(s, fd);
    }
    if want == Want::Taken {
        large::help(s);
    }
    may_go(s, want) || (ask_kernel && shows(s, fd, kernel_event(s, want)))
}

/// Whether the kernel connection shows something now.
fn shows(s: &Socket, fd: i32, event: i16) -> bool {
    let shows = net::ready_now(fd, event) != 0;
    if shows && wired::is_wired(s) {
        s.kernel_news.tell();
    }
    shows
}

/// Spins within the socket's budget. True once there is something to do. The wish for a bell rests
/// meanwhile, if it can; a sleep makes it anew.
fn spin(s: &'static Socket, fd: i32, want: Want, since: Since) -> bool {
    let found = looks(s, fd, want, since);
    if want == Want::Data
        && !found
        && s.phase() != Phase::Fresh
        && !napping::is_due(s)
        && let Some(p) = s.segment()
        && p.armed() & doorbell::DATA == 0
    {
        p.arm(doorbell::DATA);
        // It may have been missed by what came meanwhile.
        return may_go(s, want);
    }
    found
}

/// Lets the wish for a bell rest while the only thread looks for data itself.
fn rest(s: &Socket) {
    if engage::can_rest(s)
        && matches!(s.phase(), Phase::Announced | Phase::Attached)
        && let Some(p) = s.segment()
    {
        p.disarm(doorbell::DATA);
    }
}

fn looks(s: &'static Socket, fd: i32, want: Want, since: Since) -> bool {
    let kernel = by_kernel(s, want);
    // (what it could say of a stream that goes by a ring can wait for the sleep)
    let apart = kernel && wired::is_apart(s);
    let look = |turn: u32| {
        let ask_kernel = kernel && !apart && (turn % 16 == 15 || turn >= spin::PAUSES);
        let found = look(s, fd, want, ask_kernel);
        if want == Want::Data && !found {
            rest(s);
        }
        found
    };
    spin::spin(s.budget.us(), &s.company, since, look, || false)
}

/// How long (µs) a stream is left to itself before the next look. (Most threads' timers go off 50 µs late.)
const FLOW_US: u64 = 20;

/// How long (µs) a look at what is lent waits for the sender.
const LENT_US: u64 = 20;

impl Wait {
    /// A wait in the call that began then.
    pub(crate) const fn new(want: Want, since: Since) -> Self {
        Self {
            want,
            deadline: None,
            since,
            napped: false,
        }
    }

    /// Waits for something else from now on, within the same time-out. What it waited for before.
    pub(super) const fn turn_to(&mut self, want: Want) -> Want {
        std::mem::replace(&mut self.want, want)
    }

    /// From where on handlers interrupt the call.
    pub(super) const fn since(&self) -> Since {
        self.since
    }

    /// Waits until there may be something to do. `partial`: the call has something to show for itself
    /// already, and is not restarted.
    ///
    /// # Errors
    /// EINTR, EAGAIN when the socket's time-out is over or it is non-blocking after all.
    pub(crate) fn wait(&mut self, s: &'static Socket, fd: i32, partial: bool) -> Result<()> {
        parked::before_wait();
        idle::attend();
        if parked::let_go() | stalled::attend() {
            return Ok(()); // perhaps this very stream; look again
        }
        recv::upkeep(s, fd);
        let looks = self.want != Want::Data || wired::is_worth_looking(s);
        if looks && spin(s, fd, self.want, self.since) {
            return Ok(());
        }
        if !looks && wired::flows(s) && !std::mem::replace(&mut self.napped, true) {
            let _ = time::nap(FLOW_US);
            return Ok(());
        }
        self.limit(s, fd);
        if self.since.any() {
            return self.interrupted(partial);
        }
        let begun = clock::ticks();
        spin::end_turn();
        let r = self.sleep(s, fd);
        if self.want == Want::Data && s.rx_leg() == Leg::First {
            rest(s); // (a bell now would lie behind what has woken it)
        }
        let slept = clock::ticks() - begun;
        s.budget.learn(slept);
        if !looks {
            wired::note_sleep(s, if self.napped { u64::MAX } else { slept });
        }
        match r {
            Err(Errno::INTR) => self.interrupted(partial),
            r => r,
        }
    }

    /// After a signal: EINTR, or the call goes on.
    /// What shows cannot be looked at, being lent: its sender has just been asked to give it by copy. It may have been stopped, or
    /// killed, before it could.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub(super) fn wait_for_lender(
        &mut self,
        s: &'static Socket,
        fd: i32,
        partial: bool,
    ) -> Result<()> {
        if shows::is_due(s) && shows::check_kernel(s, fd) {
            return Ok(());
        }
        self.limit(s, fd);
        self.left()?;
        if self.since.any() {
            return self.interrupted(partial);
        }
        let _ = time::nap(LENT_US);
        Ok(())
    }

    fn interrupted(&mut self, partial: bool) -> Result<()> {
        let hard = if self.since.any() {
            self.since.any_hard()
        } else {
            !time::all_restart() // a handler that was set behind our back
        };
        self.since = Since::now();
        if hard || partial || self.deadline.is_some_and(|d| d > 0) {
            return Err(Errno::INTR);
        }
        Ok(())
    }

    fn sleep(&self, s: &'static Socket, fd: i32) -> Result<()> {
        let kernel = by_kernel(s, self.want);
        if !kernel
            && self.want == Want::Data
            && let Some(p) = s.segment()
            && napping::nap(s, p, self.left()?, self.since, || may_go(s, self.want))?
        {
            return Ok(());
        }
        let mut nap = u64::MAX;
        let counting = Counting::more();
        if !kernel && let Some(p) = s.segment() {
            if !prepare(s, fd, &counting) {
                return Ok(()); // others are on their way out of the kernel; look again
            }
            fences::pace(s, p);
            p.arm(match self.want {
                Want::Data => doorbell::DATA,
                Want::Room => doorbell::SPACE,
                Want::Taken => doorbell::TAKEN,
            });
        } else {
            if wired::is_wired(s) {
                let wishes = match self.want {
                    Want::Data => doorbell::DATA,
                    Want::Room | Want::Taken => doorbell::SPACE,
                };
                if self.want != Want::Data {
                    wired::seek_room(s, fd);
                }
                nap = wired::before_sleep(s, fd, wishes, wired::Sleeper::Call);
            }
            // (a sender that waits for the kernel's room does not look at what comes)
            if !wired::is_wired(s) || kernel_event(s, self.want) == libc::POLLIN {
                counting.add(What::Asleep(s));
            }
            // The direction may move to its fast leg during the sleep.
            if self.want == Want::Data
                && matches!(s.phase(), Phase::Announced | Phase::Attached)
                && let Some(p) = s.segment()
            {
                p.arm(doorbell::DATA);
            }
        }
        // (the direction may have gone back to the kernel on the way here: then another sleep is due)
        if nap == 0 || may_go(s, self.want) || (!kernel && by_kernel(s, self.want)) {
            Ok(())
        } else {
            self.block(s, fd, kernel, nap)
        }
    }

    /// Blocks for room in a program of several threads, one of which may send the stream back to the
    /// kernel or shut it.
    fn block_among_others(&self, s: &'static Socket, fd: i32, event: i32) -> Result<()> {
        let entry = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN | libc::POLLRDHUP,
            revents: 0,
        };
        let mut both = [entry(fd), entry(event)];
        let errno = real::errno();
        let nap = within(room_nap().min(stalled::nap()));
        let t = nap.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let counting = Counting::more();
        counting.add(What::ForRoom(s));
        let slept = if may_go(s, self.want) || s.phase() != Phase::Attached {
            Ok(0)
        } else {
            since::sleep(self.since, |mask| {
                // SAFETY: two pollfds, a time-out, a mask or null.
                let r = unsafe { real::ppoll(both.as_mut_ptr(), 2, t, mask) };
                select::where_refused(real::result(r as isize), &mut both, nap, mask)
            })
        };
        drop(counting);
        match slept {
            Err(Errno::INTR) if operator::knocked(errno) => return Ok(()),
            r => r?,
        };
        if s.phase() == Phase::Attached {
            shows::kernel_shows(s, s.live_fd(fd), both[0].revents);
        }
        Ok(())
    }

    /// Blocks on a connection on software iWARP whose octets may come by a ring; or in a program of several threads, one
    /// of which may take from the kernel what this one waits for, or send the stream back there.
    fn block_wired(&self, s: &'static Socket, fd: i32, watched: [i32; 2], naps: u64) -> Result<()> {
        let entry = |fd, events| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        let [event, ring] = watched;
        let time = within(naps.min(if event < 0 { u64::MAX } else { room_nap() }));
        let t = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let errno = real::errno();
        let counting = Counting::more();
        counting.add(What::ForRoom(s));
        // (what to watch is looked up now that whoever changes it wakes this thread: another may just have heard the answer that a
        // client waits for, which the kernel does not show twice)
        let mut all = [
            entry(fd, kernel_event(s, self.want)),
            entry(event, libc::POLLIN),
            entry(ring, libc::POLLIN),
        ];
        let slept = if may_go(s, self.want) || !wired::is_wired(s) {
            Ok(0)
        } else {
            since::sleep(self.since, |mask| {
                // SAFETY: three pollfds, a time-out or null, a mask or null.
                let r = unsafe { real::ppoll(all.as_mut_ptr(), 3, t, mask) };
                select::where_refused(real::result(r as isize), &mut all, time, mask)
            })
        };
        drop(counting);
        let [kernel, ..] = all;
        if kernel.revents != 0 {
            s.kernel_news.tell();
        }
        match slept {
            Err(Errno::INTR) if operator::knocked(errno) => Ok(()),
            r => r.map(drop),
        }
    }

    /// From the first wait on: until when the call may take.
    fn limit(&mut self, s: &Socket, fd: i32) {
        let until = |ns| match ns {
            0 => 0,
            ns => clock::monotonic_ns().saturating_add(ns),
        };
        let want = self.want;
        self.deadline
            .get_or_insert_with(|| until(timing::timeout(s, fd, want)));
    }

    /// How long (ns) it may wait still.
    fn left(&self) -> Result<u64> {
        match self.deadline.unwrap_or(0) {
            0 => Ok(u64::MAX),
            at => match at.saturating_sub(clock::monotonic_ns()) {
                0 => Err(Errno::AGAIN),
                left => Ok(left),
            },
        }
    }

    /// Blocks in the kernel, by libc's functions, which are cancellation points.
    fn block(&self, s: &'static Socket, fd: i32, kernel: bool, nap: u64) -> Result<()> {
        let fd = s.live_fd(fd);
        let deadline = self.deadline.unwrap_or(0);
        let for_room = self.want != Want::Data;
        let own_timer = for_room && net::timeout(fd, libc::SO_RCVTIMEO) > 0;
        let half = s.woken_hard.load(Ordering::Acquire);
        let naps = parked::nap(large::nap(self.want, s))
            .min(wired::nap(s, self.want))
            .min(seats::nap(s, self.want))
            .min(nap);
        let errno = real::errno();
        if for_room
            && !kernel
            && !half
            && deadline == 0
            && naps == u64::MAX
            && let Some(event) = super::rouse::event()
        {
            return self.block_among_others(s, fd, event);
        }
        let naps = naps.min(stalled::nap());
        let slice = if half { HALF_NAP_NS } else { naps };
        let left = self.left()?;
        if wired::is_wired(s) {
            let watched = [super::rouse::event(), wired::ring_event(s)].map(|fd| fd.unwrap_or(-1));
            if watched != [-1; 2] {
                return self.block_wired(s, fd, watched, slice.min(left));
            }
        }
        let plain = deadline == 0 && !own_timer && !half && naps == u64::MAX;
        if plain && !(kernel && for_room) && !may_interrupt() {
            // (one: for more it would wait as long as SO_RCVLOWAT says, which may be the program's for a moment)
            let mut byte = 0u8;
            // SAFETY: one writable byte.
            let r = unsafe {
                real::recvfrom(
                    fd,
                    (&raw mut byte).cast(),
                    1,
                    operator::SLEEP,
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                )
            };
            return match real::result(r) {
                Ok(0) if !kernel => {
                    shows::check_kernel(s, s.live_fd(fd));
                    Ok(())
                }
                Ok(_) => {
                    if !kernel {
                        shows::woken(s, s.live_fd(fd), libc::POLLIN);
                    }
                    Ok(())
                }
                Err(Errno::INTR) if operator::knocked(errno) => Ok(()),
                Err(e @ (Errno::INTR | Errno::AGAIN)) => Err(e),
                Err(_) if s.live_fd(fd) != fd => Ok(()), // closed since: that says nothing of the stream
                Err(e) if kernel => Err(recv::told_by_kernel(s, e)),
                Err(e) => {
                    cut::take(s, e);
                    s.over.store(true, Ordering::Release);
                    Ok(())
                }
            };
        }
        let events = if kernel {
            kernel_event(s, self.want)
        } else {
            libc::POLLIN | libc::POLLRDHUP
        };
        // After the program's own shutdown the kernel shows readable for ever: look now and then.
        let events = if half && !kernel { 0 } else { events };
        let slept = since::sleep(self.since, |mask| {
            poll_one(fd, events, left.min(slice), mask)
        });
        let bits = match slept {
            Err(Errno::INTR) if operator::knocked(errno) => return Ok(()),
            bits => bits?,
        };
        // The kernel has shown nothing until the time is over, as of room that is too little to tell of: that is its answer, and
        // no reason to try once more.
        let still_there = kernel && !wired::is_wired(s) && by_kernel(s, self.want);
        if bits == 0 && still_there && !may_go(s, self.want) {
            self.left()?;
        }
        if !kernel {
            shows::woken(s, s.live_fd(fd), bits);
            shows::check_shut(s, s.live_fd(fd));
        }
        Ok(())
    }
}

/// How long (ns) a sleep may be at once after the program's own shutdown, which shows as readable for ever.
const HALF_NAP_NS: u64 = 1_000_000;

/// How long a sleep for room may be at once: the event that ends it is taken back after a while, and a
/// process that was stopped meanwhile has not seen it.
const ROOM_NAP_NS: u64 = 500_000_000;

/// [`ROOM_NAP_NS`]; not where tests want to see who is not woken.
pub(crate) fn room_nap() -> u64 {
    if shows_who_is_not_woken() {
        u64::MAX
    } else {
        ROOM_NAP_NS
    }
}

/// Whether sleeps are to have no end of their own that is there for what nobody has thought of: tests want that.
pub(crate) fn shows_who_is_not_woken() -> bool {
    let settings = world::settings();
    let naps = settings.naps || settings.wired_naps && wired::mover::is_there();
    !naps
}

/// The time-out of a sleep for so long (ns); none without end.
fn within(ns: u64) -> Option<libc::timespec> {
    (ns != u64::MAX).then_some(libc::timespec {
        tv_sec: (ns / 1_000_000_000).cast_signed(),
        tv_nsec: (ns % 1_000_000_000).cast_signed(),
    })
}

/// Waits for one descriptor, `ns` nanoseconds at most.
fn poll_one(fd: i32, events: i16, ns: u64, mask: *const libc::sigset_t) -> Result<i16> {
    let mut p = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    let time = within(ns);
    let timeout = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: one pollfd, a timespec or null, a mask or null.
    let r = unsafe { real::ppoll(&raw mut p, 1, timeout, mask) };
    let mut all = [p];
    select::where_refused(real::result(r as isize), &mut all, time, mask)?;
    Ok(all[0].revents)
}

/// Makes the kernel connection quiet before a sleep on it: bells that were rung for earlier sleeps are
/// taken. Not while other threads sleep on the same socket: a bell may be for them, and they see it as
/// long as it lies there; they are on their way out, so let them. Counts this thread as asleep. False
/// if it may not sleep yet.
pub(crate) fn prepare(s: &'static Socket, fd: i32, counting: &Counting) -> bool {
    let Some(p) = s.segment() else { return false };
    for turn in 0..200 {
        if let Ok(mut rx) = s.rx.lock() {
            if rx.bells_outstanding(p) == 0 {
                counting.add(What::Asleep(s));
                return true;
            }
            if s.sleepers() == 0 {
                rx.pass_first(p);
                rx.take_bells(p, fd, usize::MAX);
                s.mirror_rx(&rx);
                counting.add(What::Asleep(s));
                drop(rx);
                crate::epoll::registered::kick_others(s, std::ptr::null());
                return true;
            }
        }
        if turn > 10 {
            sys::yield_core();
        }
    }
    // A sleeper that does not wake: it was stopped, or has died with its process. Look again in a while,
    // with an eye on the kernel connection, whose end no sleep shows now.
    let _ = s.has_others();
    shows::check_kernel(s, fd);
    let _ = time::nap(1000);
    false
}
