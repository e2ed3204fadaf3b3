//! The program, or one that it starts or passes the connection to, will use the kernel connection as it is: RDMA mode ends
//! in both directions, and this side waits for that, for a bounded time; after it the stream is reset, never wrong.
//!
//! What has come and was not read goes back to the peer, which sends it once more, plain, before all else
//! (`transport::wire`, `Return`): whoever reads round the library finds it. Where the peer cannot take it back, it is kept
//! (`residual`): a peer that has gone, that had gone back to plain bytes before it was asked, or that has half a megabyte
//! of ours that its program has not read.
//!
//! What a peer that has closed has left on its way is drawn in first (`drawing`, `taking`); then what is here is given back (`giving`), or
//! kept.
//!
//! Called by `demote`, with the registry lock held; where a program is started for all that it would inherit (`many`). The peer's
//! program may be elsewhere for long, so it is rung by an urgent byte, which its `mover` sees. One at most for a connection: a second
//! would put the first into the stream.

mod drawing;
mod giving;
mod many;
mod taking;

use super::super::demote::{Unread, go_plain};
use super::super::{Phase, Socket, family, residual};
use super::ending::{follow_to_plain, is_all_plain, is_near, is_peer_gone};
use super::{is_current, number, opening, raising, waiting, wire};
use crate::world::World;
use giving::{Giving, taken};
pub(crate) use many::{Held, leave_all};
use std::sync::atomic::Ordering;
use taking::{OnItsWay, drain_all, is_over};
use transport::clock;
use transport::reason::Reason;
use transport::record::Transport;
use transport::ring::records::KNOCK;
use transport::sys::{Errno, diag, net, time};
use transport::wire::{Due, In, Return, Wire};

/// How long (µs) to wait for a peer to go back to plain bytes while nothing comes from it, and in all.
const FOLLOW_US: u64 = 3_000_000;
const FOLLOW_MOST_US: u64 = 15_000_000;
/// How much (octets) on its way to the peer is little: it hears us soon enough behind that.
const LITTLE: u64 = 64 * 1024;
/// How long (µs) more than that may take to reach the peer, and to stand still meanwhile, as its program does not read. A peer that
/// does not answer what it was asked is waited for as long.
const GOES_US: u64 = 60_000_000;
const STILL_US: u64 = 3_000_000;
/// How long (µs) to wait for a request that may be under way, and where a rule says that there will be one: what comes
/// later is seen by a program without the library, and by who reads round it.
const UNASKED_US: u64 = 20_000;
const NAMED_US: u64 = 200_000;
/// How long (µs) what was given back may take to come once more: who saw it readable finds it readable.
const AGAIN_US: u64 = 100_000;

/// The urgent byte of one who ends its direction, and of one who has something to give back first.
const PLAIN: u8 = 0;
pub(super) const BACK: u8 = 0xb2;

/// Whether the urgent byte that is here is one of those of the peer's library.
pub(super) fn has_rung(fd: i32) -> bool {
    net::urgent(fd).is_some_and(|byte| matches!(byte, PLAIN | BACK | KNOCK))
}

/// Waits until `done`, looking again and again. False if that took too long.
fn wait_until(most_us: u64, mut done: impl FnMut() -> bool) -> bool {
    let begun = clock::ticks();
    while !done() {
        if clock::ticks() - begun > clock::us(most_us) {
            return false;
        }
        let _ = time::nap(100);
    }
    true
}

/// A connection is about to be closed: a peer that has gone back to plain bytes may have rung since anything was read.
pub(super) fn forget_ring(incoming: &In, fd: i32) {
    if incoming.is_past_mode() {
        net::take_mark(fd, PLAIN);
    }
}

/// The same of one that has been plain at both ends since. (Where the program limits its calls, this one may offend.)
pub(crate) fn forget_ring_of_plain(s: &Socket, fd: i32) {
    if s.phase() == Phase::Plain
        && !crate::signals::is_sandboxed()
        && s.record.transport.load(Ordering::Relaxed) >= Transport::Iwarp as u8
        && !s.has_others()
    {
        net::take_mark(fd, PLAIN);
    }
}

/// See the module.
struct Leaving {
    s: &'static Socket,
    fd: i32,
    wire: &'static Wire,
    was: Phase,
    coming: OnItsWay,
    giving: Giving,
    kept: Vec<u8>,
    rung: bool,
    /// Somebody here goes on with the connection by the library, whatever a new program does with it.
    goes_on: bool,
    /// Then nothing is taken out of the stream as long as nothing has come that may be the peer's answer: it can be let be ([`Self::let_be`]).
    spares: bool,
    /// Octets that had been taken from the kernel when all was plain.
    taken: Option<u64>,
}

/// Through which what has come is read.
const PART: usize = 64 * 1024;

/// Before [`demote`], with no lock held, so that nobody else waits: what was asked is answered first, however late the peer's program
/// accepts, and what was sent goes first, for as long as it takes that, however slowly. With both kernels' buffers full neither
/// what this side says nor the urgent byte reaches the peer, and a slow reader is not through with them in the time that
/// [`demote`] has. (What a ring has put has arrived; but before it is up all goes by the kernel. Before urgent data only what goes
/// from here has to be plain.)
pub(crate) fn before_demote(s: &'static Socket, fd: i32, why: Reason) {
    let Some(wire) = wire(s) else { return };
    await_answer(s, fd, wire);
    if s.phase() != Phase::Wired || why == Reason::UrgentData {
        return;
    }
    // Octets that have reached the peer's kernel.
    let arrived = || diag::carried(fd).map(|c| c.sent.saturating_sub(net::unsent(fd) as u64));
    let waits = (net::unsent(fd) + waiting::unsent(s)) as u64;
    if waits <= LITTLE {
        return;
    }
    let Some(mut most) = arrived() else { return };
    // (not what other threads send from now on)
    let enough = most + waits - LITTLE;
    let begun = clock::ticks();
    let mut still = begun;
    while most < enough && is_current(s, wire) && !is_peer_gone(fd) {
        let _ = time::nap(1000);
        waiting::post(s);
        let now = clock::ticks();
        match arrived() {
            Some(n) if n > most => (most, still) = (n, now),
            Some(_) if now - still < clock::us(STILL_US) => {}
            _ => return,
        }
        if now - begun > clock::us(GOES_US) {
            return;
        }
    }
}

/// A server that has not accepted yet has not seen the request, which nobody can take back. (On this host the server may be this very
/// thread.)
fn await_answer(s: &'static Socket, fd: i32, wire: &'static Wire) {
    let is_open = || s.phase() == Phase::Opening && is_current(s, wire) && !is_peer_gone(fd);
    if !is_open() || net::peer(fd).is_none_or(|peer| net::is_here(fd, &peer)) {
        return;
    }
    wait_until(GOES_US, || {
        opening::hear(s, fd, wire);
        !is_open()
    });
}

/// See the module. With the registry lock held.
pub(crate) fn demote(w: &mut World, s: &'static Socket, fd: i32, why: Reason, unread: Unread) {
    let Some(wire) = wire(s) else {
        return demote_unasked(w, s, fd, why);
    };
    if why == Reason::UrgentData && s.phase() == Phase::Wired {
        // It is sent beside the stream, so only what goes from here has to be plain.
        wait_until(FOLLOW_US, || {
            follow_to_plain(s, fd, wire);
            is_out_plain(s, wire)
        });
        return;
    }
    let goes_on = matches!(why, Reason::AsyncIo | Reason::SocketOption);
    if goes_on && s.phase() == Phase::Wired && has_failed(s, fd, wire) {
        return; // nothing is to come, and only we can tell of the error any more
    }
    let mut leaving = Leaving::begin(s, fd, wire, unread);
    let mut part = vec![0; PART];
    let mut whole = None;
    let mut quiet = Quiet::begin();
    wait_until(FOLLOW_MOST_US, || {
        whole = leaving.turn(&mut part);
        whole.is_some() || quiet.lasts(leaving.moved()) > clock::us(FOLLOW_US)
    });
    leaving.close(w, whole, why);
}

/// For how long nothing has moved.
struct Quiet {
    moved: u64,
    since: u64,
}

impl Quiet {
    fn begin() -> Self {
        let since = clock::ticks();
        Self { moved: 0, since }
    }

    /// In ticks, where so much has been moved by now.
    fn lasts(&mut self, moved: u64) -> u64 {
        let now = clock::ticks();
        if moved != self.moved {
            (self.moved, self.since) = (moved, now);
        }
        now - self.since
    }
}

/// Whether a process has it in hand to end RDMA mode: what it says and takes nobody else says or takes, since what is unread is with it.
/// One that has died has not, and what it had taken out of the stream is nowhere: the connection is reset.
pub(super) fn is_under_way(s: &Socket, fd: i32, wire: &Wire) -> bool {
    wire.common.leaver().is_some_and(|who| {
        let lives = family::is_alive(who);
        if !lives && wire.common.pass_leaving(Some(who), None) {
            wire.common.fail(Errno::CONNRESET);
            s.broken.store(true, Ordering::Release); // never a gap: nor is what came behind it to be read
            net::disconnect(number(s, fd));
            return true; // (whoever asks looks again, and finds the reset)
        }
        lives
    })
}

/// Waits until no other process has it in hand: one may keep something yet, of what the peer was given back and has not sent once more.
/// With no lock held.
pub(crate) fn await_others(s: &Socket) {
    let others = |wire: &'static Wire| {
        let leaver = wire.common.leaver();
        leaver.is_some()
            && leaver != Some(family::me())
            && is_under_way(s, s.own_fd(-1), wire)
            && s.is_shared()
    };
    wait_until(FOLLOW_US, || !wire(s).is_some_and(others));
}

/// Takes it in hand, if no other process has: their threads are kept out by the registry lock.
fn take(s: &Socket, fd: i32, wire: &Wire) -> bool {
    let me = family::me();
    wire.common.leaver() == Some(me)
        || !is_under_way(s, fd, wire) && wire.common.pass_leaving(None, Some(me))
}

/// Whether the connection has failed and the program does not know, once all that has come is taken in.
fn has_failed(s: &Socket, fd: i32, wire: &Wire) -> bool {
    !s.reset_told.load(Ordering::Acquire)
        && s.rx.lock().is_ok_and(|_rx| {
            // SAFETY: the lock is held.
            let mut incoming = unsafe { wire.incoming() };
            incoming.available(&wire.common, fd);
            incoming.has_failed(&wire.common)
        })
}

/// Whether what goes from here is plain, and has gone.
fn is_out_plain(s: &Socket, wire: &Wire) -> bool {
    s.tx.lock()
        // SAFETY: the lock is held while it is looked at.
        .is_ok_and(|_tx| unsafe { wire.out() }.is_plain())
}

impl Leaving {
    fn begin(s: &'static Socket, fd: i32, wire: &'static Wire, unread: Unread) -> Self {
        let giving = if unread != Unread::Keep {
            Giving::Wanted
        } else {
            Giving::No
        };
        Self {
            s,
            fd,
            wire,
            was: s.phase(),
            coming: OnItsWay::Unknown,
            giving,
            kept: Vec::new(),
            rung: false,
            goes_on: false,
            spares: false,
            taken: None,
        }
    }

    /// Goes on as far as it can, if no other process is about the same. Whether nothing is lost, once it is over.
    fn turn(&mut self, part: &mut [u8]) -> Option<bool> {
        if !is_current(self.s, self.wire) {
            return Some(true); // (another process that holds it has ended it)
        }
        if take(self.s, self.fd, self.wire) && self.step(part) {
            return self.end(part);
        }
        None
    }

    /// How much has moved: octets that came, and bytes that went back.
    fn moved(&self) -> u64 {
        let given = match self.giving {
            Giving::Gives(at) => at as u64,
            _ => 0,
        };
        self.come() + given
    }

    /// Leaves the connection to the kernel after so many turns. One that is not over by then, or of which something is lost, is reset.
    fn close(self, w: &mut World, whole: Option<bool>, why: Reason) {
        let Self { s, fd, wire, .. } = self;
        let was = if whole.is_some() {
            Phase::Wired
        } else {
            self.was
        };
        if whole != Some(true) {
            // (under both locks, if they can be had: a thread that is just hearing the peer's answer would go on with it, and who reads
            // round what was taken out of the stream would not see the gap)
            let _held = (s.tx.lock(), s.rx.lock());
            s.broken.store(true, Ordering::Release);
            net::disconnect(fd); // a reset, never a gap
            s.set_phase(Phase::Plain);
        } else if self.gives() && !self.kept.is_empty() {
            let again = || residual::left(s) > 0 || net::ready_now(fd, libc::POLLIN) != 0;
            wait_until(AGAIN_US, again);
            self.keep_if_lost();
        }
        wire.common.pass_leaving(Some(family::me()), None);
        go_plain(w, s, fd, why, was);
    }

    /// One step. True once nothing of RDMA mode is left, or the stream is over.
    fn step(&mut self, part: &mut [u8]) -> bool {
        if self.s.phase() == Phase::Opening {
            opening::hear_closing(self.s, self.fd, self.wire);
            return false;
        }
        if self.wire.common.ring.is_any_due() {
            // (the thread that makes rings is not told of what is heard here, and none is to come of it)
            raising::decline(self.s, self.fd, self.wire);
            waiting::serve_due(self.s, self.fd);
        }
        if self.wire.common.ring.is_due(Due::SayBegin) {
            // (a peer that had begun before it heard what it was asked says nothing by the kernel until it has this word)
            waiting::serve_due(self.s, self.fd);
        }
        if !self.is_all_here(part) {
            return false;
        }
        if self.is_dead(part) {
            return true;
        }
        if self.giving == Giving::Wanted {
            self.ask();
            if self.giving == Giving::Wanted {
                // (what cannot be said before the peer has read may wait for what the peer itself cannot send before this side has)
                self.take_in(part);
                return false;
            }
        }
        if self.giving == Giving::Asked && self.wire.common.is_returning(Return::Asked) {
            self.giving = Giving::No; // (both have, at once: neither can wait for the other)
        }
        if self.giving == Giving::Asked && !self.rung {
            self.rung = self.ring(BACK);
        }
        let mut plain = false;
        let gives = matches!(self.giving, Giving::Gives(at) if at < self.kept.len());
        if self.giving != Giving::Asked && !gives {
            let gone = self.giving == Giving::No && self.is_peer_done();
            plain = !gone && is_all_plain(self.s, self.fd, self.wire, || true);
            self.rung = self.rung || gone || plain || self.ring(PLAIN);
        }
        if let Giving::Gives(at) = self.giving {
            return if gives { self.give(at) } else { plain };
        }
        let over = self.take_in(part);
        if self.giving == Giving::Asked {
            self.begin_to_give(over);
            return false;
        }
        plain || over
    }

    /// Whether the peer has closed in RDMA mode: it would answer with a reset, and has no more to say than lies here. (One that gives
    /// something back may have said all that, and have ended its direction behind it: it is owed the same.)
    fn is_peer_done(&self) -> bool {
        let gives = self.wire.common.is_returning(Return::Waits);
        is_peer_gone(self.fd) && !gives && !self.look(|incoming, _, _| incoming.is_past_mode())
    }

    /// Asks the receiving half.
    fn look(&self, ask: impl FnOnce(&mut In, &Wire, i32) -> bool) -> bool {
        self.s.rx.lock().is_ok_and(|_rx| {
            // SAFETY: the lock is held.
            let mut incoming = unsafe { self.wire.incoming() };
            ask(&mut incoming, self.wire, self.fd)
        })
    }

    /// Keeps for the program what came and did not go back, and ends RDMA mode. Other threads may have taken plain bytes
    /// from the kernel since the last look: they come behind what is kept. False without memory; `None`: another thread
    /// has sent something that has not gone yet.
    fn end(&mut self, part: &mut [u8]) -> Option<bool> {
        let (Ok(_tx), Ok(_rx)) = (self.s.tx.lock(), self.s.rx.lock()) else {
            return None;
        };
        // SAFETY: both locks are held.
        let mut incoming = unsafe { self.wire.incoming() };
        let dead = net::ready_now(self.fd, 0) & libc::POLLHUP != 0;
        let over = dead || is_over(&incoming, self.wire);
        // SAFETY: as above.
        if !over && !unsafe { self.wire.out() }.is_plain() {
            return None;
        }
        let mut rest = Vec::new();
        self.taken = taken(self.fd);
        let of = (self.wire, self.fd);
        let mut whole = drain_all(&mut incoming, of, over, part, &mut rest);
        // Who was given something back has died: what comes once more is a part of that at most.
        let again = rest.len() + net::unread(self.fd);
        if dead && self.gives() && again < self.kept.len() {
            self.giving = Giving::No;
            rest.clear();
            while matches!(net::discard(self.fd, self.kept.len()), Ok(1..)) {}
        }
        if over && !incoming.is_past_mode() {
            // What the kernel has yet is no part of the stream: octets of RDMA mode, which nobody looks at any more.
            while matches!(net::discard(self.fd, PART), Ok(1..)) {}
        }
        if !self.gives() {
            whole &= self.kept.try_reserve_exact(rest.len()).is_ok();
            if whole {
                self.kept.append(&mut rest);
            }
            rest = std::mem::take(&mut self.kept);
        }
        whole &= residual::keep(self.s, self.fd, &rest);
        let aborted = incoming.is_aborted(&self.wire.common);
        if incoming.has_failed(&self.wire.common) && !aborted {
            residual::reset_behind(self.s); // (the kernel has told of it)
        }
        self.s.set_phase(Phase::Plain);
        Some(whole)
    }

    /// Rings the peer, whose program may be elsewhere for long, once what was said has gone. True once that is done.
    ///
    /// Between hosts what was said has arrived by then: the kernel marks what it sends again in front of an urgent byte by segments
    /// of one mark, and for all but the first of them that names a later octet, which the peer's kernel takes out of the stream
    /// instead. (What a peer without room keeps back does not count, which it is to be rung for.) Nor is what follows to go again with it (MSG_EOR).
    fn ring(&self, byte: u8) -> bool {
        let said = byte == BACK || is_out_plain(self.s, self.wire);
        if said && net::is_any_under_way(self.fd) && !is_near(self.fd) {
            return false;
        }
        let flags = libc::MSG_OOB | libc::MSG_EOR | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: one readable byte.
        match said.then(|| unsafe { net::send(self.fd, [byte].as_ptr(), 1, flags) }) {
            Some(Err(e)) => {
                self.wire.common.fail(e); // (the kernel tells it once)
                false
            }
            sent => sent.is_some(),
        }
    }
}

/// How long (µs) the request of a server that may be asked yet may take, if it is under way: who asks does so at once.
fn unasked_us(fd: i32) -> u64 {
    if opening::is_named_at(fd) {
        NAMED_US
    } else {
        UNASKED_US
    }
}

/// A server that may be asked yet, and from now on does not agree.
fn demote_unasked(w: &mut World, s: &'static Socket, fd: i32, why: Reason) {
    let declines = s.declines();
    // (its program goes on calling us, so that a request can be looked for; or a new one will, which is told)
    let comes_again = matches!(why, Reason::Stdio | Reason::RawSyscall | Reason::Exec)
        && !crate::signals::is_sandboxed();
    let signals = why == Reason::AsyncIo && declines; // (what comes then)
    let waited = comes_again && declines;
    let most = if waited { 0 } else { unasked_us(fd) };
    let asked = wait_until(most, || net::ready_now(fd, libc::POLLIN) != 0);
    if asked || !(comes_again || signals) {
        return opening::decline(w, s, fd, why);
    }
    if why == Reason::Exec {
        s.hand_on(); // (by a number of its own)
    } else {
        s.decline();
    }
}
