//! Notices: what clients have left on a listener's board, and what its other processes have passed on.
//!
//! Called by `Family` when a search has not found an announcement. The rule: a notice taken from the board
//! is passed on before anybody may say that a client is unknown.

use super::{Family, Peer};
use crate::clock;
use crate::rendezvous::{inbox_name, leave};
use crate::shm::arena::Arena;
use crate::sys::fd::{self, Fd, Room};
use crate::sys::{self, Errno, unix};

/// How long (µs) a client may take from connecting to its notice, and how many are waited for at a time.
const ARRIVAL_US: u64 = 1_000_000;
const ARRIVALS: usize = 64;
/// How long (µs) a listener is young: a client that looked before listen(2) took effect, and was let in after it, looks again.
const YOUNG_US: u64 = 100_000;

/// Somebody between connecting and leaving a notice.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) channel: Fd,
    since: u64,
    /// At the inbox, not at the board.
    inbox: bool,
}

impl Family {
    /// Where the listener's other processes leave what they pass on to this one.
    pub(super) fn open_inbox(&mut self) {
        if self.inbox.is_none()
            && let Some(m) = self.members.own()
        {
            let name = inbox_name(self.inode, m, sys::pid());
            self.inbox = unix::listen_abstract(&name).ok().map(Fd::hide);
        }
    }

    /// Takes what has been left on the board and in the inbox.
    pub(super) fn collect(&mut self) {
        let shared = self.members.are_several();
        if shared {
            self.members.set_busy(true);
        }
        self.collect_all();
        if shared {
            self.members
                .set_busy(self.arriving.iter().any(|a| !a.inbox));
        }
    }

    fn collect_all(&mut self) {
        if !self.arriving.is_empty() {
            let _room = Room::make();
            for a in std::mem::take(&mut self.arriving) {
                self.arrive(a);
            }
        }
        // What a notice brings is hidden at once, but takes the program's numbers before, of which it may have none left: a notice that
        // is lost to that would be all that its client ever says.
        let mut room = None;
        loop {
            match unix::accept_now(&self.board) {
                Ok(channel) => {
                    room.get_or_insert_with(Room::make);
                    self.arrive(Arrival {
                        channel,
                        since: clock::ticks(),
                        inbox: false,
                    });
                }
                Err(Errno(libc::EMFILE)) if room.is_none() => room = Some(Room::make()),
                Err(_) => break,
            }
        }
        if !self.members.are_several() {
            return;
        }
        self.open_inbox();
        let mut waiting = Vec::new();
        if let Some(inbox) = &self.inbox {
            while let Ok(c) = unix::accept_now(inbox) {
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
        let Some(uid) = unix::peer_user(&a.channel) else {
            return;
        };
        // Only the listener's own processes pass on what others have left: the kernel's word for who the
        // client is travels in the client's own connection.
        if a.inbox && uid != sys::euid() && uid != 0 {
            return;
        }
        let mut buf = [0; 16];
        match unix::recv_fds(&a.channel, &mut buf) {
            Ok((_, [Some(file), None])) if !a.inbox => {
                self.members.take();
                self.seen = self.seen.wrapping_add(1);
                self.forward(&a.channel, &file);
                self.adopt(a.channel, uid, file);
            }
            Ok((_, [Some(channel), Some(file)])) if a.inbox => {
                if let Some(uid) = unix::peer_user(&channel) {
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
        for (m, pid) in self.members.others() {
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
            .retain(|p| p.users > 0 || !unix::hung_up(&p.channel));
    }

    /// Whether clients may be on their way that the kernel has let in before they could know of the board.
    pub(super) fn is_young(&self) -> bool {
        clock::ticks().wrapping_sub(self.born) < clock::us(YOUNG_US)
    }

    /// Whether no client with Shunt has ever been heard of here: the commonest answer, quickly given.
    pub fn hears_nobody(&mut self) -> bool {
        if !self.peers.is_empty() {
            return false;
        }
        self.collect();
        !self.is_young()
            && self.peers.is_empty()
            && self.arriving.is_empty()
            && !self.members.others_are_busy()
            && self.members.taken() == self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::Reason;
    use crate::rendezvous::{board_name, server::Look};
    use crate::settings::PeerUsers;
    use std::os::fd::AsRawFd as _;

    fn open_long_ago(listener: &std::net::TcpListener) -> Family {
        let mut family = Family::open(listener.as_raw_fd()).unwrap();
        family.born = family.born.wrapping_sub(clock::us(YOUNG_US));
        family
    }

    #[test]
    fn at_first_nobody_is_held_for_unknown() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut family = Family::open(listener.as_raw_fd()).unwrap();
        let any = crate::sys::net::local(listener.as_raw_fd()).unwrap();
        let look = |f: &mut Family| f.look(&(any, any), &mut None, &mut None, PeerUsers::Same);
        assert!(!family.hears_nobody());
        assert!(matches!(look(&mut family), Look::Later));
        family.born = family.born.wrapping_sub(clock::us(YOUNG_US));
        assert!(family.hears_nobody());
        assert!(matches!(look(&mut family), Look::Never(Reason::PeerPlain)));
    }

    #[test]
    fn a_notice_that_comes_late_is_not_lost() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut family = open_long_ago(&listener);
        assert!(family.hears_nobody());
        let channel = unix::connect_abstract(&board_name(family.inode(), 0)).unwrap();
        assert!(
            !family.hears_nobody(),
            "somebody is about to leave a notice"
        );
        let arena = Arena::create(4096).unwrap();
        unix::send_fds(&channel, b"shunt", &[arena.file().raw()]).unwrap();
        assert!(!family.hears_nobody());
        assert_eq!((family.peers.len(), family.arriving.len()), (1, 0));
    }

    #[test]
    fn who_only_looks_whether_anybody_is_there_is_forgotten() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut family = open_long_ago(&listener);
        drop(unix::connect_abstract(&board_name(family.inode(), 0)).unwrap());
        assert!(family.hears_nobody());
        assert!(family.arriving.is_empty());
    }
}
