//! One registration in an epoll set: what the program asked for, and what it has been told.
//!
//! The rules of the kernel, kept here for attached sockets: level-triggered registrations are reported
//! while the condition holds; edge-triggered ones once per arrival, end, or room after a lack of it;
//! ONESHOT ones once until modified; ERR and HUP are always reported.

mod wishes;

use super::set::Set;
use crate::sockets::ready::{self, Ask};
use crate::sockets::{Phase, Socket, wired};
use std::sync::atomic::Ordering;
use wishes::Waker;

pub(crate) const ET: u32 = libc::EPOLLET.cast_unsigned();
/// Who asks for one of these is told of data that arrives.
const DATA: u32 =
    (libc::EPOLLIN | libc::EPOLLPRI | libc::EPOLLRDNORM | libc::EPOLLRDBAND).cast_unsigned();
/// Who asks for one of these is told of room.
const ROOM: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM).cast_unsigned();
pub(crate) const ONESHOT: u32 = libc::EPOLLONESHOT.cast_unsigned();
pub(crate) const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE.cast_unsigned();
pub(crate) const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP).cast_unsigned();

/// Of what has been seen of edges: the kernel connection's failure stays, though its error goes with whoever takes it.
const FAILED: u64 = (libc::EPOLLERR as u64) << 58;
/// What a registration is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject {
    Socket(&'static Socket, u32),
    /// Another epoll set.
    Set(&'static Set),
    /// Any other descriptor, whose `data` happens to look like one of ours.
    Other,
}

impl Subject {
    /// The socket, if it is still the one that was registered.
    pub(crate) fn socket(self) -> Option<&'static Socket> {
        match self {
            Self::Socket(s, generation) if s.generation.load(Ordering::Acquire) == generation => {
                Some(s)
            }
            _ => None,
        }
    }
}

/// How an entry is looked after in user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heed {
    /// Not at all: it is the kernel's alone.
    None,
    /// When its bell has rung. It is counted among the set's engaged ones.
    Bell,
    /// At each look: it is on the list of the hot ones, and counted too.
    Hot,
    /// The same, and somebody has had it looked at since it was last wished for: what was wished for may be gone, or too little by
    /// now, so it cannot be left to its bell.
    Asked,
}

impl Heed {
    pub(super) const fn is_hot(self) -> bool {
        matches!(self, Self::Hot | Self::Asked)
    }
}

/// What the kernel has been asked for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The program's own registration: what the kernel tells of it goes to the program as it is.
    Programs,
    /// What the program asked for, with our tag: the kernel says when to look, and what is told is told from here.
    Beside,
    /// Edges, for bells and the end, with our tag.
    Ours,
    /// One of these two, by a number that is another's by now: it cannot be changed, though its socket is the kernel's alone. What the
    /// kernel tells of it says when to look.
    OutOfReach,
}

/// One registration.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) subject: Subject,
    pub(crate) fd: i32,
    pub(crate) events: u32,
    pub(crate) data: u64,
    pub(crate) asked: Asked,
    /// Deleted by the program; the kernel's registration, which is ours, is kept for when it is added
    /// again: event loops do that for every message.
    pub(crate) parked: bool,
    /// See `Inner::orphans`.
    pub(crate) orphan: bool,
    pub(super) heed: Heed,
    /// Which of those that have had its number it is: see [`super::set::TAG`].
    pub(super) turn: u16,
    /// What wakes for it, as of its last wish.
    waker: Waker,
    /// The kernel does not watch the event of its ring.
    unwatched: bool,
    /// ONESHOT, and has been reported.
    disabled: bool,
    seen_edge: u64,
    seen_lack: u32,
    /// Not reported since it was added or modified.
    pub(super) fresh: bool,
    /// Looks in a row that found nothing.
    pub(crate) idle: u16,
    /// The call that last reported it.
    pub(crate) reported_in: u32,
    /// The call during which the registration became ours: until then the kernel may have reported it
    /// as the program's own, and the same readiness must not be told twice.
    pub(crate) managed_in: u32,
}

/// One cache line: there are as many as there are connections.
const _: () = assert!(size_of::<Option<Entry>>() <= 64);

/// poll(2) bits and epoll bits are the same numbers for all that a socket can show.
const fn poll_bits(events: u32) -> i16 {
    (events & 0x7fff) as u16 as i16
}

impl Entry {
    pub(crate) const fn new(subject: Subject, fd: i32, events: u32, data: u64) -> Self {
        Self {
            subject,
            fd,
            events,
            data,
            asked: Asked::Programs,
            parked: false,
            orphan: false,
            heed: Heed::None,
            turn: 0,
            waker: Waker::Bell,
            unwatched: false,
            disabled: false,
            seen_edge: 0,
            seen_lack: 0,
            fresh: true,
            idle: 0,
            reported_in: 0,
            managed_in: 0,
        }
    }

    /// Whether what is told of it is told from here: the kernel's registration has our tag.
    pub(crate) fn is_managed(&self) -> bool {
        self.asked != Asked::Programs
    }

    /// Whether its socket has gone back to the kernel, or is a listener by now, and its registration has not.
    pub(super) fn is_stale(&self) -> bool {
        self.is_managed()
            && self.asked != Asked::OutOfReach
            && self.socket().is_some_and(|s| match s.phase() {
                Phase::Plain | Phase::Listening => !ready::is_ours(s),
                _ => self.asked == Asked::Ours && !ready::is_ours(s),
            })
    }

    /// Whether it can be left to its bell, or to the kernel's word: not where the answer of its server comes in memory, without one.
    pub(super) fn has_bell(&self) -> bool {
        match self.asked {
            Asked::Programs => false,
            Asked::Beside => self.socket().is_some_and(|s| s.phase() != Phase::Announced),
            Asked::Ours | Asked::OutOfReach => matches!(self.subject, Subject::Socket(..)),
        }
    }

    /// Whether the kernel alone knows of anything that there may be, and says so.
    pub(super) fn is_by_kernel(&self) -> bool {
        self.asked == Asked::Beside
            && self
                .socket()
                .is_some_and(|s| matches!(s.phase(), Phase::Idle | Phase::Fresh))
    }

    /// Whether the kernel's registration can be changed: the number still stands for what was registered.
    pub(super) fn is_in_reach(&self) -> bool {
        self.socket().is_none_or(|s| s.is_own(self.fd))
    }

    /// Whether it is looked after in user space.
    pub(super) fn is_counted(&self) -> bool {
        self.heed != Heed::None
    }

    pub(super) fn is_hot(&self) -> bool {
        self.heed.is_hot()
    }

    /// Whether it can be the event of its ring that tells of it: such an event may outlive what it was for, and the entry be
    /// another's.
    pub(crate) fn has_ring(&self) -> bool {
        self.is_managed() && matches!(self.subject, Subject::Socket(..))
    }

    /// Notes whether its ring's event wakes nobody, because the kernel would not watch it (its limits).
    pub(crate) const fn set_unwatched(&mut self, unwatched: bool) {
        self.unwatched = unwatched;
    }

    /// Whether it is silent until it is modified.
    pub(crate) const fn is_disabled(&self) -> bool {
        self.disabled
    }

    /// Whether a bell may be for it: not if it is silent until it is modified (which makes a sleeper look), or asks for
    /// nothing but what the kernel tells by itself.
    pub(crate) const fn waits_for_bells(&self) -> bool {
        let asks =
            self.events & !(ET | ONESHOT | EXCLUSIVE | ALWAYS | libc::EPOLLWAKEUP.cast_unsigned());
        !self.disabled && !self.parked && asks != 0
    }

    /// Whether it is told of data that arrives.
    pub(crate) const fn asks_for_data(&self) -> bool {
        self.events & DATA != 0
    }

    /// Whether the kernel tells of it once only, and by the program's own registration: what is told to us is lost to the program.
    pub(crate) fn is_kernels_edge(&self) -> bool {
        (!self.is_managed() || self.orphan) && self.events & (ET | ONESHOT) != 0
    }

    /// Takes a modification.
    pub(crate) const fn modify(&mut self, events: u32, data: u64) {
        self.events = events;
        self.data = data;
        self.disabled = false;
        self.fresh = true;
        self.idle = 0;
    }

    /// The socket, if it is still the one that was registered.
    pub(crate) fn socket(&self) -> Option<&'static Socket> {
        self.subject.socket()
    }

    /// What the kernel's registration of a managed entry asks for.
    pub(crate) fn kernel_events(&self) -> u32 {
        // On software iWARP the kernel says when there is room.
        let room = if self.socket().is_some_and(wired::is_wired) {
            libc::EPOLLOUT.cast_unsigned()
        } else {
            0
        };
        room | (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI).cast_unsigned() | ET
    }

    /// What is asked of the kernel where that says when to look. One that is told once is told from here once: its
    /// registration must not go on telling.
    pub(super) const fn events_beside(&self) -> u32 {
        let once = if self.events & ONESHOT != 0 { ET } else { 0 };
        self.program_events() & !ONESHOT | once
    }

    /// What the program's own registration would be in the kernel now.
    pub(crate) const fn program_events(&self) -> u32 {
        // (a parked entry has none in the kernel: it is deleted there when it stops being ours)
        if self.disabled {
            self.events & (ET | ONESHOT)
        } else {
            self.events
        }
    }

    /// Looks, and says what to report now. Counts as reported if it does.
    pub(crate) fn report(&mut self) -> Option<u32> {
        if self.disabled || self.parked {
            return None;
        }
        let bits = match self.subject {
            Subject::Socket(..) => {
                let s = self.socket()?;
                let fd = self.number(s);
                // (asks the kernel while the stream is still on it, so not where nobody wants to know)
                let edges = self.events & ET != 0;
                let data = self.events & DATA != 0;
                // (the kernel's registration tells of what is new, by an edge)
                let ask = if self.is_managed() {
                    Ask::Told
                } else {
                    Ask::Needed
                };
                let edge = if edges {
                    ready::edge(s, fd, data, ask)
                } else {
                    0
                };
                let lack = s.no_room.load(Ordering::Relaxed);
                let seen = edge == self.seen_edge && lack == self.seen_lack;
                if edges && seen && !self.fresh && self.is_managed() && ready::is_still(s) {
                    return None;
                }
                let bits = ready::bits(s, fd, poll_bits(self.events), ask);
                let hit = bits.cast_unsigned().into_u32() & (self.events | ALWAYS);
                if hit == 0 {
                    return None;
                }
                if edges {
                    let room = hit & ROOM != 0;
                    let ended = hit & libc::EPOLLRDHUP.cast_unsigned() != 0
                        && !s.rx_shut.load(Ordering::Relaxed);
                    let over = ended || hit & libc::EPOLLHUP.cast_unsigned() != 0;
                    // (the kernel's connection, which may be over long after the end of file, or fail behind both, tells of that by itself)
                    let wired = u64::from(s.phase() == Phase::Wired);
                    let there = (wired * u64::from(hit & ALWAYS)) << 58 | self.seen_edge & FAILED;
                    let new = edge ^ there != self.seen_edge;
                    if !(self.fresh || new || room && lack != self.seen_lack) {
                        return None;
                    }
                    // (behind the peer's end, or both, nothing comes any more; the look itself may have heard of it)
                    self.seen_edge = there
                        ^ if over {
                            ready::edge(s, fd, data, ask)
                        } else {
                            edge
                        };
                    if room {
                        // (what is told without it leaves the room to be told when it comes)
                        self.seen_lack = lack;
                    }
                }
                hit
            }
            Subject::Set(inner) => {
                let hit = self.events & libc::EPOLLIN.cast_unsigned();
                // (before the question that takes off the kernel's list what it would tell the outer set of)
                let edges = self.events & ET != 0;
                let is_new = !edges || self.fresh || inner.edge() != self.seen_edge;
                // (of one that is closed the kernel has no registration any more, and its number may be another's)
                if hit == 0 || !is_new || inner.is_closed() || !inner.has_ready() {
                    return None;
                }
                if edges {
                    self.seen_edge = inner.edge(); // (with what that look has found)
                }
                hit
            }
            Subject::Other => return None,
        };
        self.fresh = false;
        if self.events & ONESHOT != 0 {
            self.disabled = true;
        }
        Some(bits)
    }

    /// A number by which the kernel can be asked of it: the program may have closed the one that it has registered, which is
    /// another's by now.
    pub(super) fn number(&self, s: &Socket) -> i32 {
        s.own_fd(self.fd)
    }

    /// Whether there is certainly nothing to report: a few loads.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.parked
            || (self.is_managed()
                && self.events & ROOM == 0
                && self.socket().is_some_and(ready::is_quiet))
    }

    /// Whether [`Self::report`] would report something, without counting it as reported.
    pub(crate) fn is_ready(&mut self) -> bool {
        let before = (self.disabled, self.seen_edge, self.seen_lack, self.fresh);
        let ready = self.report().is_some();
        (self.disabled, self.seen_edge, self.seen_lack, self.fresh) = before;
        ready
    }

    /// Whether nothing is sure to wake for it: so a reader's patience that runs (`parked`).
    pub(crate) fn is_unsure(&self) -> bool {
        matches!(self.waker, Waker::None)
            || self
                .socket()
                .is_some_and(|s| s.starving.load(Ordering::Relaxed) != 0)
    }

    /// The kernel has reported something of this entry: look at it as at a new one where edges count.
    pub(crate) fn stir(&mut self, events: u32) {
        self.idle = 0;
        // What lies on the kernel alone does not show in the segment's words. (Room does, as sends that found none are counted; the
        // kernel tells of it whenever a registration is changed, as it is where this one becomes ours.)
        let shows = |s: &Socket| match s.phase() {
            Phase::Attached | Phase::Wired => true,
            Phase::Opening => events & !ROOM == 0,
            _ => ready::is_broken(s), // (nor does the kernel have anything new there)
        };
        self.fresh |= !self.socket().is_some_and(shows);
    }

    /// What it would report counts as new.
    pub(crate) const fn stir_anew(&mut self) {
        (self.idle, self.fresh) = (0, true);
    }
}

trait IntoU32 {
    fn into_u32(self) -> u32;
}

impl IntoU32 for u16 {
    fn into_u32(self) -> u32 {
        u32::from(self)
    }
}
