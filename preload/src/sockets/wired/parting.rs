//! What a process does with its connections in RDMA mode before it ends or becomes another program: what the kernel would
//! send, as it has taken it, here lies in the process still.
//!
//! Called by the hooks of exit, exec and what kills (`parked::before_death`), by whatever thread makes that call. What kills the
//! process from outside finds it as it is.

use super::super::parked::{self, Left};
use super::super::{Socket, cut, demote, seats};
use super::{ending, leaving, mover, opening, turns};
use crate::table;
use crate::world;
use std::sync::atomic::{AtomicBool, Ordering};
use transport::clock;
use transport::sys::{net, time};
use transport::wire::Return;

/// How long (µs) a peer may take, where the end of the program waits for it, to hear that this side has ended (as the mover's `WORDS_US`).
const LAST_WORDS_US: u64 = 20_000;
/// The same of a peer on another host whose kernel has to acknowledge that first: how long it may acknowledge nothing, and how long the
/// program's end waits at most while it does. (What comes from such a peer too late is answered with a reset, and that drops the rest.)
const UNHEARD_US: u64 = 200_000;
const UNHEARD_MOST_US: u64 = 5_000_000;
/// How long (µs) the end of a process that kills itself waits for what is under way.
const KILLED_US: u64 = 5_000_000;
/// How long (µs) an end that is none of haste waits while nothing moves, since what has not gone then is lost: for a reader that
/// pauses, and for a server that has not accepted yet.
const PAUSE_US: u64 = 20_000_000;
const ACCEPT_US: u64 = 60_000_000;
/// The same where its parent, or others, hold all that has something: they go on with it, and may be waiting for this one to end.
const SHARED_US: u64 = 200_000;
/// The same where a signal ends it that the program does not handle, and how long it takes then at most: whoever sends that expects
/// the end.
const SIGNALLED_US: u64 = 100_000;
const SIGNALLED_MOST_US: u64 = 1_000_000;
/// How long (µs) it is between two looks whether anything does.
const LOOK_US: u64 = 20_000;
/// The same where it kills itself and nothing moves: the peer does not read.
const STILL_US: u64 = 1_000_000;

/// The process ends, and has shut connections that its threads may still send on.
static PARTING: AtomicBool = AtomicBool::new(false);

/// The process ends: what waits is going, or has gone.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The process ends, or is about to become another program: what waits goes now, within reason.
pub(crate) fn at_exit(ends: bool) {
    if !world::is_foreign() {
        if ends {
            ENDING.store(true, Ordering::SeqCst);
        }
        leave_all(ends, None);
    }
}

/// The process ends by a signal that the program does not handle. (It may have interrupted the above.)
pub(crate) fn at_signal() {
    if !world::is_foreign() && !ENDING.swap(true, Ordering::SeqCst) {
        leave_all(true, Some(clock::ticks()));
    }
}

fn leave_all(ends: bool, signalled: Option<u64>) {
    if ends {
        cut::before_end();
    }
    // (what a peer has asked for again since this program last called is found now)
    table::each(0, u32::MAX, |fd, entry| {
        if let table::Entry::Socket(s) = entry {
            demote::attend(s, fd);
            if ends {
                leaving::forget_ring_of_plain(s, fd);
            }
        }
    });
    parked::settle_owed();
    if mover::has_begun() {
        let_all_go(ends, signalled);
        if turns::are_shared() {
            turns::halt();
        }
    }
    if ends && opening::has_begun() {
        // (a thread that is about to send is not to hear of it)
        PARTING.store(true, Ordering::SeqCst);
        crate::signals::ignore(libc::SIGPIPE);
        world::lock().pool.each(ending::end_with_process);
    }
}

/// What is under way and can go yet.
#[derive(Clone, Copy, Default)]
struct UnderWay {
    /// Connections that have some.
    any: bool,
    /// The octets that the kernel has not taken.
    octets: usize,
}

/// What is under way, the mover's too, is moved by whoever waits for that; of streams that other processes hold, if `all`.
/// What is found, since the mover may take it in its hands again at once: then whoever moves what is left finds nothing.
fn note_under_way(all: bool) -> UnderWay {
    let mut found = UnderWay::default();
    world::lock().pool.each(|s| {
        // (what its program sends while the peer gives something back waits here)
        let lies = || super::waiting::is_under_way(s) || super::waiting::is_waiting(s);
        if super::is_wired(s) && (all || !s.is_shared()) && lies() {
            let fd = s.own_fd(s.record.fd.load(Ordering::Relaxed).cast_signed());
            let _ = parked::keep(s, fd); // (where there is no place: as soon as there is)
            if fd >= 0 && super::waiting::waits(s, fd) {
                found.any = true;
                found.octets += super::waiting::unsent(s);
            }
        }
    });
    found
}

/// The process kills itself: waits until the kernel has what a send has taken, which would have waited for that itself, and has
/// the peers hear that nothing is parked. (What others hold too they go on with.)
pub(crate) fn await_taken() {
    let begun = clock::ticks();
    let (mut left, mut moved) = (0, begun);
    loop {
        let (found, now) = (note_under_way(false), clock::ticks());
        if found.octets != left {
            (left, moved) = (found.octets, now);
        }
        parked::release_all();
        let is_under_way = (parked::move_wired(0) != Left::Nothing) | found.any || is_any_parting();
        if !is_under_way || now - moved > clock::us(STILL_US) || now - begun > clock::us(KILLED_US)
        {
            break;
        }
        let _ = time::nap(200);
    }
    super::riding::await_agreed();
    world::lock().pool.each(super::waiting::clear);
}

/// Whether a peer that reads what is in the kernel may answer a connection that is no more, which loses it the rest.
fn is_any_parting() -> bool {
    let mut any = false;
    world::lock().pool.each(|s| {
        any |= super::is_wired(s) && ending::is_parting(s, s.own_fd(-1), false);
    });
    any
}

/// Streams that others have held too and hold no more end as if nobody had: it is for this process to say the last words.
fn unshare_all() {
    let mut shared = Vec::new();
    world::lock().pool.each(|s| {
        if super::is_wired(s) && s.is_shared() {
            shared.push(s);
        }
    });
    shared.iter().for_each(|s| seats::unshare(s));
}

/// A ring ends with the process: what has reached the peer's memory has reached it, and the kernel tells of the end.
fn end_rings() {
    let mut riders = Vec::new();
    world::lock().pool.each(|s| {
        if super::riding::rides(s) {
            riders.push(s);
        }
    });
    super::riding::part(&riders);
}

/// [`at_exit`] with connections in RDMA mode.
fn let_all_go(ends: bool, signalled: Option<u64>) {
    if ends {
        unshare_all();
    }
    let _ = note_under_way(true);
    end_rings();
    parked::release_all();
    let mut open = Vec::new();
    world::lock().pool.each(|s| {
        if super::is_wired(s) {
            open.push(s);
        }
    });
    let mut is_leaving = || {
        open.retain(|s| ending::is_parting(s, s.own_fd(-1), ends));
        !open.is_empty()
    };
    let begun = clock::ticks();
    // (each time: the mover may just have one in its hands)
    let mut is_under_way = || {
        let found = note_under_way(true).any;
        let late = clock::ticks() - begun > clock::us(UNHEARD_MOST_US);
        let stay = mover::Stay {
            words: LAST_WORDS_US,
            still: if late { 0 } else { UNHEARD_US },
        };
        found | (parked::move_wired(0) != Left::Nothing) | mover::linger(stay) || is_leaving()
    };
    let mut patience = Patience::new(signalled);
    while is_under_way() {
        if patience.is_over() {
            world::lock().pool.each(give_up);
            mover::give_up();
            break;
        }
        let _ = time::nap(patience.nap());
    }
    world::lock().pool.each(super::waiting::clear);
    if ends {
        say_farewell(signalled);
    }
}

/// How long the end waits for peers that take nothing.
struct Patience {
    /// Octets that have not reached a peer's kernel, and since when that is so.
    left: usize,
    moved: u64,
    looked: u64,
    /// When a signal came that ends the process.
    signalled: Option<u64>,
}

impl Patience {
    fn new(signalled: Option<u64>) -> Self {
        let (left, moved, looked) = (0, clock::ticks(), 0);
        Self {
            left,
            moved,
            looked,
            signalled,
        }
    }

    /// How long (µs) it is until the next look: what has stood still for long may do so for longer.
    fn nap(&self) -> u64 {
        let still = clock::ns(clock::ticks().saturating_sub(self.moved)) / 1000;
        (still / 32).clamp(200, 10_000)
    }

    fn is_over(&mut self) -> bool {
        let now = clock::ticks();
        if now - self.looked < clock::us(LOOK_US) {
            return false;
        }
        let (mut left, mut unanswered) = mover::left();
        let (mut own, mut shared) = (left > 0 || unanswered, false);
        world::lock().pool.each(|s| {
            let fd = s.own_fd(-1);
            if super::is_wired(s) && fd >= 0 {
                left += super::waiting::unsent(s) + net::unsent(fd);
                unanswered |= super::waiting::is_waiting(s);
                if super::waiting::waits(s, fd) {
                    let others = s.is_shared() && s.has_others();
                    (own, shared) = (own || !others, shared || others);
                }
            }
        });
        self.looked = now;
        if left != self.left {
            (self.left, self.moved) = (left, now);
        }
        let most = match self.signalled {
            Some(then) if now - then >= clock::us(SIGNALLED_MOST_US) => return true,
            Some(_) => SIGNALLED_US,
            None if shared && !own && turns::has_parent() => SHARED_US,
            None if unanswered => ACCEPT_US,
            None => PAUSE_US,
        };
        now - self.moved >= clock::us(most)
    }
}

/// What has been sent and has not gone is lost: the peer is not to take the end of that for the end of the stream. (Where it sees that
/// by itself the kernel goes on with what it has, which a reset would take from it.)
fn give_up(s: &'static Socket) {
    let fd = s.own_fd(-1);
    let lost = || super::waiting::unsent(s) > 0 && !super::waiting::is_cut(s);
    if super::is_wired(s) && fd >= 0 && !s.is_shared() && lost() {
        net::reset_on_close(fd);
    }
}

/// The process ends with connections open whose peers may just be saying something, which would be answered with a reset:
/// they hear of the end first, as in `is_done`.
fn say_farewell(signalled: Option<u64>) {
    let mut open = Vec::new();
    world::lock().pool.each(|s| {
        if super::is_wired(s) {
            open.push(s);
        }
    });
    PARTING.store(true, Ordering::SeqCst);
    // (on this host nothing overtakes the end, and elsewhere nothing does that is behind its acknowledgement)
    let waits = |fd| !ending::is_near(fd) && !net::is_end_heard(fd);
    open.retain(|s| {
        let fd = s.own_fd(-1);
        ending::ends_first(s, fd) && waits(fd)
    });
    let (still, most) = match signalled {
        Some(_) => (SIGNALLED_US, SIGNALLED_MOST_US),
        None => (UNHEARD_US, UNHEARD_MOST_US),
    };
    let begun = clock::ticks();
    let (mut left, mut moved, mut now) = (0, begun, begun);
    while !open.is_empty() && now - moved < clock::us(still) && now - begun < clock::us(most) {
        let _ = time::nap((clock::ns(now - begun) / 32_000).clamp(200, 10_000));
        now = clock::ticks();
        let mut unsent = 0;
        open.retain(|s| {
            let fd = s.own_fd(-1);
            unsent += net::unsent(fd);
            ending::may_hear(s, fd) && waits(fd)
        });
        if unsent != left {
            (left, moved) = (unsent, now);
        }
    }
}

/// The process is killed by what this thread does next ([`await_taken`] came before): peers that are just saying something, which is
/// answered with a reset, have heard of the end then. Not where something may be lost with the process.
pub(crate) fn say_end() {
    if world::is_foreign() || !mover::has_begun() {
        return;
    }
    PARTING.store(true, Ordering::SeqCst);
    world::lock().pool.each(|s| {
        let may_lack = || {
            super::wire(s).is_none_or(|wire| {
                let returns = |what| wire.common.is_returning(what);
                wire.common.ring.get().is_some() || returns(Return::Asked) || returns(Return::Waits)
            })
        };
        if super::is_wired(s) && !may_lack() && !super::waiting::is_under_way(s) {
            ending::ends_first(s, s.own_fd(-1));
        }
    });
}

/// The process goes on, as it could not become another program.
pub(crate) fn go_on() {
    turns::go_on();
}

/// A thread sends on what was shut because the process ends: it is not to hear of that. False: it was not.
pub(crate) fn outlives() -> bool {
    let parts = PARTING.load(Ordering::SeqCst);
    if parts {
        let _ = time::nap(2 * LAST_WORDS_US);
    }
    parts
}
