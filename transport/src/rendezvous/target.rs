//! One address that is served with Shunt: the boards of its listeners, and the arenas shared with those
//! who serve it. Kept by [`super::client`].
//!
//! Rule: no slot is handed out of an arena that the server has not been told of.

use super::leave;
use crate::clock;
use crate::reason::Reason;
use crate::shm::arena::Arena;
use crate::shm::layout::SLOTS;
use crate::sys::fd::Fd;
use crate::sys::net::Endpoint;
use crate::sys::unix;

/// How often (µs) a known server is checked for being alive.
const CHECK_EVERY_US: u64 = 1_000;
/// Patience with unanswered announcements, at first and at most (µs).
pub(super) const PATIENCE_US: u64 = 5_000;
const LONGEST_PATIENCE_US: u64 = 1_000_000;
/// Arenas at most for one address.
const ARENAS: usize = 1024;

/// A served address.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) address: Endpoint,
    pub(super) owner: u32,
    /// The names at which notices are left, one a listener: with SO_REUSEPORT there are several.
    pub(super) boards: Vec<String>,
    /// One a notice.
    pub(super) channels: Vec<Fd>,
    pub(super) arenas: Vec<Shared>,
    pub(super) checked: u64,
    /// Connections announced since the last notice that nobody said yes to.
    pub(super) unanswered: u32,
    pub(super) noticed: u64,
    /// How long (µs) unanswered announcements are borne before another notice is left.
    pub(super) patience: u64,
    /// Connections to let pass before an answer is waited for again, and how many it was the last time.
    pub(super) pass: u32,
    pub(super) passed: u32,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) arena: Arena,
    pub(super) free: Vec<u32>,
    /// Slots this side is done with and the server not yet.
    pub(super) resting: Vec<u32>,
}

impl Target {
    /// An address whose boards are still to be looked for.
    pub(super) fn new(address: &Endpoint, owner: u32) -> Self {
        Self {
            address: *address,
            owner,
            boards: Vec::new(),
            channels: Vec::new(),
            arenas: Vec::new(),
            checked: 0,
            unanswered: 0,
            noticed: 0,
            patience: PATIENCE_US,
            pass: 0,
            passed: 0,
        }
    }

    /// Whether the notices that were left still hold.
    pub(super) fn is_current(&mut self, now: u64) -> bool {
        // A worker that came later, or a restarted server, may not know the arena.
        if self.unanswered > 0 && now.wrapping_sub(self.noticed) > clock::us(self.patience) {
            self.patience = (self.patience * 2).min(LONGEST_PATIENCE_US);
            return false;
        }
        if now.wrapping_sub(self.checked) > clock::us(CHECK_EVERY_US) {
            if self.channels.iter().any(unix::hung_up) {
                return false;
            }
            self.checked = now;
        }
        true
    }

    /// Whether all who got the last notice are there still, though no other could be left now. They are left alone for as long as
    /// their patience is.
    pub(super) fn still_lives(&mut self, now: u64) -> bool {
        let lives = !self.channels.is_empty() && !self.channels.iter().any(unix::hung_up);
        if lives {
            (self.checked, self.noticed) = (now, now);
        }
        lives
    }

    /// Makes one more arena. Nobody has heard of it yet.
    pub(super) fn grow(&mut self, region: usize) -> Result<i32, Reason> {
        let arena = Arena::create(region).map_err(|_| Reason::NoMemory)?;
        let file = arena.file().raw();
        self.arenas.push(Shared {
            arena,
            free: (0..SLOTS).rev().collect(),
            resting: Vec::new(),
        });
        Ok(file)
    }

    /// A free slot, the one used last first (its pages are warm).
    pub(super) fn take_slot(&mut self, region: usize) -> Result<(u32, u32), Reason> {
        for (i, s) in (0..).zip(&mut self.arenas) {
            let Shared {
                arena,
                free,
                resting,
            } = s;
            let looked_at = if free.is_empty() { resting.len() } else { 4 };
            let start = resting.len().saturating_sub(looked_at);
            for at in (start..resting.len()).rev() {
                if resting.get(at).is_some_and(|&slot| arena.is_released(slot)) {
                    free.push(resting.remove(at));
                }
            }
            if let Some(slot) = s.free.pop() {
                return Ok((i, slot));
            }
        }
        if self.arenas.len() >= ARENAS {
            return Err(Reason::NoSlot);
        }
        // Connections that are open already may all be announced now, with no resolve in between: the
        // notice is left at once.
        let file = self.grow(region)?;
        if !self.notify(file) {
            self.arenas.pop();
            self.unanswered += 1; // the next resolve looks for the boards anew
            return Err(Reason::NoSlot);
        }
        let slot = self.arenas.last_mut().and_then(|s| s.free.pop());
        let last = u32::try_from(self.arenas.len() - 1).ok();
        last.zip(slot).ok_or(Reason::NoSlot)
    }

    /// Leaves a notice of one more arena at the boards. False if nobody got it.
    fn notify(&mut self, file: i32) -> bool {
        let before = self.channels.len();
        for name in &self.boards {
            if let Ok(c) = leave(name, &[file], |uid| uid == self.owner) {
                self.channels.push(c.hide());
            }
        }
        self.channels.len() > before
    }
}
