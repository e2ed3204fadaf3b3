//! The connecting side: which addresses are served by a process with Shunt, and the arenas shared with
//! them. Called by `preload::sockets` under its registry lock.
//!
//! Rule: a plain server costs one look a quarter of a second, never a wait.

use super::target::{PATIENCE_US, Shared, Target};
use super::{board_names, leave, permits};
use crate::clock;
use crate::provider::Provider as _;
use crate::reason::Reason;
use crate::settings::PeerUsers;
use crate::shm::arena::Tuple;
use crate::shm::segment::Segment;
use crate::sync::Ordering;
use crate::sys::diag::Diag;
use crate::sys::net::Endpoint;
use crate::sys::{Errno, unix};
use std::collections::BTreeMap;

/// How long (µs) an address found plain is taken for plain.
const PLAIN_FOR_US: u64 = 250_000;
/// Most connections that pass before an answer is waited for again.
const LONGEST_PASS: u32 = 1023;
/// Addresses remembered at most; beyond, the memory starts afresh.
const TARGETS: usize = 4096;

#[derive(Debug)]
enum Entry {
    Plain { until: u64, why: Reason },
    Served(u32),
}

/// Where a connection was announced. (Small numbers: every connection keeps one.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub target: u32,
    pub arena: u32,
    pub slot: u32,
    pub word: u32,
}

/// Everything that this process knows of servers.
#[derive(Debug, Default)]
pub struct Targets {
    by_address: BTreeMap<Endpoint, Entry>,
    served: Vec<Target>,
}

impl Targets {
    /// Whether somebody with Shunt serves this address: its number, or why not. Leaves a notice there
    /// the first time.
    ///
    /// # Errors
    /// The reason why a connection to this address stays on kernel TCP.
    pub fn resolve(
        &mut self,
        address: &Endpoint,
        diag: &mut Option<Diag>,
        policy: PeerUsers,
        region: usize,
    ) -> Result<u32, Reason> {
        let now = clock::ticks();
        let mut known = None;
        match self.by_address.get(address) {
            Some(Entry::Plain { until, why }) if now < *until => return Err(*why),
            Some(Entry::Served(i)) => {
                let i = *i;
                if self.target(i).is_some_and(|t| t.is_current(now)) {
                    return Ok(i);
                }
                known = Some(i);
            }
            _ => {}
        }
        match self.find(address, diag, policy, region) {
            Ok(i) => {
                self.by_address.insert(*address, Entry::Served(i));
                Ok(i)
            }
            // (nobody listens: at the next try somebody may)
            Err(Reason::PeerRemote) if address.is_loopback() || !address.is_specified() => {
                Err(Reason::PeerRemote)
            }
            // (that says nothing of a server that has our notice and lives)
            Err(Reason::NoSockDiag)
                if known.is_some_and(|i| self.target(i).is_some_and(|t| t.still_lives(now))) =>
            {
                known.ok_or(Reason::NoSockDiag)
            }
            Err(why) => {
                if self.by_address.len() >= TARGETS {
                    self.by_address.retain(|_, e| matches!(e, Entry::Served(_)));
                }
                let until = now + clock::us(PLAIN_FOR_US);
                self.by_address
                    .insert(*address, Entry::Plain { until, why });
                Err(why)
            }
        }
    }

    /// Marks an address as plain for a while.
    pub fn set_plain(&mut self, address: &Endpoint, why: Reason) {
        let until = clock::ticks() + clock::us(10 * PLAIN_FOR_US);
        self.by_address
            .insert(*address, Entry::Plain { until, why });
    }

    /// A connection to this address could not be made: what is remembered of who is there says nothing of the next.
    pub fn forget_plain(&mut self, address: &Endpoint) {
        if let Some(Entry::Plain { .. }) = self.by_address.get(address) {
            self.by_address.remove(address);
        }
    }

    /// Looks the address up in the kernel and leaves notices at its boards.
    fn find(
        &mut self,
        address: &Endpoint,
        diag: &mut Option<Diag>,
        policy: PeerUsers,
        region: usize,
    ) -> Result<u32, Reason> {
        if diag.is_none() {
            *diag = Diag::open().ok();
        }
        let diag = diag.as_ref().ok_or(Reason::NoSockDiag)?;
        let any = Endpoint {
            ip: if address.is_v4() { v4_any() } else { [0; 16] },
            port: 0,
        };
        let found = diag.find(address, &any).map_err(|e| match e {
            Errno(libc::ENOENT) => Reason::PeerRemote,
            _ => Reason::NoSockDiag,
        })?;
        if !found.listening {
            return Err(Reason::PeerRemote);
        }
        if !permits(policy, found.uid) {
            return Err(Reason::PeerUser);
        }
        let first = self.index_of(address, found.uid)?;
        let target = self.target(first).ok_or(Reason::NoMemory)?;
        let file = target.arenas.first().map(|s| s.arena.file().raw());
        // A board without an arena yet: see whether anybody is there before memory is made for it.
        let mut inodes = vec![found.inode];
        let _ = diag.listeners(address, |o| {
            if o.uid == found.uid && !inodes.contains(&o.inode) {
                inodes.push(o.inode);
            }
        });
        if address.is_v4() {
            let dual = Endpoint {
                ip: [0; 16],
                port: address.port,
            };
            let _ = diag.listeners(&dual, |o| {
                if o.uid == found.uid && !inodes.contains(&o.inode) {
                    inodes.push(o.inode);
                }
            });
        }
        let (mut boards, mut channels) = (Vec::new(), Vec::new());
        // (there was no room for one more notice, or no memory, rather than no board)
        let (mut is_full, mut is_anothers) = (false, false);
        let names = inodes.into_iter().map(u64::from).flat_map(board_names);
        for name in names {
            let file = match file {
                Some(f) => f,
                None => {
                    if unix::connect_abstract(&name).is_err() {
                        continue;
                    }
                    match target.arenas.first() {
                        Some(s) => s.arena.file().raw(),
                        None => target.grow(region)?,
                    }
                }
            };
            // The board belongs to whoever owns the listener, or it is somebody else's squat.
            let mut fds = vec![file];
            fds.extend(target.arenas.iter().skip(1).map(|s| s.arena.file().raw()));
            let before = channels.len();
            for f in fds {
                match leave(&name, &[f], |uid| uid == found.uid) {
                    Ok(c) => channels.push(c.hide()),
                    Err(Errno(libc::ECONNREFUSED)) => {}
                    Err(Errno(libc::EACCES)) => is_anothers = true,
                    Err(_) => is_full = true,
                }
            }
            if channels.len() > before {
                boards.push(name);
            }
        }
        if channels.is_empty() {
            let has_ours = is_full && target.still_lives(clock::ticks());
            return match is_anothers {
                _ if has_ours => Ok(first),
                true => Err(Reason::PeerUser),
                false => Err(Reason::PeerPlain),
            };
        }
        target.owner = found.uid;
        target.boards = boards;
        target.channels = channels;
        target.checked = clock::ticks();
        target.noticed = target.checked;
        target.unanswered = 0;
        Ok(first)
    }

    fn target(&mut self, index: u32) -> Option<&mut Target> {
        self.served.get_mut(index as usize)
    }

    fn index_of(&mut self, address: &Endpoint, owner: u32) -> Result<u32, Reason> {
        let known = |t: &Target| t.address == *address && t.owner == owner;
        let found = self.served.iter().position(known);
        let index = u32::try_from(found.unwrap_or(self.served.len()));
        let index = index.map_err(|_| Reason::NoMemory)?;
        if found.is_none() {
            self.served.push(Target::new(address, owner));
        }
        Ok(index)
    }

    /// Counts a connection that is on its way to a target and may be announced.
    pub fn expect(&self, target: u32, delta: i32) {
        if let Some(s) = self
            .served
            .get(target as usize)
            .and_then(|t| t.arenas.first())
        {
            let pending = s.arena.pending();
            if delta > 0 {
                pending.fetch_add(1, Ordering::SeqCst);
            } else {
                pending.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    /// Whether the address of a target is one of this host. An address that is not loopback is asked of
    /// the kernel by the connection's other end, which is on this host or not.
    #[must_use]
    pub fn is_local(diag: &Option<Diag>, tuple: &Tuple) -> bool {
        tuple.0.ip == tuple.1.ip
            || tuple.1.is_loopback()
            || diag
                .as_ref()
                .is_some_and(|d| d.find(&tuple.1, &tuple.0).is_ok_and(|o| !o.listening))
    }

    /// Announces a connection: takes a slot, resets its segment and offers it.
    ///
    /// # Errors
    /// Why it has to stay on kernel TCP.
    pub fn announce(
        &mut self,
        target: u32,
        tuple: &Tuple,
        region: usize,
        receive: u64,
    ) -> Result<(Ticket, Segment), Reason> {
        let t = self.target(target).ok_or(Reason::PeerPlain)?;
        let (arena, slot) = t.take_slot(region)?;
        let shared = t.arenas.get_mut(arena as usize).ok_or(Reason::NoMemory)?;
        let Ok(mut segment) = shared.arena.segment(slot) else {
            shared.free.push(slot);
            return Err(Reason::NoMemory);
        };
        segment.set_peer_user(t.owner);
        segment.reset();
        segment.settle_in();
        segment.own();
        segment.want(receive);
        let word = shared.arena.announce(slot, tuple);
        t.unanswered += 1;
        Ok((
            Ticket {
                target,
                arena,
                slot,
                word,
            },
            segment,
        ))
    }

    fn shared(&mut self, ticket: &Ticket) -> Option<&mut Shared> {
        let t = self.target(ticket.target)?;
        t.arenas.get_mut(ticket.arena as usize)
    }

    /// Whether the server has said yes. Remembers that it answers.
    pub fn is_claimed(&mut self, ticket: &Ticket) -> bool {
        let claimed = self
            .shared(ticket)
            .is_some_and(|s| s.arena.is_claimed(ticket.slot, ticket.word));
        if claimed && let Some(t) = self.target(ticket.target) {
            t.unanswered = 0;
            t.patience = PATIENCE_US;
        }
        claimed
    }

    /// Whether it is worth waiting for the answer to an announcement, this time.
    pub fn is_prompt(&mut self, target: u32) -> bool {
        let Some(t) = self.target(target) else {
            return false;
        };
        let now = t.pass == 0;
        t.pass = t.pass.saturating_sub(1);
        now
    }

    /// An answer that was waited for came in time, or not: each time it does not, twice as many
    /// connections pass before the next try.
    pub fn note_prompt(&mut self, target: u32, in_time: bool) {
        if let Some(t) = self.target(target) {
            t.passed = if in_time {
                0
            } else {
                (2 * t.passed + 1).min(LONGEST_PASS)
            };
            t.pass = t.passed;
        }
    }

    /// The slot's state word, for a look without the registry lock. It lives as long as the process.
    #[must_use]
    pub fn state_word(&mut self, ticket: &Ticket) -> Option<*const crate::sync::AtomicU32> {
        self.shared(ticket)?
            .arena
            .state_word(ticket.slot)
            .map(std::ptr::from_ref)
    }

    /// Takes an offer back; the slot is free again at once. False if the server has said yes.
    pub fn withdraw(&mut self, ticket: &Ticket) -> bool {
        let Some(s) = self.shared(ticket) else {
            return true;
        };
        let ours = s.arena.withdraw(ticket.slot, ticket.word);
        if ours {
            s.free.push(ticket.slot);
        }
        ours
    }

    /// In a child after fork, which holds connections made before: forgets the servers, but leaves the
    /// segments mapped, for good.
    pub fn leave_mapped(self) {
        for target in self.served {
            for shared in target.arenas {
                shared.arena.leave_mapped();
            }
        }
    }

    /// This side is done with a claimed slot; it is used again once the server is done with it too.
    pub fn rest(&mut self, ticket: &Ticket) {
        if let Some(s) = self.shared(ticket) {
            s.resting.push(ticket.slot);
        }
    }
}

const fn v4_any() -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0]
}
