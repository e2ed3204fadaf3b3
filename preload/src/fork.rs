//! What happens around fork. Parent and child hold the same connections afterwards, and go on with them
//! side by side: their streams lie in memory that both have (`sockets::stream`), each stream has a seat for
//! each of them (`sockets::seats`), and its locks are theirs together, which is what others call a token:
//! whoever makes a call has it for as long as the call works on the stream, and finds all that the
//! other has received or sent. Nobody keeps it outside a call, so nobody has to be asked for it; one
//! that dies with it is replaced (`sockets::lock`).
//!
//! A stream for which there is no seat, or no memory, goes back to the kernel before the fork.

use crate::epoll::ticket::{self, Taker};
use crate::sockets::demote::{Unread, begin_many, demote_at_once};
use crate::sockets::wired::{self, mover};
use crate::sockets::{Phase, Socket, Way, family, operator, parked, rouse, seats, stalled, timing};
use crate::world::World;
use crate::{alloc, guard, mapper, poll, report, signals, table, world};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use transport::reason::Reason;
use transport::sys;
use transport::sys::fd::Fd;

/// Once, at start.
pub(crate) fn init() {
    // SAFETY: the three handlers are of the right type and live for ever.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
}

/// The signal mask while fork is under way.
static MASK: AtomicU64 = AtomicU64::new(0);

/// The child's number among those who share streams; 0 if it will share none.
static CHILD: AtomicU32 = AtomicU32::new(0);

/// Forks by `kernel`, a call that libc's handlers do not see.
pub(crate) fn around<T: PartialEq + From<i8>>(kernel: impl FnOnce() -> T) -> T {
    if world::is_foreign() || !world::is_ready() {
        return kernel();
    }
    before_fork();
    let pid = kernel();
    if pid == T::from(0) {
        in_child();
    } else {
        in_parent();
    }
    pid
}

/// Before fork: every stream gets a seat for the child; then nobody is inside the registry or the heap
/// while they are copied.
pub(crate) extern "C" fn before_fork() {
    parked::let_all_go();
    guard::lift_all();
    let mask = world::raw().hold();
    MASK.store(mask, Ordering::Relaxed);
    sys::kept::before_fork();
    // SAFETY: held just above, and no other reference is alive in this thread.
    let w = unsafe { world::raw().held() };
    let mut streams: Vec<(&'static Socket, i32)> = Vec::new();
    table::each(0, u32::MAX, |fd, entry| {
        if let table::Entry::Socket(s) = entry
            && (matches!(s.phase(), Phase::Fresh | Phase::Announced) || s.phase().is_fast())
        {
            streams.push((s, fd));
        }
    });
    // (what sharing needs is not made in a sandbox, which may kill for it)
    let may_share = family::is_ready() || !signals::is_sandboxed();
    let child = if streams.is_empty() || !may_share || !rouse::prepare() {
        None
    } else {
        family::expect_child()
    };
    begin_many();
    for &(s, fd) in &streams {
        wired::end_ring(s, fd); // the adapter is this process's
        if !child.is_some_and(|child| seats::share(s, child)) {
            demote_at_once(w, s, fd, Reason::Forked, Unread::GiveBack);
        }
        wired::end_ring(s, fd); // (settles one that has been made meanwhile)
        timing::retime(s);
    }
    CHILD.store(child.unwrap_or(0), Ordering::Relaxed);
    for family in w.families.iter_mut().flatten() {
        family.before_fork();
    }
    for set in &w.sets {
        set.note_others();
        set.part_with_child();
    }
    if child.is_some() {
        for set in &w.sets {
            set.hear_others();
            ticket::disturb(set, Taker::Change); // the child may take its bell
        }
    }
    drop(streams);
    w.pool.copy_for_child(child.unwrap_or(0));
    mover::before_fork();
    mapper::before_fork();
    alloc::OWN.hold();
}

pub(crate) extern "C" fn in_parent() {
    alloc::OWN.let_go();
    mapper::in_parent();
    mover::in_parent();
    // SAFETY: held since `before_fork`, and no other reference is alive in this thread.
    unsafe { world::raw().held() }.pool.drop_copies();
    world::raw().let_go(MASK.load(Ordering::Relaxed));
    if CHILD.load(Ordering::Relaxed) != 0 {
        mover::has_child();
    }
}

pub(crate) extern "C" fn in_child() {
    alloc::OWN.let_go();
    // (in a sandbox, where the question may kill, nobody asks for it any more)
    let sandboxed = signals::is_sandboxed();
    if !sandboxed {
        world::set_pid(sys::pid());
    }
    sys::retired::in_child();
    crate::service::in_child();
    mover::in_child();
    mapper::in_child();
    guard::in_child();
    // SAFETY: held since `before_fork`, and there is no other thread.
    let w = unsafe { world::raw().held() };
    let child = CHILD.load(Ordering::Relaxed);
    if child != 0 {
        family::be_born(child);
    }
    let inherits = inherit(w, child);
    if child == 0 {
        rouse::restart();
        family::part();
    }
    operator::restart();
    stalled::restart();
    poll::forked();
    for set in &w.sets {
        set.reset();
    }
    signals::in_child();
    // The client side belongs to the parent: its slots are handed out there. So does the kernel's
    // answering machine, whose answers would be mixed up.
    if let Some(targets) = w.targets.take()
        && inherits
    {
        targets.leave_mapped();
    }
    w.diag = None;
    if !sandboxed {
        w.pool.rename();
    }
    report::restart(w);
    for family in w.families.iter_mut().flatten() {
        family.join();
    }
    world::raw().let_go(MASK.load(Ordering::Relaxed));
}

/// Takes on the sockets: those whose streams are shared, and copies of the others. True if some of the
/// shared ones lie in memory of the client side.
fn inherit(w: &mut World, child: u32) -> bool {
    let mut inherits = false;
    w.lingering.clear();
    w.pool.part(child, |s| {
        // SAFETY: under the registry lock.
        let way = unsafe { &mut *s.way.get() };
        if matches!(way, Way::Client { .. }) {
            inherits = true;
            *way = Way::Inherited;
        }
    });
    w.pool.each(|s| {
        s.restart_counts();
        let shadow = s.shadow.swap(-1, Ordering::Relaxed);
        if shadow >= 0 {
            drop(Fd::own(shadow)); // for threads of the parent
        }
        // What the parent has carried is in the parent's report.
        for c in [
            &s.record.bytes_sent,
            &s.record.bytes_received,
            &s.record.messages_sent,
            &s.record.messages_received,
        ] {
            c.store(0, Ordering::Relaxed);
        }
    });
    inherits
}
