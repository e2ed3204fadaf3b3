//! The accepting side: the board of a listener, the arenas that clients have left there, and the search
//! for the announcement of an accepted connection. Called by `preload::sockets` under its registry lock.
//!
//! Several processes may serve one listener. Each that was forked with it has an *inbox*, a board of its
//! own; whoever takes a notice from the board passes it on to the others (`notices`), so that all know
//! every arena. Who they are stands in a page that they share (`members`).

mod members;
mod notices;

use super::{board_names, permits};
use crate::clock;
use crate::doorbell;
use crate::provider::Provider as _;
use crate::reason::Reason;
use crate::settings::PeerUsers;
use crate::shm::arena::{Arena, Tuple};
use crate::shm::segment::Segment;
use crate::sync::Ordering;
use crate::sys::diag::Diag;
use crate::sys::fd::{self, Fd};
use crate::sys::net::{self, Endpoint};
use crate::sys::unix;
use members::Members;
use notices::Arrival;

/// One listener's rendezvous, as this process sees it.
#[derive(Debug)]
pub struct Family {
    inode: u64,
    /// Where it listens, if at one address only: then every connection's own end is that.
    address: Option<Endpoint>,
    board: Fd,
    inbox: Option<Fd>,
    members: Members,
    peers: Vec<Peer>,
    /// Connected, and the notice is not there yet.
    arriving: Vec<Arrival>,
    /// The number of the next peer.
    next: u32,
    /// Notices that this process has seen.
    seen: u32,
    /// Accepted connections that are not decided yet or use a segment.
    connections: u32,
    /// This process has closed the listener.
    closed: bool,
    /// When the board was put up.
    born: u64,
}

/// A client that has left a notice, and the arena that it brought.
#[derive(Debug)]
struct Peer {
    /// What claims call it: given out once.
    number: u32,
    arena: Arena,
    file: u64,
    channel: Fd,
    uid: u32,
    log: u64,
    fresh: Vec<u32>,
    users: u32,
}

/// What a search found.
#[derive(Debug)]
pub enum Look {
    /// This is it: claim it.
    Found(Claim),
    /// Not yet, but it may come.
    Later,
    /// The other end has no Shunt, or may not share memory with us.
    Never(Reason),
}

/// An announcement whose owner the kernel has confirmed. (Small numbers: every connection keeps one.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The number of the peer in this family.
    pub peer: u32,
    pub slot: u32,
    pub word: u32,
}

impl Family {
    /// Puts up the board of a listening socket.
    ///
    /// # Errors
    /// Why no connection of this listener can leave kernel TCP.
    pub fn open(listener: i32) -> Result<Self, Reason> {
        let inode = fd::inode(listener).map_err(|_| Reason::NoMemory)?;
        let board = board_names(inode).find_map(|name| unix::listen_abstract(&name).ok());
        let board = board.ok_or(Reason::BoardTaken)?;
        let members = Members::new().map_err(|_| Reason::NoMemory)?;
        let mut family = Self {
            inode,
            address: net::local(listener).filter(Endpoint::is_specified),
            board: board.hide(),
            inbox: None,
            members,
            peers: Vec::new(),
            arriving: Vec::new(),
            next: 0,
            seen: 0,
            connections: 0,
            closed: false,
            born: clock::ticks(),
        };
        family.join();
        Ok(family)
    }

    /// The listener's inode number, which is its identity.
    #[must_use]
    pub const fn inode(&self) -> u64 {
        self.inode
    }

    /// The one address that every connection has at this end, if that is so.
    #[must_use]
    pub const fn address(&self) -> Option<Endpoint> {
        self.address
    }

    /// Descriptors of our own in here, to be kept from the program.
    pub fn descriptors(&self, mut each: impl FnMut(i32)) {
        each(self.board.raw());
        if let Some(inbox) = &self.inbox {
            each(inbox.raw());
        }
        for a in &self.arriving {
            each(a.channel.raw());
        }
        for p in &self.peers {
            each(p.channel.raw());
            each(p.arena.file().raw());
        }
    }

    /// Becomes one of the processes of the listener: after fork, in the child.
    pub fn join(&mut self) {
        self.inbox = None;
        self.arriving.clear(); // whoever is on the way to the parent
        self.members.join();
        if self.members.are_several() {
            self.open_inbox();
        }
    }

    /// Before fork: the child begins with what this process has been told by then.
    pub fn before_fork(&mut self) {
        if !self.closed {
            self.collect();
        }
    }

    /// Leaves: this process has closed the listener.
    pub fn part(&mut self) {
        self.closed = true;
        self.leave_members();
    }

    /// Once the listener is closed nobody need pass anything on to this process, but for connections that are not decided
    /// yet: a child that serves one closes the listener first.
    fn leave_members(&mut self) {
        let used: u32 = self.peers.iter().map(|p| p.users).sum();
        if self.closed && self.connections <= used {
            self.members.part();
            self.inbox = None;
        }
    }

    /// Whether something has been announced that nobody here has looked at. No system call.
    #[must_use]
    pub fn may_find(&self) -> bool {
        let news = |p: &Peer| !p.fresh.is_empty() || p.arena.logged() != p.log;
        self.peers.iter().any(news)
    }

    /// Whether no client known here has a connection on its way: one that ended before it was decided had none.
    #[must_use]
    pub fn expects_nobody(&self) -> bool {
        let expects = |p: &Peer| p.arena.pending().load(Ordering::Relaxed) > 0;
        self.arriving.is_empty() && !self.peers.iter().any(expects)
    }

    /// Searches the announcement of an accepted connection. `owner` is whose the other end is, once
    /// the kernel has said it.
    pub fn look(
        &mut self,
        tuple: &Tuple,
        owner: &mut Option<u32>,
        diag: &mut Option<Diag>,
        policy: PeerUsers,
    ) -> Look {
        match self.search(tuple, owner, diag, policy) {
            Look::Never(Reason::PeerPlain) => {}
            // Somebody known is about to announce. The kernel's word is had meanwhile, so that the
            // answer is quick.
            Look::Later if owner.is_none() => {
                *owner = owner_of(tuple, diag).ok().flatten();
                return Look::Later;
            }
            Look::Later => {}
            decided => return decided,
        }
        self.collect();
        self.search(tuple, owner, diag, policy)
    }

    fn search(
        &mut self,
        tuple: &Tuple,
        owner: &mut Option<u32>,
        diag: &mut Option<Diag>,
        policy: PeerUsers,
    ) -> Look {
        let mut hope = false;
        for p in &mut self.peers {
            // Before the log: a client is expected until it has announced, so it is found in one of the two.
            let expected = p.arena.pending().load(Ordering::SeqCst) > 0;
            let (new, log) = p.arena.announced_since(p.log);
            p.log = log;
            p.fresh.retain(|&slot| p.arena.is_announced(slot));
            for slot in new {
                if !p.fresh.contains(&slot) {
                    p.fresh.push(slot);
                }
            }
            let Some((at, slot, word)) = p
                .fresh
                .iter()
                .enumerate()
                .find_map(|(at, &slot)| Some((at, slot, p.arena.match_slot(slot, tuple)?)))
            else {
                hope |= expected;
                continue;
            };
            p.fresh.swap_remove(at);
            if !permits(policy, p.uid) {
                return Look::Never(Reason::PeerUser);
            }
            if owner.is_none() {
                match owner_of(tuple, diag) {
                    Ok(found) => *owner = found,
                    Err(why) => return Look::Never(why),
                }
            }
            if *owner != Some(p.uid) {
                return Look::Never(Reason::PeerForged);
            }
            return Look::Found(Claim {
                peer: p.number,
                slot,
                word,
            });
        }
        let hope =
            hope || self.is_young() || !self.arriving.is_empty() || self.members.others_are_busy();
        if hope || self.members.taken() != self.seen {
            Look::Later
        } else {
            Look::Never(Reason::PeerPlain)
        }
    }

    /// What was found is another connection's, which has come by the same addresses since: it is to find it yet.
    pub fn put_back(&mut self, claim: &Claim) {
        if let Some(p) = self.peers.iter_mut().find(|p| p.number == claim.peer) {
            p.fresh.push(claim.slot);
        }
    }

    /// Says yes to an announcement. With `awake` this side looks for data from the start, and needs no
    /// bell for the first.
    ///
    /// # Errors
    /// The offer was taken back, or there is no memory to map it.
    pub fn claim(&mut self, claim: &Claim, receive: u64, awake: bool) -> Result<Segment, Reason> {
        let p = self
            .peers
            .iter_mut()
            .find(|p| p.number == claim.peer)
            .ok_or(Reason::PeerGone)?;
        let mut segment = p.arena.segment(claim.slot).map_err(|_| Reason::NoMemory)?;
        segment.set_peer_user(p.uid);
        segment.settle_in();
        segment.own();
        segment.want(receive);
        if awake {
            segment.disarm(doorbell::DATA);
        }
        if !p.arena.claim(claim.slot, claim.word) {
            return Err(Reason::PeerGone);
        }
        p.users += 1;
        self.leave_members();
        Ok(segment)
    }

    /// This process is done with a claimed segment; with `last`, this side is.
    pub fn release(&mut self, claim: &Claim, last: bool) {
        if let Some(p) = self.peers.iter_mut().find(|p| p.number == claim.peer) {
            if last {
                p.arena.release(claim.slot);
            }
            p.users = p.users.saturating_sub(1);
        }
    }

    /// A connection was accepted that may use this family.
    pub const fn enter(&mut self) {
        self.connections += 1;
    }

    /// A connection that [`Self::enter`] counted has been decided against, or is closed.
    pub fn leave(&mut self) {
        self.connections = self.connections.saturating_sub(1);
        self.leave_members();
    }

    /// Whether the listener is closed and no connection needs the family any more.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.closed && self.connections == 0
    }
}

/// Whose the client's end of a connection is, by the kernel's word.
fn owner_of((client, server): &Tuple, diag: &mut Option<Diag>) -> Result<Option<u32>, Reason> {
    if diag.is_none() {
        *diag = Diag::open().ok();
    }
    let diag = diag.as_ref().ok_or(Reason::NoSockDiag)?;
    let found = diag.find(client, server).ok();
    Ok(found.filter(|o| !o.listening).map(|o| o.uid))
}
