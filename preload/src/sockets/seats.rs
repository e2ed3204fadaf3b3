//! Who holds a stream: a seat for each process, in the memory that they share. A process takes one for its
//! child before fork, and leaves its own when it closes its last descriptor; whoever finds every other
//! seat empty is the last and may end the stream, or use it as if nobody had ever shared it.
//!
//! Rule: a seat is given up for its holder only when the kernel says that it has died (`family`).

use super::{Socket, family, wired};
use flowctl::any::{Receiver, Sender};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use transport::sdp::Place;

/// Processes that can hold one stream at a time; what a further child would need goes to the kernel.
pub(crate) const SEATS: usize = 8;

/// The holder has been forked and does not run yet.
const UNBORN: u32 = 1 << 31;
/// The holder is closing: it does not go on with the stream, but is not done with its memory.
const LEAVING: u32 = 1 << 30;

/// One process's place at a stream.
#[derive(Debug)]
struct Seat {
    /// Member of the family; 0 for nobody.
    holder: AtomicU32,
    /// Its threads asleep in the kernel on this very connection.
    sleepers: AtomicU32,
    /// Those of them that `rouse` wakes.
    roomers: AtomicU32,
    /// Its epoll sets that hold the connection.
    sets: AtomicU32,
}

impl Seat {
    const fn new() -> Self {
        Self {
            holder: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            roomers: AtomicU32::new(0),
            sets: AtomicU32::new(0),
        }
    }

    fn clear(&self) {
        for count in [&self.sleepers, &self.roomers, &self.sets] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

/// All places at one stream. Before the first fork the one process sits at the first, nameless.
#[derive(Debug)]
pub(crate) struct Seats([Seat; SEATS]);

impl Seats {
    pub(crate) const fn new() -> Self {
        Self([const { Seat::new() }; SEATS])
    }

    fn at(&self, seat: usize) -> Option<&Seat> {
        self.0.get(seat)
    }

    /// This process, which alone knew of the stream, or has a seat, sits down by name.
    pub(crate) fn name(&self, seat: usize) {
        if let Some(s) = self.at(seat) {
            s.holder.store(family::me(), Ordering::Release);
        }
    }

    /// Takes a seat for a child that is about to be forked. `None` if all are taken by the living.
    pub(crate) fn take_for_child(&self, child: u32) -> Option<usize> {
        self.0.iter().position(|s| {
            let holder = s.holder.load(Ordering::Acquire);
            if holder == child | UNBORN {
                return true;
            }
            let free = holder == 0 || !is_alive(holder);
            let taken = free
                && s.holder
                    .compare_exchange(holder, child | UNBORN, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok();
            if taken {
                s.clear();
            }
            taken
        })
    }

    /// Whether a seat was taken for this child, which does not run yet.
    pub(crate) fn expects(&self, child: u32) -> bool {
        let theirs = |s: &Seat| s.holder.load(Ordering::Acquire) == child | UNBORN;
        child != 0 && self.0.iter().any(theirs)
    }

    /// The seat that was taken for this process before it was forked; from now on it is seen to live.
    pub(crate) fn sit(&self, me: u32) -> Option<usize> {
        self.0.iter().position(|s| {
            s.holder
                .compare_exchange(me | UNBORN, me, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        })
    }

    /// This process begins to close the stream. True if nobody goes on with it, so that one of those who
    /// leave has to end it. Its memory is kept until [`Self::leave`].
    pub(crate) fn begin_to_leave(&self, seat: usize) -> bool {
        if let Some(s) = self.at(seat) {
            s.holder.fetch_or(LEAVING, Ordering::AcqRel);
        }
        let stays = |s: &Seat| {
            let holder = s.holder.load(Ordering::Acquire);
            holder != 0 && holder & LEAVING == 0 && is_alive(holder)
        };
        !self.0.iter().any(stays)
    }

    /// Gives up this process's seat, as the last thing that it does with the stream.
    pub(crate) fn leave(&self, seat: usize) {
        if let Some(s) = self.at(seat) {
            s.clear();
            s.holder.store(0, Ordering::Release);
        }
    }

    /// Whether anybody else holds the stream. Seats of the dead are cleared on the way.
    pub(crate) fn has_others(&self, mine: Option<usize>) -> bool {
        let mut others = false;
        for (i, s) in self.0.iter().enumerate() {
            let holder = s.holder.load(Ordering::Acquire);
            if holder == 0 || Some(i) == mine {
                continue;
            }
            if is_alive(holder) {
                others = true;
            } else {
                s.clear();
                let _ = s
                    .holder
                    .compare_exchange(holder, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
        others
    }

    fn sum_of_others(&self, mine: usize, of: impl Fn(&Seat) -> &AtomicU32) -> u32 {
        let others = self.0.iter().enumerate().filter(|(i, _)| *i != mine);
        others
            .map(|(_, s)| of(s).load(Ordering::SeqCst))
            .fold(0, u32::wrapping_add)
    }
}

fn is_alive(holder: u32) -> bool {
    if holder & UNBORN != 0 {
        return family::may_be_born();
    }
    family::is_alive(holder & !LEAVING)
}

/// What a stream needs only while several processes hold it: who they are, and the states to go back to
/// when one dies in the middle of a call. It lies beside the streams, untouched until then.
#[derive(Debug)]
pub(crate) struct Sharing {
    pub(crate) seats: Seats,
    /// A holder is taking the stream back to the kernel, with both its locks: see [`super::stream::Stream::is_torn`].
    pub(crate) leaving: AtomicBool,
    tx: Place<Sender>,
    rx: Place<Receiver>,
}

/// Makes room for a child at the socket's stream. False if there is none.
pub(crate) fn share(s: &Socket, child: u32) -> bool {
    let (Ok(mut tx), Ok(mut rx)) = (s.tx.lock_soon(), s.rx.lock_soon()) else {
        // Somebody who holds it too was stopped in the middle of a call. It stays shared meanwhile.
        let taken = s.is_shared()
            && s.seats()
                .is_some_and(|seats| seats.take_for_child(child).is_some());
        s.tell_counts();
        return taken;
    };
    let at = s.sharing_place();
    let first = s.seats().is_none();
    if first {
        // SAFETY: memory beside the stream, which nobody looks at before it is shown.
        unsafe {
            (&raw mut (*at).seats).write(Seats::new());
            (&raw mut (*at).leaving).write(false.into());
        }
        s.sit_at(0);
        s.show_seats();
    }
    let Some(seats) = s.seats() else {
        return false;
    };
    seats.name(s.seat());
    if seats.take_for_child(child).is_none() {
        return false;
    }
    if !s.is_shared() {
        // SAFETY: as above, each used under its own lock.
        let (tx_place, rx_place) = unsafe { (&mut (*at).tx, &mut (*at).rx) };
        // What waits for the reader is this process's only.
        if s.segment().is_some_and(|p| tx.end_advert(p)) {
            super::rouse::sleepers(s);
        }
        if let Some(p) = s.segment() {
            p.disown();
        }
        tx.share(Some(tx_place));
        rx.share(Some(rx_place));
        wired::share(s, true);
    }
    s.tell_counts();
    true
}

/// No other process holds the stream any more: it is used as if none ever had. Looks that cost system
/// calls call this now and then.
pub(crate) fn unshare(s: &Socket) {
    if !s.has_others()
        && let (Ok(mut tx), Ok(mut rx)) = (s.tx.lock(), s.rx.lock())
        && !s.has_others()
        && !s.is_torn()
    // (a fork takes seats under these locks)
    {
        wired::share(s, false);
        tx.share(None);
        rx.share(None);
        // (in a sandbox it stays unsaid: this process would have to look who it is)
        if let Some(p) = s.segment().filter(|_| !crate::signals::is_sandboxed()) {
            p.own();
        }
    }
}

/// How long (ns) a sleep for data may be at once while others hold the stream: one of them may be killed when it is
/// about to ring the peer, which then waits for that as this side does for the peer. (A sleep for room ends now
/// and then by itself.)
pub(super) fn nap(s: &Socket, want: super::wait::Want) -> u64 {
    if want == super::wait::Want::Data && s.is_shared() {
        SHARED_NAP_NS
    } else {
        u64::MAX
    }
}

pub(crate) const SHARED_NAP_NS: u64 = 100_000_000;

/// Counts of sleeping threads: of this process in its socket, and in its seat for the others to see.
impl Socket {
    /// Tells the others what this process counts.
    fn tell_counts(&self) {
        if self.is_shared()
            && let Some(seat) = self.seats().and_then(|s| s.0.get(self.seat()))
        {
            for (own, told) in [
                (&self.asleep, &seat.sleepers),
                (&self.rooming, &seat.roomers),
                (&self.set_count, &seat.sets),
            ] {
                loop {
                    let n = own.load(Ordering::SeqCst);
                    told.store(n, Ordering::SeqCst);
                    if own.load(Ordering::SeqCst) == n {
                        break; // nobody has counted on meanwhile
                    }
                }
            }
        }
    }

    fn sum(&self, own: &AtomicU32, of: impl Fn(&Seat) -> &AtomicU32) -> u32 {
        let own = own.load(Ordering::SeqCst);
        match self.seats().filter(|_| self.is_shared()) {
            Some(seats) => seats.sum_of_others(self.seat(), of).wrapping_add(own),
            None => own,
        }
    }

    /// Threads asleep in the kernel on this connection, of all that hold it.
    #[inline]
    pub(crate) fn sleepers(&self) -> u32 {
        self.sum(&self.asleep, |s| &s.sleepers)
    }

    /// One thread more is asleep, or on its way to.
    pub(crate) fn falls_asleep(&self) {
        self.asleep.fetch_add(1, Ordering::SeqCst);
        self.tell_counts();
    }

    pub(crate) fn wakes_up(&self) {
        self.asleep.fetch_sub(1, Ordering::SeqCst);
        self.tell_counts();
    }

    /// Those of the sleepers that watch `rouse`'s event too.
    pub(crate) fn roomers(&self) -> u32 {
        self.sum(&self.rooming, |s| &s.roomers)
    }

    pub(crate) fn begins_to_room(&self) {
        self.rooming.fetch_add(1, Ordering::SeqCst);
        self.tell_counts();
    }

    pub(crate) fn ends_to_room(&self) {
        self.rooming.fetch_sub(1, Ordering::SeqCst);
        self.tell_counts();
    }

    /// How many epoll sets of this process hold the connection has changed.
    pub(crate) fn watch_seat(&self) {
        self.tell_counts();
    }

    /// Whether an epoll set of another process holds the connection.
    pub(crate) fn is_watched_by_others(&self) -> bool {
        self.seats()
            .is_some_and(|s| s.sum_of_others(self.seat(), |s| &s.sets) > 0)
    }
}
