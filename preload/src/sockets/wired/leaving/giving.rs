//! Giving back what has come and was not read: the peer sends it once more, plain, where it can.

use super::super::super::{family, residual};
use super::super::ending::is_peer_gone;
use super::super::riding;
use super::{BACK, Leaving};
use std::sync::atomic::Ordering;
use transport::sys::{diag, net};
use transport::wire::Return;

/// Octets that find room in both kernels once more in any case.
const MOST_BACK: usize = 1024 * 1024;

/// How far this side is with what it gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Giving {
    /// The peer is to be asked.
    Wanted,
    /// It has been.
    Asked,
    /// So many bytes are on their way back.
    Gives(usize),
    /// Nothing is given back: what has come is kept.
    No,
}

impl Leaving {
    /// Asks the peer to end its direction and to wait, if it has not ended by itself.
    pub(super) fn ask(&mut self) {
        riding::end(self.s, self.fd);
        let ends = is_peer_gone(self.fd)
            || self.wire.common.is_returning(Return::Whole)
            || self.wire.common.is_returning(Return::Waits)
            || self.wire.common.is_returning(Return::Asked)
            || self.look(|incoming, _, _| incoming.is_past_mode() || incoming.is_over());
        let stands = self.wire.common.is_returning(Return::Stands);
        if !stands {
            let come = self.come(); // (before it is said: the answer may be quick)
            self.wire.common.asked_at.store(come, Ordering::Release);
        }
        let asked = {
            let Ok(_tx) = self.s.tx.lock() else { return };
            // SAFETY: the lock is held.
            let mut out = unsafe { self.wire.out() };
            if stands && out.ask_again(&self.wire.common) {
                Ok(Some(true))
            } else if ends || out.is_plain() {
                Ok(None)
            } else {
                out.ask_to_take_back(&self.wire.common, self.fd).map(Some)
            }
        };
        match asked {
            Ok(Some(true)) => {
                self.giving = Giving::Asked;
                self.rung = stands || self.ring(BACK);
            }
            // (what keeps it from being said may lie here: a peer that speaks first, a ring's last word)
            Ok(Some(false)) => {
                self.look(|incoming, wire, fd| {
                    incoming.quiet(&wire.common, fd);
                    incoming.look_for_plain(&wire.common, fd); // (also behind the end of its direction)
                    true
                });
            }
            Ok(None) | Err(_) => self.giving = Giving::No,
        }
    }

    /// Whether the peer has said nothing since it was let be ([`Self::let_be`]).
    pub(super) fn is_silent(&self) -> bool {
        self.wire.common.let_be_at.load(Ordering::Acquire) == self.come()
    }

    /// Octets that have come, whether or not they were taken from the kernel.
    pub(super) fn come(&self) -> u64 {
        let mut octets = 0;
        self.look(|incoming, _, fd| {
            octets = incoming.octets() + net::unread(fd) as u64;
            true
        });
        octets
    }

    /// Whether nothing has been said or taken that cannot be let stand.
    pub(super) fn can_be_let_be(&self) -> bool {
        self.kept.is_empty()
            && match self.giving {
                Giving::Wanted => true,
                Giving::Asked => self.spares,
                Giving::Gives(_) | Giving::No => false,
            }
    }

    /// Lets the connection be, which goes on in RDMA mode: the peer has not answered, nothing is said that it must answer before, and nothing
    /// was taken out of the stream. What it was asked stands: it goes back to plain bytes whenever it hears that, and this side follows.
    /// False if it cannot be.
    pub(super) fn let_be(&self) -> bool {
        let come = self.come();
        let (Ok(_tx), Ok(_rx)) = (self.s.tx.lock(), self.s.rx.lock()) else {
            return false;
        };
        let common = &self.wire.common;
        if !self.can_be_let_be() {
            return false;
        }
        if self.giving == Giving::Asked {
            common.let_ask_stand();
        }
        common.let_be_at.store(come, Ordering::Release);
        common.pass_leaving(Some(family::me()), None);
        true
    }

    /// Gives back what follows so many bytes. True if the connection has failed.
    pub(super) fn give(&mut self, at: usize) -> bool {
        let Ok(_tx) = self.s.tx.lock() else {
            return true;
        };
        // SAFETY: the lock is held.
        let mut out = unsafe { self.wire.out() };
        let rest = self.kept.get(at..).unwrap_or_default();
        match out.give_back(&self.wire.common, self.fd, rest) {
            Ok(n) => self.giving = Giving::Gives(at + n),
            Err(_) => return true,
        }
        false
    }

    /// The peer has ended its direction, or the connection is over: what is here goes back if it waits for that.
    pub(super) fn begin_to_give(&mut self, over: bool) {
        if over {
            self.giving = Giving::No;
            return;
        }
        if !self.look(|incoming, _, _| incoming.is_past_mode()) {
            let Ok(_tx) = self.s.tx.lock() else { return };
            // SAFETY: the lock is held. (What fails shows by the next call.)
            let _ = unsafe { self.wire.out() }.flush_all(&self.wire.common, self.fd);
            return;
        }
        let can = self.s.tx.lock().is_ok_and(|_tx| {
            // SAFETY: the lock is held while it is looked at.
            unsafe { self.wire.out() }.can_give_back(&self.wire.common)
        });
        // (what has no room here when it comes once more keeps the peer from taking back the rest)
        let room = net::option(self.fd, libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap_or(0) / 2; // (the kernel counts its own, too)
        let most = usize::try_from(room).unwrap_or(0).max(MOST_BACK);
        let fits = !self.goes_on || self.kept.len() <= most;
        self.giving = if can && fits {
            Giving::Gives(0)
        } else {
            Giving::No
        };
    }

    /// Whether what was here has gone back, and comes once more.
    pub(super) const fn gives(&self) -> bool {
        matches!(self.giving, Giving::Gives(_))
    }

    /// Who was given something back has died before it had sent that once more: it is kept after all, unless another thread has read some
    /// of it already.
    pub(super) fn keep_if_lost(&self) {
        let (s, fd) = (self.s, self.fd);
        let ends = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
        let gone = net::ready_now(fd, libc::POLLRDHUP) & ends != 0;
        let again = residual::left(s) + net::unread(fd);
        // (the urgent byte of the peer's library is counted, and is not among what can be read)
        let read = taken(fd)
            .zip(self.taken)
            .map(|(now, then)| now.saturating_sub(then));
        if gone && again < self.kept.len() && read.is_some_and(|n| n <= 1) {
            while matches!(net::discard(fd, self.kept.len()), Ok(1..)) {}
            if !residual::keep(s, fd, &self.kept) {
                s.broken.store(true, Ordering::Release);
            }
        }
    }
}

/// Octets that have been taken from the kernel. `None` if it does not count.
pub(super) fn taken(fd: i32) -> Option<u64> {
    let unread = net::unread(fd) as u64; // (before: what comes meanwhile makes it look as if more were taken)
    diag::carried(fd).map(|now| now.received.saturating_sub(unread))
}
