//! Marks: a listener whose connections may use iWARP has beside it an abstract UNIX socket that is named after the
//! inode of the listener. It says so as long as a process that has both keeps it.
//!
//! Rule: a mark counts only if the kernel says that the listener's owner, or root, has made it.

use crate::sys::fd::{self, Fd};
use crate::sys::{Result, unix};

fn name(inode: u64) -> String {
    format!("shunt-1-{inode}-iwarp")
}

/// The mark of a listener of this process. It goes with the last process that holds it; exec does not hand it on.
#[derive(Debug)]
pub struct Mark {
    inode: u64,
    _socket: Fd,
}

impl Mark {
    /// Marks a listener.
    ///
    /// # Errors
    /// EADDRINUSE if it is marked already; no descriptor.
    pub fn put_up(listener: i32) -> Result<Self> {
        let inode = fd::inode(listener)?;
        // Never accepted from: whoever looks stays in the queue, and sees from there when the mark goes.
        let socket = unix::listen_abstract(&name(inode))?.hide();
        Ok(Self {
            inode,
            _socket: socket,
        })
    }

    /// The inode number of the listener.
    #[must_use]
    pub const fn listener(&self) -> u64 {
        self.inode
    }
}

/// Marks remembered at most.
const MOST: usize = 1024;

/// The marks that were seen, and are watched.
#[derive(Debug, Default)]
pub struct Marks {
    seen: Vec<Seen>,
}

#[derive(Debug)]
struct Seen {
    inode: u64,
    /// Who made it.
    user: u32,
    /// Shows when it goes.
    channel: Fd,
}

impl Marks {
    /// Whether this listener, of this user, has its mark. One system call for one that was seen before.
    pub fn has(&mut self, inode: u64, user: u32) -> bool {
        if let Some(at) = self.seen.iter().position(|s| s.inode == inode) {
            let is_there = self
                .seen
                .get(at)
                .is_some_and(|s| !unix::hung_up(&s.channel));
            if is_there {
                return self.seen.get(at).is_some_and(|s| is_trusted(s.user, user));
            }
            self.seen.swap_remove(at);
        }
        let Ok(channel) = unix::connect_abstract(&name(inode)) else {
            return false;
        };
        let Some(maker) = unix::peer_user(&channel) else {
            return false;
        };
        if !is_trusted(maker, user) {
            return false;
        }
        if self.seen.len() >= MOST {
            self.seen.retain(|s| !unix::hung_up(&s.channel));
        }
        if self.seen.len() < MOST {
            self.seen.push(Seen {
                inode,
                user: maker,
                channel: channel.hide_within(),
            });
        }
        true
    }
}

const fn is_trusted(maker: u32, owner: u32) -> bool {
    maker == owner || maker == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn a_mark_is_there_as_long_as_it_is_kept() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let inode = fd::inode(listener.as_raw_fd()).unwrap();
        let (mut marks, me) = (Marks::default(), sys::euid());
        assert!(!marks.has(inode, me));
        let mark = Mark::put_up(listener.as_raw_fd()).unwrap();
        assert_eq!(mark.listener(), inode);
        assert!(Mark::put_up(listener.as_raw_fd()).is_err(), "one");
        assert!(marks.has(inode, me) && marks.has(inode, me));
        assert_eq!(marks.seen.len(), 1, "looked up once");
        drop(mark);
        assert!(!marks.has(inode, me) && marks.seen.is_empty());
        let _again = Mark::put_up(listener.as_raw_fd()).unwrap();
        assert!(marks.has(inode, me));
    }

    #[test]
    fn only_the_owner_of_a_listener_and_root_may_mark_it() {
        assert!(is_trusted(7, 7) && is_trusted(0, 7));
        assert!(!is_trusted(8, 7) && !is_trusted(7, 0));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let inode = fd::inode(listener.as_raw_fd()).unwrap();
        let _mark = Mark::put_up(listener.as_raw_fd()).unwrap();
        let mut marks = Marks::default();
        let other = sys::euid() + 1;
        let expected = sys::euid() == 0;
        assert_eq!(marks.has(inode, other), expected);
        assert_eq!(marks.has(inode, other), expected, "also once it is known");
    }
}
