//! The accepting side: the board of a listener, the arenas that clients have left there, and the search
//! for the announcement of an accepted connection. Called by `preload::sockets` under its registry lock.
//!
//! Several processes may serve one listener. Each that was forked with it has an *inbox*, a board of its
//! own; whoever takes a notice from the board passes it on to the others, so that all know every arena.
//! Who they are stands in a page that they share.

use super::{board_name, inbox_name, leave, permits};
use crate::clock;
use crate::doorbell;
use crate::provider::Provider as _;
use crate::reason::Reason;
use crate::settings::PeerUsers;
use crate::shm::arena::{Arena, Tuple};
use crate::shm::segment::Segment;
use crate::sync::{AtomicU32, Ordering};
use crate::sys::Errno;
use crate::sys::diag::Diag;
use crate::sys::fd::{self, Fd};
use crate::sys::mem::Mapping;
use crate::sys::net::Endpoint;
use crate::sys::{self, net};

/// Processes that may serve one listener with an inbox; further ones stay on kernel TCP.
const MEMBERS: usize = 256;

/// How long (µs) a client may take from connecting to its notice, and how many are waited for at a time.
const ARRIVAL_US: u64 = 1_000_000;
const ARRIVALS: usize = 64;

/// A member is taking notices from the board.
const BUSY: u32 = 1 << 31;

/// The page that the processes of one listener share.
#[repr(C)]
#[derive(Debug)]
struct Page {
    /// Arenas taken from the board by anyone.
    taken: AtomicU32,
    /// Pid of each member, 0 for none; with [`BUSY`] while it may hold a notice that nobody else knows of.
    members: [AtomicU32; MEMBERS],
}

/// One listener's rendezvous, as this process sees it.
#[derive(Debug)]
pub struct Family {
    inode: u64,
    /// Where it listens, if at one address only: then every connection's own end is that.
    address: Option<Endpoint>,
    board: Fd,
    inbox: Option<Fd>,
    member: Option<usize>,
    page: Mapping,
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
}

/// Somebody between connecting and leaving a notice.
#[derive(Debug)]
struct Arrival {
    channel: Fd,
    since: u64,
    /// At the inbox, not at the board.
    inbox: bool,
}

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
        let board = net::listen_abstract(&board_name(inode)).map_err(|_| Reason::BoardTaken)?;
        let page = Mapping::family(size_of::<Page>()).map_err(|_| Reason::NoMemory)?;
        let mut family = Self {
            inode,
            address: net::local(listener).filter(Endpoint::is_specified),
            board: board.hide(),
            inbox: None,
            member: None,
            page,
            peers: Vec::new(),
            arriving: Vec::new(),
            next: 0,
            seen: 0,
            connections: 0,
            closed: false,
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

    fn page(&self) -> &Page {
        // SAFETY: the mapping has the page's size, all atomics, zero from the start.
        unsafe { self.page.base().cast::<Page>().as_ref() }
    }

    /// Becomes one of the processes of the listener: after fork, in the child.
    pub fn join(&mut self) {
        self.inbox = None;
        self.member = None;
        self.arriving.clear(); // whoever is on the way to the parent
        let me = sys::pid();
        let free = |m: &AtomicU32| {
            let word = m.load(Ordering::Relaxed);
            let pid = word & !BUSY;
            let gone = pid == 0 || pid == me.cast_unsigned() || !is_alive(pid);
            gone && m
                .compare_exchange(
                    word,
                    me.cast_unsigned(),
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .is_ok()
        };
        self.member = self.page().members.iter().position(free);
        if self.others().next().is_some() {
            self.open_inbox();
        }
    }

    fn open_inbox(&mut self) {
        if self.inbox.is_none()
            && let Some(m) = self.member
        {
            let name = inbox_name(self.inode, m, sys::pid());
            self.inbox = net::listen_abstract(&name).ok().map(Fd::hide);
        }
    }

    /// Leaves: this process has closed the listener.
    pub fn part(&mut self) {
        self.closed = true;
        if let Some(m) = self.member.take().and_then(|m| self.page().members.get(m)) {
            m.store(0, Ordering::Release);
        }
    }

    fn others(&self) -> impl Iterator<Item = (usize, i32)> + '_ {
        let me = self.member;
        self.page()
            .members
            .iter()
            .enumerate()
            .filter_map(move |(i, m)| {
                let pid = (m.load(Ordering::Acquire) & !BUSY).cast_signed();
                (pid != 0 && Some(i) != me).then_some((i, pid))
            })
    }

    /// Says whether this process may hold a notice that it has not passed on.
    fn set_busy(&self, busy: bool) {
        let word = if busy { BUSY } else { 0 } | sys::pid().cast_unsigned();
        if let Some(m) = self.member.and_then(|m| self.page().members.get(m)) {
            m.store(word, Ordering::SeqCst);
        }
    }

    /// Whether another process may hold one.
    fn others_are_busy(&self) -> bool {
        let me = self.member;
        self.page().members.iter().enumerate().any(|(i, m)| {
            let word = m.load(Ordering::SeqCst);
            word & BUSY != 0 && Some(i) != me && is_alive(word & !BUSY)
        })
    }

    /// Takes what has been left on the board and in the inbox.
    fn collect(&mut self) {
        let shared = self.others().next().is_some();
        if shared {
            self.set_busy(true);
        }
        self.collect_all();
        if shared {
            self.set_busy(self.arriving.iter().any(|a| !a.inbox));
        }
    }

    fn collect_all(&mut self) {
        for a in std::mem::take(&mut self.arriving) {
            self.arrive(a);
        }
        while let Ok(channel) = net::accept_now(&self.board) {
            self.arrive(Arrival {
                channel,
                since: clock::ticks(),
                inbox: false,
            });
        }
        if self.others().next().is_none() {
            return;
        }
        self.open_inbox();
        let mut waiting = Vec::new();
        if let Some(inbox) = &self.inbox {
            while let Ok(c) = net::accept_now(inbox) {
                waiting.push(c);
            }
        }
        for channel in waiting {
            self.arrive(Arrival {
                channel,
                since: clock::ticks(),
                inbox: true,
            });
        }
    }

    /// Takes a notice in, or goes on waiting for it: a client that has connected, and lost its core before
    /// it could send, would be overlooked for good.
    fn arrive(&mut self, a: Arrival) {
        let Some(uid) = net::peer_user(&a.channel) else {
            return;
        };
        // Only the listener's own processes pass on what others have left: the kernel's word for who the
        // client is travels in the client's own connection.
        if a.inbox && uid != sys::euid() && uid != 0 {
            return;
        }
        let mut buf = [0; 16];
        match net::recv_fds(&a.channel, &mut buf) {
            Ok((_, [Some(file), None])) if !a.inbox => {
                self.seen = self.page().taken.fetch_add(1, Ordering::AcqRel) + 1;
                self.forward(&a.channel, &file);
                self.adopt(a.channel, uid, file);
            }
            Ok((_, [Some(channel), Some(file)])) if a.inbox => {
                if let Some(uid) = net::peer_user(&channel) {
                    self.seen = self.seen.wrapping_add(1);
                    self.adopt(channel, uid, file);
                }
            }
            Err(Errno::AGAIN)
                if self.arriving.len() < ARRIVALS
                    && clock::ticks().wrapping_sub(a.since) < clock::us(ARRIVAL_US) =>
            {
                self.arriving.push(Arrival {
                    channel: a.channel.hide(),
                    ..a
                });
            }
            _ => {}
        }
    }

    /// Passes a notice on to the listener's other processes.
    fn forward(&self, channel: &Fd, file: &Fd) {
        for (m, pid) in self.others() {
            let _ = leave(
                &inbox_name(self.inode, m, pid),
                &[channel.raw(), file.raw()],
                |_| true,
            );
        }
    }

    fn adopt(&mut self, channel: Fd, uid: u32, file: Fd) {
        self.sweep();
        let Ok(id) = fd::inode(file.raw()) else {
            return;
        };
        if let Some(known) = self.peers.iter_mut().find(|p| p.file == id) {
            known.channel = channel.hide();
            return;
        }
        if let Ok(arena) = Arena::open(file) {
            let channel = channel.hide();
            let number = self.next;
            self.next = self.next.wrapping_add(1);
            self.peers.push(Peer {
                number,
                arena,
                file: id,
                channel,
                uid,
                log: 0,
                fresh: Vec::new(),
                users: 0,
            });
        }
    }

    /// Lets go of the arenas of clients that are gone.
    fn sweep(&mut self) {
        self.peers
            .retain(|p| p.users > 0 || !net::hung_up(&p.channel));
    }

    /// Whether no client with Shunt has ever been heard of here: the commonest answer, quickly given.
    pub fn hears_nobody(&mut self) -> bool {
        if !self.peers.is_empty() {
            return false;
        }
        self.collect();
        self.peers.is_empty()
            && self.arriving.is_empty()
            && !self.others_are_busy()
            && self.page().taken.load(Ordering::Acquire) == self.seen
    }

    /// Whether something has been announced that nobody here has looked at. No system call.
    #[must_use]
    pub fn may_find(&self) -> bool {
        let news = |p: &Peer| !p.fresh.is_empty() || p.arena.logged() != p.log;
        self.peers.iter().any(news)
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
                hope |= p.arena.pending().load(Ordering::SeqCst) > 0;
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
        let hope = hope || !self.arriving.is_empty() || self.others_are_busy();
        if hope || self.page().taken.load(Ordering::Acquire) != self.seen {
            Look::Later
        } else {
            Look::Never(Reason::PeerPlain)
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
        segment.want(receive);
        if awake {
            segment.disarm(doorbell::DATA);
        }
        if !p.arena.claim(claim.slot, claim.word) {
            return Err(Reason::PeerGone);
        }
        p.users += 1;
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
    pub const fn leave(&mut self) {
        self.connections = self.connections.saturating_sub(1);
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

fn is_alive(pid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    let r = unsafe { crate::syscall!(kill, pid, 0) };
    r != Err(sys::Errno(libc::ESRCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn a_notice_that_comes_late_is_not_lost() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut family = Family::open(listener.as_raw_fd()).unwrap();
        assert!(family.hears_nobody());
        let channel = net::connect_abstract(&board_name(family.inode())).unwrap();
        assert!(
            !family.hears_nobody(),
            "somebody is about to leave a notice"
        );
        let arena = Arena::create(4096).unwrap();
        net::send_fds(&channel, b"shunt", &[arena.file().raw()]).unwrap();
        assert!(!family.hears_nobody());
        assert_eq!((family.peers.len(), family.arriving.len()), (1, 0));
    }

    #[test]
    fn who_only_looks_whether_anybody_is_there_is_forgotten() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut family = Family::open(listener.as_raw_fd()).unwrap();
        drop(net::connect_abstract(&board_name(family.inode())).unwrap());
        assert!(family.hears_nobody());
        assert!(family.arriving.is_empty());
    }
}
