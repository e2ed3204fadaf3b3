//! A connection in RDMA mode that rides on a ring of an RDMA adapter (`transport::ring`): what the calls on it have to
//! do beside. Its octets go by the ring, so the kernel connection shows the end of that only.
//!
//! Rule: who is about to sleep arms the adapter's event first ([`before_sleep`]), looks once more after, and sleeps on that
//! ([`event`]) beside the kernel connection. An event is taken by whoever is the next to sleep: others who may have been
//! woken by it, and do not see it any more, are told to look.

use super::super::{Socket, rouse, wait};
use super::ending::is_peer_gone;
use super::{io, is_own, number, raising, waiting, wire};
use crate::epoll::registered;
use crate::world;
use std::sync::atomic::{AtomicU64, Ordering};
use transport::clock;
use transport::doorbell;
use transport::reason::Reason;
use transport::record::Transport;
use transport::ring::{Armed, Ring};
use transport::sys::{net, time};
use transport::wire::{Return, Wire};

fn ring(s: &Socket) -> Option<&'static Ring> {
    wire(s)?.common.ring.get()
}

/// Whether there may be something to do, without a system call. False where the kernel alone knows.
#[inline]
pub(crate) fn may_go(s: &Socket, want: wait::Want) -> bool {
    if want != wait::Want::Data {
        // (who found the kernel full may have come to a ring since, which has room from the beginning and tells of none)
        let asks = || s.hungry.load(Ordering::Relaxed) || wire(s).is_some_and(|w| is_sending(s, w));
        return asks() && may_send(s);
    }
    // (what has come may have been taken from the kernel by another thread, which looked for something else)
    ring(s).is_some_and(|ring| ring.is_to_land() || ring.available() > 0) || io::has_something(s)
}

/// Whether a sender that waited for the peer's word has got it.
fn may_send(s: &Socket) -> bool {
    let Some(wire) = wire(s) else { return false };
    s.tx.lock().is_ok_and(|_tx| {
        // SAFETY: the lock is held while it is looked at.
        let mut out = unsafe { wire.out() };
        let room = !out.is_by_ring() || has_room(wire);
        room && !out.is_unsettled()
            && out.has_credit(&wire.common)
            && !out.waits_for_word(&wire.common)
    })
}

/// Whether the sending direction goes by the ring: then the kernel does not say when there is room.
pub(super) fn is_sending(s: &Socket, wire: &Wire) -> bool {
    wire.common.ring.get().is_some()
        && s.tx
            .lock()
            // SAFETY: the lock is held while it is looked at.
            .is_ok_and(|_tx| unsafe { wire.out() }.is_by_ring())
}

/// Whether a sender without room waits for the peer: not where its ring has ended, and all is the kernel's again.
pub(super) fn awaits_peer(s: &Socket, wire: &Wire) -> bool {
    wire.common.ring.get().is_some()
        && s.tx.lock().is_ok_and(|_tx| {
            // SAFETY: the lock is held while it is looked at.
            let out = unsafe { wire.out() };
            out.is_by_ring() || out.is_unsettled()
        })
}

/// Bytes of the connection go by its ring.
#[inline]
pub(super) fn note(s: &Socket) {
    if s.record.transport.load(Ordering::Relaxed) != Transport::Verbs as u8 {
        s.record.set_transport(Transport::Verbs);
    }
}

/// They go by the kernel connection again, since its ring was given back.
fn note_kernel(s: &Socket) {
    if s.record.transport.load(Ordering::Relaxed) == Transport::Verbs as u8 {
        s.record.set_transport(Transport::Iwarp);
    }
}

/// Whether there is room in the ring for a piece worth sending.
pub(super) fn has_room(wire: &Wire) -> bool {
    let ring = wire.common.ring.get();
    ring.is_none_or(|r| r.room() >= r.worth() && !r.is_clogged())
}

/// Messages, or bytes, that a connection has carried when a ring is offered: one that ends before is not worth the
/// adapter's time, nor words to a peer that may be gone before it reads them.
const WORTH_MESSAGES: u64 = 32;
const WORTH_BYTES: u64 = 256 * 1024;

/// Has a ring offered for a connection that is worth one by now, or the other end's offer looked for: a program that only
/// sends does not read it. Cheap for all others.
#[inline]
pub(super) fn consider(s: &'static Socket, wire: &Wire) {
    let riding = &wire.common.ring;
    if !riding.begins_later() || wire.common.is_returning(Return::Stands) {
        return;
    }
    let since = riding.carried_since(carried(s));
    if is_worth(s, since) && riding.begins_now() {
        riding.set_large(since[1] >= WORTH_BYTES);
        raising::begin(s);
    }
}

/// Whether a connection without a ring that has carried so much since it had one is worth another. (If it has carried anything,
/// its record says from here on that it is not by a ring.)
fn is_worth(s: &Socket, [messages, bytes]: [u64; 2]) -> bool {
    if messages > 0 {
        note_kernel(s);
    }
    messages >= WORTH_MESSAGES || bytes >= WORTH_BYTES
}

/// Whether one is worth another that had carried so much when it lost its ring, or found no room for one.
pub(super) fn is_worth_again(s: &Socket, then: [u64; 2]) -> bool {
    let ([messages, bytes], [messages_then, bytes_then]) = (carried(s), then);
    let since = [
        messages.saturating_sub(messages_then),
        bytes.saturating_sub(bytes_then),
    ];
    is_worth(s, since)
}

/// Messages and bytes that the connection has carried, both ways.
pub(super) fn carried(s: &Socket) -> [u64; 2] {
    let r = &s.record;
    let sum = |a: &AtomicU64, b: &AtomicU64| a.load(Ordering::Relaxed) + b.load(Ordering::Relaxed);
    [
        sum(&r.messages_sent, &r.messages_received),
        sum(&r.bytes_sent, &r.bytes_received),
    ]
}

/// Brings a ring that has ended, or is about to begin, to where it can be brought now. Cheap where there is none.
#[inline]
pub(super) fn settle(s: &'static Socket, fd: i32, wire: &'static Wire) {
    consider(s, wire);
    if wire.common.ring.is_any_due() {
        raising::want(s);
    }
    let Some(ring) = wire.common.ring.get() else {
        return;
    };
    if ring.is_untold()
        && let Ok(_rx) = s.rx.lock()
    {
        // SAFETY: the lock is held.
        unsafe { wire.incoming() }.tell(ring);
    }
    if ring.is_over() {
        settle_over(s, fd, wire);
    }
}

#[cold]
fn settle_over(s: &'static Socket, fd: i32, wire: &'static Wire) {
    if wire.common.ring.get().is_some_and(Ring::is_much_left) {
        wire.common.ring.note_left(); // (a peer that has died leaves it unread)
    }
    let old = {
        let (Ok(_tx), Ok(_rx)) = (s.tx.lock(), s.rx.lock()) else {
            return;
        };
        if !is_own(s, wire) {
            return;
        }
        let fd = number(s, fd);
        // SAFETY: both locks are held. (What fails shows by the next call.)
        unsafe {
            wire.end_ring();
            wire.incoming().quiet(&wire.common, fd);
            let _ = wire.out().flush(&wire.common, fd, 0);
            let _ = wire.out().serve(&wire.common, fd);
            wire.take_ring()
        }
    };
    if let Some(old) = old {
        // SAFETY: a ring's memory stays valid for whoever was on the way to look, and the mover takes it down later.
        if unsafe { old.as_ref() }.has_failed() && !is_peer_gone(fd) {
            s.record.set_demoted(Reason::AdapterFailed);
        }
        raising::retired(s);
        rouse::sleepers(s); // who waits for room has to ask the kernel from here on
    }
}

/// [`end`] where nothing forces that, and this side can say so: not once either end has said its last word, since the other may
/// be closing, and nobody be left to send again what is lacking. `note` is called before. Whether it has ended.
pub(super) fn end_at_will(s: &'static Socket, fd: i32, wire: &Wire, note: impl FnOnce()) -> bool {
    let may = s.tx.lock().is_ok_and(|_tx| {
        // (under the lock under which the last word is said)
        let may = !s.tx_shut.load(Ordering::Acquire) && !wire.common.is_finished();
        if let Some(ring) = wire.common.ring.get().filter(|_| may) {
            note();
            ring.end();
        }
        may
    });
    if may {
        end(s, fd);
    }
    may
}

/// Ends the ring of a connection: its octets go by the kernel from here on, in both directions.
pub(crate) fn end(s: &'static Socket, fd: i32) {
    if let Some(wire) = wire(s)
        && let Some(ring) = wire.common.ring.get()
    {
        ring.end();
        settle_over(s, fd, wire);
    }
}

/// Whether both directions go by a ring, so that the kernel connection says nothing but that it ends, or the ring.
pub(super) fn is_apart(wire: &Wire) -> bool {
    let up = |ring: &Ring| ring.is_up() && !ring.is_over();
    wire.common.ring.get().is_some_and(up)
}

/// The kernel has told the mover of an end, as when the peer has reset the connection, or shut both directions. Who sends by a ring does
/// not ask the kernel: from here on that has it, and answers. (What has come by the ring before stays to be read.)
pub(super) fn note_end(s: &Socket) {
    let fd = s.own_fd(s.record.fd.load(Ordering::Relaxed).cast_signed());
    // (the socket may be another connection's by now, and the end this side's own)
    if let Some(ring) = ring(s).filter(|_| fd >= 0 && net::has_peer_ended(fd)) {
        ring.peer_is_gone();
    }
}

/// Whether the connection goes by a ring that has not ended. (One that has, before a fork, is its parent's to settle.)
pub(super) fn rides(s: &Socket) -> bool {
    ring(s).is_some_and(|r| !r.is_over())
}

/// The process ends, and with it the rings of these: what was put is waited for, so that nothing has to go again; then
/// the peers' answers, which would find closed connections and be answered with resets.
pub(super) fn part(riders: &[&'static Socket]) {
    let begun = clock::ticks();
    let is_late = |most| clock::ticks() - begun > clock::us(most);
    let fd = |s: &Socket| s.own_fd(s.record.fd.load(Ordering::Relaxed).cast_signed());
    for &s in riders {
        // (what is just being agreed has come to its end first: words of the peer's that nobody reads make a reset)
        while ring(s).is_some_and(|r| !r.is_over() && !r.is_up())
            && !is_peer_gone(fd(s))
            && !is_late(AGREE_US)
        {
            io::available(s, fd(s));
            let _ = time::nap(100);
        }
        while ring(s).is_some_and(|r| !r.is_over() && !r.is_quiet()) && !is_late(PART_US) {
            let _ = time::nap(20);
        }
        end(s, fd(s));
    }
    // (where both directions are shut nothing is heard any more, nor from a peer that has ended)
    let hears = |s: &Socket| {
        let shut = s.tx_shut.load(Ordering::Acquire) && s.rx_shut.load(Ordering::Acquire);
        !shut && !is_peer_gone(fd(s))
    };
    loop {
        let waits = riders.iter().any(|s| ring(s).is_some() && hears(s));
        for &s in riders {
            if let Some(wire) = wire(s).filter(|_| ring(s).is_some()) {
                settle_over(s, fd(s), wire);
            }
        }
        if !waits || is_late(PART_US) {
            return;
        }
        let _ = time::nap(50);
    }
}

/// The process kills itself: what is just being agreed comes to its end first, as the peer's words for it, which nobody would
/// read, make a reset of the end.
pub(super) fn await_agreed() {
    let begun = clock::ticks();
    loop {
        let mut agreeing = Vec::new();
        world::lock().pool.each(|s| {
            if is_agreeing(s) {
                agreeing.push(s);
            }
        });
        if agreeing.is_empty() || clock::ticks() - begun > clock::us(AGREE_US) {
            return;
        }
        for s in agreeing {
            io::available(
                s,
                s.own_fd(s.record.fd.load(Ordering::Relaxed).cast_signed()),
            );
        }
        let _ = time::nap(100);
    }
}

/// Whether a ring is offered and not answered, or answered and not up. (Not where bytes lie here that nobody has read: their end is a
/// reset in any case.)
fn is_agreeing(s: &Socket) -> bool {
    let Some(wire) = wire(s).filter(|_| super::is_wired(s) && !s.is_shared()) else {
        return false;
    };
    let riding = &wire.common.ring;
    let begins = || riding.get().is_some_and(|r| !r.is_over() && !r.is_up());
    (riding.awaits_answer() || riding.is_any_due() || begins())
        && !wire.common.is_finished()
        && !io::has_something(s)
}

/// How long (µs) what is being agreed may take.
const AGREE_US: u64 = 100_000;
/// How long (µs) all that may take.
const PART_US: u64 = 300_000;

/// Who is about to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleeper {
    /// A call on the socket, without locks.
    Call,
    /// An epoll set, under its lock.
    Set,
}

/// The descriptor that a thread watches beside the kernel connection, once [`before_sleep`] has said that it may sleep.
pub(crate) fn event(s: &Socket) -> Option<i32> {
    ring(s).map(Ring::event).filter(|&fd| fd >= 0)
}

/// Arms what wakes a thread that is about to sleep, and takes in what has come. The caller looks once more, and sleeps no
/// longer than it is told: nanoseconds.
pub(crate) fn before_sleep(s: &'static Socket, fd: i32, wishes: u32, sleeper: Sleeper) -> u64 {
    let Some(wire) = wire(s) else { return u64::MAX };
    let Some(ring) = wire.common.ring.get() else {
        return u64::MAX;
    };
    let news = hear(s, fd, wire);
    let mut nap = armed(s, ring, sleeper);
    let sends = wishes & doorbell::SPACE != 0 && is_sending(s, wire);
    // (the peer's word for credit comes among its octets)
    let lacks = sends
        && s.tx.lock().is_ok_and(|_tx| {
            // SAFETY: the lock is held.
            !unsafe { wire.out() }.has_credit(&wire.common)
        });
    if (wishes & doorbell::DATA != 0 || lacks)
        && let Ok(_rx) = s.rx.lock()
    {
        // SAFETY: the lock is held.
        let mut incoming = unsafe { wire.incoming() };
        if incoming.is_by_ring() {
            incoming.be_patient(!news || s.sleepers() > 0);
            let readable = || incoming.is_readable(&wire.common, fd);
            nap = nap.min(taken_in(ring, readable));
            incoming.be_patient(false);
            if lacks {
                nap = nap.min(UNKNOWN_NS); // (perhaps behind some that nobody reads)
            }
        }
    }
    if wire.common.due.load(Ordering::Acquire) {
        waiting::serve_due_on(s, fd, wire); // (what was taken in just now may want an answer, and nobody else gives it)
    }
    settle(s, fd, wire);
    if ring.is_untold() || sends && ring.is_clogged() {
        nap = nap.min(UNKNOWN_NS);
    }
    nap
}

/// Takes in what has come by the kernel connection, if it has shown something; not where another sleeps, whose it may be.
/// Whether there may be more.
fn hear(s: &'static Socket, fd: i32, wire: &'static Wire) -> bool {
    if !s.kernel_news.take() {
        return false;
    }
    let heard = s.sleepers() == 0
        && s.rx.lock().is_ok_and(|_rx| {
            // SAFETY: the lock is held.
            let mut incoming = unsafe { wire.incoming() };
            incoming.be_patient(false);
            incoming.quiet(&wire.common, fd);
            incoming.be_patient(false)
        });
    if !heard {
        s.kernel_news.tell();
    }
    !heard
}

/// Sleeps for a moment, until a peer that octets wait for has said something: false where they do not go by a ring.
pub(super) fn rest(s: &'static Socket, fd: i32) -> bool {
    if !wire(s).is_some_and(|wire| is_sending(s, wire)) {
        return false;
    }
    let nap = before_sleep(s, fd, doorbell::SPACE, Sleeper::Call).min(UNKNOWN_NS);
    if !may_send(s) {
        let watched = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut both = [watched(fd), watched(event(s).unwrap_or(-1))];
        let t = libc::timespec {
            tv_sec: 0,
            tv_nsec: nap.cast_signed(),
        };
        // SAFETY: two pollfds, a time-out, no mask.
        let _ = unsafe { transport::syscall!(ppoll, both.as_mut_ptr(), 2, &raw const t, 0, 0) };
        let [kernel, _] = both;
        if kernel.revents != 0 {
            s.kernel_news.tell();
        }
    }
    true
}

/// Arms the adapter's event. How long (ns) to sleep at most.
fn armed(s: &'static Socket, ring: &Ring, sleeper: Sleeper) -> u64 {
    let sets = s.set_count.load(Ordering::Acquire);
    if sleeper == Sleeper::Set && sets > 1 {
        return UNKNOWN_NS; // (the event of all of them, and nobody could be told who took it)
    }
    match ring.arm() {
        Armed::No => return UNKNOWN_NS,
        Armed::Yes => return u64::MAX,
        Armed::Anew => {}
    }
    if s.sleepers() > 0 {
        rouse::sleepers(s);
    }
    if sleeper == Sleeper::Call && sets > 0 {
        registered::kick_others(s, std::ptr::null());
    }
    u64::MAX
}

/// Takes in octets until something is readable, or none are left: a part of an FPDU does not make anything so. How long
/// (ns) to sleep at most.
fn taken_in(ring: &Ring, mut readable: impl FnMut() -> bool) -> u64 {
    for _ in 0..LOOKS {
        if readable() || ring.available() == 0 {
            return u64::MAX;
        }
    }
    UNKNOWN_NS
}

/// Parts of an FPDU that are looked at before a sleep.
const LOOKS: u32 = 64;

/// How long (ns) to sleep where it is not known whether anything will wake.
const UNKNOWN_NS: u64 = 1_000_000;

/// Bytes that wait in the ring for the program, for a look at whether anything has changed.
pub(super) fn arrived(wire: &Wire) -> u64 {
    wire.common.ring.get().map_or(0, |r| r.available() as u64)
}
